/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that compares caches in memory, kvcache-daemon among them. Reads the options and runs
 * each peer.
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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "progress.h"
#include "report.h"
#include "units.h"

enum { SIZES_MAX = 8 };

static const char help[] =
    "Usage: peerbench [OPTIONS]\n"
    "\n"
    "Stores and loads the same blocks, with the same reader, in kvcache-daemon and in other places "
    "where a worker can keep them: one client, servers of their own on unix sockets, peers taking "
    "turns in rounds. Every byte is compared once a round. What is not installed is left out and "
    "said so.\n"
    "\n" ARGS_HERE "\n"
    "Exit codes: 0 good, 1 wrong bytes were read, 2 usage, 5 a peer that is here failed.\n"
    "\n"
    "Example:\n"
    "  peerbench --peers kvcache,redis,memcached --block-bytes 1MiB,2MiB\n";

struct run {
    struct peer_plan plan;
    const struct peer_ops *list[PEERS_MAX + 1]; /* ends with NULL */
    uint64_t sizes[SIZES_MAX], working_set, rounds;
    size_t n_sizes;
    bool json, table;
    const char *tmpfs, *disk;
    char tmpfs_dir[PATH_MAX], disk_dir[PATH_MAX], script[PATH_MAX], reader[PATH_MAX];
    char python[PATH_MAX];
    struct peer_result *results; /* shared with the measuring processes */
};

/* The process that the signal handler ends. */
static volatile pid_t measuring;
static volatile sig_atomic_t stopped_by;

static bool wanted(const char *item, size_t index)
{
    char number[8];
    snprintf(number, sizeof(number), "%zu", index + 1);
    return strcmp(item, number) == 0 ||
           (item[strspn(item, "0123456789")] != '\0' && strcasestr(peers[index]->name, item));
}

static int opt_peers(void *ctx, const char *text)
{
    struct run *run = ctx;
    char copy[512];
    bool chosen[PEERS_MAX] = {false};
    snprintf(copy, sizeof(copy), "%s", text);
    char *rest = copy;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        bool found = false;
        for (size_t i = 0; peers[i]; i++) {
            if (wanted(item, i))
                chosen[i] = found = true;
        }
        if (!found)
            return say_usage("--peers: there is no '%s'; --list shows what there is", item);
    }
    size_t n = 0;
    for (size_t i = 0; peers[i]; i++) {
        if (chosen[i])
            run->list[n++] = peers[i];
    }
    run->list[n] = NULL;
    return 0;
}

static int print_list(void *ctx, const char *none)
{
    (void)ctx;
    (void)none;
    for (size_t i = 0; peers[i]; i++)
        printf("%2zu  %-26s %s\n", i + 1, peers[i]->name,
               peers[i]->settings ? peers[i]->settings : "left out of this build");
    return -1;
}

static int set_quick(void *ctx, const char *none)
{
    struct run *run = ctx;
    (void)none;
    run->sizes[0] = UINT64_C(1) << 20;
    run->n_sizes = 1;
    run->working_set = UINT64_C(32) << 20;
    run->rounds = 1;
    run->plan.seconds = 0.01;
    run->plan.singles = 8;
    return 0;
}

static int main_take_sizes(void *ctx, const char *text)
{
    struct run *run = ctx;
    return opt_bytes_list("block-bytes", text, run->sizes, SIZES_MAX, &run->n_sizes);
}

