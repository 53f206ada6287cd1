/* SPDX-License-Identifier: Apache-2.0 */
/* Kvcachebench idle: processor time of a daemon that gets no requests. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "out.h"
#include "perf.h"

static const char help[] =
    "Usage: kvcachebench idle [OPTIONS]\n"
    "\n"
    "The processor time of a daemon that has started, has a session attached, and is asked for\n"
    "nothing. Counted from a second after the start.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachebench idle --seconds 60\n";

/* User and system time of all its threads, in clock ticks. */
static int cpu_ticks(int pid, uint64_t *ret_ticks)
{
    char path[64], line[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(line, 1, sizeof(line) - 1, f) : 0;
    if (f)
        fclose(f);
    line[n] = '\0';
    const char *fields = strrchr(line, ')'); /* the name before it may contain anything */
    unsigned long long user, system;
    if (!fields || sscanf(fields, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
                          &system) != 2) {
        say_error("%s cannot be read", path);
        return BENCH_FAILED;
    }
    *ret_ticks = user + system;
    return 0;
}

static void pause_for(double seconds)
{
    struct timespec ts = {.tv_sec = (time_t)seconds,
                          .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&ts, NULL);
}

static int idle_measure(const struct perf_args *args, const struct perf_session *session)
{
    uint64_t before, after;
    int pid = rig_pid(session->rig);
    pause_for(1);
    int rc = cpu_ticks(pid, &before);
    pause_for(args->seconds);
    if (rc == 0)
        rc = cpu_ticks(pid, &after);
    if (rc != 0)
        return rc;
    double share = (double)(after - before) / (double)sysconf(_SC_CLK_TCK) / args->seconds;
    if (args->json) {
        struct out_metric m = {.bench = "idle",
                               .keys = {{.key = "seconds", .number = (uint64_t)args->seconds}},
                               .metric = "idle_cpu",
                               .value = share,
                               .unit = "1"};
        out_json(&m);
    } else {
        printf("  idle for %.0f s: %.2f %% of one processor\n", args->seconds, share * 100);
    }
    return 0;
}

static const struct arg option_table[] = {
    {"--seconds S", "(default 10)", ARG_NUMBER(struct perf_args, seconds, 0.01, 3600)},
    {"--daemon PATH", "the daemon to start", ARG_TEXT(struct perf_args, daemon_path)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct perf_args, json)},
    {0},
};

int cmd_idle(int argc, char **argv)
{
    struct perf_args args = {.bench = "idle", .seconds = 10};
    struct perf_session session = {0};
    int rc = opt_take_only(argc, argv, option_table, help, &args);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    struct rig_options options = {.daemon_path = args.daemon_path};
    rig_set(&options, "host.limit=256MiB");
    rc = perf_open(&options, 1 << 20, &session);
    if (rc == 0)
        rc = perf_namespace(&session, 4096);
    if (rc == 0)
        rc = idle_measure(&args, &session);
    perf_close(&session);
    return rc;
}
