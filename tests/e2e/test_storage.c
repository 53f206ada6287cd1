/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks leave memory for storage, come back, and outlive the daemon. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"
#include "rig_ctl.h"

#define BT     16u
#define BYTES  65536u
#define MIB    (1u << 20)
#define LIMIT  (96u * MIB) /* of storage; host memory has 16 MiB */
#define CHAIN  32u         /* blocks: 2 MiB */
#define CHAINS 16u         /* twice what memory holds */

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *ns;
static char paths[128];
static const char *const sets[] = {paths, "nvme.limit=96MiB", "nvme.segment=4MiB", NULL};
static uint8_t keys[CHAIN * KVC_KEY_BYTES], statuses[CHAIN];

static int on_path(void *ctx, const void *row)
{
    const struct kvc_path *p = row;
    *(struct kvc_path *)ctx = *p;
    return 0;
}

static struct kvc_path path_of(struct kvc *session)
{
    struct kvc_path path = {0};
    ck_assert_int_eq(kvc_list(session, KVC_TABLE_PATHS, NULL, on_path, &path), 0);
    return path;
}

static void open_session(void)
{
    k = rig_open(&rig, 4 * MIB);
    ns = rig_ns(k, "m", BT, BYTES);
}

static void setup(void)
{
    char dir[80];
    rig_dir(&rig);
    snprintf(dir, sizeof dir, "%s/store", rig.dir);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    snprintf(paths, sizeof paths, "nvme.paths=%s", dir);
    rig_restart(&rig, sets);
    open_session();
    for (unsigned i = 0; i < 6000 && path_of(k).state == KVC_PATH_FORMATTING; i++)
        rig_sleep_ms(10);
    ck_assert_uint_eq(path_of(k).state, KVC_PATH_UP);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

/* ---- what tests do ---- */

/* Stores blocks first .. first + CHAIN - 1 of the keys. Where storage is slower than a store waits
 * for room, some are refused: again, then. What a test asks for later is drained before the next
 * store, which would take room from what is unwritten. */
static void store_blocks(const uint8_t *of, uint32_t first)
{
    if (rig_store(k, ns, of, first, first + CHAIN, BT, BYTES, statuses) == CHAIN)
        return;
    ck_assert_uint_gt(rig_stat(k, "svc.room_waits_late"), 0);
    rig_drain(k);
    rig_store(k, ns, of, first, first + CHAIN, BT, BYTES, statuses);
    for (uint32_t i = 0; i < CHAIN; i++)
        ck_assert(statuses[i] == KVC_ST_OK || statuses[i] == KVC_ST_EXISTS);
}

static void store_chain(uint32_t chain)
{
    rig_keys(ns, chain, BT, CHAIN, keys);
    store_blocks(keys, 0);
}

static uint32_t load_chain(uint32_t chain)
{
    rig_keys(ns, chain, BT, CHAIN, keys);
    return rig_load(k, ns, keys, CHAIN, BT, BYTES);
}

static uint32_t found(uint32_t chain, unsigned flags)
{
    struct kvc_prefix p;
    rig_keys(ns, chain, BT, CHAIN, keys);
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    ck_assert_int_eq(kvc_lookup(ns, &seq, flags, &p), 0);
    return p.group[0].blocks;
}

/* Blocks of the chain that are in memory. */
static uint32_t in_memory(uint32_t chain)
{
    struct kvc_acquire_options o = {.flags = KVC_F_NO_LOAD};
    struct kvc_hold *hold;
    rig_keys(ns, chain, BT, CHAIN, keys);
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    ck_assert_int_eq(kvc_acquire(ns, &seq, &o, &hold), 0);
    const uint32_t n = hold->group[0].n;
    kvc_release(k, &hold);
    return n;
}

static void store_durably(uint32_t chain)
{
    uint64_t bytes, offsets[CHAIN];
    uint8_t *staging = kvc_staging(k, &bytes);
    rig_keys(ns, chain, BT, CHAIN, keys);
    ck_assert_uint_ge(bytes, CHAIN * BYTES);
    for (uint32_t i = 0; i < CHAIN; i++) {
        offsets[i] = (uint64_t)i * BYTES;
        rig_fill(keys + i * KVC_KEY_BYTES, staging + offsets[i], BYTES);
    }
    struct kvc_blocks b = {.keys = keys, .n = CHAIN, .flags = KVC_F_DURABLE};
    int err = kvc_store(ns, &b, offsets, NULL, 0, statuses);
    ck_assert_msg(err == 0, "kvc_store: %s: %s", kvc_error_name(err), kvc_last_error(k));
    for (uint32_t i = 0; i < CHAIN; i++)
        ck_assert_uint_eq(statuses[i], KVC_ST_OK);
}

static void restart(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_restart(&rig, sets);
    open_session();
}

static void check_limit(void)
{
    char file[128];
    struct stat st;
    snprintf(file, sizeof file, "%s/store/kvcache.store", rig.dir);
    ck_assert_int_eq(stat(file, &st), 0);
    ck_assert_uint_le((uint64_t)st.st_size, LIMIT);
    ck_assert_uint_le((uint64_t)st.st_blocks * 512, LIMIT + 64 * 1024);
    ck_assert_uint_le(rig_stat(k, "nvme.used_bytes"), LIMIT);
}

/* ---- tests ---- */

CASES(.setup = setup, .teardown = teardown, .timeout_s = 240);

CASE(blocks_that_leave_memory_come_back_with_their_bytes)
{
    for (uint32_t c = 0; c < CHAINS; c++) {
        store_chain(c);
        check_limit();
        rig_drain(k);
    }
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t c = 0; c < CHAINS; c++)
            ck_assert_uint_eq(load_chain(c), CHAIN);
    ck_assert_uint_gt(rig_stat(k, "core.blocks_loaded"), 0);
    ck_assert_uint_gt(rig_stat(k, "nvme.bytes_written"), 0);
}

