/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes, decodes and checks superblocks and tables on disk, and the journal's values.
 *
 * A superblock and a dead sector are one sector each, with a sum of the bytes before it. The sum of
 * a table, at the end of its head, covers the head and the items, and not the dead sector, which
 * changes later.
 */
#include "cursor.h"
#include "nvme__.h"

#define SUPER_MAGIC UINT64_C(0x6b76637375706231) /* "1bpuscvk" on disk */
#define TABLE_MAGIC UINT64_C(0x6b76637461626c31) /* "1lbatcvk" on disk */
#define DEAD_MAGIC  UINT64_C(0x3144414544564b4e) /* "NKVDEAD1" on disk */
#define VALUE_KIND  1u                           /* first byte of a value: an extent */
#define VALUE_HEAD  48u                          /* bytes of a value before its dead bits */

/* ---- superblock ---- */

void nvme__super_encode(const struct nvme_super *s, uint8_t page[NVME_PAGE])
{
    struct wcursor w;
    memset(page, 0, NVME_PAGE);
    wcursor_init(&w, page, NVME_SUPER_BYTES - sizeof(struct hash128));
    wcursor_put_u64le(&w, SUPER_MAGIC);
    wcursor_put_u32le(&w, NVME_FORMAT_VERSION);
    wcursor_put_u32le(&w, NVME_PAGE);
    wcursor_put(&w, s->uuid, sizeof(s->uuid));
    wcursor_put_u64le(&w, s->seq);
    wcursor_put_u32le(&w, s->path);
    wcursor_put_u32le(&w, s->paths);
    wcursor_put_u32le(&w, s->seg_pages);
    wcursor_put_u32le(&w, s->segments);
    wcursor_put_u32le(&w, s->formatted);
    wcursor_put_u32le(&w, s->epoch);
    MUST(wcursor_ok(&w));
    const size_t summed = NVME_SUPER_BYTES - sizeof(struct hash128);
    const struct hash128 sum = hash_sum(page, summed);
    memcpy(page + summed, &sum, sizeof(sum));
}

static bool is_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0)
            return false;
    return true;
}

int nvme__super_decode(const uint8_t *page, struct nvme_super *ret)
{
    struct cursor c;
    struct nvme_super s;
    const size_t summed = NVME_SUPER_BYTES - sizeof(struct hash128);
    const struct hash128 sum = hash_sum(page, summed);
    cursor_init(&c, page, summed);
    if (is_zero(page, NVME_SUPER_BYTES))
        return -ENOENT;
    const bool whole = memcmp(page + summed, &sum, sizeof(sum)) == 0;
    if (cursor_u64le(&c) != SUPER_MAGIC)
        return -EINVAL;
    if (!whole)
        return -EUCLEAN;
    if (cursor_u32le(&c) > NVME_FORMAT_VERSION)
        return -EPROTONOSUPPORT;
    const uint32_t page_bytes = cursor_u32le(&c);
    memcpy(s.uuid, cursor_take(&c, sizeof(s.uuid)), sizeof(s.uuid));
    s.seq = cursor_u64le(&c);
    s.path = cursor_u32le(&c);
    s.paths = cursor_u32le(&c);
    s.seg_pages = cursor_u32le(&c);
    s.segments = cursor_u32le(&c);
    s.formatted = cursor_u32le(&c);
    s.epoch = cursor_u32le(&c);
    if (page_bytes != NVME_PAGE || s.seg_pages == 0 || s.formatted > s.segments)
        return -EUCLEAN;
    *ret = s;
    return 0;
}

const char *nvme_head_problem(const uint8_t *head, uint64_t bytes)
{
    MUST(bytes >= 2 * NVME_PAGE);
    for (unsigned i = 0; i < 2; i++) {
        struct cursor c;
        cursor_init(&c, head + (size_t)i * NVME_PAGE, sizeof(uint64_t));
        if (cursor_u64le(&c) == SUPER_MAGIC)
            return NULL;
    }
    return is_zero(head, bytes) ? NULL
                                : "holds something that is not a store: clear its first 128 KiB if "
                                  "it may be overwritten";
}

