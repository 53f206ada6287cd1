/* SPDX-License-Identifier: Apache-2.0 */
/* Handler of VERIFY: whether the bytes that are cached are those that were stored. */
#include <stdio.h>

#include "svc__.h"

_Static_assert(KVC_VERIFY_MAX == CORE_VERIFY_BLOCKS, "a slice can find all its blocks corrupt");

static void hex_of(const struct key256 *key, char text[2 * KVC_KEY_BYTES + 1])
{
    for (unsigned i = 0; i < KVC_KEY_BYTES; i++)
        snprintf(text + 2 * (size_t)i, 3, "%02x", key->b[i]);
}

/* For each core_verify_what: its tier on the wire, and its name in the log. */
static const struct {
    uint8_t tier; /* enum kvc_tier_id */
    const char *name, *suspect;
} place[] = {
    [CORE_VERIFY_HOST] = {KVC_TIER_HOST, "host memory", "Memory or a process with access to it"},
    [CORE_VERIFY_DISK] = {KVC_TIER_NVME, "storage", "The drive"},
    [CORE_VERIFY_HBM] = {KVC_TIER_HBM, "a device's memory",
                         "The device or a process that maps its memory"},
};

struct verify_call {
    struct call call;
    struct core_verify verify;
    struct msg_corrupt_item corrupt[KVC_VERIFY_MAX];
    uint32_t ncorrupt;
    bool all_tiers; /* host memory, storage, devices */
};
CALL_FITS(struct verify_call);

/* Writes where a corrupt block was. For storage, core does not know the path: see the tier's own
 * figures. */
static void place_text(const struct core_verify *v, const struct core_corrupt *x, char *text,
                       size_t cap)
{
    if (v->tier == CORE_VERIFY_DISK)
        (void)!snprintf(text, cap, "%s", place[v->tier].name);
    else
        (void)!snprintf(text, cap, "%s, chunk %u at %llu", place[v->tier].name, x->view.chunk,
                        (unsigned long long)x->view.off);
}

static void on_corrupt(struct core_verify *v, const struct core_corrupt *x)
{
    struct verify_call *vc = CONTAINER_OF(v, struct verify_call, verify);
    char key[2 * KVC_KEY_BYTES + 1], where[80];
    hex_of(x->key, key);
    place_text(v, x, where, sizeof where);
    LOG_ERROR_RATELIMITED(
        10,
        "block %s of namespace %u, group %u, shard %u (%s) is not what was stored: dropped, with "
        "%u that build on it. %s may be faulty",
        key, x->ns, x->group, x->shard, where, x->below, place[v->tier].suspect);
    MUST(vc->ncorrupt < KVC_VERIFY_MAX);
    struct msg_corrupt_item *item = &vc->corrupt[vc->ncorrupt++];
    *item = (struct msg_corrupt_item){.ns = x->ns,
                                      .group = (uint8_t)x->group,
                                      .shard = (uint8_t)x->shard,
                                      .tier = place[v->tier].tier,
                                      .below = x->below,
                                      .chunk = x->view.chunk,
                                      .off = x->view.off};
    memcpy(item->key, x->key->b, sizeof item->key);
}

/* The current tier, in the cursor of a pass through all tiers. Host memory comes first, because
 * copies on devices are compared with it. */
#define CURSOR_TIER(what) ((uint64_t)(what) << 62)

static bool has_tier(const struct svc *s, unsigned what)
{
    return what == CORE_VERIFY_HOST || (what == CORE_VERIFY_DISK && s->ports.path) ||
           (what == CORE_VERIFY_HBM && s->cfg.ndevices > 0);
}

/* Where the next slice begins. */
static uint64_t next_cursor(const struct svc *s, const struct verify_call *x)
{
    const struct core_verify *v = &x->verify;
    if (!x->all_tiers)
        return v->ret_cursor;
    if (v->ret_cursor != 0)
        return v->ret_cursor | CURSOR_TIER(v->tier);
    for (unsigned next = v->tier + 1u; next <= CORE_VERIFY_HBM; next++)
        if (has_tier(s, next))
            return CURSOR_TIER(next);
    return 0;
}

