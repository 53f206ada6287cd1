/* SPDX-License-Identifier: Apache-2.0 */
/* Each reply against what was asked. */
#include <stdlib.h>

#include "digest.h"
#include "share.h"
#include "sim.h"

struct sim_req *sim_req_by_corr(struct sim_client *cl, uint64_t corr)
{
    for (uint32_t i = 0; i < SIM_REQS; i++)
        if (cl->req[i].used && cl->req[i].corr == corr)
            return &cl->req[i];
    return NULL;
}

void sim_slots_back(struct sim *s, struct sim_client *cl, const struct sim_req *r)
{
    SIM_CHECK(s, sim_tier_of(s, cl, r->corr) == 0,
              "request %llu is over and a copy still reads staging", (unsigned long long)r->corr);
    for (uint32_t i = 0; i < SIM_SLOTS; i++) {
        if (cl->slot_req[i] != (uint32_t)(r - cl->req))
            continue;
        cl->slot_req[i] = SIM_NONE;
        memset(cl->staging + (size_t)i * SIM_SLOT, 0xee, SIM_SLOT);
    }
}

/* ---- reading ---- */

static void count_miss(struct sim *s, uint8_t reason)
{
    SIM_CHECK(s, reason < KVC_MISS_COUNT, "miss reason %u", reason);
    s->totals->misses[reason]++;
}

/* T is the end of a block in every group. */
static void check_hit(struct sim *s, const struct sim_seq *q, uint32_t hit)
{
    SIM_CHECK(s, hit <= q->tokens, "a hit of %u of %u tokens", hit, q->tokens);
    for (uint32_t g = 0; g < s->spec[q->space.spec].ngroups; g++) {
        bool whole = hit % s->spec[q->space.spec].groups[g].block_tokens == 0;
        SIM_CHECK(s, whole || (hit == q->tokens && q->partial),
                  "a hit of %u is no block end of group %u", hit, g);
    }
}

static void on_lookup(struct sim *s, struct sim_req *r, const struct sim_answer *a)
{
    struct msg_reply_head h;
    struct msg_lookup_reply m;
    SIM_CHECK(s, codec_dec_lookup_reply(a->bytes, a->len, &h, &m) == 0, "an unreadable reply");
    const struct msg_ns_open *spec = &s->spec[r->seq.space.spec];
    SIM_CHECK(s, m.ngroups == spec->ngroups, "groups in a reply");
    check_hit(s, &r->seq, m.hit_tokens);
    for (uint32_t g = 0; g < m.ngroups; g++) {
        uint32_t first, end, n = sim_nkeys(s, &r->seq, g);
        SIM_CHECK(s, m.groups[g].blocks <= n, "more blocks than keys");
        sim_needs(s, r->seq.space.spec, g, m.hit_tokens, 0, &first, &end);
        SIM_CHECK(s, first > 0 || m.groups[g].blocks >= end,
                  "a hit with %u of %u blocks of group %u", m.groups[g].blocks, end, g);
        count_miss(s, m.groups[g].reason);
    }
}

static struct sim_lease *free_lease(struct sim *s, struct sim_client *cl)
{
    for (uint32_t i = 0; i < SIM_LEASES; i++)
        if (!cl->lease[i].id)
            return &cl->lease[i];
    sim_fail(s, "client %u: no place for a lease", sim_index(s, cl));
}

static void note_ticket(struct sim *s, struct sim_client *cl, const struct sim_req *r,
                        const struct msg_acquire_reply *m)
{
    struct sim_ticket *t = &s->ticket[s->nticket++ % SIM_TICKETS];
    *t = (struct sim_ticket){.client = sim_index(s, cl),
                             .life = cl->life,
                             .principal = cl->principal,
                             .lease = m->lease,
                             .seq = r->seq,
                             .from = r->from};
    memcpy(t->bytes, m->ticket, sizeof t->bytes);
}

