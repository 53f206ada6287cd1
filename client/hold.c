/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds: a lease, and pointers to its blocks in mapped chunks. hold__fill() checks each location of
 * an ACQUIRE reply, and asks for chunks that are not mapped.
 */
#include "channel.h"
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sys.h"

/* ---- life ---- */

int hold__new(struct kvc *k, struct hold **ret_hold)
{
    struct hold *h = k->holds.free;
    if (h != NULL)
        k->holds.free = h->next;
    else
        h = sys_calloc(1, sizeof(*h));
    if (h == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    MUST(!h->is_live && h->maps == 0);
    memset(&h->pub, 0, sizeof(h->pub));
    h->is_live = true;
    h->pub.epoch = k->epoch;
    h->kvc = k;
    h->blocks = 0;
    h->maps = 0;
    h->on_device = false;
    h->prev = NULL;
    h->next = k->holds.live;
    if (h->next != NULL)
        h->next->prev = h;
    k->holds.live = h;
    *ret_hold = h;
    return 0;
}

static void hold__free(struct hold *h)
{
    struct kvc *k = h->kvc;
    MUST(h->is_live); /* else it was released twice */
    h->is_live = false;
    for (uint32_t i = 0; i < h->maps; i++)
        map__unref(h->map[i]);
    h->maps = 0;
    h->blocks = 0;
    MUST(h->prev != NULL ? h->prev->next == h : k->holds.live == h);
    if (h->prev != NULL)
        h->prev->next = h->next;
    else
        k->holds.live = h->next;
    if (h->next != NULL)
        h->next->prev = h->prev;
    h->next = k->holds.free;
    k->holds.free = h;
    kvc__tell_unmapped(k);
    if (k->orphans != NULL)
        orphan__sweep(k);
}

void hold__destroy_all(struct kvc *k)
{
    while (k->holds.live != NULL)
        hold__free(k->holds.live);
    while (k->holds.free != NULL) {
        struct hold *h = k->holds.free;
        k->holds.free = h->next;
        free(h->block);
        free(h->slot);
        free(h->map);
        free(h);
    }
}

/* ---- filling ---- */

/* Makes room for `need` elements in an array, which never shrinks. */
static int hold_grow(void **array, uint32_t *cap, uint32_t need, size_t size)
{
    if (need <= *cap)
        return 0;
    uint32_t n = need < 64 ? 64 : need + need / 2;
    void *p = sys_realloc(*array, n * size);
    if (p == NULL)
        return -ENOMEM;
    *array = p;
    *cap = n;
    return 0;
}

static int malformed(struct kvc *k, const char *what)
{
    return kvc__down(k, KVC_E_BAD_MESSAGE, "the daemon sent a lease with %s; disconnected", what);
}

bool hold__needs(const struct msg_acquire_reply *r, uint32_t chunk)
{
    for (uint32_t g = 0; g < r->ngroups; g++) {
        for (uint32_t i = 0; i + KVC_LOC_BYTES <= r->groups[g].locs.n; i += KVC_LOC_BYTES) {
            struct msg_loc l;
            codec_get_loc(r->groups[g].locs.p + i, &l);
            if (l.chunk == chunk)
                return true;
        }
    }
    return false;
}

/* Asks for a chunk, or for its memory on the device, if it is not mapped. 1 = asked; 0 = all is
 * mapped. */
static int ask_chunk(struct kvc *k, uint32_t chunk)
{
    const struct map *m = map__find(&k->maps, chunk);
    int rc = 0;
    if (m == NULL)
        rc = kvc__ask_chunk(k, ASK_MAP, chunk);
    else if (chunk >> MAP_DEVICE_SHIFT != 0 && m->on == NULL)
        rc = kvc__ask_chunk(k, ASK_ON, chunk);
    else
        return 0;
    return rc < 0 ? rc : 1;
}

/* Asks for all chunks of the reply that are not mapped. 1 = asked; 0 = all are mapped. */
static int ask_chunks(struct kvc *k, const struct msg_acquire_reply *r, bool on_device)
{
    bool missing = false;
    uint32_t last = 0;
    bool any = false;
    for (uint32_t g = 0; g < r->ngroups; g++) {
        for (uint32_t i = 0; i < r->groups[g].locs.n; i += KVC_LOC_BYTES) {
            struct msg_loc l;
            codec_get_loc(r->groups[g].locs.p + i, &l);
            if (any && l.chunk == last)
                continue;
            any = true;
            last = l.chunk;
            if (l.chunk >> MAP_DEVICE_SHIFT != 0 && !on_device)
                return malformed(k, "a block on a device, which nobody asked for");
            int rc = ask_chunk(k, l.chunk);
            if (rc < 0)
                return rc;
            missing |= rc > 0;
        }
    }
    return missing;
}

/* Takes a reference to the chunk's mapping, for a run of this hold's blocks. */
static int use_chunk(struct hold *h, uint32_t chunk, struct map **ret_map)
{
    if (hold_grow((void **)&h->map, &h->map_cap, h->maps + 1, sizeof(*h->map)) < 0)
        return kvc__fail(h->kvc, -ENOMEM, "out of memory");
    struct map *m = map__find(&h->kvc->maps, chunk);
    MUST(m != NULL); /* ask_chunks() found it */
    map__ref(m);
    h->map[h->maps++] = m;
    *ret_map = m;
    return 0;
}

static bool lies_inside(const struct msg_loc *l, const struct map *m)
{
    uint64_t bytes = m->on != NULL ? m->memory.bytes : m->bytes;
    return l->bytes <= bytes && l->off <= bytes - l->bytes && m->bytes >= 8 &&
           l->hdr <= m->bytes - 8 && l->hdr % 8 == 0;
}

static void hold_add_block(struct hold *h, const struct msg_loc *l, const struct map *m)
{
    MUST(h->blocks < h->block_cap && (!h->on_device || h->blocks < h->slot_cap));
    const void *slot = m->on != NULL ? (const uint8_t *)m->memory.addr + l->off : NULL;
    if (h->on_device)
        h->slot[h->blocks] = slot;
    h->block[h->blocks++] =
        (struct kvc_block){.data = slot != NULL ? NULL : m->base + l->off,
                           .bytes = l->bytes,
                           .gen = l->gen,
                           .gen_at = (const uint64_t *)(const void *)(m->base + l->hdr)};
}

static int fill_group(struct hold *h, const struct codec_bin *locs, struct map **last)
{
    for (uint32_t i = 0; i < locs->n; i += KVC_LOC_BYTES) {
        struct msg_loc l;
        codec_get_loc(locs->p + i, &l);
        if (*last == NULL || (*last)->chunk != l.chunk) {
            int rc = use_chunk(h, l.chunk, last);
            if (rc < 0)
                return rc;
        }
        if (!lies_inside(&l, *last))
            return malformed(h->kvc, "a block outside its chunk");
        hold_add_block(h, &l, *last);
    }
    return 0;
}

int hold__fill(struct hold *h, const struct msg_acquire_reply *r, bool on_device)
{
    uint64_t total = 0;
    for (uint32_t g = 0; g < r->ngroups; g++) {
        if (r->groups[g].locs.n % KVC_LOC_BYTES != 0)
            return malformed(h->kvc, "a broken location");
        total += r->groups[g].locs.n / KVC_LOC_BYTES;
    }
    if (total > KVC_KEYS_MAX || (r->lease == 0 && total > 0))
        return malformed(h->kvc, "more blocks than can be");
    int missing = ask_chunks(h->kvc, r, on_device);
    if (missing != 0)
        return missing;
    if (hold_grow((void **)&h->block, &h->block_cap, (uint32_t)total, sizeof(*h->block)) < 0 ||
        (on_device &&
         hold_grow((void **)&h->slot, &h->slot_cap, (uint32_t)total, sizeof(*h->slot)) < 0))
        return kvc__fail(h->kvc, -ENOMEM, "out of memory");

    struct map *last = NULL;
    h->on_device = on_device;
    h->pub.prefix.tokens = r->hit_tokens;
    h->pub.prefix.cached_tokens = r->cached_tokens;
    for (uint32_t g = 0; g < r->ngroups; g++) {
        const struct msg_group_locs *from = &r->groups[g];
        h->pub.group[g].first = from->first;
        h->pub.group[g].n = from->locs.n / KVC_LOC_BYTES;
        h->pub.group[g].block = h->block != NULL ? h->block + h->blocks : NULL;
        h->pub.prefix.group[g].blocks = from->first + h->pub.group[g].n;
        h->pub.prefix.group[g].reason = from->reason;
        h->pub.prefix.group[g].detail = from->detail;
        int rc = fill_group(h, &from->locs, &last);
        if (rc < 0)
            return rc;
    }
    memcpy(h->pub.ticket, r->ticket, sizeof(h->pub.ticket));
    return 0;
}

struct map *hold__map_of(const struct hold *h, const void *p, uint32_t *hint)
{
    uintptr_t at = (uintptr_t)p;
    for (uint32_t i = 0; i < h->maps; i++) {
        struct map *m = h->map[(*hint + i) % h->maps];
        if (at >= (uintptr_t)m->base && at - (uintptr_t)m->base < m->bytes) {
            *hint = (*hint + i) % h->maps;
            return m;
        }
    }
    return NULL;
}

/* ---- the public half ---- */

/* A barrier: the caller's reads of blocks happen before the reads of generations that follow. */
static void after_reading(void)
{
#if defined(__SANITIZE_THREAD__)
    __sync_synchronize(); /* ThreadSanitizer refuses fences that order plain accesses */
#else
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

bool hold__is_kept(const struct kvc *k, uint32_t epoch)
{
    if (k->state >= LINK_REOPENING && k->epoch == epoch)
        return !channel__is_hung_up(k->attach_fd); /* its end may not have been noticed yet */
    return orphan__has(k, epoch);
}

int kvc_hold_check(const struct kvc_hold *hold)
{
    const struct hold *h = (const struct hold *)(const void *)hold;
    struct kvc *k = h->kvc;
    bool stale = h->blocks > 0 && !hold__is_kept(k, hold->epoch);
    after_reading();
    for (uint32_t i = 0; i < h->blocks && !stale; i++)
        stale = __atomic_load_n(h->block[i].gen_at, __ATOMIC_RELAXED) != h->block[i].gen;
    if (!stale)
        return 0;
    k->counters.stale++;
    return KVC_STALE;
}

void hold__discard(struct hold *h)
{
    struct kvc *k = h->kvc;
    if (h->pub.lease != 0 && h->pub.epoch == k->epoch && !fork__is_child(k))
        op__post_release(k, h->pub.lease);
    hold__free(h);
}

void kvc_release(struct kvc *kvc, struct kvc_hold **hold)
{
    if (hold == NULL || *hold == NULL)
        return;
    struct hold *h = (struct hold *)(void *)*hold;
    (void)kvc; /* the hold has a pointer to its session */
    *hold = NULL;
    hold__discard(h);
}
