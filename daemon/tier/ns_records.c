/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of namespaces beside the arena's chunks, so that the next run knows whose blocks they
 * hold; found by a fingerprint that the caller gives.
 */
#include "ns_records.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bus.h"
#include "hash.h"
#include "layout.h"
#include "sys.h"

#define NAMES_VERSION 1u
#define RECORDS_MAX   (1u << 20)
#define NO_RECORD     UINT32_MAX

struct names_header {
    uint64_t magic;
    uint32_t version;
    uint32_t unused;
    uint8_t store[16];
    uint64_t check;
    _Atomic uint64_t next_chunk; /* the number in the upper half, its complement in the lower */
};

struct names_page {
    _Atomic uint64_t check; /* over the fields below and the record's bytes; 0: the page is free */
    uint64_t print;
    uint32_t bytes;
    uint32_t unused;
    uint8_t record[NAMES_RECORD_MAX];
};
_Static_assert(sizeof(struct names_page) <= LAYOUT_PAGE_BYTES, "a page each");

struct ns_records {
    struct backing *backing;
    int fd;
    uint8_t *base;
    uint64_t bytes;
    uint32_t records, count;
    bool old, lost;
    uint64_t *prints; /* by record; 0: free */
    bool *seen;       /* by record */
    uint32_t *index;  /* print -> record, open addressing */
    uint32_t mask;
    uint32_t free_from; /* no record below it is free */
    struct bus_claim claim;
};

/* --- pages --- */

static struct names_header *header(const struct ns_records *n)
{
    return (struct names_header *)(void *)n->base;
}

static uint64_t names_page_at(uint32_t record)
{
    return ((uint64_t)record + 1) << LAYOUT_PAGE_SHIFT;
}

static struct names_page *page(const struct ns_records *n, uint32_t record)
{
    return (struct names_page *)(void *)(n->base + names_page_at(record));
}

static uint64_t check_of(const struct ns_records *n, const struct names_page *p, uint32_t record)
{
    const size_t head = offsetof(struct names_page, record) - offsetof(struct names_page, print);
    return layout_check(&p->print, head + p->bytes, layout_where(ns_records_store(n), 0, record));
}

static uint64_t header_check(const struct names_header *h)
{
    return layout_check(h, offsetof(struct names_header, check), LAYOUT_NAMES_MAGIC);
}

/* --- index --- */

static uint32_t names_bucket(const struct ns_records *n, uint64_t print)
{
    return (uint32_t)hash_u64(&print, sizeof(print), 0) & n->mask;
}

static uint32_t names_find(const struct ns_records *n, uint64_t print)
{
    for (uint32_t i = names_bucket(n, print); n->index[i] != NO_RECORD; i = (i + 1) & n->mask)
        if (n->prints[n->index[i]] == print)
            return n->index[i];
    return NO_RECORD;
}

static void index_add(struct ns_records *n, uint32_t record)
{
    uint32_t i = names_bucket(n, n->prints[record]);
    while (n->index[i] != NO_RECORD)
        i = (i + 1) & n->mask;
    n->index[i] = record;
}

static void index_build(struct ns_records *n)
{
    memset(n->index, 0xff, ((size_t)n->mask + 1) * sizeof(n->index[0]));
    for (uint32_t i = 0; i < n->records; i++)
        if (n->prints[i] != 0)
            index_add(n, i);
    n->free_from = 0;
}

/* The caller must build the index anew afterwards. */
static void names_drop(struct ns_records *n, uint32_t record)
{
    atomic_store_explicit(&page(n, record)->check, 0, memory_order_release);
    n->prints[record] = 0;
    n->count--;
}

/* --- open, close --- */

