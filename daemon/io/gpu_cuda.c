/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver of gpu_drv.h: opens and closes a device, and judges the driver's answers: done,
 * not yet, or a failure that takes the device out.
 */
#ifdef KVC_HAVE_CUDA
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_cuda__.h"
#include "log.h"
#include "sys.h"

_Static_assert(CUDA_TEXT_BYTES == GPU_WHY_BYTES, "why() is what the driver said");

/* ---- what the driver says ---- */

int cuda__sure(struct gpu_dev *dev, int r)
{
    if (r == 0)
        return 0;
    dev->broken = true;
    return -EIO;
}

int cuda__must(struct gpu_dev *dev, const char *call, CUresult r)
{
    return cuda__sure(dev, cuda_check(&dev->cuda, call, r));
}

/* Whether the context still works: after a sticky error every call fails. */
static bool answers(struct gpu_dev *dev)
{
    const CUresult r = dev->cuda.cu->StreamQuery(dev->stream[0]);
    return r == CUDA_ERROR_NOT_READY || cuda__must(dev, "cuStreamQuery", r) == 0;
}

int cuda__weigh(struct gpu_dev *dev, int r)
{
    if (r == 0 || r == -ENOMEM || dev->cuda.last.result == CUDA_SUCCESS ||
        dev->cuda.last.result == CUDA_ERROR_NOT_SUPPORTED)
        return r;
    if (r != -EIO && answers(dev))
        return r;
    dev->broken = true;
    return -EIO;
}

int cuda__may(struct gpu_dev *dev, const char *call, CUresult r, int otherwise)
{
    const int said = cuda_check(&dev->cuda, call, r);
    return cuda__weigh(dev, said == -EIO ? otherwise : said);
}

bool cuda__undid(struct gpu_dev *dev, bool all)
{
    dev->broken = dev->broken || !all;
    return all;
}

bool cuda__undone(struct gpu_dev *dev, const char *call, CUresult r)
{
    /* Only the first failure is reported; later ones are its consequences. */
    return dev->broken ? r == CUDA_SUCCESS : cuda__undid(dev, cuda_check(&dev->cuda, call, r) == 0);
}

/* ---- opening ---- */

static const char *problem(void)
{
    const char *text = NULL;
    return cuda_find(&text) ? NULL : text;
}

/* Checks a call of the opening, before there is a context that could break. */
static int begun(struct gpu_dev *dev, const char *call, CUresult r)
{
    return cuda_check_open(&dev->cuda, call, r);
}

static int gpu_cuda_find_device(struct gpu_dev *dev, const char *device,
                                struct gpu_dev_info *ret_info)
{
    const struct cuda_api *cu = dev->cuda.cu;
    struct device_name name;
    int unified = 0, mps = 0;
    const bool is_name = device_name_parse(device, &name);
    MUST(is_name); /* gpu_open() has looked */
    int r = cuda_device_find(&dev->cuda, &name);
    if (r == 0)
        r = begun(dev, "cuDeviceGetName",
                  cu->DeviceGetName(ret_info->name, GPU_NAME_BYTES, dev->cuda.id));
    if (r == 0)
        r = begun(
            dev, "cuDeviceGetAttribute",
            cu->DeviceGetAttribute(&unified, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, dev->cuda.id));
    if (r < 0)
        return r;
    if (unified == 0)
        return cuda_refuse(&dev->cuda, -ENODEV,
                           "the device does not share addresses with the host");
    ret_info->mps =
        cu->DeviceGetAttribute(&mps, CUDA_ATTRIBUTE_MPS, dev->cuda.id) == CUDA_SUCCESS && mps != 0;
    ret_info->by_turns = !ret_info->mps;
    memcpy(ret_info->uuid, dev->cuda.uuid, GPU_UUID_BYTES);
    ret_info->exports = dev->cuda.vmm ? DEVICE_HANDLE_FD : DEVICE_HANDLE_IPC;
    return 0;
}

