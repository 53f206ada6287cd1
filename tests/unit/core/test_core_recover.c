/* SPDX-License-Identifier: Apache-2.0 */
/* Taking over what is there from the run before: namespaces, and a million blocks. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "one_core.h"

static void begin(uint32_t blocks_max)
{
    rig_defaults(&r);
    r.cfg.blocks_max = blocks_max;
    r.disk_cfg = (struct fake_disk_config){.slots = 64, .region_slots = 8, .seed = 3};
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    spec.shards = 1;
    ns = rig_ns(&r, 1, &spec);
}

static uint64_t print_of(void)
{
    struct core_ns_view v;
    core_ns_view(ns, &v);
    return v.print;
}

/* ---- records of namespaces ---- */

static const struct core_identity one = {.principal = 1, .name = "one", .tenant = "t1"};
static const struct core_identity *known;

static const struct core_identity *who_is(void *ctx, const char *principal)
{
    (void)ctx;
    return known && strcmp(known->name, principal) == 0 ? known : NULL;
}

CASES(.teardown = end, .timeout_s = 300);

CASE(a_namespace_comes_back_as_it_was_or_not_at_all)
{
    begin(64);
    uint8_t record[CORE_NS_RECORD_MAX];
    const uint64_t print = print_of();
    const uint32_t n = core_ns_record(r.core, print, record);
    ck_assert_uint_gt(n, 0);
    uint8_t none[CORE_NS_RECORD_MAX];
    ck_assert_uint_eq(core_ns_record(r.core, print + 1, none), 0);
    struct core *next;
    ck_assert_int_eq(core_create(&r.cfg, &next), 0);
    core_tick(next, r.now_ns);
    known = NULL;
    ck_assert_int_eq(core_ns_restore(next, record, n, who_is, NULL), KVC_E_DENIED);
    char principal[KVC_PARAMS_MAX], tenant[KVC_PARAMS_MAX];
    ck_assert_int_eq(core_ns_record_principal(record, n, principal, tenant), 0);
    ck_assert_str_eq(principal, one.name);
    ck_assert_str_eq(tenant, one.tenant);
    ck_assert_int_eq(core_ns_record_principal(record, n - 1, principal, tenant), KVC_E_GONE);
    struct core_identity other = one;
    other.tenant = "another";
    known = &other;
    ck_assert_int_eq(core_ns_restore(next, record, n, who_is, NULL), KVC_E_DENIED);
    known = &one;
    for (uint32_t i = 0; i < n; i++) {
        record[i] ^= 0x40;
        ck_assert_int_eq(core_ns_restore(next, record, n, who_is, NULL), KVC_E_GONE);
        ck_assert_int_eq(core_ns_restore(next, record, i, who_is, NULL), KVC_E_GONE);
        record[i] ^= 0x40;
    }
    const uint64_t changes = core_ns_changes(next);
    ck_assert_int_eq(core_ns_restore(next, record, n, who_is, NULL), 0);
    ck_assert_uint_gt(core_ns_changes(next), changes);
    ck_assert_int_eq(core_ns_restore(next, record, n, who_is, NULL), 0);
    uint64_t prints[4];
    uint32_t cursor = 0;
    ck_assert_uint_eq(core_ns_prints(next, &cursor, prints, 4), 1);
    ck_assert_uint_eq(prints[0], print);
    core_destroy(&next);
    r.cfg.tier[CORE_STORAGE]->events = (struct tier_events){.ctx = NULL};
}

CASE(another_secret_is_another_namespace)
{
    begin(64);
    uint8_t record[CORE_NS_RECORD_MAX];
    const uint32_t n = core_ns_record(r.core, print_of(), record);
    struct core_config cfg = r.cfg;
    cfg.secret.b[0] ^= 1;
    struct core *next;
    ck_assert_int_eq(core_create(&cfg, &next), 0);
    known = &one;
    ck_assert_int_eq(core_ns_restore(next, record, n, who_is, NULL), KVC_E_DENIED);
    core_destroy(&next);
}

/* ---- blocks ---- */

static struct core_found found(uint32_t chain, uint32_t i, uint32_t loc)
{
    struct core_found f = {.bytes = 64, .loc = {loc}, .age_ms = 16 * (loc % 1000)};
    f.label.key = rig_key(chain, i);
    f.label.has_parent = i > 0;
    if (i > 0)
        f.label.parent = rig_key(chain, i - 1);
    f.label.print = print_of();
    f.label.tokens = 8;
    return f;
}

CASE(what_does_not_fit_is_not_taken)
{
    begin(64);
    uint32_t block_no = 77;
    struct core_found f = found(1, 0, 1);
    f.label.print++;
    ck_assert_int_eq(core_recover(r.core, &f, &block_no), KVC_E_GONE);
    f = found(1, 0, 1);
    f.bytes = 65;
    ck_assert_int_eq(core_recover(r.core, &f, &block_no), KVC_E_GONE);
    f = found(1, 0, 1);
    f.label.group = 1;
    ck_assert_int_eq(core_recover(r.core, &f, &block_no), KVC_E_GONE);
    f = found(1, 0, 1);
    f.label.shard = 1;
    ck_assert_int_eq(core_recover(r.core, &f, &block_no), KVC_E_GONE);
    f = found(1, 0, 1);
    f.label.tokens = 9;
    ck_assert_int_eq(core_recover(r.core, &f, &block_no), KVC_E_GONE);
    ck_assert_uint_eq(block_no, 77);
    ck_assert_uint_eq(core_recover_end(r.core), 0);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Locations are made up: nothing of them is touched, and the core is thrown away. */
CASE_EACH(a_million_blocks, 2)
{
    const bool shuffled = _i;
    enum { N = 1000000, DEEP = 50 };
    begin(N + 64);
    struct core_found *f = malloc(N * sizeof *f);
    ck_assert_ptr_nonnull(f);
    for (uint32_t i = 0; i < N; i++)
        f[i] = found(i / DEEP, i % DEEP, i + 1);
    uint64_t random = 5;
    for (uint32_t i = N - 1; i > 0 && shuffled; i--) {
        const uint32_t k = (uint32_t)(fake_random(&random) % (i + 1));
        const struct core_found x = f[i];
        f[i] = f[k];
        f[k] = x;
    }
    uint32_t block_no, refused = 0;
    const double t0 = seconds();
    for (uint32_t i = 0; i < N; i++)
        refused += core_recover(r.core, &f[i], &block_no) != 0;
    const double t1 = seconds();
    ck_assert_uint_eq(core_recover_end(r.core), N);
    const double t2 = seconds();
    ck_assert_uint_eq(refused, 0);
    printf("1,000,000 blocks, %s: found in %.3f s, linked in %.3f s\n",
           shuffled ? "in random order" : "chain by chain", t1 - t0, t2 - t1);
    core_check(r.core);
    ck_assert_uint_eq(metrics()->blocks_on_disk, N);
    free(f);
    core_destroy(&r.core);
    fake_tier_destroy(&r.tier);
    fake_disk_destroy(&r.disk);
}
