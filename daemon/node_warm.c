/* SPDX-License-Identifier: Apache-2.0 */
#include "node_warm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hash.h"
#include "log.h"
#include "notify.h"
#include "sys.h"

/* How long the memory of a daemon that was killed may take to be unmapped. */
#define WAIT_NS UINT64_C(10000000000)
/* Namespaces looked at in one turn. */
#define PRINTS_PER_TURN 32u
/* Turns between two searches of memory that was cut: blocks in use are dropped by a later one. */
#define LOST_TURNS 64u

/* ---- the service manager's descriptors ---- */

static void on_fd(void *ctx, const char *name, int fd)
{
    struct node_warm *w = ctx;
    if (w->nfds == w->fds_cap) {
        const uint32_t cap = w->fds_cap ? 2 * w->fds_cap : 64;
        struct backing_fd *more = sys_realloc(w->fds, cap * sizeof *more);
        if (!more) {
            LOG_WARN("host.persist: no memory for a descriptor that was kept (%s)", name);
            close(fd);
            return;
        }
        w->fds = more;
        w->fds_cap = cap;
    }
    struct backing_fd *at = &w->fds[w->nfds++];
    at->fd = fd;
    (void)!snprintf(at->name, sizeof at->name, "%s", name);
}

int node_warm_take(struct node_warm *w)
{
    const int n = notify_take_fds(on_fd, w);
    if (n == -ENOMEM) {
        LOG_ERROR("descriptors of the service manager: %s", err_name(n));
        return n;
    }
    if (n < 0) /* the environment is not as sd_listen_fds(3) says */
        LOG_WARN("descriptors of the service manager: %s: LISTEN_FDS, LISTEN_PID or LISTEN_FDNAMES "
                 "is not right; none is taken, and host memory begins empty",
                 err_name(n));
    return 0;
}

void node_warm_taken(struct node_warm *w)
{
    for (uint32_t i = 0; i < w->nfds; i++) {
        if (w->fds[i].fd < 0)
            continue;
        const int err = notify_remove_fd(w->fds[i].name);
        if (err < 0)
            LOG_WARN("the service manager keeps %s: %s", w->fds[i].name, err_name(err));
        close(w->fds[i].fd);
        w->fds[i].fd = -1;
    }
}

void node_warm_close(struct node_warm *w)
{
    for (uint32_t i = 0; i < w->nfds; i++)
        if (w->fds[i].fd >= 0)
            close(w->fds[i].fd);
    free(w->fds);
    w->fds = NULL;
    w->nfds = w->fds_cap = 0;
}

static int on_store(void *ctx, const char *name, int fd)
{
    (void)ctx;
    const int rc = notify_store_fd(name, fd);
    return rc == 0 ? -ENOTCONN : MIN(rc, 0); /* 0: there is no manager */
}

static void on_remove(void *ctx, const char *name)
{
    (void)ctx;
    const int rc = notify_remove_fd(name);
    if (rc < 0)
        LOG_WARN("the service manager cannot be told to let go of %s: %s", name, err_name(rc));
}

static void on_wait(void *ctx)
{
    (void)ctx;
    LOG_INFO("host.persist: another process has the directory; waiting up to %u s for it to let go",
             (unsigned)(WAIT_NS / 1000000000));
}

/* ---- configuration ---- */

static int compare_uids(const void *a, const void *b)
{
    const uid_t x = *(const uid_t *)a, y = *(const uid_t *)b;
    return x < y ? -1 : x > y;
}

/* All uids of a principal map its chunks, so a principal with other uids counts as another one. */
static uint64_t print_of(const struct config_principal *p)
{
    struct {
        char name[CONFIG_NAME_BYTES];
        uid_t uids[CONFIG_UIDS_MAX];
    } id;
    memset(&id, 0, sizeof id);
    memcpy(id.name, p->name, strnlen(p->name, sizeof id.name - 1));
    memcpy(id.uids, p->uids, p->nuids * sizeof id.uids[0]);
    qsort(id.uids, p->nuids, sizeof id.uids[0], compare_uids);
    const uint64_t print = hash_u64(&id, sizeof id, p->nuids);
    return print != 0 ? print : 1;
}

/* Such a process may open its memory again for writing. It then changes what others read, and no
 * generation shows the change. */
static void warn_of_writers(const struct config *cfg)
{
    for (unsigned i = 0; i < cfg->nprincipals; i++) {
        const struct config_principal *p = &cfg->principals[i];
        for (unsigned j = 0; j < p->nuids; j++) {
            if (p->uids[j] != geteuid() && p->uids[j] != 0)
                continue;
            LOG_WARN("host.persist: memory that is kept cannot be sealed: workers of uid %u "
                     "(principal %s), the daemon's own or root, can write into blocks that others "
                     "read; run the daemon as a user that no worker has, or set host.persist to "
                     "off",
                     (unsigned)p->uids[j], p->name);
        }
    }
}

