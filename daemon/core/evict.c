/* SPDX-License-Identifier: Apache-2.0 */
/* Making room: on demand for writers, and on request for operators. */
#include "core__.h"

/* Blocks of other sizes or principals that may go in vain before a region is emptied on purpose. */
#define ROOM_PATIENCE 64u
#define JOB_SLICE     8192u

/* So large a tree is not evicted for the sake of its root. */
#define SUBTREE_MAX 256u
/* Records looked at for one that may go, when there are none left. */
#define HAND_STEPS 64u

static void evict_for_room(struct core *c, struct block *b)
{
    c->m.blocks_evicted++;
    if (c->cfg.disk && !(b->flags & BLOCK_F_DISK))
        c->m.blocks_lost_unsaved++;
    block_kill(c, b, KVC_MISS_EVICTED);
}

bool evict_subtree(struct core *c, struct block *b)
{
    const uint32_t root = block_no(c, b);
    uint32_t n = 0;
    for (uint32_t no = block_walk_first(c, root); no != CORE_NONE;
         no = block_walk_next(c, root, no)) {
        const struct block *x = &c->blocks[no];
        if (++n > SUBTREE_MAX || block_in_use(c, x) || (x->flags & BLOCK_F_DURABLE))
            return false;
    }
    for (uint32_t no = block_walk_first(c, root); no != CORE_NONE;) {
        const uint32_t next = block_walk_next(c, root, no);
        evict_for_room(c, &c->blocks[no]);
        no = next;
    }
    return true;
}

/* Of some blocks that are on disk alone, the leaf that was used longest ago. */
static struct block *disk_leaf(struct core *c)
{
    struct block *best = NULL;
    const uint32_t steps = MIN(HAND_STEPS, c->blocks_high);
    for (uint32_t n = 0; n < steps; n++) {
        if (++c->hand >= c->blocks_high)
            c->hand = 0;
        struct block *b = &c->blocks[c->hand];
        if (!(b->flags & BLOCK_F_LINKED) || b->state != BLOCK_PRESENT ||
            (b->flags & (BLOCK_F_HOST | BLOCK_F_DURABLE)) || !block_can_evict(c, c->hand))
            continue;
        if (!best || core__age_ms(c, b) > core__age_ms(c, best))
            best = b;
    }
    return best;
}

/* A block that has descendants, on disk, or is durable: as good as used. */
static void spare(struct core *c, uint32_t no)
{
    c->cfg.policy->touch(c->policy, no, c->now_ms);
}

bool evict_one(struct core *c)
{
    struct block *b = c->cfg.disk ? disk_leaf(c) : NULL;
    if (b) {
        evict_for_room(c, b);
        return true;
    }
    for (uint32_t n = 0; n < SUBTREE_MAX; n++) {
        uint32_t no = c->cfg.policy->victim(c->policy, block_can_leave, c);
        if (no == POLICY_NO_BLOCK) {
            b = clean_pop(c);
            if (!b)
                return false;
            clean_recall(c, b);
            continue;
        }
        if (evict_subtree(c, &c->blocks[no]))
            return true;
        spare(c, no);
    }
    return false;
}

/* Evicts what may go of the subtree at `root`, children first; returns how many went. */
static uint32_t evict_tree(struct core *c, uint32_t root, uint64_t *counter)
{
    uint32_t n = 0;
    for (uint32_t no = block_walk_first(c, root); no != CORE_NONE;) {
        uint32_t next = block_walk_next(c, root, no);
        if (block_can_evict(c, no) && !(c->blocks[no].flags & BLOCK_F_DURABLE)) {
            block_kill(c, &c->blocks[no], KVC_MISS_EVICTED);
            ++*counter;
            n++;
        }
        no = next;
    }
    return n;
}

static void drain_occupant(void *ctx, struct tier_loc loc, uint32_t owner)
{
    struct core *c = ctx;
    (void)loc;
    struct block *b = &c->blocks[owner];
    if (!(b->flags & BLOCK_F_LINKED))
        return;
    if ((b->flags & BLOCK_F_HOST) && (b->flags & BLOCK_F_DISK)) {
        if (!block_in_use(c, b)) {
            c->m.blocks_left++;
            host_drop(c, b);
        }
        return;
    }
    evict_tree(c, owner, &c->m.blocks_evicted);
}

static struct tier_loc some_loc(struct core *c, const struct block *b)
{
    if (!(b->flags & BLOCK_F_PARTS))
        return (struct tier_loc){b->where};
    const struct part *p = pool_at(c->parts, b->where);
    return p->loc;
}

/* The next block whose host copy goes without loss, NULL when there is none. */
static struct block *next_clean(struct core *c)
{
    struct block *b = c->cfg.disk ? clean_pop(c) : NULL;
    if (b || !c->cfg.disk)
        return b;
    uint32_t no = c->cfg.policy->victim(c->policy, block_can_leave, c);
    if (no == POLICY_NO_BLOCK)
        return NULL;
    b = &c->blocks[no];
    return b->state == BLOCK_PRESENT && (b->flags & BLOCK_F_DISK) ? b : NULL;
}

