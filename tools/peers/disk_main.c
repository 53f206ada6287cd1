/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that compares stores on disk: kvcache-daemon, files, RocksDB. Reads the options and
 * runs each peer.
 */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk_peer.h"
#include "disk_report.h"
#include "progress.h"
#include "units.h"

static const char help[] =
    "Usage: peerdisk [OPTIONS]\n"
    "\n"
    "Puts and gets the same blocks in kvcache-daemon with a store on disk, in RocksDB with blob "
    "files, and in a file per block, through the page cache and past it. The set of blocks that is "
    "kept is larger than the memory that each is given; every put beyond it evicts the oldest. As "
    "many threads, each with one request at a time, for all. Two settings: a put ends when the "
    "block is on stable storage (synced), or earlier (not synced). All blocks that are kept are "
    "compared once a round.\n"
    "\n" ARGS_HERE "\n"
    "Exit codes: 0 good, 1 wrong bytes were read, 2 usage, 5 a peer that is here failed.\n"
    "\n"
    "tools/peers/disk.sh puts it into a memory cgroup where one can be made.\n";

#ifndef PEER_ROCKSDB
static const char *no_rocksdb(void)
{
    return "built without RocksDB (Debian: librocksdb-dev)";
}

const struct disk_ops disk_rocksdb = {.name = "RocksDB", .missing = no_rocksdb};
#endif

static const struct {
    const char *option;
    const struct disk_ops *ops;
} peers[DISK_PEERS] = {{"kvcache", &disk_ours},
                       {"rocksdb", &disk_rocksdb},
                       {"files", &disk_files},
                       {"direct", &disk_files_direct}};
static const char *const settings[DISK_SETTINGS] = {"synced", "unsynced"};

struct run {
    struct disk_plan plan;
    bool peer[DISK_PEERS], setting[DISK_SETTINGS];
    bool json, table;
    uint64_t data_set, rounds;
    const char *disk;
    char dir[PATH_MAX];
    struct disk_table *results; /* shared with the measuring processes */
};

static volatile pid_t measuring;
static volatile sig_atomic_t stopped_by;

static int pick(const char *option, const char *text, const char *const *names, size_t n,
                bool *chosen)
{
    char copy[128];
    snprintf(copy, sizeof(copy), "%s", text);
    char *rest = copy;
    memset(chosen, 0, n * sizeof(*chosen));
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        size_t i = 0;
        while (i < n && strcmp(names[i], item) != 0)
            i++;
        if (i == n)
            return say_usage("--%s: there is no '%s'; --help names them", option, item);
        chosen[i] = true;
    }
    return 0;
}

static int opt_peers(void *ctx, const char *text)
{
    struct run *run = ctx;
    const char *names[DISK_PEERS];
    for (size_t i = 0; i < DISK_PEERS; i++)
        names[i] = peers[i].option;
    return pick("peers", text, names, DISK_PEERS, run->peer);
}

static int take_settings(void *ctx, const char *text)
{
    struct run *run = ctx;
    return pick("settings", text, settings, DISK_SETTINGS, run->setting);
}

static int set_quick(void *ctx, const char *none)
{
    struct run *run = ctx;
    (void)none;
    run->plan.memory = UINT64_C(16) << 20;
    run->data_set = UINT64_C(48) << 20;
    run->rounds = 1;
    return 0;
}

static const struct arg option_table[] = {
    {"--peers LIST", "of kvcache, rocksdb, files, direct (default all)", ARG_DO(opt_peers)},
    {"--settings LIST", "of synced, unsynced (default both)", ARG_DO(take_settings)},
    {"--memory SIZE",
     "of each (default 1GiB): host memory, write buffers, caches; the page cache too where this "
     "runs in a cgroup of that size (--buffered)",
     ARG_BYTES(struct run, plan.memory, UINT64_C(16) << 20, UINT64_C(1) << 40)},
    {"--buffered",
     "a cgroup bounds the page cache: RocksDB goes through it too; without it RocksDB uses "
     "O_DIRECT, and files drop what is beyond --memory",
     ARG_FLAG(struct run, plan.cgroup)},
    {"--data-set SIZE", "that is kept (default 4GiB); as much is put and timed after it",
     ARG_BYTES(struct run, data_set, UINT64_C(32) << 20, UINT64_C(1) << 42)},
    {"--block-bytes SIZE", "(default 1MiB)",
     ARG_BYTES(struct run, plan.block_bytes, 4096, KVC_BLOCK_BYTES_MAX)},
    {"--threads N", "(default 8)", ARG_COUNT(struct run, plan.threads, 1, DISK_THREADS_MAX)},
    {"--rounds N", "medians over these are reported (default 3)",
     ARG_COUNT(struct run, rounds, 1, DISK_ROUNDS_MAX)},
    {"--disk DIR", "on the file system to measure (default: the working directory)",
     ARG_TEXT(struct run, disk)},
    {"--daemon PATH", "the daemon to start (default: beside this program)",
     ARG_TEXT(struct run, plan.daemon_path)},
    {"--quick", "a smoke run: 48MiB in 16MiB of memory, one round", ARG_DO(set_quick)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct run, json)},
    {"--table", "with --json: the table too, on stderr", ARG_FLAG(struct run, table)},
    {0},
};

