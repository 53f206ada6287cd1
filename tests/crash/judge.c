/* SPDX-License-Identifier: Apache-2.0 */
#include "judge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_MS  60000u
#define SETTLE_TRIES 400u
#define SETTLE_MS    50u
#define SLICE_BYTES  (16u << 20)
#define NS_MAX       32u

static void __attribute__((format(printf, 2, 3))) say(struct judged *j, const char *format, ...)
{
    va_list args;
    if (j->first[0])
        return;
    va_start(args, format);
    vsnprintf(j->first, sizeof j->first, format, args);
    va_end(args);
}

/* ---- bytes ---- */

static void judge_block(struct judged *j, const struct world_chain *chain, uint32_t c, uint32_t b,
                        uint32_t version)
{
    const uint32_t floor = chain->block[b].floor, durable = chain->block[b].durable;
    const uint32_t removed = chain->block[b].removed;
    if (chain->block[b].gone || (version != 0 && version <= removed)) {
        j->removed_back++;
        say(j, "chain %u block %u: version %u is back; up to %u was evicted%s", c, b, version,
            removed, chain->block[b].gone ? ", and nothing stored since" : "");
    } else if (version == 0 || version < durable) {
        j->wrong_bytes++;
        say(j, "chain %u block %u: bytes of version %u, newest %u, promised %u", c, b, version,
            (unsigned)chain->newest, durable);
    } else if (version < floor) {
        j->returned++;
        say(j, "chain %u block %u: version %u is back, which was evicted before %u", c, b, version,
            floor);
    } else {
        j->blocks++;
        j->bytes += world_block_bytes[chain->size];
    }
}

static int judge_chain(struct world_session *s, uint32_t c, struct judged *j)
{
    const struct world_chain *chain = &s->w->chain[c];
    struct world_read read;
    /* What is there does not go by itself while nobody stores, but memory is small: what is read
     * makes room first. */
    for (unsigned i = 0; i < 20; i++) {
        int err = world_read(s, chain, (enum world_way)(c / WORLD_SIZES % WORLD_WAYS), PATIENCE_MS,
                             &read);
        if (err && err != KVC_STALE)
            return err;
        if (err == 0 && read.hit >= read.present)
            break;
        rig_sleep_ms(SETTLE_MS);
        if (err)
            memset(&read, 0, sizeof read);
    }
    for (uint32_t b = 0; b < read.hit; b++)
        judge_block(j, chain, c, b, read.version[b]);
    for (uint32_t b = 0; b < WORLD_LEN; b++) {
        const bool promised = chain->block[b].durable > 0;
        j->removals += chain->block[b].gone || chain->block[b].removed > 0;
        j->promised += promised;
        if (!promised || b < read.hit)
            continue;
        j->durable_lost++;
        say(j,
            "chain %u block %u (%u bytes) was promised and is not there: %u of the chain told, "
            "%u read",
            c, b, world_block_bytes[chain->size], read.present, read.hit);
    }
    return 0;
}

int judge_chains(struct world_session *s, struct judged *io_judged)
{
    int err = 0;
    for (uint32_t c = 0; c < WORLD_CHAINS && err == 0; c++)
        err = judge_chain(s, c, io_judged);
    return err == 0 && !kvc_is_up(s->k) ? KVC_E_DOWN : err;
}

/* ---- accounts ---- */

struct figures {
    uint64_t blocks, bytes, nvme_blocks;
};

static int on_stat(void *ctx, const struct kvc_stat *stat)
{
    struct figures *f = ctx;
    if (strcmp(stat->name, "core.blocks_present") == 0)
        f->blocks = stat->value;
    else if (strcmp(stat->name, "core.bytes_present") == 0)
        f->bytes = stat->value;
    else if (strcmp(stat->name, "nvme.blocks") == 0)
        f->nvme_blocks = stat->value;
    return 0;
}

struct list {
    struct kvc_ns_info ns[NS_MAX];
    uint32_t n;
    uint64_t blocks, bytes;
};

static int on_ns(void *ctx, const void *row)
{
    struct list *l = ctx;
    const struct kvc_ns_info *info = row;
    if (l->n == NS_MAX)
        return -E2BIG;
    l->ns[l->n++] = *info;
    l->blocks += info->blocks;
    l->bytes += info->bytes;
    return 0;
}

struct roots {
    uint8_t key[WORLD_CHAINS + 1][KVC_KEY_BYTES];
    uint32_t n;
};

static int on_root(void *ctx, const void *row)
{
    struct roots *r = ctx;
    const struct kvc_block_info *block = row;
    if (r->n > WORLD_CHAINS)
        return -E2BIG;
    memcpy(r->key[r->n++], block->key, KVC_KEY_BYTES);
    return 0;
}

static int on_block(void *ctx, const void *row)
{
    struct figures *f = ctx;
    const struct kvc_block_info *block = row;
    if (block->state != KVC_BLOCK_PRESENT)
        return 0;
    f->blocks++;
    f->bytes += block->bytes;
    return 0;
}

