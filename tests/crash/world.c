/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 20000u

const uint32_t world_block_bytes[WORLD_SIZES] = {4096, 20000, 65536};

uint64_t world_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ---- bytes ---- */

static void key_of(const struct world_chain *chain, uint32_t block, uint32_t version,
                   uint32_t shard, uint8_t *key)
{
    const uint64_t mix = version * 0x9e3779b97f4a7c15ull;
    memcpy(key, chain->keys + (size_t)block * KVC_KEY_BYTES, KVC_KEY_BYTES);
    for (unsigned i = 0; i < 8; i++)
        key[i] ^= (uint8_t)(mix >> (8 * i));
    key[8] ^= (uint8_t)shard;
}

void world_fill(const struct world_chain *chain, uint32_t block, uint32_t version, uint32_t shard,
                void *p)
{
    uint8_t key[KVC_KEY_BYTES];
    key_of(chain, block, version, shard, key);
    rig_fill(key, p, world_block_bytes[chain->size]);
}

/* The version that these are the bytes of, 0: none. */
static uint32_t version_of(const struct world_chain *chain, uint32_t block, uint32_t newest,
                           uint32_t shard, const void *p, uint32_t bytes)
{
    uint8_t key[KVC_KEY_BYTES];
    for (uint32_t v = newest; v > 0; v--) {
        key_of(chain, block, v, shard, key);
        if (rig_check(key, p, bytes))
            return v;
    }
    return 0;
}

/* ---- pages ---- */

/* Places of a session's pages: to store from, and to load into. */
enum { FROM = 0, INTO = WORLD_LEN, PLACES = 2 * WORLD_LEN };

/* NULL: there are none just now. */
static struct rig_pages *pages_of(struct world_session *s, uint32_t size)
{
    struct rig_pages *p = &s->pages[size];
    if (!s->gpu)
        return NULL;
    if (!p->pool && rig_pages_open(s->gpu, world_block_bytes[size], PLACES, p) != 0)
        return NULL;
    return p;
}

static uint32_t version_in_pages(const struct world_chain *chain, uint32_t block, uint32_t newest,
                                 const struct rig_pages *p)
{
    uint8_t key[KVC_KEY_BYTES];
    for (uint32_t v = newest; v > 0; v--) {
        key_of(chain, block, v, 0, key);
        if (rig_pages_has(p, INTO + block, key))
            return v;
    }
    return 0;
}

/* ---- sessions ---- */

static void make_chain(struct world_session *s, uint32_t c)
{
    struct world_chain *chain = &s->w->chain[c];
    chain->size = c % WORLD_SIZES;
    rig_keys(s->ns[chain->size], c + 1, WORLD_BT, WORLD_LEN, chain->keys);
    chain->newest = 1;
    for (uint32_t b = 0; b < WORLD_LEN; b++)
        chain->block[b].floor = 1;
}

static uint32_t shards_of(const struct world *w, uint32_t size)
{
    return w->shards[size] ? w->shards[size] : 1;
}

static uint32_t ranks_of(const struct world *w)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < WORLD_SIZES; i++)
        n = shards_of(w, i) > n ? shards_of(w, i) : n;
    return n;
}

static int rank_open(struct world *w, uint64_t staging_bytes, uint32_t shard, struct world_rank *x)
{
    static const char *const models[WORLD_SIZES] = {"small", "ragged", "large"};
    struct kvc_options o = {.socket = w->rig->socket,
                            .name = "crash",
                            .staging_bytes = staging_bytes,
                            .shard = shard,
                            .timeout_ms = TIMEOUT_MS,
                            .must_connect = true};
    int err = kvc_open(&o, &x->k);
    for (uint32_t i = 0; err == 0 && i < WORLD_SIZES; i++) {
        struct kvc_ns_spec spec = rig_spec(models[i], WORLD_BT, world_block_bytes[i]);
        spec.shards = shards_of(w, i);
        err = kvc_ns_open(x->k, &spec, &x->ns[i]);
        if (err == 0 && w->have_keys &&
            memcmp(w->seed[i], kvc_ns_seed(x->ns[i]), KVC_KEY_BYTES) != 0)
            err = -ESTALE;
    }
    return err;
}

