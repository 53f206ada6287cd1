/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: copies that devices make, and the queue before each device. Fills, sends and commits out of
 * pages (near_fill.c, near_send.c, near_store.c) use these.
 */
#ifndef KVC_CORE_NEAR_JOBS_H
#define KVC_CORE_NEAR_JOBS_H

#include "near_table.h"
#include "serve.h"

/* ---- near_job.c ---- */

/* Takes a job. NULL: all are under way, or the principal has its share, or (gated) as many jobs as
 * may be wait for a word. */
struct near_job *near_job_take(struct core *c, const struct core_client *cl,
                               const struct near_kind *kind, struct near_device *dev, bool gated);
/* near_job_take() for a request that was not queued; NULL also when others are queued. */
struct near_job *near_job_new(struct core *c, const struct core_client *cl,
                              const struct near_kind *kind, struct near_device *dev, bool gated);
void near_job_free(struct core *c, struct near_job *job);
/* The lease's blocks, and its client, stay until near_unuse(). */
void near_use(struct lease *l);
void near_unuse(struct core *c, struct lease *l);
/* near_use() until near_job_end(). */
void near_job_hold(struct near_job *job, struct lease *l);
void near_job_end(struct core *c, struct near_job *job);
/* Adds a part, of what the job's transfer says: pieces that are added from now on belong to it. */
struct device_copy *near_job_part(struct core *c, struct near_job *job, uint32_t group,
                                  uint32_t bytes);
struct device_piece *near_job_add(struct core *c, struct near_job *job, uint32_t what);
struct device_piece *near_piece(const struct core *c, const struct near_job *job, uint32_t i);
uint32_t near_what(const struct core *c, const struct near_job *job, uint32_t i);
void near_job_submit(struct near_job *job, uint32_t part);
void near_job_cancel(struct near_job *job);
/* Ends a part without the device: none of its pieces is copied. */
void near_job_over(struct near_job *job, uint32_t part);
uint32_t *near_from(const struct core *c, const struct near_job *job, uint32_t i);

/* ---- near_sum.c ---- */

/* Notes the sum that the piece which was added last must have: its bytes are b's in host memory. */
void near_sum_want(struct core *c, struct near_job *job, const struct block *b, uint32_t shard);
/* Checks a submitted part, and then gives it to the device. */
void near_sum_begin(struct near_job *job, uint32_t part);
void near_sum_cancel(struct near_job *job);

/* ---- near_wait.c ---- */

/* The job with which the transfer begins now. NULL: it is queued, and its client stays
 * (core_client.copies), until its kind runs it, or drops it. */
struct near_job *near_begin(struct core *c, struct core_transfer *t, const struct near_kind *kind,
                            struct core_client *cl);
/* Asks it to stop, whether it is queued or copies. */
void near_cancel(struct core *c, struct core_transfer *t);
/* Begins transfers that get a job now; ends those that are cancelled or past their deadline. */
void near_run_waiting(struct core *c);
/* Whether some transfer may begin or end now. */
bool near_has_due(const struct core *c);
/* For near_check(): calls fn for each queued transfer. */
void near_each_waiting(struct core *c,
                       void (*fn)(struct core *c, struct core_transfer *, void *ctx), void *ctx);

#endif
