/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sessions have on devices: completion words, memory and pools. Handlers of POOL_OPEN and
 * POOL_CLOSE, and of the attach channel's WORDS, MEM, MEM_DROP and MAP_ON.
 */
#include <stdlib.h>

#include "svc__.h"
#include "sys.h"

/* Most imports of a session at a time: each holds a descriptor. */
#define IMPORTS_SESSION 64u

_Static_assert(KVC_UUID_BYTES == DEVICE_UUID_BYTES && KVC_IPC_BYTES == DEVICE_IPC_BYTES &&
                   KVC_DEVICES_MAX == DEVICES_MAX && (int)KVC_HANDLE_FD == (int)DEVICE_HANDLE_FD &&
                   (int)KVC_HANDLE_IPC == (int)DEVICE_HANDLE_IPC &&
                   (int)KVC_HANDLE_EMU == (int)DEVICE_HANDLE_EMU,
               "the wire's numbers are passed on as they are");

struct devices {
    uint32_t importing;                           /* imports in progress, of all sessions */
    struct device_region region[KVC_REGIONS_MAX]; /* of the POOL_OPEN that is being handled */
};

uint64_t devices_bytes(void)
{
    return sizeof(struct devices);
}

int devices_create(struct svc *s)
{
    s->devices = sys_calloc(1, sizeof *s->devices);
    return s->devices ? 0 : -ENOMEM;
}

void devices_destroy(struct svc *s)
{
    free(s->devices);
    s->devices = NULL;
}

struct device *device_by_uuid(struct svc *s, const uint8_t uuid[KVC_UUID_BYTES])
{
    static const uint8_t never_up[KVC_UUID_BYTES];
    if (memcmp(uuid, never_up, KVC_UUID_BYTES) == 0)
        return NULL;
    for (uint32_t i = 0; i < s->cfg.ndevices; i++) {
        struct device *d = s->cfg.devices[i];
        struct device_view v;
        d->ops->view(d, &v);
        if (memcmp(v.uuid, uuid, KVC_UUID_BYTES) == 0)
            return d;
    }
    return NULL;
}

uint64_t svc_device_bytes(uint32_t sessions, uint64_t chunks)
{
    /* Lists of loans grow by doubling. */
    return sessions * (sizeof(struct device_things) + 2 * chunks * sizeof(struct device_loan));
}

static struct device_things *device_things_of(struct session *se)
{
    if (se->things)
        return se->things;
    struct device_things *t = sys_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    for (uint32_t i = 0; i < KVC_MEMS_MAX; i++)
        t->mem[i] = (struct device_import){.session = se, .fd = -1};
    se->things = t;
    return t;
}

/* ---- words ---- */

static int words_make(struct session *se, int *ret_fd, const char **ret_why)
{
    struct svc *s = se->svc;
    void *base;
    if (s->cfg.ndevices == 0 || !s->ports.words_make) {
        *ret_why = "the daemon has no devices (`devices` in its configuration)";
        return KVC_E_BAD_ARGUMENT;
    }
    if (se->things && se->things->words) {
        *ret_why = "the session has its words already";
        return KVC_E_BAD_ARGUMENT;
    }
    int err = device_things_of(se)
                  ? s->ports.words_make(s->ports.ctx, KVC_WORDS_BYTES, ret_fd, &base)
                  : -ENOMEM;
    if (err) {
        *ret_why = "the daemon could not make the words";
        return err;
    }
    se->things->words = base;
    return 0;
}

void device_words(struct session *se)
{
    struct svc *s = se->svc;
    uint8_t buf[KVC_ATTACH_MAX];
    const char *why = "";
    int fd = -1, err = words_make(se, &fd, &why);
    struct att_words_are reply = {.status = err ? status_of(err) : KVC_ST_OK,
                                  .detail = codec_text(why),
                                  .bytes = err ? 0 : KVC_WORDS_BYTES};
    session_say(se, buf, codec_enc_att_words_are(buf, sizeof buf, &reply), fd);
    if (fd >= 0)
        s->ports.fd_close(s->ports.ctx, fd);
}

bool device_word(struct session *se, uint32_t no, _Atomic uint64_t **ret_word)
{
    if (no == KVC_NO_WORD) {
        *ret_word = NULL;
        return true;
    }
    if (no >= KVC_WORDS || !se->things || !se->things->words)
        return false;
    *ret_word = &se->things->words[no];
    return true;
}

const _Atomic uint64_t *device_revoked(const struct session *se)
{
    return se->things && se->things->words ? &se->things->words[KVC_WORD_REVOKED] : NULL;
}