uint64_t nvme_head_length(const uint8_t *head, uint64_t bytes)
{
    struct nvme_super s[2];
    MUST(bytes >= 2 * NVME_PAGE);
    const bool first = nvme__super_decode(head, &s[0]) == 0,
               second = nvme__super_decode(head + NVME_PAGE, &s[1]) == 0;
    if (!first && !second)
        return 0;
    const struct nvme_super *best = &s[!first || (second && s[1].seq > s[0].seq)];
    return (NVME_HEADER_PAGES + (uint64_t)best->segments * best->seg_pages) * NVME_PAGE;
}

/* ---- table ---- */

static struct hash128 table_sum(const uint8_t *table, uint32_t items)
{
    struct hash_stream s;
    hash_stream_init(&s);
    hash_stream_update(&s, table, NVME_HEAD_BYTES - sizeof(struct hash128));
    hash_stream_update(&s, table + NVME_HEAD_BYTES, (size_t)items * NVME_ITEM_BYTES);
    return hash_stream_final(&s);
}

void nvme__table_finish(uint8_t *table, struct nvme_head *h)
{
    struct wcursor w;
    const size_t bytes = NVME_HEAD_BYTES + (size_t)h->items * NVME_ITEM_BYTES;
    if (nvme__dead_fits(h->items))
        h->flags |= NVME_T_DEADS;
    memset(table, 0, NVME_HEAD_BYTES);
    memset(table + bytes, 0, (size_t)nvme__table_pages(h->items) * NVME_PAGE - bytes);
    wcursor_init(&w, table, NVME_HEAD_BYTES - sizeof(h->sum));
    wcursor_put_u64le(&w, TABLE_MAGIC);
    wcursor_put_u32le(&w, NVME_FORMAT_VERSION);
    wcursor_put_u32le(&w, h->flags);
    wcursor_put(&w, h->uuid, sizeof(h->uuid));
    wcursor_put_u32le(&w, h->path);
    wcursor_put_u32le(&w, h->seg);
    wcursor_put_u32le(&w, h->page);
    wcursor_put_u32le(&w, h->pages);
    wcursor_put_u32le(&w, h->items);
    wcursor_put_u32le(&w, h->head_pages);
    wcursor_put_u64le(&w, h->gen);
    wcursor_put_u64le(&w, h->seq);
    wcursor_put_u64le(&w, h->since);
    wcursor_put_u64le(&w, h->safe);
    MUST(wcursor_ok(&w));
    h->sum = table_sum(table, h->items);
    memcpy(table + NVME_HEAD_BYTES - sizeof(h->sum), &h->sum, sizeof(h->sum));
    if ((h->flags & NVME_T_DEADS) == 0)
        return;
    const struct nvme_value none = nvme__value_of(h);
    nvme__dead_encode(table + (size_t)(nvme__table_pages(h->items) - 1) * NVME_PAGE, h->uuid,
                      &none);
}

int nvme__head_decode(const uint8_t *table, uint64_t bytes, struct nvme_head *ret)
{
    struct cursor c;
    struct nvme_head h;
    MUST(bytes >= NVME_PAGE);
    cursor_init(&c, table, NVME_HEAD_BYTES);
    if (cursor_u64le(&c) != TABLE_MAGIC || cursor_u32le(&c) != NVME_FORMAT_VERSION)
        return -ENOENT;
    h.flags = cursor_u32le(&c);
    memcpy(h.uuid, cursor_take(&c, sizeof(h.uuid)), sizeof(h.uuid));
    h.path = cursor_u32le(&c);
    h.seg = cursor_u32le(&c);
    h.page = cursor_u32le(&c);
    h.pages = cursor_u32le(&c);
    h.items = cursor_u32le(&c);
    h.head_pages = cursor_u32le(&c);
    h.gen = cursor_u64le(&c);
    h.seq = cursor_u64le(&c);
    h.since = cursor_u64le(&c);
    h.safe = cursor_u64le(&c);
    memcpy(&h.sum, table + NVME_HEAD_BYTES - sizeof(h.sum), sizeof(h.sum));
    if (h.items == 0 || h.items > NVME_ITEMS_MAX || h.pages > NVME_EXTENT_MAX ||
        h.head_pages < nvme__table_pages(h.items) || h.head_pages > NVME_HEAD_PAGES ||
        h.head_pages > h.pages)
        return -EUCLEAN;
    if ((uint64_t)nvme__table_pages(h.items) * NVME_PAGE > bytes)
        return -ENOBUFS;
    const struct hash128 sum = table_sum(table, h.items);
    if (!hash128_equal(&sum, &h.sum))
        return -EUCLEAN;
    *ret = h;
    return 0;
}

