/* SPDX-License-Identifier: Apache-2.0 */
#include "node.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc_count.h"
#include "attach.h"
#include "backing.h"
#include "clock.h"
#include "core_names.h"
#include "crash.h"
#include "flight.h"
#include "front.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "node_config.h"
#include "node_hbm.h"
#include "node_http.h"
#include "node_metrics.h"
#include "node_names.h"
#include "node_nvme.h"
#include "node_reload.h"
#include "node_tables.h"
#include "node_warm.h"
#include "notify.h"
#include "secret.h"
#include "staging.h"
#include "svc.h"
#include "sys.h"
#include "thread.h"
#include "topo.h"
#include "turn.h"
#include "units.h"

/* How often front_tick() ends messages that have been in progress for too long. */
#define TICK_NS           (1000ull * 1000 * 1000)
#define REQUESTS_PER_TURN 64u
#define FRONT_HWM         1024
#define LOOP_OPS_MAX      64u
#define END_TIMEOUT_NS    2000000000ull /* for copies in flight to end once sessions are gone */

struct staging_wait {
    struct node *node;
    uint64_t tag;
};

struct node {
    struct config *cfg;
    struct topo *topo;
    struct loop *loop;
    struct host *host;
    struct node_nvme *nvme;   /* NULL: no storage tier */
    struct node_hbm *hbm;     /* NULL: no devices */
    struct node_names *names; /* NULL: names end with the daemon */
    struct node_warm warm;
    struct staging_pool *staging;
    struct staging_wait *staging_waits; /* indexed by session number */
    struct core *core;
    struct svc *svc;
    struct front *front;
    struct prefault *prefault; /* touches tables; NULL: host.prefault is off */
    struct attach *attach;
    struct node_http *http; /* NULL: metrics.listen is empty */
    struct loop_watch front_watch, signal_watch;
    int signals;
    bool terminate, reload;         /* a signal asked for a stop, or a reload */
    bool started;                   /* all parts are there */
    uint64_t watchdog_ns, alive_ns; /* interval of signs of life, 0: none; time of the last one */
    bool abandoned;                 /* I/O that did not end may still touch memory: free nothing */
    uint64_t ready_ns, now_ns;
    struct node_metrics metrics;
    struct svc_principal principals[CONFIG_PRINCIPALS_MAX];
    struct core_identity identities[CONFIG_PRINCIPALS_MAX]; /* the principals as core knows them */
    uint32_t uids[CONFIG_PRINCIPALS_MAX * SVC_UIDS_MAX], nuids; /* of all principals */
    char attach_path[CONFIG_PATH_BYTES + 32];
    char endpoint[CONFIG_PATH_BYTES + 32];
    char policy_chosen[KVC_PARAMS_MAX];
};

/* ---- the ports that svc calls ---- */

static int port_reply(void *ctx, const uint8_t route[KVC_ROUTE_BYTES], const void *buf, size_t len)
{
    return front_send(((struct node *)ctx)->front, route, KVC_ROUTE_BYTES, buf, len);
}

static bool port_backlogged(void *ctx, const uint8_t route[KVC_ROUTE_BYTES])
{
    return front_backlogged(((const struct node *)ctx)->front, route, KVC_ROUTE_BYTES);
}

static void port_admit(void *ctx, const uint8_t route[KVC_ROUTE_BYTES], uid_t uid)
{
    front_admit(((struct node *)ctx)->front, route, uid);
}

static void port_dismiss(void *ctx, const uint8_t route[KVC_ROUTE_BYTES])
{
    front_dismiss(((struct node *)ctx)->front, route);
}

static int port_attach_send(void *ctx, uint32_t conn, const void *buf, size_t len, int fd)
{
    return attach_send(((struct node *)ctx)->attach, conn, buf, len, fd);
}

static void port_attach_close(void *ctx, uint32_t conn)
{
    attach_close(((struct node *)ctx)->attach, conn);
}

