/* SPDX-License-Identifier: Apache-2.0 */
/* A guaranteed share in chunks of real memory: two owners of one principal, whose blocks differ in
 * size. One keeps a small block here and there; the other stores its whole share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"

#define MIB    (1u << 20)
#define BT     16u
#define SMALL  4096u
#define LARGE  65536u
#define SHARE  (16u * MIB)
#define LIMIT  (64u * MIB)
#define STRIDE (512u * 1024 / SMALL) /* a slab of small blocks, which one of them keeps */
#define BLOCKS (LIMIT / SMALL)
#define HOLDS  (BLOCKS / STRIDE)

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *small, *large;

/* Two principals, so that chunks can pass from one to another. */
static void setup(void)
{
    char file[96];
    const char *const sets[] = {file, "host.limit=64MiB", "index.blocks=65536", NULL};
    rig_dir(&rig);
    snprintf(file, sizeof file, "@%s/principals.yaml", rig.dir);
    FILE *f = fopen(file + 1, "we");
    ck_assert_ptr_nonnull(f);
    fprintf(f,
            "principals:\n"
            "  - {name: self, uids: [%u], tenant: default, admin: true}\n"
            "  - {name: other, uids: [%u], tenant: other}\n",
            (unsigned)geteuid(), (unsigned)geteuid() + 1);
    ck_assert_int_eq(fclose(f), 0);
    rig_restart(&rig, sets);
    k = rig_open(&rig, 8 * MIB);
    small = rig_ns(k, "small", BT, SMALL);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

static uint32_t store(struct kvc_ns *ns, uint32_t size, uint32_t chain)
{
    uint8_t key[KVC_KEY_BYTES], status;
    rig_keys(ns, chain, BT, 1, key);
    return rig_store(k, ns, key, 0, 1, BT, size, &status);
}

static void guarantee(uint64_t share)
{
    const struct kvc_quota q = {.scope = KVC_SCOPE_NS,
                                .ns = kvc_ns_id(large),
                                .host_limit = UINT64_MAX,
                                .nvme_limit = UINT64_MAX,
                                .host_share = share};
    ck_assert_int_eq(kvc_quota_set(k, &q), 0);
}

static bool hold(struct kvc_ns *ns, uint32_t chain, struct kvc_hold **ret_hold)
{
    uint8_t key[KVC_KEY_BYTES];
    rig_keys(ns, chain, BT, 1, key);
    const struct kvc_seq seq = rig_seq(key, 1, BT);
    int rc;
    do
        rc = kvc_acquire(ns, &seq, NULL, ret_hold); /* BUSY: too much would have to be moved */
    while (rc == KVC_E_BUSY);
    ck_assert(rc == 0 || rc == KVC_E_LIMIT);
    if (rc == 0 && (*ret_hold)->group[0].n == 0)
        kvc_release(k, ret_hold);
    return rc == 0 && *ret_hold;
}

static uint32_t there(uint32_t chain, uint32_t n)
{
    uint32_t hits = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t key[KVC_KEY_BYTES];
        rig_keys(large, chain + i, BT, 1, key);
        hits += rig_load(k, large, key, 1, BT, LARGE);
    }
    return hits;
}

static uint32_t lines_with(const char *text)
{
    char log[96], line[1024];
    uint32_t n = 0;
    snprintf(log, sizeof log, "%s/log", rig.dir);
    FILE *f = fopen(log, "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        n += strstr(line, text) != NULL;
    fclose(f);
    return n;
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 250);

/* As many chunks as the rest of its principal may keep have one in each slab, and the other
 * principal is promised some: what is guaranteed is left all the same. */
CASE(what_the_rest_of_its_principal_keeps_leaves_a_share_whole)
{
    struct kvc_hold *holds[HOLDS];
    uint32_t held = 0;
    large = rig_ns(k, "large", BT, LARGE);
    ck_assert_uint_eq(lines_with("a principal of its own"), 0);
    guarantee(SHARE);
    ck_assert_uint_eq(lines_with("a principal of its own"), 1);
    for (uint32_t i = 0; i < BLOCKS; i++)
        (void)store(small, SMALL, 1 + i);
    for (uint32_t i = 0; i < BLOCKS; i += STRIDE)
        held += hold(small, 1 + i, &holds[held]);
    ck_assert_uint_eq(held, HOLDS);
    for (uint32_t i = 0; i < SHARE / LARGE; i++)
        ck_assert_uint_eq(store(large, LARGE, 1000000 + i), 1);
    ck_assert_uint_eq(there(1000000, SHARE / LARGE), SHARE / LARGE);
    for (uint32_t i = 0; i < held; i++)
        kvc_release(k, &holds[i]);
}

CASE(blocks_that_leave_much_of_each_chunk_empty_are_told_of)
{
    large = rig_ns(k, "large", BT, LARGE);
    ck_assert_uint_eq(lines_with("set host.chunk to"), 0);
    (void)rig_ns(k, "huge", BT, 2 * MIB); /* one in a chunk of 4 MiB */
    ck_assert_uint_eq(lines_with("(huge): blocks of "), 1);
    ck_assert_uint_eq(lines_with("set host.chunk to 32"), 1);
}
