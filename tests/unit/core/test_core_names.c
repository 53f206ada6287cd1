/* SPDX-License-Identifier: Apache-2.0 */
/* What names reach, and what becomes of it: counts, moves, room, promises, time, order. */
#include "admin.h"
#include "names_rig.h"

/* Chains of two blocks each, so many that what may go has gone. */
static void flood(uint32_t chains)
{
    for (uint32_t i = 0; i < chains; i++)
        store(5000 + i, 0, 2);
}

CASES(.teardown = end);

CASE(a_name_covers_what_is_cached_of_its_chain)
{
    begin(64, 0, false);
    struct core_named n = {0};
    ck_assert_int_eq(put("a", 1, 32, (struct core_name_put){0}, NULL, &n), KVC_E_GONE);
    store(1, 0, 3);
    n = named("a", 1, 32);
    ck_assert_uint_eq(n.tokens, 24);
    ck_assert_uint_eq(n.bytes, 3 * 64);
    ck_assert_uint_eq(metrics()->named_blocks, 3);
    ck_assert_uint_eq(metrics()->named_bytes, 3 * 64);
    struct core_name_view v = view("a");
    ck_assert_uint_eq(v.tokens_cached, 24);
    ck_assert_uint_eq(v.bytes_in_memory, 3 * 64);
    ck_assert_uint_eq(v.priority, KVC_PRIORITY_DEFAULT);
    struct key256 tip = rig_key(1, 2);
    ck_assert_mem_eq(v.tip.b, tip.b, sizeof tip.b);
    forget("a", false);
    ck_assert_uint_eq(metrics()->named_blocks, 0);
}

CASE(names_share_blocks_and_each_lets_go_of_its_own)
{
    begin(64, 0, false);
    store(1, 0, 4);
    named("short", 1, 16);
    named("long", 1, 32);
    named("same", 1, 32);
    ck_assert_uint_eq(metrics()->named_blocks, 4);
    forget("long", false);
    ck_assert_uint_eq(metrics()->named_blocks, 4);
    forget("same", false);
    ck_assert_uint_eq(metrics()->named_blocks, 2);
    forget("short", false);
    ck_assert_uint_eq(metrics()->named_blocks, 0);
}

CASE(a_tip_that_moves_lets_go_of_what_it_left_at_once)
{
    begin(64, 0, false);
    store(1, 0, 4);
    store(2, 0, 2);
    named("c", 1, 16);
    named("c", 1, 32); /* it goes on */
    ck_assert_uint_eq(metrics()->named_blocks, 4);
    ck_assert_uint_eq(metrics()->names, 1);
    named("c", 1, 24); /* the last answer is taken back */
    ck_assert_uint_eq(metrics()->named_blocks, 3);
    named("c", 2, 16); /* a summary takes the place of it all */
    ck_assert_uint_eq(metrics()->named_blocks, 2);
    ck_assert_uint_eq(view("c").tokens, 16);
}

CASE(without_storage_what_a_name_reaches_goes_last)
{
    begin(24, 0, false);
    store(1, 0, 4);
    struct core_named n;
    ck_assert_int_eq(put("c", 1, 32, (struct core_name_put){.priority = 90}, NULL, &n), 0);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 0).level, 90);
    flood(32);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 32);
    forget("c", false);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 0).level, KVC_PRIORITY_DEFAULT);
    ck_assert_uint_eq(metrics()->wishes, 0); /* that a name has priorities is nobody's wish */
    flood(32);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 0);
}

CASE(without_storage_a_name_alone_keeps_nothing_and_a_pinned_one_does)
{
    for (unsigned pinned = 0; pinned < 2; pinned++) {
        begin(24, 0, false);
        store(1, 0, 4);
        struct core_named n;
        ck_assert_int_eq(put("c", 1, 32, (struct core_name_put){.pinned = pinned != 0}, NULL, &n),
                         0);
        flood(32);
        ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, pinned ? 32 : 0);
        ck_assert_uint_eq(view("c").tokens, 32);
        ck_assert_uint_eq(view("c").tokens_cached, pinned ? 32 : 0);
        rig_end(&r);
    }
}

