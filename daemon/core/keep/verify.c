/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads blocks again and compares their checksums (VERIFY), to see whether memory, disk and slots
 * of devices still hold the bytes that were stored.
 */
#include "keep.h"

/* One slice may keep one in so many PRESENT blocks from eviction; all slices together half of them.
 */
#define VERIFY_SHARE 8u

struct verify {
    struct pool *ops;
    struct share share;     /* of slices under way, by principal */
    struct list_node reads; /* verify_op */
};

/* Operations that all slices may need. */
static uint32_t verify_ops_max(const struct core_config *cfg)
{
    return core__slices_max(cfg) * CORE_VERIFY_BLOCKS;
}

uint64_t verify_bytes(const struct core_config *cfg)
{
    return pool_bytes_for(sizeof(struct verify_op), verify_ops_max(cfg));
}

static int verify_create(struct core *c)
{
    const struct core_config *cfg = &c->cfg;
    struct verify *v = c->mod.verify;
    list_init(&v->reads);
    const int err =
        core__fair_share(c, &v->share, core__slices_max(cfg), MAX(cfg->principals_max, 1u));
    return err ? err
               : pool_create(&v->ops, "verifications", sizeof(struct verify_op),
                             verify_ops_max(cfg));
}

static void verify_destroy(struct core *c)
{
    pool_destroy(&c->mod.verify->ops);
    share_destroy(&c->mod.verify->share);
}

const struct core_module verify_module = {CORE_STATE(verify), .create = verify_create,
                                          .destroy = verify_destroy};

const struct pool *verify_pool(const struct core *c)
{
    return c->mod.verify->ops;
}

/* ---- what is wrong ---- */

static bool on_disk(const struct core_verify *v)
{
    return v->tier == CORE_VERIFY_DISK;
}

static bool is_there(const struct core_verify *v, const struct block *b)
{
    return b->state == BLOCK_PRESENT && copy_there(b, on_disk(v) ? CORE_STORAGE : CORE_HOST);
}

/* Drops the copy that was read, if nobody uses it and the block has another one. */
static bool drop_copy(struct core *c, const struct core_verify *v, struct block *b)
{
    if (b->copies > 1 || b->moving > 0)
        return false;
    if (on_disk(v)) {
        if (!block_ready(b))
            return false;
        if (block_is_clean(b))
            clean_recall(c, b);
        b->copies--; /* for disk_drop(): this read has ended, but is still counted */
        disk_drop(c, b);
        b->copies++;
        return true;
    }
    if (!copy_there(b, CORE_STORAGE) || b->holds > 0)
        return false;
    b->copies--;
    host_drop(c, b);
    b->copies++;
    return true;
}

/* Changes the generation of b's slots, so that readers notice, all ranks alike. */
static void invalidate_all(struct core *c, struct block *b)
{
    const struct tier *host = c->cfg.tier[CORE_HOST];
    const uint32_t shards = block_shards(c, b);
    for (uint32_t i = 0; i < shards && copy_there(b, CORE_HOST); i++)
        host->ops->invalidate(c->cfg.tier[CORE_HOST], copy_loc(c, b, CORE_HOST, i));
    hbm_copy_invalidate(c, b);
}

/* Marks b as corrupt, and all below it. Returns how many are below. */
static uint32_t mark_corrupt(struct core *c, struct block *b)
{
    const uint32_t below = block_tree_size(c, block_no(c, b)) - 1;
    c->m.blocks_corrupt_below += below;
    b->flags |= BLOCK_F_CORRUPT;
    return below;
}

void verify_host_is_corrupt(struct core *c, struct block *b)
{
    if (b->flags & BLOCK_F_CORRUPT)
        return;
    c->m.blocks_corrupt++;
    invalidate_all(c, b);
    (void)mark_corrupt(c, b);
    if (b->state == BLOCK_PRESENT)
        block_kill_tree(c, b, KVC_MISS_CORRUPT);
}

/* Removes a corrupt block: the next lookup does not find it. */
static void drop_corrupt(struct core *c, const struct verify_op *o, struct block *b)
{
    const struct tier *host = c->cfg.tier[CORE_HOST];
    const struct core_ns *ns = block_ns(c, b);
    struct core_verify *v = o->slice;
    struct core_corrupt x = {.key = &b->key, .ns = ns->id, .group = b->group, .shard = o->shard};
    c->m.blocks_corrupt++;
    if (on_disk(v))
        c->cfg.tier[CORE_STORAGE]->ops->invalidate(c->cfg.tier[CORE_STORAGE],
                                                   copy_loc(c, b, CORE_STORAGE, o->shard));
    if (v->tier == CORE_VERIFY_HOST) {
        host->memory->view(host, copy_loc(c, b, CORE_HOST, o->shard), &x.view);
        hbm_copy_invalidate(c, b); /* HBM copies were made of what was read */
    }
    if (v->tier == CORE_VERIFY_HBM)
        hbm_verify_drop(c, o->hbm, &x.view);
    x.kept = v->tier == CORE_VERIFY_HBM || drop_copy(c, v, b);
    if (x.kept) {
        v->corrupt(v, &x);
        return;
    }
    invalidate_all(c, b);
    x.below = mark_corrupt(c, b);
    v->corrupt(v, &x);
    block_kill_tree(c, b, KVC_MISS_CORRUPT);
}

