/* SPDX-License-Identifier: Apache-2.0 */
/* Workers share blocks through a real daemon. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"

#define BT  16u
#define MIB (1u << 20)

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *ns;
static uint8_t keys[1024 * KVC_KEY_BYTES], statuses[1024];

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

/* Runs a role of children[] in a process of its own; returns its wait status. */
static int in_child(const char *role)
{
    int status;
    pid_t pid = rig_spawn(&rig, role, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static void child_loads(void)
{
    struct kvc *mine = rig_open(&rig, 0);
    struct kvc_ns *same = rig_ns(mine, "m", BT, RIG_BLOCK);
    rig_keys(same, 1, BT, 64, keys);
    if (rig_load(mine, same, keys, 64, BT, RIG_BLOCK) != 64)
        _exit(1);
    kvc_close(&mine);
}

CASES(.setup = setup, .teardown = teardown);

CASE(what_one_worker_stores_another_reads)
{
    rig_keys(ns, 1, BT, 64, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 64, BT, RIG_BLOCK, statuses), 64);
    ck_assert_int_eq(in_child("loads"), 0);
}

CASE(storing_an_existing_key_is_a_touch)
{
    rig_keys(ns, 1, BT, 8, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 8, BT, RIG_BLOCK, statuses), 8);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 8, BT, RIG_BLOCK, statuses), 0);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_uint_eq(statuses[i], KVC_ST_EXISTS);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), 8);
}

CASE(a_lookup_has_no_side_effects_and_says_why_it_ends)
{
    struct kvc_prefix p;
    rig_keys(ns, 1, BT, 8, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 5, BT, RIG_BLOCK, statuses), 5);
    struct kvc_seq seq = rig_seq(keys, 8, BT);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 5 * BT);
    ck_assert_uint_eq(p.group[0].blocks, 5);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NEVER);
    ck_assert_uint_eq(rig_stat(k, "core.leases"), 0);
}

static void child_writes_into_the_arena(void)
{
    struct kvc *mine = rig_open(&rig, 0);
    struct kvc_ns *same = rig_ns(mine, "m", BT, RIG_BLOCK);
    rig_keys(same, 1, BT, 1, keys);
    struct kvc_seq seq = rig_seq(keys, 1, BT);
    struct kvc_hold *hold;
    if (kvc_acquire(same, &seq, NULL, &hold) || hold->group[0].n != 1)
        _exit(1);
    void *data = (void *)(uintptr_t)hold->group[0].block[0].data;
    if (mprotect(data, 4096, PROT_READ | PROT_WRITE) == 0)
        _exit(2);
    signal(SIGSEGV, SIG_DFL);
    *(volatile uint8_t *)data = 1;
    _exit(3);
}

CASE(a_worker_that_writes_into_the_arena_faults)
{
    rig_keys(ns, 1, BT, 1, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 1, BT, RIG_BLOCK, statuses), 1);
    int status = in_child("writes_into_the_arena");
    /* A sanitizer's handler turns the signal into an exit of its own. */
    bool faulted = WIFSIGNALED(status) ? WTERMSIG(status) == SIGSEGV : WEXITSTATUS(status) > 3;
    ck_assert_msg(faulted, "status %x", (unsigned)status);
    ck_assert_uint_eq(rig_load(k, ns, keys, 1, BT, RIG_BLOCK), 1);
}

static void child_of_another_uid(void)
{
    if (setgid(65534) || setuid(65534))
        _exit(9);
    struct kvc_options o = {.socket = rig.socket, .must_connect = true};
    struct kvc *mine = NULL;
    if (kvc_open(&o, &mine) != KVC_E_DENIED)
        _exit(1);
}

CASE(a_uid_without_rights_is_refused)
{
    if (getuid() != 0) {
        printf("SKIP: a_uid_without_rights_is_refused needs root to become another user\n");
        return;
    }
    ck_assert_int_eq(in_child("another_uid"), 0);
    ck_assert_uint_eq(rig_stat(k, "svc.attaches_denied"), 1);
}