static int walk(struct kvc *k, const struct list *l, struct figures *f)
{
    static struct roots roots;
    for (uint32_t i = 0; i < l->n; i++) {
        const struct kvc_filter w = {.mode = KVC_WALK_ROOTS, .ns = l->ns[i].ns};
        roots.n = 0;
        int err = kvc_list(k, KVC_TABLE_BLOCKS, &w, on_root, &roots);
        for (uint32_t r = 0; err == 0 && r < roots.n; r++) {
            const struct kvc_filter down = {
                .mode = KVC_WALK_DOWN, .ns = w.ns, .keys = roots.key[r], .n = 1};
            err = kvc_list(k, KVC_TABLE_BLOCKS, &down, on_block, f);
        }
        if (err)
            return err;
    }
    return 0;
}

/* Storage counts each shard, VERIFY each block. */
static int read_ns(struct kvc *k, const struct kvc_ns_info *ns, struct figures *f, struct judged *j)
{
    struct kvc_verify v = {.ns = ns->ns, .tier = KVC_TIER_NVME, .bytes_max = SLICE_BYTES};
    do {
        static struct kvc_verified got;
        int err = kvc_verify_slice(k, &v, &got);
        if (err)
            return err;
        f->nvme_blocks += (uint64_t)got.blocks * ns->shards;
        j->accounting_errors += got.corrupt + got.failed;
        if (got.corrupt + got.failed > 0)
            say(j, "reading the disk: %u blocks are not as stored, %u could not be read",
                got.corrupt, got.failed);
        v.cursor = got.cursor;
    } while (v.cursor != 0);
    return 0;
}

static int read_disk(struct kvc *k, const struct list *l, struct figures *f, struct judged *j)
{
    int err = 0;
    for (uint32_t i = 0; i < l->n && err == 0; i++)
        err = read_ns(k, &l->ns[i], f, j);
    return err;
}

static bool equal(const struct figures *a, const struct figures *b)
{
    return a->blocks == b->blocks && a->bytes == b->bytes && a->nvme_blocks == b->nvme_blocks;
}

int judge_accounts(struct world_session *s, bool nvme, struct judged *io_judged)
{
    struct figures told = {0}, counted = {0}, listed = {0};
    for (unsigned i = 0; i < SETTLE_TRIES; i++) {
        struct list list = {.n = 0};
        told = counted = (struct figures){0};
        int err = kvc_stats(s->k, on_stat, &told);
        if (err == 0 && !kvc_is_up(s->k))
            err = KVC_E_DOWN;
        if (err == 0)
            err = kvc_list(s->k, KVC_TABLE_NAMESPACES, NULL, on_ns, &list);
        if (err == 0)
            err = walk(s->k, &list, &counted);
        if (err == 0 && nvme)
            err = read_disk(s->k, &list, &counted, io_judged);
        if (err && err != KVC_E_GONE)
            return err;
        if (!nvme)
            told.nvme_blocks = 0;
        if (s->w->spoil == SPOIL_COUNT && counted.blocks > 0)
            counted.blocks--;
        listed = (struct figures){list.blocks, list.bytes, counted.nvme_blocks};
        if (err == 0 && equal(&told, &counted) && equal(&told, &listed))
            return 0;
        rig_sleep_ms(s->w->spoil == SPOIL_COUNT ? 0 : SETTLE_MS);
    }
    io_judged->accounting_errors++;
    say(io_judged,
        "accounts: stats tell %" PRIu64 " blocks, %" PRIu64 " bytes, %" PRIu64 " on disk; a walk "
        "finds %" PRIu64 ", %" PRIu64 ", %" PRIu64 "; namespaces add up to %" PRIu64 ", %" PRIu64,
        told.blocks, told.bytes, told.nvme_blocks, counted.blocks, counted.bytes,
        counted.nvme_blocks, listed.blocks, listed.bytes);
    return 0;
}

/* ---- the device ---- */

void judge_device(const struct world *w, struct judged *io_judged)
{
    struct kvc_device d;
    struct kvc *k = rig_open(w->rig, 0);
    uint64_t mapped = 0, of_workers = 0;
    for (unsigned i = 0; i < SETTLE_TRIES; i++) {
        d = rig_device(k);
        mapped = rig_mapped(w->rig->pid, RIG_DAEMONS_MEMORY);
        of_workers = rig_mapped(w->rig->pid, RIG_WORKERS_MEMORY);
        if (d.imported_bytes == 0 && of_workers == 0 && mapped == d.memory_bytes &&
            d.memory_bytes <= d.limit_bytes && d.used_bytes <= d.memory_bytes &&
            (d.used_bytes == 0) == (d.blocks == 0) && d.outs == 0) {
            kvc_close(&k);
            return;
        }
        rig_sleep_ms(SETTLE_MS);
    }
    kvc_close(&k);
    io_judged->accounting_errors++;
    say(io_judged,
        "device: %" PRIu64 " blocks in %" PRIu64 " bytes of %" PRIu64 " (limit %" PRIu64
        "), %" PRIu64 " mapped; of workers that are gone %" PRIu64 ", %" PRIu64
        " mapped; out %" PRIu64 " times",
        d.blocks, d.used_bytes, d.memory_bytes, d.limit_bytes, mapped, d.imported_bytes, of_workers,
        d.outs);
}
