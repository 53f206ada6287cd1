/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal on LMDB: its directory and lock, and the thread `kvc-meta`, which makes the commits.
 * meta_db.c calls LMDB.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "crash.h"
#include "disk_lock.h"
#include "log.h"
#include "meta__.h"
#include "sys.h"
#include "thread.h"

#define WALK_MS_DEFAULT 60000u
/* Changes of one transaction: far fewer than LMDB allows, and quickly on disk. */
#define CHANGES_MAX 4096u
#define PATH_BYTES  4096u

struct commit_list {
    struct journal_txn *head;
    struct journal_txn **tail;
};

struct meta {
    struct journal journal;

    /* control thread */
    struct loop *loop;
    struct loop_watch watch;
    int lock_fd;
    int bell; /* eventfd, written when `ended` becomes non-empty */
    pthread_t thread;
    bool started;
    bool begun;         /* a commit was begun: no walk and no clear from then on */
    struct meta_db *db; /* belongs to the thread from the first commit on */
    struct disk_id id;  /* of LMDB's file */
    char file[PATH_BYTES];

    /* of meta_make(); NULL: the journal exists, or its making was given up */
    meta_made_fn *made;
    void *made_ctx;
    uint32_t pause_ms;
    uint64_t map_bytes;
    char dir[PATH_BYTES];

    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under `lock` */
    struct commit_list queued;
    struct commit_list ended;
    struct meta_stats stats;
    uint64_t file_bytes; /* the length that data.mdb must have */
    bool readonly;
    bool stop;
    bool making; /* the thread makes the journal before it commits */
    int make_err;
};

static void list_init(struct commit_list *l)
{
    l->head = NULL;
    l->tail = &l->head;
}

static void list_push(struct commit_list *l, struct journal_txn *c)
{
    c->next = NULL;
    *l->tail = c;
    l->tail = &c->next;
}

/* --- the thread --- */

/* Takes the commits of one transaction off the queue: at least one. */
static struct commit_list take_some(struct meta *m)
{
    struct commit_list some;
    uint32_t changes = 0;
    list_init(&some);
    while (m->queued.head && (!some.head || changes + m->queued.head->n <= CHANGES_MAX)) {
        struct journal_txn *c = m->queued.head;
        m->queued.head = c->next;
        if (!c->next)
            m->queued.tail = &m->queued.head;
        changes += c->n;
        list_push(&some, c);
    }
    return some;
}

static void ring(const struct meta *m)
{
    const uint64_t one = 1;
    ssize_t n;
    do {
        n = write(m->bell, &one, sizeof one);
    } while (n < 0 && errno == EINTR);
    MUST(n == (ssize_t)sizeof one || errno == EAGAIN); /* a full counter is readable too */
}

/* Under the lock. */
static void hand_back(struct meta *m, struct journal_txn *first, int result)
{
    const bool was_empty = m->ended.head == NULL;
    while (first) {
        struct journal_txn *const next = first->next;
        first->result = result;
        list_push(&m->ended, first);
        first = next;
    }
    if (was_empty)
        ring(m);
}

static void meta_count(struct meta *m, const struct journal_txn *first, int result)
{
    if (result < 0) {
        m->stats.error = m->stats.error ? m->stats.error : result;
        return;
    }
    m->stats.transactions++;
    m->stats.map_bytes = meta__db_map_bytes(m->db);
    m->file_bytes = meta__db_file_bytes(m->db);
    for (; first; first = first->next) {
        m->stats.commits++;
        m->stats.changes += first->n;
    }
}

struct job {
    struct meta_db *db;
    const struct journal_txn *first;
};

static int commit_all(void *ctx)
{
    const struct job *job = ctx;
    return meta__db_commit(job->db, job->first);
}

/* Commits, and survives a page of the map that cannot be read or was cut off (-ENODATA). The
 * journal is lost then, not the daemon; LMDB's memory is not used or freed any more. */
