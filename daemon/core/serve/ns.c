/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes and checks namespaces (NS_OPEN): what must be equal for a block's KV to be usable, and for
 * whom. Every store and hit names one.
 */
#include <stdlib.h>

#include "cursor.h"
#include "regions.h"
#include "serve.h"

/* What a client stated of the cost of prefill, for the namespaces that it opened last. */
struct costs {
    struct {
        uint32_t ns; /* id; 0: free */
        struct core_cost cost;
    } stated[CORE_COSTS];
    uint32_t next; /* index of the entry that the next new namespace takes */
};

struct namespaces {
    struct share share; /* of core->ns, by principal */
    uint32_t serial;
    struct sha256 *sha;
    struct costs *costs; /* by client_no() */
};

static int namespaces_create(struct core *c)
{
    const struct core_config *cfg = &c->cfg;
    c->mod.namespaces->costs = sys_calloc(cfg->clients_max, sizeof *c->mod.namespaces->costs);
    const int err = c->mod.namespaces->costs ? sha256_create(&c->mod.namespaces->sha) : -ENOMEM;
    return err ? err
               : core__fair_share(c, &c->mod.namespaces->share, cfg->namespaces_max,
                                  MAX(cfg->principals_max, 1u));
}

static void namespaces_destroy(struct core *c)
{
    share_destroy(&c->mod.namespaces->share);
    sha256_destroy(&c->mod.namespaces->sha);
    free(c->mod.namespaces->costs);
}

const struct core_module namespaces_module = {CORE_STATE(namespaces), .create = namespaces_create,
                                              .destroy = namespaces_destroy};

/* Schemes in which a token's KV depends on nothing but the tokens up to it. */
static const char *const sound_positions[] = {"rope",       "rope-linear", "yarn",  "llama3",
                                              "longrope",   "mrope",       "alibi", "learned",
                                              "sinusoidal", "relative",    "none"};

const char *core__ns_unsound(const struct core_ns_spec *s)
{
    if (strcmp(s->attention, "causal") != 0)
        return "attention must be 'causal': elsewhere later tokens change the KV of earlier ones, "
               "so a "
               "cached prefix is wrong for any other continuation";
    if (strcmp(s->position, "rerope") == 0)
        return "position 'rerope' re-embeds old positions as the sequence grows, so cached KV "
               "becomes "
               "wrong";
    if (strcmp(s->position, "dynamic-ntk") == 0)
        return "position 'dynamic-ntk' rescales the rotation of all positions as the sequence "
               "grows, so "
               "cached KV becomes wrong";
    for (size_t i = 0; i < ARRAY_LEN(sound_positions); i++)
        if (strcmp(s->position, sound_positions[i]) == 0)
            return NULL;
    return "position scheme not known to be sound for reuse; known: rope, rope-linear, yarn, "
           "llama3, "
           "longrope, mrope, alibi, learned, sinusoidal, relative, none";
}

static const char *group_fault(const struct core_group *g)
{
    if (g->block_tokens < 1 || g->block_tokens > KVC_BLOCK_TOKENS_MAX)
        return "block_tokens must be 1 to 65536";
    if (g->block_bytes < 1 || g->block_bytes > KVC_BLOCK_BYTES_MAX)
        return "block_bytes must be 1 byte to 1 GiB";
    if (g->rule > KVC_RULE_STATE)
        return "rule must be full (0), window (1) or state (2)";
    if ((g->rule == KVC_RULE_WINDOW) != (g->window > 0))
        return "window must be given, in tokens, for the window rule and for no other";
    if (g->flags & ~(uint32_t)KVC_F_REPLICATED)
        return "unknown group flag";
    return NULL;
}

const char *core__ns_fault(const struct core_ns_spec *s)
{
    if (!s->model[0])
        return "model must not be empty";
    if (s->shards < 1 || s->shards > KVC_SHARDS_MAX)
        return "shards must be 1 to 64";
    if (s->ngroups < 1 || s->ngroups > KVC_GROUPS_MAX)
        return "groups must be 1 to 16";
    for (uint32_t g = 0; g < s->ngroups; g++) {
        const char *why = group_fault(&s->group[g]);
        if (why)
            return why;
    }
    return NULL;
}

static int add_text(struct sha256 *sha, uint8_t tag, const char *s)
{
    return sha256_add(sha, tag, s, strlen(s));
}

static int add_u32(struct sha256 *sha, uint8_t tag, uint32_t v)
{
    uint8_t le[4] = {(uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24)};
    return sha256_add(sha, tag, le, sizeof le);
}

/* Adds to the digest all fields in which two namespaces can differ, in a fixed order. Costs are no
 * such field. */
