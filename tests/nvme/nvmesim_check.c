/* SPDX-License-Identifier: Apache-2.0 */
/* The rules, where they can be broken: at the disk, at the journal, and after a restart. */
#include <stdio.h>
#include <string.h>

#include "digest.h"
#include "nvme__.h"
#include "nvmesim.h"

#define PAGES_OF(key) ((key) & ((UINT64_C(1) << 56) - 1))

/* ---- no write touches what the journal counts on ---- */

struct write_check {
    struct sim *s;
    const struct disk_op *op;
};

/* One page of a table is as it is, but for the sector behind its items that says who died. */
static bool tells_of_deaths(const struct write_check *c, uint64_t from, const struct nvme_value *v)
{
    const uint64_t at = from + (uint64_t)(nvme__table_pages(v->items) - 1) * NVME_PAGE;
    const uint32_t same = NVME_PAGE - NVME_DEAD_BYTES;
    if (c->op->bytes != NVME_PAGE || c->op->off != at || !nvme__dead_fits(v->items))
        return false;
    const uint8_t *is = fake_disk_bytes(c->s->rig.disk, c->op->path) + at;
    return c->s->misdirects || memcmp(is, c->op->iov[0].iov_base, same) == 0;
}

static int overlaps(void *ctx, uint64_t key, const void *value, uint32_t bytes)
{
    const struct write_check *c = ctx;
    struct nvme_value v;
    if ((key & NVME_KEY_META) != 0 || key >> 56 != c->op->path)
        return 0;
    if (nvme__value_decode(value, bytes, &v) < 0)
        sim_fail(c->s, "the journal holds a damaged value");
    const uint64_t from = PAGES_OF(key) * NVME_PAGE, to = from + (uint64_t)v.pages * NVME_PAGE;
    if (c->op->off < to && from < c->op->off + c->op->bytes && !tells_of_deaths(c, from, &v))
        sim_fail(c->s, "a write at %llu touches an extent at %llu that is in the journal",
                 (unsigned long long)c->op->off, (unsigned long long)from);
    return 0;
}

static void on_submit(void *ctx, const struct disk_op *op)
{
    struct sim *s = ctx;
    struct write_check c = {s, op};
    if (op->kind != DISK_WRITE)
        return;
    uint64_t *written = &s->digest->written;
    *written = digest_number(digest_number(*written, op->path), op->off);
    for (uint32_t i = 0; i < op->iovs; i++)
        *written = digest_bytes(*written, op->iov[i].iov_base, op->iov[i].iov_len);
    (void)fake_journal_each(s->rig.journal, overlaps, &c);
}

/* ---- no commit names what is not on stable storage ---- */

struct known {
    uint64_t key, seq;
    bool yes;
};

static int is_known(void *ctx, uint64_t key, const void *value, uint32_t bytes)
{
    struct known *k = ctx;
    struct nvme_value v;
    if (key == k->key && nvme__value_decode(value, bytes, &v) == 0)
        k->yes = v.seq == k->seq;
    return k->yes;
}

/* Who walks the segment without a journal comes to this extent. */
static void check_reachable(struct sim *s, uint32_t path, const struct nvme_head *to)
{
    const uint64_t seg_bytes = s->rig.config.segment_bytes;
    const uint8_t *seg = fake_disk_stable(s->rig.disk, path) +
                         (uint64_t)NVME_HEADER_PAGES * NVME_PAGE + to->seg * seg_bytes;
    for (uint32_t page = 0; page != to->page;) {
        struct nvme_head h;
        if (page > to->page ||
            nvme__head_decode(seg + (size_t)page * NVME_PAGE,
                              (uint64_t)(to->page - page) * NVME_PAGE, &h) < 0 ||
            h.gen != to->gen)
            sim_fail(s, "a commit names an extent at page %u, and there is a gap at %u", to->page,
                     page);
        page += h.pages;
    }
}

static void check_stable(struct sim *s, uint64_t key, const struct nvme_value *v)
{
    const uint8_t *at =
        fake_disk_stable(s->rig.disk, (uint32_t)(key >> 56)) + PAGES_OF(key) * NVME_PAGE;
    struct nvme_head h;
    struct nvme_item it;
    if (nvme__head_decode(at, (uint64_t)v->head_pages * NVME_PAGE, &h) < 0 ||
        !hash128_equal(&h.sum, &v->sum))
        sim_fail(s, "a commit names an extent whose table was not synced");
    if (!s->rebuilt && !s->anew && !s->rig.report.rebuilt)
        check_reachable(s, (uint32_t)(key >> 56), &h);
    for (uint32_t i = 0; i < h.items && !s->rebuilt && !s->anew && !s->rig.report.rebuilt; i++) {
        nvme__item_decode(at, i, &it);
        const struct hash128 sum = hash_sum(at + (size_t)it.page * NVME_PAGE, it.bytes);
        if ((v->dead[i / 8] >> i % 8 & 1) == 0 && !hash128_equal(&sum, &it.sum))
            sim_fail(s,
                     "a commit names item %u of %u (flags %u, page %u of %u, %u bytes), whose "
                     "bytes were not synced",
                     i, h.items, it.flags, it.page, h.pages, it.bytes);
    }
}

