/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: copies that devices make, and the queue before each device. Fills, sends and commits out of
 * pages (transfer_fill.c, transfer_send.c, transfer_store.c) use these.
 */
#ifndef KVC_CORE_TRANSFER_JOBS_H
#define KVC_CORE_TRANSFER_JOBS_H

#include "hbm_table.h"
#include "serve.h"

/* ---- transfer_job.c ---- */

/* Takes a job. NULL: all are under way, or the principal has its share, or (fenced) as many jobs as
 * may be wait for a word. */
struct transfer_job *transfer_job_take(struct core *c, const struct core_client *cl,
                                       const struct transfer_kind *kind, struct hbm_device *dev,
                                       bool fenced);
/* transfer_job_take() for a request that was not queued; NULL also when others are queued. */
struct transfer_job *transfer_job_new(struct core *c, const struct core_client *cl,
                                      const struct transfer_kind *kind, struct hbm_device *dev,
                                      bool fenced);
void transfer_job_free(struct core *c, struct transfer_job *job);
/* The lease's blocks, and its client, stay until transfer_unuse(). */
void transfer_use(struct lease *l);
void transfer_unuse(struct core *c, struct lease *l);
/* transfer_use() until transfer_job_end(). */
void transfer_job_hold(struct transfer_job *job, struct lease *l);
void transfer_job_end(struct core *c, struct transfer_job *job);
/* Adds a part, of what the job's transfer says: pieces that are added from now on belong to it. */
struct device_copy *transfer_job_part(struct core *c, struct transfer_job *job, uint32_t group,
                                      uint32_t bytes);
struct device_piece *transfer_job_add(struct core *c, struct transfer_job *job, uint32_t what);
uint32_t transfer_what(const struct core *c, const struct transfer_job *job, uint32_t i);
void transfer_job_submit(struct transfer_job *job, uint32_t part);
void transfer_job_cancel(struct transfer_job *job);
/* Ends a part without the device: none of its pieces is copied. */
void transfer_job_over(struct transfer_job *job, uint32_t part);
uint32_t *transfer_from(const struct core *c, const struct transfer_job *job, uint32_t i);

/* ---- transfer_sum.c ---- */

/* Notes the sum that the piece which was added last must have: its bytes are b's in host memory. */
void transfer_sum_want(struct core *c, struct transfer_job *job, const struct block *b,
                       uint32_t shard);
/* Checks a submitted part, and then gives it to the device. */
void transfer_sum_begin(struct transfer_job *job, uint32_t part);
void transfer_sum_cancel(struct transfer_job *job);

/* ---- transfer_wait.c ---- */

/* The job with which the transfer begins now. NULL: it is queued, and its client stays
 * (core_client.copies), until its kind runs it, or drops it. */
struct transfer_job *transfer_begin(struct core *c, struct core_transfer *t,
                                    const struct transfer_kind *kind, struct core_client *cl);
/* Asks it to stop, whether it is queued or copies. */
void transfer_cancel(struct core *c, struct core_transfer *t);
/* Begins transfers that get a job now; ends those that are cancelled or past their deadline. */
void transfer_run_waiting(struct core *c);
/* Whether some transfer may begin or end now. */
bool transfer_has_due(const struct core *c);
/* For hbm_check(): calls fn for each queued transfer. */
void transfer_each_waiting(struct core *c,
                           void (*fn)(struct core *c, struct core_transfer *, void *ctx),
                           void *ctx);

#endif
