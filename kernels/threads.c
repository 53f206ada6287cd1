/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that share the items of one call after the other. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "attend__.h"

#define THREADS_MAX 1024u

struct kvc_threads {
    uint32_t n; /* the caller's among them */
    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    /* Under the lock. */
    uint64_t round; /* of calls: a thread that sees a new one works */
    uint32_t working;
    bool stop;
    /* Of a call; set before its round begins. */
    attend_item_fn *run;
    void *ctx;
    uint64_t items;
    _Atomic uint64_t next;
    /* The caller's alone. */
    struct attend_scratch *scratch; /* [n] */
    void *memory;
    size_t memory_bytes;
    struct worker {
        struct kvc_threads *pool;
        pthread_t thread;
        struct attend_scratch *scratch;
    } * worker; /* [n - 1] */
    uint32_t started;
};

static void share(struct kvc_threads *t, struct attend_scratch *scratch)
{
    uint64_t item;
    while ((item = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed)) < t->items)
        t->run(t->ctx, item, scratch);
}

static void *worker_main(void *arg)
{
    const struct worker *w = arg;
    struct kvc_threads *t = w->pool;
    uint64_t seen = 0;
    (void)pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->round == seen && !t->stop)
            (void)pthread_cond_wait(&t->begun, &t->lock);
        if (t->stop)
            break;
        seen = t->round;
        (void)pthread_mutex_unlock(&t->lock);
        share(t, w->scratch);
        (void)pthread_mutex_lock(&t->lock);
        if (--t->working == 0)
            (void)pthread_cond_signal(&t->ended);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

void attend__each(struct kvc_threads *t, uint64_t items, attend_item_fn *run, void *ctx)
{
    const bool alone = t->n == 1 || items <= 1;
    t->run = run;
    t->ctx = ctx;
    t->items = items;
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    if (!alone) {
        (void)pthread_mutex_lock(&t->lock);
        t->working = t->n - 1;
        t->round++;
        (void)pthread_cond_broadcast(&t->begun);
        (void)pthread_mutex_unlock(&t->lock);
    }
    share(t, t->scratch);
    if (!alone) {
        (void)pthread_mutex_lock(&t->lock);
        while (t->working > 0)
            (void)pthread_cond_wait(&t->ended, &t->lock);
        (void)pthread_mutex_unlock(&t->lock);
    }
}

uint32_t attend__threads(const struct kvc_threads *t)
{
    return t->n;
}

void *attend__memory(struct kvc_threads *t, size_t bytes)
{
    if (bytes > t->memory_bytes) {
        const size_t whole = (bytes + 63) / 64 * 64;
        free(t->memory);
        t->memory = aligned_alloc(64, whole);
        t->memory_bytes = t->memory ? whole : 0;
    }
    return t->memory;
}

static int start_workers(struct kvc_threads *t)
{
    for (uint32_t i = 0; i + 1 < t->n; i++) {
        t->worker[i].pool = t;
        t->worker[i].scratch = &t->scratch[i + 1];
        const int rc = pthread_create(&t->worker[i].thread, NULL, worker_main, &t->worker[i]);
        if (rc != 0)
            return -rc;
        t->started++;
    }
    return 0;
}

int kvc_threads_create(uint32_t threads, struct kvc_threads **ret_threads)
{
    if (threads == 0 || threads > THREADS_MAX)
        return -EINVAL;
    struct kvc_threads *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->n = threads;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->begun, NULL);
    (void)pthread_cond_init(&t->ended, NULL);
    t->scratch = aligned_alloc(_Alignof(struct attend_scratch), threads * sizeof(*t->scratch));
    t->worker = calloc(threads, sizeof(*t->worker));
    const int rc = t->scratch && t->worker ? start_workers(t) : -ENOMEM;
    if (rc != 0) {
        kvc_threads_destroy(&t);
        return rc;
    }
    *ret_threads = t;
    return 0;
}

void kvc_threads_destroy(struct kvc_threads **threads)
{
    struct kvc_threads *t = *threads;
    if (!t)
        return;
    (void)pthread_mutex_lock(&t->lock);
    t->stop = true;
    (void)pthread_cond_broadcast(&t->begun);
    (void)pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < t->started; i++)
        (void)pthread_join(t->worker[i].thread, NULL);
    (void)pthread_cond_destroy(&t->ended);
    (void)pthread_cond_destroy(&t->begun);
    (void)pthread_mutex_destroy(&t->lock);
    free(t->memory);
    free(t->worker);
    free(t->scratch);
    free(t);
    *threads = NULL;
}
