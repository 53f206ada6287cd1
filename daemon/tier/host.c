/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host tier, made of the arena (room), the copier (copies and sums), the prefault thread
 * (memory faulted in) and pins (memory registered for I/O). Core calls it by api/tier.h.
 */
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "list.h"
#include "ns_records.h"
#include "sys.h"

/* Turns between two pieces of memory that are registered; chunks looked at in one turn. */
#define PIN_TURNS 8u
#define PIN_LOOK  16u
/* Turns between two rounds through all chunks. */
#define PIN_PAUSE 256u

struct host {
    struct tier tier;
    struct host_config config;
    struct arena *arena;
    struct copier *copier;
    struct pins *pins; /* NULL: none */
    uint32_t chunks;
    uint32_t pin_at;    /* the chunk that pin_some() looks at next */
    uint32_t pin_pause; /* turns until pin_some() looks again */
    uint64_t chunk_bytes;
    host_chunk_fn *ready, *gone; /* NULL: no device registers chunks */
    host_leaving_fn *leaving;
    void *chunk_ctx;
    uint8_t **told; /* by chunk: the base that ready() was called with; NULL: not called */
    uint32_t tell_at, tell_pause; /* as pin_at, pin_pause, of tell_some() */
    struct arena_recovery recovery;
    char note[512];
};

static struct host *host_of(const struct tier *t)
{
    return CONTAINER_OF((struct tier *)(uintptr_t)t, struct host, tier);
}

/* --- tier_ops --- */

static int op_alloc(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                    uint32_t block_no, struct tier_loc *ret_loc)
{
    return arena_alloc(host_of(t)->arena, principal, bytes, beside, block_no, ret_loc);
}

static void op_free(struct tier *t, struct tier_loc loc)
{
    arena_free(host_of(t)->arena, loc);
}

static void op_invalidate(struct tier *t, struct tier_loc loc)
{
    arena_invalidate(host_of(t)->arena, loc);
}

static void host_op_submit(struct tier *t, struct tier_op *op)
{
    struct host *h = host_of(t);
    MUST(arena_is_for(h->arena, op->loc, op->bytes));
    copier_submit(h->copier, op, arena_payload(h->arena, op->loc));
}

static void op_set_label(struct tier *t, const struct tier_op *op)
{
    MUST(op->status == 0);
    arena_set_label(host_of(t)->arena, op->loc, &op->label, &op->sum, op->bytes);
}

static void host_op_view(const struct tier *t, struct tier_loc loc, struct tier_view *ret_view)
{
    arena_view(host_of(t)->arena, loc, ret_view);
}

static struct hash128 op_sum(const struct tier *t, struct tier_loc loc)
{
    return arena_sum(host_of(t)->arena, loc);
}

static void *op_payload(const struct tier *t, struct tier_loc loc)
{
    return arena_payload(host_of(t)->arena, loc);
}

static uint32_t op_slot_bytes(const struct tier *t, uint32_t bytes)
{
    return arena_can_hold(host_of(t)->arena, bytes) ? arena_slot_bytes(bytes) : 0;
}

static uint64_t op_region_fill(const struct tier *t, uint32_t slot_bytes)
{
    return arena_fill_bytes(host_of(t)->arena, slot_bytes);
}

static uint32_t op_evacuate(struct tier *t, uint32_t principal, uint32_t bytes, bool others,
                            tier_occupant_fn *each, void *ctx)
{
    return arena_evacuate(host_of(t)->arena, principal, bytes, others, each, ctx);
}

static bool op_helps(const struct tier *t, struct tier_loc loc, uint32_t principal, uint32_t bytes)
{
    return arena_helps(host_of(t)->arena, loc, principal, bytes);
}

static uint32_t op_region(const struct tier *t, struct tier_loc loc)
{
    return arena_chunk_no(host_of(t)->arena, loc);
}

static int op_shift(struct tier *t, struct tier_loc loc, const struct tier_shift *s,
                    struct tier_loc *ret_loc)
{
    return arena_shift(host_of(t)->arena, loc, s, ret_loc);
}

