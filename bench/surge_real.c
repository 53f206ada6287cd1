/* SPDX-License-Identifier: Apache-2.0 */
#include "surge_real.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define QUESTION   16u /* bytes of a question; each is a token */
#define READY_NS   (UINT64_C(300) * 1000000000)
#define REPORT_MAX 16384u
#define ARGS_MAX   24u

struct child {
    pid_t pid;
    int in, out; /* ends of pipes; -1: closed */
};

uint64_t surge_real_alone(const struct surge_real *s)
{
    return s->tokens + QUESTION - 1; /* the last token is a decode step */
}

/* ---- prompts ---- */

/* Makes the prompt: bytes that no other round has, then a question that no other worker has. */
static void prompt_make(const struct surge_real *s, uint64_t round, uint32_t worker, char *text)
{
    char question[QUESTION + 1];
    uint64_t random = round;
    for (uint32_t i = 0; i < s->tokens; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        text[i] = (char)('a' + (random >> 33) % 26);
    }
    (void)snprintf(question, sizeof(question), " what of %6u?", worker % 1000000u);
    memset(text + s->tokens, '.', QUESTION);
    memcpy(text + s->tokens, question, strlen(question));
}

/* ---- processes ---- */

static int worker_path(char path[PATH_MAX])
{
    const ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 32);
    if (n < 0) {
        say_error("/proc/self/exe: %s", strerror(errno));
        return BENCH_FAILED;
    }
    path[n] = '\0';
    (void)snprintf(strrchr(path, '/') + 1, 32, "kvcache-worker");
    if (access(path, X_OK) == 0)
        return 0;
    say_error("%s: %s; build it (it needs OpenBLAS)", path, strerror(errno));
    return BENCH_FAILED;
}

/* Runs in the child: the prompt comes on standard input, the report goes to standard output. */
static void worker_exec(const struct surge_real *s, const char *path, bool waits, int in, int out)
{
    char context[16];
    const char *argv[ARGS_MAX];
    size_t n = 0;
    (void)snprintf(context, sizeof(context), "%u", s->tokens + 2 * QUESTION);
    const char *const words[] = {path,    "--preset", s->preset,   "--stdin", "--new",
                                 "1",     "--json",   "--threads", "1",       "--context",
                                 context, "--socket", s->socket};
    for (; n < sizeof(words) / sizeof(words[0]); n++)
        argv[n] = words[n];
    if (waits)
        argv[n++] = "--wait";
    argv[n] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_DFL);
    rig_disown();
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    execv(path, (char *const *)argv);
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    _exit(127);
}

static int child_start(const struct surge_real *s, const char *path, bool waits, struct child *ret)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    int rc = pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 ? 0 : -errno;
    fflush(NULL);
    const pid_t pid = rc == 0 ? fork() : -1;
    if (pid == 0)
        worker_exec(s, path, waits, in[0], out[1]);
    if (pid < 0) {
        say_error("cannot start a worker: %s", strerror(errno));
        close(in[1]);
        close(out[0]);
    } else {
        *ret = (struct child){.pid = pid, .in = in[1], .out = out[0]};
    }
    close(in[0]);
    close(out[1]);
    return pid < 0 ? BENCH_FAILED : 0;
}

/* Waits until the worker has its weights and a session; until then the prompt lies in the pipe. The
 * worker then waits for the prompt's end. */
static int child_await(const struct child *c, uint64_t until_ns)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    int left = 1;
    while (ioctl(c->in, FIONREAD, &left) == 0 && left > 0) {
        if (now_ns() > until_ns) {
            say_error("a worker does not read its prompt");
            return BENCH_FAILED;
        }
        siginfo_t ended = {.si_pid = 0};
        if (waitid(P_PID, (id_t)c->pid, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
            ended.si_pid != 0) {
            say_error("a worker ended before it had its prompt");
            return BENCH_FAILED;
        }
        nanosleep(&pause, NULL);
    }
    return 0;
}

static void close_once(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- what they report ---- */

static int report_take(const char *text, struct surge_outcome *sum)
{
    json_t *all = json_loads(text, 0, NULL);
    const json_t *ttft = json_object_get(all, "ttft_ns");
    const json_t *computed =
        json_object_get(json_array_get(json_object_get(all, "sequences"), 0), "computed_tokens");
    const bool good = json_is_integer(ttft) && json_is_integer(computed);
    if (good) {
        sum->ttft_s += (double)json_integer_value(ttft) * 1e-9;
        sum->computed += (double)json_integer_value(computed);
    } else {
        say_error("a worker's report is not understood: '%.80s'", text);
    }
    json_decref(all);
    return good ? 0 : BENCH_FAILED;
}

static int child_finish(struct child *c, struct surge_outcome *sum)
{
    static char text[REPORT_MAX];
    size_t n = 0;
    int status = -1;
    for (ssize_t got = 1; got > 0 && n<REPORT_MAX - 1; n += got> 0 ? (size_t)got : 0)
        got = read(c->out, text + n, REPORT_MAX - 1 - n);
    text[n] = '\0';
    close_once(&c->out);
    if (waitpid(c->pid, &status, 0) != c->pid || status != 0) {
        say_error("a worker ended with status %d", status);
        return BENCH_FAILED;
    }
    return report_take(text, sum);
}

int surge_real_round(const struct surge_real *s, uint64_t round, bool waits,
                     struct surge_outcome *ret)
{
    static char text[SURGE_REAL_TOKENS_MAX + QUESTION];
    struct child child[SURGE_REAL_WORKERS_MAX];
    struct surge_outcome sum = {0};
    char path[PATH_MAX];
    uint32_t n = 0;
    int rc = worker_path(path);
    (void)signal(SIGPIPE, SIG_IGN); /* write() reports a worker that has died */
    while (rc == 0 && n < s->workers && (rc = child_start(s, path, waits, &child[n])) == 0) {
        prompt_make(s, round, n, text);
        if (write(child[n++].in, text, s->tokens + QUESTION) != (ssize_t)(s->tokens + QUESTION)) {
            say_error("a worker takes no prompt: %s", strerror(errno));
            rc = BENCH_FAILED;
        }
    }
    const uint64_t until_ns = now_ns() + READY_NS;
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = child_await(&child[i], until_ns);
    for (uint32_t i = 0; i < n; i++)
        close_once(&child[i].in); /* the end of its prompt lets each worker begin */
    for (uint32_t i = 0; i < n; i++) {
        const int ended = child_finish(&child[i], &sum);
        rc = rc == 0 ? ended : rc;
    }
    *ret = (struct surge_outcome){sum.computed, sum.ttft_s / s->workers};
    return rc;
}
