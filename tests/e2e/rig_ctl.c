/* SPDX-License-Identifier: Apache-2.0 */
#include "rig_ctl.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

char said[65536];

int said_by(const char *line)
{
    FILE *out = popen(line, "r"); /* NOLINT(cert-env33-c): our own words */
    ck_assert_ptr_nonnull(out);
    const size_t n = fread(said, 1, sizeof said - 1, out);
    said[n] = '\0';
    return pclose(out);
}

const char *key_text(const uint8_t *key)
{
    static char text[2 * KVC_KEY_BYTES + 1];
    for (uint32_t i = 0; i < KVC_KEY_BYTES; i++)
        snprintf(text + 2 * (size_t)i, 3, "%02x", key[i]);
    return text;
}

void ctl(const struct rig *r, int code, const char *format, ...)
{
    char words[1024], line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    /* A minute, where the words say nothing: longer than any machine under load takes. */
    const char *timeout = strstr(words, "--timeout ") ? "" : "--timeout 60s ";
    snprintf(line, sizeof line, "cd %s && KVCACHE_SOCKET=%s %s/kvcachectl %s%s 2>&1", r->dir,
             r->socket, rig_bin(), timeout, words);
    const int status = said_by(line);
    printf("$ kvcachectl %s\n%s", words, said);
    fflush(stdout);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == code,
                  "kvcachectl %s: exit code %d, not %d: %s", words, WEXITSTATUS(status), code,
                  said);
}
