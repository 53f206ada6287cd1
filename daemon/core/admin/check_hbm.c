/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks what must be true of HBM copies and of the jobs that copy by devices. For tests alone:
 * core_check() calls it.
 */
#include <stdlib.h>

#include "admin.h"
#include "sys.h"
#include "transfer_jobs.h"

/* Counts of HBM copies, of leases and of clients, by their numbers. */
struct counted {
    uint32_t *holds, *copies, *filling, *uses, *client_copies;
};

static uint32_t *counts_new(uint32_t n)
{
    uint32_t *p = sys_calloc(n + 1ull, sizeof *p);
    MUST(p != NULL);
    return p;
}

/* ---- holds ---- */

static void count_held(struct core *c, const struct run_list *hbm, struct counted *t)
{
    struct run_iter it = run_begin(c, hbm);
    for (const struct run_entry *r; (r = run_next(c, &it));) {
        const struct hbm_copy *e = hbm_copy_at(c, r->block);
        MUST(e && e->serial == r->gen && !e->mine);
        t->holds[r->block]++;
    }
}

/* Whether the lease holds an HBM copy of the block, void or not. */
static bool holds_hbm(struct core *c, const struct lease *l, uint32_t block)
{
    struct run_iter it = run_begin(c, &l->hbm);
    for (const struct run_entry *r; (r = run_next(c, &it));)
        if (hbm_copy_at(c, r->block)->block == block)
            return true;
    return false;
}

/* Checks that a lease holds on its device each of its blocks that is not in host memory. A lease
 * that has ended is not checked: its HBM copies are released first, its blocks in slices. */
static void check_leased(struct core *c, const struct lease *l)
{
    if (l->going)
        return;
    struct run_iter it = run_begin(c, &l->hbm);
    for (const struct run_entry *r; (r = run_next(c, &it));)
        MUST(hbm_copy_at(c, r->block)->device == l->hbm_device);
    it = run_begin(c, &l->blocks);
    for (const struct run_entry *r; (r = run_next(c, &it));)
        MUST(block_in_host(c, &c->blocks[r->block]) || holds_hbm(c, l, r->block));
}

static void count_leases(struct core *c, struct counted *t)
{
    const struct lease *l;
    POOL_FOR_EACH (l, i, lease_pool(c)) {
        MUST(l->hbm.n == 0 || l->hbm_device < c->hbm->ndevices);
        count_held(c, &l->hbm, t);
        check_leased(c, l);
    }
    const struct core_load *load;
    POOL_FOR_EACH (load, i, load_pool(c))
        count_held(c, &load->hbm, t);
}

static void count_fills(struct core *c, struct counted *t, struct hbm_copy *e)
{
    MUST(list_empty(&e->waiters) || e->copies > 0);
    LIST_FOR_EACH_SAFE (node, next, &e->waiters) {
        const struct core_fill *f = CONTAINER_OF(node, struct core_fill, node);
        const struct lease *l = pool_at(lease_pool(c), (uint32_t)f->lease - 1);
        MUST(l && l->id == f->lease && f->device == e->device);
        t->uses[(uint32_t)f->lease - 1]++;
        t->client_copies[client_no(c, l->client)]++;
    }
}

static void count_job(struct core *c, const struct transfer_job *job, struct counted *t)
{
    uint32_t pieces = 0;
    MUST(job->parts > 0 && job->begun > 0);
    MUST((job->lease != NULL) == (job->kind->copy != DEVICE_STORE));
    MUST((job->transfer != NULL) == (job->kind->copy != DEVICE_FILL));
    for (uint32_t p = 0; p < job->parts; p++) {
        MUST(job->part[p].first == pieces && job->part[p].copy.n > 0);
        pieces += job->part[p].copy.n;
    }
    MUST(pieces == job->pieces);
    if (!job->lease)
        return;
    t->uses[pool_index(lease_pool(c), job->lease)]++;
    t->client_copies[client_no(c, job->lease->client)]++;
}

static void count_waiting(struct core *c, struct core_transfer *w, void *ctx)
{
    struct counted *t = ctx;
    MUST(hbm_device_of(c, w->device));
    if (w->kind->copy == DEVICE_STORE) {
        MUST(CONTAINER_OF(w, struct core_commit, transfer)->left > 0);
        return; /* its ops are counted instead */
    }
    const struct core_send *s = CONTAINER_OF(w, struct core_send, transfer);
    const struct lease *l = pool_at(lease_pool(c), (uint32_t)s->lease - 1);
    MUST(l && l->id == s->lease && l->client == w->client);
    t->uses[(uint32_t)s->lease - 1]++;
    t->client_copies[client_no(c, w->client)]++;
}