static int add_spec(struct sha256 *sha, const struct core_ns_spec *s)
{
    const char *text[] = {s->model,    s->revision,        s->dtype,     s->quant, s->layout,
                          s->position, s->position_params, s->attention, s->lora,  s->extra,
                          s->sub};
    uint32_t number[] = {s->layers, s->kv_heads, s->head_size, s->shards, s->flags, s->ngroups};
    int err = 0;
    for (size_t i = 0; !err && i < ARRAY_LEN(text); i++)
        err = add_text(sha, 0x20, text[i]);
    for (size_t i = 0; !err && i < ARRAY_LEN(number); i++)
        err = add_u32(sha, 0x21, number[i]);
    for (uint32_t g = 0; !err && g < s->ngroups; g++) {
        const struct core_group *p = &s->group[g];
        uint32_t n[] = {p->block_tokens, p->block_bytes, p->rule, p->window, p->flags};
        for (size_t i = 0; !err && i < ARRAY_LEN(n); i++)
            err = add_u32(sha, 0x22, n[i]);
    }
    return err;
}

/* Begins a digest: its purpose, the daemon's secret, and the principal. */
static int ns_digest_begin(struct core *c, const char *what, const struct core_identity *who)
{
    struct sha256 *sha = c->mod.namespaces->sha;
    int err = sha256_begin(sha);
    if (!err)
        err = add_text(sha, 0x10, what);
    if (!err)
        err = sha256_add(sha, 0x11, c->cfg.secret.b, sizeof c->cfg.secret.b);
    if (!err)
        err = add_text(sha, 0x12, who->name);
    if (!err)
        err = add_text(sha, 0x13, who->tenant);
    return err;
}

int core__ns_print(struct core *c, const struct core_identity *who, const struct core_ns_spec *spec,
                   struct key256 *ret)
{
    int err = ns_digest_begin(c, "kvcache namespace print 1", who);
    if (!err)
        err = add_spec(c->mod.namespaces->sha, spec);
    return err ? err : sha256_end(c->mod.namespaces->sha, ret);
}

/* The seed of keys: one for all namespaces of a principal, tenant and sub-tenant. The index keeps
 * namespaces apart; equal tokens have equal keys, so that a miss can tell which field differs from
 * the namespace that has the block. */
static int ns_seed(struct core *c, const struct core_identity *who, const char *sub_tenant,
                   struct key256 *ret)
{
    int err = ns_digest_begin(c, "kvcache namespace seed 2", who);
    if (!err)
        err = add_text(c->mod.namespaces->sha, 0x14, sub_tenant);
    return err ? err : sha256_end(c->mod.namespaces->sha, ret);
}

static bool is_attached(const struct core *c, uint32_t principal)
{
    MUST(principal >= 1 && principal <= c->cfg.principals_max);
    return c->attached[principal] > 0;
}

/* Whether ns may be removed to give its slot to `principal`: it is empty, and belongs to that
 * principal, or to one that is not attached and has more slots than its share. */
static bool ns_may_go(const struct core *c, const struct core_ns *ns, uint32_t principal)
{
    if (ns->records > 0)
        return false;
    if (ns->principal == principal || !c->cfg.principals_max)
        return true;
    return !is_attached(c, ns->principal) &&
           c->mod.namespaces->share.held[principal_index(c, ns->principal)] >
               c->mod.namespaces->share.each;
}

static struct core_ns *ns_free(struct core *c)
{
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        if (!c->ns[i].id)
            return &c->ns[i];
    return NULL;
}

/* A slot for `principal`, counted for it: a free one within its share, or that of the removable
 * namespace that was used longest ago. */
static struct core_ns *ns_slot(struct core *c, uint32_t principal)
{
    const uint32_t who = principal_index(c, principal);
    if (share_take(&c->mod.namespaces->share, who, 1)) {
        struct core_ns *ns = ns_free(c);
        MUST(ns != NULL); /* the share counts them */
        c->m.namespaces++;
        return ns;
    }
    struct core_ns *best = NULL;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        if (ns->id && ns_may_go(c, ns, principal) && (!best || ns->used_ms < best->used_ms))
            best = ns;
    }
    if (!best)
        return NULL;
    share_give(&c->mod.namespaces->share, principal_index(c, best->principal), 1);
    MUST(share_take(&c->mod.namespaces->share, who, 1));
    return best;
}

