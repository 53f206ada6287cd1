/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak: a real daemon and a churn of workers doing mixed work, for minutes or for hours.
 *
 * Workers come and go; some are stopped for a while, some are killed with SIGKILL. Each compares
 * every byte that it reads and counts requests and replies. What must hold is in README.md.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "soak.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define STEP_MS      50u
#define WORKERS_MIN  2u
#define WORKERS_MAX  4u
#define SAMPLES_MAX  100000u
#define RSS_SLACK    (1u << 20)
#define FLAT_MINUTES 5u /* in less, the peak of each quarter is chance */
#define FDS_SLACK    8u

static const char *const sets[] = {
    "host.limit=64MiB",     "host.chunk=8MiB",          "host.huge_pages=off",
    "staging.total=40MiB",  "staging.session_max=8MiB", "index.blocks=4096",
    "limits.sessions=16",   "limits.leases=48",         "limits.waiters=48",
    "limits.namespaces=24", "log.level=warn",           NULL};

static struct options {
    double minutes, interval; /* the latter in seconds */
    uint64_t seed;
    bool json;
} options = {.minutes = 1, .interval = 10};

static struct rig rig;
static struct soak_shared *shared;
static int shared_fd;
static struct kvc *admin;
static uint64_t seed, started_ms;

/* ---- workers ---- */

static struct {
    pid_t pid; /* 0: free */
    uint64_t stopped_until_ms;
    bool killed;
} worker[SOAK_SLOTS];

/* Of workers that are gone. */
static struct {
    uint64_t sent, replied, late, hit, stored, refused, stale, wrong, faults;
    uint64_t unanswered; /* of those that were not killed */
    uint64_t workers, kills, stops, failed;
} total;

static uint64_t dice(uint64_t n)
{
    return soak_random(&seed) % n;
}

static void spawn(unsigned i)
{
    static const uint32_t uids[] = {0, 1001, 1002, 1003};
    struct soak_slot *s = &shared->slot[i];
    memset(s, 0, sizeof *s);
    s->role = dice(6) == 0 ? SOAK_ROGUE : dice(4) == 0 ? SOAK_AUDIT : SOAK_TALK;
    s->uid = geteuid() == 0 ? uids[dice(4)] : geteuid();
    s->seed = soak_random(&seed) | 1;
    s->life_ms = 500 + dice(6000);
    worker[i].killed = false;
    worker[i].stopped_until_ms = 0;
    worker[i].pid = rig_spawn(&rig, "worker", (uint64_t)shared_fd << 8 | i);
    total.workers++;
}

static void add_up(unsigned i, int status)
{
    const struct soak_slot *s = &shared->slot[i];
    total.sent += s->sent;
    total.replied += s->replied;
    total.late += s->late;
    total.hit += s->blocks_hit;
    total.stored += s->blocks_stored;
    total.refused += s->refused;
    total.stale += s->stale;
    total.wrong += s->wrong;
    total.faults += s->faults;
    if (worker[i].killed)
        return;
    total.unanswered += s->sent - s->replied;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "worker of role %u, uid %u, seed %llu ended with status %x\n", s->role,
                s->uid, (unsigned long long)s->seed, (unsigned)status);
        total.failed++;
    }
}

static unsigned reap(void)
{
    unsigned alive = 0;
    for (unsigned i = 0; i < SOAK_SLOTS; i++) {
        int status;
        if (worker[i].pid && waitpid(worker[i].pid, &status, WNOHANG) == worker[i].pid) {
            worker[i].pid = 0;
            add_up(i, status);
        }
        alive += worker[i].pid != 0;
    }
    return alive;
}

static void disturb(uint64_t now_ms)
{
    unsigned i = (unsigned)dice(SOAK_SLOTS);
    if (!worker[i].pid)
        return;
    if (worker[i].stopped_until_ms == 0 && dice(20) == 0) {
        ck_assert_int_eq(kill(worker[i].pid, SIGKILL), 0);
        worker[i].killed = true;
        total.kills++;
    } else if (worker[i].stopped_until_ms == 0 && !worker[i].killed && dice(20) == 0) {
        ck_assert_int_eq(kill(worker[i].pid, SIGSTOP), 0);
        worker[i].stopped_until_ms = now_ms + 50 + dice(1500);
        total.stops++;
    }
}

