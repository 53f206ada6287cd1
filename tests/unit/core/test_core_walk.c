/* SPDX-License-Identifier: Apache-2.0 */
/* Looking through chains, piece by piece. */
#include "one_core.h"

static uint32_t ns_id;

static struct {
    struct key256 key[4096];
    uint32_t depth[4096], ns[4096];
    bool has_parent[4096];
    uint32_t n, pieces, absent;
} seen;

static void begin(void)
{
    rig_defaults(&r);
    begin_ns();
    struct core_ns_view v;
    core_ns_view(ns, &v);
    ns_id = v.id;
    memset(&seen, 0, sizeof(seen));
}

static void see(void *ctx, const struct kvc_block_info *x)
{
    (void)ctx;
    ck_assert_uint_lt(seen.n, 4096);
    static const uint8_t none[KVC_KEY_BYTES];
    memcpy(seen.key[seen.n].b, x->key, KVC_KEY_BYTES);
    seen.has_parent[seen.n] = memcmp(x->parent, none, sizeof none) != 0;
    seen.absent += x->state == KVC_BLOCK_ABSENT;
    seen.ns[seen.n] = x->ns;
    seen.depth[seen.n++] = x->depth;
}

/* All pieces of a walk, `limit` blocks each; KVC_E_* ends it. */
static int walk(unsigned client, uint8_t mode, const struct key256 *key, uint32_t depth,
                uint32_t limit)
{
    struct core_walk in = {
        .ns = ns_id, .mode = mode, .key = key ? key->b : NULL, .depth = depth, .limit = limit};
    do {
        uint64_t cursor = 0;
        int err = core_walk(r.core, r.cl[client], &in, see, NULL, &cursor);
        if (err)
            return err;
        in.cursor = cursor;
        seen.pieces++;
        ck_assert_uint_lt(seen.pieces, 10000);
    } while (in.cursor);
    return 0;
}

static bool saw(const struct key256 *key)
{
    for (uint32_t i = 0; i < seen.n; i++)
        if (key256_equal(&seen.key[i], key))
            return true;
    return false;
}

CASES(.teardown = end);

CASE(up_goes_to_the_first_block_in_pieces_of_any_size)
{
    for (uint32_t limit = 1; limit <= 256; limit = limit * 4) {
        begin();
        rig_store(&r, 1, ns, 0, 1, 0, 10);
        struct key256 last = rig_key(1, 9);
        ck_assert_int_eq(walk(1, KVC_WALK_UP, &last, 0, limit), 0);
        ck_assert_uint_eq(seen.n, 10);
        for (uint32_t i = 0; i < 10; i++) {
            struct key256 key = rig_key(1, 9 - i);
            ck_assert(key256_equal(&seen.key[i], &key));
            ck_assert_uint_eq(seen.depth[i], 9 - i);
            ck_assert_int_eq(seen.has_parent[i], i < 9);
        }
        rig_end(&r);
    }
}

/* Chains 1 and 2 part behind block 3 of chain 1. */
static void store_fork(void)
{
    rig_store(&r, 1, ns, 0, 1, 0, 6);
    struct rig_commit m;
    struct rig_put p = {.ns = ns, .chain = 1, .first = 6, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &m), 1);
    fake_tier_run(r.tier, 100, 0);
    rig_commit_free(&m);
    struct key256 parent = rig_key(1, 3);
    struct core_reserve in = {
        .ns = ns, .parent = parent.b, .first_token = 32, .keys = rig_keys(0, 2, 4, 3), .n = 3};
    uint8_t statuses[3];
    uint64_t reservation;
    ck_assert_int_eq(core_reserve(r.core, r.cl[1], &in, &reservation, statuses, &r.why), 0);
    ck_assert_uint_ne(reservation, 0);
}

CASE(down_sees_each_block_of_the_tree_once_and_before_what_follows_it)
{
    for (uint32_t limit = 1; limit <= 256; limit = limit * 4) {
        begin();
        store_fork();
        struct key256 root = rig_key(1, 1);
        ck_assert_int_eq(walk(1, KVC_WALK_DOWN, &root, 0, limit), 0);
        ck_assert_uint_eq(seen.n, 9); /* 1 to 6 of chain 1, 4 to 6 of chain 2 */
        for (uint32_t i = 0; i < seen.n; i++) {
            ck_assert(i == 0 || seen.depth[i] > 1);
            ck_assert(i == 0 || seen.depth[i] <= seen.depth[i - 1] + 1);
        }
        for (uint32_t i = 4; i < 7; i++) {
            struct key256 one = rig_key(1, i), two = rig_key(2, i);
            ck_assert(saw(&one) && saw(&two));
        }
        rig_end(&r);
    }
}

