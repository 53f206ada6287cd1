/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpu.h"
#include "nvme_data.h"
#include "pattern.h"
#include "progress.h"

enum { BLOCK_TOKENS = 16, TRIES_MAX = 2000, MOMENTS = 50 };

static int nvme_data_take_count(void *ctx, const struct kvc_stat *stat)
{
    struct nvme_counts *counts = ctx;
    const struct {
        const char *name;
        uint64_t *to;
    } wanted[] = {{"nvme.bytes_accepted", &counts->accepted_bytes},
                  {"nvme.bytes_written", &counts->written_bytes},
                  {"nvme.bytes_read", &counts->read_bytes},
                  {"nvme.writes", &counts->writes},
                  {"nvme.reads", &counts->reads},
                  {"nvme.gets", &counts->gets}};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (strcmp(stat->name, wanted[i].name) == 0) {
            *wanted[i].to = stat->value;
            counts->there = true;
        }
    }
    return 0;
}

int nvme_counts(struct perf_session *session, struct nvme_counts *ret_counts)
{
    struct nvme_counts counts = {0};
    int rc = kvc_stats(session->kvc, nvme_data_take_count, &counts);
    if (rc < 0)
        return perf_fail(session, rc, "stats");
    if (!counts.there) {
        say_error("this daemon says nothing of a tier on storage (statistics nvme.*)");
        return BENCH_FAILED;
    }
    counts.now_ns = now_ns();
    counts.cpu_ns = cpu_process_ns(rig_pid(session->rig));
    *ret_counts = counts;
    return 0;
}

/* ---- requests in flight ---- */

struct flight {
    struct kvc_op *op;
    uint64_t unit;
    uint32_t at; /* index of this flight */
};

struct crew {
    struct perf_session *session;
    struct flight flight[NVME_DEPTH_MAX];
    uint32_t depth, running;
    /* Begins the flight's next request. 0 with flight->op; 0 with NULL: no request is left. */
    int (*begin)(struct crew *crew, struct flight *flight);
    int (*end)(struct crew *crew, struct flight *flight, int rc, struct kvc_result *result);
    void *ctx;
};

static int launch(struct crew *crew, struct flight *flight)
{
    flight->op = NULL;
    int rc = crew->begin(crew, flight);
    if (rc == 0 && flight->op) {
        kvc_op_set_user(flight->op, flight);
        crew->running++;
    }
    return rc;
}

/* Begins the next request as soon as any request ends, as fio does. */
static int fly(struct crew *crew)
{
    struct kvc *kvc = crew->session->kvc;
    struct pollfd ready = {.fd = kvc_fd(kvc), .events = POLLIN};
    int rc = ready.fd < 0 ? perf_fail(crew->session, ready.fd, "kvc_fd") : 0;
    for (uint32_t i = 0; rc == 0 && i < crew->depth; i++) {
        crew->flight[i].at = i;
        rc = launch(crew, &crew->flight[i]);
    }
    while (rc == 0 && crew->running > 0) {
        struct kvc_op *op;
        if (kvc_progress(kvc) <= 0 && poll(&ready, 1, 1000) < 0 && errno != EINTR)
            return perf_fail(crew->session, -errno, "poll");
        while (rc == 0 && kvc_next(kvc, &op) > 0) {
            struct flight *flight = kvc_op_user(op);
            struct kvc_result result;
            int ended = kvc_finish(&op, &result);
            crew->running--;
            rc = crew->end(crew, flight, ended, &result);
            if (rc == 0)
                rc = launch(crew, flight);
        }
    }
    return rc;
}

/* ---- storing ---- */

struct storing {
    struct kvc_ns *ns;
    /* Its blocks have contents by their keys; NULL: the bytes that lie in staging are stored. */
    const struct nvme_data *data;
    uint64_t block_bytes, stream, units, done; /* done: units begun */
    uint32_t chain;
    uint64_t until_ns;       /* 0 = all units */
    uint64_t refused_blocks; /* memory had no room at that moment */
    uint32_t tries;
    uint64_t unit_of[NVME_DEPTH_MAX];
    bool again[NVME_DEPTH_MAX];
    uint64_t stored_blocks;
};