static int commit_survive(struct meta *m, const struct journal_txn *first)
{
    struct job job = {m->db, first};
    const int r = crash_survive(commit_all, &job);
    if (r != -EFAULT)
        return r;
    LOG_ERROR("journal %s: a page of it cannot be read any more: it takes no more commits",
              m->file);
    const int cut = meta__db_stands(m->db);
    m->db = NULL;
    return cut ? cut : r;
}

static int make_files(struct meta *m);

/* Makes the journal, for meta_make(). Holds the lock except during the attempts. */
static void make_first(struct meta *m)
{
    while (m->making && !m->stop) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += m->pause_ms / 1000;
        until.tv_nsec += (long)(m->pause_ms % 1000) * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        int waited = 0;
        while (!m->stop && waited != ETIMEDOUT)
            waited = pthread_cond_timedwait(&m->work, &m->lock, &until);
        if (m->stop)
            return;
        (void)pthread_mutex_unlock(&m->lock);
        const int r = make_files(m);
        (void)pthread_mutex_lock(&m->lock);
        m->making = r != 0 && r != -EEXIST;
        m->make_err = r;
    }
    ring(m);
}

static void *meta_main(void *arg)
{
    struct meta *m = arg;
    (void)pthread_mutex_lock(&m->lock);
    if (m->making)
        make_first(m);
    for (;;) {
        while (!m->stop && !m->queued.head)
            (void)pthread_cond_wait(&m->work, &m->lock);
        if (!m->queued.head)
            break;
        const struct commit_list some = take_some(m);
        const bool is_broken = m->stats.error != 0;
        (void)pthread_mutex_unlock(&m->lock);
        const int result = is_broken ? -EROFS : commit_survive(m, some.head);
        (void)pthread_mutex_lock(&m->lock);
        if (!is_broken)
            meta_count(m, some.head, result);
        hand_back(m, some.head, result);
    }
    (void)pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* --- the journal --- */

static struct meta *meta_of(struct journal *j)
{
    return (struct meta *)j; /* its first member */
}

static void commit(struct journal *j, struct journal_txn *c)
{
    struct meta *m = meta_of(j);
    MUST(c->done && (c->change || c->n == 0));
    for (uint32_t i = 0; i < c->n; i++)
        MUST(c->change[i].bytes <= JOURNAL_VALUE_MAX);
    (void)pthread_mutex_lock(&m->lock);
    m->begun = true;
    if (m->readonly) {
        c->next = NULL;
        hand_back(m, c, -EROFS);
    } else {
        list_push(&m->queued, c);
        (void)pthread_cond_signal(&m->work);
    }
    (void)pthread_mutex_unlock(&m->lock);
}

static void take_back(struct meta *m)
{
    (void)pthread_mutex_lock(&m->lock);
    struct journal_txn *c = m->ended.head;
    list_init(&m->ended);
    (void)pthread_mutex_unlock(&m->lock);
    while (c) {
        struct journal_txn *const next = c->next;
        c->done(c);
        c = next;
    }
}

static void tell_made(struct meta *m)
{
    meta_made_fn *const made = m->made;
    (void)pthread_mutex_lock(&m->lock);
    const bool making = m->making;
    const int err = m->make_err;
    (void)pthread_mutex_unlock(&m->lock);
    if (!made || making)
        return;
    m->made = NULL;
    made(m->made_ctx, err);
}

static void on_bell(struct loop_watch *watch, uint32_t events)
{
    struct meta *m = watch->ctx;
    uint64_t n;
    (void)events;
    /* Clears the counter before it takes the list: in the other order a wake-up could be lost. */
    const ssize_t got = read(m->bell, &n, sizeof n);
    MUST(got == (ssize_t)sizeof n || errno == EAGAIN || errno == EINTR);
    tell_made(m);
    take_back(m);
}

static int walk(struct journal *j, journal_each_fn *each, void *ctx)
{
    struct meta *m = meta_of(j);
    MUST(!m->begun);
    return meta__db_walk(m->db, each, ctx);
}

static int meta_clear(struct journal *j)
{
    struct meta *m = meta_of(j);
    MUST(!m->begun);
    return m->readonly ? -EROFS : meta__db_clear(m->db);
}

static int stands(const struct journal *j)
{
    struct meta *m = (struct meta *)(uintptr_t)j; /* its first member; for the lock alone */
    struct stat st;
    const int gone = disk_id_at(m->file, m->id);
    if (gone < 0 || stat(m->file, &st) < 0)
        return gone;
    (void)pthread_mutex_lock(&m->lock);
    const uint64_t least = m->file_bytes;
    (void)pthread_mutex_unlock(&m->lock);
    return (uint64_t)st.st_size < least ? -ENODATA : 0;
}

static const struct journal_ops meta_ops = {
    .commit = commit, .walk = walk, .clear = meta_clear, .stands = stands};

struct journal *meta_journal(struct meta *meta)
{
    return &meta->journal;
}

void meta_stats(const struct meta *meta, struct meta_stats *ret_stats)
{
    struct meta *m = (struct meta *)(uintptr_t)meta; /* for the lock alone */
    (void)pthread_mutex_lock(&m->lock);
    *ret_stats = m->stats;
    (void)pthread_mutex_unlock(&m->lock);
}

/* --- the directory --- */

struct place {
    const struct meta_config *config;
    uint64_t map_bytes;
    struct meta_report *report;
    bool is_new; /* one that is there already is left alone */
    char env[PATH_BYTES];
    char fresh[PATH_BYTES];
    char bad[PATH_BYTES];
    char lock[PATH_BYTES];
};

static int meta_refuse(const struct place *p, int err, const char *what)
{
    if (err < 0)
        snprintf(p->report->why, META_WHY_BYTES, "%.150s: %s: %s", p->config->dir, what,
                 strerror(-err));
    return err;
}

static int meta_join(char ret_path[PATH_BYTES], const char *dir, const char *name)
{
    const int n = snprintf(ret_path, PATH_BYTES, "%s/%s", dir, name);
    return n < 0 || (size_t)n >= PATH_BYTES ? -ENAMETOOLONG : 0;
}

static int place_init(struct place *p)
{
    const char *dir = p->config->dir;
    const int r = meta_join(p->env, dir, "env") | meta_join(p->fresh, dir, "env.new") |
                  meta_join(p->bad, dir, "env.bad") | meta_join(p->lock, dir, "lock");
    return meta_refuse(p, r ? -ENAMETOOLONG : 0, "its path");
}

/* Removes an environment that is not needed any more. */
static int remove_env(const char *env)
{
    static const char *const files[] = {"data.mdb", "lock.mdb"};
    char path[PATH_BYTES];
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        int r = meta_join(path, env, files[i]);
        if (r == 0 && unlink(path) < 0 && errno != ENOENT && errno != ENOTDIR)
            r = -errno;
        if (r < 0)
            return r;
    }
    return rmdir(env) < 0 && errno != ENOENT ? -errno : 0;
}