static void *port_keep(void *ctx, void *msg, const void **ret_buf)
{
    return front_keep(((struct node *)ctx)->front, msg, ret_buf);
}

static void port_unkeep(void *ctx, void *kept)
{
    front_unkeep(((struct node *)ctx)->front, kept);
}

static void on_staging(void *ctx, int err, struct staging *st)
{
    const struct staging_wait *wait = ctx;
    struct node *n = wait->node;
    if (err)
        svc_staging_ready(n->svc, wait->tag, err, NULL, -1, NULL, 0);
    else
        svc_staging_ready(n->svc, wait->tag, 0, st, st->fd, st->base, st->bytes);
}

/* A session has one staging area in the making at most. */
static int port_staging_make(void *ctx, uint64_t bytes, uint64_t tag)
{
    struct node *n = ctx;
    struct staging_wait *wait = &n->staging_waits[(uint32_t)tag];
    *wait = (struct staging_wait){.node = n, .tag = tag};
    return staging_request(n->staging, bytes, on_staging, wait);
}

static void port_staging_free(void *ctx, void *staging)
{
    struct node *n = ctx;
    struct staging *st = staging;
    staging_release(n->staging, &st);
}

static int port_words_make(void *ctx, uint64_t bytes, int *ret_fd, void **ret_base)
{
    (void)ctx;
    return node_hbm_words_make(bytes, ret_fd, ret_base);
}

static void port_words_free(void *ctx, void *base, uint64_t bytes)
{
    (void)ctx;
    node_hbm_words_free(base, bytes);
}

static void port_fd_close(void *ctx, int fd)
{
    (void)ctx;
    close(fd);
}

static int port_chunk_fd(void *ctx, uint32_t chunk, uint32_t principal, uint64_t *ret_bytes)
{
    return host_chunk_fd(((struct node *)ctx)->host, chunk, principal, ret_bytes);
}

static bool port_path(void *ctx, uint32_t i, struct kvc_path *ret_path)
{
    return node_nvme_path(((struct node *)ctx)->nvme, i, ret_path);
}

static void port_writes(void *ctx, struct kvc_writes *ret_writes)
{
    node_nvme_writes(((struct node *)ctx)->nvme, ret_writes);
}

static void port_refresh(void *ctx)
{
    struct node *n = ctx;
    if (n->nvme != NULL) /* the call brings the metrics up to date */
        (void)node_nvme_metric_set(n->nvme);
    node_hbm_refresh(n->hbm, n->core);
    node_metrics_refresh(&n->metrics, n->host, n->front);
    n->metrics.uptime_ms = (n->now_ns - n->ready_ns) / 1000000;
}

/* ---- callbacks of io ---- */

static int on_attach_open(void *ctx, uint32_t conn, uid_t uid, pid_t pid)
{
    struct node *n = ctx;
    return svc_attach_open(n->svc, conn, uid, pid);
}

static void on_attach_message(void *ctx, uint32_t conn, const void *buf, size_t len, int *fd)
{
    struct node *n = ctx;
    svc_attach_message(n->svc, conn, buf, len, fd);
}

static void on_attach_closed(void *ctx, uint32_t conn)
{
    struct node *n = ctx;
    svc_attach_closed(n->svc, conn);
}

static void on_request(void *ctx, const void *route, size_t route_len, const void *buf, size_t len,
                       void *msg)
{
    struct node *n = ctx;
    svc_request(n->svc, route, route_len, buf, len, msg);
}

static void on_retired(void *ctx, uint32_t chunk, uint32_t principal)
{
    struct node *n = ctx;
    n->metrics.chunks_retired++;
    svc_chunk_retired(n->svc, chunk, principal);
}

/* Only notes the wake-up: node_turn() receives the requests. */
static void on_front(struct loop_watch *w, uint32_t events)
{
    struct node *n = w->ctx;
    (void)events;
    front_woke(n->front);
}

