/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evicts blocks on request (EVICT), in slices that step.c runs. A dry run evicts
 * nothing: it marks a block as counted instead, and from then on skips it as if it were evicted.
 */
#include "admin.h"

#define JOB_SLICE 8192u

enum job_phase { JOB_CLEAR, JOB_MARK, JOB_AGES, JOB_EVICT };

static bool job_matches(struct core *c, const struct core_evict_job *job, const struct block *b)
{
    const struct core_ns *ns = block_ns(c, b);
    if (!(b->flags & BLOCK_F_LINKED) || b->state == BLOCK_FREE || b->state == BLOCK_DYING)
        return false;
    if ((job->ns && ns->id != job->ns) || !ns_visible(job->client, ns))
        return false;
    if ((job->tenant && strcmp(job->tenant, ns->tenant) != 0) ||
        (job->sub && strcmp(job->sub, ns->spec.sub) != 0) ||
        (job->model && strcmp(job->model, ns->spec.model) != 0))
        return false;
    if (job->level_below && retain_level(c->retain, block_no(c, b)) >= job->level_below)
        return false;
    return core__age_ms(c, b) >= job->older_than_ms;
}

/* Whether the job must not evict b: it is held, being copied or claimed; or it is pinned or named,
 * and the job does not force. */
static bool job_spares(struct core *c, const struct core_evict_job *job, const struct block *b)
{
    return block_held(c, b) || ((block_pinned(b) || block_named(c, b)) && !job->force);
}

static void mark_path(struct core *c, uint32_t no)
{
    while (no != CORE_NONE && !(c->blocks[no].flags & BLOCK_F_KEEP)) {
        c->blocks[no].flags |= BLOCK_F_KEEP;
        no = c->blocks[no].parent;
    }
}

/* The age class of a block, in powers of two of 16 ms. A job by bytes evicts the oldest classes
 * that hold `bytes`. */
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

/* Whether this dry run has counted b, with all that is below it. */
static bool job_counted(const struct core_evict_job *job, const struct block *b)
{
    return job->dry_run && b->counted;
}

static bool job_full(const struct core_evict_job *job)
{
    return job->bytes && job->ret_bytes >= job->bytes;
}

static void job_take(struct core *c, struct core_evict_job *job, uint32_t no)
{
    struct block *b = &c->blocks[no];
    if (job_counted(job, b))
        return;
    const bool marked = job->marked && (b->flags & BLOCK_F_KEEP);
    const bool keep = marked || job_spares(c, job, b);
    if (keep || (!job->dry_run && b->child != CORE_NONE)) {
        job->ret_kept++;
        return;
    }
    job->ret_blocks++;
    job->ret_bytes += block_bytes_present(c, b);
    room_places(c, b, &job->ret_in);
    if (job->dry_run) {
        b->counted = 1;
        return;
    }
    c->m.blocks_evicted_admin++;
    pins_force(c, job->force);
    block_kill(c, b, KVC_MISS_EVICTED);
    pins_force(c, false);
}

/* The block at which a walk of the tree at `no` begins, children first. Blocks that the dry run has
 * counted are its leaves, because all blocks below them are counted too. */
static uint32_t job_deepest(const struct core *c, const struct core_evict_job *job, uint32_t no)
{
    while (c->blocks[no].child != CORE_NONE && !job_counted(job, &c->blocks[no]))
        no = c->blocks[no].child;
    return no;
}

static uint32_t job_next(const struct core *c, const struct core_evict_job *job, uint32_t root,
                         uint32_t no)
{
    if (no == root)
        return CORE_NONE;
    const struct block *b = &c->blocks[no];
    return b->next != CORE_NONE ? job_deepest(c, job, b->next) : b->parent;
}

/* The block at which the walk of the tree at `root` continues: the one noted, or, if that was
 * removed since, the first of the tree again. */
static uint32_t job_resume(struct core *c, struct core_evict_job *job, uint32_t root)
{
    const uint32_t next = job->next;
    job->next = CORE_NONE;
    if (next != CORE_NONE && c->blocks[next].gen == job->next_gen &&
        c->blocks[next].flags & BLOCK_F_LINKED)
        return next;
    return job_deepest(c, job, root);
}

