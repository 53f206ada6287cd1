/* SPDX-License-Identifier: Apache-2.0 */
#include "device__.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

/* An emulated device's uuid: this, then its number, big-endian. */
static const uint8_t emu_prefix[KVC_UUID_BYTES - 4] = "kvc-emu";

void device__emu_uuid(uint32_t number, uint8_t ret_uuid[KVC_UUID_BYTES])
{
    memcpy(ret_uuid, emu_prefix, sizeof(emu_prefix));
    for (unsigned i = 0; i < 4; i++)
        ret_uuid[sizeof(emu_prefix) + i] = (uint8_t)(number >> (24 - 8 * i));
}

void device__name(const uint8_t uuid[KVC_UUID_BYTES], bool is_emulated,
                  char ret_name[DEVICE_NAME_BYTES])
{
    if (is_emulated && memcmp(uuid, emu_prefix, sizeof(emu_prefix)) == 0) {
        uint32_t number = 0;
        for (unsigned i = 0; i < 4; i++)
            number = number << 8 | uuid[sizeof(emu_prefix) + i];
        (void)snprintf(ret_name, DEVICE_NAME_BYTES, "emu:%u", number);
        return;
    }
    static const char hex[] = "0123456789abcdef";
    char *at = ret_name + snprintf(ret_name, DEVICE_NAME_BYTES, "GPU-");
    for (unsigned i = 0; i < KVC_UUID_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        *at++ = hex[uuid[i] >> 4];
        *at++ = hex[uuid[i] & 15];
    }
    *at = '\0';
}

bool device__number(const char *text, const char *prefix, uint32_t *ret_number)
{
    size_t n = strlen(prefix);
    if (strncmp(text, prefix, n) != 0 || text[n] < '0' || text[n] > '9')
        return false;
    char *end;
    errno = 0;
    unsigned long number = strtoul(text + n, &end, 10);
    if (errno != 0 || *end != '\0' || number > UINT32_MAX)
        return false;
    *ret_number = (uint32_t)number;
    return true;
}

/* ---- life ---- */

int device__open(struct kvc *k, const char *name, struct device **ret_device)
{
    uint32_t number;
    if (name == NULL || strlen(name) >= DEVICE_NAME_BYTES)
        return kvc__fail(k, -EINVAL, "no device was named, or one of more than %u characters",
                         DEVICE_NAME_BYTES - 1);
    if (device__number(name, "emu:", &number))
        return device__emu.open(k, name, ret_device);
    if (strcmp(name, "host") == 0)
        return device__host.open(k, name, ret_device);
    if (!device__number(name, "cuda:", &number) && strncmp(name, "GPU-", 4) != 0 &&
        strncmp(name, "MIG-", 4) != 0)
        return kvc__fail(
            k, -EINVAL,
            "a device is GPU-<uuid> or MIG-<uuid> as 'nvidia-smi -L' prints it, cuda:<ordinal>, "
            "emu:<number> for an emulated one, or host for this process's own memory; "
            "this is '%s'",
            name);
#ifdef KVC_HAVE_CUDA
    return device__cuda.open(k, name, ret_device);
#else
    return kvc__fail(k, -ENODEV,
                     "this libkvcache was built without CUDA: build it with -DKVC_CUDA=ON, or "
                     "name an emulated device, emu:0");
#endif
}

void device__ref(struct device *d)
{
    d->refs++;
}

void device__unref(struct device *d)
{
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
