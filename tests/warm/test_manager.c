/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that waits with the service manager, or a stand-in for it, while there is no daemon.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "manager.h"
#include "rig.h"

#define BT        16u
#define LEN       32u
#define CHAINS    32u /* of LEN blocks of RIG_BLOCK: 8 MiB of the rig's 16 */
#define STORE_MAX 32u

static uint8_t keys[LEN * KVC_KEY_BYTES], statuses[LEN];
static const char *const sets[] = {"host.persist=systemd", NULL};
static struct rig rig;

/* Before it knows of host.persist a daemon has nothing that could wait. */
static bool can_keep(void)
{
    char line[512];
    bool found = false;
    const char *bin = getenv("KVC_BIN_DIR");
    snprintf(line, sizeof(line), "'%s/kvcache-daemon' --print-config", bin ? bin : ".");
    FILE *f = popen(line, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f) != NULL)
        found = found || strstr(line, "persist:") != NULL;
    ck_assert_int_eq(pclose(f), 0);
    if (!found)
        printf("SKIP: this daemon does not know host.persist\n");
    return found;
}

static void fill(void)
{
    struct kvc *k = rig_open(&rig, 2u << 20);
    struct kvc_ns *ns = rig_ns(k, "kept", BT, RIG_BLOCK);
    for (uint32_t c = 0; c < CHAINS; c++) {
        rig_keys(ns, c, BT, LEN, keys);
        ck_assert_uint_eq(rig_store(k, ns, keys, 0, LEN, BT, RIG_BLOCK, statuses), LEN);
    }
    kvc_close(&k);
}

/* Blocks that are there; rig_load() compares every byte. */
static uint32_t read_all(void)
{
    uint32_t hit = 0;
    struct kvc *k = rig_open(&rig, 0);
    struct kvc_ns *ns = rig_ns(k, "kept", BT, RIG_BLOCK);
    for (uint32_t c = 0; c < CHAINS; c++) {
        rig_keys(ns, c, BT, LEN, keys);
        hit += rig_load(k, ns, keys, LEN, BT, RIG_BLOCK);
    }
    kvc_close(&k);
    return hit;
}

static struct manager_stats stats(void)
{
    struct manager_stats s;
    manager_stats(&s);
    return s;
}

CASES(.timeout_s = 300);

CASE(blocks_are_there_again_after_kill_and_after_a_restart)
{
    if (!can_keep())
        return;
    manager_begin(STORE_MAX);
    rig_start(&rig, sets);
    fill();
    ck_assert_uint_eq(read_all(), CHAINS * LEN);
    for (unsigned i = 0; i < 3; i++) {
        if (i % 2 == 0)
            rig_kill(&rig);
        else
            rig_stop(&rig);
        rig_restart(&rig, sets);
        const uint32_t hit = read_all();
        printf("  %u of %u blocks back, %u descriptors kept\n", hit, CHAINS * LEN, stats().held);
        ck_assert_uint_ge(hit, CHAINS * LEN * 99 / 100);
    }
    ck_assert_uint_eq(stats().ready, 4); /* each of them said so */
    ck_assert_uint_eq(stats().refused, 0);
    rig_stop(&rig);
    rig_clean(&rig);
    manager_end();
}

CASE(a_stop_is_the_end_of_it)
{
    if (!can_keep())
        return;
    manager_begin(STORE_MAX);
    rig_start(&rig, sets);
    fill();
    rig_stop(&rig);
    ck_assert_uint_gt(stats().held, 1);
    manager_forget();
    rig_restart(&rig, sets);
    ck_assert_uint_eq(read_all(), 0);
    rig_stop(&rig);
    rig_clean(&rig);
    manager_end();
}

CASE(a_full_store_costs_blocks_after_a_restart_and_nothing_before)
{
    if (!can_keep())
        return;
    manager_begin(2); /* the names and one chunk of the five or more that are filled */
    rig_start(&rig, sets);
    fill();
    ck_assert_uint_eq(read_all(), CHAINS * LEN);
    ck_assert_uint_gt(stats().refused, 0);
    rig_kill(&rig);
    rig_restart(&rig, sets);
    const uint32_t hit = read_all();
    printf("  %u of %u blocks back from a store of 2\n", hit, CHAINS * LEN);
    ck_assert_uint_lt(hit, CHAINS * LEN);
    rig_stop(&rig);
    rig_clean(&rig);
    manager_end();
}
