/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library against a daemon that answers what it likes: a session is open, the input says which
 * calls are made and what comes back (stage.h). Whatever comes, every call returns a value that its
 * header names, blocks that were handed out can be read, and nothing is left behind.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "stage.h"

#define HOLDS  4u
#define OPS    4u
#define KEYS   4u
#define TOKENS 16u
/* Arguments of INSPECT from here on: kvc_ns_spec_of, what stays (4), kvc_drain, and behind it
 * kvc_drain. */
#define INSPECT_SPEC  249u
#define INSPECT_DRAIN 254u

static struct kvc *kvc;
static struct kvc_ns *ns;
static struct kvc_hold *holds[HOLDS];
static uint64_t reservation;
static uint8_t keys[KEYS * KVC_KEY_BYTES];
static struct kvc_op *ops[OPS];
static unsigned seen; /* items of lists */
static volatile uint8_t sink;

static void check(int rc)
{
    bool known = rc >= 0 || rc > -200 || (rc <= -1000 && rc > -1000 - (int)KVC_ST_COUNT) ||
                 (rc <= KVC_STALE && rc >= KVC_E_NO_ROOM);
    FUZZ_CHECK(known, "a call returned %d", rc);
    FUZZ_CHECK(strlen(kvc_last_error(kvc)) < 512 && kvc_error_name(rc)[0] != '\0' &&
                   kvc_error_text(rc)[0] != '\0',
               "%d has no text", rc);
    *(rc >= 0 ? &fuzz_tally.taken : &fuzz_tally.refused) += 1;
}

static struct kvc_ns_spec specification(const char *model)
{
    return (struct kvc_ns_spec){.model = model,
                                .position = "rope",
                                .attention = "causal",
                                .groups = 1,
                                .group = {{.block_tokens = TOKENS, .block_bytes = 4096}}};
}

static struct kvc_seq sequence(void)
{
    return (struct kvc_seq){.tokens = KEYS * TOKENS, .group = {{.keys = keys, .n = KEYS}}};
}

static struct kvc_blocks some_blocks(void)
{
    return (struct kvc_blocks){.keys = keys, .n = KEYS};
}

/* The first and the last byte of each block, and the generations. */
static void read_hold(const struct kvc_hold *h)
{
    for (unsigned g = 0; g < KVC_GROUPS_MAX; g++)
        for (uint32_t i = 0; i < h->group[g].n; i++) {
            const struct kvc_block *b = &h->group[g].block[i];
            const uint8_t *data = b->data;
            if (b->bytes > 0)
                sink = (uint8_t)(data[0] + data[b->bytes - 1]);
        }
    int rc = kvc_hold_check(h);
    FUZZ_CHECK(rc == 0 || rc == KVC_STALE, "kvc_hold_check returned %d", rc);
}

static void keep_hold(struct kvc_hold *h, uint8_t arg)
{
    struct kvc_hold **at = &holds[arg / 16 % HOLDS];
    if (h == NULL)
        return;
    read_hold(h);
    kvc_release(kvc, at);
    *at = h;
}

static void call_acquire(uint8_t arg)
{
    struct kvc_seq seq = sequence();
    struct kvc_acquire_options o = {.flags = arg / 16 % 2 ? KVC_F_WAIT : 0};
    struct kvc_hold *h = NULL;
    check(kvc_acquire(ns, &seq, &o, &h));
    keep_hold(h, arg);
}

static void call_redeem(uint8_t arg)
{
    static const uint8_t ticket[KVC_TICKET_BYTES] = {1};
    struct kvc_hold *h = NULL;
    check(kvc_redeem(ns, ticket, &h));
    keep_hold(h, arg);
}

static const uint64_t *staged(void)
{
    static const uint64_t offsets[KEYS] = {0, 4096, 8192, UINT64_MAX};
    uint64_t bytes = 0;
    uint8_t *at = kvc_staging(kvc, &bytes);
    if (at != NULL && bytes > 0)
        at[0] = at[bytes - 1] = 1;
    return offsets;
}

static void call_write(uint8_t op, uint8_t arg)
{
    struct kvc_blocks b = some_blocks();
    uint8_t statuses[KEYS];
    const uint64_t *offsets = staged();
    if (op == 0)
        check(kvc_reserve(ns, &b, &reservation, statuses));
    else if (op == 1)
        check(kvc_commit(ns, reservation, arg / 64u, KEYS - arg / 64u, offsets, NULL, 0, statuses));
    else if (op == 2)
        check(kvc_store(ns, &b, offsets, NULL, 0, statuses));
    else
        check(kvc_drop(kvc, reservation));
}

static int on_stat(void *ctx, const struct kvc_stat *s)
{
    (void)ctx;
    FUZZ_CHECK(memchr(s->name, 0, sizeof(s->name)) != NULL, "a name without an end");
    return ++seen % 64 == 63;
}

