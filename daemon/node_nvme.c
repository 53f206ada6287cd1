/* SPDX-License-Identifier: Apache-2.0 */
#include "node_nvme.h"

#include <kvcache/rows.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "disk_file.h"
#include "log.h"
#include "meta.h"
#include "notify.h"
#include "nvme.h"
#include "nvme_paths.h"
#include "outage.h"
#include "remedy.h"
#include "sys.h"
#include "units.h"

_Static_assert(CORE_NS_RECORD_MAX == NVME_RECORD_MAX, "core makes them, nvme keeps them");
_Static_assert(DISK_FILE_HEAD_BYTES == NVME_LOOK_BYTES, "what is looked at before it is written");

/* The longest wait for the I/O of a killed daemon, which holds the lock until it has ended. */
#define LOCK_WAIT_MS 10000u
#define PUMP_NS      100000000ll
/* TELL_NS: between two lines about progress. EXTEND_NS: what the service manager is asked to wait
 * for a start. END_WAIT_NS: the longest wait for I/O when a start is told to end. */
#define TELL_NS     5000000000u
#define EXTEND_NS   60000000000u
#define END_WAIT_NS 2000000000u
/* An entry of the journal, with LMDB's own bytes, in pages that are half full. */
#define JOURNAL_ENTRY_BYTES 512u
#define JOURNAL_BASE_BYTES  (UINT64_C(8) << 20)
#define EXTENT_BYTES        (UINT64_C(2) << 20)

struct node_nvme {
    const struct config *cfg;
    struct loop *loop;
    struct nvme_paths paths;
    uint32_t replaced; /* bit i: path i is in nvme.replaced */
    struct disk_file_path disk_path[DISK_PATHS_MAX];
    struct disk_file *disk;
    struct meta *meta;
    struct nvme *nvme;
    struct core *core;
    core_who_fn *who; /* during recovery */
    void *who_ctx;
    const bool *terminate;
    /* When recovery began, when its progress was last logged, when it was told to end (0: not). */
    uint64_t begun_ns, told_ns, end_ns;
    uint64_t ended; /* I/Os that had ended at told_ns */
    uint32_t ns_kept, ns_gone, ns_foreign, blocks;
    /* Principal of the first foreign namespace that was found. */
    char foreign[2 * KVC_PARAMS_MAX + 32];
    int told[DISK_PATHS_MAX], told_journal; /* errors at the last look; 0: none */
    uint8_t format_told[DISK_PATHS_MAX]; /* formatting: 1 begun, 2 a quarter, 3 half; 0: not told */
    uint64_t format_told_ns;
    uint64_t told_corrupt[DISK_PATHS_MAX], corrupt_due_ns[DISK_PATHS_MAX];
};

static uint64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool node_nvme_is_on(const struct config *cfg)
{
    return cfg->nvme.paths[0] != '\0';
}

/* ---- from configuration to parts ---- */

/* Gives paths equal parts of the limit. A smaller device gets its own size; the others share the
 * rest. */
static void share_limit(struct node_nvme *n, uint64_t limit)
{
    bool fixed[DISK_PATHS_MAX] = {false};
    uint64_t left = limit;
    uint32_t open = n->paths.n;
    for (bool again = true; again && open > 0;) {
        again = false;
        for (uint32_t i = 0; i < n->paths.n; i++) {
            struct disk_file_room room;
            char why[DISK_FILE_WHY_BYTES];
            const uint64_t share = open > 0 ? left / open : 0;
            if (fixed[i] || disk_file_probe(n->paths.path[i].given, &room, why) < 0 ||
                !room.is_device || room.bytes >= share)
                continue;
            n->disk_path[i].bytes = room.bytes / DISK_PAGE_BYTES * DISK_PAGE_BYTES;
            left -= n->disk_path[i].bytes;
            fixed[i] = again = true;
            open--;
        }
    }
    for (uint32_t i = 0; i < n->paths.n; i++) {
        n->disk_path[i].name = n->paths.path[i].given;
        if (!fixed[i])
            n->disk_path[i].bytes = left / open / DISK_PAGE_BYTES * DISK_PAGE_BYTES;
    }
}