CASE(a_pinned_name_counts_against_the_budget_of_pins)
{
    rig_defaults(&r);
    r.cfg.pins_max = 8;
    r.cfg.pin_bytes_max = 3 * 64;
    begin_ns();
    store(1, 0, 4);
    const struct core_name_put pinned = {.pinned = true};
    struct core_named n;
    ck_assert_int_eq(put("c", 1, 32, pinned, NULL, &n), KVC_E_PIN_LIMIT);
    ck_assert_ptr_null(find("c"));
    ck_assert_int_eq(put("c", 1, 24, pinned, NULL, &n), 0);
    ck_assert_uint_eq(metrics()->pinned_blocks, 3);
    ck_assert_int_eq(put("c", 1, 32, pinned, NULL, &n), KVC_E_PIN_LIMIT);
    ck_assert_uint_eq(view("c").tokens, 24); /* as it was */
    named("c", 1, 32);                       /* no longer pinned */
    ck_assert_uint_eq(metrics()->pinned_blocks, 0);
}

CASE(what_a_name_reaches_is_promised_and_stays_on_disk)
{
    begin(16, 64, false);
    store(1, 0, 4);
    named("c", 1, 32);
    rig_settle(&r);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 4);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert(rig_explain(&r, 1, 0, 1, i).durable);
    flood(64); /* three times what memory has, and twice the disk */
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 32);
    struct core_held held = rig_load(&r, 1, ns, 1, 32);
    ck_assert_uint_eq(held.prefix.tokens, 32);
    rig_check_lease(&r, 1, held.lease, 0);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
}

CASE(what_no_name_reaches_any_more_goes_like_any_other)
{
    begin(16, 64, false);
    store(1, 0, 4);
    named("c", 1, 32);
    rig_settle(&r);
    named("c", 1, 16);
    ck_assert(rig_explain(&r, 1, 0, 1, 1).durable);
    ck_assert(!rig_explain(&r, 1, 0, 1, 2).durable);
    flood(64);
    for (uint32_t k = 0; k < 8; k++) {
        struct core_evict_job job = {.client = r.cl[1], .bytes = 16 * 64}; /* room to move to */
        rig_evict(&r, &job);
        fake_disk_want(r.disk, k);
        rig_settle(&r);
        flood(8);
    }
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 16);
}

CASE(the_pin_of_a_name_is_none_to_be_seen_or_ended_by_itself)
{
    rig_defaults(&r);
    r.cfg.pins_max = 8;
    begin_ns();
    store(1, 0, 4);
    struct core_named n;
    ck_assert_int_eq(put("c", 1, 32, (struct core_name_put){.pinned = true}, NULL, &n), 0);
    struct core_pin_view v;
    uint64_t cursor = 0;
    ck_assert(core_pin_next(r.core, NULL, &cursor, &v));
    for (unsigned cl = 0; cl < 2; cl++) { /* an administrator, and its own principal */
        cursor = 0;
        ck_assert_int_eq(core_unpin(r.core, r.cl[cl], v.id), KVC_E_NO_NAME);
        ck_assert(!core_pin_next(r.core, r.cl[cl], &cursor, &v));
    }
    ck_assert_uint_eq(metrics()->pinned_blocks, 4);
    forget("c", false);
    ck_assert_uint_eq(metrics()->pinned_blocks, 0);
}

CASE(a_promise_to_a_commit_outlasts_names)
{
    begin(16, 64, false);
    struct rig_put p = {.ns = ns, .chain = 1, .n = 2, .durable = true};
    struct rig_commit commit;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &commit), 1);
    rig_settle(&r);
    ck_assert_uint_eq(commit.done, 1);
    rig_commit_free(&commit);
    named("c", 1, 16);
    rig_settle(&r);
    forget("c", false);
    ck_assert(rig_explain(&r, 1, 0, 1, 1).durable);
}

CASE(what_was_lent_to_names_is_promised_anew_for_a_commit)
{
    begin(16, 64, false);
    store(1, 0, 2);
    named("c", 1, 16);
    rig_settle(&r);
    const uint32_t before = fake_disk_puts(r.disk, true);
    struct rig_put p = {.ns = ns, .chain = 1, .first = 2, .n = 1, .durable = true};
    struct rig_commit commit;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &commit), 1);
    rig_settle(&r);
    ck_assert_uint_eq(commit.done, 1);
    ck_assert_uint_eq(commit.statuses[0], KVC_ST_OK);
    rig_commit_free(&commit);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true) - before, 3);
    forget("c", false);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert(rig_explain(&r, 1, 0, 1, i).durable);
}

