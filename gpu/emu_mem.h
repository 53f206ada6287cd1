/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of an emulated device, in the daemon as in the library: a memfd that is mapped by all who
 * use it, and that nobody can make shorter, since a file that is cut is a SIGBUS. Addresses are
 * pointers. When and how copies run is each side's own: a worker's at once, the daemon's as those
 * of a real device (daemon/io/gpu_emu.c).
 *
 * Functions return 0 or -errno. Threads: any.
 */
#ifndef KVC_GPU_EMU_MEM_H
#define KVC_GPU_EMU_MEM_H

#include "device_handle.h"
#include "device_range.h"

/* Who may write to memory that is exported. */
enum emu_export { EMU_FOR_READING = 1, EMU_FOR_WRITING };

/* Zeroed, whole pages, mapped here for both. ret_range->fd is for others; theirs is a mapping for
 * reading alone with FOR_READING. -ENOMEM, -EMFILE, -ENFILE. */
__attribute__((warn_unused_result)) int emu_mem_make(uint64_t bytes, enum emu_export others,
                                                     struct device_range *ret_range);
/* Names the memory; the descriptor stays its own. bytes: all of it, or less. */
void emu_mem_export(const struct device_range *range, uint64_t bytes,
                    struct device_handle *ret_handle);
/* Maps handle->bytes of it; the descriptor is borrowed. -EINVAL: not such a file, shorter than it
 * says, or not to be mapped so; -ENOMEM. */
__attribute__((warn_unused_result)) int emu_mem_import(const struct device_handle *handle,
                                                       bool is_read_only,
                                                       struct device_range *ret_range);
void emu_mem_free(struct device_range *range);

#endif
