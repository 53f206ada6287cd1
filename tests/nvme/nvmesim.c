/* SPDX-License-Identifier: Apache-2.0 */
/* Lives of a store: random work, faults, a crash, and what is there afterwards. */
#include "nvmesim.h"
#include "args.h"
#include "digest.h"
#include "nvme__.h"
#include "seeds.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIST_MAX 1000u

static const char help[] =
    "Usage: nvmesim [--seed N | --seeds FROM..TO | --list FILE] [OPTIONS]\n"
    "\n"
    "Runs the NVMe tier over a disk and a journal that a seed drives: operations end in any order, "
    "fail, and are lost, torn or misdirected by crashes. Each seed is several lives of one store.\n"
    "\n" ARGS_HERE "\n"
    "exit status: 0 all seeds passed, 1 one failed, 2 wrong arguments\n";

struct options {
    struct seeds seeds;
    const char *digests;
    bool trace;
};

/* Determinism: what would be random is drawn from the seed (see CMakeLists.txt). */
int __wrap_hash_random(void *p, size_t n);
static uint64_t entropy = 1;

int __wrap_hash_random(void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)p)[i] = (uint8_t)fake_rand(&entropy);
    return 0;
}

_Noreturn void sim_fail(struct sim *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "nvmesim: seed %llu step %llu: ", (unsigned long long)s->seed,
            (unsigned long long)s->step);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

void sim_told(struct sim *s, uint32_t id, uint32_t version, int what)
{
    uint64_t *told = &s->digest->told;
    *told = digest_number(*told, s->rig.now_ns);
    *told = digest_number(*told, (uint64_t)id << 32 | version);
    *told = digest_number(*told, (uint64_t)(int64_t)what);
}

static uint32_t below(struct sim *s, uint32_t n)
{
    return (uint32_t)(fake_rand(&s->random) % n);
}

/* ---- operations ---- */

struct sim_op {
    struct tier_op op;
    struct sim *s;
    uint32_t id, version;
    uint8_t *buf;
};

static struct sim_op *pending[1024]; /* of the one world; to cancel one */

static struct sim_op *new_op(struct sim *s, uint32_t id, uint32_t bytes, uint64_t deadline)
{
    struct sim_op *o = aligned_alloc(64, ROUND_UP(sizeof(*o), 64));
    MUST(o != NULL && s->ops < ARRAY_LEN(pending));
    memset(o, 0, sizeof(*o));
    o->s = s;
    o->id = id;
    const uint32_t room = ROUND_UP(bytes, DISK_PAGE_BYTES);
    MUST(posix_memalign((void **)&o->buf, DISK_PAGE_BYTES, room) == 0);
    memset(o->buf, 0, room);
    o->op.bytes = bytes;
    o->op.deadline_ns = deadline;
    pending[s->ops++] = o;
    return o;
}

static void end_op(struct sim_op *o)
{
    struct sim *s = o->s;
    uint32_t i = 0;
    while (pending[i] != o)
        i++;
    pending[i] = pending[--s->ops];
    free(o->buf);
    free(o);
}

static void on_put(struct tier_op *op)
{
    struct sim_op *o = (struct sim_op *)op;
    struct sim *s = o->s;
    struct sim_thing *t = &s->thing[o->id];
    if (!s->dying) {
        t->ops--;
        sim_told(s, o->id, t->version, op->status);
        if (op->status == 0) {
            s->rig.tier->ops->set_label(s->rig.tier, op);
            t->state = SIM_LIVE;
            t->durable = (op->flags & TIER_F_DURABLE) != 0;
            s->totals->durables += t->durable;
            s->totals->puts++;
        } else {
            s->rig.tier->ops->free(s->rig.tier, op->loc);
            t->state = SIM_ABSENT;
        }
    }
    end_op(o);
}

