/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of an emulated device, in the daemon and in the library: a memfd that every user maps.
 * Seals keep it from being made shorter, because reading beyond the end of a file raises SIGBUS.
 * Addresses are pointers. A worker's copies run at once; the daemon's run like those of a real
 * device (daemon/io/gpu_emu.c).
 *
 * Functions return 0 or -errno. Threads: any.
 */
#ifndef KVC_GPU_EMU_MEM_H
#define KVC_GPU_EMU_MEM_H

#include "device_handle.h"
#include "device_range.h"

/* What other processes may do with memory that is exported. */
enum emu_export { EMU_FOR_READING = 1, EMU_FOR_WRITING };

/* Makes zeroed memory of whole pages, and maps it here for reading and writing. Other processes map
 * ret_range->fd, for reading only with EMU_FOR_READING. -ENOMEM, -EMFILE, -ENFILE. */
__attribute__((warn_unused_result)) int emu_mem_make(uint64_t bytes, enum emu_export others,
                                                     struct device_range *ret_range);
/* Fills a handle for the first `bytes` of the memory. The range still owns the descriptor. */
void emu_mem_export(const struct device_range *range, uint64_t bytes,
                    struct device_handle *ret_handle);
/* Maps handle->bytes of another process's memory; the descriptor is borrowed. -EINVAL: it is not
 * such a file, is shorter than the handle says, or may not be mapped that way; -ENOMEM. */
__attribute__((warn_unused_result)) int emu_mem_import(const struct device_handle *handle,
                                                       bool is_read_only,
                                                       struct device_range *ret_range);
void emu_mem_free(struct device_range *range);

#endif
