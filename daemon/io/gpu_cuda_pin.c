/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers host memory with CUDA. The driver registers a range once for the whole process
 * (portable: all contexts may use it), while each device pins for itself, on its own thread; so
 * registrations are counted here. A registration ends with the context that made it.
 */
#ifdef KVC_HAVE_CUDA
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "gpu_cuda__.h"
#include "list.h"
#include "log.h"
#include "sys.h"

/* One range of host memory. It exists as long as a device has a span of it. */
struct cuda_pin {
    struct list_node node;
    void *host;
    uint64_t bytes;
    uint32_t devices;
    struct gpu_dev *dev;     /* the device whose context has the registration */
    _Atomic uint64_t serial; /* number of the registration; 0: not registered */
};

static struct {
    pthread_mutex_t lock;
    struct list_node list;
    uint64_t serial;
} pins = {.lock = PTHREAD_MUTEX_INITIALIZER, .list = {&pins.list, &pins.list}};

static void gpu_cuda_pin_lock(void)
{
    MUST(pthread_mutex_lock(&pins.lock) == 0);
}

static void unlock(void)
{
    MUST(pthread_mutex_unlock(&pins.lock) == 0);
}

/* ---- registrations: under the lock ---- */

/* Whether another range in the list overlaps this one. */
static bool is_shared(const struct cuda_pin *pin)
{
    const uintptr_t start = (uintptr_t)pin->host;
    LIST_FOR_EACH_SAFE (node, next, &pins.list) {
        const struct cuda_pin *other = CONTAINER_OF(node, struct cuda_pin, node);
        const uintptr_t at = (uintptr_t)other->host;
        if (other != pin && at < start + pin->bytes && start < at + other->bytes)
            return true;
    }
    return false;
}

static int register_range(struct gpu_dev *dev, struct cuda_pin *pin)
{
    const struct cuda_api *cu = dev->cuda.cu;
    const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    CUresult said = cu->MemHostRegister(pin->host, pin->bytes, flags);
    /* No range here has it: the registration is left from an earlier context. */
    if (said == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED && !is_shared(pin) &&
        cu->MemHostUnregister(pin->host) == CUDA_SUCCESS)
        said = cu->MemHostRegister(pin->host, pin->bytes, flags);
    const int r = cuda__may(dev, "cuMemHostRegister", said, -EOPNOTSUPP);
    if (r < 0)
        return r;
    pin->dev = dev;
    atomic_store_explicit(&pin->serial, ++pins.serial, memory_order_release);
    return 0;
}

static struct cuda_pin *pin_find(const void *host, uint64_t bytes)
{
    LIST_FOR_EACH_SAFE (node, next, &pins.list) {
        struct cuda_pin *pin = CONTAINER_OF(node, struct cuda_pin, node);
        if (pin->host == host && pin->bytes == bytes)
            return pin;
    }
    return NULL;
}

static struct cuda_pin *pin_make(void *host, uint64_t bytes)
{
    struct cuda_pin *pin = sys_calloc(1, sizeof(*pin));
    if (!pin)
        return NULL;
    pin->host = host;
    pin->bytes = bytes;
    list_push_back(&pins.list, &pin->node);
    return pin;
}

static void pin_end(struct cuda_pin *pin)
{
    list_remove(&pin->node);
    free(pin);
}

static bool is_registered(const struct cuda_pin *pin)
{
    return atomic_load_explicit(&pin->serial, memory_order_acquire) != 0;
}

/* Unregisters in the context that registered the range, which may be another device's. */
static CUresult unregister_there(struct gpu_dev *dev, const struct cuda_pin *pin)
{
    const struct cuda_api *cu = dev->cuda.cu;
    if (pin->dev == dev) /* broken: the reset of the context unregisters it */
        return dev->broken ? CUDA_SUCCESS : cu->MemHostUnregister(pin->host);
    CUresult r = cu->CtxSetCurrent(pin->dev->context);
    if (r == CUDA_SUCCESS)
        r = cu->MemHostUnregister(pin->host);
    const CUresult back = cu->CtxSetCurrent(dev->broken ? NULL : dev->context);
    return r == CUDA_SUCCESS ? back : r;
}

static void unregister_range(struct gpu_dev *dev, struct cuda_pin *pin)
{
    char text[GPU_WHY_BYTES];
    const CUresult r = unregister_there(dev, pin);
    if (pin->dev == dev) {
        (void)cuda__undone(dev, "cuMemHostUnregister", r);
    } else if (r != CUDA_SUCCESS) {
        cuda_text(dev->cuda.cu, "cuMemHostUnregister", r, text);
        LOG_WARN("gpu: %ju bytes of host memory stay pinned: %s", (uintmax_t)pin->bytes, text);
    }
    atomic_store_explicit(&pin->serial, 0, memory_order_release);
    pin->dev = NULL;
}

