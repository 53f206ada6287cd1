/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcache-daemon. Values lie in the session's staging area, where a worker's copy from the GPU
 * would put them (peer_ours), or are copied to it first (peer_ours_copied). Every store has new
 * keys and evicts old blocks: the cache is full before anything is measured.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"
#include "perf.h"

enum { DEPTH = 4, BLOCK_TOKENS = 16 };

#define STORE_BYTES (UINT64_C(32) << 20) /* bytes of one request, if there are enough blocks */
#define LEASE_BYTES (UINT64_C(32) << 20)

struct batch {
    struct kvc_op *op;
    uint32_t first, n;
};

struct ours {
    struct perf_session session;
    bool copied;
    uint64_t pass; /* number of the pass of stores, which makes its keys new */
    uint8_t *keys; /* key under which each block was stored last */
    struct batch batch[DEPTH];
};

static uint32_t batch_blocks(const struct peer *peer, uint64_t bytes, uint32_t max)
{
    uint64_t n = bytes / peer->plan->block_bytes;
    return n == 0 ? 1 : n > max ? max : (uint32_t)n;
}

static void ours_close_it(struct peer *peer)
{
    struct ours *ours = peer->state;
    if (!ours)
        return;
    peer->rig = NULL; /* the session owns it */
    perf_close(&ours->session);
    free(ours->keys);
    free(ours);
    peer->state = NULL;
}

static int connect_ours(struct peer *peer, struct ours *ours, uint64_t staging_bytes)
{
    const struct peer_plan *plan = peer->plan;
    struct rig_options options = {.daemon_path = plan->daemon_path};
    uint64_t working_set = plan->blocks * plan->block_bytes;
    /* Room for twice the working set and a chunk, because any cache has blocks of more than one
     * user. */
    rig_set(&options, "host.limit=%" PRIu64, 2 * working_set + (UINT64_C(64) << 20));
    rig_set(&options, "staging.session_max=%" PRIu64, staging_bytes);
    rig_set(&options, "staging.total=%" PRIu64, staging_bytes);
    rig_set(&options, "log.level=warn");
    int rc = perf_open(&options, staging_bytes, &ours->session);
    if (rc == 0)
        peer->rig = ours->session.rig;
    if (rc == 0)
        rc = perf_settle(&ours->session);
    return rc == 0 ? perf_namespace(&ours->session, plan->block_bytes) : rc;
}

static int open_either(struct peer *peer, bool copied)
{
    const struct peer_plan *plan = peer->plan;
    struct ours *ours = calloc(1, sizeof(*ours));
    uint8_t *keys = malloc((size_t)plan->blocks * KVC_KEY_BYTES);
    if (!ours || !keys) {
        free(ours);
        free(keys);
        say_error("out of memory");
        return BENCH_FAILED;
    }
    ours->keys = keys;
    ours->copied = copied;
    peer->state = ours;
    snprintf(peer->version, sizeof(peer->version), "kvcache-daemon " PEER_DAEMON_VERSION);
    uint64_t staging_bytes = copied ? DEPTH * STORE_BYTES : plan->blocks * plan->block_bytes;
    int rc = connect_ours(peer, ours, staging_bytes);
    if (rc == 0 && !copied)
        peer->source = ours->session.staging;
    return rc;
}

static int ours_open_it(struct peer *peer)
{
    return open_either(peer, false);
}

static int open_copied(struct peer *peer)
{
    return open_either(peer, true);
}

static uint8_t *ours_key_of(const struct ours *ours, uint32_t index)
{
    return ours->keys + (size_t)index * KVC_KEY_BYTES;
}

static int ours_store_begin(struct peer *peer, uint32_t slot, uint32_t first, uint32_t n)
{
    struct ours *ours = peer->state;
    uint64_t offsets[KVC_STORE_MAX], bytes = peer->plan->block_bytes;
    struct batch *batch = &ours->batch[slot];
    batch->first = first;
    batch->n = n;
    for (uint32_t i = 0; i < n; i++) {
        perf_key(ours->pass, first + i, ours_key_of(ours, first + i));
        offsets[i] = ours->copied ? slot * STORE_BYTES + i * bytes : (first + i) * bytes;
    }
    if (ours->copied)
        memcpy(ours->session.staging + offsets[0], peer->source + first * bytes, n * bytes);
    struct kvc_blocks blocks = {.keys = ours_key_of(ours, first), .n = n, .flags = KVC_F_ADMIT};
    int rc = kvc_store_begin(ours->session.ns, &blocks, offsets, NULL, 0, &batch->op);
    return rc < 0 ? perf_fail(&ours->session, rc, "store") : 0;
}

