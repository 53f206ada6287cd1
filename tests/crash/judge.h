/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of a daemon that has just started, and serves nobody else. */
#ifndef KVC_TEST_CRASH_JUDGE_H
#define KVC_TEST_CRASH_JUDGE_H

#include "world.h"

struct judged {
    uint64_t blocks, bytes; /* read, as they should be */
    uint64_t promised;      /* blocks that were acknowledged as durable */
    uint64_t wrong_bytes;   /* of no version there was, or older than what was promised */
    uint64_t durable_lost;  /* promised, and not there */
    uint64_t removals;      /* blocks of which an eviction was acknowledged, nothing stored since */
    uint64_t removed_back;  /* they, or an older version of others, are there again */
    uint64_t returned;      /* evicted before an orderly stop, and there again */
    uint64_t accounting_errors;
    char first[320]; /* what was found first; "" */
};

/* Reads every chain, where there is a device also into pages and in place, and adds what it finds.
 * Returns 0, or an error of a call, which is no verdict: the daemon did not do what it was asked.
 */
int judge_chains(struct world_session *s, struct judged *io_judged);

/* Figures against a walk over all blocks and, with `nvme`, a reading of all of them on disk. What
 * goes on in the background may change both: they must agree at some moment. */
int judge_accounts(struct world_session *s, bool nvme, struct judged *io_judged);

/* With a device and no worker: nothing of workers is left on it, what it has is within its limit
 * and what the daemon's process has mapped, and room is in use as far as there are blocks. */
void judge_device(const struct world *w, struct judged *io_judged);

#endif