/* ---- memory ---- */

static void say_mem_is(struct session *se, uint32_t mem, uint16_t status, const char *why)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_mem_is msg = {.status = status, .detail = codec_text(why), .mem = mem};
    session_say(se, buf, codec_enc_att_mem_is(buf, sizeof buf, &msg), -1);
}

static uint16_t import_status(int err, const char **ret_why)
{
    switch (err) {
    case -EINVAL:
        *ret_why = "it is not memory of this device, or shorter than it says";
        return KVC_ST_BAD_ARGUMENT;
    case -EOPNOTSUPP:
        *ret_why = "the device cannot import memory of this kind";
        return KVC_ST_UNKNOWN_OP;
    case -EIO:
        *ret_why = "the device is out (kvcachectl gpu says why)";
        return KVC_ST_TIER;
    case -ENOMEM:
        *ret_why = "the device, or the daemon, has no memory left to import it; with less of other "
                   "workers' memory and a smaller limit in hbm.devices there is more";
        return KVC_ST_FULL;
    case -EMFILE:
    case -ENFILE:
        *ret_why = "the daemon has no descriptor left for it (LimitNOFILE)";
        return KVC_ST_BUSY;
    default:
        *ret_why = codec_status_text(status_of(err));
        return status_of(err);
    }
}

static void mem_free(struct device_import *m)
{
    struct session *se = m->session;
    *m = (struct device_import){.session = se, .fd = -1};
    se->svc->m.mems--;
}

static void on_imported(void *ctx, int err)
{
    struct device_import *m = ctx;
    struct session *se = m->session;
    struct svc *s = se->svc;
    const uint32_t no = (uint32_t)(m - se->things->mem);
    const char *why = "";
    uint16_t status = KVC_ST_OK;
    MUST(m->importing);
    m->importing = false;
    se->things->importing--;
    s->devices->importing--;
    if (m->fd >= 0)
        s->ports.fd_close(s->ports.ctx, m->fd);
    m->fd = -1;
    if (err) {
        status = import_status(err, &why);
    } else if (m->dropped) {
        status = KVC_ST_CANCELLED;
        why = "it was dropped before it was there";
        m->device->ops->mem_drop(m->device, m->mem);
    }
    if (err || m->dropped)
        mem_free(m);
    if (se->state == SESSION_READY)
        say_mem_is(se, no, status, why);
    session_over(se);
}

/* Checks MEM before its descriptor is looked into. Returns OK and the device, or a status with
 * *ret_why. */
static uint16_t mem_fault(struct session *se, const struct att_mem *msg, int fd,
                          struct device **ret_device, const char **ret_why)
{
    struct svc *s = se->svc;
    *ret_device = device_by_uuid(s, msg->uuid);
    if (!*ret_device) {
        *ret_why = NO_DEVICE;
        return KVC_ST_TIER;
    }
    if (!device_things_of(se)) {
        *ret_why = "the daemon is out of memory";
        return KVC_ST_BUSY;
    }
    if (se->things->mem[msg->mem].device) {
        *ret_why = "mem: this number is in use";
        return KVC_ST_BAD_ARGUMENT;
    }
    if (msg->kind != KVC_HANDLE_IPC && fd < 0) {
        *ret_why = "its descriptor is missing, or came with others";
        return KVC_ST_BAD_ARGUMENT;
    }
    if (se->things->importing >= IMPORTS_SESSION || s->devices->importing >= SVC_IMPORTS_MAX) {
        *ret_why = "too many imports are under way; go on when one has been answered";
        return KVC_ST_BUSY;
    }
    return KVC_ST_OK;
}

void device_mem(struct session *se, const struct att_mem *msg, int *fd)
{
    struct svc *s = se->svc;
    struct device *d;
    const char *why = "";
    uint16_t status = mem_fault(se, msg, *fd, &d, &why);
    if (status != KVC_ST_OK) {
        say_mem_is(se, msg->mem, status, why);
        return;
    }
    const bool ipc = msg->kind == KVC_HANDLE_IPC;
    struct device_handle handle = {
        .kind = msg->kind, .fd = ipc ? -1 : *fd, .bytes = msg->bytes, .offset = msg->offset};
    if (ipc)
        memcpy(handle.ipc, msg->ipc.p, sizeof handle.ipc);
    struct device_import *m = &se->things->mem[msg->mem];
    int err = d->ops->mem_import(d, &handle, on_imported, m, &m->mem);
    if (err) {
        m->mem = NULL;
        status = import_status(err, &why);
        say_mem_is(se, msg->mem, status, why);
        return;
    }
    m->device = d;
    m->importing = true;
    se->things->importing++;
    s->devices->importing++;
    s->m.mems++;
    if (!ipc) {
        m->fd = *fd;
        *fd = -1;
    }
}

