/* SPDX-License-Identifier: Apache-2.0 */
#include "scene.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BT      16u
#define N       8u
#define STAGING (2u << 20)
#define BIG     (512u << 10)
#define BIG_N   3u
#define CHAINS  8u /* of BIG_N large blocks: more than the tier has room for */

const char *const scene_sets[] = {
    "host.limit=8MiB",      "host.chunk=4MiB",          "host.huge_pages=off",
    "staging.total=16MiB",  "staging.session_max=4MiB", "index.blocks=1024",
    "limits.sessions=8",    "limits.leases=64",         "limits.waiters=64",
    "limits.namespaces=16", "flight.records=64",        NULL};

#define SETS (sizeof scene_sets / sizeof scene_sets[0])

static bool storage, device;

const char *const *scene_sets_storage(const char *store)
{
    static char paths[160];
    static const char *sets[SETS + 4];
    size_t n = 0;
    snprintf(paths, sizeof paths, "nvme.paths=%s", store);
    for (; scene_sets[n]; n++)
        sets[n] = scene_sets[n];
    sets[n++] = paths;
    sets[n++] = "nvme.limit=24MiB";
    sets[n++] = "nvme.segment=1MiB";
    sets[n++] = "nvme.sync=50ms";
    sets[n] = NULL;
    storage = true;
    return sets;
}

const char *const *scene_sets_device(void)
{
    static const char *sets[SETS + 2];
    size_t n = 0;
    for (; scene_sets[n]; n++)
        sets[n] = scene_sets[n];
    sets[n++] = "hbm.devices=" RIG_DEVICE "=16MiB";
    sets[n++] = "hbm.chunk=2MiB";
    sets[n] = NULL;
    device = true;
    return sets;
}

struct scene {
    const struct rig *rig;
    unsigned failed;
    struct kvc *k;
    struct kvc_ns *ns;
    struct kvc_gpu *gpu;
    struct rig_pages pages; /* .pool is NULL while there are none */
};

/* An error that a correct caller may see: want of something, or a daemon that is not there. The
 * others say that the caller is wrong, or that a program is. */
static bool may_be(int err)
{
    switch (err) {
    case -ENOMEM:
    case -EMFILE:
    case -EAGAIN:
    case KVC_E_DOWN:
    case KVC_E_TIMEOUT:
    case KVC_E_BUSY:
    case KVC_E_LIMIT:
    case KVC_E_FULL:
    case KVC_E_GONE:
    case KVC_E_TIER:
    case KVC_E_CANCELLED:
    case KVC_E_NO_LEASE:
    case KVC_E_SHUTDOWN:
        return true;
    default:
        return false;
    }
}

static bool went(struct scene *s, const char *what, int err)
{
    if (err == 0)
        return true;
    ck_assert_msg(may_be(err), "%s: %s: %s", what, kvc_error_name(err), kvc_last_error(s->k));
    s->failed++;
    return false;
}

/* One fault strikes once: the second try must do. */
static void enter(struct scene *s, uint64_t staging_bytes, const char *model, uint32_t block_bytes)
{
    struct kvc_options o = {.socket = s->rig->socket,
                            .name = "scene",
                            .staging_bytes = staging_bytes,
                            .timeout_ms = 5000,
                            .must_connect = true};
    for (unsigned i = 0; !s->k; i++) {
        int err = kvc_open(&o, &s->k);
        ck_assert_msg(err == 0 || (i == 0 && may_be(err)), "kvc_open, try %u: %s: %s", i,
                      kvc_error_name(err), kvc_last_error(NULL));
        s->failed += err != 0;
    }
    struct kvc_ns_spec spec = rig_spec(model, BT, block_bytes);
    for (unsigned i = 0; !s->ns; i++) {
        int err = kvc_ns_open(s->k, &spec, &s->ns);
        ck_assert_msg(err == 0 || (i < 40 && may_be(err)), "kvc_ns_open, try %u: %s: %s", i,
                      kvc_error_name(err), kvc_last_error(s->k));
        s->failed += err != 0;
        if (err)
            rig_sleep_ms(25); /* it may have to connect again, and does so with pauses */
    }
}

