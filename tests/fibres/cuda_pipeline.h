/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynchronous copies to shared memory, in place of CUDA's header of this name. A copy is made when
 * its thread waits for it; until then its place holds bytes that are no numbers. So a thread that
 * reads too early, or waits for one group too few, sees wrong values.
 */
#ifndef TESTS_CUDA_PIPELINE_H
#define TESTS_CUDA_PIPELINE_H

#include "cuda_fibres.h"

inline void __pipeline_memcpy_async(void *to, const void *from, size_t bytes)
{
    fibres::copy_later(to, from, bytes);
}

inline void __pipeline_commit()
{
    fibres::copies_close();
}

inline void __pipeline_wait_prior(size_t groups)
{
    fibres::copies_wait(groups);
}

#endif
