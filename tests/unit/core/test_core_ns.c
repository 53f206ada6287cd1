/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "cases.h"
#include "core_rig.h"

static struct rig r;

static void setup(void)
{
    rig_defaults(&r);
    r.cfg.namespaces_max = 4;
    rig_begin(&r);
}

static void teardown(void)
{
    rig_end(&r);
}

static int open_ns(unsigned client, const struct core_ns_spec *spec, struct core_ns **ret_ns)
{
    struct core_similar similar[4];
    uint32_t nsimilar;
    return core_ns_open(r.core, r.cl[client], spec, ret_ns, similar, &nsimilar, &r.why);
}

static uint32_t id_of(const struct core_ns *ns)
{
    struct core_ns_view v;
    core_ns_view(ns, &v);
    return v.id;
}

static struct key256 seed_of(const struct core_ns *ns)
{
    struct core_ns_view v;
    core_ns_view(ns, &v);
    return *v.seed;
}

/* ---- what is refused ---- */

static const struct {
    const char *attention, *position, *says;
} unsound[] = {
    {"bidirectional", "rope", "causal"},    {"", "rope", "causal"},
    {"prefix-lm", "rope", "causal"},        {"causal", "rerope", "rerope"},
    {"causal", "dynamic-ntk", "dynamic-n"}, {"causal", "", "not known"},
    {"causal", "Rope", "not known"},
};

CASES(.setup = setup, .teardown = teardown);

CASE_EACH(unsound_reuse_is_refused_with_the_reason, ARRAY_LEN(unsound))
{
    struct core_ns *ns = NULL;
    struct core_ns_spec spec = rig_spec("m", 16, 64);
    memset(spec.attention, 0, sizeof(spec.attention));
    memset(spec.position, 0, sizeof(spec.position));
    strcpy(spec.attention, unsound[_i].attention);
    strcpy(spec.position, unsound[_i].position);
    ck_assert_int_eq(open_ns(1, &spec, &ns), KVC_E_UNSOUND);
    ck_assert_ptr_nonnull(strstr(r.why, unsound[_i].says));
    ck_assert_ptr_null(ns);
}

CASE(sound_schemes_are_accepted)
{
    static const char *const good[] = {"rope", "yarn", "llama3", "alibi", "none", "learned"};
    for (unsigned i = 0; i < ARRAY_LEN(good); i++) {
        struct core_ns *ns;
        struct core_ns_spec spec = rig_spec("m", 16, 64);
        memset(spec.position, 0, sizeof(spec.position));
        strcpy(spec.position, good[i]);
        ck_assert_int_eq(open_ns(1, &spec, &ns), 0);
    }
}

#define BAD(field, value)                                                \
    do {                                                                 \
        struct core_ns *ns__;                                            \
        struct core_ns_spec bad__ = rig_spec("m", 16, 64);               \
        bad__.field = (value);                                           \
        ck_assert_int_eq(open_ns(1, &bad__, &ns__), KVC_E_BAD_ARGUMENT); \
        ck_assert_ptr_nonnull(r.why);                                    \
    } while (0)

CASE(shapes_outside_the_limits_are_refused)
{
    BAD(model[0], 0);
    BAD(shards, 0);
    BAD(shards, KVC_SHARDS_MAX + 1);
    BAD(ngroups, 0);
    BAD(ngroups, KVC_GROUPS_MAX + 1);
    BAD(group[0].block_tokens, 0);
    BAD(group[0].block_tokens, KVC_BLOCK_TOKENS_MAX + 1);
    BAD(group[0].block_bytes, 0);
    BAD(group[0].block_bytes, KVC_BLOCK_BYTES_MAX + 1);
    BAD(group[0].rule, KVC_RULE_STATE + 1);
    BAD(group[0].rule, KVC_RULE_WINDOW);
    BAD(group[0].window, 5);
    BAD(group[0].flags, 1);
}

CASE(a_block_that_no_chunk_holds_is_too_large)
{
    struct core_ns *ns;
    struct core_ns_spec spec = rig_spec("m", 16, r.tier_cfg.region_bytes + 1);
    ck_assert_int_eq(open_ns(1, &spec, &ns), KVC_E_TOO_LARGE);
    ck_assert_ptr_nonnull(strstr(r.why, "host.chunk"));
    spec.group[0].block_bytes--;
    ck_assert_int_eq(open_ns(1, &spec, &ns), 0);
}

/* ---- who shares what ---- */