/* One conversation, or document, may be longer than memory. */
CASE(a_chain_longer_than_memory_is_stored_whole)
{
    enum { LONG = 16 * CHAIN }; /* twice as long */
    static uint8_t all[LONG * KVC_KEY_BYTES];
    rig_keys(ns, 77, BT, LONG, all);
    for (uint32_t at = 0; at < LONG; at += CHAIN) {
        store_blocks(all, at);
        rig_drain(k);
    }
    struct kvc_prefix p;
    struct kvc_seq seq = rig_seq(all, LONG, BT);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.group[0].blocks, LONG);
}

CASE(more_than_storage_holds_makes_room_and_keeps_the_limit)
{
    const uint32_t chains = 2 * LIMIT / (CHAIN * BYTES);
    uint32_t there = 0;
    for (uint32_t c = 0; c < chains; c++) {
        store_chain(c);
        check_limit();
    }
    for (uint32_t c = 0; c < chains; c++)
        there += found(c, 0);
    ck_assert_uint_le(there, (LIMIT + 16 * MIB) / BYTES);
    ck_assert_uint_ge(there, LIMIT / 2 / BYTES);
    ck_assert_uint_eq(load_chain(chains - 1), CHAIN);
}

CASE(what_was_stored_durably_survives_a_kill)
{
    store_durably(1);
    store_durably(2);
    kvc_close(&k);
    rig_kill(&rig);
    rig_restart(&rig, sets);
    open_session();
    ck_assert_uint_eq(load_chain(1), CHAIN);
    ck_assert_uint_eq(load_chain(2), CHAIN);
}

/* ---- removals ---- */

/* The journal is written this rarely when nobody waits for it. */
static const char *const lazy[] = {paths, "nvme.limit=96MiB", "nvme.segment=4MiB", "nvme.sync=60s",
                                   NULL};

