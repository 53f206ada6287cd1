/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of kernels/, run on the CPU (README.md). */
#ifndef TESTS_FIBRES_H
#define TESTS_FIBRES_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Runs the kernel of that name (kvc_copy_frags, ...) with these grids (x, y, z) and the arguments
 * as cuLaunchKernel() takes them. backwards: blocks and threads run in reverse order, with which a
 * correct kernel gives the same result. An incorrect kernel, or an unknown name, ends the process.
 */
void fibres_run(const char *kernel, const unsigned grid[3], const unsigned block[3], bool backwards,
                void *const *args);

#ifdef __cplusplus
}
#endif

#endif