static struct disk_file_config disk_config_of(const struct node_nvme *n)
{
    return (struct disk_file_config){.paths = n->disk_path,
                                     .count = n->paths.n,
                                     .lock_wait_ms = LOCK_WAIT_MS,
                                     .create = true,
                                     .direct = true,
                                     .problem = nvme_head_problem,
                                     .length = nvme_head_length};
}

static struct nvme_config nvme_config_of(const struct config *cfg)
{
    const uint64_t by_endurance = cfg->nvme.limit / 1000 * cfg->nvme.endurance;
    return (struct nvme_config){
        .limit_bytes = cfg->nvme.limit,
        .segment_bytes = cfg->nvme.segment,
        .queue_bytes = cfg->nvme.queue,
        .blocks_max = cfg->index.blocks,
        .write_per_day = cfg->nvme.writes_per_day != 0 ? cfg->nvme.writes_per_day : by_endurance,
        .io_timeout_ns = cfg->nvme.io_timeout,
        .sync_ns = cfg->nvme.sync};
}

static int read_paths(const struct config *cfg, struct node_nvme *n)
{
    char why[CONFIG_ERROR_TEXT_MAX];
    int err = nvme_paths_read(cfg->nvme.paths, cfg->nvme.journal, &n->paths, why, sizeof(why));
    if (err < 0)
        LOG_ERROR("nvme.paths: %s", why);
    if (err == 0) {
        err = nvme_paths_find(&n->paths, cfg->nvme.replaced, &n->replaced, why, sizeof(why));
        if (err < 0)
            LOG_ERROR("nvme.replaced: %s", why);
    }
    return err;
}

static uint32_t paths_of(const struct config *cfg)
{
    uint32_t n = 1;
    for (const char *at = cfg->nvme.paths; *at != '\0'; at++)
        n += *at == ',';
    return node_nvme_is_on(cfg) ? n : 0;
}

uint32_t node_nvme_loop_ops(const struct config *cfg)
{
    struct node_nvme n = {.paths = {.n = paths_of(cfg)}};
    const struct disk_file_config disk = disk_config_of(&n);
    return node_nvme_is_on(cfg) ? disk_file_ops(&disk) : 0;
}

uint32_t node_nvme_loop_watches(const struct config *cfg)
{
    return node_nvme_is_on(cfg) ? 2 : 0;
}

/* Paths as large as the configuration says, before they are opened. */
struct planned {
    struct disk disk;
    uint64_t bytes; /* of each */
};

static uint64_t planned_bytes(const struct disk *disk, uint32_t path)
{
    (void)path;
    return CONTAINER_OF(disk, const struct planned, disk)->bytes;
}

uint64_t node_nvme_bytes(const struct config *cfg)
{
    static const struct disk_ops ops = {.bytes = planned_bytes};
    struct nvme_config nvme = nvme_config_of(cfg);
    struct planned plan = {.disk = {.ops = &ops, .paths = paths_of(cfg)}};
    if (!node_nvme_is_on(cfg))
        return 0;
    plan.bytes = cfg->nvme.limit / plan.disk.paths;
    nvme.disk = &plan.disk;
    return nvme_footprint(&nvme);
}

uint64_t node_nvme_journal_bytes(const struct config *cfg)
{
    return node_nvme_is_on(cfg)
               ? JOURNAL_BASE_BYTES + cfg->nvme.limit / EXTENT_BYTES * JOURNAL_ENTRY_BYTES
               : 0;
}

/* ---- opening ---- */

/* Bytes that the file systems lack for this limit. */
static uint64_t missing_for(struct node_nvme *n, uint64_t limit, char dir[NVME_PATH_FILE_BYTES])
{
    uint64_t bytes[DISK_PATHS_MAX];
    share_limit(n, limit);
    for (uint32_t i = 0; i < n->paths.n; i++)
        bytes[i] = n->disk_path[i].bytes;
    return nvme_paths_missing(&n->paths, bytes, dir);
}

