/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device whose memory is this process's, for tests. It is the product's gpu.c, but the test plays
 * its thread, so nothing happens by itself. An operation waits until the test runs it, a copy
 * fragment by fragment. It checks what a device cannot check: that no fragment lies outside of
 * existing memory, and that nothing is freed under a copy. It counts how much memory was allocated
 * at most.
 *
 * Memory is memfds (DEVICE_HANDLE_EMU), as with an emulated device. Newly allocated memory is
 * filled with FAKE_GPU_FRESH, void memory with FAKE_GPU_VOID. A program that uses it is linked with
 * --wrap=gpu_close.
 */
#ifndef KVC_TEST_FAKE_GPU_H
#define KVC_TEST_FAKE_GPU_H

#include "gpu.h"

/* So small that tests reach it; a driver's pieces are larger. */
#define FAKE_GPU_PIECE_FRAGS 64u
#define FAKE_GPU_PIECE_BYTES (UINT64_C(256) << 10)
#define FAKE_GPU_FRESH       0xa5
#define FAKE_GPU_VOID        0xdd

/* Brings the device up and calls `changed`. */
void fake_gpu_up(struct gpu *gpu);
/* Takes the device out: its memory is void, and `changed` is called. Operations in flight end with
 * -EIO in the next fake_gpu_memory() or fake_gpu_copy(). */
void fake_gpu_lose(struct gpu *gpu);

/* Runs all waiting operations except copies. Returns their number. */
uint32_t fake_gpu_memory(struct gpu *gpu);
/* Copies up to `frags` fragments of copies that have begun or may begin, in order. Ends copies that
 * are complete, and those that cannot begin. Returns the number of fragments. */
uint32_t fake_gpu_copy(struct gpu *gpu, uint32_t frags);
/* Runs both functions until nothing is left to do. */
void fake_gpu_run(struct gpu *gpu);

/* Lets the next `n` operations of that kind (not copies) fail. */
void fake_gpu_fail(struct gpu *gpu, enum gpu_op_kind kind, uint32_t n, int err);

uint64_t fake_gpu_peak_bytes(struct gpu *gpu); /* most bytes that were allocated at one time */
uint32_t fake_gpu_mems(struct gpu *gpu);       /* memories that are allocated or imported now */
uint32_t fake_gpu_waiting(struct gpu *gpu, enum gpu_op_kind kind);
/* Number of operations of that kind that were ever submitted. */
uint32_t fake_gpu_seen(struct gpu *gpu, enum gpu_op_kind kind);
/* Fragments of the copy that ended last. */
uint32_t fake_gpu_last_frags(struct gpu *gpu);
bool fake_gpu_is_pinned(struct gpu *gpu, const void *host);

#endif
