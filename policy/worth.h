/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load or recompute: how much of a cached prefix reaches a worker sooner by a load than by
 * computing it again. Pure: no clock, I/O, lock, log or memory of its own.
 *
 * A prefix of `cached` tokens is cached. To use its first t tokens costs their load, and the
 * prefill of the other cached ones; tokens behind the prefix are computed in any case. The cut is
 * the t with the least sum; of equal ones the largest.
 */
#ifndef KVC_WORTH_H
#define KVC_WORTH_H

#include <stdbool.h>
#include <stdint.h>

/* What prefill costs: a token, and 1e-6 ns for each token before it. Both 0: unknown. */
struct worth_cost {
    uint64_t ns_per_token, ns_per_token_pair;
};

/* What reading takes now. A rate of 0: unknown, so that it costs nothing. */
struct worth_speed {
    uint64_t host_bytes_per_s;
    uint64_t disk_bytes_per_s;
    uint64_t disk_latency_ns; /* until the first bytes come, of an idle disk */
    uint64_t disk_busy_bytes; /* on their way: they come before ours */
    uint64_t disk_wait_bytes; /* that others want and have not begun */
    uint32_t disk_waiters;    /* others who wait for them; everybody gets an equal part */
};

/* What a prefix needs. */
struct worth_load {
    uint64_t host_bytes;
    uint64_t disk_bytes;   /* that nobody loads yet */
    uint64_t shared_bytes; /* on disk, and waited for by others already */
    uint64_t busy_bytes;   /* on their way already */
};

struct worth {
    struct worth_cost cost;
    struct worth_speed speed;
    uint32_t cached;
    uint32_t from;
    double total_ns; /* of the best so far */

    uint32_t ret_tokens; /* the cut */
    uint64_t ret_load_ns;
};

/* Of computing tokens from .. to - 1, when those before are there. */
double worth_prefill_ns(const struct worth_cost *cost, uint32_t from, uint32_t to);
double worth_load_ns(const struct worth_speed *speed, const struct worth_load *load);

/* The cut is at 0 so far. The cost must be known. from, at most cached: so many the asker has. */
void worth_begin(struct worth *w, const struct worth_cost *cost, const struct worth_speed *speed,
                 uint32_t from, uint32_t cached);
/* A prefix of so many tokens, 1 to cached, is possible; in ascending order. */
void worth_offer(struct worth *w, uint32_t tokens, const struct worth_load *load);

/* Whether host memory alone is quicker than prefill by any cut, for a prefix of which no token
 * takes more than bytes_per_token: there is nothing to weigh then. */
bool worth_host_always(const struct worth_cost *cost, const struct worth_speed *speed,
                       double bytes_per_token);

/* ---- what a disk does, learned from what it did ---- */

/* Zeroed: nothing known. */
struct worth_meter {
    uint64_t window_ns;             /* when the window at hand began */
    uint64_t window_bytes;          /* that came in it */
    uint64_t window_first;          /* that were on their way before any came in it */
    uint64_t window_deep;           /* the most that was on its way at a time */
    bool idle_before;               /* nothing was on its way when it began */
    double bytes_per_s, latency_ns; /* 0: not known yet */
    double late_bytes;              /* of the last read that latency was learned from */
};
/* `bytes` more are on their way, besides `inflight` that were. */
void worth_meter_begin(struct worth_meter *m, uint64_t bytes, uint64_t inflight, uint64_t now_ns);
/* `bytes` came (ok), or did not; `inflight` are left. */
void worth_meter_end(struct worth_meter *m, uint64_t bytes, bool ok, uint64_t inflight,
                     uint64_t now_ns);
/* Whether anything has been read. */
bool worth_meter_knows(const struct worth_meter *m);
/* Rate and latency as they are now: what has been on its way for long counts before it comes. */
void worth_meter_now(const struct worth_meter *m, uint64_t inflight, uint64_t now_ns,
                     struct worth_speed *speed);

#endif