/* As rig_keys(), where making a key may fail once. */
static void make_keys(struct scene *s, uint32_t chain, uint32_t n, uint8_t *keys)
{
    uint32_t tokens[N * BT];
    for (uint32_t i = 0; i < n * BT; i++)
        tokens[i] = chain * 1000003u + i;
    const uint8_t *seed = kvc_ns_seed(s->ns);
    int made = kvc_hash_chain(seed, tokens, (size_t)n * BT, BT, NULL, 0, keys);
    if (made == -ENOMEM) {
        s->failed++;
        made = kvc_hash_chain(seed, tokens, (size_t)n * BT, BT, NULL, 0, keys);
    }
    ck_assert_int_eq(made, (int)n);
}

static void check_statuses(struct scene *s, const uint8_t *statuses, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        switch (statuses[i]) {
        case KVC_ST_OK:
        case KVC_ST_EXISTS:
            break;
        case KVC_ST_PENDING:
        case KVC_ST_FULL:
        case KVC_ST_NOT_WORTH:
        case KVC_ST_NO_PARENT:
        case KVC_ST_BUSY:
        case KVC_ST_TIER:
        case KVC_ST_GONE:
        case KVC_ST_CANCELLED:
        case KVC_ST_TIMEOUT:
            s->failed++;
            break;
        default:
            ck_abort_msg("block %u: status %u", i, statuses[i]);
        }
    }
}

static bool fill(struct scene *s, const uint8_t *keys, uint32_t n, uint32_t bytes,
                 uint64_t *offsets)
{
    uint64_t room;
    uint8_t *staging = kvc_staging(s->k, &room);
    for (uint32_t i = 0; i < n; i++)
        offsets[i] = (uint64_t)i * bytes;
    if (!staging) {
        s->failed++;
        return false; /* down just now */
    }
    ck_assert_uint_le((uint64_t)n * bytes, room);
    for (uint32_t i = 0; i < n; i++)
        rig_fill(keys + (size_t)i * KVC_KEY_BYTES, staging + offsets[i], bytes);
    return true;
}

/* Whether every block is there now, stored by this call: with `flags` DURABLE, on disk. */
static bool store_as(struct scene *s, const uint8_t *keys, uint32_t n, uint32_t bytes,
                     unsigned flags)
{
    uint64_t offsets[N];
    uint8_t statuses[N];
    struct kvc_blocks b = {.keys = keys, .n = n, .flags = flags};
    if (!fill(s, keys, n, bytes, offsets) ||
        !went(s, "kvc_store", kvc_store(s->ns, &b, offsets, NULL, 0, statuses)))
        return false;
    check_statuses(s, statuses, n);
    for (uint32_t i = 0; i < n; i++)
        if (statuses[i] != KVC_ST_OK)
            return false;
    return true;
}

static void store(struct scene *s, const uint8_t *keys, uint32_t n, uint32_t bytes)
{
    (void)store_as(s, keys, n, bytes, 0);
}

/* What a hold that is not stale shows must be what was stored. Returns its blocks. */
static uint32_t check_hold(const struct kvc_hold *hold, const uint8_t *keys, uint32_t bytes)
{
    bool right = true;
    uint32_t n = hold->group[0].n;
    for (uint32_t i = 0; i < n; i++) {
        const struct kvc_block *b = &hold->group[0].block[i];
        const uint8_t *key = keys + (size_t)(hold->group[0].first + i) * KVC_KEY_BYTES;
        ck_assert_uint_eq(b->bytes, bytes);
        right = right && rig_check(key, b->data, b->bytes);
    }
    if (kvc_hold_check(hold) == KVC_STALE)
        return 0;
    ck_assert_msg(right, "wrong bytes");
    return n;
}

static uint32_t load(struct scene *s, const uint8_t *keys, uint32_t n, uint32_t bytes)
{
    struct kvc_seq seq = rig_seq(keys, n, BT);
    struct kvc_hold *hold = NULL;
    uint32_t hit = 0;
    if (went(s, "kvc_acquire", kvc_acquire(s->ns, &seq, NULL, &hold)))
        hit = check_hold(hold, keys, bytes);
    kvc_release(s->k, &hold);
    return hit;
}

/* ---- the acts ---- */

