/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sys.h"

static void from_spec(const struct kvc_ns_spec *s, struct msg_ns_open *m)
{
    *m = (struct msg_ns_open){.model = codec_text(s->model),
                              .revision = codec_text(s->revision),
                              .dtype = codec_text(s->dtype),
                              .quant = codec_text(s->quant),
                              .layout = codec_text(s->layout),
                              .position = codec_text(s->position),
                              .position_params = codec_text(s->position_params),
                              .attention = codec_text(s->attention),
                              .lora = codec_text(s->lora),
                              .extra = codec_text(s->extra),
                              .sub = codec_text(s->sub_tenant),
                              .layers = s->layers,
                              .kv_heads = s->kv_heads,
                              .head_size = s->head_size,
                              .shards = s->shards != 0 ? s->shards : 1,
                              .flags = s->with_tokens ? KVC_F_TOKENS : 0,
                              .prefill_ns_per_token = s->prefill_ns_per_token,
                              .prefill_ns_per_token_pair = s->prefill_ns_per_token_pair,
                              .ngroups = s->groups};
    for (uint32_t i = 0; i < s->groups; i++) {
        const struct kvc_group_spec *g = &s->group[i];
        m->groups[i] = (struct msg_group){.block_tokens = g->block_tokens,
                                          .block_bytes = g->block_bytes,
                                          .rule = (uint8_t)g->rule,
                                          .window = g->rule == KVC_RULE_WINDOW ? g->window : 0,
                                          .flags = g->replicated ? KVC_F_REPLICATED : 0};
    }
}

/* The specification as an NS_OPEN request, checked as the daemon will check it. */
static int canonical(struct kvc *k, const struct kvc_ns_spec *spec, uint8_t *buf, size_t cap,
                     struct msg_ns_open *ret_msg)
{
    if (spec->groups < 1 || spec->groups > KVC_GROUPS_MAX)
        return kvc__fail(k, -EINVAL, "groups is %u; it must be 1 to %u", spec->groups,
                         KVC_GROUPS_MAX);
    struct msg_ns_open m;
    from_spec(spec, &m);
    struct msg_head head = {.op = KVC_OP_NS_OPEN};
    int len = codec_enc_ns_open(buf, cap, &head, &m);
    if (len < 0)
        return kvc__fail(k, -EINVAL, "the namespace's strings are too long: at most %u bytes each",
                         KVC_STRING_MAX - 1);
    int rc = codec_dec_ns_open(buf, (size_t)len, &head, ret_msg);
    if (rc < 0)
        return kvc__fail(k, KVC_E_BAD_ARGUMENT, "namespace: %s",
                         head.detail != NULL ? head.detail : "an argument is outside its limits");
    return len;
}

static struct kvc_ns *find(struct kvc *k, const uint8_t *canon, size_t len)
{
    struct kvc_ns *ns = k->ns;
    while (ns != NULL && (ns->canon_len != len || memcmp(ns->canon, canon, len) != 0))
        ns = ns->next;
    return ns;
}

/* Takes over a refusal that belongs to the namespace, not to the moment. */
static bool is_verdict(int error)
{
    return error == KVC_E_UNSOUND || error == KVC_E_DENIED || error == KVC_E_BAD_ARGUMENT ||
           error == KVC_E_TOO_LARGE;
}

int ns__open(struct kvc_ns *ns, uint64_t deadline_ns)
{
    struct kvc *k = ns->kvc;
    struct msg_head head;
    struct msg_ns_open m;
    if (codec_dec_ns_open(ns->canon, ns->canon_len, &head, &m) < 0)
        return kvc__fail(k, -EINVAL, "the namespace's specification is damaged");
    struct kvc_op *op;
    int rc = op__new(k, KVC_OP_NS_OPEN, deadline_ns, &op);
    if (rc < 0)
        return rc;
    rc = op__call(op, codec_enc_ns_open(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0) {
        struct msg_reply_head rhead;
        struct msg_ns_open_reply reply;
        rc = op__checked(op, codec_dec_ns_open_reply(op->msg.data, op->msg.len, &rhead, &reply));
        if (rc == 0) {
            ns->id = reply.ns;
            memcpy(ns->seed, reply.seed, sizeof(ns->seed));
        }
    }
    if (rc == 0 || is_verdict(rc)) {
        ns->epoch = k->epoch;
        ns->error = rc;
    }
    op__free(op);
    return rc;
}

int ns__enter(struct kvc_ns *ns, uint64_t deadline_ns)
{
    struct kvc *k = ns->kvc;
    int rc = kvc__enter(k, deadline_ns);
    if (rc < 0)
        return rc;
    if (ns->epoch != k->epoch)
        return ns__open(ns, deadline_ns);
    if (ns->error < 0)
        return kvc__fail(k, ns->error,
                         "the daemon refused to open this namespace again after a reconnect: %s",
                         kvc_error_text(ns->error));
    return 0;
}

static struct kvc_ns *create(struct kvc *k, const struct msg_ns_open *m, const uint8_t *canon,
                             size_t len)
{
    struct kvc_ns *ns = sys_calloc(1, sizeof(*ns) + len);
    if (ns == NULL)
        return NULL;
    ns->kvc = k;
    ns->groups = m->ngroups;
    for (uint32_t i = 0; i < m->ngroups; i++)
        ns->block_bytes[i] = m->groups[i].block_bytes;
    ns->canon_len = len;
    memcpy(ns->canon, canon, len);
    return ns;
}

int kvc_ns_open(struct kvc *kvc, const struct kvc_ns_spec *spec, struct kvc_ns **ret_ns)
{
    uint8_t canon[8192];
    struct msg_ns_open m;
    uint64_t deadline = kvc__deadline(kvc, 0);
    int rc = kvc__enter(kvc, deadline);
    if (rc == -EPERM)
        return rc;
    int len = canonical(kvc, spec, canon, sizeof(canon), &m);
    if (len < 0)
        return len;
    struct kvc_ns *ns = find(kvc, canon, (size_t)len);
    if (ns != NULL && rc < 0) {
        *ret_ns = ns;
        return 0;
    }
    if (rc < 0)
        return rc;
    bool known = ns != NULL;
    if (!known)
        ns = create(kvc, &m, canon, (size_t)len);
    if (ns == NULL)
        return kvc__fail(kvc, -ENOMEM, "out of memory");
    rc = known ? ns__enter(ns, deadline) : ns__open(ns, deadline);
    if (rc < 0 && !known)
        free(ns);
    if (rc < 0)
        return rc;
    if (!known) {
        ns->next = kvc->ns;
        kvc->ns = ns;
    }
    *ret_ns = ns;
    return 0;
}

const uint8_t *kvc_ns_seed(const struct kvc_ns *ns)
{
    return ns->seed;
}

uint32_t kvc_ns_id(const struct kvc_ns *ns)
{
    return ns->id;
}