CASE(down_ends_at_the_depth_asked_for)
{
    begin();
    store_fork();
    struct key256 root = rig_key(1, 2);
    ck_assert_int_eq(walk(1, KVC_WALK_DOWN, &root, 2, 3), 0);
    ck_assert_uint_eq(seen.n, 4); /* 2, 3, and both blocks 4 */
    seen.n = 0;
    ck_assert_int_eq(walk(1, KVC_WALK_DOWN, &root, UINT32_MAX, 256), 0);
    ck_assert_uint_eq(seen.n, 8); /* 2 to 6 of chain 1, 4 to 6 of chain 2 */
}

CASE(roots_are_the_first_blocks_of_sequences)
{
    begin();
    for (uint32_t chain = 1; chain <= 20; chain++)
        rig_store(&r, 1, ns, 0, chain, 0, 3);
    ck_assert_int_eq(walk(1, KVC_WALK_ROOTS, NULL, 0, 7), 0);
    ck_assert_uint_eq(seen.n, 20);
    for (uint32_t chain = 1; chain <= 20; chain++) {
        struct key256 key = rig_key(chain, 0);
        ck_assert(saw(&key));
    }
}

CASE(a_beginning_matches_in_each_group_and_namespace_that_may_be_seen)
{
    for (uint32_t limit = 1; limit <= 256; limit = limit * 16) {
        begin();
        struct core_ns_spec spec = rig_spec("n", 8, 64);
        struct core_ns *second = rig_ns(&r, 1, &spec), *hidden = rig_ns(&r, 3, &spec);
        rig_store(&r, 1, ns, 0, 1, 0, 20);
        rig_store(&r, 1, second, 0, 1, 0, 20);
        rig_store(&r, 3, hidden, 0, 1, 0, 20);
        struct key256 key = rig_key(1, 7);
        ck_assert_int_eq(walk(1, KVC_WALK_MATCH, &key, 256, limit), 0);
        ck_assert_uint_eq(seen.n, 1); /* of this namespace */
        ck_assert(saw(&key));
        key.b[31] ^= 1;
        seen.n = 0;
        ck_assert_int_eq(walk(1, KVC_WALK_MATCH, &key, 256, limit), 0);
        ck_assert_uint_eq(seen.n, 0);
        ck_assert_int_eq(walk(1, KVC_WALK_MATCH, &key, 255, limit), 0);
        ck_assert_uint_eq(seen.n, 1);
        ns_id = 0;
        seen.n = 0;
        ck_assert_int_eq(walk(1, KVC_WALK_MATCH, &key, 250, limit), 0);
        ck_assert_uint_eq(seen.n, 2);
        seen.n = 0;
        ck_assert_int_eq(walk(0, KVC_WALK_MATCH, &key, 250, limit), 0); /* an administrator */
        ck_assert_uint_eq(seen.n, 3);
        rig_end(&r);
    }
}

CASE(a_walk_whose_place_is_gone_says_so_and_never_goes_on_elsewhere)
{
    begin();
    rig_store(&r, 1, ns, 0, 1, 0, 6);
    struct key256 root = rig_key(1, 0), at = rig_key(1, 3);
    struct core_walk in = {
        .ns = ns_id, .mode = KVC_WALK_DOWN, .key = root.b, .limit = 3, .cursor = 0};
    uint64_t cursor = 0;
    ck_assert_int_eq(core_walk(r.core, r.cl[1], &in, see, NULL, &cursor), 0);
    ck_assert_uint_ne(cursor, 0);
    struct core_evict_job job = {.client = r.cl[1], .have_key = true, .key = at};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 3);
    rig_store(&r, 1, ns, 0, 2, 0, 3); /* takes the records */
    in.cursor = cursor;
    ck_assert_int_eq(core_walk(r.core, r.cl[1], &in, see, NULL, &cursor), KVC_E_GONE);
}

CASE(cursors_that_nobody_gave_are_refused_or_harmless)
{
    begin();
    store_fork();
    struct key256 root = rig_key(1, 4);
    uint64_t state = 7;
    for (unsigned i = 0; i < 2000; i++) {
        seen.n = 0;
        struct core_walk in = {.ns = ns_id,
                               .mode = (uint8_t)(i % 3),
                               .key = root.b,
                               .limit = 256,
                               .cursor = fake_random(&state) >> (i % 60) | 1u};
        uint64_t cursor = 0;
        int err = core_walk(r.core, r.cl[1], &in, see, NULL, &cursor);
        ck_assert(err == 0 || err == KVC_E_GONE);
    }
}

