/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quotas by name, and what their shares promise. Stores, leases and pins ask here whether an owner
 * may have more.
 *
 * A namespace belongs to its narrowest quota; wider quotas are the owners above it in
 * policy/retain.h. When a namespace changes its owner, its bytes count for the new one at once; its
 * blocks change lists of the policy in steps.
 */
#include "block.h"
#include "quota_table.h"
#include "regions.h"

const struct core_module quotas_module = {CORE_STATE(quotas)};

uint64_t quota_guaranteed(const struct core *c)
{
    return c->mod.quotas->guaranteed;
}

uint64_t quota_guaranteed_regions(const struct core *c)
{
    return c->mod.quotas->guaranteed_regions;
}

bool quota_is_giving(const struct core *c)
{
    return c->mod.quotas->give_due;
}

uint32_t quota_count(const struct core *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < RETAIN_OWNERS; i++)
        n += c->mod.quotas->quota[i].account != 0;
    return n;
}

/* ---- by name ---- */

static bool same_name(const struct quota *q, uint32_t scope, const char *tenant, const char *sub,
                      uint32_t ns)
{
    if (!q->account || q->scope != scope)
        return false;
    if (scope == KVC_SCOPE_NS)
        return q->ns == ns;
    return strcmp(q->tenant, tenant) == 0 && (scope == KVC_SCOPE_TENANT || !strcmp(q->sub, sub));
}

static struct quota *quota_find(struct core *c, uint32_t scope, const char *tenant, const char *sub,
                                uint32_t ns)
{
    for (uint32_t i = 0; i < RETAIN_OWNERS; i++)
        if (same_name(&c->mod.quotas->quota[i], scope, tenant, sub, ns))
            return &c->mod.quotas->quota[i];
    return NULL;
}

/* The owner of the narrowest quota that is wider than `scope` and covers these names. */
static uint32_t quota_account_above(const struct core *c, uint32_t scope, const char *tenant,
                                    const char *sub, uint32_t ns)
{
    const struct quota *best = NULL;
    for (uint32_t i = 0; i < RETAIN_OWNERS; i++) {
        const struct quota *q = &c->mod.quotas->quota[i];
        if (q->scope < scope && same_name(q, q->scope, tenant, sub, ns) &&
            (!best || q->scope > best->scope))
            best = q;
    }
    return best ? best->account : 0;
}

uint32_t quota_account(const struct core *c, const struct core_ns *ns)
{
    return quota_account_above(c, KVC_SCOPE_NS + 1, ns->tenant, ns->spec.sub, ns->id);
}

/* ---- owners of quotas and namespaces ---- */

static void quota_place_owners(struct core *c)
{
    for (uint32_t i = 0; i < RETAIN_OWNERS; i++) {
        const struct quota *q = &c->mod.quotas->quota[i];
        if (!q->account)
            continue;
        const uint32_t above = quota_account_above(c, q->scope, q->tenant, q->sub, q->ns);
        MUST(retain_owner_place(c->retain, q->account, above)); /* three scopes: never too deep */
    }
}

static void quota_place_namespaces(struct core *c)
{
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        const uint32_t account = ns->id ? quota_account(c, ns) : 0;
        if (!ns->id || account == ns->account)
            continue;
        for (unsigned t = 0; t < RETAIN_TIERS; t++) {
            retain_count(c->retain, account, t, (int64_t)ns->held[t]);
            retain_count(c->retain, ns->account, t, -(int64_t)ns->held[t]);
        }
        ns->account = account;
        c->mod.quotas->give_due = true;
        c->mod.quotas->give_at = 0;
    }
}

static uint64_t quota_sum_up(const struct core *c, unsigned tier, bool regions,
                             uint64_t need[RETAIN_OWNERS]);

