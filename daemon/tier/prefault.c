/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread `kvc-prefault`: faults the arena's memory in ahead of need, and frees that of old
 * chunks.
 */
#include "prefault.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fault.h"
#include "huge.h"
#include "sys.h"
#include "thread.h"

/* Two large pages, or about a millisecond of small ones: a stop, or a page fault elsewhere that
 * needs the lock of the address space, waits for one step at most. */
#define PREFAULT_STEP_BYTES (UINT64_C(4) << 20)
#define PREFAULT_NICE       10

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct range {
    uint8_t *base;
    uint64_t bytes;
    uint64_t done;
    unsigned huge; /* how often large pages are still tried */
    bool wanted;
};

struct prefault {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work; /* wakes the thread */
    pthread_cond_t idle; /* wakes prefault_retire() */
    /* under `lock` */
    bool stop;
    bool retiring; /* `retired` waits to be destroyed, or is being destroyed */
    struct chunk_mem retired;
    uint64_t target_bytes;
    uint64_t wanted_bytes; /* the target for wanted ranges: most_bytes of prefault_want() */
    bool any_wanted;       /* false: no range that is left is wanted; true: one may be */
    uint64_t faulted_bytes;
    int error;
    uint32_t cursor; /* ranges before it are done */
    uint32_t ranges_max;
    struct range ranges[];
};

static int populate(void *base, uint64_t bytes)
{
    if (FAULT(map))
        return -ENOMEM;
    for (;;) {
        if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0)
            return 0;
        if (errno != EINTR && errno != EAGAIN)
            return -errno;
    }
}

static struct range *next_wanted(struct prefault *k)
{
    for (uint32_t i = 0; k->any_wanted && i < k->ranges_max; i++) {
        struct range *r = &k->ranges[i];
        if (r->wanted && r->done < r->bytes)
            return r;
    }
    k->any_wanted = false;
    return NULL;
}

/* The next range to fault in, or NULL. */
static struct range *next_range(struct prefault *k)
{
    struct range *wanted = NULL;
    if (k->error == 0 && k->faulted_bytes < k->wanted_bytes)
        wanted = next_wanted(k);
    if (wanted != NULL || k->error != 0 || k->faulted_bytes >= k->target_bytes)
        return wanted;
    for (; k->cursor < k->ranges_max; k->cursor++) {
        struct range *r = &k->ranges[k->cursor];
        if (r->done < r->bytes)
            return r;
    }
    return NULL;
}

/* Called and returns with the lock held. */
static void populate_step(struct prefault *k, struct range *r)
{
    uint8_t *const base = r->base;
    const uint64_t at = r->done;
    const uint64_t step = MIN(r->bytes - at, PREFAULT_STEP_BYTES);
    unsigned huge = r->huge;
    (void)pthread_mutex_unlock(&k->lock);
    huge_make(base + at, step, &huge);
    const int err = populate(base + at, step);
    (void)pthread_mutex_lock(&k->lock);
    if (r->base != base || r->done != at)
        return; /* the range was replaced meanwhile: an error would be about its old memory */
    if (err != 0) {
        k->error = err;
        return;
    }
    r->huge = huge;
    r->done += step;
    k->faulted_bytes += step;
}

static void retire_step(struct prefault *k)
{
    struct chunk_mem mem = k->retired;
    (void)pthread_mutex_unlock(&k->lock);
    chunk_destroy(&mem);
    (void)pthread_mutex_lock(&k->lock);
    k->retiring = false;
    (void)pthread_cond_signal(&k->idle);
}

static void *prefault_main(void *arg)
{
    struct prefault *k = arg;
    /* Other threads come first. If the system refuses, this thread takes an equal share. */
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), PREFAULT_NICE);
    (void)pthread_mutex_lock(&k->lock);
    for (;;) {
        struct range *r;
        if (k->retiring)
            retire_step(k);
        else if (k->stop)
            break;
        else if ((r = next_range(k)) != NULL)
            populate_step(k, r);
        else
            (void)pthread_cond_wait(&k->work, &k->lock);
    }
    (void)pthread_mutex_unlock(&k->lock);
    return NULL;
}