static bool stays(void *ctx, uint32_t no)
{
    const struct tier_events *e = &((const struct host *)ctx)->tier.events;
    return e->stays != NULL && e->stays(e->ctx, no);
}

static void op_stats(const struct tier *t, struct tier_stats *ret_stats)
{
    struct arena_stats as;
    struct copier_stats cs;
    arena_stats(host_of(t)->arena, &as);
    copier_stats(host_of(t)->copier, &cs);
    *ret_stats = (struct tier_stats){
        .limit_bytes = as.limit_bytes,
        .lasting_bytes = as.limit_bytes - as.limit_bytes / TIER_PASSING,
        .used_bytes = as.used_bytes,
        .used_slots = as.used_slots,
        .mapped_bytes = as.mapped_bytes,
        .faulted_bytes = as.faulted_bytes,
        .inflight_ops = cs.inflight_ops,
        .inflight_bytes = cs.inflight_bytes,
        .bytes_per_s = cs.bytes_per_s,
        .regions = as.chunks,
        .region_bytes = as.yield_bytes,
    };
}

static const struct tier_ops host_ops = {
    .name = "host",
    .alloc = op_alloc,
    .free = op_free,
    .invalidate = op_invalidate,
    .submit = host_op_submit,
    .set_label = op_set_label,
    .sum = op_sum,
    .slot_bytes = op_slot_bytes,
    .stats = op_stats,
};

static const struct tier_memory_ops host_memory_ops = {
    .view = host_op_view,
    .evacuate = op_evacuate,
    .helps = op_helps,
    .payload = op_payload,
    .region = op_region,
    .region_fill = op_region_fill,
    .shift = op_shift,
};

/* --- configuration --- */

const char *host_config_problem(const struct host_config *config)
{
    if (config->copier.threads > COPIER_THREADS_MAX)
        return "copy.threads must be 0 (chosen by the number of CPUs) to 64";
    if (config->copier.inflight_bytes < COPIER_INFLIGHT_MIN)
        return "copy.inflight must be at least 1MiB";
    return arena_config_problem(&config->arena);
}

void host_budget(const struct host_config *config, struct host_budget *ret_budget)
{
    struct arena_sizes sizes;
    arena_sizes(&config->arena, &sizes);
    const uint64_t chunks = sizes.chunks * sizes.chunk_bytes;
    *ret_budget = (struct host_budget){
        .slots_bytes = config->arena.limit_bytes,
        .overhead_bytes = chunks - config->arena.limit_bytes,
        .spare_bytes = sizes.chunk_total_bytes - chunks,
        .table_bytes = sizes.table_bytes,
    };
}

uint64_t host_footprint(const struct host_config *config)
{
    struct host_budget b;
    host_budget(config, &b);
    return b.slots_bytes + b.overhead_bytes + b.spare_bytes + b.table_bytes;
}

unsigned host_buffers(const struct host_config *config)
{
    struct arena_sizes sizes;
    arena_sizes(&config->arena, &sizes);
    return pins_buffers(sizes.chunks, sizes.chunk_bytes);
}

/* --- create, destroy --- */

static void leaving_look(struct host *h)
{
    arena_hold(h->arena, h->leaving != NULL ? h->leaving(h->chunk_ctx) : 0);
}

static void host_on_moved(void *ctx, uint32_t no)
{
    struct host *h = ctx;
    if (h->pins != NULL)
        pins_forget(h->pins, no);
    if (h->told[no] != NULL && h->gone != NULL)
        h->gone(h->chunk_ctx, h->told[no], h->chunk_bytes);
    h->told[no] = NULL;
    leaving_look(h);
}