int world_open(struct world *w, uint64_t staging_bytes, struct world_session *ret_session)
{
    struct world_session s = {.w = w, .dice = 1};
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < ranks_of(w); i++)
        err = rank_open(w, staging_bytes, i, &s.rank[i]);
    s.k = s.rank[0].k;
    memcpy(s.ns, s.rank[0].ns, sizeof s.ns);
    if (err == 0 && w->hbm)
        err = kvc_gpu_open(s.k, RIG_DEVICE, &s.gpu);
    if (err) {
        world_close(&s);
        return err;
    }
    if (!w->have_keys) {
        for (uint32_t i = 0; i < WORLD_SIZES; i++)
            memcpy(w->seed[i], kvc_ns_seed(s.ns[i]), KVC_KEY_BYTES);
        for (uint32_t c = 0; c < WORLD_CHAINS; c++)
            make_chain(&s, c);
        w->have_keys = true;
    }
    *ret_session = s;
    return 0;
}

void world_close(struct world_session *s)
{
    for (uint32_t i = 0; i < WORLD_SIZES; i++)
        rig_pages_close(&s->pages[i]);
    kvc_gpu_close(&s->gpu);
    for (uint32_t i = 0; i < WORLD_SHARDS; i++)
        kvc_close(&s->rank[i].k);
    s->k = NULL;
}

/* ---- reading ---- */

/* What was read of one more shard. */
static void read_add(struct world_read *read, uint32_t shard, uint32_t block, uint32_t version)
{
    if (shard == 0 || version < read->version[block])
        read->version[block] = version;
}

static void versions_of(struct world_session *s, const struct world_chain *chain, uint32_t shard,
                        const struct kvc_hold *hold, struct world_read *read)
{
    static _Thread_local uint8_t copy[65536];
    const uint32_t bytes = world_block_bytes[chain->size], newest = chain->newest;
    const uint32_t hit = hold->group[0].n;
    read->hit = shard == 0 || hit < read->hit ? hit : read->hit;
    for (uint32_t i = 0; i < read->hit; i++) {
        const void *p = rig_hold_data(hold, i);
        s->w->counts.hbm_blocks += kvc_hold_device(hold, 0, i) != NULL;
        if (s->w->spoil == SPOIL_BYTES && i == 0) {
            memcpy(copy, p, bytes);
            copy[bytes / 2] ^= 1;
            p = copy;
        }
        read_add(read, shard, i, version_of(chain, i, newest, shard, p, bytes));
    }
}

static int read_held(struct world_session *s, const struct world_chain *chain, uint32_t shard,
                     bool on_device, unsigned timeout_ms, struct world_read *read)
{
    struct kvc_seq seq = rig_seq(chain->keys, WORLD_LEN, WORLD_BT);
    struct kvc_acquire_options o = {.timeout_ms = timeout_ms};
    struct kvc_hold *hold = NULL;
    const struct world_rank *x = &s->rank[shard];
    struct kvc_ns *ns = x->ns[chain->size];
    int err =
        on_device ? kvc_acquire_on(ns, &seq, s->gpu, &o, &hold) : kvc_acquire(ns, &seq, &o, &hold);
    if (err == 0) {
        versions_of(s, chain, shard, hold, read);
        err = kvc_hold_check(hold);
    }
    kvc_release(x->k, &hold);
    return err;
}