static void dump_flight(struct node *n)
{
    char path[CONFIG_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/flight.txt", n->cfg->runtime_dir);
    /* The dump names sessions, uids and keys: only the daemon's uid may read it, also an old file.
     */
    int fd = sys_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    int err = fd < 0 || fchmod(fd, 0600) != 0 ? -errno : flight_dump(fd);
    if (fd >= 0 && close(fd) != 0 && err >= 0)
        err = -errno;
    if (err < 0)
        LOG_ERROR("flight recorder: %s: %s", path, err_name(err));
    else
        LOG_INFO("flight recorder written to %s", path);
}

static void node_on_signal(struct loop_watch *w, uint32_t events)
{
    struct node *n = w->ctx;
    struct signalfd_siginfo info;
    (void)events;
    while (read(n->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGQUIT)
            dump_flight(n);
        else if (info.ssi_signo == SIGHUP)
            n->reload = true;
        else
            n->terminate = true;
        svc_audit_signal(n->svc, info.ssi_uid, (int)info.ssi_pid,
                         info.ssi_signo == SIGQUIT  ? "flight recorder"
                         : info.ssi_signo == SIGHUP ? "reload"
                                                    : "stop");
    }
}

/* ---- the turn ---- */

static void tell_manager(int rc)
{
    if (rc < 0)
        LOG_WARN_RATELIMITED(10, "service manager: %s", err_name(rc));
}

/* The manager restarts a daemon whose turn hangs. */
static void sign_of_life(struct node *n)
{
    if (n->watchdog_ns == 0 || n->now_ns - n->alive_ns < n->watchdog_ns)
        return;
    n->alive_ns = n->now_ns;
    tell_manager(notify_watchdog());
}

/* Runs after the wait and before the first callback: reads the clock, and begins the turn. */
static void on_woke(void *ctx)
{
    struct node *n = ctx;
    n->now_ns = clock_now_ns();
    if (!n->started) /* at start the loop turns for what is read from storage */
        return;
    turn_begin(n->now_ns);
    core_tick(n->core, n->now_ns);
    node_nvme_tick(n->nvme, n->now_ns);
    front_tick(n->front, n->now_ns);
    svc_turn_begin(n->svc, n->now_ns);
    n->metrics.turns++;
    sign_of_life(n);
}

/* Measures the turn: its length and its processor time. */
static void turn_measure(struct node *n)
{
    const struct turn_times t = turn_end(TURN_LONG_NS);
    histo_add(&n->metrics.turn_ns, t.ns);
    histo_add(&n->metrics.turn_cpu_ns, t.cpu_ns);
}

static int64_t wait_ns(const struct node *n, bool more)
{
    if (more)
        return 0;
    uint64_t next = MIN(svc_next_ns(n->svc), n->now_ns + TICK_NS);
    next = MIN(next, node_nvme_next_ns(n->nvme));
    next = MIN(next, core_next_ns(n->core));
    if (n->watchdog_ns != 0)
        next = MIN(next, n->alive_ns + n->watchdog_ns);
    return next > n->now_ns ? (int64_t)(next - n->now_ns) : 0;
}

/* One turn; *more: there is work left that needs no wake-up. `until` bounds the wait. */
static int node_turn(struct node *n, uint64_t until_ns, bool *more)
{
    int64_t wait = wait_ns(n, *more);
    if (until_ns != UINT64_MAX) {
        int64_t left = until_ns > n->now_ns ? (int64_t)(until_ns - n->now_ns) : 0;
        wait = wait < 0 ? left : MIN(wait, left);
    }
    int rc = loop_turn(n->loop, wait);
    if (rc < 0)
        return rc;
    host_turn(n->host);
    turn_piece(TURN_READY, 0, 0);
    if (!front_idle(n->front))
        front_receive(n->front, REQUESTS_PER_TURN, on_request, n);
    turn_piece(TURN_WOKEN, 0, core_run_done(n->core));
    *more = core_background_step(n->core);
    svc_turn_end(n->svc);
    node_warm_turn(&n->warm);
    node_names_turn(n->names, n->core);
    node_nvme_kick(n->nvme);
    /* Must come after the last receive and send: they may have taken the socket's wake-up. */
    if ((!front_idle(n->front) && front_more(n->front)) || core_has_done(n->core) ||
        core_has_steps(n->core) || host_is_due(n->host))
        *more = true;
    turn_measure(n);
    return 0;
}

static bool is_quiet(const struct node *n)
{
    return svc_is_quiet(n->svc);
}

static bool is_empty(const struct node *n)
{
    return svc_is_empty(n->svc);
}

static bool is_stored(const struct node *n)
{
    return core_names_is_quiet(n->core) && node_nvme_is_quiet(n->nvme) && core_is_still(n->core);
}

static int run_until(struct node *n, uint64_t until_ns, bool (*done)(const struct node *))
{
    bool more = true;
    int rc = 0;
    while (!rc && !done(n) && n->now_ns < until_ns)
        rc = node_turn(n, until_ns, &more);
    return rc;
}

/* Makes the blocks that were put so far durable. I/O that a drive does not answer cannot be
 * cancelled: the kernel ends it with the process, whose memory and locks last until then. */
static int stop_storage(struct node *n)
{
    core_stop(n->core);
    node_nvme_stop(n->nvme);
    int rc = run_until(n, n->now_ns + MAX(n->cfg->drain.timeout, END_TIMEOUT_NS), is_stored);
    if (rc || is_stored(n))
        return rc;
    LOG_ERROR("I/O on nvme.paths, or a copy from there, did not end; leaving all the same");
    n->abandoned = true;
    return -EBUSY;
}

int node_run(struct node *n)
{
    bool more = true;
    int rc = 0;
    (void)turn_end(UINT64_MAX); /* the time of the start belongs to no turn */
    while (!rc && !n->terminate && !node_hbm_ends(n->hbm, n->cfg)) {
        rc = node_turn(n, UINT64_MAX, &more);
        if (n->reload)
            node_reload(n->cfg, n->core);
        n->reload = false;
    }
    if (rc) {
        LOG_ERROR("loop: %s", err_name(rc));
        return rc;
    }
    LOG_INFO("stopping: finishing what is in flight, at most %llu ms",
             (unsigned long long)(n->cfg->drain.timeout / 1000000));
    tell_manager(notify_stopping());
    node_http_stopping(n->http);
    attach_stop(n->attach);
    svc_shutdown(n->svc);
    rc = run_until(n, n->now_ns + n->cfg->drain.timeout, is_quiet);
    if (!rc && !svc_is_quiet(n->svc))
        LOG_WARN("requests were still in flight after drain.timeout");
    svc_end_all(n->svc);
    if (!rc)
        rc = run_until(n, n->now_ns + END_TIMEOUT_NS, is_empty);
    if (!rc && !svc_is_empty(n->svc)) {
        LOG_ERROR("copies did not end; leaving all the same");
        n->abandoned = true;
        return -EBUSY;
    }
    if (!rc)
        rc = stop_storage(n);
    if (!rc)
        LOG_INFO("stopped");
    return rc == 0 && !n->terminate ? -EIO : rc; /* -EIO: a lost device ended the loop */
}

/* ---- setup list and its mirror ---- */

static int start_signals(struct node *n)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGHUP);
    /* A closed peer, and a file that may not grow (RLIMIT_FSIZE), are reported by the calls. */
    static const int ignored[] = {SIGPIPE, SIGXFSZ, SIGUSR1, SIGUSR2};
    for (unsigned i = 0; i < ARRAY_LEN(ignored); i++)
        if (signal(ignored[i], SIG_IGN) == SIG_ERR)
            return -errno;
    if (sigprocmask(SIG_BLOCK, &set, NULL))
        return -errno; /* threads that start later inherit the mask */
    n->signals = sys_signalfd(&set, SFD_NONBLOCK);
    return n->signals < 0 ? -errno : 0;
}

