/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores that an earlier daemon left: takeover.tar.gz has them, as small as they can be. This
 * tree's daemon takes a copy over, and every block, name and pin is there with its bytes.
 *
 * `test_takeover make FILE` makes such a file with the daemon of this tree.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "place.h"

#define BT     16u
#define LEN    6u
#define BYTES  600u
#define SHARDS 2u
#define GROUPS 2u
#define WINDOW 32u /* tokens */
#define PATHS  2u

/* Directories of the archive: two storage paths, journal and names.db in the first, after SIGTERM
 * and after SIGKILL; files of host.persist after SIGTERM. */
enum { STOPPED, KILLED, IN_MEMORY, STORES };
static const char *const store_name[STORES] = {"stopped", "killed", "memory"};

#define OWN 4u /* the chain that this daemon adds; there are 1 to 3 */

static struct place place;

/* ---- what is in a store ---- */

/* One chain with one group, one with two groups and two ranks. */
static struct kvc_ns_spec spec_of(bool ranks)
{
    struct kvc_ns_spec spec = rig_spec(ranks ? "ranks" : "plain", BT, BYTES);
    if (!ranks)
        return spec;
    spec.shards = SHARDS;
    spec.groups = GROUPS;
    spec.group[1] = spec.group[0];
    spec.group[1].rule = KVC_RULE_WINDOW;
    spec.group[1].window = WINDOW;
    spec.group[0].block_bytes = spec.group[1].block_bytes = BYTES / 2;
    return spec;
}

struct rank {
    struct kvc *k;
    struct kvc_ns *ns;
    uint32_t shard;
    uint8_t keys[LEN * KVC_KEY_BYTES];
};

static struct rank rank_open(bool ranks, uint32_t shard, uint32_t chain)
{
    const struct kvc_ns_spec spec = spec_of(ranks);
    const struct kvc_options o = {.socket = place.rig.socket,
                                  .name = "takeover",
                                  .staging_bytes = 1u << 20,
                                  .shard = shard,
                                  .must_connect = true};
    struct rank r = {.shard = shard};
    ck_assert_int_eq(kvc_open(&o, &r.k), 0);
    const int err = kvc_ns_open(r.k, &spec, &r.ns);
    ck_assert_msg(err == 0, "kvc_ns_open: %s", kvc_last_error(r.k));
    rig_keys(r.ns, chain, BT, LEN, r.keys);
    return r;
}

/* What stands in a block follows from this. */
static void block_key(const struct rank *r, uint32_t group, uint32_t i, uint8_t ret[KVC_KEY_BYTES])
{
    memcpy(ret, r->keys + (size_t)i * KVC_KEY_BYTES, KVC_KEY_BYTES);
    ret[0] ^= (uint8_t)(group << 4 | r->shard);
}

static void store_begin(const struct rank *r, uint32_t group, uint32_t bytes, bool durable,
                        struct kvc_op **ret_op)
{
    uint64_t room, offsets[LEN];
    uint8_t *staging = kvc_staging(r->k, &room), key[KVC_KEY_BYTES];
    ck_assert_ptr_nonnull(staging);
    for (uint32_t i = 0; i < LEN; i++) {
        offsets[i] = (uint64_t)(group * LEN + i) * 1024;
        block_key(r, group, i, key);
        rig_fill(key, staging + offsets[i], bytes);
    }
    const struct kvc_blocks b = {.group = group,
                                 .keys = r->keys,
                                 .n = LEN,
                                 .flags = KVC_F_ADMIT | (durable ? KVC_F_DURABLE : 0u)};
    ck_assert_int_eq(kvc_store_begin(r->ns, &b, offsets, NULL, 0, ret_op), 0);
}

/* All ranks' shards of all groups, at the same time: what is durable waits for the others. */
static void store_chain(bool ranks, uint32_t chain, bool durable)
{
    const struct kvc_ns_spec spec = spec_of(ranks);
    struct rank rank[SHARDS];
    struct kvc_op *op[SHARDS][GROUPS];
    uint8_t statuses[LEN];
    for (uint32_t s = 0; s < spec.shards; s++)
        rank[s] = rank_open(ranks, s, chain);
    for (uint32_t s = 0; s < spec.shards; s++)
        for (uint32_t g = 0; g < spec.groups; g++)
            store_begin(&rank[s], g, spec.group[g].block_bytes, durable, &op[s][g]);
    for (uint32_t s = 0; s < spec.shards; s++) {
        for (uint32_t g = 0; g < spec.groups; g++) {
            const int err = kvc_wait(&op[s][g], NULL, NULL, statuses);
            ck_assert_msg(err == 0, "kvc_store: %s", kvc_last_error(rank[s].k));
            for (uint32_t i = 0; i < LEN; i++)
                ck_assert_uint_eq(statuses[i], KVC_ST_OK);
        }
    }
    for (uint32_t s = 0; s < spec.shards; s++)
        kvc_close(&rank[s].k);
}

