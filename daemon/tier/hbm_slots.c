/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for blocks on the device: struct tier over an arena of headers, and the device memory of its
 * chunks.
 *
 * Each chunk of the arena has at most one allocation on the device. When a chunk was retired, its
 * allocation is freed before that of the next chunk with its number is asked for. So there are
 * never more allocations than chunks. While workers have the memory mapped, freeing it gains no
 * room: it waits for them.
 */
#include "hbm__.h"

#include <sys/mman.h>

#include "clock.h"
#include "layout.h"
#include "sys.h"

static struct hbm *of(const struct tier *t)
{
    return CONTAINER_OF((struct tier *)(uintptr_t)t, struct hbm, slots);
}

/* --- bits --- */

static bool bit(const uint64_t *bits, struct tier_loc loc)
{
    return (bits[loc.id / 64] >> (loc.id % 64)) & 1;
}

static void set_bit(uint64_t *bits, struct tier_loc loc, bool to)
{
    const uint64_t mask = UINT64_C(1) << (loc.id % 64);
    bits[loc.id / 64] = (bits[loc.id / 64] & ~mask) | (to ? mask : 0);
}

/* --- numbers --- */

static uint32_t hbm_slots_number(const struct hbm *h, uint32_t no)
{
    return (h->device.no + 1) << DEVICE_CHUNK_SHIFT | no;
}

static struct hbm_chunk_mem *find_no(const struct hbm *h, uint32_t no)
{
    for (uint32_t i = 0; i < h->chunks; i++)
        if (h->chunk_mem[i].no == no)
            return &h->chunk_mem[i];
    return NULL;
}

/* The memory that is lent to workers under this number. NULL: none. */
static struct hbm_chunk_mem *find_lent(const struct hbm *h, uint32_t no)
{
    for (uint32_t i = 0; i < h->chunks; i++)
        if (h->chunk_mem[i].lent > 0 && h->chunk_mem[i].lent_no == no)
            return &h->chunk_mem[i];
    return NULL;
}

/* The next number for memory. Numbers begin anew after 16 million; those in use are skipped. */
static uint32_t next_no(struct hbm *h)
{
    do
        h->last_no = h->last_no % HBM_NUMBERS + 1;
    while (find_no(h, h->last_no) != NULL || find_lent(h, h->last_no) != NULL);
    return h->last_no;
}

/* --- memory of a chunk --- */

static void on_memory(struct gpu_op *op);

static void hbm_slots_ask(struct hbm_chunk_mem *p, enum gpu_op_kind kind)
{
    p->op = (struct gpu_op){
        .kind = kind,
        .mem = &p->mem,
        .bytes = kind == GPU_ALLOC ? p->hbm->chunk_bytes : 0,
        .done = on_memory,
        .ctx = p,
    };
    gpu_submit(p->hbm->gpu, &p->op);
}

static void pump(struct hbm_chunk_mem *p)
{
    if (p->hbm->closing) /* gpu_close() frees all memory */
        return;
    if (p->room == HBM_READY && p->stale && p->copies == 0 && p->lent == 0) {
        p->room = HBM_FREEING;
        hbm_slots_ask(p, GPU_FREE);
    } else if (p->room == HBM_NONE && p->wanted && hbm__is_up(p->hbm)) {
        p->room = HBM_ALLOCATING;
        p->wanted = false;
        p->stale = false;
        p->mem = (struct gpu_mem){0};
        hbm_slots_ask(p, GPU_ALLOC);
    }
}

static bool is_ready(const struct hbm_chunk_mem *p)
{
    return p->room == HBM_READY && !p->stale && hbm__is_up(p->hbm) &&
           p->mem.generation == p->hbm->generation;
}

static void on_memory(struct gpu_op *op)
{
    struct hbm_chunk_mem *p = op->ctx;
    struct hbm *h = p->hbm;
    const int err = op->status;
    if (p->room == HBM_FREEING) {
        MUST(err == 0);
        p->room = HBM_NONE;
        pump(p);
        return;
    }
    /* Stale: the chunk was retired meanwhile, or the device went out. No copy waits for it then. */
    const bool was_stale = p->stale;
    p->room = err == 0 ? HBM_READY : HBM_NONE;
    p->stale = was_stale || (err == 0 && p->mem.generation != h->generation);
    pump(p);
    if (!was_stale && p->room != HBM_FREEING)
        hbm__copies_chunk(h, (uint32_t)(p - h->chunk_mem), err);
}

