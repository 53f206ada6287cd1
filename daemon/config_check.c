/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the whole configuration: values that contradict each other, and missing files. */
#include "config_impl.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "backing.h"
#include "hbm.h"
#include "http.h"
#include "nvme.h"
#include "nvme_paths.h"
#include "policy.h"
#include "remedy.h"
#include "similar.h"
#include "tier.h"
#include "units.h"

#define EMU_BANDWIDTH_MIN (UINT64_C(16) << 20) /* bytes per second */

/* The value of a key as exact text, as a user would write it. */
static const char *value_of(const struct config *cfg, const char *key,
                            char buf[CONFIG__SHOWN_BYTES])
{
    if (option_format(&config_table[config_key(key)], cfg, buf, CONFIG__SHOWN_BYTES) < 0)
        (void)!snprintf(buf, CONFIG__SHOWN_BYTES, "?");
    return buf;
}

/* Refuses a value above its limit. Both are in bytes; 0 is "auto", which is decided later to fit.
 */
static void check_at_most(const struct config *cfg, struct config_errors *errors, const char *key,
                          uint64_t value, const char *limit_key, uint64_t limit)
{
    char got[CONFIG__SHOWN_BYTES], most[CONFIG__SHOWN_BYTES];

    if (value == 0 || limit == 0 || value <= limit)
        return;
    config__error_at(cfg, errors, key,
                     "expected at most %s, which is %s, got %s; lower the one or raise the other",
                     limit_key, value_of(cfg, limit_key, most), value_of(cfg, key, got));
}

static void check_policy(const struct config *cfg, const char *key, const char *name,
                         struct config_errors *errors)
{
    char names[256] = " 'default'", shown[CONFIG__SHOWN_BYTES];
    size_t n = strlen(names);

    if (policy_by_name(name) != NULL)
        return;
    for (unsigned i = 0; policy_at(i) != NULL && n < sizeof(names); i++)
        n += (size_t)snprintf(names + n, sizeof(names) - n, ", '%s'", policy_at(i)->name);
    config__error_at(cfg, errors, key, "expected one of%s, got %s", names,
                     config__shown(name, shown));
}

/* Refuses a name that no device can have, or a kind that this binary does not support. A device
 * that is missing is no error: it may come up while the daemon runs. */
static void check_device(const struct config *cfg, uint32_t i, struct config_errors *errors)
{
    const struct hbm_device_entry *d = &cfg->hbm.devices.entry[i];
    const bool emulated = strncmp(d->name, "emu:", 4) == 0;
    const struct hbm_config hbm = {.gpu = {.device = d->name},
                                   .no = i,
                                   .limit_bytes = d->limit_bytes,
                                   .chunk_bytes = d->limit_bytes != 0 ? cfg->hbm.chunk : 0};

    const char *problem = hbm_config_problem(&hbm);
    if (problem != NULL)
        config__error_at(cfg, errors, "hbm.devices", "%s: %s", d->name, problem);
    if (emulated && d->limit_bytes > cfg->hbm.emu_memory)
        config__error_at(cfg, errors, "hbm.devices",
                         "%s: expected at most the memory of an emulated device, got more; raise "
                         "hbm.emu_memory",
                         d->name);
}

