/* SPDX-License-Identifier: Apache-2.0 */
/* Copies by devices: jobs, and who waits for one. */
#ifndef KVC_CORE_NEAR_JOBS_H
#define KVC_CORE_NEAR_JOBS_H

#include "near_table.h"
#include "serve.h"

/* ---- near_job.c ---- */

/* NULL: all are under way, or the principal has its share; or it is `gated`, and so are as many
 * others as may be. */
struct near_job *near_job_take(struct core *c, const struct core_client *cl,
                               const struct near_kind *kind, struct near_device *dev, bool gated);
/* The same for who has not waited; NULL too when others do. */
struct near_job *near_job_new(struct core *c, const struct core_client *cl,
                              const struct near_kind *kind, struct near_device *dev, bool gated);
void near_job_free(struct core *c, struct near_job *job);
/* A lease's blocks stay, and so does its client, until near_unuse(). */
void near_use(struct lease *l);
void near_unuse(struct core *c, struct lease *l);
/* The same until near_job_end(). */
void near_job_hold(struct near_job *job, struct lease *l);
void near_job_end(struct core *c, struct near_job *job);
/* A further part: pieces that are added from now on are of it. */
struct device_copy *near_job_part(struct core *c, struct near_job *job, uint32_t group,
                                  uint32_t bytes);
struct device_piece *near_job_add(struct core *c, struct near_job *job, uint32_t what);
struct device_piece *near_piece(const struct core *c, const struct near_job *job, uint32_t i);
uint32_t near_what(const struct core *c, const struct near_job *job, uint32_t i);
void near_job_submit(struct near_job *job, uint32_t part);
void near_job_cancel(struct near_job *job);
/* The part has ended without the device: none of its pieces is to be copied. */
void near_job_over(struct near_job *job, uint32_t part);
uint32_t *near_from(const struct core *c, const struct near_job *job, uint32_t i);

/* ---- near_sum.c ---- */

/* Of the piece that was added last, whose bytes are the block's in host memory. */
void near_sum_want(struct core *c, struct near_job *job, const struct block *b, uint32_t shard);
/* A part was submitted: it is given to the device once what it copies from has been checked. */
void near_sum_begin(struct near_job *job, uint32_t part);
void near_sum_cancel(struct near_job *job);

/* ---- near_wait.c ---- */

static inline bool near_is_gated(const _Atomic uint64_t *after, uint64_t value)
{
    return after && atomic_load_explicit(after, memory_order_acquire) < value;
}
/* The job with which it begins now; NULL: it waits, as its client does (core_client.copies), until
 * turn->kind runs it, or drops it. */
struct near_job *near_begin(struct core *c, struct core_turn *turn, const struct device *device);
/* It is asked to stop, whether it waits or copies. */
void near_cancel(struct core *c, struct core_turn *turn);
/* Those whose turn has come begin; those whose time is up end. */
void near_run_waiting(struct core *c);
/* Some may be able to begin or end now. */
bool near_has_due(const struct core *c);
/* For near_check(): calls fn for all that wait. */
void near_each_waiting(struct core *c, void (*fn)(struct core *c, struct core_turn *, void *ctx),
                       void *ctx);

#endif
