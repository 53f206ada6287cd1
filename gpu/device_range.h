/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory on a device that this process has: made here or imported, and what there is of it to be
 * undone. Whoever asked for it owns it, and gives it back to the implementation that made it:
 * cuda_mem_release(), emu_mem_free().
 */
#ifndef KVC_GPU_DEVICE_RANGE_H
#define KVC_GPU_DEVICE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

enum device_range_kind {
    DEVICE_RANGE_VMM = 1, /* of CUDA's virtual memory management */
    DEVICE_RANGE_PLAIN,   /* of cuMemAlloc; IPC exports it */
    DEVICE_RANGE_IPC,     /* of another process, by CUDA IPC */
    DEVICE_RANGE_EMU      /* of an emulated device: a file that is mapped */
};

struct device_range {
    enum device_range_kind kind; /* 0: there is none */
    uint64_t at, bytes;          /* all of it, by the addresses that it has here */
    bool created, reserved;      /* VMM: `handle`; the addresses */
    bool mapped;                 /* VMM, EMU */
    bool held;                   /* PLAIN, IPC; false: the caller's own, which is not freed */
    bool has_file;               /* EMU: `fd` */
    int fd;
    uint64_t handle; /* VMM, while `created` */
};

#endif
