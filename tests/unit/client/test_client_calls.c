/* SPDX-License-Identifier: Apache-2.0 */
/* Every call against a daemon that answers as it should. */
#include <stdio.h>

#include "fixture.h"

CASES(.setup = start_open, .teardown = stop);

CASE(ping_tells_the_uptime)
{
    uint64_t ms = 0;
    ck_assert_int_eq(kvc_ping(kvc, &ms), 0);
    ck_assert_uint_eq(ms, 4242);
}

CASE(a_request_carries_the_sessions_deadline)
{
    uint64_t ms;
    ck_assert_int_eq(kvc_ping(kvc, &ms), 0);
    ck_assert_uint_le(atomic_load(&fake.s->deadline_ms), 10000);
    ck_assert_uint_ge(atomic_load(&fake.s->deadline_ms), 5000);
}

CASE(a_namespace_has_the_daemons_seed)
{
    uint8_t seed[KVC_KEY_BYTES];
    memset(seed, 1, sizeof(seed));
    ck_assert_mem_eq(kvc_ns_seed(ns), seed, sizeof(seed));
    ck_assert_uint_eq(kvc_ns_id(ns), 101);
}

CASE(the_same_namespace_is_opened_once)
{
    struct kvc_ns_spec same = spec_of("llama"), other = spec_of("qwen");
    struct kvc_ns *again, *another;
    ck_assert_int_eq(kvc_ns_open(kvc, &same, &again), 0);
    ck_assert_int_eq(kvc_ns_open(kvc, &other, &another), 0);
    ck_assert_ptr_eq(again, ns);
    ck_assert_ptr_ne(another, ns);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_NS_OPEN]), 2);
}

CASE(an_unsound_namespace_is_refused_with_the_reason)
{
    struct kvc_ns_spec spec = spec_of("bert");
    struct kvc_ns *refused = NULL;
    spec.attention = "bidirectional";
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &refused), KVC_E_UNSOUND);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "attention is bidirectional"));
    ck_assert_ptr_null(refused);
}

CASE(a_bad_namespace_is_refused_before_it_is_sent)
{
    struct kvc_ns_spec spec = spec_of("llama");
    struct kvc_ns *refused = NULL;
    spec.groups = 0;
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &refused), -EINVAL);
    spec = spec_of("llama");
    spec.group[0].block_tokens = KVC_BLOCK_TOKENS_MAX + 1;
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &refused), KVC_E_BAD_ARGUMENT);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_NS_OPEN]), 1);
}

CASE(lookup_returns_the_prefix_and_the_reason)
{
    struct kvc_seq seq = seq_of(8);
    struct kvc_prefix p;
    atomic_store(&fake.s->hit_blocks, 5);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 80);
    ck_assert_uint_eq(p.cached_tokens, 88);
    ck_assert_uint_eq(p.load_us, 5000);
    ck_assert_uint_eq(p.group[0].blocks, 5);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_EVICTED);
}

CASE(an_acquired_block_is_read_in_place)
{
    struct kvc_seq seq = seq_of(4);
    struct kvc_hold *h;
    atomic_store(&fake.s->hit_blocks, 3);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    ck_assert_uint_ne(h->lease, 0);
    ck_assert_uint_eq(h->prefix.tokens, 48);
    ck_assert_uint_eq(h->group[0].n, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const struct kvc_block *b = &h->group[0].block[i];
        ck_assert_uint_eq(b->bytes, FAKE_BLOCK_BYTES);
        ck_assert_uint_eq(((const uint8_t *)b->data)[0], fake_byte(0, i));
        ck_assert_uint_eq(((const uint8_t *)b->data)[b->bytes - 1], fake_byte(0, i));
    }
    ck_assert_int_eq(kvc_hold_check(h), 0);
    kvc_release(kvc, &h);
    ck_assert_ptr_null(h);
}

CASE(a_chunk_is_asked_for_once)
{
    struct kvc_seq seq = seq_of(4);
    atomic_store(&fake.s->hit_blocks, 4);
    atomic_store(&fake.s->blocks_a_chunk, 2);
    for (int i = 0; i < 3; i++) {
        struct kvc_hold *h;
        ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
        ck_assert_uint_eq(((const uint8_t *)h->group[0].block[1].data)[7], fake_byte(0, 1));
        ck_assert_uint_eq(((const uint8_t *)h->group[0].block[2].data)[7], fake_byte(1, 0));
        kvc_release(kvc, &h);
    }
    ck_assert_uint_eq(atomic_load(&fake.s->maps_asked), 2);
}