/* Another byte in the store where the block of that number of the chain lies. */
static void damage(uint32_t chain, uint32_t block)
{
    static uint8_t want[BYTES], page[4096];
    char file[128];
    off_t at = 0;
    snprintf(file, sizeof file, "%s/store/kvcache.store", rig.dir);
    const int fd = open(file, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    rig_keys(ns, chain, BT, CHAIN, keys);
    rig_fill(keys + block * KVC_KEY_BYTES, want, BYTES);
    while (pread(fd, page, sizeof page, at) == (ssize_t)sizeof page &&
           memcmp(page, want, sizeof page) != 0)
        at += (off_t)sizeof page;
    ck_assert_mem_eq(page, want, sizeof page);
    page[77] ^= 1;
    ck_assert_int_eq(pwrite(fd, page, sizeof page, at), sizeof page);
    ck_assert_int_eq(fsync(fd), 0);
    ck_assert_int_eq(close(fd), 0);
}

static uint64_t evicted(const struct kvc_evict_filter *filter)
{
    struct kvc_evicted x = {0};
    ck_assert_int_eq(kvc_evict(k, filter, &x), 0);
    return x.blocks;
}

static void evict_model(void)
{
    ck_assert_uint_eq(evicted(&(struct kvc_evict_filter){.model = "m"}), CHAIN);
}
static void evict_ns(void)
{
    ck_assert_uint_eq(evicted(&(struct kvc_evict_filter){.ns = kvc_ns_id(ns)}), CHAIN);
}
static void evict_key(void)
{
    rig_keys(ns, 1, BT, CHAIN, keys);
    ck_assert_uint_eq(evicted(&(struct kvc_evict_filter){.key = keys}), CHAIN);
}
static void evict_old(void)
{
    rig_sleep_ms(40);
    ck_assert_uint_eq(evicted(&(struct kvc_evict_filter){.older_than_ms = 20}), CHAIN);
}
static void evict_name(void)
{
    struct kvc_evicted x = {0};
    ck_assert_int_eq(kvc_name_evict(k, KVC_NAME_CONVERSATION, "talk", NULL, false, &x), 0);
    ck_assert_uint_eq(x.blocks, CHAIN);
}

/* The first block of the chain is not what was stored, and all others build on it. */
static void verify_damaged(void)
{
    struct kvc_verify v = {.tier = KVC_TIER_NVME, .bytes_max = 16 * MIB};
    uint32_t corrupt = 0;
    damage(1, 0);
    kvc_close(&k); /* memory has it still */
    rig_stop(&rig);
    rig_restart(&rig, lazy);
    open_session();
    do {
        struct kvc_verified done;
        ck_assert_int_eq(kvc_verify_slice(k, &v, &done), 0);
        corrupt += done.corrupt;
        v.cursor = done.cursor;
    } while (v.cursor != 0);
    ck_assert_uint_eq(corrupt, 1);
}

static void (*const removals[])(void) = {evict_model, evict_ns,   evict_key,
                                         evict_old,   evict_name, verify_damaged};

CASE_EACH(what_was_evicted_stays_away_after_a_kill, sizeof removals / sizeof removals[0])
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_restart(&rig, lazy);
    open_session();
    store_durably(1);
    if (removals[_i] == evict_name) {
        struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
        struct kvc_named named;
        ck_assert_int_eq(kvc_name_put(ns, KVC_NAME_CONVERSATION, "talk", &seq, NULL, &named), 0);
    }
    removals[_i]();
    rig_kill(&rig);
    kvc_close(&k);
    rig_restart(&rig, lazy);
    open_session();
    ck_assert_uint_eq(found(1, 0), 0);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), 0);
}

/* A name mistyped in the configuration was the end of all that the store held. With a smaller
 * nvme.limit beside it, the store's file was cut before the start was refused. */
CASE(a_start_with_another_principal_is_refused_and_costs_nothing)
{
    char config[80], command[256], file[128];
    struct stat before, after;
    store_durably(1);
    kvc_close(&k);
    rig_stop(&rig);
    snprintf(config, sizeof config, "@%s/other.yaml", rig.dir);
    FILE *f = fopen(config + 1, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "principals:\n  - name: mistyped\n    uids: [%u]\n", (unsigned)getuid());
    fclose(f);
    const char *other[16] = {config};
    unsigned n = 1;
    for (; sets[n - 1] != NULL; n++)
        other[n] = sets[n - 1];
    other[n] = "nvme.limit=32MiB";
    snprintf(file, sizeof file, "%s/kvcache.store", strchr(paths, '=') + 1);
    ck_assert_int_eq(stat(file, &before), 0);
    const int status = rig_try(&rig, other, NULL);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    ck_assert_int_eq(stat(file, &after), 0);
    ck_assert_int_eq(after.st_size, before.st_size);
    snprintf(command, sizeof command, "grep -q 'belongs to others.*principal .*Nothing was' %s/log",
             rig.dir);
    ck_assert_int_eq(system(command), 0);
    rig_restart(&rig, sets);
    open_session();
    ck_assert_uint_eq(load_chain(1), CHAIN);
}