/* The largest limit that fits, in MiB; 0: even `least` does not fit. */
static uint64_t fitting_mib(struct node_nvme *n, uint64_t least)
{
    char dir[NVME_PATH_FILE_BYTES];
    uint64_t low = least >> 20, high = n->cfg->nvme.limit >> 20;
    if (missing_for(n, low << 20, dir) > 0)
        return 0;
    while (low < high) {
        const uint64_t mid = high - (high - low) / 2;
        if (missing_for(n, mid << 20, dir) > 0)
            high = mid - 1;
        else
            low = mid;
    }
    return low;
}

/* Logs how much room is missing, and which limit would fit. The start has left no file behind. */
static void tell_no_room(struct node_nvme *n)
{
    char dir[NVME_PATH_FILE_BYTES] = "", limit[UNITS_TEXT_BYTES], more[UNITS_TEXT_BYTES],
         less[UNITS_TEXT_BYTES];
    const uint64_t asked = n->cfg->nvme.limit, least = nvme_paths_least(n->cfg, n->paths.n),
                   mib = fitting_mib(n, least), journal = missing_for(n, 0, dir),
                   missing = missing_for(n, asked, dir);
    units_format_bytes(asked, limit);
    units_format_bytes(missing, more);
    if (missing > 0 && missing == journal) /* no store takes room there */
        LOG_ERROR(
            "nvme.journal: a journal of %u MiB does not fit on the file system of %s: %s more "
            "are wanted. Make that room, or set nvme.journal to a directory on another file "
            "system",
            (unsigned)(META_MAP_BYTES >> 20), dir, more);
    else if (missing == 0)
        LOG_ERROR("nvme.limit: %s does not fit, though the file system shows as much as free: is "
                  "there a quota? Make room, or lower nvme.limit",
                  limit);
    else if (mib > 0)
        LOG_ERROR("nvme.limit: %s does not fit on the file system of %s with the journal, %u MiB: "
                  "%s more are wanted. Make that room, or set nvme.limit to %lluMiB at most%s",
                  limit, dir, (unsigned)(META_MAP_BYTES >> 20), more, (unsigned long long)mib,
                  mib < nvme_paths_kept(&n->paths) >> 20
                      ? ", which cuts the stores and drops what is behind their end, durable "
                        "blocks too"
                      : "");
    else
        LOG_ERROR("nvme.limit: %s does not fit on the file system of %s with the journal, %u MiB: "
                  "%s more are wanted, and %s for the least limit, %lluMiB. Make that room, or "
                  "set nvme.journal to a directory on another file system",
                  limit, dir, (unsigned)(META_MAP_BYTES >> 20), more,
                  units_format_bytes(missing_for(n, least, dir), less),
                  (unsigned long long)(least >> 20));
}

bool node_nvme_fits(const struct config *cfg, uint64_t *ret_largest)
{
    struct node_nvme n = {.cfg = cfg};
    char dir[NVME_PATH_FILE_BYTES];
    *ret_largest = 0;
    if (!node_nvme_is_on(cfg))
        return true;
    if (read_paths(cfg, &n) < 0)
        return false;
    if (missing_for(&n, cfg->nvme.limit, dir) > 0) {
        tell_no_room(&n);
        return false;
    }
    for (uint32_t i = 0; i < n.paths.n; i++)
        if (n.paths.path[i].place != NVME_PLACE_DEVICE)
            *ret_largest = MAX(*ret_largest, n.disk_path[i].bytes);
    return true;
}

