/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device of memory of this process, for tests: the product's gpu.c, whose thread the test is, so
 * nothing happens by itself. An operation waits until the test lets it run, a copy fragment by
 * fragment. It looks after what a device cannot: that no fragment leaves memory that is there, that
 * nothing is freed that a copy names, and how much was allocated at most.
 *
 * Memory is memfds (DEVICE_HANDLE_EMU), as an emulated device's is. Memory that has just been
 * allocated is full of FAKE_GPU_FRESH, void memory of FAKE_GPU_VOID. A program with it is linked
 * with --wrap=gpu_close.
 */
#ifndef KVC_TEST_FAKE_GPU_H
#define KVC_TEST_FAKE_GPU_H

#include "gpu.h"

/* As small as tests of pieces like; a driver's are larger. */
#define FAKE_GPU_PIECE_FRAGS 64u
#define FAKE_GPU_PIECE_BYTES (UINT64_C(256) << 10)
#define FAKE_GPU_FRESH       0xa5
#define FAKE_GPU_VOID        0xdd

/* It comes up, and `changed` is called. */
void fake_gpu_up(struct gpu *gpu);
/* It goes out: memory is void, `changed` is called; what is in flight ends with -EIO in the next
 * fake_gpu_memory() or fake_gpu_copy(). */
void fake_gpu_lose(struct gpu *gpu);

/* Runs what waits of operations other than copies; returns how many. */
uint32_t fake_gpu_memory(struct gpu *gpu);
/* Copies up to `frags` fragments, in order, of those that may begin or have begun; ends what is
 * over, and what does not begin. Returns how many fragments. */
uint32_t fake_gpu_copy(struct gpu *gpu, uint32_t frags);
/* Both, until nothing moves. */
void fake_gpu_run(struct gpu *gpu);

/* The next `n` operations of that kind (no copies) fail. */
void fake_gpu_fail(struct gpu *gpu, enum gpu_op_kind kind, uint32_t n, int err);

uint64_t fake_gpu_peak_bytes(struct gpu *gpu); /* allocated at one time */
uint32_t fake_gpu_mems(struct gpu *gpu);       /* allocated or imported, and not freed */
uint32_t fake_gpu_waiting(struct gpu *gpu, enum gpu_op_kind kind);
/* Ever submitted. */
uint32_t fake_gpu_seen(struct gpu *gpu, enum gpu_op_kind kind);
/* Fragments of the copy that ended last. */
uint32_t fake_gpu_last_frags(struct gpu *gpu);
bool fake_gpu_is_pinned(struct gpu *gpu, const void *host);

#endif