static void look_up(struct scene *s, const uint8_t *keys)
{
    struct kvc_seq seq = rig_seq(keys, N, BT);
    struct kvc_prefix p;
    if (!went(s, "kvc_lookup", kvc_lookup(s->ns, &seq, KVC_F_TOUCH, &p)))
        return;
    ck_assert_uint_le(p.tokens, N * BT);
    ck_assert_uint_eq(p.tokens % BT, 0);
}

/* A second process of the same principal reads what the first one holds. */
static void redeem(struct scene *s, struct scene *other, const uint8_t *keys)
{
    struct kvc_seq seq = rig_seq(keys, N, BT);
    struct kvc_hold *hold = NULL, *second = NULL;
    if (went(s, "kvc_acquire", kvc_acquire(s->ns, &seq, NULL, &hold)) && hold->lease &&
        went(other, "kvc_redeem", kvc_redeem(other->ns, hold->ticket, &second)))
        (void)check_hold(second, keys, RIG_BLOCK);
    kvc_release(other->k, &second);
    kvc_release(s->k, &hold);
}

/* One writes a chain in two steps while another waits for its half. */
static void write_and_wait(struct scene *s, struct scene *other, const uint8_t *keys)
{
    uint64_t offsets[N], reservation = 0;
    uint8_t statuses[N];
    struct kvc_blocks b = {.keys = keys, .n = N};
    struct kvc_seq seq = rig_seq(keys, N, BT);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .wait_tokens = N / 2 * BT};
    struct kvc_op *op = NULL;
    struct kvc_hold *hold = NULL;
    if (!fill(s, keys, N, RIG_BLOCK, offsets) ||
        !went(s, "kvc_reserve", kvc_reserve(s->ns, &b, &reservation, statuses)))
        return;
    check_statuses(s, statuses, N);
    bool began = went(other, "kvc_acquire_begin", kvc_acquire_begin(other->ns, &seq, &o, &op));
    if (reservation &&
        went(s, "kvc_commit", kvc_commit(s->ns, reservation, 0, N / 2, offsets, NULL, 0, statuses)))
        check_statuses(s, statuses, N / 2);
    if (reservation)
        (void)went(s, "kvc_drop", kvc_drop(s->k, reservation));
    if (began && went(other, "kvc_wait", kvc_wait(&op, NULL, &hold, NULL)))
        (void)check_hold(hold, keys, RIG_BLOCK);
    kvc_release(other->k, &hold);
}

/* A wait for what is being written, called off. */
static void cancel(struct scene *s, struct scene *other, const uint8_t *keys)
{
    uint64_t reservation = 0;
    uint8_t statuses[N];
    struct kvc_blocks b = {.keys = keys, .n = N};
    struct kvc_seq seq = rig_seq(keys, N, BT);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT};
    struct kvc_op *op = NULL;
    struct kvc_hold *hold = NULL;
    if (!went(s, "kvc_reserve", kvc_reserve(s->ns, &b, &reservation, statuses)))
        return;
    if (went(other, "kvc_acquire_begin", kvc_acquire_begin(other->ns, &seq, &o, &op))) {
        (void)went(other, "kvc_cancel", kvc_cancel(op));
        int err = kvc_wait(&op, NULL, &hold, NULL);
        if (err != KVC_E_CANCELLED)
            (void)went(other, "kvc_wait", err);
        kvc_release(other->k, &hold);
    }
    if (reservation)
        (void)went(s, "kvc_drop", kvc_drop(s->k, reservation));
}

/* The same from a loop: each op that was begun is handed out, whatever goes wrong. */
static void drive(struct scene *s, const uint8_t *keys)
{
    uint64_t offsets[N];
    struct kvc_blocks b = {.keys = keys, .n = N};
    struct kvc_seq seq = rig_seq(keys, N, BT);
    struct pollfd p = {.fd = kvc_fd(s->k), .events = POLLIN};
    struct kvc_op *op;
    unsigned begun = 0;
    if (p.fd < 0) {
        (void)went(s, "kvc_fd", p.fd);
        return;
    }
    if (fill(s, keys, N, RIG_BLOCK, offsets))
        begun += went(s, "kvc_store_begin", kvc_store_begin(s->ns, &b, offsets, NULL, 0, &op));
    for (unsigned i = 0; i < 4; i++)
        begun += went(s, "kvc_acquire_begin", kvc_acquire_begin(s->ns, &seq, NULL, &op));
    begun += went(s, "kvc_ping_begin", kvc_ping_begin(s->k, &op));
    while (begun > 0) {
        struct kvc_result r;
        if (kvc_next(s->k, &op) == 0) {
            (void)!poll(&p, 1, -1);
            (void)kvc_progress(s->k);
            continue;
        }
        begun--;
        if (!went(s, "kvc_finish", kvc_finish(&op, &r)))
            continue;
        if (r.hold)
            (void)check_hold(r.hold, keys, RIG_BLOCK);
        kvc_release(s->k, &r.hold);
        check_statuses(s, r.statuses, r.n);
    }
}

