/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule about fork: a child may not use its parent's sessions, and must not keep them alive. For
 * the daemon a worker lives as long as its attach connection is open. A copy of the descriptor in a
 * child that outlives its parent (a pool of forked workers) would hold the parent's leases for
 * ever. So every child closes its copies at once. A child made without fork handlers (a bare clone)
 * keeps its copies, but the library still recognises it as a child.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client.h"
#include "sys.h"

/* A session in the list of this process's sessions, and how it knows a child of fork(). */
struct fork_guard {
    struct fork_guard *next;
    struct kvc *kvc;
    /* 1 in the process that opened the session; the kernel zeroes it in a child. NULL: the kernel
     * cannot do that, so pids are compared. */
    volatile uint8_t *not_forked;
    pid_t pid; /* of the process that opened the session */
};

/* Guards the list, and is held across fork() so that the child finds the list whole. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fork_guard *sessions;

static void before(void)
{
    (void)pthread_mutex_lock(&lock);
}

static void in_parent(void)
{
    (void)pthread_mutex_unlock(&lock);
}

static void fork_drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void fork_in_child(void)
{
    for (const struct fork_guard *g = sessions; g != NULL; g = g->next) {
        struct kvc *k = g->kvc;
        fork_drop(&k->attach_fd);
        fork_drop(&k->watch.epoll);
        fork_drop(&k->watch.event);
        fork_drop(&k->watch.timer);
        for (struct orphan *p = k->orphans; p != NULL; p = p->next)
            fork_drop(&p->fd);
        for (uint32_t i = 0; i < DAEMON_EXITS_MAX; i++)
            fork_drop(&k->exit[i].pidfd);
    }
    sessions = NULL;
    (void)pthread_mutex_unlock(&lock);
}

static int install_result;

static void install(void)
{
    install_result = -pthread_atfork(before, in_parent, fork_in_child);
}

int fork__enter(struct kvc *k)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, install);
    if (install_result < 0)
        return install_result;

    /* One byte on a page that the kernel zeroes in children: reading it costs no system call. */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p = sys_mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (p == MAP_FAILED)
        return -errno;
    struct fork_guard *g = sys_malloc(sizeof(*g));
    if (g == NULL) {
        (void)munmap(p, page);
        return -ENOMEM;
    }
    *g = (struct fork_guard){.kvc = k, .pid = getpid()};
    if (madvise(p, page, MADV_WIPEONFORK) == 0) {
        *p = 1;
        g->not_forked = p;
    } else {
        (void)munmap(p, page);
    }
    k->fork = g;

    (void)pthread_mutex_lock(&lock);
    g->next = sessions;
    sessions = g;
    (void)pthread_mutex_unlock(&lock);
    return 0;
}

void fork__forbid(void)
{
    (void)pthread_mutex_lock(&lock);
}

void fork__allow(void)
{
    (void)pthread_mutex_unlock(&lock);
}

bool fork__is_child(const struct kvc *k)
{
    const struct fork_guard *g = k->fork;
    return g->not_forked != NULL ? *g->not_forked == 0 : getpid() != g->pid;
}

void fork__leave(struct kvc *k)
{
    struct fork_guard *g = k->fork;
    if (g == NULL) /* kvc_open failed before fork__enter */
        return;
    (void)pthread_mutex_lock(&lock);
    for (struct fork_guard **at = &sessions; *at != NULL; at = &(*at)->next) {
        if (*at == g) {
            *at = g->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    if (g->not_forked != NULL)
        (void)munmap((void *)(uintptr_t)g->not_forked, (size_t)sysconf(_SC_PAGESIZE));
    free(g);
    k->fork = NULL;
}