void nvme__item_encode(uint8_t *table, uint32_t i, const struct nvme_item *it)
{
    struct wcursor w;
    uint8_t *at = table + NVME_HEAD_BYTES + (size_t)i * NVME_ITEM_BYTES;
    memset(at, 0, NVME_ITEM_BYTES);
    wcursor_init(&w, at, NVME_ITEM_BYTES);
    wcursor_put(&w, it->key.b, sizeof(it->key.b));
    wcursor_put(&w, it->parent.b, sizeof(it->parent.b));
    wcursor_put(&w, it->sum.b, sizeof(it->sum.b));
    wcursor_put_u64le(&w, it->print);
    wcursor_put_u32le(&w, it->page);
    wcursor_put_u32le(&w, it->bytes);
    wcursor_put_u16le(&w, (uint16_t)it->tokens);
    wcursor_put_u16le(&w, it->shard);
    wcursor_put_u8(&w, it->group);
    wcursor_put_u8(&w, it->flags);
    wcursor_put_u8(&w, it->level);
    wcursor_put_u8(&w, (uint8_t)(it->tokens >> 16));
    MUST(wcursor_ok(&w));
}

void nvme__item_decode(const uint8_t *table, uint32_t i, struct nvme_item *ret)
{
    struct cursor c;
    cursor_init(&c, table + NVME_HEAD_BYTES + (size_t)i * NVME_ITEM_BYTES, NVME_ITEM_BYTES);
    memcpy(ret->key.b, cursor_take(&c, sizeof(ret->key.b)), sizeof(ret->key.b));
    memcpy(ret->parent.b, cursor_take(&c, sizeof(ret->parent.b)), sizeof(ret->parent.b));
    memcpy(ret->sum.b, cursor_take(&c, sizeof(ret->sum.b)), sizeof(ret->sum.b));
    ret->print = cursor_u64le(&c);
    ret->page = cursor_u32le(&c);
    ret->bytes = cursor_u32le(&c);
    ret->tokens = cursor_u16le(&c);
    ret->shard = cursor_u16le(&c);
    ret->group = cursor_u8(&c);
    ret->flags = cursor_u8(&c);
    ret->level = cursor_u8(&c);
    ret->tokens |= (uint32_t)cursor_u8(&c) << 16;
    MUST(cursor_ok(&c));
}

/* ---- dead sector ---- */

static uint8_t *dead_sector(uint8_t *last_page)
{
    return last_page + NVME_PAGE - NVME_DEAD_BYTES;
}

void nvme__dead_encode(uint8_t *last_page, const uint8_t uuid[16], const struct nvme_value *v)
{
    struct wcursor w;
    uint8_t *at = dead_sector(last_page);
    memset(at, 0, NVME_DEAD_BYTES);
    wcursor_init(&w, at, NVME_DEAD_BYTES);
    wcursor_put_u64le(&w, DEAD_MAGIC);
    wcursor_put(&w, uuid, 16);
    wcursor_put_u64le(&w, v->gen);
    wcursor_put_u64le(&w, v->seq);
    wcursor_put_u32le(&w, v->items);
    wcursor_put(&w, v->dead, sizeof(v->dead));
    const struct hash128 sum = hash_sum(at, wcursor_len(&w));
    wcursor_put(&w, sum.b, sizeof(sum.b));
    MUST(wcursor_ok(&w));
}

static bool is_zeros(const uint8_t *p, size_t bytes)
{
    return p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0;
}