static int make_dir(const struct place *p)
{
    if (p->config->readonly)
        return 0;
    if (mkdir(p->config->dir, 0700) < 0)
        return errno == EEXIST ? 0 : meta_refuse(p, -errno, "cannot be made");
    return meta_refuse(p, disk_sync_parent(p->config->dir), "fsync of the directory above");
}

static int take_lock(const struct place *p, int *ret_fd)
{
    const bool ro = p->config->readonly;
    const int fd = sys_open(p->lock, ro ? O_RDONLY : O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return meta_refuse(p, -errno, "lock");
    const int r = disk_lock(fd, p->lock, ro, p->config->lock_wait_ms);
    if (r == 0) {
        *ret_fd = fd;
        return 0;
    }
    (void)close(fd);
    if (r == -EBUSY)
        snprintf(p->report->why, META_WHY_BYTES, "%.150s: is in use by another kvcache-daemon",
                 p->config->dir);
    return r == -EBUSY ? r : meta_refuse(p, r, "lock");
}

static int make_env(const struct place *p)
{
    char why[META_WHY_BYTES] = "";
    if (mkdir(p->fresh, 0700) < 0)
        return meta_refuse(p, -errno, "env.new cannot be made");
    const int r = meta__db_make(p->fresh, p->map_bytes, why);
    if (r < 0) {
        snprintf(p->report->why, META_WHY_BYTES, "%.120s: cannot be made: %.100s", p->config->dir,
                 why);
        (void)remove_env(p->fresh); /* or at the next start */
        return r;
    }
    if (rename(p->fresh, p->env) < 0)
        return meta_refuse(p, -errno, "env.new cannot become env");
    return meta_refuse(p, disk_sync_dir(p->config->dir), "fsync");
}

static int move_aside(const struct place *p, const char *why)
{
    if (p->config->readonly) {
        snprintf(p->report->why, META_WHY_BYTES, "%.120s: is damaged: %.110s", p->config->dir, why);
        return -EUCLEAN;
    }
    p->report->damaged = true;
    snprintf(p->report->why, META_WHY_BYTES, "%s", why);
    int r = remove_env(p->bad);
    if (r == 0 && rename(p->env, p->bad) < 0)
        r = -errno;
    return meta_refuse(p, r, "the damaged env cannot be moved aside");
}

static int walk_first(const struct place *p)
{
    struct meta__found found;
    const uint32_t limit_ms = p->config->walk_ms ? p->config->walk_ms : WALK_MS_DEFAULT;
    int r = meta__walk(p->env, p->map_bytes, p->config->readonly, limit_ms, &found);
    if (r == -EUCLEAN || r == -EIO || r == -ENOENT) {
        r = move_aside(p, found.why);
        return r < 0 ? r : make_env(p);
    }
    if (r < 0)
        snprintf(p->report->why, META_WHY_BYTES, "%.120s: %.120s", p->config->dir, found.why);
    p->report->entries = found.entries;
    return r;
}

/* Makes sure that `env` exists and is sound. */
static int meta_prepare(const struct place *p)
{
    struct stat st;
    if (!p->config->readonly) {
        const int r = meta_refuse(p, remove_env(p->fresh), "env.new cannot be removed");
        if (r < 0)
            return r;
    }
    if (lstat(p->env, &st) == 0)
        return p->is_new ? -EEXIST : walk_first(p);
    if (errno != ENOENT || p->config->readonly)
        return meta_refuse(p, -errno, "env");
    p->report->fresh = true;
    return make_env(p);
}

/* --- birth and death --- */

static int meta_start(struct meta *m)
{
    m->bell = sys_eventfd(EFD_NONBLOCK);
    if (m->bell < 0)
        return -errno;
    m->watch = (struct loop_watch){.fn = on_bell, .ctx = m, .fd = m->bell, .events = EPOLLIN};
    int r = loop_watch_add(m->loop, &m->watch);
    if (r == 0 && !m->readonly) {
        r = thread_start("kvc-meta", meta_main, m, &m->thread);
        m->started = r == 0;
    }
    return r;
}

static int identify(struct meta *m, const struct place *p)
{
    struct stat st;
    int r = meta_join(m->file, p->env, "data.mdb");
    if (r == 0 && stat(m->file, &st) < 0)
        r = -errno;
    if (r == 0)
        m->id = disk_id_of(&st);
    return meta_refuse(p, r, "data.mdb");
}

/* Opens all but the thread. */
static int open_in(struct meta *m, const struct place *p)
{
    char why[META_WHY_BYTES] = "";
    int r = make_dir(p);
    if (r == 0)
        r = take_lock(p, &m->lock_fd);
    if (r == 0)
        r = meta_prepare(p);
    if (r < 0)
        return r;
    r = meta__db_open(p->env, p->map_bytes, m->readonly, &m->db, why);
    if (r < 0) {
        snprintf(p->report->why, META_WHY_BYTES, "%.120s: %.120s", p->config->dir, why);
        return r;
    }
    m->stats.map_bytes = meta__db_map_bytes(m->db);
    m->file_bytes = meta__db_file_bytes(m->db);
    return identify(m, p);
}

static struct meta *meta_new(const struct meta_config *config, struct loop *loop)
{
    pthread_condattr_t attr;
    struct meta *m = sys_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->journal.ops = &meta_ops;
    m->loop = loop;
    m->lock_fd = -1;
    m->bell = -1;
    m->readonly = config->readonly;
    list_init(&m->queued);
    list_init(&m->ended);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&m->lock, NULL); /* these cannot fail with glibc */
    (void)pthread_cond_init(&m->work, &attr);
    (void)pthread_condattr_destroy(&attr);
    return m;
}