static int read_pages(struct world_session *s, const struct world_chain *chain, struct rig_pages *p,
                      unsigned timeout_ms, struct world_read *read)
{
    const uint32_t newest = chain->newest;
    int n =
        rig_pages_load(s->ns[chain->size], p, INTO, chain->keys, WORLD_LEN, WORLD_BT, timeout_ms);
    if (n < 0)
        return n;
    if (s->w->spoil == SPOIL_BYTES)
        p->at[(uint64_t)INTO * RIG_DEVICE_PPB * p->page_bytes] ^= 1;
    read->hit = (uint32_t)n;
    s->w->counts.page_blocks += read->hit;
    for (uint32_t i = 0; i < read->hit; i++)
        read->version[i] = version_in_pages(chain, i, newest, p);
    return 0;
}

int world_read(struct world_session *s, const struct world_chain *chain, enum world_way way,
               unsigned timeout_ms, struct world_read *ret_read)
{
    struct kvc_seq seq = rig_seq(chain->keys, WORLD_LEN, WORLD_BT);
    struct rig_pages *pages = way == WORLD_INTO_PAGES ? pages_of(s, chain->size) : NULL;
    struct world_read read = {0};
    struct kvc_prefix p;
    int err = kvc_lookup(s->ns[chain->size], &seq, 0, &p);
    if (err)
        return err;
    read.present = p.tokens / WORLD_BT;
    err = pages ? read_pages(s, chain, pages, timeout_ms, &read)
                : read_held(s, chain, 0, way == WORLD_ON_DEVICE && s->gpu, timeout_ms, &read);
    for (uint32_t i = 1; err == 0 && i < shards_of(s->w, chain->size); i++)
        err = read_held(s, chain, i, false, timeout_ms, &read);
    if (err)
        return err;
    *ret_read = read;
    return 0;
}

/* ---- the workers ---- */

struct worker {
    struct world *w;
    uint32_t number;
    uint64_t seed;
};

/* Errors that a correct caller of a daemon that works, dies or is overloaded never sees. */
static void note(struct world_session *s, const char *what, int err)
{
    struct world *w = s->w;
    w->counts.calls++;
    if (err == 0)
        return;
    w->counts.failed++;
    switch (err) {
    case KVC_E_BAD_MESSAGE:
    case KVC_E_BAD_ARGUMENT:
    case KVC_E_UNKNOWN_OP:
    case KVC_E_DENIED:
    case KVC_E_NO_NAMESPACE:
    case KVC_E_TOO_LARGE:
    case KVC_E_INTERNAL:
    case -EINVAL:
    case -EPERM:
        if (w->counts.faults++ == 0)
            snprintf(w->first_fault, sizeof w->first_fault, "%s: %s: %s", what, kvc_error_name(err),
                     kvc_last_error(s->k));
        break;
    default:
        break;
    }
}

static void read_chain(struct world_session *s, uint32_t c, enum world_way way)
{
    struct world_chain *chain = &s->w->chain[c];
    struct world_read read;
    uint32_t floor[WORLD_LEN];
    for (uint32_t b = 0; b < WORLD_LEN; b++)
        floor[b] = chain->block[b].floor;
    int err = world_read(s, chain, way, 0, &read);
    note(s, "read", err == KVC_STALE ? 0 : err);
    if (err)
        return;
    s->w->counts.hits += read.hit;
    for (uint32_t b = 0; b < read.hit; b++)
        if (read.version[b] < floor[b])
            s->w->counts.wrong_bytes++;
}

/* The owner's view of its chain: nobody else takes anything away on request, and what was promised
 * goes for no other reason. A library that has lost its daemon tells nothing: no verdict then. */
static void demand_promised(struct world_session *s, const struct world_chain *chain, uint32_t have)
{
    struct world *w = s->w;
    if (w->stop || !kvc_is_up(s->k))
        return;
    for (uint32_t b = have; b < WORLD_LEN; b++) {
        if (chain->block[b].durable == 0)
            continue;
        if (w->counts.durable_lost++ == 0)
            snprintf(w->first_fault, sizeof w->first_fault,
                     "chain %u block %u was promised and is not there in the same run: %u are",
                     (unsigned)(chain - w->chain), b, have);
        return;
    }
}

