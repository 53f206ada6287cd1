/* SPDX-License-Identifier: Apache-2.0 */
#include "config_impl.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB       UINT64_C(1024)
#define MIB       (KIB * 1024)
#define GIB       (MIB * 1024)
#define SECOND_NS UINT64_C(1000000000)

static const char *const log_levels[] = {"debug", "info", "warn", "error", NULL};
static const char *const huge_pages[] = {"off", "try", "require", NULL};
static const char *const numa[] = {"auto", "off", NULL};
static const char *const loop_backends[] = {"auto", "io_uring", "epoll", NULL};

#define FIELD(member) OPTION_FIELD(struct config, member)

/* Keys of one section stand together: config_print() opens a section once. */
const struct option_desc config_table[] = {
    {"runtime_dir", OPT_PATH, FIELD(runtime_dir), .def = "/run/kvcache",
     .help = "directory of attach.sock and control.sock; made at start if its parent is there"},
    {"socket_mode", OPT_STRING, FIELD(socket_mode_text), .def = "0660",
     .help = "octal mode of the sockets; which uids are served is up to 'principals'"},
    {"secret_file", OPT_PATH, FIELD(secret_file), .def = "",
     .help = "file with the secret that salts block keys; empty: a new one at each start"},

    {"log.level", OPT_ENUM, FIELD(log.level), .def = "info", .help = "least severe line to log",
     .choices = log_levels, .flags = OPTF_LIVE},
    {"log.json", OPT_BOOL, FIELD(log.json), .def = "false",
     .help = "log one JSON object per line instead of text", .flags = OPTF_LIVE},

    {"metrics.listen", OPT_STRING, FIELD(metrics.listen), .def = "",
     .help = "/metrics, /healthz, /readyz on a unix socket or a loopback port; empty: off"},

    {"memory.budget", OPT_BYTES, FIELD(memory.budget), .def = "auto",
     .help = "all memory of the daemon; auto: 60 % of the cgroup limit (or of MemTotal)",
     .min = CONFIG_BUDGET_MIN, .max = CONFIG_BYTES_MAX, .flags = OPTF_AUTO},

    {"host.limit", OPT_BYTES, FIELD(host.limit), .def = "auto",
     .help = "host memory for blocks; auto: what memory.budget leaves", .min = 4 * MIB,
     .max = CONFIG_HOST_LIMIT_MAX, .flags = OPTF_AUTO},
    {"host.chunk", OPT_BYTES, FIELD(host.chunk), .def = "auto",
     .help = "host memory is taken in pieces of this size; auto: about host.limit / 32",
     .min = 2 * MIB, .max = GIB, .flags = OPTF_AUTO},
    {"host.huge_pages", OPT_ENUM, FIELD(host.huge_pages), .def = "try",
     .help = "2 MiB pages: off, try, or require (from the reserved pool, no start without)",
     .choices = huge_pages},
    {"host.prefault", OPT_BOOL, FIELD(host.prefault), .def = "true",
     .help = "touch host memory in the background after start, not at first use"},
    {"host.numa", OPT_ENUM, FIELD(host.numa), .def = "auto",
     .help = "place chunks on NUMA nodes by topology, or leave it to the kernel", .choices = numa},
    {"host.persist", OPT_STRING, FIELD(host.persist), .def = "off",
     .help = "keep host memory over restarts: off, systemd, or a directory on tmpfs or hugetlbfs"},

    {"nvme.paths", OPT_STRING, FIELD(nvme.paths), .def = "",
     .help = "storage for blocks: directories, files or devices, separated by commas; empty: none",
     .flags = OPTF_LIST},
    {"nvme.limit", OPT_BYTES, FIELD(nvme.limit), .def = "auto",
     .help = "all that is written there, over all paths; auto: 90 % of what is free, "
             "or what stores have",
     .min = 8 * MIB, .max = CONFIG_BYTES_MAX, .flags = OPTF_AUTO},
    {"nvme.segment", OPT_BYTES, FIELD(nvme.segment), .def = "auto",
     .help =
         "room is reused in pieces of this size, a multiple of 4KiB; auto: 256MiB, or path / 64",
     .min = MIB, .max = 4 * GIB, .flags = OPTF_AUTO},
    {"nvme.journal", OPT_PATH, FIELD(nvme.journal), .def = "",
     .help = "directory of the journal; empty: 'journal' beside the first path's file"},
    {"nvme.replaced", OPT_STRING, FIELD(nvme.replaced), .def = "",
     .help =
         "for one start: those of nvme.paths that are new, and what was on the old ones is gone",
     .flags = OPTF_LIST},
    {"nvme.writes_per_day", OPT_BYTES, FIELD(nvme.writes_per_day), .def = "0",
     .help = "bytes written a day, at most, to spare the drives; 0: no limit",
     .max = CONFIG_BYTES_MAX},
    {"nvme.endurance", OPT_STRING, FIELD(nvme.endurance_text), .def = "0",
     .help = "the same as drive writes per day: a number times nvme.limit, like 0.8; 0: no limit"},
    {"nvme.io_timeout", OPT_DURATION, FIELD(nvme.io_timeout), .def = "5s",
     .help = "a path whose I/O takes longer is taken out for a while", .min = SECOND_NS / 100,
     .max = 600 * SECOND_NS},
    {"nvme.sync", OPT_DURATION, FIELD(nvme.sync), .def = "1s",
     .help = "what was written without a promise is made durable this often",
     .min = SECOND_NS / 100, .max = 600 * SECOND_NS},
    {"nvme.queue", OPT_BYTES, FIELD(nvme.queue), .def = "64MiB",
     .help = "bytes of I/O in flight; more wait", .min = MIB, .max = CONFIG_BYTES_MAX},

    {"hbm.devices", OPT_STRING, FIELD(hbm.devices_text), .def = "",
     .help = "GPUs, each with the bytes for blocks: 'cuda:0=20GiB, cuda:1', GPU-<uuid>, "
             "MIG-<uuid>, emu:N",
     .flags = OPTF_LIST},
    {"hbm.chunk", OPT_BYTES, FIELD(hbm.chunk), .def = "auto",
     .help = "device memory is taken in pieces of this size; auto: 64MiB, less of small devices",
     .min = 2 * MIB, .max = GIB, .flags = OPTF_AUTO},
    {"hbm.eviction", OPT_STRING, FIELD(hbm.eviction), .def = "lru",
     .help = "which copy on a device goes first when room there is needed"},
    {"hbm.verify", OPT_BOOL, FIELD(hbm.verify), .def = "true",
     .help = "blocks in host memory are checked each time before a device copies them"},
    {"hbm.exit_when_lost", OPT_BOOL, FIELD(hbm.exit_when_lost), .def = "false",
     .help = "a device that was up and fails ends the daemon, to be started again",
     .flags = OPTF_LIVE},
    {"hbm.emu_memory", OPT_BYTES, FIELD(hbm.emu_memory), .def = "1GiB",
     .help = "memory of an emulated device", .min = 4 * MIB, .max = CONFIG_BYTES_MAX},
    {"hbm.emu_latency", OPT_DURATION, FIELD(hbm.emu_latency), .def = "0s",
     .help = "how long a copy of an emulated device takes at least", .max = SECOND_NS},
    {"hbm.emu_bandwidth", OPT_BYTES, FIELD(hbm.emu_bandwidth), .def = "0",
     .help = "bytes per second of an emulated device, 16MiB at least; 0: as fast as it goes",
     .max = CONFIG_BYTES_MAX},
    {"hbm.emu_fault", OPT_PATH, FIELD(hbm.emu_fault), .def = "",
     .help = "file with a word that makes emulated devices fail: sticky, lost or oom; for tests"},

    {"copy.threads", OPT_UINT, FIELD(copy.threads), .def = "auto",
     .help = "threads that copy and checksum; auto: half the CPUs, 2 to 8", .min = 1, .max = 64,
     .flags = OPTF_AUTO},
    {"copy.inflight", OPT_BYTES, FIELD(copy.inflight), .def = "256MiB",
     .help = "bytes being copied at a time; more wait", .min = MIB, .max = CONFIG_BYTES_MAX},

    {"staging.session_max", OPT_BYTES, FIELD(staging.session_max), .def = "auto",
     .help = "staging one session may ask for; auto: 256MiB, or staging.total if that is less",
     .min = 64 * KIB, .max = CONFIG_BYTES_MAX, .flags = OPTF_AUTO},
    {"staging.total", OPT_BYTES, FIELD(staging.total), .def = "auto",
     .help = "staging of all sessions; auto: memory.budget / 8, at most 4GiB", .min = 64 * KIB,
     .max = CONFIG_BYTES_MAX, .flags = OPTF_AUTO},

    {"index.blocks", OPT_UINT, FIELD(index.blocks), .def = "auto",
     .help = "blocks the index has room for; auto: host.limit / 32KiB + nvme.limit / 256KiB",
     .min = 1024, .max = UINT64_C(1) << 30, .flags = OPTF_AUTO},

    {"names.dir", OPT_PATH, FIELD(names.dir), .def = "",
     .help = "directory of names; empty: 'names.db' beside nvme's journal, or in "
             "host.persist"},

    {"policy.eviction", OPT_STRING, FIELD(policy.eviction), .def = "default",
     .help = "which block goes first when room is needed"},
    {"policy.admission", OPT_BOOL, FIELD(policy.admission), .def = "true",
     .help = "without storage, a block that is worth less than what would go for it is not taken"},
    {"policy.pin_limit", OPT_UINT, FIELD(policy.pin_limit), .def = "25",
     .help = "percent of host.limit and nvme.limit that one tenant may pin; 0: nothing", .min = 0,
     .max = 100},
    {"policy.load_or_recompute", OPT_BOOL, FIELD(policy.load_or_recompute), .def = "true",
     .help = "hits end where loading takes longer than the prefill cost that workers state"},

    {"loop.backend", OPT_ENUM, FIELD(loop.backend), .def = "auto",
     .help = "auto: io_uring, or epoll where io_uring is refused", .choices = loop_backends},
    {"loop.io_threads", OPT_UINT, FIELD(loop.io_threads), .def = "4",
     .help = "threads for file I/O of the epoll loop", .min = 1, .max = 64},

    {"limits.sessions", OPT_UINT, FIELD(limits.sessions), .def = "256",
     .help = "worker sessions at a time", .min = 1, .max = 4096},
    {"limits.namespaces", OPT_UINT, FIELD(limits.namespaces), .def = "1024",
     .help = "namespaces of all principals and tenants", .min = 1, .max = 65535},
    {"limits.requests", OPT_UINT, FIELD(limits.requests), .def = "256",
     .help = "requests in flight per session", .min = 1, .max = 65536},
    {"limits.lease_bytes", OPT_BYTES, FIELD(limits.lease_bytes), .def = "auto",
     .help = "bytes one session may hold in leases; auto: host.limit / 2", .min = 64 * KIB,
     .max = CONFIG_BYTES_MAX, .flags = OPTF_AUTO},
    {"limits.leases", OPT_UINT, FIELD(limits.leases), .def = "65536",
     .help = "leases of all sessions", .min = 1, .max = UINT64_C(1) << 24},
    {"limits.waiters", OPT_UINT, FIELD(limits.waiters), .def = "1024",
     .help = "requests of all sessions that copy, or wait for blocks being stored", .min = 1,
     .max = UINT64_C(1) << 20},
    {"limits.reserve_progress", OPT_DURATION, FIELD(limits.reserve_progress), .def = "30s",
     .help = "after so long without a commit others may store what a writer reserved; 0: never",
     .max = 600 * SECOND_NS},
    {"limits.names", OPT_UINT, FIELD(limits.names), .def = "65536",
     .help = "conversations and documents of all principals; 0: none", .max = UINT64_C(1) << 20},
    {"limits.name_tokens", OPT_BYTES, FIELD(limits.name_tokens), .def = "16MiB",
     .help = "memory for the token ids of documents, 4 bytes each", .max = CONFIG_BYTES_MAX},

    {"drain.timeout", OPT_DURATION, FIELD(drain.timeout), .def = "10s",
     .help = "limit of the shutdown: how long SIGTERM lets copies and requests finish",
     .max = 600 * SECOND_NS, .flags = OPTF_LIVE},

    {"flight.records", OPT_UINT, FIELD(flight.records), .def = "4096",
     .help = "events the flight recorder keeps per thread; a power of two", .min = 64,
     .max = UINT64_C(1) << 20},
};
const unsigned config_table_len = ARRAY_LEN(config_table);