/* A share needs as many regions as hold it with those of its blocks that fill a region worst. */
void quota_guarantee(struct core *c)
{
    uint64_t none[RETAIN_OWNERS] = {0}, regions[RETAIN_OWNERS] = {0};
    c->mod.quotas->guaranteed = quota_sum_up(c, 0, false, none);
    for (uint32_t i = 0; c->mod.regions && c->m.quotas > 0 && i < RETAIN_OWNERS; i++) {
        struct quota *q = &c->mod.quotas->quota[i];
        q->fill = regions_region_bytes(c);
        for (uint32_t n = 0; q->account && n < c->cfg.namespaces_max; n++)
            if (c->ns[n].id && retain_is_within(c->retain, c->ns[n].account, q->account))
                q->fill = MIN(q->fill, c->ns[n].region_fill);
    }
    c->mod.quotas->guaranteed_regions = c->mod.regions ? quota_sum_up(c, 0, true, regions) : 0;
    c->m.guaranteed_regions = c->mod.quotas->guaranteed_regions;
}

/* Bytes held above a limit when it is set may stay, but not grow. */
static void quota_accept_held(struct core *c)
{
    quota_guarantee(c);
    for (uint32_t i = 0; i < RETAIN_OWNERS; i++) {
        const uint32_t account = c->mod.quotas->quota[i].account;
        if (!account)
            continue;
        const struct retain_quota bytes = *retain_quota_of(c->retain, account);
        retain_owner_set(c->retain, account, &bytes);
    }
}

/* ---- changes ---- */

static bool is_none(const struct retain_quota *q)
{
    for (unsigned t = 0; t < RETAIN_TIERS; t++)
        if (q->limit[t] != RETAIN_NO_LIMIT || q->share[t] != 0)
            return false;
    return true;
}

static void quota_end(struct core *c, struct quota *q)
{
    const uint32_t account = q->account;
    q->account = 0;
    c->m.quotas--;
    quota_place_owners(c);
    quota_place_namespaces(c);
    retain_owner_end(c->retain, account);
    quota_accept_held(c);
}

void quota_ns_gone(struct core *c, const struct core_ns *ns)
{
    struct quota *q = quota_find(c, KVC_SCOPE_NS, "", "", ns->id);
    if (q)
        quota_end(c, q);
}

static int quota_new(struct core *c, const struct core_quota *in, const char *tenant,
                     const char *sub, struct quota **ret_quota)
{
    struct quota *q = NULL;
    for (uint32_t i = 0; i < RETAIN_OWNERS && !q; i++)
        q = c->mod.quotas->quota[i].account ? NULL : &c->mod.quotas->quota[i];
    if (!q || c->m.quotas == RETAIN_OWNERS - 1)
        return KVC_E_LIMIT;
    const uint32_t account =
        retain_owner_add(c->retain, quota_account_above(c, in->scope, tenant, sub, in->ns));
    if (account == RETAIN_NO_OWNER)
        return KVC_E_BUSY;
    *q = (struct quota){.account = account, .scope = in->scope, .ns = in->ns};
    memcpy(q->tenant, tenant, strlen(tenant));
    memcpy(q->sub, sub, strlen(sub));
    c->m.quotas++;
    quota_place_owners(c);
    quota_place_namespaces(c);
    *ret_quota = q;
    return 0;
}

static bool quota_fits(const struct core_quota *in, const char *tenant, const char *sub)
{
    for (unsigned t = 0; t < RETAIN_TIERS; t++)
        if (in->bytes.share[t] > in->bytes.limit[t])
            return false;
    if (in->scope != KVC_SCOPE_TENANT && in->scope != KVC_SCOPE_SUB && in->scope != KVC_SCOPE_NS)
        return false;
    return tenant[0] && strlen(tenant) < KVC_STRING_MAX && strlen(sub) < KVC_STRING_MAX &&
           (in->scope != KVC_SCOPE_SUB || sub[0]);
}

