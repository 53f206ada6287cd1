/* SPDX-License-Identifier: Apache-2.0 */
#include "device_cuda__.h"
#ifdef KVC_HAVE_CUDA

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "sys.h"

int cuda__check(struct cuda *c, const char *call, CUresult r)
{
    char text[CUDA_TEXT_BYTES];
    if (r == CUDA_SUCCESS)
        return 0;
    int error = r == CUDA_ERROR_OUT_OF_MEMORY   ? -ENOMEM
                : r == CUDA_ERROR_NOT_SUPPORTED ? -EOPNOTSUPP
                                                : -EIO;
    cuda_text(c->cu, call, r, text);
    return kvc__fail(c->dev.kvc, error, "%s", text);
}

int cuda__enter(struct cuda *c)
{
    if (fork__is_child(c->dev.kvc))
        return kvc__fail(c->dev.kvc, -EPERM, "CUDA cannot be used after fork()");
    return cuda__check(c, "cuCtxPushCurrent", c->cu->CtxPushCurrent(c->context)) == 0 ? 0 : -EIO;
}

void cuda__leave(struct cuda *c)
{
    CUcontext ours;
    (void)c->cu->CtxPopCurrent(&ours); /* the push has worked */
}

bool cuda__enter_to_free(struct cuda *c)
{
    return !fork__is_child(c->dev.kvc) && c->cu->CtxPushCurrent(c->context) == CUDA_SUCCESS;
}

/* ---- opening ---- */

static int find_by_uuid(struct cuda *c, const char *name)
{
    const struct cuda_api *cu = c->cu;
    int n = 0;
    int rc = cuda__check(c, "cuDeviceGetCount", cu->DeviceGetCount(&n));
    for (int i = 0; i < n && rc == 0; i++) {
        CUuuid uuid;
        char text[DEVICE_NAME_BYTES];
        rc = cuda__check(c, "cuDeviceGet", cu->DeviceGet(&c->id, i));
        if (rc == 0)
            rc = cuda__check(c, "cuDeviceGetUuid", cu->DeviceGetUuid(&uuid, c->id));
        if (rc < 0)
            break;
        device__name((const uint8_t *)uuid.bytes, false, text);
        if (strcasecmp(text + 4, name + 4) == 0) /* of a MIG instance the driver tells that one's */
            return i;
    }
    return rc < 0 ? -ENODEV
                  : kvc__fail(c->dev.kvc, -ENODEV,
                              "no device of this process is %s: 'nvidia-smi -L' lists them; "
                              "CUDA_VISIBLE_DEVICES may hide it",
                              name);
}

static int find_by_ordinal(struct cuda *c, uint32_t ordinal)
{
    int n = 0;
    if (cuda__check(c, "cuDeviceGetCount", c->cu->DeviceGetCount(&n)) < 0)
        return -ENODEV;
    if (ordinal >= (uint32_t)n)
        return kvc__fail(c->dev.kvc, -ENODEV,
                         "there is no device cuda:%u: this process sees %d; 'nvidia-smi -L' lists "
                         "them, CUDA_VISIBLE_DEVICES may hide some",
                         ordinal, n);
    return (int)ordinal;
}

static int attribute(struct cuda *c, CUdevice_attribute which)
{
    int value = 0;
    return c->cu->DeviceGetAttribute(&value, which, c->id) == CUDA_SUCCESS ? value : 0;
}

