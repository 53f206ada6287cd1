/* SPDX-License-Identifier: Apache-2.0 */
#ifdef KVC_HAVE_CUDA
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_cuda__.h"
#include "log.h"
#include "sys.h"

#define ORDINALS_MAX 1024u

_Static_assert(sizeof(((CUuuid *)0)->bytes) == GPU_UUID_BYTES, "a UUID passes whole");

/* ---- what the driver says ---- */

int cuda__must(struct gpu_dev *dev, const char *call, CUresult r)
{
    if (r == CUDA_SUCCESS)
        return 0;
    cuda_text(dev->cu, call, r, dev->why);
    dev->broken = true;
    return -EIO;
}

/* An error of the past that the context will not forget is answered to every question. */
static bool answers(struct gpu_dev *dev)
{
    const CUresult r = dev->cu->StreamQuery(dev->stream[0]);
    return r == CUDA_ERROR_NOT_READY || cuda__must(dev, "cuStreamQuery", r) == 0;
}

int cuda__may(struct gpu_dev *dev, const char *call, CUresult r, int otherwise)
{
    if (r == CUDA_SUCCESS)
        return 0;
    cuda_text(dev->cu, call, r, dev->why);
    switch (r) {
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_OPERATING_SYSTEM: /* descriptors, address space */
        return -ENOMEM;
    case CUDA_ERROR_NOT_SUPPORTED:
        return -EOPNOTSUPP;
    default:
        if (otherwise != -EIO && answers(dev))
            return otherwise;
        dev->broken = true;
        return -EIO;
    }
}

bool cuda__undone(struct gpu_dev *dev, const char *call, CUresult r)
{
    if (r == CUDA_SUCCESS)
        return true;
    /* The first failure is the one to be told; the others follow from it. */
    if (!dev->broken)
        cuda_text(dev->cu, call, r, dev->why);
    dev->broken = true;
    return false;
}

int cuda__refuse(struct gpu_dev *dev, int err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(dev->why, sizeof(dev->why), format, args);
    va_end(args);
    return err;
}

/* ---- names ---- */

struct name {
    bool is_uuid;
    uint8_t uuid[GPU_UUID_BYTES];
    unsigned ordinal;
};

static bool parse_ordinal(const char *text, unsigned *ret_ordinal)
{
    unsigned ordinal = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (!isdigit((unsigned char)*text))
            return false;
        ordinal = 10 * ordinal + (unsigned)(*text - '0');
        if (ordinal >= ORDINALS_MAX)
            return false;
    }
    *ret_ordinal = ordinal;
    return true;
}

