/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations and documents by name, over pauses, workers and daemons. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"

#define BT     16u
#define BYTES  65536u
#define MIB    (1u << 20)
#define TURNS  20u
#define PROMPT 37u /* tokens that a turn adds, and the answer's */
#define ANSWER 46u
#define TOKENS (TURNS * (PROMPT + ANSWER))
#define CHAIN  32u /* blocks of other traffic: 2 MiB; host memory has 16 MiB */

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *ns;
static char paths[128];
static const char *const sets[] = {paths, "nvme.limit=160MiB", "nvme.segment=4MiB", NULL};

static void open_session(void)
{
    k = rig_open(&rig, 4 * MIB);
    ns = rig_ns(k, "m", BT, BYTES);
}

static int on_path(void *ctx, const void *row)
{
    const struct kvc_path *p = row;
    *(uint8_t *)ctx = p->state;
    return 0;
}

/* Room comes by and by while a store is being formatted; promises want it at once. */
static void await_formatted(void)
{
    uint8_t state = KVC_PATH_FORMATTING;
    for (unsigned i = 0; i < 6000 && state != KVC_PATH_UP; i++) {
        ck_assert_int_eq(kvc_list(k, KVC_TABLE_PATHS, NULL, on_path, &state), 0);
        rig_sleep_ms(10);
    }
    ck_assert_uint_eq(state, KVC_PATH_UP);
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
    await_formatted();
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

static void kill_daemon(void)
{
    kvc_close(&k);
    rig_kill(&rig);
    rig_restart(&rig, sets);
    open_session();
}

static void stop_and_start(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_restart(&rig, sets);
    open_session();
}

/* Others' traffic, so much that host memory keeps nothing of what was there. */
static void flood(uint32_t round)
{
    uint8_t keys[CHAIN * KVC_KEY_BYTES], statuses[CHAIN];
    for (uint32_t i = 0; i < 10; i++) {
        rig_keys(ns, 1000 + round * 10 + i, BT, CHAIN, keys);
        ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, BYTES, statuses), CHAIN);
    }
}

/* ---- a conversation ---- */

static uint32_t said[TOKENS]; /* the token ids, as far as it has come */
static uint8_t keys[(TOKENS / BT + 1) * KVC_KEY_BYTES];

static struct kvc_seq chain_of(uint32_t tokens)
{
    const int n = kvc_hash_chain(kvc_ns_seed(ns), said, tokens, BT, NULL, 0, keys);
    ck_assert_int_eq(n, (int)((tokens + BT - 1) / BT));
    struct kvc_seq seq = {.tokens = tokens};
    seq.group[0].keys = keys;
    seq.group[0].n = (uint32_t)n;
    return seq;
}

/* Stores blocks first .. of the chain of so many tokens, the last one partly filled. */
static void store_flagged(uint32_t first, uint32_t tokens, unsigned flags)
{
    const struct kvc_seq seq = chain_of(tokens);
    uint64_t bytes, offsets[64];
    uint8_t *staging = kvc_staging(k, &bytes), statuses[64];
    const uint32_t n = seq.group[0].n - first;
    if (n == 0)
        return;
    ck_assert_uint_le(n, 64);
    for (uint32_t i = 0; i < n; i++) {
        offsets[i] = (uint64_t)i * BYTES;
        rig_fill(keys + (first + i) * KVC_KEY_BYTES, staging + offsets[i], BYTES);
    }
    const struct kvc_blocks b = {.parent = first ? keys + (first - 1) * KVC_KEY_BYTES : NULL,
                                 .keys = keys + first * KVC_KEY_BYTES,
                                 .n = n,
                                 .first_token = first * BT,
                                 .last_tokens = tokens % BT,
                                 .flags = flags};
    const int err = kvc_store(ns, &b, offsets, NULL, 0, statuses);
    ck_assert_msg(err == 0, "kvc_store: %s: %s", kvc_error_name(err), kvc_last_error(k));
    for (uint32_t i = 0; i < n; i++)
        ck_assert(statuses[i] == KVC_ST_OK || statuses[i] == KVC_ST_EXISTS);
}

