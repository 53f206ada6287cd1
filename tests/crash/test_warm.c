/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that outlives the daemon: what is back, and that it is right at its first use. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "place.h"

#define BT     16u
#define LEN    64u
#define CHAINS 80u /* of LEN blocks of RIG_BLOCK: 40 MiB */

static struct place place;
static uint8_t keys[LEN * KVC_KEY_BYTES], statuses[LEN];

static void setup(void)
{
    place_make(&place, 0, true);
    place_set(&place, "host.limit=64MiB");
    place_set(&place, "host.chunk=4MiB");
}

static void teardown(void)
{
    place_remove(&place);
}

static void start(void)
{
    int status = place_try(&place, NULL);
    if (status)
        rig_show_log(&place.rig);
    ck_assert_int_eq(status, 0);
}

/* How many blocks were stored, of those that were not there. */
static uint32_t store_all(void)
{
    uint32_t ok = 0;
    struct kvc *k = rig_open(&place.rig, 2u << 20);
    struct kvc_ns *ns = rig_ns(k, "warm", BT, RIG_BLOCK);
    for (uint32_t c = 0; c < CHAINS; c++) {
        rig_keys(ns, c, BT, LEN, keys);
        ok += rig_store(k, ns, keys, 0, LEN, BT, RIG_BLOCK, statuses);
    }
    kvc_close(&k);
    return ok;
}

static void fill(void)
{
    ck_assert_uint_eq(store_all(), CHAINS * LEN);
}

/* Blocks that are there; each is compared. */
static uint32_t read_all(void)
{
    uint32_t hit = 0;
    struct kvc *k = rig_open(&place.rig, 0);
    struct kvc_ns *ns = rig_ns(k, "warm", BT, RIG_BLOCK);
    for (uint32_t c = 0; c < CHAINS; c++) {
        rig_keys(ns, c, BT, LEN, keys);
        hit += rig_load(k, ns, keys, LEN, BT, RIG_BLOCK);
    }
    ck_assert_uint_eq(rig_stat(k, "daemon.host_used_slots"), rig_stat(k, "core.blocks_present"));
    kvc_close(&k);
    return hit;
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 280);

CASE(host_memory_is_back_after_kill)
{
    start();
    fill();
    for (unsigned i = 0; i < 3; i++) {
        rig_kill(&place.rig);
        start();
        const uint32_t hit = read_all();
        printf("%u of %u blocks back after SIGKILL\n", hit, CHAINS * LEN);
        ck_assert_uint_ge(hit, CHAINS * LEN * 99 / 100);
    }
    rig_stop(&place.rig);
}

CASE(host_memory_is_back_after_a_stop)
{
    start();
    fill();
    rig_stop(&place.rig);
    start();
    ck_assert_uint_ge(read_all(), CHAINS * LEN * 99 / 100);
    rig_stop(&place.rig);
}

CASE(what_was_evicted_stays_away)
{
    struct kvc_evict_filter all = {0};
    struct kvc_evicted evicted;
    start();
    fill();
    struct kvc *k = rig_open(&place.rig, 0);
    ck_assert_int_eq(kvc_evict(k, &all, &evicted), 0);
    ck_assert_uint_eq(evicted.blocks, CHAINS * LEN);
    rig_kill(&place.rig);
    kvc_close(&k);
    start();
    ck_assert_uint_eq(read_all(), 0);
    rig_stop(&place.rig);
}

CASE(less_memory_than_before_is_fewer_blocks)
{
    start();
    fill();
    rig_kill(&place.rig);
    place_set(&place, "host.limit=16MiB");
    start();
    (void)read_all();
    struct kvc *k = rig_open(&place.rig, 0);
    ck_assert_uint_le(rig_stat(k, "daemon.host_used_bytes"), 16u << 20);
    kvc_close(&k);
    rig_stop(&place.rig);
}

CASE(another_secret_finds_nothing_of_before)
{
    start();
    fill();
    rig_kill(&place.rig);
    place_set(&place, "secret_file=%s/other", place.rig.dir);
    start();
    ck_assert_uint_eq(read_all(), 0);
    fill(); /* and what it left is no loss of room */
    ck_assert_uint_eq(read_all(), CHAINS * LEN);
    rig_stop(&place.rig);
}

/* It was refused, again and again: a manager starts it with the same each time. */
CASE(descriptors_that_are_not_said_right_begin_with_empty_memory)
{
    char log[128];
    static const char *const sets[] = {"host.limit=64MiB", "host.chunk=4MiB",
                                       "host.persist=systemd", NULL};
    ck_assert_int_eq(setenv("LISTEN_PID", "that one", 1), 0);
    ck_assert_int_eq(setenv("LISTEN_FDS", "many", 1), 0);
    ck_assert_int_eq(rig_try(&place.rig, sets, NULL), 0);
    snprintf(log, sizeof log, "grep -q 'LISTEN_FDS' %s/log", place.rig.dir);
    ck_assert_int_eq(system(log), 0);
    rig_stop(&place.rig);
}

static void cut_each(off_t to)
{
    char pattern[96];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*", place.persist);
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (strstr(found.gl_pathv[i], "/chunk-") ||
            strcmp(strrchr(found.gl_pathv[i], '/'), "/names") == 0)
            ck_assert_int_eq(truncate(found.gl_pathv[i], to), 0);
    globfree(&found);
}

static void evict_all(void)
{
    struct kvc_evict_filter all = {0};
    struct kvc_evicted evicted;
    struct kvc *k = rig_open(&place.rig, 0);
    ck_assert_int_eq(kvc_evict(k, &all, &evicted), 0);
    kvc_close(&k);
}

/* Storing and evicting touch what is no more; then all of it is replaced. */
static void files_are_cut(off_t to)
{
    start();
    fill();
    cut_each(to);
    (void)store_all();
    evict_all();
    unsigned rounds = 1;
    while (rounds < 100 && (store_all() < CHAINS * LEN || read_all() < CHAINS * LEN)) {
        evict_all();
        rounds++;
    }
    ck_assert_uint_lt(rounds, 100);
    rig_stop(&place.rig);
}

CASE_EACH(files_that_another_process_cuts_cost_blocks_and_not_the_daemon, 3)
{
    static const off_t to[] = {0, 4096, 1 << 20};
    files_are_cut(to[_i]);
}

static bool log_has(const char *words)
{
    char command[256];
    snprintf(command, sizeof command, "grep -q '%s' %s/log", words, place.rig.dir);
    return system(command) == 0;
}

/* Its own uid may write to what cannot be sealed. */
CASE(workers_who_could_write_are_named_at_start)
{
    char words[128];
    snprintf(words, sizeof words, "workers of uid %u (principal self)", (unsigned)geteuid());
    start();
    ck_assert(log_has(words));
    rig_stop(&place.rig);
    place_forget_log(&place);
    place_set(&place, "host.persist=off");
    start();
    ck_assert(!log_has(words));
    ck_assert(log_has("sealed against new writable mappings"));
    rig_stop(&place.rig);
}
