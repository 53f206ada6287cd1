/* SPDX-License-Identifier: Apache-2.0 */
#include "budget.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "config_impl.h"
#include "nvme_paths.h"
#include "units.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)

/* Sizes that the daemon decides are whole huge pages. */
#define GRAIN (2 * MIB)
/* The default budget's part of the memory limit. Workers and the page cache often share the limit.
 */
#define SHARE_PERCENT 60
/* Allowance for memory that does not depend on the configuration. */
#define PROCESS_BYTES (32 * MIB)
#define CPUS_COPY_MAX 8

static uint64_t clamp(uint64_t v, uint64_t low, uint64_t high)
{
    return MIN(MAX(v, low), high);
}

/* ---- lines ---- */

__attribute__((format(printf, 5, 6))) static void budget_add(struct budget *b, const char *name,
                                                             const char *key, uint64_t bytes,
                                                             const char *fmt, ...)
{
    struct budget_line *line;
    va_list ap;

    MUST(b->nlines < BUDGET_LINES_MAX);
    line = &b->lines[b->nlines++];
    line->name = name;
    line->key = key;
    line->bytes = bytes;
    va_start(ap, fmt);
    (void)!vsnprintf(line->reason, sizeof(line->reason), fmt, ap);
    va_end(ap);
    b->total_bytes += bytes;
}

static bool is_auto(const struct config *cfg, const char *key)
{
    return cfg->origin[config_key(key)].auto_text[0] != '\0';
}

static void add_host(const struct config *cfg, const struct budget_inputs *in, struct budget *b)
{
    char chunk[UNITS_COUNT_BYTES];
    const uint64_t overhead = in->host_footprint_bytes - cfg->host.limit;

    MUST(in->host_footprint_bytes >= cfg->host.limit);
    budget_add(b, "host slots", "host.limit", cfg->host.limit, "host.limit, %s",
               is_auto(cfg, "host.limit") ? "auto: what memory.budget leaves" : "as given");
    budget_add(b, "host overhead", "host.limit", overhead,
               "slot headers, tables, rounding to chunks of %s",
               units_exact_bytes(cfg->host.chunk, chunk));
    budget_add(b, "staging", "staging.total", cfg->staging.total,
               "staging.total: where all sessions write new blocks");
}

static void add_control(const struct config *cfg, const struct budget_inputs *in, struct budget *b)
{
    char n[UNITS_COUNT_BYTES];

    budget_add(b, "index", "index.blocks", in->index_bytes, "index.blocks: %s of %" PRIu64 " bytes",
               units_format_count(cfg->index.blocks, n), in->index_bytes / cfg->index.blocks);
    budget_add(b, "policy", "index.blocks", in->policy_bytes,
               "what policy '%s' keeps: %" PRIu64 " bytes per block", cfg->policy.eviction,
               in->policy_bytes / cfg->index.blocks);
    budget_add(b, "leases", "limits.leases", in->lease_bytes,
               "limits.leases: %s, and what waits for blocks",
               units_format_count(cfg->limits.leases, n));
    budget_add(b, "sessions", "limits.sessions", in->session_bytes,
               "limits.sessions: %u with limits.requests: %u each", cfg->limits.sessions,
               cfg->limits.requests);
    budget_add(b, "namespaces", "limits.namespaces", in->namespace_bytes, "limits.namespaces: %s",
               units_format_count(cfg->limits.namespaces, n));
    if (cfg->limits.names != 0)
        budget_add(b, "names", "limits.names", in->names_bytes,
                   "limits.names: %s, limits.name_tokens, marks of their blocks",
                   units_format_count(cfg->limits.names, n));
    budget_add(b, "flight recorder", "flight.records", in->flight_bytes,
               "flight.records: %s of 32 bytes per thread",
               units_format_count(cfg->flight.records, n));
    budget_add(b, "copy threads", "copy.threads", in->copy_bytes,
               "copy.threads: %u, stacks and queues", cfg->copy.threads);
    if (cfg->nvme.paths[0] != '\0') {
        budget_add(b, "nvme", "index.blocks", in->nvme_bytes,
                   "index.blocks: where each block is on storage, and queues");
        budget_add(b, "journal", "nvme.limit", in->journal_bytes,
                   "nvme.limit: pages of the journal that are in use");
    }
    if (cfg->hbm.devices.n != 0) {
        budget_add(b, "devices", "hbm.devices", in->device_bytes,
                   "hbm.devices: %u: headers of chunks, tables, emulated memory",
                   cfg->hbm.devices.n);
        budget_add(b, "device index", "index.blocks", in->hbm_bytes,
                   "blocks on devices, at most index.blocks; lists of copies");
    }
    budget_add(b, "control plane", NULL, in->front_bytes,
               "event loop, ZeroMQ queues, message buffers");
}

