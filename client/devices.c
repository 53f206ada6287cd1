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
        device__name(m->uuid, d->emulated, d->device);
    kvc__copy_text(d->name, sizeof(d->name), &m->name);
    kvc__copy_text(d->why, sizeof(d->why), &m->why);
    for (uint32_t i = 0; i < m->nrates; i++)
        d->rate[i] = (struct kvc_rate){.frag_bytes = m->rates[i].frag_bytes,
                                       .to_engine = m->rates[i].to_engine,
                                       .to_kernel = m->rates[i].to_kernel,
                                       .from_engine = m->rates[i].from_engine,
                                       .from_kernel = m->rates[i].from_kernel,
                                       .to_path = m->rates[i].to_path,
                                       .from_path = m->rates[i].from_path};
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