CASE(eviction_keeps_the_limit_exactly)
{
    uint32_t most = 16 * MIB / RIG_BLOCK;
    for (uint32_t chain = 0; chain < 40; chain++) {
        rig_keys(ns, chain, BT, 128, keys);
        ck_assert_uint_eq(rig_store(k, ns, keys, 0, 128, BT, RIG_BLOCK, statuses), 128);
        ck_assert_uint_le(rig_stat(k, "daemon.host_used_bytes"), 16 * MIB);
    }
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), most);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_evicted"), 40 * 128 - most);
    rig_keys(ns, 39, BT, 128, keys);
    ck_assert_uint_eq(rig_load(k, ns, keys, 128, BT, RIG_BLOCK), 128);
    struct kvc_prefix p;
    rig_keys(ns, 0, BT, 128, keys);
    struct kvc_seq seq = rig_seq(keys, 128, BT);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_EVICTED);
}

/* Stores `n` blocks of a chain as a worker does that wants no more than what they are worth. */
static uint8_t store_judged(uint32_t chain, uint32_t n, unsigned flags)
{
    uint64_t offsets[64];
    uint8_t *staging = kvc_staging(k, &offsets[0]);
    rig_keys(ns, chain, BT, n, keys);
    for (uint32_t i = 0; i < n; i++) {
        offsets[i] = (uint64_t)i * RIG_BLOCK;
        rig_fill(keys + (size_t)i * KVC_KEY_BYTES, staging + offsets[i], RIG_BLOCK);
    }
    const struct kvc_blocks b = {.keys = keys, .n = n, .flags = flags};
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, statuses), 0);
    for (uint32_t i = 1; i < n; i++)
        ck_assert_uint_eq(statuses[i], statuses[0]);
    return statuses[0];
}

static void ask_in_vain(uint32_t chain)
{
    struct kvc_hold *hold = NULL;
    rig_keys(ns, chain, BT, 64, keys);
    const struct kvc_seq seq = rig_seq(keys, 64, BT);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    ck_assert_uint_eq(hold->group[0].n, 0);
    kvc_release(k, &hold);
}

static void read_hot(void)
{
    static uint8_t hot[128 * KVC_KEY_BYTES];
    for (uint32_t i = 0; i < 20 * 16; i++) {
        rig_keys(ns, i % 16, BT, 128, hot);
        if (rig_load(k, ns, hot, 128, BT, RIG_BLOCK) != 128) {
            ck_assert_uint_gt(rig_store(k, ns, hot, 0, 128, BT, RIG_BLOCK, statuses), 0);
            ck_assert_uint_eq(rig_load(k, ns, hot, 128, BT, RIG_BLOCK), 128);
        }
        ask_in_vain(1000 + i);
    }
}

/* Memory is full of chains that are read all the time; of others, each is asked for once. Where the
 * machine pauses, what was read all the time is so no more: then once again. */
CASE(what_is_used_all_the_time_does_not_go_for_what_is_new)
{
    uint64_t evicted = 0;
    uint8_t status = KVC_ST_OK;
    for (uint32_t i = 0; i < 5 && status == KVC_ST_OK; i++) {
        read_hot();
        evicted = rig_stat(k, "core.blocks_evicted");
        status = store_judged(100 + i, 64, 0);
    }
    ck_assert_uint_eq(status, KVC_ST_NOT_WORTH);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_evicted"), evicted);
    ck_assert_uint_eq(rig_stat(k, "core.reserve_not_worth"), 1);
    uint64_t reservation = 0;
    const struct kvc_blocks b = {.keys = keys, .n = 1};
    ck_assert_int_eq(kvc_reserve(ns, &b, &reservation, statuses), 0);
    ck_assert_uint_eq(statuses[0], KVC_ST_OK); /* others may wait for it */
    ck_assert_int_eq(kvc_drop(k, reservation), 0);
    ck_assert_uint_eq(store_judged(200, 64, KVC_F_ADMIT), KVC_ST_OK);
    ck_assert_uint_eq(rig_load(k, ns, keys, 64, BT, RIG_BLOCK), 64);
    struct kvc_policy_info rules, set;
    ck_assert_int_eq(kvc_policy(k, NULL, &rules), 0);
    ck_assert(rules.admission && rules.admission_start && rules.admits && !rules.storage);
    rules.admission = false;
    ck_assert_int_eq(kvc_policy(k, &rules, &set), 0);
    ck_assert(!set.admission && set.admission_start && set.load_or_recompute);
    ck_assert_uint_eq(store_judged(300, 64, 0), KVC_ST_OK);
    ck_assert_uint_eq(rig_stat(k, "core.reserve_not_worth"), 1);
}