static int second_of(void *ctx, const void *row)
{
    const struct kvc_path *p = row;
    uint32_t *n = ctx;
    ck_assert_uint_eq(p->state == KVC_PATH_OUT, n[0] != 0 && n[1] == 1);
    n[1]++;
    return 0;
}

/* The file system of one of two paths is not mounted at one start. */
CASE(a_path_that_is_not_mounted_at_a_start_costs_nothing)
{
    char dir[80], away[80], both[256], file[128];
    struct stat st;
    uint32_t seen[2] = {0};
    kvc_close(&k);
    rig_kill(&rig);
    snprintf(dir, sizeof dir, "%s/second", rig.dir);
    snprintf(away, sizeof away, "%s/away", rig.dir);
    snprintf(both, sizeof both, "%s,%s", paths, dir);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    const char *const two[] = {both, "nvme.limit=192MiB", "nvme.segment=4MiB", NULL};
    rig_restart(&rig, two);
    open_session();
    for (uint32_t chain = 1; chain <= 8; chain++)
        store_durably(chain);
    kvc_close(&k);
    rig_kill(&rig);

    ck_assert_int_eq(rename(dir, away), 0);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    rig_restart(&rig, two);
    open_session();
    seen[0] = 1;
    ck_assert_int_eq(kvc_list(k, KVC_TABLE_PATHS, NULL, second_of, seen), 0);
    ck_assert_uint_eq(seen[1], 2);
    store_chain(20);
    kvc_close(&k);
    rig_kill(&rig);
    snprintf(file, sizeof file, "%s/kvcache.store", dir);
    ck_assert_int_eq(stat(file, &st), 0);
    ck_assert_int_eq(st.st_blocks, 0);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(rmdir(dir), 0);

    ck_assert_int_eq(rename(away, dir), 0);
    rig_restart(&rig, two);
    open_session();
    memset(seen, 0, sizeof seen);
    ck_assert_int_eq(kvc_list(k, KVC_TABLE_PATHS, NULL, second_of, seen), 0);
    for (uint32_t chain = 1; chain <= 8; chain++)
        ck_assert_uint_eq(load_chain(chain), CHAIN);
}

CASE(a_daemon_that_says_nothing_finds_as_much)
{
    const char *const quiet[] = {sets[0], sets[1], sets[2], "log.level=error", NULL};
    store_durably(1);
    kvc_close(&k);
    rig_kill(&rig);
    rig_restart(&rig, quiet);
    open_session();
    ck_assert_uint_eq(load_chain(1), CHAIN);
}

CASE(a_drained_daemon_restarts_warm)
{
    for (uint32_t c = 0; c < CHAINS; c++) {
        store_chain(c);
        rig_drain(k);
    }
    restart();
    for (uint32_t c = 0; c < CHAINS; c++)
        ck_assert_uint_eq(found(c, 0), CHAIN);
    for (uint32_t c = 0; c < CHAINS; c++)
        ck_assert_uint_eq(load_chain(c), CHAIN);
}

CASE(an_acquire_without_loading_waits_for_nothing)
{
    store_durably(1);
    restart();
    ck_assert_uint_eq(found(1, 0), CHAIN);
    ck_assert_uint_eq(in_memory(1), 0);
    for (unsigned i = 0; i < 3000 && in_memory(1) < CHAIN; i++) /* it has begun to load */
        rig_sleep_ms(10);
    ck_assert_uint_eq(in_memory(1), CHAIN);
}

CASE(a_lookup_can_begin_to_load)
{
    store_durably(1);
    restart();
    ck_assert_uint_eq(found(1, KVC_F_PREFETCH), CHAIN);
    for (unsigned i = 0; i < 3000 && rig_stat(k, "core.blocks_loaded") < CHAIN; i++)
        rig_sleep_ms(10);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_loaded"), CHAIN);
    ck_assert_uint_eq(in_memory(1), CHAIN);
}