void node_warm_config(struct node_warm *w, const struct config *cfg, struct host_config *ret)
{
    if (strcmp(cfg->host.persist, "off") == 0)
        return;
    w->on = true;
    warn_of_writers(cfg);
    for (unsigned i = 0; i < cfg->nprincipals; i++)
        w->prints[i + 1] = print_of(&cfg->principals[i]);
    ret->arena.backing.persist =
        cfg->host.persist[0] == '/' ? ARENA_PERSIST_DIR : ARENA_PERSIST_FDS;
    ret->arena.backing.dir = cfg->host.persist;
    ret->arena.backing.wait_ms = WAIT_NS / 1000000;
    ret->arena.backing.waits = on_wait;
    ret->arena.backing.fds = w->fds;
    ret->arena.backing.nfds = w->nfds;
    ret->arena.backing.store = on_store;
    ret->arena.backing.remove = on_remove;
    ret->arena.names_max = cfg->limits.namespaces;
    ret->arena.prints = w->prints;
    ret->arena.nprints = cfg->nprincipals + 1;
}

static bool on_ns(void *ctx, uint64_t print, const uint8_t *record, uint32_t bytes)
{
    struct node_warm *w = ctx;
    (void)print;
    return core_ns_restore(w->core, record, bytes, w->who, w->who_ctx) == 0;
}

static uint32_t on_block(void *ctx, const struct arena_found *found)
{
    struct node_warm *w = ctx;
    const struct core_found block = {
        .label = found->label, .bytes = found->bytes, .loc = found->loc, .in_host = true};
    uint32_t block_no;
    return core_recover(w->core, &block, &block_no) == 0 ? block_no : UINT32_MAX;
}

void node_warm_recover(struct node_warm *w, struct host *host, struct core *core, core_who_fn *who,
                       void *ctx)
{
    const struct host_recovery how = {.ctx = w, .ns = on_ns, .block = on_block};
    struct arena_recovery report;
    w->core = core;
    w->host = host;
    if (!w->on)
        return;
    w->who = who;
    w->who_ctx = ctx;
    host_recover(host, &how, &report);
    for (unsigned i = 0; host_recovery_note(host, i); i++)
        LOG_INFO("%s", host_recovery_note(host, i));
}

static void node_warm_put(struct node_warm *w, uint64_t print)
{
    uint8_t record[CORE_NS_RECORD_MAX];
    if (host_names_has(w->host, print))
        return;
    const uint32_t bytes = core_ns_record(w->core, print, record);
    const int err = bytes > 0 ? host_names_put(w->host, print, record, bytes) : 0;
    if (err && !w->is_full)
        LOG_WARN("host.persist: a namespace cannot be noted (%s): its blocks in memory end with "
                 "this run",
                 err_name(err));
    w->is_full |= err != 0;
}

static void node_warm_on_lost(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    const struct node_warm *w = ctx;
    (void)loc;
    core_host_lost(w->core, block_no);
}

static void lost_turn(struct node_warm *w)
{
    if (w->lost_pause > 0 && host_has_lost(w->host) != ARENA_LOSS_NEW) {
        w->lost_pause--;
        return;
    }
    const uint32_t n = host_lost(w->host, node_warm_on_lost, w);
    w->lost_pause = LOST_TURNS;
    if (n > 0)
        LOG_ERROR_RATELIMITED(4,
                              "host memory: another process made %u chunks shorter, or their file "
                              "system lost pages: what was in them is dropped. Only processes of "
                              "uid %u and of root can do that: let workers have another uid",
                              n, (unsigned)geteuid());
}

void node_warm_turn(struct node_warm *w)
{
    uint64_t prints[PRINTS_PER_TURN];
    if (w->core != NULL && host_has_lost(w->host) != ARENA_LOSS_NONE)
        lost_turn(w);
    if (!w->on || w->core == NULL)
        return;
    if (!w->is_walking && core_ns_changes(w->core) == w->seen)
        return;
    if (!w->is_walking) {
        w->is_walking = true;
        w->walking = core_ns_changes(w->core);
        w->cursor = 0;
    }
    const uint32_t n = core_ns_prints(w->core, &w->cursor, prints, PRINTS_PER_TURN);
    for (uint32_t i = 0; i < n; i++)
        node_warm_put(w, prints[i]);
    if (n == PRINTS_PER_TURN)
        return;
    host_names_sweep(w->host);
    w->is_walking = false;
    w->seen = w->walking;
}