static int start_manager(struct node *n)
{
    n->watchdog_ns = notify_watchdog_interval_ns() / 2;
    return node_warm_take(&n->warm);
}

static int start_flight(struct node *n)
{
    int err = flight_init(NODE_FLIGHT_THREADS, n->cfg->flight.records);
    if (err)
        return err;
    err_set_must_hook(flight_dump_stderr);
    crash_init(flight_dump_stderr);
    return flight_thread("control");
}

static int start_topo(struct node *n)
{
    return topo_create(NULL, &n->topo);
}

/* Raises the limit of descriptors to the hard limit, which node_check() has found sufficient. */
static int start_descriptors(struct node *n)
{
    (void)n;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return -errno;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) ? -errno : 0;
}

static int start_dir(struct node *n)
{
    const char *dir = n->cfg->runtime_dir;
    if (mkdir(dir, 0755) && errno != EEXIST) {
        LOG_ERROR("%s: %s", dir, strerror(errno));
        return -errno;
    }
    snprintf(n->attach_path, sizeof n->attach_path, "%s/attach.sock", dir);
    snprintf(n->endpoint, sizeof n->endpoint, "ipc://%s/control.sock", dir);
    return 0;
}

static int start_loop(struct node *n)
{
    /* Two watches per session (connection, process), and a handful of the daemon's own. */
    struct loop_config cfg = {.want = (enum loop_backend)n->cfg->loop.backend,
                              .io_threads = n->cfg->loop.io_threads,
                              .watches_max =
                                  2 * node_conns_max(n->cfg) + 16 + node_nvme_loop_watches(n->cfg) +
                                  node_hbm_loop_watches(n->cfg) + node_names_loop_watches(n->cfg),
                              .ops_max = LOOP_OPS_MAX + node_nvme_loop_ops(n->cfg),
                              .buffers_max = node_buffers(n->cfg),
                              .woke = on_woke,
                              .ctx = n};
    int err = loop_create(&cfg, &n->loop);
    if (err) {
        LOG_ERROR("loop: %s", err_name(err));
        return err;
    }
    LOG_INFO("loop: %s (%s)", loop_backend_name(n->loop), loop_backend_reason(n->loop));
    n->signal_watch =
        (struct loop_watch){.fn = node_on_signal, .ctx = n, .fd = n->signals, .events = EPOLLIN};
    return loop_watch_add(n->loop, &n->signal_watch);
}

