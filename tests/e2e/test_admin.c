/* SPDX-License-Identifier: Apache-2.0 */
/* What operators do with kvcachectl: documents, conversations, pins, quotas, the policy, usage;
 * documents that go from one daemon to another as a file. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"
#include "rig_ctl.h"

#define BT     16u
#define KIB    (1u << 10)
#define MIB    (1u << 20)
#define BLOCKS 48u
#define TOKENS (BLOCKS * BT)

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *ns;
static char paths[128];
static uint8_t keys[BLOCKS * KVC_KEY_BYTES], statuses[BLOCKS];

static void start_with(struct rig *r, const char *limit)
{
    char dir[80];
    const char *const sets[] = {paths, limit, "nvme.segment=4MiB", NULL};
    rig_dir(r);
    snprintf(dir, sizeof dir, "%s/store", r->dir);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    snprintf(paths, sizeof paths, "nvme.paths=%s", dir);
    rig_restart(r, sets);
}

static void start(struct rig *r)
{
    start_with(r, "nvme.limit=96MiB");
}

static void store(uint32_t chain, uint32_t first)
{
    rig_keys(ns, chain, BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, first, BLOCKS, BT, RIG_BLOCK, statuses),
                      BLOCKS - first);
}

static void setup(void)
{
    start(&rig);
    k = rig_open(&rig, 4 * MIB);
    ns = rig_ns(k, "m", BT, RIG_BLOCK);
    store(1, 0);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

/* The ids of a chain of the rig's, as a file in r's directory. */
static void write_ids(const struct rig *r, const char *name, uint32_t chain, uint32_t n)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    fputc('[', f);
    for (uint32_t i = 0; i < n; i++)
        fprintf(f, "%s%u", i ? "," : "", chain * 1000003u + i);
    fputs("]\n", f);
    fclose(f);
}

static const char *hex(uint32_t block)
{
    return key_text(keys + (size_t)block * KVC_KEY_BYTES);
}

/* ---- names ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(a_document_from_put_to_forget)
{
    const uint32_t id = kvc_ns_id(ns);
    ctl(&rig, 0, "doc list");
    write_ids(&rig, "book.json", 1, TOKENS);
    ctl(&rig, 0, "doc put book --ns %u --tokens book.json --priority 60 --ttl 2h --durable", id);
    SAYS("document 'book': 768 tokens, 384.00 KiB");
    ctl(&rig, 0, "doc list");
    SAYS("book");
    ctl(&rig, 0, "doc show book");
    SAYS("768 of them");
    SAYS("kept");
    SAYS(hex(BLOCKS - 1));
    ctl(&rig, 0, "doc pin book");
    ctl(&rig, 0, "doc show book --json");
    SAYS("\"pinned\":true");
    SAYS("\"priority\":60");
    SAYS("\"ttl_ms\":7200000");
    SAYS("\"has_tokens\":true");
    ctl(&rig, 0, "evict --all");
    SAYS("evicted 0 blocks, 0 B; kept 48");
    ctl(&rig, 0, "doc pin book --off");
    ctl(&rig, 0, "doc show book --json");
    SAYS("\"pinned\":false");
    ctl(&rig, 0, "doc preload book");
    SAYS("384.00 KiB of 384.00 KiB in memory");
    ctl(&rig, 0, "doc list bo --json");
    SAYS("\"tokens_cached\":768");
    ctl(&rig, 1, "doc list boz");
    ctl(&rig, 0, "doc forget book");
    ctl(&rig, 1, "doc show book");
    SAYS("there is no document 'book'");
    ck_assert_uint_eq(rig_load(k, ns, keys, BLOCKS, BT, RIG_BLOCK), BLOCKS);
    ctl(&rig, 0, "evict --all");
    SAYS("evicted 48 blocks");
}

CASE(a_conversation_moves_and_goes)
{
    const uint32_t id = kvc_ns_id(ns);
    ctl(&rig, 0, "conv save talk --ns %u --tip %s", id, hex(9));
    SAYS("160 tokens");
    ctl(&rig, 0, "conv extend talk --ttl 1h");
    ctl(&rig, 0, "conv extend talk --tip %s", hex(20));
    SAYS("336 tokens");
    ctl(&rig, 0, "conv extend talk --ttl none");
    SAYS("does not go by itself");
    ctl(&rig, 0, "conv extend talk --ttl 1h");
    SAYS("not used for 1 h");
    ctl(&rig, 0, "conv show talk");
    SAYS("1 h 0 min");
    ctl(&rig, 0, "conv list");
    ctl(&rig, 0, "conv preload talk --no-wait");
    ctl(&rig, 2, "conv extend talk");
    ctl(&rig, 1, "conv save talk --ns %u --tip %064d", id, 7);
    SAYS("the last block is not cached");
    ctl(&rig, 0, "evict --conv talk --dry-run");
    SAYS("would evict conversation 'talk': 0 blocks, 0 B; 21 stay: 21 built on by "
         "blocks that stay");
    ctl(&rig, 0, "conv extend talk --tip %s", hex(BLOCKS - 1));
    ctl(&rig, 0, "evict --conv talk --dry-run");
    SAYS("would evict conversation 'talk': 48 blocks, 384.00 KiB (384.00 KiB in host memory");
    SAYS_NOT("stay");
    ctl(&rig, 0, "conv forget talk --evict");
    SAYS("forgotten, and 48 blocks of it, 384.00 KiB, are gone\n");
    ctl(&rig, 1, "evict --conv talk");
    ctl(&rig, 0, "conv list");
}

/* As nanoseconds they would not fit in 64 bits. */
CASE(times_of_many_centuries_are_shown_as_such)
{
    const struct kvc_seq seq = rig_seq(keys, BLOCKS, BT);
    struct kvc_name_options options = {.ttl_ms = UINT64_C(700) * 365 * 86400 * 1000};
    uint64_t pin;
    ck_assert_int_eq(kvc_name_put(ns, KVC_NAME_CONVERSATION, "old", &seq, &options, NULL), 0);
    ck_assert_int_eq(kvc_pin(ns, &seq, false, options.ttl_ms, &pin), 0);
    ctl(&rig, 0, "conv show old");
    SAYS("213503 d 23 h");
    ctl(&rig, 0, "conv list");
    SAYS("213503 d 23 h");
    ctl(&rig, 0, "pin list");
    SAYS("213503 d 23 h");
    options.ttl_ms = UINT64_MAX - 1;
    ck_assert_int_eq(kvc_name_put(ns, KVC_NAME_CONVERSATION, "old", &seq, &options, NULL), 0);
    ctl(&rig, 0, "conv show old --json");
    SAYS("\"ttl_ms\":9223372036854775807");
}

