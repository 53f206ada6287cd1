/* SPDX-License-Identifier: Apache-2.0 */
#include "nvme_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TURNS_MAX 200000u

static uint32_t record(void *ctx, uint64_t print, uint8_t ret_record[NVME_RECORD_MAX])
{
    (void)ctx;
    memset(ret_record, (int)(print & 0xff), 300);
    return 300;
}

void rig_init(struct rig *g, uint32_t paths, uint64_t path_bytes, uint64_t seed)
{
    memset(g, 0, sizeof(*g));
    g->disk = fake_disk_create(paths, path_bytes, seed);
    g->journal = fake_journal_create(seed + 1);
    g->now_ns = 1000;
    g->wall_ns = UINT64_C(1700000000) * 1000000000;
    g->config = (struct nvme_config){.disk = fake_disk_of(g->disk),
                                     .journal = fake_journal_of(g->journal),
                                     .limit_bytes = paths * path_bytes,
                                     .segment_bytes = UINT64_C(16) * 4096,
                                     .extent_bytes = UINT64_C(8) * 4096,
                                     .blocks_max = 1000,
                                     .record = record};
}

static int pump(void *ctx)
{
    struct rig *g = ctx;
    if (g->pumps_left != 0 && --g->pumps_left == 0) {
        g->dead = true;
        fake_off(g->disk, g->journal);
    }
    fake_disk_run(g->disk, 8);
    fake_journal_run(g->journal, 1);
    return g->dead ? -EINTR : 0;
}

static void on_ns(void *ctx, const uint8_t *bytes, uint32_t n)
{
    struct rig *g = ctx;
    MUST(n == 300 && bytes[0] == bytes[299]);
    g->records++;
}

static uint32_t on_block(void *ctx, const struct nvme_found *found)
{
    struct rig *g = ctx;
    for (uint32_t i = 0; i < g->founds; i++)
        if (rig_id(&g->found[i].label) == rig_id(&found->label))
            return UINT32_MAX; /* an older copy */
    MUST(g->founds < RIG_FOUND_MAX);
    g->found[g->founds] = *found;
    g->founds++;
    return g->by_id ? rig_id(&found->label) : g->founds - 1;
}

int rig_open_as(struct rig *g, bool by_id)
{
    g->by_id = by_id;
    return rig_open(g);
}

int rig_open(struct rig *g)
{
    const struct nvme_recovery r = {.ctx = g, .pump = pump, .ns = on_ns, .block = on_block};
    g->config.now_ns = g->now_ns;
    g->config.wall_ns = g->wall_ns;
    g->founds = g->records = 0;
    g->dead = false;
    const int made = nvme_create(&g->config, &g->nvme);
    if (made < 0)
        return made;
    g->tier = nvme_tier(g->nvme);
    const int got = nvme_recover(g->nvme, &r, &g->report);
    g->pumps_left = 0;
    if (got < 0)
        nvme_destroy(&g->nvme);
    return got;
}

void rig_turn(struct rig *g, uint64_t ns)
{
    g->now_ns += ns;
    g->wall_ns += ns;
    nvme_tick(g->nvme, g->now_ns, g->wall_ns);
    g->tier->storage->kick(g->tier);
    for (unsigned i = 0; i < TURNS_MAX; i++)
        if (fake_disk_run(g->disk, 16) + fake_journal_run(g->journal, 4) == 0)
            break;
}

void rig_settle(struct rig *g)
{
    for (unsigned i = 0; i < TURNS_MAX; i++) {
        const uint64_t next = nvme_next_ns(g->nvme);
        rig_turn(g, 1000);
        if (nvme_is_quiet(g->nvme) && next > g->now_ns + 1000)
            return;
    }
    MUST(false); /* it does not come to rest */
}

static void take_down(struct rig *g)
{
    nvme_stop(g->nvme);
    for (unsigned i = 0; i < TURNS_MAX && !nvme_is_quiet(g->nvme); i++)
        rig_turn(g, 1000000);
    MUST(nvme_is_quiet(g->nvme));
    nvme_destroy(&g->nvme);
}

void rig_close(struct rig *g)
{
    take_down(g);
    fake_on(g->disk, g->journal, false);
}

