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

enum cli_action { CLI_RUN, CLI_CHECK_CONFIG, CLI_PRINT_CONFIG, CLI_CHECK_STORE };

struct cli {
    enum cli_action action;
    const char *config; /* NULL: built-in defaults. Borrowed from argv, as are sets. */
    const char *sets[CLI_SETS_MAX];
    unsigned nsets;
    const char *store;   /* CLI_CHECK_STORE: paths, separated by commas */
    const char *journal; /* CLI_CHECK_STORE: its directory; NULL: beside the first path's file */
    bool quick, json;    /* CLI_CHECK_STORE */
};

/* 0; below 0 when --help or --version was served; CLI_EXIT_USAGE after saying on stderr what was
 * wrong and what would work. */
KVC_WARN_UNUSED int cli_parse(int argc, char **argv, struct cli *ret);

#endif