CASE(evicting_a_document_spares_what_another_shares)
{
    const uint32_t id = kvc_ns_id(ns);
    ctl(&rig, 0, "doc put part --ns %u --tip %s", id, hex(15));
    ctl(&rig, 0, "doc put whole --ns %u --tip %s", id, hex(BLOCKS - 1));
    ctl(&rig, 0, "evict --doc whole --dry-run --json");
    SAYS("\"dry_run\":true");
    SAYS("\"blocks\":32");
    SAYS("\"kept_blocks\":16");
    ctl(&rig, 0, "evict --doc whole");
    SAYS("evicted document 'whole': 32 blocks, 256.00 KiB (256.00 KiB in host memory");
    SAYS("; 16 stay: 16 shared with other names");
    ck_assert_uint_eq(rig_load(k, ns, keys, BLOCKS, BT, RIG_BLOCK), 16);
    ctl(&rig, 0, "doc show part");
    SAYS("256 of them");
}

/* What went is in the JSON, and not what the name had reached. */
CASE(forgetting_says_what_went)
{
    const uint32_t id = kvc_ns_id(ns);
    ctl(&rig, 0, "doc put part --ns %u --tip %s", id, hex(15));
    ctl(&rig, 0, "doc put whole --ns %u --tip %s", id, hex(BLOCKS - 1));
    ctl(&rig, 0, "doc forget whole --evict --json");
    SAYS(
        "\"evicted\":true,\"blocks\":32,\"bytes\":262144,\"kept_blocks\":16,\"kept\":{\"named\":16,"
        "\"pinned\":0,\"used\":0,\"below\":0,\"passed\":0}}");
    ctl(&rig, 0, "doc forget part --json");
    SAYS("\"evicted\":false,\"blocks\":0,\"bytes\":0,\"kept_blocks\":0,");
}

/* ---- what goes on ---- */

CASE(top_shows_what_was_asked_and_who_holds_it)
{
    ck_assert_uint_eq(rig_load(k, ns, keys, BLOCKS, BT, RIG_BLOCK), BLOCKS);
    ctl(&rig, 0, "top");
    SAYS("since it began");
    SAYS("100.0 % of blocks asked for");
    SAYS("384.00 KiB");
    ctl(&rig, 0, "top --json --count 2 --every 0.1");
    SAYS("\"hit_ratio\":1.0,");
    SAYS("\"tier\":\"host\",\"blocks\":48,\"used_bytes\":393216");
    SAYS("\"blocks\":48,\"host_bytes\":393216,");
    SAYS("\"grows_bytes_per_s\":null");
    SAYS("\"requests_per_s\":");
    SAYS("\"hit_ratio\":null"); /* of the second look: nothing was asked since the first */
    SAYS("\"grows_bytes_per_s\":0.0");
    ctl(&rig, 0, "evict --all");
    ctl(&rig, 0, "top");
    SAYS("0.0 %");
}

/* ---- what stays ---- */

CASE(pins_hold_until_they_are_removed)
{
    const uint32_t id = kvc_ns_id(ns);
    ctl(&rig, 0, "pin list");
    ctl(&rig, 0, "pin add --ns %u --tip %s --ttl 1h --memory --json", id, hex(BLOCKS - 1));
    SAYS("\"tokens\":768");
    ctl(&rig, 0, "pin list");
    SAYS("memory");
    ctl(&rig, 0, "evict --all --dry-run");
    SAYS("kept 48");
    ctl(&rig, 0, "usage");
    SAYS("384.00 KiB");
    ctl(&rig, 0, "sessions list");
    SAYS("kvcachectl");
    ctl(&rig, 1, "sessions end 4711");
    ctl(&rig, 1, "pin rm 4711");
    ctl(&rig, 0, "pin list --json");
    char *at = strstr(said, "\"pin\":");
    ck_assert_ptr_nonnull(at);
    ctl(&rig, 0, "pin rm %llu", strtoull(at + 6, NULL, 10));
    ctl(&rig, 0, "evict --all");
    SAYS("evicted 48 blocks");
    ctl(&rig, 1, "pin add --ns %u --tip %s", id, hex(BLOCKS - 1));
}

