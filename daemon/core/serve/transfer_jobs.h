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

/* Takes a free job of the device. fenced: the word of its request was not reached yet. NULL: all
 * jobs are under way, or the principal has its share, or (fenced) as many jobs wait for words as
 * may. */
struct transfer_job *transfer_job_take(struct core *c, const struct core_client *cl,
                                       const struct transfer_kind *kind, struct hbm_device *dev,
                                       bool fenced);
/* transfer_job_take() for a request that was not queued; NULL also when others are queued. */
struct transfer_job *transfer_job_new(struct core *c, const struct core_client *cl,
                                      const struct transfer_kind *kind, struct hbm_device *dev,
                                      bool fenced);
void transfer_job_free(struct core *c, struct transfer_job *job);
/* The lease's blocks stay, and its client is not freed, until transfer_unuse(). */
void transfer_use(struct lease *l);
void transfer_unuse(struct core *c, struct lease *l);
/* transfer_use() of the job's lease; transfer_job_end() ends the use and frees the job. */
void transfer_job_hold(struct transfer_job *job, struct lease *l);
void transfer_job_end(struct core *c, struct transfer_job *job);
/* Adds a part, with pool and fence of the job's transfer; pieces that are added from now on belong
 * to it. bytes: of one piece. */
struct device_copy *transfer_job_part(struct core *c, struct transfer_job *job, uint32_t group,
                                      uint32_t bytes);
/* Adds a piece to the last part; the caller fills it in. what: as struct transfer_job says. */
struct device_piece *transfer_job_add(struct core *c, struct transfer_job *job, uint32_t what);
/* `what` of piece i of the job. */
uint32_t transfer_what(const struct core *c, const struct transfer_job *job, uint32_t i);
/* Begins a part: its sums are checked, then the device copies it. */
void transfer_job_submit(struct transfer_job *job, uint32_t part);
/* Asks all parts to stop; they still end. */
void transfer_job_cancel(struct transfer_job *job);
/* Ends a part without the device: none of its pieces is copied. */
void transfer_job_over(struct transfer_job *job, uint32_t part);
/* The entry of piece i in hbm_table.from. */
uint32_t *transfer_from(const struct core *c, const struct transfer_job *job, uint32_t i);

/* ---- transfer_sum.c ---- */

/* Notes that the bytes of the piece which was added last are those of b's shard in host memory, so
 * that they are compared with their sum before the copy. */
void transfer_sum_want(struct core *c, struct transfer_job *job, const struct block *b,
                       uint32_t shard);
/* Checks a submitted part, and then gives it to the device. */
void transfer_sum_begin(struct transfer_job *job, uint32_t part);
void transfer_sum_cancel(struct transfer_job *job);

/* ---- transfer_wait.c ---- */

/* The job with which the transfer begins now. NULL: the transfer is queued until its kind's run()
 * or drop() is called; its client is not freed before (core_client.copies). */
struct transfer_job *transfer_begin(struct core *c, struct core_transfer *t,
                                    const struct transfer_kind *kind, struct core_client *cl);
/* Asks a transfer to stop, whether it is queued or its copies are in flight. */
void transfer_cancel(struct core *c, struct core_transfer *t);
/* Begins transfers that get a job now; ends those that are cancelled or past their deadline. */
void transfer_run_waiting(struct core *c);
/* Whether transfer_run_waiting() may have something to do now. */
bool transfer_has_due(const struct core *c);
/* For hbm_check(): calls fn for each queued transfer. */
void transfer_each_waiting(struct core *c,
                           void (*fn)(struct core *c, struct core_transfer *, void *ctx),
                           void *ctx);

#endif