static uint64_t config_check_share_of(const struct config_quota *q, bool nvme)
{
    return nvme ? q->nvme_share : q->host_share;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* The bytes that a tenant is guaranteed. The shares of its sub-tenants are part of its own; if they
 * are more, their sum counts. */
static uint64_t tenant_share(const struct config *cfg, const char *tenant, bool nvme)
{
    uint64_t whole = 0, subs = 0;
    for (unsigned i = 0; i < cfg->nquotas; i++) {
        const struct config_quota *q = &cfg->quotas[i];
        if (strcmp(q->tenant, tenant) != 0)
            continue;
        if (q->sub[0] != '\0')
            subs = plus(subs, config_check_share_of(q, nvme));
        else
            whole = config_check_share_of(q, nvme);
    }
    return MAX(whole, subs);
}

/* Refuses shares whose sum is more than the tier can keep. limit 0: not known yet. */
static void check_shares(const struct config *cfg, bool nvme, uint64_t limit,
                         struct config_errors *errors)
{
    char there[UNITS_TEXT_BYTES], got[UNITS_TEXT_BYTES];
    const char *tier = nvme ? "nvme" : "host";
    uint64_t sum = 0;
    unsigned line = 0;
    for (unsigned i = 0; i < cfg->nquotas; i++) {
        unsigned first = 0;
        while (strcmp(cfg->quotas[first].tenant, cfg->quotas[i].tenant) != 0)
            first++;
        if (first == i)
            sum = plus(sum, tenant_share(cfg, cfg->quotas[i].tenant, nvme));
        if (line == 0 && config_check_share_of(&cfg->quotas[i], nvme) > 0)
            line = cfg->quotas[i].line;
    }
    const uint64_t most = nvme ? limit - limit / TIER_PASSING : limit;
    if (limit > 0 && sum > most)
        config__error(errors, cfg->file, line, "quotas",
                      "expected all %s_share together to be at most %s%s.limit, which is %s, got "
                      "%s; lower some of them or raise %s.limit",
                      tier, nvme ? "seven eighths of " : "", tier, units_format_bytes(most, there),
                      units_format_bytes(sum, got), tier);
}

/* Refuses a tenant that no principal has. It may be mistyped, and the tenant meant would have
 * neither limit nor guarantee. */
static void check_tenant(const struct config *cfg, const struct config_quota *q,
                         struct config_errors *errors)
{
    struct similar similar = similar_to(q->tenant);
    for (unsigned i = 0; i < cfg->nprincipals; i++) {
        if (strcmp(cfg->principals[i].tenant, q->tenant) == 0)
            return;
        similar_offer(&similar, cfg->principals[i].tenant);
    }
    config__error(errors, cfg->file, q->line, "quotas",
                  "expected a tenant that a principal has, got '%s'%s%s%s", q->tenant,
                  similar.best != NULL ? "; did you mean '" : "",
                  similar.best != NULL ? similar.best : "; principals name their tenant",
                  similar.best != NULL ? "'?" : "");
}

static void check_quotas(const struct config *cfg, struct config_errors *errors)
{
    check_shares(cfg, false, cfg->host.limit, errors);
    check_shares(cfg, true, cfg->nvme.paths[0] != '\0' ? cfg->nvme.limit : 0, errors);
    for (unsigned i = 0; i < cfg->nquotas; i++) {
        const struct config_quota *q = &cfg->quotas[i];
        if (q->host_share > q->host || q->nvme_share > q->nvme)
            config__error(errors, cfg->file, q->line, "quotas",
                          "expected a share of at most its limit for tenant '%s'", q->tenant);
        check_tenant(cfg, q, errors);
        for (unsigned k = 0; k < i; k++)
            if (strcmp(cfg->quotas[k].tenant, q->tenant) == 0 &&
                strcmp(cfg->quotas[k].sub, q->sub) == 0)
                config__error(errors, cfg->file, q->line, "quotas",
                              "tenant '%s'%s%s has two quotas, the first in line %u", q->tenant,
                              q->sub[0] ? ", sub-tenant " : "", q->sub, cfg->quotas[k].line);
    }
}

/* Refuses a uid that the mode of the sockets shuts out: it would only see "permission denied". */
static void check_mode(const struct config *cfg, struct config_errors *errors)
{
    if ((cfg->socket_mode & 0066) != 0)
        return;
    for (unsigned i = 0; i < cfg->nprincipals; i++) {
        for (unsigned u = 0; u < cfg->principals[i].nuids; u++) {
            const uid_t uid = cfg->principals[i].uids[u];
            if (uid == geteuid() || uid == 0)
                continue;
            config__error_at(cfg, errors, "socket_mode",
                             "%s lets nobody but the daemon's uid connect, but principal '%s' has "
                             "uid %u; for example '0660' and that uid in the daemon's group",
                             cfg->socket_mode_text, cfg->principals[i].name, (unsigned)uid);
            return;
        }
    }
}

static void check_nvme_values(const struct config *cfg, struct config_errors *errors)
{
    char got[CONFIG__SHOWN_BYTES], segment[CONFIG__SHOWN_BYTES];

    if (cfg->nvme.limit != 0 && cfg->nvme.paths[0] == '\0')
        config__error_at(cfg, errors, "nvme.limit",
                         "expected nvme.paths with it, for without storage nothing is written, got "
                         "%s alone; set nvme.paths too, or leave nvme.limit out",
                         value_of(cfg, "nvme.limit", got));
    if (cfg->nvme.segment % DISK_PAGE_BYTES != 0) {
        const uint64_t pages = (cfg->nvme.segment + DISK_PAGE_BYTES / 2) / DISK_PAGE_BYTES;
        char near[UNITS_COUNT_BYTES];
        config__error_at(cfg, errors, "nvme.segment",
                         "expected a multiple of 4KiB, got %s; for example '%s'",
                         value_of(cfg, "nvme.segment", segment),
                         units_exact_bytes(pages * DISK_PAGE_BYTES, near));
    }
    if (cfg->nvme.limit != 0 && cfg->nvme.segment != 0 &&
        cfg->nvme.limit / cfg->nvme.segment < NVME_PATHS_SEGMENTS_MIN)
        config__error_at(cfg, errors, "nvme.limit",
                         "expected at least %u segments of nvme.segment, which is %s, got %s; "
                         "lower the one or raise the other",
                         NVME_PATHS_SEGMENTS_MIN, value_of(cfg, "nvme.segment", segment),
                         value_of(cfg, "nvme.limit", got));
    if (cfg->nvme.writes_per_day != 0 && cfg->nvme.endurance != 0)
        config__error_at(cfg, errors, "nvme.endurance",
                         "expected one of nvme.writes_per_day and nvme.endurance, got both; leave "
                         "one of them 0");
}

/* Refuses a limit whose equal shares are too small for the tier. A device that is smaller than its
 * share is not looked at here. */
static void check_nvme_shares(const struct config *cfg, uint32_t paths,
                              struct config_errors *errors)
{
    char got[CONFIG__SHOWN_BYTES], segment[CONFIG__SHOWN_BYTES], least[UNITS_COUNT_BYTES];
    const uint64_t share = NVME_PATH_BYTES_MIN(cfg->nvme.segment);

    if (cfg->nvme.limit == 0 || cfg->nvme.segment == 0 || cfg->nvme.limit / paths >= share)
        return;
    if (cfg->nvme.limit / cfg->nvme.segment < NVME_PATHS_SEGMENTS_MIN)
        return; /* check_nvme_values() refuses this limit. */
    config__error_at(cfg, errors, "nvme.limit",
                     "expected for each of the %u paths of nvme.paths at least %u segments of "
                     "nvme.segment, which is %s, and 16KiB, so %s together, got %s; raise it, or "
                     "lower nvme.segment",
                     paths, NVME_PATH_SEGMENTS_MIN, value_of(cfg, "nvme.segment", segment),
                     units_exact_bytes(nvme_paths_least(cfg, paths), least),
                     value_of(cfg, "nvme.limit", got));
}

static void check_emulated(const struct config *cfg, struct config_errors *errors)
{
    char got[CONFIG__SHOWN_BYTES];

    /* The start measures copies of 8 MiB, and waits for each of them to end. */
    if (cfg->hbm.emu_bandwidth != 0 && cfg->hbm.emu_bandwidth < EMU_BANDWIDTH_MIN)
        config__error_at(cfg, errors, "hbm.emu_bandwidth",
                         "expected 0 or at least 16MiB, got %s; for example '1GiB'",
                         value_of(cfg, "hbm.emu_bandwidth", got));
}

static void check_metrics_listen(const struct config *cfg, struct config_errors *errors)
{
    struct http_address address;
    char why[CONFIG_ERROR_TEXT_MAX];

    if (cfg->metrics.listen[0] != '\0' &&
        http_address_read(cfg->metrics.listen, &address, why, sizeof(why)) < 0)
        config__error_at(cfg, errors, "metrics.listen", "%s", why);
}

void config__check_values(const struct config *cfg, struct config_errors *errors)
{
    const uint64_t huge_page = UINT64_C(2) << 20;
    char got[CONFIG__SHOWN_BYTES];

    if (cfg->host.chunk % huge_page != 0)
        config__error_at(cfg, errors, "host.chunk",
                         "expected a multiple of 2MiB, got %s; for example '64MiB'",
                         value_of(cfg, "host.chunk", got));
    if (!IS_POW2(cfg->flight.records))
        config__error_at(cfg, errors, "flight.records",
                         "expected a power of two, got %s; for example '4096'",
                         value_of(cfg, "flight.records", got));
    check_at_most(cfg, errors, "host.limit", cfg->host.limit, "memory.budget", cfg->memory.budget);
    check_at_most(cfg, errors, "host.chunk", cfg->host.chunk, "host.limit", cfg->host.limit);
    if (cfg->host.chunk != 0 && cfg->host.limit / cfg->host.chunk > CONFIG_CHUNKS_MAX)
        config__error_at(cfg, errors, "host.chunk",
                         "expected at most %u chunks, each of which takes two descriptors, got "
                         "%" PRIu64 " of %s; raise it",
                         CONFIG_CHUNKS_MAX, cfg->host.limit / cfg->host.chunk,
                         value_of(cfg, "host.chunk", got));
    check_at_most(cfg, errors, "limits.lease_bytes", cfg->limits.lease_bytes, "host.limit",
                  cfg->host.limit);
    check_at_most(cfg, errors, "staging.total", cfg->staging.total, "memory.budget",
                  cfg->memory.budget);
    check_at_most(cfg, errors, "staging.session_max", cfg->staging.session_max, "staging.total",
                  cfg->staging.total);
    check_nvme_values(cfg, errors);
    check_policy(cfg, "policy.eviction", cfg->policy.eviction, errors);
    check_policy(cfg, "hbm.eviction", cfg->hbm.eviction, errors);
    check_quotas(cfg, errors);
    for (uint32_t i = 0; i < cfg->hbm.devices.n; i++)
        check_device(cfg, i, errors);
    check_emulated(cfg, errors);
    check_mode(cfg, errors);
    check_metrics_listen(cfg, errors);
}

/* The directory that holds `path`. */
static void parent_of(const char *path, char ret[CONFIG_PATH_BYTES])
{
    size_t n = strnlen(path, CONFIG_PATH_BYTES - 1);

    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 1 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    memcpy(ret, path, n);
    ret[n] = '\0';
}

static bool is_dir(const char *path, int *ret_errno)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        *ret_errno = errno;
        return false;
    }
    *ret_errno = ENOTDIR;
    return S_ISDIR(st.st_mode);
}