/* A daemon of its own, whose one principal is a gateway. */
CASE(pins_say_whose_sub_tenant_they_are)
{
    struct rig gate = {.pid = 0};
    char path[160], set[164];
    rig_dir(&gate);
    snprintf(path, sizeof path, "%s/gate.yaml", gate.dir);
    snprintf(set, sizeof set, "@%s", path);
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "principals:\n  - name: gate\n    uids: [%u]\n    tenant: acme\n    gateway: true\n",
            (unsigned)getuid());
    fclose(f);
    const char *const sets[] = {"host.limit=8MiB", set, NULL};
    rig_restart(&gate, sets);
    struct kvc *of = rig_open(&gate, 4 * MIB);
    struct kvc_ns_spec spec = rig_spec("m", BT, RIG_BLOCK);
    struct kvc_ns *alice;
    spec.sub_tenant = "alice";
    ck_assert_int_eq(kvc_ns_open(of, &spec, &alice), 0);
    rig_keys(alice, 1, BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(of, alice, keys, 0, BLOCKS, BT, RIG_BLOCK, statuses), BLOCKS);
    ctl(&gate, 0, "pin add --ns %u --tip %s", kvc_ns_id(alice), hex(9));
    ctl(&gate, 0, "pin list");
    SAYS("acme/alice");
    ctl(&gate, 0, "pin list --json");
    SAYS("\"sub_tenant\":\"alice\"");
    kvc_close(&of);
    rig_stop(&gate);
    rig_clean(&gate);
}

CASE(quotas_are_shown_set_and_cleared)
{
    const uint32_t id = kvc_ns_id(ns);
    ctl(&rig, 0, "quota show");
    ctl(&rig, 0, "quota set --ns %u --host 1MiB --host-share 256KiB", id);
    SAYS("1.00 MiB");
    ctl(&rig, 0, "quota set --ns %u --nvme 8MiB --json", id);
    SAYS("\"host_limit\":1048576");
    SAYS("\"nvme_limit\":8388608");
    SAYS("\"host_share\":262144");
    ctl(&rig, 0, "quota set --tenant research --sub alice --nvme 1GiB");
    ctl(&rig, 0, "quota show");
    SAYS("research/alice");
    for (uint32_t chain = 2; chain < 8; chain++)
        store(chain, 0);
    ctl(&rig, 0, "usage --json");
    char *at = strstr(said, "\"host_bytes\":");
    ck_assert_ptr_nonnull(at);
    ck_assert_uint_le(strtoull(at + 13, NULL, 10), MIB);
    ctl(&rig, 2, "quota set --ns %u --host 64KiB", id);
    SAYS("share on host");
    ctl(&rig, 0, "quota clear --ns %u", id);
    ctl(&rig, 1, "quota clear --ns %u", id);
    SAYS("no such quota");
}

CASE(a_drain_that_a_quota_stops_says_so)
{
    ctl(&rig, 0, "quota set --ns %u --nvme 64KiB", kvc_ns_id(ns));
    ctl(&rig, 1, "drain");
    SAYS("a quota on storage is used up");
    ctl(&rig, 1, "drain --json");
    SAYS("\"stopped\":\"quota\"");
    ctl(&rig, 0, "quota set --ns %u --nvme none", kvc_ns_id(ns));
    ctl(&rig, 0, "drain");
}

/* A daemon of its own, without storage. */
CASE(a_policy_says_where_it_was_chosen)
{
    struct rig other = {.pid = 0};
    const char *const sets[] = {"policy.eviction=s3fifo", "policy.pin_limit=0", NULL};
    rig_dir(&other);
    rig_restart(&other, sets);
    ctl(&other, 0, "policy show");
    SAYS("s3fifo");
    SAYS("nothing may be pinned");
    SAYS("--set (policy.eviction)");
    SAYS("pays no heed to them");
    SAYS("nothing is written or loaded");
    SAYS("admission          on, without effect: policy s3fifo admits all\n");
    ctl(&other, 0, "policy show --json");
    SAYS("\"hints\":false");
    SAYS("\"admits\":false");
    SAYS("\"admission_in_effect\":false");
    SAYS("\"storage\":false");
    struct kvc *session = rig_open(&other, 1u << 20);
    struct kvc_ns *m = rig_ns(session, "m", 16, 4096);
    uint8_t key[KVC_KEY_BYTES], status;
    uint64_t pin;
    rig_keys(m, 1, 16, 1, key);
    ck_assert_uint_eq(rig_store(session, m, key, 0, 1, 16, 4096, &status), 1);
    const struct kvc_seq seq = rig_seq(key, 1, 16);
    ck_assert_int_eq(kvc_pin(m, &seq, false, 0, &pin), KVC_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(session), "policy.pin_limit is 0"));
    kvc_close(&session);
    rig_stop(&other);
    rig_clean(&other);
}

