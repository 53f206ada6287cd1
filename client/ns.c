/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Namespaces: opened with NS_OPEN, and opened again by the library in each new epoch; requests that
 * name one are parked meanwhile.
 */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client_gpu__.h"
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

/* Encodes the specification as an NS_OPEN request, and makes the checks that the daemon will make.
 */
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

static struct kvc_ns *ns_find(struct kvc *k, const uint8_t *canon, size_t len)
{
    struct kvc_ns *ns = k->ns;
    while (ns != NULL && (ns->canon_len != len || memcmp(ns->canon, canon, len) != 0))
        ns = ns->next;
    return ns;
}

/* Whether this error is a refusal of the namespace itself, which another attempt would get again.
 */
static bool is_verdict(int error)
{
    return error == KVC_E_UNSOUND || error == KVC_E_DENIED || error == KVC_E_BAD_ARGUMENT ||
           error == KVC_E_TOO_LARGE;
}

/* ---- opening ---- */

/* Takes seed and id from the reply, or the daemon's refusal. */
static int take_reply(struct kvc_op *op)
{
    struct kvc_ns *ns = op->ns;
    int rc = op->error;
    if (rc == 0) {
        struct msg_reply_head head;
        struct msg_ns_open_reply reply;
        rc = op__checked(op, codec_dec_ns_open_reply(op->msg.data, op->msg.len, &head, &reply));
        if (rc == 0) {
            ns->id = reply.ns;
            ns->has_seed = true;
            memcpy(ns->seed, reply.seed, sizeof(ns->seed));
        }
    }
    if (rc == 0 || is_verdict(rc)) {
        ns->epoch = op->epoch;
        ns->error = rc;
    }
    return rc;
}

static int send_open(struct kvc_ns *ns, struct kvc_op *op)
{
    struct msg_head head;
    struct msg_ns_open m;
    int len = codec_dec_ns_open(ns->canon, ns->canon_len, &head, &m);
    if (len == 0)
        len = codec_enc_ns_open(ns->kvc->tx, KVC_MESSAGE_MAX, &op->head, &m);
    return op__send(op, len);
}

/* Sends a parked request now, or once its pool is open, too. */
static void unpark_one(struct kvc_op *op)
{
    int rc = 0;
    if (op->pool != NULL && !pool__is_open(op->pool))
        rc = pool__make(op->pool);
    else
        op__resend(op);
    if (rc < 0)
        op__end(op, rc);
}

/* Sends the requests that were parked for the namespace, or (error < 0) ends them. */
static void unpark(struct kvc_ns *ns, int error)
{
    struct kvc_op *next;
    for (struct kvc_op *op = ns->kvc->ops.live; op != NULL; op = next) {
        next = op->next;
        if (ns->kvc->state == LINK_DOWN)
            return; /* all have ended with the link */
        if (op->stage != OP_PARKED || op->ns != ns)
            continue;
        if (error < 0)
            op__end(op, error);
        else if (op->head.op == KVC_OP_NS_OPEN)
            op__complete(op, 0);
        else
            unpark_one(op);
    }
}

/* The op of an NS_OPEN is freed, after its reply or without one. */
static void ns_let_go(struct kvc_op *op)
{
    if (op->ns != NULL && op->ns->opening == op)
        op->ns->opening = NULL;
    if (op->owns_ns)
        free(op->ns);
}

static void reopened(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    struct kvc_ns *ns = op->ns;
    op__explain(op);
    ns->opening = NULL;
    int rc = take_reply(op);
    if (k->state == LINK_DOWN)
        return; /* the reply was malformed; op and what waited for it have ended with the link */
    op__free(op);
    unpark(ns, rc);
    kvc__reopened_one(k);
}

int ns__reopen(struct kvc_ns *ns)
{
    struct kvc *k = ns->kvc;
    if (ns->opening != NULL)
        return 0;
    struct kvc_op *op;
    int rc = op__new_own(k, KVC_OP_NS_OPEN, kvc__deadline(k, 0), &op);
    if (rc < 0)
        return rc;
    op->ns = ns;
    op->then = reopened;
    op->let_go = ns_let_go;
    ns->opening = op;
    rc = send_open(ns, op);
    if (rc < 0)
        op__free(op);
    return rc;
}

int ns__check(struct kvc_ns *ns)
{
    if (ns->epoch == ns->kvc->epoch && ns->error < 0)
        return kvc__fail(ns->kvc, ns->error, "the daemon refused to open this namespace: %s",
                         kvc_error_text(ns->error));
    return 0;
}

/* ---- requests that name it ---- */

bool ns__names(uint8_t code)
{
    return code == KVC_OP_LOOKUP || code == KVC_OP_ACQUIRE || code == KVC_OP_RESERVE ||
           code == KVC_OP_STORE || code == KVC_OP_NAME_PUT || code == KVC_OP_HINT ||
           code == KVC_OP_PIN || code == KVC_OP_PAGES_LOAD || code == KVC_OP_PAGES_STORE ||
           code == KVC_OP_ACQUIRE_ON;
}

/* Decodes the request, sets its field `at` to `id`, and encodes it again; rc is the result. */
#define RENUMBER(kind, at)                                                      \
    do {                                                                        \
        struct msg_##kind m;                                                    \
        rc = codec_dec_##kind(op->sent.data, op->sent.len, &head, &m);          \
        m.at = id;                                                              \
        if (rc == 0)                                                            \
            rc = codec_enc_##kind(op->kvc->tx, KVC_MESSAGE_MAX, &op->head, &m); \
    } while (0)