/* Whether the effective uid, with which the daemon will run, may make files in the directory. */
static bool may_write(const char *dir)
{
    return faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) == 0;
}

/* Refuses a directory that exists and is not writable. */
static void check_writable(const struct config *cfg, const char *key, const char *dir,
                           struct config_errors *errors)
{
    char remedy[REMEDY_BYTES];
    if (may_write(dir))
        return;
    const int err = errno;
    config__error_at(cfg, errors, key, "expected a directory that uid %u may write, got %s: %s%s",
                     (unsigned)geteuid(), dir, strerror(err), remedy_of(err, dir, false, remedy));
}

/* Refuses a directory that neither exists nor can be made in an existing one. */
static void check_makable(const struct config *cfg, const char *key, const char *dir,
                          struct config_errors *errors)
{
    char parent[CONFIG_PATH_BYTES], remedy[REMEDY_BYTES];
    int err;

    parent_of(dir, parent);
    if (is_dir(dir, &err)) {
        check_writable(cfg, key, dir, errors);
        return;
    }
    if (err != ENOENT) {
        config__error_at(cfg, errors, key, "expected a directory, got %s: %s%s", dir, strerror(err),
                         remedy_of(err, parent, false, remedy));
        return;
    }
    if (is_dir(parent, &err)) {
        if (may_write(parent))
            return;
        err = errno;
    }
    config__error_at(cfg, errors, key,
                     "expected a directory that exists or can be made, got %s: uid %u cannot "
                     "make it in %s: %s%s",
                     dir, (unsigned)geteuid(), parent, strerror(err),
                     remedy_of(err, parent, false, remedy));
}

