/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's device in a session: kvc_gpu_open() and kvc_gpu_close(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "client_gpu__.h"
#include "sys.h"

static bool is_open(const struct kvc *k, const struct device *d)
{
    const struct kvc_gpu *g = k->gpus;
    while (g != NULL && memcmp(g->device->uuid, d->uuid, sizeof(d->uuid)) != 0)
        g = g->next;
    return g != NULL;
}

int kvc_gpu_open(struct kvc *kvc, const char *device, struct kvc_gpu **ret_gpu)
{
    if (fork__is_child(kvc))
        return kvc__fail(kvc, -EPERM, "this session belongs to the parent process");
    struct device *d = NULL;
    int rc = device__open(kvc, device, &d);
    if (rc < 0)
        return rc;
    struct kvc_gpu *g = NULL;
    if (is_open(kvc, d))
        rc = kvc__fail(kvc, -EINVAL, "this session has opened device %s already", device);
    else if ((g = sys_calloc(1, sizeof(*g))) == NULL)
        rc = kvc__fail(kvc, -ENOMEM, "out of memory");
    if (rc < 0) {
        device__unref(d);
        return rc;
    }
    *g = (struct kvc_gpu){.kvc = kvc, .device = d, .next = kvc->gpus};
    kvc->gpus = g;
    *ret_gpu = g;
    return 0;
}

void kvc_gpu_close(struct kvc_gpu **gpu)
{
    if (gpu == NULL || *gpu == NULL)
        return;
    struct kvc_gpu *g = *gpu;
    struct kvc *k = g->kvc;
    *gpu = NULL;
    for (uint32_t i = 0; i < KVC_POOLS_MAX; i++) {
        struct kvc_pool *p = k->pool[i];
        if (p != NULL && p->gpu == g)
            kvc_pool_close(&p);
    }
    mem__free_all(g);
    words__forget(k, g->device);
    if (k->staging.pinned == g->device)
        staging__unpin(k);
    map__forget(&k->maps, g->device);
    kvc__tell_unmapped(k);
    struct kvc_gpu **at = &k->gpus;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    device__unref(g->device);
    free(g);
}

void gpu__destroy_all(struct kvc *k)
{
    while (k->gpus != NULL) {
        struct kvc_gpu *g = k->gpus;
        kvc_gpu_close(&g);
    }
}
