/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures one peer on disk: stores blocks, reads them in order and at random, checks the bytes and
 * takes the times.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cpu.h"
#include "disk_peer.h"
#include "perf.h"
#include "progress.h"

#define PAGE_BYTES 4096u

enum phase { FILL, PUT, CHECK, GET };

struct turn {
    struct disk_peer peer;
    enum phase phase;
    uint64_t count;  /* requests of the current phase */
    uint32_t *order; /* order in which the kept blocks are read */
    _Atomic uint64_t next;
    _Atomic int trouble; /* the first enum bench_exit */
    _Atomic uint64_t missed, wrong_bytes;
};

struct hand {
    struct turn *turn;
    uint32_t number;
    struct lat lat;
    pthread_t thread;
};

/* Writes the block's number to each page, so that another or older block is recognised. */
static void stamp(uint8_t *block, uint64_t bytes, uint64_t index)
{
    for (uint64_t at = 0; at < bytes; at += PAGE_BYTES) {
        uint64_t words[2] = {index * 0x9e3779b97f4a7c15u + 1, at};
        memcpy(block + at, words, sizeof(words));
    }
}

static uint8_t filler(uint64_t at)
{
    return (uint8_t)(at * 131 + (at >> 8) * 17);
}

static uint64_t wrong_bytes(const uint8_t *block, uint64_t bytes, uint64_t index)
{
    uint64_t wrong = 0;
    for (uint64_t at = 0; at < bytes; at += PAGE_BYTES) {
        uint64_t words[2] = {index * 0x9e3779b97f4a7c15u + 1, at};
        wrong += memcmp(block + at, words, sizeof(words)) == 0 ? 0 : sizeof(words);
        for (uint64_t i = sizeof(words); i < PAGE_BYTES; i++)
            wrong += block[at + i] != filler(i);
    }
    return wrong;
}

static int put_one(struct hand *hand, uint64_t i)
{
    struct turn *turn = hand->turn;
    struct disk_peer *peer = &turn->peer;
    const struct disk_plan *plan = peer->plan;
    uint64_t index = turn->phase == FILL ? i : plan->blocks + i;
    stamp(peer->buffer[hand->number], plan->block_bytes, index);
    uint64_t begun = now_ns();
    int rc = peer->ops->put(peer, hand->number, index);
    if (rc == 0 && turn->phase == PUT && peer->ops->evict)
        rc = peer->ops->evict(peer, hand->number, index - plan->blocks);
    lat_add(&hand->lat, now_ns() - begun);
    return rc;
}

static int get_one(struct hand *hand, uint64_t i)
{
    struct turn *turn = hand->turn;
    struct disk_peer *peer = &turn->peer;
    const struct disk_plan *plan = peer->plan;
    uint64_t index = plan->puts + turn->order[i % plan->blocks];
    const uint8_t *data = NULL;
    uint64_t begun = now_ns();
    int rc = peer->ops->get(peer, hand->number, index, &data);
    if (rc == DISK_MISS) {
        atomic_fetch_add(&turn->missed, 1);
        return 0;
    }
    if (rc != 0)
        return rc;
    lat_add(&hand->lat, now_ns() - begun);
    if (turn->phase == CHECK)
        atomic_fetch_add(&turn->wrong_bytes, wrong_bytes(data, plan->block_bytes, index));
    if (peer->ops->done)
        peer->ops->done(peer, hand->number);
    return 0;
}

static void *disk_measure_work(void *arg)
{
    struct hand *hand = arg;
    struct turn *turn = hand->turn;
    while (!atomic_load(&turn->trouble)) {
        uint64_t i = atomic_fetch_add(&turn->next, 1);
        if (i >= turn->count)
            break;
        int rc = turn->phase <= PUT ? put_one(hand, i) : get_one(hand, i);
        int none = 0;
        if (rc != 0)
            atomic_compare_exchange_strong(&turn->trouble, &none, rc);
    }
    return NULL;
}

static uint64_t disk_measure_cpu_ns(const struct disk_peer *peer)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    uint64_t us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
                  (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    return us * 1000 + (peer->rig ? cpu_family_ns(rig_pid(peer->rig)) : 0);
}

/* Bytes that the process has sent to disks, or made the page cache send. */
static uint64_t written(const struct disk_peer *peer)
{
    char path[64], line[128];
    unsigned long long bytes = 0;
    snprintf(path, sizeof(path), "/proc/%d/io", peer->rig ? rig_pid(peer->rig) : (int)getpid());
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f) && sscanf(line, "write_bytes: %llu", &bytes) != 1)
        continue;
    if (f)
        fclose(f);
    return bytes;
}

static int run_phase(struct turn *turn, enum phase phase, uint64_t count, struct lat *lat,
                     double *ret_seconds)
{
    static const char *const names[] = {"filling", "putting", "comparing", "getting"};
    struct hand *hands = calloc(turn->peer.plan->threads, sizeof(*hands));
    uint32_t running = 0;
    if (!hands) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    progress_show(true, "peerdisk: %s: %s %" PRIu64 " blocks", turn->peer.ops->name, names[phase],
                  count);
    turn->phase = phase;
    turn->count = count;
    atomic_store(&turn->next, 0);
    atomic_store(&turn->missed, 0);
    uint64_t begun = now_ns();
    for (; running < turn->peer.plan->threads; running++) {
        hands[running] = (struct hand){.turn = turn, .number = running};
        if (pthread_create(&hands[running].thread, NULL, disk_measure_work, &hands[running]) != 0) {
            say_error("no thread to work with");
            atomic_store(&turn->trouble, BENCH_FAILED);
            break;
        }
    }
    for (uint32_t i = 0; i < running; i++) {
        pthread_join(hands[i].thread, NULL);
        if (lat)
            lat_merge(lat, &hands[i].lat);
    }
    *ret_seconds = (double)(now_ns() - begun) * 1e-9;
    free(hands);
    return atomic_load(&turn->trouble);
}

