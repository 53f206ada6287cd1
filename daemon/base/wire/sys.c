/* SPDX-License-Identifier: Apache-2.0 */
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fault.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#define LARGE_PAGE ((size_t)2 << 20)

/* ---- alloc ---- */

static bool no_memory(void)
{
    if (!FAULT(alloc))
        return false;
    errno = ENOMEM;
    return true;
}

void *sys_malloc(size_t bytes)
{
    return no_memory() ? NULL : malloc(bytes);
}

void *sys_calloc(size_t count, size_t bytes)
{
    return no_memory() ? NULL : calloc(count, bytes);
}

void *sys_realloc(void *old, size_t bytes)
{
    return no_memory() ? NULL : realloc(old, bytes);
}

void *sys_aligned_alloc(size_t alignment, size_t bytes)
{
    return no_memory() ? NULL : aligned_alloc(alignment, bytes);
}

char *sys_strdup(const char *text)
{
    return no_memory() ? NULL : strdup(text);
}

/* ---- map ---- */

void *sys_mmap(void *at, size_t bytes, int prot, int flags, int fd)
{
    if (FAULT(map)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return mmap(at, bytes, prot, flags, fd, 0);
}

/* The place is a hint: MAP_FIXED over a reservation would, where it fails, leave a hole that
 * another thread's memory may be in by then, and huge pages of another size would not fit there. */
void *sys_map_file(size_t bytes, int prot, int fd)
{
    if (bytes < LARGE_PAGE)
        return sys_mmap(NULL, bytes, prot, MAP_SHARED, fd);
    char *room = sys_mmap(NULL, bytes + LARGE_PAGE, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    char *at = room + (-(uintptr_t)room & (LARGE_PAGE - 1));
    (void)munmap(room, bytes + LARGE_PAGE);
    return mmap(at, bytes, prot, MAP_SHARED, fd, 0);
}

void *sys_pages(size_t bytes)
{
    void *p = sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    return p == MAP_FAILED ? NULL : p;
}

int sys_ftruncate(int fd, off_t bytes)
{
    if (FAULT(map)) {
        errno = ENOSPC;
        return -1;
    }
    return ftruncate(fd, bytes);
}

int sys_fallocate(int fd, int mode, off_t bytes)
{
    if (FAULT(map)) {
        errno = ENOSPC;
        return -1;
    }
    return fallocate(fd, mode, 0, bytes);
}

/* ---- fd ---- */

static bool no_descriptor(void)
{
    if (!FAULT(fd))
        return false;
    errno = EMFILE;
    return true;
}

int sys_memfd(const char *name, unsigned flags)
{
    if (no_descriptor())
        return -1;
    flags |= MFD_CLOEXEC;
    const int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    if (fd >= 0 || errno != EINVAL)
        return fd;
    return memfd_create(name, flags); /* before Linux 6.3 */
}

int sys_memfd_sized(const char *name, unsigned flags, uint64_t bytes)
{
    const int fd = sys_memfd(name, flags | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (fchmod(fd, S_IRUSR | S_IWUSR) == 0 && sys_ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    const int err = errno;
    (void)close(fd);
    errno = err;
    return -1;
}

int sys_eventfd(int flags)
{
    return no_descriptor() ? -1 : eventfd(0, flags | EFD_CLOEXEC);
}

int sys_socket(int domain, int type)
{
    return no_descriptor() ? -1 : socket(domain, type | SOCK_CLOEXEC, 0);
}

int sys_accept(int fd, int flags)
{
    return no_descriptor() ? -1 : accept4(fd, NULL, NULL, flags | SOCK_CLOEXEC);
}

int sys_open(const char *path, int flags, mode_t mode)
{
    return no_descriptor() ? -1 : open(path, flags | O_CLOEXEC, mode);
}

int sys_dup(int fd)
{
    return no_descriptor() ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

int sys_pipe(int ret_fds[2])
{
    return no_descriptor() ? -1 : pipe2(ret_fds, O_CLOEXEC);
}

int sys_epoll(void)
{
    return no_descriptor() ? -1 : epoll_create1(EPOLL_CLOEXEC);
}

int sys_signalfd(const sigset_t *signals, int flags)
{
    return no_descriptor() ? -1 : signalfd(-1, signals, flags | SFD_CLOEXEC);
}

int sys_timerfd(int flags)
{
    return no_descriptor() ? -1 : timerfd_create(CLOCK_MONOTONIC, flags | TFD_CLOEXEC);
}

int sys_peer_pidfd(int fd, pid_t pid)
{
    int pidfd = -1;
    socklen_t n = sizeof pidfd;
    if (no_descriptor())
        return -1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &n) == 0)
        return pidfd;
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* ---- thread ---- */

pid_t sys_fork(void)
{
    if (FAULT(thread)) {
        errno = EAGAIN;
        return -1;
    }
    return fork();
}