static bool lease_is_released(void *lease)
{
    return atomic_load(&fake.s->released) == *(uint64_t *)lease;
}

CASE(release_reaches_the_daemon_without_another_call)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    uint64_t lease = h->lease;
    kvc_release(kvc, &h);
    ck_assert(fake_wait_for(lease_is_released, &lease));
}

CASE(an_acquire_without_a_hit_holds_nothing)
{
    struct kvc_seq seq = seq_of(2);
    struct kvc_hold *h;
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    ck_assert_uint_eq(h->lease, 0);
    ck_assert_uint_eq(h->group[0].n, 0);
    ck_assert_int_eq(kvc_hold_check(h), 0);
    kvc_release(kvc, &h);
    kvc_release(kvc, &h);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_RELEASE]), 0);
}

CASE(a_ticket_gives_the_same_blocks_to_another_rank)
{
    uint8_t ticket[KVC_TICKET_BYTES] = {0x5a}, wrong[KVC_TICKET_BYTES] = {1};
    struct kvc_hold *h;
    atomic_store(&fake.s->hit_blocks, 2);
    ck_assert_int_eq(kvc_redeem(ns, ticket, &h), 0);
    ck_assert_uint_eq(h->group[0].n, 2);
    ck_assert_uint_eq(atomic_load(&fake.s->last_ticket_shard), 3);
    kvc_release(kvc, &h);
    ck_assert_int_eq(kvc_redeem(ns, wrong, &h), KVC_E_NO_LEASE);
    ck_assert_ptr_null(h);
}

CASE(a_changed_generation_is_stale)
{
    struct kvc_seq seq = seq_of(2);
    struct kvc_hold *h;
    struct kvc_counters c;
    atomic_store(&fake.s->hit_blocks, 2);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    ck_assert_int_eq(kvc_hold_check(h), 0);
    uint64_t *gen = (uint64_t *)(void *)(fake.chunk[0] + FAKE_SLOT_BYTES);
    __atomic_store_n(gen, 99, __ATOMIC_RELEASE);
    ck_assert_int_eq(kvc_hold_check(h), KVC_STALE);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.stale, 1);
    kvc_release(kvc, &h);
}

CASE(store_reads_staging)
{
    struct kvc_blocks b = blocks_of(3);
    uint64_t bytes, offsets[3] = {0, 4096, 8192};
    uint8_t st[3] = {9, 9, 9};
    uint8_t *staging = kvc_staging(kvc, &bytes);
    ck_assert_uint_eq(bytes, STAGING_BYTES);
    staging[8192] = 0xab;
    atomic_store(&fake.s->statuses_from, 2);
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->stored_byte), 0xab);
    ck_assert_uint_eq(st[0], KVC_ST_OK);
    ck_assert_uint_eq(st[2], KVC_ST_EXISTS);
}

CASE(wishes_travel_with_what_is_stored)
{
    const struct kvc_retain wishes[] = {{0, 16, 80, 0}, {16, 0, 10, 600000}};
    struct kvc_blocks b = blocks_of(2);
    uint64_t r, offsets[2] = {0, 4096};
    uint8_t st[2];
    (void)kvc_staging(kvc, NULL);
    b.retain = wishes;
    b.nretain = 2;
    b.flags = KVC_F_DECODED;
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->wish_n), 2);
    ck_assert_uint_eq(atomic_load(&fake.s->wish_flags), KVC_F_DECODED);
    ck_assert_uint_eq(atomic_load(&fake.s->wish_last), (uint64_t)10 << 32 | 600000);
    b.nretain = 1;
    ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->wish_n), 1);
    ck_assert_uint_eq(atomic_load(&fake.s->wish_last), (uint64_t)80 << 32);
    b.nretain = KVC_RETAIN_MAX + 1;
    ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), -EINVAL);
}

static void expect_declined(const uint8_t *st, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(st[i], KVC_ST_NO_STORE);
}

/* Also when there is no daemon. */
CASE_EACH(what_shall_not_be_stored_is_answered_without_traffic, 2)
{
    struct kvc_blocks b = blocks_of(3);
    uint64_t r = 7, offsets[3] = {0, 4096, 8192};
    uint8_t st[3] = {0};
    struct kvc_counters c;
    b.flags = KVC_F_NO_STORE;
    if (_i)
        fake_kill(&fake);
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), 0);
    expect_declined(st, 3);
    memset(st, 0, sizeof st);
    ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), 0);
    expect_declined(st, 3);
    ck_assert_uint_eq(r, 0);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_STORE]), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_RESERVE]), 0);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.stores_dropped_blocks, 0);
}

