/* SPDX-License-Identifier: Apache-2.0 */
#include "plain.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"

bool plain_steers(uint32_t code)
{
    return code < ' ' || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0x200e ||
           code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
           (code >= 0x2066 && code <= 0x2069);
}

char *plain(char *text)
{
    size_t left = strlen(text), n;
    char *to = text;
    for (const char *from = text; left > 0; from += n, left -= n) {
        uint32_t code;
        n = utf8_next(from, left, &code);
        if (n == 0 || plain_steers(code)) {
            n = n > 0 ? n : 1;
            *to++ = '?';
            continue;
        }
        memmove(to, from, n);
        to += n;
    }
    *to = '\0';
    return text;
}

void plain_line(FILE *to, const char *format, va_list args)
{
    char shorter[256], *text = NULL;
    va_list again;
    va_copy(again, args);
    if (vasprintf(&text, format, args) < 0) {
        (void)vsnprintf(shorter, sizeof(shorter), format, again);
        text = NULL;
    }
    va_end(again);
    fprintf(to, "%s\n", plain(text ? text : shorter));
    free(text);
}