static int names_begin(struct ns_records *n)
{
    uint8_t store[16];
    struct names_header *h = header(n);
    int err = hash_random(store, sizeof(store));
    /* The whole file is zeroes again; its mapping stays. */
    if (err == 0 && (sys_ftruncate(n->fd, 0) != 0 || sys_ftruncate(n->fd, (off_t)n->bytes) != 0))
        err = -errno;
    if (err == 0)
        err = backing_reserve(n->backing, n->fd, 0, LAYOUT_PAGE_BYTES);
    if (err < 0)
        return err;
    memcpy(h->store, store, sizeof(store));
    h->version = NAMES_VERSION;
    h->unused = 0;
    atomic_store_explicit(&h->next_chunk, 0, memory_order_relaxed);
    struct names_header whole = {.magic = LAYOUT_NAMES_MAGIC, .version = NAMES_VERSION};
    memcpy(whole.store, store, sizeof(store));
    h->check = header_check(&whole);
    layout_order();
    *(volatile uint64_t *)&h->magic = LAYOUT_NAMES_MAGIC;
    return 0;
}

static bool is_valid(const struct ns_records *n)
{
    const struct names_header *h = header(n);
    return h->magic == LAYOUT_NAMES_MAGIC && h->version == NAMES_VERSION &&
           h->check == header_check(h);
}

/* A read through the mapping would allocate the page. So pread(2) tells first whether it is used.
 */
static void names_read_pages(struct ns_records *n)
{
    for (uint32_t i = 0; i < n->records; i++) {
        struct names_page *p = page(n, i);
        uint64_t check = 0;
        if (pread(n->fd, &check, sizeof(check), (off_t)names_page_at(i)) != sizeof(check) ||
            check == 0)
            continue;
        if (p->print == 0 || p->bytes > NAMES_RECORD_MAX || check != check_of(n, p, i)) {
            atomic_store_explicit(&p->check, 0, memory_order_relaxed);
            continue;
        }
        n->prints[i] = p->print;
        n->count++;
    }
    index_build(n);
}

/* Another process truncated the file: this run goes on with private zeroes, and the next run finds
 * none of its namespaces. Runs in a signal handler. */
static bool lose(void *ctx, void *addr)
{
    const struct ns_records *n = ctx;
    const uint8_t *const at = addr;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (at < n->base || (uint64_t)(at - n->base) >= n->bytes)
        return false;
    return sys_mmap(n->base, n->bytes, PROT_READ | PROT_WRITE, flags, -1) != MAP_FAILED;
}

static int names_fill(struct ns_records *n, uint32_t records_max)
{
    int err = backing_names(n->backing, names_page_at(records_max), &n->fd, &n->bytes);
    if (err < 0)
        return err;
    n->lost = err > 0;
    n->records = (uint32_t)MIN((n->bytes >> LAYOUT_PAGE_SHIFT) - 1, RECORDS_MAX);
    for (n->mask = 64; n->mask < 2 * n->records;)
        n->mask *= 2;
    n->prints = sys_calloc(n->records, sizeof(n->prints[0]));
    n->seen = sys_calloc(n->records, sizeof(n->seen[0]));
    n->index = sys_calloc(n->mask, sizeof(n->index[0]));
    n->mask--;
    if (n->prints == NULL || n->seen == NULL || n->index == NULL)
        return -ENOMEM;
    void *p = sys_mmap(NULL, n->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, n->fd);
    if (p == MAP_FAILED)
        return -errno;
    n->base = p;
    n->claim = (struct bus_claim){.fn = lose, .ctx = n};
    err = bus_claim(&n->claim);
    if (err < 0)
        return err;
    err = backing_reserve(n->backing, n->fd, 0, LAYOUT_PAGE_BYTES);
    n->old = err == 0 && is_valid(n);
    if (err == 0 && !n->old) {
        n->lost |= header(n)->magic != 0; /* magic 0: a run was killed before it wrote the header */
        err = names_begin(n);
    }
    if (err == 0)
        names_read_pages(n);
    return err;
}

uint64_t ns_records_bytes(uint32_t records_max)
{
    return names_page_at(records_max) + (uint64_t)records_max * 40;
}

int ns_records_open(struct backing *backing, uint32_t records_max, struct ns_records **ret_names)
{
    MUST(records_max >= 1 && records_max <= RECORDS_MAX);
    struct ns_records *n = sys_calloc(1, sizeof(*n));
    if (n == NULL)
        return -ENOMEM;
    n->backing = backing;
    n->fd = -1;
    const int err = names_fill(n, records_max);
    if (err < 0) {
        ns_records_close(&n);
        return err;
    }
    *ret_names = n;
    return 0;
}

