/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many chunks make a limit exact.
 *
 * A chunk loses a page or more to its header, a page or more per slab to slot headers, and at its
 * end the rest that no slot fits in. The loss is largest, relatively, for slots just above a
 * sixteenth of a chunk: a little more than 1/16 of the chunk. So the count is found by asking the
 * allocator's own rule how many pages of slots a chunk holds, for every slot size up to that, and
 * dividing the limit by the least of these: about limit + limit / 16 (up to 1/12 where chunks are
 * small). Two more let a second principal begin, and a chunk change hands, at full load.
 */
#include "arena__.h"

#define MIB (UINT64_C(1) << 20)

uint32_t arena__run_min(uint32_t slot_pages)
{
    return MAX(ARENA_RUN_MIN, slot_pages + 1);
}

uint32_t arena__slab_fit(uint32_t run, uint32_t slot_pages, uint32_t *ret_pages)
{
    if (run < arena__run_min(slot_pages))
        return 0;
    const uint64_t run_bytes = (uint64_t)run << LAYOUT_PAGE_SHIFT;
    const uint64_t each = ((uint64_t)slot_pages << LAYOUT_PAGE_SHIFT) + sizeof(struct slot_header);
    uint32_t slots = MIN(MAX(ARENA_SLAB_PAGES / slot_pages, 1), LAYOUT_SLAB_SLOTS);
    slots = (uint32_t)MIN(slots, (run_bytes - sizeof(struct slab_header)) / each);
    /* Rounding the headers up to a page may cost another slot, or a few small ones. */
    while (layout_header_pages(slots) + slots * slot_pages > run)
        slots--;
    *ret_pages = MAX(layout_header_pages(slots) + slots * slot_pages, ARENA_RUN_MIN);
    return slots;
}

static uint32_t slots_per_chunk(uint32_t chunk_pages, uint32_t slot_pages)
{
    uint32_t run = chunk_pages - layout_chunk_header_pages(chunk_pages);
    uint32_t pages;
    uint32_t slots = arena__slab_fit(run, slot_pages, &pages);
    if (slots == 0)
        return 0;
    uint32_t total = slots * (run / pages);
    run %= pages;
    for (; (slots = arena__slab_fit(run, slot_pages, &pages)) != 0; run -= pages)
        total += slots;
    return total;
}

static uint64_t chunk_bytes_of(const struct arena_config *config)
{
    if (config->chunk_bytes != 0)
        return config->chunk_bytes;
    const uint64_t bytes = ROUND_UP(config->limit_bytes / 32, 2 * MIB);
    return MIN(MAX(bytes, 4 * MIB), ARENA_CHUNK_MAX);
}

const char *arena_config_problem(const struct arena_config *config)
{
    if (config->backing.persist != ARENA_PERSIST_OFF && config->names_max == 0)
        return "limits.namespaces must be at least 1 where host.persist keeps blocks";
    if (config->limit_bytes < ARENA_LIMIT_MIN || config->limit_bytes > ARENA_LIMIT_MAX)
        return "host.limit must be 4MiB to 8TiB";
    if (config->chunk_bytes == 0)
        return NULL;
    if (config->chunk_bytes % (2 * MIB) != 0 || config->chunk_bytes < ARENA_CHUNK_MIN ||
        config->chunk_bytes > ARENA_CHUNK_MAX)
        return "host.chunk must be auto, or 2MiB to 1GiB and a multiple of 2MiB";
    if (config->limit_bytes / config->chunk_bytes > 16384)
        return "host.chunk is too small for host.limit: at most 16384 chunks, each of which takes "
               "two descriptors";
    if (config->chunk_bytes > config->limit_bytes)
        return "host.chunk must not be larger than host.limit";
    if (config->chunks != 0 && config->chunks != config->limit_bytes / config->chunk_bytes)
        return "a number of chunks must be the limit divided by the chunk's size";
    return NULL;
}

static uint32_t chunks_for(uint64_t limit_bytes, uint32_t chunk_pages)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t s = 1; s <= chunk_pages / 16; s++)
        least = MIN(least, (uint64_t)slots_per_chunk(chunk_pages, s) * s);
    MUST(least > 0); /* chunks of the smallest size hold the largest of these slots */
    least <<= LAYOUT_PAGE_SHIFT;
    return (uint32_t)((limit_bytes + least - 1) / least) + 2;
}

