/* SPDX-License-Identifier: Apache-2.0 */
/* The fake daemon's devices: it maps the worker's memory, and writes and reads pages itself. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "emu_mem.h"
#include "fake__.h"
#include "fake_cuda_handles.h"

uint8_t fake_hbm_byte(uint32_t chunk, uint32_t slot)
{
    return fake_byte(chunk, slot) ^ 0x80;
}

uint8_t fake_page_byte(uint32_t block, uint32_t region, uint32_t j)
{
    return (uint8_t)(block * 37 + region * 11 + j * 3 + 1);
}

static const uint8_t device_0[KVC_UUID_BYTES] = "kvc-emu";

/* ---- memory that is passed on ---- */

static int make_memfd(uint64_t bytes, int seals)
{
    int fd = memfd_create("fake-device", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    NEED(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    NEED(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static int make_file(uint64_t bytes)
{
    char path[] = "/tmp/kvc-fake-file-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    NEED(fd >= 0 && unlink(path) == 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

void gpu_create(struct fake *f)
{
    for (uint32_t c = 0; c < FAKE_CHUNKS; c++) {
        NEED(emu_mem_make(FAKE_CHUNK_BYTES, EMU_FOR_READING, &f->hbm[c]) == 0);
        for (uint32_t i = 0; i < FAKE_SLOTS; i++)
            memset((uint8_t *)(uintptr_t)f->hbm[c].at + i * FAKE_SLOT_BYTES + FAKE_PAYLOAD_AT,
                   fake_hbm_byte(c, i), FAKE_BLOCK_BYTES);
    }
}

void gpu_destroy(struct fake *f)
{
    for (uint32_t c = 0; c < FAKE_CHUNKS; c++)
        emu_mem_free(&f->hbm[c]);
}

/* ---- attach channel ---- */

static void give_words(struct daemon *d, int conn)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_words_are m = {.bytes = KVC_WORDS_BYTES};
    int mode = atomic_load(&d->s->words);
    atomic_fetch_add(&d->s->words_asked, 1);
    if (mode == FAKE_WORDS_MUTE)
        return;
    if (mode == FAKE_WORDS_REFUSE || mode == FAKE_WORDS_BUSY) {
        m.status = mode == FAKE_WORDS_BUSY ? KVC_ST_BUSY : KVC_ST_BAD_ARGUMENT;
        m.detail = text("there are no devices");
        m.bytes = 0;
        atomic_store(&d->s->words, mode == FAKE_WORDS_BUSY ? FAKE_WORDS_GIVE : mode);
    }
    int fd = -1;
    if (mode == FAKE_WORDS_FILE)
        fd = make_file(KVC_WORDS_BYTES);
    else if (m.status == 0 && mode != FAKE_WORDS_NO_DESCRIPTOR)
        fd = make_memfd(mode == FAKE_WORDS_SHORT ? 8 : KVC_WORDS_BYTES,
                        mode == FAKE_WORDS_UNSEALED ? 0 : F_SEAL_SHRINK);
    if (fd >= 0 && mode == FAKE_WORDS_GIVE) {
        d->words = mmap(NULL, KVC_WORDS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        NEED(d->words != MAP_FAILED);
    }
    att_send(conn, buf, codec_enc_att_words_are(buf, sizeof(buf), &m), fd);
    if (fd >= 0)
        close(fd);
}

static void forget_memory(struct daemon *d, uint32_t no)
{
    struct fake_memory *m = &d->memory[no];
    if (m->at == NULL)
        return;
    munmap(m->base, m->base_bytes);
    *m = (struct fake_memory){.at = NULL};
    atomic_fetch_sub(&d->s->mems_known, 1);
}

static struct fake_memory map_memory(const struct att_mem *m, int passed)
{
    char path[64];
    int fd = passed;
    if (m->kind == KVC_HANDLE_IPC) {
        struct fake_cuda_ipc ipc;
        memcpy(&ipc, m->ipc.p, sizeof(ipc));
        NEED(ipc.magic == FAKE_CUDA_MAGIC && passed < 0);
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", ipc.pid, ipc.fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    struct fake_memory r = {.bytes = m->bytes, .base_bytes = m->offset + m->bytes};
    r.base = mmap(NULL, r.base_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    NEED(fd >= 0 && r.base != MAP_FAILED);
    r.at = r.base + m->offset;
    if (fd != passed)
        close(fd);
    return r;
}

static void take_memory(struct daemon *d, int conn, const struct att_mem *m, int passed)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_mem_is r = {.mem = m->mem};
    int mode = atomic_load(&d->s->mem);
    atomic_fetch_add(&d->s->mems_seen, 1);
    atomic_store(&d->s->mem_bytes, m->bytes);
    atomic_store(&d->s->mem_offset, m->offset);
    atomic_store(&d->s->mem_kind, m->kind);
    memcpy(d->s->device, m->uuid, sizeof(d->s->device));
    if (mode == FAKE_MEM_MUTE)
        return;
    if (mode == FAKE_MEM_BUSY && atomic_load(&d->s->mem_busy) > 0) {
        atomic_fetch_sub(&d->s->mem_busy, 1);
        r.status = KVC_ST_BUSY;
    } else if (mode == FAKE_MEM_REFUSE || d->memory[m->mem].at != NULL) {
        r.status = mode == FAKE_MEM_REFUSE ? KVC_ST_UNKNOWN_OP : KVC_ST_BAD_ARGUMENT;
        r.detail = text("not as the test likes it");
    } else {
        d->memory[m->mem] = map_memory(m, passed);
        atomic_fetch_add(&d->s->mems_known, 1);
    }
    att_send(conn, buf, codec_enc_att_mem_is(buf, sizeof(buf), &r), -1);
}

#define CUDA_BYTES (2u << 20)

/* The chunk's memory as the fake CUDA driver would have made it. */
static int make_cuda(struct daemon *d, uint32_t chunk, int32_t device)
{
    const struct fake_cuda_tail tail = {
        .magic = FAKE_CUDA_MAGIC, .bytes = CUDA_BYTES, .device = device};
    int fd = make_memfd(CUDA_BYTES + 4096, 0);
    const void *bytes = (const void *)(uintptr_t)d->f->hbm[chunk % FAKE_CHUNKS].at;
    NEED(pwrite(fd, bytes, FAKE_CHUNK_BYTES, 0) == FAKE_CHUNK_BYTES);
    NEED(pwrite(fd, &tail, sizeof(tail), CUDA_BYTES) == sizeof(tail));
    return fd;
}

/* The descriptor for MAP_ON; -1: none. */
static int hbm_fd(struct daemon *d, int mode, uint32_t chunk)
{
    switch (mode) {
    case FAKE_HBM_NO_DESCRIPTOR:
        return -1;
    case FAKE_HBM_FILE:
        return make_file(FAKE_CHUNK_BYTES);
    case FAKE_HBM_UNSEALED:
        return make_memfd(FAKE_CHUNK_BYTES, 0);
    case FAKE_HBM_SMALL:
        return make_memfd(4096, F_SEAL_SHRINK);
    case FAKE_HBM_CUDA:
    case FAKE_HBM_CUDA_SHORT:
    case FAKE_HBM_CUDA_OTHER:
        return make_cuda(d, chunk, mode == FAKE_HBM_CUDA_OTHER);
    default:
        return dup(d->f->hbm[chunk % FAKE_CHUNKS].fd);
    }
}

static void give_hbm(struct daemon *d, int conn, uint32_t chunk)
{
    uint8_t buf[KVC_ATTACH_MAX];
    int mode = atomic_load(&d->s->hbm);
    struct att_chunk_on m = {.chunk = chunk, .kind = KVC_HANDLE_EMU, .bytes = FAKE_CHUNK_BYTES};
    atomic_fetch_add(&d->s->maps_on_asked, 1);
    if (mode == FAKE_HBM_MUTE)
        return;
    memcpy(m.uuid, device_0, sizeof(m.uuid));
    m.uuid[15] = mode == FAKE_HBM_OTHER;
    if (mode == FAKE_HBM_GONE || mode == FAKE_HBM_OUT) {
        m.status = mode == FAKE_HBM_GONE ? KVC_ST_GONE : KVC_ST_TIER;
        m.detail = text("as the test says");
        m.kind = 0;
        m.bytes = 0;
        att_send(conn, buf, codec_enc_att_chunk_on(buf, sizeof(buf), &m), -1);
        return;
    }
    m.bytes = mode == FAKE_HBM_SHORT   ? 2 * FAKE_CHUNK_BYTES
              : mode == FAKE_HBM_SMALL ? 4096
                                       : m.bytes;
    m.kind = mode == FAKE_HBM_KIND ? KVC_HANDLE_FD : m.kind;
    if (mode >= FAKE_HBM_CUDA) {
        memcpy(m.uuid, d->hbm_uuid, sizeof(m.uuid));
        m.kind = KVC_HANDLE_FD;
        m.bytes = mode == FAKE_HBM_CUDA_SHORT ? 2 * CUDA_BYTES : FAKE_CHUNK_BYTES;
    }
    int fd = hbm_fd(d, mode, chunk);
    att_send(conn, buf, codec_enc_att_chunk_on(buf, sizeof(buf), &m), fd);
    if (fd >= 0)
        close(fd);
}

bool gpu_attach(struct daemon *d, int conn, const uint8_t *buf, size_t len, int passed)
{
    struct att_words words;
    struct att_mem mem;
    struct att_mem_drop drop;
    struct att_map_on on;
    struct att_unmapped unmapped;
    if (codec_dec_att_words(buf, len, &words) == 0) {
        give_words(d, conn);
    } else if (codec_dec_att_mem(buf, len, &mem) == 0) {
        take_memory(d, conn, &mem, passed);
    } else if (codec_dec_att_mem_drop(buf, len, &drop) == 0) {
        atomic_fetch_add(&d->s->mems_dropped, 1);
        forget_memory(d, drop.mem);
    } else if (codec_dec_att_map_on(buf, len, &on) == 0) {
        give_hbm(d, conn, on.chunk);
    } else if (codec_dec_att_unmapped(buf, len, &unmapped) == 0) {
        atomic_fetch_add(&d->s->unmapped, 1);
    } else {
        return false;
    }
    return true;
}

void gpu_session_ended(struct daemon *d)
{
    for (uint32_t i = 0; i < KVC_MEMS_MAX; i++)
        forget_memory(d, i);
    for (uint32_t i = 0; i < KVC_POOLS_MAX; i++)
        d->pool[i].is_open = false;
    atomic_store(&d->s->pools_open, 0);
    if (d->words != NULL)
        munmap(d->words, KVC_WORDS_BYTES);
    d->words = NULL;
    d->late.armed = false;
}

/* ---- pages ---- */

static uint8_t *page_at(struct daemon *d, uint32_t pool, uint32_t group, uint32_t region,
                        uint32_t page)
{
    const struct msg_region *r = &d->pool[pool].group[group].region[region];
    const struct fake_memory *m = &d->memory[r->mem];
    NEED(m->at != NULL && page < d->pool[pool].pages_max);
    NEED(r->base + page * r->stride_bytes + r->page_bytes <= m->bytes);
    return m->at + r->base + page * r->stride_bytes;
}

/* A little-endian u32 of a blob. */
static uint32_t number_at(const struct codec_bin *b, uint32_t i)
{
    uint32_t n;
    NEED(4 * (i + 1) <= b->n);
    memcpy(&n, b->p + 4 * (size_t)i, 4);
    return n;
}

static bool await_word(struct daemon *d, uint32_t word, uint64_t value)
{
    if (word == KVC_NO_WORD)
        return true;
    NEED(d->words != NULL && word < KVC_WORDS);
    uint64_t until = fake_now_ms() + 5000;
    while (__atomic_load_n(&d->words[word], __ATOMIC_ACQUIRE) < value && fake_now_ms() < until)
        usleep(200);
    return __atomic_load_n(&d->words[word], __ATOMIC_ACQUIRE) >= value;
}

static void write_block(struct daemon *d, const struct msg_pages_load *m, uint32_t block,
                        uint32_t at)
{
    const struct fake_pool *p = &d->pool[m->pool];
    uint32_t ppb = p->group[0].pages_per_block;
    for (uint32_t r = 0; r < p->group[0].regions; r++) {
        for (uint32_t j = 0; j < ppb; j++)
            memset(page_at(d, m->pool, 0, r, number_at(&m->pages[0].pages, at * ppb + j)),
                   fake_page_byte(block, r, j), p->group[0].region[r].page_bytes);
    }
}

static uint32_t count_layers(const struct fake_pool *p)
{
    uint32_t layers = 0;
    for (uint32_t g = 0; g < p->groups; g++) {
        for (uint32_t r = 0; r < p->group[g].regions; r++)
            layers += r == 0 || p->group[g].region[r].layer != p->group[g].region[r - 1].layer;
    }
    return layers;
}

static void arm_late(struct daemon *d, const struct msg_pages_load *m)
{
    int mode = atomic_load(&d->s->late);
    d->late = (struct late){.armed = true, .pool = m->pool, .n = m->pages[0].pages.n / 4};
    d->late.at_ms = mode == FAKE_LATE_TIMER ? fake_now_ms() + 300 : 0;
    NEED(d->late.n <= FAKE_PAGES);
    memcpy(d->late.pages, m->pages[0].pages.p, m->pages[0].pages.n);
}

void gpu_late(struct daemon *d, bool is_cancelled)
{
    struct late *l = &d->late;
    if (!l->armed || (l->at_ms == 0 ? !is_cancelled : fake_now_ms() < l->at_ms))
        return;
    l->armed = false;
    for (uint32_t i = 0; i < l->n; i++) {
        for (uint32_t r = 0; r < d->pool[l->pool].group[0].regions; r++)
            memset(page_at(d, l->pool, 0, r, l->pages[i]), FAKE_LATE_BYTE,
                   d->pool[l->pool].group[0].region[r].page_bytes);
    }
    atomic_fetch_add(&d->s->late_written, 1);
}

/* ---- requests ---- */

static int answer_pool_open(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out,
                            size_t cap)
{
    struct msg_head h;
    struct msg_pool_open m;
    if (codec_dec_pool_open(in, len, &h, &m) < 0)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, h.detail);
    struct fake_pool *p = &d->pool[m.pool];
    bool was_open = p->is_open;
    NEED(m.ngroups <= 2); /* a rule may have had the last one refused */
    *p = (struct fake_pool){.is_open = true, .groups = m.ngroups, .pages_max = m.pages_max};
    for (uint32_t g = 0; g < m.ngroups; g++) {
        p->group[g].pages_per_block = m.groups[g].pages_per_block;
        p->group[g].regions = m.groups[g].regions.n / KVC_REGION_BYTES;
        NEED(p->group[g].regions <= FAKE_POOL_REGIONS);
        for (uint32_t i = 0; i < p->group[g].regions; i++) {
            codec_get_region(m.groups[g].regions.p + (size_t)i * KVC_REGION_BYTES,
                             &p->group[g].region[i]);
            NEED(d->memory[p->group[g].region[i].mem].at != NULL);
        }
    }
    atomic_fetch_add(&d->s->pools_open, !was_open);
    return codec_enc_bare_reply(out, cap, &h);
}

static int answer_pool_close(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out,
                             size_t cap)
{
    struct msg_head h;
    struct msg_pool_close m;
    NEED(codec_dec_pool_close(in, len, &h, &m) == 0);
    if (!d->pool[m.pool].is_open)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, "no such pool");
    d->pool[m.pool].is_open = false;
    atomic_fetch_sub(&d->s->pools_open, 1);
    return codec_enc_bare_reply(out, cap, &h);
}

static void note_load(struct daemon *d, const struct msg_pages_load *m)
{
    atomic_store(&d->s->last_ns, m->seq.ns);
    atomic_store(&d->s->load_flags, m->flags);
    atomic_store(&d->s->load_from, m->from_tokens);
    atomic_store(&d->s->load_wait, m->wait_tokens);
    atomic_store(&d->s->load_pages, m->pages[0].pages.n / 4);
}

static int answer_load(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_pages_load m;
    uint8_t st[64];
    if (codec_dec_pages_load(in, len, &h, &m) < 0)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, h.detail);
    note_load(d, &m);
    if (!d->pool[m.pool].is_open)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, "no such pool");
    uint32_t hit = atomic_load(&d->s->hit_blocks), bad = atomic_load(&d->s->load_bad);
    uint32_t first = m.from_tokens / 16, begin = atomic_load(&d->s->load_first);
    bool in_time = await_word(d, m.after_word, m.after_value);
    begin = begin > first ? begin : first;
    struct msg_pages_load_reply r = {.hit_tokens = atomic_load(&d->s->load_hit_tokens),
                                     .cached_tokens = 16 * hit + 8,
                                     .ngroups = m.seq.ngroups};
    r.hit_tokens = r.hit_tokens != 0 ? r.hit_tokens : 16 * hit;
    NEED(hit <= sizeof(st));
    if (atomic_load(&d->s->late) != FAKE_LATE_NEVER)
        arm_late(d, &m);
    for (uint32_t b = begin; b < hit; b++) {
        bool is_bad = bad == b + 1 || atomic_load(&d->s->load_out);
        st[b - begin] = is_bad ? KVC_ST_TIER : in_time ? KVC_ST_OK : KVC_ST_TIMEOUT;
        if (st[b - begin] == KVC_ST_OK && !d->late.armed)
            write_block(d, &m, b, b - first);
    }
    r.groups[0] =
        (struct msg_group_loaded){.first = begin,
                                  .statuses = {.p = st, .n = hit > begin ? hit - begin : 0},
                                  .reason = KVC_MISS_NEVER};
    if (m.ready_word != KVC_NO_WORD && in_time && hit > 0)
        __atomic_store_n(&d->words[m.ready_word], m.ready_value + count_layers(&d->pool[m.pool]),
                         __ATOMIC_RELEASE);
    return codec_enc_pages_load_reply(out, cap, &h, &r);
}

static void read_block(struct daemon *d, const struct msg_pages_store *m, uint32_t i)
{
    const struct fake_pool *p = &d->pool[m->pool];
    uint32_t g = m->reserve.group, ppb = p->group[g].pages_per_block, at = 0;
    for (uint32_t r = 0; r < p->group[g].regions; r++) {
        uint32_t bytes = (uint32_t)p->group[g].region[r].page_bytes;
        for (uint32_t j = 0; j < ppb; j++) {
            NEED(at + bytes <= FAKE_BLOCK_BYTES);
            memcpy(d->s->stored[i] + at,
                   page_at(d, m->pool, g, r, number_at(&m->pages, i * ppb + j)), bytes);
            at += bytes;
        }
    }
}

static int answer_store(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_pages_store m;
    uint8_t st[KVC_STORE_MAX];
    if (codec_dec_pages_store(in, len, &h, &m) < 0)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, h.detail);
    if (!d->pool[m.pool].is_open)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, "no such pool");
    uint32_t n = m.reserve.keys.n / KVC_KEY_BYTES;
    bool in_time = await_word(d, m.after_word, m.after_value);
    statuses(d, st, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!in_time || atomic_load(&d->s->load_out))
            st[i] = in_time ? KVC_ST_TIER : KVC_ST_TIMEOUT;
        else if (i < FAKE_STORED)
            read_block(d, &m, i);
    }
    atomic_store(&d->s->tokens_seen, m.tokens.n / 4);
    struct msg_commit_reply r = {.statuses = {.p = st, .n = n}};
    return codec_enc_commit_reply(out, cap, &h, &r);
}