void sim_reply_held(struct sim *s, struct sim_client *cl, struct sim_req *r,
                    const struct msg_acquire_reply *m)
{
    check_hit(s, &r->seq, m->hit_tokens);
    SIM_CHECK(s, (m->lease != 0) == (m->hit_tokens > r->from), "hit %u from %u, lease %llu",
              m->hit_tokens, r->from, (unsigned long long)m->lease);
    for (uint32_t g = 0; g < m->ngroups; g++)
        count_miss(s, m->groups[g].reason);
    if (!m->lease)
        return;
    uint32_t spec = r->seq.space.spec;
    struct sim_lease *l = free_lease(s, cl);
    *l = (struct sim_lease){.id = m->lease, .seq = r->seq, .hit = m->hit_tokens, .shard = r->shard};
    SIM_CHECK(s, m->ngroups == s->spec[spec].ngroups, "groups in a reply");
    for (uint32_t g = 0; g < m->ngroups; g++) {
        uint32_t first, end, n = m->groups[g].locs.n / KVC_LOC_BYTES;
        sim_needs(s, spec, g, m->hit_tokens, r->from, &first, &end);
        SIM_CHECK(s, m->groups[g].first == first && n == end - first,
                  "group %u: blocks %u + %u held, %u to %u needed", g, m->groups[g].first, n, first,
                  end);
        for (uint32_t i = 0; i < n; i++) {
            struct msg_loc loc;
            codec_get_loc(m->groups[g].locs.p + (size_t)i * KVC_LOC_BYTES, &loc);
            l->loc[l->n].view = (struct tier_view){.chunk = loc.chunk,
                                                   .bytes = loc.bytes,
                                                   .off = loc.off,
                                                   .hdr = loc.hdr,
                                                   .gen = loc.gen};
            l->loc[l->n].group = (uint8_t)g;
            l->loc[l->n++].block = (uint16_t)(first + i);
            l->bytes += sim_block_bytes(s, spec, g);
        }
    }
    note_ticket(s, cl, r, m);
    s->totals->leases++;
    sim_check_lease(s, cl, l);
}

static void on_held(struct sim *s, struct sim_client *cl, struct sim_req *r,
                    const struct sim_answer *a)
{
    struct msg_reply_head h;
    struct msg_acquire_reply m;
    SIM_CHECK(s, codec_dec_acquire_reply(a->bytes, a->len, &h, &m) == 0, "an unreadable reply");
    SIM_CHECK(s, !r->ticket_bad, "a ticket that is not good any more, or not for this principal");
    sim_reply_held(s, cl, r, &m);
    SIM_TRACE(s, "client %u holds %u of %u tokens of chain %u", sim_index(s, cl), m.hit_tokens,
              r->seq.tokens, r->seq.chain);
}

static void on_release(struct sim *s, struct sim_req *r, const struct sim_answer *a)
{
    struct msg_reply_head h;
    struct msg_release_reply m;
    SIM_CHECK(s, codec_dec_release_reply(a->bytes, a->len, &h, &m) == 0, "an unreadable reply");
    SIM_CHECK(s, m.released == r->lease, "%u leases released of %llu", m.released,
              (unsigned long long)r->lease);
}

/* ---- writing ---- */

static void on_reserve(struct sim *s, struct sim_client *cl, struct sim_req *r,
                       const struct sim_answer *a)
{
    struct msg_reply_head h;
    struct msg_reserve_reply m;
    SIM_CHECK(s, codec_dec_reserve_reply(a->bytes, a->len, &h, &m) == 0, "an unreadable reply");
    SIM_CHECK(s, m.statuses.n == r->span.n, "statuses in a reply");
    struct sim_resv *v = &cl->resv[r->resv];
    uint32_t ok = 0;
    for (uint32_t i = 0; i < m.statuses.n; i++) {
        v->status[i] = m.statuses.p[i];
        SIM_CHECK(s, v->status[i] < KVC_ST_COUNT, "status %u", v->status[i]);
        s->totals->keys[v->status[i]]++;
        ok += v->status[i] == KVC_ST_OK;
    }
    SIM_CHECK(s, (ok > 0) == (m.reservation != 0), "%u blocks reserved, reservation %llu", ok,
              (unsigned long long)m.reservation);
    v->id = m.reservation;
    sim_check_told(s, v->id);
    v->asked = false;
    v->used = ok > 0;
}