/* Allocates the chunk's memory, unless it is allocated already or being allocated. */
static void want(struct hbm_chunk_mem *p)
{
    if (p->no == 0)
        p->no = next_no(p->hbm);
    if (p->stale || p->room == HBM_NONE || p->room == HBM_FREEING)
        p->wanted = true;
    pump(p);
}

/* The chunk, or the device, is gone: tells workers that have the memory, then frees it. */
static void hbm_slots_forget(struct hbm_chunk_mem *p)
{
    struct hbm *h = p->hbm;
    if (p->no != 0 && h->retired != NULL)
        h->retired(h->retired_ctx, hbm_slots_number(h, p->no), p->principal);
    p->no = 0;
    p->wanted = false;
    if (p->room == HBM_READY || p->room == HBM_ALLOCATING)
        p->stale = true;
    if (p->lent > 0 && !p->held) {
        p->held = true;
        h->held++;
        h->recalled_ns = clock_now_ns();
    }
    pump(p);
}

/* Whether workers are likely to unmap a retired chunk soon. Until then evicting more blocks would
 * be in vain. */
static bool is_room_coming(const struct hbm *h)
{
    return h->held > 0 && clock_now_ns() - h->recalled_ns < HBM_RECALL_NS;
}

static void on_retired(void *ctx, uint32_t chunk, uint32_t principal)
{
    struct hbm *h = ctx;
    (void)principal;
    for (uint32_t i = 0; i < h->chunks; i++)
        if (h->chunk_mem[i].id == chunk) {
            h->chunk_mem[i].id = 0;
            hbm_slots_forget(&h->chunk_mem[i]);
        }
}

/* --- slots, for copies --- */

uint32_t hbm__slot_chunk(const struct hbm *h, struct tier_loc loc)
{
    return arena_chunk_of(h->arena, loc);
}

static struct hbm_chunk_mem *chunk_mem_of(const struct hbm *h, struct tier_loc loc)
{
    return &h->chunk_mem[arena_chunk_of(h->arena, loc)];
}

int hbm__slot_at(struct hbm *h, struct tier_loc loc, uint64_t *ret_addr)
{
    struct hbm_chunk_mem *p = chunk_mem_of(h, loc);
    struct tier_view v;
    if (bit(h->dead, loc))
        return -EIO;
    if (p->held)
        return -ENOMEM;
    if (!is_ready(p)) {
        want(p);
        return -EAGAIN;
    }
    arena_view(h->arena, loc, &v);
    *ret_addr = p->mem.addr + v.off;
    return 0;
}

bool hbm__slot_holds(const struct hbm *h, struct tier_loc loc, uint32_t bytes)
{
    struct tier_view v;
    MUST(h->arena != NULL);
    arena_view(h->arena, loc, &v);
    return arena_slot_bytes(bytes) == arena_slot_bytes(v.bytes);
}

void hbm__slot_hold(struct hbm *h, struct tier_loc loc)
{
    chunk_mem_of(h, loc)->copies++;
}

void hbm__slot_release(struct hbm *h, struct tier_loc loc)
{
    struct hbm_chunk_mem *p = chunk_mem_of(h, loc);
    MUST(p->copies > 0);
    p->copies--;
    pump(p);
}

/* --- tier_ops --- */

static int op_alloc(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                    uint32_t block_no, struct tier_loc *ret_loc)
{
    struct hbm *h = of(t);
    struct tier_view v;
    struct tier_loc loc;
    if (!hbm__is_up(h) && arena_can_hold(h->arena, bytes))
        return KVC_E_NO_ROOM;
    const int err = arena_alloc(h->arena, principal, bytes, beside, block_no, &loc);
    if (err < 0)
        return err == KVC_E_NO_ROOM && is_room_coming(h) ? KVC_E_BUSY : err;
    arena_view(h->arena, loc, &v);
    struct hbm_chunk_mem *p = chunk_mem_of(h, loc);
    if (p->held) { /* the device went out: the arena still has the chunk, workers the old memory */
        arena_free(h->arena, loc);
        return KVC_E_BUSY;
    }
    p->id = v.chunk;
    p->principal = principal;
    set_bit(h->taken, loc, true);
    if (!is_ready(p))
        want(p);
    *ret_loc = loc;
    return 0;
}

static void op_free(struct tier *t, struct tier_loc loc)
{
    struct hbm *h = of(t);
    arena_free(h->arena, loc);
    set_bit(h->taken, loc, false);
    set_bit(h->dead, loc, false);
}

static void op_invalidate(struct tier *t, struct tier_loc loc)
{
    arena_invalidate(of(t)->arena, loc);
}

static void hbm_slots_op_submit(struct tier *t, struct tier_op *op)
{
    hbm__verify_submit(of(t), op); /* copies are submitted by device_ops.submit */
}

