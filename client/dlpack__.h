/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary interface of DLPack, version 0: what a consumer of a DLManagedTensor reads. Layout and
 * numbers are DLPack's; https://dmlc.github.io/dlpack/latest/c_api.html.
 */
#ifndef KVC_CLIENT_DLPACK_PRIVATE_H
#define KVC_CLIENT_DLPACK_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2 };
enum { DL_UINT = 1 };

struct dl_device {
    int32_t type, id;
};
struct dl_data_type {
    uint8_t code, bits;
    uint16_t lanes;
};
struct dl_tensor {
    void *data;
    struct dl_device device;
    int32_t ndim;
    struct dl_data_type dtype;
    int64_t *shape, *strides; /* strides NULL: compact, row by row */
    uint64_t byte_offset;
};
struct DLManagedTensor {
    struct dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};
_Static_assert(sizeof(void *) != 8 || (offsetof(struct DLManagedTensor, manager_ctx) == 48 &&
                                       sizeof(struct DLManagedTensor) == 64),
               "the layout of DLPack on 64 bits");

#endif
