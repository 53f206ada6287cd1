/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVMe tier: a ring of places, written one behind the other. When writing comes to a segment it
 * is reclaimed: what has a copy in memory is forgotten, what deserves it is written again, and the
 * rest goes, with all below it. What the daemon's store keeps for itself (tables, segments being
 * emptied) is not taken off.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "simulate_cache.h"

#define SEGMENTS       64u
#define SEGMENT_BLOCKS 4096u
#define AHEAD_BLOCKS   64u /* of the write budget, or a segment if that is less */
#define SAMPLES        8u  /* of what is on NVMe, for each request */
/* Segments that are emptied for one block at most: what is kept of them may fill them again. */
#define RECLAIM_MAX 4u

static uint32_t ahead_blocks(const struct sim_cache *c)
{
    return c->segment < AHEAD_BLOCKS ? c->segment : AHEAD_BLOCKS;
}

int sim_nvme_create(struct sim_cache *c)
{
    const uint32_t places = c->config->nvme_blocks;
    c->segment = places / SEGMENTS ? places / SEGMENTS : 1;
    if (c->segment > SEGMENT_BLOCKS)
        c->segment = SEGMENT_BLOCKS;
    c->log = malloc((size_t)places * sizeof(*c->log));
    c->keep = malloc((size_t)c->segment * sizeof(*c->keep));
    c->written_ms = calloc(places, sizeof(*c->written_ms));
    c->admit = malloc(sizeof(*c->admit));
    if (!c->log || !c->keep || !c->written_ms || !c->admit)
        return -ENOMEM;
    memset(c->log, 0xff, (size_t)places * sizeof(*c->log)); /* SIM_NONE */
    admit_init(c->admit, c->config->keep_percent);
    if (c->config->write_budget > 0)
        admit_bound(c->admit, (float)ahead_blocks(c) * (float)c->config->block_bytes);
    return 0;
}

void sim_nvme_destroy(struct sim_cache *c)
{
    free(c->log);
    free(c->keep);
    free(c->written_ms);
    free(c->admit);
}

static float worth_of(const struct sim_cache *c, uint32_t block)
{
    return c->config->ops->worth(c->policy, block, c->now_ms);
}

/* That it is asked for before that place is written over again, if it lasts as long as what was
 * written there last. */
static float chance_of(const struct sim_cache *c, uint32_t block, uint32_t place)
{
    const struct policy_ops *ops = c->config->ops;
    if (!ops->chance || c->written_ms[place] == 0)
        return 1;
    return ops->chance(c->policy, block, c->now_ms - c->written_ms[place], c->now_ms);
}

void sim_nvme_forget(struct sim_cache *c, uint32_t block)
{
    const uint32_t place = c->blocks[block].place;
    if (place == SIM_NONE)
        return;
    c->log[place] = SIM_NONE;
    c->blocks[block].place = SIM_NONE;
}

static void put(struct sim_cache *c, uint32_t block)
{
    c->written_ms[c->head] = c->now_ms;
    c->log[c->head] = block;
    c->blocks[block].place = c->head;
    c->head = (c->head + 1) % c->config->nvme_blocks;
}

/* Empties the segment at the head; what is kept stands in its first places afterwards. */
static void reclaim(struct sim_cache *c)
{
    const uint32_t left = c->config->nvme_blocks - c->head;
    const uint32_t end = c->head + (c->segment < left ? c->segment : left);
    uint32_t n = 0;
    for (uint32_t i = c->head; i < end; i++) {
        const uint32_t block = c->log[i];
        if (block == SIM_NONE)
            continue;
        const struct sim_block *b = &c->blocks[block];
        if (b->host)
            sim_nvme_forget(c, block);
        else if (admit_keep(c->admit, worth_of(c, block), chance_of(c, block, i),
                            c->config->block_bytes, b->used == c->request))
            c->keep[n++] = block;
        else
            sim_kill(c, block);
    }
    /* What was to be kept may have gone since, below what was not. */
    for (uint32_t i = 0; i < n; i++) {
        if (c->blocks[c->keep[i]].place == SIM_NONE)
            continue;
        sim_nvme_forget(c, c->keep[i]);
        put(c, c->keep[i]);
        c->counts.nvme_rewritten++;
    }
}

void sim_nvme_make_room(struct sim_cache *c)
{
    for (unsigned n = 0; n < RECLAIM_MAX && c->log[c->head] != SIM_NONE; n++)
        reclaim(c);
}

bool sim_nvme_write(struct sim_cache *c, uint32_t block)
{
    const struct sim_block *b = &c->blocks[block];
    if (c->log[c->head] != SIM_NONE ||
        !admit_write(c->admit, worth_of(c, block), chance_of(c, block, c->head),
                     c->config->block_bytes, b->child != SIM_NONE))
        return false;
    put(c, block);
    c->counts.nvme_written++;
    return true;
}

void sim_nvme_learn(struct sim_cache *c, uint32_t accesses)
{
    for (unsigned i = 0; i < SAMPLES; i++) {
        const uint32_t block = c->log[sim_random(c) % c->config->nvme_blocks];
        if (block != SIM_NONE && !c->blocks[block].host)
            admit_sample(c->admit, worth_of(c, block));
    }
    if (c->config->write_budget > 0)
        admit_grant(c->admit, (float)(c->config->write_budget * accesses * c->config->block_bytes));
}