/* The error of a context that cannot be had. After a sticky error (an illegal address) the driver
 * may refuse every further context, until the process ends. */
static int no_context(struct gpu_dev *dev, int r)
{
    char text[CUDA_TEXT_BYTES];
    if (r != -EIO)
        return r;
    (void)snprintf(text, sizeof(text), "%s", dev->cuda.last.text);
    return cuda_refuse(&dev->cuda, r,
                       "%s: the driver gives this process no context; restart it (the daemon does "
                       "so by itself with hbm.exit_when_lost)",
                       text);
}

static int retain(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cuda.cu;
    /* A thread that waits for the device sleeps. */
    CUresult said = cu->DevicePrimaryCtxSetFlags(dev->cuda.id, CU_CTX_SCHED_BLOCKING_SYNC);
    if (said == CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE)
        said = CUDA_SUCCESS; /* other code in this process has set the flags */
    int r = begun(dev, "cuDevicePrimaryCtxSetFlags", said);
    CUcontext context = NULL;
    if (r == 0)
        r = no_context(dev, begun(dev, "cuDevicePrimaryCtxRetain",
                                  cu->DevicePrimaryCtxRetain(&context, dev->cuda.id)));
    if (r < 0)
        return r;
    dev->context = context;
    return begun(dev, "cuCtxSetCurrent", cu->CtxSetCurrent(context));
}

/* Makes one stream per direction: directions run at once, copies of one direction in order. A
 * second stream of a direction would share its copy engine. */
static int make_streams(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cuda.cu;
    int least = 0, greatest = 0;
    int r =
        begun(dev, "cuCtxGetStreamPriorityRange", cu->CtxGetStreamPriorityRange(&least, &greatest));
    for (unsigned s = 0; s < CUDA_STREAMS && r == 0; s++)
        r = begun(dev, "cuStreamCreateWithPriority",
                  cu->StreamCreateWithPriority(&dev->stream[s], CU_STREAM_NON_BLOCKING, least));
    for (uint32_t i = 0; i < CUDA_TICKETS && r == 0; i++)
        r = begun(dev, "cuEventCreate", cu->EventCreate(&dev->event[i], CU_EVENT_DISABLE_TIMING));
    return r;
}

static int bring_up(struct gpu_dev *dev, const char *device, struct gpu_dev_info *ret_info)
{
    size_t free_bytes = 0, all_bytes = 0;
    int r = gpu_cuda_find_device(dev, device, ret_info);
    if (r == 0)
        r = retain(dev);
    if (r == 0)
        r = begun(dev, "cuMemGetInfo", dev->cuda.cu->MemGetInfo(&free_bytes, &all_bytes));
    ret_info->free_bytes = free_bytes;
    if (r == 0)
        r = make_streams(dev);
    return r < 0 ? r : cuda__copy_open(dev);
}

static void close_dev(struct gpu_dev *dev);

static int open_dev(const struct gpu_config *config, struct gpu_dev **ret_dev,
                    struct gpu_dev_info *ret_info, char ret_why[GPU_WHY_BYTES])
{
    const char *text = NULL;
    const struct cuda_api *cu = cuda_find(&text);
    struct gpu_dev_info info = {0};
    if (!cu) {
        snprintf(ret_why, GPU_WHY_BYTES, "%s", text);
        return -ENODEV;
    }
    struct gpu_dev *dev = sys_calloc(1, sizeof(*dev));
    if (!dev) {
        snprintf(ret_why, GPU_WHY_BYTES, "no memory for a device");
        return -ENOMEM;
    }
    dev->cuda.cu = cu;
    const int r = bring_up(dev, config->device, &info);
    if (r < 0) {
        snprintf(ret_why, GPU_WHY_BYTES, "%s", dev->cuda.last.text);
        /* Broken: whatever the error, the next opening begins with a new context. */
        dev->broken = true;
        close_dev(dev);
        return r;
    }
    info.has_kernel = dev->cuda.lists.kernel;
    *ret_info = info;
    *ret_dev = dev;
    return 0;
}