/* Started early, so that /healthz answers while the daemon reads storage. */
static int start_http(struct node *n)
{
    return node_http_open(n->cfg, n->loop, &n->http);
}

/* What an operator can do when the host tier cannot be made (err). */
static const char *host_hint(const struct config *cfg, int err, char *text, uint32_t cap)
{
    if (err == -ENOMEM && cfg->host.huge_pages == CONFIG_HUGE_REQUIRE)
        return "not enough huge pages; raise vm.nr_hugepages, or set host.huge_pages to try";
    if (cfg->host.persist[0] != '/')
        return NULL;
    switch (err) {
    case -EBUSY:
        return "another kvcache-daemon keeps its memory in host.persist; stop it, or give this one "
               "a directory of its own";
    case -EINVAL:
        return backing_dir_problem(cfg->host.persist, text, cap);
    case -ENOSPC:
        return "the file system of host.persist must have room for host.limit and about a tenth "
               "more";
    case -EEXIST:
        return backing_stranger(cfg->host.persist, text, cap);
    default:
        return NULL;
    }
}

static int start_host(struct node *n)
{
    char text[512];
    struct host_config cfg = node_host_config(n->cfg, n->topo);
    cfg.buffers = node_buffers(n->cfg);
    node_warm_config(&n->warm, n->cfg, &cfg);
    int err = host_create(&cfg, n->loop, &n->host);
    if (err) {
        const char *hint = host_hint(n->cfg, err, text, sizeof text);
        LOG_ERROR("host tier: %s%s%s", err_name(err), hint ? ": " : "", hint ? hint : "");
        return err;
    }
    node_warm_taken(&n->warm);
    if (strcmp(n->cfg->host.persist, "systemd") == 0 && !notify_is_managed())
        LOG_WARN("host.persist: systemd: there is no service manager here (NOTIFY_SOCKET is not "
                 "set): memory ends with this run");
    host_set_retired_cb(n->host, on_retired, n);
    for (unsigned i = 0; host_note(n->host, i); i++)
        LOG_INFO("%s", host_note(n->host, i));
    return 0;
}