/* All before a durable block in its chain is durable with it, at the version that it has. */
static void promise(struct world *w, struct world_chain *chain, uint32_t upto)
{
    for (uint32_t b = 0; b < upto; b++)
        if (chain->block[b].durable < chain->block[b].floor)
            chain->block[b].durable = (uint32_t)chain->block[b].floor;
    w->counts.durable++;
}

/* Room for the payload of b->n blocks in the rank's staging, filled; false: there is none. */
static bool stage(const struct world_rank *x, uint32_t shard, const struct world_chain *chain,
                  const struct kvc_blocks *b, uint32_t first, uint64_t *ret_offsets)
{
    uint64_t room;
    const uint64_t stride = (world_block_bytes[chain->size] + 63ull) / 64 * 64;
    uint8_t *staging = kvc_staging(x->k, &room);
    if (!staging || room < b->n * stride)
        return false;
    for (uint32_t i = 0; i < b->n; i++) {
        ret_offsets[i] = i * stride;
        world_fill(chain, first + i, chain->newest, shard, staging + ret_offsets[i]);
    }
    return true;
}

static int store_staged(struct world_session *s, const struct world_chain *chain,
                        const struct kvc_blocks *b, uint32_t first, uint8_t *statuses)
{
    uint64_t offsets[WORLD_LEN];
    if (!stage(&s->rank[0], 0, chain, b, first, offsets))
        return KVC_E_DOWN;
    return kvc_store(s->ns[chain->size], b, offsets, NULL, 0, statuses);
}

static int store_pages(struct world_session *s, const struct world_chain *chain,
                       struct rig_pages *p, const struct kvc_blocks *b, uint32_t first,
                       uint8_t *statuses)
{
    uint8_t key[KVC_KEY_BYTES];
    for (uint32_t i = 0; i < b->n; i++) {
        key_of(chain, first + i, chain->newest, 0, key);
        rig_pages_put(p, FROM + i, key);
    }
    s->w->counts.page_blocks += b->n;
    return kvc_pages_store(s->ns[chain->size], b, p->pool, rig_pages_list(FROM, b->n),
                           (struct kvc_word){0}, NULL, 0, statuses);
}

/* One rank's part of a store. */
struct part {
    struct world_rank *x;
    struct kvc_op *op; /* NULL: it has ended */
    int err;
    bool durable;
    uint8_t statuses[WORLD_LEN];
};

static void part_begin(struct part *p, uint32_t shard, const struct world_chain *chain,
                       struct kvc_blocks b, uint32_t first)
{
    uint64_t offsets[WORLD_LEN];
    b.flags = p->durable ? KVC_F_DURABLE : 0;
    p->err = KVC_E_DOWN;
    if (stage(p->x, shard, chain, &b, first, offsets))
        p->err = kvc_store_begin(p->x->ns[chain->size], &b, offsets, NULL, 0, &p->op);
}

static bool part_took_all(const struct part *p, uint32_t n)
{
    for (uint32_t i = 0; i < n && p->err == 0; i++)
        if (p->statuses[i] != KVC_ST_OK && p->statuses[i] != KVC_ST_EXISTS &&
            p->statuses[i] != KVC_ST_PENDING)
            return false;
    return p->err == 0;
}

/* Who asked for a durable block waits for all ranks: until one of them has failed. */
static void parts_end(struct part *part, uint32_t shards, uint32_t n)
{
    bool failed = false;
    for (uint32_t i = 0; i < shards; i++)
        failed |= part[i].err != 0;
    for (bool waits = true; waits; rig_sleep_ms(waits)) {
        waits = false;
        for (uint32_t i = 0; i < shards; i++) {
            struct part *p = &part[i];
            if (!p->op)
                continue;
            (void)kvc_progress(p->x->k);
            const bool tried = failed && !kvc_done(p->op) && kvc_cancel(p->op) == 0;
            if (!kvc_done(p->op)) {
                waits |= !tried || kvc_is_up(p->x->k);
                continue;
            }
            p->err = kvc_wait(&p->op, NULL, NULL, p->statuses);
            failed |= !part_took_all(p, n);
        }
    }
}

