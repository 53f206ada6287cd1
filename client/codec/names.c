/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and texts of statuses, miss reasons and namespace fields for people; and the fixed layouts
 * of locations, regions and wishes, which travel as blobs inside messages.
 */
#include "codec.h"
#include "cursor.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

struct name {
    const char *name, *text;
};

#define X(value, id, words) [value] = {#id, words},
static const struct name statuses[] = {KVC_STATUS_MAP(X)};
static const struct name misses[] = {KVC_MISS_MAP(X)};
#undef X
#define X(bit, id, words) [bit] = words,
static const char *const fields[] = {KVC_NS_FIELD_MAP(X)};
#undef X

const char *codec_status_name(unsigned status)
{
    return status < LEN(statuses) ? statuses[status].name : "?";
}

const char *codec_status_text(unsigned status)
{
    return status < LEN(statuses) ? statuses[status].text
                                  : "a status that this release does not know";
}

const char *codec_miss_name(unsigned reason)
{
    return reason < LEN(misses) ? misses[reason].name : "?";
}

const char *codec_miss_text(unsigned reason)
{
    return reason < LEN(misses) ? misses[reason].text : "a reason that this release does not know";
}

const char *codec_field_name(unsigned bit)
{
    return bit < LEN(fields) ? fields[bit] : "?";
}

void codec_put_loc(uint8_t out[KVC_LOC_BYTES], const struct msg_loc *loc)
{
    struct wcursor w;
    wcursor_init(&w, out, KVC_LOC_BYTES);
    wcursor_put_u32le(&w, loc->chunk);
    wcursor_put_u32le(&w, loc->bytes);
    wcursor_put_u64le(&w, loc->off);
    wcursor_put_u64le(&w, loc->hdr);
    wcursor_put_u64le(&w, loc->gen);
}

void codec_get_loc(const uint8_t in[KVC_LOC_BYTES], struct msg_loc *ret_loc)
{
    struct cursor c;
    cursor_init(&c, in, KVC_LOC_BYTES);
    ret_loc->chunk = cursor_u32le(&c);
    ret_loc->bytes = cursor_u32le(&c);
    ret_loc->off = cursor_u64le(&c);
    ret_loc->hdr = cursor_u64le(&c);
    ret_loc->gen = cursor_u64le(&c);
}

void codec_put_region(uint8_t out[KVC_REGION_BYTES], const struct msg_region *region)
{
    struct wcursor w;
    wcursor_init(&w, out, KVC_REGION_BYTES);
    wcursor_put_u32le(&w, region->mem);
    wcursor_put_u32le(&w, region->layer);
    wcursor_put_u64le(&w, region->base);
    wcursor_put_u64le(&w, region->stride_bytes);
    wcursor_put_u64le(&w, region->page_bytes);
    wcursor_put_u64le(&w, 0);
}

void codec_get_region(const uint8_t in[KVC_REGION_BYTES], struct msg_region *ret_region)
{
    struct cursor c;
    cursor_init(&c, in, KVC_REGION_BYTES);
    ret_region->mem = cursor_u32le(&c);
    ret_region->layer = cursor_u32le(&c);
    ret_region->base = cursor_u64le(&c);
    ret_region->stride_bytes = cursor_u64le(&c);
    ret_region->page_bytes = cursor_u64le(&c);
}

void codec_put_retain(uint8_t out[KVC_RETAIN_BYTES], const struct msg_retain *retain)
{
    struct wcursor w;
    wcursor_init(&w, out, KVC_RETAIN_BYTES);
    wcursor_put_u32le(&w, retain->first_token);
    wcursor_put_u32le(&w, retain->end_token);
    wcursor_put_u32le(&w, retain->priority);
    wcursor_put_u64le(&w, retain->duration_ms);
}

void codec_get_retain(const uint8_t in[KVC_RETAIN_BYTES], struct msg_retain *ret_retain)
{
    struct cursor c;
    cursor_init(&c, in, KVC_RETAIN_BYTES);
    ret_retain->first_token = cursor_u32le(&c);
    ret_retain->end_token = cursor_u32le(&c);
    ret_retain->priority = cursor_u32le(&c);
    ret_retain->duration_ms = cursor_u64le(&c);
}
