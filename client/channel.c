/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends and receives datagrams with descriptors on the attach socket; the file of its system calls.
 */
#include "channel.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fault.h"
#include "sys.h"

int channel__connect(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof(addr.sun_path))
        return -ENAMETOOLONG;
    memcpy(addr.sun_path, path, len + 1);

    int fd = sys_socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK);
    if (fd < 0)
        return -errno;
    /* A unix socket connects at once, or says EAGAIN when the listener's backlog is full. */
    if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) != 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

int channel__send(int fd, const void *buf, size_t len, int pass)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;
    if (FAULT(send))
        return -EPIPE;
    if (pass >= 0) {
        mh.msg_control = control;
        mh.msg_controllen = sizeof(control);
        struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &pass, sizeof(int));
    }
    do {
        n = sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : 0;
}

/* Keeps the first descriptor of the message and closes the others. Returns how many there were. */
static int take_descriptors(struct msghdr *mh, int *ret_first)
{
    int count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c != NULL; c = CMSG_NXTHDR(mh, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int passed;
            memcpy(&passed, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (count++ == 0)
                *ret_first = passed;
            else
                close(passed);
        }
    }
    return count;
}

int channel__recv(int fd, void *buf, size_t cap, int *ret_passed)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    struct iovec iov = {.iov_base = buf, .iov_len = cap};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control,
                        .msg_controllen = sizeof(control)};
    ssize_t n;
    /* A daemon that closed before it had read all is told of once, ahead of its last words. */
    do {
        n = recvmsg(fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    if (n < 0)
        return errno == EAGAIN ? 0 : -errno;

    int passed = -1;
    int count = take_descriptors(&mh, &passed);
    if (count > 0 && FAULT(fd)) { /* the kernel would have left them out, and said so */
        close(passed);
        passed = -1;
        count = 0;
        mh.msg_flags |= MSG_CTRUNC;
    }
    int rc = (int)n;
    if ((mh.msg_flags & MSG_CTRUNC) != 0 && count == 0)
        rc = -EMFILE;
    else if ((mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || count > 1)
        rc = -EPROTO;
    else if (n == 0) /* end of file: no message of the protocol is empty */
        rc = -EPIPE;
    if (rc < 0) {
        if (passed >= 0)
            close(passed);
        return rc;
    }
    *ret_passed = passed;
    return rc;
}

bool channel__is_hung_up(int fd)
{
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR)) != 0;
}

void channel__close(int *fd)
{
    if (*fd < 0)
        return;
    (void)shutdown(*fd, SHUT_RDWR);
    close(*fd);
    *fd = -1;
}