static void put(struct sim *s)
{
    const uint32_t id = 1 + below(s, SIM_IDS - 1);
    struct sim_thing *t = &s->thing[id];
    const uint32_t bytes = 1 + (below(s, 8) == 0 ? below(s, 40000) : below(s, 12000));
    struct tier_loc loc;
    if (t->hidden)
        return;
    if (t->state != SIM_ABSENT || t->versions + 1 >= SIM_VERSIONS || s->ops > 900)
        return;
    if (s->rig.tier->ops->alloc(s->rig.tier, 1, bytes, (struct tier_loc){0}, id, &loc) < 0)
        return;
    const uint64_t deadline = below(s, 10) == 0 ? s->rig.now_ns + 1 + below(s, 1000000000) : 0;
    struct sim_op *o = new_op(s, id, bytes, deadline);
    t->state = SIM_PUTTING;
    t->loc = loc;
    t->bytes = bytes;
    t->version = ++t->versions;
    t->durable = t->moved = false;
    t->whole = true;
    t->ops++;
    rig_fill(o->buf, bytes, id, t->version);
    o->op.kind = TIER_PUT;
    o->op.loc = loc;
    o->op.src = o->buf;
    o->op.sum = hash_sum(o->buf, bytes);
    o->op.label = rig_label(id);
    o->op.label.durable = below(s, 4) == 0;
    o->op.flags = o->op.label.durable ? TIER_F_DURABLE : 0;
    o->op.done = on_put;
    t->put[t->version % SIM_VERSIONS].sum = o->op.sum;
    t->put[t->version % SIM_VERSIONS].bytes = bytes;
    s->rig.tier->ops->submit(s->rig.tier, &o->op);
}

static void on_get(struct tier_op *op)
{
    struct sim_op *o = (struct sim_op *)op;
    struct sim *s = o->s;
    struct sim_thing *t = &s->thing[o->id];
    if (!s->dying) {
        t->ops--;
        sim_told(s, o->id, o->version, op->status);
        s->totals->gets += op->status == 0;
        const struct hash128 want = t->put[o->version % SIM_VERSIONS].sum;
        const struct hash128 is = op->kind == TIER_GET ? hash_sum(o->buf, op->bytes) : op->sum;
        const bool same = hash128_equal(&want, &is);
        if (op->status == 0 && !same && !s->misdirects && (!s->rebuilt || t->durable || t->whole))
            sim_fail(s, "block %u was read with other bytes", o->id);
        if (op->status != 0 && !s->faults && op->status != -ECANCELED && op->status != -ETIMEDOUT)
            sim_fail(s, "block %u could not be read: %s", o->id, err_name(op->status));
    }
    end_op(o);
}

static void get(struct sim *s)
{
    const uint32_t id = 1 + below(s, SIM_IDS - 1);
    struct sim_thing *t = &s->thing[id];
    if (t->state != SIM_LIVE || s->ops > 900)
        return;
    struct sim_op *o = new_op(s, id, t->bytes, 0);
    o->op.kind = below(s, 6) == 0 ? TIER_VERIFY : TIER_GET;
    o->op.loc = t->loc;
    o->op.dst = o->buf;
    o->op.done = on_get;
    o->version = t->version;
    t->ops++;
    const struct hash128 sum = s->rig.tier->ops->sum(s->rig.tier, t->loc);
    if (!hash128_equal(&sum, &t->put[t->version % SIM_VERSIONS].sum))
        sim_fail(s, "the tier has another sum of block %u", id);
    s->rig.tier->ops->submit(s->rig.tier, &o->op);
}

static void drop(struct sim *s, uint32_t id)
{
    struct sim_thing *t = &s->thing[id];
    if (t->state != SIM_LIVE || t->ops != 0)
        return;
    s->rig.tier->ops->free(s->rig.tier, t->loc);
    t->state = SIM_ABSENT;
    t->durable = t->moving = false;
}

/* ---- what is to stay away ---- */

struct confirming {
    struct tier_op op;
    struct sim *s;
    uint32_t dead[SIM_IDS];
};
static uint32_t confirmings;

static void on_confirmed(struct tier_op *op)
{
    struct confirming *x = CONTAINER_OF(op, struct confirming, op);
    struct sim *s = x->s;
    confirmings--;
    /* Extents with promises that have no room stay as they are, whatever dies in them. */
    const bool over = s->rig.report.blocks_over != 0;
    if (op->status != 0 && !s->faults && !s->bad && !s->dying && !over)
        sim_fail(s, "what was freed could not be confirmed: %s", err_name(op->status));
    for (uint32_t id = 1; id < SIM_IDS && op->status == 0 && !s->dying; id++)
        s->thing[id].dead = MAX(s->thing[id].dead, x->dead[id]);
    for (uint32_t id = 1; id < SIM_IDS && op->status == 0 && !s->dying && !s->faults; id++)
        for (uint32_t v = s->thing[id].born + 1; v <= x->dead[id]; v++)
            s->thing[id].confirmed[v % SIM_VERSIONS] = true;
    s->totals->confirmed += op->status == 0 && !s->dying;
    free(x);
}

