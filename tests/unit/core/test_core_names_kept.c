/* SPDX-License-Identifier: Apache-2.0 */
/* Names over restarts: the journal, what is left of them, damage; and all of it at random. */
#include <stdlib.h>

#include "admin.h"
#include "names_rig.h"
#include "names_table.h"

static void restart(bool host)
{
    rig_restart(&r, host);
    open_ns();
}

CASES(.teardown = end, .timeout_s = getenv("KVC_NAMES_SEEDS") ? UNTIMED : 300);

CASE(a_name_comes_back_with_what_it_reaches)
{
    begin(16, 64, true);
    store(1, 0, 6);
    const struct core_name_put in = {.priority = 80, .ttl_ms = 3600000};
    struct core_named n;
    ck_assert_int_eq(put("c", 1, 48, in, NULL, &n), 0);
    rig_settle(&r);
    for (unsigned i = 0; i < 50; i++)
        rig_step(&r);
    r.wall_ms += 5000 + r.now_ns / 1000000;
    restart(false);
    ck_assert_uint_eq(r.names_found.names, 1);
    ck_assert_uint_eq(r.names_found.partly, 0);
    struct core_name_view v = view("c");
    ck_assert_uint_eq(v.tokens, 48);
    ck_assert_uint_eq(v.tokens_cached, 48);
    ck_assert_uint_eq(v.priority, 80);
    ck_assert_uint_eq(v.ttl_ms, 3600000);
    ck_assert_uint_ge(v.idle_ms, 5000);
    ck_assert_uint_eq(metrics()->named_blocks, 6);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert(rig_explain(&r, 1, 0, 1, i).durable);
    forget("c", false); /* it was lent, and they know it still */
    ck_assert(!rig_explain(&r, 1, 0, 1, 0).durable);
}

/* TTLs ended at once when the clock had been set forward, and never when it had been set back. */
CASE(a_wall_clock_that_was_set_ends_no_ttl)
{
    const uint64_t year_ms = UINT64_C(365) * 86400000;
    begin(16, 64, true);
    store(1, 0, 6);
    const struct core_name_put in = {.priority = 80, .ttl_ms = 3600000};
    struct core_named n;
    ck_assert_int_eq(put("c", 1, 48, in, NULL, &n), 0);
    rig_settle(&r);
    r.now_unknown = true;
    for (unsigned i = 0; i < 2; i++) {
        r.wall_ms += i == 0 ? year_ms : (uint64_t)0 - 2 * year_ms;
        restart(false);
        ck_assert_uint_eq(r.names_found.names, 1);
        rig_settle(&r);
        ck_assert_uint_lt(view("c").idle_ms, 60000);
        ck_assert_uint_eq(metrics()->names_expired, 0);
    }
    /* The hour is counted from there. */
    r.now_ns += UINT64_C(3700) * 1000000000;
    rig_step(&r);
    rig_settle(&r);
    ck_assert_uint_eq(metrics()->names_expired, 1);
}

CASE(promises_to_a_name_that_is_no_more_end_after_the_restart)
{
    begin(16, 64, true);
    store(1, 0, 4);
    named("c", 1, 32);
    rig_settle(&r);
    forget("c", false);
    rig_settle(&r);
    restart(false);
    ck_assert_uint_eq(r.names_found.names, 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 32);
    for (unsigned i = 0; i < 3100; i++) /* a minute: it might be named or pinned again */
        rig_step(&r);
    rig_settle(&r);
    ck_assert(!rig_explain(&r, 1, 0, 1, 3).durable);
    ck_assert_uint_eq(fake_journal_entries(r.journal), 0);
}

