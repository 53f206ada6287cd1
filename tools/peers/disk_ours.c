/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcache-daemon with a store on disk, and host memory of half of what a peer may use; a session
 * for each thread. Without sync the daemon evicts by itself, within a limit. It never drops durable
 * blocks by itself, so with sync each put is followed by evicting the oldest block by its key.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvcache/admin.h>
#include <kvcache/kvcache.h>

#include "disk_peer.h"
#include "perf.h"

enum { BLOCK_TOKENS = 16, FULL_TRIES = 5000 };

struct seat {
    struct kvc *kvc;
    struct kvc_ns *ns;
    struct kvc_hold *hold;
};

struct ours {
    struct seat seat[DISK_THREADS_MAX];
};

static int disk_ours_fail(struct kvc *kvc, int error, const char *call)
{
    const char *text = kvc_last_error(kvc);
    say_error("%s: %s: %s", call, kvc_error_name(error), text[0] ? text : kvc_error_text(error));
    return say_exit_code(error);
}

static void disk_ours_close_it(struct disk_peer *peer)
{
    struct ours *ours = peer->state;
    for (uint32_t i = 0; ours && i < peer->plan->threads; i++)
        kvc_close(&ours->seat[i].kvc);
    rig_stop(&peer->rig);
    free(ours);
    peer->state = NULL;
}

static int open_seat(struct disk_peer *peer, uint32_t thread)
{
    struct ours *ours = peer->state;
    struct seat *seat = &ours->seat[thread];
    struct kvc_options options = {.socket = rig_socket(peer->rig),
                                  .name = "peerdisk",
                                  .staging_bytes = peer->plan->block_bytes,
                                  .timeout_ms = 120000,
                                  .must_connect = true};
    uint64_t staging = 0;
    int rc = kvc_open(&options, &seat->kvc);
    if (rc < 0)
        return disk_ours_fail(seat->kvc, rc, "connecting");
    rc = perf_ns_open(seat->kvc, peer->plan->block_bytes, "peerdisk", &seat->ns);
    if (rc < 0)
        return disk_ours_fail(seat->kvc, rc, "opening a namespace");
    peer->buffer[thread] = kvc_staging(seat->kvc, &staging);
    if (peer->buffer[thread] && staging >= peer->plan->block_bytes)
        return 0;
    say_error("the daemon grants no staging for a block");
    return BENCH_FAILED;
}

static int disk_ours_open_it(struct disk_peer *peer)
{
    const struct disk_plan *plan = peer->plan;
    struct rig_options options = {.daemon_path = plan->daemon_path, .store_in = plan->dir};
    uint64_t kept = plan->blocks * plan->block_bytes;
    uint64_t staging = plan->block_bytes + (UINT64_C(64) << 10);
    peer->state = calloc(1, sizeof(struct ours));
    if (!peer->state) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    rig_set(&options, "host.limit=%" PRIu64, plan->memory / 2);
    /* Durable blocks may take half of a store, of which a few segments are partly empty. */
    rig_set(&options, "nvme.limit=%" PRIu64,
            plan->sync ? kept / 2 * 5 + (UINT64_C(64) << 20) : kept / 4 * 5);
    rig_set(&options, "staging.session_max=%" PRIu64, staging);
    rig_set(&options, "staging.total=%" PRIu64, staging * plan->threads);
    rig_set(&options, "log.level=warn");
    int rc = rig_start(&options, &peer->rig);
    if (rc == 0)
        rc = perf_quiet(peer->rig, "has formatted its store");
    for (uint32_t i = 0; rc == 0 && i < plan->threads; i++)
        rc = open_seat(peer, i);
    return rc;
}

static void disk_ours_key_of(uint64_t index, uint8_t key[KVC_KEY_BYTES])
{
    perf_key(UINT64_C(0x6469736b), index, key);
}

static int disk_ours_put(struct disk_peer *peer, uint32_t thread, uint64_t index)
{
    const struct ours *ours = peer->state;
    const struct seat *seat = &ours->seat[thread];
    struct timespec pause = {.tv_nsec = 1000000};
    uint8_t key[KVC_KEY_BYTES], status = KVC_ST_FULL;
    uint64_t offset = 0;
    disk_ours_key_of(index, key);
    struct kvc_blocks blocks = {
        .keys = key, .n = 1, .flags = peer->plan->sync ? (unsigned)KVC_F_DURABLE : 0};
    for (int tries = 0; status == KVC_ST_FULL && tries < FULL_TRIES; tries++) {
        if (tries > 0)
            nanosleep(&pause, NULL);
        int rc = kvc_store(seat->ns, &blocks, &offset, NULL, 0, &status);
        if (rc < 0)
            return disk_ours_fail(seat->kvc, rc, "store");
    }
    return status == KVC_ST_EXISTS ? 0 : perf_statuses(&status, 1);
}

static int disk_ours_evict(struct disk_peer *peer, uint32_t thread, uint64_t index)
{
    const struct ours *ours = peer->state;
    const struct seat *seat = &ours->seat[thread];
    uint8_t key[KVC_KEY_BYTES];
    if (!peer->plan->sync)
        return 0;
    disk_ours_key_of(index, key);
    struct kvc_evict_filter filter = {.ns = kvc_ns_id(seat->ns), .key = key};
    struct kvc_evicted evicted;
    int rc = kvc_evict(seat->kvc, &filter, &evicted);
    return rc < 0 ? disk_ours_fail(seat->kvc, rc, "evict") : 0;
}

static int disk_ours_get(struct disk_peer *peer, uint32_t thread, uint64_t index,
                         const uint8_t **ret_data)
{
    struct ours *ours = peer->state;
    struct seat *seat = &ours->seat[thread];
    uint8_t key[KVC_KEY_BYTES];
    disk_ours_key_of(index, key);
    struct kvc_seq seq = {.tokens = BLOCK_TOKENS, .group = {{.keys = key, .n = 1}}};
    int rc = kvc_acquire(seat->ns, &seq, NULL, &seat->hold);
    if (rc < 0)
        return disk_ours_fail(seat->kvc, rc, "acquire");
    if (seat->hold->group[0].n == 1) {
        *ret_data = seat->hold->group[0].block[0].data;
        return 0;
    }
    kvc_release(seat->kvc, &seat->hold);
    return DISK_MISS;
}

static void done(struct disk_peer *peer, uint32_t thread)
{
    struct ours *ours = peer->state;
    kvc_release(ours->seat[thread].kvc, &ours->seat[thread].hold);
}

static int accepted(struct disk_peer *peer, uint64_t *ret_bytes)
{
    const struct ours *ours = peer->state;
    int rc = perf_stat(ours->seat[0].kvc, "nvme.bytes_accepted", ret_bytes);
    return rc < 0 ? disk_ours_fail(ours->seat[0].kvc, rc, "stats") : 0;
}

static int disk_ours_settle(struct disk_peer *peer)
{
    const struct ours *ours = peer->state;
    int rc = perf_drain(ours->seat[0].kvc);
    return rc < 0 ? disk_ours_fail(ours->seat[0].kvc, rc, "drain") : 0;
}

const struct disk_ops disk_ours = {
    .name = "kvcache-daemon",
    .settings = "defaults; host memory of half of what is given; a session per thread, blocks read "
                "in place; synced: stored with KVC_F_DURABLE, the oldest evicted by name",
    .open = disk_ours_open_it,
    .put = disk_ours_put,
    .evict = disk_ours_evict,
    .get = disk_ours_get,
    .done = done,
    .accepted = accepted,
    .settle = disk_ours_settle,
    .close = disk_ours_close_it,
};