static int start_staging(struct node *n)
{
    struct staging_config cfg = {.count_max = n->cfg->limits.sessions,
                                 .one_max_bytes = n->cfg->staging.session_max,
                                 .total_bytes = n->cfg->staging.total,
                                 .huge_pages = n->cfg->host.huge_pages != CONFIG_HUGE_OFF};
    n->staging_waits = sys_calloc(n->cfg->limits.sessions, sizeof *n->staging_waits);
    if (!n->staging_waits)
        return -ENOMEM;
    return staging_pool_create(&cfg, n->loop, &n->staging);
}

static int start_devices(struct node *n)
{
    return node_hbm_open(n->cfg, n->loop, n->host, on_retired, n, &n->hbm);
}

/* Starts after the host tier, whose locks must be held before data of the last run is read. */
static int start_nvme(struct node *n)
{
    if (n->cfg->nvme.paths[0] == '\0')
        return 0;
    return node_nvme_open(n->cfg, n->loop, clock_now_ns(), &n->nvme);
}

static int start_names(struct node *n)
{
    return node_names_open(n->cfg, n->loop, &n->names);
}

static int start_principals(struct node *n)
{
    node_principals(n->cfg, n->principals);
    n->nuids = node_uids(n->cfg, n->uids);
    for (uint32_t i = 0; i < n->cfg->nprincipals; i++)
        n->identities[i] = (struct core_identity){.principal = i + 1,
                                                  .name = n->principals[i].name,
                                                  .tenant = n->principals[i].tenant,
                                                  .gateway = n->principals[i].gateway,
                                                  .admin = n->principals[i].admin};
    return 0;
}

static const struct core_identity *who(void *ctx, const char *principal)
{
    const struct node *n = ctx;
    for (uint32_t i = 0; i < n->cfg->nprincipals; i++)
        if (strcmp(n->identities[i].name, principal) == 0)
            return &n->identities[i];
    return NULL;
}

/* Warns of shares that storage cannot hold, as it is smaller while a path is out. */
static void tell_shares(struct node *n)
{
    char all[UNITS_TEXT_BYTES], there[UNITS_TEXT_BYTES];
    const uint64_t most = core_tier_shareable(n->core, 1),
                   sum = core_quota_promised(n->core, 1, NULL);
    if (sum > most)
        LOG_WARN("quotas: nvme_share is %s in all, and of storage as it is %s can be guaranteed: "
                 "of each share that part is kept; lower them, or give storage more room",
                 units_format_bytes(sum, all), units_format_bytes(most, there));
}

/* Recovers what the last run has left in memory, on storage and in the journal of names. */
static int start_recovery(struct node *n)
{
    int err = 0;
    core_tick(n->core, clock_now_ns()); /* ages count from now */
    node_warm_recover(&n->warm, n->host, n->core, who, n);
    node_nvme_set_core(n->nvme, n->core);
    if (n->nvme != NULL)
        err = node_nvme_recover(n->nvme, who, n, &n->terminate);
    if (err)
        return err;
    if (n->nvme != NULL || n->warm.on) {
        const uint32_t blocks = core_recover_end(n->core);
        LOG_INFO("%u blocks are there from before", blocks);
    }
    tell_shares(n);
    return node_names_recover(n->names, n->core, who, n);
}

