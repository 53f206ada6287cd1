/* SPDX-License-Identifier: Apache-2.0 */
/* A scratch directory and a loop, for tests of adapters that keep something on disk. */
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

/* On disk: in the working directory, since /tmp may be a tmpfs that lacks O_DIRECT. In memory:
 * where there is a tmpfs, for tests that sync thousands of times. */
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

/* A path in the scratch directory; up to four live at once. */
static inline const char *in_scratch(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

#endif
