/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks in the daemon's slots on a device, read in place. The library imports a chunk's memory
 * when the daemon sends its handle (CHUNK_ON), and gives blocks to the worker as addresses
 * (kvc_hold_device()) or DLPack tensors.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "client_gpu__.h"
#include "dlpack__.h"
#include "sys.h"

/* ---- memory of chunks ---- */

static struct device *slots_find_device(const struct kvc *k, const uint8_t uuid[KVC_UUID_BYTES])
{
    const struct kvc_gpu *g = k->gpus;
    while (g != NULL && memcmp(g->device->uuid, uuid, KVC_UUID_BYTES) != 0)
        g = g->next;
    return g != NULL ? g->device : NULL;
}

static int to_handle(struct kvc *k, const struct att_chunk_on *m, int passed,
                     struct device_handle *ret_handle)
{
    bool is_ipc = m->kind == KVC_HANDLE_IPC;
    if (m->bytes == 0 || m->kind < KVC_HANDLE_FD || m->kind > KVC_HANDLE_EMU ||
        (m->ipc.n == KVC_IPC_BYTES) != is_ipc || (passed >= 0) == is_ipc)
        return kvc__malformed(k, "CHUNK_ON (kind, handle and descriptor do not agree)");
    *ret_handle = (struct device_handle){
        .kind = m->kind, .fd = passed, .bytes = m->bytes, .offset = m->offset};
    if (is_ipc)
        memcpy(ret_handle->ipc, m->ipc.p, KVC_IPC_BYTES);
    return 0;
}

/* Imports the chunk's memory on the device into the chunk's mapping. */
static int import(struct kvc *k, const struct att_chunk_on *m, int passed)
{
    struct map *map = map__find(&k->maps, m->chunk);
    struct device *d = slots_find_device(k, m->uuid);
    struct device_handle handle;
    int rc = to_handle(k, m, passed, &handle);
    if (rc < 0 || map == NULL || map->on != NULL)
        return rc; /* retired meanwhile: its headers are asked for again, and are gone */
    if (d == NULL)
        return kvc__fail(k, -ENODEV, "chunk %u is on a device that was closed meanwhile", m->chunk);
    rc = d->ops->import(d, &handle, &map->memory);
    if (rc < 0)
        return rc;
    map->on = d;
    device__ref(d);
    return 0;
}

int device__chunk_on(struct kvc *k, const uint8_t *buf, size_t len, int passed, uint32_t *ret_chunk)
{
    struct att_chunk_on m;
    if (codec_dec_att_chunk_on(buf, len, &m) < 0)
        return kvc__malformed(k, "CHUNK_ON");
    *ret_chunk = m.chunk;
    int rc;
    if (m.status != KVC_ST_OK)
        return kvc__fail(k, kvc__status_error(m.status), "memory of chunk %u: %.*s", m.chunk,
                         (int)m.detail.n, (const char *)m.detail.p);
    rc = import(k, &m, passed);
    const struct map *map = map__find(&k->maps, m.chunk);
    if (k->state != LINK_DOWN && (map == NULL || map->on == NULL))
        map__declined(&k->maps, m.chunk);
    kvc__tell_unmapped(k);
    return rc;
}

/* ---- the public half ---- */

static const struct kvc_block *slots_block_of(const struct kvc_hold *hold, uint32_t group,
                                              uint32_t i)
{
    return group < KVC_GROUPS_MAX && i < hold->group[group].n ? &hold->group[group].block[i] : NULL;
}

const void *kvc_hold_device(const struct kvc_hold *hold, uint32_t group, uint32_t i)
{
    const struct hold *h = (const struct hold *)(const void *)hold;
    const struct kvc_block *b = slots_block_of(hold, group, i);
    return b != NULL && h->on_device ? h->slot[b - h->block] : NULL;
}

/* The device that has the memory at `slot`, an address of the hold's. */
static const struct device *device_of(const struct hold *h, const void *slot)
{
    uintptr_t at = (uintptr_t)slot;
    for (uint32_t i = 0; i < h->maps; i++) {
        const struct device_mem *m = &h->map[i]->memory;
        uintptr_t begin = (uintptr_t)m->addr;
        if (h->map[i]->on != NULL && at >= begin && at - begin < m->bytes)
            return h->map[i]->on;
    }
    return NULL;
}

/* The DLPack tensor that a consumer gets, and behind it what the tensor points to. */
struct view {
    union {
        struct DLManagedTensor plain;
        struct DLManagedTensorVersioned versioned;
    };
    int64_t shape, stride;
};

static void fill_tensor(struct view *v, const struct hold *h, const struct kvc_block *b,
                        const void *slot, struct dl_tensor *ret_tensor)
{
    const struct device *d = slot != NULL ? device_of(h, slot) : NULL;
    const bool is_cuda = d != NULL && !d->is_emulated;
    v->shape = b->bytes;
    v->stride = 1;
    *ret_tensor = (struct dl_tensor){
        .data = (void *)(uintptr_t)(slot != NULL ? slot : b->data),
        .device = {.type = is_cuda ? DL_CUDA : DL_CPU, .id = is_cuda ? d->ordinal : 0},
        .ndim = 1,
        .dtype = {.code = DL_UINT, .bits = 8, .lanes = 1},
        .shape = &v->shape,
        .strides = &v->stride};
}

static struct view *view_of(const struct kvc_hold *hold, const struct kvc_block *b)
{
    const struct hold *h = (const struct hold *)(const void *)hold;
    struct view *v = b != NULL ? sys_calloc(1, sizeof(*v)) : NULL;
    if (v == NULL)
        (void)kvc__fail(h->kvc, b != NULL ? -ENOMEM : -EINVAL, "%s",
                        b != NULL ? "out of memory" : "the hold has no such block");
    return v;
}

static void delete_plain(struct DLManagedTensor *self)
{
    free(self); /* the view begins with it */
}

static void delete_versioned(struct DLManagedTensorVersioned *self)
{
    free(self);
}

struct DLManagedTensor *kvc_hold_dlpack(const struct kvc_hold *hold, uint32_t group, uint32_t i)
{
    const struct kvc_block *b = slots_block_of(hold, group, i);
    struct view *v = view_of(hold, b);
    if (v == NULL)
        return NULL;
    v->plain.deleter = delete_plain;
    fill_tensor(v, (const struct hold *)(const void *)hold, b, kvc_hold_device(hold, group, i),
                &v->plain.dl_tensor);
    return &v->plain;
}

struct DLManagedTensorVersioned *kvc_hold_dlpack_versioned(const struct kvc_hold *hold,
                                                           uint32_t group, uint32_t i)
{
    const struct kvc_block *b = slots_block_of(hold, group, i);
    struct view *v = view_of(hold, b);
    if (v == NULL)
        return NULL;
    v->versioned.version = (struct dl_version){DL_VERSION_MAJOR, DL_VERSION_MINOR};
    v->versioned.flags = DL_READ_ONLY;
    v->versioned.deleter = delete_versioned;
    fill_tensor(v, (const struct hold *)(const void *)hold, b, kvc_hold_device(hold, group, i),
                &v->versioned.dl_tensor);
    return &v->versioned;
}
