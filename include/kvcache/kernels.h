/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy kernels over paged KV memory, with a C ABI: a CUDA version (suffix _cuda, where the build
 * has CUDA: then KVC_HAVE_CUDA is defined) and a CPU twin of each (suffix _cpu) that keeps the same
 * contract.
 *
 * gather   packed[i * page_bytes .. +page_bytes) = page pages[i], for i in 0 .. page_count - 1
 * scatter  the inverse
 *
 * Shapes    page p is the page_bytes bytes at base + p * stride_bytes. The packed buffer has
 *           page_count * page_bytes bytes, no gaps.
 * Order     packed follows the page list. gather may name a page twice; scatter must not (which
 *           copy wins is then undefined).
 * Alignment none is required. Where base, the packed buffer, stride_bytes and page_bytes are all
 *           multiples of 16, the CUDA kernels move 16 bytes per load, else 4 (multiples of 4),
 *           else 1.
 * Overlap   the packed buffer must lie outside the paged region: refused, -EINVAL.
 * Bad pages a number of pages_max or more is not copied: its fragment stays as it was, and
 *           *ret_bad_pages is incremented. The caller zeroes that word before the call and must
 *           not use the result unless it is still zero after the copy has ended.
 * Returns   0, or -EINVAL: a null pointer, page_bytes 0, a stride shorter than a page, sizes that
 *           overflow 64 bits, overlap; then nothing was touched. page_count 0 is valid and copies
 *           nothing. _cuda also: -EIO, the launch was refused by the CUDA runtime.
 * Memory    all buffers are borrowed: by _cpu until it returns, by _cuda until the work on the
 *           stream has ended. For _cuda every pointer but the struct itself, page list and bad-page
 *           word included, must be readable (or writable) by the current device.
 * Threads   any; no state is kept. _cuda launches on the device that is current in the caller.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Paged memory, for instance one layer's K or V tensor of an inference engine. */
struct kvc_paged {
    void *base;            /* first byte of page 0; gather only reads through it */
    uint64_t stride_bytes; /* from one page's start to the next one's; at least page_bytes */
    uint64_t page_bytes;   /* bytes of a page that are copied; at least 1 */
    uint32_t pages_max;    /* page numbers are below this */
};

__attribute__((warn_unused_result)) int kvc_gather_cpu(const struct kvc_paged *from,
                                                       const uint32_t *pages, uint32_t page_count,
                                                       void *ret_packed, uint32_t *ret_bad_pages);

__attribute__((warn_unused_result)) int kvc_scatter_cpu(const struct kvc_paged *to,
                                                        const uint32_t *pages, uint32_t page_count,
                                                        const void *packed,
                                                        uint32_t *ret_bad_pages);

/*
 * Fragments anywhere: bytes from `from` to `to`, addresses that whoever copies can reach. They do
 * not overlap, and there is no order between them. No alignment is required: a fragment whose two
 * addresses are multiples of 16 moves 16 bytes per load, else 4 (multiples of 4), else 1.
 */
struct kvc_frag {
    uint64_t to, from;
    uint64_t bytes;
};

void kvc_copy_frags_cpu(const struct kvc_frag *list, uint32_t n);

#ifdef KVC_HAVE_CUDA
/*
 * The same on a device: a kernel (list, n), both arguments as above, for the driver's
 * cuModuleLoadData() and cuLaunchKernel(): no CUDA runtime is linked. The list too must be readable
 * by the device until the kernel has ended. The image has code for the devices that it was built
 * for (kernels/README.md); another device refuses it when it is loaded.
 *
 * The grid: 8 blocks of 512 threads, one block on a multiprocessor. 128 warps with 8 loads of 512
 * bytes each keep 512 KiB in flight, several times what a PCIe 5 link has on its way (60 GB/s times
 * 2 us), and leave all but 8 multiprocessors to others. Any other grid copies the same. */
#define KVC_FRAGS_KERNEL  kvc_copy_frags /* its name, as an identifier */
#define KVC_FRAGS_BLOCKS  8u
#define KVC_FRAGS_THREADS 512u
extern const unsigned char kvc_frags_image[];
extern const size_t kvc_frags_image_bytes;

/* stream is a cudaStream_t (null: the legacy default stream). Returns once launched, not done. */
__attribute__((warn_unused_result)) int kvc_gather_cuda(const struct kvc_paged *from,
                                                        const uint32_t *pages, uint32_t page_count,
                                                        void *ret_packed, uint32_t *ret_bad_pages,
                                                        void *stream);

__attribute__((warn_unused_result)) int kvc_scatter_cuda(const struct kvc_paged *to,
                                                         const uint32_t *pages, uint32_t page_count,
                                                         const void *packed,
                                                         uint32_t *ret_bad_pages, void *stream);
#endif

#ifdef __cplusplus
}
#endif