static int digit_of(char c)
{
    if (isdigit((unsigned char)c))
        return c - '0';
    return isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

/* 8-4-4-4-12 hexadecimal digits */
static bool parse_uuid(const char *text, uint8_t ret_uuid[GPU_UUID_BYTES])
{
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    unsigned digits = 0;
    if (strlen(text) != sizeof(form) - 1)
        return false;
    for (size_t i = 0; form[i] != '\0'; i++) {
        const int digit = digit_of(text[i]);
        if (form[i] == '-' ? text[i] != '-' : digit < 0)
            return false;
        if (form[i] == '-')
            continue;
        ret_uuid[digits / 2] = (uint8_t)(digits % 2 ? ret_uuid[digits / 2] | digit : digit << 4);
        digits++;
    }
    return true;
}

static bool parse(const char *device, struct name *ret_name)
{
    *ret_name = (struct name){.is_uuid = strncmp(device, "GPU-", 4) == 0 ||
                                         strncmp(device, "MIG-", 4) == 0};
    if (ret_name->is_uuid)
        return parse_uuid(device + 4, ret_name->uuid);
    return strncmp(device, "cuda:", 5) == 0 && parse_ordinal(device + 5, &ret_name->ordinal);
}

static const char *problem(const char *device)
{
    struct name name;
    const char *text = NULL;
    if (!parse(device, &name))
        return "a CUDA device is called GPU-<uuid> or MIG-<uuid>, as nvidia-smi -L lists it, or "
               "cuda:<ordinal>";
    return cuda_find(&text) ? NULL : text;
}

/* ---- opening ---- */

/* Before there is a context that could break. */
static int begun(struct gpu_dev *dev, const char *call, CUresult r)
{
    if (r == CUDA_SUCCESS)
        return 0;
    cuda_text(dev->cu, call, r, dev->why);
    switch (r) {
    case CUDA_ERROR_OUT_OF_MEMORY:
        return -ENOMEM;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_DEVICE_NOT_LICENSED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
        return -ENODEV;
    default:
        return -EIO;
    }
}

static int find_uuid(struct gpu_dev *dev, const struct name *name, int devices)
{
    for (int i = 0; i < devices; i++) {
        CUuuid uuid;
        int r = begun(dev, "cuDeviceGet", dev->cu->DeviceGet(&dev->device, i));
        if (r == 0)
            r = begun(dev, "cuDeviceGetUuid", dev->cu->DeviceGetUuid(&uuid, dev->device));
        if (r < 0)
            return r;
        if (memcmp(uuid.bytes, name->uuid, GPU_UUID_BYTES) == 0)
            return 0;
    }
    return cuda__refuse(dev, -ENODEV,
                        "none of the %d devices that the driver shows has this UUID: nvidia-smi -L "
                        "lists them; CUDA_VISIBLE_DEVICES may hide some, and shows one MIG "
                        "instance at most",
                        devices);
}

static int find_device(struct gpu_dev *dev, const char *device)
{
    const struct cuda_api *cu = dev->cu;
    struct name name;
    int devices = 0;
    if (!parse(device, &name))
        return cuda__refuse(dev, -ENODEV, "no such name: %s", device);
    int r = begun(dev, "cuInit", cu->Init(0));
    if (r == 0)
        r = begun(dev, "cuDeviceGetCount", cu->DeviceGetCount(&devices));
    if (r < 0)
        return r;
    if (name.is_uuid)
        return find_uuid(dev, &name, devices);
    if (name.ordinal >= (unsigned)devices)
        return cuda__refuse(dev, -ENODEV, "the driver shows %d devices, so the last is cuda:%d",
                            devices, devices - 1);
    return begun(dev, "cuDeviceGet", cu->DeviceGet(&dev->device, (int)name.ordinal));
}

static int attribute(struct gpu_dev *dev, CUdevice_attribute which, bool *ret_value)
{
    int value = 0;
    const int r =
        begun(dev, "cuDeviceGetAttribute", dev->cu->DeviceGetAttribute(&value, which, dev->device));
    *ret_value = value != 0;
    return r;
}

static int granularity(struct gpu_dev *dev)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev->device}};
    size_t bytes = 0;
    const int r = begun(
        dev, "cuMemGetAllocationGranularity",
        dev->cu->MemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    if (r == 0 && bytes == 0)
        return cuda__refuse(dev, -EIO, "cuMemGetAllocationGranularity: 0 bytes");
    dev->granularity = bytes;
    return r;
}

/* What kind of device it is. */
static int look(struct gpu_dev *dev, struct gpu_dev_info *ret_info)
{
    const struct cuda_api *cu = dev->cu;
    bool unified = false, vmm = false, fds = false;
    CUuuid uuid;
    size_t bytes = 0;
    int r = begun(dev, "cuDeviceGetName",
                  cu->DeviceGetName(ret_info->name, GPU_NAME_BYTES, dev->device));
    if (r == 0)
        r = begun(dev, "cuDeviceGetUuid", cu->DeviceGetUuid(&uuid, dev->device));
    if (r == 0)
        r = begun(dev, "cuDeviceTotalMem", cu->DeviceTotalMem(&bytes, dev->device));
    if (r == 0)
        r = attribute(dev, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, &unified);
    if (r == 0)
        r = attribute(dev, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &vmm);
    if (r == 0)
        r = attribute(dev, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &fds);
    if (r < 0)
        return r;
    if (!unified)
        return cuda__refuse(dev, -ENODEV, "the device does not share addresses with the host");
    int mps = 0;
    ret_info->mps =
        cu->DeviceGetAttribute(&mps, CUDA_ATTRIBUTE_MPS, dev->device) == CUDA_SUCCESS && mps != 0;
    ret_info->by_turns = !ret_info->mps;
    memcpy(ret_info->uuid, uuid.bytes, GPU_UUID_BYTES);
    dev->memory_bytes = bytes;
    dev->vmm = vmm && fds;
    ret_info->exports = dev->vmm ? DEVICE_HANDLE_FD : DEVICE_HANDLE_IPC;
    return dev->vmm ? granularity(dev) : 0;
}