static void mem_drop(struct device_import *m)
{
    if (!m->device)
        return;
    if (m->importing) { /* the import uses the descriptor: dropped when it ends */
        m->dropped = true;
        return;
    }
    m->device->ops->mem_drop(m->device, m->mem);
    mem_free(m);
}

void device_mem_drop(struct session *se, uint32_t mem)
{
    if (se->things)
        mem_drop(&se->things->mem[mem]);
}

bool device_is_importing(const struct session *se)
{
    return se->things && se->things->importing > 0;
}

/* ---- the daemon's memory ---- */

static int chunk_export(const struct session *se, uint32_t chunk, struct device **ret_device,
                        struct device_handle *ret_handle, int *ret_fd, uint64_t *ret_bytes)
{
    struct svc *s = se->svc;
    const uint32_t no = device_of_chunk(chunk);
    if (no == 0 || no > s->cfg.ndevices)
        return -ENOENT;
    *ret_device = s->cfg.devices[no - 1];
    return (*ret_device)
        ->ops->chunk_export(*ret_device, chunk, session_principal(se), ret_handle, ret_fd,
                            ret_bytes);
}

int device_headers_fd(const struct session *se, uint32_t chunk, uint64_t *ret_bytes)
{
    struct device_handle handle;
    struct device *d;
    int fd;
    int err = chunk_export(se, chunk, &d, &handle, &fd, ret_bytes);
    return err ? err : fd;
}

static uint16_t export_status(int err, const char **ret_why)
{
    switch (err) {
    case -EACCES:
        *ret_why = "the chunk belongs to another principal";
        return KVC_ST_DENIED;
    case -EIO:
        *ret_why = "the device is out (kvcachectl gpu says why)";
        return KVC_ST_TIER;
    case -ENOMEM:
        *ret_why = "the daemon is out of memory";
        return KVC_ST_BUSY;
    default:
        *ret_why = "there is no such chunk any more";
        return KVC_ST_GONE;
    }
}

void device_map_on(struct session *se, uint32_t chunk)
{
    struct device_handle handle = {.fd = -1};
    struct device *d;
    uint64_t bytes;
    uint8_t buf[KVC_ATTACH_MAX];
    const char *why = "";
    int headers;
    int err = chunk_export(se, chunk, &d, &handle, &headers, &bytes);
    if (!err)
        err = device_things_of(se) ? lend_chunk(se, d, chunk) : -ENOMEM;
    struct att_chunk_on reply = {.status = KVC_ST_OK, .chunk = chunk};
    if (err) {
        reply.status = export_status(err, &why);
        reply.detail = codec_text(why);
        handle.fd = -1;
    } else {
        struct device_view v;
        d->ops->view(d, &v);
        memcpy(reply.uuid, v.uuid, sizeof reply.uuid);
        reply.kind = handle.kind;
        reply.bytes = handle.bytes;
        reply.offset = handle.offset;
        if (handle.kind == DEVICE_HANDLE_IPC)
            reply.ipc = (struct codec_bin){handle.ipc, sizeof handle.ipc};
    }
    session_say(se, buf, codec_enc_att_chunk_on(buf, sizeof buf, &reply),
                handle.kind == DEVICE_HANDLE_IPC ? -1 : handle.fd);
}

/* ---- pools ---- */

struct device_pages *device_pool(struct session *se, uint32_t pool)
{
    struct device_pages *p = se->things && pool < KVC_POOLS_MAX ? &se->things->pool[pool] : NULL;
    return p && p->device ? p : NULL;
}

int device_pool_lost(const struct device_pages *pages, const char **ret_why)
{
    struct device_view v;
    pages->device->ops->view(pages->device, &v);
    if (v.up && v.outs == pages->outs)
        return 0;
    *ret_why = "pool: the device is out, or was since the pool was opened; give the memory (MEM) "
               "and open the pool again";
    return KVC_E_TIER;
}

const char *device_pool_fault(const struct device_pages *pages, const struct core_ns *ns)
{
    struct core_ns_view v;
    core_ns_view(ns, &v);
    if (pages->ngroups != v.spec->ngroups)
        return "pool: it has not as many groups as the namespace";
    for (uint32_t g = 0; g < pages->ngroups; g++)
        if (pages->device->ops->pool_block_bytes(pages->pool, g) != v.spec->group[g].block_bytes)
            return "pool: pages of a block are not block_bytes in sum";
    return NULL;
}