static void check_runtime_dir(const struct config *cfg, struct config_errors *errors)
{
    const char *dir = cfg->runtime_dir, *key = "runtime_dir";
    const size_t socket_path_max =
        sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/control.sock");
    char parent[CONFIG_PATH_BYTES];
    int err;

    parent_of(dir, parent);
    if (strlen(dir) > socket_path_max)
        config__error_at(cfg, errors, key,
                         "expected at most %zu bytes, for a unix socket has no room for a longer "
                         "path, got %zu",
                         socket_path_max, strlen(dir));
    else if (is_dir(dir, &err)) {
        check_writable(cfg, key, dir, errors);
    } else if (err != ENOENT) {
        config__error_at(cfg, errors, key,
                         "expected a directory, got %s: %s; for example '/run/kvcache'", dir,
                         strerror(err));
    } else if (!is_dir(parent, &err)) {
        config__error_at(
            cfg, errors, key,
            "expected a directory whose parent exists, got %s: %s: %s; make the parent, or name "
            "another directory",
            dir, parent, strerror(err));
    } else if (!may_write(parent)) {
        config__error_at(cfg, errors, key,
                         "expected a directory that exists or can be made, got %s: %s is not "
                         "writable for uid %u; for example, as root: install -d -o %u %s",
                         dir, parent, (unsigned)geteuid(), (unsigned)geteuid(), dir);
    }
}