static int node_nvme_open_disk(struct node_nvme *n)
{
    char why[DISK_FILE_WHY_BYTES], remedy[REMEDY_BYTES];
    share_limit(n, n->cfg->nvme.limit);
    const struct disk_file_config cfg = disk_config_of(n);
    int err = disk_file_open(&cfg, n->loop, &n->disk, why);
    if (err == -EBUSY)
        LOG_ERROR("nvme.paths: %s. Is another kvcache-daemon using this store? Stop it, or give "
                  "this one paths of its own",
                  why);
    else if (err)
        LOG_ERROR("nvme.paths: %s%s", why, remedy_of(err, n->paths.path[0].given, true, remedy));
    if (err)
        return err;
    for (uint32_t i = 0; i < n->paths.n; i++) {
        char bytes[UNITS_TEXT_BYTES];
        LOG_INFO("nvme: %s, %s%s", disk_file_name(n->disk, i),
                 units_format_bytes(n->disk_path[i].bytes, bytes),
                 disk_file_is_direct(n->disk, i) ? "" : ", through the page cache");
    }
    if (disk_file_note(n->disk)[0] != '\0')
        LOG_WARN("nvme: %s", disk_file_note(n->disk));
    return 0;
}

static int open_journal(struct node_nvme *n)
{
    const struct meta_config cfg = {.dir = n->paths.journal, .lock_wait_ms = LOCK_WAIT_MS};
    struct meta_report report = {0};
    char remedy[REMEDY_BYTES];
    int err = meta_open(&cfg, n->loop, &n->meta, &report);
    if (err)
        LOG_ERROR("nvme.journal: %s%s", report.why, remedy_of(err, n->paths.journal, true, remedy));
    else if (report.damaged)
        LOG_WARN("nvme.journal: %s was damaged (%s); it is kept as env.bad and made again from the "
                 "tables on storage",
                 n->paths.journal, report.why);
    if (err) { /* also closes the files, which frees their room */
        disk_file_unmake(n->disk);
        disk_file_close(&n->disk);
    }
    return err;
}

static uint32_t on_record(void *ctx, uint64_t print, uint8_t ret_record[NVME_RECORD_MAX])
{
    const struct node_nvme *n = ctx;
    return n->core != NULL ? core_ns_record(n->core, print, ret_record) : 0;
}

static int create_tier(struct node_nvme *n, uint64_t now_ns)
{
    struct nvme_config cfg = nvme_config_of(n->cfg);
    cfg.disk = disk_file_disk(n->disk);
    cfg.journal = meta_journal(n->meta);
    cfg.now_ns = now_ns;
    cfg.wall_ns = wall_ns();
    cfg.replaced = n->replaced;
    cfg.record = on_record;
    cfg.ctx = n;
    const char *problem = nvme_config_problem(&cfg);
    if (problem != NULL) {
        LOG_ERROR("nvme: %s", problem);
        return -EINVAL;
    }
    return nvme_create(&cfg, &n->nvme);
}

int node_nvme_open(const struct config *cfg, struct loop *loop, uint64_t now_ns,
                   struct node_nvme **ret_nvme)
{
    struct node_nvme *n = sys_calloc(1, sizeof *n);
    if (!n)
        return -ENOMEM;
    n->cfg = cfg;
    n->loop = loop;
    int err = read_paths(cfg, n);
    if (!err)
        err = node_nvme_open_disk(n);
    if (!err)
        err = open_journal(n);
    if (err == -ENOSPC || err == -EDQUOT)
        tell_no_room(n);
    if (!err)
        err = create_tier(n, now_ns);
    if (err)
        node_nvme_close(&n);
    else
        *ret_nvme = n;
    return err;
}

void node_nvme_close(struct node_nvme **nvme)
{
    if (!nvme || !*nvme)
        return;
    nvme_destroy(&(*nvme)->nvme);
    meta_close(&(*nvme)->meta);
    disk_file_close(&(*nvme)->disk);
    free(*nvme);
    *nvme = NULL;
}

struct tier *node_nvme_tier(struct node_nvme *nvme)
{
    return nvme != NULL ? nvme_tier(nvme->nvme) : NULL;
}

void node_nvme_set_core(struct node_nvme *nvme, struct core *core)
{
    if (nvme != NULL)
        nvme->core = core;
}

/* ---- what is there from the run before ---- */