CASE(eviction_on_request_passes_over_names_unless_forced)
{
    begin(64, 0, false);
    store(1, 0, 4);
    store(2, 0, 2);
    named("c", 1, 16);
    struct core_evict_job job = {.client = r.cl[1]};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 4);
    ck_assert_uint_eq(job.ret_kept, 2);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 16);
    struct core_evict_job forced = {.client = r.cl[1], .force = true};
    rig_evict(&r, &forced);
    ck_assert_uint_eq(forced.ret_blocks, 2);
    struct core_name_view v = view("c");
    ck_assert_uint_eq(v.tokens, 16);
    ck_assert_uint_eq(v.tokens_cached, 0);
    ck_assert_uint_eq(metrics()->named_blocks, 0);
    store(1, 0, 2);
    named("c", 1, 16); /* it can be put again */
    ck_assert_uint_eq(view("c").tokens_cached, 16);
}

CASE(a_name_falls_back_on_what_is_left)
{
    begin(64, 0, false);
    store(1, 0, 4);
    named("c", 1, 32);
    struct rig_block x = rig_explain(&r, 1, 0, 1, 2);
    fake_tier_flip(r.tier, &x.view, 3);
    struct core_evict_job job = {.client = r.cl[1], .force = true, .have_key = true};
    job.key = rig_key(1, 2);
    rig_evict(&r, &job);
    ck_assert_uint_eq(view("c").tokens, 32);
    ck_assert_uint_eq(view("c").tokens_cached, 16);
    ck_assert_uint_eq(metrics()->named_blocks, 2);
    forget("c", false);
}

CASE(forgotten_with_its_blocks_all_goes_but_what_others_share)
{
    begin(64, 64, false);
    store(1, 0, 6);
    named("other", 1, 16);
    named("c", 1, 48);
    rig_settle(&r);
    forget("c", true);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 48).tokens, 16);
    forget("other", true);
    ck_assert_uint_eq(metrics()->blocks_present, 0);
}

CASE(a_name_ends_when_it_was_not_used_for_so_long)
{
    begin(64, 0, false);
    store(1, 0, 2);
    struct core_named n;
    ck_assert_int_eq(put("c", 1, 16, (struct core_name_put){.ttl_ms = 1000}, NULL, &n), 0);
    for (unsigned i = 0; i < 40; i++)
        rig_step(&r);
    rig_settle(&r);
    core_name_use(r.core, find("c"), UINT64_MAX);
    for (unsigned i = 0; i < 40; i++)
        rig_step(&r);
    rig_settle(&r);
    ck_assert_uint_eq(view("c").idle_ms, 800);
    ck_assert_uint_eq(view("c").age_ms, 1600);
    for (unsigned i = 0; i < 11; i++)
        rig_step(&r);
    rig_settle(&r);
    ck_assert_ptr_null(find("c"));
    ck_assert_uint_eq(metrics()->names_expired, 1);
    ck_assert_uint_eq(metrics()->named_blocks, 0);
}

CASE(there_are_so_many_names_and_no_more)
{
    rig_defaults(&r);
    r.cfg.names_max = 4;
    begin_ns();
    rig_store(&r, 1, ns, 0, 1, 0, 2);
    char name[2] = "a";
    for (; name[0] < 'e'; name[0]++)
        named(name, 1, 16);
    struct core_named n;
    ck_assert_int_eq(put("e", 1, 16, (struct core_name_put){0}, NULL, &n), KVC_E_LIMIT);
    named("a", 1, 8); /* one that is there can be moved */
    forget("b", false);
    named("e", 1, 16);
}

/* ---- groups of other rules ---- */

static void begin_groups(void)
{
    rig_defaults(&r);
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", BT, 64);
    spec.ngroups = 3;
    spec.group[1] = (struct core_group){
        .block_tokens = BT, .block_bytes = 128, .rule = KVC_RULE_WINDOW, .window = 16};
    spec.group[2] =
        (struct core_group){.block_tokens = 2 * BT, .block_bytes = 256, .rule = KVC_RULE_STATE};
    ns = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, ns, 0, 1, 0, 8);
    rig_store(&r, 1, ns, 1, 1001, 0, 8);
    rig_store(&r, 1, ns, 2, 2001, 0, 4);
}

