/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that outlives the daemon: what is back, and that it is right at its first use. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_run.h"
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

static void fill(void)
{
    struct kvc *k = rig_open(&place.rig, 2u << 20);
    struct kvc_ns *ns = rig_ns(k, "warm", BT, RIG_BLOCK);
    for (uint32_t c = 0; c < CHAINS; c++) {
        rig_keys(ns, c, BT, LEN, keys);
        ck_assert_uint_eq(rig_store(k, ns, keys, 0, LEN, BT, RIG_BLOCK, statuses), LEN);
    }
    kvc_close(&k);
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

START_TEST(host_memory_is_back_after_kill)
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
END_TEST

START_TEST(host_memory_is_back_after_a_stop)
{
    start();
    fill();
    rig_stop(&place.rig);
    start();
    ck_assert_uint_ge(read_all(), CHAINS * LEN * 99 / 100);
    rig_stop(&place.rig);
}
END_TEST

START_TEST(what_was_evicted_stays_away)
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
END_TEST

START_TEST(less_memory_than_before_is_fewer_blocks)
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
END_TEST

START_TEST(another_secret_finds_nothing_of_before)
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
END_TEST

/* It was refused, again and again: a manager starts it with the same each time. */
START_TEST(descriptors_that_are_not_said_right_begin_with_empty_memory)
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
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("warm");
    TCase *t = tcase_create("warm");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 280);
    tcase_add_test(t, host_memory_is_back_after_kill);
    tcase_add_test(t, host_memory_is_back_after_a_stop);
    tcase_add_test(t, what_was_evicted_stays_away);
    tcase_add_test(t, less_memory_than_before_is_fewer_blocks);
    tcase_add_test(t, another_secret_finds_nothing_of_before);
    tcase_add_test(t, descriptors_that_are_not_said_right_begin_with_empty_memory);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    return check_run(suite());
}