static void check_secret_file(const struct config *cfg, struct config_errors *errors)
{
    const char *path = cfg->secret_file, *key = "secret_file";
    char parent[CONFIG_PATH_BYTES];
    struct stat st;
    int err;

    if (path[0] == '\0')
        return;
    parent_of(path, parent);
    if (!is_dir(parent, &err)) {
        config__error_at(cfg, errors, key,
                         "expected a file in a directory that exists, got %s: %s: %s; make the "
                         "directory, or name a file elsewhere",
                         path, parent, strerror(err));
    } else if (stat(path, &st) < 0) {
        if (errno != ENOENT)
            config__error_at(
                cfg, errors, key,
                "expected a file that can be read, got %s: %s; name one that the daemon's uid owns",
                path, strerror(errno));
        else if (!may_write(parent))
            config__error_at(cfg, errors, key,
                             "expected a file that exists or can be made, got %s: %s is not "
                             "writable for uid %u; change its owner, or name a file elsewhere",
                             path, parent, (unsigned)geteuid());
    } else if (!S_ISREG(st.st_mode)) {
        config__error_at(cfg, errors, key,
                         "expected a regular file, got %s, which is not; name a file that is not "
                         "there yet, and it is made",
                         path);
    } else if ((st.st_mode & 077) != 0) {
        config__error_at(
            cfg, errors, key,
            "expected a file that only its owner may read, got %s with mode %04o; try: "
            "chmod 600 %s",
            path, (unsigned)(st.st_mode & 07777), path);
    } else if (faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) < 0) {
        config__error_at(cfg, errors, key,
                         "expected a file that uid %u may read, got %s: %s; try: chown %u %s",
                         (unsigned)geteuid(), path, strerror(errno), (unsigned)geteuid(), path);
    }
}

static void check_nvme_path(const struct config *cfg, const struct store_path *p,
                            struct config_errors *errors)
{
    const char *key = "nvme.paths";
    char remedy[REMEDY_BYTES];

    if (p->place == NVME_PLACE_NONE && p->err == ENOENT)
        config__error_at(cfg, errors, key,
                         "expected a directory, a file or a block device, got %s: %s; for example, "
                         "as root: install -d -o %u %s",
                         p->given, strerror(p->err), (unsigned)geteuid(), p->given);
    else if (p->place == NVME_PLACE_NONE)
        config__error_at(cfg, errors, key,
                         "expected a directory, a file or a block device, got %s: %s", p->given,
                         p->err != 0 ? strerror(p->err) : "it is none of these");
    else if (p->place == NVME_PLACE_DIR)
        check_writable(cfg, key, p->given, errors);
    else if (faccessat(AT_FDCWD, p->given, R_OK | W_OK, AT_EACCESS) < 0) {
        const int err = errno;
        config__error_at(cfg, errors, key,
                         "expected a %s that uid %u may read and write, got %s: %s%s",
                         p->place == NVME_PLACE_FILE ? "file" : "device", (unsigned)geteuid(),
                         p->given, strerror(err), remedy_of(err, p->given, false, remedy));
    }
}