static int ours_store_end(struct peer *peer, uint32_t slot)
{
    struct ours *ours = peer->state;
    uint8_t statuses[KVC_STORE_MAX];
    int rc = kvc_wait(&ours->batch[slot].op, NULL, NULL, statuses);
    return rc < 0 ? perf_fail(&ours->session, rc, "store")
                  : perf_statuses(statuses, ours->batch[slot].n);
}

static int ours_store(struct peer *peer, uint32_t first, uint32_t n)
{
    struct ours *ours = peer->state;
    uint32_t size = batch_blocks(peer, STORE_BYTES, 32), begun = 0, done = 0;
    uint32_t batches = (n + size - 1) / size;
    int rc = 0;
    ours->pass++;
    for (; rc == 0 && done < batches; done++) {
        for (; rc == 0 && begun < batches && begun - done < DEPTH; begun++) {
            uint32_t at = begun * size;
            rc = ours_store_begin(peer, begun % DEPTH, first + at, n - at < size ? n - at : size);
        }
        if (rc == 0)
            rc = ours_store_end(peer, done % DEPTH);
    }
    return rc;
}

static int lease_begin(struct peer *peer, uint32_t slot, uint32_t first, uint32_t n)
{
    struct ours *ours = peer->state;
    struct batch *batch = &ours->batch[slot];
    batch->first = first;
    batch->n = n;
    struct kvc_seq seq = {.tokens = n * BLOCK_TOKENS,
                          .group = {{.keys = ours_key_of(ours, first), .n = n}}};
    int rc = kvc_acquire_begin(ours->session.ns, &seq, NULL, &batch->op);
    return rc < 0 ? perf_fail(&ours->session, rc, "acquire") : 0;
}

static int lease_use(struct peer *peer, uint32_t slot, bool copy)
{
    struct ours *ours = peer->state;
    struct batch *batch = &ours->batch[slot];
    struct kvc_hold *hold;
    int rc = kvc_wait(&batch->op, NULL, &hold, NULL);
    if (rc < 0)
        return perf_fail(&ours->session, rc, "acquire");
    uint32_t n = hold->group[0].n;
    for (uint32_t i = 0; i < n; i++) {
        const void *data = hold->group[0].block[i].data;
        if (copy)
            data = memcpy(peer->target, data, peer->plan->block_bytes);
        peer_use_block(peer, batch->first + i, data);
    }
    rc = kvc_hold_check(hold);
    kvc_release(ours->session.kvc, &hold);
    if (rc < 0)
        return perf_fail(&ours->session, rc, "reading a block under lease");
    if (n == batch->n)
        return 0;
    say_error("of %u blocks that were stored %u are cached", batch->n, n);
    return BENCH_FAILED;
}

/* Asks for the next leases while the blocks of this one are used. */
static int ours_load(struct peer *peer, uint32_t first, uint32_t n, bool copy)
{
    uint32_t size = batch_blocks(peer, LEASE_BYTES, KVC_STORE_MAX), begun = 0, done = 0;
    uint32_t batches = (n + size - 1) / size;
    int rc = 0;
    for (; rc == 0 && done < batches; done++) {
        for (; rc == 0 && begun < batches && begun - done < DEPTH; begun++) {
            uint32_t at = begun * size;
            rc = lease_begin(peer, begun % DEPTH, first + at, n - at < size ? n - at : size);
        }
        if (rc == 0)
            rc = lease_use(peer, done % DEPTH, copy);
    }
    return rc;
}

static int load_in_place(struct peer *peer, uint32_t first, uint32_t n)
{
    return ours_load(peer, first, n, false);
}

static int load_copy(struct peer *peer, uint32_t first, uint32_t n)
{
    return ours_load(peer, first, n, true);
}

const struct peer_ops peer_ours = {
    .name = "kvcache-daemon",
    .settings = "defaults; stores from staging of up to 32 blocks, leases of 32 MiB, 4 requests in "
                "flight; every store evicts",
    .open = ours_open_it,
    .store = ours_store,
    .load = {{.how = "in place", .run = load_in_place}, {.how = "copied out", .run = load_copy}},
    .close = ours_close_it,
};

const struct peer_ops peer_ours_copied = {
    .name = "kvcache-daemon, copied in",
    .settings = "the same, each value first copied into staging by the client",
    .open = open_copied,
    .store = ours_store,
    .check = load_in_place,
    .close = ours_close_it,
};
