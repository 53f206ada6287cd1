/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory on a device for a worker's pages, which the daemon imports. The library allocates it, or
 * the worker registers its own. MEM makes it known to the daemon in each epoch.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "client_gpu__.h"
#include "sys.h"

/* ---- what the daemon knows of it ---- */

enum mem_state mem__state(const struct kvc_mem *m)
{
    return m->epoch == m->gpu->kvc->epoch ? m->state : MEM_UNKNOWN;
}

static void set_state(struct kvc_mem *m, enum mem_state state, int error)
{
    m->epoch = m->gpu->kvc->epoch;
    m->state = state;
    m->error = error;
}

int mem__ask(struct kvc_mem *m)
{
    struct kvc *k = m->gpu->kvc;
    struct device *d = m->gpu->device;
    struct device_handle handle;
    int rc = d->ops->export(d, &m->memory, &handle);
    if (rc < 0)
        return rc;
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_mem ask = {
        .mem = m->no, .kind = handle.kind, .bytes = handle.bytes, .offset = handle.offset};
    memcpy(ask.uuid, d->uuid, sizeof(ask.uuid));
    if (handle.kind == KVC_HANDLE_IPC)
        ask.ipc = (struct codec_bin){.p = handle.ipc, .n = sizeof(handle.ipc)};
    rc = kvc__tell(k, buf, codec_enc_att_mem(buf, sizeof(buf), &ask), handle.fd, 0);
    device__handle_free(&handle);
    if (rc < 0)
        return rc;
    set_state(m, MEM_ASKED, 0);
    k->mems.asked++;
    return 0;
}

void mem__drop(struct kvc_mem *m)
{
    struct kvc *k = m->gpu->kvc;
    enum mem_state state = mem__state(m);
    m->state = MEM_UNKNOWN;
    if (state == MEM_UNKNOWN || k->state < LINK_REOPENING)
        return;
    uint8_t buf[KVC_ATTACH_MAX];
    const struct att_mem_drop drop = {.mem = m->no};
    int rc = kvc__tell(k, buf, codec_enc_att_mem_drop(buf, sizeof(buf), &drop), -1, 0);
    /* The daemon may still have this number in use, or may still answer MEM: no other memory gets
     * the number in this epoch. */
    if (rc < 0 || state == MEM_ASKED)
        k->mems.void_epoch[m->no] = k->epoch;
    k->mems.asked -= state == MEM_ASKED && k->mems.asked > 0;
}

/* Whether the daemon refused only because other MEM requests are in flight. */
static bool mem_is_full(const struct kvc *k, uint16_t status)
{
    return status == KVC_ST_BUSY && k->mems.asked > 0;
}

int mem__is(struct kvc *k, const uint8_t *buf, size_t len)
{
    struct att_mem_is is;
    if (codec_dec_att_mem_is(buf, len, &is) < 0 || is.mem >= KVC_MEMS_MAX)
        return kvc__malformed(k, "MEM_IS");
    struct kvc_mem *m = k->mems.by_no[is.mem];
    if (m == NULL || mem__state(m) != MEM_ASKED)
        return 0; /* dropped meanwhile */
    k->mems.asked -= k->mems.asked > 0;
    int rc = 0;
    if (is.status != KVC_ST_OK && !mem_is_full(k, is.status))
        rc = kvc__fail(k, kvc__status_error(is.status),
                       "the daemon does not take memory %u on the device: %.*s", is.mem,
                       (int)is.detail.n, (const char *)is.detail.p);
    set_state(m, is.status == KVC_ST_OK ? MEM_KNOWN : MEM_UNKNOWN, rc);
    return 1;
}

/* ---- its life ---- */

static int new_mem(struct kvc_gpu *gpu, uint64_t bytes, struct kvc_mem **ret_mem)
{
    struct kvc *k = gpu->kvc;
    if (fork__is_child(k))
        return kvc__fail(k, -EPERM, "this session belongs to the parent process");
    if (bytes == 0 || bytes > INT64_MAX / 2)
        return kvc__fail(k, -EINVAL, "memory of %llu bytes", (unsigned long long)bytes);
    uint32_t no = 0;
    while (no < KVC_MEMS_MAX &&
           (k->mems.by_no[no] != NULL || (k->epoch > 0 && k->mems.void_epoch[no] == k->epoch)))
        no++;
    if (no == KVC_MEMS_MAX)
        return kvc__fail(k, KVC_E_LIMIT, "a session has at most %u memories on devices",
                         KVC_MEMS_MAX);
    struct kvc_mem *m = sys_calloc(1, sizeof(*m));
    if (m == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    m->gpu = gpu;
    m->no = no;
    *ret_mem = m;
    return 0;
}

int kvc_mem_alloc(struct kvc_gpu *gpu, uint64_t bytes, void **ret_addr, struct kvc_mem **ret_mem)
{
    struct kvc_mem *m = NULL;
    int rc = new_mem(gpu, bytes, &m);
    if (rc < 0)
        return rc;
    rc = gpu->device->ops->alloc(gpu->device, bytes, &m->memory);
    if (rc < 0) {
        free(m);
        return rc;
    }
    gpu->kvc->mems.by_no[m->no] = m;
    *ret_addr = m->memory.addr;
    *ret_mem = m;
    return 0;
}

int kvc_mem_register(struct kvc_gpu *gpu, void *addr, uint64_t bytes, struct kvc_mem **ret_mem)
{
    struct kvc_mem *m = NULL;
    if (addr == NULL)
        return kvc__fail(gpu->kvc, -EINVAL, "addr is NULL");
    int rc = new_mem(gpu, bytes, &m);
    if (rc < 0)
        return rc;
    rc = gpu->device->ops->wrap(gpu->device, addr, bytes, &m->memory);
    if (rc < 0) {
        free(m);
        return rc;
    }
    gpu->kvc->mems.by_no[m->no] = m;
    *ret_mem = m;
    return 0;
}

static void free_mem(struct kvc_mem *m)
{
    struct kvc *k = m->gpu->kvc;
    if (!fork__is_child(k))
        mem__drop(m);
    MUST(k->mems.by_no[m->no] == m);
    k->mems.by_no[m->no] = NULL;
    m->gpu->device->ops->free(m->gpu->device, &m->memory);
    free(m);
}

void mem__unref(struct kvc_mem *m)
{
    MUST(m->pools > 0);
    if (--m->pools == 0 && m->free_pending)
        free_mem(m);
}

void kvc_mem_free(struct kvc_mem **mem)
{
    if (mem == NULL || *mem == NULL)
        return;
    struct kvc_mem *m = *mem;
    *mem = NULL;
    if (m->pools > 0)
        m->free_pending = true; /* pages of it may be in use: with the last pool that names it */
    else
        free_mem(m);
}

void mem__free_all(struct kvc_gpu *g)
{
    struct kvc *k = g->kvc;
    for (uint32_t i = 0; i < KVC_MEMS_MAX; i++) {
        if (k->mems.by_no[i] != NULL && k->mems.by_no[i]->gpu == g)
            free_mem(k->mems.by_no[i]);
    }
}