static int count_one(unsigned *n)
{
    ++*n;
    return 0;
}

static int on_stat(void *ctx, const struct kvc_stat *stat)
{
    (void)stat;
    return count_one(ctx);
}

static int on_row(void *ctx, const void *row)
{
    (void)row;
    return count_one(ctx);
}

static void administer(struct scene *s, const uint8_t *keys)
{
    struct kvc_evicted evicted;
    struct kvc_evict_filter some = {.key = keys};
    const struct kvc_filter all = {
        .mode = KVC_WALK_KEYS, .ns = kvc_ns_id(s->ns), .keys = keys, .n = N};
    unsigned n = 0;
    (void)went(s, "kvc_stats", kvc_stats(s->k, on_stat, &n));
    (void)went(s, "kvc_list", kvc_list(s->k, KVC_TABLE_NAMESPACES, NULL, on_row, &n));
    (void)went(s, "kvc_list", kvc_list(s->k, KVC_TABLE_BLOCKS, &all, on_row, &n));
    (void)went(s, "kvc_evict", kvc_evict(s->k, &some, &evicted));
}

/* More than fits, so that chunks are taken into use, and blocks and chunks are given up. */
static void overfill(const struct rig *r, unsigned *failed)
{
    struct scene s = {.rig = r};
    uint8_t keys[BIG_N * KVC_KEY_BYTES];
    enter(&s, STAGING, "big", BIG);
    for (uint32_t chain = 0; chain < CHAINS; chain++) {
        make_keys(&s, 100 + chain, BIG_N, keys);
        store(&s, keys, BIG_N, BIG);
        (void)load(&s, keys, BIG_N, BIG);
    }
    for (uint32_t chain = 0; storage && chain < CHAINS; chain++) { /* back from disk */
        make_keys(&s, 100 + chain, BIG_N, keys);
        (void)load(&s, keys, BIG_N, BIG);
    }
    *failed += s.failed;
    kvc_close(&s.k);
}

/* ---- with a device ---- */

enum { FROM = 0, INTO = N, PLACES = 2 * N };

static int on_device(void *ctx, const void *row)
{
    const struct kvc_device *d = row;
    *(bool *)ctx = d->up;
    return 0;
}

/* One that could not be put to work is tried again after five seconds. */
static bool device_is_up(struct scene *s, unsigned patience_ms)
{
    for (const uint64_t until = rig_now_ms() + patience_ms; rig_now_ms() < until;) {
        bool up = false;
        if (went(s, "kvc_list", kvc_list(s->k, KVC_TABLE_DEVICES, NULL, on_device, &up)) && up)
            return true;
        rig_sleep_ms(10);
    }
    return false;
}

/* Whether there are pages now. One fault strikes once, and what was refused is tried again. */
static bool enter_device(struct scene *s, unsigned patience_ms)
{
    if (!device_is_up(s, patience_ms)) {
        s->failed++;
        return false;
    }
    for (unsigned i = 0; i < 2 && !s->gpu; i++)
        (void)went(s, "kvc_gpu_open", kvc_gpu_open(s->k, RIG_DEVICE, &s->gpu));
    ck_assert_ptr_nonnull(s->gpu);
    for (unsigned i = 0; i < 100 && !s->pages.pool; i++) {
        (void)went(s, "kvc_pool_open", rig_pages_open(s->gpu, RIG_BLOCK, PLACES, &s->pages));
        if (!s->pages.pool)
            rig_sleep_ms(25);
    }
    ck_assert_ptr_nonnull(s->pages.pool);
    return true;
}

static void leave_device(struct scene *s)
{
    rig_pages_close(&s->pages);
    kvc_gpu_close(&s->gpu);
}