static int store_ranks(struct world_session *s, struct world_chain *chain,
                       const struct kvc_blocks *b, uint32_t first, bool durable)
{
    const uint32_t shards = shards_of(s->w, chain->size), version = chain->newest;
    const uint64_t dice = world_random(&s->dice) >> 8;
    struct part part[WORLD_SHARDS] = {0};
    const uint64_t who = 1 + dice % ((1u << shards) - 1); /* who asks for it */
    for (uint32_t i = 0; i < shards; i++) {
        const uint32_t shard = (uint32_t)(i + dice / 8) % shards;
        part[shard].x = &s->rank[shard];
        part[shard].durable = durable && who >> shard & 1;
        part_begin(&part[shard], shard, chain, *b, first);
    }
    parts_end(part, shards, b->n);
    int ok = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        uint32_t told = 0;
        for (uint32_t k = 0; k < shards; k++) {
            if (part[k].err != 0 || part[k].statuses[i] != KVC_ST_OK)
                continue;
            told++;
            chain->block[first + i].floor = version;
            s->w->counts.rank_stores += part[k].durable;
            if (part[k].durable)
                promise(s->w, chain, first + i + 1);
        }
        ok += told == shards;
    }
    for (uint32_t k = 0; k < shards && ok == 0; k++)
        ok = part[k].err != KVC_E_CANCELLED ? part[k].err : ok;
    return ok;
}

static int store_alone(struct world_session *s, struct world_chain *chain,
                       const struct kvc_blocks *b, uint32_t first, bool durable)
{
    uint8_t statuses[WORLD_LEN];
    const uint32_t version = chain->newest;
    struct rig_pages *p = s->turn++ % 2 ? pages_of(s, chain->size) : NULL;
    int err = p ? store_pages(s, chain, p, b, first, statuses)
                : store_staged(s, chain, b, first, statuses);
    if (err)
        return err;
    int ok = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        if (statuses[i] != KVC_ST_OK)
            continue;
        ok++;
        chain->block[first + i].floor = version;
        if (durable)
            promise(s->w, chain, first + i + 1);
    }
    return ok;
}

int world_store(struct world_session *s, struct world_chain *chain, uint32_t first, uint32_t n,
                bool durable)
{
    struct kvc_blocks b = {.parent =
                               first ? chain->keys + (size_t)(first - 1) * KVC_KEY_BYTES : NULL,
                           .keys = chain->keys + (size_t)first * KVC_KEY_BYTES,
                           .n = n - first,
                           .first_token = first * WORLD_BT,
                           .flags = durable ? KVC_F_DURABLE : 0};
    for (uint32_t i = first; i < n; i++)
        chain->block[i].gone = false;
    const int ok = shards_of(s->w, chain->size) > 1 ? store_ranks(s, chain, &b, first, durable)
                                                    : store_alone(s, chain, &b, first, durable);
    if (ok > 0)
        s->w->counts.stored += (uint64_t)ok;
    return ok;
}

/* How much of it lookup says is there, or an error. */
static int present(struct world_session *s, const struct world_chain *chain)
{
    struct kvc_seq seq = rig_seq(chain->keys, WORLD_LEN, WORLD_BT);
    struct kvc_prefix p;
    int err = kvc_lookup(s->ns[chain->size], &seq, 0, &p);
    return err ? err : (int)(p.tokens / WORLD_BT);
}

/* What is below `from` goes, and what was promised of it is void once the request is sent. When all
 * of the chain is known to be gone, the next to be stored is another version. */
