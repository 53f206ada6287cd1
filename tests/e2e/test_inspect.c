/* SPDX-License-Identifier: Apache-2.0 */
/* What operators see of a real daemon, and what it does when its memory goes bad. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"

#define BT  16u
#define MIB (1u << 20)

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *ns;
static uint8_t keys[256 * KVC_KEY_BYTES], statuses[256];

static void setup(void)
{
    rig_start(&rig, NULL);
    k = rig_open(&rig, 4 * MIB);
    ns = rig_ns(k, "m", BT, RIG_BLOCK);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

static const uint8_t *key_at(uint32_t i)
{
    return keys + (size_t)i * KVC_KEY_BYTES;
}

static void store(uint32_t chain, uint32_t n)
{
    rig_keys(ns, chain, BT, n, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, n, BT, RIG_BLOCK, statuses), n);
}

/* ---- the daemon's memory, from outside ---- */

static int take_offset(void *ctx, const void *row)
{
    const struct kvc_block_info *x = row;
    uint64_t *off = ctx;
    ck_assert_uint_eq(x->state, KVC_BLOCK_PRESENT);
    *off = x->offset;
    return 0;
}

/* Where the daemon has the bytes that belong to `key`, offset `off` into one of its memfds; each of
 * its mappings of a memfd is tried. */
static uint64_t find_bytes(int mem, const uint8_t *key, uint64_t off)
{
    static uint8_t bytes[RIG_BLOCK];
    char path[64], line[512];
    uint64_t found = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)rig.pid);
    FILE *maps = fopen(path, "r");
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof(line), maps)) {
        char *rest, *fields = strchr(line, '-');
        uint64_t begin = strtoull(line, NULL, 16);
        ck_assert_ptr_nonnull(fields);
        uint64_t end = strtoull(fields + 1, &rest, 16);
        bool memfd = strstr(rest, "memfd:") && rest[2] == 'w';
        if (!memfd || off + RIG_BLOCK > end - begin)
            continue;
        ssize_t n = pread(mem, bytes, sizeof(bytes), (off_t)(begin + off));
        if (n == (ssize_t)sizeof(bytes) && rig_check(key, bytes, sizeof(bytes)))
            found = begin + off;
    }
    fclose(maps);
    return found;
}

/* Flips one bit of a stored block behind the daemon's back. False where the system forbids that. */
static bool flip(const uint8_t *key)
{
    char path[64];
    uint64_t off = 0;
    uint8_t byte;
    const struct kvc_filter one = {.mode = KVC_WALK_KEYS, .ns = kvc_ns_id(ns), .keys = key, .n = 1};
    ck_assert_int_eq(kvc_list(k, KVC_TABLE_BLOCKS, &one, take_offset, &off), 0);
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)rig.pid);
    int mem = open(path, O_RDWR | O_CLOEXEC);
    if (mem < 0) {
        printf("SKIP: %s cannot be opened for writing here\n", path);
        return false;
    }
    uint64_t at = find_bytes(mem, key, off);
    ck_assert_uint_ne(at, 0);
    at += RIG_BLOCK / 2;
    ck_assert_int_eq(pread(mem, &byte, 1, (off_t)at), 1);
    byte ^= 0x40;
    ck_assert_int_eq(pwrite(mem, &byte, 1, (off_t)at), 1);
    close(mem);
    return true;
}

/* A whole pass; returns the number of blocks read. */
static uint64_t verify(struct kvc *by, struct kvc_verified *ret_last_corrupt)
{
    struct kvc_verify in = {.bytes_max = 4 * RIG_BLOCK};
    struct kvc_verified v;
    uint64_t blocks = 0;
    ret_last_corrupt->corrupt = 0;
    do {
        ck_assert_int_eq(kvc_verify_slice(by, &in, &v), 0);
        blocks += v.blocks;
        in.cursor = v.cursor;
        if (v.corrupt > 0)
            *ret_last_corrupt = v;
    } while (v.cursor);
    return blocks;
}

CASES(.setup = setup, .teardown = teardown);