/* Takes the tree at `root`, children first: they were last used no later than their parent. False:
 * the slice is over, or *left blocks were looked at, before the tree is done. */
static bool job_take_tree(struct core *c, struct core_evict_job *job, uint32_t root, uint32_t *left)
{
    uint32_t no = job_resume(c, job, root);
    for (; no != CORE_NONE && !job_full(job); --*left) {
        if (*left == 0 || slice_over(c)) {
            job->next = no;
            job->next_gen = c->blocks[no].gen;
            return false;
        }
        uint32_t next = job_next(c, job, root, no);
        job_take(c, job, no);
        no = next;
    }
    return true;
}

/* Visits a record. False: the block's tree is not done yet. */
static bool job_visit(struct core *c, struct core_evict_job *job, uint32_t no, uint32_t *left)
{
    struct block *b = &c->blocks[no];
    switch ((enum job_phase)job->phase) {
    case JOB_CLEAR:
        block_clear(b, BLOCK_F_KEEP);
        if (b->state != BLOCK_DYING)
            b->counted = 0;
        return true;
    case JOB_MARK:
        if ((b->flags & BLOCK_F_LINKED) && job_spares(c, job, b))
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
        if (job_counted(job, b))
            return true;
        if (!(b->flags & BLOCK_F_KEEP))
            return job_take_tree(c, job, no, left);
        job_take(c, job, no);
        return true;
    }
    return true;
}

static void on_gone(struct core_gone *g, int err)
{
    struct core_evict_job *job = CONTAINER_OF(g, struct core_evict_job, gone);
    job->ret_err = err;
    list_remove(&job->req.node);
    job->done(job);
}

static void job_end(struct core *c, struct core_evict_job *job)
{
    list_remove(&job->node);
    if (job->dry_run) {
        list_remove(&job->req.node);
        job->done(job);
        return;
    }
    job->evicted = true;
    job->gone = (struct core_gone){.fn = on_gone};
    core_gone_await(c, &job->gone);
}

/* Evicts a key in every namespace and group that may have it; true when all of them are done. */
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

/* Runs one slice: looks at JOB_SLICE blocks at most. True when the job is done. */
static bool job_step(struct core *c, struct core_evict_job *job)
{
    uint32_t left = JOB_SLICE;
    work_slice(c); /* an eviction costs more work than a look */
    if (job->have_key && job->phase == JOB_EVICT)
        return job_by_key(c, job, &left);
    for (; left > 0 && !slice_over(c) && job->cursor < c->blocks_high; job->cursor++, left--) {
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

static void job_cancel(struct core *c, struct core_req *req)
{
    struct core_evict_job *job = CONTAINER_OF(req, struct core_evict_job, req);
    (void)c;
    list_remove(&req->node);
    if (job->evicted)
        core_gone_cancel(&job->gone);
    else
        list_remove(&job->node);
}

static const struct core_req_kind job_req = {.cancel = job_cancel, .stays = true};

void core_evict_start(struct core *c, struct core_evict_job *job)
{
    /* A hold on one block of a tree keeps those above it too, because they have a child then.
     * Marks, which take a walk over all records, are for jobs that do not name a key, and for dry
     * runs and jobs by bytes. */
    job->marked = !job->have_key || job->dry_run || job->bytes;
    job->phase = job->marked ? JOB_CLEAR : JOB_EVICT;
    job->cursor = 0;
    job->next = CORE_NONE;
    job->place = 0;
    job->evicted = false;
    job->ret_err = 0;
    job->ret_blocks = job->ret_bytes = job->ret_kept = 0;
    job->ret_in = (struct core_places){0};
    memset(job->age_bytes, 0, sizeof job->age_bytes);
    list_push_back(&c->jobs, &job->node);
    req_begin(job->client, &job->req, &job_req);
}

bool job_run(struct core *c)
{
    struct list_node *node = list_first(&c->jobs);
    if (!node)
        return false;
    struct core_evict_job *job = CONTAINER_OF(node, struct core_evict_job, node);
    if (job_step(c, job))
        job_end(c, job);
    return !list_empty(&c->jobs);
}
