/* SPDX-License-Identifier: Apache-2.0 */
/* --check-store: reads a store that no daemon has open, and changes nothing. Main thread. */
#ifndef KVC_CHECK_STORE_H
#define KVC_CHECK_STORE_H

#include "cli.h"

/* Prints what it finds. CLI_EXIT_OK: the store is clean; CLI_EXIT_FAILED: it is damaged;
 * CLI_EXIT_USAGE: it could not be read, and stderr says why. */
int check_store(const struct cli *cli);

#endif
