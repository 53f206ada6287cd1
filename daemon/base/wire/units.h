/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes, durations and counts as people write and read them.
 *
 * Parsers take the whole string or nothing: 0, -EINVAL (not of that form) or -ERANGE (does not fit
 * 64 bits). *ret is untouched on failure. *ret_why then points to a constant text that says what
 * was wrong and what would work; it is untouched on success, and ret_why may be NULL. Formatters
 * write into the caller's buffer and return it. Nothing here looks at the locale.
 */
#ifndef KVC_WIRE_UNITS_H
#define KVC_WIRE_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#define UNITS_TEXT_BYTES  16 /* room for any text of units_format_bytes, _rate and _duration_* */
#define UNITS_COUNT_BYTES 32 /* the same for units_format_count */

/* "4096", "4096B", "64GiB", "1.5 TiB", "10GB": B, KiB MiB GiB TiB (powers of 1024), kB MB GB TB
 * (powers of 1000), one optional space before the unit. A fraction needs a unit above B; what it
 * leaves below one byte is cut off. */
__attribute__((warn_unused_result)) int units_parse_bytes(const char *s, uint64_t *ret,
                                                          const char **ret_why);
/* Nanoseconds from "250ms", "2s", "1.5h": ns us ms s min h d, as above. A unit is required, except
 * for "0". */
__attribute__((warn_unused_result)) int units_parse_duration(const char *s, uint64_t *ret_ns,
                                                             const char **ret_why);
/* Decimal digits and nothing else. */
__attribute__((warn_unused_result)) int units_parse_count(const char *s, uint64_t *ret,
                                                          const char **ret_why);

/* "512 B", "1.50 GiB" */
const char *units_format_bytes(uint64_t bytes, char buf[UNITS_TEXT_BYTES]);
/* "999 B/s", "17.20 GB/s": rates are decimal, as memory and drive vendors state them. */
const char *units_format_rate(uint64_t bytes_per_s, char buf[UNITS_TEXT_BYTES]);
/* "850 ns", "12.30 us", "1.50 ms", "2.34 s", "3 min 20 s", "1 h 5 min", "7 d 3 h" */
const char *units_format_duration_ns(uint64_t ns, char buf[UNITS_TEXT_BYTES]);
/* The same; what is longer than 64 bits of nanoseconds, 584 years, shows as these. */
const char *units_format_duration_ms(uint64_t ms, char buf[UNITS_TEXT_BYTES]);
/* "12,031" */
const char *units_format_count(uint64_t n, char buf[UNITS_COUNT_BYTES]);

/* What the name of a statistic says of its value. */
struct units_stat {
    const char
        *suffix;       /* the end of the name that gives the unit: "_ms"; "": the name gives none */
    const char *base;  /* the unit to show instead: "seconds", "bytes", "ratio", ...; "": none */
    uint64_t per_base; /* how many of the value's units are one `base`: 1000 for "_ms" */
    bool is_time;
    bool is_bytes; /* also where "bytes" is a word elsewhere in the name */
};
void units_of_stat(const char *name, struct units_stat *ret);

/* Text in whole units that the parser takes back to exactly this value: "64GiB", "4097", "250ms",
 * "0". */
const char *units_exact_bytes(uint64_t bytes, char buf[UNITS_COUNT_BYTES]);
const char *units_exact_duration(uint64_t ns, char buf[UNITS_COUNT_BYTES]);

#endif
