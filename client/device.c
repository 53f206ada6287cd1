/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a worker's device by its name, and counts its users; device_cpu.c and device_cuda.c do the
 * rest.
 */
#include "device__.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

/* Whether the name begins like a CUDA device's. open_cuda() refuses those with a malformed UUID. */
static bool is_cuda_name(const char *name)
{
    return strncmp(name, "GPU-", 4) == 0 || strncmp(name, "MIG-", 4) == 0;
}

static int open_cuda(struct kvc *k, const struct device_name *name, struct device **ret_device)
{
#ifdef KVC_HAVE_CUDA
    if (name != NULL)
        return device__cuda.open(k, name, ret_device);
    return kvc__fail(k, -ENODEV,
                     "no device has such a UUID: 'nvidia-smi -L' lists those that there are");
#else
    (void)name;
    (void)ret_device;
    return kvc__fail(k, -ENODEV,
                     "this libkvcache was built without CUDA: build it with -DKVC_CUDA=ON, or "
                     "name an emulated device, emu:0");
#endif
}

int device__open(struct kvc *k, const char *text, struct device **ret_device)
{
    struct device_name name;
    if (text == NULL || strlen(text) >= DEVICE_NAME_BYTES)
        return kvc__fail(k, -EINVAL, "no device was named, or one of more than %u characters",
                         DEVICE_NAME_BYTES - 1);
    if (strcmp(text, "host") == 0)
        return device__host.open(k, NULL, ret_device);
    const bool is_name = device_name_parse(text, &name);
    if (is_name && name.kind == DEVICE_NAME_EMULATED)
        return device__emu.open(k, &name, ret_device);
    if (is_name || is_cuda_name(text))
        return open_cuda(k, is_name ? &name : NULL, ret_device);
    return kvc__fail(
        k, -EINVAL,
        "a device is GPU-<uuid> or MIG-<uuid> as 'nvidia-smi -L' prints it, cuda:<ordinal>, "
        "emu:<number> for an emulated one, or host for this process's own memory; "
        "this is '%s'",
        text);
}

void device__ref(struct device *d)
{
    d->refs++;
}

void device__unref(struct device *d)
{
    MUST(d == NULL || d->refs > 0);
    if (d != NULL && --d->refs == 0)
        d->ops->close(d);
}

int device__may_use(struct device *d, void *stream)
{
    return d->ops->may_use != NULL ? d->ops->may_use(d, stream) : 0;
}

void device__handle_free(struct device_handle *handle)
{
    if (handle->owned && handle->fd >= 0)
        close(handle->fd);
    handle->fd = -1;
    handle->owned = false;
}