CASE(of_windows_and_states_it_holds_what_a_hit_needs)
{
    begin_groups();
    struct core_named n = named("c", 1, 48);
    ck_assert_uint_eq(n.tokens, 48);
    ck_assert_uint_eq(n.bytes, 6 * 64 + 2 * 128 + 256);
    ck_assert_uint_eq(metrics()->named_blocks, 6 + 2 + 1);
    n = named("c", 1, 64);
    ck_assert_uint_eq(metrics()->named_blocks, 8 + 2 + 1);
    struct core_seq seq;
    ck_assert(core_name_seq(r.core, find("c"), &seq));
    struct core_prefix prefix;
    ck_assert_int_eq(core_lookup(r.core, &seq, false, &prefix, &r.why), 0);
    ck_assert_uint_eq(prefix.tokens, 64);
    struct core_evict_job job = {.client = r.cl[1], .force = true, .have_key = true};
    job.key = rig_key(2001, 3);
    rig_evict(&r, &job); /* without its state nothing of it is a hit */
    ck_assert_uint_eq(view("c").tokens_cached, 0);
    forget("c", false);
    ck_assert_uint_eq(metrics()->named_blocks, 0);
}

CASE(a_long_name_of_windows_and_states_is_put_in_slices)
{
    begin_groups();
    const uint32_t work = r.core->cfg.slice_work;
    const struct core_seq seq = rig_seq(ns, 1, 64);
    const struct core_name_put in = {.id = id_of(KVC_NAME_CONVERSATION, "c", ""), .seq = &seq};
    struct core_asking x = {.in = {.seq = seq}, .looks = true, .put = &in};
    struct core_held none;
    unsigned partly = 0;
    int rc;
    r.core->cfg.slice_work = 4;
    while ((rc = core_ask_step(r.core, r.cl[1], &x, &none, &r.why)) == CORE_MORE) {
        partly += metrics()->named_blocks > 0 && metrics()->named_blocks < 8 + 2 + 1;
        core_check(r.core);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_uint_ge(partly, 2);
    ck_assert_uint_eq(x.named.tokens, 64);
    ck_assert_uint_eq(x.named.bytes, 8 * 64 + 2 * 128 + 256);
    ck_assert_uint_eq(metrics()->named_blocks, 8 + 2 + 1);
    for (uint32_t g = 0; g < 3; g++) {
        const struct key256 key = rig_key(g * 1000 + 1, g == 2 ? 3 : 7);
        const struct block *b = index_get(r.core, ns, g, key.b);
        ck_assert_uint_eq(retain_base(r.core->retain, block_no(r.core, b)), KVC_PRIORITY_DEFAULT);
    }
    r.core->cfg.slice_work = work;
    forget("c", false);
    ck_assert_uint_eq(metrics()->named_blocks, 0);
}

/* ---- who sees what ---- */

static int next(unsigned client, struct core_name_list *in, struct core_name_view *ret_view)
{
    static uint8_t cursor[CORE_NAME_CURSOR_MAX];
    struct core_name *nm;
    ck_assert_int_eq(core_name_next(r.core, r.cl[client], in, &nm), 0);
    if (!nm)
        return 0;
    (void)core_name_view(r.core, nm, ret_view);
    in->cursor = cursor;
    in->cursor_bytes = core_name_cursor(nm, cursor);
    return 1;
}

static unsigned count_names(unsigned client, const char *prefix)
{
    struct core_name_list in = {.kind = KVC_NAME_CONVERSATION,
                                .prefix = (const uint8_t *)prefix,
                                .prefix_bytes = (uint32_t)strlen(prefix)};
    struct core_name_view v;
    char last[KVC_STRING_MAX] = "";
    unsigned n = 0;
    for (; next(client, &in, &v); n++) {
        ck_assert_int_le(strcmp(last, v.name), 0);
        strncpy(last, v.name, sizeof last - 1);
    }
    return n;
}

CASE(a_principal_sees_its_own_names_an_administrator_all)
{
    begin(64, 0, false);
    store(1, 0, 2);
    const char *mine[] = {"b", "ab", "a", "abc", "c"};
    for (unsigned i = 0; i < 5; i++)
        named(mine[i], 1, 16);
    struct core_ns_spec spec = rig_spec("m", BT, 64);
    struct core_ns *other = rig_ns(&r, 3, &spec);
    rig_store(&r, 3, other, 0, 1, 0, 1);
    struct core_seq seq = rig_seq(other, 1, 8);
    struct core_named n;
    const char *theirs[] = {"a", "z"};
    for (unsigned i = 0; i < 2; i++) {
        struct core_name_put in = {.id = id_of(KVC_NAME_CONVERSATION, theirs[i], ""), .seq = &seq};
        ck_assert_int_eq(core_name_put(r.core, r.cl[3], &in, NULL, &n, &r.why), 0);
    }
    ck_assert_uint_eq(count_names(1, ""), 5);
    ck_assert_uint_eq(count_names(2, ""), 5); /* another session of the same principal */
    ck_assert_uint_eq(count_names(3, ""), 2);
    ck_assert_uint_eq(count_names(0, ""), 7);
    ck_assert_uint_eq(count_names(1, "ab"), 2);
    ck_assert_uint_eq(count_names(0, "a"), 4);
    struct core_name *nm;
    struct core_name_id id = id_of(KVC_NAME_CONVERSATION, "z", "");
    ck_assert_int_eq(core_name_find(r.core, r.cl[1], &id, &nm), KVC_E_NO_NAME);
    ck_assert_int_eq(core_name_find(r.core, r.cl[0], &id, &nm), 0);
    id = id_of(KVC_NAME_CONVERSATION, "a", ""); /* there are two, and none of its own */
    ck_assert_int_eq(core_name_find(r.core, r.cl[0], &id, &nm), KVC_E_NO_NAME);
    id = id_of(KVC_NAME_DOCUMENT, "b", "");
    ck_assert_int_eq(core_name_find(r.core, r.cl[1], &id, &nm), KVC_E_NO_NAME);
    id = id_of(KVC_NAME_CONVERSATION, "b", "someone");
    ck_assert_int_eq(core_name_find(r.core, r.cl[1], &id, &nm), KVC_E_DENIED);
    struct core_name_list bad = {.kind = KVC_NAME_CONVERSATION,
                                 .cursor = (const uint8_t *)"\1\0\0\0\377",
                                 .cursor_bytes = 5};
    ck_assert_int_eq(core_name_next(r.core, r.cl[1], &bad, &nm), KVC_E_BAD_ARGUMENT);
}

/* ---- waiting ---- */

CASE(a_put_waits_until_its_blocks_are_on_disk)
{
    begin(16, 64, false);
    store(1, 0, 4);
    struct waited w;
    struct core_named n;
    const struct core_name_put durable = {.durable = true};
    ck_assert_int_eq(put("c", 1, 32, durable, &w, &n), 1);
    ck_assert_uint_eq(w.calls, 0);
    rig_settle(&r);
    ck_assert_uint_eq(w.calls, 1);
    ck_assert_int_eq(w.err, 0);
    ck_assert_int_eq(put("d", 1, 32, durable, &w, &n), 1); /* known to be there at the next turn */
    rig_settle(&r);
    ck_assert(w.calls == 1 && w.err == 0);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 4);
}