CASE(equal_specs_of_one_principal_are_one_namespace)
{
    struct core_ns_spec spec = rig_spec("m", 16, 64), dearer = spec;
    dearer.prefill_ns_per_token = 100;
    struct core_ns *a = rig_ns(&r, 1, &spec);
    ck_assert_ptr_eq(rig_ns(&r, 2, &spec), a);
    ck_assert_ptr_eq(rig_ns(&r, 1, &dearer), a);
    struct core_ns *b = rig_ns(&r, 3, &spec); /* another principal */
    ck_assert_ptr_ne(b, a);
    ck_assert_uint_ne(id_of(b), id_of(a));
    struct key256 x = seed_of(a), y = seed_of(b);
    ck_assert(!key256_equal(&x, &y));
}

CASE(every_field_of_the_spec_separates_and_similar_says_which)
{
    struct core_ns_spec spec = rig_spec("m", 16, 64), other = spec;
    strcpy(other.lora, "adapter");
    other.head_size = 128;
    other.group[0].block_bytes = 128;
    struct core_ns *a = rig_ns(&r, 1, &spec), *b;
    struct core_similar similar[4];
    uint32_t nsimilar = 0;
    ck_assert_int_eq(core_ns_open(r.core, r.cl[1], &other, &b, similar, &nsimilar, &r.why), 0);
    ck_assert_ptr_ne(a, b);
    ck_assert_uint_eq(nsimilar, 1);
    ck_assert_uint_eq(similar[0].ns, id_of(a));
    ck_assert_uint_eq(similar[0].fields, 1u << KVC_NS_FIELD_LORA | 1u << KVC_NS_FIELD_HEAD_SIZE |
                                             1u << KVC_NS_FIELD_GROUPS);
}

CASE(seeds_come_from_secret_owner_and_spec)
{
    struct core_ns_spec spec = rig_spec("m", 16, 64);
    struct key256 a = seed_of(rig_ns(&r, 1, &spec));
    struct rig again;
    rig_defaults(&again);
    rig_begin(&again);
    struct key256 b = seed_of(rig_ns(&again, 1, &spec));
    ck_assert(key256_equal(&a, &b)); /* the same after a restart */
    rig_end(&again);
    rig_defaults(&again);
    again.cfg.secret.b[31] = 1;
    rig_begin(&again);
    b = seed_of(rig_ns(&again, 1, &spec));
    ck_assert(!key256_equal(&a, &b));
    rig_end(&again);
}

CASE(sub_tenants_are_for_gateways_and_apart)
{
    struct core_ns_spec spec = rig_spec("m", 16, 64), sub = spec;
    strcpy(sub.sub, "alice");
    struct core_ns *ns, *own = rig_ns(&r, 1, &spec);
    ck_assert_int_eq(open_ns(1, &sub, &ns), KVC_E_DENIED);
    ck_assert_ptr_nonnull(strstr(r.why, "gateway"));
    const uint8_t *alice = (const uint8_t *)"alice";
    ck_assert_int_eq(core_ns_get(r.core, r.cl[1], id_of(own), alice, 5, &ns), KVC_E_DENIED);
    struct core_ns *base = rig_ns(&r, 0, &spec), *a, *b;
    ck_assert_int_eq(core_ns_get(r.core, r.cl[0], id_of(base), alice, 5, &a), 0);
    ck_assert_int_eq(core_ns_get(r.core, r.cl[0], id_of(base), alice, 4, &b), 0); /* "alic" */
    ck_assert(a != base && b != base && a != b);
    ck_assert_int_eq(core_ns_get(r.core, r.cl[0], id_of(b), alice, 5, &ns), 0);
    ck_assert_ptr_eq(ns, a);
    ck_assert_int_eq(core_ns_get(r.core, r.cl[0], id_of(base), NULL, 0, &ns), 0);
    ck_assert_ptr_eq(ns, base);
    const uint8_t zero[] = "a\0b";
    ck_assert_int_eq(core_ns_get(r.core, r.cl[0], id_of(base), zero, 3, &ns), KVC_E_BAD_ARGUMENT);
}

CASE(anothers_namespace_does_not_exist)
{
    struct core_ns_spec spec = rig_spec("m", 16, 64);
    struct core_ns *mine = rig_ns(&r, 1, &spec), *ns;
    ck_assert_int_eq(core_ns_get(r.core, r.cl[3], id_of(mine), NULL, 0, &ns), KVC_E_NO_NAMESPACE);
    ck_assert_int_eq(core_ns_get(r.core, r.cl[1], 0, NULL, 0, &ns), KVC_E_NO_NAMESPACE);
    ck_assert_int_eq(core_ns_get(r.core, r.cl[1], UINT32_MAX, NULL, 0, &ns), KVC_E_NO_NAMESPACE);
    ck_assert_ptr_null(core_ns_next(r.core, r.cl[3], 0));
    ck_assert_ptr_eq(core_ns_next(r.core, r.cl[0], 0), mine); /* the administrator sees it */
}