static int pins_start(struct host *h, struct loop *loop)
{
    struct arena_sizes sizes;
    arena_sizes(&h->config.arena, &sizes);
    h->chunks = sizes.chunks;
    h->chunk_bytes = sizes.chunk_bytes;
    h->told = sys_calloc(sizes.chunks, sizeof(h->told[0]));
    if (h->told == NULL)
        return -ENOMEM;
    arena_set_moved(h->arena, host_on_moved, h);
    arena_set_stays(h->arena, stays, h);
    if (h->config.buffers == 0)
        return 0;
    return pins_create(loop, h->config.buffers, sizes.chunks, sizes.chunk_bytes, &h->pins);
}

int host_create(const struct host_config *config, struct loop *loop, struct host **ret_host)
{
    if (host_config_problem(config) != NULL)
        return -EINVAL;
    struct host *h = sys_calloc(1, sizeof(*h));
    if (h == NULL)
        return -ENOMEM;
    h->tier.ops = &host_ops;
    h->tier.memory = &host_memory_ops;
    h->config = *config;
    int err = arena_create(&config->arena, &h->arena);
    if (err == 0)
        err = copier_create(&config->copier, loop, &h->copier);
    if (err == 0)
        err = pins_start(h, loop);
    if (err < 0) {
        host_destroy(&h);
        return err;
    }
    *ret_host = h;
    return 0;
}

void host_destroy(struct host **host)
{
    if (host == NULL || *host == NULL)
        return;
    struct host *h = *host;
    copier_destroy(&h->copier); /* first: it writes into the arena */
    arena_destroy(&h->arena);
    pins_destroy(&h->pins);
    free(h->told);
    free(h);
    *host = NULL;
}

struct tier *host_tier(struct host *host)
{
    return host != NULL ? &host->tier : NULL;
}

int host_chunk_fd(const struct host *host, uint32_t chunk, uint32_t principal, uint64_t *ret_bytes)
{
    return arena_chunk_fd(host->arena, chunk, principal, ret_bytes);
}

void host_set_retired_cb(struct host *host, arena_retired_fn *fn, void *ctx)
{
    arena_set_retired(host->arena, fn, ctx);
}

void host_arena_stats(const struct host *host, struct arena_stats *ret_stats)
{
    arena_stats(host->arena, ret_stats);
}

/* Registers the next piece of a chunk for I/O. A chunk without a principal, or not faulted in, is
 * looked at again a round later. */
static void pin_some(struct host *h)
{
    if (h->pin_pause > 0) {
        h->pin_pause--;
        return;
    }
    for (unsigned i = 0; i < PIN_LOOK; i++) {
        const uint32_t no = h->pin_at;
        uint8_t *base = pins_is_done(h->pins, no) ? NULL : arena_ready_base(h->arena, no);
        if (base != NULL && pins_step(h->pins, no, base)) {
            h->pin_pause = PIN_TURNS;
            return;
        }
        if (++h->pin_at == h->chunks) {
            h->pin_at = 0;
            h->pin_pause = PIN_PAUSE;
            return;
        }
        if (base != NULL)
            return;
    }
}

/* Calls ready() for the next chunk that has a principal and is faulted in. The device registers it
 * in a thread of its own. */
static void tell_some(struct host *h)
{
    if (h->tell_pause > 0) {
        h->tell_pause--;
        return;
    }
    for (unsigned i = 0; i < PIN_LOOK; i++) {
        const uint32_t no = h->tell_at;
        uint8_t *base = h->told[no] != NULL ? NULL : arena_want_ready(h->arena, no);
        if (++h->tell_at == h->chunks) {
            h->tell_at = 0;
            h->tell_pause = PIN_PAUSE;
        }
        if (base != NULL) {
            h->told[no] = base;
            h->ready(h->chunk_ctx, base, h->chunk_bytes);
        }
        if (base != NULL || h->tell_pause > 0)
            return;
    }
}

void host_turn(struct host *h)
{
    copier_turn(h->copier);
    if (h->pins != NULL)
        pin_some(h);
    if (h->ready != NULL)
        tell_some(h);
    leaving_look(h);
}

