/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps one descriptor back, to accept and close a connection when no other descriptor is left. */
#include "fd_reserve.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sys.h"

int fd_reserve_open(struct fd_reserve *s)
{
    MUST(s->fd < 0); /* else one more descriptor is lost */
    s->fd = sys_open("/dev/null", O_RDONLY, 0);
    return s->fd < 0 ? -errno : 0;
}

void fd_reserve_close(struct fd_reserve *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

bool fd_reserve_needed(int err)
{
    return err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS;
}

void fd_reserve_turn_away(struct fd_reserve *s, int listener)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    MUST(listener >= 0);
    fd_reserve_close(s);
    int fd = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    int err = fd_reserve_open(s);
    if (fd < 0 || err)
        (void)nanosleep(&moment, NULL);
}