static enum verdict verify_judge(struct core *c, const struct verify_op *o, struct block *b)
{
    const bool there = o->hbm == CORE_NONE ? is_there(o->slice, b) : hbm_verify_is_there(c, o->hbm);
    const bool failed =
        o->op.status != 0 && o->op.status != -ECANCELED && o->op.status != -ETIMEDOUT;
    if (failed && (there || o->hbm != CORE_NONE)) /* an HBM copy ends with its device */
        return VERDICT_FAILED;
    if (o->op.status != 0 || !there)
        return VERDICT_SKIPPED;
    o->slice->ret_bytes += o->op.bytes;
    c->m.bytes_verified += o->op.bytes;
    if (hash128_equal(&o->want, &o->op.sum))
        return VERDICT_GOOD;
    drop_corrupt(c, o, b);
    return VERDICT_CORRUPT;
}

/* ---- a slice ---- */

static void verify_count(struct core *c, struct core_verify *v, enum verdict verdict)
{
    switch (verdict) {
    case VERDICT_GOOD:
    case VERDICT_CORRUPT:
        v->ret_blocks++;
        c->m.blocks_verified++;
        return;
    case VERDICT_SKIPPED:
        v->ret_skipped++;
        return;
    case VERDICT_FAILED:
        v->ret_failed++;
        return;
    }
}

static void verify_slice_end(struct core *c, struct core_verify *v)
{
    struct core_client *cl = v->client;
    list_remove(&v->req.node);
    cl->verifying = false;
    share_give(&c->mod.verify->share, principal_index(c, cl->who.principal), 1);
    v->done(v);
    cl->copies--; /* last: done() may have closed the client, which lives until here */
    core__client_settle(c, cl);
}

static void verify_read_done(struct tier_op *t)
{
    struct verify_op *o = CONTAINER_OF(t, struct verify_op, op);
    struct core *c = o->core;
    struct core_verify *v = o->slice;
    struct block *b = &c->blocks[o->block];
    unsigned i = o->index;
    const bool is_promised = b->state == BLOCK_PRESENT && block_promised(b);
    enum verdict verdict = verify_judge(c, o, b);
    list_remove(&o->node);
    if (o->hbm != CORE_NONE)
        hbm_verify_end(c, o->hbm);
    pool_put(c->mod.verify->ops, o);
    b->copies--; /* only now: while it is counted the record is not freed */
    block_changed(c, b, &(struct block_change){.what = BLOCK_CHECKED});
    if (is_promised && b->state == BLOCK_PRESENT && !block_promised(b))
        promise_begin(c, b); /* the right bytes are in memory: they are written again */
    v->block[i].verdict = (uint8_t)MAX(v->block[i].verdict, verdict);
    if (--v->block[i].left > 0)
        return;
    verify_count(c, v, v->block[i].verdict);
    if (--v->left == 0)
        verify_slice_end(c, v);
}

/* The tier and place of the bytes to be read. */
static struct tier *tier_of(struct core *c, const struct core_verify *v, const struct block *b,
                            const struct verify_op *o, struct tier_loc *ret_loc)
{
    if (o->hbm != CORE_NONE)
        return hbm_verify_hold(c, o->hbm, ret_loc);
    *ret_loc =
        on_disk(v) ? copy_loc(c, b, CORE_STORAGE, o->shard) : copy_loc(c, b, CORE_HOST, o->shard);
    return on_disk(v) ? c->cfg.tier[CORE_STORAGE] : c->cfg.tier[CORE_HOST];
}

void verify_read(struct core *c, struct core_verify *v, struct block *b, uint32_t index,
                 uint32_t shard, uint32_t hbm)
{
    struct verify_op *o = pool_take(c->mod.verify->ops);
    *o = (struct verify_op){.core = c,
                            .slice = v,
                            .block = block_no(c, b),
                            .index = (uint8_t)index,
                            .shard = (uint8_t)shard,
                            .hbm = hbm};
    struct tier_loc loc;
    struct tier *tier = tier_of(c, v, b, o, &loc);
    o->want = tier->ops->sum(tier, loc);
    o->op = (struct tier_op){.kind = TIER_VERIFY,
                             .loc = loc,
                             .bytes = block_group(c, b)->block_bytes,
                             .deadline_ns = v->deadline_ns,
                             .done = verify_read_done};
    b->copies++;
    list_push_back(&c->mod.verify->reads, &o->node);
    tier->ops->submit(tier, &o->op);
}

