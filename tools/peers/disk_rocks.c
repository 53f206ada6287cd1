/* SPDX-License-Identifier: Apache-2.0 */
/* RocksDB inside the client's process, values in blob files that are collected. */
#include <malloc.h>
#include <rocksdb/c.h>
#include <stdlib.h>
#include <string.h>

#include "disk_peer.h"
#include "rocks_fail.h"

/* Memory is divided: memtables may have half, blocks a quarter. With more than three memtables
 * RocksDB slows writes down to 16 MB/s when they are nearly full, instead of stopping them for a
 * moment. */
enum { MEMTABLES = 3 };

struct rocks {
    rocksdb_t *db;
    rocksdb_options_t *options;
    rocksdb_block_based_table_options_t *table;
    rocksdb_cache_t *cache;
    rocksdb_writeoptions_t *write;
    rocksdb_readoptions_t *read;
    rocksdb_pinnableslice_t *slice[DISK_THREADS_MAX];
};

static void disk_rocks_close_it(struct disk_peer *peer)
{
    struct rocks *rocks = peer->state;
    if (!rocks)
        return;
    if (rocks->db)
        rocksdb_close(rocks->db);
    rocksdb_readoptions_destroy(rocks->read);
    rocksdb_writeoptions_destroy(rocks->write);
    rocksdb_options_destroy(rocks->options);
    rocksdb_block_based_options_destroy(rocks->table);
    rocksdb_cache_destroy(rocks->cache);
    free(rocks);
    peer->state = NULL;
}

static void disk_rocks_set_options(struct rocks *rocks, const struct disk_plan *plan)
{
    rocksdb_options_t *o = rocks->options;
    rocksdb_options_set_create_if_missing(o, 1);
    rocksdb_options_increase_parallelism(o, 4);
    rocksdb_options_set_compression(o, rocksdb_no_compression);
    rocksdb_options_set_write_buffer_size(o, plan->memory / 2 / MEMTABLES);
    rocksdb_options_set_max_write_buffer_number(o, MEMTABLES);
    rocksdb_block_based_options_set_block_cache(rocks->table, rocks->cache);
    rocksdb_options_set_block_based_table_factory(o, rocks->table);
    /* Settings for large values: they go to blob files once, and files of evicted values are
     * collected. */
    rocksdb_options_set_enable_blob_files(o, 1);
    rocksdb_options_set_min_blob_size(o, 4096);
    rocksdb_options_set_blob_file_size(o, UINT64_C(256) << 20);
    rocksdb_options_set_enable_blob_gc(o, 1);
    rocksdb_options_set_enable_pipelined_write(o, 1);
    if (!plan->cgroup) {
        rocksdb_options_set_use_direct_reads(o, 1);
        rocksdb_options_set_use_direct_io_for_flush_and_compaction(o, 1);
    }
    /* With sync a put is acknowledged after a sync of the log; without it there is no log, because
     * nobody waits for it. */
    rocksdb_writeoptions_set_sync(rocks->write, plan->sync);
    rocksdb_writeoptions_disable_WAL(rocks->write, !plan->sync);
}

static int disk_rocks_open_it(struct disk_peer *peer)
{
    struct rocks *rocks = calloc(1, sizeof(*rocks));
    char *error = NULL;
    if (!rocks) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    peer->state = rocks;
    /* RocksDB allocates memory for each value; fresh pages each time would cost more than the
     * reading. */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    rocks->options = rocksdb_options_create();
    rocks->table = rocksdb_block_based_options_create();
    rocks->cache = rocksdb_cache_create_lru(peer->plan->memory / 4);
    rocks->write = rocksdb_writeoptions_create();
    rocks->read = rocksdb_readoptions_create();
    rocksdb_readoptions_set_verify_checksums(rocks->read, 0);
    disk_rocks_set_options(rocks, peer->plan);
    rocks->db = rocksdb_open(rocks->options, peer->plan->dir, &error);
    return error ? rocks_fail("opening", error) : 0;
}

/* Older blocks have smaller keys, so that files of old blocks become garbage as a whole. */
static void disk_rocks_key_of(uint64_t index, char key[8])
{
    for (int i = 0; i < 8; i++)
        key[i] = (char)(index >> (56 - 8 * i));
}

static int disk_rocks_put(struct disk_peer *peer, uint32_t thread, uint64_t index)
{
    const struct rocks *rocks = peer->state;
    char *error = NULL, key[8];
    disk_rocks_key_of(index, key);
    rocksdb_put(rocks->db, rocks->write, key, sizeof(key), (const char *)peer->buffer[thread],
                peer->plan->block_bytes, &error);
    return error ? rocks_fail("put", error) : 0;
}

static int disk_rocks_evict(struct disk_peer *peer, uint32_t thread, uint64_t index)
{
    const struct rocks *rocks = peer->state;
    char *error = NULL, key[8];
    (void)thread;
    disk_rocks_key_of(index, key);
    /* Not synced, because a block that comes back after a crash does no harm. */
    rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(write, !peer->plan->sync);
    rocksdb_delete(rocks->db, write, key, sizeof(key), &error);
    rocksdb_writeoptions_destroy(write);
    return error ? rocks_fail("delete", error) : 0;
}

static int disk_rocks_get(struct disk_peer *peer, uint32_t thread, uint64_t index,
                          const uint8_t **ret_data)
{
    struct rocks *rocks = peer->state;
    char *error = NULL, key[8];
    size_t bytes = 0;
    disk_rocks_key_of(index, key);
    rocks->slice[thread] = rocksdb_get_pinned(rocks->db, rocks->read, key, sizeof(key), &error);
    if (error || !rocks->slice[thread])
        return rocks_fail("get", error);
    *ret_data = (const uint8_t *)rocksdb_pinnableslice_value(rocks->slice[thread], &bytes);
    if (bytes == peer->plan->block_bytes)
        return 0;
    say_error("RocksDB: a block has %zu bytes", bytes);
    return BENCH_FAILED;
}

static void done(struct disk_peer *peer, uint32_t thread)
{
    struct rocks *rocks = peer->state;
    rocksdb_pinnableslice_destroy(rocks->slice[thread]);
    rocks->slice[thread] = NULL;
}

static int disk_rocks_settle(struct disk_peer *peer)
{
    const struct rocks *rocks = peer->state;
    char *error = NULL;
    rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(options, 1);
    rocksdb_flush(rocks->db, options, &error);
    rocksdb_flushoptions_destroy(options);
    return error ? rocks_fail("flush", error) : 0;
}

const struct disk_ops disk_rocksdb = {
    .name = "RocksDB",
    .settings =
        "in the client's process; blob files of 256 MiB, collected; 3 write buffers that "
        "take half the memory, a block cache of a quarter; synced: WAL with sync, else no "
        "WAL; no compression; no checksums when reading; values where get_pinned puts them; "
        "malloc keeps its pages, and takes large ones",
    .open = disk_rocks_open_it,
    .put = disk_rocks_put,
    .evict = disk_rocks_evict,
    .get = disk_rocks_get,
    .done = done,
    .settle = disk_rocks_settle,
    .close = disk_rocks_close_it,
};
