/* SPDX-License-Identifier: Apache-2.0 */
/* How kvcachectl takes the beginnings of keys that it shows itself; and that its figures agree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cases.h"
#include "rig_ctl.h"

#define BT     16u
#define MIB    (1u << 20)
#define BLOCKS 8u

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *ns;
static uint8_t keys[BLOCKS * KVC_KEY_BYTES], statuses[BLOCKS];

static void setup(void)
{
    char store[160], paths[192];
    const char *const sets[] = {paths, "nvme.limit=64MiB", "nvme.segment=4MiB", NULL};
    rig_dir(&rig);
    snprintf(store, sizeof store, "%s/store", rig.dir);
    snprintf(paths, sizeof paths, "nvme.paths=%s", store);
    ck_assert_int_eq(mkdir(store, 0700), 0);
    rig_restart(&rig, sets);
    k = rig_open(&rig, 4 * MIB);
    ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, BLOCKS, BT, RIG_BLOCK, statuses), BLOCKS);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

static const uint8_t *key_at(uint32_t block)
{
    return keys + (size_t)block * KVC_KEY_BYTES;
}

/* ---- the first 16 digits, as tables show them ---- */

/* Of the tables that show them. */
static void take_shown(char shown[17], const char *words, const char *whole)
{
    ctl(&rig, 0, "%s", words);
    snprintf(shown, 17, "%.16s", whole);
    SAYS(shown);
    SAYS_NOT(whole);
}

CASES(.setup = setup, .teardown = teardown);