static void store_from(uint32_t first, uint32_t tokens)
{
    store_flagged(first, tokens, 0);
}

/* Tokens of the sequence that are there, their bytes checked. */
static uint32_t take_back(uint32_t tokens)
{
    const struct kvc_seq seq = chain_of(tokens);
    struct kvc_hold *hold;
    const int err = kvc_acquire(ns, &seq, NULL, &hold);
    ck_assert_msg(err == 0, "kvc_acquire: %s: %s", kvc_error_name(err), kvc_last_error(k));
    const uint32_t hit = hold->prefix.tokens;
    ck_assert_uint_eq(hold->group[0].n, (hit + BT - 1) / BT);
    for (uint32_t i = 0; i < hold->group[0].n; i++)
        ck_assert_msg(rig_check(keys + i * KVC_KEY_BYTES, hold->group[0].block[i].data, BYTES),
                      "block %u has other bytes than were stored", i);
    ck_assert_int_eq(kvc_hold_check(hold), 0);
    kvc_release(k, &hold);
    return hit;
}

static void put(const char *name, uint32_t tokens, unsigned flags)
{
    const struct kvc_seq seq = chain_of(tokens);
    const struct kvc_name_options o = {.flags = flags};
    struct kvc_named named;
    const int err = kvc_name_put(ns, KVC_NAME_CONVERSATION, name, &seq, &o, &named);
    ck_assert_msg(err == 0, "kvc_name_put: %s: %s", kvc_error_name(err), kvc_last_error(k));
    ck_assert_uint_eq(named.tokens, tokens);
    ck_assert_uint_eq(named.bytes, (uint64_t)((tokens + BT - 1) / BT) * BYTES);
}

/* One turn: resume, prefill what is new, decode, save. */
static void turn(uint32_t t, unsigned flags)
{
    const uint32_t before = t * (PROMPT + ANSWER), prompt = before + PROMPT,
                   after = prompt + ANSWER;
    uint64_t bytes;
    if (t > 0) {
        const uint64_t asked = rig_stat(k, "core.acquires");
        const int err =
            kvc_name_load(k, KVC_NAME_CONVERSATION, "chat", NULL, UINT64_MAX, true, 60000, &bytes);
        ck_assert_msg(err == 0, "kvc_name_load: %s: %s", kvc_error_name(err), kvc_last_error(k));
        ck_assert_uint_eq(bytes, (uint64_t)((before + BT - 1) / BT) * BYTES);
        ck_assert_uint_eq(rig_stat(k, "core.acquires"), asked); /* a preload is no request */
    }
    ck_assert_uint_eq(take_back(prompt), before / BT * BT);
    store_from(before / BT, prompt / BT * BT);
    store_from(prompt / BT, after);
    put("chat", after, flags);
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 400);

CASE(a_conversation_goes_on_over_pauses_workers_and_a_dead_daemon)
{
    for (uint32_t i = 0; i < TOKENS; i++)
        said[i] = 100 + i * 7;
    for (uint32_t t = 0; t < TURNS; t++) {
        turn(t, t == 9 ? KVC_F_DURABLE : 0);
        flood(t);
        if (t == 4 || t == 14) { /* another worker goes on */
            kvc_close(&k);
            open_session();
        }
        if (t == 9)
            kill_daemon();
    }
    ck_assert_uint_eq(take_back(TOKENS), TOKENS); /* the last partial block, too */
    ck_assert_uint_gt(rig_stat(k, "core.blocks_loaded"), 0);
    ck_assert_uint_eq(rig_stat(k, "core.names"), 1);
}