/* The core_verify_what that the slice reads; host memory if the cursor's tier no longer exists. */
static uint8_t what_of(const struct svc *s, const struct msg_verify *msg)
{
    const uint8_t there = (uint8_t)(msg->cursor >> 62);
    if (msg->tier == KVC_TIER_NONE)
        return has_tier(s, there) ? there : CORE_VERIFY_HOST;
    uint8_t what = CORE_VERIFY_HOST;
    while (place[what].tier != msg->tier)
        what++;
    return what;
}

static const char *lacks(const struct svc *s, uint8_t tier)
{
    if (tier == KVC_TIER_NVME && !has_tier(s, CORE_VERIFY_DISK))
        return "tier: there is no storage tier (nvme.paths)";
    if (tier == KVC_TIER_HBM && !has_tier(s, CORE_VERIFY_HBM))
        return "tier: there are no devices (hbm.devices)";
    return NULL;
}

static void reply_verify(struct svc *s, const struct verify_call *x)
{
    const struct call *call = &x->call;
    const struct core_verify *v = &x->verify;
    struct msg_verify_reply reply = {.cursor = next_cursor(s, x),
                                     .blocks = v->ret_blocks,
                                     .bytes = v->ret_bytes,
                                     .skipped = v->ret_skipped,
                                     .failed = v->ret_failed,
                                     .ncorrupt = x->ncorrupt};
    if (x->ncorrupt > 0)
        audit(call->session, "verify: dropped %u corrupt blocks", x->ncorrupt);
    memcpy(reply.corrupt, x->corrupt, x->ncorrupt * sizeof reply.corrupt[0]);
    s->m.replies_ok++;
    reply_send(s, call->session,
               codec_enc_verify_reply(s->out, sizeof s->out, &call->head, &reply));
}

static void on_verify_gone(struct core_gone *gone, int err)
{
    struct call *call = CONTAINER_OF(gone, struct call, gone);
    struct svc *s = call->session->svc;
    if (err)
        reply_error(s, call->session, &call->head, err, call_gone_detail(err));
    else
        reply_verify(s, CONTAINER_OF(call, struct verify_call, call));
    call_end(s, call);
}

static void on_verified(struct core_verify *v)
{
    struct verify_call *x = CONTAINER_OF(v, struct verify_call, verify);
    struct call *call = &x->call;
    struct svc *s = call->session->svc;
    const bool tells = call_tells(call);
    if (tells && x->ncorrupt > 0) {
        call_await_gone(call, on_verify_gone);
        return;
    }
    if (tells)
        reply_verify(s, x);
    call_end(s, call);
}

static void verify_leave(struct call *call)
{
    core_cancel(call->session->svc->core,
                &CONTAINER_OF(call, struct verify_call, call)->verify.req);
}

static const struct call_kind verify_kind = {
    .leave = verify_leave,
    .copies = true,
    .late = "the blocks were not read in time; ask again with a longer deadline, or for fewer "
            "bytes"};

void op_verify(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_verify msg;
    int err = codec_dec_verify(rq->buf, rq->len, &rq->head, &msg);
    const char *why = err ? rq->head.detail : NULL;
    if (!err && msg.ns && !core_ns_exists(s->core, rq->se->client, msg.ns)) {
        err = KVC_E_NO_NAMESPACE;
        why = "there is no such namespace";
    }
    if (!err && (why = lacks(s, msg.tier)))
        err = KVC_E_BAD_ARGUMENT;
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    struct verify_call *x = call_new(rq, &verify_kind);
    if (!x)
        return;
    if (msg.cursor == 0)
        audit(rq->se, "verify: from the beginning, namespace %u (0: all)", msg.ns);
    x->all_tiers = msg.tier == KVC_TIER_NONE;
    x->verify = (struct core_verify){.ns = msg.ns,
                                     .tier = what_of(s, &msg),
                                     .cursor = msg.cursor & ~CURSOR_TIER(3),
                                     .bytes_max = msg.bytes_max,
                                     .deadline_ns = x->call.timer.due_ns,
                                     .client = rq->se->client,
                                     .corrupt = on_corrupt,
                                     .done = on_verified};
    err = core_verify_start(s->core, &x->verify);
    if (err == 1)
        return;
    if (err)
        reply_error(s, rq->se, &rq->head, err, "too many VERIFY are under way; try again");
    else
        reply_verify(s, x);
    call_end(s, &x->call);
}