static void wake_stopped(uint64_t now_ms)
{
    for (unsigned i = 0; i < SOAK_SLOTS; i++) {
        if (!worker[i].pid || worker[i].stopped_until_ms == 0 ||
            now_ms < worker[i].stopped_until_ms)
            continue;
        (void)kill(worker[i].pid, SIGCONT);
        worker[i].stopped_until_ms = 0;
    }
}

static void step(void)
{
    static unsigned want = WORKERS_MIN;
    uint64_t now = rig_now_ms();
    unsigned alive = reap();
    if (dice(40) == 0)
        want = WORKERS_MIN + (unsigned)dice(WORKERS_MAX - WORKERS_MIN + 1);
    for (unsigned i = 0; i < SOAK_SLOTS && alive < want; i++) {
        if (worker[i].pid)
            continue;
        spawn(i);
        alive++;
    }
    disturb(now);
    wake_stopped(now);
    rig_sleep_ms(STEP_MS);
}

/* ---- what the daemon says of itself, and what the kernel says of it ---- */

enum {
    STAT_LEASES,
    STAT_RESV,
    STAT_SESSIONS,
    STAT_CALLS,
    STAT_STAGING,
    STAT_BLOCKS,
    STAT_BYTES,
    STAT_USED,
    STAT_MAPPED,
    STAT_ALLOCS,
    STAT_LOST,
    STATS
};
static const char *const stat_names[STATS] = {
    [STAT_LEASES] = "core.leases",
    [STAT_RESV] = "core.reservations",
    [STAT_SESSIONS] = "svc.sessions",
    [STAT_CALLS] = "svc.calls",
    [STAT_STAGING] = "svc.staging_bytes",
    [STAT_BLOCKS] = "core.blocks_present",
    [STAT_BYTES] = "core.bytes_present",
    [STAT_USED] = "daemon.host_used_bytes",
    [STAT_MAPPED] = "daemon.host_mapped_bytes",
    [STAT_ALLOCS] = "daemon.control_allocs",
    [STAT_LOST] = "svc.replies_lost",
};

struct sample {
    uint64_t rss_anon, rss_shared, fds;
};

static struct sample *samples;
static unsigned nsamples;
static uint64_t stats[STATS];

static int on_stat(void *ctx, const struct kvc_stat *s)
{
    (void)ctx;
    for (unsigned i = 0; i < STATS; i++)
        if (strcmp(s->name, stat_names[i]) == 0)
            stats[i] = s->value;
    return 0;
}

static void read_stats(void)
{
    int err = kvc_stats(admin, on_stat, NULL);
    ck_assert_msg(err == 0, "stats: %s: %s", kvc_error_name(err), kvc_last_error(admin));
}

static uint64_t status_line(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    ck_assert_ptr_nonnull(at);
    return strtoull(at + strlen(name), NULL, 10) * 1024;
}

static unsigned open_descriptors(void)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)rig.pid);
    DIR *d = opendir(path);
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static struct sample take_sample(void)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%d/status", (int)rig.pid);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return (struct sample){.rss_anon = status_line(text, "RssAnon:"),
                           .rss_shared = status_line(text, "RssShmem:"),
                           .fds = open_descriptors()};
}

static void print_line(const struct sample *s)
{
    static const char text[] =
        "%6.0f s: %llu workers, %llu kills, %llu stops; %llu requests, %llu unanswered, %llu late; "
        "%llu blocks hit, %llu stored, %llu wrong, %llu stale, %llu refused, %llu faults; "
        "rss %llu KiB + %llu KiB shared, %llu descriptors, %llu KiB mapped; %llu sessions, "
        "%llu leases, %llu reservations, %llu calls, %llu KiB staging; %llu blocks, %llu KiB, "
        "%llu KiB of slots; %llu allocs, %llu replies lost\n";
    static const char json[] =
        "{\"seconds\":%.0f,\"workers\":%llu,\"kills\":%llu,\"stops\":%llu,\"requests\":%llu,"
        "\"unanswered\":%llu,\"late\":%llu,\"blocks_hit\":%llu,\"blocks_stored\":%llu,"
        "\"wrong\":%llu,\"stale\":%llu,\"refused\":%llu,\"faults\":%llu,\"rss_anon_kib\":%llu,"
        "\"rss_shared_kib\":%llu,\"descriptors\":%llu,\"mapped_kib\":%llu,\"sessions\":%llu,"
        "\"leases\":%llu,\"reservations\":%llu,\"calls\":%llu,\"staging_kib\":%llu,"
        "\"blocks\":%llu,\"bytes_kib\":%llu,\"slots_kib\":%llu,\"control_allocs\":%llu,"
        "\"replies_lost\":%llu}\n";
    typedef unsigned long long n;
    printf(options.json ? json : text, (double)(rig_now_ms() - started_ms) / 1000, (n)total.workers,
           (n)total.kills, (n)total.stops, (n)total.sent, (n)total.unanswered, (n)total.late,
           (n)total.hit, (n)total.stored, (n)total.wrong, (n)total.stale, (n)total.refused,
           (n)total.faults, (n)s->rss_anon / 1024, (n)s->rss_shared / 1024, (n)s->fds,
           (n)stats[STAT_MAPPED] / 1024, (n)stats[STAT_SESSIONS], (n)stats[STAT_LEASES],
           (n)stats[STAT_RESV], (n)stats[STAT_CALLS], (n)stats[STAT_STAGING] / 1024,
           (n)stats[STAT_BLOCKS], (n)stats[STAT_BYTES] / 1024, (n)stats[STAT_USED] / 1024,
           (n)stats[STAT_ALLOCS], (n)stats[STAT_LOST]);
    fflush(stdout);
}

