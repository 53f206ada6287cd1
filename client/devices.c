/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon says of its devices. */
#include <string.h>

#include "client.h"
#include "device__.h"

/* As the daemon's configuration calls it while its uuid is not known. */
static bool was_never_up(const struct msg_device_item *m)
{
    static const uint8_t none[KVC_UUID_BYTES];
    return memcmp(m->uuid, none, sizeof(none)) == 0 && m->name.n > 0;
}

static void to_public(const struct msg_device_item *m, struct kvc_device *d)
{
    *d = (struct kvc_device){.up = m->up != 0,
                             .emulated = m->emulated != 0,
                             .limit_bytes = m->limit_bytes,
                             .used_bytes = m->used_bytes,
                             .memory_bytes = m->memory_bytes,
                             .imported_bytes = m->imported_bytes,
                             .blocks = m->blocks,
                             .hits = m->hits,
                             .fills = m->fills,
                             .drops = m->drops,
                             .copies = m->copies,
                             .copy_bytes = m->copy_bytes,
                             .failures = m->failures,
                             .outs = m->outs,
                             .plain_to = m->plain_to,
                             .plain_from = m->plain_from,
                             .rates = m->nrates};
    memcpy(d->uuid, m->uuid, sizeof(d->uuid));
    if (was_never_up(m))
        kvc__copy_text(d->device, sizeof(d->device), &m->name);
    else
        device_name_print(m->uuid, d->emulated, d->device);
    kvc__copy_text(d->name, sizeof(d->name), &m->name);
    kvc__copy_text(d->why, sizeof(d->why), &m->why);
    for (uint32_t i = 0; i < m->nrates; i++)
        d->rate[i] = (struct kvc_rate){.frag_bytes = m->rates[i].frag_bytes,
                                       .to_engine = m->rates[i].to_engine,
                                       .to_kernel = m->rates[i].to_kernel,
                                       .from_engine = m->rates[i].from_engine,
                                       .from_kernel = m->rates[i].from_kernel,
                                       .to_path = m->rates[i].to_path,
                                       .from_path = m->rates[i].from_path,
                                       .to_window = m->rates[i].to_window};
}

int kvc_devices(struct kvc *kvc, int (*fn)(void *ctx, const struct kvc_device *), void *ctx)
{
    struct kvc_op *op;
    struct msg_reply_head head;
    struct msg_devices_reply r;
    int rc = op__begin(kvc, KVC_OP_DEVICES, &op);
    if (rc < 0)
        return rc;
    rc = op__call(op, codec_enc_bare(kvc->tx, KVC_MESSAGE_MAX, &op->head));
    if (rc == 0)
        rc = op__checked(op, codec_dec_devices_reply(op->msg.data, op->msg.len, &head, &r));
    for (uint32_t i = 0; rc == 0 && i < r.ndevices; i++) {
        struct kvc_device d;
        to_public(&r.devices[i], &d);
        rc = fn(ctx, &d);
    }
    op__free(op);
    return rc;
}

/* Slower by so little is not worth the worker's time, and may be noise. */
static uint64_t worth(uint64_t rate)
{
    return rate + rate / 4;
}

enum kvc_copy_path kvc_load_path(const struct kvc_device *device, uint32_t frag_bytes)
{
    const struct kvc_rate *r = NULL; /* nearest by ratio; sizes ascend */
    for (uint32_t i = 0; i < device->rates; i++) {
        const struct kvc_rate *x = &device->rate[i];
        if (x->to_path != KVC_COPY_UNKNOWN &&
            (r == NULL ||
             (uint64_t)frag_bytes * frag_bytes > (uint64_t)r->frag_bytes * x->frag_bytes))
            r = x;
    }
    if (r == NULL)
        return KVC_COPY_UNKNOWN;
    const bool window = device->limit_bytes > 0 && r->to_window > worth(r->to_engine) &&
                        r->to_window >= r->to_kernel;
    return window ? KVC_COPY_WINDOW : (enum kvc_copy_path)r->to_path;
}