bool nvme__dead_decode(const uint8_t *table, const struct nvme_head *h,
                       uint8_t dead[NVME_MAP_BYTES])
{
    struct cursor c;
    if (!nvme__dead_fits(h->items))
        return true;
    const uint8_t *at = table + (size_t)nvme__table_pages(h->items) * NVME_PAGE - NVME_DEAD_BYTES;
    cursor_init(&c, at, NVME_DEAD_BYTES);
    const bool magic = cursor_u64le(&c) == DEAD_MAGIC;
    const uint8_t *uuid = cursor_take(&c, 16);
    const bool same =
        cursor_u64le(&c) == h->gen && cursor_u64le(&c) == h->seq && cursor_u32le(&c) == h->items;
    const uint8_t *map = cursor_take(&c, NVME_MAP_BYTES);
    const struct hash128 sum = hash_sum(at, (size_t)(map + NVME_MAP_BYTES - at));
    const uint8_t *is = cursor_take(&c, sizeof(sum.b));
    MUST(cursor_ok(&c));
    if (!magic || !same || memcmp(uuid, h->uuid, 16) != 0 || memcmp(is, sum.b, sizeof(sum.b)) != 0)
        return (h->flags & NVME_T_DEADS) == 0 && is_zeros(at, NVME_DEAD_BYTES);
    for (uint32_t i = 0; i < NVME_MAP_BYTES; i++)
        dead[i] |= map[i];
    return true;
}

bool nvme__item_ok(const struct nvme_head *h, const struct nvme_item *it)
{
    const uint32_t tables = nvme__table_pages(h->items);
    if ((it->flags & NVME_I_RECORD) != 0)
        return it->bytes != 0 && it->bytes <= NVME_RECORD_MAX && it->page >= tables &&
               it->page < h->head_pages;
    const uint64_t end = (uint64_t)it->page + nvme__pages(it->bytes);
    return it->bytes != 0 && it->page >= h->head_pages && end <= h->pages;
}

/* ---- the journal's value ---- */

uint32_t nvme__value_encode(const struct nvme_value *v, uint8_t ret[NVME_VALUE_BYTES])
{
    struct wcursor w;
    wcursor_init(&w, ret, NVME_VALUE_BYTES);
    wcursor_put_u8(&w, VALUE_KIND);
    wcursor_put_u8(&w, (uint8_t)v->flags);
    wcursor_put_u16le(&w, (uint16_t)v->items);
    wcursor_put_u8(&w, (uint8_t)v->head_pages);
    wcursor_put_u8(&w, (uint8_t)v->records);
    wcursor_put_u16le(&w, (uint16_t)v->pages);
    wcursor_put_u64le(&w, v->gen);
    wcursor_put_u64le(&w, v->seq);
    wcursor_put(&w, v->sum.b, sizeof(v->sum.b));
    wcursor_put_u64le(&w, 0);
    MUST(wcursor_len(&w) == VALUE_HEAD);
    wcursor_put(&w, v->dead, (v->items + 7) / 8);
    MUST(wcursor_ok(&w));
    return (uint32_t)wcursor_len(&w);
}

int nvme__value_decode(const void *value, uint32_t bytes, struct nvme_value *ret)
{
    struct cursor c;
    struct nvme_value v = {0};
    cursor_init(&c, value, bytes);
    const uint8_t kind = cursor_u8(&c);
    v.flags = cursor_u8(&c);
    v.items = cursor_u16le(&c);
    v.head_pages = cursor_u8(&c);
    v.records = cursor_u8(&c);
    v.pages = cursor_u16le(&c);
    v.gen = cursor_u64le(&c);
    v.seq = cursor_u64le(&c);
    const uint8_t *sum = cursor_take(&c, sizeof(v.sum.b));
    cursor_skip(&c, 8);
    const uint8_t *dead = cursor_take(&c, (v.items + 7u) / 8);
    if (!cursor_ok(&c) || cursor_left(&c) != 0 || kind != VALUE_KIND)
        return -EUCLEAN;
    if (v.items == 0 || v.items > NVME_ITEMS_MAX || v.head_pages > NVME_HEAD_PAGES ||
        v.head_pages < nvme__table_pages(v.items) || v.head_pages > v.pages)
        return -EUCLEAN;
    memcpy(v.sum.b, sum, sizeof(v.sum.b));
    memcpy(v.dead, dead, (v.items + 7u) / 8);
    *ret = v;
    return 0;
}