/* Removals came back for as long as nothing else made storage write its journal. */
CASE(what_a_durable_name_has_passed_stays_away_after_a_kill)
{
    static const char *const lazy[] = {paths, "nvme.limit=160MiB", "nvme.segment=4MiB",
                                       "nvme.sync=60s", NULL};
    static const uint32_t turns[] = {BT + 4, 2 * BT + 13, 4 * BT + 6, 6 * BT + 4};
    for (uint32_t i = 0; i < TOKENS; i++)
        said[i] = 900 + i;
    kvc_close(&k);
    rig_stop(&rig);
    rig_restart(&rig, lazy);
    open_session();
    for (uint32_t t = 0; t < 4; t++) {
        store_from(t > 0 ? turns[t - 1] / BT : 0, turns[t]);
        put("chat", turns[t], KVC_F_DURABLE);
    }
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), 7);
    rig_kill(&rig);
    kvc_close(&k);
    rig_restart(&rig, lazy);
    open_session();
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), 7);
    ck_assert_uint_eq(take_back(turns[3]), turns[3]);
}

CASE(a_tip_that_moves_leaves_what_it_left_to_others)
{
    for (uint32_t i = 0; i < TOKENS; i++)
        said[i] = 5 + i;
    store_from(0, 40 * BT);
    put("chat", 40 * BT, 0);
    ck_assert_uint_eq(rig_stat(k, "core.named_blocks"), 40);
    for (uint32_t i = 30 * BT; i < 34 * BT; i++) /* the answer is generated again */
        said[i] += 1000000;
    store_from(30, 34 * BT);
    put("chat", 34 * BT, 0);
    ck_assert_uint_eq(rig_stat(k, "core.named_blocks"), 34);
    struct kvc_evicted e;
    const struct kvc_evict_filter all = {.ns = kvc_ns_id(ns)};
    ck_assert_int_eq(kvc_evict(k, &all, &e), 0);
    ck_assert_uint_eq(e.blocks, 10);
    ck_assert_uint_eq(take_back(34 * BT), 34 * BT);
    ck_assert_int_eq(kvc_name_forget(k, KVC_NAME_CONVERSATION, "chat", NULL, true), 0);
    ck_assert_uint_eq(take_back(34 * BT), 0);
    ck_assert_int_eq(kvc_name_forget(k, KVC_NAME_CONVERSATION, "chat", NULL, true), KVC_E_NO_NAME);
}

/* Partly filled last blocks of turns that were over stayed, and held all before them. */
CASE(what_only_a_conversation_reached_goes_with_it)
{
    for (uint32_t i = 0; i < TOKENS; i++)
        said[i] = 100 + i * 7;
    for (uint32_t t = 0; t < 3; t++)
        turn(t, KVC_F_DURABLE);
    const uint32_t blocks = (3 * (PROMPT + ANSWER) + BT - 1) / BT;
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), blocks);
    struct kvc_evicted e;
    struct kvc_kept kept;
    ck_assert_int_eq(kvc_name_evict_kept(k, KVC_NAME_CONVERSATION, "chat", NULL, false, &e, &kept),
                     0);
    ck_assert_uint_eq(e.blocks, blocks);
    ck_assert_uint_eq(e.kept_blocks, 0);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), 0);
    rig_wait_stat(k, "nvme.blocks", 0);
    stop_and_start();
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), 0);
    for (uint32_t t = 1; t <= 3; t++)
        ck_assert_uint_eq(take_back(t * (PROMPT + ANSWER)), 0);
}

/* Stores that promised keep ends of turns on storage; nobody notes there whose they were. */
static void goes_after_restart(void (*restart)(void))
{
    static const uint32_t turns[] = {20, 45, 70, 95, 120, 150, 185};
    struct kvc_evicted e;
    struct kvc_kept kept;
    for (uint32_t i = 0; i < TOKENS; i++)
        said[i] = 100 + i * 7;
    for (uint32_t i = 0; i < 7; i++) {
        store_flagged(i > 0 ? turns[i - 1] / BT : 0, turns[i], KVC_F_ADMIT | KVC_F_DURABLE);
        put("chat", turns[i], KVC_F_DURABLE);
    }
    restart();
    const uint64_t blocks = rig_stat(k, "core.blocks_present");
    ck_assert_uint_ge(blocks, 185 / BT + 1);
    ck_assert_int_eq(kvc_name_evict_kept(k, KVC_NAME_CONVERSATION, "chat", NULL, false, &e, &kept),
                     0);
    ck_assert_uint_eq(e.blocks, blocks);
    ck_assert_uint_eq(e.kept_blocks, 0);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), 0);
    rig_wait_stat(k, "nvme.blocks", 0);
}