/* Whether every block is there now. Behind a word, as behind a worker's kernels. */
static bool store_pages(struct scene *s, const uint8_t *keys, uint64_t word)
{
    uint8_t statuses[N];
    const struct kvc_blocks b = {.keys = keys, .n = N};
    bool all = true;
    for (uint32_t i = 0; i < N; i++)
        rig_pages_put(&s->pages, FROM + i, keys + (size_t)i * KVC_KEY_BYTES);
    if (!went(s, "kvc_gpu_signal", kvc_gpu_signal(s->gpu, NULL, 0, word)) ||
        !went(s, "kvc_pages_store",
              kvc_pages_store(s->ns, &b, s->pages.pool, rig_pages_list(FROM, N),
                              (struct kvc_word){.word = 1, .value = word}, NULL, 0, statuses)))
        return false;
    check_statuses(s, statuses, N);
    for (uint32_t i = 0; i < N; i++)
        all = all && (statuses[i] == KVC_ST_OK || statuses[i] == KVC_ST_EXISTS);
    return all;
}

static uint32_t load_pages(struct scene *s, const uint8_t *keys)
{
    int n = rig_pages_load(s->ns, &s->pages, INTO, keys, N, BT, 0);
    if (!went(s, "kvc_pages_load", n < 0 ? n : 0))
        return 0;
    for (uint32_t i = 0; i < (uint32_t)n; i++)
        ck_assert_msg(rig_pages_has(&s->pages, INTO + i, keys + (size_t)i * KVC_KEY_BYTES),
                      "wrong bytes in pages");
    return (uint32_t)n;
}

/* A load that is called off: what was told as loaded is right, and nothing comes afterwards. */
static void cancel_load(struct scene *s, const uint8_t *keys)
{
    struct kvc_seq seq = rig_seq(keys, N, BT);
    struct kvc_pages_load load = {.pages[0] = rig_pages_list(INTO, N)};
    struct kvc_loaded loaded;
    struct kvc_result r;
    struct kvc_op *op = NULL;
    rig_pages_spoil(&s->pages, INTO, N);
    if (!went(s, "kvc_pages_load_begin",
              kvc_pages_load_begin(s->ns, &seq, s->pages.pool, &load, &op)))
        return;
    (void)went(s, "kvc_cancel", kvc_cancel(op));
    int err = kvc_finish(&op, &r);
    if (err == KVC_E_CANCELLED || !went(s, "kvc_finish", err))
        rig_pages_spoil(&s->pages, INTO, N);
    else
        kvc_pages_loaded(s->pages.pool, &loaded);
    for (uint32_t i = 0; err == 0 && i < loaded.tokens / BT; i++)
        ck_assert(rig_pages_has(&s->pages, INTO + i, keys + (size_t)i * KVC_KEY_BYTES));
    if (err)
        ck_assert(rig_pages_untouched(&s->pages, INTO, N));
}

/* Blocks come onto the device, whose memory is made when it is first wanted. Returns those there.
 */
static uint32_t hold_on_device(struct scene *s, const uint8_t *keys)
{
    struct kvc_seq seq = rig_seq(keys, N, BT);
    struct kvc_hold *hold = NULL;
    uint32_t hbm = 0;
    bool right = true;
    if (!went(s, "kvc_acquire_on", kvc_acquire_on(s->ns, &seq, s->gpu, NULL, &hold)))
        return 0;
    for (uint32_t i = 0; i < hold->group[0].n; i++) {
        hbm += kvc_hold_device(hold, 0, i) != NULL;
        right =
            right && rig_check(keys + (size_t)i * KVC_KEY_BYTES, rig_hold_data(hold, i), RIG_BLOCK);
    }
    ck_assert_msg(kvc_hold_check(hold) == KVC_STALE || right, "wrong bytes on the device");
    kvc_release(s->k, &hold);
    return hbm;
}

