/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of a hot set that pauses while a scan passes. The numbers of struct sim_scan determine
 * everything, so that policies can be compared block by block by the part of the hot set that is
 * left.
 */
#include <errno.h>
#include <stdlib.h>

#include "simulate.h"

enum {
    ROUND_MS = 10, /* time in which the whole hot set is asked for once */
    STREAMS = 8,
    BURSTS = 4,
    BURST_PART = 50, /* a burst lasts this part of the pause */
    REUSED_EACH = 3, /* one chain in so many is asked for again, */
    REUSED_AFTER = 4 /* after so many other chains */
};

struct scan_maker {
    const struct sim_scan *scan;
    struct trace *trace;
    size_t requests_max, ids_max;
};

static uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void scan_ask(struct scan_maker *m, uint64_t at_ms, uint64_t id, uint32_t blocks,
                     bool stored)
{
    struct trace *t = m->trace;
    if (t->n_requests == m->requests_max || t->n_ids + blocks > m->ids_max)
        return;
    t->requests[t->n_requests++] = (struct trace_request){
        .timestamp_ms = at_ms, .blocks = blocks, .first = t->n_ids, .stored = stored};
    for (uint32_t i = 0; i < blocks; i++)
        t->ids[t->n_ids++] = id + i;
    t->blocks_max = blocks > t->blocks_max ? blocks : t->blocks_max;
}

/* Asks for the whole hot set, evenly over a round. */
static void scan_ask_hot(struct scan_maker *m, uint64_t begin_ms)
{
    const struct sim_scan *s = m->scan;
    for (uint32_t at = 0; at < s->hot; at += s->chain)
        scan_ask(m, begin_ms + (uint64_t)ROUND_MS * at / s->hot, at, lesser(s->chain, s->hot - at),
                 false);
}

/* The time in the pause at which a block comes that has `blocks` of the scan before it. */
static uint64_t scan_time(const struct sim_scan *s, uint64_t blocks)
{
    const uint64_t pause = s->pause_ms, volume = s->volume;
    if (s->kind != SIM_SCAN_BURSTS)
        return pause * blocks / volume;
    const uint64_t each = volume / BURSTS + 1, burst = blocks / each,
                   end = pause * (burst + 1) / BURSTS;
    return end - pause / BURST_PART + pause / BURST_PART * (blocks % each) / each;
}

/* The length of a chain; one of several clients has shorter chains than another. */
static uint32_t scan_length(const struct sim_scan *s, uint32_t number)
{
    const uint32_t part = s->kind == SIM_SCAN_MANY ? number % STREAMS + 1 : STREAMS;
    const uint32_t length = s->chain * part / STREAMS;
    return length > 0 ? length : 1;
}

static void scan_pass(struct scan_maker *m, uint64_t begin_ms)
{
    const struct sim_scan *s = m->scan;
    uint64_t first[REUSED_AFTER] = {0};
    uint32_t blocks[REUSED_AFTER] = {0}, done = 0;
    for (uint32_t number = 0; done < s->volume; number++) {
        const uint32_t n = lesser(scan_length(s, number), s->volume - done);
        const uint64_t at_ms = begin_ms + scan_time(s, done), id = UINT64_C(1000000000) + done;
        const unsigned slot = number % REUSED_AFTER;
        if (s->kind == SIM_SCAN_REUSED && blocks[slot] > 0)
            scan_ask(m, at_ms, first[slot], blocks[slot], false);
        scan_ask(m, at_ms, id, n, s->stored);
        first[slot] = id;
        blocks[slot] = number % REUSED_EACH == 0 ? n : 0;
        done += n;
    }
}

int sim_scan(const struct sim_scan *scan, struct trace **ret_trace, size_t *ret_after)
{
    struct trace *trace = calloc(1, sizeof(*trace));
    const size_t rounds = scan->active_ms / ROUND_MS + 1;
    struct scan_maker m = {.scan = scan,
                           .trace = trace,
                           .requests_max = (rounds + 1) * (scan->hot / scan->chain + 1) +
                                           2 * (size_t)scan->volume,
                           .ids_max = (rounds + 1) * scan->hot + 2 * (size_t)scan->volume};
    if (trace) {
        trace->requests = calloc(m.requests_max, sizeof(*trace->requests));
        trace->ids = calloc(m.ids_max, sizeof(*trace->ids));
    }
    if (!trace || !trace->requests || !trace->ids) {
        trace_destroy(&trace);
        return -ENOMEM;
    }
    for (size_t i = 0; i < rounds; i++)
        scan_ask_hot(&m, i * ROUND_MS);
    scan_pass(&m, rounds * ROUND_MS);
    *ret_after = trace->n_requests;
    scan_ask_hot(&m, rounds * ROUND_MS + scan->pause_ms);
    *ret_trace = trace;
    return 0;
}

const char *sim_scan_name(enum sim_scan_kind kind)
{
    static const char *const names[SIM_SCAN_KINDS] = {[SIM_SCAN_STREAM] = "stream",
                                                      [SIM_SCAN_MANY] = "many",
                                                      [SIM_SCAN_BURSTS] = "bursts",
                                                      [SIM_SCAN_REUSED] = "reused"};
    return names[kind];
}
