/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold for a daemon that has just started and serves no other client. */
#ifndef KVC_TEST_CRASH_JUDGE_H
#define KVC_TEST_CRASH_JUDGE_H

#include "world.h"

struct judged {
    uint64_t blocks, bytes; /* blocks that were read with the right contents */
    uint64_t promised;      /* blocks whose durability was acknowledged */
    /* Blocks with contents of no version, or of a version older than the acknowledged one. */
    uint64_t wrong_bytes;
    uint64_t durable_lost; /* blocks whose durability was acknowledged, and which are missing */
    uint64_t removals; /* blocks whose eviction was acknowledged and which were not stored since */
    /* Blocks that are back after their eviction was acknowledged, or in a version older than that.
     */
    uint64_t removed_back;
    uint64_t returned; /* blocks evicted before an orderly stop that are back */
    uint64_t accounting_errors;
    char first[320]; /* the first finding; "" if none */
};

/* Reads every chain and adds the findings to *io_judged. If the daemon has a device, it also reads
 * into pages and in place. Returns 0, or the error of a call: the daemon refused a request, which
 * proves nothing. */
int judge_chains(struct world_session *s, struct judged *io_judged);

/* Compares the daemon's figures with a walk over all blocks and, if `nvme`, with reading all blocks
 * on disk. Background work may change both, so they must agree at one moment only. */
int judge_accounts(struct world_session *s, bool nvme, struct judged *io_judged);

/* Call it when the daemon has a device and no worker is left. The device must hold nothing of
 * workers. Its memory must be within its limit and within what the daemon's process has mapped. Its
 * room must match its blocks. */
void judge_device(const struct world *w, struct judged *io_judged);

#endif