/* From its done() on, versions that are dead now must not be found again. */
static void confirm(struct sim *s)
{
    struct confirming *x = calloc(1, sizeof(*x));
    MUST(x != NULL);
    x->s = s;
    x->op.done = on_confirmed;
    /* What a bad start did not see, nobody could free. */
    for (uint32_t id = 1; id < SIM_IDS && !s->bad && s->rig.report.blocks_over == 0; id++) {
        const struct sim_thing *t = &s->thing[id];
        x->dead[id] = t->state == SIM_ABSENT ? t->versions : t->version - 1;
    }
    confirmings++;
    s->rig.tier->storage->confirm_frees(s->rig.tier, &x->op);
}

static void occupant(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    struct sim *s = ctx;
    struct sim_thing *t = &s->thing[block_no];
    if (t->state != SIM_LIVE || t->loc.id != loc.id)
        sim_fail(s, "reclaim names block %u, which is not there", block_no);
    sim_told(s, block_no, t->version, SIM_IN_THE_WAY);
    if (t->durable || below(s, 2) == 0) {
        t->moving = s->rig.tier->storage->keep(s->rig.tier, loc, block_no);
        if (t->moving || t->durable)
            return;
    }
    drop(s, block_no);
    if (below(s, 4) == 0)
        drop(s, 1 + below(s, SIM_IDS - 1)); /* what builds on it */
}

static void on_moved(void *ctx, uint32_t block_no, struct tier_loc from, struct tier_loc to)
{
    struct sim *s = ctx;
    struct sim_thing *t = &s->thing[block_no];
    if (s->dying)
        return;
    if (t->state != SIM_LIVE || t->loc.id != from.id || !t->moving || t->ops != 0)
        sim_fail(s, "block %u was moved, which was not to be", block_no);
    sim_told(s, block_no, t->version, SIM_MOVED);
    t->loc = to;
    t->moving = false;
    t->moved = true;
    s->totals->kept++;
}

static void on_lost(void *ctx, uint32_t block_no, struct tier_loc loc)
{
    struct sim *s = ctx;
    struct sim_thing *t = &s->thing[block_no];
    if (s->dying)
        return;
    if (t->state != SIM_LIVE || t->loc.id != loc.id || t->ops != 0)
        sim_fail(s, "block %u was lost that is not there, or in use", block_no);
    if (t->durable && !s->misdirects)
        sim_fail(s, "block %u was promised and is lost", block_no);
    sim_told(s, block_no, t->version, SIM_LOST);
    t->state = SIM_ABSENT;
    t->durable = t->moving = false;
    s->totals->lost++;
}

/* ---- lives ---- */

static void say_start(const struct sim *s, const char *what, int r)
{
    const struct nvme_report *p = &s->rig.report;
    if (s->trace)
        fprintf(stderr,
                "step %llu: %s: %s, %u extents (%u forward), %u blocks, %u dropped, %u torn, %u "
                "tables damaged%s; %s\n",
                (unsigned long long)s->step, what, r == 0 ? "open" : err_name(r), p->extents,
                p->extents_forward, p->blocks, p->blocks_dropped, p->blocks_torn, p->tables_damaged,
                p->rebuilt ? ", rebuilt" : "", p->note);
}

static void off_and_on(struct sim *s)
{
    fake_off(s->rig.disk, s->rig.journal);
    fake_on(s->rig.disk, s->rig.journal, below(s, 2) == 0);
}

/* It dies while it starts, or soon afterwards. */
static void die_starting(struct sim *s)
{
    struct rig *g = &s->rig;
    g->pumps_left = 1 + below(s, below(s, 2) == 0 ? 8 : 80);
    const int r = rig_open_as(g, true);
    say_start(s, "a start that dies", r);
    s->anew = s->anew || g->report.rebuilt;
    if (r == 0)
        rig_crash(g, below(s, 2) == 0);
    else
        off_and_on(s);
}

static int of_path(void *ctx, uint64_t key, const void *value, uint32_t bytes)
{
    (void)value;
    (void)bytes;
    return (key & NVME_KEY_META) == 0 && key >> 56 == *(const uint32_t *)ctx ? 1 : 0;
}