/* ctx: the table. */
static int on_row(void *ctx, const void *row)
{
    const struct kvc_table *table = ctx;
    for (uint32_t i = 0; i < table->columns; i++) {
        const struct kvc_column *c = &table->column[i];
        const bool text = c->type == KVC_COLUMN_NAME || c->type == KVC_COLUMN_TEXT;
        const uint8_t *at = (const uint8_t *)row + c->at;
        sink = (uint8_t)(at[0] + at[c->bytes - 1]);
        FUZZ_CHECK(!text || memchr(at, 0, c->bytes) != NULL, "a text without an end");
        FUZZ_CHECK(c->type != KVC_COLUMN_BOOL || at[0] <= 1, "a bool of %u", at[0]);
    }
    /* A daemon may page for ever; a caller may stop. */
    return ++seen % 64 == 63;
}

static void call_list(unsigned arg)
{
    const enum kvc_table_id table = (enum kvc_table_id)(1 + arg % (KVC_TABLE_END - 1));
    check(kvc_list(kvc, table, NULL, on_row, (void *)kvc_table(table)));
}

static void call_blocks(unsigned mode)
{
    const struct kvc_filter walk = {.mode = (enum kvc_walk_mode)mode,
                                    .ns = mode == KVC_WALK_KEYS ? 0 : 1,
                                    .keys = keys,
                                    .n = mode == KVC_WALK_KEYS    ? KEYS
                                         : mode == KVC_WALK_ROOTS ? 0
                                                                  : 1,
                                    .depth = 64};
    check(kvc_list(kvc, KVC_TABLE_BLOCKS, &walk, on_row, (void *)kvc_table(KVC_TABLE_BLOCKS)));
}

static void call_look(uint8_t op, uint8_t arg)
{
    struct kvc_evict_filter filter = {.key = keys, .dry_run = arg / 16 % 2};
    struct kvc_evicted evicted;
    uint64_t uptime;
    if (op == 0)
        check(kvc_ping(kvc, &uptime));
    else if (op == 1)
        check(kvc_stats(kvc, on_stat, NULL));
    else if (op == 2)
        call_list(arg / 16);
    else if (op == 3)
        call_blocks(KVC_WALK_KEYS);
    else if (arg / 32 % 2)
        check(kvc_name_evict(kvc, KVC_NAME_DOCUMENT, "a", NULL, filter.dry_run, &evicted));
    else
        check(kvc_evict(kvc, &filter, &evicted));
}

/* ---- what operators ask for ---- */

static int on_traced(void *ctx, const struct kvc_trace_record *r)
{
    (void)ctx;
    if (r->n > 0)
        sink = r->ids[(size_t)r->n * 8 - 1];
    return ++seen % 64 == 63;
}

static void call_keep(uint8_t arg)
{
    struct kvc_ns_spec *spec = NULL;
    struct kvc_policy_info policy;
    bool own;
    if (arg == INSPECT_SPEC) {
        const int rc = kvc_ns_spec_of(kvc, 1, &spec, &own);
        check(rc);
        FUZZ_CHECK((rc == 0) == (spec != NULL), "a specification and %d", rc);
        if (spec != NULL)
            sink = (uint8_t)(strlen(spec->model) + strlen(spec->sub_tenant) + spec->groups);
        free(spec);
    } else if (arg == INSPECT_SPEC + 1) {
        check(kvc_unpin(kvc, 1));
    } else if (arg == INSPECT_SPEC + 2) {
        const struct kvc_quota quota = {.scope = KVC_SCOPE_NS, .ns = 1};
        check(kvc_quota_set(kvc, &quota));
    } else if (arg == INSPECT_SPEC + 3) {
        check(kvc_session_end(kvc, 1));
    } else {
        check(kvc_policy(kvc, NULL, &policy));
    }
}

static void call_storage(void)
{
    struct kvc_drained drained;
    check(kvc_drain(kvc, 1, &drained));
}

static void call_inspect(uint8_t arg)
{
    if (arg >= INSPECT_SPEC) {
        if (arg >= INSPECT_DRAIN)
            call_storage();
        else
            call_keep(arg);
        return;
    }
    static struct kvc_verified verified;
    struct kvc_verify verify = {.bytes_max = 1, .cursor = arg / 16u};
    struct kvc_trace_state state;
    uint64_t lost;
    switch (arg % 8u) {
    case 3:
        check(kvc_verify_slice(kvc, &verify, &verified));
        FUZZ_CHECK(verified.corrupt <= KVC_VERIFY_MAX, "%u corrupt blocks", verified.corrupt);
        break;
    case 4:
    case 5:
    case 6:
        check(kvc_trace(kvc, arg % 8u - 4, 0, 0, &state));
        break;
    case 7:
        check(kvc_trace_dump(kvc, 0, on_traced, NULL, &lost));
        break;
    default:
        call_blocks(arg % 4u);
    }
}