/* Blocks with the same 32 bytes of key, as engines' own hashes are, do not meet. */
CASE(equal_keys_in_other_namespaces_do_not_hit)
{
    struct core_ns_spec spec = rig_spec("m", 16, 64), sibling = spec;
    strcpy(sibling.revision, "2");
    struct core_ns *a = rig_ns(&r, 1, &spec), *b = rig_ns(&r, 3, &spec);
    struct core_ns *c = rig_ns(&r, 1, &sibling);
    rig_store(&r, 1, a, 0, 1, 0, 4);
    ck_assert_uint_eq(rig_lookup(&r, a, 1, 64).tokens, 64);
    struct core_prefix p = rig_lookup(&r, b, 1, 64);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NEVER); /* and nothing is told of it */
    p = rig_lookup(&r, c, 1, 64);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NAMESPACE);
    ck_assert_uint_eq(p.group[0].detail, 1u << KVC_NS_FIELD_REVISION);
}

/* Keys that a client derives from the seed hit nothing in another namespace, and the miss says
 * which field differs. */
CASE(equal_tokens_have_equal_keys_in_namespaces_of_one_owner)
{
    struct core_ns_spec spec = rig_spec("m", 16, 64), other = spec, model = spec;
    strcpy(other.dtype, "fp8");
    strcpy(model.model, "n");
    struct core_ns *a = rig_ns(&r, 1, &spec), *b = rig_ns(&r, 1, &other);
    struct core_ns *c = rig_ns(&r, 1, &model);
    struct key256 x = seed_of(a), y = seed_of(b);
    ck_assert(key256_equal(&x, &y));
    rig_store(&r, 1, a, 0, 1, 0, 4);
    struct core_prefix p = rig_lookup(&r, b, 1, 64);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NAMESPACE);
    ck_assert_uint_eq(p.group[0].detail, 1u << KVC_NS_FIELD_DTYPE);
    p = rig_lookup(&r, c, 1, 64); /* nobody expects blocks of another model */
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NEVER);
}

CASE(a_namespace_with_tokens_says_that_it_differs)
{
    struct core_ns_spec spec = rig_spec("m", 16, 64), other = spec;
    other.flags = KVC_F_TOKENS;
    struct core_ns *a = rig_ns(&r, 1, &spec), *b;
    struct core_similar similar[4];
    uint32_t nsimilar = 0;
    ck_assert_int_eq(core_ns_open(r.core, r.cl[1], &other, &b, similar, &nsimilar, &r.why), 0);
    ck_assert_ptr_ne(a, b);
    ck_assert_uint_eq(nsimilar, 1);
    ck_assert_uint_eq(similar[0].fields, 1u << KVC_NS_FIELD_TOKENS);
}

/* ---- slots ---- */

static struct core_ns *numbered(unsigned client, unsigned n)
{
    struct core_ns_spec spec = rig_spec("m", 16, 64);
    spec.layers = n;
    return rig_ns(&r, client, &spec);
}

CASE(the_longest_opened_empty_namespace_makes_room)
{
    uint32_t id[4];
    for (unsigned i = 0; i < 4; i++) {
        struct core_ns *ns = numbered(1, i);
        if (i == 0)
            rig_store(&r, 1, ns, 0, i, 0, 2);
        id[i] = id_of(ns);
        rig_step(&r);
    }
    (void)numbered(1, 1); /* opened again: younger than 2 and 3 */
    uint32_t fifth = id_of(numbered(1, 4));
    struct core_ns *ns;
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(core_ns_get(r.core, r.cl[1], id[i], NULL, 0, &ns),
                         i == 2 ? KVC_E_NO_NAMESPACE : 0);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_ne(fifth, id[i]);
}

CASE(when_all_hold_blocks_there_is_no_slot)
{
    for (unsigned i = 0; i < 4; i++)
        rig_store(&r, 1, numbered(1, i), 0, i, 0, 1);
    struct core_ns *ns;
    struct core_ns_spec spec = rig_spec("another", 16, 64);
    ck_assert_int_eq(open_ns(3, &spec, &ns), KVC_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(r.why, "limits.namespaces"));
}

/* A worker gets the parent wrong, so a leased block is dropped with it: until its lease ends the
 * record is read by the rules of its own namespace, whatever else is opened. */
