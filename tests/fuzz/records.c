/* SPDX-License-Identifier: Apache-2.0 */
#include "records.h"

#define HEAD 4u

static size_t length_at(const uint8_t *at)
{
    return at[2] | (size_t)at[3] << 8;
}

bool records_peek(const struct records *r, struct record *ret)
{
    size_t left = (size_t)(r->end - r->at);
    if (left < HEAD)
        return false;
    size_t len = length_at(r->at);
    if (len > left - HEAD)
        len = left - HEAD;
    *ret = (struct record){r->at[0], r->at[1], r->at + HEAD, len};
    return true;
}

bool records_next(struct records *r, struct record *ret)
{
    if (!records_peek(r, ret))
        return false;
    r->at = ret->bytes + ret->len;
    return true;
}
