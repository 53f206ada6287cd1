/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks, before a start makes anything, what it needs of the machine: room for the storage tier,
 * files that may be as large as configured, descriptors, huge pages. --check-config and a start
 * both call it.
 *
 * Runs before any other thread. Changes nothing. Logs what it finds.
 */
#ifndef KVC_NODE_CHECK_H
#define KVC_NODE_CHECK_H

#include "config.h"

/* Whether the machine has all that `cfg`, which has no "auto" left, needs. Logs an error for each
 * thing that is missing. A directory in which other users may put files in place of the daemon's
 * is a warning. */
KVC_WARN_UNUSED bool node_check(const struct config *cfg);

#endif