void arena__tables(uint32_t chunks, uint32_t chunk_pages, struct arena_tables *ret_tables)
{
    const uint64_t pages = (uint64_t)chunks * chunk_pages;
    struct arena_tables t = {.slabs_max = (uint32_t)(pages / ARENA_RUN_MIN)};
    t.classes_max = MIN(t.slabs_max, ARENA_CLASSES_MAX);
    for (t.buckets = 64; t.buckets < t.classes_max;)
        t.buckets *= 2;
    const uint64_t bytes[ARENA_TABLES] = {
        [ARENA_TABLE_CHUNKS] = chunks * sizeof(struct arena_chunk),
        [ARENA_TABLE_BITS] = pages / 8,
        [ARENA_TABLE_PAGES] = pages * sizeof(struct arena_page),
        [ARENA_TABLE_SLABS] = t.slabs_max * sizeof(struct arena_slab),
        [ARENA_TABLE_CLASSES] = t.classes_max * sizeof(struct arena_class),
        [ARENA_TABLE_BUCKETS] = t.buckets * sizeof(uint32_t),
    };
    for (unsigned i = 0; i < ARENA_TABLES; i++) {
        t.at[i] = t.bytes;
        t.bytes += ROUND_UP(bytes[i], LAYOUT_PAGE_BYTES);
    }
    *ret_tables = t;
}

void arena_sizes(const struct arena_config *config, struct arena_sizes *ret_sizes)
{
    MUST(arena_config_problem(config) == NULL);
    const uint64_t chunk_bytes = chunk_bytes_of(config);
    const uint32_t chunk_pages = (uint32_t)(chunk_bytes >> LAYOUT_PAGE_SHIFT);
    const uint32_t chunks =
        config->chunks != 0 ? config->chunks : chunks_for(config->limit_bytes, chunk_pages);
    const uint64_t total = chunks * chunk_bytes;
    struct arena_tables tables;
    arena__tables(chunks, chunk_pages, &tables);
    /* With the headers of 4 KiB slots; larger slots need less. So this covers what is used first.
     */
    const uint64_t likely = config->limit_bytes + config->limit_bytes / 32 + chunk_bytes;
    *ret_sizes = (struct arena_sizes){
        .chunk_bytes = chunk_bytes,
        .chunks = chunks,
        .largest_bytes = chunk_bytes -
                         (layout_chunk_header_pages(chunk_pages) + 1) * (uint64_t)LAYOUT_PAGE_BYTES,
        .chunk_total_bytes = total + chunk_bytes,
        .table_bytes = tables.bytes + (config->backing.persist != ARENA_PERSIST_OFF
                                           ? ns_records_bytes(config->names_max)
                                           : 0),
        .prefault_bytes = config->prefault ? MIN(total, likely) : 0,
        .likely_bytes = MIN(total, likely),
        /* The slot bytes per chunk that chunks_for() divided the limit by. */
        .yield_bytes = config->chunks != 0 ? 0 : (config->limit_bytes + chunks - 3) / (chunks - 2),
    };
}

uint64_t arena_reach_bytes(const struct arena_config *config, uint32_t bytes)
{
    struct arena_sizes sizes;
    arena_sizes(config, &sizes);
    const uint32_t slot_pages = arena__slot_pages(MAX(bytes, 1));
    const uint64_t slot_bytes = (uint64_t)slot_pages << LAYOUT_PAGE_SHIFT;
    const uint64_t slots =
        (uint64_t)sizes.chunks *
        slots_per_chunk((uint32_t)(sizes.chunk_bytes >> LAYOUT_PAGE_SHIFT), slot_pages);
    return MIN(slots, config->limit_bytes / slot_bytes) * slot_bytes;
}

uint64_t arena_fill_bytes(const struct arena *a, uint32_t slot_bytes)
{
    const uint32_t slot_pages = slot_bytes >> LAYOUT_PAGE_SHIFT;
    return (uint64_t)slots_per_chunk(a->chunk_pages, slot_pages) * slot_bytes;
}
