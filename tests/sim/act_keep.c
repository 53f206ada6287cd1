/* SPDX-License-Identifier: Apache-2.0 */
/* What nobody's session does: quotas, pins, wishes and advice, given to the core as an operator's
 * request or a name gives them. */
#include "admin.h"
#include "sim.h"

static uint64_t some_bytes(struct sim *s)
{
    return sim_rnd(s, 3) ? sim_rnd(s, 40) * 256u : sim_rnd(s, 4) * UINT64_C(16384);
}

static void set_quota(struct sim *s, bool remove)
{
    struct core_quota q = {.scope = (uint8_t)(KVC_SCOPE_TENANT + sim_rnd(s, 3)),
                           .tenant = sim_principals[sim_rnd(s, SIM_PRINCIPALS)].tenant,
                           .sub = sim_sub(1 + sim_rnd(s, SIM_SUBS - 1)),
                           .bytes = {{RETAIN_NO_LIMIT, RETAIN_NO_LIMIT}, {0, 0}}};
    struct core_ns *ns = core_ns_next(s->core, s->observer[3], 0);
    for (uint32_t n = sim_rnd(s, 8); ns && n > 0; n--) {
        struct core_ns *next = core_ns_next(s->core, s->observer[3], ns->id);
        ns = next ? next : ns;
    }
    q.ns = ns ? ns->id : 12345;
    for (unsigned t = 0; t < RETAIN_TIERS && !remove; t++) {
        if (sim_rnd(s, 2))
            q.bytes.limit[t] = some_bytes(s);
        const uint64_t share = some_bytes(s);
        if (sim_rnd(s, 3) == 0)
            q.bytes.share[t] = MIN(q.bytes.limit[t], share);
    }
    int err = core_quota_set(s->core, &q);
    SIM_TRACE(s, "quota of scope %u, host %llu: %s", q.scope, (unsigned long long)q.bytes.limit[0],
              err_name(err));
    SIM_CHECK(s, err == 0 || err == KVC_E_LIMIT || err == KVC_E_BUSY || err == KVC_E_NO_NAMESPACE,
              "core_quota_set: %s", err_name(err));
}

/* A sequence that some client could ask for. */
static bool some_chain(struct sim *s, struct core_seq *ret)
{
    const struct sim_client *cl = &s->client[sim_rnd(s, SIM_CLIENTS)];
    struct sim_seq q;
    if (cl->state != CL_READY || !sim_some_seq(s, cl, &q))
        return false;
    struct core_ns *ns = sim_core_ns(s, cl, &q.space);
    if (!ns)
        return false;
    *ret = sim_core_seq(s, ns, &q);
    return true;
}

static uint64_t bound_in_memory(struct sim *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->core->cfg.namespaces_max; i++)
        sum += s->core->ns[i].id ? s->core->ns[i].bound[0] : 0;
    return sum;
}

static void pin_said(struct sim *s, int err, const struct core_pinned *got, uint64_t before)
{
    SIM_TRACE(s, "pin: %s", err_name(err));
    SIM_CHECK(s,
              err == 0 || err == KVC_E_GONE || err == KVC_E_PIN_LIMIT || err == KVC_E_QUOTA ||
                  err == KVC_E_LIMIT || (err == KVC_E_TIER && s->disk_out) ||
                  (err == KVC_E_NO_NAMESPACE && s->slices),
              "a pin: %s", err_name(err));
    SIM_CHECK(s, err || (got->id && got->blocks > 0), "a pin of nothing");
    sim_ended(s, err, err ? 0 : got->blocks);
    /* Within what an owner is guaranteed, pins may grow beside those of the others; in slices, as
     * long as it is guaranteed. */
    const uint64_t after = bound_in_memory(s), most = s->tier_cfg.lasting_bytes;
    SIM_CHECK(s, after <= before || !most || after <= most + core_quota_promised(s->core, 0, NULL),
              "pins have %llu bytes of memory", (unsigned long long)after);
}

static void pin_in_slices(struct sim *s, const struct core_pin *in)
{
    struct sim_keep *k = &s->keep;
    if (k->asks)
        return;
    *k = (struct sim_keep){.asks = true,
                           .asking = {.in = {.seq = in->seq, .read_only = true},
                                      .looks = true,
                                      .pins = true,
                                      .in_memory = in->in_memory,
                                      .ttl_ms = in->ttl_ms,
                                      .ns = in->seq.ns->id},
                           .bound = bound_in_memory(s) + core_quota_promised(s->core, 0, NULL),
                           .unpinned = k->unpinned};
    for (uint32_t g = 0; g < in->seq.ngroups; g++) {
        memcpy(k->keys[g], in->seq.keys[g], (size_t)in->seq.n[g] * KVC_KEY_BYTES);
        k->asking.in.seq.keys[g] = k->keys[g];
    }
}

