/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators and tests ask of the core: evictions on request, views of blocks, rules, checks.
 */
#ifndef KVC_CORE_ADMIN_H
#define KVC_CORE_ADMIN_H

#include "serve.h"

/* ---- bulk_evict.c ---- */

/* Runs a slice of the first eviction job; true: there is more to do. */
bool job_run(struct core *c);

/* ---- explain.c ---- */

/* Fills a row of the table of blocks: where b is, and who holds it. b is linked. */
void core__explain(struct core *c, const struct block *b, struct kvc_block_info *x);

/* ---- rules.c ---- */

/* Notes the present rules as those of the daemon's start (core_policy_view.start). */
void rules_begin(struct core *c);

/* ---- check_hbm.c ---- */

void hbm_check(struct core *c);

#endif