/* No context of this process has worked, or none does any more: an error that a context does not
 * forget (an illegal address) is answered to whoever asks for another, until the process ends. */
static int no_context(struct gpu_dev *dev, int r)
{
    char text[CUDA_TEXT_BYTES];
    if (r != -EIO)
        return r;
    (void)snprintf(text, sizeof(text), "%s", dev->why);
    return cuda__refuse(dev, r,
                        "%s: the driver gives this process no context; restart it (the daemon does "
                        "so by itself with hbm.exit_when_lost)",
                        text);
}

static int retain(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cu;
    /* A wait for the device sleeps. */
    CUresult said = cu->DevicePrimaryCtxSetFlags(dev->device, CU_CTX_SCHED_BLOCKING_SYNC);
    if (said == CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE)
        said = CUDA_SUCCESS; /* somebody else in this process has chosen */
    int r = begun(dev, "cuDevicePrimaryCtxSetFlags", said);
    CUcontext context = NULL;
    if (r == 0)
        r = no_context(dev, begun(dev, "cuDevicePrimaryCtxRetain",
                                  cu->DevicePrimaryCtxRetain(&context, dev->device)));
    if (r < 0)
        return r;
    dev->context = context;
    return begun(dev, "cuCtxSetCurrent", cu->CtxSetCurrent(context));
}

/* A stream per direction, so that both run at once, and copies of one run in their order. A second
 * stream of a direction would share its copy engine. */
static int make_streams(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cu;
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
    int r = find_device(dev, device);
    if (r == 0)
        r = look(dev, ret_info);
    if (r == 0)
        r = retain(dev);
    if (r == 0)
        r = begun(dev, "cuMemGetInfo", dev->cu->MemGetInfo(&free_bytes, &all_bytes));
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
    dev->cu = cu;
    const int r = bring_up(dev, config->device, &info);
    if (r < 0) {
        snprintf(ret_why, GPU_WHY_BYTES, "%s", dev->why);
        /* Whatever it was, the next time begins with a new context. */
        dev->broken = true;
        close_dev(dev);
        return r;
    }
    info.has_kernel = dev->kernel;
    *ret_info = info;
    *ret_dev = dev;
    return 0;
}

/* ---- closing ---- */

/* One after the other, until one fails: then all goes with the context. */
static void take_down(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cu;
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
        LOG_WARN("gpu: closing the device: %s", dev->why);
}

/* An error that the context does not forget goes with it; so does all that still runs. */
static void reset(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cu;
    char text[GPU_WHY_BYTES];
    (void)cu->CtxSetCurrent(NULL); /* to none: fails for no reason but an older error */
    cuda__unpin_all(dev);
    const CUresult r = cu->DevicePrimaryCtxReset(dev->device);
    if (r != CUDA_SUCCESS) {
        cuda_text(cu, "cuDevicePrimaryCtxReset", r, text);
        LOG_WARN("gpu: what the device had may be lost until the daemon ends: %s", text);
    }
    cuda__free_all(dev, true);
}

static void close_dev(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cu;
    char text[GPU_WHY_BYTES];
    if (dev->context && !dev->broken)
        take_down(dev);
    if (dev->context) {
        if (dev->broken)
            reset(dev);
        (void)cu->CtxSetCurrent(NULL);
        const CUresult r = cu->DevicePrimaryCtxRelease(dev->device);
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
                             dev->cu->EventRecord(dev->event[ticket % CUDA_TICKETS],
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
        const CUresult r = dev->cu->EventQuery(dev->event[(dev->ended + 1) % CUDA_TICKETS]);
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
    return dev->why;
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