CASE(a_cache_full_of_leases_is_a_status)
{
    static uint8_t held[16 * 256 * KVC_KEY_BYTES];
    struct kvc_hold *hold[16];
    struct kvc *half[2] = {rig_open(&rig, 0), rig_open(&rig, 0)};
    struct kvc_ns *half_ns[2] = {rig_ns(half[0], "m", BT, RIG_BLOCK),
                                 rig_ns(half[1], "m", BT, RIG_BLOCK)};
    for (uint32_t i = 0; i < 8; i++) { /* 8 chains of 256 blocks of 8 KiB fill 16 MiB */
        uint8_t *mine = held + (size_t)i * 256 * KVC_KEY_BYTES;
        rig_keys(ns, i, BT, 256, mine);
        ck_assert_uint_eq(rig_store(k, ns, mine, 0, 256, BT, RIG_BLOCK, statuses), 256);
        struct kvc_seq seq = rig_seq(mine, 256, BT);
        ck_assert_int_eq(kvc_acquire(half_ns[i % 2], &seq, NULL, &hold[i]), 0);
        ck_assert_uint_eq(hold[i]->group[0].n, 256);
    }
    rig_keys(ns, 100, BT, 4, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 4, BT, RIG_BLOCK, statuses), 0);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(statuses[i], KVC_ST_FULL);
    kvc_release(half[0], &hold[0]);
    rig_wait_stat(k, "core.leases", 7);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 4, BT, RIG_BLOCK, statuses), 4);
    for (uint32_t i = 1; i < 8; i++) {
        for (uint32_t b = 0; b < 256; b++)
            ck_assert(rig_check(held + ((size_t)i * 256 + b) * KVC_KEY_BYTES,
                                hold[i]->group[0].block[b].data, RIG_BLOCK));
        ck_assert_int_eq(kvc_hold_check(hold[i]), 0);
        kvc_release(half[i % 2], &hold[i]);
    }
    kvc_close(&half[0]);
    kvc_close(&half[1]);
}

CASE(sizes_and_block_tokens_live_side_by_side)
{
    static const struct {
        uint32_t tokens, bytes, n;
    } shape[] = {{1, 64, 300}, {2, 4097, 100}, {16, 65536, 20}, {1024, MIB, 3}, {64, 12345, 50}};
    struct kvc_ns *of[5];
    for (unsigned s = 0; s < 5; s++) {
        char model[16];
        snprintf(model, sizeof model, "m%u", s);
        of[s] = rig_ns(k, model, shape[s].tokens, shape[s].bytes);
    }
    for (unsigned round = 0; round < 6; round++) {
        for (unsigned s = 0; s < 5; s++) {
            rig_keys(of[s], round, shape[s].tokens, shape[s].n, keys);
            ck_assert_uint_eq(
                rig_store(k, of[s], keys, 0, shape[s].n, shape[s].tokens, shape[s].bytes, statuses),
                shape[s].n);
            ck_assert_uint_eq(rig_load(k, of[s], keys, shape[s].n, shape[s].tokens, shape[s].bytes),
                              shape[s].n);
        }
    }
    ck_assert_uint_le(rig_stat(k, "daemon.host_used_bytes"), 16 * MIB);
}