static const struct arg option_table[] = {
    {"--peers LIST", "names, parts of them, or numbers of --list, with commas (default all)",
     ARG_DO(opt_peers)},
    {"--list", "print the peers and leave", ARG_DO(print_list)},
    {"--block-bytes LIST", "(default 64KiB,1MiB,2MiB)", ARG_DO(main_take_sizes)},
    {"--working-set BYTES", "of blocks (default 1GiB)",
     ARG_BYTES(struct run, working_set, UINT64_C(1) << 20, UINT64_C(64) << 30)},
    {"--rounds N", "medians over these are reported (default 5)",
     ARG_COUNT(struct run, rounds, 1, ROUNDS_MAX)},
    {"--seconds S", "of one measurement at least (default 0.5)",
     ARG_NUMBER(struct run, plan.seconds, 0.01, 3600)},
    {"--singles N", "requests of one block for the latencies, a round (default 200)",
     ARG_COUNT(struct run, plan.singles, 1, 100000)},
    {"--quick", "a smoke run: 1MiB, 32MiB in all, one round", ARG_DO(set_quick)},
    {"--tmpfs DIR", "(default /dev/shm)", ARG_TEXT(struct run, tmpfs)},
    {"--disk DIR", "on the file system to measure (default: the working directory)",
     ARG_TEXT(struct run, disk)},
    {"--python PATH", "an interpreter that has LMCache", ARG_TEXT(struct run, plan.python)},
    {"--daemon PATH", "the daemon to start (default: beside this program)",
     ARG_TEXT(struct run, plan.daemon_path)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct run, json)},
    {"--table", "with --json: the table too, on stderr", ARG_FLAG(struct run, table)},
    {0},
};

/* 0, an enum bench_exit, or -1: nothing is left to do. */
static int main_parse(struct run *run, int argc, char **argv)
{
    const int rc = opt_take_only(argc, argv, option_table, help, run);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < run->n_sizes; i++) {
        if (run->sizes[i] % 64 || run->sizes[i] > run->working_set)
            return say_usage("--block-bytes: %" PRIu64 " is not a multiple of 64, or more than "
                             "the working set",
                             run->sizes[i]);
    }
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    return at->level == 0 ? 0 : remove(path);
}

/* Removes everything in a directory, but not the directory itself. */
static void empty_directory(const char *path)
{
    if (path[0])
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Makes a path absolute, because servers have other working directories. Symlinks stay, because the
 * path of a virtual environment's python tells to which environment it belongs. */
static void absolute(const char *path, char ret_path[PATH_MAX])
{
    char here[PATH_MAX / 2] = "";
    bool relative = path[0] != '/' && getcwd(here, sizeof(here));
    snprintf(ret_path, PATH_MAX, "%s%s%.1024s", relative ? here : "", relative ? "/" : "", path);
}

static int main_make_directory(const char *base, char path[PATH_MAX])
{
    char full[PATH_MAX];
    absolute(base, full);
    snprintf(path, PATH_MAX, "%.4000s/peerbench-XXXXXX", full);
    if (mkdtemp(path))
        return 0;
    say_error("cannot make a directory in %s: %s", base, strerror(errno));
    path[0] = '\0';
    return BENCH_FAILED;
}

static void remove_directories(struct run *run)
{
    empty_directory(run->tmpfs_dir);
    empty_directory(run->disk_dir);
    if (run->tmpfs_dir[0])
        rmdir(run->tmpfs_dir);
    if (run->disk_dir[0])
        rmdir(run->disk_dir);
}

/* Tells the child to end; the child ends its servers itself. */
static void main_on_signal(int number)
{
    stopped_by = number;
    if (measuring > 0)
        kill(measuring, SIGTERM);
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = main_on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

static int main_in_child(struct run *run, const struct peer_ops *ops, struct peer_result *result)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGHUP, SIG_DFL);
        int rc = measure_round(ops, &run->plan, result);
        progress_clear();
        fflush(NULL);
        _exit(rc);
    }
    measuring = pid;
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    measuring = 0;
    empty_directory(run->tmpfs_dir);
    empty_directory(run->disk_dir);
    if (pid < 0)
        return BENCH_FAILED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : BENCH_FAILED;
}

static void one_peer(struct run *run, size_t index)
{
    const struct peer_ops *ops = run->list[index];
    struct peer_result *result = &run->results[index];
    if (result->outcome > PEER_MEASURED)
        return;
    const char *missing = ops->missing ? ops->missing(&run->plan) : NULL;
    if (missing) {
        result->outcome = PEER_MISSING;
        snprintf(result->reason, sizeof(result->reason), "%s", missing);
        return;
    }
    int rc = main_in_child(run, ops, result);
    if (rc == 0) {
        result->outcome = PEER_MEASURED;
        return;
    }
    result->outcome = rc == BENCH_WRONG ? PEER_WRONG : PEER_FAILED;
    snprintf(result->reason, sizeof(result->reason), "it failed (exit code %d), see stderr", rc);
    if (!stopped_by)
        say_error("%s: failed", ops->name);
}

