/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace over three tiers: of its blocks 1 % fit on a device, 5 % in host memory, 20 % on disk.
 * Each request loads what it finds, has it filled on the device and sent to its pages, looks at
 * every byte in all three places, and stores what is missing out of pages.
 *
 * The same requests go to a core without a device, from staging: a device in front must change no
 * hit. What is found on the device is that of leaf-first LRU written down directly, where what a
 * request holds may not go.
 */
#include <stdio.h>

#include "cases.h"
#include "core_rig.h"
#include "stream.h"

#define REQUESTS   800u
#define BLOCK_SIZE 64u
#define PAGES      (2 * STREAM_DEPTH)
#define NO_NODE    UINT32_MAX

/* Policies remember blocks by their hashes, whose secret is drawn: here it is the same in each run
 * (see CMakeLists.txt). */
int __wrap_hash_random(void *p, size_t n);
int __wrap_hash_random(void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)p)[i] = (uint8_t)i;
    return 0;
}

/* ---- the reference of what is on the device ---- */

struct reference {
    uint32_t capacity, used, nodes;
    uint64_t clock;
    uint64_t touched[STREAM_NODES]; /* 0: not there */
    bool held[STREAM_NODES];
};

static uint32_t oldest(const struct reference *f)
{
    uint32_t no = NO_NODE;
    for (uint32_t i = 0; i < f->nodes; i++)
        if (f->touched[i] && !f->held[i] && (no == NO_NODE || f->touched[i] < f->touched[no]))
            no = i;
    return no;
}

/* How many of the blocks are there, and that the others come, as far as there is room. */
static uint32_t reference_fill(struct reference *f, const uint32_t *path, uint32_t n)
{
    uint32_t hits = 0;
    for (uint32_t i = 0; i < n; i++) {
        hits += f->touched[path[i]] != 0;
        f->held[path[i]] = true;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (f->touched[path[i]])
            continue;
        const uint32_t victim = f->used == f->capacity ? oldest(f) : NO_NODE;
        if (f->used == f->capacity && victim == NO_NODE)
            break;
        if (victim == NO_NODE)
            f->used++;
        else
            f->touched[victim] = 0;
        f->touched[path[i]] = ++f->clock;
    }
    for (uint32_t i = n; i-- > 0;) {
        f->held[path[i]] = false;
        f->touched[path[i]] = f->touched[path[i]] ? ++f->clock : 0;
    }
    return hits;
}

/* ---- a core ---- */

struct node {
    struct rig r;
    struct core_ns *ns;
    struct device_pool *pool; /* NULL: without a device */
};

static void keys_of(const uint32_t *path, uint32_t n, uint8_t *ret_keys)
{
    for (uint32_t i = 0; i < n; i++) {
        struct key256 key = rig_key(1, path[i]);
        memcpy(ret_keys + (size_t)i * KVC_KEY_BYTES, key.b, KVC_KEY_BYTES);
    }
}

static void on_wake(struct core_waiter *w)
{
    w->keys = UINT32_MAX;
}

/* A lease on what there is, loaded. */
static struct core_held acquire(struct node *x, const uint8_t *keys, uint32_t n)
{
    struct core_acquire in = {
        .seq = {.ns = x->ns, .tokens = n, .ngroups = 1, .keys = {keys}, .n = {n}}, .load = true};
    struct core_waiter w = {.fn = on_wake};
    struct core_held held;
    int err = core_acquire(x->r.core, x->r.cl[1], &in, &w, &held, &x->r.why);
    if (err == 1) {
        rig_settle(&x->r);
        ck_assert_uint_eq(w.keys, UINT32_MAX);
        in.load = false;
        err = core_acquire(x->r.core, x->r.cl[1], &in, &w, &held, &x->r.why);
    }
    ck_assert_int_eq(err, 0);
    return held;
}

static void on_done(struct core_commit *c)
{
    c->done = NULL;
}

