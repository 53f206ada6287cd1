/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of trace records (ring.h): trace.c notes what sessions ask for and store while a trace
 * is on, and TRACE_DUMP reads it.
 */
#include "ring.h"

#include <endian.h>
#include <sys/mman.h>

#include "hash.h"
#include "sys.h"

#define KEY_BYTES 32u
/* Ends of chains that are kept, so that blocks stored behind them later are recorded as output. */
#define ENDS 4096u

/* The head of a record, in the ring's words before its ids. */
struct head {
    uint32_t ns, block_tokens;
    uint32_t input_tokens, output_tokens;
    uint64_t timestamp_ms;
    uint32_t n, unused;
};
#define HEAD_WORDS (sizeof(struct head) / sizeof(uint64_t))

struct end {
    uint64_t id; /* hash of a chain's last whole block, and of the session that asked for it */
    uint64_t no; /* the record + 1; 0 = none */
};

struct ring {
    uint64_t bytes, seed, begun_ns;
    uint64_t first, end; /* record numbers */
    uint64_t at;         /* where the next record begins: words since the start, modulo nwords */
    uint64_t nwords, nplaces;
    uint64_t *words;
    uint64_t *places; /* the place of record `no` is places[no % nplaces] */
    struct end ends[ENDS];
};

int ring_create(uint64_t bytes, uint64_t now_ns, struct ring **ret_ring)
{
    if (bytes < RING_BYTES_MIN || bytes > RING_BYTES_MAX)
        return -EINVAL;
    uint64_t seed;
    int err = hash_random(&seed, sizeof seed);
    if (err)
        return err;
    struct ring *r = sys_pages(bytes);
    if (r == NULL)
        return -ENOMEM;
    uint64_t room = (bytes - sizeof *r) / sizeof(uint64_t);
    r->bytes = bytes;
    r->seed = seed;
    r->begun_ns = now_ns;
    r->nplaces = room / 8;
    r->nwords = room - r->nplaces;
    r->places = (uint64_t *)(void *)(r + 1);
    r->words = r->places + r->nplaces;
    *ret_ring = r;
    return 0;
}

void ring_destroy(struct ring **ring)
{
    if (*ring)
        MUST(munmap(*ring, (*ring)->bytes) == 0);
    *ring = NULL;
}

static uint64_t ring_id_of(const struct ring *r, uint32_t ns, const uint8_t *key)
{
    return hash_u64(key, KEY_BYTES, r->seed ^ (uint64_t)ns << 32);
}

static struct head *head_at(const struct ring *r, uint64_t place)
{
    return (struct head *)(void *)&r->words[place % r->nwords];
}

/* Makes room for `words` words in one piece, and returns its place. Records in the way are dropped,
 * the oldest first. */
static uint64_t ring_make_room(struct ring *r, uint64_t words)
{
    uint64_t place = r->at;
    if (place % r->nwords + words > r->nwords)
        place += r->nwords - place % r->nwords;
    uint64_t end = place + words;
    while (r->first < r->end &&
           (r->end - r->first == r->nplaces || r->places[r->first % r->nplaces] + r->nwords < end))
        r->first++;
    r->at = end;
    return place;
}

/* ---- ends of chains ---- */

static uint64_t end_id(const struct ring *r, const struct ring_chain *chain, const uint8_t *key)
{
    return ring_id_of(r, chain->ns, key) ^ chain->session * UINT64_C(0x9e3779b97f4a7c15);
}

static void remember(struct ring *r, const struct ring_chain *chain, const uint8_t *key,
                     uint64_t no)
{
    uint64_t id = end_id(r, chain, key);
    r->ends[id % ENDS] = (struct end){.id = id, .no = no + 1};
}

/* The record whose chain, or output, ends with `key`; UINT64_MAX = none. */
static uint64_t recall(const struct ring *r, const struct ring_chain *chain, const uint8_t *key)
{
    uint64_t id = end_id(r, chain, key);
    const struct end *e = &r->ends[id % ENDS];
    return e->id == id && e->no > r->first && e->no <= r->end ? e->no - 1 : UINT64_MAX;
}

/* The key of the last filled block; NULL: none. Blocks can follow only behind a filled one. */
static const uint8_t *last_whole(const struct ring_chain *chain)
{
    uint32_t whole = MIN(chain->tokens / chain->block_tokens, chain->n);
    return whole ? chain->keys + (size_t)(whole - 1) * KEY_BYTES : NULL;
}

/* ---- recording ---- */

void ring_asked(struct ring *r, const struct ring_chain *chain, uint64_t now_ns)
{
    uint64_t place = ring_make_room(r, HEAD_WORDS + chain->n);
    struct head *h = head_at(r, place);
    *h = (struct head){.ns = chain->ns,
                       .block_tokens = chain->block_tokens,
                       .input_tokens = chain->tokens,
                       .timestamp_ms = (now_ns - r->begun_ns) / 1000000,
                       .n = chain->n};
    uint64_t *ids = (uint64_t *)(void *)(h + 1);
    for (uint32_t i = 0; i < chain->n; i++)
        ids[i] = htole64(ring_id_of(r, chain->ns, chain->keys + (size_t)i * KEY_BYTES));
    r->places[r->end % r->nplaces] = place;
    const uint8_t *last = last_whole(chain);
    if (last)
        remember(r, chain, last, r->end);
    r->end++;
}

void ring_stored(struct ring *r, const struct ring_chain *chain)
{
    uint64_t no = chain->parent ? recall(r, chain, chain->parent) : UINT64_MAX;
    for (uint32_t i = 0; i < chain->n && no == UINT64_MAX; i++)
        no = recall(r, chain, chain->keys + (size_t)i * KEY_BYTES);
    if (no == UINT64_MAX)
        return;
    struct head *h = head_at(r, r->places[no % r->nplaces]);
    uint32_t end = chain->first_token + chain->tokens;
    if (end > h->input_tokens)
        h->output_tokens = MAX(h->output_tokens, end - h->input_tokens);
    const uint8_t *last = last_whole(chain);
    if (last && chain->first_token + chain->tokens >= h->input_tokens)
        remember(r, chain, last, no);
}

/* ---- reading ---- */

void ring_state(const struct ring *r, struct ring_state *ret_state)
{
    uint64_t words = r->first < r->end ? r->at - r->places[r->first % r->nplaces] : 0;
    *ret_state = (struct ring_state){.first = r->first,
                                     .end = r->end,
                                     .bytes = r->bytes,
                                     .used_bytes = words * sizeof(uint64_t),
                                     .begun_ns = r->begun_ns};
}

void ring_at(const struct ring *r, uint64_t no, struct ring_record *ret_record)
{
    MUST(no >= r->first && no < r->end);
    const struct head *h = head_at(r, r->places[no % r->nplaces]);
    *ret_record = (struct ring_record){.ns = h->ns,
                                       .block_tokens = h->block_tokens,
                                       .input_tokens = h->input_tokens,
                                       .output_tokens = h->output_tokens,
                                       .timestamp_ms = h->timestamp_ms,
                                       .n = h->n,
                                       .ids = (const uint64_t *)(const void *)(h + 1)};
}