int meta_open(const struct meta_config *config, struct loop *loop, struct meta **ret_meta,
              struct meta_report *ret_report)
{
    struct place p = {.config = config,
                      .map_bytes = config->map_bytes ? config->map_bytes : META_MAP_BYTES,
                      .report = ret_report};
    memset(ret_report, 0, sizeof *ret_report);
    int r = place_init(&p);
    if (r < 0)
        return r;
    struct meta *m = meta_new(config, loop);
    if (!m)
        return meta_refuse(&p, -ENOMEM, "memory");
    r = open_in(m, &p);
    if (r == 0)
        r = meta_refuse(&p, meta_start(m), "its thread");
    if (r < 0) {
        meta_close(&m);
        return r;
    }
    *ret_meta = m;
    return 0;
}

/* Whether the file system has room for the journal. Asked before an attempt, so that a failing
 * attempt does not take the last room of others, not even for a moment. */
static bool has_room(const char *dir, uint64_t bytes)
{
    struct statvfs fs;
    return statvfs(dir, &fs) < 0 || fs.f_blocks == 0 || fs.f_bavail >= bytes / fs.f_frsize;
}

/* On the thread. */
static int make_files(struct meta *m)
{
    const struct meta_config config = {.dir = m->dir};
    struct meta_report report = {0};
    struct place p = {
        .config = &config, .map_bytes = m->map_bytes, .report = &report, .is_new = true};
    int r = place_init(&p);
    if (r == 0)
        r = make_dir(&p);
    if (r == 0 && !has_room(m->dir, m->map_bytes))
        r = -ENOSPC;
    if (r == 0)
        r = open_in(m, &p);
    if (r < 0 && m->lock_fd >= 0) {
        (void)close(m->lock_fd);
        m->lock_fd = -1;
    }
    return r;
}

