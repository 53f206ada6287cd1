/* SPDX-License-Identifier: Apache-2.0 */
#include "remedy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *remedy_of(int err, const char *path, bool inside, char text[REMEDY_BYTES])
{
    text[0] = '\0';
    switch (abs(err)) {
    case EACCES:
    case EPERM:
        (void)!snprintf(text, REMEDY_BYTES, "; try: chown %s%u %s", inside ? "-R " : "",
                        (unsigned)geteuid(), path);
        break;
    case EROFS:
        (void)!snprintf(text, REMEDY_BYTES,
                        "; mount its file system read-write (an error may have made it read-only: "
                        "dmesg), or name another place");
        break;
    case ENOSPC:
    case EDQUOT:
        (void)!snprintf(text, REMEDY_BYTES,
                        "; make room on its file system or in the quota, or name another place");
        break;
    case ENOENT:
    case ENOTDIR:
        (void)!snprintf(text, REMEDY_BYTES, "; name a directory that exists, or make this one");
        break;
    default:
        break;
    }
    return text;
}