int core_quota_set(struct core *c, const struct core_quota *in)
{
    const char *tenant = in->tenant ? in->tenant : "", *sub = in->sub ? in->sub : "";
    if (in->scope == KVC_SCOPE_NS) {
        const struct core_ns *ns = ns_by_id(c, in->ns);
        if (!ns)
            return KVC_E_NO_NAMESPACE;
        tenant = ns->tenant;
        sub = ns->spec.sub;
    }
    if (!quota_fits(in, tenant, sub))
        return KVC_E_BAD_ARGUMENT;
    struct quota *q = quota_find(c, in->scope, tenant, sub, in->ns);
    if (is_none(&in->bytes)) {
        if (q)
            quota_end(c, q);
        return 0;
    }
    int err = q ? 0 : quota_new(c, in, tenant, sub, &q);
    if (err)
        return err;
    retain_owner_set(c->retain, q->account, &in->bytes);
    quota_accept_held(c);
    return 0;
}

/* ---- guarantees of shares ---- */

struct guarantee {
    uint32_t scope;
    const char *tenant, *sub;
    uint64_t share;
};

static uint64_t bytes_plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static bool same_tenant(const struct guarantee *a, const struct guarantee *b)
{
    return strcmp(a->tenant, b->tenant) == 0;
}

/* Whether both are guarantees of one sub-tenant or of namespaces in it. */
static bool same_sub(const struct guarantee *a, const struct guarantee *b)
{
    return a->scope != KVC_SCOPE_TENANT && b->scope != KVC_SCOPE_TENANT && same_tenant(a, b) &&
           strcmp(a->sub, b->sub) == 0;
}

/* What is promised within one sub-tenant: its own share, or the sum of its namespaces' shares if
 * that is more, because a wider share includes the narrower ones. */
static uint64_t promised_sub(const struct guarantee *list, uint32_t n, const struct guarantee *of)
{
    uint64_t whole = 0, parts = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!same_sub(&list[i], of))
            continue;
        if (list[i].scope == KVC_SCOPE_SUB)
            whole = list[i].share;
        else
            parts = bytes_plus(parts, list[i].share);
    }
    return MAX(whole, parts);
}

static uint64_t promised_tenant(const struct guarantee *list, uint32_t n,
                                const struct guarantee *of)
{
    uint64_t whole = 0, parts = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = 0;
        if (!same_tenant(&list[i], of))
            continue;
        while (first < i && !same_sub(&list[first], &list[i]))
            first++;
        if (list[i].scope == KVC_SCOPE_TENANT)
            whole = list[i].share;
        else if (first == i)
            parts = bytes_plus(parts, promised_sub(list, n, &list[i]));
    }
    return MAX(whole, parts);
}

static uint64_t promised_to_all(const struct guarantee *list, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = 0;
        while (!same_tenant(&list[first], &list[i]))
            first++;
        if (first == i)
            sum = bytes_plus(sum, promised_tenant(list, n, &list[i]));
    }
    return sum;
}

uint64_t core_quota_promised(struct core *c, unsigned tier, const struct core_quota *with)
{
    struct guarantee list[RETAIN_OWNERS + 1];
    const struct core_ns *ns = with && with->scope == KVC_SCOPE_NS ? ns_by_id(c, with->ns) : NULL;
    const char *tenant = ns ? ns->tenant : with && with->tenant ? with->tenant : "";
    const char *sub = ns ? ns->spec.sub : with && with->sub ? with->sub : "";
    uint32_t n = 0;
    for (uint32_t i = 0; i < RETAIN_OWNERS; i++) {
        const struct quota *q = &c->mod.quotas->quota[i];
        if (q->account && !(with && same_name(q, with->scope, tenant, sub, with->ns)))
            list[n++] =
                (struct guarantee){q->scope, q->tenant, q->scope == KVC_SCOPE_TENANT ? "" : q->sub,
                                   retain_quota_of(c->retain, q->account)->share[tier]};
    }
    if (with)
        list[n++] = (struct guarantee){with->scope, tenant, sub, with->bytes.share[tier]};
    return promised_to_all(list, n);
}

static bool tier_sizes(const struct core *c, unsigned tier, struct tier_stats *ret_stats)
{
    const struct tier *t = c->cfg.tier[tier];
    if (t)
        t->ops->stats(t, ret_stats);
    return t != NULL;
}

/* All memory may be guaranteed: an owner that is guaranteed memory evicts its own blocks for what
 * it stores. */
