/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a JSON value in one line, for --json. Characters that steer a terminal are escaped. */
#include "json.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "plain.h"
#include "stdfds.h"
#include "utf8.h"

/* Also escapes characters that JSON allows unescaped but that steer a terminal; a parser reads the
 * same text. */
static void put_escaped(const char *text)
{
    size_t left = strlen(text), n;
    for (; left > 0; text += n, left -= n) {
        uint32_t code;
        n = utf8_next(text, left, &code);
        if (n == 0) /* jansson's texts are UTF-8 */
            n = 1;
        else if (plain_steers(code))
            printf("\\u%04x", code);
        else
            fwrite(text, 1, n, stdout);
    }
}

void json_print(json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (!text) {
        fputs("kvcachectl: out of memory\n", stderr);
        abort();
    }
    put_escaped(text);
    free(text);
    putchar('\n');
    (void)stdfds_flush(); /* an error is kept: main() prints it and exits with it */
    json_decref(value);
}

long long json_number(uint64_t value)
{
    return value < INT64_MAX ? (long long)value : INT64_MAX;
}