/* ---- closing ---- */

/* Frees the parts one after the other. If one fails, reset() frees all with the context. */
static void take_down(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cuda.cu;
    if (!cuda__undone(dev, "cuCtxSynchronize", cu->CtxSynchronize()))
        return;
    cuda__free_all(dev, false);
    cuda__unpin_all(dev);
    if (!dev->broken)
        cuda__copy_close(dev);
    for (uint32_t i = 0; i < CUDA_TICKETS && !dev->broken; i++)
        (void)cuda__undone(dev, "cuEventDestroy", cu->EventDestroy(dev->event[i]));
    for (unsigned s = 0; s < CUDA_STREAMS && !dev->broken; s++)
        (void)cuda__undone(dev, "cuStreamDestroy", cu->StreamDestroy(dev->stream[s]));
    if (dev->broken)
        LOG_WARN("gpu: closing the device: %s", dev->cuda.last.text);
}

/* Resets the context, which ends its sticky error and all copies that still run. */
static void reset(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cuda.cu;
    char text[GPU_WHY_BYTES];
    (void)cu->CtxSetCurrent(NULL); /* no context: can fail only for an older error */
    cuda__unpin_all(dev);
    const CUresult r = cu->DevicePrimaryCtxReset(dev->cuda.id);
    if (r != CUDA_SUCCESS) {
        cuda_text(cu, "cuDevicePrimaryCtxReset", r, text);
        LOG_WARN("gpu: what the device had may be lost until the daemon ends: %s", text);
    }
    cuda__free_all(dev, true);
}

static void close_dev(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cuda.cu;
    char text[GPU_WHY_BYTES];
    if (dev->context && !dev->broken)
        take_down(dev);
    if (dev->context) {
        if (dev->broken)
            reset(dev);
        (void)cu->CtxSetCurrent(NULL);
        const CUresult r = cu->DevicePrimaryCtxRelease(dev->cuda.id);
        if (r != CUDA_SUCCESS) {
            cuda_text(cu, "cuDevicePrimaryCtxRelease", r, text);
            LOG_WARN("gpu: closing the device: %s", text);
        }
    }
    free(dev->mem.at);
    free(dev->pins.at);
    free(dev);
}

/* ---- tickets ---- */

int cuda__ticket(struct gpu_dev *dev, enum gpu_direction direction, uint64_t *ret_ticket)
{
    const uint64_t ticket = dev->issued + 1;
    const int r = cuda__must(dev, "cuEventRecord",
                             dev->cuda.cu->EventRecord(dev->event[ticket % CUDA_TICKETS],
                                                       dev->stream[direction - GPU_TO_DEVICE]));
    if (r < 0)
        return r;
    *ret_ticket = dev->issued = ticket;
    return 0;
}

static int poll_dev(struct gpu_dev *dev, uint64_t ticket)
{
    if (dev->broken)
        return -EIO;
    MUST(ticket <= dev->issued);
    while (dev->ended < ticket) {
        const CUresult r = dev->cuda.cu->EventQuery(dev->event[(dev->ended + 1) % CUDA_TICKETS]);
        if (r == CUDA_ERROR_NOT_READY)
            return 0;
        if (r != CUDA_SUCCESS)
            return cuda__must(dev, "cuEventQuery", r);
        dev->ended++;
    }
    return 1;
}

static const char *why_dev(const struct gpu_dev *dev)
{
    return dev->cuda.last.text;
}

const struct gpu_drv gpu_drv_cuda = {.name = "cuda",
                                     .problem = problem,
                                     .open = open_dev,
                                     .close = close_dev,
                                     .alloc = cuda__alloc,
                                     .import = cuda__import,
                                     .free = cuda__free,
                                     .pin = cuda__pin,
                                     .unpin = cuda__unpin,
                                     .copy = cuda__copy,
                                     .poll = poll_dev,
                                     .why = why_dev};
#endif