static void take_pin(struct sim *s)
{
    struct core_pin in = {.in_memory = sim_rnd(s, 2)};
    struct core_pinned got;
    const char *why;
    if (!some_chain(s, &in.seq))
        return;
    in.ttl_ms = sim_rnd(s, 2) ? 1 + sim_rnd(s, 20000) : 0;
    const uint64_t before = bound_in_memory(s);
    if (s->slices)
        pin_in_slices(s, &in);
    else
        pin_said(s, core_pin(s->core, &in, &got, &why), &got, before);
}

static void end_pin(struct sim *s)
{
    struct core_pin_view v;
    uint64_t cursor = sim_rnd(s, 8);
    if (!core_pin_next(s->core, NULL, &cursor, &v))
        return;
    const int err = core_unpin(s->core, NULL, v.id);
    SIM_CHECK(s, err == 0 || (s->slices && err == CORE_MORE), "a pin that is listed is not there");
    SIM_CHECK(s, core_unpin(s->core, NULL, v.id) == KVC_E_NO_NAME, "a pin ends twice");
    s->keep.unpinned = err == CORE_MORE ? v.id : 0;
}

/* No draw of its own: who asks for a slice, or calls it off, is chosen by the turn. */
static void keep_step(struct sim *s)
{
    struct sim_keep *k = &s->keep;
    struct core_held none;
    const char *why;
    if (k->unpinned && s->turn % 3 == 0 && !core_unpin_step(s->core, k->unpinned))
        k->unpinned = 0;
    if (k->asks && s->turn % 29 == 0) {
        core_ask_cancel(s->core, &k->asking);
        k->asks = false;
    }
    if (!k->asks || s->turn % 2)
        return;
    const int err = core_ask_step(s->core, s->observer[3], &k->asking, &none, &why);
    if (err == CORE_MORE)
        return;
    k->asks = false;
    pin_said(s, err, &k->asking.pinned, k->bound);
}

void sim_keep_end(struct sim *s)
{
    if (s->keep.asks)
        core_ask_cancel(s->core, &s->keep.asking);
    s->keep.asks = false;
}

static void wish(struct sim *s)
{
    struct core_seq seq;
    const char *why;
    const struct core_wish w = {sim_rnd(s, 3) ? sim_rnd(s, RETAIN_MAX + 1) : RETAIN_DEFAULT,
                                sim_rnd(s, 2) ? sim_rnd(s, 20000) : 0};
    if (!some_chain(s, &seq))
        return;
    const bool set = sim_rnd(s, 2);
    SIM_CHECK(s, core_wish(s->core, &seq, sim_rnd(s, 8), &w, set, &why) >= 0, "core_wish: %s", why);
}

static void advise(struct sim *s)
{
    struct core_seq seq;
    const char *why;
    const uint32_t advice = 1 + sim_rnd(s, POLICY_ADVICE_COUNT - 1);
    if (some_chain(s, &seq))
        SIM_CHECK(
            s, core_advise(s->core, &seq, (enum policy_advice)advice, sim_rnd(s, 10000), &why) >= 0,
            "core_advise: %s", why);
}

void sim_act_keep(struct sim *s)
{
    keep_step(s);
    if (s->draining || !sim_pct(s, s->swarm.keep_pct))
        return;
    switch (sim_rnd(s, 12)) {
    case 0:
        set_quota(s, false);
        return;
    case 1:
        set_quota(s, true);
        return;
    case 2:
    case 3:
        take_pin(s);
        return;
    case 4:
    case 5:
        end_pin(s);
        return;
    case 6:
        core_pin_budget(s->core, sim_rnd(s, 4) ? some_bytes(s) : 0);
        return;
    case 7:
        core_keep_percent(s->core, sim_rnd(s, 101));
        return;
    case 8:
        advise(s);
        return;
    default:
        wish(s);
        return;
    }
}

/* Limits hold after every turn. (That nothing pinned is evicted the core checks itself.) */
void sim_check_keep(struct sim *s)
{
    SIM_CHECK(s, retain_is_sound(s->core->retain), "a quota is exceeded, or a list is wrong");
}
