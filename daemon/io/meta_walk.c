/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks LMDB's file in a child process before the daemon opens it: a damaged file may crash the
 * child or keep it busy for ever, and then counts as damaged.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "meta__.h"
#include "sys.h"

struct verdict {
    int result;
    struct meta__found found;
};

/* Whatever the file makes of this process, it ends here, without a core and without a word of the
 * daemon's own signal handlers. */
_Noreturn static void child(pid_t parent, int fd, const char *dir, uint64_t map_bytes,
                            bool readonly)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTERM, SIGINT};
    const struct rlimit no_core = {0, 0};
    sigset_t none;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* gone before that */
        _exit(1);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    for (size_t i = 0; i < ARRAY_LEN(fatal); i++)
        (void)signal(fatal[i], SIG_DFL);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    struct verdict v;
    memset(&v, 0, sizeof v);
    v.result = meta__db_check(dir, map_bytes, readonly, &v.found);
    const ssize_t n = write(fd, &v, sizeof v); /* below PIPE_BUF: whole or not at all */
    _exit(n == (ssize_t)sizeof v ? 0 : 1);
}

/* The verdict in time, or why there is none. */
static int meta_walk_hear(int fd, uint32_t limit_ms, struct verdict *ret_verdict)
{
    const uint64_t end_ns = clock_now_ns() + limit_ms * UINT64_C(1000000);
    for (;;) {
        const uint64_t now_ns = clock_now_ns();
        if (now_ns >= end_ns)
            return -ETIMEDOUT;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        const int n = poll(&p, 1, (int)((end_ns - now_ns) / 1000000 + 1));
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n <= 0)
            continue;
        const ssize_t got = read(fd, ret_verdict, sizeof *ret_verdict);
        if (got < 0 && errno == EINTR)
            continue;
        return got == (ssize_t)sizeof *ret_verdict ? 0 : -EPIPE;
    }
}

static int end_of(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

static int meta_walk_judge(int heard, int status, uint32_t limit_ms, const struct verdict *v,
                           struct meta__found *ret_found)
{
    if (heard == 0) {
        *ret_found = v->found;
        return v->result;
    }
    if (heard != -EPIPE && heard != -ETIMEDOUT) {
        snprintf(ret_found->why, sizeof ret_found->why, "the child cannot be heard: %s",
                 strerror(-heard));
        return heard;
    }
    if (heard == -ETIMEDOUT)
        snprintf(ret_found->why, sizeof ret_found->why, "its walk did not end within %u ms",
                 limit_ms);
    else if (WIFSIGNALED(status))
        snprintf(ret_found->why, sizeof ret_found->why, "its walk was ended by signal %d (%s)",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(ret_found->why, sizeof ret_found->why, "its walk ended with status %d",
                 WEXITSTATUS(status));
    return -EUCLEAN;
}

int meta__walk(const char *dir, uint64_t map_bytes, bool readonly, uint32_t limit_ms,
               struct meta__found *ret_found)
{
    int fds[2];
    struct verdict v;
    memset(&v, 0, sizeof v);
    memset(ret_found, 0, sizeof *ret_found);
    if (sys_pipe(fds) < 0) {
        const int err = -errno;
        snprintf(ret_found->why, sizeof ret_found->why, "no pipe: %s", strerror(-err));
        return err;
    }
    const pid_t self = getpid();
    const pid_t pid = sys_fork();
    if (pid == 0)
        child(self, fds[1], dir, map_bytes, readonly);
    const int fork_err = pid < 0 ? -errno : 0;
    (void)close(fds[1]);
    int heard = fork_err;
    int status = 0;
    if (fork_err == 0) {
        heard = meta_walk_hear(fds[0], limit_ms, &v);
        if (heard != 0 && heard != -EPIPE)
            (void)kill(pid, SIGKILL);
        status = end_of(pid);
    }
    (void)close(fds[0]);
    if (fork_err != 0) {
        snprintf(ret_found->why, sizeof ret_found->why, "no process to walk it: %s",
                 strerror(-fork_err));
        return fork_err;
    }
    return meta_walk_judge(heard, status, limit_ms, &v, ret_found);
}
