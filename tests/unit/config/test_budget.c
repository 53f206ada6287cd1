/* SPDX-License-Identifier: Apache-2.0 */
/* The memory limit from made-up kernel files, the sum, and every "auto". */
#include "cases.h"
#include "scratch.h"

#include <sys/statvfs.h>

#include "budget.h"
#include "fault.h"
#include "node_config.h"
#include "units.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* ---- limit ---- */

static void put(const char *path, const char *text)
{
    scratch_write(path, text, strlen(text));
}

/* A machine of 64 GiB in the working directory. */
static void fake_machine(const char *cgroup)
{
    put("proc/meminfo", "MemTotal:       67108864 kB\nMemFree:         1 kB\n");
    if (cgroup != NULL)
        put("proc/self/cgroup", cgroup);
}

static void assert_limit(uint64_t bytes, const char *source)
{
    struct budget_limit limit;

    ck_assert_int_eq(budget_memory_limit(scratch_dir, &limit), 0);
    ck_assert_uint_eq(limit.bytes, bytes);
    ck_assert_str_eq(limit.source, source);
}

CASES(.setup = scratch_setup, .teardown = scratch_teardown);

CASE(v2_limit_of_the_own_cgroup)
{
    fake_machine("0::/system.slice/kvcache.service\n");
    put("sys/fs/cgroup/system.slice/memory.max", "max\n");
    put("sys/fs/cgroup/system.slice/kvcache.service/memory.max", "8589934592\n");

    assert_limit(8 * GIB, "/sys/fs/cgroup/system.slice/kvcache.service/memory.max");
}

CASE(v2_lower_limit_of_a_cgroup_above)
{
    fake_machine("0::/a/b/c\n");
    put("sys/fs/cgroup/a/memory.max", "4294967296\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/b/c/memory.max", "8589934592\n");

    assert_limit(4 * GIB, "/sys/fs/cgroup/a/memory.max");
}

CASE(v2_memory_high_counts_too)
{
    fake_machine("0::/a\n");
    put("sys/fs/cgroup/a/memory.max", "8589934592\n");
    put("sys/fs/cgroup/a/memory.high", "6442450944\n");

    assert_limit(6 * GIB, "/sys/fs/cgroup/a/memory.high");
}

CASE_EACH(v2_in_a_container_the_mount_point_is_the_cgroup, 3)
{
    fake_machine(_i == 0 ? "0::/\n" : _i == 1 ? "0::/docker/abc\n" : "0::/../../abc\n");
    put("sys/fs/cgroup/memory.max", "2147483648\n");

    assert_limit(2 * GIB, "/sys/fs/cgroup/memory.max");
}