CASE(what_only_a_conversation_reached_goes_with_it_after_a_restart)
{
    goes_after_restart(stop_and_start);
}

CASE(what_only_a_conversation_reached_goes_with_it_after_a_kill)
{
    goes_after_restart(kill_daemon);
}

CASE(what_stays_of_a_conversation_is_told_with_its_reason)
{
    for (uint32_t i = 0; i < TOKENS; i++)
        said[i] = 5 + i;
    store_from(0, 20 * BT);
    put("chat", 20 * BT, 0);
    put("other", 4 * BT, 0);
    const struct kvc_seq seq = chain_of(10 * BT);
    struct kvc_hold *hold;
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    struct kvc_evicted e;
    struct kvc_kept kept;
    ck_assert_int_eq(kvc_name_evict_kept(k, KVC_NAME_CONVERSATION, "chat", NULL, true, &e, &kept),
                     0);
    ck_assert(e.blocks == 10 && e.kept_blocks == 10);
    ck_assert(kept.named == 4 && kept.used == 6 && kept.pinned == 0 && kept.below == 0);
    ck_assert_int_eq(kvc_name_evict_kept(k, KVC_NAME_CONVERSATION, "chat", NULL, false, &e, &kept),
                     0);
    ck_assert(e.blocks == 10 && e.kept_blocks == 10);
    ck_assert(kept.named == 4 && kept.used == 6 && kept.pinned == 0 && kept.below == 0);
    kvc_release(k, &hold);
}

static void ctl_says(const char *words, const char *what)
{
    char line[512], text[512];
    snprintf(line, sizeof line, "KVCACHE_SOCKET=%s %s/kvcachectl --timeout 60s %s 2>&1", rig.socket,
             rig_bin(), words);
    FILE *out = popen(line, "r"); /* NOLINT(cert-env33-c): our own words */
    ck_assert_ptr_nonnull(out);
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    ck_assert_int_eq(pclose(out), 0);
    ck_assert_msg(strstr(text, what), "no '%s' in: %s", what, text);
}

/* The end of a turn is nobody's when the name goes on; a name that stays holds what is before it.
 */
CASE(ends_of_turns_that_stores_promised_are_told_where_they_stay)
{
    for (uint32_t i = 0; i < TOKENS; i++)
        said[i] = 9 + i;
    store_flagged(0, 20, KVC_F_DURABLE);
    put("chat", 20, 0);
    put("other", BT, 0);
    store_flagged(1, 45, KVC_F_DURABLE);
    put("chat", 45, 0);
    struct kvc_evicted e;
    struct kvc_kept kept;
    ctl_says("evict --conv chat --dry-run",
             "2 stay: 1 shared with other names, 1 left by earlier turns");
    ck_assert_int_eq(kvc_name_evict_kept(k, KVC_NAME_CONVERSATION, "chat", NULL, true, &e, &kept),
                     0);
    ck_assert(e.blocks == 2 && e.kept_blocks == 2 && kept.named == 1 && kept.passed == 1);
    ctl_says("conv forget chat --evict --json",
             "\"blocks\":2,\"bytes\":131072,\"kept_blocks\":2,\"kept\":{\"named\":1,\"pinned\":0,"
             "\"used\":0,\"below\":0,\"passed\":1}}");
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), 2);
    ck_assert_int_eq(kvc_name_evict_kept(k, KVC_NAME_CONVERSATION, "other", NULL, false, &e, &kept),
                     0);
    ck_assert_uint_eq(e.blocks, 2);
    ck_assert_uint_eq(e.kept_blocks, 0);
}

/* ---- documents ---- */

static int count_one(void *ctx, const struct kvc_name_info *info)
{
    unsigned *n = ctx;
    ck_assert_uint_eq(info->kind, KVC_NAME_DOCUMENT);
    ++*n;
    return 0;
}