int prefault_create(uint32_t ranges_max, struct prefault **ret_prefault)
{
    MUST(ranges_max >= 1);
    struct prefault *k = sys_calloc(1, sizeof(*k) + ranges_max * sizeof(k->ranges[0]));
    if (k == NULL)
        return -ENOMEM;
    k->ranges_max = ranges_max;
    (void)pthread_mutex_init(&k->lock, NULL); /* default attributes: cannot fail with glibc */
    (void)pthread_cond_init(&k->work, NULL);
    (void)pthread_cond_init(&k->idle, NULL);
    const int err = thread_start("kvc-prefault", prefault_main, k, &k->thread);
    if (err != 0) {
        free(k);
        return err;
    }
    *ret_prefault = k;
    return 0;
}

void prefault_destroy(struct prefault **prefault)
{
    if (prefault == NULL || *prefault == NULL)
        return;
    struct prefault *k = *prefault;
    (void)pthread_mutex_lock(&k->lock);
    k->stop = true;
    (void)pthread_cond_signal(&k->work);
    (void)pthread_mutex_unlock(&k->lock);
    (void)pthread_join(k->thread, NULL);
    (void)pthread_cond_destroy(&k->idle);
    (void)pthread_cond_destroy(&k->work);
    (void)pthread_mutex_destroy(&k->lock);
    free(k);
    *prefault = NULL;
}

void prefault_aim(struct prefault *k, uint64_t target_bytes)
{
    (void)pthread_mutex_lock(&k->lock);
    k->target_bytes = target_bytes;
    (void)pthread_cond_signal(&k->work);
    (void)pthread_mutex_unlock(&k->lock);
}

void prefault_set(struct prefault *k, uint32_t no, void *base, uint64_t bytes, bool huge)
{
    MUST(no < k->ranges_max);
    (void)pthread_mutex_lock(&k->lock);
    struct range *r = &k->ranges[no];
    k->faulted_bytes -= r->done;
    *r = (struct range){.base = base, .bytes = bytes, .huge = huge ? HUGE_TRIES : 0};
    k->cursor = MIN(k->cursor, no);
    (void)pthread_cond_signal(&k->work);
    (void)pthread_mutex_unlock(&k->lock);
}

void prefault_want(struct prefault *k, uint32_t no, uint64_t most_bytes)
{
    MUST(no < k->ranges_max);
    (void)pthread_mutex_lock(&k->lock);
    k->wanted_bytes = most_bytes;
    if (!k->ranges[no].wanted) {
        k->ranges[no].wanted = k->any_wanted = true;
        (void)pthread_cond_signal(&k->work);
    }
    (void)pthread_mutex_unlock(&k->lock);
}

bool prefault_is_done(struct prefault *k, uint32_t no)
{
    MUST(no < k->ranges_max);
    (void)pthread_mutex_lock(&k->lock);
    const bool done = k->ranges[no].done == k->ranges[no].bytes;
    (void)pthread_mutex_unlock(&k->lock);
    return done;
}

void prefault_retire(struct prefault *k, struct chunk_mem *mem)
{
    (void)pthread_mutex_lock(&k->lock);
    while (k->retiring)
        (void)pthread_cond_wait(&k->idle, &k->lock);
    k->retired = *mem;
    k->retiring = true;
    (void)pthread_cond_signal(&k->work);
    (void)pthread_mutex_unlock(&k->lock);
    *mem = (struct chunk_mem){.fd = -1, .ro_fd = -1};
}

void prefault_stats(struct prefault *k, struct prefault_stats *ret_stats)
{
    (void)pthread_mutex_lock(&k->lock);
    *ret_stats = (struct prefault_stats){.faulted_bytes = k->faulted_bytes, .error = k->error};
    (void)pthread_mutex_unlock(&k->lock);
}