/* Something fails while it starts, or a path is not there. false: it refused, and said why. */
static bool start_badly(struct sim *s)
{
    struct rig *g = &s->rig;
    const uint32_t kind = below(s, 5);
    uint32_t path = below(s, g->config.disk->paths);
    if (kind == 0)
        fake_disk_fail(g->disk, 1 + below(s, 300));
    else if (kind == 1)
        fake_disk_fail(g->disk, 500 + below(s, 300));
    else if (kind == 2)
        fake_disk_fail_nth(g->disk, 1 + below(s, 60), -EIO);
    else if (kind == 3) {
        const uint64_t bytes = UINT64_C(4096) * (1 + below(s, 30));
        fake_disk_unreadable(g->disk, path, (uint64_t)below(s, 400) * 4096, bytes);
    } else if (g->config.disk->paths > 1 && !s->no_journal &&
               fake_journal_each(g->journal, of_path, &path) != 0) {
        s->away = path + 1;
        fake_disk_swap(g->disk, path);
    }
    const int r = rig_open_as(g, true);
    fake_disk_fail(g->disk, 0);
    fake_disk_fail_nth(g->disk, 0, 0);
    fake_disk_unreadable(g->disk, path, 0, 0);
    say_start(s, s->away != 0 ? "a path is away" : "a bad start", r);
    if (r == 0)
        return true;
    s->anew = s->anew || g->report.rebuilt;
    if (g->report.note[0] == '\0')
        sim_fail(s, "a start was refused (%s), and it did not say why", err_name(r));
    off_and_on(s);
    if (s->away != 0)
        fake_disk_swap(g->disk, s->away - 1);
    s->away = 0;
    return false;
}

/* A block_no is an id; the rig gave numbers of its own. */
static bool open_store(struct sim *s, bool clean)
{
    for (unsigned i = 0; i < 3 && below(s, 4) == 0; i++)
        die_starting(s);
    s->bad = s->step != 0 && !s->bad && !s->misdirects && below(s, 4) == 0 && start_badly(s);
    const int r = s->bad ? 0 : rig_open_as(&s->rig, true);
    if (!s->bad)
        say_start(s, "a start", r);
    if (r < 0) {
        if (!s->misdirects || s->rig.report.note[0] == '\0')
            sim_fail(s, "the store cannot be opened: %s", s->rig.report.note);
        return false; /* writes went astray over the superblocks: it says so and refuses */
    }
    s->rig.tier->events = (struct tier_events){.ctx = s, .moved = on_moved, .lost = on_lost};
    sim_check_found(s, clean);
    s->totals->lives++;
    return true;
}

static void start_faults(struct sim *s)
{
    const uint32_t kind = below(s, 100);
    const uint32_t path = below(s, s->rig.config.disk->paths);
    if (kind < 50)
        return;
    s->faults = true;
    if (kind < 70)
        fake_disk_fail(s->rig.disk, 1 + below(s, 30));
    else if (kind < 78)
        fake_disk_break(s->rig.disk, path, below(s, 2) == 0 ? -EIO : -EROFS);
    else if (kind < 86)
        fake_disk_stall(s->rig.disk, path, true);
    else if (kind < 92)
        fake_journal_fail_nth(s->rig.journal, 1 + below(s, 10), -EIO);
    else if (kind < 95 && s->seed % 4 == 0) {
        s->misdirects = true;
        fake_disk_misdirect(s->rig.disk, 1 + below(s, 50));
    }
}

static void end_faults(struct sim *s)
{
    for (uint32_t i = 0; i < s->rig.config.disk->paths; i++) {
        fake_disk_break(s->rig.disk, i, 0);
        fake_disk_stall(s->rig.disk, i, false);
    }
    fake_disk_fail(s->rig.disk, 0);
}

