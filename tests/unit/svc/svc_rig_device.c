/* SPDX-License-Identifier: Apache-2.0 */
/* What of the rig is about devices: memory of workers, pools, words, and messages about them. */
#include <check.h>
#include <stdlib.h>

#include "svc_rig__.h"

/* ---- ports ---- */

#define FD_FIRST 1000

int sr_fd(struct srig *s)
{
    ck_assert_uint_lt(s->next_fd, SR_FDS);
    return FD_FIRST + (int)s->next_fd++;
}

static int fd_taken(struct srig *s, int fd)
{
    s->open[fd - FD_FIRST] = true;
    return fd;
}

unsigned sr_fds(const struct srig *s)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < s->next_fd; i++)
        n += s->open[i];
    return n;
}

static void port_fd_close(void *ctx, int fd)
{
    struct srig *s = ctx;
    ck_assert(fd >= FD_FIRST && s->open[fd - FD_FIRST]);
    s->open[fd - FD_FIRST] = false;
}

static int port_words_make(void *ctx, uint64_t bytes, int *ret_fd, void **ret_base)
{
    struct srig *s = ctx;
    if (s->words_verdict)
        return s->words_verdict;
    *ret_fd = fd_taken(s, sr_fd(s));
    *ret_base = calloc(1, bytes);
    ck_assert_ptr_nonnull(*ret_base);
    s->words++;
    return 0;
}

static void port_words_free(void *ctx, void *base, uint64_t bytes)
{
    struct srig *s = ctx;
    ck_assert_uint_eq(bytes, KVC_WORDS_BYTES);
    free(base);
    s->words--;
}

void sr__device_ports(struct svc_ports *ports)
{
    ports->words_make = port_words_make;
    ports->words_free = port_words_free;
    ports->fd_close = port_fd_close;
}

/* ---- memory of workers ---- */

struct device_mem {
    struct device_mem *next;
    struct sr_device *on;
    struct device_handle handle;
    device_mem_fn *fn; /* NULL: it has run */
    void *ctx;
};

static struct sr_device *device_of(struct srig *s, const struct device *d)
{
    return &s->device[d->no];
}

static struct srig *rig_of_devices; /* ops have no context of their own */

static void device_op_view(struct device *d, struct device_view *ret_view)
{
    const struct sr_device *x = device_of(rig_of_devices, d);
    *ret_view = (struct device_view){
        .device = "emu:0",
        .name = "fake",
        .why = fake_device_is_up(x->fake) ? "" : "it was lost",
        .up = fake_device_is_up(x->fake),
        .emulated = true,
        .limit_bytes = 1u << 20,
        .imported_bytes = 4096ull * x->nmems,
        .outs = x->outs,
        .rate = {{.frag_bytes = 4096, .to_engine = 7, .to_path = KVC_COPY_ENGINE}}};
    memcpy(ret_view->uuid, x->uuid, sizeof(x->uuid));
}

static int device_op_mem_import(struct device *d, const struct device_handle *handle,
                                device_mem_fn *fn, void *ctx, struct device_mem **ret_mem)
{
    struct sr_device *x = device_of(rig_of_devices, d);
    if (x->verdict)
        return x->verdict;
    struct device_mem *m = calloc(1, sizeof(*m)), **at = &x->mems;
    ck_assert_ptr_nonnull(m);
    *m = (struct device_mem){.on = x, .handle = *handle, .fn = fn, .ctx = ctx};
    while (*at)
        at = &(*at)->next;
    *at = m;
    x->nmems++;
    x->imports++;
    *ret_mem = m;
    return 0;
}

static void mem_gone(struct device_mem *m)
{
    struct device_mem **at = &m->on->mems;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    m->on->nmems--;
    free(m);
}

static void device_op_mem_drop(struct device *d, struct device_mem *mem)
{
    struct sr_device *x = device_of(rig_of_devices, d);
    ck_assert(mem->on == x && !mem->fn);
    x->dropped++;
    mem_gone(mem);
}

void sr_imported(struct srig *s, uint32_t device, int err)
{
    struct sr_device *x = &s->device[device];
    struct device_mem *m = x->mems;
    while (m && !m->fn)
        m = m->next;
    ck_assert_ptr_nonnull(m);
    /* Its descriptor is there until now. */
    ck_assert(m->handle.fd < 0 || s->open[m->handle.fd - FD_FIRST]);
    device_mem_fn *fn = m->fn;
    void *ctx = m->ctx;
    x->imports--;
    m->fn = NULL;
    if (err)
        mem_gone(m);
    fn(ctx, err);
}

