/* SPDX-License-Identifier: Apache-2.0 */
/* A scratch directory and a loop, for tests of adapters that keep files. */
#ifndef TESTS_IO_FIXTURE_H
#define TESTS_IO_FIXTURE_H

#include <ftw.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "fault.h"
#include "loop_fixture.h"

static char scratch[64];

static inline int scratch_remove_one(const char *path, const struct stat *st, int flag,
                                     struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

/* on_disk: makes it in the working directory, because a tmpfs may lack O_DIRECT. Else on a tmpfs if
 * there is one, for tests that sync thousands of times. */
static inline void scratch_make(bool on_disk)
{
    const bool shm = !on_disk && access("/dev/shm", W_OK) == 0;
    strcpy(scratch, shm ? "/dev/shm/kvc-test-XXXXXX" : "kvc-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(scratch));
}

static inline void scratch_remove(void)
{
    fault_reset();
    (void)nftw(scratch, scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The path of a file in the scratch directory; at most four are valid at a time. */
static inline const char *in_scratch(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

#endif