static void step(struct sim *s)
{
    struct rig *g = &s->rig;
    s->step++;
    g->now_ns += below(s, 10) == 0 ? below(s, 2000000000) : below(s, 1000000);
    g->wall_ns += 1000000;
    nvme_tick(g->nvme, g->now_ns, g->wall_ns);
    for (uint32_t n = below(s, 6); n > 0; n--) {
        const uint32_t what = below(s, 20);
        if (what < 9)
            put(s);
        else if (what < 15)
            get(s);
        else if (what < 17)
            drop(s, 1 + below(s, SIM_IDS - 1));
        else if (what < 19)
            s->totals->reclaimed +=
                g->tier->storage->reclaim(g->tier, 1 + below(s, 40), occupant, s);
        else if (s->ops != 0)
            atomic_store(&pending[below(s, s->ops)]->op.cancel, true);
    }
    if (below(s, 40) == 0)
        confirm(s);
    if (below(s, 60) == 0)
        nvme_flush(g->nvme);
    if (below(s, 5) != 0)
        g->tier->storage->kick(g->tier);
    fake_disk_run(g->disk, below(s, 12));
    fake_journal_run(g->journal, below(s, 3));
}

/* All comes to rest, and disk and tier agree. */
static void rest(struct sim *s)
{
    end_faults(s);
    for (unsigned i = 0; i < 200; i++)
        rig_turn(&s->rig, 1000000000);
    nvme_flush(s->rig.nvme);
    rig_settle(&s->rig);
    if (s->ops + confirmings != 0)
        sim_fail(s, "%u operations have not ended", s->ops + confirmings);
    const struct metric_set m = nvme_metric_set(s->rig.nvme);
    const int out = metric_find(&m, "paths_out"), journal = metric_find(&m, "journal_error");
    if (metric_value(&m, (unsigned)journal) != 0)
        return;
    if (s->bad || s->rig.report.blocks_over != 0)
        return; /* there is more on the paths than it knows */
    if (metric_value(&m, (unsigned)out) != 0)
        sim_fail(s, "a path that is well again did not come back");
    sim_check_store(s);
}

/* The operator begins a new store where the old one was: nothing of that may be found again. */
static void begin_anew(struct sim *s)
{
    s->no_journal = true; /* it is of the old one */
    for (uint32_t i = 0; i < s->rig.config.disk->paths; i++)
        fake_disk_wipe(s->rig.disk, i, UINT64_C(16) << 10);
    for (uint32_t id = 1; id < SIM_IDS; id++) {
        struct sim_thing *t = &s->thing[id];
        t->state = SIM_ABSENT;
        t->durable = t->hidden = false;
        t->dead = t->gone = t->versions;
    }
}

static void bring_back(struct sim *s)
{
    if (s->away != 0)
        fake_disk_swap(s->rig.disk, s->away - 1);
    s->away = 0;
}

/* false: the store is beyond help, and said so. */
static bool life(struct sim *s, bool last)
{
    if (!open_store(s, s->step != 0 && !s->dying))
        return false;
    s->dying = s->no_journal = false;
    s->faults = s->bad;
    if (below(s, 3) == 0)
        rest(s);
    start_faults(s);
    const uint32_t steps = 20 + below(s, 200), calm = below(s, steps);
    for (uint32_t i = 0; i < steps; i++) {
        if (i == calm && below(s, 2) == 0)
            end_faults(s);
        step(s);
    }
    if (below(s, 3) == 0 || last)
        rest(s);
    if (last || below(s, 4) == 0) {
        end_faults(s);
        rig_close(&s->rig);
        MUST(s->ops == 0);
        bring_back(s);
        return true;
    }
    s->dying = true;
    rig_crash(&s->rig, below(s, 4) != 0);
    bring_back(s);
    s->no_journal = below(s, 8) == 0;
    if (s->no_journal)
        fake_journal_damage(s->rig.journal);
    else if (below(s, 12) == 0)
        begin_anew(s);
    return true;
}

void sim_run(uint64_t seed, bool trace, struct sim_totals *totals, struct sim_digest *ret_digest)
{
    struct sim *s = aligned_alloc(64, ROUND_UP(sizeof(*s), 64));
    MUST(s != NULL);
    memset(s, 0, sizeof(*s));
    s->seed = seed;
    s->random = entropy = seed * 2654435761u + 1;
    s->totals = totals;
    s->digest = ret_digest;
    s->trace = trace;
    const uint32_t paths = 1 + below(s, 3);
    const uint32_t seg_pages = 16 + 8 * below(s, 5);
    const uint32_t segs = 4 + below(s, 12);
    rig_init(&s->rig, paths, (4 + (uint64_t)seg_pages * segs + below(s, 4)) * 4096, seed);
    s->rig.config.segment_bytes = (uint64_t)seg_pages * 4096;
    s->rig.config.extent_bytes = (1 + (uint64_t)below(s, 12)) * 4096;
    s->rig.config.blocks_max = 20 + below(s, 200);
    s->rig.config.queue_bytes = (1 + (uint64_t)below(s, 64)) * 4096;
    /* Time jumps; only what is stalled takes so long. */
    s->rig.config.io_timeout_ns = UINT64_C(20) * 1000000000;
    s->rig.config.write_per_day = below(s, 4) == 0 ? UINT64_C(1) << (24 + below(s, 12)) : 0;
    sim_watch(s);
    const uint32_t lives = 2 + below(s, 6);
    for (uint32_t i = 0; i < lives; i++)
        if (!life(s, i + 1 == lives))
            break;
    rig_destroy(&s->rig);
    totals->seeds++;
    free(s);
}