static bool is_resolved(const struct config *cfg)
{
    return cfg->host.limit != 0 && cfg->host.chunk != 0 && cfg->copy.threads != 0 &&
           cfg->staging.session_max != 0 && cfg->staging.total != 0 && cfg->index.blocks != 0 &&
           cfg->limits.lease_bytes != 0;
}

void budget_compute(const struct config *cfg, const struct budget_inputs *inputs,
                    struct budget *ret)
{
    struct budget b = {.budget_bytes = cfg->memory.budget};

    MUST(is_resolved(cfg));
    add_host(cfg, inputs, &b);
    add_control(cfg, inputs, &b);
    budget_add(&b, "page tables", NULL, (inputs->host_footprint_bytes + cfg->staging.total) / 512,
               "kernel: 8 bytes per 4 KiB of host memory and staging");
    budget_add(&b, "process", NULL, PROCESS_BYTES, "program, libraries, thread stacks, allocator");
    *ret = b;
}

/* ---- auto ---- */

/* An undecided number gets its value and the reason, for --print-config. A key has the name of its
 * member. */
#define DECIDE(cfg, key, value, ...)                                                    \
    do {                                                                                \
        if ((cfg)->key == 0) {                                                          \
            struct config_origin *origin = &(cfg)->origin[config_key(#key)];            \
            (cfg)->key = (value);                                                       \
            (void)!snprintf(origin->auto_text, sizeof(origin->auto_text), __VA_ARGS__); \
        }                                                                               \
    } while (0)

static unsigned cpus(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    return (unsigned)MAX(sysconf(_SC_NPROCESSORS_ONLN), 1);
}

static uint64_t power_of_two_below(uint64_t v)
{
    return v == 0 ? 0 : UINT64_C(1) << (63 - __builtin_clzll(v));
}

static uint64_t chunk_for(uint64_t host_limit)
{
    const uint64_t wanted = clamp(power_of_two_below(host_limit / 32), 4 * MIB, GIB);

    return MIN(wanted, power_of_two_below(host_limit));
}

/* Decides where the secret is kept: the next run can use stored blocks only with this run's secret.
 */
static void decide_secret(struct config *cfg, const char *file, const char *where)
{
    struct config_origin *origin = &cfg->origin[config_key("secret_file")];

    if (cfg->secret_file[0] != '\0' || strlen(file) >= sizeof(cfg->secret_file))
        return;
    memcpy(cfg->secret_file, file, strlen(file) + 1);
    (void)!snprintf(origin->auto_text, sizeof(origin->auto_text), "%s", where);
}

static void decide_persist(struct config *cfg)
{
    char file[CONFIG_PATH_BYTES + 32];

    if (strcmp(cfg->host.persist, "off") == 0)
        return;
    (void)!snprintf(file, sizeof(file), "%s/secret",
                    cfg->host.persist[0] == '/' ? cfg->host.persist : cfg->runtime_dir);
    decide_secret(cfg, file,
                  cfg->host.persist[0] == '/' ? "in host.persist" : "in runtime_dir, for systemd");
}

static void decide_nvme(struct config *cfg)
{
    struct nvme_paths paths;
    char why[CONFIG_ERROR_TEXT_MAX], file[NVME_PATH_FILE_BYTES];
    uint64_t share, kept;

    if (cfg->nvme.paths[0] == '\0' ||
        nvme_paths_read(cfg->nvme.paths, cfg->nvme.journal, &paths, why, sizeof(why)) < 0)
        return;
    /* Never below the size of existing stores, even if the file systems were filled meanwhile. */
    share = nvme_paths_room(&paths) / 10 * 9 / MIB * MIB;
    kept = nvme_paths_kept(&paths);
    DECIDE(cfg, nvme.limit,
           clamp(MAX(share, kept), nvme_paths_least(cfg, paths.n), CONFIG_BYTES_MAX), "%s",
           kept > share ? "as large as the stores of nvme.paths are"
                        : "90 % of what is free on nvme.paths");
    nvme_paths_secret(&paths, file);
    decide_secret(cfg, file, "beside the journal");
}

/* Decides the keys that do not depend on host.limit. */
static void decide_first(struct config *cfg, uint64_t budget)
{
    const unsigned ncpus = cpus();

    decide_nvme(cfg);
    decide_persist(cfg);
    DECIDE(cfg, staging.total, clamp(budget / 8 / GRAIN * GRAIN, GRAIN, 4 * GIB),
           "memory.budget / 8, at most 4GiB");
    DECIDE(cfg, staging.session_max, MIN(256 * MIB, cfg->staging.total),
           "256MiB, or staging.total if that is less");
    DECIDE(cfg, copy.threads, (uint32_t)clamp(ncpus / 2, MIN(ncpus, 2), CPUS_COPY_MAX),
           "half of %u CPUs, 2 to %u", ncpus, CPUS_COPY_MAX);
}

static void decide_for_limit(struct config *cfg, uint64_t host_limit)
{
    DECIDE(cfg, host.limit, host_limit, "what memory.budget leaves");
    DECIDE(cfg, host.chunk, chunk_for(cfg->host.limit), "about host.limit / 32");
    DECIDE(cfg, index.blocks,
           (uint32_t)clamp(cfg->host.limit / (32 * KIB) + cfg->nvme.limit / (256 * KIB), 65536,
                           UINT64_C(64) << 20),
           "host.limit / 32KiB%s, 65,536 to 67,108,864",
           cfg->nvme.limit != 0 ? " + nvme.limit / 256KiB" : "");
    DECIDE(cfg, limits.lease_bytes, cfg->host.limit / 2, "host.limit / 2");
}

/* A configuration being decided. */
struct solve {
    const struct config *cfg; /* only keys that depend on host.limit are undecided */
    budget_inputs_fn *inputs;
    void *ctx;
};

static void try_limit(const struct solve *s, uint64_t host_limit, struct config *ret_cfg,
                      struct budget *ret)
{
    struct budget_inputs in = {0};

    *ret_cfg = *s->cfg;
    decide_for_limit(ret_cfg, host_limit);
    s->inputs(ret_cfg, s->ctx, &in);
    budget_compute(ret_cfg, &in, ret);
}

/* The largest host.limit whose total stays within the budget. If none does, the smallest one. */
static uint64_t solve_limit(const struct solve *s, uint64_t budget)
{
    struct config cfg;
    struct budget b;
    const uint64_t least = config_table[config_key("host.limit")].min;
    const uint64_t most =
        s->cfg->host.chunk != 0 ? s->cfg->host.chunk * CONFIG_CHUNKS_MAX : CONFIG_HOST_LIMIT_MAX;
    uint64_t low = ROUND_UP(MAX(s->cfg->host.chunk, least), GRAIN) / GRAIN;
    uint64_t high = MAX(MIN(MIN(budget, most), CONFIG_HOST_LIMIT_MAX) / GRAIN, low) + 1;

    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        try_limit(s, middle * GRAIN, &cfg, &b);
        if (b.total_bytes <= budget)
            low = middle;
        else
            high = middle;
    }
    return low * GRAIN;
}

/* ---- what to lower ---- */

/* Keys whose lower values together make the total fit; the key that frees most comes first. */
struct advice {
    const char *key[BUDGET_LINES_MAX];
    unsigned n;           /* 0: even all keys at their least do not fit */
    uint64_t least_bytes; /* the total with these keys (n 0: all keys) at their least */
};

static uint64_t total_of(const struct solve *s, uint64_t most)
{
    struct config cfg;
    struct budget b;

    try_limit(s, s->cfg->host.limit != 0 ? s->cfg->host.limit : solve_limit(s, most), &cfg, &b);
    return b.total_bytes;
}

/* Sets the key to its least value; host.limit becomes auto, and so what the other keys leave. */
static void lower(struct config *cfg, const char *key)
{
    const struct option_desc *d = &config_table[config_key(key)];
    const uint32_t count = (uint32_t)d->min;

    if (strcmp(key, "host.limit") == 0)
        cfg->host.limit = 0;
    else if (strcmp(key, "nvme.limit") == 0)
        cfg->nvme.limit = MIN(cfg->nvme.limit, nvme_paths_least(cfg, DISK_PATHS_MAX));
    else if (d->type == OPT_BYTES && d->size == sizeof(uint64_t))
        memcpy((char *)cfg + d->offset, &d->min, sizeof(uint64_t));
    else if (d->type == OPT_UINT && d->size == sizeof(count))
        memcpy((char *)cfg + d->offset, &count, sizeof(count));
    cfg->staging.session_max = MIN(cfg->staging.session_max, cfg->staging.total);
}

/* The keys whose lowering frees memory, the one that frees most first. Returns their number. */
static unsigned order_keys(const struct solve *s, const struct budget *b, uint64_t most,
                           const char *ret_key[BUDGET_LINES_MAX])
{
    struct config cfg;
    const struct solve lowered = {.cfg = &cfg, .inputs = s->inputs, .ctx = s->ctx};
    uint64_t left[BUDGET_LINES_MAX];
    unsigned n = 0;

    for (unsigned i = 0; i < b->nlines; i++) {
        const char *key = b->lines[i].key;
        unsigned k = 0;
        while (key != NULL && k < n && strcmp(ret_key[k], key) != 0)
            k++;
        if (key == NULL || k < n)
            continue;
        cfg = *s->cfg;
        lower(&cfg, key);
        const uint64_t bytes = total_of(&lowered, most);
        if (bytes >= b->total_bytes)
            continue;
        for (k = n++; k > 0 && left[k - 1] > bytes; k--) {
            ret_key[k] = ret_key[k - 1];
            left[k] = left[k - 1];
        }
        ret_key[k] = key;
        left[k] = bytes;
    }
    return n;
}

static void advise(const struct solve *s, const struct budget *b, uint64_t most, struct advice *ret)
{
    struct config cfg = *s->cfg;
    const struct solve lowered = {.cfg = &cfg, .inputs = s->inputs, .ctx = s->ctx};
    const unsigned n = order_keys(s, b, most, ret->key);

    ret->least_bytes = b->total_bytes;
    for (ret->n = 0; ret->n < n && ret->least_bytes > most; ret->n++) {
        lower(&cfg, ret->key[ret->n]);
        ret->least_bytes = total_of(&lowered, most);
    }
    if (ret->least_bytes > most)
        ret->n = 0;
}

/* The least memory.budget for the given keys. It is searched for, since staging.total grows with
 * the budget. */
static uint64_t least_budget(const struct config *given, const struct solve *s, uint64_t bytes)
{
    uint64_t budget = 0;

    while (budget < bytes && bytes <= CONFIG_BYTES_MAX) {
        struct config cfg = *given;
        const struct solve raised = {.cfg = &cfg, .inputs = s->inputs, .ctx = s->ctx};
        budget = ROUND_UP(bytes, GRAIN);
        decide_first(&cfg, budget);
        bytes = total_of(&raised, budget);
    }
    return budget;
}

#define REMEDY_TEXT_BYTES 400u

/* Writes what makes the total of `b` fit: keys to lower, or the memory that the given keys need. */
static void remedy_text(const struct config *given, const struct solve *s, const struct budget *b,
                        uint64_t most, const struct advice *a, char text[REMEDY_TEXT_BYTES])
{
    const uint64_t budget = most == b->limit.bytes ? 0 : least_budget(given, s, b->total_bytes);
    const bool suffices = budget != 0 && budget <= b->limit.bytes;
    char least[UNITS_TEXT_BYTES], more[UNITS_COUNT_BYTES];
    const char *before = "lower ";
    size_t at = 0;

    text[0] = '\0';
    if (a->n == 0)
        at += (size_t)snprintf(text, REMEDY_TEXT_BYTES,
                               "with each key of these lines at its least it is %s",
                               units_format_bytes(a->least_bytes, least));
    for (unsigned i = 0; i < a->n && at < REMEDY_TEXT_BYTES; i++) {
        at += (size_t)snprintf(text + at, REMEDY_TEXT_BYTES - at, "%s%s", before, a->key[i]);
        before = i + 2 == a->n ? " and " : ", ";
    }
    if (at >= REMEDY_TEXT_BYTES)
        return;
    (void)!snprintf(text + at, REMEDY_TEXT_BYTES - at, "%s%s%s", a->n == 0 ? ": " : ", or ",
                    suffices ? "set memory.budget to at least " : "allow more memory",
                    suffices ? units_exact_bytes(budget, more) : "");
}

/* Refuses a total that does not fit, and names the keys to lower. */
static void refuse_total(const struct config *given, const struct config *cfg,
                         const struct solve *s, const struct budget *b, const char *than,
                         uint64_t most, struct config_errors *errors)
{
    const struct budget_line *largest = NULL;
    char total[UNITS_TEXT_BYTES], limit[UNITS_TEXT_BYTES], to[UNITS_COUNT_BYTES],
        size[UNITS_TEXT_BYTES], text[REMEDY_TEXT_BYTES];
    const uint64_t excess = b->total_bytes - most;
    struct advice a;

    advise(s, b, most, &a);
    remedy_text(given, s, b, most, &a, text);
    for (unsigned i = 0; i < b->nlines; i++)
        if (b->lines[i].key != NULL && (a.n == 0 || strcmp(b->lines[i].key, a.key[0]) == 0) &&
            (largest == NULL || b->lines[i].bytes > largest->bytes))
            largest = &b->lines[i];
    MUST(largest != NULL);
    if (a.n == 1 && config_table[config_key(largest->key)].type == OPT_BYTES &&
        largest->bytes > excess + GRAIN)
        (void)!snprintf(text, sizeof(text), "lower %s to at most %s", largest->key,
                        units_exact_bytes((largest->bytes - excess) / MIB * MIB, to));
    config__error_at(
        cfg, errors, a.n == 0 && most != b->limit.bytes ? "memory.budget" : largest->key,
        "expected a total of at most %s (%s), got %s, of which '%s' takes %s; %s",
        units_format_bytes(most, limit), than, units_format_bytes(b->total_bytes, total),
        largest->name, units_format_bytes(largest->bytes, size), text);
}

/* Decides memory.budget. A given host.limit raises an undecided budget; an undecided host.limit
 * must fit into it. */
static void set_budget(struct config *cfg, struct budget *b, uint64_t share)
{
    const char *auto_text = cfg->origin[config_key("memory.budget")].auto_text;

    if (b->total_bytes > share && !is_auto(cfg, "host.limit"))
        DECIDE(cfg, memory.budget, b->total_bytes, "raised to what the given sizes need");
    else
        DECIDE(cfg, memory.budget, share, "%d %% of the memory limit", SHARE_PERCENT);
    b->budget_bytes = cfg->memory.budget;
    (void)!snprintf(b->budget_reason, sizeof(b->budget_reason), "memory.budget, %s%s",
                    auto_text[0] != '\0' ? "auto: " : "as given", auto_text);
}

static void check_total(const struct config *given, const struct config *cfg, const struct solve *s,
                        const struct budget *b, struct config_errors *errors)
{
    char got[UNITS_COUNT_BYTES], limit[UNITS_TEXT_BYTES];

    if (cfg->memory.budget > b->limit.bytes && !is_auto(cfg, "memory.budget"))
        config__error_at(cfg, errors, "memory.budget", "expected at most %s (%s), got %s",
                         units_format_bytes(b->limit.bytes, limit), b->limit.source,
                         units_exact_bytes(cfg->memory.budget, got));
    else if (b->total_bytes > b->limit.bytes)
        refuse_total(given, cfg, s, b, b->limit.source, b->limit.bytes, errors);
    else if (b->total_bytes > cfg->memory.budget)
        refuse_total(given, cfg, s, b, "memory.budget", cfg->memory.budget, errors);
}

int config_resolve_auto(struct config *cfg, const struct budget_limit *limit,
                        budget_inputs_fn *inputs, void *ctx, struct budget *ret_budget,
                        struct config_errors *ret_errors)
{
    const uint64_t share = limit->bytes / 100 * SHARE_PERCENT / GRAIN * GRAIN;
    const uint64_t budget = cfg->memory.budget != 0 ? cfg->memory.budget : share;
    struct config_errors errors = {0};
    struct config first = *cfg, done;
    const struct solve s = {.cfg = &first, .inputs = inputs, .ctx = ctx};
    struct budget b;

    decide_first(&first, budget);
    try_limit(&s, first.host.limit != 0 ? first.host.limit : solve_limit(&s, budget), &done, &b);
    b.limit = *limit;
    set_budget(&done, &b, share);
    config__check_values(&done, &errors);
    if (errors.count == 0)
        check_total(cfg, &done, &s, &b, &errors);
    *ret_budget = b;
    if (errors.count > 0) {
        *ret_errors = errors;
        return -EINVAL;
    }
    *cfg = done;
    return 0;
}

/* ---- table ---- */

static const char *tail(const char *s, size_t columns)
{
    const size_t len = strlen(s);

    return len > columns ? s + (len - columns) : s;
}

static void budget_row(char *buf, size_t cap, size_t *len, const char *name, uint64_t bytes,
                       const char *reason)
{
    const size_t columns = BUDGET_REASON_BYTES - 1;
    char size[UNITS_TEXT_BYTES];
    int n;

    if (*len >= cap)
        return;
    n = snprintf(buf + *len, cap - *len, "  %-16s %12s%s%s%s\n", name,
                 units_format_bytes(bytes, size), reason[0] != '\0' ? "  " : "",
                 strlen(reason) > columns ? "..." : "",
                 strlen(reason) > columns ? tail(reason, columns - 3) : reason);
    *len = MIN(*len + (size_t)MAX(n, 0), cap);
}

const char *budget_format(const struct budget *b, char *buf, size_t cap)
{
    size_t len = 0;

    MUST(cap > 0);
    buf[0] = '\0';
    for (unsigned i = 0; i < b->nlines; i++)
        budget_row(buf, cap, &len, b->lines[i].name, b->lines[i].bytes, b->lines[i].reason);
    budget_row(buf, cap, &len, "total", b->total_bytes, "");
    budget_row(buf, cap, &len, "budget", b->budget_bytes, b->budget_reason);
    budget_row(buf, cap, &len, "limit", b->limit.bytes, b->limit.source);
    return buf;
}