void ns_records_close(struct ns_records **names)
{
    if (names == NULL || *names == NULL)
        return;
    struct ns_records *n = *names;
    bus_unclaim(&n->claim);
    if (n->base != NULL)
        (void)munmap(n->base, n->bytes);
    if (n->fd >= 0)
        (void)close(n->fd);
    free(n->prints);
    free(n->seen);
    free(n->index);
    free(n);
    *names = NULL;
}

/* --- use --- */

const uint8_t *ns_records_store(const struct ns_records *n)
{
    return header(n)->store;
}

bool ns_records_is_old(const struct ns_records *n)
{
    return n->old;
}

bool ns_records_was_lost(const struct ns_records *n)
{
    return n->lost;
}

uint32_t ns_records_next_chunk(const struct ns_records *n)
{
    const uint64_t v = atomic_load_explicit(&header(n)->next_chunk, memory_order_relaxed);
    return (uint32_t)(v >> 32) == (uint32_t)~v ? (uint32_t)(v >> 32) : 0;
}

void ns_records_set_next_chunk(struct ns_records *n, uint32_t next)
{
    const uint64_t v = (uint64_t)next << 32 | (uint32_t)~next;
    atomic_store_explicit(&header(n)->next_chunk, v, memory_order_release);
}

static uint32_t free_record(struct ns_records *n)
{
    for (uint32_t i = n->free_from; i < n->records; i++) {
        if (n->prints[i] != 0)
            continue;
        n->free_from = i + 1;
        return i;
    }
    n->free_from = n->records;
    return NO_RECORD;
}

int ns_records_put(struct ns_records *n, uint64_t print, const void *record, uint32_t bytes)
{
    if (print == 0 || bytes > NAMES_RECORD_MAX)
        return -EINVAL;
    uint32_t at = names_find(n, print);
    const bool there = at != NO_RECORD;
    if (!there) {
        at = free_record(n);
        if (at == NO_RECORD)
            return -ENOSPC;
        const int err = backing_reserve(n->backing, n->fd, names_page_at(at), LAYOUT_PAGE_BYTES);
        if (err < 0) {
            n->free_from = at;
            return err;
        }
    }
    n->seen[at] = true;
    struct names_page *p = page(n, at);
    if (there && p->bytes == bytes && memcmp(p->record, record, bytes) == 0)
        return 0;
    /* A half-written record must not count: check is 0 from before the first store until after the
     * last one. */
    atomic_store_explicit(&p->check, 0, memory_order_relaxed);
    layout_order();
    p->print = print;
    p->bytes = bytes;
    p->unused = 0;
    memcpy(p->record, record, bytes);
    atomic_store_explicit(&p->check, check_of(n, p, at), memory_order_release);
    if (!there) {
        n->prints[at] = print;
        n->count++;
        index_add(n, at);
    }
    return 0;
}

bool ns_records_has(struct ns_records *n, uint64_t print)
{
    const uint32_t at = print != 0 ? names_find(n, print) : NO_RECORD;
    if (at == NO_RECORD)
        return false;
    n->seen[at] = true;
    return true;
}

void ns_records_sweep(struct ns_records *n)
{
    bool any = false;
    for (uint32_t i = 0; i < n->records; i++) {
        if (n->prints[i] != 0 && !n->seen[i]) {
            names_drop(n, i);
            any = true;
        }
        n->seen[i] = false;
    }
    if (any)
        index_build(n);
}

uint32_t ns_records_count(const struct ns_records *n)
{
    return n->count;
}

uint32_t ns_records_each(struct ns_records *n, names_fn *fn, void *ctx)
{
    bool any = false;
    for (uint32_t i = 0; i < n->records; i++) {
        if (n->prints[i] == 0)
            continue;
        const struct names_page *p = page(n, i);
        if (fn(ctx, p->print, p->record, p->bytes))
            continue;
        names_drop(n, i);
        any = true;
    }
    if (any)
        index_build(n);
    return n->count;
}