CASE(a_slot_is_not_reused_below_a_lease_on_dropped_blocks)
{
    struct core_ns_spec spec = rig_spec("m", 16, 256);
    spec.shards = 2;
    struct core_ns *ns = rig_ns(&r, 1, &spec);
    struct rig_put wrong = {.ns = ns, .chain = 1, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 2, &wrong), 0);
    struct key256 root = rig_key(2, 0), parent = rig_key(1, 0);
    for (uint32_t shard = 0; shard < 2; shard++) {
        struct rig_put p = {.ns = ns, .shard = shard, .chain = 2, .n = 1};
        struct core_reserve in = {.ns = ns,
                                  .shard = shard,
                                  .parent = parent.b,
                                  .first_token = 16,
                                  .keys = root.b,
                                  .n = 1};
        ck_assert_int_eq(core_reserve(r.core, r.cl[1], &in, &p.reservation, p.statuses, &r.why), 0);
        struct rig_commit *m = malloc(sizeof(*m));
        ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
        (void)fake_tier_run(r.tier, 10, 0);
        rig_commit_free(m);
        free(m);
    }
    struct core_held held = rig_acquire(&r, 1, ns, 2, 16);
    ck_assert_uint_ne(held.lease, 0);
    ck_assert_int_eq(core_drop(r.core, r.cl[2], wrong.reservation), 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 2, 16).tokens, 0);
    for (unsigned i = 0; i < 3; i++)
        rig_store(&r, 3, numbered(3, i), 0, i, 0, 1);
    struct core_ns *more;
    spec.shards = 1;
    ck_assert_int_eq(open_ns(3, &spec, &more), KVC_E_LIMIT);
    rig_check_lease(&r, 1, held.lease, 1);
    struct core_held second;
    ck_assert_int_eq(core_redeem(r.core, r.cl[2], held.ticket, &second), 0);
    rig_check_lease(&r, 2, second.lease, 0);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    ck_assert_int_eq(core_release(r.core, r.cl[2], second.lease), 0);
    ck_assert_int_eq(open_ns(3, &spec, &more), 0);
}

/* Principals that are told apart: each can count on its part, and recycles its own alone while the
 * other is attached. */
CASE(no_principal_takes_anothers_slots)
{
    rig_end(&r);
    rig_defaults(&r);
    r.cfg.namespaces_max = 8;
    r.cfg.principals_max = 9; /* "ops" is number 9 */
    r.cfg.fair = true;        /* 8 / 9: nothing to promise */
    rig_begin(&r);
    uint32_t theirs = id_of(numbered(3, 0));
    struct core_ns *ns, *base;
    for (unsigned i = 0; i < 50; i++)
        (void)numbered(1, i);
    ck_assert_int_eq(core_ns_find(r.core, r.cl[3], theirs, NULL, 0, &ns, &base), 0);
    ck_assert_uint_eq(id_of(numbered(3, 1)), id_of(numbered(3, 1)));
    ck_assert_int_eq(core_ns_find(r.core, r.cl[3], theirs, NULL, 0, &ns, &base),
                     KVC_E_NO_NAMESPACE); /* its own oldest made room */
}

CASE(readers_of_a_sub_tenant_create_none)
{
    const uint8_t name[] = {'a', 'l', 'i'};
    struct core_ns_spec spec = rig_spec("m", 16, 64);
    struct core_ns *own = rig_ns(&r, 0, &spec), *ns = own, *base = NULL;
    uint64_t before = core_metrics(r.core)->namespaces;
    ck_assert_int_eq(core_ns_find(r.core, r.cl[0], id_of(own), name, 3, &ns, &base), 0);
    ck_assert_ptr_null(ns);
    ck_assert_ptr_eq(base, own);
    ck_assert_uint_eq(core_metrics(r.core)->namespaces, before);
    ck_assert_int_eq(core_ns_get(r.core, r.cl[0], id_of(own), name, 3, &ns), 0);
    ck_assert_ptr_ne(ns, own);
    ck_assert_int_eq(core_ns_find(r.core, r.cl[0], id_of(own), name, 3, &base, &own), 0);
    ck_assert_ptr_eq(base, ns);
}

CASE(a_successor_in_a_slot_is_told_nothing_of_its_predecessor)
{
    r.cfg.namespaces_max = 4;
    for (unsigned i = 0; i < 4; i++)
        rig_store(&r, 1, numbered(1, i), 0, 1, 0, 3);
    struct core_evict_job job = {.client = r.cl[0]};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 12);
    for (unsigned i = 0; i < 4; i++) {
        struct core_prefix p = rig_lookup(&r, numbered(3, i), 1, 48);
        ck_assert_uint_eq(p.tokens, 0);
        ck_assert_uint_eq(p.group[0].reason, KVC_MISS_NEVER);
    }
}
