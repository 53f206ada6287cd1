/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small texts: sizes, durations, counts, block keys. The input is one text. What a parser takes,
 * the exact formatter writes, and the parser takes that to the same value; what it refuses leaves
 * the output alone and has a reason.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fuzz.h"
#include "key.h"
#include "units.h"

typedef int parse_fn(const char *s, uint64_t *ret, const char **ret_why);
typedef const char *exact_fn(uint64_t v, char buf[UNITS_COUNT_BYTES]);

static int check_number(const char *text, parse_fn *parse, exact_fn *exact)
{
    const uint64_t untouched = 0x5a5a5a5a5a5a5a5a;
    uint64_t v = untouched, again = 0;
    const char *why = NULL;
    char buf[UNITS_COUNT_BYTES];
    int rc = parse(text, &v, &why);
    if (rc < 0) {
        FUZZ_CHECK((rc == -EINVAL || rc == -ERANGE) && v == untouched && why != NULL && why[0],
                   "'%s': %d without a reason", text, rc);
        FUZZ_CHECK(parse(text, &v, NULL) == rc, "'%s': another result without ret_why", text);
        return 0;
    }
    FUZZ_CHECK(why == NULL, "'%s' was taken, and %s", text, why);
    if (exact != NULL) {
        rc = parse(exact(v, buf), &again, NULL);
        FUZZ_CHECK(rc == 0 && again == v, "'%s' is %llu, '%s' is %llu", text, (unsigned long long)v,
                   buf, (unsigned long long)again);
    }
    char shown[UNITS_COUNT_BYTES];
    FUZZ_CHECK(strlen(units_format_bytes(v, shown)) < UNITS_TEXT_BYTES, "%s", shown);
    FUZZ_CHECK(strlen(units_format_duration_ns(v, shown)) < UNITS_TEXT_BYTES, "%s", shown);
    FUZZ_CHECK(strlen(units_format_rate(v, shown)) < UNITS_TEXT_BYTES, "%s", shown);
    FUZZ_CHECK(strlen(units_format_count(v, shown)) < UNITS_COUNT_BYTES, "%s", shown);
    return 1;
}

static int check_key(const char *text)
{
    struct key_arg key;
    char buf[KEY_TEXT_BYTES];
    const char *why = NULL;
    if (key_parse(text, &key, &why) < 0) {
        FUZZ_CHECK(why != NULL && why[0], "'%s' is no key, without a reason", text);
        return 0;
    }
    key_format(key.key, buf);
    buf[key.digits] = '\0';
    FUZZ_CHECK(strcasecmp(buf, text) == 0, "'%s' reads as '%s'", text, buf);
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    int taken = check_number(text, units_parse_bytes, units_exact_bytes);
    taken += check_number(text, units_parse_duration, units_exact_duration);
    taken += check_number(text, units_parse_count, NULL);
    taken += check_key(text);
    *(taken > 0 ? &fuzz_tally.taken : &fuzz_tally.refused) += 1;
    free(text);
    return 0;
}