int meta_make(const struct meta_config *config, struct loop *loop, uint32_t pause_ms,
              meta_made_fn *made, void *ctx, struct meta **ret_meta)
{
    MUST(!config->readonly && pause_ms > 0);
    struct meta *m = meta_new(config, loop);
    if (!m)
        return -ENOMEM;
    m->made = made;
    m->made_ctx = ctx;
    m->pause_ms = pause_ms;
    m->map_bytes = config->map_bytes ? config->map_bytes : META_MAP_BYTES;
    m->making = true;
    const int n = snprintf(m->dir, sizeof m->dir, "%s", config->dir);
    const int r = n < 0 || (size_t)n >= sizeof m->dir ? -ENAMETOOLONG : meta_start(m);
    if (r < 0) {
        meta_close(&m);
        return r;
    }
    *ret_meta = m;
    return 0;
}

void meta_close(struct meta **meta)
{
    if (!meta || !*meta)
        return;
    struct meta *m = *meta;
    if (m->started) {
        (void)pthread_mutex_lock(&m->lock);
        m->stop = true;
        (void)pthread_cond_signal(&m->work);
        (void)pthread_mutex_unlock(&m->lock);
        (void)pthread_join(m->thread, NULL);
    }
    if (m->loop && m->watch.loop_slot)
        loop_watch_del(m->loop, &m->watch);
    take_back(m);
    meta__db_close(&m->db);
    if (m->bell >= 0)
        (void)close(m->bell);
    if (m->lock_fd >= 0)
        (void)close(m->lock_fd);
    (void)pthread_cond_destroy(&m->work);
    (void)pthread_mutex_destroy(&m->lock);
    free(m);
    *meta = NULL;
}