static void evict(struct world_session *s, struct world_chain *chain, uint32_t from)
{
    struct kvc_evict_filter f = {.ns = kvc_ns_id(s->ns[chain->size]),
                                 .key = chain->keys + (size_t)from * KVC_KEY_BYTES};
    struct kvc_evicted evicted;
    for (uint32_t b = from; b < WORLD_LEN; b++)
        chain->block[b].durable = 0;
    int err = kvc_evict(s->k, &f, &evicted);
    note(s, "evict", err);
    if (err)
        return;
    s->w->counts.evicted += evicted.blocks;
    for (uint32_t b = from; b < WORLD_LEN && evicted.kept_blocks == 0; b++)
        chain->block[b].gone = true;
    if (from > 0 || evicted.kept_blocks > 0)
        return;
    for (uint32_t b = 0; b < WORLD_LEN; b++)
        chain->block[b].removed = (uint32_t)chain->newest;
    const uint32_t next = chain->newest + 1;
    chain->newest = next;
    for (uint32_t b = 0; b < WORLD_LEN; b++)
        chain->block[b].floor = next;
}

static void write_chain(struct world_session *s, struct world_chain *chain, uint64_t dice,
                        bool durable)
{
    int have = present(s, chain);
    note(s, "lookup", have < 0 ? have : 0);
    if (have < 0)
        return;
    demand_promised(s, chain, (uint32_t)have);
    if (have == WORLD_LEN) {
        if (dice % 4 == 0)
            evict(s, chain, dice / 4 % 3 ? 0 : (uint32_t)(dice / 12 % WORLD_LEN));
        return;
    }
    const uint32_t first = (uint32_t)have, most = WORLD_LEN - first;
    const int ok = world_store(s, chain, first, first + 1 + (uint32_t)(dice / 4 % most), durable);
    note(s, "store", ok < 0 ? ok : 0);
}

static void step(struct worker *me, struct world_session *s)
{
    struct world *w = me->w;
    const uint64_t kind = world_random(&me->seed) % 100, dice = world_random(&me->seed) >> 8;
    const uint32_t any = (uint32_t)(world_random(&me->seed) % WORLD_CHAINS);
    const uint32_t own = any / WORLD_WORKERS * WORLD_WORKERS + me->number;
    const bool durable =
        w->durable_works && (double)(world_random(&me->seed) % 1000) < w->durable_share * 1000;
    if (kind < 40)
        read_chain(s, any, (enum world_way)(dice % WORLD_WAYS));
    else if (kind < 96)
        write_chain(s, &w->chain[own], dice, durable);
    else
        evict(s, &w->chain[own], kind < 98 ? 0 : (uint32_t)(dice % WORLD_LEN));
}

static void *work(void *arg)
{
    struct worker *me = arg;
    struct world_session s;
    if (world_open(me->w, WORLD_STAGING, &s) == 0) {
        s.dice = me->seed;
        while (!me->w->stop && kvc_is_up(s.k))
            step(me, &s);
        world_close(&s);
    }
    free(me);
    return NULL;
}

void world_start(struct world *w, uint64_t seed, pthread_t ret_threads[WORLD_WORKERS])
{
    w->stop = false;
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        struct worker *me = malloc(sizeof *me);
        ck_assert_ptr_nonnull(me);
        *me = (struct worker){.w = w, .number = i, .seed = seed ^ (i + 1) * 0x9e3779b97f4a7c15ull};
        me->seed += me->seed == 0;
        ck_assert_int_eq(pthread_create(&ret_threads[i], NULL, work, me), 0);
    }
}

void world_join(struct world *w, pthread_t threads[WORLD_WORKERS])
{
    w->stop = true;
    for (uint32_t i = 0; i < WORLD_WORKERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

void world_crashed(struct world *w)
{
    for (uint32_t c = 0; c < WORLD_CHAINS; c++)
        for (uint32_t b = 0; b < WORLD_LEN; b++) {
            struct world_block *block = &w->chain[c].block[b];
            block->floor = block->durable > 0 ? (uint32_t)block->durable : 1;
        }
}
