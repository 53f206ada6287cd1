/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifies copies in slots of devices (VERIFY): HBM copies, one after the other by their numbers.
 * A read counts in the HBM copy, as copies do, and in its block, so that neither is freed
 * meanwhile.
 */
#include "hbm_table.h"
#include "keep.h"

/* Whether lookups find the HBM copy, and the slice is to read it. */
static bool is_wanted(struct core *c, const struct core_verify *v, const struct hbm_copy *e)
{
    if (!e || e->state == COPY_NONE)
        return false;
    const struct block *b = &c->blocks[e->block];
    return b->state == BLOCK_PRESENT && verify_wants_ns(v, block_ns(c, b));
}

uint32_t hbm_verify_begin(struct core *c, struct core_verify *v)
{
    const uint32_t most = verify_most(c, c->m.hbm_blocks), end = pool_count(c->hbm->entries);
    const uint64_t bytes_max = MIN(v->bytes_max, CORE_VERIFY_BYTES);
    uint64_t bytes = 0, no = v->cursor;
    uint32_t n = 0;
    for (uint32_t steps = 0; no < end && steps < VERIFY_STEPS; no++, steps++) {
        const struct hbm_copy *e = hbm_copy_at(c, (uint32_t)no);
        if (!is_wanted(c, v, e))
            continue;
        struct block *b = &c->blocks[e->block];
        if (e->state != COPY_READY || b->copies == BLOCK_COPIES_MAX) {
            v->ret_skipped++;
            continue;
        }
        if (n == most || (n > 0 && bytes >= bytes_max))
            break;
        v->block[n].left = 1;
        v->block[n].verdict = VERDICT_GOOD;
        v->left++;
        verify_read(c, v, b, n, e->shard, (uint32_t)no);
        bytes += block_group(c, b)->block_bytes;
        n++;
    }
    v->ret_cursor = no < end ? no : 0;
    return n;
}

struct tier *hbm_verify_hold(struct core *c, uint32_t no, struct tier_loc *ret_loc)
{
    struct hbm_copy *e = hbm_copy_at(c, no);
    MUST(e && e->state == COPY_READY);
    e->copies++;
    *ret_loc = e->loc;
    return c->hbm->dev[e->device].device->slots;
}

void hbm_verify_end(struct core *c, uint32_t no)
{
    struct hbm_copy *e = hbm_copy_at(c, no);
    MUST(e && e->copies > 0);
    e->copies--;
    hbm_copy_settle(c, e);
}

bool hbm_verify_is_there(const struct core *c, uint32_t no)
{
    const struct hbm_copy *e = hbm_copy_at(c, no);
    return e->state == COPY_READY && c->blocks[e->block].state == BLOCK_PRESENT;
}

void hbm_verify_drop(struct core *c, uint32_t no, struct tier_view *ret_view)
{
    struct hbm_copy *e = hbm_copy_at(c, no);
    const struct tier *slots = c->hbm->dev[e->device].device->slots;
    slots->memory->view(slots, e->loc, ret_view);
    c->m.hbm_corrupt++;
    hbm_copy_invalidate_one(c, e);
}