static int device_op_pool_open(struct device *d, const struct device_pool_spec *spec,
                               struct device_pool **ret_pool, const char **ret_why)
{
    struct sr_device *x = device_of(rig_of_devices, d);
    struct fake_pool_group group[KVC_GROUPS_MAX];
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        const struct device_pool_group *in = &spec->group[g];
        for (uint32_t i = 0; i < in->nregions; i++) {
            ck_assert(in->region[i].mem->on == x && !in->region[i].mem->fn);
            if (in->region[i].base + in->region[i].stride_bytes * spec->pages_max > 4096) {
                *ret_why = "a region ends beyond its memory";
                return -EINVAL;
            }
        }
        group[g] = (struct fake_pool_group){.pages_per_block = in->pages_per_block,
                                            .regions = in->nregions,
                                            .page_bytes = (uint32_t)in->region[0].page_bytes};
    }
    x->pools++;
    *ret_pool = fake_pool_create(x->fake, spec->pages_max, spec->ngroups, group);
    return 0;
}

static void device_op_pool_close(struct device *d, struct device_pool *pool)
{
    device_of(rig_of_devices, d)->pools--;
    fake_pool_destroy(&pool);
}

static int device_op_chunk_export(const struct device *d, uint32_t chunk, uint32_t principal,
                                  struct device_handle *ret_handle, int *ret_headers_fd,
                                  uint64_t *ret_headers_bytes)
{
    const uint32_t no = chunk & ((1u << DEVICE_CHUNK_SHIFT) - 1);
    if (!fake_device_is_up(device_of(rig_of_devices, d)->fake))
        return -EIO;
    if (no == 404)
        return -ENOENT;
    if (principal != 2)
        return -EACCES;
    *ret_handle = (struct device_handle){
        .kind = no == 7 ? DEVICE_HANDLE_IPC : DEVICE_HANDLE_EMU, .fd = 88, .bytes = 1u << 16};
    memset(ret_handle->ipc, 0x5a, sizeof(ret_handle->ipc));
    *ret_headers_fd = 99;
    *ret_headers_bytes = 8192;
    return 0;
}

static void device_op_chunk_lend(struct device *d, uint32_t chunk)
{
    (void)chunk;
    device_of(rig_of_devices, d)->lent++;
}

static void device_op_chunk_give_back(struct device *d, uint32_t chunk)
{
    struct sr_device *x = device_of(rig_of_devices, d);
    MUST(x->lent > 0);
    x->lent--;
    x->last_given_back = chunk;
}

void sr__devices_begin(struct srig *s)
{
    rig_of_devices = s;
    for (uint32_t i = 0; i < s->ndevices; i++) {
        struct sr_device *x = &s->device[i];
        const struct fake_device_config cfg = {.no = i,
                                               .regions = s->slots,
                                               .region_bytes = 8 * BLOCK_BYTES,
                                               .seed = 11 + i,
                                               .host = s->tier};
        x->rig = s;
        x->fake = fake_device_create(&cfg);
        memset(x->uuid, (int)(0xd0 + i), sizeof(x->uuid));
        s->devices[i] = fake_device_of(x->fake);
        x->ops = *s->devices[i]->ops;
        x->ops.view = device_op_view;
        x->ops.mem_import = device_op_mem_import;
        x->ops.mem_drop = device_op_mem_drop;
        x->ops.pool_open = device_op_pool_open;
        x->ops.pool_close = device_op_pool_close;
        x->ops.chunk_export = device_op_chunk_export;
        x->ops.chunk_lend = device_op_chunk_lend;
        x->ops.chunk_give_back = device_op_chunk_give_back;
        s->devices[i]->ops = &x->ops;
    }
    s->core_cfg.devices = s->cfg.devices = s->devices;
    s->core_cfg.ndevices = s->cfg.ndevices = s->ndevices;
    s->core_cfg.hbm_max = s->ndevices ? 256 : 0;
    s->core_cfg.hbm_policy = &policy_lru;
}

bool sr__devices_are_busy(const struct srig *s)
{
    for (uint32_t i = 0; i < s->ndevices; i++)
        if (fake_device_inflight(s->device[i].fake) > 0 || s->device[i].imports > 0)
            return true;
    return false;
}

/* After the core, and before the tier. */
void sr__devices_end(struct srig *s)
{
    for (uint32_t i = 0; i < s->ndevices; i++) {
        ck_assert_uint_eq(s->device[i].nmems, 0);
        ck_assert_uint_eq(s->device[i].pools, 0);
        fake_device_destroy(&s->device[i].fake);
    }
    ck_assert_uint_eq(sr_fds(s), 0);
    ck_assert_uint_eq(s->words, 0);
}