static void on_commit(void *ctx, const struct journal_txn *c)
{
    struct sim *s = ctx;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct journal_change *x = &c->change[i];
        struct nvme_value v;
        uint64_t *written = &s->digest->written;
        *written = digest_bytes(digest_number(*written, x->key), x->value,
                                x->value != NULL ? x->bytes : 0);
        if (x->value == NULL || (x->key & NVME_KEY_META) != 0)
            continue;
        if (nvme__value_decode(x->value, x->bytes, &v) < 0)
            sim_fail(s, "a commit holds a damaged value");
        struct known k = {.key = x->key, .seq = v.seq};
        (void)fake_journal_each(s->rig.journal, is_known, &k);
        if (!k.yes && !s->misdirects)
            check_stable(s, x->key, &v);
    }
}

void sim_watch(struct sim *s)
{
    fake_disk_on_submit(s->rig.disk, on_submit, s);
    fake_journal_on_commit(s->rig.journal, on_commit, s);
}

/* ---- after a restart ---- */

/* A promise that is to be there again when all can be seen. */
static void hide(struct sim *s, uint32_t id)
{
    struct sim_thing *t = &s->thing[id];
    if (s->trace)
        fprintf(stderr, "block %u version %u cannot be seen\n", id, t->version);
    t->hidden = true;
    t->hidden_version = t->version;
    t->durable = false;
}

static void take_found(struct sim *s, const struct nvme_found *f, bool rebuilt)
{
    const uint32_t id = rig_id(&f->label);
    if (id == 0 || id >= SIM_IDS)
        sim_fail(s, "block %u was found, which never was", id);
    struct sim_thing *t = &s->thing[id];
    struct tier_label want = rig_label(id);
    uint32_t version = 0;
    for (uint32_t v = t->versions; v > 0 && version == 0; v--)
        if (hash128_equal(&t->put[v % SIM_VERSIONS].sum, &f->sum) &&
            t->put[v % SIM_VERSIONS].bytes == f->bytes)
            version = v;
    if (version == 0)
        sim_fail(s, "block %u was found with bytes that were never put", id);
    if (!key256_equal(&want.key, &f->label.key) || !key256_equal(&want.parent, &f->label.parent) ||
        want.print != f->label.print || want.group != f->label.group ||
        want.shard != f->label.shard || want.has_parent != f->label.has_parent)
        sim_fail(s, "block %u was found with another label", id);
    if (version <= t->gone)
        sim_fail(s, "block %u is of another store", id);
    if (t->confirmed[version % SIM_VERSIONS] && !s->misdirects)
        sim_fail(s, "block %u came back, and version %u was confirmed as freed", id, version);
    if (version <= t->dead && !rebuilt && !s->rebuilt && !s->misdirects)
        sim_fail(s, "block %u came back from the dead: version %u of %u", id, version, t->dead);
    const bool other = t->durable && t->state == SIM_LIVE && version != t->version;
    if (other && !s->misdirects && !s->bad)
        sim_fail(s, "block %u is promised as version %u and was found as %u", id, t->version,
                 version);
    if (other && s->bad)
        hide(s, id);
    else if (t->hidden && version == t->version && t->moved && f->label.durable) {
        t->hidden = false; /* what was promised before was moved meanwhile: it is the newest now */
        t->durable = true;
    } else if (t->hidden && !s->bad && version != t->hidden_version && !s->misdirects) {
        sim_fail(s, "block %u was promised as version %u, and after a bad start it is %u", id,
                 t->hidden_version, version);
    } else if (t->hidden && version == t->hidden_version) {
        t->hidden = false;
        t->version = version;
        t->durable = f->label.durable;
    }
    const bool same = t->state == SIM_LIVE && version == t->version;
    t->durable = t->durable && same;
    t->whole = t->whole && same && !(rebuilt && t->moved);
    t->moved = false;
    t->state = SIM_LIVE;
    t->loc = f->loc;
    t->version = version;
    t->bytes = f->bytes;
    t->dead = version - 1 < t->dead ? version - 1 : t->dead;
    s->totals->found++;
    sim_told(s, id, version, f->label.durable ? SIM_FOUND_DURABLE : SIM_FOUND);
}

