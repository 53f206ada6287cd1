/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "cpu.h"
#include "measure.h"
#include "pattern.h"
#include "perf.h"

#define SLOW_PASS_NS UINT64_C(4000000000)

typedef int work_fn(struct peer *peer, uint32_t first, uint32_t n);

static uint64_t measure_cpu_ns(const struct peer *peer)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    uint64_t us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
                  (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    return us * 1000 + (peer->rig ? cpu_family_ns(rig_pid(peer->rig)) : 0);
}

static int timed(struct peer *peer, work_fn *work, uint32_t first, uint32_t n, uint64_t *ret_ns)
{
    peer->own_ns = 0;
    uint64_t begun = now_ns();
    int rc = work(peer, first, n);
    uint64_t ns = now_ns() - begun;
    *ret_ns = peer->own_ns ? peer->own_ns : ns;
    return rc;
}

/* Works on the whole working set, again and again, for at least plan->seconds; on eighths of it if
 * a pass takes long. */
static int rate(struct peer *peer, work_fn *work, uint64_t pass_ns, double *ret_rate,
                double *ret_cpu)
{
    const struct peer_plan *plan = peer->plan;
    uint32_t n = pass_ns > SLOW_PASS_NS && plan->blocks >= 8 ? plan->blocks / 8 : plan->blocks;
    uint64_t spent = 0, bytes = 0, cpu = measure_cpu_ns(peer);
    int rc = 0;
    for (uint32_t at = 0; rc == 0 && (double)spent < plan->seconds * 1e9;
         at = at + 2 * n <= plan->blocks ? at + n : 0) {
        uint64_t ns;
        rc = timed(peer, work, at, n, &ns);
        spent += ns;
        bytes += n * plan->block_bytes;
    }
    perf_keep(peer->sum);
    *ret_rate = (double)bytes / ((double)spent * 1e-9);
    if (ret_cpu)
        *ret_cpu =
            (double)(measure_cpu_ns(peer) - cpu) / (double)bytes; /* ns per byte = s per 1e9 */
    return rc;
}

/* Requests of one block, spread over the working set. */
static int singles(struct peer *peer, work_fn *work, struct lat *lat)
{
    uint32_t n = peer->plan->singles, blocks = peer->plan->blocks;
    uint32_t step = blocks > n ? blocks / n : 1;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        uint64_t ns;
        rc = timed(peer, work, (uint32_t)((uint64_t)i * step % blocks), 1, &ns);
        lat_add(lat, ns);
    }
    return rc;
}

static int measure_fill(struct peer *peer)
{
    const struct peer_plan *plan = peer->plan;
    peer->target = perf_private_memory(plan->block_bytes);
    if (!peer->source)
        peer->source = perf_private_memory(plan->blocks * plan->block_bytes);
    if (!peer->target || !peer->source)
        return BENCH_FAILED;
    for (uint32_t i = 0; i < plan->blocks; i++) {
        uint8_t key[KVC_KEY_BYTES];
        peer_content_key(i, key);
        pattern_fill(key, peer->source + i * plan->block_bytes, plan->block_bytes);
    }
    return 0;
}

static int measure_check(struct peer *peer, work_fn *work, struct peer_result *result,
                         uint64_t *ret_ns)
{
    const struct peer_plan *plan = peer->plan;
    peer->wrong_bytes = 0;
    peer->use = PEER_CHECK;
    int rc = timed(peer, work, 0, plan->blocks, ret_ns);
    result->checked_bytes += plan->blocks * plan->block_bytes;
    result->wrong_bytes += peer->wrong_bytes;
    if (rc == 0 && peer->wrong_bytes) {
        say_error("%s gave back %llu wrong bytes", peer->ops->name,
                  (unsigned long long)peer->wrong_bytes);
        return BENCH_WRONG;
    }
    return rc;
}

static int measure_loads(struct peer *peer, struct peer_result *result)
{
    uint32_t round = result->rounds;
    uint64_t pass_ns;
    int rc = peer->ops->check ? measure_check(peer, peer->ops->check, result, &pass_ns) : 0;
    for (unsigned way = 0; rc == 0 && peer->ops->load[way].how; way++) {
        work_fn *load = peer->ops->load[way].run;
        rc = measure_check(peer, load, result, &pass_ns);
        peer->use = PEER_TAKE;
        if (rc == 0)
            rc = rate(peer, load, pass_ns, &result->value[measure_load(M_TAKE, way)][round], NULL);
        peer->use = PEER_READ;
        if (rc == 0)
            rc = rate(peer, load, pass_ns, &result->value[measure_load(M_READ, way)][round],
                      &result->value[measure_load(M_LOAD_CPU, way)][round]);
        if (rc == 0)
            rc = singles(peer, load, &result->load[way]);
    }
    return rc;
}

static int measure(struct peer *peer, struct peer_result *result)
{
    const struct peer_ops *ops = peer->ops;
    uint32_t round = result->rounds, fills = ops->fills ? ops->fills : 2;
    uint64_t pass_ns = 0;
    int rc = measure_fill(peer);
    for (uint32_t i = 0; rc == 0 && i < fills; i++)
        rc = timed(peer, ops->store, 0, peer->plan->blocks, &pass_ns);
    if (rc == 0)
        rc = rate(peer, ops->store, pass_ns, &result->value[M_STORE][round],
                  &result->value[M_STORE_CPU][round]);
    if (rc == 0)
        rc = singles(peer, ops->store, &result->store);
    if (rc == 0 && ops->settle)
        rc = ops->settle(peer);
    return rc == 0 ? measure_loads(peer, result) : rc;
}

int measure_round(const struct peer_ops *ops, const struct peer_plan *plan,
                  struct peer_result *result)
{
    struct peer peer = {.ops = ops, .plan = plan};
    int rc = ops->open(&peer);
    if (rc == 0)
        rc = measure(&peer, result);
    if (peer.version[0])
        memcpy(result->version, peer.version, sizeof(result->version));
    ops->close(&peer);
    if (rc == 0)
        result->rounds++;
    return rc;
}