/* A slot that was lost with the device since its copy gets no label. */
static void op_set_label(struct tier *t, const struct tier_op *op)
{
    const struct hbm *h = of(t);
    MUST(op->status == 0);
    if (!bit(h->dead, op->loc))
        arena_set_label(h->arena, op->loc, &op->label, &op->sum, op->bytes);
}

/* A lost slot gets a chunk number that nobody can import. */
static void hbm_slots_op_view(const struct tier *t, struct tier_loc loc, struct tier_view *ret_view)
{
    const struct hbm *h = of(t);
    struct tier_view v;
    arena_view(h->arena, loc, &v);
    v.chunk = hbm_slots_number(h, bit(h->dead, loc) ? 0 : chunk_mem_of(h, loc)->no);
    *ret_view = v;
}

static struct hash128 op_sum(const struct tier *t, struct tier_loc loc)
{
    return arena_sum(of(t)->arena, loc);
}

static uint32_t op_slot_bytes(const struct tier *t, uint32_t bytes)
{
    return arena_can_hold(of(t)->arena, bytes) ? arena_slot_bytes(bytes) : 0;
}

static uint32_t op_evacuate(struct tier *t, uint32_t principal, uint32_t bytes, bool others,
                            tier_occupant_fn *each, void *ctx)
{
    return arena_evacuate(of(t)->arena, principal, bytes, others, each, ctx);
}

static bool op_helps(const struct tier *t, struct tier_loc loc, uint32_t principal, uint32_t bytes)
{
    return arena_helps(of(t)->arena, loc, principal, bytes);
}

static void op_stats(const struct tier *t, struct tier_stats *ret_stats)
{
    const struct hbm *h = of(t);
    struct arena_stats as;
    uint64_t mapped = 0;
    arena_stats(h->arena, &as);
    for (uint32_t i = 0; i < h->chunks; i++)
        mapped += h->chunk_mem[i].room == HBM_NONE ? 0 : h->chunk_bytes;
    *ret_stats = (struct tier_stats){
        .limit_bytes = as.limit_bytes,
        .lasting_bytes = as.limit_bytes,
        .used_bytes = as.used_bytes,
        .used_slots = as.used_slots,
        .mapped_bytes = mapped,
        .inflight_ops = h->copies.inflight,
        .inflight_bytes = h->copies.inflight_bytes,
    };
}

static const struct tier_ops hbm_slots_ops = {
    .name = "hbm",
    .alloc = op_alloc,
    .free = op_free,
    .invalidate = op_invalidate,
    .submit = hbm_slots_op_submit,
    .set_label = op_set_label,
    .sum = op_sum,
    .slot_bytes = op_slot_bytes,
    .stats = op_stats,
};

static const struct tier_memory_ops hbm_memory_ops = {
    .view = hbm_slots_op_view,
    .evacuate = op_evacuate,
    .helps = op_helps,
};

int hbm__chunk_export(const struct device *d, uint32_t chunk, uint32_t principal,
                      struct device_handle *ret_handle, int *ret_headers_fd,
                      uint64_t *ret_headers_bytes)
{
    const struct hbm *h = hbm__of(d);
    const uint32_t no = chunk & HBM_NUMBERS;
    uint64_t bytes;
    if (h->arena == NULL || device_of_chunk(chunk) != h->device.no + 1 || no == 0)
        return -ENOENT;
    const struct hbm_chunk_mem *p = find_no(h, no);
    if (p == NULL)
        return -ENOENT;
    const int fd = arena_chunk_fd(h->arena, p->id, principal, &bytes);
    if (fd < 0)
        return fd;
    if (!is_ready(p))
        return -EIO;
    *ret_handle = p->mem.handle;
    *ret_headers_fd = fd;
    *ret_headers_bytes = bytes;
    return 0;
}

void hbm__chunk_lend(struct device *d, uint32_t chunk)
{
    const struct hbm *h = hbm__of(d);
    struct hbm_chunk_mem *p = find_no(h, chunk & HBM_NUMBERS);
    MUST(p != NULL && is_ready(p) && (p->lent == 0 || p->lent_no == p->no));
    p->lent_no = p->no;
    if (p->lent++ == 0)
        arena_lend(h->arena, (uint32_t)(p - h->chunk_mem), true);
}

void hbm__chunk_give_back(struct device *d, uint32_t chunk)
{
    struct hbm *h = hbm__of(d);
    struct hbm_chunk_mem *p = find_lent(h, chunk & HBM_NUMBERS);
    MUST(p != NULL);
    if (--p->lent > 0)
        return;
    h->held -= p->held;
    p->held = false;
    arena_lend(h->arena, (uint32_t)(p - h->chunk_mem), false);
    pump(p);
}

