/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which copies a block is to have, and the set of blocks whose copies may differ from that.
 * keep/reconcile.c works through the set in the background.
 */
#include "wants.h"
#include "block.h"

#define CARRIES_LOOKS 1024u
#define WORD_BITS     64u

/* The set: a bit for each record, and above that a bit for each word in which one is set. */
struct unmet {
    uint64_t *bits, *words; /* `words` stands behind `bits`, in one piece of memory */
    uint32_t n;             /* bits that are set */
    uint32_t at;            /* the next record to be taken */
    bool found;             /* copies written for pins before the restart keep their promises */
};

/* ---- wanted copies ---- */

enum copy_state block_carries(const struct core *c, const struct block *b)
{
    enum copy_state most = COPY_NONE;
    uint32_t no = b->child;
    for (unsigned n = 0; no != CORE_NONE && n < CARRIES_LOOKS; n++, no = c->blocks[no].next) {
        const struct block *x = &c->blocks[no];
        if (x->state != BLOCK_PRESENT)
            continue;
        if (x->promising || block_promised(x))
            return COPY_DURABLE;
        if (copy_there(x, CORE_STORAGE) || block_saving(x))
            most = COPY_READY;
    }
    return most;
}

enum copy_state block_asked(const struct core *c, const struct block *b, enum core_tier tier)
{
    if (b->state != BLOCK_PRESENT || !c->cfg.tier[tier])
        return COPY_NONE;
    if (tier == CORE_HOST)
        return b->host_pins > 0 ? COPY_READY : COPY_NONE;
    if (b->flags & BLOCK_F_SAFE || b->promising)
        return COPY_DURABLE;
    return block_pinned(b) || block_named(c, b) ? COPY_FOR_PIN : COPY_NONE;
}

enum copy_state block_wants(const struct core *c, const struct block *b, enum core_tier tier)
{
    const enum copy_state asked = block_asked(c, b, tier);
    if (asked == COPY_DURABLE || tier != CORE_STORAGE || b->state != BLOCK_PRESENT ||
        !core_stores(c))
        return asked;
    return MAX(asked, block_carries(c, b));
}

bool copy_is_enough(const struct block *b, enum core_tier tier, enum copy_state wanted)
{
    if (wanted == COPY_NONE)
        return true;
    return copy_there(b, tier) && copy_state(b, tier) >= wanted;
}

bool block_lacks(const struct core *c, const struct block *b, enum core_tier tier)
{
    return !copy_is_enough(b, tier, block_asked(c, b, tier));
}

/* ---- the set ---- */

static uint64_t unmet_words(const struct core_config *cfg)
{
    return (cfg->blocks_max + WORD_BITS - 1) / WORD_BITS;
}

static uint64_t unmet_summary(const struct core_config *cfg)
{
    return (unmet_words(cfg) + WORD_BITS - 1) / WORD_BITS;
}

uint64_t unmet_bytes(const struct core_config *cfg)
{
    return (unmet_words(cfg) + unmet_summary(cfg)) * sizeof(uint64_t);
}

static int unmet_create(struct core *c)
{
    struct unmet *u = c->mod.unmet;
    u->bits = core__pages(unmet_bytes(&c->cfg));
    u->words = u->bits + unmet_words(&c->cfg);
    return u->bits ? 0 : -ENOMEM;
}

static void unmet_destroy(struct core *c)
{
    core__pages_put(c->mod.unmet->bits, unmet_bytes(&c->cfg));
}

static struct sys_range unmet_memory(const struct core *c)
{
    return (struct sys_range){c->mod.unmet->bits, unmet_bytes(&c->cfg)};
}

const struct core_module unmet_module = {CORE_STATE(unmet), .create = unmet_create,
                                         .destroy = unmet_destroy, .memory = unmet_memory};

uint32_t unmet_count(const struct core *c)
{
    return c->mod.unmet->n;
}

bool unmet_has(const struct core *c, const struct block *b)
{
    const uint32_t no = block_no(c, b);
    return c->mod.unmet->bits[no / WORD_BITS] >> no % WORD_BITS & 1;
}

static void unmet_set(struct unmet *u, uint32_t no)
{
    const uint32_t word = no / WORD_BITS;
    const uint64_t bit = 1ull << no % WORD_BITS;
    u->n += !(u->bits[word] & bit);
    u->bits[word] |= bit;
    u->words[word / WORD_BITS] |= 1ull << word % WORD_BITS;
}

void unmet_add(struct core *c, const struct block *b)
{
    unmet_set(c->mod.unmet, block_no(c, b));
}

bool found_keeps(const struct core *c)
{
    return c->mod.unmet->found;
}

void found_begin(struct core *c)
{
    c->mod.unmet->found = true;
}

/* Sets the first n bits. */
static void bits_fill(uint64_t *bits, uint64_t n)
{
    memset(bits, 0xff, n / WORD_BITS * sizeof *bits);
    if (n % WORD_BITS)
        bits[n / WORD_BITS] |= (1ull << n % WORD_BITS) - 1;
}

void found_end(struct core *c)
{
    struct unmet *u = c->mod.unmet;
    if (!u->found)
        return;
    u->found = false;
    bits_fill(u->bits, c->blocks_high);
    bits_fill(u->words, (c->blocks_high + WORD_BITS - 1) / WORD_BITS);
    u->n = c->blocks_high;
}

/* The index of the first set bit from `at` on, in `n` words; n * WORD_BITS or more: none is set. */
static uint64_t bit_from(const uint64_t *bits, uint64_t n, uint64_t at)
{
    for (uint64_t w = at / WORD_BITS; w < n; w++, at = w * WORD_BITS) {
        const uint64_t rest = bits[w] & ~0ull << at % WORD_BITS;
        if (rest)
            return w * WORD_BITS + (unsigned)__builtin_ctzll(rest);
    }
    return n * WORD_BITS;
}

static uint64_t unmet_next(const struct core *c, uint64_t from)
{
    const struct unmet *u = c->mod.unmet;
    const uint64_t words = unmet_words(&c->cfg), at = from / WORD_BITS;
    if (at < words && u->bits[at] & ~0ull << from % WORD_BITS)
        return bit_from(u->bits, at + 1, from);
    const uint64_t word = bit_from(u->words, unmet_summary(&c->cfg), at + 1);
    return word < words ? bit_from(u->bits, word + 1, word * WORD_BITS) : words * WORD_BITS;
}

struct block *unmet_take(struct core *c)
{
    struct unmet *u = c->mod.unmet;
    if (u->n == 0)
        return NULL;
    uint64_t no = unmet_next(c, u->at);
    if (no >= c->cfg.blocks_max)
        no = unmet_next(c, 0);
    MUST(no < c->cfg.blocks_max);
    uint64_t *bits = &u->bits[no / WORD_BITS];
    *bits &= ~(1ull << no % WORD_BITS);
    if (*bits == 0)
        u->words[no / WORD_BITS / WORD_BITS] &= ~(1ull << no / WORD_BITS % WORD_BITS);
    u->n--;
    u->at = (uint32_t)no + 1;
    return &c->blocks[no];
}