/* Blocks from .. n - 1 of the path, out of pages or staging. */
static void store(struct node *x, const uint8_t *keys, uint32_t from, uint32_t n)
{
    static uint8_t staging[STREAM_DEPTH * BLOCK_SIZE], offsets[STREAM_DEPTH * 8];
    static uint32_t pages[PAGES];
    uint8_t statuses[STREAM_DEPTH];
    const uint32_t ppb = 2;
    struct rig *r = &x->r;
    struct core_reserve in = {.ns = x->ns,
                              .parent = from ? keys + (from - 1) * KVC_KEY_BYTES : NULL,
                              .first_token = from,
                              .keys = keys + from * KVC_KEY_BYTES,
                              .n = n - from};
    struct core_commit c = {.n = n - from,
                            .offsets = offsets,
                            .staging = staging,
                            .staging_bytes = sizeof(staging),
                            .statuses = statuses,
                            .done = on_done,
                            .store = true};
    for (uint32_t i = 0; i < n - from; i++) {
        const uint16_t off = (uint16_t)(i * BLOCK_SIZE);
        fake_fill(staging + off, BLOCK_SIZE, in.keys + (size_t)i * KVC_KEY_BYTES, 0);
        memcpy(&offsets[i * 8], &off, sizeof off); /* the rest is 0 */
        pages[ppb * i] = PAGES - 1 - 2 * i;
        pages[ppb * i + 1] = PAGES - 2 - 2 * i;
        if (x->pool)
            fake_pool_put(x->pool, 0, &pages[ppb * i], staging + off);
    }
    if (x->pool) {
        c.transfer.device = r->devices[0];
        c.transfer.pool = x->pool;
        c.pages = pages;
        c.pages_per_block = ppb;
    }
    ck_assert_int_eq(core_reserve(r->core, r->cl[1], &in, &c.reservation, statuses, &r->why), 0);
    if (c.reservation == 0)
        return;
    ck_assert_int_eq(core_commit(r->core, r->cl[1], &c, &r->why), 1);
    rig_settle(r);
    ck_assert(c.done == NULL);
}

/* A copy goes with its block. */
static void forget_the_gone(struct reference *f, struct node *x)
{
    for (uint32_t i = 0; i < f->nodes; i++)
        if (f->touched[i] && rig_explain(&x->r, 0, 0, 1, i).state != KVC_BLOCK_PRESENT) {
            f->touched[i] = 0;
            f->used--;
        }
}

/* On the device, and in pages: every byte of what the lease holds, the path's first blocks. Returns
 * how many were found on the device. */
static uint64_t use_device(struct node *x, const struct core_held *held, const uint32_t *path,
                           const uint8_t *keys, struct reference *f)
{
    static struct rig_send send;
    struct rig_fill fill;
    struct core_hbm_stats before, after;
    forget_the_gone(f, x);
    core_hbm_stats(x->r.core, 0, &before);
    const int err = rig_fill(&x->r, 1, held->lease, 0, 0, &fill);
    ck_assert_int_ge(err, 0);
    const uint32_t want = reference_fill(f, path, held->prefix.tokens);
    rig_settle(&x->r);
    ck_assert_uint_eq(fill.done, (unsigned)err);
    ck_assert_uint_eq(rig_check_hbm(&x->r, 1, held->lease, 0), fill.f.ret_blocks);
    ck_assert_int_eq(rig_send(&x->r, 1, held, 0, x->pool, 0, &send), 1);
    rig_settle(&x->r);
    ck_assert_uint_eq(send.done, 1);
    for (uint32_t i = 0; i < held->group[0].n; i++) {
        ck_assert_uint_eq(send.statuses[i], KVC_ST_OK);
        ck_assert(rig_has_arrived(&send, x->ns, 0, i, keys + (size_t)i * KVC_KEY_BYTES));
    }
    core_hbm_stats(x->r.core, 0, &after);
    ck_assert_uint_eq(after.hits - before.hits, want);
    return want;
}

/* f: NULL without a device. */
static uint32_t request(struct node *x, const uint32_t *path, uint32_t n, struct reference *f,
                        uint64_t *hbm)
{
    static uint8_t keys[STREAM_DEPTH * KVC_KEY_BYTES];
    keys_of(path, n, keys);
    struct core_held held = acquire(x, keys, n);
    if (held.lease) {
        rig_check_lease(&x->r, 1, held.lease, 0);
        if (f)
            *hbm += use_device(x, &held, path, keys, f);
        rig_settle(&x->r);
        ck_assert_int_eq(core_release(x->r.core, x->r.cl[1], held.lease), 0);
    }
    if (held.prefix.tokens < n)
        store(x, keys, held.prefix.tokens, n);
    rig_step(&x->r);
    return held.prefix.tokens;
}

