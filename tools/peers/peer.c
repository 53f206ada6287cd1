/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pattern.h"
#include "peer.h"
#include "perf.h"

#define CONTENT_STREAM UINT64_C(0x706565720a)

const struct peer_ops *const peers[] = {&peer_ours,
                                        &peer_ours_copied,
                                        &peer_memcached,
                                        &peer_redis,
                                        &peer_hiredis,
                                        &peer_rocksdb,
                                        &peer_lmcache_cpu,
                                        &peer_lmcache_disk,
                                        &peer_lmcache_server,
                                        &peer_tmpfs,
                                        &peer_disk,
                                        &peer_slots,
                                        NULL};

/* Peers that this program was built without are listed too, with the reason. */
#ifndef PEER_HIREDIS
static const char *no_hiredis(const struct peer_plan *plan)
{
    (void)plan;
    return "built without hiredis (Debian: libhiredis-dev)";
}

const struct peer_ops peer_hiredis = {.name = "redis, hiredis", .missing = no_hiredis};
#endif

#ifndef PEER_ROCKSDB
static const char *no_rocksdb(const struct peer_plan *plan)
{
    (void)plan;
    return "built without RocksDB (Debian: librocksdb-dev)";
}

const struct peer_ops peer_rocksdb = {.name = "RocksDB", .missing = no_rocksdb};
#endif

void peer_content_key(uint32_t index, uint8_t key[])
{
    perf_key(CONTENT_STREAM, index, key);
}

void peer_text_key(uint32_t index, char key[PEER_KEY_BYTES])
{
    uint8_t bytes[KVC_KEY_BYTES];
    uint64_t words[2];
    peer_content_key(index, bytes);
    memcpy(words, bytes, sizeof(words));
    snprintf(key, PEER_KEY_BYTES, "kv:%016llx%016llx", (unsigned long long)words[0],
             (unsigned long long)words[1]);
}

void peer_use_block(struct peer *peer, uint32_t index, const void *data)
{
    if (peer->use == PEER_READ) {
        peer->sum += perf_read(data, peer->plan->block_bytes);
    } else if (peer->use == PEER_CHECK) {
        uint8_t key[KVC_KEY_BYTES];
        peer_content_key(index, key);
        peer->wrong_bytes += pattern_wrong_bytes(key, data, peer->plan->block_bytes);
    }
}

bool peer_has_program(const char *name)
{
    const char *list = getenv("PATH");
    char path[PATH_MAX];
    while (list && *list) {
        size_t n = strcspn(list, ":");
        snprintf(path, sizeof(path), "%.*s/%s", (int)n, list, name);
        if (access(path, X_OK) == 0)
            return true;
        list += n + (list[n] == ':');
    }
    return false;
}