/* Decodes the regions of the message into devices->region. Returns NULL, or the error's text. */
static const char *regions_of(struct session *se, const struct device *d,
                              const struct msg_pool_open *msg, struct device_pool_spec *ret_spec)
{
    struct device_region *region = se->svc->devices->region;
    uint32_t n = 0;
    *ret_spec = (struct device_pool_spec){.pages_max = msg->pages_max, .ngroups = msg->ngroups};
    for (uint32_t g = 0; g < msg->ngroups; g++) {
        const struct codec_bin blob = msg->groups[g].regions;
        struct device_pool_group *to = &ret_spec->group[g];
        to->pages_per_block = msg->groups[g].pages_per_block;
        to->nregions = blob.n / KVC_REGION_BYTES;
        to->region = &region[n];
        if (to->nregions > DEVICE_REGIONS_MAX)
            return "regions: a group has at most 1024";
        for (uint32_t at = 0; at < blob.n; at += KVC_REGION_BYTES) {
            struct msg_region in;
            codec_get_region(blob.p + at, &in);
            const struct device_import *m = se->things ? &se->things->mem[in.mem] : NULL;
            if (!m || m->device != d || m->importing)
                return "regions: one is in memory that the session has not on this device (MEM)";
            region[n++] = (struct device_region){.mem = m->mem,
                                                 .base = in.base,
                                                 .stride_bytes = in.stride_bytes,
                                                 .page_bytes = in.page_bytes,
                                                 .layer = in.layer};
        }
    }
    return NULL;
}

static int pool_open(struct session *se, const struct msg_pool_open *msg, const char **ret_why)
{
    struct svc *s = se->svc;
    struct device_pool_spec spec;
    struct device *d = device_by_uuid(s, msg->uuid);
    if (!d) {
        *ret_why = NO_DEVICE;
        return KVC_E_TIER;
    }
    if (device_pool(se, msg->pool)) {
        *ret_why = "pool: this number is open";
        return KVC_E_BAD_ARGUMENT;
    }
    *ret_why = regions_of(se, d, msg, &spec);
    if (*ret_why)
        return KVC_E_BAD_ARGUMENT;
    struct device_pages *p = &se->things->pool[msg->pool];
    int err = d->ops->pool_open(d, &spec, &p->pool, ret_why);
    if (err == -ENOMEM)
        *ret_why = "the daemon is out of memory";
    if (err)
        return err;
    struct device_view v;
    d->ops->view(d, &v);
    p->device = d;
    p->outs = v.outs;
    p->ngroups = msg->ngroups;
    for (uint32_t g = 0; g < msg->ngroups; g++)
        p->pages_per_block[g] = msg->groups[g].pages_per_block;
    s->m.pools++;
    return 0;
}

void op_pool_open(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_pool_open msg;
    const char *why = NULL;
    int err = codec_dec_pool_open(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    else
        err = pool_open(rq->se, &msg, &why);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_bare_reply(s->out, sizeof s->out, &rq->head));
}

static void pool_close(struct svc *s, struct device_pages *p)
{
    MUST(p->calls == 0);
    p->device->ops->pool_close(p->device, p->pool);
    *p = (struct device_pages){0};
    s->m.pools--;
}

void op_pool_close(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_pool_close msg;
    const char *why = NULL;
    int err = codec_dec_pool_close(rq->buf, rq->len, &rq->head, &msg);
    struct device_pages *p = err ? NULL : device_pool(rq->se, msg.pool);
    if (err) {
        why = rq->head.detail;
    } else if (!p) {
        err = KVC_E_BAD_ARGUMENT;
        why = NO_POOL;
    } else if (p->calls > 0) {
        err = KVC_E_BUSY;
        why = "a request is in flight that names the pool; CANCEL it first";
    }
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    pool_close(s, p);
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_bare_reply(s->out, sizeof s->out, &rq->head));
}

void device_end(struct session *se)
{
    struct svc *s = se->svc;
    struct device_things *t = se->things;
    if (!t)
        return;
    for (uint32_t i = 0; i < KVC_POOLS_MAX; i++)
        if (t->pool[i].device)
            pool_close(s, &t->pool[i]);
    for (uint32_t i = 0; i < KVC_MEMS_MAX; i++)
        mem_drop(&t->mem[i]);
    lend_end(se);
    MUST(t->importing == 0);
    if (t->words)
        s->ports.words_free(s->ports.ctx, t->words, KVC_WORDS_BYTES);
    free(t);
    se->things = NULL;
}
