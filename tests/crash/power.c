/* SPDX-License-Identifier: Apache-2.0 */
#include "power.h"

#include <check.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "powercut.h"
#include "world.h"

#define FILES  64u
#define SYNCS  256u
#define SECTOR 512u

void power_watch(struct power *p, const char *dir)
{
    char options[512];
    const char *asan = getenv("ASAN_OPTIONS");
    snprintf(p->root, sizeof p->root, "%s/store", dir);
    snprintf(p->log, sizeof p->log, "%s/powercut", dir);
    snprintf(options, sizeof options, "%s:verify_asan_link_order=0", asan ? asan : "");
    ck_assert_int_eq(setenv("KVC_POWERCUT_ROOT", p->root, 1), 0);
    ck_assert_int_eq(setenv("KVC_POWERCUT_LOG", p->log, 1), 0);
    ck_assert_int_eq(setenv("LD_PRELOAD", KVC_POWERCUT, 1), 0);
    ck_assert_int_eq(setenv("ASAN_OPTIONS", options, 1), 0);
    ck_assert_int_eq(setenv("KVC_LOOP", "epoll", 1), 0);
}

/* ---- the log ---- */

struct written {
    struct cut_record r;
    const uint8_t *old;
    uint8_t *new;
    uint32_t done; /* the record that says so; 0: none does */
    bool safe;
};
struct log {
    uint8_t *p;
    uint64_t bytes;
    struct written *w;
    uint32_t n, cap;
    struct {
        uint64_t serial;
        uint32_t begun; /* the record that says so */
    } sync[SYNCS];      /* the last of them */
    uint32_t syncs;
    uint64_t ino[FILES];
    int fd[FILES];
};

static void log_read(struct log *l, const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    for (uint32_t i = 0; i < FILES; i++)
        l->fd[i] = -1;
    if (fd < 0)
        return; /* it died before it opened any file */
    ck_assert_int_eq(fstat(fd, &st), 0);
    l->bytes = (uint64_t)st.st_size;
    l->p = malloc(l->bytes + 1);
    ck_assert_ptr_nonnull(l->p);
    for (uint64_t at = 0; at < l->bytes;) {
        const ssize_t n = read(fd, l->p + at, l->bytes - at);
        ck_assert_int_gt(n, 0);
        at += (uint64_t)n;
    }
    close(fd);
}

static struct written *by_serial(struct log *l, uint64_t serial)
{
    for (uint32_t i = l->n; i-- > 0;)
        if (l->w[i].r.serial == serial)
            return &l->w[i];
    ck_abort_msg("the log of writes tells of one that it does not have");
}

static void add_write(struct log *l, const struct cut_record *r, const uint8_t *old)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 1024;
        l->w = realloc(l->w, l->cap * sizeof l->w[0]);
        ck_assert_ptr_nonnull(l->w);
    }
    l->w[l->n++] = (struct written){.r = *r, .old = old};
}

/* What was done before the sync began is safe. */
static void add_synced(struct log *l, const struct cut_record *r)
{
    uint32_t s = l->syncs;
    while (s-- > 0 && l->sync[s % SYNCS].serial != r->serial)
        ck_assert_uint_lt(l->syncs - s, SYNCS);
    for (uint32_t i = 0; i < l->n; i++)
        if (l->w[i].r.file == r->file && l->w[i].done && l->w[i].done < l->sync[s % SYNCS].begun)
            l->w[i].safe = true;
}

static void add_record(struct log *l, const struct cut_record *r, const uint8_t *bytes, uint32_t no)
{
    ck_assert_uint_lt(r->file, FILES);
    switch ((enum cut_kind)r->kind) {
    case CUT_FILE:
        l->ino[r->file] = r->serial;
        return;
    case CUT_WRITE:
        add_write(l, r, bytes);
        return;
    case CUT_DONE:
        by_serial(l, r->serial)->done = no;
        return;
    case CUT_SAFE:
        by_serial(l, r->serial)->safe = true;
        return;
    case CUT_SYNC:
        l->sync[l->syncs % SYNCS].serial = r->serial;
        l->sync[l->syncs++ % SYNCS].begun = no;
        return;
    case CUT_SYNCED:
        add_synced(l, r);
        return;
    }
    ck_abort_msg("the log of writes has a record of kind %u", r->kind);
}

/* A record that is not whole was the last that the process did. */
static void log_parse(struct log *l)
{
    struct cut_record r;
    uint32_t no = 0;
    for (uint64_t at = 0; l->bytes - at >= sizeof r;) {
        memcpy(&r, l->p + at, sizeof r);
        at += sizeof r;
        if (r.bytes > l->bytes - at)
            return;
        add_record(l, &r, l->p + at, ++no);
        at += r.bytes;
    }
}

/* ---- the files ---- */

static struct log *the_log; /* for nftw() */

static int open_file(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)at;
    for (uint32_t i = 0; kind == FTW_F && i < FILES; i++)
        if (the_log->ino[i] == st->st_ino && the_log->fd[i] < 0)
            the_log->fd[i] = open(path, O_RDWR | O_CLOEXEC);
    return 0;
}

static void put(int fd, const uint8_t *from, uint64_t bytes, uint64_t off)
{
    ck_assert_int_eq(pwrite(fd, from, bytes, (off_t)off), (ssize_t)bytes);
}

/* The last first: what is left is what was synced. */
static void undo_all(struct log *l, struct power *p)
{
    for (uint32_t i = l->n; i-- > 0;) {
        struct written *w = &l->w[i];
        const int fd = l->fd[w->r.file];
        if (w->safe || fd < 0)
            continue;
        w->new = calloc(1, w->r.bytes + 1);
        ck_assert_ptr_nonnull(w->new);
        ck_assert_int_ge(pread(fd, w->new, w->r.bytes, (off_t)w->r.off), 0);
        put(fd, w->old, w->r.bytes, w->r.off);
        p->unsynced++;
    }
}

/* Some of it had come to the medium after all: whole writes, or some of their sectors. */
static void redo_some(struct log *l, struct power *p, uint64_t *seed)
{
    for (uint32_t i = 0; i < l->n; i++) {
        struct written *w = &l->w[i];
        if (!w->new)
            continue;
        const unsigned kind = world_random(seed) % 3;
        p->undone += kind == 0;
        p->torn += kind == 1;
        for (uint64_t at = 0; kind != 0 && at < w->r.bytes;) {
            const uint64_t left = SECTOR - (w->r.off + at) % SECTOR;
            const uint64_t n = left < w->r.bytes - at ? left : w->r.bytes - at;
            if (kind == 2 || world_random(seed) % 2)
                put(l->fd[w->r.file], w->new + at, n, w->r.off + at);
            at += n;
        }
        free(w->new);
    }
}

void power_cut(struct power *p, uint64_t *seed)
{
    static struct log l;
    char dir[sizeof p->root];
    l = (struct log){0};
    log_read(&l, p->log);
    log_parse(&l);
    p->writes += l.n;
    the_log = &l;
    snprintf(dir, sizeof dir, "%s", p->root);
    *strrchr(dir, '/') = '\0';
    ck_assert_int_eq(nftw(dir, open_file, 16, FTW_PHYS), 0);
    undo_all(&l, p);
    redo_some(&l, p, seed);
    for (uint32_t i = 0; i < FILES; i++)
        if (l.fd[i] >= 0)
            close(l.fd[i]);
    free(l.w);
    free(l.p);
    (void)unlink(p->log);
}