static void node_begin(struct node *x, uint32_t blocks, bool device,
                       const struct policy_ops *policy)
{
    struct core_ns_spec spec = rig_spec("m", 1, BLOCK_SIZE);
    rig_defaults(&x->r);
    x->r.cfg.policy = policy;
    x->r.tier_cfg = (struct fake_tier_config){.regions = 1,
                                              .region_bytes = blocks / 20 * BLOCK_SIZE,
                                              .slot_align = BLOCK_SIZE,
                                              .seed = 3};
    x->r.disk_cfg =
        (struct fake_disk_config){.slots = blocks / 5, .region_slots = blocks / 80, .seed = 5};
    x->r.device_cfg[0].regions = 1;
    x->r.device_cfg[0].region_bytes = blocks / 100 * BLOCK_SIZE;
    x->r.cfg.ndevices = device;
    x->r.cfg.hbm_max = blocks / 100;
    rig_begin(&x->r);
    x->ns = rig_ns(&x->r, 1, &spec);
    x->pool = device ? rig_pool(&x->r, 0, x->ns, PAGES) : NULL;
}

static uint32_t count_blocks(uint64_t seed)
{
    static struct stream s;
    const uint32_t *path;
    s = (struct stream){.random = seed};
    for (uint32_t i = 0; i < REQUESTS; i++)
        (void)stream_next(&s, &path);
    return s.nodes;
}

/* To the last block: whoever means to change what stays changes these, and says why. */
static const uint64_t recorded_hits[] = {6572, 8085, 6156}, recorded_hbm[] = {729, 821, 968};

CASES(.timeout_s = 300);

CASE_EACH(a_device_in_front_changes_no_hit_and_no_byte, 3)
{
    static struct stream s;
    static struct reference f;
    static struct node with, without;
    const uint64_t seed = (uint64_t)_i + 11;
    const uint32_t blocks = count_blocks(seed);
    uint64_t asked = 0, hits = 0, hbm = 0;
    node_begin(&with, blocks, true, &policy_lru);
    node_begin(&without, blocks, false, &policy_lru);
    s = (struct stream){.random = seed};
    f = (struct reference){.capacity = blocks / 100};
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const uint32_t *path;
        const uint32_t n = stream_next(&s, &path);
        f.nodes = s.nodes;
        const uint32_t hit = request(&with, path, n, &f, &hbm);
        ck_assert_uint_eq(hit, request(&without, path, n, NULL, NULL));
        forget_the_gone(&f, &with);
        ck_assert_uint_eq(core_metrics(with.r.core)->hbm_blocks, f.used);
        asked += n;
        hits += hit;
    }
    printf("%u blocks, %u / %u / %u: %llu of %llu asked for are hits, %llu of them on the device\n",
           blocks, blocks / 100, blocks / 20, blocks / 5, (unsigned long long)hits,
           (unsigned long long)asked, (unsigned long long)hbm);
    ck_assert_uint_gt(hbm, 0);
    ck_assert_uint_lt(hbm, hits);
    ck_assert_uint_eq(hits, recorded_hits[_i]);
    ck_assert_uint_eq(hbm, recorded_hbm[_i]);
    ck_assert_uint_eq(core_metrics(with.r.core)->blocks_corrupt, 0);
    rig_end(&with.r);
    rig_end(&without.r);
    fake_pool_destroy(&with.pool);
}

/* Memory and disk, by each policy: hits, and those of them that came from disk. */
static const struct {
    const char *policy;
    uint64_t hits, loaded;
} recorded[] = {{"density", 6363, 3264},
                {"lru", 6572, 3723},
                {"s3fifo", 5693, 2741},
                {"arc", 5975, 3038},
                {"lru2", 6283, 3546}};

CASE_EACH(each_policy_hits_what_it_did, ARRAY_LEN(recorded))
{
    static struct stream s;
    static struct node x;
    const uint64_t seed = 11;
    uint64_t hits = 0;
    const struct policy_ops *policy = policy_by_name(recorded[_i].policy);
    ck_assert_ptr_nonnull(policy);
    ck_assert(policy_at(ARRAY_LEN(recorded) - 1) && !policy_at(ARRAY_LEN(recorded)));
    node_begin(&x, count_blocks(seed), false, policy);
    s = (struct stream){.random = seed};
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const uint32_t *path;
        const uint32_t n = stream_next(&s, &path);
        hits += request(&x, path, n, NULL, NULL);
    }
    const uint64_t loaded = core_metrics(x.r.core)->blocks_loaded;
    ck_assert_msg(hits == recorded[_i].hits && loaded == recorded[_i].loaded,
                  "%s: %llu hits, %llu loaded, recorded are %llu and %llu", policy->name,
                  (unsigned long long)hits, (unsigned long long)loaded,
                  (unsigned long long)recorded[_i].hits, (unsigned long long)recorded[_i].loaded);
    rig_end(&x.r);
}
