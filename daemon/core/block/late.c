/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress deadlines of reservations, and of blocks that wait for a rank. A writer that announced
 * blocks and commits nothing for long (a hung device, a debugger, a stopped process) keeps them
 * from nobody. Requests that wait for such a block are told, and a store of it takes the claim
 * over, with its room. Until then a late commit counts.
 *
 * The time is a multiple of what the writer's own steps take, from a reservation to its commit or
 * from commit to commit, within bounds. Blocks that are being copied are in progress: their copies
 * have deadlines of their own. A block of several shards, some stored and no other claimed, has the
 * most time, from the last shard that was claimed or has landed.
 */
#include "block.h"

/* The deadline in steps of the writer, by its longest one lately; and the least time that a writer
 * has. */
#define PROGRESS_STEPS  8u
#define PROGRESS_MIN_MS 2000u

static uint64_t last_step_ms(const struct reservation *r)
{
    return MAX(r->since_ms, r->client->progress_ms);
}

void progress_made(struct core *c, struct reservation *r, bool announced)
{
    struct core_client *cl = r->client;
    const uint64_t step = c->now_ms - last_step_ms(r);
    if (announced) /* a reservation that is committed in the same request tells nothing */
        cl->step_ms = MAX(MAX(step, 1), cl->step_ms - cl->step_ms / 8);
    cl->progress_ms = c->now_ms;
}

static bool resv_is_late(const struct core *c, const struct reservation *r)
{
    const uint64_t most = c->cfg.progress_ms, step = r->client->step_ms;
    const uint64_t allowed = step ? MIN(most, MAX(PROGRESS_STEPS * step, PROGRESS_MIN_MS)) : most;
    return most > 0 && c->now_ms - last_step_ms(r) >= allowed;
}

bool part_is_late(struct core *c, const struct part *p)
{
    const struct reservation *r = part_claimed(p) ? part_resv(c, p) : NULL;
    return r && (r->going || resv_is_late(c, r));
}

bool block_is_late(struct core *c, const struct block *b)
{
    if (b->state != BLOCK_PENDING)
        return false;
    bool being_written = false;
    for (uint32_t i = b->where; i != CORE_NONE;) {
        const struct part *p = pool_at(c->parts, i);
        if (part_is_late(c, p))
            return true;
        being_written |= p->state != PART_DONE;
        i = p->next;
    }
    return !being_written && c->cfg.progress_ms > 0 && core__age_ms(c, b) >= c->cfg.progress_ms;
}