int core__ns_find_or_make(struct core *c, const struct core_identity *who,
                          const struct core_ns_spec *spec, struct core_ns **ret_ns)
{
    struct key256 print, seed;
    int err = core__ns_print(c, who, spec, &print);
    if (err)
        return KVC_E_INTERNAL;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        if (!ns->id || ns->principal != who->principal || !key256_equal(&ns->print, &print))
            continue;
        ns->used_ms = c->now_ms;
        if (spec->prefill_ns_per_token != 0 || spec->prefill_ns_per_token_pair != 0) {
            ns->spec.prefill_ns_per_token = spec->prefill_ns_per_token;
            ns->spec.prefill_ns_per_token_pair = spec->prefill_ns_per_token_pair;
        }
        *ret_ns = ns;
        return 0;
    }
    if (ns_by_print(c, core__short_print(&print)))
        return KVC_E_LIMIT; /* tiers could not tell the two apart */
    if (ns_seed(c, who, spec->sub, &seed))
        return KVC_E_INTERNAL;
    struct core_ns *ns = ns_slot(c, who->principal);
    if (!ns)
        return KVC_E_LIMIT;
    c->ns_changes++;
    if (ns->id)
        quota_ns_gone(c, ns);
    regions_ns_gone(c, ns);
    uint32_t slot = (uint32_t)(ns - c->ns);
    if ((++c->mod.namespaces->serial << NS_ID_SLOT_BITS) == 0)
        c->mod.namespaces->serial = 1;
    *ns = (struct core_ns){.id = c->mod.namespaces->serial << NS_ID_SLOT_BITS | slot,
                           .principal = who->principal,
                           .principal_name = who->name,
                           .tenant = who->tenant,
                           .spec = *spec,
                           .print = print,
                           .short_print = core__short_print(&print),
                           .seed = seed,
                           .used_ms = c->now_ms};
    list_init(&ns->waiting);
    const struct tier *host = c->cfg.tier[CORE_HOST];
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        const uint32_t bytes = spec->group[g].block_bytes;
        ns->slot_bytes[g] = host->ops->slot_bytes ? host->ops->slot_bytes(host, bytes) : bytes;
    }
    ns->account = quota_account(c, ns);
    regions_ns_new(c, ns);
    *ret_ns = ns;
    return 0;
}

static uint32_t ns_similar(struct core *c, const struct core_ns *ns, struct core_similar *similar)
{
    uint32_t n = 0;
    for (uint32_t i = 0; n < 4 && i < c->cfg.namespaces_max; i++) {
        const struct core_ns *o = &c->ns[i];
        if (ns_is_sibling(ns, o))
            similar[n++] = (struct core_similar){.ns = o->id, .fields = ns_diff(ns, o)};
    }
    return n;
}

static void cost_state(struct core *c, struct core_client *cl, uint32_t id,
                       const struct core_ns_spec *spec)
{
    if (!cl->costs) { /* the entry may have what an earlier client of this number stated */
        cl->costs = &c->mod.namespaces->costs[client_no(c, cl)];
        *cl->costs = (struct costs){0};
    }
    uint32_t at = 0;
    while (at < CORE_COSTS && cl->costs->stated[at].ns != id)
        at++;
    if (at == CORE_COSTS)
        at = cl->costs->next++ % CORE_COSTS;
    cl->costs->stated[at].ns = id;
    cl->costs->stated[at].cost =
        (struct core_cost){spec->prefill_ns_per_token, spec->prefill_ns_per_token_pair};
}

struct core_cost core_ns_cost(const struct core_client *cl, uint32_t id)
{
    for (uint32_t i = 0; cl->costs && i < CORE_COSTS; i++)
        if (cl->costs->stated[i].ns == id)
            return cl->costs->stated[i].cost;
    return (struct core_cost){0};
}

int core_ns_open(struct core *c, struct core_client *cl, const struct core_ns_spec *spec,
                 struct core_ns **ret_ns, struct core_similar *ret_similar, uint32_t *ret_nsimilar,
                 const char **ret_why)
{
    if ((*ret_why = core__ns_fault(spec)))
        return KVC_E_BAD_ARGUMENT;
    if ((*ret_why = core__ns_unsound(spec)))
        return KVC_E_UNSOUND;
    if (spec->sub[0] && !cl->who.gateway) {
        *ret_why = "only a gateway session may name a sub-tenant (principals: gateway: true)";
        return KVC_E_DENIED;
    }
    const struct tier *host = c->cfg.tier[CORE_HOST];
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        if (host->ops->slot_bytes(host, spec->group[g].block_bytes) != 0)
            continue;
        *ret_why = "block_bytes is larger than a chunk of the host tier can hold (host.chunk)";
        return KVC_E_TOO_LARGE;
    }
    struct core_ns *ns;
    int err = core__ns_find_or_make(c, &cl->who, spec, &ns);
    if (err) {
        if (err == KVC_E_LIMIT)
            *ret_why = "every namespace that this principal may have holds blocks "
                       "(limits.namespaces); evict one first";
        return err;
    }
    cost_state(c, cl, ns->id, spec);
    if (spec->prefill_ns_per_token != 0 || spec->prefill_ns_per_token_pair != 0)
        worth_probe_first(c);
    *ret_nsimilar = ns_similar(c, ns, ret_similar);
    *ret_ns = ns;
    return 0;
}

