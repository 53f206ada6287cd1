/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels with a C ABI: of each a CPU twin (suffix _cpu) and, where the build has CUDA
 * (KVC_HAVE_CUDA), an image of device code for the driver's cuModuleLoadData() and
 * cuLaunchKernel(): no CUDA runtime is linked. An image has code for the devices that it was built
 * for (kernels/README.md); another device refuses it when it is loaded, and so does a driver of an
 * older CUDA than the compiler. For these there is PTX, as text that ends with a zero byte: any
 * driver since CUDA 11.0 compiles it, for any device since sm_80.
 *
 * Memory    all buffers are borrowed: by _cpu until it returns, by a kernel until it has ended; for
 *           a kernel all of them, lists too, must be in the device's reach.
 * Threads   any; no state is kept.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- fragments (library kvc_frags) ---- */

/*
 * Bytes from `from` to `to`, addresses that whoever copies can reach. Fragments do not overlap, and
 * there is no order between them. No alignment is required: a fragment whose two addresses are
 * multiples of 16 moves 16 bytes per load, else 4 (multiples of 4), else 1.
 */
struct kvc_frag {
    uint64_t to, from;
    uint64_t bytes;
};

void kvc_copy_frags_cpu(const struct kvc_frag *list, uint32_t n);
/* The same past the cache: for more bytes than the caches hold, or when nobody reads them soon. A
 * release after the return makes the bytes visible to whoever acquires it. */
void kvc_stream_frags_cpu(const struct kvc_frag *list, uint32_t n);

#ifdef KVC_HAVE_CUDA
/*
 * The same on a device, arguments (list, n).
 *
 * The grid: 8 blocks of 512 threads, one block on a multiprocessor. 128 warps with 8 loads of 512
 * bytes each keep 512 KiB in flight, several times what a PCIe 5 link has on its way (60 GB/s times
 * 2 us), and leave all but 8 multiprocessors to others. Any other grid copies the same. */
#define KVC_FRAGS_KERNEL  kvc_copy_frags /* its name, as an identifier */
#define KVC_FRAGS_BLOCKS  8u
#define KVC_FRAGS_THREADS 512u
extern const unsigned char kvc_frags_image[], kvc_frags_ptx[];
extern const size_t kvc_frags_image_bytes;
#endif

/* ---- a decode step's reading (library kvc_decode) ---- */

/*
 * Reads `words` words of KV once, each exactly once, as the attention of a decode step does, and
 * computes as good as nothing: *ret_sum grows by the sum of all words, modulo 2^32. What runs
 * beside it and takes memory bandwidth or multiprocessors shows in its time. kv is a multiple of
 * 16, words one of 4.
 */
void kvc_decode_cpu(const uint32_t *kv, uint64_t words, uint32_t *ret_sum);

#ifdef KVC_HAVE_CUDA
/*
 * The same on a device, arguments (kv, words, ret_sum), the word added to atomically. The grid: so
 * many blocks for each multiprocessor, all of which run at once: 2 x 512 threads with 8 loads of 16
 * bytes each have 128 KiB of each multiprocessor in flight, more than twice what an H200's memory
 * takes to be busy (4.8 TB/s times 1 us, over 132). Any other grid reads the same. */
#define KVC_DECODE_KERNEL  kvc_decode /* its name, as an identifier */
#define KVC_DECODE_BLOCKS  2u         /* for each multiprocessor */
#define KVC_DECODE_THREADS 512u
extern const unsigned char kvc_decode_image[], kvc_decode_ptx[];
extern const size_t kvc_decode_image_bytes;
#endif

#ifdef __cplusplus
}
#endif