void rig_crash(struct rig *g, bool power)
{
    g->tier->events = (struct tier_events){0};
    fake_off(g->disk, g->journal);
    take_down(g);
    fake_on(g->disk, g->journal, power);
}

void rig_destroy(struct rig *g)
{
    if (g->nvme != NULL)
        rig_close(g);
    fake_disk_destroy(&g->disk);
    fake_journal_destroy(&g->journal);
}

/* ---- blocks ---- */

void rig_fill(uint8_t *to, uint32_t bytes, uint32_t id, uint32_t version)
{
    uint64_t s = (uint64_t)id * 1000003 + version * 7919u + 1;
    for (uint32_t i = 0; i + 8 <= bytes; i += 8) {
        s = s * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(to + i, &s, 8);
    }
    for (uint32_t i = bytes & ~7u; i < bytes; i++)
        to[i] = (uint8_t)(id + i);
}

struct tier_label rig_label(uint32_t id)
{
    struct tier_label l = {
        .print = 1 + id % 3, .group = id % 5, .shard = id % 2, .tokens = 65536 - id % 5};
    l.level = (uint8_t)(id % 102);
    memset(l.key.b, 0x5a, sizeof(l.key.b));
    memcpy(l.key.b + 8, &id, sizeof(id));
    l.has_parent = id % 4 != 0;
    if (l.has_parent)
        memset(l.parent.b, (int)id, sizeof(l.parent.b));
    return l;
}

uint32_t rig_id(const struct tier_label *label)
{
    uint32_t id;
    memcpy(&id, label->key.b + 8, sizeof(id));
    return id;
}

struct waiting {
    bool done;
};
static void on_done(struct tier_op *op)
{
    ((struct waiting *)op->ctx)->done = true;
}

static void *pages_for(uint32_t bytes)
{
    void *at;
    MUST(posix_memalign(&at, DISK_PAGE_BYTES, ROUND_UP(bytes, DISK_PAGE_BYTES)) == 0);
    memset(at, 0, ROUND_UP(bytes, DISK_PAGE_BYTES));
    return at;
}

static void wait_for(struct rig *g, struct tier_op *op)
{
    struct waiting w = {false};
    op->ctx = &w;
    op->done = on_done;
    g->tier->ops->submit(g->tier, op);
    for (unsigned i = 0; i < TURNS_MAX && !w.done; i++)
        rig_turn(g, 1000000);
    MUST(w.done);
}

int rig_put(struct rig *g, uint32_t id, uint32_t bytes, bool durable, struct tier_loc *ret_loc)
{
    struct tier_op op = {.kind = TIER_PUT, .bytes = bytes, .label = rig_label(id)};
    const int r = g->tier->ops->alloc(g->tier, 1, bytes, (struct tier_loc){0}, id, &op.loc);
    if (r < 0)
        return r;
    uint8_t *src = pages_for(bytes);
    rig_fill(src, bytes, id, 1);
    op.src = src;
    op.sum = hash_sum(src, bytes);
    op.label.durable = durable;
    op.flags = durable ? TIER_F_DURABLE : 0;
    wait_for(g, &op);
    free(src);
    if (op.status == 0) {
        g->tier->ops->set_label(g->tier, &op);
        *ret_loc = op.loc;
    } else {
        g->tier->ops->free(g->tier, op.loc);
    }
    return op.status;
}

int rig_get(struct rig *g, struct tier_loc loc, uint32_t id, uint32_t bytes)
{
    uint8_t *dst = pages_for(bytes), *want = pages_for(bytes);
    struct tier_op op = {.kind = TIER_GET, .loc = loc, .dst = dst, .bytes = bytes};
    const struct hash128 sum = g->tier->ops->sum(g->tier, loc); /* it may have moved afterwards */
    wait_for(g, &op);
    rig_fill(want, bytes, id, 1);
    const struct hash128 is = hash_sum(dst, bytes);
    int r = op.status;
    if (r == 0 && (!hash128_equal(&is, &sum) || memcmp(dst, want, bytes) != 0))
        r = -EUCLEAN;
    free(dst);
    free(want);
    return r;
}

struct tier_loc rig_where(const struct rig *g, uint32_t id)
{
    for (uint32_t i = 0; i < g->founds; i++)
        if (rig_id(&g->found[i].label) == id)
            return g->found[i].loc;
    return (struct tier_loc){0};
}