CASE(what_was_not_saved_is_cut_off)
{
    begin(16, 64, true);
    store(1, 0, 6);
    named("c", 1, 48);
    rig_settle(&r);
    fake_disk_out(r.disk, true); /* nothing more is saved */
    store(1, 6, 4);
    named("c", 1, 80);
    rig_settle(&r);
    fake_disk_out(r.disk, false);
    restart(false);
    ck_assert_uint_eq(r.names_found.partly, 1);
    struct core_name_view v = view("c");
    ck_assert_uint_eq(v.tokens, 80);
    ck_assert_uint_eq(v.tokens_cached, 48); /* a key of every 1, 2, 4, ... blocks: found exactly */
    ck_assert_uint_eq(metrics()->named_blocks, 6);
}

CASE(without_its_namespace_a_name_reaches_nothing)
{
    begin(16, 0, true);
    store(1, 0, 2);
    named("c", 1, 16);
    rig_settle(&r);
    restart(false);
    ck_assert_uint_eq(view("c").tokens_cached, 0);
    store(1, 0, 2);
    named("c", 1, 16);
    ck_assert_uint_eq(view("c").tokens_cached, 16);
}

CASE(a_put_is_kept_before_it_is_answered)
{
    begin(16, 64, true);
    store(1, 0, 2);
    struct waited w;
    struct core_named n;
    ck_assert_int_eq(put("c", 1, 16, (struct core_name_put){.durable = true}, &w, &n), 1);
    for (unsigned i = 0; i < 20; i++) { /* all but the journal goes on */
        (void)core_background_step(r.core);
        r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
        fake_disk_run(r.disk, 1000, 0);
    }
    ck_assert_uint_eq(w.calls, 0);
    restart(false); /* it had not been answered, and is not there */
    ck_assert_ptr_null(find("c"));
    ck_assert_int_eq(put("c", 1, 16, (struct core_name_put){.durable = true}, &w, &n), 1);
    rig_settle(&r);
    ck_assert(w.calls == 1 && w.err == 0);
    restart(false);
    ck_assert_uint_eq(view("c").tokens_cached, 16);
}

CASE(a_forgotten_name_stays_forgotten_once_it_is_answered)
{
    begin(16, 64, true);
    store(1, 0, 2);
    named("c", 1, 16);
    rig_settle(&r);
    struct waited w = {.w = {.fn = on_waited}};
    ck_assert_int_eq(core_name_forget(r.core, find("c"), NULL, &w.w), 1);
    named("c", 1, 8); /* another of the same name meanwhile */
    rig_settle(&r);
    ck_assert(w.calls == 1 && w.err == 0);
    restart(false);
    ck_assert_uint_eq(view("c").tokens, 8);
}

CASE(token_ids_come_back_whole_or_not_at_all)
{
    begin(16, 64, true);
    store(1, 0, 2);
    uint32_t ids[16], got[16], total;
    for (uint32_t i = 0; i < 16; i++)
        ids[i] = 70000 + i;
    struct core_named n;
    const struct core_name_put in = {.ids = (const uint8_t *)ids};
    ck_assert_int_eq(put("c", 1, 16, in, NULL, &n), 0);
    rig_settle(&r);
    restart(false);
    ck_assert(view("c").has_ids);
    ck_assert_uint_eq(core_name_ids(r.core, find("c"), 10, (uint8_t *)got, 16, &total), 6);
    ck_assert_uint_eq(total, 16);
    ck_assert_mem_eq(got, ids + 10, 6 * sizeof *ids);
    fake_journal_drop(r.journal, fake_journal_entries(r.journal) - 1);
    restart(false);
    ck_assert(!view("c").has_ids);
    ck_assert_uint_eq(view("c").tokens_cached, 16);
}

