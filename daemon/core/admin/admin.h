/* SPDX-License-Identifier: Apache-2.0 */
/* What administrators ask for. */
#ifndef KVC_CORE_ADMIN_H
#define KVC_CORE_ADMIN_H

#include "serve.h"

/* ---- job.c ---- */

/* A step of the eviction job at hand; true: there is more to do. */
bool job_run(struct core *c);

/* ---- explain.c ---- */

/* Of a block that is linked */
void core__explain(struct core *c, const struct block *b, struct kvc_block_info *x);

/* ---- rules.c ---- */

/* What is set now is what it began with. */
void rules_begin(struct core *c);

/* ---- near_check.c ---- */

void near_check(struct core *c);

#endif