/* One block makes room: 0, KVC_E_FULL when none can, KVC_E_BUSY when one will soon. */
static int room_make(struct core *c, uint32_t principal, uint32_t bytes, bool patient,
                     uint32_t *in_vain)
{
    const struct tier *host = c->cfg.host;
    struct block *b = next_clean(c);
    if (b) {
        *in_vain += !host->ops->helps(host, some_loc(c, b), principal, bytes);
        c->m.blocks_left++;
        host_drop(c, b);
        return 0;
    }
    if (patient && c->cfg.disk) {
        (void)place_fill(c);
        if (c->m.clean_bytes > 0)
            return 0;
        if (leaving_soon(c))
            return KVC_E_BUSY;
    }
    for (uint32_t n = 0; n < ROOM_PATIENCE; n++) {
        uint32_t no = c->cfg.policy->victim(c->policy, block_can_leave, c);
        if (no == POLICY_NO_BLOCK)
            return KVC_E_FULL;
        b = &c->blocks[no];
        const bool helps = host->ops->helps(host, some_loc(c, b), principal, bytes);
        if (evict_subtree(c, b)) {
            *in_vain += !helps;
            return 0;
        }
        spare(c, no);
    }
    return KVC_E_FULL;
}

int room_take(struct core *c, uint32_t principal, uint32_t bytes, struct tier_loc near,
              uint32_t owner, bool patient, struct tier_loc *ret_loc)
{
    struct tier *host = c->cfg.host;
    uint32_t in_vain = 0;
    bool drained = false;
    for (;;) {
        int err = host->ops->alloc(host, principal, bytes, near, owner, ret_loc);
        if (err != KVC_E_NO_ROOM)
            return err;
        place_pressed(c);
        if (in_vain >= ROOM_PATIENCE && !drained) {
            drained = true;
            c->m.drains++;
            if (host->ops->drain(host, principal, bytes, drain_occupant, c) > 0)
                continue;
        }
        err = room_make(c, principal, bytes, patient, &in_vain);
        if (err)
            return err;
        if (in_vain > 2 * ROOM_PATIENCE)
            in_vain = 0, drained = false;
    }
}

/* ---- on request ---- */

enum job_phase { JOB_CLEAR, JOB_MARK, JOB_AGES, JOB_EVICT };

static bool job_matches(struct core *c, const struct core_evict_job *job, const struct block *b)
{
    const struct core_ns *ns = block_ns(c, b);
    if (!(b->flags & BLOCK_F_LINKED) || b->state == BLOCK_FREE || b->state == BLOCK_DYING)
        return false;
    if (job->ns && ns->id != job->ns)
        return false;
    if (!ns_visible(job->client, ns))
        return false;
    return core__age_ms(c, b) >= job->older_than_ms;
}

static void mark_path(struct core *c, uint32_t no)
{
    while (no != CORE_NONE && !(c->blocks[no].flags & BLOCK_F_KEEP)) {
        c->blocks[no].flags |= BLOCK_F_KEEP;
        no = c->blocks[no].parent;
    }
}

/* Ages in powers of two of 16 ms: the oldest classes that hold `bytes` are what goes. */
static uint32_t age_class(const struct core *c, const struct block *b)
{
    uint64_t units = core__age_ms(c, b) >> CORE_AGE_SHIFT;
    return units ? 64u - (uint32_t)__builtin_clzll(units) : 0;
}

static void choose_ages(struct core_evict_job *job)
{
    uint64_t sum = 0;
    job->age_floor = 0;
    if (!job->bytes)
        return;
    for (uint32_t k = ARRAY_LEN(job->age_bytes); k-- > 0;) {
        sum += job->age_bytes[k];
        job->age_floor = k;
        if (sum >= job->bytes)
            return;
    }
}

static bool job_full(const struct core_evict_job *job)
{
    return job->bytes && job->ret_bytes >= job->bytes;
}

static void job_take(struct core *c, struct core_evict_job *job, uint32_t no)
{
    struct block *b = &c->blocks[no];
    const bool marked = job->marked && (b->flags & BLOCK_F_KEEP);
    const bool keep = marked || block_held(c, b);
    if (keep || (!job->dry_run && b->child != CORE_NONE)) {
        job->ret_kept++;
        return;
    }
    job->ret_blocks++;
    job->ret_bytes += block_bytes_present(c, b);
    if (job->dry_run)
        return;
    c->m.blocks_evicted_admin++;
    block_kill(c, b, KVC_MISS_EVICTED);
}

/* The block at which the walk of the tree at `root` goes on: the one noted, unless it has gone
 * since, and the tree is begun again. */