CASE(v1_limit)
{
    fake_machine("12:cpu,cpuacct:/x\n9:hugetlb,memory:/docker/abc\n3:memoryx:/y\n0::/z\n");
    put("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "3221225472\n");
    put("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "4096\n");

    assert_limit(3 * GIB, "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes");
}

CASE_EACH(without_a_limit_mem_total_counts, 5)
{
    static const char *const cgroups[] = {NULL, "", "0::/a\n", "9:memory:/m\n", "nonsense\n:::\n"};

    fake_machine(cgroups[_i]);
    put("sys/fs/cgroup/a/memory.max", "max\n");
    put("sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n");

    assert_limit(64 * GIB, "MemTotal");
}

CASE(a_limit_above_the_machine_does_not_count)
{
    fake_machine("0::/a\n");
    put("sys/fs/cgroup/a/memory.max", "1099511627776\n");

    assert_limit(64 * GIB, "MemTotal");
}

CASE(a_machine_without_meminfo_is_an_error)
{
    struct budget_limit limit = {.bytes = 7};

    ck_assert_int_eq(budget_memory_limit(scratch_dir, &limit), -ENOENT);
    put("proc/meminfo", "MemFree: 1 kB\n");
    ck_assert_int_eq(budget_memory_limit(scratch_dir, &limit), -ENODATA);
    ck_assert_uint_eq(limit.bytes, 7);
}

CASE(a_limit_that_cannot_be_seen_for_want_of_descriptors_is_not_taken_for_none)
{
    struct budget_limit limit = {.bytes = 7};
    fake_machine("0::/a\n");
    put("sys/fs/cgroup/a/memory.max", "8589934592\n");
    uint64_t nth = 1;
    for (bool reached = true; reached; nth++) {
        ck_assert_int_eq(fault_arm("fd", nth), 0);
        const int err = budget_memory_limit(scratch_dir, &limit);
        reached = fault_count("fd") >= nth;
        fault_reset();
        ck_assert_int_eq(err, reached ? -EMFILE : 0);
        ck_assert_uint_eq(limit.bytes, reached ? 7 : 8 * GIB);
    }
    ck_assert_uint_gt(nth, 4); /* meminfo, the cgroup's name, its files */
}

CASE(this_machine_has_a_limit)
{
    struct budget_limit limit;

    ck_assert_int_eq(budget_memory_limit("", &limit), 0);
    ck_assert_uint_gt(limit.bytes, 16 * MIB);
}

/* ---- the sum ---- */

static void inputs_of(const struct config *cfg, void *ctx, struct budget_inputs *ret)
{
    unsigned *calls = ctx;

    *ret = (struct budget_inputs){
        .host_footprint_bytes = cfg->host.limit + cfg->host.limit / 50 + cfg->host.chunk,
        .index_bytes = UINT64_C(100) * cfg->index.blocks,
        .policy_bytes = UINT64_C(20) * cfg->index.blocks,
        .lease_bytes = UINT64_C(64) * cfg->limits.leases,
        .session_bytes = UINT64_C(10000) * cfg->limits.sessions,
        .namespace_bytes = UINT64_C(4096) * cfg->limits.namespaces,
        .flight_bytes = UINT64_C(256) * cfg->flight.records,
        .copy_bytes = MIB * cfg->copy.threads,
        .front_bytes = 8 * MIB,
    };
    if (calls != NULL)
        (*calls)++;
}

static struct budget_limit limit_of(uint64_t bytes)
{
    return (struct budget_limit){.bytes = bytes, .source = "MemTotal"};
}

static int resolve(struct config *cfg, uint64_t limit_bytes, struct budget *ret, char *text,
                   size_t cap)
{
    const struct budget_limit limit = limit_of(limit_bytes);
    struct config_errors errors;
    const int r = config_resolve_auto(cfg, &limit, inputs_of, NULL, ret, &errors);

    text[0] = '\0';
    if (r < 0) {
        ck_assert_uint_eq(errors.count, 1);
        config_error_format(&errors.list[0], text, cap);
    }
    return r;
}

/* Configuration from text, resolved on a machine of that size. */
static struct config resolved(const char *yaml, uint64_t limit_bytes, struct budget *ret)
{
    struct config cfg = scratch_config(yaml);
    char text[2048];

    ck_assert_msg(resolve(&cfg, limit_bytes, ret, text, sizeof(text)) == 0, "%s", text);
    return cfg;
}

/* What is said when it does not resolve. */
static const char *refusal(const char *yaml, uint64_t limit_bytes, struct budget *ret)
{
    static char text[2048];
    char whole[512]; /* the figures would follow the machine's CPUs otherwise */
    ck_assert_int_lt(snprintf(whole, sizeof(whole), "%scopy: {threads: 1}\n", yaml),
                     (int)sizeof(whole));
    struct config cfg = scratch_config(whole), before = cfg;

    ck_assert_int_eq(resolve(&cfg, limit_bytes, ret, text, sizeof(text)), -EINVAL);
    ck_assert_mem_eq(&cfg, &before, sizeof(cfg));
    return text;
}

static uint64_t line_bytes(const struct budget *b, const char *name)
{
    for (unsigned i = 0; i < b->nlines; i++)
        if (strcmp(b->lines[i].name, name) == 0)
            return b->lines[i].bytes;
    ck_abort_msg("no line '%s'", name);
    return 0;
}

static const char small[] = "host: {limit: 1GiB, chunk: 16MiB}\n"
                            "memory: {budget: 2GiB}\n"
                            "staging: {total: 256MiB, session_max: 64MiB}\n"
                            "index: {blocks: 100000}\n"
                            "copy: {threads: 2}\n"
                            "limits: {lease_bytes: 1MiB}\n";

CASE(every_part_has_its_line)
{
    struct budget b;
    const uint64_t footprint = GIB + GIB / 50 + 16 * MIB;

    resolved(small, 8 * GIB, &b);

    ck_assert_uint_eq(line_bytes(&b, "host slots"), GIB);
    ck_assert_uint_eq(line_bytes(&b, "host overhead"), footprint - GIB);
    ck_assert_uint_eq(line_bytes(&b, "staging"), 256 * MIB);
    ck_assert_uint_eq(line_bytes(&b, "index"), 10000000);
    ck_assert_uint_eq(line_bytes(&b, "policy"), 2000000);
    ck_assert_uint_eq(line_bytes(&b, "leases"), UINT64_C(64) * 65536);
    ck_assert_uint_eq(line_bytes(&b, "sessions"), 10000 * 256);
    ck_assert_uint_eq(line_bytes(&b, "namespaces"), 4096 * 1024);
    ck_assert_uint_eq(line_bytes(&b, "flight recorder"), 256 * 4096);
    ck_assert_uint_eq(line_bytes(&b, "copy threads"), 2 * MIB);
    ck_assert_uint_eq(line_bytes(&b, "control plane"), 8 * MIB);
    ck_assert_uint_eq(line_bytes(&b, "page tables"), (footprint + 256 * MIB) / 512);
}

CASE(all_tiers_at_once_have_their_lines)
{
    struct budget b;
    struct config cfg = scratch_config(small);
    struct budget_inputs in;

    cfg.hbm.devices.n = 1;
    strcpy(cfg.nvme.paths, "/var/lib/kvcache");
    cfg.limits.names = 1000;
    inputs_of(&cfg, NULL, &in);
    in.names_bytes = 3;
    in.device_bytes = 5;
    in.hbm_bytes = 6;
    in.nvme_bytes = 7;
    in.journal_bytes = 11;
    budget_compute(&cfg, &in, &b);

    ck_assert_uint_eq(line_bytes(&b, "names"), 3);
    ck_assert_uint_eq(line_bytes(&b, "devices"), 5);
    ck_assert_uint_eq(line_bytes(&b, "device index"), 6);
    ck_assert_uint_eq(line_bytes(&b, "nvme"), 7);
    ck_assert_uint_eq(line_bytes(&b, "journal"), 11);
    ck_assert_uint_gt(line_bytes(&b, "process"), 0);
}

CASE(the_total_is_the_sum_of_the_lines)
{
    struct budget b;
    uint64_t sum = 0;

    resolved(small, 8 * GIB, &b);
    for (unsigned i = 0; i < b.nlines; i++)
        sum += b.lines[i].bytes;

    ck_assert_uint_eq(b.total_bytes, sum);
}

CASE(given_values_stay_as_they_are)
{
    struct budget b;
    struct config before = scratch_config(small), cfg = resolved(small, 8 * GIB, &b);

    /* Two loads, whose lists of settings lie in two places. */
    memcpy(&before.given, &cfg.given, sizeof(before.given));
    ck_assert_mem_eq(&cfg, &before, sizeof(cfg));
}

/* ---- auto ---- */

CASE_EACH(defaults_fit_any_machine, 6)
{
    static const uint64_t machines[] = {256 * MIB, GIB, 3 * GIB, 24 * GIB, 512 * GIB, 4096 * GIB};
    struct budget b;
    struct config cfg = resolved("", machines[_i], &b);
    const uint64_t budget = machines[_i] / 100 * 60 / (2 * MIB) * (2 * MIB);

    ck_assert_uint_eq(cfg.memory.budget, budget);
    ck_assert_uint_le(b.total_bytes, budget);
    ck_assert_uint_eq(cfg.staging.total, MIN(budget / 8 / (2 * MIB) * (2 * MIB), 4 * GIB));
    ck_assert_uint_eq(cfg.staging.session_max, MIN(cfg.staging.total, 256 * MIB));
    ck_assert_uint_eq(cfg.index.blocks,
                      MIN(MAX(cfg.host.limit / 32768, UINT64_C(65536)), UINT64_C(67108864)));
    ck_assert_uint_eq(cfg.limits.lease_bytes, cfg.host.limit / 2);
    ck_assert(IS_POW2(cfg.host.chunk) && cfg.host.chunk >= 2 * MIB && cfg.host.chunk <= GIB);
    ck_assert_uint_le(cfg.host.chunk, MAX(cfg.host.limit / 32, 4 * MIB));
    ck_assert_uint_ge(cfg.copy.threads, 1);
    ck_assert_uint_le(cfg.copy.threads, 8);
}

CASE(the_host_limit_is_the_largest_that_fits)
{
    struct budget b, more;
    struct config cfg = resolved("host: {chunk: 64MiB}\n", 24 * GIB, &b), larger = cfg;
    struct budget_inputs in;

    larger.host.limit += 2 * MIB;
    larger.index.blocks = (uint32_t)(larger.host.limit / 32768);
    inputs_of(&larger, NULL, &in);
    budget_compute(&larger, &in, &more);

    ck_assert_uint_le(b.total_bytes, cfg.memory.budget);
    ck_assert_uint_gt(more.total_bytes, cfg.memory.budget);
}

CASE(small_chunks_bound_the_host_limit)
{
    struct budget b;
    struct config cfg = resolved("host: {chunk: 2MiB}\n", 4096 * GIB, &b);

    ck_assert_uint_eq(cfg.host.limit, 2 * MIB * CONFIG_CHUNKS_MAX);
}

CASE(the_solution_takes_few_steps)
{
    struct config cfg = scratch_config("");
    const struct budget_limit limit = limit_of(4096 * GIB);
    struct config_errors errors;
    struct budget b;
    unsigned calls = 0;

    ck_assert_int_eq(config_resolve_auto(&cfg, &limit, inputs_of, &calls, &b, &errors), 0);

    ck_assert_uint_le(calls, 32);
}

CASE(a_given_host_limit_raises_an_auto_budget)
{
    struct budget b;
    struct config cfg = resolved("host: {limit: 18GiB}\n", 24 * GIB, &b);

    ck_assert_uint_eq(cfg.host.limit, 18 * GIB);
    ck_assert_uint_eq(cfg.memory.budget, b.total_bytes);
    ck_assert_uint_gt(cfg.memory.budget, 24 * GIB / 100 * 60);
}

/* Each start made the store smaller, and dropped what had been promised to stay. */
CASE(an_auto_limit_keeps_a_store_whoever_fills_the_file_system)
{
    char dir[] = "/dev/shm/kvc-budget-XXXXXX", file[64], yaml[128];
    struct budget b;
    struct statvfs fs;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(statvfs(dir, &fs), 0);
    const uint64_t bytes = MAX(100 * (uint64_t)fs.f_bavail * fs.f_frsize, 64 * MIB) + 4096;
    (void)!snprintf(file, sizeof(file), "%s/kvcache.store", dir);
    (void)!snprintf(yaml, sizeof(yaml), "nvme: {paths: %s}\nindex: {blocks: 100000}\n", dir);
    scratch_write(file, "store", 5);
    ck_assert_int_eq(truncate(file, (off_t)bytes), 0);
    struct config full = resolved(yaml, 24 * GIB, &b);
    ck_assert_int_eq(truncate(file, 8192), 0);
    struct config free = resolved(yaml, 24 * GIB, &b);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(rmdir(dir), 0);

    ck_assert_uint_eq(full.nvme.limit, bytes);
    ck_assert_str_eq(full.origin[config_key("nvme.limit")].auto_text,
                     "as large as the stores of nvme.paths are");
    ck_assert_uint_ge(free.nvme.limit, 8 * MIB);
    ck_assert_uint_lt(free.nvme.limit, bytes);
    ck_assert_uint_eq(free.nvme.limit % MIB, 0);
}

CASE(auto_values_say_so_when_printed)
{
    static char printed[16384];
    struct budget b;
    struct config cfg = resolved("host: {chunk: auto}\n", 24 * GIB, &b);
    FILE *f = fmemopen(printed, sizeof(printed), "w");

    ck_assert_int_eq(config_print(&cfg, f), 0);
    ck_assert_int_eq(fclose(f), 0);

    ck_assert_ptr_nonnull(strstr(printed, "# default: auto, 60 % of the memory limit\n"));
    ck_assert_ptr_nonnull(strstr(printed, "# x.yaml:1: auto, about host.limit / 32\n"));
    ck_assert_ptr_null(strstr(printed, "host:\n  limit: auto"));
}

CASE(what_was_decided_and_printed_is_accepted_on_the_same_machine)
{
    static char printed[16384], again[16384];
    struct budget b, c;
    struct config cfg = resolved("", 24 * GIB, &b);
    FILE *f = fmemopen(printed, sizeof(printed), "w");

    ck_assert_int_eq(config_print(&cfg, f), 0);
    ck_assert_int_eq(fclose(f), 0);
    struct config second = resolved(printed, 24 * GIB, &c);
    f = fmemopen(again, sizeof(again), "w");
    ck_assert_int_eq(config_print(&second, f), 0);
    ck_assert_int_eq(fclose(f), 0);

    ck_assert_uint_eq(c.total_bytes, b.total_bytes);
    ck_assert_uint_eq(second.host.limit, cfg.host.limit);
    ck_assert_uint_eq(second.index.blocks, cfg.index.blocks);
}

/* ---- refusals ---- */

static const struct {
    const char *yaml;
    uint64_t limit_bytes;
    const char *expected;
} refusals[] = {
    {"host:\n  limit: 64GiB\n", 24 * GIB,
     "x.yaml:2: host.limit: expected a total of at most 24.00 GiB (MemTotal), got 68.50 GiB, of "
     "which 'host slots' takes 64.00 GiB; lower host.limit to at most 19970MiB"},
    {"memory:\n  budget: 32GiB\n", 24 * GIB,
     "x.yaml:2: memory.budget: expected at most 24.00 GiB (MemTotal), got 32GiB"},
    {"memory: {budget: 4GiB}\nhost:\n  limit: 4GiB\n", 24 * GIB,
     "x.yaml:3: host.limit: expected a total of at most 4.00 GiB (memory.budget), got 4.78 GiB, of "
     "which 'host slots' takes 4.00 GiB; lower host.limit to at most 3297MiB"},
    {"memory: {budget: 4GiB}\nhost: {limit: 1GiB}\nindex:\n  blocks: 100000000\n", 24 * GIB,
     "x.yaml:4: index.blocks: expected a total of at most 4.00 GiB (memory.budget), got 12.78 GiB, "
     "of which 'index' takes 9.31 GiB; lower index.blocks, or set memory.budget to at least "
     "14376MiB"},
    {"memory: {budget: 1GiB}\nlimits:\n  leases: 16000000\nindex: {blocks: 10000000}\n", 24 * GIB,
     "x.yaml:4: index.blocks: expected a total of at most 1.00 GiB (memory.budget), got 2.25 GiB, "
     "of "
     "which 'index' takes 953.67 MiB; lower index.blocks and limits.leases, or set memory.budget "
     "to "
     "at least 2490MiB"},
    {"memory: {budget: 280MiB}\nlimits:\n  leases: 4000000\nstaging: {total: 230MiB}\n"
     "index: {blocks: 2500000}\n",
     24 * GIB,
     "x.yaml:5: index.blocks: expected a total of at most 280.00 MiB (memory.budget), got 817.23 "
     "MiB, of which 'index' takes 238.42 MiB; lower index.blocks, limits.leases and staging.total, "
     "or set memory.budget to at least 818MiB"},
    {"limits: {leases: 16000000}\n", GIB,
     "x.yaml:1: limits.leases: expected a total of at most 1.00 GiB (MemTotal), got 1.09 GiB, of "
     "which 'leases' takes 976.56 MiB; lower limits.leases, or allow more memory"},
    {"staging: {total: 20GiB}\n", 24 * GIB,
     "x.yaml:1: staging.total: expected at most memory.budget, which is 14744MiB, got 20GiB; lower "
     "the one or raise the other"},
    {"staging: {session_max: 8GiB}\n", 24 * GIB,
     "x.yaml:1: staging.session_max: expected at most staging.total, which is 1842MiB, got 8GiB; "
     "lower the one or raise the other"},
    {"limits: {lease_bytes: 23GiB}\n", 24 * GIB,
     "x.yaml:1: limits.lease_bytes: expected at most host.limit, which is 12274MiB, got 23GiB; "
     "lower the one or raise the other"},
    {"", 32 * MIB,
     "default: index.blocks: expected a total of at most 32.00 MiB (MemTotal), got 70.04 MiB, of "
     "which 'index' takes 6.25 MiB; with each key of these lines at its least it is 49.30 MiB: "
     "allow more memory"},
};

CASE_EACH(what_does_not_fit_is_refused_with_the_key_to_change, ARRAY_LEN(refusals))
{
    struct budget b;

    ck_assert_str_eq(refusal(refusals[_i].yaml, refusals[_i].limit_bytes, &b),
                     refusals[_i].expected);
    ck_assert_uint_gt(b.nlines, 0);
}

/* The parts that no key lowers are more than the budget. */
static void front_inputs(const struct config *cfg, void *ctx, struct budget_inputs *ret)
{
    inputs_of(cfg, ctx, ret);
    ret->front_bytes = 200 * MIB;
}

static int resolve_front(uint64_t budget, char text[2048])
{
    const struct budget_limit limit = limit_of(24 * GIB);
    struct config cfg = scratch_config("memory: {budget: 280MiB}\ncopy: {threads: 1}\n");
    struct config_errors errors;
    struct budget b;

    cfg.memory.budget = budget;
    const int r = config_resolve_auto(&cfg, &limit, front_inputs, NULL, &b, &errors);
    text[0] = '\0';
    if (r < 0)
        config_error_format(&errors.list[0], text, 2048);
    return r;
}

CASE(a_budget_that_no_keys_fit_is_refused_with_the_least_one)
{
    char text[2048];

    ck_assert_int_eq(resolve_front(128 * MIB, text), -EINVAL);
    ck_assert_str_eq(text,
                     "x.yaml:1: memory.budget: expected a total of at most 128.00 MiB "
                     "(memory.budget), got 276.07 MiB, of which 'staging' takes 16.00 MiB; with "
                     "each key of these lines at its least it is 241.30 MiB: set memory.budget to "
                     "at least 298MiB");
    ck_assert_int_eq(resolve_front(294 * MIB, text), -EINVAL);
    ck_assert_int_eq(resolve_front(298 * MIB, text), 0);
}

CASE_EACH(keys_that_are_advised_suffice, 2)
{
    static const char given[] =
        "memory: {budget: 1GiB}\nindex: {blocks: %u}\nlimits: {leases: %u}\n";
    struct budget b;
    char yaml[256];

    (void)!snprintf(yaml, sizeof(yaml), given, 10000000u, 16000000u);
    ck_assert_ptr_nonnull(
        strstr(refusal(yaml, 24 * GIB, &b), "lower index.blocks and limits.leases, or set"));
    (void)!snprintf(yaml, sizeof(yaml), given, _i == 0 ? 1024u : 10000000u, 1u);
    if (_i == 0)
        resolved(yaml, 24 * GIB, &b);
    else
        refusal(yaml, 24 * GIB, &b);
}

/* ---- what this daemon needs ---- */

static const char all_least[] =
    "host: {limit: 4MiB, chunk: 2MiB}\nstaging: {total: 64KiB, session_max: 64KiB}\n"
    "index: {blocks: 1024}\ncopy: {threads: 1}\nflight: {records: 64}\n"
    "limits: {sessions: 1, namespaces: 1, requests: 1, leases: 1, waiters: 1, names: 0, "
    "name_tokens: 0}\n";

/* Resolves with the inputs of a real start. */
static int resolve_start(const char *keys, uint64_t budget, struct budget *ret)
{
    const struct budget_limit limit = limit_of(24 * GIB);
    struct config_errors errors;
    char yaml[1024], mib[UNITS_COUNT_BYTES];

    (void)!snprintf(yaml, sizeof(yaml), "memory: {budget: %s}\n%s", units_exact_bytes(budget, mib),
                    keys);
    struct config cfg = scratch_config(yaml);
    return config_resolve_auto(&cfg, &limit, node_budget_inputs, NULL, ret, &errors);
}

static int resolve_least(const char *eviction, uint64_t budget, struct budget *ret)
{
    char keys[1024];

    (void)!snprintf(keys, sizeof(keys), "%spolicy: {eviction: %s}\n", all_least, eviction);
    return resolve_start(keys, budget, ret);
}

/* The documents say both. */
CASE_EACH(the_policies_of_the_default_need_more_than_lru, 2)
{
    const char *eviction = _i == 0 ? "default" : "density";
    struct budget b;

    ck_assert_int_eq(resolve_least(eviction, CONFIG_BUDGET_MIN, &b), -EINVAL);
    ck_assert_int_eq(resolve_least(eviction, 330 * MIB, &b), 0);
    ck_assert_uint_gt(b.total_bytes, 315 * MIB);
}

CASE(the_least_budget_of_the_key_is_what_the_least_start_needs)
{
    const struct option_desc *key = &config_table[config_key("memory.budget")];
    char *text = NULL, errors[2048];
    struct config cfg;
    struct budget b;

    ck_assert_int_eq(resolve_least("lru", key->min, &b), 0);
    ck_assert_uint_gt(b.total_bytes, key->min - 8 * MIB);
    ck_assert_int_gt(asprintf(&text, "memory: {budget: %llu}\n", (unsigned long long)key->min - 1),
                     0);
    ck_assert_int_eq(scratch_load(text, &cfg, errors, sizeof(errors)), -EINVAL);
    ck_assert_ptr_nonnull(strstr(errors, "memory.budget: expected a size from 280MiB to 64TiB"));
    free(text);
}

CASE(the_budget_that_documents_give_for_the_defaults_is_about_right)
{
    struct budget b;

    ck_assert_int_eq(resolve_start("", 600 * MIB, &b), -EINVAL);
    ck_assert_int_eq(resolve_start("", 700 * MIB, &b), 0);
}

CASE_EACH(documents_name_the_least_budget, 2)
{
    static const char *const documents[] = {"etc/daemon.yaml", "daemon/kvcache-daemon.yaml.5"};
    static char text[65536];
    char path[PATH_MAX], least[UNITS_COUNT_BYTES], words[64];

    units_exact_bytes(config_table[config_key("memory.budget")].min, least);
    (void)!snprintf(words, sizeof(words), "At least %s,", least);
    (void)!snprintf(path, sizeof(path), "%s/%s", getenv("KVC_SOURCE_DIR"), documents[_i]);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_msg(strstr(text, words) != NULL, "%s does not say '%s'", documents[_i], words);
    ck_assert_ptr_nonnull(strstr(text, "suffices with policy.eviction lru and all other keys at"));
    ck_assert_ptr_nonnull(strstr(text, "takes 330MiB"));
    ck_assert_ptr_nonnull(strstr(text, "about 650MiB"));
}

/* ---- table ---- */

CASE_EACH(the_table_has_a_line_per_part_and_fits_100_columns, 2)
{
    struct budget b;
    char text[BUDGET_TABLE_BYTES];
    unsigned lines = 0;

    resolved(_i == 0 ? small : "", _i == 0 ? 8 * GIB : 4096 * GIB, &b);
    memset(b.limit.source, 'p', sizeof(b.limit.source) - 1);
    budget_format(&b, text, sizeof(text));

    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, lines++) {
        ck_assert_int_le(end - line, 100);
        ck_assert_int_ne(end[-1], ' ');
    }
    ck_assert_uint_eq(lines, b.nlines + 3);
}

CASE(the_table_reads_like_this)
{
    static const char first[] =
        "  host slots           1.00 GiB  host.limit, as given\n"
        "  host overhead       36.48 MiB  slot headers, tables, rounding to chunks of 16MiB\n"
        "  staging            256.00 MiB  staging.total: where all sessions write new blocks\n"
        "  index                9.54 MiB  index.blocks: 100,000 of 100 bytes\n";
    struct budget b;
    char text[BUDGET_TABLE_BYTES];

    resolved(small, 8 * GIB, &b);
    budget_format(&b, text, sizeof(text));

    text[strlen(first)] = '\0';
    ck_assert_str_eq(text, first);
}

CASE(a_table_that_does_not_fit_is_cut)
{
    struct budget b;
    char text[300];

    resolved(small, 8 * GIB, &b);
    memset(text, 'x', sizeof(text));
    budget_format(&b, text, 200);

    ck_assert_uint_eq(strlen(text), 199);
    ck_assert_int_eq(text[200], 'x');
}