/* Logs how far recovery is; if no I/O has ended since the last time, that it waits for a drive. */
static void tell_progress(struct node_nvme *n, uint64_t now_ns)
{
    char text[256], took[UNITS_TEXT_BYTES];
    uint64_t ended = 0;
    uint32_t waits = DISK_PATHS_MAX;
    for (uint32_t i = 0; i < n->paths.n; i++) {
        struct nvme_path_stats s;
        nvme_path_stats(n->nvme, i, &s);
        ended += s.reads + s.writes + s.syncs;
        waits = s.queued != 0 ? i : waits;
    }
    const bool moved = ended != n->ended;
    n->ended = ended;
    n->told_ns = now_ns;
    units_format_duration_ns(now_ns - n->begun_ns, took);
    if (moved || waits == DISK_PATHS_MAX) {
        (void)!snprintf(text, sizeof text, "nvme: reading what is there: %u blocks until now, %s",
                        n->blocks, took);
        LOG_INFO("%s", text);
        if (notify_extend(EXTEND_NS) < 0)
            LOG_WARN("the service manager cannot be told to wait");
    } else {
        (void)!snprintf(text, sizeof text, "nvme: %s does not answer; the start waits for it, %s",
                        disk_file_name(n->disk, waits), took);
        LOG_WARN("%s", text);
    }
    if (notify_status(text) < 0)
        LOG_WARN("the service manager cannot be told how far the start is");
}

static int on_pump(void *ctx)
{
    struct node_nvme *n = ctx;
    const int rc = loop_turn(n->loop, PUMP_NS);
    const uint64_t now_ns = clock_now_ns();
    if (rc < 0)
        return rc;
    if (!*n->terminate) {
        if (now_ns - n->told_ns >= TELL_NS)
            tell_progress(n, now_ns);
        return 0;
    }
    n->end_ns = n->end_ns != 0 ? n->end_ns : now_ns;
    if (now_ns - n->end_ns >= END_WAIT_NS) {
        LOG_ERROR("I/O on nvme.paths did not end; leaving all the same");
        _exit(EXIT_FAILURE); /* as in a crash, memory that I/O may touch is not freed */
    }
    return -ECANCELED;
}

static void on_ns(void *ctx, const uint8_t *record, uint32_t bytes)
{
    struct node_nvme *n = ctx;
    char principal[KVC_PARAMS_MAX], tenant[KVC_PARAMS_MAX];
    const int err = core_ns_restore(n->core, record, bytes, n->who, n->who_ctx);
    n->ns_kept += err == 0;
    n->ns_gone += err != 0;
    if (err == KVC_E_DENIED && n->ns_foreign++ == 0 &&
        core_ns_record_principal(record, bytes, principal, tenant) == 0)
        (void)!snprintf(n->foreign, sizeof n->foreign, "principal '%s', tenant '%s'", principal,
                        tenant);
}

/* Refuses a start with a wrong name or secret: it would give up all stored blocks. */
static int on_approve(void *ctx)
{
    struct node_nvme *n = ctx;
    if (n->ns_kept > 0 || n->ns_foreign == 0 || n->blocks == 0)
        return 0;
    LOG_ERROR(
        "nvme: all that is in this store belongs to others than 'principals' names, the first "
        "of it to %s, or was stored with another secret_file. Nothing was changed on "
        "storage: set name, tenant and secret_file as they were, or, to begin anew, remove "
        "the stores of nvme.paths (of a device: its first 128 KiB) and the journal in %s",
        n->foreign, n->paths.journal);
    return -EACCES;
}

static void on_soon(void *ctx, const struct tier_label *label)
{
    const struct node_nvme *n = ctx;
    core_recover_soon(n->core, label);
}

static uint32_t on_block(void *ctx, const struct nvme_found *found)
{
    struct node_nvme *n = ctx;
    /* The newest blocks come first. Their age is unknown: their order stands for it. */
    const struct core_found block = {
        .label = found->label, .bytes = found->bytes, .loc = found->loc, .age_ms = n->blocks++};
    uint32_t block_no;
    const int err = core_recover(n->core, &block, &block_no);
    return err == 0 ? block_no : err == KVC_E_FULL ? NVME_NO_ROOM : UINT32_MAX;
}