CASE(what_shall_not_be_stored_is_done_at_once)
{
    struct kvc_blocks b = blocks_of(3);
    uint64_t offsets[3] = {0, 4096, 8192};
    struct kvc_op *op;
    struct kvc_result r;
    b.flags = KVC_F_NO_STORE;
    ck_assert_int_eq(kvc_store_begin(ns, &b, offsets, NULL, 0, &op), 0);
    ck_assert(kvc_done(op));
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_eq(r.n, 3);
    expect_declined(r.statuses, 3);
    ck_assert_int_eq(kvc_reserve_begin(ns, &b, &op), 0);
    ck_assert(kvc_done(op));
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_eq(r.reservation, 0);
    expect_declined(r.statuses, 3);
}

static bool hint_came(void *arg)
{
    return atomic_load(&fake.s->hint) == *(uint32_t *)arg;
}

/* Its memory, generations and all, is as it was. */
CASE(a_hold_is_stale_as_soon_as_its_daemon_is_no_more)
{
    struct kvc_seq seq = seq_of(2);
    struct kvc_hold *h;
    atomic_store(&fake.s->hit_blocks, 2);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    ck_assert_int_eq(kvc_hold_check(h), 0);
    fake_kill(&fake);
    ck_assert_int_eq(kvc_hold_check(h), KVC_STALE);
    fake_start(&fake);
    ck_assert_int_eq(kvc_hold_check(h), KVC_STALE);
    kvc_release(kvc, &h);
}

CASE(a_hint_is_sent_and_not_waited_for)
{
    struct kvc_seq seq = seq_of(3);
    uint32_t soon = KVC_HINT_SOON << 24 | 30000, ended = KVC_HINT_ENDED << 24;
    ck_assert_int_eq(kvc_hint(ns, &seq, KVC_HINT_SOON, 30000), 0);
    ck_assert(fake_wait_for(hint_came, &soon));
    ck_assert_int_eq(kvc_hint(ns, &seq, KVC_HINT_ENDED, 30000), 0);
    ck_assert(fake_wait_for(hint_came, &ended));
    ck_assert_int_eq(kvc_hint(ns, &seq, (enum kvc_hint_kind)5, 0), -EINVAL);
    ck_assert_int_eq(kvc_ping(kvc, NULL), 0); /* takes their replies in */
}

CASE(a_hint_to_nobody_is_lost)
{
    struct kvc_seq seq = seq_of(3);
    fake_kill(&fake);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(kvc_hint(ns, &seq, KVC_HINT_ENDED, 0), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_HINT]), 0);
}

CASE(reserve_then_commit_in_two_steps)
{
    struct kvc_blocks b = blocks_of(3);
    uint64_t r = 0, offsets[2] = {0, 4096};
    uint32_t tokens[32] = {0};
    uint8_t st[3];
    uint8_t *staging = kvc_staging(kvc, NULL);
    staging[4096] = 0x77;
    ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), 0);
    ck_assert_uint_ne(r, 0);
    ck_assert_int_eq(kvc_commit(ns, r, 0, 2, offsets, tokens, 32, st), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->stored_byte), 0x77);
    ck_assert_uint_eq(atomic_load(&fake.s->tokens_seen), 32);
    ck_assert_int_eq(kvc_commit(ns, r, 2, 1, offsets, NULL, 0, st), 0);
    ck_assert_int_eq(kvc_commit(ns, r, 2, 1, offsets, NULL, 0, st), KVC_E_GONE);
}

CASE(a_namespace_is_told_whole)
{
    struct kvc_ns_spec *spec = NULL;
    bool own = false;
    ck_assert_int_eq(kvc_ns_spec_of(kvc, 7, &spec, &own), 0);
    ck_assert(own);
    ck_assert_str_eq(spec->model, "llama");
    ck_assert_str_eq(spec->revision, "");
    ck_assert_str_eq(spec->position_params, "theta=10000");
    ck_assert_str_eq(spec->sub_tenant, "alice");
    ck_assert_uint_eq(spec->head_size, 128);
    ck_assert_uint_eq(spec->shards, 4);
    ck_assert(spec->with_tokens);
    ck_assert_uint_eq(spec->prefill_ns_per_token, 55);
    ck_assert_uint_eq(spec->groups, 2);
    ck_assert_uint_eq(spec->group[1].block_tokens, 64);
    ck_assert_int_eq(spec->group[1].rule, KVC_RULE_WINDOW);
    ck_assert_uint_eq(spec->group[1].window, 4096);
    ck_assert(spec->group[1].replicated && !spec->group[0].replicated);
    free(spec);
    spec = NULL;
    ck_assert_int_eq(kvc_ns_spec_of(kvc, 404, &spec, NULL), KVC_E_NO_NAMESPACE);
    ck_assert_ptr_null(spec);
}