/* ---- what must hold ---- */

static uint64_t max_of(unsigned quarter, size_t field)
{
    uint64_t max = 0;
    for (unsigned i = nsamples * (quarter - 1) / 4; i < nsamples * quarter / 4; i++) {
        uint64_t v;
        memcpy(&v, (const char *)&samples[i] + field, sizeof v);
        max = v > max ? v : max;
    }
    return max;
}

/* What the work needs at its peak is reached in the first half; more in the last quarter would be
 * growth. */
static void check_flat(const char *what, size_t field, uint64_t slack)
{
    uint64_t before = max_of(2, field), after = max_of(4, field);
    printf("%s: at most %llu in the second quarter, %llu in the last\n", what,
           (unsigned long long)before, (unsigned long long)after);
    ck_assert_msg(after <= before + slack, "%s grows", what);
}

static void check_end(const struct sample *first)
{
    static const char *const gone[] = {"svc.quarantined",   "svc.calls",
                                       "core.leases",       "core.leased_bytes",
                                       "core.reservations", "core.commits_in_flight",
                                       "svc.staging_bytes", "daemon.copies_in_flight"};
    /* A block of two shards of which one was never stored is pending, and goes as others do. */
    static const char *const empty[] = {"core.blocks_pending", "core.blocks_present",
                                        "core.bytes_present", "daemon.host_used_bytes",
                                        "daemon.host_used_slots"};
    struct kvc_evict_filter all = {0};
    struct kvc_evicted evicted;
    rig_wait_stat(admin, "svc.sessions", 1);
    for (unsigned i = 0; i < sizeof gone / sizeof gone[0]; i++)
        rig_wait_stat(admin, gone[i], 0);
    ck_assert_int_eq(kvc_evict(admin, &all, &evicted), 0);
    ck_assert_uint_eq(evicted.kept_blocks, 0);
    for (unsigned i = 0; i < sizeof empty / sizeof empty[0]; i++)
        rig_wait_stat(admin, empty[i], 0);
    /* libzmq closes connections on a thread of its own. */
    for (unsigned i = 0; open_descriptors() > first->fds && i < 2000; i++)
        rig_sleep_ms(5);
    ck_assert_uint_le(open_descriptors(), first->fds);
    read_stats();
    ck_assert_uint_eq(stats[STAT_ALLOCS], 0);
}

static void check_totals(void)
{
    ck_assert_uint_eq(total.wrong, 0);
    ck_assert_uint_eq(total.unanswered, 0);
    ck_assert_uint_eq(total.faults, 0);
    ck_assert_uint_eq(total.failed, 0);
    ck_assert_uint_gt(total.hit, 0);
    ck_assert_uint_gt(total.stored, 0);
    if (options.minutes < FLAT_MINUTES) {
        printf("SKIP: whether memory and descriptors stay flat; that takes %u minutes to tell\n",
               FLAT_MINUTES);
        return;
    }
    check_flat("descriptors", offsetof(struct sample, fds), FDS_SLACK);
    if (SANITIZED)
        printf("SKIP: whether memory stays flat; sanitizers keep what is freed\n");
    else
        check_flat("anonymous memory", offsetof(struct sample, rss_anon), RSS_SLACK);
}

/* ---- the run ---- */