CASE(admission_is_told_and_set_where_there_is_no_storage)
{
    struct rig other = {.pid = 0};
    const char *const sets[] = {"policy.admission=false", NULL};
    rig_start(&other, sets);
    ctl(&other, 0, "policy show");
    SAYS("admission          off\n");
    ctl(&other, 0, "policy set --admission on");
    SAYS("admission          on (set; it was off at start)\n");
    ctl(&other, 0, "policy show --json");
    SAYS("\"admission_in_effect\":true");
    SAYS("\"at_start\":{\"keep_percent\":0,\"load_or_recompute\":true,\"admission\":false");
    rig_stop(&other);
    rig_clean(&other);
}

CASE(the_policy_is_shown_and_set)
{
    ctl(&rig, 0, "policy show");
    SAYS("density");
    SAYS("default (policy.eviction)");
    SAYS("load-or-recompute  on\n");
    SAYS("admission          on, without effect: storage takes what leaves memory\n");
    SAYS("write budget");
    SAYS("35 where nothing is wished");
    SAYS(" 35: 48 blocks");
    SAYS_NOT("at start");
    ctl(&rig, 0, "policy show --json");
    SAYS("\"chosen_by\":\"default\"");
    SAYS("\"priorities\":[{\"priority\":35,\"blocks\":48}]");
    SAYS("\"admission\":true");
    SAYS("\"admits\":true");
    SAYS("\"admission_in_effect\":false");
    ctl(&rig, 0, "policy set --load-or-recompute off --keep-percent 10 --pin-limit 128KiB --json");
    SAYS("\"load_or_recompute\":false");
    SAYS("\"keep_percent\":10");
    ctl(&rig, 0, "policy show");
    SAYS("10 % (set; it was 45 % at start)");
    SAYS("off (set; it was on at start)");
    SAYS("128.00 KiB of each tenant (set; it was ");
    ctl(&rig, 0, "policy set --admission off");
    SAYS("load-or-recompute  off (set; it was on at start)\n");
    SAYS("admission          off (set; it was on at start)\n");
    ctl(&rig, 5, "pin add --ns %u --tip %s", kvc_ns_id(ns), hex(BLOCKS - 1));
    SAYS("--pin-limit");
    ctl(&rig, 0, "policy set --pin-limit none");
    ctl(&rig, 0, "pin add --ns %u --tip %s", kvc_ns_id(ns), hex(BLOCKS - 1));
    ctl(&rig, 2, "policy set");
}

static const char *outcome(const char *verb, bool is_by_age)
{
    char *at = strstr(said, verb), *kept;
    ck_assert_msg(at != NULL, "no '%s' in: %s", verb, said);
    at += strlen(verb);
    if (is_by_age && (kept = strstr(at, "; kept ")) != NULL)
        memcpy(kept, "\n", 2);
    return at;
}

/* What a dry run says, and then what went: the same words but for the first. Where the oldest are
 * looked for, time goes on between the two, and others may be looked at on the way. */
static void as_said(const char *filter)
{
    char dry[512];
    const bool is_by_age = strstr(filter, "--bytes") != NULL;
    ctl(&rig, 0, "evict %s --dry-run", filter);
    snprintf(dry, sizeof dry, "%s", outcome("would evict ", is_by_age));
    ctl(&rig, 0, "evict %s", filter);
    ck_assert_str_eq(outcome("evicted ", is_by_age), dry);
    ck_assert_ptr_null(strstr(dry, "evicted 0 blocks"));
}

CASE(an_eviction_does_what_its_dry_run_says)
{
    const uint32_t id = kvc_ns_id(ns);
    char filter[160];
    store(2, 0);
    store(3, 0);
    ctl(&rig, 0, "drain"); /* nothing is written between a dry run and what it was of */
    rig_keys(ns, 1, BT, BLOCKS, keys);
    ctl(&rig, 0, "doc put low --ns %u --tip %s --priority 5", id, hex(5));
    ctl(&rig, 0, "doc forget low");
    ctl(&rig, 0, "doc put book --ns %u --tip %s --priority 80", id, hex(9));
    ctl(&rig, 0, "doc put part --ns %u --tip %s", id, hex(7));
    snprintf(filter, sizeof filter, "--prefix %s", hex(40));
    as_said(filter);
    as_said("--bytes 64KiB");
    as_said("--older-than 1ms --bytes 32KiB");
    rig_keys(ns, 2, BT, BLOCKS, keys);
    snprintf(filter, sizeof filter, "--prefix %s", hex(10));
    as_said(filter);
    as_said("--priority-below 36");
    as_said("--doc book"); /* two of its ten: part has the others */
    store(4, 0);
    as_said("--tenant default");
    store(4, 0);
    as_said("--model m");
    as_said("--model m --force");
    ctl(&rig, 0, "usage");
}

