/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <string.h>

#include "err.h"
#include "fake_tier.h"

static uint32_t dice(struct stream *s, uint32_t below)
{
    return (uint32_t)(fake_random(&s->random) % below);
}

/* A new conversation begins with some of another one's blocks. */
static void converse(struct stream *s, uint32_t i)
{
    uint32_t from = dice(s, STREAM_CONVS);
    uint32_t some = dice(s, 4) ? 1 + dice(s, 12) : 0;
    uint32_t shared = MIN(s->len[from], some);
    memmove(s->path[i], s->path[from], shared * sizeof(uint32_t));
    s->len[i] = shared;
}

uint32_t stream_next(struct stream *s, const uint32_t **ret_path)
{
    uint32_t i = dice(s, STREAM_CONVS);
    if (s->len[i] == 0 || dice(s, 6) == 0)
        converse(s, i);
    uint32_t grow = 1 + dice(s, 10);
    while (grow-- > 0 && s->len[i] < STREAM_DEPTH && s->nodes < STREAM_NODES)
        s->path[i][s->len[i]++] = s->nodes++;
    *ret_path = s->path[i];
    return s->len[i];
}