/* Checks the shares of jobs, and of those that wait for words, against a count. */
static void check_shares(const struct core *c)
{
    uint64_t jobs[DEVICES_MAX] = {0}, fenced[DEVICES_MAX] = {0};
    LIST_FOR_EACH_SAFE (node, next, &c->hbm->in_flight) {
        const struct transfer_job *job = CONTAINER_OF(node, struct transfer_job, node);
        jobs[job->dev - c->hbm->dev]++;
        fenced[job->dev - c->hbm->dev] += job->fenced;
    }
    for (uint32_t d = 0; d < c->hbm->ndevices; d++)
        MUST(jobs[d] == c->hbm->dev[d].share.used && fenced[d] == c->hbm->dev[d].fenced.used);
    uint64_t ops = 0;
    const struct core_op *o;
    POOL_FOR_EACH (o, i, op_pool(c))
        ops += o->fenced;
    MUST(ops == ops_fenced(c));
}

static void count_pieces(struct core *c, const struct transfer_job *job, struct counted *t)
{
    uint32_t left = 0, looking = 0;
    for (uint32_t p = 0; p < job->parts; p++) {
        const struct transfer_part *part = &job->part[p];
        left += !part->over;
        MUST(part->looked <= part->copy.n && (!part->given || part->looked == part->copy.n));
        MUST(!part->over || (part->given && part->looking == 0));
        looking += part->looking;
        for (uint32_t i = 0; !part->over && i < part->copy.n; i++) {
            const uint32_t what = transfer_what(c, job, part->first + i);
            if (job->kind->copy == DEVICE_STORE) {
                const struct core_op *o = op_at(c, what);
                MUST(o && o->commit == CONTAINER_OF(job->transfer, struct core_commit, transfer));
            } else if (what != CORE_NONE) {
                t->copies[what]++;
                t->filling[what] += job->kind->copy == DEVICE_FILL;
            }
        }
    }
    MUST(left == job->left && left > 0);
    MUST(looking == (uint32_t)__builtin_popcount(job->sums));
}

static void count_verified(struct core *c, struct counted *t)
{
    const struct verify_op *o;
    POOL_FOR_EACH (o, i, verify_pool(c))
        if (o->hbm != CORE_NONE)
            t->copies[o->hbm]++;
}

/* ---- each HBM copy ---- */

static void check_hbm(struct core *c, const struct hbm_copy *e, const struct counted *t,
                      uint64_t *slots)
{
    const uint32_t no = hbm_copy_no(c, e);
    struct block *b = &c->blocks[e->block];
    const bool used = e->holds > 0 || e->copies > 0;
    MUST(e->device < c->hbm->ndevices && e->shard < block_shards(c, b) && !e->mine);
    MUST(b->gen == e->gen && (b->state == BLOCK_PRESENT || b->state == BLOCK_DYING));
    MUST(e->holds == t->holds[no] && e->copies == t->copies[no]);
    MUST(e->loc.id != 0 || e->state == COPY_NONE);
    MUST(!used || b->holds > 0 || b->copies > 0); /* a user of the copy holds its block */
    MUST(e->state != COPY_FILLING || e->copies == 1);
    MUST(e->state == COPY_NONE || (e->state == COPY_FILLING) == t->filling[no]);
    if (e->state == COPY_NONE || b->state == BLOCK_DYING)
        MUST(used);
    if (e->state != COPY_NONE)
        MUST(b->hbm && hbm_copy_find(c, b, e->shard, &c->hbm->dev[e->device]) == e);
    slots[e->device] += e->loc.id != 0;
}

/* Checks that the slots that a device has handed out are those of HBM copies. */
static void check_slots(struct core *c, const uint64_t *slots)
{
    uint64_t blocks = 0, bytes = 0;
    for (uint32_t d = 0; d < c->hbm->ndevices; d++) {
        const struct hbm_device *dev = &c->hbm->dev[d];
        struct tier_stats st = {0};
        if (dev->device->slots)
            dev->device->slots->ops->stats(dev->device->slots, &st);
        MUST(st.used_slots == slots[d] && st.used_bytes <= st.limit_bytes);
        blocks += dev->stats.blocks;
        bytes += dev->stats.bytes;
    }
    MUST(blocks == c->m.hbm_blocks && bytes == c->m.hbm_bytes);
}