CASE(a_quota_says_what_keeps_it_above_its_limit)
{
    const uint32_t id = kvc_ns_id(ns);
    ctl(&rig, 0, "doc put book --ns %u --tip %s --durable", id, hex(BLOCKS - 1));
    ctl(&rig, 0, "quota set --ns %u --nvme 128KiB", id);
    SAYS(" on storage: 384.00 KiB are held, 256.00 KiB above the limit");
    SAYS("  384.00 KiB are promised");
    SAYS("the limit is reached when 256.00 KiB of that have ended");
    store(2, 0);
    ctl(&rig, 5, "doc put more --ns %u --tip %s", id, hex(3));
    SAYS("QUOTA");
    SAYS("kvcachectl quota show");
    ctl(&rig, 1, "doc show more");
    ctl(&rig, 5, "pin add --ns %u --tip %s", id, hex(3));
    SAYS("kvcachectl quota show");
    ctl(&rig, 0, "pin list");
    ctl(&rig, 0, "quota show");
    SAYS("PROMISED");
    ctl(&rig, 0, "quota show --json");
    SAYS("\"nvme_promised\":393216");
    ctl(&rig, 0, "usage --json");
    SAYS("\"promised_bytes\":393216");
    ctl(&rig, 0, "usage");
    ctl(&rig, 0, "doc forget book");
    ctl(&rig, 0, "doc put more --ns %u --tip %s --durable", id, hex(3));
}

CASE(evicting_by_tenant_model_and_priority)
{
    ctl(&rig, 1, "evict --tenant nobody");
    ctl(&rig, 1, "evict --model nothing");
    ctl(&rig, 1, "evict --priority-below 35");
    ctl(&rig, 0, "doc put book --ns %u --tip %s --priority 80", kvc_ns_id(ns), hex(9));
    ctl(&rig, 0, "evict --model m --priority-below 80");
    SAYS("evicted 38 blocks");
    ctl(&rig, 0, "evict --prefix %s", hex(5));
    SAYS("kept 5");
    ctl(&rig, 0, "evict --prefix %s --force", hex(5));
    SAYS("evicted 5 blocks");
    ctl(&rig, 0, "usage --by model");
    ctl(&rig, 0, "usage --by tenant");
}

/* ---- files ---- */

/* Two ranks; full attention, a sliding window, and a group that all ranks have equal. */
static struct kvc_ns_spec wide(void)
{
    struct kvc_ns_spec s = rig_spec("wide", BT, RIG_BLOCK);
    s.shards = 2;
    s.groups = 3;
    s.group[1] = (struct kvc_group_spec){
        .block_tokens = 32, .block_bytes = 4096, .rule = KVC_RULE_WINDOW, .window = 100};
    s.group[2] = (struct kvc_group_spec){
        .block_tokens = BT, .block_bytes = 1000, .rule = KVC_RULE_FULL, .replicated = true};
    return s;
}

/* What shard `shard` of a block holds, whatever key it has. */
static void fill(uint8_t *p, uint32_t group, uint32_t shard, uint32_t block, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        p[i] = (uint8_t)(i * 7 + block * 13 + shard * 101 + group * 57 + (i >> 8));
}

#define WIDE_TOKENS (TOKENS - 5) /* the last blocks are partly filled */

struct wide_chain {
    struct kvc *rank[2];
    struct kvc_ns *ns[2];
    uint32_t ids[WIDE_TOKENS];
    uint8_t key[3][BLOCKS * KVC_KEY_BYTES];
    struct kvc_seq seq;
};

static void wide_open(const struct rig *r, struct wide_chain *w)
{
    const struct kvc_ns_spec spec = wide();
    *w = (struct wide_chain){.seq = {.tokens = WIDE_TOKENS}};
    for (uint32_t s = 0; s < 2; s++) {
        const struct kvc_options o = {
            .socket = r->socket, .staging_bytes = 4 * MIB, .shard = s, .must_connect = true};
        ck_assert_int_eq(kvc_open(&o, &w->rank[s]), 0);
        ck_assert_int_eq(kvc_ns_open(w->rank[s], &spec, &w->ns[s]), 0);
    }
    for (uint32_t i = 0; i < WIDE_TOKENS; i++)
        w->ids[i] = 5u * 1000003u + i;
    for (uint32_t g = 0; g < 3; g++) {
        const int n = kvc_hash_chain(kvc_ns_seed(w->ns[0]), w->ids, WIDE_TOKENS,
                                     spec.group[g].block_tokens, NULL, 0, w->key[g]);
        ck_assert_int_gt(n, 0);
        w->seq.group[g].keys = w->key[g];
        w->seq.group[g].n = (uint32_t)n;
    }
}

static void wide_close(struct wide_chain *w)
{
    kvc_close(&w->rank[0]);
    kvc_close(&w->rank[1]);
}

static void wide_store(struct wide_chain *w)
{
    const struct kvc_ns_spec spec = wide();
    uint64_t bytes, offsets[BLOCKS];
    for (uint32_t s = 0; s < 2; s++) {
        for (uint32_t g = 0; g < (s == 0 ? 3u : 2u); g++) {
            uint8_t *staging = kvc_staging(w->rank[s], &bytes);
            const uint32_t n = w->seq.group[g].n, size = spec.group[g].block_bytes;
            for (uint32_t i = 0; i < n; i++) {
                offsets[i] = i * UINT64_C(8192);
                fill(staging + offsets[i], g, s, i, size);
            }
            const struct kvc_blocks b = {.group = g,
                                         .keys = w->key[g],
                                         .n = n,
                                         .last_tokens =
                                             WIDE_TOKENS - (n - 1) * spec.group[g].block_tokens};
            ck_assert_int_eq(kvc_store(w->ns[s], &b, offsets, NULL, 0, statuses), 0);
            for (uint32_t i = 0; i < n; i++)
                ck_assert_uint_eq(statuses[i], KVC_ST_OK);
        }
    }
}