/* ---- devices ---- */

bool sr_attach_raw(struct srig *s, struct sr_peer *p, const void *buf, size_t len, int fd)
{
    int left = fd;
    svc_attach_message(s->svc, p->conn, buf, len, &left);
    ck_assert(left == fd || left == -1);
    if (fd >= 0 && left == -1) {
        (void)fd_taken(s, fd); /* imports end later */
        return true;
    }
    return false;
}

bool sr_attach_send(struct srig *s, struct sr_peer *p, int len, int fd)
{
    ck_assert_int_gt(len, 0);
    return sr_attach_raw(s, p, s->buf, (size_t)len, fd);
}

bool sr_mem(struct srig *s, struct sr_peer *p, uint32_t mem, uint32_t device, int fd)
{
    struct att_mem msg = {.mem = mem, .kind = KVC_HANDLE_EMU, .bytes = 4096};
    if (device < s->ndevices)
        memcpy(msg.uuid, s->device[device].uuid, sizeof(msg.uuid));
    return sr_attach_send(s, p, codec_enc_att_mem(s->buf, sizeof(s->buf), &msg), fd);
}

void sr_mem_drop(struct srig *s, struct sr_peer *p, uint32_t mem)
{
    struct att_mem_drop msg = {.mem = mem};
    (void)sr_attach_send(s, p, codec_enc_att_mem_drop(s->buf, sizeof(s->buf), &msg), -1);
}

uint16_t sr_mem_is(const struct sr_peer *p, uint32_t mem)
{
    struct att_mem_is msg;
    ck_assert_int_eq(codec_dec_att_mem_is(p->last, p->last_len, &msg), 0);
    ck_assert_uint_eq(msg.mem, mem);
    ck_assert((msg.status == KVC_ST_OK) == (msg.detail.n == 0));
    ck_assert_int_eq(p->last_fd, -1);
    return msg.status;
}

static struct session *session_of(struct srig *s, const struct sr_peer *p)
{
    struct session *se = session_by_route(s->svc, p->route, sizeof(p->route));
    ck_assert_ptr_nonnull(se);
    return se;
}

_Atomic uint64_t *sr_words(struct srig *s, struct sr_peer *p)
{
    struct att_words msg = {.words = KVC_WORDS};
    struct att_words_are reply;
    (void)sr_attach_send(s, p, codec_enc_att_words(s->buf, sizeof(s->buf), &msg), -1);
    ck_assert_int_eq(codec_dec_att_words_are(p->last, p->last_len, &reply), 0);
    ck_assert_uint_eq(reply.status, KVC_ST_OK);
    ck_assert_uint_eq(reply.bytes, KVC_WORDS_BYTES);
    ck_assert_int_ge(p->last_fd, FD_FIRST);
    return session_of(s, p)->things->words;
}

#define POOL_PAGES 64u
#define PAGE_BYTES 8u

uint64_t sr_pool_open(struct srig *s, struct sr_peer *p, uint32_t pool, uint32_t device)
{
    uint8_t regions[4 * KVC_REGION_BYTES];
    struct msg_pool_open msg = {.pool = pool, .pages_max = POOL_PAGES, .ngroups = 1};
    for (uint32_t i = 0; i < 4; i++) /* K and V of two layers */
        codec_put_region(regions + (size_t)i * KVC_REGION_BYTES,
                         &(struct msg_region){.mem = 0,
                                              .layer = i / 2,
                                              .base = (uint64_t)i * POOL_PAGES * PAGE_BYTES,
                                              .stride_bytes = PAGE_BYTES,
                                              .page_bytes = PAGE_BYTES});
    msg.groups[0] =
        (struct msg_pool_group){.pages_per_block = 2, .regions = {regions, sizeof(regions)}};
    if (device < s->ndevices)
        memcpy(msg.uuid, s->device[device].uuid, sizeof(msg.uuid));
    const struct msg_head *h = sr_head(s, KVC_OP_POOL_OPEN, 0);
    return sr_send(s, p, codec_enc_pool_open(s->buf, sizeof(s->buf), h, &msg));
}

void sr_pool(struct srig *s, struct sr_peer *p, uint32_t pool, uint32_t device)
{
    ck_assert(sr_mem(s, p, 0, device, sr_fd(s)));
    sr_imported(s, device, 0);
    ck_assert_uint_eq(sr_mem_is(p, 0), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(s, sr_pool_open(s, p, pool, device)), KVC_ST_OK);
}