static void begin(void)
{
    static char config[128];
    shared_fd = memfd_create("soak", 0);
    ck_assert_int_ge(shared_fd, 0);
    ck_assert_int_eq(ftruncate(shared_fd, sizeof *shared), 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    samples = calloc(SAMPLES_MAX, sizeof *samples);
    ck_assert_ptr_nonnull(samples);
    rig_dir(&rig);
    if (geteuid() == 0) {
        snprintf(config, sizeof config, "%s/daemon.yaml", rig.dir);
        FILE *f = fopen(config, "w");
        ck_assert_ptr_nonnull(f);
        fputs("principals:\n"
              "  - {name: ops, uids: [0], admin: true}\n"
              "  - {name: one, uids: [1001, 1002], tenant: t}\n"
              "  - {name: two, uids: [1003], tenant: t}\n",
              f);
        ck_assert_int_eq(fclose(f), 0);
        rig.config = config;
    } else {
        printf("SKIP: several principals; only root can start workers of other users\n");
    }
    rig_restart(&rig, sets);
    admin = rig_open(&rig, 0);
}

static void end(void)
{
    kvc_close(&admin);
    rig_stop(&rig);
    if (rig.config)
        unlink(rig.config);
    rig_clean(&rig);
    munmap(shared, sizeof *shared);
    close(shared_fd);
    free(samples);
}

static void stop_workers(void)
{
    shared->stop = 1;
    while (reap() > 0) {
        wake_stopped(UINT64_MAX);
        rig_sleep_ms(STEP_MS);
    }
}

static int run(const char *role, uint64_t arg)
{
    (void)role;
    (void)arg;
    begin();
    started_ms = rig_now_ms();
    const uint64_t all_ms = (uint64_t)(options.minutes * 60000);
    const uint64_t sample_ms = all_ms / 4000 > 100 ? all_ms / 4000 : 100;
    const uint64_t line_ms = (uint64_t)(options.interval * 1000);
    uint64_t next_line = line_ms, next_sample = 0;
    struct sample first = take_sample();
    for (uint64_t t; (t = rig_now_ms() - started_ms) < all_ms;) {
        step();
        if (t >= next_sample && nsamples < SAMPLES_MAX) {
            samples[nsamples++] = take_sample();
            next_sample = t + sample_ms;
        }
        if (t >= next_line) {
            read_stats();
            print_line(&samples[nsamples - 1]);
            next_line += line_ms;
        }
    }
    stop_workers();
    read_stats();
    struct sample last = take_sample();
    print_line(&last);
    check_totals();
    check_end(&first);
    end();
    printf("soak: clean\n");
    return 0;
}

static const char help[] = "Usage: soak [OPTIONS]\n"
                           "\n"
                           "A real daemon and workers that come, work, hang and are killed. "
                           "tests/soak/README.md says what "
                           "must hold.\n"
                           "\n" ARGS_HERE "\n"
                           "exit status: 0 all held, 1 something did not, 2 wrong arguments\n";

static const struct arg option_table[] = {
    {"--minutes N", "how long (default 1)", ARG_NUMBER(struct options, minutes, 0.001, 100000)},
    {"--seed N", "of the dice (default 0: drawn from the time, and printed)",
     ARG_COUNT(struct options, seed, 0, UINT64_MAX)},
    {"--interval SECONDS", "between two lines (default 10)",
     ARG_NUMBER(struct options, interval, 0.001, 100000)},
    {"--json", "lines as objects", ARG_FLAG(struct options, json)},
    {"--help", "this text", ARG_SHOWN},
    {0},
};

static int as_worker(const char *role, uint64_t arg)
{
    (void)role;
    int fd = (int)(arg >> 8);
    struct soak_shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(sh, MAP_FAILED);
    int rc = soak_worker(&rig, sh, (unsigned)(arg & 0xff));
    munmap(sh, sizeof *sh);
    return rc;
}

int main(int argc, char **argv)
{
    const char *role;
    uint64_t arg;
    if (rig_is_child(argc, argv, &rig, &role, &arg))
        return rig_child_main(as_worker, role, arg);
    const int rc = args_take_only(option_table, &options, help, args_usage, argc, argv);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    seed = options.seed ? options.seed : (uint64_t)time(NULL) * 2654435761u + 1;
    printf("seed %llu (--seed repeats it)\n", (unsigned long long)seed);
    fflush(stdout);
    return rig_child_main(run, "soak", 0);
}
