/* SPDX-License-Identifier: Apache-2.0 */
/* How the fake CUDA driver names its memory to other processes; the fake daemon maps it so, too. */
#ifndef TESTS_GPU_FAKE_CUDA_HANDLES_H
#define TESTS_GPU_FAKE_CUDA_HANDLES_H

#include <stdint.h>

#define FAKE_CUDA_MAGIC UINT64_C(0x6b76632d66616b65)

/* Lies in the last page of the memfd; an importer recognises the memory by it. */
struct fake_cuda_tail {
    uint64_t magic, bytes;
    int32_t device;
};

/* Contents of an IPC handle. */
struct fake_cuda_ipc {
    uint64_t magic, bytes;
    int32_t pid, fd, device;
};

#endif
