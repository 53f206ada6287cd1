/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps one descriptor back, to accept and close a connection when no other descriptor is left. */
#include "spare.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sys.h"

int spare_open(struct spare *s)
{
    MUST(s->fd < 0); /* else one more descriptor is lost */
    s->fd = sys_open("/dev/null", O_RDONLY, 0);
    return s->fd < 0 ? -errno : 0;
}

void spare_close(struct spare *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

bool spare_needed(int err)
{
    return err == EMFILE || err == ENFILE || err == ENOMEM || err == ENOBUFS;
}

void spare_turn_away(struct spare *s, int listener)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    MUST(listener >= 0);
    spare_close(s);
    int fd = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    int err = spare_open(s);
    if (fd < 0 || err)
        (void)nanosleep(&moment, NULL);
}
