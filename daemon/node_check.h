/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a start needs of the machine, looked at before anything is made: room for the storage tier,
 * files that may be as large as configured, descriptors, huge pages. --check-config and a start
 * both ask here.
 *
 * Before any other thread. Changes nothing. What is found is logged here.
 */
#ifndef KVC_NODE_CHECK_H
#define KVC_NODE_CHECK_H

#include "config.h"

/* Whether the machine has what `cfg`, which has no "auto" left, needs; an error in the log for each
 * thing that it has not. A directory in which other users may put files in place of the daemon's
 * is a warning. */
KVC_WARN_UNUSED bool node_check(const struct config *cfg);

#endif