static void play_device(const struct rig *r, unsigned *failed)
{
    struct scene s = {.rig = r};
    uint8_t keys[N * KVC_KEY_BYTES];
    enter(&s, STAGING, "paged", RIG_BLOCK);
    if (enter_device(&s, 2000)) {
        for (uint32_t chain = 20; chain < 23; chain++) {
            make_keys(&s, chain, N, keys);
            (void)store_pages(&s, keys, chain);
            (void)load_pages(&s, keys);
            (void)hold_on_device(&s, keys);
        }
        cancel_load(&s, keys);
        for (unsigned i = 0; i < 20 && hold_on_device(&s, keys) < N; i++)
            rig_sleep_ms(5);
        (void)load_pages(&s, keys);
    }
    leave_device(&s);
    *failed += s.failed;
    kvc_close(&s.k);
}

/* Afterwards, where no call may fail any more: all of it works. */
static bool check_device(struct scene *s)
{
    uint8_t keys[N * KVC_KEY_BYTES];
    make_keys(s, 24, N, keys);
    if (!enter_device(s, 20000) || s->failed)
        return false;
    bool good = store_pages(s, keys, 1) && load_pages(s, keys) == N;
    for (unsigned i = 0; good && hold_on_device(s, keys) < N; i++) {
        ck_assert_msg(i < 400, "no block comes onto the device any more");
        rig_sleep_ms(5);
    }
    leave_device(s);
    return good && s->failed == 0;
}

unsigned scene_play(const struct rig *r)
{
    struct scene one = {.rig = r}, two = {.rig = r};
    uint8_t keys[N * KVC_KEY_BYTES];
    enter(&one, STAGING, "small", RIG_BLOCK);
    make_keys(&one, 1, N, keys);
    store(&one, keys, N, RIG_BLOCK);
    look_up(&one, keys);
    (void)load(&one, keys, N, RIG_BLOCK);
    enter(&two, 0, "small", RIG_BLOCK);
    redeem(&one, &two, keys);
    make_keys(&one, 2, N, keys);
    write_and_wait(&one, &two, keys);
    make_keys(&one, 3, N, keys);
    cancel(&one, &two, keys);
    kvc_close(&two.k);
    make_keys(&one, 4, N, keys);
    drive(&one, keys);
    make_keys(&one, 5, N, keys);
    if (storage)
        (void)store_as(&one, keys, N, RIG_BLOCK, KVC_F_DURABLE);
    make_keys(&one, 1, N, keys);
    administer(&one, keys);
    unsigned failed = one.failed + two.failed;
    if (device)
        play_device(r, &failed);
    else
        overfill(r, &failed);
    kvc_close(&one.k);
    return failed;
}

/* ---- afterwards ---- */

struct wanted {
    const char *name;
    uint64_t value;
    bool seen;
};

struct wanted_set {
    struct wanted *want;
    unsigned n;
    const char *differs;
    uint64_t got;
};

static int on_wanted(void *ctx, const struct kvc_stat *stat)
{
    struct wanted_set *set = ctx;
    for (unsigned i = 0; i < set->n; i++) {
        if (strcmp(stat->name, set->want[i].name) != 0)
            continue;
        set->want[i].seen = true;
        if (stat->value != set->want[i].value) {
            set->differs = set->want[i].name;
            set->got = stat->value;
        }
    }
    return 0;
}

/* Sessions that have closed go in turns of the daemon: it may take a moment. */
static bool settles(struct scene *s, struct wanted *want, unsigned n)
{
    struct wanted_set set = {.want = want, .n = n};
    for (unsigned i = 0; i < 2000; i++) {
        set.differs = NULL;
        if (!went(s, "kvc_stats", kvc_stats(s->k, on_wanted, &set)))
            return false;
        for (unsigned w = 0; w < n; w++)
            ck_assert_msg(want[w].seen, "no statistic %s", want[w].name);
        if (!set.differs)
            return true;
        rig_sleep_ms(5);
    }
    ck_abort_msg("%s stays at %llu", set.differs, (unsigned long long)set.got);
}

/* TIER: all went, but the journal, whose commits fail here, does not say so yet. That they went is
 * seen by what is counted. */
static bool evict_all(struct scene *s)
{
    const struct kvc_evict_filter all = {0};
    struct kvc_evicted evicted;
    const int err = kvc_evict(s->k, &all, &evicted);
    return (storage && err == KVC_E_TIER) || went(s, "kvc_evict", err);
}