static int start_core(struct node *n)
{
    struct core_config cfg = node_core_config(n->cfg);
    cfg.tier[CORE_HOST] = host_tier(n->host);
    cfg.tier[CORE_STORAGE] = node_nvme_tier(n->nvme);
    cfg.devices = node_hbm_devices(n->hbm, &cfg.ndevices);
    int err = secret_load(n->cfg->secret_file, &cfg.secret);
    if (err)
        return err;
    err = core_create(&cfg, &n->core);
    if (err)
        return err;
    LOG_INFO("index: %u blocks, %.1f bytes each, eviction %s", cfg.blocks_max,
             core_bytes_per_block(&cfg), cfg.policy->name);
    return node_quotas_set(n->cfg, n->core);
}

static int start_svc(struct node *n)
{
    struct svc_config cfg = node_svc_config(n->cfg);
    cfg.endpoint = n->endpoint;
    cfg.principals = n->principals;
    cfg.nprincipals = n->cfg->nprincipals;
    cfg.devices = node_hbm_devices(n->hbm, &cfg.ndevices);
    config_origin_text(n->cfg, "policy.eviction", n->policy_chosen, sizeof n->policy_chosen);
    cfg.policy_chosen = n->policy_chosen;
    struct metric_set sets[DEVICES_MAX];
    const uint32_t nsets = node_hbm_metric_sets(n->hbm, sets);
    struct svc_ports ports = {.ctx = n,
                              .reply = port_reply,
                              .backlogged = port_backlogged,
                              .admit = port_admit,
                              .dismiss = port_dismiss,
                              .attach_send = port_attach_send,
                              .attach_close = port_attach_close,
                              .keep = port_keep,
                              .unkeep = port_unkeep,
                              .staging_make = port_staging_make,
                              .staging_free = port_staging_free,
                              .refresh = port_refresh,
                              .words_make = port_words_make,
                              .words_free = port_words_free,
                              .fd_close = port_fd_close,
                              .chunk_fd = port_chunk_fd,
                              .path = n->nvme != NULL ? port_path : NULL,
                              .writes = n->nvme != NULL ? port_writes : NULL};
    int err = svc_create(&cfg, n->core, &ports, &n->svc);
    if (!err)
        svc_add_metrics(n->svc, node_metric_set(&n->metrics));
    if (!err && n->nvme != NULL)
        svc_add_metrics(n->svc, node_nvme_metric_set(n->nvme));
    for (uint32_t i = 0; !err && i < nsets; i++)
        svc_add_metrics(n->svc, sets[i]);
    return err;
}

static int start_front(struct node *n)
{
    struct front_config cfg = {.endpoint = n->endpoint,
                               .mode = n->cfg->socket_mode,
                               .message_max = KVC_MESSAGE_MAX,
                               .hwm = FRONT_HWM,
                               .peers_max = n->cfg->limits.sessions,
                               .uids = n->uids,
                               .nuids = n->nuids,
                               .kept_max = n->cfg->limits.waiters};
    /* ZeroMQ's threads inherit the setting. Copy threads, which take whole processors, have
     * started before and do not. */
    int err = thread_prompt();
    if (err)
        LOG_WARN("threads that answer are scheduled like those that copy: %s", err_name(err));
    err = front_create(&cfg, &n->front);
    if (err)
        return err;
    n->front_watch =
        (struct loop_watch){.fn = on_front, .ctx = n, .fd = front_fd(n->front), .events = EPOLLIN};
    return loop_watch_add(n->loop, &n->front_watch);
}

static int start_tables(struct node *n)
{
    return !n->cfg->host.prefault ? 0 : node_tables_touch(n->core, n->svc, n->front, &n->prefault);
}

static int start_pages(struct node *n)
{
    struct node_http_source source = {
        .refresh = port_refresh, .ctx = n, .fresh_ns = NODE_HTTP_FRESH_NS};
    source.sets = svc_metric_sets(n->svc, &source.nsets);
    return node_http_ready(n->http, &source);
}

