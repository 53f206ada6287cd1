/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's device: memory on it, the daemon's memory on it, and copies on the worker's stream.
 * Implementations: device_cpu.c (an emulated device, and plain host memory, of which the daemon
 * knows nothing) and device_cuda.c (the CUDA driver, found at run time). Their callers use this
 * interface alone.
 *
 * Functions return 0 or a negative errno with its text in kvc_last_error. A device counts its
 * references, because mappings of chunks on it may outlive its kvc_gpu.
 *
 * In a child of fork() no driver may be called: functions that free things then free only memory.
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
    DEVICE_MEM_OWN = 1,  /* allocated by the library */
    DEVICE_MEM_WRAPPED,  /* allocated by the caller */
    DEVICE_MEM_IMPORTED, /* allocated by the daemon, and mapped here */
};

/* Memory on the device. */
struct device_mem {
    void *addr;
    uint64_t bytes;
    /* A handle always names a whole allocation, of `span` bytes; `addr` is `shift` bytes into it.
     */
    uint64_t shift, span;
    enum device_mem_kind kind;
    uint8_t export; /* enum device_handle_kind with which it is exported; 0: it cannot be */
    /* For the implementation: the range that contains `addr`. For wrapped memory it has only what
     * export() needs. */
    struct device_range range;
};

/* From where to where copy() copies. */
enum device_way { DEVICE_FROM_HOST, DEVICE_TO_HOST, DEVICE_ON_DEVICE };

/* The most fragments of one copy(). */
#define DEVICE_FRAGS 1024u

struct device;

struct device_ops {
    /* `name` is of the kind that this implementation opens; NULL for "host". -ENODEV, -ENOMEM. */
    int (*open)(struct kvc *k, const struct device_name *name, struct device **ret_device)
        __attribute__((warn_unused_result));
    void (*close)(struct device *d);

    int (*alloc)(struct device *d, uint64_t bytes, struct device_mem *ret_mem)
        __attribute__((warn_unused_result));
    /* Memory of the caller's, which must stay valid. -EOPNOTSUPP: it cannot be exported. */
    int (*wrap)(struct device *d, void *addr, uint64_t bytes, struct device_mem *ret_mem)
        __attribute__((warn_unused_result));
    int (*export)(struct device *d, const struct device_mem *mem, struct device_handle *ret_handle)
        __attribute__((warn_unused_result));
    /* Maps the daemon's memory for reading. -EINVAL: the handle is not of this device, or its
     * memory is shorter than it says; -EOPNOTSUPP: this process cannot import such memory. */
    int (*import)(struct device *d, const struct device_handle *handle, struct device_mem *ret_mem)
        __attribute__((warn_unused_result));
    /* Gives back memory of any kind; wrapped memory stays the caller's. */
    void (*free)(struct device *d, struct device_mem *mem);

    /* Registers host memory with the driver, for all devices of this process. -EOPNOTSUPP: it
     * cannot be registered; copies from and to it work, but are slower. */
    int (*pin)(struct device *d, void *host, uint64_t bytes, bool is_read_only)
        __attribute__((warn_unused_result));
    void (*unpin)(struct device *d, void *host);

    /* NULL: any stream may be used. -EINVAL with its text: no work may be given to this stream now
     * (it is being captured into a graph). */
    int (*may_use)(struct device *d, void *stream) __attribute__((warn_unused_result));
    /* Behind the work on the stream: *word = value. `word` is in memory that pin() registered. */
    int (*signal)(struct device *d, void *stream, volatile uint64_t *word, uint64_t value)
        __attribute__((warn_unused_result));
    /* Later work on the stream waits until *word >= value. NULL: the device has no such call, and
     * the caller itself waits. */
    int (*wait)(struct device *d, void *stream, volatile uint64_t *word, uint64_t value)
        __attribute__((warn_unused_result));
    /* Copies behind the work on the stream. `frag` may be reused after the return, the host memory
     * only when the stream has done the copies. is_pinned: all their host memory is registered. */
    int (*copy)(struct device *d, enum device_way way, const struct kvc_frag *frag, uint32_t n,
                bool is_pinned, void *stream) __attribute__((warn_unused_result));
};

struct device {
    const struct device_ops *ops;
    struct kvc *kvc;
    uint32_t refs;
    bool is_emulated;
    bool is_host;    /* plain host memory: the library copies, and the daemon knows nothing of it */
    int32_t ordinal; /* the device's number in CUDA and in DLPack */
    uint8_t uuid[KVC_UUID_BYTES];
};

extern const struct device_ops device__emu;
extern const struct device_ops device__host;
#ifdef KVC_HAVE_CUDA
extern const struct device_ops device__cuda;
#endif

/* Opens "emu:<number>", "cuda:<ordinal>", "GPU-<uuid>", "MIG-<uuid>" or "host", and returns one
 * reference. -EINVAL, -ENODEV, -ENOMEM. */
__attribute__((warn_unused_result)) int device__open(struct kvc *k, const char *name,
                                                     struct device **ret_device);
void device__ref(struct device *d);
/* Gives one reference back; the last one closes the device. Accepts NULL. */
void device__unref(struct device *d);
/* Closes the handle's descriptor, if it has one. */
void device__handle_free(struct device_handle *handle);
/* A call that names a stream begins with this check. 0, or -EINVAL with its text. */
__attribute__((warn_unused_result)) int device__may_use(struct device *d, void *stream);

#endif