bool verify_wants_ns(const struct core_verify *v, const struct core_ns *ns)
{
    return (!v->ns || ns->id == v->ns) && ns_visible(v->client, ns);
}

uint32_t verify_most(const struct core *c, uint64_t there)
{
    const uint64_t share = there / MAX(VERIFY_SHARE, 2 * core__slices_max(&c->cfg)) + 1;
    return (uint32_t)MIN(CORE_VERIFY_BLOCKS, share);
}

static bool verify_wanted(struct core *c, const struct core_verify *v, const struct block *b)
{
    if (!(b->flags & BLOCK_F_LINKED))
        return false;
    if (b->state == BLOCK_PRESENT && !is_there(v, b))
        return false; /* in the other tier */
    return verify_wants_ns(v, block_ns(c, b));
}

/* Begins to read the blocks of a slice; returns how many. */
static uint32_t slice_begin(struct core *c, struct core_verify *v)
{
    uint64_t bytes = 0, no = v->cursor;
    uint32_t shards = 0, n = 0;
    const uint64_t bytes_max = MIN(v->bytes_max, CORE_VERIFY_BYTES);
    const uint32_t most = verify_most(c, c->m.blocks_present);
    for (uint32_t steps = 0; no < c->blocks_high && steps < VERIFY_STEPS; no++, steps++) {
        struct block *b = &c->blocks[no];
        if (!verify_wanted(c, v, b))
            continue;
        const uint32_t of_block = group_shards(block_ns(c, b), block_group(c, b));
        if (b->state != BLOCK_PRESENT || b->moving > 0 || b->copies + of_block > BLOCK_COPIES_MAX ||
            (on_disk(v) && !block_readable(c, b))) {
            v->ret_skipped++;
            continue;
        }
        if (n == most || (n > 0 && bytes >= bytes_max) || shards + of_block > CORE_VERIFY_BLOCKS)
            break;
        v->block[n].left = (uint16_t)of_block;
        v->block[n].verdict = VERDICT_GOOD;
        v->left++;
        for (uint32_t i = 0; i < of_block; i++)
            verify_read(c, v, b, n, i, CORE_NONE);
        shards += of_block;
        bytes += block_bytes(c, b);
        n++;
    }
    v->ret_cursor = no < c->blocks_high ? no : 0;
    return n;
}

static void verify_cancel(struct core *c, struct core_req *req)
{
    LIST_FOR_EACH_SAFE (node, next, &c->mod.verify->reads) {
        struct verify_op *o = CONTAINER_OF(node, struct verify_op, node);
        if (&o->slice->req == req)
            atomic_store_explicit(&o->op.cancel, true, memory_order_relaxed);
    }
}

static const struct core_req_kind verify_req = {.cancel = verify_cancel};

int core_verify_start(struct core *c, struct core_verify *v)
{
    _Static_assert(KVC_SHARDS_MAX <= CORE_VERIFY_BLOCKS, "a block fits a slice");
    const uint32_t who = principal_index(c, v->client->who.principal);
    if ((on_disk(v) && !core_stores(c)) || (v->tier == CORE_VERIFY_HBM && !c->hbm)) {
        v->ret_cursor = v->ret_bytes = 0;
        v->ret_blocks = v->ret_skipped = v->ret_failed = 0;
        return 0;
    }
    if (v->client->verifying || !share_take(&c->mod.verify->share, who, 1))
        return KVC_E_BUSY;
    v->left = 0;
    v->ret_bytes = 0;
    v->ret_blocks = v->ret_skipped = v->ret_failed = 0;
    if ((v->tier == CORE_VERIFY_HBM ? hbm_verify_begin(c, v) : slice_begin(c, v)) == 0) {
        share_give(&c->mod.verify->share, who, 1);
        return 0;
    }
    v->client->copies++;
    v->client->verifying = true;
    req_begin(v->client, &v->req, &verify_req);
    return 1;
}

void core_host_lost(struct core *c, uint32_t block_no)
{
    struct block *b = &c->blocks[block_no];
    if (b->state != BLOCK_PRESENT || !copy_there(b, CORE_HOST) || b->copies > 0 || b->moving > 0)
        return;
    if (!copy_there(b, CORE_STORAGE))
        verify_host_is_corrupt(c, b);
    else if (copy_may_drop(c, b))
        host_drop(c, b);
}
