/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes which part of a cached prefix is loaded and which is computed again (worth_offer()), and
 * estimates the rate and latency of reads from those that have ended.
 */
#include "worth.h"

#define NS_PER_S 1e9
/* A pair's cost is in 1e-6 ns. */
#define PAIR_NS 1e-6
/* So much on its way keeps a drive busy: what comes then is its rate. Of less, time is latency. */
#define DEEP_BYTES (4u << 20)
/* A window ends when nothing is on its way; else after so long, once as much has come as was on its
 * way before: what comes late may come all at once. */
#define WINDOW_NS 100000000u
/* A read so many times larger than the last small one tells a rate, if it takes half as many times
 * longer. */
#define GROWN 4.0
/* Weight of a sample: a disk that turns slow is found out within two or three. */
#define WEIGHT .5

/* ---- what things cost ---- */

double worth_prefill_ns(const struct worth_cost *cost, uint32_t from, uint32_t to)
{
    const double n = (double)to - from, pairs = n * ((double)to + from) / 2;
    return (double)cost->ns_per_token * n + PAIR_NS * (double)cost->ns_per_token_pair * pairs;
}

static double bytes_ns(double bytes, uint64_t bytes_per_s)
{
    return bytes_per_s != 0 ? bytes * NS_PER_S / (double)bytes_per_s : 0;
}

double worth_load_ns(const struct worth_speed *speed, const struct worth_load *load)
{
    const double host = bytes_ns((double)load->host_bytes, speed->host_bytes_per_s);
    if (load->disk_bytes == 0 && load->shared_bytes == 0 && load->busy_bytes == 0)
        return host;
    /* Those who wait take turns: each gets as far as we do meanwhile, and not beyond its end. What
     * we share is among what they wait for. */
    const double ours = (double)load->disk_bytes, shared = (double)load->shared_bytes;
    const double waiting = (double)speed->disk_wait_bytes;
    double others = waiting > shared ? waiting - shared : 0;
    if (others > ours * speed->disk_waiters)
        others = ours * speed->disk_waiters;
    const double bytes = (double)speed->disk_busy_bytes + shared + ours + others;
    return host + (double)speed->disk_latency_ns + bytes_ns(bytes, speed->disk_bytes_per_s);
}

bool worth_host_always(const struct worth_cost *cost, const struct worth_speed *speed,
                       double bytes_per_token)
{
    return bytes_ns(bytes_per_token, speed->host_bytes_per_s) <= (double)cost->ns_per_token;
}

/* ---- the cut ---- */

void worth_begin(struct worth *w, const struct worth_cost *cost, const struct worth_speed *speed,
                 uint32_t from, uint32_t cached)
{
    *w = (struct worth){.cost = *cost,
                        .speed = *speed,
                        .from = from,
                        .cached = cached,
                        .total_ns = worth_prefill_ns(cost, from, cached)};
}

void worth_offer(struct worth *w, uint32_t tokens, const struct worth_load *load)
{
    const double load_ns = worth_load_ns(&w->speed, load);
    const uint32_t at = tokens > w->from ? tokens : w->from;
    const double total_ns = load_ns + worth_prefill_ns(&w->cost, at, w->cached);
    if (total_ns > w->total_ns)
        return;
    w->total_ns = total_ns;
    w->ret_tokens = tokens;
    w->ret_load_ns = (uint64_t)load_ns;
}

/* ---- the meter ---- */

void worth_meter_begin(struct worth_meter *m, uint64_t bytes, uint64_t inflight, uint64_t now_ns)
{
    if (inflight == 0) {
        m->window_ns = now_ns;
        m->window_bytes = 0;
        m->window_deep = 0;
        m->idle_before = true;
    }
    if (m->window_bytes == 0)
        m->window_first = inflight + bytes;
    if (inflight + bytes > m->window_deep)
        m->window_deep = inflight + bytes;
}

static void learn(double *value, double sample)
{
    *value = *value > 0 ? *value + WEIGHT * (sample - *value) : sample;
}

/* Of one read that is small, whatever its rate is. One that is several times larger, and takes as
 * much longer, has told the rate too. */
static void learn_small(struct worth_meter *m, double bytes, double elapsed_ns)
{
    const bool grown = m->latency_ns > 0 && bytes >= GROWN * m->late_bytes &&
                       elapsed_ns >= GROWN / 2 * m->latency_ns;
    if (m->bytes_per_s <= 0 && grown)
        m->bytes_per_s = bytes * NS_PER_S / (elapsed_ns - m->latency_ns);
    const double late =
        m->bytes_per_s > 0 ? elapsed_ns - bytes * NS_PER_S / m->bytes_per_s : elapsed_ns;
    learn(&m->latency_ns, late > 1 ? late : 1);
    m->late_bytes = bytes;
}

/* While no rate is known, time is latency. Taken for a rate, the first block after a start made
 * every longer prompt look too slow to be tried. */
static void window_end(struct worth_meter *m, double elapsed_ns, bool idle_after)
{
    const double bytes = (double)m->window_bytes, rate = bytes * NS_PER_S / elapsed_ns;
    const bool deep = m->window_deep >= DEEP_BYTES;
    const bool alone = m->idle_before && idle_after;
    if (deep || (!alone && m->bytes_per_s <= 0) || (m->bytes_per_s > 0 && rate > m->bytes_per_s))
        learn(&m->bytes_per_s, rate);
    if (!deep && alone)
        learn_small(m, bytes, elapsed_ns);
}

void worth_meter_end(struct worth_meter *m, uint64_t bytes, bool ok, uint64_t inflight,
                     uint64_t now_ns)
{
    const uint64_t elapsed = now_ns - m->window_ns;
    m->window_bytes += ok ? bytes : 0;
    if (inflight != 0 && (elapsed < WINDOW_NS || m->window_bytes < m->window_first))
        return;
    if (m->window_bytes != 0 && elapsed != 0)
        window_end(m, (double)elapsed, inflight == 0);
    m->window_ns = now_ns;
    m->window_bytes = 0;
    m->window_first = m->window_deep = inflight;
    m->idle_before = false;
}

bool worth_meter_knows(const struct worth_meter *m)
{
    return m->bytes_per_s > 0 || m->latency_ns > 0;
}

void worth_meter_now(const struct worth_meter *m, uint64_t inflight, uint64_t now_ns,
                     struct worth_speed *speed)
{
    double rate = m->bytes_per_s;
    const double elapsed = (double)(now_ns - m->window_ns),
                 due = (double)m->window_bytes + (double)inflight;
    if (inflight != 0 && elapsed > m->latency_ns) {
        /* No faster than if all of it came now. */
        const double most = due * NS_PER_S / (elapsed - m->latency_ns);
        if (rate <= 0 ? elapsed > WINDOW_NS : most < rate)
            rate = most;
    }
    speed->disk_bytes_per_s = rate > 0 && rate < 1 ? 1 : (uint64_t)rate;
    speed->disk_latency_ns = (uint64_t)m->latency_ns;
}
