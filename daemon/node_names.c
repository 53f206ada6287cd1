/* SPDX-License-Identifier: Apache-2.0 */
#include "node_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "clock.h"
#include "core_names.h"
#include "log.h"
#include "meta.h"
#include "names_clock.h"
#include "nvme_paths.h"
#include "outage.h"
#include "remedy.h"
#include "sys.h"

_Static_assert(META_MAP_BYTES == UINT64_C(64) << 20, "the log asks for 64 MiB");

/* How long the journal's lock of a killed daemon may last. */
#define LOCK_WAIT_MS 10000u
/* After so long the daemon tries again to make a journal that could not be made. */
#define AGAIN_MS        5000u
#define JOURNAL_BYTES   (UINT64_C(8) << 20)
#define DIR_NAME        NVME_PATHS_NAMES
#define HUGETLBFS_MAGIC 0x958458f6

struct node_names {
    struct meta *meta; /* NULL: it could not be opened, and meta_make() was not called yet */
    int missing; /* a negative errno: names have no journal until one is made; 0: none is missing */
    struct loop *loop;
    struct core *core;
    char dir[NVME_PATH_FILE_BYTES + 16];
    bool told; /* the failure of the journal is in the log */
};

static bool takes_files(const char *dir)
{
    struct statfs fs;
    return statfs(dir, &fs) == 0 && fs.f_type != HUGETLBFS_MAGIC;
}

/* *ret_dir "": names are off, or no directory can hold their journal. */
static int dir_of(const struct config *cfg, char *ret_dir, size_t cap)
{
    struct nvme_paths paths;
    char why[CONFIG_ERROR_TEXT_MAX];
    ret_dir[0] = '\0';
    if (cfg->limits.names == 0)
        return 0;
    if (cfg->names.dir[0] != '\0') {
        (void)!snprintf(ret_dir, cap, "%s", cfg->names.dir);
    } else if (cfg->nvme.paths[0] != '\0') {
        int err = nvme_paths_read(cfg->nvme.paths, cfg->nvme.journal, &paths, why, sizeof(why));
        if (err < 0) {
            LOG_ERROR("nvme.paths: %s", why);
            return err;
        }
        const char *slash = strrchr(paths.journal, '/');
        (void)!snprintf(ret_dir, cap, "%.*s/" DIR_NAME, (int)(slash - paths.journal),
                        paths.journal);
    } else if (cfg->host.persist[0] == '/' && takes_files(cfg->host.persist)) {
        (void)!snprintf(ret_dir, cap, "%s/" DIR_NAME, cfg->host.persist);
    }
    return 0;
}

uint32_t node_names_loop_watches(const struct config *cfg)
{
    return cfg->limits.names != 0 ? 1 : 0;
}

uint64_t node_names_bytes(const struct config *cfg, const struct core_config *core)
{
    return cfg->limits.names != 0 ? core_names_bytes(core) + JOURNAL_BYTES : 0;
}

/* With a disk that is full or fails, the daemon runs on, and names end with it. */
static bool can_do_without(int err)
{
    return err == -ENOSPC || err == -EDQUOT || err == -EIO || err == -EROFS;
}

static int open_meta(struct node_names *n, struct loop *loop)
{
    const struct meta_config cfg = {.dir = n->dir, .lock_wait_ms = LOCK_WAIT_MS};
    struct meta_report report = {0};
    int err = meta_open(&cfg, loop, &n->meta, &report);
    const char *why = report.why[0] != '\0' ? report.why : err_name(err);
    char remedy[REMEDY_BYTES];
    if (can_do_without(err)) {
        n->missing = err;
        LOG_ERROR(
            "names.dir: %s. The daemon starts without it: conversations and documents "
            "end with this run, and who asks for more is answered TIER, until it can be made. %s: "
            "it is tried again every %u s. Or set names.dir, and start again",
            why,
            err == -EROFS ? "Mount its file system read-write"
            : err == -EIO ? "Look at the drive (dmesg, smartctl -a)"
                          : "Make room for 64 MiB there",
            AGAIN_MS / 1000);
        return 0;
    }
    if (err)
        LOG_ERROR("names.dir: %s%s", why, remedy_of(err, n->dir, true, remedy));
    else if (report.damaged)
        LOG_WARN("names.dir: %s was damaged (%s); it is kept as env.bad, and conversations and "
                 "documents begin anew: their blocks are ordinary ones now",
                 n->dir, report.why);
    return err;
}

