/* SPDX-License-Identifier: Apache-2.0 */
#include "huge.h"

#include <sys/mman.h>

#define SMALL_BYTES UINT64_C(4096)
#define LARGE_BYTES (UINT64_C(2) << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Of nothing the kernel makes no large page; of one small page it does, and that takes a tenth of
 * the time that all the small ones do. */
static int make_one(uint8_t *at)
{
    const int err = madvise(at, SMALL_BYTES, MADV_POPULATE_WRITE);
    return err != 0 ? err : madvise(at, LARGE_BYTES, MADV_COLLAPSE);
}

void huge_make(uint8_t *base, uint64_t bytes, unsigned *tries)
{
    uint64_t at = -(uintptr_t)base & (LARGE_BYTES - 1);
    for (; *tries > 0 && at + LARGE_BYTES <= bytes; at += LARGE_BYTES)
        *tries -= make_one(base + at) != 0;
}
