/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Staging areas of workers: made, faulted in and freed by a thread of their own, `kvc-staging`, and
 * handed to the control thread.
 */
#include "staging.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "huge.h"
#include "inbox.h"
#include "list.h"
#include "sys.h"
#include "thread.h"

#define PAGE UINT64_C(4096)

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum area_state { AREA_FREE, AREA_BUILDING, AREA_LIVE, AREA_FREEING };

struct area {
    struct staging pub;
    enum area_state state;  /* control thread */
    struct list_node node;  /* in `free` or, under the lock, in `work` */
    struct inbox_item item; /* brings the area back to the control thread */
    int err;
    staging_fn *fn;
    void *ctx;
};

struct staging_pool {
    /* under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list_node work;
    bool stop;

    struct inbox results;

    /* control thread */
    struct staging_config config;
    struct loop *loop;
    struct loop_watch watch;
    pthread_t thread;
    bool inbox_made;
    bool started;
    struct staging_stats stats;
    struct list_node free;
    uint32_t nareas;
    struct area areas[];
};

/* --- the builder's thread --- */

static int make_fd(uint64_t bytes)
{
    const int fd = sys_memfd_sized("kvcache-staging", 0, bytes);
    return fd < 0 ? -errno : fd;
}

/* No other process has the pages yet, so plain stores can fault them in, if the kernel cannot. */
static int touch(uint8_t *p, uint64_t bytes)
{
    while (madvise(p, bytes, MADV_POPULATE_WRITE) != 0) {
        if (errno == EINVAL) {
            for (uint64_t i = 0; i < bytes; i += PAGE)
                *(volatile uint8_t *)(p + i) = 0;
            return 0;
        }
        if (errno != EINTR && errno != EAGAIN)
            return errno == EFAULT ? -ENOMEM : -errno;
    }
    return 0;
}

static int fault_in(int fd, uint64_t bytes, bool huge_pages)
{
    unsigned tries = HUGE_TRIES;
    void *p = sys_map_file(bytes, PROT_READ | PROT_WRITE, fd);
    if (p == MAP_FAILED)
        return -errno;
    if (huge_pages) {
        (void)madvise(p, bytes, MADV_HUGEPAGE); /* a hint */
        huge_make(p, bytes, &tries);
    }
    const int err = touch(p, bytes);
    (void)munmap(p, bytes);
    return err;
}

static int staging_finish(int fd, uint64_t bytes, const void **ret_base)
{
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return -errno;
    void *p = sys_map_file(bytes, PROT_READ, fd);
    if (p == MAP_FAILED)
        return -errno;
    (void)madvise(p, bytes, MADV_POPULATE_READ); /* else the first copy maps the pages */
    *ret_base = p;
    return 0;
}

static int build(struct staging *s, bool huge_pages)
{
    const void *base = NULL;
    const int fd = make_fd(s->bytes);
    if (fd < 0)
        return fd;
    int err = fault_in(fd, s->bytes, huge_pages);
    if (err == 0)
        err = staging_finish(fd, s->bytes, &base);
    if (err != 0) {
        (void)close(fd);
        return err;
    }
    s->fd = fd;
    s->base = base;
    return 0;
}

static void unbuild(struct staging *s)
{
    (void)munmap((void *)(uintptr_t)s->base, s->bytes);
    /* The seal forbids truncation, and a worker may keep its mapping. */
    (void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)s->bytes);
    (void)close(s->fd);
    s->fd = -1;
    s->base = NULL;
}