static void node_nvme_tell(const struct node_nvme *n, const struct nvme_report *r, uint64_t took_ns)
{
    char bytes[UNITS_TEXT_BYTES], took[UNITS_TEXT_BYTES], how[128] = "";
    if (r->rebuilt)
        (void)!snprintf(how, sizeof how,
                        ", found again from the tables (%u more had not been synced and are not "
                        "whole)",
                        r->blocks_torn);
    else if (r->extents_forward != 0)
        (void)!snprintf(how, sizeof how,
                        ", %u of them not in the journal yet (%u more blocks had not been synced)",
                        r->extents_forward, r->blocks_torn);
    if (r->fresh)
        LOG_INFO("nvme: a new store");
    else
        LOG_INFO("nvme: %u blocks, %s, in %u extents%s; %s", r->blocks,
                 units_format_bytes(r->bytes, bytes), r->extents, how,
                 units_format_duration_ns(took_ns, took));
    if (r->blocks_dropped || r->tables_damaged)
        LOG_WARN("nvme: %u blocks dropped, %u damaged tables passed over", r->blocks_dropped,
                 r->tables_damaged);
    if (r->blocks_gone)
        LOG_WARN(
            "nvme: %u blocks, %u of them stored durably, are gone: they were on a path that is "
            "not there any more, or behind what nvme.limit leaves of it",
            r->blocks_gone, r->durable_gone);
    if (n->ns_gone)
        LOG_WARN("nvme: what %u namespaces hold cannot be used: their principals are not in the "
                 "configuration, or secret_file is another",
                 n->ns_gone);
    if (r->note[0] != '\0')
        LOG_WARN("nvme: %s", r->note);
    if (n->cfg->nvme.segment != 0 && r->segment_bytes != n->cfg->nvme.segment)
        LOG_INFO("nvme.segment: the store was made with segments of %s and keeps them; another "
                 "size needs a new store",
                 units_format_bytes(r->segment_bytes, bytes));
}

int node_nvme_recover(struct node_nvme *n, core_who_fn *who, void *ctx, const bool *terminate)
{
    const struct nvme_recovery how = {.ctx = n,
                                      .pump = on_pump,
                                      .ns = on_ns,
                                      .soon = on_soon,
                                      .block = on_block,
                                      .approve = on_approve};
    struct nvme_report report = {0};
    n->begun_ns = n->told_ns = clock_now_ns();
    n->who = who;
    n->who_ctx = ctx;
    n->terminate = terminate;
    int err = nvme_recover(n->nvme, &how, &report);
    if (err == -ECANCELED)
        return err;
    if (err)
        LOG_ERROR("nvme: %s%s%s", err_name(err), report.note[0] != '\0' ? ": " : "", report.note);
    else
        node_nvme_tell(n, &report, clock_now_ns() - n->begun_ns);
    for (uint32_t i = 0; err == 0 && i < n->paths.n; i++) {
        const int cut = disk_file_cut(n->disk, i);
        if (cut < 0)
            LOG_WARN("nvme: what %s has behind nvme.limit cannot be cut off: %s",
                     disk_file_name(n->disk, i), err_name(cut));
        if ((report.paths_empty >> i & 1) == 0)
            continue;
        LOG_WARN("nvme: path %u is %s", i, n->paths.path[i].given);
        const int gave = disk_file_give_back(n->disk, i);
        if (gave < 0)
            LOG_WARN("nvme: the room of %s cannot be given back: %s", disk_file_name(n->disk, i),
                     err_name(gave));
    }
    return err;
}

/* ---- in the turn ---- */

#define LENGTHS_BYTES 160u
/* The least time between two lines about corrupt blocks of a path. A line counts all blocks found
 * since the last one. */
#define CORRUPT_NS 10000000000u