/* What is on its way from storage into memory ends before the daemon does. */
CASE(a_daemon_stops_in_good_order_while_it_loads)
{
    for (uint32_t c = 0; c < 6; c++)
        store_durably(c);
    for (uint32_t round = 0; round < 12; round++) {
        restart();
        for (uint32_t c = 0; c < 6; c++)
            ck_assert_uint_eq(found(c, KVC_F_PREFETCH), CHAIN);
        for (uint32_t i = 0; i < round % 4; i++)
            rig_sleep_ms(1);
    }
    restart();
    for (uint32_t c = 0; c < 6; c++)
        ck_assert_uint_eq(load_chain(c), CHAIN);
}

CASE(loading_does_not_hold_up_others)
{
    struct kvc_op *op;
    struct kvc_hold *hold;
    struct kvc *other;
    uint8_t mine[CHAIN * KVC_KEY_BYTES];
    uint64_t uptime;
    store_durably(1);
    restart();
    store_chain(2);
    other = rig_open(&rig, 0);
    rig_keys(ns, 1, BT, CHAIN, mine);
    struct kvc_seq seq = rig_seq(mine, CHAIN, BT);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    ck_assert_int_eq(kvc_ping(other, &uptime), 0);
    struct kvc_ns *same = rig_ns(other, "m", BT, BYTES);
    rig_keys(same, 2, BT, CHAIN, keys);
    ck_assert_uint_eq(rig_load(other, same, keys, CHAIN, BT, BYTES), CHAIN);
    ck_assert_int_eq(kvc_wait(&op, NULL, &hold, NULL), 0);
    ck_assert_uint_eq(hold->group[0].n, CHAIN);
    kvc_release(k, &hold);
    kvc_close(&other);
}

CASE(storage_can_be_verified)
{
    struct kvc_verify v = {.tier = KVC_TIER_NVME, .bytes_max = MIB};
    struct kvc_verified done;
    uint64_t blocks = 0;
    store_durably(1);
    do {
        int err = kvc_verify_slice(k, &v, &done);
        ck_assert_msg(err == 0, "kvc_verify_slice: %s: %s", kvc_error_name(err), kvc_last_error(k));
        ck_assert_uint_eq(done.corrupt, 0);
        ck_assert_uint_eq(done.failed, 0);
        blocks += done.blocks;
        v.cursor = done.cursor;
    } while (v.cursor != 0);
    ck_assert_uint_eq(blocks, CHAIN);
}

static int on_explained(void *ctx, const void *row)
{
    const struct kvc_block_info *x = row;
    *(uint8_t *)ctx = x->tier;
    return 0;
}

static uint8_t tiers_of(const uint8_t *key)
{
    uint8_t tiers = 0;
    const struct kvc_filter one = {.mode = KVC_WALK_KEYS, .keys = key, .n = 1};
    ck_assert_int_eq(kvc_list(k, KVC_TABLE_BLOCKS, &one, on_explained, &tiers), 0);
    return tiers;
}

static uint64_t count_corrupt(void)
{
    struct kvc_verify v = {.tier = KVC_TIER_NVME, .bytes_max = MIB};
    struct kvc_verified done;
    uint64_t corrupt = 0;
    do {
        ck_assert_int_eq(kvc_verify_slice(k, &v, &done), 0);
        corrupt += done.corrupt;
        v.cursor = done.cursor;
    } while (v.cursor != 0);
    return corrupt;
}

/* Memory still has what is wrong on storage: the promise is kept from there. */
CASE(a_promise_that_is_damaged_on_storage_is_written_again)
{
    uint8_t tiers = 0;
    store_durably(1);
    damage(1, 5);
    ck_assert_uint_eq(count_corrupt(), 1);
    for (unsigned i = 0; i < 6000 && (tiers & KVC_TIER_NVME) == 0; i++, rig_sleep_ms(10))
        tiers = tiers_of(keys + 5 * KVC_KEY_BYTES);
    ck_assert_uint_eq(tiers, KVC_TIER_HOST | KVC_TIER_NVME);
    ck_assert_uint_eq(count_corrupt(), 0);
    kvc_close(&k);
    rig_kill(&rig);
    rig_restart(&rig, sets);
    open_session();
    ck_assert_uint_eq(load_chain(1), CHAIN);
}