/* Checks the bytes that namespaces have in slots against a count. */
static void check_room_soon(struct core *c)
{
    uint64_t *held = sys_calloc(c->cfg.namespaces_max, sizeof *held);
    MUST(held != NULL);
    const struct hbm_copy *e;
    POOL_FOR_EACH (e, i, c->hbm->entries) {
        if (e->loc.id)
            held[c->blocks[e->block].ns] += block_group(c, &c->blocks[e->block])->block_bytes;
    }
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        MUST(held[i] == c->ns[i].hbm_bytes);
    free(held);
}

static void check_entries(struct core *c, const struct counted *t)
{
    uint64_t slots[DEVICES_MAX] = {0}, ready[DEVICES_MAX] = {0}, bytes[DEVICES_MAX] = {0};
    uint64_t linked = 0, in_buckets = 0;
    const struct hbm_copy *e;
    POOL_FOR_EACH (e, i, c->hbm->entries) {
        check_hbm(c, e, t, slots);
        linked += e->state != COPY_NONE;
        ready[e->device] += e->state == COPY_READY;
        bytes[e->device] +=
            e->state == COPY_READY ? block_group(c, &c->blocks[e->block])->block_bytes : 0;
    }
    for (uint32_t i = 0; i < UINT32_C(1) << c->hbm->buckets_log2; i++)
        for (uint32_t no = c->hbm->bucket[i]; no != CORE_NONE; no = hbm_copy_at(c, no)->next)
            in_buckets++;
    MUST(linked == in_buckets);
    for (uint32_t d = 0; d < c->hbm->ndevices; d++)
        MUST(ready[d] == c->hbm->dev[d].stats.blocks && bytes[d] == c->hbm->dev[d].stats.bytes);
    check_slots(c, slots);
    check_room_soon(c);
    uint64_t marked = 0, named = 0;
    for (uint32_t no = 0; no < c->blocks_high; no++) {
        const struct block *b = &c->blocks[no];
        MUST(!b->hbm || b->state == BLOCK_PRESENT || b->state == BLOCK_DYING);
        marked += b->hbm;
        for (uint32_t d = 0, any = 0; b->hbm && !any && d < c->hbm->ndevices; d++)
            for (uint32_t s = 0; !any && s < block_shards(c, b); s++) {
                any = hbm_copy_find(c, b, s, &c->hbm->dev[d]) != NULL;
                named += any;
            }
    }
    MUST(marked == named);
}

/* Checks the copies of clients, and the uses of leases, against a count. */
static void check_users(struct core *c, struct counted *t)
{
    uint64_t sends = 0;
    const struct lease *l;
    POOL_FOR_EACH (l, i, lease_pool(c))
        MUST(l->uses == t->uses[i] && (!l->ended || l->uses > 0 || l->going));
    const struct core_op *o;
    POOL_FOR_EACH (o, i, op_pool(c))
        t->client_copies[client_no(c, o->client)]++;
    struct core_client *cl;
    POOL_FOR_EACH (cl, i, c->clients) {
        MUST(cl->copies == t->client_copies[i] + cl->verifying);
        LIST_FOR_EACH_SAFE (node, next, &cl->reqs)
            sends += CONTAINER_OF(node, struct core_req, node)->kind == &send_req;
    }
    MUST(sends == c->m.sends_in_flight);
}

void hbm_check(struct core *c)
{
    if (!c->hbm)
        return;
    const uint32_t n = pool_count(c->hbm->entries);
    struct counted t = {.holds = counts_new(n),
                        .copies = counts_new(n),
                        .filling = counts_new(n),
                        .uses = counts_new(pool_count(lease_pool(c))),
                        .client_copies = counts_new(pool_count(c->clients))};
    uint32_t jobs = 0;
    count_leases(c, &t);
    LIST_FOR_EACH_SAFE (node, next, &c->hbm->in_flight) {
        const struct transfer_job *job = CONTAINER_OF(node, struct transfer_job, node);
        count_job(c, job, &t);
        count_pieces(c, job, &t);
        jobs++;
    }
    MUST(jobs == pool_used(c->hbm->jobs));
    count_verified(c, &t);
    transfer_each_waiting(c, count_waiting, &t);
    check_shares(c);
    struct hbm_copy *e;
    POOL_FOR_EACH (e, i, c->hbm->entries)
        count_fills(c, &t, e);
    check_entries(c, &t);
    check_users(c, &t);
    free(t.holds);
    free(t.copies);
    free(t.filling);
    free(t.uses);
    free(t.client_copies);
}
