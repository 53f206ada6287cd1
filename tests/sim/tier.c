/* SPDX-License-Identifier: Apache-2.0 */
/* When and how the fake tier's copies end: latencies, failures, hangs, cancelling, outages. */
#include "sim.h"

#define GROWS_TURNS 40u /* so long storage is new, and has no room yet */

static bool is_out(const struct sim *s)
{
    return s->now_ns < s->outage_until_ns;
}

/* Which client's which entry a copy is of: by where its bytes stand. */
static void find_owner(struct sim *s, struct sim_flight *f)
{
    f->client = f->entry = SIM_NONE;
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        struct sim_client *cl = &s->client[i];
        if (cl->state != CL_READY || !cl->staging || f->src < cl->staging ||
            f->src >= cl->staging + cl->staging_bytes)
            continue;
        size_t slot = (size_t)(f->src - cl->staging) / SIM_SLOT;
        SIM_CHECK(s, slot < SIM_SLOTS && cl->slot_req[slot] != SIM_NONE,
                  "a copy out of staging that nobody asked for");
        struct sim_req *r = &cl->req[cl->slot_req[slot]];
        f->client = i;
        f->life = cl->life;
        f->corr = r->corr;
        for (uint32_t k = 0; k < SIM_BLOCKS; k++)
            if (r->slot[k] == slot && r->offset[k] == OFFSET_GOOD)
                f->entry = k;
        SIM_CHECK(s, f->entry != SIM_NONE && r->verdict[f->entry] == 1,
                  "a block is copied twice for one request");
        r->verdict[f->entry] = 2;
        return;
    }
    sim_fail(s, "a copy out of nobody's staging");
}

static void on_submit(void *ctx, struct tier_op *op)
{
    struct sim *s = ctx;
    for (uint32_t i = 0; i < s->nflights; i++)
        SIM_CHECK(s, s->flight[i].op != op, "an operation is submitted again before its end");
    SIM_CHECK(s, s->nflights < SIM_FLIGHTS, "too many operations");
    SIM_CHECK(s, op->deadline_ns > 0, "an operation without a deadline");
    struct sim_flight *f = &s->flight[s->nflights++];
    *f = (struct sim_flight){.op = op, .src = op->src};
    f->end_ns = s->now_ns + sim_rnd(s, s->swarm.latency_ms + 1) * SIM_MS;
    if (sim_pct(s, s->swarm.hang_pct))
        f->end_ns = op->deadline_ns + sim_rnd(s, 2000) * SIM_MS;
    if (sim_pct(s, s->swarm.fail_pct))
        f->verdict = -EIO;
    if (op->kind == TIER_PUT) {
        find_owner(s, f);
    } else if (op->kind == TIER_SEAL || op->flags & TIER_F_AWAITED ||
               s->slices) { /* nobody's: whoever asks shares it; or it is not known whose turn it is
                             */
        f->client = f->entry = SIM_NONE;
    } else { /* begun by the request that is being handled */
        SIM_CHECK(s, s->speaking != SIM_NONE, "a verification that nobody asked for");
        f->client = s->speaking;
        f->life = s->client[f->client].life;
        f->corr = s->asking;
        f->entry = SIM_NONE;
    }
    s->totals->copies++;
    SIM_TRACE(s, "copy %p of client %u ends in %llu us", (void *)op, f->client,
              (unsigned long long)(f->end_ns - s->now_ns) / 1000);
}

static void end_one(struct sim *s, uint32_t i)
{
    struct sim_flight f = s->flight[i];
    s->flight[i] = s->flight[--s->nflights];
    int status = f.verdict;
    if (is_out(s))
        status = -EIO;
    if (s->now_ns > f.op->deadline_ns && (status || sim_rnd(s, 8)))
        status = -ETIMEDOUT;
    if (atomic_load(&f.op->cancel) && sim_rnd(s, 4))
        status = -ECANCELED;
    s->totals->copy_failures += status != 0;
    SIM_TRACE(s, "copy %p of client %u ends: %s", (void *)f.op, f.client, err_name(status));
    struct sim_client *cl = f.client == SIM_NONE ? NULL : &s->client[f.client];
    struct sim_req *r = cl && cl->life == f.life ? sim_req_by_corr(cl, f.corr) : NULL;
    if (r && f.entry != SIM_NONE)
        r->verdict[f.entry] = status;
    fake_tier_end(s->tier, f.op, status);
}

void sim_tier_step(struct sim *s, bool all)
{
    if (!is_out(s) && sim_rnd(s, 1000) < s->swarm.outage_pm) {
        s->outage_until_ns = s->now_ns + (1 + sim_rnd(s, s->swarm.outage_ms)) * SIM_MS;
        SIM_TRACE(s, "the tier is lost for a while");
    }
    uint32_t due[SIM_FLIGHTS], n = 0;
    for (uint32_t i = 0; i < s->nflights; i++) {
        struct sim_flight *f = &s->flight[i];
        if (atomic_load(&f->op->cancel) && f->end_ns > s->now_ns + 5 * SIM_MS && sim_rnd(s, 2))
            f->end_ns = s->now_ns + sim_rnd(s, 5) * SIM_MS;
    }
    for (;;) {
        n = 0;
        for (uint32_t i = 0; i < s->nflights; i++)
            if (all || s->flight[i].end_ns <= s->now_ns)
                due[n++] = i;
        if (!n)
            return;
        end_one(s, due[sim_rnd(s, n)]);
    }
}

uint32_t sim_tier_of(const struct sim *s, const struct sim_client *cl, uint64_t corr)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->nflights; i++)
        n += s->flight[i].corr == corr && s->flight[i].client == sim_index(s, cl) &&
             s->flight[i].life == cl->life;
    return n;
}

void sim_tier_begin(struct sim *s)
{
    fake_tier_on_submit(s->tier, on_submit, s);
}

void sim_disk_step(struct sim *s, bool calm)
{
    struct tier *disk = s->core_cfg.tier[CORE_STORAGE];
    if (!disk)
        return;
    if (calm) {
        s->disk_out = false;
        fake_disk_out(s->disk, false);
        fake_disk_grows(s->disk, false);
    } else {
        fake_disk_grows(s->disk, s->turn < GROWS_TURNS);
        const bool was_out = s->disk_out;
        if (sim_rnd(s, 1000) < 5 + s->swarm.outage_pm)
            s->disk_out = !s->disk_out;
        fake_disk_out(s->disk, s->disk_out);
        s->disk_out_turn = was_out || s->disk_out ? s->turn + 1 : s->disk_out_turn;
        if (sim_rnd(s, 20) == 0)
            fake_disk_want(s->disk, sim_rnd(s, s->disk_regions));
        if (sim_rnd(s, 400) == 0)
            (void)fake_disk_lose(s->disk);
        fake_disk_admit(s->disk, sim_rnd(s, 10) != 0);
        fake_disk_keeps(s->disk, sim_rnd(s, 4) != 0);
    }
    if (calm || sim_rnd(s, 2)) {
        disk->storage->kick(disk);
        (void)fake_disk_run(s->disk, calm ? 10000 : sim_rnd(s, 30),
                            calm ? 0 : s->swarm.fail_pct / 2);
    }
    s->disk_lost = fake_disk_lost(s->disk);
}