/* The whole of it is there, and each byte is what was stored. */
static void wide_check(struct wide_chain *w)
{
    const struct kvc_ns_spec spec = wide();
    static uint8_t want[RIG_BLOCK];
    struct kvc_hold *hold[2] = {NULL, NULL};
    ck_assert_int_eq(kvc_acquire(w->ns[0], &w->seq, NULL, &hold[0]), 0);
    ck_assert_uint_eq(hold[0]->prefix.tokens, WIDE_TOKENS);
    ck_assert_int_eq(kvc_redeem(w->ns[1], hold[0]->ticket, &hold[1]), 0);
    for (uint32_t s = 0; s < 2; s++) {
        for (uint32_t g = 0; g < 3; g++) {
            for (uint32_t i = 0; i < hold[s]->group[g].n; i++) {
                fill(want, g, g == 2 ? 0 : s, hold[s]->group[g].first + i,
                     spec.group[g].block_bytes);
                ck_assert_mem_eq(hold[s]->group[g].block[i].data, want, spec.group[g].block_bytes);
            }
        }
        kvc_release(w->rank[s], &hold[s]);
    }
}

CASE(a_document_goes_to_a_daemon_with_another_seed)
{
    struct rig other = {.pid = 0};
    struct wide_chain a, b;
    wide_open(&rig, &a);
    wide_store(&a);
    write_ids(&rig, "ids.json", 5, WIDE_TOKENS);
    ctl(&rig, 0, "doc put wide --ns %u --tokens ids.json", kvc_ns_id(a.ns[0]));
    ctl(&rig, 0, "doc export wide wide.safetensors");
    SAYS("763 tokens");
    start(&other);
    ctl(&other, 0, "doc import %s/wide.safetensors --name there --pin", rig.dir);
    SAYS("document 'there': 763 tokens");
    SAYS("on stable storage");
    wide_open(&other, &b);
    ck_assert_mem_ne(a.key[0], b.key[0], KVC_KEY_BYTES);
    wide_check(&b);
    ctl(&other, 0, "doc show there --json");
    SAYS("\"has_tokens\":true");
    SAYS("\"tokens_cached\":763");
    wide_close(&a);
    wide_close(&b);
    rig_stop(&other);
    rig_clean(&other);
}

CASE(a_document_without_token_ids_comes_back_to_its_own_seed_only)
{
    struct rig other = {.pid = 0};
    ctl(&rig, 0, "doc put book --ns %u --tip %s", kvc_ns_id(ns), hex(BLOCKS - 1));
    ctl(&rig, 0, "doc export book book.safetensors");
    SAYS("without token ids");
    ctl(&rig, 0, "doc export book - >piped.safetensors && cmp book.safetensors piped.safetensors");
    ctl(&rig, 2, "doc export book - --json");
    ctl(&rig, 0, "doc forget book --evict");
    ck_assert_uint_eq(rig_load(k, ns, keys, BLOCKS, BT, RIG_BLOCK), 0);
    ctl(&rig, 0, "doc import - <piped.safetensors");
    ck_assert_uint_eq(rig_load(k, ns, keys, BLOCKS, BT, RIG_BLOCK), BLOCKS);
    start(&other);
    ctl(&other, 5, "doc import %s/book.safetensors", rig.dir);
    SAYS("another seed");
    SAYS("Give it token ids where it comes from");
    ctl(&other, 0, "doc list");
    rig_stop(&other);
    rig_clean(&other);
}

/* Its keys are not those of its token ids, so ids do not help, and that is not what is advised. */
CASE(a_document_with_keys_of_an_engine_is_told_where_it_can_go)
{
    struct rig other = {.pid = 0};
    write_ids(&rig, "ids.json", 77, TOKENS);
    ctl(&rig, 0, "doc put book --ns %u --tip %s --tokens ids.json", kvc_ns_id(ns), hex(BLOCKS - 1));
    ctl(&rig, 0, "doc export book book.safetensors");
    SAYS("the engine makes keys in its own way");
    start(&other);
    ctl(&other, 5, "doc import %s/book.safetensors", rig.dir);
    SAYS("into a daemon with the same secret");
    SAYS_NOT("Give it token ids");
    ctl(&rig, 0, "doc import book.safetensors --name again");
    rig_stop(&other);
    rig_clean(&other);
}