static const uint8_t *nvme_data_keys_of(const struct nvme_data *data, uint64_t unit)
{
    return data->keys + unit * data->chain * KVC_KEY_BYTES;
}

/* The blocks of the n-th store: a unit or, if scattered, one block of each unit in turn. */
static struct kvc_blocks data_blocks(const struct nvme_data *data, uint64_t n)
{
    if (!data->scattered)
        return (struct kvc_blocks){.keys = nvme_data_keys_of(data, n), .n = data->chain};
    uint32_t at = (uint32_t)(n / data->units);
    const uint8_t *key = nvme_data_keys_of(data, n % data->units) + (size_t)at * KVC_KEY_BYTES;
    return (struct kvc_blocks){.keys = key,
                               .n = 1,
                               .parent = at ? key - KVC_KEY_BYTES : NULL,
                               .first_token = at * BLOCK_TOKENS};
}

static struct kvc_blocks new_blocks(const struct storing *s, uint64_t n, uint8_t *keys)
{
    for (uint32_t i = 0; i < s->chain; i++)
        perf_key(s->stream, n * s->chain + i, keys + (size_t)i * KVC_KEY_BYTES);
    return (struct kvc_blocks){.keys = keys, .n = s->chain};
}

static int nvme_data_store_begin(struct crew *crew, struct flight *flight)
{
    struct storing *s = crew->ctx;
    uint8_t keys[KVC_STORE_MAX * KVC_KEY_BYTES];
    uint64_t offsets[KVC_STORE_MAX];
    uint64_t share = crew->session->staging_bytes / crew->depth / 64 * 64;
    if (!s->again[flight->at]) {
        if (s->until_ns ? now_ns() >= s->until_ns : s->done == s->units)
            return 0;
        flight->unit = s->done++;
    }
    const struct kvc_blocks blocks =
        s->data ? data_blocks(s->data, flight->unit) : new_blocks(s, flight->unit, keys);
    for (uint32_t i = 0; i < blocks.n; i++) {
        offsets[i] = flight->at * share + i * s->block_bytes;
        if (s->data)
            pattern_fill(blocks.keys + (size_t)i * KVC_KEY_BYTES,
                         crew->session->staging + offsets[i], s->block_bytes);
    }
    int rc = kvc_store_begin(s->ns, &blocks, offsets, NULL, 0, &flight->op);
    return rc < 0 ? perf_fail(crew->session, rc, "store") : 0;
}

static int nvme_data_store_end(struct crew *crew, struct flight *flight, int rc,
                               struct kvc_result *result)
{
    struct storing *s = crew->ctx;
    struct timespec pause = {.tv_nsec = 1000000};
    uint32_t refused = 0;
    if (rc < 0)
        return perf_fail(crew->session, rc, "store");
    for (uint32_t i = 0; i < result->n; i++) {
        if (result->statuses[i] == KVC_ST_FULL || result->statuses[i] == KVC_ST_NO_PARENT)
            refused++;
        else if (result->statuses[i] != KVC_ST_OK && result->statuses[i] != KVC_ST_EXISTS)
            return perf_statuses(result->statuses + i, 1);
        else
            s->stored_blocks++;
    }
    s->refused_blocks += refused;
    /* The disk is behind. A block that must be cached is stored again a little later. */
    s->again[flight->at] = refused && !s->until_ns;
    if (refused)
        nanosleep(&pause, NULL);
    if (refused && !s->until_ns && ++s->tries > TRIES_MAX) {
        say_error("the daemon had no room %d times while %" PRIu64 " blocks were stored", TRIES_MAX,
                  s->done * s->chain);
        return BENCH_FAILED;
    }
    if (s->data)
        progress_show(false, "nvme: storing, %" PRIu64 " units", s->done);
    return 0;
}

static int nvme_data_store_all(struct perf_session *session, struct storing *storing,
                               uint32_t depth)
{
    struct crew crew = {.session = session,
                        .depth = depth,
                        .begin = nvme_data_store_begin,
                        .end = nvme_data_store_end,
                        .ctx = storing};
    int rc = fly(&crew);
    progress_clear();
    return rc;
}