/* `dev` no longer has the range. The last device to let go unregisters it and frees the struct. */
static void let_go(struct gpu_dev *dev, struct cuda_pin *pin)
{
    pin->devices--;
    if (pin->devices > 0)
        return;
    if (is_registered(pin))
        unregister_range(dev, pin);
    pin_end(pin);
}

static int gpu_cuda_pin_take(struct gpu_dev *dev, void *host, uint64_t bytes,
                             struct cuda_pin **ret_pin)
{
    struct cuda_pin *pin = pin_find(host, bytes);
    if (!pin)
        pin = pin_make(host, bytes);
    if (!pin)
        return cuda_refuse(&dev->cuda, -ENOMEM, "no memory for another range of memory");
    const int r = is_registered(pin) ? 0 : register_range(dev, pin);
    if (r < 0) {
        if (pin->devices == 0)
            pin_end(pin);
        return r;
    }
    pin->devices++;
    *ret_pin = pin;
    return 0;
}

/* ---- spans of a device ---- */

static CUresult locate(struct gpu_dev *dev, struct gpu_span *span)
{
    const uint64_t serial = atomic_load_explicit(&span->pin->serial, memory_order_acquire);
    CUdeviceptr at = 0;
    const CUresult r = dev->cuda.cu->MemHostGetDevicePointer(&at, span->pin->host, 0);
    if (r == CUDA_SUCCESS) {
        span->device_addr = at;
        span->pin_serial = serial;
    }
    return r;
}

bool cuda__pin_holds(struct gpu_dev *dev, struct gpu_span *span)
{
    const uint64_t serial = atomic_load_explicit(&span->pin->serial, memory_order_acquire);
    if (serial == 0)
        return false;
    return serial == span->pin_serial || locate(dev, span) == CUDA_SUCCESS;
}

static struct gpu_span *span_of(const struct gpu_dev *dev, uint64_t host, uint64_t bytes)
{
    for (uint32_t i = 0; i < dev->pins.n; i++) {
        struct gpu_span *span = &dev->pins.at[i];
        if (span->start == host && span->end == host + bytes)
            return span;
    }
    return NULL;
}

int cuda__pin(struct gpu_dev *dev, void *host, uint64_t bytes)
{
    if (dev->broken)
        return -EIO;
    const uint64_t start = (uintptr_t)host;
    MUST(bytes > 0 && start <= UINT64_MAX - bytes);
    if (span_of(dev, start, bytes))
        return cuda_refuse(&dev->cuda, -EINVAL, "host memory that is pinned already");
    int r = gpu_span_room(&dev->pins);
    if (r < 0)
        return cuda_refuse(&dev->cuda, r, "no memory for another range of memory");
    struct gpu_span span = {.start = start, .end = start + bytes};
    gpu_cuda_pin_lock();
    r = gpu_cuda_pin_take(dev, host, bytes, &span.pin);
    if (r == 0) {
        r = cuda__may(dev, "cuMemHostGetDevicePointer", locate(dev, &span), -EOPNOTSUPP);
        if (r < 0)
            let_go(dev, span.pin);
    }
    unlock();
    if (r < 0)
        return dev->broken ? -EIO : r;
    gpu_span_add(&dev->pins, &span);
    return 0;
}

void cuda__unpin(struct gpu_dev *dev, void *host, uint64_t bytes)
{
    struct gpu_span *span = span_of(dev, (uintptr_t)host, bytes);
    /* No span: registered by an earlier generation of the device. Broken: closing it unpins. */
    if (!span || dev->broken)
        return;
    struct cuda_pin *pin = span->pin;
    gpu_span_remove(&dev->pins, span);
    gpu_cuda_pin_lock();
    let_go(dev, pin);
    unlock();
}

void cuda__unpin_all(struct gpu_dev *dev)
{
    gpu_cuda_pin_lock();
    LIST_FOR_EACH_SAFE (node, next, &pins.list) {
        struct cuda_pin *pin = CONTAINER_OF(node, struct cuda_pin, node);
        if (pin->dev == dev)
            unregister_range(dev, pin);
    }
    for (uint32_t i = 0; i < dev->pins.n; i++)
        let_go(dev, dev->pins.at[i].pin);
    dev->pins.n = 0;
    unlock();
}
#endif