CASE(long_lists_of_ids_take_several_commits)
{
    rig_defaults(&r);
    r.with_journal = true;
    r.cfg.name_ids_bytes = 1 << 20;
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 1024, 64);
    ns = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, ns, 0, 1, 0, 100);
    uint32_t *ids = malloc(102400 * sizeof *ids), *got = malloc(102400 * sizeof *ids), total;
    for (uint32_t i = 0; i < 102400; i++)
        ids[i] = i * 2654435761u;
    struct core_named n;
    const struct core_name_put in = {.ids = (const uint8_t *)ids};
    ck_assert_int_eq(put("c", 1, 102400, in, NULL, &n), 0);
    (void)core_background_step(r.core);
    fake_journal_run(r.journal, 0); /* a part of it, and then it is put anew */
    ck_assert_int_eq(put("c", 1, 102400, in, NULL, &n), 0);
    rig_settle(&r);
    const uint32_t entries = fake_journal_entries(r.journal);
    ck_assert_uint_le(entries, 102400 / 250 + 3);
    rig_restart(&r, true);
    ns = rig_ns(&r, 1, &spec);
    ck_assert_uint_eq(core_name_ids(r.core, find("c"), 0, (uint8_t *)got, 102400, &total), 102400);
    ck_assert_mem_eq(got, ids, 102400 * sizeof *ids);
    ck_assert_int_eq(put("d", 1, 102400, in, NULL, &n), 0);
    ck_assert_int_eq(put("e", 1, 102400, in, NULL, &n), KVC_E_LIMIT);
    free(ids);
    free(got);
}

CASE(pieces_of_nothing_are_swept)
{
    begin(16, 64, true);
    store(1, 0, 2);
    named("a", 1, 16);
    named("b", 1, 16);
    rig_settle(&r);
    const uint32_t entries = fake_journal_entries(r.journal);
    fake_journal_drop(r.journal, 0); /* the head of the first */
    restart(false);
    ck_assert_uint_eq(r.names_found.names, 1);
    ck_assert_uint_eq(r.names_found.pieces, 1);
    rig_settle(&r);
    ck_assert_uint_eq(fake_journal_entries(r.journal), entries / 2);
}

CASE(a_damaged_journal_begins_anew_with_what_could_be_read)
{
    begin(16, 64, true);
    store(1, 0, 2);
    named("a", 1, 16);
    named("b", 1, 16);
    rig_settle(&r);
    fake_journal_damage(r.journal, fake_journal_entries(r.journal) / 2);
    restart(false);
    ck_assert(r.names_found.damaged);
    ck_assert_uint_eq(r.names_found.names, 1);
    rig_settle(&r);
    restart(false);
    ck_assert(!r.names_found.damaged);
    ck_assert_uint_eq(r.names_found.names, 1);
    ck_assert_uint_eq(metrics()->named_blocks, 2);
}

CASE(names_go_on_in_memory_when_their_journal_fails)
{
    begin(16, 64, true);
    store(1, 0, 4);
    named("a", 1, 16);
    rig_settle(&r);
    r.journal_err = -EIO;
    struct waited w;
    struct core_named n;
    ck_assert_int_eq(put("c", 1, 32, (struct core_name_put){.durable = true}, &w, &n), 1);
    rig_settle(&r);
    ck_assert(w.calls == 1 && w.err == KVC_E_TIER);
    ck_assert_int_eq(core_names_error(r.core), -EIO);
    ck_assert_int_eq(put("c", 1, 32, (struct core_name_put){.durable = true}, &w, &n), KVC_E_TIER);
    named("d", 1, 24);
    forget("a", false);
    ck_assert_uint_eq(metrics()->named_blocks, 4);
}

/* The disk was full at the start, and is not any more. */
CASE(names_are_noted_once_their_journal_could_be_made)
{
    begin(16, 64, false);
    core_names_fail(r.core, -ENOSPC);
    store(1, 0, 4);
    named("a", 1, 16);
    named("gone", 1, 24);
    struct waited w;
    struct core_named n;
    ck_assert_int_eq(put("c", 1, 32, (struct core_name_put){.durable = true}, &w, &n), KVC_E_TIER);
    forget("gone", false);
    r.journal = fake_journal_create();
    core_names_begin(r.core, fake_journal_of(r.journal));
    ck_assert_int_eq(core_names_error(r.core), 0);
    ck_assert_uint_eq(metrics()->names_error, 0);
    ck_assert(!core_names_is_quiet(r.core));
    ck_assert_int_eq(put("d", 1, 24, (struct core_name_put){.durable = true}, &w, &n), 1);
    rig_settle(&r);
    ck_assert(w.calls == 1 && w.err == 0);
    restart(false);
    ck_assert_uint_eq(r.names_found.names, 3);
    ck_assert(find("a") && find("c") && find("d") && !find("gone"));
}

