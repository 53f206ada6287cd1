/* SPDX-License-Identifier: Apache-2.0 */
/* Listens on a unix socket at a path, and removes a socket there whose daemon has ended. */
#include "unix_listen.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys.h"

/* 5 s. */
#define OUTLIVED_TRIES    100u
#define OUTLIVED_PAUSE_US 50000u

int unix_address(const char *path, struct sockaddr_un *ret_addr)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof addr.sun_path)
        return -ENAMETOOLONG;
    memcpy(addr.sun_path, path, strlen(path) + 1);
    *ret_addr = addr;
    return 0;
}

/* Connecting to a plain file is refused in the same way: that one is somebody's. */
static int unlink_socket(const char *path)
{
    struct stat st;
    if (lstat(path, &st))
        return -errno;
    if (!S_ISSOCK(st.st_mode))
        return -EEXIST;
    return unlink(path) ? -errno : 0;
}

/* Whether the process that listens at the other end has ended. */
static bool listener_has_ended(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0 || cred.pid <= 0)
        return false;
    const int pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
    if (pidfd < 0)
        return errno == ESRCH;
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    const bool ended = poll(&p, 1, 0) == 1;
    close(pidfd);
    return ended;
}

/* A socket file that nobody listens on is left over from a daemon that was killed. -EAGAIN: the
 * kernel has not let go of its descriptors yet, for they outlive it until its last I/O has ended;
 * or its queue is full, which a blocking connect would wait out. */
static int remove_if_stale(int type, const struct sockaddr_un *addr)
{
    int fd = sys_socket(AF_UNIX, type | SOCK_NONBLOCK);
    if (fd < 0)
        return -errno;
    int err = 0;
    if (connect(fd, (const struct sockaddr *)addr, sizeof *addr) == 0)
        err = listener_has_ended(fd) ? -EAGAIN : -EADDRINUSE;
    else if (errno == ECONNREFUSED)
        err = unlink_socket(addr->sun_path);
    else if (errno != ENOENT)
        err = -errno;
    close(fd);
    return err;
}

static int remove_stale(int type, const struct sockaddr_un *addr)
{
    int err = remove_if_stale(type, addr);
    for (unsigned i = 0; err == -EAGAIN && i < OUTLIVED_TRIES; i++) {
        (void)usleep(OUTLIVED_PAUSE_US);
        err = remove_if_stale(type, addr);
    }
    return err == -EAGAIN ? -EADDRINUSE : err;
}

int unix_listen(int type, const struct sockaddr_un *addr, mode_t mode, int backlog, int *ret_fd)
{
    MUST(type == SOCK_STREAM || type == SOCK_SEQPACKET);
    MUST(addr->sun_family == AF_UNIX && backlog > 0);
    int err = remove_stale(type, addr);
    if (err)
        return err;
    const int fd = sys_socket(AF_UNIX, type | SOCK_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)addr, sizeof *addr)) {
        err = -errno;
        close(fd);
        return err;
    }
    if (chmod(addr->sun_path, mode) || listen(fd, backlog)) {
        err = -errno;
        unlink(addr->sun_path);
        close(fd);
        return err;
    }
    *ret_fd = fd;
    return 0;
}