/* A stream number for perf_key() that this process has not used. */
static uint64_t new_stream(void)
{
    static uint64_t streams = 100;
    return streams++;
}

static void shuffle(uint32_t *order, uint32_t n)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (uint32_t i = n; i > 1; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t j = (uint32_t)((state >> 33) % i), swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}

int nvme_data_make(struct perf_session *session, uint64_t block_bytes, uint32_t chain,
                   uint64_t bytes, bool scattered, uint32_t depth, uint64_t step_bytes,
                   struct nvme_data *ret_data)
{
    struct nvme_data data = {.block_bytes = block_bytes,
                             .chain = chain,
                             .units = (uint32_t)(bytes / (chain * block_bytes)),
                             .scattered = scattered};
    struct storing storing = {
        .block_bytes = block_bytes, .chain = scattered ? 1 : chain, .stream = new_stream()};
    uint64_t stores = (uint64_t)data.units * (scattered ? chain : 1);
    uint64_t blocks = (uint64_t)data.units * chain;
    data.keys = malloc(blocks * KVC_KEY_BYTES);
    data.order = malloc(data.units * sizeof(*data.order));
    *ret_data = data;
    if (!data.keys || !data.order || data.units == 0) {
        say_error("no memory for the keys of %" PRIu64 " blocks", blocks);
        return BENCH_FAILED;
    }
    for (uint64_t i = 0; i < blocks; i++)
        perf_key(storing.stream, i, data.keys + i * KVC_KEY_BYTES);
    for (uint32_t i = 0; i < data.units; i++)
        data.order[i] = i;
    if (scattered)
        shuffle(data.order, data.units);
    int rc = perf_namespace(session, block_bytes);
    ret_data->ns = storing.ns = session->ns;
    storing.data = ret_data;
    /* A worker that stores faster than the disk writes loses blocks, because the daemon evicts them
     * unwritten. */
    while (rc == 0 && storing.units < stores) {
        uint64_t left = stores - storing.units, step = step_bytes / (storing.chain * block_bytes);
        storing.units += step == 0 ? 1 : step < left ? step : left;
        rc = nvme_data_store_all(session, &storing, depth);
        int drained = rc == 0 ? perf_drain(session->kvc) : 0;
        if (drained < 0)
            rc = perf_fail(session, drained, "drain");
    }
    return rc;
}

void nvme_data_drop(struct nvme_data *data)
{
    free(data->keys);
    free(data->order);
    data->keys = NULL;
    data->order = NULL;
}

/* ---- reading ---- */

struct reading {
    struct nvme_data *data;
    uint64_t begun, units; /* units: how many to read; 0 = until the time is over */
    uint64_t until_ns, done_bytes, wrong_bytes, missing;
    uint8_t reason; /* enum kvc_miss of the first missing block */
    bool check;
};

static int nvme_data_acquire_begin(struct crew *crew, struct flight *flight)
{
    struct reading *r = crew->ctx;
    struct nvme_data *data = r->data;
    if (r->units ? r->begun == r->units : now_ns() >= r->until_ns)
        return 0;
    r->begun++;
    flight->unit = data->order[data->next++ % data->units];
    struct kvc_seq seq = {
        .tokens = data->chain * BLOCK_TOKENS,
        .group = {{.keys = nvme_data_keys_of(data, flight->unit), .n = data->chain}}};
    int rc = kvc_acquire_begin(data->ns, &seq, NULL, &flight->op);
    return rc < 0 ? perf_fail(crew->session, rc, "acquire") : 0;
}

static void check_unit(struct reading *r, const struct flight *flight, const struct kvc_hold *hold)
{
    const uint8_t *keys = nvme_data_keys_of(r->data, flight->unit);
    for (uint32_t i = 0; i < hold->group[0].n; i++)
        r->wrong_bytes += pattern_wrong_bytes(keys + (size_t)i * KVC_KEY_BYTES,
                                              hold->group[0].block[i].data, r->data->block_bytes);
    progress_show(false, "nvme: checking, %" PRIu64 " of %" PRIu64, r->begun, r->units);
}

