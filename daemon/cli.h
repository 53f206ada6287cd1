/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of kvcache-daemon. Runs before anything else; allocates nothing. */
#ifndef KVC_CLI_H
#define KVC_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "err.h"

#define CLI_SETS_MAX 64u

/* Exit statuses of kvcache-daemon. */
enum cli_exit {
    CLI_EXIT_OK = 0,
    CLI_EXIT_FAILED = 1, /* could not start, or stopped by an error; --check-store: damaged */
    CLI_EXIT_USAGE = 2,  /* the command line or the configuration is wrong; nothing was started */
};

enum cli_action {
    CLI_RUN,
    CLI_CHECK_CONFIG,
    CLI_PRINT_CONFIG,
    CLI_CHECK_STORE,
    CLI_HELP,
    CLI_VERSION
};

struct cli {
    enum cli_action action;
    const char *config; /* NULL: built-in defaults. Borrowed from argv, as are sets. */
    const char *sets[CLI_SETS_MAX];
    unsigned nsets;
    const char *store;   /* CLI_CHECK_STORE: paths, separated by commas */
    const char *journal; /* CLI_CHECK_STORE: its directory; NULL: beside the first path's file */
    bool quick, json;    /* CLI_CHECK_STORE */
};

/* 0, or -EINVAL with `why` (terminated, no newline) saying what was wrong and what would work. */
KVC_WARN_UNUSED int cli_parse(int argc, char **argv, struct cli *ret, char *why, size_t why_cap);

/* --help: what the daemon is, its options, every key of the configuration, signals, examples. */
void cli_print_help(FILE *out);
/* "kvcache-daemon 0.8.0 (protocol 2 to 2)" */
void cli_print_version(FILE *out);

#endif
