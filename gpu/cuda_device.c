/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_device.h"
#ifdef KVC_HAVE_CUDA

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(((CUuuid *)0)->bytes) == DEVICE_UUID_BYTES, "a UUID passes whole");

/* ---- what the driver says ---- */

int cuda_check(struct cuda_device *d, const char *call, CUresult r)
{
    if (r == CUDA_SUCCESS)
        return 0;
    d->last.result = r;
    cuda_text(d->cu, call, r, d->last.text);
    switch (r) {
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_OPERATING_SYSTEM: /* descriptors, address space */
        return -ENOMEM;
    case CUDA_ERROR_NOT_SUPPORTED:
        return -EOPNOTSUPP;
    default:
        return -EIO;
    }
}

int cuda_check_open(struct cuda_device *d, const char *call, CUresult r)
{
    const int rc = cuda_check(d, call, r);
    switch (r) {
    case CUDA_SUCCESS:
    case CUDA_ERROR_OUT_OF_MEMORY:
        return rc;
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

int cuda_refuse(struct cuda_device *d, int err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(d->last.text, sizeof(d->last.text), format, args);
    va_end(args);
    d->last.result = CUDA_SUCCESS;
    return err;
}

/* ---- which device ---- */

static int find_by_uuid(struct cuda_device *d, const uint8_t uuid[DEVICE_UUID_BYTES], int devices)
{
    for (int i = 0; i < devices; i++) {
        CUuuid found;
        int rc = cuda_check_open(d, "cuDeviceGet", d->cu->DeviceGet(&d->id, i));
        if (rc == 0) /* of a MIG instance the driver tells that one's */
            rc = cuda_check_open(d, "cuDeviceGetUuid", d->cu->DeviceGetUuid(&found, d->id));
        if (rc < 0)
            return rc;
        if (memcmp(found.bytes, uuid, DEVICE_UUID_BYTES) == 0)
            return 0;
    }
    return cuda_refuse(d, -ENODEV,
                       "none of the %d devices that the driver shows has this UUID: nvidia-smi -L "
                       "lists them; CUDA_VISIBLE_DEVICES may hide some, and shows one MIG "
                       "instance at most",
                       devices);
}

static int find_by_ordinal(struct cuda_device *d, uint32_t ordinal, int devices)
{
    if (ordinal >= (uint32_t)devices)
        return cuda_refuse(d, -ENODEV,
                           "there is no device cuda:%u: this process sees %d; 'nvidia-smi -L' "
                           "lists them, CUDA_VISIBLE_DEVICES may hide some",
                           ordinal, devices);
    return cuda_check_open(d, "cuDeviceGet", d->cu->DeviceGet(&d->id, (int)ordinal));
}

static int attribute(struct cuda_device *d, CUdevice_attribute which, bool *ret_value)
{
    int value = 0;
    const int rc =
        cuda_check_open(d, "cuDeviceGetAttribute", d->cu->DeviceGetAttribute(&value, which, d->id));
    *ret_value = value != 0;
    return rc;
}

static int find_granularity(struct cuda_device *d)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->id}};
    size_t bytes = 0;
    const int rc = cuda_check_open(
        d, "cuMemGetAllocationGranularity",
        d->cu->MemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    if (rc == 0 && bytes == 0)
        return cuda_refuse(d, -EIO, "cuMemGetAllocationGranularity: 0 bytes");
    d->granularity = bytes;
    return rc;
}

static int cuda_device_look(struct cuda_device *d)
{
    const struct cuda_api *cu = d->cu;
    bool vmm = false, descriptors = false;
    CUuuid uuid;
    size_t bytes = 0;
    int rc = cuda_check_open(d, "cuDeviceGetUuid", cu->DeviceGetUuid(&uuid, d->id));
    if (rc == 0)
        rc = cuda_check_open(d, "cuDeviceTotalMem", cu->DeviceTotalMem(&bytes, d->id));
    if (rc == 0)
        rc = attribute(d, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &vmm);
    if (rc == 0)
        rc = attribute(d, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                       &descriptors);
    if (rc < 0)
        return rc;
    memcpy(d->uuid, uuid.bytes, sizeof(d->uuid));
    d->memory_bytes = bytes;
    d->vmm = vmm && descriptors;
    return d->vmm ? find_granularity(d) : 0;
}

static int init(struct cuda_device *d)
{
    static const char next_step[] = ": 'nvidia-smi' says why";
    const int rc = cuda_check_open(d, "cuInit", d->cu->Init(0));
    const size_t n = rc < 0 ? strlen(d->last.text) : CUDA_TEXT_BYTES;
    if (n + sizeof(next_step) <= CUDA_TEXT_BYTES)
        memcpy(d->last.text + n, next_step, sizeof(next_step));
    return rc;
}

int cuda_device_find(struct cuda_device *d, const struct device_name *name)
{
    int devices = 0;
    int rc = init(d);
    if (rc == 0)
        rc = cuda_check_open(d, "cuDeviceGetCount", d->cu->DeviceGetCount(&devices));
    if (rc < 0)
        return rc;
    rc = name->kind == DEVICE_NAME_UUID ? find_by_uuid(d, name->uuid, devices)
                                        : find_by_ordinal(d, name->number, devices);
    return rc == 0 ? cuda_device_look(d) : rc;
}
#endif
