/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"
#include "sys.h"

#if defined(__SANITIZE_ADDRESS__)
#define POOL_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOL_ASAN 1
#endif
#endif
#ifdef POOL_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION((p), (n))
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION((p), (n))
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define POOL_ALIGN 64u
#define NO_INDEX   UINT32_MAX

/*
 * Objects below `fresh` have been used once; those of them that are free form a list through their
 * first four bytes. Those from `fresh` on have never been touched and are still zero from calloc,
 * which gets rooms of this size from the kernel untouched. sizeof a type is a multiple of its
 * alignment, so a stride rounded to 8 keeps every object as aligned as its type wants.
 */
struct pool {
    const char *name;
    size_t obj_bytes, stride;
    uint32_t count, used, peak, fresh, free_head;
    bool bound;
    pthread_t thread; /* of the first pool_get() */
    void *room;       /* the allocated block */
    uint8_t *objs;    /* count * stride, aligned */
    uint64_t *live;   /* bit per object, behind the objects */
};

/* Bytes of the room, or false when they do not fit size_t. */
static bool room_bytes(size_t obj_bytes, uint32_t count, size_t *ret_stride, size_t *ret_objs,
                       size_t *ret_all)
{
    size_t stride, objs, all;
    if (__builtin_add_overflow(MAX(obj_bytes, sizeof(uint64_t)), 7, &stride))
        return false;
    stride &= ~(size_t)7;
    if (__builtin_mul_overflow(stride, (size_t)count, &objs))
        return false;
    const size_t bits = ((size_t)count + 63) / 64 * sizeof(uint64_t);
    if (__builtin_add_overflow(objs, bits + POOL_ALIGN, &all))
        return false;
    *ret_stride = stride;
    *ret_objs = objs;
    *ret_all = all;
    return true;
}

int pool_create(struct pool **ret_pool, const char *name, size_t obj_bytes, uint32_t count)
{
    MUST(obj_bytes > 0 && count > 0 && count < NO_INDEX);
    size_t stride, objs, all;
    if (!room_bytes(obj_bytes, count, &stride, &objs, &all))
        return -EOVERFLOW;
    struct pool *pool = sys_calloc(1, sizeof(*pool));
    void *room = sys_calloc(1, all);
    if (pool == NULL || room == NULL) {
        free(pool);
        free(room);
        return -ENOMEM;
    }
    uint8_t *base = room;
    base += (POOL_ALIGN - (uintptr_t)base % POOL_ALIGN) % POOL_ALIGN;
    *pool = (struct pool){
        .name = name,
        .obj_bytes = obj_bytes,
        .stride = stride,
        .count = count,
        .free_head = NO_INDEX,
        .room = room,
        .objs = base,
        .live = (uint64_t *)(void *)(base + objs),
    };
    POISON(pool->objs, objs);
    *ret_pool = pool;
    return 0;
}

void pool_destroy(struct pool **pool)
{
    if (pool == NULL || *pool == NULL)
        return;
    UNPOISON((*pool)->objs, (*pool)->stride * (*pool)->count);
    free((*pool)->room);
    free(*pool);
    *pool = NULL;
}

static void check_thread(struct pool *pool)
{
    if (!pool->bound) {
        pool->bound = true;
        pool->thread = pthread_self();
    }
    MUST(pthread_equal(pool->thread, pthread_self()));
}

static uint8_t *object(const struct pool *pool, uint32_t idx)
{
    return pool->objs + (size_t)idx * pool->stride;
}

static bool is_live(const struct pool *pool, uint32_t idx)
{
    return (pool->live[idx / 64] >> (idx % 64) & 1) != 0;
}

static void *next_free(struct pool *pool)
{
    check_thread(pool);
    uint8_t *obj;
    uint32_t idx;
    if (pool->free_head != NO_INDEX) {
        idx = pool->free_head;
        obj = object(pool, idx);
        UNPOISON(obj, pool->stride);
        memcpy(&pool->free_head, obj, sizeof(pool->free_head));
        memset(obj, 0, pool->obj_bytes);
    } else if (pool->fresh < pool->count) {
        idx = pool->fresh++;
        obj = object(pool, idx);
        UNPOISON(obj, pool->stride);
    } else {
        return NULL;
    }
    pool->live[idx / 64] |= UINT64_C(1) << (idx % 64);
    pool->used++;
    pool->peak = MAX(pool->peak, pool->used);
    /* The bytes that rounding added are not part of the object. */
    POISON(obj + pool->obj_bytes, pool->stride - pool->obj_bytes);
    return obj;
}

void *pool_get(struct pool *pool)
{
    return FAULT(alloc) ? NULL : next_free(pool);
}

void *pool_take(struct pool *pool)
{
    void *obj = next_free(pool);
    MUST(obj != NULL);
    return obj;
}

uint32_t pool_index(const struct pool *pool, const void *obj)
{
    const uintptr_t at = (uintptr_t)obj, base = (uintptr_t)pool->objs;
    MUST(at >= base && (at - base) / pool->stride < pool->count);
    MUST((at - base) % pool->stride == 0);
    return (uint32_t)((at - base) / pool->stride);
}

void pool_put(struct pool *pool, void *obj)
{
    check_thread(pool);
    const uint32_t idx = pool_index(pool, obj);
    MUST(is_live(pool, idx));
    pool->live[idx / 64] &= ~(UINT64_C(1) << (idx % 64));
    UNPOISON(obj, pool->stride); /* an object may be shorter than the link */
    memcpy(obj, &pool->free_head, sizeof(pool->free_head));
    POISON(obj, pool->stride);
    pool->free_head = idx;
    pool->used--;
}

void *pool_at(const struct pool *pool, uint32_t idx)
{
    MUST(idx < pool->count);
    return is_live(pool, idx) ? object(pool, idx) : NULL;
}

void *pool_next(const struct pool *pool, uint32_t *idx)
{
    for (uint32_t at = *idx; pool != NULL && at < pool->fresh; at = (at | 63) + 1) {
        const uint64_t live = pool->live[at / 64] >> at % 64;
        if (live == 0)
            continue;
        *idx = at + (uint32_t)__builtin_ctzll(live);
        return object(pool, *idx);
    }
    return NULL;
}

const char *pool_name(const struct pool *pool)
{
    return pool->name;
}

uint32_t pool_count(const struct pool *pool)
{
    return pool->count;
}

uint32_t pool_used(const struct pool *pool)
{
    return pool->used;
}

uint32_t pool_peak(const struct pool *pool)
{
    return pool->peak;
}

size_t pool_bytes(const struct pool *pool)
{
    return sizeof(*pool) + pool_bytes_for(pool->obj_bytes, pool->count);
}

size_t pool_bytes_for(size_t obj_bytes, uint32_t count)
{
    size_t stride, objs, all;
    return room_bytes(obj_bytes, count, &stride, &objs, &all) ? all : SIZE_MAX;
}
