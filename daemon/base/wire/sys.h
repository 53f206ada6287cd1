/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sys: calls that ask the system for something and may be refused, each behind its fault point.
 *
 * Each behaves as the function that it is named after: NULL, MAP_FAILED or -1 with errno when it
 * fails, whether the system refused or a test did. Daemon and client make these calls through here
 * only (tests/fault/points.sh), so that a test of "the Nth fails" reaches every one of them.
 *
 * Threads: any.
 */
#ifndef KVC_WIRE_SYS_H
#define KVC_WIRE_SYS_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SYS__CHECKED __attribute__((warn_unused_result))

/* point alloc: ENOMEM */
SYS__CHECKED void *sys_malloc(size_t bytes);
SYS__CHECKED void *sys_calloc(size_t count, size_t bytes);
SYS__CHECKED void *sys_realloc(void *old, size_t bytes);
SYS__CHECKED void *sys_aligned_alloc(size_t alignment, size_t bytes);
SYS__CHECKED char *sys_strdup(const char *text);

/* point map: ENOMEM, ENOSPC; the offset in the file is 0 */
SYS__CHECKED void *sys_mmap(void *at, size_t bytes, int prot, int flags, int fd);
/* Maps all of a file, MAP_SHARED. A mapping of 2 MiB or more begins at a multiple of 2 MiB, so that
 * its large pages can be mapped whole, unless another thread takes that address meanwhile. */
SYS__CHECKED void *sys_map_file(size_t bytes, int prot, int fd);
SYS__CHECKED int sys_ftruncate(int fd, off_t bytes);
/* mode: FALLOC_FL_*; from the start of the file. */
SYS__CHECKED int sys_fallocate(int fd, int mode, off_t bytes);
/* Anonymous zeroed pages that cost nothing until they are touched; NULL when refused. */
SYS__CHECKED void *sys_pages(size_t bytes);
struct sys_range {
    void *base;
    uint64_t bytes;
};

/* point fd: EMFILE; all with CLOEXEC */
SYS__CHECKED int sys_memfd(const char *name, unsigned flags);
/* A memfd of `bytes` bytes that can be sealed, and that no other user can open again through /proc.
 * Points fd and map. */
SYS__CHECKED int sys_memfd_sized(const char *name, unsigned flags, uint64_t bytes);
SYS__CHECKED int sys_eventfd(int flags);
SYS__CHECKED int sys_socket(int domain, int type); /* type: with SOCK_NONBLOCK or without */
SYS__CHECKED int sys_accept(int fd, int flags);
SYS__CHECKED int sys_open(const char *path, int flags, mode_t mode);
SYS__CHECKED int sys_dup(int fd);
/* fds: the end to read, the end to write. */
__attribute__((warn_unused_result)) int sys_pipe(int ret_fds[2]);
SYS__CHECKED int sys_epoll(void);
SYS__CHECKED int sys_signalfd(const sigset_t *signals, int flags);
SYS__CHECKED int sys_timerfd(int flags); /* of the monotonic clock */
/* A pidfd of the peer of a connected unix socket, whose pid was `pid` when it connected. Before
 * Linux 6.5 it is opened by that number, which may be another process's by then. */
SYS__CHECKED int sys_peer_pidfd(int fd, pid_t pid);

/* point thread: EAGAIN */
SYS__CHECKED pid_t sys_fork(void);

#endif