CASE(each_command_takes_what_a_table_shows)
{
    char tip[17], third[17], words[120];
    const uint32_t id = kvc_ns_id(ns);
    snprintf(words, sizeof words, "blocks --ns %u --key %s", id, key_text(key_at(BLOCKS - 1)));
    take_shown(tip, words, key_text(key_at(BLOCKS - 1)));
    take_shown(third, words, key_text(key_at(2)));
    ctl(&rig, 0, "explain %s %.20s", tip, key_text(key_at(2)));
    SAYS("present");
    SAYS(third);
    ctl(&rig, 0, "blocks --key %s --json", third);
    SAYS(key_text(key_at(2)));
    SAYS_NOT(key_text(key_at(3)));
    ctl(&rig, 0, "blocks --key %s --ns %u --down --depth 1 --json", third, id);
    SAYS(key_text(key_at(3)));
    ctl(&rig, 0, "doc put book --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "doc show book");
    SAYS(key_text(key_at(BLOCKS - 1)));
    ctl(&rig, 0, "conv save talk --ns %u --tip %s", id, third);
    ctl(&rig, 0, "conv extend talk --tip %s", tip);
    ctl(&rig, 0, "conv show talk");
    SAYS(key_text(key_at(BLOCKS - 1)));
    ctl(&rig, 0, "pin add --ns %u --tip %s", id, third);
    const unsigned long long pin = strtoull(said + strlen("pin "), NULL, 10);
    take_shown(third, "pin list", key_text(key_at(2)));
    ctl(&rig, 0, "pin rm %llu", pin);
    ctl(&rig, 0, "doc forget book");
    ctl(&rig, 0, "conv forget talk");
    ctl(&rig, 0, "evict --key %s", tip);
    SAYS("evicted 1 block");
    ctl(&rig, 0, "evict --prefix %s", third);
    SAYS("evicted 5 blocks");
    SAYS_NOT("kept");
}

CASE(keys_that_begin_alike_are_told)
{
    uint8_t like[KVC_KEY_BYTES];
    char whole[2 * KVC_KEY_BYTES + 1];
    memcpy(like, key_at(0), sizeof like);
    like[8] ^= 0x01; /* the 18th digit */
    snprintf(whole, sizeof whole, "%s", key_text(like));
    ck_assert_uint_eq(rig_store(k, ns, like, 0, 1, BT, RIG_BLOCK, statuses), 1);
    static const char *const ways[] = {"explain",
                                       "blocks --key",
                                       "evict --dry-run --key",
                                       "doc put book --tip",
                                       "conv save talk --tip",
                                       "pin add --tip"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        ctl(&rig, 2, "%s %.*s --ns %u", ways[i], i % 2 ? 16 : 17, whole, kvc_ns_id(ns));
        SAYS("the keys of several blocks begin with");
        SAYS(whole);
        SAYS(key_text(key_at(0)));
    }
    ctl(&rig, 0, "explain %.18s", whole);
    SAYS("present");
    ctl(&rig, 0, "evict --key %.18s", whole);
    SAYS("evicted 1 block,");
    ctl(&rig, 0, "explain %.16s", whole); /* the other one is alone now */
}

CASE(one_key_in_two_namespaces_is_one_key)
{
    struct kvc_ns *other = rig_ns(k, "other", BT, RIG_BLOCK);
    ck_assert_uint_eq(rig_store(k, other, keys, 0, 1, BT, RIG_BLOCK, statuses), 1);
    ctl(&rig, 0, "explain %.16s --json", key_text(key_at(0)));
    char both[80];
    snprintf(both, sizeof both, "\"ns\":%u", kvc_ns_id(ns));
    SAYS(both);
    snprintf(both, sizeof both, "\"ns\":%u", kvc_ns_id(other));
    SAYS(both);
    ctl(&rig, 2, "blocks --key %.16s", key_text(key_at(0)));
    SAYS("several places; say which: --ns");
    ctl(&rig, 0, "evict --key %.16s --ns %u", key_text(key_at(0)), kvc_ns_id(other));
    SAYS("evicted 1 block,");
}

CASE(a_beginning_that_nothing_has_is_told)
{
    ctl(&rig, 1, "explain 0123456789abcdef");
    SAYS("no block whose key begins with 0123456789abcdef is cached;");
    ctl(&rig, 1, "evict --key 0123456789abcdef --ns %u", kvc_ns_id(ns));
    SAYS("is cached in that namespace");
    ctl(&rig, 1, "blocks --key 0123456789abcdef --ns 77");
    SAYS("no namespace 77");
    ctl(&rig, 2, "explain 0123456789abcde");
    SAYS("at least the first 16 of them, and this has fewer");
}

/* ---- figures ---- */

/* The number behind "NAME": in what was said, which is the only one of that name. */
static uint64_t number(const char *name)
{
    char quoted[80];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(said, quoted);
    ck_assert_msg(at != NULL, "no %s in: %s", quoted, said);
    return strtoull(at + strlen(quoted), NULL, 10);
}

static uint64_t stat_of(const char *name)
{
    ctl(&rig, 0, "stats --json %s", name);
    return number(name);
}

/* What verify reads of a tier is what stats counts in it. 3 blocks have one shard only: they are
 * left out, and told so; `theirs`: what they have in the tier. */
static void alike(const char *tier, const char *blocks, const char *bytes, uint64_t theirs)
{
    const uint64_t want_blocks = stat_of(blocks), want_bytes = stat_of(bytes);
    ctl(&rig, 0, "verify --rate 0 --tier %s --json", tier);
    const char *done = strstr(said, "{\"event\":\"done\"");
    ck_assert_ptr_nonnull(done);
    memmove(said, done, strlen(done) + 1);
    ck_assert_uint_gt(want_blocks, 0);
    ck_assert_uint_eq(number("blocks"), want_blocks);
    ck_assert_uint_eq(number("bytes"), want_bytes);
    ck_assert_uint_eq(number("bytes_total"), want_bytes + theirs);
    ck_assert_uint_eq(number("skipped"), 3);
    ck_assert_uint_eq(number("failed") + number("corrupt"), 0);
}

/* Two ranks: all of a sequence by both, its end partly filled; of another one the first has stored
 * its part, and the second has not. */
static void store_shards(struct kvc *rank[2])
{
    static uint32_t ids[3 * BT + 5];
    static uint8_t mine[8 * KVC_KEY_BYTES];
    struct kvc_ns_spec spec = rig_spec("tp2", BT, RIG_BLOCK);
    struct kvc_ns *part[2];
    spec.shards = 2;
    for (uint32_t r = 0; r < 2; r++) {
        const struct kvc_options o = {
            .socket = rig.socket, .staging_bytes = MIB, .shard = r, .must_connect = true};
        ck_assert_int_eq(kvc_open(&o, &rank[r]), 0);
        ck_assert_int_eq(kvc_ns_open(rank[r], &spec, &part[r]), 0);
    }
    for (uint32_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        ids[i] = 7 * i;
    const uint32_t n = sizeof ids / sizeof ids[0];
    ck_assert_int_eq(kvc_hash_chain(kvc_ns_seed(part[0]), ids, n, BT, NULL, 0, mine), 4);
    for (uint32_t r = 0; r < 2; r++) {
        uint64_t room, offsets[4];
        uint8_t *staging = kvc_staging(rank[r], &room);
        for (uint32_t i = 0; i < 4; i++) {
            offsets[i] = (uint64_t)i * RIG_BLOCK;
            rig_fill(mine + (size_t)i * KVC_KEY_BYTES, staging + offsets[i], RIG_BLOCK);
        }
        const struct kvc_blocks b = {
            .keys = mine, .n = 4, .last_tokens = n - 3 * BT, .flags = KVC_F_ADMIT};
        ck_assert_int_eq(kvc_store(part[r], &b, offsets, NULL, 0, statuses), 0);
        for (uint32_t i = 0; i < 4; i++)
            ck_assert_uint_eq(statuses[i], KVC_ST_OK);
    }
    rig_keys(part[0], 2, BT, 3, mine);
    ck_assert_uint_eq(rig_store(rank[0], part[0], mine, 0, 3, BT, RIG_BLOCK, statuses), 3);
}

CASE(verify_reads_what_stats_count_with_shards_and_partly_filled_blocks)
{
    struct kvc *rank[2];
    store_shards(rank);
    const uint64_t blocks = stat_of("core.blocks_in_memory");
    ck_assert_uint_eq(blocks, BLOCKS + 4);
    alike("host", "core.blocks_in_memory", "core.bytes_in_memory", 3 * RIG_BLOCK);
    rig_drain(k);
    ck_assert_uint_eq(stat_of("core.blocks_on_disk"), blocks);
    alike("nvme", "core.blocks_on_disk", "core.bytes_on_disk", 0);
    kvc_close(&rank[0]);
    kvc_close(&rank[1]);
}

/* ---- rows, to the byte ---- */

CASE(quotas_are_shown_as_they_always_were)
{
    ctl(&rig, 0, "quota show");
    SAYS("no quotas: everyone may hold what there is");
    ctl(&rig, 0, "quota set --tenant acme --sub eu --host 4MiB --nvme 0B --json");
    SAYS("{\"scope\":\"sub_tenant\",\"tenant\":\"acme\",\"sub_tenant\":\"eu\",\"ns\":0,"
         "\"host_limit\":4194304,\"nvme_limit\":0,\"host_share\":0,\"nvme_share\":0,"
         "\"host_bytes\":0,\"nvme_bytes\":0,\"host_promised\":0,\"nvme_promised\":0}\n");
    ctl(&rig, 0, "quota set --tenant acme --host-share 1MiB");
    SAYS("acme    0 B      -  1.00 MiB         -   0 B      -      -         -\n");
    ctl(&rig, 0, "quota show --json");
    SAYS("{\"quotas\":[{\"scope\":\"sub_tenant\",");
    SAYS("\"ns\":0,\"host_limit\":null,\"nvme_limit\":null,\"host_share\":1048576,");
}

CASE(names_paths_and_devices_are_shown_as_they_always_were)
{
    char words[160];
    ctl(&rig, 1, "doc list b");
    SAYS("no document begins with that\n");
    ctl(&rig, 0, "doc put book --ns %u --tip %s", kvc_ns_id(ns), key_text(key_at(BLOCKS - 1)));
    ctl(&rig, 0, "doc list b --json");
    SAYS("{\"documents\":[{\"kind\":\"document\",\"name\":\"book\",\"principal\":");
    snprintf(words, sizeof words,
             "\"sub_tenant\":\"\",\"model\":\"m\",\"ns\":%u,\"tokens\":128,"
             "\"tokens_cached\":128,\"blocks\":8,\"bytes\":%u,\"bytes_in_memory\":",
             kvc_ns_id(ns), BLOCKS * RIG_BLOCK);
    SAYS(words);
    SAYS("\"ttl_ms\":0,\"priority\":35,\"pinned\":false,\"has_tokens\":false,\"tip\":\"");
    ctl(&rig, 0, "doc list");
    SAYS("NAME  TENANT   MODEL     NS  TOKENS  CACHED");
    SAYS(" ago    -\n");
    ctl(&rig, 0, "conv list --json");
    SAYS("{\"conversations\":[],\"names_error\":null}\n");
    ctl(&rig, 0, "stats --json paths");
    SAYS("{\"paths\":[{\"path\":\"");
    SAYS("kvcache.store\",\"state\":\"");
    SAYS(",\"error\":\"\",\"bytes\":");
    SAYS(",\"errors\":0,\"outs\":0}],\"writes\":{\"per_day_bytes\":0,\"spent_bytes\":");
    ctl(&rig, 0, "gpu --json");
    SAYS("{\"devices\":[]}\n");
}