uint64_t sr_pool_close(struct srig *s, struct sr_peer *p, uint32_t pool)
{
    struct msg_pool_close msg = {.pool = pool};
    const struct msg_head *h = sr_head(s, KVC_OP_POOL_CLOSE, 0);
    return sr_send(s, p, codec_enc_pool_close(s->buf, sizeof(s->buf), h, &msg));
}

struct device_pool *sr_pool_of(struct srig *s, struct sr_peer *p, uint32_t pool)
{
    struct device_pages *pages = device_pool(session_of(s, p), pool);
    ck_assert_ptr_nonnull(pages);
    return pages->pool;
}

static void block_bytes(uint32_t chain, uint32_t i, uint8_t ret[BLOCK_BYTES])
{
    uint8_t key[KVC_KEY_BYTES];
    sr_key(chain, i, key);
    fake_fill(ret, BLOCK_BYTES, key, 0);
}

void sr_pages_put(struct device_pool *pool, uint32_t chain, uint32_t i, uint32_t at)
{
    uint8_t block[BLOCK_BYTES];
    block_bytes(chain, i, block);
    fake_pool_put(pool, 0, (uint32_t[]){2 * at, 2 * at + 1}, block);
}

bool sr_pages_hold(const struct device_pool *pool, uint32_t chain, uint32_t i, uint32_t at)
{
    uint8_t want[BLOCK_BYTES], got[BLOCK_BYTES];
    block_bytes(chain, i, want);
    fake_pool_get(pool, 0, (uint32_t[]){2 * at, 2 * at + 1}, got);
    return memcmp(want, got, BLOCK_BYTES) == 0;
}

void sr_device_copies(struct srig *s)
{
    for (uint32_t i = 0; i < s->ndevices; i++)
        while (fake_device_inflight(s->device[i].fake) > 0)
            fake_device_end(
                s->device[i].fake, fake_device_copy(s->device[i].fake, 0),
                fake_device_may_begin(fake_device_copy(s->device[i].fake, 0)) ? 0 : -ETIMEDOUT);
    sr_turn(s, 0);
}

/* Two for each block, from 2 x at on. */
static struct codec_bin page_list(uint32_t blocks, uint32_t at)
{
    static uint32_t pages[2 * KVC_STORE_MAX];
    for (uint32_t i = 0; i < 2 * blocks; i++)
        pages[i] = 2 * at + i;
    return (struct codec_bin){(const uint8_t *)pages, 8 * blocks};
}

uint64_t sr_pages_store(struct srig *s, struct sr_peer *p, const struct sr_pages *g)
{
    struct msg_pages_store msg = {.reserve = sr__reserve(&g->b),
                                  .pool = g->pool,
                                  .after_word = g->after - 1,
                                  .after_value = g->after_value,
                                  .pages = page_list(g->b.n, g->at)};
    const struct msg_head *h = sr_head(s, KVC_OP_PAGES_STORE, g->b.deadline_ms);
    return sr_send(s, p, codec_enc_pages_store(s->buf, sizeof(s->buf), h, &msg));
}

uint64_t sr_pages_load(struct srig *s, struct sr_peer *p, const struct sr_pages *g)
{
    const uint32_t keys = g->b.first + g->b.n, skip = g->from_tokens / BLOCK_TOKENS;
    struct msg_pages_load msg = {.seq = sr__seq(&g->b),
                                 .flags = g->flags,
                                 .shard = g->shard,
                                 .from_tokens = g->from_tokens,
                                 .pool = g->pool,
                                 .after_word = g->after - 1,
                                 .after_value = g->after_value,
                                 .ready_word = g->ready - 1,
                                 .ready_value = g->ready_value,
                                 .ngroups = 1};
    msg.pages[0].pages = page_list(keys > skip ? keys - skip : 0, g->at);
    const struct msg_head *h = sr_head(s, KVC_OP_PAGES_LOAD, g->b.deadline_ms);
    return sr_send(s, p, codec_enc_pages_load(s->buf, sizeof(s->buf), h, &msg));
}

uint64_t sr_acquire_on(struct srig *s, struct sr_peer *p, const struct sr_blocks *b,
                       uint32_t device)
{
    struct msg_acquire_on msg = {.acquire = {.seq = sr__seq(b)}};
    if (device < s->ndevices)
        memcpy(msg.uuid, s->device[device].uuid, sizeof(msg.uuid));
    const struct msg_head *h = sr_head(s, KVC_OP_ACQUIRE_ON, b->deadline_ms);
    return sr_send(s, p, codec_enc_acquire_on(s->buf, sizeof(s->buf), h, &msg));
}

struct msg_pages_load_reply sr_loaded(const struct srig *s, uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_pages_load_reply reply;
    SR_READ(s, corr, pages_load, &head, &reply);
    return reply;
}