CASE(a_partly_filled_last_block_is_found_by_its_own_key)
{
    uint32_t tokens[40];
    for (uint32_t i = 0; i < 40; i++)
        tokens[i] = i;
    ck_assert_int_eq(kvc_hash_chain(kvc_ns_seed(ns), tokens, 40, BT, NULL, 0, keys), 3);
    uint64_t bytes;
    uint8_t *staging = kvc_staging(k, &bytes);
    uint64_t offsets[3] = {0, RIG_BLOCK, 2 * RIG_BLOCK};
    for (unsigned i = 0; i < 3; i++)
        rig_fill(keys + i * KVC_KEY_BYTES, staging + offsets[i], RIG_BLOCK);
    struct kvc_blocks b = {.keys = keys, .n = 3, .last_tokens = 8};
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, statuses), 0);
    struct kvc_seq seq = {.tokens = 40};
    seq.group[0].keys = keys;
    seq.group[0].n = 3;
    struct kvc_prefix p;
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 40);
    seq.group[0].n = 2;
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 32);
}

CASE(two_ranks_store_their_shards_and_redeem_one_ticket)
{
    struct kvc_ns_spec spec = rig_spec("tp2", BT, RIG_BLOCK);
    spec.shards = 2;
    struct kvc *rank[2];
    struct kvc_ns *rank_ns[2];
    for (uint32_t r = 0; r < 2; r++) {
        struct kvc_options o = {
            .socket = rig.socket, .staging_bytes = MIB, .shard = r, .must_connect = true};
        ck_assert_int_eq(kvc_open(&o, &rank[r]), 0);
        ck_assert_int_eq(kvc_ns_open(rank[r], &spec, &rank_ns[r]), 0);
    }
    rig_keys(rank_ns[0], 1, BT, 4, keys);
    struct kvc_seq seq = rig_seq(keys, 4, BT);
    struct kvc_prefix p;
    ck_assert_uint_eq(rig_store(rank[0], rank_ns[0], keys, 0, 4, BT, RIG_BLOCK, statuses), 4);
    ck_assert_int_eq(kvc_lookup(rank_ns[0], &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 0); /* one shard of two */
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_PENDING);
    ck_assert_uint_eq(rig_store(rank[1], rank_ns[1], keys, 0, 4, BT, RIG_BLOCK, statuses), 4);
    struct kvc_hold *first, *second;
    ck_assert_int_eq(kvc_acquire(rank_ns[0], &seq, NULL, &first), 0);
    ck_assert_uint_eq(first->prefix.tokens, 4 * BT);
    ck_assert_int_eq(kvc_redeem(rank_ns[1], first->ticket, &second), 0);
    ck_assert_uint_eq(second->group[0].n, 4);
    for (unsigned i = 0; i < 4; i++) {
        ck_assert(rig_check(keys + i * KVC_KEY_BYTES, first->group[0].block[i].data, RIG_BLOCK));
        ck_assert(rig_check(keys + i * KVC_KEY_BYTES, second->group[0].block[i].data, RIG_BLOCK));
        ck_assert_uint_ne(first->group[0].block[i].gen, second->group[0].block[i].gen);
    }
    kvc_release(rank[0], &first);
    kvc_release(rank[1], &second);
    kvc_close(&rank[0]);
    kvc_close(&rank[1]);
}

CASE(unsound_namespaces_are_refused_with_the_reason)
{
    static const struct {
        const char *position, *attention, *word;
    } bad[] = {{"rope", "bidirectional", "causal"},
               {"rerope", "causal", "rerope"},
               {"dynamic-ntk", "causal", "dynamic-ntk"}};
    for (unsigned i = 0; i < 3; i++) {
        struct kvc_ns_spec spec = rig_spec("m", BT, RIG_BLOCK);
        spec.position = bad[i].position;
        spec.attention = bad[i].attention;
        struct kvc_ns *none;
        ck_assert_int_eq(kvc_ns_open(k, &spec, &none), KVC_E_UNSOUND);
        ck_assert_msg(strstr(kvc_last_error(k), bad[i].word) != NULL, "%s", kvc_last_error(k));
    }
}

