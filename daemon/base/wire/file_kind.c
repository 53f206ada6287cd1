/* SPDX-License-Identifier: Apache-2.0 */
#include "file_kind.h"

#include <string.h>

const char *file_kind_hint(const void *bytes, size_t n)
{
    static const struct {
        const char *begins, *hint;
        size_t n;
    } known[] = {
        {"\x1f\x8b", "; it is compressed by gzip: unpack it first (gunzip)", 2},
        {"\x28\xb5\x2f\xfd", "; it is compressed by zstd: unpack it first (unzstd)", 4},
        {"PK\x03\x04", "; it is a zip archive: unpack it first (unzip)", 4},
        {"GGUF",
         "; it is a GGUF file, a model's weights: give the model's config.json, or for a "
         "document what 'kvcachectl doc export' wrote",
         4},
        {"\xef\xbb\xbf", "; it begins with a byte order mark: save it as UTF-8 without one", 3},
        {"\xff\xfe", "; it is UTF-16: save it as UTF-8", 2},
        {"\xfe\xff", "; it is UTF-16: save it as UTF-8", 2},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (n >= known[i].n && memcmp(bytes, known[i].begins, known[i].n) == 0)
            return known[i].hint;
    return "";
}

const char *file_kind_text_hint(const void *bytes, size_t n)
{
    const char *text = bytes;
    const char *hint = file_kind_hint(bytes, n);
    size_t commas = 0, i = 0;
    if (hint[0] != '\0')
        return hint;
    for (; i < n && text[i] != '\n' && text[i] != '\r'; i++) {
        if (strchr("[]{}:", text[i]) || text[i] < ' ')
            return "";
        commas += text[i] == ',';
    }
    return commas > 0 ? "; it is lines of values with commas, CSV" : "";
}