static int look(struct cuda *c)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->id}};
    CUuuid uuid;
    int rc = cuda__check(c, "cuDeviceGetUuid", c->cu->DeviceGetUuid(&uuid, c->id));
    if (rc < 0)
        return rc;
    memcpy(c->dev.uuid, uuid.bytes, sizeof(c->dev.uuid));
    c->vmm = attribute(c, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0 &&
             attribute(c, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0 &&
             c->cu->MemGetAllocationGranularity(&c->granularity, &prop,
                                                CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS &&
             c->granularity > 0;
    c->read_only_pins = attribute(c, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) != 0;
    c->words = attribute(c, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
    c->one_address = attribute(c, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) != 0;
    return 0;
}

static int find_device(struct cuda *c, const char *name)
{
    uint32_t ordinal;
    CUresult r = c->cu->Init(0);
    if (r != CUDA_SUCCESS)
        return kvc__fail(c->dev.kvc, -ENODEV,
                         "the NVIDIA driver finds no device it can use (CUDA error %d): "
                         "'nvidia-smi' says why; or name an emulated device, emu:0",
                         (int)r);
    int at = device__number(name, "cuda:", &ordinal) ? find_by_ordinal(c, ordinal)
                                                     : find_by_uuid(c, name);
    if (at < 0)
        return at;
    c->dev.ordinal = at;
    int rc = cuda__check(c, "cuDeviceGet", c->cu->DeviceGet(&c->id, at));
    return rc == 0 ? look(c) : rc;
}

static int cuda_open(struct kvc *k, const char *name, struct device **ret_device)
{
    const char *problem = NULL;
    const struct cuda_api *cu = cuda_find(&problem);
    if (cu == NULL)
        return kvc__fail(k, -ENODEV, "%s", problem);
    struct cuda *c = sys_calloc(1, sizeof(*c));
    if (c == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    c->dev = (struct device){.ops = &device__cuda, .kvc = k, .refs = 1};
    c->cu = cu;
    int rc = find_device(c, name);
    if (rc == 0)
        rc = cuda__check(c, "cuDevicePrimaryCtxRetain",
                         cu->DevicePrimaryCtxRetain(&c->context, c->id));
    if (rc < 0) {
        free(c);
        return rc == -ENOMEM ? rc : -ENODEV;
    }
    *ret_device = &c->dev;
    return 0;
}

static void cuda_close(struct device *d)
{
    struct cuda *c = cuda__of(d);
    if (cuda__enter_to_free(c)) {
        cuda__copy_close(c);
        cuda__leave(c);
    }
    if (!fork__is_child(d->kvc))
        (void)c->cu->DevicePrimaryCtxRelease(c->id);
    free(c);
}

/* ---- host memory ---- */

static int cuda_pin(struct device *d, void *host, uint64_t bytes, bool is_read_only)
{
    struct cuda *c = cuda__of(d);
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    if (is_read_only && !c->read_only_pins)
        return kvc__fail(d->kvc, -EOPNOTSUPP,
                         "the device does not register host memory that is read-only");
    if (is_read_only)
        flags |= CU_MEMHOSTREGISTER_READ_ONLY;
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    rc = cuda__check(c, "cuMemHostRegister", c->cu->MemHostRegister(host, bytes, flags));
    cuda__leave(c);
    return rc;
}

static void cuda_unpin(struct device *d, void *host)
{
    struct cuda *c = cuda__of(d);
    if (!cuda__enter_to_free(c))
        return;
    (void)c->cu->MemHostUnregister(host);
    cuda__leave(c);
}

/* ---- streams ---- */

/* A graph would copy from and to where blocks lay when it was captured; and while one is captured
 * most calls to the driver that this library makes would end the capture. */
static int cuda_may_use(struct device *d, void *stream)
{
    struct cuda *c = cuda__of(d);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    const CUresult r = c->cu->StreamIsCapturing(stream, &status);
    if (r == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
        (r == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE))
        rc = kvc__fail(d->kvc, -EINVAL,
                       "the stream is being captured into a graph, and blocks do not stay where a "
                       "graph would look for them: call this before or behind the graph's launch");
    else
        rc = cuda__check(c, "cuStreamIsCapturing", r);
    cuda__leave(c);
    return rc;
}

/* ---- words ---- */

/* The word's address on the device; in the context. */
static int device_address(struct cuda *c, volatile uint64_t *word, CUdeviceptr *ret_at)
{
    if (!c->words)
        return kvc__fail(c->dev.kvc, -EOPNOTSUPP,
                         "streams of this device cannot write or await 64-bit words: write the "
                         "word from the host, when the stream has been waited for");
    return cuda__check(c, "cuMemHostGetDevicePointer",
                       c->cu->MemHostGetDevicePointer(ret_at, (void *)(uintptr_t)word, 0));
}

static int cuda_signal(struct device *d, void *stream, volatile uint64_t *word, uint64_t value)
{
    struct cuda *c = cuda__of(d);
    CUdeviceptr at = 0;
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    rc = device_address(c, word, &at);
    if (rc == 0)
        rc = cuda__check(
            c, "cuStreamWriteValue64",
            c->cu->StreamWriteValue64(stream, at, value, CU_STREAM_WRITE_VALUE_DEFAULT));
    cuda__leave(c);
    return rc;
}

static int cuda_wait(struct device *d, void *stream, volatile uint64_t *word, uint64_t value)
{
    struct cuda *c = cuda__of(d);
    CUdeviceptr at = 0;
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    rc = device_address(c, word, &at);
    if (rc == 0)
        rc = cuda__check(c, "cuStreamWaitValue64",
                         c->cu->StreamWaitValue64(stream, at, value, CU_STREAM_WAIT_VALUE_GEQ));
    cuda__leave(c);
    return rc;
}

const struct device_ops device__cuda = {.open = cuda_open,
                                        .close = cuda_close,
                                        .alloc = cuda__alloc,
                                        .adopt = cuda__adopt,
                                        .export = cuda__export,
                                        .import = cuda__import,
                                        .free = cuda__free,
                                        .pin = cuda_pin,
                                        .unpin = cuda_unpin,
                                        .may_use = cuda_may_use,
                                        .signal = cuda_signal,
                                        .wait = cuda_wait,
                                        .copy = cuda__copy};

#endif