CASE(good_memory_stays)
{
    struct kvc_verified bad;
    store(1, 100);
    ck_assert_uint_eq(verify(k, &bad), 100);
    ck_assert_uint_eq(bad.corrupt, 0);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_verified"), 100);
    ck_assert_uint_eq(rig_stat(k, "core.bytes_verified"), 100 * RIG_BLOCK);
    ck_assert_uint_eq(rig_load(k, ns, keys, 100, BT, RIG_BLOCK), 100);
}

CASE(a_flipped_bit_is_a_miss_with_its_reason_and_never_wrong_bytes)
{
    struct kvc_verified bad;
    struct kvc_prefix p;
    store(1, 64);
    if (!flip(key_at(40)))
        return;
    (void)verify(k, &bad);
    ck_assert_uint_eq(bad.corrupt, 1);
    ck_assert_mem_eq(bad.found[0].key, key_at(40), KVC_KEY_BYTES);
    ck_assert_uint_eq(bad.found[0].below, 23);
    ck_assert_uint_eq(rig_load(k, ns, keys, 64, BT, RIG_BLOCK), 40); /* each byte is checked */
    struct kvc_seq seq = rig_seq(keys, 64, BT);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 40 * BT);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_CORRUPT);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_corrupt"), 1);
    ck_assert_uint_eq(rig_store(k, ns, keys, 40, 64, BT, RIG_BLOCK, statuses), 24);
    ck_assert_uint_eq(rig_load(k, ns, keys, 64, BT, RIG_BLOCK), 64);
}

CASE(who_reads_a_corrupt_block_finds_it_stale)
{
    struct kvc_verified bad;
    struct kvc_hold *hold, *second;
    store(1, 8);
    struct kvc_seq seq = rig_seq(keys, 8, BT);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    ck_assert_int_eq(kvc_hold_check(hold), 0);
    if (!flip(key_at(7))) {
        kvc_release(k, &hold);
        return;
    }
    (void)verify(k, &bad);
    ck_assert_uint_eq(bad.corrupt, 1);
    ck_assert_int_eq(kvc_hold_check(hold), KVC_STALE);
    struct kvc *other = rig_open(&rig, 0);
    struct kvc_ns *same = rig_ns(other, "m", BT, RIG_BLOCK);
    ck_assert_int_eq(kvc_redeem(same, hold->ticket, &second), KVC_E_NO_LEASE);
    kvc_close(&other);
    kvc_release(k, &hold);
    ck_assert_uint_eq(rig_load(k, ns, keys, 8, BT, RIG_BLOCK), 7);
    rig_wait_stat(k, "core.leases", 0);
    ck_assert_uint_eq(rig_stat(k, "daemon.host_used_slots"), 7);
}

/* ---- walks ---- */

struct seen {
    uint32_t n, stop_at;
    uint8_t key[256 * KVC_KEY_BYTES];
    uint32_t leases;
};

static int see(void *ctx, const void *row)
{
    struct seen *s = ctx;
    const struct kvc_block_info *w = row;
    ck_assert_uint_lt(s->n, 256);
    memcpy(s->key + (size_t)s->n++ * KVC_KEY_BYTES, w->key, KVC_KEY_BYTES);
    s->leases += w->leases;
    ck_assert_uint_eq(w->tier, KVC_TIER_HOST);
    return s->n == s->stop_at ? 7 : 0;
}

CASE(a_chain_is_walked_both_ways)
{
    struct seen up = {0}, down = {0}, few = {.stop_at = 3};
    store(1, 200);
    struct kvc_filter walk = {.ns = kvc_ns_id(ns), .keys = key_at(199), .n = 1};
    ck_assert_int_eq(kvc_list(k, KVC_TABLE_BLOCKS, &walk, see, &up), 0);
    ck_assert_uint_eq(up.n, 200);
    ck_assert_mem_eq(up.key, key_at(199), KVC_KEY_BYTES);
    walk.keys = key_at(0);
    walk.mode = KVC_WALK_DOWN;
    ck_assert_int_eq(kvc_list(k, KVC_TABLE_BLOCKS, &walk, see, &down), 0);
    ck_assert_uint_eq(down.n, 200);
    ck_assert_mem_eq(down.key, keys, sizeof(keys[0]) * 200 * KVC_KEY_BYTES);
    ck_assert_int_eq(kvc_list(k, KVC_TABLE_BLOCKS, &walk, see, &few), 7);
    ck_assert_uint_eq(few.n, 3);
}