int node_names_open(const struct config *cfg, struct loop *loop, struct node_names **ret_names)
{
    struct node_names *n = sys_calloc(1, sizeof *n);
    if (!n)
        return -ENOMEM;
    n->loop = loop;
    int err = dir_of(cfg, n->dir, sizeof(n->dir));
    if (!err && n->dir[0] != '\0')
        err = open_meta(n, loop);
    if (err || n->dir[0] == '\0')
        node_names_close(&n);
    *ret_names = n;
    return err;
}

void node_names_close(struct node_names **names)
{
    if (!names || !*names)
        return;
    meta_close(&(*names)->meta);
    free(*names);
    *names = NULL;
}

/* The next start learns from this file for how long names were idle between the runs. */
static void note_clock(const struct node_names *n)
{
    const int err = names_clock_write(n->dir, core_names_now_ms(n->core));
    if (err)
        LOG_WARN("names.dir: %s/" NAMES_CLOCK_FILE ": %s; the next start does not count the time "
                 "until then as idle",
                 n->dir, err_name(err));
}

/* The journal could be made after all. err: it holds names of an earlier run. */
static void on_made(void *ctx, int err)
{
    struct node_names *n = ctx;
    if (err) {
        LOG_ERROR("names.dir: %s has names of an earlier run, which a start alone reads: start the "
                  "daemon again",
                  n->dir);
        return;
    }
    core_names_begin(n->core, meta_journal(n->meta));
    note_clock(n);
    n->missing = 0;
    n->told = false;
    LOG_INFO("names.dir: %s could be made now: conversations and documents, those that are there "
             "too, outlive the daemon from here on",
             n->dir);
}

static void begin_without(struct node_names *n, struct core *core)
{
    const struct meta_config cfg = {.dir = n->dir};
    n->core = core;
    n->told = true;
    core_names_fail(core, n->missing);
    const int err = meta_make(&cfg, n->loop, AGAIN_MS, on_made, n, &n->meta);
    if (err)
        LOG_ERROR("names.dir: %s: %s; it is not tried again before the next start", n->dir,
                  err_name(err));
}

int node_names_recover(struct node_names *n, struct core *core, core_who_fn *who, void *ctx)
{
    struct core_names_found found;
    struct journal *journal = n && n->meta ? meta_journal(n->meta) : NULL;
    const uint64_t now_ms = n && n->meta ? names_clock_read(n->dir) : 0;
    int err = core_names_open(core, journal, now_ms, clock_wall_ms(), who, ctx, &found);
    if (!err && n && n->missing)
        begin_without(n, core);
    if (!n || (!err && n->missing))
        return err;
    if (err) {
        LOG_ERROR("names.dir: %s: %s", n->dir, err_name(err));
        return err;
    }
    n->core = core;
    note_clock(n);
    LOG_INFO("names: %u conversations and documents, in %s", found.names, n->dir);
    if (found.names > 0 && now_ms == 0)
        LOG_INFO("names: the machine was started since they were noted: how long that is nobody "
                 "knows, and no TTL counts it");
    if (found.damaged)
        LOG_WARN("names.dir: %s was damaged: conversations and documents that could be read are "
                 "noted anew, others are gone",
                 n->dir);
    if (found.partly)
        LOG_WARN("names: of %u of them some blocks are gone", found.partly);
    if (found.nobody)
        LOG_WARN("names: %u are left alone: their principals are not in the configuration, or "
                 "there are more than limits.names",
                 found.nobody);
    return 0;
}

void node_names_turn(struct node_names *n, const struct core *core)
{
    if (!n || n->told || !core_names_error(core))
        return;
    n->told = true;
    const int err = core_names_error(core);
    const char *what = outage_of(err_name(err))->what;
    LOG_ERROR("names.dir: %s/env/data.mdb: %s%s%s; conversations and documents are not noted any "
              "more until the daemon is started again",
              n->dir, err_name(err), what ? ": " : "", what ? what : "");
}
