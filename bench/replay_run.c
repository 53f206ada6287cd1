/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a replay: starts a process for each worker, watches storage meanwhile, and adds up their
 * counts.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench_rig.h"
#include "progress.h"
#include "replay.h"
#include "units.h"

/* Time between two looks at the files of a store. */
#define SAMPLE_NS UINT64_C(50000000)

struct crew {
    const struct replay_plan *plan;
    struct replay_shared *shared;
    struct rig *rig;
    const char *label;
    pid_t pid[REPLAY_WORKERS_MAX]; /* 0 = ended */
    uint32_t running;
    uint64_t begun_ns;
    int exit; /* enum bench_exit of the first trouble */
    struct replay_storage storage;
    uint64_t sample_ns; /* when to look at the files again */
};

static void end_crew(struct crew *crew)
{
    for (uint32_t i = 0; i < crew->plan->workers; i++) {
        if (crew->pid[i] > 0) {
            kill(crew->pid[i], SIGKILL);
            waitpid(crew->pid[i], NULL, 0);
            crew->pid[i] = 0;
        }
    }
    crew->running = 0;
}

static int start_crew(struct crew *crew)
{
    pid_t parent = getpid();
    fflush(NULL);
    for (uint32_t i = 0; i < crew->plan->workers; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            rig_disown();
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            _exit(replay_work(crew->plan, i, crew->shared) < 0);
        }
        if (pid < 0) {
            say_error("fork: %s", strerror(errno));
            return BENCH_FAILED;
        }
        crew->pid[i] = pid;
        crew->running++;
    }
    return 0;
}

static void worker_ended(struct crew *crew, uint32_t worker, int status)
{
    const struct replay_slot *slot = &crew->shared->slot[worker];
    crew->pid[worker] = 0;
    crew->running--;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    if (WIFSIGNALED(status)) {
        say_error("worker %u was ended by signal %d (%s)", worker, WTERMSIG(status),
                  strsignal(WTERMSIG(status)));
        crew->exit = BENCH_FAILED;
    } else {
        say_error("worker %u: %s", worker, slot->why);
        crew->exit = say_exit_code(slot->error);
    }
}

static void replay_run_reap(struct crew *crew)
{
    for (uint32_t i = 0; i < crew->plan->workers; i++) {
        int status;
        if (crew->pid[i] > 0 && waitpid(crew->pid[i], &status, WNOHANG) == crew->pid[i])
            worker_ended(crew, i, status);
    }
    if (crew->exit == 0 && rig_check(crew->rig) < 0)
        crew->exit = BENCH_DOWN;
}

static void show_progress(const struct crew *crew)
{
    uint64_t done = 0, wrong = 0;
    for (uint32_t i = 0; i < crew->plan->workers; i++) {
        done += atomic_load_explicit(&crew->shared->slot[i].done, memory_order_relaxed);
        wrong += atomic_load_explicit(&crew->shared->slot[i].wrong_bytes, memory_order_relaxed);
    }
    char now[UNITS_COUNT_BYTES], all[UNITS_COUNT_BYTES];
    double seconds = (double)(now_ns() - crew->begun_ns) * 1e-9;
    double left =
        done ? seconds * (double)(crew->plan->trace->n_requests - done) / (double)done : 0;
    progress_show(false, "%s: %s of %s requests, %llu wrong bytes, %.0f s, about %.0f s to go",
                  crew->label, units_format_count(done, now),
                  units_format_count(crew->plan->trace->n_requests, all), (unsigned long long)wrong,
                  seconds, left);
}

static void sample_storage(struct crew *crew)
{
    uint64_t store, other, now = now_ns();
    if (!crew->plan->storage || now < crew->sample_ns)
        return;
    crew->sample_ns = now + SAMPLE_NS;
    rig_store_bytes(crew->rig, &store, &other);
    crew->storage.samples++;
    if (store > crew->storage.disk_bytes_max)
        crew->storage.disk_bytes_max = store;
    if (other > crew->storage.other_bytes_max)
        crew->storage.other_bytes_max = other;
}

static void watch(struct crew *crew)
{
    struct timespec pause = {.tv_nsec = 2000000};
    while (crew->running > 0 && crew->exit == 0 &&
           atomic_load(&crew->shared->ready) < crew->plan->workers) {
        nanosleep(&pause, NULL);
        replay_run_reap(crew);
    }
    crew->begun_ns = now_ns();
    atomic_store(&crew->shared->go, 1);
    while (crew->running > 0 && crew->exit == 0) {
        nanosleep(&pause, NULL);
        show_progress(crew);
        sample_storage(crew);
        replay_run_reap(crew);
    }
    sample_storage(crew);
    progress_clear();
}

static void add_counts(struct replay_counts *into, const struct replay_counts *from)
{
    into->requests += from->requests;
    into->accesses += from->accesses;
    into->hits += from->hits;
    into->reused_tokens += from->reused_tokens;
    into->input_tokens += from->input_tokens;
    into->loaded_bytes += from->loaded_bytes;
    into->stored_bytes += from->stored_bytes;
    into->stored_blocks += from->stored_blocks;
    into->wrong_bytes += from->wrong_bytes;
    into->wrong_blocks += from->wrong_blocks;
    into->stale += from->stale;
    into->stored_already += from->stored_already;
    into->refused_full += from->refused_full;
    into->refused_not_worth += from->refused_not_worth;
    into->refused_other += from->refused_other;
    into->lookup_differs += from->lookup_differs;
    into->hbm_blocks += from->hbm_blocks;
    into->page_blocks += from->page_blocks;
    into->not_loaded += from->not_loaded;
}

int replay_run(const struct replay_plan *plan, struct rig *rig, const char *label,
               struct replay_tally *ret_tally, double *ret_seconds)
{
    size_t bytes = sizeof(struct replay_shared);
    struct replay_shared *shared =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        say_error("mmap: %s", strerror(errno));
        return BENCH_FAILED;
    }
    struct crew crew = {.plan = plan, .shared = shared, .rig = rig, .label = label};
    struct replay_hbm hbm = {0};
    int rc = start_crew(&crew);
    if (rc == 0) {
        watch(&crew);
        rc = crew.exit;
    }
    end_crew(&crew);
    double seconds = (double)(now_ns() - crew.begun_ns) * 1e-9;
    if (rc == 0 && (plan->storage || plan->device))
        rc = replay_ask(plan, &crew.storage, &hbm);
    if (rc == 0) {
        memset(ret_tally, 0, sizeof(*ret_tally));
        ret_tally->storage = crew.storage;
        ret_tally->hbm = hbm;
        for (uint32_t i = 0; i < plan->workers; i++) {
            const struct replay_tally *tally = &shared->slot[i].tally;
            add_counts(&ret_tally->counts, &tally->counts);
            lat_merge(&ret_tally->lookup, &tally->lookup);
            lat_merge(&ret_tally->acquire, &tally->acquire);
            lat_merge(&ret_tally->store, &tally->store);
        }
        *ret_seconds = seconds;
    }
    munmap(shared, bytes);
    return rc;
}