CASE(names_and_what_a_file_says_do_not_steer_the_terminal)
{
    ctl(&rig, 0, "doc put $(printf 'bo\\033[31mok') --ns %u --tip %s", kvc_ns_id(ns),
        hex(BLOCKS - 1));
    SAYS("document 'bo?[31mok'");
    ctl(&rig, 0, "doc export $(printf 'bo\\033[31mok') book.safetensors");
    ctl(&rig, 0, "doc import book.safetensors");
    SAYS("document 'bo?[31mok'");
    ctl(&rig, 0, "doc put $(printf 'evil\\342\\200\\256koob') --ns %u --tip %s", kvc_ns_id(ns),
        hex(BLOCKS - 1));
    SAYS("document 'evil?koob'");
    ctl(&rig, 0, "doc list ev --json");
    SAYS("\"evil\\u202ekoob\"");
    ctl(&rig, 2, "doc import $(printf 'no\\033[31mfile')");
    SAYS("no?[31mfile");
    ctl(&rig, 2, "doc import .");
    SAYS("directory");
}

CASE(another_namespace_is_refused_and_each_difference_named)
{
    struct kvc_ns_spec spec = rig_spec("m", BT, 2 * RIG_BLOCK);
    struct kvc_ns *wrong;
    spec.dtype = "fp8";
    ck_assert_int_eq(kvc_ns_open(k, &spec, &wrong), 0);
    ctl(&rig, 0, "doc put book --ns %u --tip %s", kvc_ns_id(ns), hex(BLOCKS - 1));
    ctl(&rig, 0, "doc export book book.safetensors");
    ctl(&rig, 5, "doc import book.safetensors --ns %u --name twin", kvc_ns_id(wrong));
    SAYS("dtype: 'bf16'");
    SAYS("groups[0].block_bytes: '8192'");
    SAYS("2 differences");
    SAYS_NOT("layers");
    ctl(&rig, 0, "doc import book.safetensors --ns %u --name twin", kvc_ns_id(ns));
    ctl(&rig, 1, "doc import book.safetensors --ns 4711 --name twin");
}

CASE(a_flipped_bit_is_found_and_nothing_named)
{
    char path[160];
    ctl(&rig, 0, "doc put book --ns %u --tip %s", kvc_ns_id(ns), hex(BLOCKS - 1));
    ctl(&rig, 0, "doc export book book.safetensors");
    ctl(&rig, 0, "doc forget book --evict");
    snprintf(path, sizeof path, "%s/book.safetensors", rig.dir);
    FILE *f = fopen(path, "r+e");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, -(long)(7 * RIG_BLOCK + 100), SEEK_END), 0);
    const int byte = fgetc(f);
    ck_assert_int_eq(fseek(f, -1, SEEK_CUR), 0);
    fputc(byte ^ 4, f);
    fclose(f);
    ctl(&rig, 6, "doc import book.safetensors");
    SAYS("block 40 of group 0, shard 0");
    ctl(&rig, 0, "doc list");
    ck_assert_int_eq(truncate(path, 5000), 0);
    ctl(&rig, 2, "doc import book.safetensors");
}

/* Storage may be larger than memory, and so may a document be; blocks of earlier turns go there. */
CASE(a_document_larger_than_memory_is_exported_and_imported)
{
    const uint32_t n = 64;
    static uint8_t large[64 * KVC_KEY_BYTES];
    struct rig one = {.pid = 0}, other = {.pid = 0};
    start_with(&one, "nvme.limit=256MiB");
    struct kvc *worker = rig_open(&one, MIB);
    struct kvc_ns *own = rig_ns(worker, "large", BT, MIB);
    rig_keys(own, 9, BT, n, large);
    for (uint32_t at = 0, got; at < n; at += got) { /* as fast as storage takes it */
        got = rig_store(worker, own, large, at, at + 1, BT, MIB, statuses);
        if (got == 0)
            rig_sleep_ms(10);
    }
    write_ids(&one, "large.json", 9, n * BT);
    ctl(&one, 0, "doc put large --ns %u --tokens large.json", kvc_ns_id(own));
    ctl(&one, 0, "doc export large large.safetensors");
    SAYS("1,024 tokens, 64.00 MiB in 1 tensor\n");
    ctl(&one, 0, "doc list");
    SAYS(" 1,024 ");
    start_with(&other, "nvme.limit=256MiB");
    ctl(&other, 0, "doc import %s/large.safetensors", one.dir);
    SAYS("document 'large': 1,024 tokens, 64.00 MiB");
    SAYS("on stable storage");
    ctl(&other, 0, "doc export large again.safetensors");
    kvc_close(&worker);
    rig_stop(&one);
    rig_clean(&one);
    rig_stop(&other);
    rig_clean(&other);
}

/* A daemon with 8 MiB of memory, no storage and this setting, and one document of 48 blocks of so
 * many bytes. */
static void start_tight(struct rig *r, const char *set, uint32_t block_bytes, struct kvc **ret_kvc)
{
    const char *const sets[] = {"host.limit=8MiB", set, NULL};
    rig_start(r, sets);
    *ret_kvc = rig_open(r, 4 * MIB);
    struct kvc_ns *own = rig_ns(*ret_kvc, "m", BT, block_bytes);
    rig_keys(own, 1, BT, BLOCKS, keys);
    for (uint32_t at = 0; at < BLOCKS; at += BLOCKS / 2)
        ck_assert_uint_eq(
            rig_store(*ret_kvc, own, keys, at, at + BLOCKS / 2, BT, block_bytes, statuses),
            BLOCKS / 2);
    ctl(r, 0, "doc put book --ns %u --tip %s", kvc_ns_id(own), hex(BLOCKS - 1));
}