static bool status_fits(const struct sim *s, const struct sim_req *r, uint32_t i, uint8_t status)
{
    bool store = r->op == KVC_OP_STORE;
    bool refused = status == KVC_ST_EXISTS || status == KVC_ST_PENDING || status == KVC_ST_FULL ||
                   status == KVC_ST_NO_PARENT || status == KVC_ST_TOO_LARGE ||
                   status == KVC_ST_QUOTA || status == KVC_ST_NOT_WORTH ||
                   status == KVC_ST_BAD_ARGUMENT || status == KVC_ST_BUSY ||
                   (status == KVC_ST_TIER &&
                    (s->disk_out || s->disk_out_turn > r->turn || s->disk_lost || s->slices));
    if (r->offset[i] == OFFSET_SKIP)
        return status == KVC_ST_OK || (store && refused) || (s->slices && status == KVC_ST_GONE);
    if (r->offset[i] == OFFSET_BAD)
        return status == KVC_ST_BAD_ARGUMENT || status == KVC_ST_GONE || (store && refused);
    switch (r->verdict[i]) {
    case 0:
        return status == KVC_ST_OK || status == KVC_ST_GONE ||
               (r->span.durable &&
                (status == KVC_ST_TIER || status == KVC_ST_FULL || status == KVC_ST_QUOTA));
    case 1:
        return status == KVC_ST_GONE || status == KVC_ST_BUSY || (store && refused);
    case -EIO:
        return status == KVC_ST_TIER || status == KVC_ST_GONE;
    case -ETIMEDOUT:
        return status == KVC_ST_TIMEOUT || status == KVC_ST_GONE;
    case -ECANCELED:
        return status == KVC_ST_CANCELLED || status == KVC_ST_GONE;
    default:
        return false; /* still under way */
    }
}

static void on_commit(struct sim *s, struct sim_req *r, const struct sim_answer *a)
{
    struct msg_reply_head h;
    struct msg_commit_reply m;
    SIM_CHECK(s, codec_dec_commit_reply(a->bytes, a->len, &h, &m) == 0, "an unreadable reply");
    SIM_CHECK(s, m.statuses.n == r->wait_tokens, "statuses in a reply");
    for (uint32_t i = 0; i < m.statuses.n; i++) {
        uint8_t status = m.statuses.p[i];
        SIM_CHECK(s, status < KVC_ST_COUNT && status_fits(s, r, i, status),
                  "entry %u of request %llu: status %s, its copy %s", i,
                  (unsigned long long)r->corr, codec_status_name(status),
                  r->verdict[i] == 1   ? "was not made"
                  : r->verdict[i] == 2 ? "is under way"
                                       : err_name(r->verdict[i]));
        s->totals->keys[status]++;
    }
}

static void on_cancel(struct sim *s, struct sim_client *cl, struct sim_req *r,
                      const struct sim_answer *a)
{
    struct msg_reply_head h;
    struct msg_cancel_reply m;
    SIM_CHECK(s, codec_dec_cancel_reply(a->bytes, a->len, &h, &m) == 0, "an unreadable reply");
    struct sim_req *t = sim_req_by_corr(cl, r->target);
    SIM_CHECK(s, sim_tier_of(s, cl, r->target) == 0, "cancelled, and a copy still reads staging");
    if (!t || t == r ||
        !t->delivered) /* by chance its own number, or of one on its way behind it */
        return;
    SIM_CHECK(s, t->timed_out, "CANCEL is answered before its target");
    sim_slots_back(s, cl, t);
    t->used = false;
}

/* ---- the rest ---- */

static void on_ns_open(struct sim *s, struct sim_client *cl, struct sim_req *r,
                       const struct sim_answer *a)
{
    struct msg_reply_head h;
    struct msg_ns_open_reply m;
    SIM_CHECK(s, codec_dec_ns_open_reply(a->bytes, a->len, &h, &m) == 0, "an unreadable reply");
    const struct sim_space *p = &r->seq.space;
    bool *known = &s->seed_known[p->principal][p->spec][p->sub];
    uint8_t *seed = s->seed_of[p->principal][p->spec][p->sub];
    SIM_CHECK(s, m.ns && (!*known || memcmp(seed, m.seed, KVC_KEY_BYTES) == 0),
              "another seed for the same namespace");
    *known = true;
    memcpy(seed, m.seed, KVC_KEY_BYTES);
    cl->ns[p->spec][p->sub] = m.ns;
}