/* The namespace that differs from `base` in its sub-tenant alone, found without a digest. */
static struct core_ns *ns_of_sub(struct core *c, const struct core_client *cl,
                                 const struct core_ns *base, const char *sub)
{
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        if (!ns_is_of(cl, ns) || strcmp(ns->spec.sub, sub) != 0)
            continue;
        if (ns->spec.flags != base->spec.flags)
            continue;
        if (ns_diff(ns, base) & ~(1u << KVC_NS_FIELD_SUB_TENANT))
            continue;
        return ns;
    }
    return NULL;
}

static int sub_name(const uint8_t *sub, uint32_t sub_bytes, char ret_name[KVC_STRING_MAX])
{
    if (sub_bytes >= KVC_STRING_MAX || (sub_bytes > 0 && memchr(sub, 0, sub_bytes)))
        return KVC_E_BAD_ARGUMENT;
    memset(ret_name, 0, KVC_STRING_MAX);
    if (sub_bytes > 0)
        memcpy(ret_name, sub, sub_bytes);
    return 0;
}

int core_ns_find(struct core *c, struct core_client *cl, uint32_t id, const uint8_t *sub,
                 uint32_t sub_bytes, struct core_ns **ret_ns, struct core_ns **ret_base)
{
    struct core_ns *base = ns_by_id(c, id), *ns = base;
    char name[KVC_STRING_MAX];
    if (!base || !ns_is_of(cl, base))
        return KVC_E_NO_NAMESPACE;
    if ((sub_bytes > 0 || base->spec.sub[0]) && !cl->who.gateway)
        return KVC_E_DENIED;
    if (sub_bytes > 0) {
        int err = sub_name(sub, sub_bytes, name);
        if (err)
            return err;
        ns = strcmp(base->spec.sub, name) == 0 ? base : ns_of_sub(c, cl, base, name);
    }
    base->used_ms = c->now_ms;
    if (ns)
        ns->used_ms = c->now_ms;
    *ret_ns = ns;
    *ret_base = base;
    return 0;
}

int core_ns_get(struct core *c, struct core_client *cl, uint32_t id, const uint8_t *sub,
                uint32_t sub_bytes, struct core_ns **ret_ns)
{
    struct core_ns *ns, *base;
    int err = core_ns_find(c, cl, id, sub, sub_bytes, &ns, &base);
    if (!err && !ns) {
        struct core_ns_spec spec = base->spec;
        err = sub_name(sub, sub_bytes, spec.sub);
        if (!err)
            err = core__ns_find_or_make(c, &cl->who, &spec, &ns);
    }
    if (!err)
        *ret_ns = ns;
    return err;
}

bool core_ns_exists(struct core *c, const struct core_client *cl, uint32_t id)
{
    const struct core_ns *ns = ns_by_id(c, id);
    return ns && ns_visible(cl, ns);
}

struct core_ns *core_ns_next(struct core *c, struct core_client *cl, uint32_t after)
{
    struct core_ns *best = NULL;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        if (ns->id > after && ns_visible(cl, ns) && (!best || ns->id < best->id))
            best = ns;
    }
    return best;
}

/* Keeps the lowest ids seen so far in order. */
uint32_t core_ns_page(struct core *c, struct core_client *cl, uint32_t after,
                      struct core_ns *ret_ns[CORE_NS_PAGE])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        if (ns->id <= after || !ns_visible(cl, ns))
            continue;
        if (n == CORE_NS_PAGE && ns->id > ret_ns[n - 1]->id)
            continue;
        uint32_t at = n < CORE_NS_PAGE ? n++ : n - 1;
        for (; at > 0 && ret_ns[at - 1]->id > ns->id; at--)
            ret_ns[at] = ret_ns[at - 1];
        ret_ns[at] = ns;
    }
    return n;
}

void core_ns_view(const struct core_ns *ns, struct core_ns_view *ret_view)
{
    *ret_view = (struct core_ns_view){.id = ns->id,
                                      .principal = ns->principal,
                                      .tenant = ns->tenant,
                                      .spec = &ns->spec,
                                      .seed = &ns->seed,
                                      .print = ns->short_print,
                                      .blocks = ns->blocks,
                                      .bytes = ns->bytes,
                                      .held = {ns->held[0], ns->held[1]},
                                      .pinned_bytes = ns->pinned,
                                      .leased_bytes = ns->leased,
                                      .named_bytes = ns->named_bytes,
                                      .hbm_bytes = ns->hbm_bytes,
                                      .bound = {ns->bound[0], ns->bound[1]}};
}

/* The first 8 bytes of a print, as a number; 1 instead of 0, which means none. */
uint64_t core__short_print(const struct key256 *print)
{
    const uint64_t v = cursor_le64(print->b);
    return v ? v : 1;
}
