/* SPDX-License-Identifier: Apache-2.0 */
#include "stdfds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "sys.h"

int stdfds_hold(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        /* The lowest that is free, which is fd; for children too. */
        const int held = sys_open("/", O_PATH, 0);
        if (held < 0 || fcntl(held, F_SETFD, 0) < 0)
            return -errno;
    }
    return 0;
}

int stdfds_flush(void)
{
    static int first;
    int failed = fflush(stdout) != 0 ? errno : 0;
    if (!failed && ferror(stdout))
        failed = EIO;
    if (first == 0)
        first = failed;
    return failed ? -first : 0;
}