static void put_document(const char *name, uint32_t tokens)
{
    const struct kvc_seq seq = chain_of(tokens);
    const struct kvc_name_options o = {.flags = KVC_F_DURABLE, .priority = 90, .tokens = said};
    struct kvc_named named;
    const int err = kvc_name_put(ns, KVC_NAME_DOCUMENT, name, &seq, &o, &named);
    ck_assert_msg(err == 0, "kvc_name_put: %s: %s", kvc_error_name(err), kvc_last_error(k));
}

CASE(documents_share_a_beginning_and_survive_a_kill_with_their_tokens)
{
    char name[16];
    for (uint32_t i = 0; i < TOKENS; i++)
        said[i] = i;
    for (uint32_t d = 0; d < 150; d++) { /* more than one reply lists */
        for (uint32_t i = 2 * BT; i < 3 * BT; i++)
            said[i] = 1000 * d + i;
        store_from(d == 0 ? 0 : 2, 3 * BT);
        snprintf(name, sizeof name, "doc-%03u", d);
        put_document(name, 3 * BT);
    }
    ck_assert_uint_eq(rig_stat(k, "core.named_blocks"), 2 + 150);
    kill_daemon();
    unsigned n = 0;
    ck_assert_int_eq(kvc_name_list(k, 0, NULL, NULL, count_one, &n), 0);
    ck_assert_uint_eq(n, 150);
    n = 0;
    ck_assert_int_eq(kvc_name_list(k, KVC_NAME_DOCUMENT, "doc-14", NULL, count_one, &n), 0);
    ck_assert_uint_eq(n, 10);
    struct kvc_name_info info;
    ck_assert_int_eq(kvc_name_show(k, KVC_NAME_DOCUMENT, "doc-149", NULL, &info), 0);
    ck_assert_uint_eq(info.tokens_cached, 3 * BT);
    ck_assert_uint_eq(info.priority, 90);
    ck_assert_uint_eq(info.bytes_on_disk, 3 * BYTES);
    ck_assert_str_eq(info.model, "m");
    ck_assert(info.has_tokens);
    uint32_t got[4 * BT];
    ck_assert_int_eq(kvc_name_tokens(k, KVC_NAME_DOCUMENT, "doc-149", NULL, BT, got, 4 * BT),
                     2 * BT);
    ck_assert_mem_eq(got, said + BT, 2 * BT * sizeof *got);
    ck_assert_int_eq(kvc_name_show(k, KVC_NAME_CONVERSATION, "doc-149", NULL, &info),
                     KVC_E_NO_NAME);
    ck_assert_uint_eq(take_back(3 * BT), 3 * BT);
}

CASE(a_damaged_file_of_names_is_begun_anew)
{
    char file[128];
    const uint8_t junk[4096] = {0x5a};
    for (uint32_t i = 0; i < TOKENS; i++)
        said[i] = i;
    store_from(0, 4 * BT);
    put_document("doc", 4 * BT);
    kvc_close(&k);
    rig_kill(&rig);
    snprintf(file, sizeof file, "%s/store/names.db/env/data.mdb", rig.dir);
    const int fd = open(file, O_WRONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s: %m", file);
    for (unsigned i = 0; i < 16; i++)
        ck_assert_int_eq(pwrite(fd, junk, sizeof junk, (off_t)(i * sizeof junk)), sizeof junk);
    close(fd);
    rig_restart(&rig, sets);
    open_session();
    struct kvc_name_info info;
    ck_assert_int_eq(kvc_name_show(k, KVC_NAME_DOCUMENT, "doc", NULL, &info), KVC_E_NO_NAME);
    ck_assert_uint_eq(take_back(4 * BT), 4 * BT); /* its blocks are ordinary ones */
    put_document("doc", 4 * BT);
    kill_daemon();
    ck_assert_int_eq(kvc_name_show(k, KVC_NAME_DOCUMENT, "doc", NULL, &info), 0);
    ck_assert_uint_eq(info.tokens_cached, 4 * BT);
}