static int start_attach(struct node *n)
{
    /* One connection more than svc takes: a peer that gets no session is told so. */
    struct attach_config cfg = {.path = n->attach_path,
                                .mode = n->cfg->socket_mode,
                                .conns_max = node_conns_max(n->cfg) + 1};
    struct attach_handlers on = {.ctx = n,
                                 .opened = on_attach_open,
                                 .message = on_attach_message,
                                 .closed = on_attach_closed};
    return attach_create(&cfg, n->loop, &on, &n->attach);
}

/* Bottom-up. Before "control socket" comes "attach socket", which fails in a second daemon, so that
 * the first one's control socket stays. Then only tables and the readiness of pages are left. */
static const struct {
    const char *name;
    int (*start)(struct node *n);
} setup[] = {
    {"signals", start_signals},
    {"service manager", start_manager},
    {"flight recorder", start_flight},
    {"topology", start_topo},
    {"descriptors", start_descriptors},
    {"runtime directory", start_dir},
    {"loop", start_loop},
    {"metrics", start_http},
    {"host tier", start_host},
    {"devices", start_devices},
    {"staging", start_staging},
    {"storage tier", start_nvme},
    {"names", start_names},
    {"principals", start_principals},
    {"core", start_core},
    {"recovery", start_recovery},
    {"services", start_svc},
    {"attach socket", start_attach},
    {"control socket", start_front},
    {"tables", start_tables},
    {"metrics", start_pages},
};

int node_start(struct config *cfg, struct node **ret_node)
{
    struct node *n = sys_calloc(1, sizeof *n);
    if (!n) {
        LOG_ERROR("cannot start: %s", err_name(-ENOMEM));
        return -ENOMEM;
    }
    n->cfg = cfg;
    n->signals = -1;
    for (unsigned i = 0; i < ARRAY_LEN(setup); i++) {
        int err = setup[i].start(n);
        if (!err && n->loop != NULL)
            node_on_signal(&n->signal_watch, 0);
        if (!err && n->terminate)
            err = -ECANCELED;
        if (!err)
            continue;
        if (err == -ECANCELED)
            LOG_INFO("told to stop before it was ready; stopped");
        else
            LOG_ERROR("cannot start: %s: %s", setup[i].name, err_name(err));
        node_stop(&n);
        return err;
    }
    n->started = true;
    n->ready_ns = clock_now_ns();
    on_woke(n);
    LOG_INFO("ready: pid %d, attach socket %s", (int)getpid(), n->attach_path);
    tell_manager(notify_ready());
    alloc_count_arm();
    *ret_node = n;
    return 0;
}

void node_stop(struct node **node)
{
    struct node *n = *node;
    if (!n)
        return;
    prefault_destroy(&n->prefault);
    node_http_close(&n->http);
    if (n->front)
        loop_watch_del(n->loop, &n->front_watch);
    if (n->front && unlink(strchr(n->endpoint, '/') + 2) && errno != ENOENT)
        LOG_WARN("%s stays behind: %s", n->endpoint, strerror(errno));
    front_destroy(&n->front);
    attach_destroy(&n->attach);
    svc_destroy(&n->svc);
    if (n->abandoned ||
        (n->core &&
         !core_is_still(n->core))) { /* the process ends without freeing memory of that I/O */
        *node = NULL;
        return;
    }
    if (n->core)
        core_names_stop(n->core);
    node_names_close(&n->names);
    core_destroy(&n->core);
    node_hbm_close(&n->hbm);
    node_nvme_close(&n->nvme);
    staging_pool_destroy(&n->staging);
    host_destroy(&n->host);
    if (n->loop)
        loop_watch_del(n->loop, &n->signal_watch);
    loop_destroy(&n->loop);
    topo_destroy(&n->topo);
    node_warm_close(&n->warm);
    if (n->signals >= 0)
        close(n->signals);
    free(n->staging_waits);
    free(n);
    *node = NULL;
}
