/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options: one table gives key, type, default, limits and help. The configuration file, --set,
 * --print-config and --help all use it.
 *
 * A value arrives as text and is stored in a field of the caller's struct. A refused value leaves
 * the field as it was, and `why` says what was expected, what came, and what would work. Nothing is
 * allocated. Pure: any thread.
 */
#ifndef KVC_BASE_OPTION_H
#define KVC_BASE_OPTION_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

enum option_type {
    OPT_BYTES,    /* uint64_t; units_parse_bytes() */
    OPT_DURATION, /* uint64_t, nanoseconds; units_parse_duration() */
    OPT_UINT,     /* unsigned of 1, 2, 4 or 8 bytes */
    OPT_BOOL,     /* bool; true/false, yes/no, on/off */
    OPT_STRING,   /* char[size]; no control characters */
    OPT_PATH,     /* char[size]; absolute. Empty only where the default is empty: "not set" */
    OPT_ENUM,     /* unsigned of 1, 2, 4 or 8 bytes: index into choices */
};

/* "auto" is a value, stored as 0 (BYTES, DURATION, UINT), and exempt from min. */
#define OPTF_AUTO 1u
/* A new value can be taken while the program runs. */
#define OPTF_LIVE 2u
/* A STRING of several values, separated by commas. */
#define OPTF_LIST 4u

struct option_desc {
    const char *key; /* "host.limit" */
    enum option_type type;
    size_t offset; /* of the field in the caller's struct */
    size_t size;   /* of the field */
    const char *def;
    const char *help;
    uint64_t min, max;          /* BYTES, DURATION (ns), UINT; max 0 is no limit */
    const char *const *choices; /* ENUM: ends with NULL */
    unsigned flags;
};

/* .offset and .size of a member, for a table row. */
#define OPTION_FIELD(type, member) \
    .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)

/* Declares `d` and walks the table in order. */
#define OPTION_FOR_EACH(d, tab, n) for (const struct option_desc *d = (tab); d < (tab) + (n); d++)

/* The row of that key, or NULL. */
const struct option_desc *option_find(const struct option_desc *tab, unsigned n, const char *key);

/* Stores `value`. -ENOENT: no such key; `why` names a similar one, if there is one. -EINVAL: the
 * value is refused. `why` gets at most why_cap bytes, with a NUL, and is untouched on success. */
KVC_WARN_UNUSED int option_set(const struct option_desc *tab, unsigned n, void *base,
                               const char *key, const char *value, char *why, size_t why_cap);
/* Stores every default. -EINVAL when one does not fit its own row; why then starts with the key. */
KVC_WARN_UNUSED int option_defaults(const struct option_desc *tab, unsigned n, void *base,
                                    char *why, size_t why_cap);
/* Writes the field as text, from which option_set() makes the same value. Returns the text's
 * length, or -ENOSPC. */
KVC_WARN_UNUSED int option_format(const struct option_desc *d, const void *base, char *buf,
                                  size_t cap);
/* Writes what the row accepts, for --help and messages: "a size from 1MiB to 1TiB, or 'auto'".
 * Returns the text's length, or -ENOSPC. */
KVC_WARN_UNUSED int option_expects(const struct option_desc *d, char *buf, size_t cap);

#endif
