/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's own device: its memory, memory of the daemon's on it, copies on the worker's stream.
 * Implementations: device_cpu.c (an emulated device, and plain host memory of which the daemon
 * knows nothing) and device_cuda.c (the driver, found at run time). Callers know no more of a
 * device than this.
 *
 * Functions return 0 or a negative errno with its text in kvc_last_error. A device is counted: the
 * mappings of chunks that were made for it may outlive the kvc_gpu.
 *
 * In a child of fork() a driver must not be called any more: functions that free then free memory
 * alone.
 */
#ifndef KVC_CLIENT_DEVICE_PRIVATE_H
#define KVC_CLIENT_DEVICE_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvcache/kernels.h>
#include <kvcache/proto.h>

#include "device_handle.h"
#include "device_name.h"
#include "device_range.h"

struct kvc;

enum device_mem_kind {
    DEVICE_MEM_OWN = 1,  /* made here */
    DEVICE_MEM_WRAPPED,  /* the caller's */
    DEVICE_MEM_IMPORTED, /* the daemon's */
};

/* Memory on the device. */
struct device_mem {
    void *addr;
    uint64_t bytes;
    /* A handle of it names `span` bytes; `addr` is at `shift` in them. */
    uint64_t shift, span;
    enum device_mem_kind kind;
    uint8_t export; /* enum device_handle_kind; 0: it cannot be */
    /* The implementation's: the range that `addr` is in; of wrapped memory what is needed to export
     * it. */
    struct device_range range;
};

enum device_way { DEVICE_FROM_HOST, DEVICE_TO_HOST, DEVICE_ON_DEVICE };

/* One copy() of at most so many fragments. */
#define DEVICE_FRAGS 1024u

struct device;

struct device_ops {
    /* `name` is of its kind ("host" has none: NULL). -ENODEV, -ENOMEM. */
    int (*open)(struct kvc *k, const struct device_name *name, struct device **ret_device)
        __attribute__((warn_unused_result));
    void (*close)(struct device *d);

    int (*alloc)(struct device *d, uint64_t bytes, struct device_mem *ret_mem)
        __attribute__((warn_unused_result));
    /* -EOPNOTSUPP: it cannot be exported. */
    int (*wrap)(struct device *d, void *addr, uint64_t bytes, struct device_mem *ret_mem)
        __attribute__((warn_unused_result));
    int (*export)(struct device *d, const struct device_mem *mem, struct device_handle *ret_handle)
        __attribute__((warn_unused_result));
    /* For reading. -EINVAL: not memory of this device, or not as long as the handle says;
     * -EOPNOTSUPP: it cannot be imported here. */
    int (*import)(struct device *d, const struct device_handle *handle, struct device_mem *ret_mem)
        __attribute__((warn_unused_result));
    /* Of any kind. */
    void (*free)(struct device *d, struct device_mem *mem);

    /* Registers host memory with the driver, for all devices of this process. -EOPNOTSUPP: copies
     * from and to it are right all the same, and slower. */
    int (*pin)(struct device *d, void *host, uint64_t bytes, bool is_read_only)
        __attribute__((warn_unused_result));
    void (*unpin)(struct device *d, void *host);

    /* NULL: any stream will do. -EINVAL with its text: nothing may be given to this one now. */
    int (*may_use)(struct device *d, void *stream) __attribute__((warn_unused_result));
    /* word is in pinned memory. */
    int (*signal)(struct device *d, void *stream, volatile uint64_t *word, uint64_t value)
        __attribute__((warn_unused_result));
    /* NULL: the caller has to wait itself. */
    int (*wait)(struct device *d, void *stream, volatile uint64_t *word, uint64_t value)
        __attribute__((warn_unused_result));
    /* In order behind what is on the stream. The fragments may be reused after the return; the host
     * memory may not, before the stream has come by. is_pinned: all host memory that they name. */
    int (*copy)(struct device *d, enum device_way way, const struct kvc_frag *frag, uint32_t n,
                bool is_pinned, void *stream) __attribute__((warn_unused_result));
};

struct device {
    const struct device_ops *ops;
    struct kvc *kvc;
    uint32_t refs;
    bool is_emulated;
    bool is_host;    /* plain host memory: the library copies, the daemon does not */
    int32_t ordinal; /* as other libraries number it */
    uint8_t uuid[KVC_UUID_BYTES];
};

extern const struct device_ops device__emu;
extern const struct device_ops device__host;
#ifdef KVC_HAVE_CUDA
extern const struct device_ops device__cuda;
#endif

/* "emu:<number>", "cuda:<ordinal>", "GPU-<uuid>", "MIG-<uuid>", "host". Returns one reference.
 * -EINVAL, -ENODEV, -ENOMEM.
 */
__attribute__((warn_unused_result)) int device__open(struct kvc *k, const char *name,
                                                     struct device **ret_device);
void device__ref(struct device *d);
/* Closes it with the last one. Accepts NULL. */
void device__unref(struct device *d);
void device__handle_free(struct device_handle *handle);
/* Before anything is done for a call that names a stream. */
__attribute__((warn_unused_result)) int device__may_use(struct device *d, void *stream);

#endif