static struct area *next_work(struct staging_pool *pool)
{
    (void)pthread_mutex_lock(&pool->lock);
    while (!pool->stop && list_empty(&pool->work))
        (void)pthread_cond_wait(&pool->wake, &pool->lock);
    struct area *area = NULL;
    if (!pool->stop) {
        area = CONTAINER_OF(list_first(&pool->work), struct area, node);
        list_remove(&area->node);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return area;
}

static void *builder_main(void *arg)
{
    struct staging_pool *pool = arg;
    for (struct area *area; (area = next_work(pool)) != NULL;) {
        /* The state changes on the control thread alone, and not while the area is here. */
        if (area->state == AREA_BUILDING)
            area->err = build(&area->pub, pool->config.huge_pages);
        else
            unbuild(&area->pub);
        inbox_post(&pool->results, &area->item);
    }
    return NULL;
}

/* --- control thread --- */

static void hand_to_builder(struct staging_pool *pool, struct area *area, enum area_state state)
{
    area->state = state;
    (void)pthread_mutex_lock(&pool->lock);
    list_push_back(&pool->work, &area->node);
    (void)pthread_cond_signal(&pool->wake);
    (void)pthread_mutex_unlock(&pool->lock);
}

static void area_free(struct staging_pool *pool, struct area *area)
{
    area->state = AREA_FREE;
    list_push_back(&pool->free, &area->node);
}

static void uncount(struct staging_pool *pool, const struct area *area)
{
    MUST(pool->stats.used > 0 && pool->stats.used_bytes >= area->pub.bytes);
    pool->stats.used--;
    pool->stats.used_bytes -= area->pub.bytes;
}

/* A request ends: by a result, or because the pool does. */
static void staging_answer(struct staging_pool *pool, struct area *area, int err)
{
    staging_fn *const fn = area->fn;
    void *const ctx = area->ctx;
    MUST(area->state == AREA_BUILDING); /* a request is answered once */
    if (err == 0) {
        area->state = AREA_LIVE;
        fn(ctx, 0, &area->pub);
        return;
    }
    uncount(pool, area);
    area_free(pool, area);
    fn(ctx, err, NULL);
}

static void staging_on_results(struct loop_watch *watch, uint32_t events)
{
    struct staging_pool *pool = watch->ctx;
    (void)events;
    for (struct inbox_item *i = inbox_take(&pool->results); i != NULL;) {
        struct area *area = CONTAINER_OF(i, struct area, item);
        i = inbox_next(i);
        if (area->state == AREA_FREEING)
            area_free(pool, area);
        else
            staging_answer(pool, area, area->err);
    }
}

int staging_request(struct staging_pool *pool, uint64_t bytes, staging_fn *fn, void *ctx)
{
    if (bytes == 0)
        return -EINVAL;
    if (bytes > pool->config.one_max_bytes)
        return KVC_E_LIMIT;
    bytes = ROUND_UP(bytes, PAGE);
    if (bytes > pool->config.total_bytes - pool->stats.used_bytes ||
        pool->stats.used == pool->config.count_max)
        return -ENOSPC;
    struct list_node *node = list_first(&pool->free);
    if (node == NULL)
        return -ENOSPC; /* all records are in use by areas that are being freed */
    struct area *area = CONTAINER_OF(node, struct area, node);
    MUST(area->state == AREA_FREE);
    list_remove(node);
    area->pub = (struct staging){.fd = -1, .bytes = bytes};
    area->fn = fn;
    area->ctx = ctx;
    pool->stats.used++;
    pool->stats.used_bytes += bytes;
    hand_to_builder(pool, area, AREA_BUILDING);
    return 0;
}

void staging_release(struct staging_pool *pool, struct staging **s)
{
    if (s == NULL || *s == NULL)
        return;
    struct area *area = CONTAINER_OF(*s, struct area, pub);
    MUST(area->state == AREA_LIVE);
    /* The builder works in order: these pages are gone before those of a later request come. */
    uncount(pool, area);
    hand_to_builder(pool, area, AREA_FREEING);
    *s = NULL;
}

void staging_stats(const struct staging_pool *pool, struct staging_stats *ret_stats)
{
    *ret_stats = pool->stats;
}

/* --- create, destroy --- */

static int staging_start(struct staging_pool *pool)
{
    int err = inbox_create(&pool->results);
    if (err < 0)
        return err;
    pool->inbox_made = true;
    pool->watch = (struct loop_watch){
        .fn = staging_on_results, .ctx = pool, .fd = inbox_fd(&pool->results), .events = EPOLLIN};
    err = loop_watch_add(pool->loop, &pool->watch);
    if (err == 0)
        err = thread_start("kvc-staging", builder_main, pool, &pool->thread);
    pool->started = err == 0;
    return err;
}

int staging_pool_create(const struct staging_config *config, struct loop *loop,
                        struct staging_pool **ret_pool)
{
    if (config->count_max == 0 || config->count_max > 65536 || config->one_max_bytes < PAGE ||
        config->total_bytes < config->one_max_bytes)
        return -EINVAL;
    /* Twice: an area that is being freed is not counted any more. */
    const uint32_t nareas = 2 * config->count_max;
    struct staging_pool *pool = sys_calloc(1, sizeof(*pool) + nareas * sizeof(pool->areas[0]));
    if (pool == NULL)
        return -ENOMEM;
    pool->config = *config;
    pool->loop = loop;
    pool->nareas = nareas;
    list_init(&pool->work);
    list_init(&pool->free);
    for (uint32_t i = 0; i < nareas; i++)
        area_free(pool, &pool->areas[i]);
    (void)pthread_mutex_init(&pool->lock, NULL); /* default attributes: cannot fail with glibc */
    (void)pthread_cond_init(&pool->wake, NULL);
    const int err = staging_start(pool);
    if (err < 0) {
        staging_pool_destroy(&pool);
        return err;
    }
    *ret_pool = pool;
    return 0;
}

/* The builder has ended: frees every area, whatever its state. */
static void area_end(struct staging_pool *pool, struct area *area)
{
    if (area->state == AREA_FREE)
        return;
    list_remove(&area->node);
    if (area->state == AREA_BUILDING)
        staging_answer(pool, area, -ECANCELED);
    if (area->pub.fd >= 0)
        unbuild(&area->pub);
}

void staging_pool_destroy(struct staging_pool **pool_ptr)
{
    if (pool_ptr == NULL || *pool_ptr == NULL)
        return;
    struct staging_pool *pool = *pool_ptr;
    (void)pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    (void)pthread_cond_signal(&pool->wake);
    (void)pthread_mutex_unlock(&pool->lock);
    if (pool->started)
        (void)pthread_join(pool->thread, NULL);
    if (pool->inbox_made) {
        loop_watch_del(pool->loop, &pool->watch);
        /* Areas in it were built or freed and not reported: area_end() does both. */
        (void)!inbox_take(&pool->results);
        inbox_destroy(&pool->results);
    }
    for (uint32_t i = 0; i < pool->nareas; i++)
        area_end(pool, &pool->areas[i]);
    (void)pthread_cond_destroy(&pool->wake);
    (void)pthread_mutex_destroy(&pool->lock);
    free(pool);
    *pool_ptr = NULL;
}
