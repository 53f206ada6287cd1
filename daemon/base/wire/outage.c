/* SPDX-License-Identifier: Apache-2.0 */
#include "outage.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *error;
    struct outage outage;
} known[] = {
    {"ENOENT",
     {"it is not there any more, or its name leads to another file",
      "put it back, or mount its file system again: it is tried again by itself"}},
    {"ENODATA",
     {"it has become shorter", "a restart gives it its length again, without what was behind"}},
    {"ESTALE",
     {"it holds another store, or none",
      "put back what was there: it is tried again by itself; or name the path in nvme.replaced and "
      "restart"}},
    {"ENOSPC",
     {"its file system has no room left", "make room there: it is tried again by itself"}},
    {"EDQUOT",
     {"a quota of its file system is used up", "raise the quota: it is tried again by itself"}},
    {"EROFS",
     {"its file system has become read-only",
      "look at the kernel's log (dmesg) for the error behind that, and mount it read-write: it is "
      "tried again by itself"}},
};

const struct outage *outage_of(const char *error)
{
    static const struct outage drive = {
        NULL, "it is tried again by itself; look at the kernel's log (dmesg) and the drive "
              "(smartctl -a)"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(error, known[i].error) == 0)
            return &known[i].outage;
    return &drive;
}
