/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines as data: one table gives an option's name, value, limits and help, and feeds the
 * parser and --help.
 *
 * args_take() goes through argv with getopt_long(): options may stand behind operands and be
 * shortened, a value may stand behind '='. A value is stored in a field of the caller's struct.
 * What is refused leaves the field as it was; the caller's `usage` is told what was wrong and what
 * would be right. One call takes a value once: the same option again, or another one of the same
 * field, is refused, for only one of them could count (but ARG_REPEATS). An option without a value
 * may be given again. Every table has --help and -h. --list-options alone prints each option that
 * is taken, those of shared tables and those without help too: a gate compares help texts and man
 * pages with that list. Nothing is allocated. Threads: one; getopt's state is the process's.
 */
#ifndef KVC_WIRE_ARGS_H
#define KVC_WIRE_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Says what is wrong, and returns what args_take() is to return: above 0. */
typedef int args_usage_fn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Takes an option's value (NULL where it has none). `at` is the field, or the whole struct. 0, or
 * what args_take() is to return after saying why. */
typedef int args_take_fn(void *at, const char *value);
/* Reads a value into the field. 0, or below it with a constant text that says what is wrong. */
typedef int args_parse_fn(const char *value, void *at, const char **ret_why);

enum args_kind {
    ARGS_HEADING,
    ARGS_SHOWN, /* --help shows it here; the shared table takes it */
    ARGS_FLAG,
    ARGS_TEXT,
    ARGS_COUNT,
    ARGS_KILO,
    ARGS_BYTES,
    ARGS_MS,
    ARGS_NUMBER,
    ARGS_PARSE,
    ARGS_DO
};

/* A row: {"--NAME" or "--NAME VALUE" "--NAME[=VALUE]" or "--NAME [VALUE]", help, ARG_...}. A row
 * without help is not among those that --help prints. {0} ends the table. */
struct arg {
    const char *spec;
    const char *help;
    enum args_kind kind;
    uint32_t offset, size;
    uint64_t min, max;
    double low, high;
    args_take_fn *take;
    args_parse_fn *parse;
    bool repeats, empty, whole_name;
};

#define ARG__AT(kind_, type, member, ctype)     \
    .kind = _Generic(((type *)0)->member, ctype \
                     : (kind_)),                \
    .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)
#define ARG__UINT(kind_, type, member, min_, max_)                                        \
    .kind = _Generic(((type *)0)->member, uint32_t                                        \
                     : (kind_), uint64_t                                                  \
                     : (kind_)),                                                          \
    .offset = offsetof(type, member), .size = sizeof(((type *)0)->member), .min = (min_), \
    .max = (max_)

/* bool: true where the option is given. */
#define ARG_FLAG(type, member) ARG__AT(ARGS_FLAG, type, member, bool)
/* const char *: the word of argv, which must not be empty. */
#define ARG_TEXT(type, member) ARG__AT(ARGS_TEXT, type, member, const char *)
/* The same, of 1 to `bytes` bytes. */
#define ARG_NAME(type, member, bytes) ARG_TEXT(type, member), .max = (bytes)
/* The text may be empty. */
#define ARG_EMPTY .empty = true
/* The option may be given several times, and each value counts. */
#define ARG_REPEATS .repeats = true
/* The option must be spelled out: for options that destroy data. */
#define ARG_WHOLE_NAME .whole_name = true
/* uint32_t or uint64_t: a whole number, "64MiB", "90s" in milliseconds; from `min` to `max`. */
#define ARG_COUNT(type, member, min, max) ARG__UINT(ARGS_COUNT, type, member, min, max)
/* The same, and 8K and 2M: 1K is 1024. */
#define ARG_KILO(type, member, min, max)  ARG__UINT(ARGS_KILO, type, member, min, max)
#define ARG_BYTES(type, member, min, max) ARG__UINT(ARGS_BYTES, type, member, min, max)
#define ARG_MS(type, member, min, max)    ARG__UINT(ARGS_MS, type, member, min, max)
/* double */
#define ARG_NUMBER(type, member, low_, high_) \
    ARG__AT(ARGS_NUMBER, type, member, double), .low = (low_), .high = (high_)
/* `fn` reads the value. */
#define ARG_PARSE(type, member, fn) \
    .kind = ARGS_PARSE, .offset = offsetof(type, member), .parse = (fn)
/* Any other option: `fn` takes the value, and gets the field (ARG_DO_AT) or the struct (ARG_DO). */
#define ARG_DO_AT(type, member, fn) .kind = ARGS_DO, .offset = offsetof(type, member), .take = (fn)
#define ARG_DO(fn)                  .kind = ARGS_DO, .take = (fn)

/* A line above the rows that follow: {"What they are about:", "", ARG_HEADING}. */
#define ARG_HEADING .kind = ARGS_HEADING
/* --help lists it here, with this command's words; the shared table takes it. */
#define ARG_SHOWN .kind = ARGS_SHOWN

/* Stands in a help text where the options are listed. Lines of the text that do not begin with a
 * space are wrapped. */
#define ARGS_HERE "\1"

struct command_line {
    const struct arg *options;
    void *base;               /* the struct of their fields; NULL: --help lists them, no more */
    const struct arg *shared; /* options of all commands of the program, not listed; may be NULL */
    void *shared_base;
    const char *help;
    args_usage_fn *usage;
    bool no_operands; /* an operand is refused */
    bool stop_early;  /* parsing ends at the first operand: later words are another command's */
};

/* 0, with `optind` at the first operand; -1 when --help or --list-options was served; else what
 * `usage` or a take function returned. */
__attribute__((warn_unused_result)) int args_take(const struct command_line *line, int argc,
                                                  char **argv);
/* args_take() of a program or command with one table of options, and no operands. */
__attribute__((warn_unused_result)) int args_take_only(const struct arg *options, void *base,
                                                       const char *help, args_usage_fn *usage,
                                                       int argc, char **argv);
/* An args_usage_fn: prints "PROGRAM: TEXT" and a hint at --help to stderr. Returns 2. */
__attribute__((format(printf, 1, 2))) int args_usage(const char *format, ...);
/* The help text, with the options in it. */
void args_help(FILE *to, const char *help, const struct arg *options);

/* One value by itself: 0, or what `usage` returned. */
int args_count(args_usage_fn *usage, const char *name, const char *text, uint64_t min, uint64_t max,
               uint64_t *ret);
int args_bytes(args_usage_fn *usage, const char *name, const char *text, uint64_t min, uint64_t max,
               uint64_t *ret);
/* Whether the text is a number within these limits; prints nothing. */
__attribute__((warn_unused_result)) bool args_is_number(const char *text, double low, double high,
                                                        double *ret);

#endif
