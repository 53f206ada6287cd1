/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA device of a worker: finds and opens it, registers host memory, and lets streams write to
 * words or wait for them. The driver is found at run time (gpu/).
 */
#include "device_cuda__.h"
#ifdef KVC_HAVE_CUDA

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "sys.h"

int cuda__said(struct cuda *c, int rc)
{
    return rc < 0 ? kvc__fail(c->dev.kvc, rc, "%s", c->gpu.last.text) : rc;
}

int cuda__check(struct cuda *c, const char *call, CUresult r)
{
    return cuda__said(c, cuda_check(&c->gpu, call, r));
}

int cuda__enter(struct cuda *c)
{
    if (fork__is_child(c->dev.kvc))
        return kvc__fail(c->dev.kvc, -EPERM, "CUDA cannot be used after fork()");
    return cuda__check(c, "cuCtxPushCurrent", c->gpu.cu->CtxPushCurrent(c->context)) == 0 ? 0
                                                                                          : -EIO;
}

void cuda__leave(struct cuda *c)
{
    CUcontext ours;
    (void)c->gpu.cu->CtxPopCurrent(&ours); /* the push has worked */
}

bool cuda__enter_to_free(struct cuda *c)
{
    return !fork__is_child(c->dev.kvc) && c->gpu.cu->CtxPushCurrent(c->context) == CUDA_SUCCESS;
}

/* ---- opening ---- */

static bool has(struct cuda *c, CUdevice_attribute which)
{
    int value = 0;
    return c->gpu.cu->DeviceGetAttribute(&value, which, c->gpu.id) == CUDA_SUCCESS && value != 0;
}

static int device_cuda_find_device(struct cuda *c, const struct device_name *name)
{
    const int rc = cuda__said(c, cuda_device_find(&c->gpu, name));
    if (rc < 0)
        return rc;
    c->dev.ordinal = c->gpu.id;
    memcpy(c->dev.uuid, c->gpu.uuid, sizeof(c->dev.uuid));
    c->read_only_pins = has(c, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
    c->words = has(c, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
    c->one_address = has(c, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
    return 0;
}

static int cuda_open(struct kvc *k, const struct device_name *name, struct device **ret_device)
{
    const char *problem = NULL;
    const struct cuda_api *cu = cuda_find(&problem);
    if (cu == NULL)
        return kvc__fail(k, -ENODEV, "%s", problem);
    struct cuda *c = sys_calloc(1, sizeof(*c));
    if (c == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    c->dev = (struct device){.ops = &device__cuda, .kvc = k, .refs = 1};
    c->gpu.cu = cu;
    int rc = device_cuda_find_device(c, name);
    if (rc == 0)
        rc = cuda__check(c, "cuDevicePrimaryCtxRetain",
                         cu->DevicePrimaryCtxRetain(&c->context, c->gpu.id));
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
        (void)c->gpu.cu->DevicePrimaryCtxRelease(c->gpu.id);
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
    rc = cuda__check(c, "cuMemHostRegister", c->gpu.cu->MemHostRegister(host, bytes, flags));
    cuda__leave(c);
    return rc;
}

static void cuda_unpin(struct device *d, void *host)
{
    struct cuda *c = cuda__of(d);
    if (!cuda__enter_to_free(c))
        return;
    (void)c->gpu.cu->MemHostUnregister(host);
    cuda__leave(c);
}

/* ---- streams ---- */

/* No stream that is being captured into a graph: the graph would later copy at addresses that the
 * blocks had at the capture. Also, most of this library's calls to the driver end a capture. */
static int cuda_may_use(struct device *d, void *stream)
{
    struct cuda *c = cuda__of(d);
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    const CUresult r = c->gpu.cu->StreamIsCapturing(stream, &status);
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

/* The address at which the device reaches the word. The context is current. */
static int device_address(struct cuda *c, volatile uint64_t *word, CUdeviceptr *ret_at)
{
    if (!c->words)
        return kvc__fail(c->dev.kvc, -EOPNOTSUPP,
                         "streams of this device cannot write or await 64-bit words: write the "
                         "word from the host, when the stream has been waited for");
    return cuda__check(c, "cuMemHostGetDevicePointer",
                       c->gpu.cu->MemHostGetDevicePointer(ret_at, (void *)(uintptr_t)word, 0));
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
            c->gpu.cu->StreamWriteValue64(stream, at, value, CU_STREAM_WRITE_VALUE_DEFAULT));
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
                         c->gpu.cu->StreamWaitValue64(stream, at, value, CU_STREAM_WAIT_VALUE_GEQ));
    cuda__leave(c);
    return rc;
}

const struct device_ops device__cuda = {.open = cuda_open,
                                        .close = cuda_close,
                                        .alloc = cuda__alloc,
                                        .wrap = cuda__wrap,
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