static void check_journal(const struct config *cfg, const struct nvme_paths *p,
                          struct config_errors *errors)
{
    const char *key = "nvme.journal";

    if (cfg->nvme.journal[0] == '\0' && p->path[0].place == NVME_PLACE_DEVICE)
        config__error_at(cfg, errors, key,
                         "expected a directory, for the first of nvme.paths is a block device and "
                         "has none beside it; for example '/var/lib/kvcache/journal'");
    else
        check_makable(cfg, key, p->journal, errors);
}

/* Refuses a directory that may be mistyped. A file system that became read-only is accepted: names
 * are then not kept, but the daemon runs. */
static void check_names_dir(const struct config *cfg, struct config_errors *errors)
{
    const char *dir = cfg->names.dir;
    char parent[CONFIG_PATH_BYTES];
    int err;

    if (dir[0] == '\0' || cfg->limits.names == 0)
        return;
    parent_of(dir, parent);
    if (!may_write(is_dir(dir, &err) ? dir : parent) && errno == EROFS)
        return;
    check_makable(cfg, "names.dir", dir, errors);
}

static void check_nvme_paths(const struct config *cfg, struct config_errors *errors)
{
    struct nvme_paths p;
    uint32_t replaced;
    char why[CONFIG_ERROR_TEXT_MAX];

    if (cfg->nvme.paths[0] == '\0' && cfg->nvme.replaced[0] != '\0')
        config__error_at(cfg, errors, "nvme.replaced",
                         "expected nothing where nvme.paths is empty, got '%.80s'",
                         cfg->nvme.replaced);
    if (cfg->nvme.paths[0] == '\0')
        return;
    if (nvme_paths_read(cfg->nvme.paths, cfg->nvme.journal, &p, why, sizeof(why)) < 0) {
        config__error_at(cfg, errors, "nvme.paths", "%s", why);
        return;
    }
    check_nvme_shares(cfg, p.n, errors);
    if (nvme_paths_find(&p, cfg->nvme.replaced, &replaced, why, sizeof(why)) < 0)
        config__error_at(cfg, errors, "nvme.replaced", "%s", why);
    for (uint32_t i = 0; i < p.n; i++)
        check_nvme_path(cfg, &p.path[i], errors);
    if (errors->count == 0)
        check_journal(cfg, &p, errors);
}

static void check_persist(const struct config *cfg, struct config_errors *errors)
{
    const char *path = cfg->host.persist, *key = "host.persist";
    char shown[CONFIG__SHOWN_BYTES], problem[CONFIG_ERROR_TEXT_MAX];
    int err;

    if (strcmp(path, "off") == 0 || strcmp(path, "systemd") == 0)
        return;
    if (path[0] != '/')
        config__error_at(cfg, errors, key,
                         "expected 'off', 'systemd' or a directory, got %s; for example "
                         "'/dev/shm/kvcache'",
                         config__shown(path, shown));
    else if (!is_dir(path, &err))
        config__error_at(cfg, errors, key,
                         "expected a directory on tmpfs or hugetlbfs, got %s: %s; for example: "
                         "install -d -m 0700 -o %u %s",
                         path, strerror(err), (unsigned)geteuid(), path);
    else if (backing_dir_problem(path, problem, sizeof(problem)) != NULL)
        config__error_at(cfg, errors, key, "%s", problem);
    else
        check_writable(cfg, key, path, errors);
}

void config__check_paths(const struct config *cfg, struct config_errors *errors)
{
    check_runtime_dir(cfg, errors);
    check_secret_file(cfg, errors);
    check_nvme_paths(cfg, errors);
    check_names_dir(cfg, errors);
    check_persist(cfg, errors);
}