void host_set_ready_cb(struct host *h, host_chunk_fn *ready, host_chunk_fn *gone,
                       host_leaving_fn *leaving, void *ctx)
{
    h->ready = ready;
    h->gone = gone;
    h->leaving = leaving;
    h->chunk_ctx = ctx;
    memset(h->told, 0, h->chunks * sizeof(h->told[0]));
    h->tell_at = h->tell_pause = 0;
}

const struct histo *host_copy_ns(const struct host *host)
{
    struct copier_stats s;
    copier_stats(host->copier, &s);
    return s.copy_ns;
}

void host_pins_stats(const struct host *h, struct pins_stats *ret_stats)
{
    *ret_stats = (struct pins_stats){0};
    if (h->pins != NULL)
        pins_stats(h->pins, ret_stats);
}

enum arena_loss host_has_lost(const struct host *h)
{
    return arena_has_lost(h->arena);
}

uint32_t host_lost(struct host *h, tier_occupant_fn *each, void *ctx)
{
    return arena_lost(h->arena, each, ctx);
}

bool host_is_due(const struct host *h)
{
    return copier_is_due(h->copier);
}

/* --- memory that outlives a run --- */

void host_recover(struct host *h, const struct host_recovery *r,
                  struct arena_recovery *ret_recovery)
{
    struct ns_records *names = arena_names(h->arena);
    if (names != NULL)
        (void)ns_records_each(names, r->ns, r->ctx);
    arena_recover(h->arena, r->block, r->ctx, &h->recovery);
    *ret_recovery = h->recovery;
}

int host_names_put(struct host *h, uint64_t print, const void *record, uint32_t bytes)
{
    struct ns_records *names = arena_names(h->arena);
    return names != NULL ? ns_records_put(names, print, record, bytes) : 0;
}

bool host_names_has(struct host *h, uint64_t print)
{
    struct ns_records *names = arena_names(h->arena);
    return names == NULL || ns_records_has(names, print);
}

void host_names_sweep(struct host *h)
{
    struct ns_records *names = arena_names(h->arena);
    if (names != NULL)
        ns_records_sweep(names);
}

/* --- notes --- */

#define MIB (UINT64_C(1) << 20)

static void note_chunks(struct host *h, const struct arena_report *r)
{
    (void)snprintf(h->note, sizeof(h->note),
                   "host tier: %llu MiB of slots in %u chunks of %llu MiB; the largest block is "
                   "%llu bytes; %llu MiB are faulted in in the background",
                   (unsigned long long)(h->config.arena.limit_bytes / MIB), r->sizes.chunks,
                   (unsigned long long)(r->sizes.chunk_bytes / MIB),
                   (unsigned long long)r->sizes.largest_bytes,
                   (unsigned long long)(r->sizes.prefault_bytes / MIB));
}

static void note_huge(struct host *h, const struct arena_report *r)
{
    if (h->config.arena.huge == ARENA_HUGE_OFF)
        (void)snprintf(h->note, sizeof(h->note), "huge pages: off (host.huge_pages)");
    else if (r->hugetlb_chunks == r->sizes.chunks)
        (void)snprintf(h->note, sizeof(h->note), "huge pages: all chunks are on hugetlbfs pages");
    else
        (void)snprintf(h->note, sizeof(h->note),
                       "huge pages: %u of %u chunks; the others use transparent huge ones, where "
                       "the kernel has some, or small pages: hugetlbfs answered %s (raise "
                       "vm.nr_hugepages to have %llu pages of 2 MiB)",
                       r->hugetlb_chunks, r->sizes.chunks, strerror(-r->huge_err),
                       (unsigned long long)(r->sizes.chunk_total_bytes / (2 * MIB)));
}

static void note_numa(struct host *h, const struct arena_report *r)
{
    const struct topo *topo = h->config.arena.topo;
    if (topo == NULL)
        (void)snprintf(h->note, sizeof(h->note), "NUMA placement: off (host.numa)");
    else if (r->numa_err != 0)
        (void)snprintf(h->note, sizeof(h->note), "NUMA placement: refused by the system: %s",
                       strerror(-r->numa_err));
    else
        (void)snprintf(h->note, sizeof(h->note), "NUMA placement: chunks on %u node%s",
                       topo_nodes(topo), topo_nodes(topo) == 1 ? "" : "s");
}