static bool check(struct scene *s)
{
    uint8_t keys[N * KVC_KEY_BYTES];
    enter(s, STAGING, "after", RIG_BLOCK);
    struct wanted left[] = {{.name = "svc.sessions", .value = 1},
                            {.name = "svc.quarantined"},
                            {.name = "svc.calls"},
                            {.name = "core.leases"},
                            {.name = "core.leased_bytes"},
                            {.name = "core.reservations"},
                            {.name = "core.commits_in_flight"},
                            {.name = "core.blocks_pending"},
                            {.name = "daemon.copies_in_flight"},
                            {.name = "svc.staging_bytes", .value = STAGING},
                            {.name = "svc.mems"},
                            {.name = "svc.pools"},
                            {.name = "daemon.control_allocs"}};
    /* What a session has on devices is allocated when it comes. */
    const unsigned nleft = sizeof left / sizeof left[0] - device;
    struct wanted gone[] = {
        {.name = "core.blocks_present"},    {.name = "core.bytes_present"},
        {.name = "daemon.host_used_bytes"}, {.name = "daemon.host_used_slots"},
        {.name = "core.hbm_blocks"},
    };
    struct wanted gone_disk[] = {{.name = "nvme.blocks"}, {.name = "nvme.used_bytes"}};
    struct wanted gone_device[] = {{.name = "device0.blocks"},
                                   {.name = "device0.used_bytes"},
                                   {.name = "device0.imported_bytes"},
                                   {.name = "device0.inflight_bytes"}};
    make_keys(s, 7, N, keys);
    (void)store_as(s, keys, N, RIG_BLOCK, KVC_F_ADMIT);
    if (s->failed || load(s, keys, N, RIG_BLOCK) != N || s->failed)
        return false;
    return (!device || check_device(s)) && settles(s, left, nleft) && evict_all(s) &&
           settles(s, gone, sizeof gone / sizeof gone[0]) &&
           (!storage || settles(s, gone_disk, sizeof gone_disk / sizeof gone_disk[0])) &&
           (!device || settles(s, gone_device, sizeof gone_device / sizeof gone_device[0]));
}

bool scene_try_check(const struct rig *r)
{
    struct scene s = {.rig = r};
    bool done = check(&s);
    kvc_close(&s.k);
    return done;
}

void scene_check(const struct rig *r)
{
    struct scene s = {.rig = r};
    bool done = check(&s);
    ck_assert_msg(done && s.failed == 0, "a fresh client is not served: %s", kvc_last_error(s.k));
    kvc_close(&s.k);
}

void scene_end(struct rig *r, void (*stop)(struct rig *r))
{
    struct scene s = {.rig = r};
    struct kvc_hold *hold = NULL;
    uint8_t keys[N * KVC_KEY_BYTES];
    enter(&s, STAGING, "end", RIG_BLOCK);
    make_keys(&s, 8, N, keys);
    store(&s, keys, N, RIG_BLOCK);
    struct kvc_seq seq = rig_seq(keys, N, BT);
    bool held = went(&s, "kvc_acquire", kvc_acquire(s.ns, &seq, NULL, &hold));
    stop(r);
    if (held)
        (void)check_hold(hold, keys, RIG_BLOCK);
    kvc_release(s.k, &hold);
    kvc_close(&s.k);
}

/* ---- over a restart ---- */

#define PROMISED 9u

bool scene_promise(const struct rig *r)
{
    struct scene s = {.rig = r};
    uint8_t keys[N * KVC_KEY_BYTES];
    enter(&s, STAGING, "promise", RIG_BLOCK);
    make_keys(&s, PROMISED, N, keys);
    bool given = store_as(&s, keys, N, RIG_BLOCK, KVC_F_DURABLE);
    kvc_close(&s.k);
    return given;
}

void scene_check_promise(const struct rig *r, bool promised)
{
    struct scene s = {.rig = r};
    uint8_t keys[N * KVC_KEY_BYTES];
    enter(&s, 0, "promise", RIG_BLOCK);
    make_keys(&s, PROMISED, N, keys);
    uint32_t hit = load(&s, keys, N, RIG_BLOCK);
    ck_assert_msg(s.failed == 0, "a call failed where nothing is wrong: %s", kvc_last_error(s.k));
    ck_assert_msg(!promised || hit == N, "%u of %u promised blocks are there", hit, N);
    kvc_close(&s.k);
}