/* ---- in two halves ---- */

static void finish(struct kvc_op **op, uint8_t arg)
{
    struct kvc_result r;
    if (*op == NULL)
        return;
    check(kvc_finish(op, &r));
    FUZZ_CHECK(*op == NULL, "an op is left");
    for (uint32_t i = 0; i < r.n; i++)
        sink = r.statuses[i];
    keep_hold(r.hold, arg);
}

/* All that are done, as a loop takes them. */
static void take_done(uint8_t arg)
{
    struct kvc_op *op = NULL;
    int n = kvc_progress(kvc), taken = 0;
    FUZZ_CHECK(n >= 0, "kvc_progress returned %d", n);
    while (kvc_next(kvc, &op) > 0) {
        FUZZ_CHECK(kvc_done(op), "an op is handed out that is not done");
        for (unsigned i = 0; i < OPS; i++)
            if (ops[i] == op)
                ops[i] = NULL;
        finish(&op, arg);
        taken++;
    }
    FUZZ_CHECK(taken >= n, "%d of %d were handed out", taken, n);
}

static void begin(uint8_t what, struct kvc_op **at)
{
    static const uint8_t ticket[KVC_TICKET_BYTES] = {1};
    struct kvc_seq seq = sequence();
    struct kvc_blocks b = some_blocks();
    struct kvc_ns_spec spec = specification("n");
    const uint64_t *offsets = staged();
    switch (what) {
    case 0:
        check(kvc_ping_begin(kvc, at));
        break;
    case 1:
        check(kvc_lookup_begin(ns, &seq, 0, at));
        break;
    case 2:
        check(kvc_acquire_begin(ns, &seq, NULL, at));
        break;
    case 3:
        check(kvc_redeem_begin(ns, ticket, at));
        break;
    case 4:
        check(kvc_reserve_begin(ns, &b, at));
        break;
    case 5:
        check(kvc_commit_begin(ns, reservation, 0, KEYS, offsets, NULL, 0, at));
        break;
    case 6:
        check(kvc_store_begin(ns, &b, offsets, NULL, 0, at));
        break;
    case 7:
        check(kvc_drop_begin(kvc, reservation, at));
        break;
    default:
        check(kvc_ns_open_begin(kvc, &spec, at));
    }
}

static void call_halves(uint8_t arg)
{
    struct kvc_op **at = &ops[arg / 16 % OPS];
    uint8_t what = arg % 16u;
    if (what < 9) {
        finish(at, arg);
        begin(what, at);
    } else if (what == 9) {
        check(kvc_fd(kvc));
    } else if (what == 10) {
        finish(at, arg);
    } else if (what == 11 && *at != NULL) {
        check(kvc_cancel_begin(*at));
    } else if (what == 12 && *at != NULL) {
        check(kvc_cancel(*at));
    } else {
        take_done(arg);
    }
}

static void call(const struct record *r)
{
    struct kvc_seq seq = sequence();
    struct kvc_prefix prefix;
    uint8_t what = r->arg % 16u, verb = r->verb % 16u;
    if (verb != STAGE_CALL) {
        if (verb % 2 != 0)
            call_inspect(r->arg);
        else
            call_halves(r->arg);
        return;
    }
    switch (what) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
        call_look(what, r->arg);
        break;
    case 5:
        check(kvc_lookup(ns, &seq, 0, &prefix));
        break;
    case 6:
    case 7:
        call_acquire(r->arg);
        break;
    case 8:
        call_redeem(r->arg);
        break;
    case 9:
    case 10:
    case 11:
    case 12:
        call_write((uint8_t)(what - 9), r->arg);
        break;
    default:
        if (holds[r->arg / 16 % HOLDS] != NULL)
            read_hold(holds[r->arg / 16 % HOLDS]);
        kvc_release(kvc, &holds[r->arg / 16 % HOLDS]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvc_options o = {.socket = "/nowhere", .name = "fuzz", .staging_bytes = 65536};
    struct kvc_ns_spec spec = specification("m");
    struct record r;
    for (size_t i = 0; i < sizeof(keys); i++)
        keys[i] = (uint8_t)i;
    reservation = 1;
    stage_begin(data, size, true);
    FUZZ_CHECK(kvc_open(&o, &kvc) == 0, "%s", kvc_last_error(NULL));
    if (kvc_ns_open(kvc, &spec, &ns) == 0)
        while (stage_next_call(&r))
            call(&r);
    for (unsigned i = 0; i < HOLDS; i++)
        kvc_release(kvc, &holds[i]);
    memset(ops, 0, sizeof(ops)); /* closing frees what was not finished */
    kvc_close(&kvc);
    stage_end();
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    return records_mutate(data, size, max_size, seed);
}