uint64_t core_tier_shareable(const struct core *c, unsigned tier)
{
    struct tier_stats st;
    if (!tier_sizes(c, tier, &st))
        return UINT64_MAX;
    return tier == 0 ? st.limit_bytes : st.lasting_bytes;
}

/* Sums up what owners need. need: for each owner, by its number, first what it needs itself; at the
 * end at least its share, and what those below it need. In bytes, or in regions that hold them. */
static uint64_t quota_sum_up(const struct core *c, unsigned tier, bool regions,
                             uint64_t need[RETAIN_OWNERS])
{
    for (uint32_t scope = KVC_SCOPE_NS; scope > KVC_SCOPE_ALL; scope--)
        for (uint32_t i = 0; i < RETAIN_OWNERS; i++) {
            const struct quota *q = &c->mod.quotas->quota[i];
            if (!q->account || q->scope != scope)
                continue;
            const uint64_t share = retain_quota_of(c->retain, q->account)->share[tier];
            const uint64_t unit = regions ? q->fill : 1;
            need[q->account] = MAX(need[q->account], share / unit + (share % unit != 0));
            uint64_t *above = &need[retain_owner_above(c->retain, q->account)];
            *above = bytes_plus(*above, need[q->account]);
        }
    return need[0];
}

/* The factor by which storage rounds payload up to whole pages, for the blocks that are there. */
static double rounded_up(const struct core *c)
{
    const struct tier *disk = c->cfg.tier[CORE_STORAGE];
    double taken = 1, held = 1;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        const struct core_ns *ns = &c->ns[i];
        double most = 1;
        for (uint32_t g = 0; ns->id && ns->held[1] > 0 && g < ns->spec.ngroups; g++) {
            const uint32_t bytes = ns->spec.group[g].block_bytes;
            most = MAX(most, (double)disk->ops->slot_bytes(disk, bytes) / bytes);
        }
        taken += ns->id ? most * (double)ns->held[1] : 0;
        held += ns->id ? (double)ns->held[1] : 0;
    }
    return taken / held;
}

uint32_t quota_disk_percent(const struct core *c)
{
    uint64_t need[RETAIN_OWNERS] = {0};
    struct tier_stats st;
    if (c->m.quotas == 0 || !tier_sizes(c, 1, &st))
        return 100;
    const double want = (double)quota_sum_up(c, 1, false, need) * rounded_up(c),
                 most = (double)st.lasting_bytes;
    return want > most ? (uint32_t)(100 * most / want) : 100;
}

static uint64_t bound_within(const struct core *c, uint32_t account, unsigned tier)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        if (c->ns[i].id && c->ns[i].bound[tier] &&
            retain_is_within(c->retain, c->ns[i].account, account))
            sum += c->ns[i].bound[tier];
    return sum;
}

bool core_quota_next(const struct core *c, uint32_t *cursor, struct core_quota *ret_quota)
{
    for (uint32_t i = *cursor; i < RETAIN_OWNERS; i++) {
        const struct quota *q = &c->mod.quotas->quota[i];
        if (!q->account)
            continue;
        const bool ns = q->scope == KVC_SCOPE_NS;
        *ret_quota = (struct core_quota){.scope = q->scope,
                                         .tenant = q->tenant,
                                         .sub = q->sub,
                                         .ns = ns ? q->ns : 0,
                                         .bytes = *retain_quota_of(c->retain, q->account)};
        for (unsigned t = 0; t < RETAIN_TIERS; t++) {
            ret_quota->held[t] = retain_held(c->retain, q->account, t);
            ret_quota->bound[t] = bound_within(c, q->account, t);
        }
        *cursor = i + 1;
        return true;
    }
    return false;
}

/* ---- bound bytes ---- */

/* Bytes of a tier that are bound, with `more` of ns, or guaranteed. */
static uint64_t quota_needed(const struct core *c, unsigned tier, const struct core_ns *ns,
                             uint64_t more)
{
    uint64_t need[RETAIN_OWNERS] = {0};
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        if (c->ns[i].id)
            need[c->ns[i].account] += c->ns[i].bound[tier];
    need[ns->account] = bytes_plus(need[ns->account], more);
    return quota_sum_up(c, tier, false, need);
}