uint64_t hbm__held_bytes(const struct hbm *h)
{
    return h->held * h->chunk_bytes;
}

/* --- the device goes --- */

void hbm__slots_lost(struct hbm *h)
{
    if (h->arena == NULL)
        return;
    for (uint32_t w = 0; w < h->words; w++) {
        h->dead[w] |= h->taken[w];
        for (uint64_t bits = h->taken[w]; bits != 0; bits &= bits - 1)
            arena_invalidate(h->arena, (struct tier_loc){w * 64 + (uint32_t)__builtin_ctzll(bits)});
    }
    for (uint32_t i = 0; i < h->chunks; i++)
        hbm_slots_forget(&h->chunk_mem[i]);
}

/* --- made, and ended --- */

uint64_t hbm__chunk_bytes(const struct hbm_config *config)
{
    if (config->chunk_bytes != 0)
        return config->chunk_bytes;
    const uint64_t bytes = config->limit_bytes / 8 / HBM_CHUNK_UNIT * HBM_CHUNK_UNIT;
    const uint64_t least = ROUND_UP(config->limit_bytes / HBM_CHUNKS_MAX, HBM_CHUNK_UNIT);
    return MAX(MIN(MAX(bytes, HBM_CHUNK_UNIT), HBM_CHUNK_AUTO), least);
}

/* All chunks that the limit has room for; headers take their part of them. */
static struct arena_config arena_config_of(const struct hbm_config *config)
{
    const uint64_t chunk_bytes = hbm__chunk_bytes(config);
    const uint64_t chunks = config->limit_bytes / chunk_bytes;
    return (struct arena_config){
        .limit_bytes = chunks * chunk_bytes,
        .chunk_bytes = chunk_bytes,
        .chunks = (uint32_t)chunks,
        .huge = ARENA_HUGE_OFF,
    };
}

static uint64_t own_table_bytes(uint32_t chunks, uint64_t chunk_bytes)
{
    const uint64_t pages = chunks * (chunk_bytes / LAYOUT_PAGE_BYTES);
    return chunks * sizeof(struct hbm_chunk_mem) + pages / 64 * sizeof(uint64_t) * 2;
}

uint64_t hbm__slots_host_bytes(const struct hbm_config *config)
{
    if (config->limit_bytes == 0)
        return 0;
    const struct arena_config ac = arena_config_of(config);
    struct arena_sizes sizes;
    arena_sizes(&ac, &sizes);
    const uint32_t pages = (uint32_t)(sizes.chunk_bytes / LAYOUT_PAGE_BYTES);
    /* At most one page in ARENA_RUN_MIN of a slab has headers. One chunk more is on its way out. */
    const uint64_t headers =
        (uint64_t)(layout_chunk_header_pages(pages) + pages / 16) * LAYOUT_PAGE_BYTES;
    return sizes.table_bytes + own_table_bytes(sizes.chunks, sizes.chunk_bytes) +
           (sizes.chunks + 1) * headers;
}

int hbm__slots_create(struct hbm *h)
{
    if (h->config.limit_bytes == 0)
        return 0;
    const struct arena_config ac = arena_config_of(&h->config);
    struct arena_sizes sizes;
    arena_sizes(&ac, &sizes);
    h->tables_bytes = own_table_bytes(sizes.chunks, sizes.chunk_bytes);
    h->tables = sys_pages(h->tables_bytes);
    if (h->tables == NULL)
        return -errno;
    h->words = (uint32_t)(sizes.chunks * (sizes.chunk_bytes / LAYOUT_PAGE_BYTES) / 64);
    h->taken = h->tables;
    h->dead = h->taken + h->words;
    h->chunk_mem = (struct hbm_chunk_mem *)(void *)(h->dead + h->words);
    h->chunks = sizes.chunks;
    h->chunk_bytes = sizes.chunk_bytes;
    for (uint32_t i = 0; i < h->chunks; i++)
        h->chunk_mem[i].hbm = h;
    const int err = arena_create(&ac, &h->arena);
    if (err < 0)
        return err;
    arena_set_retired(h->arena, on_retired, h);
    h->slots.ops = &hbm_slots_ops;
    h->slots.memory = &hbm_memory_ops;
    h->device.slots = &h->slots;
    return 0;
}

void hbm__slots_destroy(struct hbm *h)
{
    arena_destroy(&h->arena);
    if (h->tables != NULL)
        (void)munmap(h->tables, h->tables_bytes);
    h->tables = NULL;
}
