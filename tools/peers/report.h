/* SPDX-License-Identifier: Apache-2.0 */
/* Output of the comparison: tables for people, or lines of JSON (out.h). */
#ifndef REPORT_H
#define REPORT_H

#include <stdio.h>

#include "measure.h"

/* `results` is in the order of `list`, which ends with NULL. */
void report_json(const struct peer_plan *plan, const struct peer_ops *const *list,
                 struct peer_result *results);
void report_table(FILE *to, const struct peer_plan *plan, const struct peer_ops *const *list,
                  struct peer_result *results);
/* Printed once, after all sizes: versions and settings of the measured peers, and why the others
 * were not measured. */
void report_notes(FILE *to, const struct peer_ops *const *list, const struct peer_result *results);

#endif