CASE(a_put_that_cannot_be_kept_says_so_and_is_tried_again)
{
    begin(16, 64, false);
    store(1, 0, 2);
    struct waited w;
    struct core_named n;
    fake_disk_out(r.disk, true);
    ck_assert_int_eq(put("c", 1, 16, (struct core_name_put){.durable = true}, &w, &n), 1);
    rig_settle(&r);
    ck_assert_uint_eq(w.calls, 1);
    ck_assert_int_eq(w.err, KVC_E_TIER); /* FULL would ask to forget other names */
    ck_assert_uint_eq(view("c").bytes_on_disk, 0);
    fake_disk_out(r.disk, false);
    for (unsigned i = 0; i < 1600; i++)
        rig_step(&r);
    rig_settle(&r);
    ck_assert_uint_eq(view("c").bytes_on_disk, 2 * 64);
}

/* It ended the daemon. */
/* GONE says that it has to be computed anew. */
CASE(what_is_out_of_service_cannot_be_named_and_is_not_gone)
{
    begin(4, 64, false);
    for (uint32_t i = 1; i < 8; i++)
        store(i, 0, 2);
    struct waited w;
    struct core_named n;
    fake_disk_out(r.disk, true);
    ck_assert_int_eq(put("c", 1, 16, (struct core_name_put){.durable = false}, &w, &n), KVC_E_TIER);
    ck_assert_ptr_nonnull(strstr(r.why, "out of service"));
    ck_assert_int_eq(put("c", 99, 16, (struct core_name_put){.durable = false}, &w, &n),
                     KVC_E_GONE);
    fake_disk_out(r.disk, false);
    ck_assert_int_eq(put("c", 1, 16, (struct core_name_put){.durable = false}, &w, &n), 0);
}