CASE(a_reservation_can_be_dropped_once)
{
    struct kvc_blocks b = blocks_of(2);
    uint64_t r;
    uint8_t st[2];
    ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), 0);
    ck_assert_int_eq(kvc_drop(kvc, r), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->dropped_reservation), 1);
    ck_assert_int_eq(kvc_drop(kvc, r), KVC_E_GONE);
}

CASE(replies_may_come_in_any_order)
{
    struct kvc_seq seq = seq_of(4);
    struct kvc_op *first, *second;
    struct kvc_prefix p, q;
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_AFTER_NEXT, 0, 1);
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_lookup_begin(ns, &seq, 0, &first), 0);
    ck_assert_int_eq(kvc_lookup_begin(ns, &seq, 0, &second), 0);
    ck_assert_int_eq(kvc_wait(&first, &p, NULL, NULL), 0);
    ck_assert_int_eq(kvc_wait(&second, &q, NULL, NULL), 0);
    ck_assert_uint_eq(p.tokens, 16);
    ck_assert_uint_eq(q.tokens, 16);
    ck_assert_ptr_null(first);
}

CASE(many_requests_are_in_flight_at_once)
{
    struct kvc_seq seq = seq_of(2);
    struct kvc_op *op[64];
    atomic_store(&fake.s->hit_blocks, 2);
    for (int i = 0; i < 64; i++)
        ck_assert_int_eq(i % 2 ? kvc_lookup_begin(ns, &seq, 0, &op[i])
                               : kvc_acquire_begin(ns, &seq, NULL, &op[i]),
                         0);
    for (int i = 63; i >= 0; i--) {
        struct kvc_prefix p = {0};
        struct kvc_hold *h = NULL;
        ck_assert_int_eq(kvc_wait(&op[i], &p, &h, NULL), 0);
        ck_assert_uint_eq(h != NULL ? h->prefix.tokens : p.tokens, 32);
        kvc_release(kvc, &h);
    }
}

CASE(a_cancelled_request_ends_as_cancelled)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_op *op;
    struct kvc_hold *h = NULL;
    fake_rule(&fake, KVC_OP_ACQUIRE, FAKE_SILENCE, 0, 1);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    ck_assert_int_eq(kvc_cancel(op), 0);
    ck_assert_int_eq(kvc_cancel(op), 0);
    ck_assert_int_eq(kvc_wait(&op, NULL, &h, NULL), KVC_E_CANCELLED);
    ck_assert_ptr_null(h);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_CANCEL]), 1);
}