/* Whether `bytes` more may be bound to the tier. In memory, bound blocks must leave room for blocks
 * that are not. On storage without shares, bound blocks may take all room. */
static int room_to_bind(const struct core *c, const struct core_ns *ns, unsigned tier,
                        uint64_t bytes)
{
    struct tier_stats st;
    uint64_t none[RETAIN_OWNERS] = {0};
    const bool shares = c->m.quotas > 0 && quota_sum_up(c, tier, false, none) > 0;
    if ((tier == 1 && !shares) || !tier_sizes(c, tier, &st))
        return 0;
    const uint64_t with = quota_needed(c, tier, ns, bytes);
    if (with <= st.lasting_bytes || with == quota_needed(c, tier, ns, 0))
        return 0;
    return shares ? KVC_E_QUOTA : KVC_E_PIN_LIMIT;
}

int quota_bind(const struct core *c, const struct core_ns *ns, unsigned tier, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    for (uint32_t i = 0; i < RETAIN_OWNERS && c->m.quotas > 0; i++) {
        const uint32_t q = c->mod.quotas->quota[i].account;
        if (!q || !retain_is_within(c->retain, ns->account, q))
            continue;
        const uint64_t limit = retain_quota_of(c->retain, q)->limit[tier];
        if (limit != RETAIN_NO_LIMIT && bytes_plus(bound_within(c, q, tier), bytes) > limit)
            return KVC_E_QUOTA;
    }
    return room_to_bind(c, ns, tier, bytes);
}

/* How much more the owner may hold before its share and those of owners above it are used up. */
static uint64_t quota_own_slack(const struct core *c, uint32_t account,
                                const uint64_t direct[RETAIN_OWNERS],
                                const uint64_t need[RETAIN_OWNERS])
{
    uint64_t slack = 0;
    for (uint32_t o = account; o != 0; o = retain_owner_above(c->retain, o)) {
        uint64_t held = direct[o];
        for (uint32_t i = 0; i < RETAIN_OWNERS; i++) {
            const uint32_t below = c->mod.quotas->quota[i].account;
            if (below && retain_owner_above(c->retain, below) == o)
                held = bytes_plus(held, need[below]);
        }
        slack = bytes_plus(slack, need[o] - held);
    }
    return slack;
}

/* For each owner, what its own namespaces hold that cannot be evicted: in regions or in bytes. */
static void direct_of(const struct core *c, bool regions, uint64_t ret_direct[RETAIN_OWNERS])
{
    memset(ret_direct, 0, RETAIN_OWNERS * sizeof *ret_direct);
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        if (c->ns[i].id)
            ret_direct[c->ns[i].account] += regions ? c->ns[i].regions : c->ns[i].unevictable;
}

static uint64_t quota_left(const struct core *c, const struct core_ns *ns, bool regions,
                           uint64_t *ret_own)
{
    const struct share *s = regions ? regions_share(c) : &c->unevictable_share;
    const uint64_t guaranteed =
        regions ? c->mod.quotas->guaranteed_regions : c->mod.quotas->guaranteed;
    uint64_t direct[RETAIN_OWNERS], need[RETAIN_OWNERS];
    direct_of(c, regions, direct);
    memcpy(need, direct, sizeof need);
    const uint64_t used = quota_sum_up(c, 0, regions, need);
    const uint64_t most = MAX(s->total, guaranteed + s->total / TIER_PASSING);
    *ret_own = quota_own_slack(c, ns->account, direct, need);
    return bytes_plus(*ret_own, most - MIN(most, used));
}

uint64_t quota_unevictable_left(const struct core *c, const struct core_ns *ns, uint64_t *ret_own)
{
    return quota_left(c, ns, false, ret_own);
}

uint64_t quota_regions_left(const struct core *c, const struct core_ns *ns, uint64_t *ret_own)
{
    return quota_left(c, ns, true, ret_own);
}