static uint32_t job_resume(struct core *c, struct core_evict_job *job, uint32_t root)
{
    const uint32_t next = job->next;
    job->next = CORE_NONE;
    if (next != CORE_NONE && c->blocks[next].gen == job->next_gen &&
        c->blocks[next].flags & BLOCK_F_LINKED)
        return next;
    return block_walk_first(c, root);
}

/* b and everything below it, children first: they were last used no later than b. True when the
 * tree is done, false when *left blocks were looked at before. */
static bool job_take_tree(struct core *c, struct core_evict_job *job, uint32_t root, uint32_t *left)
{
    uint32_t no = job_resume(c, job, root);
    for (; no != CORE_NONE && !job_full(job); --*left) {
        if (*left == 0) {
            job->next = no;
            job->next_gen = c->blocks[no].gen;
            return false;
        }
        uint32_t next = block_walk_next(c, root, no);
        job_take(c, job, no);
        no = next;
    }
    return true;
}

/* False: the block's tree is not through yet. */
static bool job_visit(struct core *c, struct core_evict_job *job, uint32_t no, uint32_t *left)
{
    struct block *b = &c->blocks[no];
    switch ((enum job_phase)job->phase) {
    case JOB_CLEAR:
        block_clear(b, BLOCK_F_KEEP);
        return true;
    case JOB_MARK:
        if ((b->flags & BLOCK_F_LINKED) && block_held(c, b))
            mark_path(c, no);
        return true;
    case JOB_AGES:
        if (!(b->flags & BLOCK_F_KEEP) && job_matches(c, job, b))
            job->age_bytes[age_class(c, b)] += block_bytes_present(c, b);
        return true;
    case JOB_EVICT:
        if (job_full(job) || !job_matches(c, job, b) || age_class(c, b) < job->age_floor)
            return true;
        /* Below one that stays, each block is visited by itself, and counted once. */
        if (!job->dry_run && !(b->flags & BLOCK_F_KEEP))
            return job_take_tree(c, job, no, left);
        job_take(c, job, no);
        return true;
    }
    return true;
}

static void job_end(struct core_evict_job *job)
{
    list_remove(&job->node);
    job->done(job);
}

/* In every namespace and group that may have the key; true when all of them are through. */
static bool job_by_key(struct core *c, struct core_evict_job *job, uint32_t *left)
{
    for (; job->place < c->cfg.namespaces_max * KVC_GROUPS_MAX; job->place++) {
        struct core_ns *ns = &c->ns[job->place / KVC_GROUPS_MAX];
        const uint32_t group = job->place % KVC_GROUPS_MAX;
        if (!ns->id || group >= ns->spec.ngroups)
            continue;
        struct block *b = index_get(c, ns, group, job->key.b);
        if (b && job_matches(c, job, b) && !job_take_tree(c, job, block_no(c, b), left))
            return false;
        job->next = CORE_NONE;
    }
    return true;
}

/* One slice: at most JOB_SLICE blocks. True when the job is done. */
static bool job_step(struct core *c, struct core_evict_job *job)
{
    uint32_t left = JOB_SLICE;
    if (job->have_key && job->phase == JOB_EVICT)
        return job_by_key(c, job, &left);
    for (; left > 0 && job->cursor < c->blocks_high; job->cursor++, left--) {
        if (!job_visit(c, job, job->cursor, &left))
            return false;
        job->next = CORE_NONE;
        if (left == 0)
            left = 1; /* this block itself */
    }
    if (job->cursor < c->blocks_high)
        return false;
    job->cursor = 0;
    if (job->phase == JOB_EVICT)
        return true;
    if (job->phase == JOB_AGES)
        choose_ages(job);
    job->phase++;
    return false;
}

void core_evict_start(struct core *c, struct core_evict_job *job)
{
    /* What holds one block of a tree holds those above it too, for they have a child then. Marks,
     * and so a walk of all there is, are for those that go without being asked for by name, and for
     * who wants to know before. */
    job->marked = !job->have_key || job->dry_run || job->bytes;
    job->phase = job->marked ? JOB_CLEAR : JOB_EVICT;
    job->cursor = 0;
    job->next = CORE_NONE;
    job->place = 0;
    job->ret_blocks = job->ret_bytes = job->ret_kept = 0;
    memset(job->age_bytes, 0, sizeof job->age_bytes);
    list_push_back(&c->jobs, &job->node);
}

void core_evict_cancel(struct core *c, struct core_evict_job *job)
{
    (void)c;
    list_remove(&job->node);
}

bool core_placement_step(struct core *c)
{
    bool more = reclaim_step(c);
    if (c->cfg.disk) {
        promise_step(c);
        more |= place_fill(c);
        load_pump(c);
        room_wake(c);
    }
    struct list_node *node = list_first(&c->jobs);
    if (!node)
        return more;
    struct core_evict_job *job = CONTAINER_OF(node, struct core_evict_job, node);
    if (job_step(c, job))
        job_end(job);
    return more || !list_empty(&c->jobs);
}