int ns__renumber(struct kvc_op *op)
{
    struct msg_head head;
    const uint32_t id = op->ns->id;
    int rc;
    switch (op->head.op) {
    case KVC_OP_LOOKUP:
        RENUMBER(lookup, seq.ns);
        break;
    case KVC_OP_ACQUIRE:
        RENUMBER(acquire, seq.ns);
        break;
    case KVC_OP_ACQUIRE_ON:
        RENUMBER(acquire_on, acquire.seq.ns);
        break;
    case KVC_OP_PAGES_LOAD:
        RENUMBER(pages_load, seq.ns);
        break;
    case KVC_OP_PAGES_STORE:
        RENUMBER(pages_store, reserve.ns);
        break;
    case KVC_OP_NAME_PUT:
        RENUMBER(name_put, seq.ns);
        break;
    case KVC_OP_PIN:
        RENUMBER(pin, seq.ns);
        break;
    case KVC_OP_HINT:
        RENUMBER(hint, seq.ns);
        break;
    case KVC_OP_RESERVE:
        RENUMBER(reserve, ns);
        break;
    default:
        RENUMBER(store, reserve.ns);
        break;
    }
    return rc;
}

/* ---- the public half ---- */

static struct kvc_ns *ns_create(struct kvc *k, const struct msg_ns_open *m, const uint8_t *canon,
                                size_t len)
{
    struct kvc_ns *ns = sys_calloc(1, sizeof(*ns) + len);
    if (ns == NULL)
        return NULL;
    ns->kvc = k;
    ns->with_tokens = (m->flags & KVC_F_TOKENS) != 0;
    ns->groups = m->ngroups;
    for (uint32_t i = 0; i < m->ngroups; i++)
        ns->group[i] = m->groups[i];
    ns->canon_len = len;
    memcpy(ns->canon, canon, len);
    return ns;
}

/* The session owns the new namespace from now on. */
static void ns_take(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    /* Another request for the same specification may have been answered before. */
    struct kvc_ns *ns = op->ns, *same = ns_find(k, ns->canon, ns->canon_len);
    op->owns_ns = false;
    if (same != NULL) {
        free(ns);
        op->ns = same;
        return;
    }
    ns->next = k->ns;
    k->ns = ns;
}

/* The reply to a caller's NS_OPEN has come. */
static void ns_arrived(struct kvc_op *op)
{
    int rc = take_reply(op);
    if (rc == 0)
        ns_take(op);
    op__complete(op, rc);
}

/* Begins to open a namespace that the session does not have. Without a daemon it is opened when one
 * comes. */
static int begin_new(struct kvc_op *op, const struct msg_ns_open *m, const uint8_t *canon,
                     size_t len, int down)
{
    op->ns = ns_create(op->kvc, m, canon, len);
    if (op->ns == NULL)
        return kvc__fail(op->kvc, -ENOMEM, "out of memory");
    op->owns_ns = true;
    if (down == 0)
        return send_open(op->ns, op);
    op__complete(op, down);
    return 0;
}

/* The same for a namespace of the session, which is open or has to be opened again. */
static int begin_known(struct kvc_op *op, struct kvc_ns *ns, bool up)
{
    op->ns = ns;
    if (!up || ns->epoch == op->kvc->epoch) {
        op__complete(op, up ? ns__check(ns) : 0);
        return 0;
    }
    op->stage = OP_PARKED;
    return ns__reopen(ns);
}

static int ns_begin(struct kvc *k, const struct kvc_ns_spec *spec, int down, bool listed,
                    struct kvc_op **ret_op)
{
    uint8_t canon[8192];
    struct msg_ns_open m;
    struct kvc_op *op;
    if (down == -EPERM)
        return down;
    int len = canonical(k, spec, canon, sizeof(canon), &m);
    if (len < 0)
        return len;
    struct kvc_ns *known = ns_find(k, canon, (size_t)len);
    if (known == NULL && down < 0 && k->must_connect)
        return down;
    int rc = op__new(k, KVC_OP_NS_OPEN, kvc__deadline(k, 0), &op);
    if (rc < 0)
        return rc;
    op->listed = listed;
    op->arrived = ns_arrived;
    op->let_go = ns_let_go;
    rc = known != NULL ? begin_known(op, known, down == 0)
                       : begin_new(op, &m, canon, (size_t)len, down);
    if (rc < 0) {
        op__free(op);
        return rc;
    }
    watch__update(k);
    *ret_op = op;
    return 0;
}

int kvc_ns_open_begin(struct kvc *kvc, const struct kvc_ns_spec *spec, struct kvc_op **ret_op)
{
    return ns_begin(kvc, spec, kvc__look(kvc), true, ret_op);
}

int ns__finish(struct kvc_op *op, struct kvc_ns **ret_ns)
{
    int rc = op__await(op);
    if (kvc__is_miss(rc) && op->owns_ns && !op->kvc->must_connect) {
        ns_take(op);
        rc = 0;
    }
    if (rc == 0)
        *ret_ns = op->ns;
    return rc;
}

int kvc_ns_open(struct kvc *kvc, const struct kvc_ns_spec *spec, struct kvc_ns **ret_ns)
{
    struct kvc_op *op;
    int rc = ns_begin(kvc, spec, kvc__enter(kvc, kvc__deadline(kvc, 0)), false, &op);
    if (rc < 0)
        return rc;
    rc = ns__finish(op, ret_ns);
    op__free(op);
    return rc;
}

const uint8_t *kvc_ns_seed(const struct kvc_ns *ns)
{
    return ns->has_seed ? ns->seed : NULL;
}

uint32_t kvc_ns_id(const struct kvc_ns *ns)
{
    return ns->id;
}