static void note_sealed(struct host *h, const struct arena_report *r)
{
    const char *why = h->config.arena.backing.persist != ARENA_PERSIST_OFF
                          ? "because the next run has to map them"
                          : "by this kernel";
    if (r->sealed)
        (void)snprintf(h->note, sizeof(h->note),
                       "chunks: mode 0600, sealed against new writable mappings");
    else
        (void)snprintf(h->note, sizeof(h->note),
                       "chunks: mode 0600, not sealed against writable mappings %s: processes of "
                       "the daemon's own uid could make one",
                       why);
}

static void note_backing(struct host *h, const struct arena_report *r)
{
    (void)snprintf(h->note, sizeof(h->note), "warm restart: %s", r->backing);
}

static void note_copier(struct host *h)
{
    struct copier_stats s;
    copier_stats(h->copier, &s);
    (void)snprintf(h->note, sizeof(h->note), "copy threads: %u (%s), %llu MiB in flight%s%s",
                   s.threads,
                   h->config.copier.threads == 0 ? "by the number of CPUs" : "copy.threads",
                   (unsigned long long)(h->config.copier.inflight_bytes / MIB),
                   s.bind_err != 0 ? "; not bound to a node: " : "",
                   s.bind_err != 0 ? strerror(-s.bind_err) : "");
}

const char *host_note(struct host *host, unsigned i)
{
    struct arena_report r;
    arena_report(host->arena, &r);
    switch (i) {
    case 0:
        note_chunks(host, &r);
        break;
    case 1:
        note_huge(host, &r);
        break;
    case 2:
        note_numa(host, &r);
        break;
    case 3:
        note_sealed(host, &r);
        break;
    case 4:
        note_backing(host, &r);
        break;
    case 5:
        note_copier(host);
        break;
    default:
        return NULL;
    }
    return host->note;
}

/* Writes line number `line` about what was recovered. False: the line would say nothing. */
static bool note_recovery(struct host *h, unsigned line)
{
    const struct arena_recovery *r = &h->recovery;
    const uint32_t discarded = r->damaged + r->foreign + r->misfits + r->no_principal;
    switch (line) {
    case 0:
        (void)snprintf(h->note, sizeof(h->note),
                       "warm restart: %llu blocks, %llu MiB, in %u slabs of %u chunks of the run "
                       "before; each is checked at its first use",
                       (unsigned long long)r->slots, (unsigned long long)(r->bytes / MIB), r->slabs,
                       r->chunks);
        return true;
    case 1:
        (void)snprintf(h->note, sizeof(h->note),
                       "warm restart: %u chunks discarded: %u damaged, %u of another store or "
                       "version, %u of another host.chunk or more than host.limit has room for, %u "
                       "of principals that are not configured as they were",
                       discarded, r->damaged, r->foreign, r->misfits, r->no_principal);
        return discarded > 0;
    case 2:
        (void)snprintf(h->note, sizeof(h->note),
                       "warm restart: %u slabs and %llu blocks with damaged headers, and %llu that "
                       "nobody needs, are free room now",
                       r->slabs_damaged, (unsigned long long)r->slots_damaged,
                       (unsigned long long)r->slots_unwanted);
        return r->slabs_damaged + r->slots_damaged + r->slots_unwanted > 0;
    case 3:
        (void)snprintf(h->note, sizeof(h->note),
                       "warm restart: the file 'names' was damaged, or of another version, and is "
                       "made anew: no block in memory can be taken over");
        return ns_records_was_lost(arena_names(h->arena));
    default:
        return false;
    }
}

const char *host_recovery_note(struct host *host, unsigned i)
{
    if (arena_names(host->arena) == NULL)
        return NULL;
    for (unsigned line = 0; line < 4; line++)
        if (note_recovery(host, line) && i-- == 0)
            return host->note;
    return NULL;
}
