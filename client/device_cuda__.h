/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the CUDA device share: device_cuda.c (opening, host memory, words),
 * device_cuda_mem.c (memory on it), device_cuda_copy.c (copies). Empty without CUDA. The primary
 * context of the device is made current in each call, and what was current before is so again
 * behind it.
 */
#ifndef KVC_CLIENT_DEVICE_CUDA_PRIVATE_H
#define KVC_CLIENT_DEVICE_CUDA_PRIVATE_H
#ifdef KVC_HAVE_CUDA

#include "cuda_device.h"
#include "device__.h"

struct cuda {
    struct device dev; /* first */
    struct cuda_device gpu;
    CUcontext context;
    bool read_only_pins; /* read-only host memory can be registered */
    bool words;          /* streams write and await 64-bit words */
    bool one_address;    /* registered host memory has the same address on the device */

    bool kernel_tried; /* gpu.lists; without a kernel copies are the driver's alone */
};

static inline struct cuda *cuda__of(struct device *d)
{
    return (struct cuda *)(void *)d;
}
/* Before and after calls of the driver. enter: 0, or -EIO with its text. */
__attribute__((warn_unused_result)) int cuda__enter(struct cuda *c);
void cuda__leave(struct cuda *c);
/* Whether the driver may be called to free things: not in a child of fork(). Enters it then. */
__attribute__((warn_unused_result)) bool cuda__enter_to_free(struct cuda *c);
/* What a function of gpu/ has returned, with its text. */
__attribute__((warn_unused_result)) int cuda__said(struct cuda *c, int rc);
/* What a call has returned: 0, or -ENOMEM, -EOPNOTSUPP, -EIO with its text. */
__attribute__((warn_unused_result)) int cuda__check(struct cuda *c, const char *call, CUresult r);

__attribute__((warn_unused_result)) int cuda__alloc(struct device *d, uint64_t bytes,
                                                    struct device_mem *ret_mem);
__attribute__((warn_unused_result)) int cuda__wrap(struct device *d, void *addr, uint64_t bytes,
                                                   struct device_mem *ret_mem);
__attribute__((warn_unused_result)) int cuda__export(struct device *d, const struct device_mem *mem,
                                                     struct device_handle *ret_handle);
__attribute__((warn_unused_result)) int
cuda__import(struct device *d, const struct device_handle *handle, struct device_mem *ret_mem);
void cuda__free(struct device *d, struct device_mem *mem);

__attribute__((warn_unused_result)) int cuda__copy(struct device *d, enum device_way way,
                                                   const struct kvc_frag *frag, uint32_t n,
                                                   bool is_pinned, void *stream);
/* In the context. */
void cuda__copy_close(struct cuda *c);

#endif
#endif