/* Of a path that damages block after block there is one line in ten seconds, with how many. */
CASE(blocks_damaged_on_storage_are_told_of_together)
{
    enum { DAMAGED = 8 };
    char line[512];
    unsigned lines = 0;
    unsigned long long told = 0, news, all = 0;
    store_durably(1);
    const time_t begun = time(NULL);
    for (uint32_t i = 0; i < DAMAGED; i++) {
        damage(1, i);
        ck_assert_uint_eq(count_corrupt(), 1);
    }
    kvc_close(&k);
    rig_stop(&rig);
    const time_t took = time(NULL) - begun;
    snprintf(line, sizeof line, "%s/log", rig.dir);
    FILE *f = fopen(line, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f)) {
        const char *what = strstr(line, "kvcache.store: ");
        if (what == NULL ||
            sscanf(what, "kvcache.store: %llu blocks were not what had been stored there (%llu",
                   &news, &all) != 2)
            continue;
        lines++;
        told += news;
        ck_assert_uint_eq(told, all);
    }
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_uint_eq(all, DAMAGED);
    ck_assert_uint_ge(lines, 2);
    ck_assert_uint_le(lines, 2 + took / 10); /* the first, one in ten seconds, and what is left */
    rig_restart(&rig, sets);
    open_session();
}

/* It was "nvme chunk 0 at 0", which is no place. */
CASE(a_block_damaged_on_storage_has_no_chunk)
{
    char line[512];
    unsigned lines = 0;
    store_durably(1);
    damage(1, 5);
    ctl(&rig, 6, "verify --tier nvme");
    SAYS(", shard 0, nvme); dropped");
    damage(1, 7);
    ctl(&rig, 6, "verify --tier nvme --json");
    SAYS("\"tier\":\"nvme\",\"chunk\":null,\"offset\":null");
    snprintf(line, sizeof line, "%s/log", rig.dir);
    FILE *f = fopen(line, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        lines += strstr(line, "shard 0 (storage) is not what was stored") != NULL;
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_uint_eq(lines, 2);
}

CASE(a_block_says_in_which_tiers_it_is)
{
    store_durably(1);
    ck_assert_uint_eq(tiers_of(keys), KVC_TIER_HOST | KVC_TIER_NVME);
    restart();
    ck_assert_uint_eq(tiers_of(keys), KVC_TIER_NVME);
}

static uint64_t written(void)
{
    return rig_stat(k, "nvme.bytes_written");
}

/* More than storage holds is stored, then nothing: what is kept is written anew as long as that
 * gains room, and no longer. */
static void check_comes_to_rest(void)
{
    const uint32_t chains = 2 * LIMIT / (CHAIN * BYTES);
    for (uint32_t c = 0; c < chains; c++)
        store_chain(c);
    uint64_t before, now = written();
    const uint64_t until = rig_now_ms() + 120000;
    do {
        before = now;
        rig_sleep_ms(1000);
        now = written();
    } while (now != before && rig_now_ms() < until);
    ck_assert_uint_eq(now, before);
    ck_assert_uint_eq(load_chain(chains - 1), CHAIN);
}

static struct kvc_quota share_of(uint64_t bytes)
{
    return (struct kvc_quota){.scope = KVC_SCOPE_TENANT,
                              .tenant = "default",
                              .host_limit = UINT64_MAX,
                              .nvme_limit = UINT64_MAX,
                              .nvme_share = bytes};
}

CASE(an_idle_daemon_comes_to_rest_whatever_is_guaranteed)
{
    uint64_t most = LIMIT / 2; /* that can be guaranteed, in whole MiB */
    struct kvc_quota quota = share_of(most);
    while (kvc_quota_set(k, &quota) == 0)
        quota = share_of(most += MIB);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(k), "can be guaranteed"));
    ck_assert_uint_ge(most, LIMIT / 3 * 2);
    quota = share_of(most - MIB);
    ck_assert_int_eq(kvc_quota_set(k, &quota), 0);
    check_comes_to_rest();
}