CASE(a_name_that_a_failed_journal_has_is_not_forgotten_for_good)
{
    begin(16, 64, true);
    store(1, 0, 4);
    named("a", 1, 16);
    named("b", 1, 32);
    rig_settle(&r);
    core_names_fail(r.core, -EIO);
    struct waited w = {.w = {.fn = on_waited}};
    struct core_evicted evicted;
    ck_assert_int_eq(core_name_forget(r.core, find("b"), &evicted, &w.w), KVC_E_TIER);
    ck_assert_uint_eq(evicted.blocks, 2);
    ck_assert_int_eq(core_name_forget(r.core, find("a"), NULL, &w.w), KVC_E_TIER);
    ck_assert_uint_eq(w.calls, 0);
    ck_assert_ptr_null(find("a"));
    ck_assert_ptr_null(find("b"));
    rig_settle(&r);
    restart(false);
    ck_assert_uint_eq(r.names_found.names, 2); /* which is why it is not OK */
}

/* i 0: it is noticed by the commit that it costs; 1: with none. */
CASE_EACH(a_journal_whose_name_leads_elsewhere_has_failed, 2)
{
    begin(16, 64, true);
    store(1, 0, 4);
    named("a", 1, 16);
    rig_settle(&r);
    fake_journal_unlink(r.journal);
    struct waited w = {.w = {.fn = on_waited}};
    if (_i == 0) {
        struct core_named n;
        ck_assert_int_eq(put("c", 1, 32, (struct core_name_put){.durable = true}, &w, &n), 1);
        rig_settle(&r);
        ck_assert(w.calls == 1 && w.err == KVC_E_TIER);
    } else {
        ck_assert_int_eq(core_names_error(r.core), 0);
        for (unsigned i = 0; i < 150; i++) /* three seconds */
            rig_step(&r);
        rig_settle(&r);
    }
    ck_assert_int_eq(core_names_error(r.core), -ENOENT);
    ck_assert_uint_eq(metrics()->names_error, ENOENT);
}

/* ---- at random ---- */

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* Trees: chain 10 * k + j has its first two blocks in common with 10 * k. */
static struct core_seq branch(uint32_t tree, uint32_t twig, uint32_t blocks)
{
    static uint8_t keys[8 * KVC_KEY_BYTES];
    for (uint32_t i = 0; i < blocks; i++) {
        const struct key256 key = rig_key(10 * tree + (i < 2 ? 0 : twig), i);
        memcpy(keys + i * KVC_KEY_BYTES, key.b, KVC_KEY_BYTES);
    }
    return (struct core_seq){
        .ns = ns, .tokens = blocks * BT, .ngroups = 1, .keys = {keys}, .n = {blocks}};
}

static struct rig_commit commits[64];
static unsigned ncommits;

/* Every other world has a hard limit on disk. What is bound there is within it, or was found so by
 * a restart and grows no more. */
static bool limited;
static uint64_t bound_max;

static void check_limit(void)
{
    struct core_quota q;
    uint32_t cursor = 0;
    ck_assert(core_quota_next(r.core, &cursor, &q) == limited);
    if (!limited)
        return;
    ck_assert_uint_le(q.bound[1], bound_max);
    bound_max = MAX(q.bound[1], q.bytes.limit[1]);
}

static void limit(void)
{
    const struct core_quota q = {
        .scope = KVC_SCOPE_TENANT,
        .tenant = "t1",
        .bytes = {{RETAIN_NO_LIMIT, limited ? 8 * 64 : RETAIN_NO_LIMIT}, {0, 0}}};
    ck_assert_int_eq(core_quota_set(r.core, &q), 0);
    bound_max = UINT64_MAX;
    check_limit();
}