static void on_blocks(struct sim *s, struct sim_client *cl, struct codec_rows *rows)
{
    struct kvc_block_info x;
    int rc;
    while ((rc = codec_rows_next(rows, &x)) == 1) {
        bool seen = !x.ns || core_ns_exists(s->core, s->observer[cl->principal], x.ns);
        SIM_CHECK(s, seen || s->slices, "LIST shows a block of somebody else");
        SIM_CHECK(s, x.state != KVC_BLOCK_PRESENT || x.shards == x.shards_present,
                  "present with %u of %u shards", x.shards_present, x.shards);
    }
    SIM_CHECK(s, rc == 0 && (rows->cursor.n == 0 || rows->cursor.n == sizeof cl->cursor),
              "an unreadable list");
    cl->cursor = 0;
    if (rows->cursor.n > 0)
        memcpy(&cl->cursor, rows->cursor.p, sizeof cl->cursor);
    cl->cursor = le64toh(cl->cursor);
}

static void on_list(struct sim *s, struct sim_client *cl, const struct sim_answer *a)
{
    struct msg_reply_head h;
    struct codec_rows rows;
    struct kvc_ns_info x;
    if (codec_rows_read(a->bytes, a->len, codec_table(KVC_TABLE_BLOCKS), &h, &rows) == 0) {
        on_blocks(s, cl, &rows);
        return;
    }
    int rc = codec_rows_read(a->bytes, a->len, codec_table(KVC_TABLE_NAMESPACES), &h, &rows);
    SIM_CHECK(s, rc == 0, "an unreadable list");
    while ((rc = codec_rows_next(&rows, &x)) == 1)
        SIM_CHECK(s, core_ns_exists(s->core, s->observer[cl->principal], x.ns) || s->slices,
                  "LIST shows a namespace of somebody else");
    SIM_CHECK(s, rc == 0, "an unreadable list");
}

/* Nothing spoils what is stored here. */
static void on_verify(struct sim *s, const struct sim_req *r, const struct sim_answer *a,
                      const struct sim_client *cl)
{
    static struct msg_verify_reply m;
    struct msg_reply_head h;
    SIM_CHECK(s, codec_dec_verify_reply(a->bytes, a->len, &h, &m) == 0, "an unreadable reply");
    SIM_CHECK(s, m.ncorrupt == 0, "%u good blocks are called corrupt", m.ncorrupt);
    SIM_CHECK(s, sim_tier_of(s, cl, r->corr) == 0, "VERIFY is over, and still reads");
}

static void on_ok(struct sim *s, struct sim_client *cl, struct sim_req *r,
                  const struct sim_answer *a)
{
    switch (r->op) {
    case KVC_OP_HELLO:
        cl->greeted = true;
        return;
    case KVC_OP_LOOKUP:
        on_lookup(s, r, a);
        return;
    case KVC_OP_ACQUIRE:
    case KVC_OP_REDEEM:
        on_held(s, cl, r, a);
        return;
    case KVC_OP_RELEASE:
        on_release(s, r, a);
        return;
    case KVC_OP_RESERVE:
        on_reserve(s, cl, r, a);
        return;
    case KVC_OP_COMMIT:
    case KVC_OP_STORE:
        on_commit(s, r, a);
        return;
    case KVC_OP_CANCEL:
        on_cancel(s, cl, r, a);
        return;
    case KVC_OP_NS_OPEN:
        on_ns_open(s, cl, r, a);
        return;
    case KVC_OP_VERIFY:
        on_verify(s, r, a, cl);
        return;
    case KVC_OP_LIST:
        on_list(s, cl, a);
        return;
    default:
        return;
    }
}

/* What may be unevictable before somebody is refused more: of principals half is promised to all
 * of them, of shares the whole. */
