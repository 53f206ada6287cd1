/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Background: begins the wanted copies of each block (block_wants()). Pins and names want a block
 * on disk durably, or in memory; a promise that has lapsed is made again; a block on which blocks
 * on disk build is written there too.
 *
 * A block comes here when its copies or its wanted copies have changed. A copy that is refused is
 * tried again later, and other blocks do not wait for it.
 */
#include "keep.h"
#include "wants.h"

/* Moves begun in one step. */
#define RECONCILE_MOVES 256u
/* After so long a refused copy is tried again. */
#define RECONCILE_AGAIN_MS 100u
/* After so long, copies that were written for pins of the last run become ordinary ones, unless
 * they are pinned again. */
#define PIN_FOUND_MS 60000u

struct reconcile {
    uint32_t left;     /* blocks of the set that this pass has yet to look at */
    bool refused;      /* some copy could not be begun in this pass */
    bool writes_later; /* no ordinary copy is written in this pass: storage took none */
    uint64_t again_ms; /* the time at which the next pass begins */
};

const struct core_module reconcile_module = {CORE_STATE(reconcile)};

/* Begins to write b because blocks on disk build on it: a block on disk is recovered only with all
 * that it builds on. A block on which most others build is used most and leaves memory last, so it
 * is written before that. */
static int copy_ancestor(struct core *c, struct block *b)
{
    const struct tier *disk = c->cfg.tier[CORE_STORAGE];
    if (b->moving > 0 || !copy_there(b, CORE_HOST))
        return 0;
    int err = KVC_E_BUSY;
    if (disk->storage->admits(disk, (uint32_t)MIN(block_bytes(c, b), UINT32_MAX), 0))
        err = save_begin(c, b, SAVE_ANCESTOR);
    c->mod.reconcile->writes_later = err != 0 && err != KVC_E_QUOTA;
    if (err)
        return err == KVC_E_QUOTA ? 0 : err; /* no room for its owner: with the next one below */
    if (b->parent != CORE_NONE)
        unmet_add(c, &c->blocks[b->parent]);
    return 1;
}

/* Whether pins, names or promises ask for a copy, not only blocks that build on it. */
static bool is_firm(const struct core *c, const struct block *b)
{
    return block_asked(c, b, CORE_STORAGE) != COPY_NONE || b->disk_copy == COPY_FOR_PIN;
}

/* Begins what one block lacks: 1; 0: it lacks nothing; KVC_E_*: why it cannot be begun now. */
static int block_reconcile(struct core *c, struct block *b)
{
    int err = 0;
    if (block_lacks(c, b, CORE_HOST)) {
        err = b->moving > 0 ? 0 : load_begin(c, b);
        return err ? err : 1;
    }
    if (c->mod.reconcile->writes_later && !is_firm(c, b))
        return KVC_E_BUSY;
    const enum copy_state disk = block_wants(c, b, CORE_STORAGE);
    if (copy_is_enough(b, CORE_STORAGE, disk)) {
        if (!found_keeps(c))
            block_unwanted(c, b);
        return 0;
    }
    if (disk == COPY_READY)
        return copy_ancestor(c, b);
    err = promise_make(c, b, disk == COPY_DURABLE ? SAVE_PROMISE : SAVE_PIN);
    return err ? err : 1;
}

/* Notes that a copy was refused, so that no more of its kind are begun in this pass. */
static bool pass_ends(const struct core *c, const struct block *b, int err)
{
    return (err == KVC_E_BUSY || err == KVC_E_FULL || err == KVC_E_TIER) && is_firm(c, b);
}

static void pass_begin(struct core *c)
{
    c->mod.reconcile->left = unmet_count(c);
    c->mod.reconcile->refused = c->mod.reconcile->writes_later = false;
}

/* The next block of the pass. False: the pass ends with it. */
static bool pass_step(struct core *c, uint32_t *begun)
{
    struct block *b = unmet_take(c);
    c->work.done += WORK_LOOK;
    const int rc = b ? block_reconcile(c, b) : 0;
    *begun += rc == 1;
    if (rc != 0 && rc != 1) {
        unmet_add(c, b);
        c->mod.reconcile->refused = true;
        if (pass_ends(c, b, rc))
            return false;
    }
    return b != NULL;
}

bool reconcile_step(struct core *c)
{
    struct reconcile *r = c->mod.reconcile;
    if (!c->mod.recovery && c->now_ms >= c->recovered_ms + PIN_FOUND_MS)
        found_end(c);
    if (unmet_count(c) == 0 || c->now_ms < MAX(r->again_ms, c->disk.pause_ms))
        return false;
    if (r->left == 0)
        pass_begin(c);
    work_slice(c);
    for (uint32_t begun = 0; r->left > 0; r->left--) {
        if (begun == RECONCILE_MOVES || slice_over(c))
            return true;
        if (!pass_step(c, &begun))
            break;
    }
    r->left = 0;
    if (r->refused)
        r->again_ms = c->now_ms + RECONCILE_AGAIN_MS;
    return !r->refused && unmet_count(c) > 0;
}

/* Adds b if pins, names or promises ask for a copy. A block for which only its children ask enters
 * the set when one of them was written (save_asks()), never for its own copy. So, where storage has
 * no room for a whole chain, its blocks do not displace each other for ever. */
void reconcile_hear(struct core *c, struct block *b, const struct block_change *x)
{
    (void)x;
    if (b->state != BLOCK_PRESENT)
        return;
    if (block_asked(c, b, CORE_HOST) != COPY_NONE || is_firm(c, b))
        unmet_add(c, b);
}