static void act_store(void)
{
    const uint32_t tree = below(4), twig = below(3), n = 2 + below(5);
    static struct rig_put p;
    for (uint32_t part = 0; part < 2; part++) {
        p = (struct rig_put){.ns = ns,
                             .chain = 10 * tree + (part ? twig : 0),
                             .first = part ? 2 : 0,
                             .n = part ? n - 2 : 2,
                             .durable = below(8) == 0};
        if (p.n == 0 || ncommits == 64)
            return;
        const struct key256 parent = rig_key(10 * tree, 1);
        const struct core_reserve in = {.ns = ns,
                                        .parent = part ? parent.b : NULL,
                                        .first_token = p.first * BT,
                                        .keys = rig_keys(0, p.chain, p.first, p.n),
                                        .n = p.n,
                                        .durable = p.durable};
        ck_assert_int_eq(core_reserve(r.core, r.cl[1], &in, &p.reservation, p.statuses, &r.why), 0);
        if (p.reservation && rig_commit(&r, 1, &p, &commits[ncommits]) == 1)
            ncommits++;
    }
}

/* What would go is what goes. */
static void forget_now(struct core_name *nm, bool evict)
{
    struct core_evicted would, did;
    would = would_evict(nm);
    ck_assert_int_eq(core_name_forget(r.core, nm, evict ? &did : NULL, NULL), 0);
    if (evict)
        ck_assert_mem_eq(&did, &would, sizeof did);
}

/* Perhaps not to the end: the core goes on with it while others are put, used and forgotten. */
static void forget_in_slices(struct core_name *nm, bool evict)
{
    struct core_evicted would;
    struct core_forgetting x;
    would = would_evict(nm);
    r.core->cfg.slice_work = 1 + below(40);
    ck_assert_int_eq(core_name_forget_begin(r.core, nm, evict, &x, NULL), 0);
    bool more = true;
    for (uint32_t left = below(12); left > 0 && more; left--) {
        more = core_name_forget_step(r.core, &x);
        core_check(r.core);
    }
    if (!more && evict)
        ck_assert_mem_eq(&x.evicted, &would, sizeof would);
    core_name_forget_cancel(&x);
}

/* One that is put in slices, while all else happens. */
static struct {
    bool on;
    char name[2];
    uint8_t keys[8 * KVC_KEY_BYTES];
    struct core_name_put in;
    struct core_asking asking;
} slow;

static void put_said(int rc)
{
    ck_assert(rc == 0 || rc == KVC_E_GONE || rc == KVC_E_LIMIT || (limited && rc == KVC_E_QUOTA) ||
              (rc == KVC_E_TIER && fake_disk_is_out(r.disk)));
}

static void put_in_slices(const struct core_name_put *in)
{
    if (slow.on)
        return;
    memset(&slow, 0, sizeof slow);
    slow.on = true;
    slow.in = *in;
    memcpy(slow.name, in->id.name, sizeof slow.name);
    slow.in.id.name = (const uint8_t *)slow.name;
    memcpy(slow.keys, in->seq->keys[0], (size_t)in->seq->n[0] * KVC_KEY_BYTES);
    slow.asking = (struct core_asking){.in = {.seq = *in->seq}, .looks = true, .put = &slow.in};
    slow.asking.in.seq.keys[0] = slow.keys;
    slow.in.seq = &slow.asking.in.seq;
    r.core->cfg.slice_work = 1 + below(12);
}

static void slow_end(void)
{
    if (slow.on)
        core_ask_cancel(r.core, &slow.asking);
    slow.on = false;
}

static void slow_step(void)
{
    struct core_held none;
    if (!slow.on)
        return;
    if (below(30) == 0) {
        slow_end();
        return;
    }
    const int rc = core_ask_step(r.core, r.cl[1], &slow.asking, &none, &r.why);
    if (rc == CORE_MORE)
        return;
    slow.on = false;
    put_said(rc);
}

