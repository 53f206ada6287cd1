/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for pages whose link has ended wait here until no copy can touch the pages any more.
 *
 * If the daemon was killed, a device may still run copies that the daemon gave it, until the driver
 * has torn the process down. If the daemon lives (it dropped the session, or did not answer), it
 * ends the session's copies itself. The pages are the caller's again when the daemon's process has
 * ended. Its pidfd tells that: the kernel closes a process's files, the driver's included, before
 * the process counts as ended. If the process does not end, the requests are done after
 * DAEMON_EXIT_MS, which is longer than a device takes for its queue. A daemon that was stopped and
 * continues later gives its device nothing more, because the session's revocation was raised in the
 * page of words of this epoch. So the next epoch need not care about these pages.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "client_gpu__.h"
#include "sys.h"

static bool touches_pages(const struct kvc_op *op)
{
    return op->borrows && op->pool != NULL && (op->stage == OP_SENT || op->stage == OP_QUIESCING);
}

/* The attach connection of this epoch, which orphan.c may own by now; -1: there is none. */
static int attach_of(const struct kvc *k)
{
    const struct orphan *p = k->orphans;
    while (k->attach_fd < 0 && p != NULL && p->epoch != k->epoch)
        p = p->next;
    return k->attach_fd >= 0 ? k->attach_fd : p != NULL ? p->fd : -1;
}

/* A pidfd of the daemon's process. -ESRCH: the process has ended; -1: no pidfd can be opened. */
static int process_of(const struct kvc *k)
{
    struct ucred who = {.pid = 0};
    socklen_t n = sizeof(who);
    int fd = attach_of(k);
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0 || who.pid <= 0)
        return -1;
    int pidfd = sys_peer_pidfd(fd, who.pid);
    return pidfd >= 0 ? pidfd : errno == ESRCH ? -ESRCH : -1;
}

static void complete(struct kvc *k, uint32_t epoch)
{
    for (struct kvc_op *op = k->ops.live; op != NULL; op = op->next) {
        if (op->stage == OP_DAEMON_EXIT && op->epoch == epoch)
            op__complete(op, op->error);
    }
}

bool daemon_exit__begin(struct kvc *k)
{
    bool any = false;
    words__revoke(k, k->epoch);
    for (const struct kvc_op *op = k->ops.live; op != NULL; op = op->next)
        any = any || touches_pages(op);
    struct daemon_exit *e = k->exit;
    while (e < k->exit + DAEMON_EXITS_MAX && e->pidfd >= 0)
        e++;
    if (!any || e == k->exit + DAEMON_EXITS_MAX)
        return false;
    fork__forbid();
    *e = (struct daemon_exit){.pidfd = process_of(k), .epoch = k->epoch};
    fork__allow();
    const bool has_exited = e->pidfd == -ESRCH;
    if (e->pidfd >= 0)
        watch__add(k, e->pidfd);
    else
        e->pidfd = -1;
    return has_exited;
}

bool daemon_exit__takes(struct kvc_op *op, int error)
{
    if (!touches_pages(op))
        return false;
    op->stage = OP_DAEMON_EXIT;
    op->error = error;
    op->grace_ns = kvc__now() + DAEMON_EXIT_MS * NS_PER_MS;
    return true;
}

static void daemon_exit_forget(struct kvc *k, struct daemon_exit *e)
{
    MUST(e->pidfd >= 0);
    watch__remove(k, e->pidfd);
    fork__forbid();
    close(e->pidfd);
    e->pidfd = -1;
    fork__allow();
}

static bool is_awaited(const struct kvc *k, uint32_t epoch)
{
    const struct kvc_op *op = k->ops.live;
    while (op != NULL && !(op->stage == OP_DAEMON_EXIT && op->epoch == epoch))
        op = op->next;
    return op != NULL;
}

void daemon_exit__look(struct kvc *k)
{
    for (uint32_t i = 0; i < DAEMON_EXITS_MAX; i++) {
        struct daemon_exit *e = &k->exit[i];
        struct pollfd p = {.fd = e->pidfd, .events = POLLIN};
        if (e->pidfd < 0)
            continue;
        if (poll(&p, 1, 0) > 0)
            complete(k, e->epoch);
        if (!is_awaited(k, e->epoch))
            daemon_exit_forget(k, e);
    }
}

void daemon_exit__wait(const struct kvc_op *op)
{
    const struct kvc *k = op->kvc;
    struct pollfd p = {.fd = -1, .events = POLLIN};
    for (uint32_t i = 0; i < DAEMON_EXITS_MAX; i++) {
        if (k->exit[i].pidfd >= 0 && k->exit[i].epoch == op->epoch)
            p.fd = k->exit[i].pidfd;
    }
    (void)poll(&p, 1, (int)kvc__ms_until(op->grace_ns)); /* at most DAEMON_EXIT_MS */
}

void daemon_exit__close(struct kvc *k)
{
    for (uint32_t i = 0; i < DAEMON_EXITS_MAX; i++) {
        if (k->exit[i].pidfd >= 0)
            daemon_exit_forget(k, &k->exit[i]);
    }
}
