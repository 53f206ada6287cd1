/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary interface of DLPack: what a consumer of a DLManagedTensor (before 1.0) or of a
 * DLManagedTensorVersioned (from 1.0 on) reads. Layout and numbers are DLPack's;
 * https://dmlc.github.io/dlpack/latest/c_api.html.
 */
#ifndef KVC_CLIENT_DLPACK_PRIVATE_H
#define KVC_CLIENT_DLPACK_PRIVATE_H

#include <stddef.h>
#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2 };
enum { DL_UINT = 1 };
enum { DL_VERSION_MAJOR = 1, DL_VERSION_MINOR = 0 };
#define DL_READ_ONLY UINT64_C(1) /* of DLManagedTensorVersioned.flags */

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
    int64_t *shape, *strides; /* in elements; 1.2 on: never NULL */
    uint64_t byte_offset;
};
struct DLManagedTensor {
    struct dl_tensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};
struct dl_version {
    uint32_t major, minor;
};
struct DLManagedTensorVersioned {
    struct dl_version version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    struct dl_tensor dl_tensor;
};
_Static_assert(sizeof(void *) != 8 || (offsetof(struct DLManagedTensor, manager_ctx) == 48 &&
                                       sizeof(struct DLManagedTensor) == 64 &&
                                       offsetof(struct DLManagedTensorVersioned, flags) == 24 &&
                                       sizeof(struct DLManagedTensorVersioned) == 80),
               "the layout of DLPack on 64 bits");

#endif