/* The file's one tensor, which is its end, has each block of the chain as it was stored. */
static void check_file(const struct rig *r, const char *name, uint32_t block_bytes)
{
    static uint8_t block[128 * KIB];
    char path[160];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, -(long)(BLOCKS * block_bytes), SEEK_END), 0);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        ck_assert_uint_eq(fread(block, 1, block_bytes, f), block_bytes);
        ck_assert_msg(rig_check(keys + (size_t)i * KVC_KEY_BYTES, block, block_bytes),
                      "block %u has other bytes than were stored", i);
    }
    fclose(f);
}

CASE(an_export_holds_as_little_as_the_daemon_allows)
{
    struct rig tight = {.pid = 0};
    struct kvc *own;
    start_tight(&tight, "limits.lease_bytes=64KiB", RIG_BLOCK, &own);
    ctl(&tight, 0, "doc export book book.safetensors");
    SAYS("768 tokens, 384.00 KiB");
    check_file(&tight, "book.safetensors", RIG_BLOCK);
    kvc_close(&own);
    rig_stop(&tight);
    rig_clean(&tight);
}

CASE(an_export_of_blocks_that_cannot_be_held_names_the_limit)
{
    struct rig tight = {.pid = 0};
    struct kvc *own;
    start_tight(&tight, "limits.lease_bytes=64KiB", 128 * KIB, &own);
    ctl(&tight, 5, "doc export book book.safetensors");
    SAYS("less at a time than one block: raise limits.lease_bytes");
    kvc_close(&own);
    rig_stop(&tight);
    rig_clean(&tight);
}

/* A session may be writing half of host.limit: less than the document, and than an import would
 * store at a time. */
CASE(an_import_writes_as_little_as_the_daemon_allows)
{
    struct rig tight = {.pid = 0};
    struct kvc *own;
    start_tight(&tight, "limits.lease_bytes=8MiB", 128 * KIB, &own);
    ctl(&tight, 0, "doc export book book.safetensors");
    ctl(&tight, 0, "doc forget book --evict");
    ctl(&tight, 0, "doc import book.safetensors");
    SAYS("document 'book': 768 tokens, 6.00 MiB");
    ctl(&tight, 0, "doc export book again.safetensors");
    check_file(&tight, "again.safetensors", 128 * KIB);
    kvc_close(&own);
    rig_stop(&tight);
    rig_clean(&tight);
}

/* Holds a block of its own until the session ends. */
static void hold_one(struct kvc *worker, uint32_t chain)
{
    struct kvc_ns *other = rig_ns(worker, "other", BT, MIB);
    struct kvc_hold *hold = NULL;
    rig_keys(other, chain, BT, 1, keys);
    ck_assert_uint_eq(rig_store(worker, other, keys, 0, 1, BT, MIB, statuses), 1);
    const struct kvc_seq seq = rig_seq(keys, 1, BT);
    ck_assert_int_eq(kvc_acquire(other, &seq, NULL, &hold), 0);
}

CASE(an_import_for_which_there_is_no_room_says_so)
{
    struct rig tight = {.pid = 0};
    struct kvc *own;
    start_tight(&tight, "limits.lease_bytes=8MiB", 128 * KIB, &own);
    ctl(&tight, 0, "doc export book book.safetensors");
    ctl(&tight, 0, "doc forget book --evict");
    for (uint32_t chain = 2; chain < 10; chain++)
        hold_one(own, chain);
    ctl(&tight, 5, "--timeout 5s doc import book.safetensors");
    SAYS("a block could not be stored: no room");
    ctl(&tight, 0, "doc list");
    kvc_close(&own);
    rig_stop(&tight);
    rig_clean(&tight);
}

CASE(an_export_that_fails_leaves_the_file_alone)
{
    char path[160], text[16] = "";
    snprintf(path, sizeof path, "%s/precious", rig.dir);
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    fputs("precious", f);
    fclose(f);
    ctl(&rig, 1, "doc export nothing precious");
    ctl(&rig, 0, "doc put book --ns %u --tip %s", kvc_ns_id(ns), hex(BLOCKS - 1));
    ctl(&rig, 0, "evict --prefix %s --force", hex(30));
    ctl(&rig, 1, "doc export book precious");
    SAYS("of the 768 tokens of 'book' 480 are cached");
    f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    ck_assert_ptr_nonnull(fgets(text, sizeof text, f));
    ck_assert_str_eq(text, "precious");
    fclose(f);
}

/* Nobody reads it: who opened it to write would wait. */
CASE(an_export_onto_a_fifo_is_refused)
{
    char path[160];
    snprintf(path, sizeof path, "%s/fifo", rig.dir);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ctl(&rig, 0, "doc put book --ns %u --tip %s", kvc_ns_id(ns), hex(BLOCKS - 1));
    ctl(&rig, 5, "doc export book fifo");
    SAYS("fifo: must be a regular file");
    ctl(&rig, 5, "doc export book /dev/null");
    ctl(&rig, 5, "doc export book /dev/stdout"); /* a pipe */
    SAYS("/dev/stdout: must be a regular file");
}
