/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers host memory with the device, so that copies are fast. A piece that does not fit the
 * table, or that the device refuses, is copied from and to more slowly; nothing else changes.
 */
#include "hbm__.h"

static void hbm_pin_memory(struct hbm_pin *p);

static void hbm_pin_forget(struct hbm_pin *p)
{
    MUST(list_is_linked(&p->node));
    MUST(!p->unpinning || p->hbm->pins.leaving_bytes >= p->unpin.bytes);
    list_remove(&p->node);
    p->hbm->pins.leaving_bytes -= p->unpinning ? p->unpin.bytes : 0;
    pool_put(p->hbm->pins.pool, p);
}

static void on_pinned(struct gpu_op *op)
{
    struct hbm_pin *p = op->ctx;
    MUST(p->pinning);
    p->pinning = false;
    /* The operation failed because the device was lost meanwhile: register with the new one. */
    if (op->status < 0 && !p->unpinning && p->generation != p->hbm->generation)
        hbm_pin_memory(p);
}

static void on_unpinned(struct gpu_op *op)
{
    struct hbm_pin *p = op->ctx;
    MUST(p->unpinning && !p->pinning); /* the device takes them in order */
    hbm_pin_forget(p);
}

static void hbm_pin_memory(struct hbm_pin *p)
{
    if (p->pinning || p->unpinning || !hbm__is_up(p->hbm))
        return;
    p->pinning = true;
    p->generation = p->hbm->generation;
    p->pin.status = 0;
    gpu_submit(p->hbm->gpu, &p->pin);
}

static struct gpu_op operation(enum gpu_op_kind kind, void *base, uint64_t bytes,
                               void (*done)(struct gpu_op *op), void *ctx)
{
    return (struct gpu_op){.kind = kind, .host = base, .bytes = bytes, .done = done, .ctx = ctx};
}

void hbm_pin_host(struct hbm *h, void *base, uint64_t bytes)
{
    struct hbm_pin *p = pool_get(h->pins.pool);
    if (p == NULL)
        return;
    p->hbm = h;
    p->pin = operation(GPU_PIN, base, bytes, on_pinned, p);
    p->unpin = operation(GPU_UNPIN, base, bytes, on_unpinned, p);
    list_push_back(&h->pins.list, &p->node);
    hbm_pin_memory(p);
}

void hbm_unpin_host(struct hbm *h, void *base, uint64_t bytes)
{
    LIST_FOR_EACH_SAFE (n, next, &h->pins.list) {
        struct hbm_pin *p = CONTAINER_OF(n, struct hbm_pin, node);
        if (p->pin.host != base || p->pin.bytes != bytes || p->unpinning)
            continue;
        /* Submitted at once, behind its PIN: copies after this call must not use the old pages. */
        p->unpinning = true;
        h->pins.leaving_bytes += bytes;
        gpu_submit(h->gpu, &p->unpin);
        return;
    }
}

uint64_t hbm_leaving_bytes(const struct hbm *h)
{
    return h->pins.leaving_bytes;
}

void hbm__pins_up(struct hbm *h)
{
    LIST_FOR_EACH_SAFE (n, next, &h->pins.list) {
        hbm_pin_memory(CONTAINER_OF(n, struct hbm_pin, node));
    }
}

uint64_t hbm__pins_host_bytes(void)
{
    return pool_bytes_for(sizeof(struct hbm_pin), HBM_PINS_MAX);
}

int hbm__pins_create(struct hbm *h)
{
    return pool_create(&h->pins.pool, "host memory of a device", sizeof(struct hbm_pin),
                       HBM_PINS_MAX);
}

void hbm__pins_destroy(struct hbm *h)
{
    pool_destroy(&h->pins.pool);
}