/* In a process of its own: a crash costs one seed. 1 when it failed. */
static int one_seed(uint64_t seed, bool trace, FILE *digests, struct sim_totals *t)
{
    struct sim_totals one = {0};
    struct sim_digest digest = {0};
    int fd[2], status = 0;
    if (pipe(fd) != 0) {
        perror("nvmesim: pipe");
        exit(2);
    }
    const pid_t pid = fork();
    if (pid == 0) {
        sim_run(seed, trace, &one, &digest);
        if (digests != NULL)
            fprintf(digests, "%llu %016llx %016llx\n", (unsigned long long)seed,
                    (unsigned long long)digest.told, (unsigned long long)digest.written);
        exit(write(fd[1], &one, sizeof(one)) == (ssize_t)sizeof(one) ? 0 : 1);
    }
    close(fd[1]);
    if (pid < 0 || read(fd[0], &one, sizeof(one)) != (ssize_t)sizeof(one))
        one = (struct sim_totals){0};
    close(fd[0]);
    for (size_t i = 0; i < sizeof(*t) / sizeof(uint64_t); i++)
        ((uint64_t *)t)[i] += ((const uint64_t *)&one)[i];
    if (pid >= 0 && waitpid(pid, &status, 0) == pid && status == 0)
        return 0;
    fprintf(stderr, "again: nvmesim --seed %llu --trace\n", (unsigned long long)seed);
    return 1;
}

static void print_totals(const struct sim_totals *t, int failed)
{
    printf("%llu seeds, %d failed; %llu lives, %llu puts (%llu durable), %llu reads, %llu found "
           "again, %llu told by reclaim, %llu kept, %llu lost, %llu rebuilds, %llu extents found "
           "forward (%llu torn), %llu whole "
           "checks, %llu times what was freed was confirmed\n",
           (unsigned long long)t->seeds, failed, (unsigned long long)t->lives,
           (unsigned long long)t->puts, (unsigned long long)t->durables,
           (unsigned long long)t->gets, (unsigned long long)t->found,
           (unsigned long long)t->reclaimed, (unsigned long long)t->kept,
           (unsigned long long)t->lost, (unsigned long long)t->rebuilt,
           (unsigned long long)t->forward, (unsigned long long)t->torn,
           (unsigned long long)t->checked, (unsigned long long)t->confirmed);
}

static const struct arg option_table[] = {
    SEEDS_OPTIONS(struct options, seeds),
    {"--trace", "print each step", ARG_FLAG(struct options, trace)},
    {"--digests FILE",
     "of each seed that passes a line in FILE: the seed, and digests of what the tier told and of "
     "what it wrote",
     ARG_TEXT(struct options, digests)},
    {0},
};

int main(int argc, char **argv)
{
    struct options o = {.seeds = {.from = 1, .to = 1}};
    uint64_t list[LIST_MAX];
    FILE *digests = NULL;
    const int rc = args_take_only(option_table, &o, help, args_usage, argc, argv);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    const uint64_t n = seeds_count(&o.seeds, list, LIST_MAX);
    if (o.digests && !(digests = fopen(o.digests, "we"))) {
        perror(o.digests);
        return 2;
    }
    struct sim_totals t = {0};
    int failed = 0;
    for (uint64_t i = 0; i < n; i++)
        failed += one_seed(seeds_at(&o.seeds, list, i), o.trace, digests, &t);
    if (digests != NULL && fclose(digests) != 0) {
        perror("--digests");
        return 2;
    }
    print_totals(&t, failed);
    return failed != 0;
}