static int answer_acquire_on(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out,
                             size_t cap)
{
    struct msg_head h;
    struct msg_acquire_on m;
    if (codec_dec_acquire_on(in, len, &h, &m) < 0)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, h.detail);
    memcpy(d->hbm_uuid, m.uuid, sizeof(m.uuid));
    if (memcmp(m.uuid, device_0, sizeof(m.uuid)) != 0 && atomic_load(&d->s->hbm) < FAKE_HBM_CUDA)
        return codec_enc_error(out, cap, &h, KVC_ST_TIER, "no such device");
    return lease(d, &h, m.acquire.seq.ngroups, atomic_load(&d->s->hbm_blocks), out, cap);
}

/* Rows of devices and of rates. */
int gpu_list(const struct msg_list *m, const struct msg_head *h, uint8_t *out, size_t cap)
{
    static const struct kvc_device devices[] = {
        {.device = "emu:0",
         .name = "emulated",
         .up = true,
         .emulated = true,
         .limit_bytes = 1 << 20,
         .blocks = 7},
        {.device = "GPU-01234567-89ab-cdef-fedc-ba9876543210",
         .name = "NVIDIA H200",
         .why = "fell off the bus",
         .outs = 3}};
    static const struct kvc_rate rates[] = {
        {.device = "emu:0", .fragment_bytes = 4096, .to_engine = 1, .from_kernel = 4},
        {.device = "emu:0", .fragment_bytes = 16384, .to_kernel = 2, .from_engine = 3}};
    const struct kvc_table *table = codec_table(m->table);
    struct codec_list l;
    NEED(codec_rows_begin(&l, out, cap, h, table) == 0);
    for (int i = 0; i < 2; i++)
        NEED(codec_rows_add(&l, table,
                            m->table == KVC_TABLE_DEVICES ? (const void *)&devices[i]
                                                          : (const void *)&rates[i]) == 0);
    return codec_rows_end(&l, (struct codec_bin){.n = 0});
}

int gpu_answer(struct daemon *d, const struct msg_head *h, const uint8_t *in, size_t len,
               uint8_t *out, size_t cap)
{
    switch (h->op) {
    case KVC_OP_POOL_OPEN:
        return answer_pool_open(d, in, len, out, cap);
    case KVC_OP_POOL_CLOSE:
        return answer_pool_close(d, in, len, out, cap);
    case KVC_OP_PAGES_LOAD:
        return answer_load(d, in, len, out, cap);
    case KVC_OP_PAGES_STORE:
        return answer_store(d, in, len, out, cap);
    case KVC_OP_ACQUIRE_ON:
        return answer_acquire_on(d, in, len, out, cap);
    default:
        return 0;
    }
}