CASE(stores_may_be_in_flight_too)
{
    struct kvc_blocks b = blocks_of(2);
    uint64_t offsets[2] = {0, 4096};
    uint8_t st[2][2];
    struct kvc_op *op[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(kvc_store_begin(ns, &b, offsets, NULL, 0, &op[i]), 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(kvc_wait(&op[i], NULL, NULL, st[i]), 0);
        ck_assert_uint_eq(st[i][1], KVC_ST_OK);
    }
}

static int sum_stats(void *ctx, const struct kvc_stat *s)
{
    *(uint64_t *)ctx += s->value + (s->gauge ? 1000 : 0);
    return strcmp(s->name, s->gauge ? "blocks" : "hits");
}

CASE(stats_are_walked)
{
    uint64_t sum = 0;
    ck_assert_int_eq(kvc_stats(kvc, sum_stats, &sum), 0);
    ck_assert_uint_eq(sum, 1046);
}

static int count_ns(void *ctx, const void *row)
{
    uint32_t *count = ctx;
    const struct kvc_ns_info *info = row;
    ck_assert_uint_eq(info->ns, ++*count);
    ck_assert_str_eq(info->model, "llama");
    return *count == 7 ? 77 : 0;
}

CASE(rows_are_walked_over_several_replies)
{
    uint32_t count = 0;
    atomic_store(&fake.s->list_pages, 3);
    ck_assert_int_eq(kvc_list(kvc, KVC_TABLE_NAMESPACES, NULL, count_ns, &count), 0);
    ck_assert_uint_eq(count, 6);
}

CASE(pages_that_never_end_are_no_answer)
{
    uint32_t count = 0;
    atomic_store(&fake.s->list_pages, UINT32_MAX); /* the second one goes on where it began */
    ck_assert_int_eq(kvc_list(kvc, KVC_TABLE_NAMESPACES, NULL, count_ns, &count),
                     KVC_E_BAD_MESSAGE);
    ck_assert_uint_eq(count, 4);
    ck_assert_int_eq(kvc_list(kvc, KVC_TABLE_END, NULL, count_ns, &count), -EINVAL);
    ck_assert_ptr_null(kvc_table(KVC_TABLE_END));
}

CASE(a_walk_ends_when_the_callback_says_so)
{
    uint32_t count = 0;
    atomic_store(&fake.s->list_pages, 6);
    ck_assert_int_eq(kvc_list(kvc, KVC_TABLE_NAMESPACES, NULL, count_ns, &count), 77);
    ck_assert_uint_eq(count, 7);
}

static int note_block(void *ctx, const void *row)
{
    uint8_t *seen = ctx;
    const struct kvc_block_info *x = row;
    ck_assert_uint_eq(x->tokens, 16);
    ck_assert(x->ns == 7 || x->ns == 8);
    for (uint32_t i = 0; i < 6; i++)
        seen[i] += memcmp(x->key, keys + (size_t)i * KVC_KEY_BYTES, KVC_KEY_BYTES) == 0;
    return 0;
}

CASE(blocks_of_keys_come_in_pages_some_of_them_empty)
{
    uint8_t seen[6] = {0};
    const struct kvc_filter five = {.mode = KVC_WALK_KEYS, .ns = 7, .keys = keys, .n = 5};
    ck_assert_int_eq(kvc_list(kvc, KVC_TABLE_BLOCKS, &five, note_block, seen), 0);
    for (int i = 0; i < 5; i++)
        ck_assert_uint_eq(seen[i], 2);
    ck_assert_uint_eq(seen[5], 0);
}

CASE(evict_passes_its_filter)
{
    struct kvc_evict_filter f = {.key = keys, .bytes = 12345, .dry_run = true};
    struct kvc_evicted e;
    ck_assert_int_eq(kvc_evict(kvc, &f, &e), 0);
    ck_assert_uint_eq(e.blocks, 5);
    ck_assert_uint_eq(e.bytes, 12345);
    ck_assert_uint_eq(e.kept_blocks, KVC_KEY_BYTES);
}

CASE(a_status_comes_back_with_its_text)
{
    uint64_t ms = 7;
    fake_rule(&fake, KVC_OP_PING, FAKE_STATUS, KVC_ST_BUSY, 1);
    ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_BUSY);
    ck_assert_uint_eq(ms, 7);
    ck_assert_str_eq(kvc_last_error(kvc), "BUSY: as the test says");
    ck_assert_int_eq(kvc_ping(kvc, &ms), 0);
}

CASE(an_outcome_without_an_output_is_given_up)
{
    struct kvc_seq seq = seq_of(4);
    struct kvc_op *op;
    atomic_store(&fake.s->hit_blocks, 3);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    ck_assert_int_eq(kvc_wait(&op, NULL, NULL, NULL), -EINVAL);
    ck_assert_ptr_null(op);
    ck_assert_int_eq(kvc_lookup_begin(ns, &seq, 0, &op), 0);
    ck_assert_int_eq(kvc_wait(&op, NULL, NULL, NULL), -EINVAL);
}

CASE(bad_arguments_name_themselves)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_blocks b = blocks_of(0);
    struct kvc_acquire_options o = {.timeout_ms = KVC_DEADLINE_MAX_MS + 1};
    struct kvc_prefix p;
    struct kvc_hold *h;
    uint64_t r, offsets[1] = {0};
    uint8_t st[1];
    ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), -EINVAL);
    b = blocks_of(1);
    b.group = 1;
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "group is 1"));
    b.group = 0;
    offsets[0] = UINT64_MAX;
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), -EINVAL);
    offsets[0] = 0;
    ck_assert_int_eq(kvc_acquire(ns, &seq, &o, &h), -EINVAL);
    seq.group[0].keys = NULL;
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), -EINVAL);
    ck_assert_int_eq(kvc_commit(ns, 12345, 0, 1, offsets, NULL, 0, st), KVC_E_GONE);
}

CASE(a_session_without_staging_cannot_store)
{
    struct kvc_options o = {.socket = fake.path};
    struct kvc_ns_spec spec = spec_of("llama");
    struct kvc_blocks b = blocks_of(1);
    uint64_t offsets[1] = {0};
    uint8_t st[1];
    kvc_close(&kvc);
    ck_assert_int_eq(kvc_open(&o, &kvc), 0);
    ck_assert_ptr_null(kvc_staging(kvc, NULL));
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), 0);
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "staging_bytes"));
}