void sim_check_found(struct sim *s, bool clean)
{
    const struct rig *g = &s->rig;
    const bool rebuilt = g->report.rebuilt || s->anew;
    bool found[SIM_IDS] = {false};
    uint32_t promises = 0;
    for (uint32_t i = 0; i < g->founds; i++) {
        if (i != 0 && g->found[i].order > g->found[i - 1].order &&
            g->found[i].label.durable == g->found[i - 1].label.durable)
            sim_fail(s, "an older block was told before a newer one");
        take_found(s, &g->found[i], rebuilt);
        found[rig_id(&g->found[i].label)] = true;
        promises += g->found[i].label.durable;
    }
    for (uint32_t id = 1; id < SIM_IDS; id++) {
        struct sim_thing *t = &s->thing[id];
        t->ops = 0;
        t->moving = false;
        t->born = t->versions;
        if (found[id])
            continue;
        /* The store has more promised blocks than blocks_max: a rebuild brought back those that
         * were let go of, or a path that was out is back. The tier says so in blocks_over, and
         * leaves the blocks on disk. */
        const bool full =
            promises == g->config.blocks_max && (rebuilt || g->report.blocks_over > 0);
        if (t->hidden && !s->bad && !s->misdirects && !full)
            sim_fail(s,
                     "block %u was promised as version %u, and lost by a bad start (rebuilt %d, %u "
                     "extents, %u blocks, %u promised, %u dropped, %u tables damaged)",
                     id, t->hidden_version, rebuilt, g->report.extents, g->report.blocks, promises,
                     g->report.blocks_dropped, g->report.tables_damaged);
        if (t->hidden && !s->bad)
            t->hidden = false;
        if (t->state == SIM_LIVE && t->durable && s->bad)
            hide(s, id);
        if (t->state == SIM_LIVE && t->durable && !s->misdirects && !full)
            sim_fail(s,
                     "block %u was promised and is lost (rebuilt %d, %u extents, %u blocks, %u of "
                     "them promised, %u dropped, %u tables damaged, blocks_max %u)",
                     id, rebuilt, g->report.extents, g->report.blocks, promises,
                     g->report.blocks_dropped, g->report.tables_damaged, g->config.blocks_max);
        if (t->state == SIM_LIVE && clean && !s->faults && !s->bad && !s->misdirects)
            sim_fail(s, "block %u was lost by a clean restart", id);
        t->state = SIM_ABSENT;
        t->durable = false;
    }
    s->rebuilt = s->rebuilt || rebuilt;
    s->anew = false;
    s->totals->rebuilt += rebuilt;
    s->totals->torn += g->report.blocks_torn;
    s->totals->forward += g->report.extents_forward;
}

/* ---- at rest ---- */

static int pump(void *ctx)
{
    struct sim *s = ctx;
    fake_disk_run(s->rig.disk, 8);
    return 0;
}

static void say(void *ctx, const char *line)
{
    const struct sim *s = ctx;
    if (s->trace || !(s->misdirects || s->rebuilt))
        fprintf(stderr, "check: %s\n", line);
}

void sim_check_store(struct sim *s)
{
    struct nvme_report r;
    struct tier_stats st;
    uint32_t live = 0;
    uint64_t bytes = 0;
    const bool exact = !s->misdirects;
    for (uint32_t id = 1; id < SIM_IDS; id++)
        if (s->thing[id].state == SIM_LIVE) {
            live++;
            bytes += s->thing[id].bytes;
        }
    s->rig.tier->ops->stats(s->rig.tier, &st);
    if (st.used_slots != live)
        sim_fail(s, "the tier counts %llu blocks, there are %u", (unsigned long long)st.used_slots,
                 live);
    if (!exact)
        return;
    const int problems = nvme_check(fake_disk_of(s->rig.disk), fake_journal_of(s->rig.journal),
                                    !s->rebuilt, pump, s, say, &r);
    if (problems != 0)
        sim_fail(s, "the store has %d faults", problems);
    if (r.blocks != live || r.bytes != bytes)
        sim_fail(s, "on disk there are %u blocks, the tier has %u", r.blocks, live);
    s->totals->checked++;
    for (uint32_t id = 1; id < SIM_IDS; id++) {
        struct sim_thing *t = &s->thing[id];
        t->dead = t->state == SIM_LIVE ? t->version - 1 : t->versions;
    }
}