static uint64_t unevictable_most(struct sim *s)
{
    struct tier_stats st;
    s->core_cfg.tier[CORE_HOST]->ops->stats(s->core_cfg.tier[CORE_HOST], &st);
    const uint64_t shares = MIN(core_quota_promised(s->core, 0, NULL), st.limit_bytes);
    const uint64_t most = s->core_cfg.fair ? st.limit_bytes / 2 : st.limit_bytes;
    return MIN(most, MAX(st.limit_bytes - shares, st.limit_bytes / TIER_PASSING));
}

/* The same in regions of memory. The core says how many of them hold the shares: its blocks fill a
 * region by their own sizes. */
static uint64_t regions_most(struct sim *s)
{
    struct tier_stats st;
    s->core_cfg.tier[CORE_HOST]->ops->stats(s->core_cfg.tier[CORE_HOST], &st);
    const uint64_t shares = core_metrics(s->core)->guaranteed_regions,
                   each = share_each(st.regions, SIM_PRINCIPALS),
                   most = st.regions - (s->core_cfg.fair ? each * SIM_PRINCIPALS : 0);
    return MIN(most, MAX(st.regions - MIN(st.regions, shares), st.regions / TIER_PASSING));
}

/* LIMIT of an ACQUIRE is the truth: what it found would be too much. */
static void check_limit(struct sim *s, struct sim_client *cl, const struct sim_req *r)
{
    struct core_ns *ns = sim_core_ns(s, cl, &r->seq.space);
    struct core_prefix found;
    const char *why;
    if (!ns || r->op != KVC_OP_ACQUIRE || r->any || cl->lost)
        return;
    struct core_seq q = sim_core_seq(s, ns, &r->seq);
    MUST(core_lookup(s->core, &q, false, &found, &why) == 0);
    struct tier *host = s->core_cfg.tier[CORE_HOST];
    uint64_t bytes = 0, kept = 0, slots = 0; /* kept: with what comes before it, without storage */
    for (uint32_t i = 0; i < SIM_LEASES; i++)
        bytes += cl->lease[i].id ? cl->lease[i].bytes : 0;
    for (uint32_t g = 0; g < q.ngroups; g++) {
        uint32_t first, end;
        sim_needs(s, r->seq.space.spec, g, found.tokens, r->from, &first, &end);
        const uint32_t payload = s->spec[r->seq.space.spec].groups[g].block_bytes;
        const uint64_t each = sim_block_bytes(s, r->seq.space.spec, g);
        const uint64_t all = (end - (s->core_cfg.tier[CORE_STORAGE] ? first : 0)) * each / payload;
        bytes += (end - first) * each;
        kept += all * (host->ops->slot_bytes ? host->ops->slot_bytes(host, payload) : payload);
        slots += all;
    }
    SIM_CHECK(s,
              bytes > s->core_cfg.lease_bytes_max ||
                  core_metrics(s->core)->unevictable_bytes + kept > unevictable_most(s) ||
                  core_metrics(s->core)->unevictable_regions + slots > regions_most(s),
              "LIMIT at %llu bytes of %llu", (unsigned long long)bytes,
              (unsigned long long)s->core_cfg.lease_bytes_max);
}

static void on_error(struct sim *s, struct sim_client *cl, struct sim_req *r, uint16_t status)
{
    if (status == KVC_ST_NO_NAMESPACE && !r->any)
        memset(cl->ns, 0, sizeof cl->ns);
    if (status == KVC_ST_TIMEOUT)
        SIM_CHECK(s, s->now_ns >= r->due_ns || (s->slices && r->op == KVC_OP_RELEASE),
                  "TIMEOUT before the deadline");
    if (status == KVC_ST_NO_LEASE)
        SIM_CHECK(s, !r->ticket_good, "a good ticket is refused");
    if (status == KVC_ST_LIMIT && s->core_cfg.namespaces_max >= 32 && !s->slices)
        check_limit(s, cl, r);
    if (r->op == KVC_OP_RESERVE && !r->any)
        cl->resv[r->resv].used = false;
    if (r->op == KVC_OP_RELEASE)
        SIM_CHECK(s, status == KVC_ST_VERSION || s->slices, "RELEASE is refused");
}