static int accepted(struct turn *turn, uint64_t *ret_bytes)
{
    *ret_bytes = 0;
    return turn->peer.ops->accepted ? turn->peer.ops->accepted(&turn->peer, ret_bytes) : 0;
}

/* Counts only bytes that reached storage, in the rate and in the ratio of writes. */
static int puts_timed(struct turn *turn, struct disk_result *result)
{
    const struct disk_plan *plan = turn->peer.plan;
    uint64_t before = 0, after = 0, put = plan->puts * plan->block_bytes;
    double seconds;
    int rc = run_phase(turn, FILL, plan->blocks, NULL, &seconds);
    if (rc == 0)
        rc = accepted(turn, &before);
    uint64_t cpu = disk_measure_cpu_ns(&turn->peer), disk = written(&turn->peer);
    if (rc == 0)
        rc = run_phase(turn, PUT, plan->puts, &result->put, &seconds);
    cpu = disk_measure_cpu_ns(&turn->peer) - cpu;
    disk = written(&turn->peer) - disk;
    if (rc == 0)
        rc = accepted(turn, &after);
    if (rc != 0)
        return rc;
    uint64_t taken = turn->peer.ops->accepted ? after - before : put;
    double bytes = (double)(taken < put ? taken : put);
    result->value[D_PUT][result->rounds] = bytes / seconds;
    result->value[D_PUT_CPU][result->rounds] = bytes > 0 ? (double)cpu / bytes : 0;
    result->value[D_AMPLIFICATION][result->rounds] = taken ? (double)disk / (double)taken : 0;
    return 0;
}

/* Reads all blocks once in the order in which they are read again, so that memory has lost each
 * block before its turn comes. */
static int gets_timed(struct turn *turn, struct disk_result *result)
{
    const struct disk_plan *plan = turn->peer.plan;
    double seconds;
    int rc = run_phase(turn, CHECK, plan->blocks, NULL, &seconds);
    result->checked_bytes += (plan->blocks - atomic_load(&turn->missed)) * plan->block_bytes;
    result->wrong_bytes += atomic_load(&turn->wrong_bytes);
    if (rc == 0 && atomic_load(&turn->wrong_bytes)) {
        say_error("%s gave back %" PRIu64 " wrong bytes", turn->peer.ops->name,
                  atomic_load(&turn->wrong_bytes));
        return BENCH_WRONG;
    }
    uint64_t cpu = disk_measure_cpu_ns(&turn->peer);
    if (rc == 0)
        rc = run_phase(turn, GET, plan->blocks, &result->get, &seconds);
    uint64_t missed = atomic_load(&turn->missed);
    double bytes = (double)(plan->blocks - missed) * (double)plan->block_bytes;
    result->value[D_GET][result->rounds] = bytes / seconds;
    result->value[D_GET_CPU][result->rounds] =
        bytes > 0 ? (double)(disk_measure_cpu_ns(&turn->peer) - cpu) / bytes : 0;
    result->value[D_MISSED][result->rounds] = (double)missed / (double)plan->blocks;
    return rc;
}

static int make_order(struct turn *turn)
{
    uint32_t n = turn->peer.plan->blocks;
    uint64_t state = 0x9e3779b97f4a7c15u;
    turn->order = malloc(n * sizeof(*turn->order));
    for (uint32_t i = 0; turn->order && i < n; i++)
        turn->order[i] = i;
    for (uint32_t i = n; turn->order && i > 1; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t j = (uint32_t)((state >> 33) % i), swap = turn->order[i - 1];
        turn->order[i - 1] = turn->order[j];
        turn->order[j] = swap;
    }
    if (turn->order)
        return 0;
    say_error("out of memory");
    return BENCH_FAILED;
}

static int make_buffers(struct disk_peer *peer)
{
    const struct disk_plan *plan = peer->plan;
    for (uint32_t i = 0; i < plan->threads; i++) {
        if (!peer->buffer[i])
            peer->buffer[i] = perf_private_memory(plan->block_bytes);
        if (!peer->buffer[i])
            return BENCH_FAILED;
        for (uint64_t at = 0; at < plan->block_bytes; at++)
            peer->buffer[i][at] = filler(at % PAGE_BYTES);
    }
    return 0;
}

int disk_measure(const struct disk_ops *ops, const struct disk_plan *plan,
                 struct disk_result *result)
{
    struct turn turn = {.peer = {.ops = ops, .plan = plan}};
    int rc = make_order(&turn);
    if (rc == 0)
        rc = ops->open(&turn.peer);
    if (rc == 0)
        rc = make_buffers(&turn.peer);
    if (rc == 0)
        rc = puts_timed(&turn, result);
    if (rc == 0 && ops->settle)
        rc = ops->settle(&turn.peer);
    if (rc == 0)
        rc = gets_timed(&turn, result);
    ops->close(&turn.peer);
    free(turn.order);
    if (rc == 0)
        result->rounds++;
    return rc;
}