static void read_chain(bool ranks, uint32_t chain)
{
    const struct kvc_ns_spec spec = spec_of(ranks);
    for (uint32_t s = 0; s < spec.shards; s++) {
        struct rank r = rank_open(ranks, s, chain);
        struct kvc_seq seq = {.tokens = LEN * BT};
        struct kvc_hold *hold;
        uint8_t key[KVC_KEY_BYTES];
        for (uint32_t g = 0; g < spec.groups; g++) {
            seq.group[g].keys = r.keys;
            seq.group[g].n = LEN;
        }
        ck_assert_int_eq(kvc_acquire(r.ns, &seq, NULL, &hold), 0);
        ck_assert_msg(hold->prefix.tokens == LEN * BT, "%u tokens of chain %u are there",
                      hold->prefix.tokens, chain);
        for (uint32_t g = 0; g < spec.groups; g++) {
            ck_assert_uint_eq(hold->group[g].first, g == 0 ? 0 : LEN - WINDOW / BT);
            ck_assert_uint_eq(hold->group[g].n, LEN - hold->group[g].first);
            for (uint32_t i = 0; i < hold->group[g].n; i++) {
                const struct kvc_block *b = &hold->group[g].block[i];
                block_key(&r, g, hold->group[g].first + i, key);
                ck_assert_uint_eq(b->bytes, spec.group[g].block_bytes);
                ck_assert_msg(rig_check(key, b->data, b->bytes),
                              "chain %u, shard %u, group %u: block %u has other bytes", chain, s, g,
                              i);
            }
        }
        ck_assert_int_eq(kvc_hold_check(hold), 0);
        kvc_release(r.k, &hold);
        kvc_close(&r.k);
    }
}

static void ids_of(uint32_t chain, uint32_t ids[LEN * BT])
{
    for (uint32_t i = 0; i < LEN * BT; i++)
        ids[i] = chain * 1000003u + i; /* as rig_keys() */
}

/* A conversation that is pinned, and a document with its tokens. */
static void put_names(bool durable)
{
    uint32_t ids[LEN * BT];
    struct kvc_named named;
    for (uint32_t chain = 1; chain <= 2; chain++) {
        struct rank r = rank_open(false, 0, chain);
        const struct kvc_seq seq = rig_seq(r.keys, LEN, BT);
        struct kvc_name_options o = {.flags = durable ? KVC_F_DURABLE : 0u, .priority = chain + 1};
        ids_of(chain, ids);
        if (chain == 1)
            o.flags |= KVC_F_PINNED;
        else
            o.tokens = ids;
        const int err = kvc_name_put(r.ns, chain == 1 ? KVC_NAME_CONVERSATION : KVC_NAME_DOCUMENT,
                                     chain == 1 ? "talk" : "book", &seq, &o, &named);
        ck_assert_msg(err == 0, "kvc_name_put: %s", kvc_last_error(r.k));
        ck_assert_uint_eq(named.tokens, LEN * BT);
        kvc_close(&r.k);
    }
}

static void check_names(void)
{
    uint32_t ids[LEN * BT], want[LEN * BT];
    struct kvc_name_info info;
    struct rank r = rank_open(false, 0, 1);
    ck_assert_int_eq(kvc_name_show(r.k, KVC_NAME_CONVERSATION, "talk", NULL, &info), 0);
    ck_assert_uint_eq(info.tokens_cached, LEN * BT);
    ck_assert_uint_eq(info.priority, 2);
    ck_assert(info.pinned && !info.has_tokens);
    ck_assert_mem_eq(info.tip, r.keys + (LEN - 1) * KVC_KEY_BYTES, KVC_KEY_BYTES);
    ck_assert_int_eq(kvc_name_show(r.k, KVC_NAME_DOCUMENT, "book", NULL, &info), 0);
    ck_assert_uint_eq(info.tokens_cached, LEN * BT);
    ck_assert_uint_eq(info.priority, 3);
    ck_assert(!info.pinned && info.has_tokens);
    ids_of(2, want);
    ck_assert_int_eq(kvc_name_tokens(r.k, KVC_NAME_DOCUMENT, "book", NULL, 0, ids, LEN * BT),
                     LEN * BT);
    ck_assert_mem_eq(ids, want, sizeof want);
    kvc_close(&r.k);
}

