/* SPDX-License-Identifier: Apache-2.0 */
/* What came out, as tables for people or as lines of JSON (out.h). */
#ifndef REPORT_H
#define REPORT_H

#include <stdio.h>

#include "measure.h"

/* `results` is in the order of `list`, which ends with NULL. */
void report_json(const struct peer_plan *plan, const struct peer_ops *const *list,
                 struct peer_result *results);
void report_table(FILE *to, const struct peer_plan *plan, const struct peer_ops *const *list,
                  struct peer_result *results);
/* Once, after all sizes: versions and settings of those that were measured, and why the others were
 * not. */
void report_notes(FILE *to, const struct peer_ops *const *list, const struct peer_result *results);

#endif
