/* SPDX-License-Identifier: Apache-2.0 */
/* RocksDB inside the client's process, values in blob files. */
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "rocks_fail.h"

struct rocks {
    rocksdb_t *db;
    rocksdb_options_t *options;
    rocksdb_writeoptions_t *write;
    rocksdb_readoptions_t *read;
};

static void rocks_close_it(struct peer *peer)
{
    struct rocks *rocks = peer->state;
    if (!rocks)
        return;
    if (rocks->db)
        rocksdb_close(rocks->db);
    rocksdb_readoptions_destroy(rocks->read);
    rocksdb_writeoptions_destroy(rocks->write);
    rocksdb_options_destroy(rocks->options);
    free(rocks);
    peer->state = NULL;
}

/* Settings for large values: they go to blob files once and are never moved. */
static void rocks_set_options(rocksdb_options_t *options)
{
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_increase_parallelism(options, 2);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_set_enable_blob_files(options, 1);
    rocksdb_options_set_min_blob_size(options, 4096);
    rocksdb_options_set_blob_file_size(options, UINT64_C(256) << 20);
    rocksdb_options_set_write_buffer_size(options, (size_t)256 << 20);
    rocksdb_options_set_max_write_buffer_number(options, 6);
}

static int rocks_open_it(struct peer *peer)
{
    struct rocks *rocks = calloc(1, sizeof(*rocks));
    if (!rocks) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    snprintf(peer->version, sizeof(peer->version), "RocksDB %s", PEER_ROCKSDB);
    rocks->options = rocksdb_options_create();
    rocks->write = rocksdb_writeoptions_create();
    rocks->read = rocksdb_readoptions_create();
    peer->state = rocks;
    rocks_set_options(rocks->options);
    rocksdb_writeoptions_disable_WAL(rocks->write, 1);
    rocksdb_writeoptions_set_sync(rocks->write, 0);
    rocksdb_readoptions_set_verify_checksums(rocks->read, 0);
    char *error = NULL;
    rocks->db = rocksdb_open(rocks->options, peer->plan->disk, &error);
    return error ? rocks_fail("opening", error) : 0;
}

static int rocks_store(struct peer *peer, uint32_t first, uint32_t n)
{
    const struct rocks *rocks = peer->state;
    uint64_t bytes = peer->plan->block_bytes;
    char key[PEER_KEY_BYTES];
    for (uint32_t i = first; i < first + n; i++) {
        char *error = NULL;
        peer_text_key(i, key);
        rocksdb_put(rocks->db, rocks->write, key, strlen(key),
                    (const char *)peer->source + i * bytes, bytes, &error);
        if (error)
            return rocks_fail("put", error);
    }
    return 0;
}

static int rocks_settle(struct peer *peer)
{
    const struct rocks *rocks = peer->state;
    char *error = NULL;
    rocksdb_flushoptions_t *options = rocksdb_flushoptions_create();
    rocksdb_flushoptions_set_wait(options, 1);
    rocksdb_flush(rocks->db, options, &error);
    rocksdb_flushoptions_destroy(options);
    return error ? rocks_fail("flush", error) : 0;
}

static int rocks_load(struct peer *peer, uint32_t first, uint32_t n)
{
    const struct rocks *rocks = peer->state;
    char key[PEER_KEY_BYTES];
    for (uint32_t i = first; i < first + n; i++) {
        char *error = NULL;
        size_t bytes = 0;
        peer_text_key(i, key);
        rocksdb_pinnableslice_t *slice =
            rocksdb_get_pinned(rocks->db, rocks->read, key, strlen(key), &error);
        if (error || !slice)
            return rocks_fail("get", error);
        const char *value = rocksdb_pinnableslice_value(slice, &bytes);
        if (bytes != peer->plan->block_bytes) {
            say_error("RocksDB: block %u has %zu bytes", i, bytes);
            rocksdb_pinnableslice_destroy(slice);
            return BENCH_FAILED;
        }
        peer_use_block(peer, i, value);
        rocksdb_pinnableslice_destroy(slice);
    }
    return 0;
}

const struct peer_ops peer_rocksdb = {
    .name = "RocksDB",
    .settings = "in the client's process; blob files of 256 MiB, 6 write buffers of 256 MiB, no "
                "write-ahead log, no sync, no compression, no blob collection, no checksums when "
                "reading; values used where "
                "get_pinned puts them, files in the page cache",
    .open = rocks_open_it,
    .store = rocks_store,
    .settle = rocks_settle,
    .load = {{.how = "get_pinned", .run = rocks_load}},
    .close = rocks_close_it,
};