/* ---- daemons ---- */

__attribute__((format(printf, 1, 2))) static void shell(const char *format, ...)
{
    char line[1024];
    va_list words;
    va_start(words, format);
    ck_assert_int_lt(vsnprintf(line, sizeof line, format, words), (int)sizeof line);
    va_end(words);
    ck_assert_msg(system(line) == 0, "%s", line);
}

/* The principal's uids name it where memory outlives the daemon: the same whoever makes or tests.
 */
static bool place_begin_store(unsigned store)
{
    char path[128];
    const uid_t me = geteuid();
    place_make(&place, store == IN_MEMORY ? 0 : PATHS, store == IN_MEMORY);
    snprintf(path, sizeof path, "%s/principals.yaml", place.rig.dir);
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    fputs("principals:\n  - name: kept\n    admin: true\n    uids: [0, 1000", f);
    if (me != 0 && me != 1000)
        fprintf(f, ", %u", (unsigned)me);
    fputs("]\n", f);
    ck_assert_int_eq(fclose(f), 0);
    place_set(&place, "@%s", path);
    if (store != IN_MEMORY) {
        place_set(&place, "nvme.limit=16MiB");
        place_set(&place, "nvme.segment=1MiB");
    }
    return me == 0 || me == 1000 || store != IN_MEMORY;
}

static void start(void)
{
    const int status = place_try(&place, NULL);
    if (status != 0)
        rig_show_log(&place.rig);
    ck_assert_int_eq(status, 0);
}

static int on_path(void *ctx, const void *row)
{
    const struct kvc_path *p = row;
    *(bool *)ctx = *(bool *)ctx || p->state != KVC_PATH_UP;
    return 0;
}

static void await_paths(void)
{
    struct kvc *k = rig_open(&place.rig, 0);
    bool waits = true;
    for (unsigned i = 0; i < 6000 && waits; i++, rig_sleep_ms(10)) {
        waits = false;
        ck_assert_int_eq(kvc_list(k, KVC_TABLE_PATHS, NULL, on_path, &waits), 0);
    }
    ck_assert(!waits);
    kvc_close(&k);
}

/* ---- tests ---- */

CASE_EACH(a_store_of_before_is_taken_over, STORES)
{
    if (!place_begin_store((unsigned)_i)) {
        printf("SKIP: host memory of another uid than 0 and 1000\n");
        place_remove(&place);
        return;
    }
    shell("tar --no-same-owner -xzf \"$KVC_SOURCE_DIR/tests/crash/takeover.tar.gz\" -C '%s' "
          "--strip-components=2 './%s'",
          _i == IN_MEMORY ? place.persist : place.rig.dir, store_name[_i]);
    if (_i != IN_MEMORY)
        ck_assert_int_eq(place_check_store(&place), 0);
    for (unsigned life = 0; life < 2; life++) { /* then what it has written itself */
        start();
        for (uint32_t chain = 1; chain <= 3; chain++)
            read_chain(chain == 3, chain);
        check_names();
        if (life == 0)
            store_chain(true, OWN, _i != IN_MEMORY);
        read_chain(true, OWN);
        rig_stop(&place.rig);
    }
    place_remove(&place);
}

/* ---- making them ---- */

static int make(const char *file, uint64_t unused)
{
    char top[] = "/tmp/kvc-test-XXXXXX";
    (void)unused;
    ck_assert_ptr_nonnull(mkdtemp(top));
    for (unsigned store = 0; store < STORES; store++) {
        ck_assert(place_begin_store(store));
        start();
        if (store != IN_MEMORY)
            await_paths();
        for (uint32_t chain = 1; chain <= 3; chain++)
            store_chain(chain == 3, chain, store != IN_MEMORY && chain != 2);
        put_names(store != IN_MEMORY);
        if (store == KILLED) /* promises that the journal does not have yet are found behind it */
            rig_kill(&place.rig);
        else
            rig_stop(&place.rig);
        shell("mkdir '%s/%s'", top, store_name[store]);
        if (store == IN_MEMORY)
            shell("cp -a '%s/.' '%s/%s'", place.persist, top, store_name[store]);
        else
            shell("cp -a '%s'/store? '%s/%s'", place.rig.dir, top, store_name[store]);
        place_remove(&place);
    }
    shell("tar --sparse --hole-detection=raw --sort=name --owner=0 --group=0 -C '%s' -czf '%s' .",
          top, file);
    shell("rm -r '%s'", top);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "make") == 0)
        return rig_child_main(make, argv[2], 0);
    return cases_run();
}