/* Until it holds some blocks, and not all of six. */
static void slow_partly(const struct core_name_put *in)
{
    const uint32_t spares = r.core->names->spares;
    put_in_slices(in);
    r.core->cfg.slice_work = 1;
    for (unsigned left = 4; left > 0; left -= r.core->names->spares > spares) {
        struct core_held none;
        ck_assert_int_eq(core_ask_step(r.core, r.cl[1], &slow.asking, &none, &r.why), CORE_MORE);
        core_check(r.core);
    }
}

/* The pin of the last run is not there any more, and may be made again. */
CASE(a_put_that_is_called_off_keeps_the_copies_of_a_pin_found_at_start)
{
    begin(16, 64, true);
    store(1, 0, 6);
    const struct core_pin pin = {.seq = rig_seq(ns, 1, 48)};
    struct core_pinned pinned;
    ck_assert_int_eq(core_pin(r.core, &pin, &pinned, &r.why), 0);
    rig_settle(&r);
    restart(false);
    ck_assert(rig_explain(&r, 1, 0, 1, 5).durable);
    const struct core_seq seq = rig_seq(ns, 1, 48);
    const struct core_name_put in = {.id = id_of(KVC_NAME_CONVERSATION, "c", ""), .seq = &seq};
    slow_partly(&in);
    slow_end();
    while (core_background_step(r.core))
        continue;
    ck_assert_uint_eq(metrics()->named_blocks, 0);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert(rig_explain(&r, 1, 0, 1, i).durable);
    r.core->cfg.slice_work = 0;
}

/* A part of it is within the limit, and is reached by then. */
CASE(a_put_that_a_quota_refuses_changes_nothing)
{
    begin(24, 64, true);
    store(1, 0, 8);
    const struct core_quota q = {
        .scope = KVC_SCOPE_TENANT, .tenant = "t1", .bytes = {{RETAIN_NO_LIMIT, 5 * 64}, {0, 0}}};
    ck_assert_int_eq(core_quota_set(r.core, &q), 0);
    const struct core_seq seq = rig_seq(ns, 1, 64);
    const struct core_wish wish = {.level = 80, .duration_ms = RETAIN_FOR_EVER};
    ck_assert_int_eq(core_wish(r.core, &seq, 0, &wish, true, &r.why), 8);
    const struct core_name_put in = {.id = id_of(KVC_NAME_CONVERSATION, "c", ""), .seq = &seq};
    struct core_held none;
    slow_partly(&in);
    int rc = CORE_MORE;
    while (rc == CORE_MORE)
        rc = core_ask_step(r.core, r.cl[1], &slow.asking, &none, &r.why);
    slow.on = false;
    ck_assert_int_eq(rc, KVC_E_QUOTA);
    while (core_background_step(r.core))
        core_check(r.core);
    ck_assert_ptr_null(find("c"));
    ck_assert_uint_eq(metrics()->named_blocks, 0);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, i).level, 80);
}

/* All spare slots but one are in use, and a name lets go of a chain and evicts it. What is put in
 * one piece needs no slice of any of them, twice. */
CASE(a_put_in_one_piece_waits_for_no_other_name_that_goes)
{
    begin(128, 0, true);
    store(1, 0, 8);
    store(3, 0, 8);
    for (uint32_t i = 1; i < NAMES_SPARES; i++)
        store(10 + i, 0, 4);
    const uint64_t blocks = metrics()->blocks_present;
    named("x", 1, 64);
    struct core_forgetting x;
    r.core->cfg.slice_work = 1;
    ck_assert_int_eq(core_name_forget_begin(r.core, find("x"), true, &x, NULL), 0);
    for (uint32_t i = 1; i < NAMES_SPARES; i++) {
        const struct core_seq seq = rig_seq(ns, 10 + i, 32);
        const struct core_name_put in = {.id = id_of(KVC_NAME_CONVERSATION, "c", ""), .seq = &seq};
        slow_partly(&in);
        slow_end();
    }
    ck_assert_uint_eq(r.core->names->spares, NAMES_SPARES - 1);
    named("y", 3, 64);
    named("y", 3, 8);
    ck_assert_uint_eq(r.core->names->spares, NAMES_SPARES - 1);
    ck_assert_uint_eq(named("y", 1, 64).tokens, 64);
    ck_assert_uint_eq(metrics()->blocks_present, blocks);
    while (core_background_step(r.core))
        core_check(r.core);
    ck_assert_uint_eq(metrics()->named_blocks, 8);
    core_name_forget_cancel(&x);
}