/* Writes the lengths of a path whose file was cut, for the log. */
static void lengths(const struct node_nvme *n, uint32_t path, int err, char text[LENGTHS_BYTES])
{
    text[0] = '\0';
    if (err == -ENODATA)
        (void)!snprintf(text, LENGTHS_BYTES, " (%llu bytes found, %llu expected)",
                        (unsigned long long)disk_file_length(n->disk, path),
                        (unsigned long long)disk_file_bytes(n->disk, path));
}

static void tell_corrupt(struct node_nvme *n, uint64_t now_ns)
{
    for (uint32_t i = 0; i < n->paths.n; i++) {
        const uint64_t all = nvme_path_corrupt(n->nvme, i), news = all - n->told_corrupt[i];
        if (news == 0 || now_ns < n->corrupt_due_ns[i])
            continue;
        LOG_WARN("nvme: %s: %llu blocks were not what had been stored there (%llu since the "
                 "start): they are dropped; look at the drive",
                 disk_file_name(n->disk, i), (unsigned long long)news, (unsigned long long)all);
        n->told_corrupt[i] = all;
        n->corrupt_due_ns[i] = now_ns + MIN(CORRUPT_NS, UINT64_MAX - now_ns);
    }
}

static void node_nvme_tell_out(const struct node_nvme *n, uint32_t path, int err)
{
    char found[LENGTHS_BYTES];
    const struct outage *why = outage_of(err_name(err));
    lengths(n, path, err, found);
    LOG_WARN_RATELIMITED(DISK_PATHS_MAX, "nvme: %s is out of service: %s%s%s%s; %s",
                         disk_file_name(n->disk, path), err_name(err),
                         why->what != NULL ? ": " : "", why->what != NULL ? why->what : "", found,
                         why->next);
}

static void tell_health(struct node_nvme *n)
{
    for (uint32_t i = 0; i < n->paths.n; i++) {
        const int err = nvme_path_error(n->nvme, i), told = n->told[i];
        n->told[i] = err;
        /* A more telling error may be found only after an I/O has failed; it is logged too. */
        if (err != 0 && err != told && (told == 0 || outage_of(err_name(err))->what != NULL))
            node_nvme_tell_out(n, i, err);
        else if (err == 0 && told != 0)
            LOG_INFO_RATELIMITED(DISK_PATHS_MAX, "nvme: %s is in service again",
                                 disk_file_name(n->disk, i));
    }
    const int err = nvme_journal_error(n->nvme);
    const char *what = outage_of(err_name(err))->what;
    if (err != 0 && n->told_journal == 0)
        LOG_ERROR("nvme: the journal in %s fails: %s%s%s; until a restart nothing is written",
                  n->paths.journal, err_name(err), what != NULL ? ": " : "",
                  what != NULL ? what : "");
    n->told_journal = err;
}

/* Logs that a new path is written once, its progress by quarters, and its end. */
static void tell_format(struct node_nvme *n, uint64_t now_ns)
{
    if (now_ns - n->format_told_ns < TELL_NS)
        return;
    n->format_told_ns = now_ns;
    for (uint32_t i = 0; i < n->paths.n; i++) {
        char all[UNITS_TEXT_BYTES], done[UNITS_TEXT_BYTES];
        struct nvme_path_stats s;
        nvme_path_stats(n->nvme, i, &s);
        const bool ended = s.state == NVME_PATH_UP;
        const uint8_t quarter =
            ended ? 4 : (uint8_t)(1 + MIN(s.formatted_bytes * 4 / MAX(s.bytes, 1), 2));
        const uint8_t before = n->format_told[i];
        if (s.state == NVME_PATH_OUT || quarter == before || (ended && before == 0))
            continue;
        units_format_bytes(s.bytes, all);
        n->format_told[i] = ended ? 0 : quarter;
        if (ended)
            LOG_INFO("nvme: %s: formatted, %s", disk_file_name(n->disk, i), all);
        else
            LOG_INFO("nvme: %s: formatting in the background, %s of %s; all of it is written once, "
                     "beside nvme.writes_per_day, and comes into use by and by ('kvcachectl stats "
                     "paths')",
                     disk_file_name(n->disk, i), units_format_bytes(s.formatted_bytes, done), all);
    }
}

