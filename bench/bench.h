/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the subcommands of kvcachebench share: exit codes, messages, and option values.
 * One thread; every subcommand is one file with a cmd_<name>() in it.
 */
#ifndef BENCH_H
#define BENCH_H

#include <getopt.h> /* optind */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "args.h"

#define BENCH_MUST_USE __attribute__((warn_unused_result))

enum bench_exit {
    BENCH_OK = 0,
    BENCH_WRONG = 1,  /* it ran, and a byte that was read was not the byte that was stored */
    BENCH_USAGE = 2,  /* the command line or the trace is wrong */
    BENCH_DOWN = 3,   /* no daemon answers, or it ended during the run */
    BENCH_DENIED = 4, /* the daemon gives this uid no rights */
    BENCH_FAILED = 5
};

struct bench_cmd {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv); /* returns enum bench_exit */
};

int cmd_replay(int argc, char **argv);
int cmd_gen(int argc, char **argv);
int cmd_store(int argc, char **argv);
int cmd_load(int argc, char **argv);
int cmd_lookup(int argc, char **argv);
int cmd_reuse(int argc, char **argv);
int cmd_churn(int argc, char **argv);
int cmd_idle(int argc, char **argv);
int cmd_surge(int argc, char **argv);
int cmd_fair(int argc, char **argv);
int cmd_nvme(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_scan(int argc, char **argv);
int cmd_gpu(int argc, char **argv);
int cmd_pages(int argc, char **argv);
int cmd_attention(int argc, char **argv);
int cmd_allocation(int argc, char **argv);
int cmd_ttft(int argc, char **argv);
int cmd_quality(int argc, char **argv);

/* The subcommand's name, for messages. */
void say_set_command(const char *name);
/* Prints "kvcachebench replay: TEXT" on stderr; a progress line that is shown is cleared first. */
__attribute__((format(printf, 1, 2))) void say_error(const char *format, ...);
/* The same, with a hint to --help behind the text; returns BENCH_USAGE. */
__attribute__((format(printf, 1, 2))) int say_usage(const char *format, ...);
/* The exit code that fits an error of the library. */
int say_exit_code(int error);

/* Takes all options into `base`. 0: `optind` is the first operand. -1: `help` has been printed.
 * Else BENCH_USAGE after printing what is wrong, or what a row's function returned. */
BENCH_MUST_USE int opt_take(int argc, char **argv, const struct arg *options, const char *help,
                            void *base);
/* The same for a command line without operands: one is refused. */
BENCH_MUST_USE int opt_take_only(int argc, char **argv, const struct arg *options, const char *help,
                                 void *base);
/* Takes a list of sizes, "64KiB,2MiB", `max` of them at most. */
BENCH_MUST_USE int opt_bytes_list(const char *name, const char *text, uint64_t *list, size_t max,
                                  size_t *ret_n);

uint64_t now_ns(void);

#endif
