/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed number of equal objects, allocated once.
 *
 * The whole room is one allocation at create that is touched only as objects are first used, so
 * that a pool sized for the worst case costs memory only when the worst case comes. An empty pool
 * is back-pressure: pool_get() gives NULL and the caller answers with a status.
 *
 * Alignment: what sizeof(object) implies, up to 64 bytes.
 * Threads: one. The first pool_get() binds the pool to its thread; get and put on another fail a
 * MUST. Free objects are poisoned under AddressSanitizer. A put of an object that is free, or not
 * of this pool, always fails a MUST.
 */
#ifndef KVC_BASE_POOL_H
#define KVC_BASE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct pool;

/* The caller owns *ret_pool. Borrows `name` (a literal). obj_bytes and count are at least 1.
 * -ENOMEM, or -EOVERFLOW when the product does not fit. */
KVC_WARN_UNUSED int pool_create(struct pool **ret_pool, const char *name, size_t obj_bytes,
                                uint32_t count);
/* Frees every object, also those in use. Accepts NULL and pointer to NULL; sets *pool to NULL. */
void pool_destroy(struct pool **pool);

/* A zeroed object, or NULL when all are in use. The most recently freed is handed out first (it is
 * warm in the cache). */
KVC_WARN_UNUSED void *pool_get(struct pool *pool);
/* The same for a caller that has made sure that one is free: never NULL (it ends the program), and
 * no fault is injected there. */
KVC_WARN_UNUSED void *pool_take(struct pool *pool);
void pool_put(struct pool *pool, void *obj);

/* Number of an object of this pool, 0 to count - 1, the same for its whole life. */
uint32_t pool_index(const struct pool *pool, const void *obj);
/* The object of that number, or NULL when it is not in use. idx < count. */
void *pool_at(const struct pool *pool, uint32_t idx);
/* The first object in use from number *idx on; *idx becomes its number. NULL: no further object is
 * in use. Skips 64 unused objects at a time. Accepts NULL, as an empty pool. Any object may be put
 * between two calls. */
void *pool_next(const struct pool *pool, uint32_t *idx);
/* for (...) over all objects in use; obj is a pointer, number its number. */
#define POOL_FOR_EACH(obj, number, pool) \
    for (uint32_t number = 0; ((obj) = pool_next((pool), &(number))) != NULL; (number)++)

const char *pool_name(const struct pool *pool);
uint32_t pool_count(const struct pool *pool);
uint32_t pool_used(const struct pool *pool);
/* The most ever in use at once. */
uint32_t pool_peak(const struct pool *pool);
/* Bytes that the pool takes when every object has been used: for the memory budget. */
size_t pool_bytes(const struct pool *pool);
/* The same before there is a pool; SIZE_MAX when it does not fit. */
size_t pool_bytes_for(size_t obj_bytes, uint32_t count);

#endif