_Static_assert(ARRAY_LEN(config_table) <= CONFIG_KEYS_MAX, "origin[] has one entry per key");

unsigned config_key(const char *key)
{
    const struct option_desc *d = option_find(config_table, config_table_len, key);

    MUST(d != NULL);
    return (unsigned)(d - config_table);
}

const char *config__shown(const char *text, char buf[CONFIG__SHOWN_BYTES])
{
    const size_t keep = CONFIG__SHOWN_BYTES - sizeof("''...");
    size_t n = 0;

    buf[n++] = '\'';
    for (; *text != '\0' && n <= keep; text++)
        buf[n++] = (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text;
    memcpy(buf + n, *text != '\0' ? "...'" : "'", *text != '\0' ? 5 : 2);
    return buf;
}

__attribute__((format(printf, 5, 0))) static void error_add(struct config_errors *errors,
                                                            const char *where, unsigned line,
                                                            const char *key, const char *fmt,
                                                            va_list ap)
{
    struct config_error *e;

    if (errors->count++ >= CONFIG_ERRORS_MAX)
        return;
    e = &errors->list[errors->count - 1];
    (void)!snprintf(e->where, sizeof(e->where), "%s", where);
    (void)!snprintf(e->key, sizeof(e->key), "%s", key);
    (void)!vsnprintf(e->text, sizeof(e->text), fmt, ap);
    e->line = line;
}

void config__error(struct config_errors *errors, const char *where, unsigned line, const char *key,
                   const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    error_add(errors, where, line, key, fmt, ap);
    va_end(ap);
}

void config__error_at(const struct config *cfg, struct config_errors *errors, const char *key,
                      const char *fmt, ...)
{
    static const char *const places[] = {
        [CONFIG_FROM_DEFAULT] = "default", [CONFIG_FROM_FILE] = NULL, [CONFIG_FROM_SET] = "--set"};
    const struct config_origin *origin = &cfg->origin[config_key(key)];
    const char *where = places[origin->from];
    va_list ap;

    va_start(ap, fmt);
    error_add(errors, where != NULL ? where : cfg->file,
              origin->from == CONFIG_FROM_FILE ? origin->line : 0, key, fmt, ap);
    va_end(ap);
}

const char *config_error_format(const struct config_error *e, char *buf, size_t cap)
{
    char line[16] = "";

    if (e->line > 0)
        (void)!snprintf(line, sizeof(line), ":%u", e->line);
    (void)!snprintf(buf, cap, "%s%s: %s%s%s", e->where, line, e->key, e->key[0] != '\0' ? ": " : "",
                    e->text);
    return buf;
}

void config_errors_print(const struct config_errors *errors, FILE *out)
{
    char text[CONFIG_ERROR_TEXT_MAX + CONFIG_PATH_BYTES + 96];

    for (unsigned i = 0; i < MIN(errors->count, CONFIG_ERRORS_MAX); i++)
        (void)!fprintf(out, "%s\n", config_error_format(&errors->list[i], text, sizeof(text)));
    if (errors->count > CONFIG_ERRORS_MAX)
        (void)!fprintf(out, "and %u more\n", errors->count - CONFIG_ERRORS_MAX);
}

/* Whether YAML can hold the text: --print-config must be able to write every value. */
static bool is_utf8(const char *text)
{
    char quoted[CONFIG__QUOTED_BYTES];

    return config__yaml_quote(text, quoted, sizeof(quoted)) == 0;
}

void config__set(struct config__load *l, const char *where, unsigned line, const char *key,
                 const char *value)
{
    char why[CONFIG_ERROR_TEXT_MAX], shown[CONFIG__SHOWN_BYTES];
    struct config_origin *origin;
    int r = option_set(config_table, config_table_len, l->cfg, key, value, why, sizeof(why));

    if (r == 0 && !is_utf8(value)) {
        (void)!snprintf(why, sizeof(why), "expected text in UTF-8, got %s",
                        config__shown(value, shown));
        r = -EINVAL;
    }
    if (r < 0) {
        config__error(l->errors, where != NULL ? where : l->file, line, r == -ENOENT ? "" : key,
                      "%s", why);
        return;
    }
    origin = &l->cfg->origin[config_key(key)];
    origin->from = where != NULL ? CONFIG_FROM_SET : CONFIG_FROM_FILE;
    origin->line = line;
}

static void apply_set(struct config__load *l, const char *set)
{
    char key[64], shown[CONFIG__SHOWN_BYTES];
    const char *equals = strchr(set, '=');

    if (equals == NULL || equals == set) {
        config__error(l->errors, "--set", 0, "",
                      "expected KEY=VALUE, got %s; for example 'host.limit=64GiB'",
                      config__shown(set, shown));
        return;
    }
    (void)!snprintf(key, sizeof(key), "%.*s", (int)MIN((size_t)(equals - set), sizeof(key) - 1),
                    set);
    if (strcmp(key, "principals") == 0 || strcmp(key, "quotas") == 0 ||
        strcmp(key, "devices") == 0) {
        config__error(l->errors, "--set", 0, key,
                      "a list has no place on the command line; give it in the file (--config)");
        return;
    }
    config__set(l, "--set", 0, key, equals + 1);
}

/* The principal if none is configured: the daemon's own uid. Principals share blocks among
 * processes that trust each other, and the daemon knows that of its own uid alone. */
static void default_principal(struct config *cfg)
{
    cfg->principals[0] = (struct config_principal){
        .name = "self", .tenant = "default", .uids = {geteuid()}, .nuids = 1, .admin = true};
    cfg->nprincipals = 1;
}

const struct config_principal *config_principal_of(const struct config *cfg, uid_t uid)
{
    for (unsigned i = 0; i < cfg->nprincipals; i++)
        for (unsigned u = 0; u < cfg->principals[i].nuids; u++)
            if (cfg->principals[i].uids[u] == uid)
                return &cfg->principals[i];
    return NULL;
}

/* Reads the mode of the sockets. It is text in the table, because it is octal. */
static void derive_mode(struct config *cfg, struct config_errors *errors)
{
    char *end, shown[CONFIG__SHOWN_BYTES];
    const char *text = cfg->socket_mode_text;
    const unsigned long mode = strtoul(text, &end, 8);

    cfg->socket_mode = (mode_t)mode;
    if (text[0] < '0' || text[0] > '7' || *end != '\0' || mode > 0666 || (mode & ~0666ul) != 0 ||
        (mode & 0600) != 0600)
        config__error_at(cfg, errors, "socket_mode",
                         "expected an octal mode that gives the owner read and write and nobody "
                         "execute, got %s; for example '0660'",
                         config__shown(text, shown));
}

static void derive_devices(struct config *cfg, struct config_errors *errors)
{
    char why[CONFIG_ERROR_TEXT_MAX];

    if (hbm_devices_read(cfg->hbm.devices_text, &cfg->hbm.devices, why, sizeof(why)) < 0)
        config__error_at(cfg, errors, "hbm.devices", "%s", why);
}

/* Reads the drive writes per day. They are text in the table, because no type of it has fractions.
 */
static void derive_endurance(struct config *cfg, struct config_errors *errors)
{
    char *end, shown[CONFIG__SHOWN_BYTES];
    const char *text = cfg->nvme.endurance_text;
    const double number = strtod(text, &end);

    if (text[0] < '0' || text[0] > '9' || *end != '\0' || !(number <= 1000) ||
        strpbrk(text, "xXeE") != NULL)
        config__error_at(cfg, errors, "nvme.endurance",
                         "expected a number of drive writes per day from 0 to 1000, got %s; for "
                         "example '0.8'",
                         config__shown(text, shown));
    else
        cfg->nvme.endurance = (uint64_t)(number * 1000 + 0.5);
}

static void load_all(struct config__load *l, const struct config_given *given)
{
    char why[CONFIG_ERROR_TEXT_MAX];

    const int r = option_defaults(config_table, config_table_len, l->cfg, why, sizeof(why));
    MUST(r == 0);
    if (given->path != NULL)
        config__yaml(l);
    for (unsigned i = 0; i < given->nsets; i++)
        apply_set(l, given->sets[i]);
    if (l->errors->count == 0)
        derive_mode(l->cfg, l->errors);
    if (l->errors->count == 0)
        derive_devices(l->cfg, l->errors);
    if (l->errors->count == 0)
        derive_endurance(l->cfg, l->errors);
    if (l->errors->count > 0)
        return;
    if (l->cfg->nprincipals == 0)
        default_principal(l->cfg);
    config__check_values(l->cfg, l->errors);
    if (l->paths)
        config__check_paths(l->cfg, l->errors);
}

int config__load_given(const struct config_given *given, bool paths, struct config *ret,
                       struct config_errors *ret_errors)
{
    struct config cfg = {.given = *given};
    struct config_errors errors = {0};
    struct config__load l = {.file = given->path, .cfg = &cfg, .errors = &errors, .paths = paths};

    if (given->path != NULL)
        (void)!snprintf(cfg.file, sizeof(cfg.file), "%s", given->path);
    load_all(&l, given);
    if (errors.count > 0) {
        *ret_errors = errors;
        return -EINVAL;
    }
    *ret = cfg;
    return 0;
}

int config_load(const char *path, const char *const *sets, unsigned nsets, struct config *ret,
                struct config_errors *ret_errors)
{
    const struct config_given given = {path, sets, nsets};

    return config__load_given(&given, true, ret, ret_errors);
}