static int exit_code(const struct run *run)
{
    int code = BENCH_OK;
    for (size_t i = 0; run->list[i]; i++) {
        if (run->results[i].outcome == PEER_WRONG)
            return BENCH_WRONG;
        if (run->results[i].outcome == PEER_FAILED)
            code = BENCH_FAILED;
    }
    return code;
}

static int main_one_size(struct run *run, uint64_t block_bytes)
{
    char size[UNITS_TEXT_BYTES];
    size_t n = 0;
    while (run->list[n])
        n++;
    memset(run->results, 0, PEERS_MAX * sizeof(*run->results));
    run->plan.block_bytes = block_bytes;
    run->plan.blocks = (uint32_t)(run->working_set / block_bytes);
    for (uint64_t round = 0; round < run->rounds; round++) {
        for (size_t i = 0; i < n && !stopped_by; i++) {
            size_t turn = (i + round) % n;
            progress_show(true, "peerbench: blocks of %s, round %" PRIu64 " of %" PRIu64 ", %s",
                          units_format_bytes(block_bytes, size), round + 1, run->rounds,
                          run->list[turn]->name);
            one_peer(run, turn);
        }
    }
    progress_clear();
    if (stopped_by)
        return 128 + stopped_by;
    if (run->json)
        report_json(&run->plan, run->list, run->results);
    if (run->table || !run->json)
        report_table(run->json ? stderr : stdout, &run->plan, run->list, run->results);
    return exit_code(run);
}

/* Finds the files beside this program that the LMCache peer needs. */
static void find_files(struct run *run)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n < 0 ? 0 : n] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    snprintf(run->reader, sizeof(run->reader), "%.3000s/libpeerread.so", self);
    snprintf(run->script, sizeof(run->script), "%s", PEER_SCRIPT);
    if (run->plan.python) {
        absolute(run->plan.python, run->python);
        run->plan.python = run->python;
    }
    run->plan.script = run->script;
    run->plan.reader = run->reader;
    run->plan.tmpfs = run->tmpfs_dir;
    run->plan.disk = run->disk_dir;
}

static int main_all_sizes(struct run *run)
{
    int code = main_make_directory(run->tmpfs, run->tmpfs_dir);
    if (code == 0)
        code = main_make_directory(run->disk, run->disk_dir);
    if (code != 0)
        return code;
    for (size_t i = 0; i < run->n_sizes && !stopped_by; i++) {
        int rc = main_one_size(run, run->sizes[i]);
        if (rc != 0)
            code = rc;
    }
    if ((run->table || !run->json) && !stopped_by)
        report_notes(run->json ? stderr : stdout, run->list, run->results);
    return code;
}

int main(int argc, char **argv)
{
    struct run run = {.plan = {.singles = 200, .seconds = 0.5},
                      .sizes = {64 << 10, 1 << 20, 2 << 20},
                      .n_sizes = 3,
                      .working_set = UINT64_C(1) << 30,
                      .rounds = 5,
                      .tmpfs = "/dev/shm",
                      .disk = "."};
    for (size_t i = 0; peers[i]; i++)
        run.list[i] = peers[i];
    int rc = main_parse(&run, argc, argv);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    find_files(&run);
    run.results = mmap(NULL, PEERS_MAX * sizeof(*run.results), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.results == MAP_FAILED) {
        say_error("memory for the results: %s", strerror(errno));
        return BENCH_FAILED;
    }
    catch_signals();
    rc = main_all_sizes(&run);
    remove_directories(&run);
    munmap(run.results, PEERS_MAX * sizeof(*run.results));
    return rc;
}