/* Client 3 is of another principal; client 1 has a cursor of it, as if it had guessed one. */
CASE(a_cursor_into_another_namespace_leads_nowhere)
{
    begin();
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    struct core_ns *other = rig_ns(&r, 3, &spec);
    struct core_ns_view v;
    core_ns_view(other, &v);
    rig_store(&r, 3, other, 0, 1, 0, 4);
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    struct key256 first = rig_key(1, 0), last = rig_key(1, 3);
    for (unsigned mode = KVC_WALK_UP; mode <= KVC_WALK_DOWN; mode++) {
        struct core_walk in = {.ns = v.id,
                               .mode = (uint8_t)mode,
                               .key = mode == KVC_WALK_UP ? last.b : first.b,
                               .limit = 1};
        uint64_t cursor = 0;
        ck_assert_int_eq(core_walk(r.core, r.cl[3], &in, see, NULL, &cursor), 0);
        ck_assert_uint_ne(cursor, 0);
        seen.n = 0;
        in.ns = ns_id;
        in.cursor = cursor;
        ck_assert_int_eq(core_walk(r.core, r.cl[1], &in, see, NULL, &cursor), KVC_E_GONE);
        ck_assert_uint_eq(seen.n, 0);
    }
}

CASE(others_see_no_namespace_and_an_unknown_key_nothing)
{
    begin();
    rig_store(&r, 1, ns, 0, 1, 0, 2);
    struct key256 first = rig_key(1, 0), unknown = rig_key(9, 0);
    ck_assert_int_eq(walk(3, KVC_WALK_UP, &first, 0, 9), KVC_E_NO_NAMESPACE);
    ck_assert_int_eq(walk(1, KVC_WALK_UP, &unknown, 0, 9), 0);
    ck_assert_uint_eq(seen.n, 0);
    ck_assert_int_eq(walk(0, KVC_WALK_UP, &first, 0, 9), 0); /* an administrator */
    ck_assert_uint_eq(seen.n, 1);
    struct core_walk in = {.ns = ns_id, .group = 1, .key = first.b, .limit = 1};
    uint64_t cursor;
    ck_assert_int_eq(core_walk(r.core, r.cl[1], &in, see, NULL, &cursor), KVC_E_BAD_ARGUMENT);
}

/* Keys 0 to 4 of a chain that two namespaces have up to key 3; a third is another principal's. */
CASE(each_key_is_told_in_each_place_or_absent)
{
    for (uint32_t limit = 1; limit <= 256; limit = limit * 4) {
        begin();
        struct core_ns_spec spec = rig_spec("n", 8, 64);
        struct core_ns *second = rig_ns(&r, 1, &spec), *hidden = rig_ns(&r, 3, &spec);
        rig_store(&r, 1, ns, 0, 1, 0, 4);
        rig_store(&r, 1, second, 0, 1, 0, 4);
        rig_store(&r, 3, hidden, 0, 1, 0, 5);
        uint32_t places = UINT32_MAX, pieces = 0;
        struct core_walk in = {.mode = KVC_WALK_KEYS,
                               .key = rig_keys(0, 1, 0, 5),
                               .keys = 5,
                               .limit = limit,
                               .places = &places};
        do {
            const uint32_t before = seen.n;
            ck_assert_int_eq(core_walk(r.core, r.cl[1], &in, see, NULL, &in.cursor), 0);
            ck_assert(in.cursor == 0 || seen.n == before + limit);
        } while (in.cursor && ++pieces < 100);
        ck_assert_uint_eq(seen.n, 9);
        ck_assert_uint_eq(seen.absent, 1);
        for (uint32_t i = 0; i < 9; i++) {
            const struct key256 key = rig_key(1, i / 2);
            ck_assert(key256_equal(&seen.key[i], &key));
            ck_assert(i % 2 == 0 || seen.ns[i] != seen.ns[i - 1]);
        }
        seen.n = 0;
        in.limit = 256;
        places = 1; /* one key in any case */
        ck_assert_int_eq(core_walk(r.core, r.cl[1], &in, see, NULL, &in.cursor), 0);
        ck_assert_uint_eq(seen.n, 2);
        ck_assert_uint_ne(in.cursor, 0);
        in.cursor = UINT64_MAX; /* nobody gave it */
        ck_assert_int_eq(core_walk(r.core, r.cl[1], &in, see, NULL, &in.cursor), 0);
        ck_assert_uint_eq(in.cursor, 0);
        in.ns = seen.ns[0];
        ck_assert_int_eq(core_walk(r.core, r.cl[3], &in, see, NULL, &in.cursor),
                         KVC_E_NO_NAMESPACE);
        ck_assert_uint_eq(seen.n, 2);
        rig_end(&r);
    }
}