CASE(a_store_without_its_parent_is_told_so)
{
    rig_keys(ns, 1, BT, 4, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 2, 4, BT, RIG_BLOCK, statuses), 0);
    ck_assert_uint_eq(statuses[0], KVC_ST_NO_PARENT);
    ck_assert_uint_eq(statuses[1], KVC_ST_NO_PARENT);
}

static struct kvc_evicted evict(const struct kvc_evict_filter *f)
{
    struct kvc_evicted e;
    int err = kvc_evict(k, f, &e);
    ck_assert_msg(err == 0, "kvc_evict: %s", kvc_error_name(err));
    return e;
}

CASE(evict_by_key_takes_the_descendants_and_shows_them_first)
{
    rig_keys(ns, 1, BT, 10, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 10, BT, RIG_BLOCK, statuses), 10);
    struct kvc_evict_filter f = {.key = keys + 4 * KVC_KEY_BYTES, .dry_run = true};
    ck_assert_uint_eq(evict(&f).blocks, 6);
    ck_assert_uint_eq(rig_load(k, ns, keys, 10, BT, RIG_BLOCK), 10);
    f.dry_run = false;
    ck_assert_uint_eq(evict(&f).bytes, 6 * RIG_BLOCK);
    ck_assert_uint_eq(rig_load(k, ns, keys, 10, BT, RIG_BLOCK), 4);
}

CASE(evict_by_namespace_keeps_what_is_leased)
{
    struct kvc_ns *other = rig_ns(k, "other", BT, RIG_BLOCK);
    rig_keys(other, 1, BT, 5, keys);
    ck_assert_uint_eq(rig_store(k, other, keys, 0, 5, BT, RIG_BLOCK, statuses), 5);
    rig_keys(ns, 1, BT, 10, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 10, BT, RIG_BLOCK, statuses), 10);
    struct kvc_seq seq = rig_seq(keys, 3, BT);
    struct kvc_hold *hold;
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    struct kvc_evict_filter f = {.ns = kvc_ns_id(ns)};
    struct kvc_evicted e = evict(&f);
    ck_assert_uint_eq(e.blocks, 7);
    ck_assert_uint_eq(e.kept_blocks, 3);
    kvc_release(k, &hold);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), 8);
}

struct names {
    unsigned n;
    char name[512][sizeof(((struct kvc_stat *)0)->name)];
};

static int add_name(void *ctx, const struct kvc_stat *stat)
{
    struct names *all = ctx;
    ck_assert_uint_lt(all->n, 512);
    for (unsigned i = 0; i < all->n; i++)
        ck_assert_str_ne(all->name[i], stat->name);
    memcpy(all->name[all->n++], stat->name, sizeof stat->name);
    return 0;
}

CASE(every_statistic_has_a_name_of_its_own)
{
    static struct names all;
    ck_assert_int_eq(kvc_stats(k, add_name, &all), 0);
    ck_assert_uint_gt(all.n, 50);
}

CASE(our_objects_allocate_nothing_on_the_control_thread)
{
    for (uint32_t chain = 0; chain < 60; chain++) {
        rig_keys(ns, chain, BT, 64, keys);
        rig_store(k, ns, keys, 0, 64, BT, RIG_BLOCK, statuses);
        rig_load(k, ns, keys, 64, BT, RIG_BLOCK);
    }
    struct kvc *other = rig_open(&rig, MIB);
    kvc_close(&other);
    ck_assert_uint_eq(rig_stat(k, "daemon.control_allocs"), 0);
}

static const struct {
    const char *role;
    void (*run)(void);
} children[] = {
    {"loads", child_loads},
    {"writes_into_the_arena", child_writes_into_the_arena},
    {"another_uid", child_of_another_uid},
};

static int child_main(const char *role, uint64_t arg)
{
    (void)arg;
    for (unsigned i = 0; i < sizeof children / sizeof children[0]; i++) {
        if (strcmp(children[i].role, role) != 0)
            continue;
        children[i].run();
        return 0;
    }
    return 126;
}

int main(int argc, char **argv)
{
    return rig_main(argc, argv, &rig, child_main);
}