void node_nvme_tick(struct node_nvme *n, uint64_t now_ns)
{
    if (n == NULL)
        return;
    nvme_tick(n->nvme, now_ns, wall_ns());
    tell_health(n);
    tell_corrupt(n, now_ns);
    tell_format(n, now_ns);
}

uint64_t node_nvme_next_ns(const struct node_nvme *n)
{
    return n != NULL ? nvme_next_ns(n->nvme) : UINT64_MAX;
}

void node_nvme_kick(struct node_nvme *n)
{
    struct tier *t = node_nvme_tier(n);
    if (t != NULL)
        t->storage->kick(t);
}

void node_nvme_stop(struct node_nvme *n)
{
    if (n == NULL)
        return;
    tell_corrupt(n, UINT64_MAX);
    nvme_stop(n->nvme);
}

bool node_nvme_is_quiet(const struct node_nvme *n)
{
    return n == NULL || nvme_is_quiet(n->nvme);
}

/* ---- what it counts ---- */

static uint8_t path_state(enum nvme_path_state state)
{
    return state == NVME_PATH_FORMATTING ? KVC_PATH_FORMATTING
           : state == NVME_PATH_UP       ? KVC_PATH_UP
                                         : KVC_PATH_OUT;
}

bool node_nvme_path(const struct node_nvme *n, uint32_t i, struct kvc_path *ret_path)
{
    struct nvme_path_stats s;
    if (i >= n->paths.n)
        return false;
    nvme_path_stats(n->nvme, i, &s);
    const char *name = disk_file_name(n->disk, i);
    const char *error = s.state == NVME_PATH_OUT ? err_name(s.error) : "";
    *ret_path = (struct kvc_path){.state = path_state(s.state),
                                  .bytes = s.bytes,
                                  .used_bytes = s.used_bytes,
                                  .formatted_bytes = s.formatted_bytes,
                                  .reads = s.reads,
                                  .writes = s.writes,
                                  .syncs = s.syncs,
                                  .read_bytes = s.read_bytes,
                                  .write_bytes = s.write_bytes,
                                  .errors = s.errors,
                                  .outs = s.outs,
                                  .queued = s.queued,
                                  .queued_bytes = s.queued_bytes,
                                  .read_p50_us = histo_quantile(s.read_ns, 0.5) / 1000,
                                  .read_p99_us = histo_quantile(s.read_ns, 0.99) / 1000,
                                  .read_max_us = s.read_ns->max / 1000,
                                  .write_p50_us = histo_quantile(s.write_ns, 0.5) / 1000,
                                  .write_p99_us = histo_quantile(s.write_ns, 0.99) / 1000,
                                  .write_max_us = s.write_ns->max / 1000};
    memcpy(ret_path->path, name, MIN(strlen(name), sizeof ret_path->path));
    memcpy(ret_path->error, error, MIN(strlen(error), sizeof ret_path->error));
    return true;
}

static uint64_t metric_of(const struct metric_set *set, const char *name)
{
    const int i = metric_find(set, name);
    MUST(i >= 0);
    return metric_value(set, (unsigned)i);
}

void node_nvme_writes(const struct node_nvme *n, struct kvc_writes *ret_writes)
{
    const struct metric_set set = nvme_metric_set(n->nvme);
    *ret_writes = (struct kvc_writes){.per_day_bytes = nvme_config_of(n->cfg).write_per_day,
                                      .spent_bytes = metric_of(&set, "budget_spent_bytes"),
                                      .left_bytes = metric_of(&set, "budget_left_bytes"),
                                      .accepted_bytes = metric_of(&set, "bytes_accepted"),
                                      .written_bytes = metric_of(&set, "bytes_written"),
                                      .kept_bytes = metric_of(&set, "bytes_kept"),
                                      .journal_bytes = metric_of(&set, "bytes_journal")};
}

struct metric_set node_nvme_metric_set(const struct node_nvme *n)
{
    return nvme_metric_set(n->nvme);
}