CASE(what_a_pin_holds_stays_when_the_name_is_evicted)
{
    begin(16, 32, false);
    store(1, 0, 6);
    (void)named("a", 1, 48);
    const struct core_pin in = {.seq = rig_seq(ns, 1, 24)};
    struct core_pinned pinned;
    ck_assert_int_eq(core_pin(r.core, &in, &pinned, &r.why), 0);
    struct core_evicted x;
    ck_assert_int_eq(core_name_forget(r.core, find("a"), &x, NULL), 0);
    core_check(r.core);
    ck_assert_uint_eq(x.blocks, 3);
    ck_assert_uint_eq(x.bytes, 3 * 64);
    ck_assert_uint_eq(x.in.host, 3 * 64);
    ck_assert_uint_eq(x.kept, 3);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 48).tokens, 24);
}

CASE(what_would_go_with_a_name_is_its_own)
{
    begin(32, 0, false);
    store(1, 0, 8);
    (void)named("a", 1, 64);
    (void)named("b", 1, 40);
    struct core_evicted x;
    x = would_evict(find("a"));
    ck_assert_uint_eq(x.blocks, 3); /* behind what b shares */
    ck_assert_uint_eq(x.kept, 5);
    x = would_evict(find("b"));
    ck_assert_uint_eq(x.blocks, 0);
    ck_assert_uint_eq(x.kept, 5);
    struct core_acquire in = {.seq = rig_seq(ns, 1, 56), .from_tokens = 48};
    struct core_held held;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), 0);
    x = would_evict(find("a"));
    ck_assert_uint_eq(x.blocks, 1); /* the seventh is leased */
    ck_assert_uint_eq(x.in.host, 64);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    forget("a", true); /* as was said: names_rig.h */
    x = would_evict(find("b"));
    ck_assert_uint_eq(x.blocks, 5);
    store(1, 5, 2); /* builds on it */
    x = would_evict(find("b"));
    ck_assert_uint_eq(x.blocks, 0);
    forget("b", true);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 56).tokens, 56);
}

/* A window may be asked for by one key again and again: it is one block, looked at once. */
CASE(a_block_that_a_name_reaches_often_is_one_block)
{
    static uint8_t keys[32768 * KVC_KEY_BYTES];
    struct core_evicted x;
    struct core_named got;
    begin(4, 0, false);
    struct core_ns_spec spec = rig_spec("w", BT, 64);
    spec.group[0].rule = KVC_RULE_WINDOW;
    spec.group[0].window = BT * 32768;
    ns = rig_ns(&r, 1, &spec);
    store(1, 0, 1);
    const struct key256 key = rig_key(1, 0);
    for (size_t i = 0; i < 32768; i++)
        memcpy(keys + i * KVC_KEY_BYTES, key.b, KVC_KEY_BYTES);
    const uint32_t refs = r.cfg.names_max * 4; /* of the 8 that there are for each name */
    const struct core_seq seq = {
        .ns = ns, .tokens = BT * refs, .ngroups = 1, .keys = {keys}, .n = {refs}};
    ck_assert_uint_le(refs, 32768);
    const struct core_name_put in = {.id = id_of(KVC_NAME_CONVERSATION, "b", ""), .seq = &seq};
    ck_assert_int_eq(core_name_put(r.core, r.cl[1], &in, NULL, &got, &r.why), 0);
    x = would_evict(find("b"));
    ck_assert_uint_eq(x.blocks, 1);
    ck_assert_uint_eq(x.kept, 0);
    (void)named("a", 1, BT);
    x = would_evict(find("b"));
    ck_assert_uint_eq(x.blocks, 0);
    ck_assert_uint_eq(x.kept, 1);
    core_check(r.core);
}