/* As the configuration may have it: with so few segments it cannot be kept. */
CASE(more_than_can_be_guaranteed_is_told_and_not_written_for_ever)
{
    char file[128], log[128], line[256];
    const char *more[] = {NULL, sets[0], sets[1], sets[2], NULL};
    snprintf(file, sizeof file, "@%s/quotas.yaml", rig.dir);
    more[0] = file;
    FILE *f = fopen(file + 1, "we");
    ck_assert_ptr_nonnull(f);
    fputs("quotas:\n  - {tenant: default, nvme_share: 84MiB}\n", f);
    ck_assert_int_eq(fclose(f), 0);
    kvc_close(&k);
    rig_stop(&rig);
    rig_restart(&rig, more);
    open_session();
    bool warned = false;
    snprintf(log, sizeof log, "%s/log", rig.dir);
    f = fopen(log, "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        warned |= strstr(line, "can be guaranteed") != NULL;
    fclose(f);
    ck_assert(warned);
    check_comes_to_rest();
}

static int on_writes(void *ctx, const void *row)
{
    *(struct kvc_writes *)ctx = *(const struct kvc_writes *)row;
    return 0;
}

CASE(paths_tell_what_was_written)
{
    struct kvc_writes w = {0};
    store_durably(1);
    const struct kvc_path path = path_of(k);
    ck_assert_int_eq(kvc_list(k, KVC_TABLE_WRITES, NULL, on_writes, &w), 0);
    ck_assert_ptr_nonnull(strstr(path.path, "kvcache.store"));
    ck_assert_uint_ne(path.state, KVC_PATH_OUT);
    ck_assert_uint_ge(path.write_bytes, CHAIN * BYTES);
    ck_assert_uint_ge(w.accepted_bytes, CHAIN * BYTES);
    ck_assert_uint_ge(w.written_bytes, w.accepted_bytes);
    ck_assert_uint_eq(w.per_day_bytes, 0);
}

CASE(a_second_daemon_on_the_same_store_is_refused_by_name)
{
    struct rig second = {0};
    char log[128], line[512];
    bool named = false;
    rig_dir(&second);
    int status = rig_try(&second, sets, NULL);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    snprintf(log, sizeof log, "%s/log", second.dir);
    FILE *f = fopen(log, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        named |=
            strstr(line, "/store") != NULL && strstr(line, "Is another kvcache-daemon") != NULL;
    fclose(f);
    ck_assert(named);
    rig_clean(&second);
    store_chain(1);
    ck_assert_uint_eq(load_chain(1), CHAIN);
}

static bool log_has(const char *text)
{
    char line[512];
    bool has = false;
    snprintf(line, sizeof line, "%s/log", rig.dir);
    FILE *f = fopen(line, "r");
    while (f != NULL && !has && fgets(line, sizeof line, f) != NULL)
        has = strstr(line, text) != NULL;
    if (f != NULL)
        fclose(f);
    return has;
}

/* Of a daemon that is at its start: until its log says so. */
static int end_once_said(const char *text, const char *fault)
{
    int status;
    rig_kill(&rig);
    rig_begin(&rig, sets, fault);
    for (unsigned i = 0; i < 6000 && !log_has(text); i++)
        rig_sleep_ms(10);
    ck_assert_int_eq(kill(rig.pid, SIGTERM), 0);
    ck_assert_int_eq(waitpid(rig.pid, &status, 0), rig.pid);
    if (!log_has(text) || !WIFEXITED(status))
        rig_show_log(&rig);
    ck_assert(log_has(text));
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* What reads a store that is slow, or does not answer, can be told to stop, and costs nothing. */
CASE(a_start_can_be_ended)
{
    store_durably(1);
    kvc_close(&k);
    ck_assert_int_eq(end_once_said("(KVC_FAULT)", "read:1-=1000ms"), 0);
    ck_assert(log_has("told to stop before it was ready"));
    ck_assert(!log_has("I/O on nvme.paths did not end"));
    rig_restart(&rig, sets);
    ck_assert_int_ne(end_once_said("kvcache.store does not answer", "read:1-=600000ms"), 0);
    ck_assert(log_has("I/O on nvme.paths did not end"));
    rig_restart(&rig, sets);
    open_session();
    ck_assert_uint_eq(load_chain(1), CHAIN);
}