static void read_one(struct sim *s, struct sim_client *cl, const struct sim_answer *a)
{
    struct msg_reply_head h;
    SIM_CHECK(s, codec_dec_reply_head(a->bytes, a->len, &h) == 0, "a reply that cannot be read");
    struct sim_req *r = sim_req_by_corr(cl, h.corr);
    SIM_TRACE(s, "client %u: reply to %llu, operation %u: %s%s%.*s", sim_index(s, cl),
              (unsigned long long)h.corr, h.op, codec_status_name(h.status), h.detail.n ? ": " : "",
              (int)h.detail.n, h.detail.n ? (const char *)h.detail.p : "");
    SIM_CHECK(s, r && r->delivered && !r->timed_out,
              "a second reply, or one that nobody asked for");
    SIM_CHECK(s, h.op == r->op, "operation %u in the reply to %u", h.op, r->op);
    uint32_t allowed = r->allowed;
    if (s->draining)
        allowed |= 1u << KVC_ST_SHUTDOWN;
    if (s->slices) /* until its turn the namespace may go, and time */
        allowed |= 1u << KVC_ST_TIMEOUT | 1u << KVC_ST_CANCELLED | 1u << KVC_ST_NO_NAMESPACE |
                   1u << KVC_ST_BUSY;
    if (!cl->greeted)
        allowed |= 1u << KVC_ST_VERSION;
    SIM_CHECK(s, h.status < KVC_ST_COUNT && allowed >> h.status & 1,
              "operation %u: status %s: %.*s", h.op, codec_status_name(h.status), (int)h.detail.n,
              h.detail.n ? (const char *)h.detail.p : "");
    s->totals->replies[h.op < SIM_OPS ? h.op : 0][h.status]++;
    if (h.status != KVC_ST_OK)
        on_error(s, cl, r, h.status);
    else if (!r->any)
        on_ok(s, cl, r, a);
    bool copies = r->op == KVC_OP_COMMIT || r->op == KVC_OP_STORE;
    if ((copies || r->op == KVC_OP_VERIFY) && h.status == KVC_ST_TIMEOUT && !r->any) {
        r->timed_out = true;
        return;
    }
    if (copies)
        sim_slots_back(s, cl, r);
    r->used = false;
}

/* ---- the digest ---- */

void sim_told(struct sim *s, uint64_t *digest, const void *p, size_t n)
{
    *digest = digest_bytes(digest_number(*digest, s->now_ns), p, n);
}

void sim_ended(struct sim *s, int err, uint64_t n)
{
    uint64_t *digest = &s->totals->digest.blocks;
    *digest = digest_number(digest_number(*digest, s->now_ns), (uint64_t)(int64_t)err);
    *digest = digest_number(*digest, n);
}

static uint64_t *digest_of(struct sim *s, const struct sim_answer *a)
{
    static const uint32_t of_blocks =
        1u << KVC_OP_NS_OPEN | 1u << KVC_OP_LOOKUP | 1u << KVC_OP_ACQUIRE | 1u << KVC_OP_REDEEM |
        1u << KVC_OP_RELEASE | 1u << KVC_OP_RESERVE | 1u << KVC_OP_COMMIT | 1u << KVC_OP_STORE |
        1u << KVC_OP_DROP | 1u << KVC_OP_CANCEL;
    struct msg_reply_head h;
    struct sim_digest *d = &s->totals->digest;
    SIM_CHECK(s, codec_dec_reply_head(a->bytes, a->len, &h) == 0, "a reply that cannot be read");
    return h.op < 32 && of_blocks >> h.op & 1 ? &d->blocks : &d->rest;
}

void sim_read_answers(struct sim *s)
{
    for (uint32_t i = 0; i < s->nanswers; i++) {
        struct sim_answer *a = &s->answer[i];
        struct sim_client *cl = &s->client[a->client];
        sim_told(s, digest_of(s, a), a->bytes, a->len);
        if (cl->life == a->life)
            read_one(s, cl, a);
        free(a->bytes);
    }
    s->nanswers = 0;
}