static void act_name(void)
{
    char name[2] = {(char)('a' + below(12)), 0};
    struct core_name_id id = id_of(KVC_NAME_CONVERSATION, name, "");
    struct core_seq seq = branch(below(4), below(3), 1 + below(7));
    struct core_name *nm;
    struct core_named n;
    switch (below(4)) {
    case 0:
        if (core_name_find(r.core, r.cl[1], &id, &nm) == 0)
            (below(2) ? forget_now : forget_in_slices)(nm, below(2) == 0);
        return;
    case 1:
        if (core_name_find(r.core, r.cl[1], &id, &nm) == 0)
            core_name_use(r.core, nm, below(2) ? UINT64_MAX : 500 + below(2000));
        return;
    default: {
        const struct core_name_put in = {.id = id,
                                         .seq = &seq,
                                         .priority = below(101),
                                         .ttl_ms = below(4) ? 0 : 1 + below(1000)};
        if (below(2))
            put_in_slices(&in);
        else
            put_said(core_name_put(r.core, r.cl[1], &in, NULL, &n, &r.why));
    }
    }
}

static void act_break(void)
{
    struct core_evict_job job = {.client = r.cl[1], .force = below(2) == 0, .have_key = true};
    switch (below(5)) {
    case 0:
        job.key = rig_key(10 * below(4) + below(3), below(6));
        rig_evict(&r, &job);
        return;
    case 1:
        (void)fake_disk_lose(r.disk);
        return;
    case 2:
        fake_disk_out(r.disk, below(3) == 0);
        return;
    case 3:
        fake_disk_want(r.disk, below(8));
        return;
    default:
        fake_disk_keeps(r.disk, below(4) > 0);
    }
}

static void turn(void)
{
    slow_step();
    core_check(r.core);
    (void)core_run_done(r.core);
    (void)core_background_step(r.core);
    (void)fake_tier_run(r.tier, below(6), 3);
    r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
    (void)fake_disk_run(r.disk, below(6), 3);
    if (below(3) == 0)
        (void)fake_journal_run(r.journal, 0);
    if (below(3) == 0)
        rig_step(&r);
    core_check(r.core);
}

static void calm(void)
{
    slow_end();
    fake_disk_out(r.disk, false);
    r.core->cfg.slice_work = UINT32_MAX;
    rig_settle(&r);
    for (; ncommits > 0; ncommits--) {
        ck_assert_uint_eq(commits[ncommits - 1].done, 1);
        rig_commit_free(&commits[ncommits - 1]);
    }
}

CASE(counts_hold_whatever_happens)
{
    const char *more = getenv("KVC_NAMES_SEEDS");
    const unsigned seeds = more ? (unsigned)strtoul(more, NULL, 10) : 40;
    for (unsigned seed = 1; seed <= seeds; seed++) {
        random_state = seed;
        limited = seed % 2 == 0;
        begin(24, 64, true);
        limit();
        for (unsigned i = 0; i < 400; i++) {
            switch (below(8)) {
            case 0:
            case 1:
                act_store();
                break;
            case 2:
                act_break();
                break;
            case 3:
                act_name();
                break;
            default:
                turn();
            }
            core_check(r.core);
            check_limit();
            if (below(100) == 0) {
                calm();
                restart(below(2) == 0);
                limit();
                ck_assert(!r.names_found.damaged);
            }
        }
        calm();
        rig_end(&r);
    }
}
