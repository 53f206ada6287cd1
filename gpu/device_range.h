/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory on a device that this process has allocated or imported, and which parts of that are to be
 * undone. The caller that asked for it owns it, and gives it back to the implementation that made
 * it: cuda_mem_release(), emu_mem_free().
 */
#ifndef KVC_GPU_DEVICE_RANGE_H
#define KVC_GPU_DEVICE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

enum device_range_kind {
    DEVICE_RANGE_VMM = 1, /* CUDA's virtual memory management */
    DEVICE_RANGE_PLAIN,   /* cuMemAlloc; CUDA IPC exports it */
    DEVICE_RANGE_IPC,     /* memory of another process, opened by CUDA IPC */
    DEVICE_RANGE_EMU      /* memory of an emulated device: a mapped file */
};

struct device_range {
    enum device_range_kind kind; /* 0: there is no memory */
    uint64_t at, bytes;          /* address in this process, and size */
    bool created;                /* VMM: `handle` is to be released */
    bool reserved;               /* VMM: the addresses are to be freed */
    bool mapped;                 /* VMM, EMU: the memory is to be unmapped */
    bool held;     /* PLAIN: is to be freed; IPC: is to be closed. False: it is somebody else's */
    bool has_file; /* EMU: `fd` is to be closed */
    int fd;
    uint64_t handle; /* VMM, while `created` */
};

#endif