static int disk_main_check_args(struct run *run)
{
    struct disk_plan *plan = &run->plan;
    struct statvfs fs;
    if (plan->block_bytes % 4096)
        return say_usage("--block-bytes: %" PRIu64 " is not a multiple of 4096", plan->block_bytes);
    if (run->data_set < 2 * plan->memory || run->data_set / plan->block_bytes < plan->threads)
        return say_usage("--data-set: must be at least twice --memory, and a block per thread");
    plan->blocks = plan->puts = (uint32_t)(run->data_set / plan->block_bytes);
    if (statvfs(run->disk, &fs) != 0)
        return say_usage("--disk %s: %s", run->disk, strerror(errno));
    if ((uint64_t)fs.f_bavail * fs.f_frsize < 4 * run->data_set)
        return say_usage("--disk %s: four times the data set must be free there", run->disk);
    return 0;
}

static int disk_main_parse(struct run *run, int argc, char **argv)
{
    const int rc = opt_take_only(argc, argv, option_table, help, run);
    return rc != 0 ? rc : disk_main_check_args(run);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    return at->level == 0 ? 0 : remove(path);
}

static void disk_main_on_signal(int number)
{
    stopped_by = number;
    if (measuring > 0)
        kill(measuring, SIGTERM);
}

static int disk_main_in_child(struct run *run, const struct disk_ops *ops,
                              struct disk_result *result)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        int rc = disk_measure(ops, &run->plan, result);
        progress_clear();
        fflush(NULL);
        _exit(rc);
    }
    measuring = pid;
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    measuring = 0;
    nftw(run->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (pid < 0)
        return BENCH_FAILED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : BENCH_FAILED;
}

static int one_turn(struct run *run, size_t peer, size_t setting)
{
    struct disk_result *result = &run->results->cell[peer][setting];
    const struct disk_ops *ops = peers[peer].ops;
    const char *missing = ops->missing ? ops->missing() : NULL;
    if (missing) {
        snprintf(result->reason, sizeof(result->reason), "%s", missing);
        return 0;
    }
    run->plan.sync = setting == 0;
    int rc = disk_main_in_child(run, ops, result);
    if (rc == 0) {
        result->measured = true;
        return 0;
    }
    snprintf(result->reason, sizeof(result->reason), "it failed (exit code %d), see stderr", rc);
    if (!stopped_by)
        say_error("%s, %s: failed", ops->name, settings[setting]);
    return rc == BENCH_WRONG ? rc : BENCH_FAILED;
}

static int all_rounds(struct run *run)
{
    int code = BENCH_OK;
    for (uint64_t round = 0; round < run->rounds; round++) {
        for (size_t i = 0; i < DISK_PEERS * DISK_SETTINGS && !stopped_by; i++) {
            size_t peer = (i + round) % DISK_PEERS, setting = i / DISK_PEERS;
            bool failed = run->results->cell[peer][setting].reason[0];
            if (!run->peer[peer] || !run->setting[setting] || failed)
                continue;
            int rc = one_turn(run, peer, setting);
            if (rc != 0 && code != BENCH_WRONG)
                code = rc;
        }
    }
    return stopped_by ? 128 + stopped_by : code;
}

static void disk_main_report(const struct run *run)
{
    struct disk_report report = {.plan = &run->plan, .results = run->results};
    for (size_t i = 0; i < DISK_PEERS; i++) {
        report.ops[i] = peers[i].ops;
        report.wanted[i] = run->peer[i];
    }
    for (size_t i = 0; i < DISK_SETTINGS; i++) {
        report.setting[i] = settings[i];
        report.wanted_setting[i] = run->setting[i];
    }
    if (run->json)
        disk_report_json(&report);
    if (run->table || !run->json)
        disk_report_table(run->json ? stderr : stdout, &report);
}

static int disk_main_make_directory(struct run *run)
{
    char here[PATH_MAX];
    if (!realpath(run->disk, here)) {
        say_error("--disk %s: %s", run->disk, strerror(errno));
        return BENCH_USAGE;
    }
    snprintf(run->dir, sizeof(run->dir), "%.4000s/peerdisk-XXXXXX", here);
    if (mkdtemp(run->dir))
        return 0;
    say_error("cannot make a directory in %s: %s", here, strerror(errno));
    return BENCH_FAILED;
}

/* RocksDB's memory is on large pages too, like the daemon's memory and the buffers of files. glibc
 * reads the setting when a program starts. */
static void take_large_pages(char **argv)
{
    static const char name[] = "GLIBC_TUNABLES";
    if (!getenv(name) && setenv(name, "glibc.malloc.hugetlb=1", 1) == 0)
        execv("/proc/self/exe", argv); /* if it fails, the program goes on without large pages */
}

int main(int argc, char **argv)
{
    take_large_pages(argv);
    struct run run = {.plan = {.block_bytes = 1 << 20, .memory = UINT64_C(1) << 30, .threads = 8},
                      .peer = {true, true, true, true},
                      .setting = {true, true},
                      .data_set = UINT64_C(4) << 30,
                      .rounds = 3,
                      .disk = "."};
    int rc = disk_main_parse(&run, argc, argv);
    if (rc == 0)
        rc = disk_main_make_directory(&run);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    run.plan.dir = run.dir;
    run.results =
        mmap(NULL, sizeof(*run.results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.results == MAP_FAILED) {
        say_error("memory for the results: %s", strerror(errno));
        rmdir(run.dir);
        return BENCH_FAILED;
    }
    struct sigaction action = {.sa_handler = disk_main_on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    rc = all_rounds(&run);
    if (!stopped_by)
        disk_main_report(&run);
    rmdir(run.dir);
    munmap(run.results, sizeof(*run.results));
    return rc;
}