static int acquire_end(struct crew *crew, struct flight *flight, int rc, struct kvc_result *result)
{
    struct reading *r = crew->ctx;
    if (rc < 0)
        return perf_fail(crew->session, rc, "acquire");
    uint32_t n = result->hold->group[0].n;
    r->done_bytes += n * r->data->block_bytes;
    if (n < r->data->chain && r->missing == 0)
        r->reason = result->hold->prefix.group[0].reason;
    r->missing += r->data->chain - n;
    if (r->check)
        check_unit(r, flight, result->hold);
    rc = kvc_hold_check(result->hold);
    kvc_release(crew->session->kvc, &result->hold);
    return rc < 0 ? perf_fail(crew->session, rc, "reading a block under lease") : 0;
}

static int read_units(struct perf_session *session, struct reading *reading, uint32_t depth)
{
    struct crew crew = {.session = session,
                        .depth = depth,
                        .begin = nvme_data_acquire_begin,
                        .end = acquire_end,
                        .ctx = reading};
    int rc = fly(&crew);
    progress_clear();
    if (rc == 0 && reading->missing) {
        say_error("%" PRIu64 " blocks of %" PRIu64 " chains that were stored were not given: %s",
                  reading->missing, reading->begun, kvc_miss_text(reading->reason));
        return BENCH_FAILED;
    }
    return rc;
}

int nvme_check(struct perf_session *session, struct nvme_data *data, uint32_t depth)
{
    struct reading reading = {.data = data, .units = data->units, .check = true};
    int rc = read_units(session, &reading, depth);
    if (rc == 0 && reading.wrong_bytes) {
        say_error("%" PRIu64 " bytes are not what was stored", reading.wrong_bytes);
        return BENCH_WRONG;
    }
    return rc;
}

int nvme_read(struct perf_session *session, struct nvme_data *data, uint32_t depth, double seconds,
              struct nvme_run *ret_run)
{
    struct nvme_run run = {0};
    int rc = nvme_counts(session, &run.before);
    uint64_t begun = now_ns();
    struct reading reading = {.data = data, .until_ns = begun + (uint64_t)(seconds * 1e9)};
    if (rc == 0)
        rc = read_units(session, &reading, depth);
    run.seconds = (double)(now_ns() - begun) * 1e-9;
    run.bytes = reading.done_bytes;
    if (rc == 0)
        rc = nvme_counts(session, &run.after);
    *ret_run = run;
    return rc;
}

/* ---- writing ---- */

int nvme_write(struct perf_session *session, uint64_t block_bytes, uint32_t chain, uint32_t depth,
               double seconds, struct nvme_run *ret_run)
{
    struct nvme_run run = {0};
    uint64_t lead_ns = (uint64_t)(seconds * 1e9) / 4;
    struct storing storing = {.ns = session->ns,
                              .block_bytes = block_bytes,
                              .chain = chain,
                              .stream = new_stream(),
                              .until_ns = now_ns() + lead_ns};
    /* Not measured, until memory and the queue are full. */
    int rc = nvme_data_store_all(session, &storing, depth);
    uint64_t stored = storing.stored_blocks;
    if (rc == 0)
        rc = nvme_counts(session, &run.before);
    run.after = run.before;
    /* On a slow machine storage may take no block for a moment. */
    for (int i = 0; rc == 0 && i < MOMENTS && run.after.accepted_bytes == run.before.accepted_bytes;
         i++) {
        storing.until_ns = run.after.now_ns + (uint64_t)(seconds * 1e9);
        rc = nvme_data_store_all(session, &storing, depth);
        if (rc == 0)
            rc = nvme_counts(session, &run.after);
    }
    run.seconds = (double)(run.after.now_ns - run.before.now_ns) * 1e-9;
    run.bytes = (storing.stored_blocks - stored) * block_bytes;
    run.refused_blocks = storing.refused_blocks;
    *ret_run = run;
    return rc;
}
