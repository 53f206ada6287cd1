/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restart: core takes over the blocks that the tiers found from the run before. Blocks come in any
 * order, from both tiers and shard by shard; they are in the index at once and linked when all have
 * come. No request is served before that.
 */
#include "index.h"
#include "serve.h"
#include "wants.h"

#define RECOVER_AHEAD 16u

/* What recovery needs, from the first block that is found until core_recover_end(). */
struct recovery {
    uint64_t print;         /* print of the namespace of the block found last */
    uint32_t ns;            /* its place in core->ns */
    struct key256 parent[]; /* the parent's key of each block that was found */
};

static uint64_t recover_bytes(const struct core *c)
{
    return sizeof(struct recovery) + (uint64_t)c->cfg.blocks_max * sizeof(struct key256);
}

static void recover_destroy(struct core *c)
{
    core__pages_put(c->mod.recovery, recover_bytes(c));
    c->mod.recovery = NULL;
}

const struct core_module recover_module = {.destroy = recover_destroy};

/* ---- each block as it is found ---- */

static struct core_ns *found_ns(struct core *c, uint64_t print)
{
    if (c->mod.recovery->print != print || !print) {
        struct core_ns *ns = ns_by_print(c, print);
        if (!ns)
            return NULL;
        c->mod.recovery->print = print;
        c->mod.recovery->ns = (uint32_t)(ns - c->ns);
    }
    return &c->ns[c->mod.recovery->ns];
}

/* The namespace in which a found block belongs. NULL: none, or its size differs from the
 * group's. */
static struct core_ns *found_place(struct core *c, const struct core_found *f)
{
    struct core_ns *ns = found_ns(c, f->label.print);
    if (!ns || f->label.group >= ns->spec.ngroups)
        return NULL;
    const struct core_group *g = &ns->spec.group[f->label.group];
    const bool fits = f->bytes == g->block_bytes && f->label.tokens >= 1 &&
                      f->label.tokens <= g->block_tokens && f->label.shard < group_shards(ns, g);
    return fits ? ns : NULL;
}

static struct block *found_new(struct core *c, const struct core_found *f, uint32_t slot)
{
    struct block *b = block_new(c, BLOCK_FOUND);
    if (!b)
        return NULL;
    b->key = f->label.key;
    b->ns = (uint16_t)slot;
    b->group = f->label.group & 0xfu;
    b->tokens = f->label.tokens & 0x1ffffu;
    b->used = core__stamp(c) - (f->age_ms >> CORE_AGE_SHIFT);
    if (block_shards(c, b) == 1) {
        block_clear(b, BLOCK_F_PARTS);
        b->where = 0;
    }
    c->mod.recovery->parent[block_no(c, b)] =
        f->label.has_parent ? f->label.parent : (struct key256){.b = {0}};
    if (f->label.has_parent)
        b->flags |= BLOCK_F_KEEP; /* until b is linked this says that it has a parent */
    index_add(c, b);
    block_ns(c, b)->records++;
    return b;
}

static int found_part(struct core *c, struct block *b, uint32_t shard)
{
    if (!(b->flags & BLOCK_F_PARTS) || block_part(c, b, shard))
        return 0;
    struct part *p = pool_get(c->parts);
    if (!p)
        return KVC_E_FULL;
    *p = (struct part){.next = b->where, .disk = {0}, .shard = (uint8_t)shard, .state = PART_DONE};
    b->where = pool_index(c->parts, p);
    return 0;
}

/* Prefetches only for the namespace of the block found last: to find another namespace costs a
 * search, which core_recover() would repeat. */
void core_recover_soon(const struct core *c, const struct tier_label *label)
{
    if (c->mod.recovery && label->print != 0 && label->print == c->mod.recovery->print)
        index_prefetch(c, index_hash(c, c->mod.recovery->ns, label->group, label->key.b));
}

int core_recover(struct core *c, const struct core_found *f, uint32_t *ret_block_no)
{
    if (!c->mod.recovery)
        c->mod.recovery = core__pages(recover_bytes(c));
    if (!c->mod.recovery)
        return -ENOMEM;
    const struct core_ns *ns = found_place(c, f);
    if (!ns || f->loc.id == 0 || (!f->in_host && !core_stores(c)))
        return KVC_E_GONE;
    const uint32_t slot = (uint32_t)(ns - c->ns);
    const uint64_t hash = index_hash(c, slot, f->label.group, f->label.key.b);
    struct block *b = index_find(c, hash, slot, f->label.group, f->label.key.b);
    if (!b)
        b = found_new(c, f, slot);
    if (!b)
        return KVC_E_FULL;
    if (b->state != BLOCK_FOUND || b->tokens != f->label.tokens)
        return KVC_E_GONE;
    int err = found_part(c, b, f->label.shard);
    if (err)
        return err;
    const enum core_tier tier = f->in_host ? CORE_HOST : CORE_STORAGE;
    if (copy_loc(c, b, tier, f->label.shard).id)
        return KVC_E_GONE;
    copy_set_loc(c, b, tier, f->label.shard, f->loc);
    if (tier == CORE_STORAGE && f->label.durable)
        b->shards_present++; /* until all are found: shards with a promise */
    if (tier == CORE_STORAGE && f->label.by_pin)
        b->disk_copy = COPY_FOR_PIN; /* until all are found: a shard was written for a pin */
    /* Until all are found `copies` is the highest label.level of b's shards. */
    b->copies = MAX(b->copies, MIN(f->label.level, RETAIN_MAX + 1));
    room_count(c, block_ns(c, b), tier, f->bytes);
    const uint32_t used = core__stamp(c) - (f->age_ms >> CORE_AGE_SHIFT);
    if ((int32_t)(used - b->used) > 0)
        b->used = used;
    *ret_block_no = block_no(c, b);
    return 0;
}

/* ---- when all blocks are found ---- */

/* Whether all shards of b are in this tier; if not, those that are there are given back. */
static bool found_whole(struct core *c, struct block *b, enum core_tier tier)
{
    const uint32_t shards = block_shards(c, b);
    for (uint32_t i = 0; i < shards; i++) {
        if (copy_loc(c, b, tier, i).id)
            continue;
        copy_give_all(c, b, tier);
        return false;
    }
    return true;
}

/* A promise that was being made when the daemon died may have reached some shards alone. */
static void found_make_ordinary(struct core *c, struct block *b)
{
    struct tier *disk = c->cfg.tier[CORE_STORAGE];
    for (uint32_t i = 0; i < block_shards(c, b) && disk->storage->make_ordinary; i++)
        disk->storage->make_ordinary(disk, copy_loc(c, b, CORE_STORAGE, i));
}

/* The state of b's copy on disk, of which all shards are there. */
static enum copy_state found_on_disk(struct core *c, struct block *b)
{
    if (b->shards_present == block_shards(c, b))
        return b->disk_copy == COPY_FOR_PIN ? COPY_FOR_PIN : COPY_DURABLE;
    if (b->shards_present > 0)
        found_make_ordinary(c, b);
    return COPY_READY;
}

/* Sets the states of b's copies; they are not counted yet. */
static void found_places(struct core *c, struct block *b)
{
    b->host_copy = found_whole(c, b, CORE_HOST) ? COPY_SUSPECT : COPY_NONE;
    b->disk_copy =
        core_stores(c) && found_whole(c, b, CORE_STORAGE) ? found_on_disk(c, b) & 7u : COPY_NONE;
    b->shards_present = 0;
    if (b->disk_copy == COPY_FOR_PIN)
        found_begin(c);
}

static bool is_found(const struct block *b)
{
    return b->state == BLOCK_FOUND && (copy_there(b, CORE_HOST) || copy_there(b, CORE_STORAGE));
}

static void found_link(struct core *c, struct block *b)
{
    if (!(b->flags & BLOCK_F_KEEP))
        return;
    const struct key256 *key = &c->mod.recovery->parent[block_no(c, b)];
    struct block *p =
        index_find(c, index_hash(c, b->ns, b->group, key->b), b->ns, b->group, key->b);
    if (!p || !is_found(p) || p == b || p->tokens != block_group(c, p)->block_tokens ||
        block_group(c, b)->rule != KVC_RULE_FULL)
        return;
    block_clear(b, BLOCK_F_KEEP);
    b->parent = block_no(c, p);
    b->next = p->child;
    if (b->next != CORE_NONE)
        c->blocks[b->next].prev = block_no(c, b);
    p->child = block_no(c, b);
    p->children++;
}

static void link_all(struct core *c)
{
    for (uint32_t no = 0; no < c->blocks_high; no++) {
        if (no + RECOVER_AHEAD < c->blocks_high) {
            const struct block *a = &c->blocks[no + RECOVER_AHEAD];
            if (a->flags & BLOCK_F_KEEP && a->state == BLOCK_FOUND)
                index_prefetch(c, index_hash(c, a->ns, a->group,
                                             c->mod.recovery->parent[no + RECOVER_AHEAD].b));
        }
        if (no + RECOVER_AHEAD / 2 < c->blocks_high) {
            const struct block *a = &c->blocks[no + RECOVER_AHEAD / 2];
            if (a->flags & BLOCK_F_KEEP && a->state == BLOCK_FOUND)
                index_prefetch_record(
                    c, index_hash(c, a->ns, a->group,
                                  c->mod.recovery->parent[no + RECOVER_AHEAD / 2].b));
        }
        if (is_found(&c->blocks[no]))
            found_link(c, &c->blocks[no]);
    }
}

/* Makes the parent of block `no` at least as young as the block. */
static void age_up(struct core *c, uint32_t no)
{
    const struct block *b = &c->blocks[no];
    struct block *p = &c->blocks[b->parent];
    if ((int32_t)(b->used - p->used) > 0)
        p->used = b->used;
}

/* Marks the tree at a whole root as reached, parents first, with depths; and gives parents ages on
 * the way back. */
static uint32_t reach_tree(struct core *c, uint32_t root)
{
    uint32_t n = 0;
    for (uint32_t no = root; no != CORE_NONE;) {
        struct block *b = &c->blocks[no];
        const struct block *p = b->parent == CORE_NONE ? NULL : &c->blocks[b->parent];
        block_state_set(b, BLOCK_REACHED);
        b->depth = p ? p->depth + 1 : 0;
        if (block_promised(b) && (!p || p->flags & BLOCK_F_SAFE))
            b->flags |= BLOCK_F_SAFE;
        n++;
        if (b->child != CORE_NONE) {
            no = b->child;
            continue;
        }
        while (no != root && c->blocks[no].next == CORE_NONE) {
            age_up(c, no);
            no = c->blocks[no].parent;
        }
        if (no != root)
            age_up(c, no);
        no = no == root ? CORE_NONE : c->blocks[no].next;
    }
    return n;
}

static void found_present(struct core *c, struct block *b)
{
    const uint64_t bytes = block_bytes(c, b);
    b->flags |= BLOCK_F_LINKED;
    b->shards_present = block_shards(c, b) & 0x7fu;
    block_found(c, b, bytes);
}

/* Removes a block without its ancestors, or without all its shards, as if it had never been
 * there. */
static void found_drop(struct core *c, struct block *b)
{
    copy_give_all(c, b, CORE_HOST);
    if (core_stores(c))
        copy_give_all(c, b, CORE_STORAGE);
    if (b->flags & BLOCK_F_PARTS) {
        for (uint32_t i = b->where; i != CORE_NONE;) {
            struct part *p = pool_at(c->parts, i);
            i = p->next;
            pool_put(c->parts, p);
        }
    }
    index_del(c, b);
    block_ns(c, b)->records--;
    b->flags |= BLOCK_F_PARTS;
    block_clear(b, BLOCK_F_ALL & ~(uint32_t)BLOCK_F_PARTS);
    b->host_copy = b->disk_copy = COPY_NONE;
    b->where = CORE_NONE;
    b->disk = 0;
    b->copies = 0;
    block_abandon(c, b);
}

/* ---- the order of eviction ---- */

struct found_at {
    uint32_t used; /* time of last use, counted from that of the oldest block */
    uint32_t no;
    uint32_t depth;
};

/* One pass of a stable radix sort; the deepest, or the oldest, come first. */
enum sort_by { BY_DEPTH, BY_AGE_LOW, BY_AGE_HIGH };
#define SORT_KEYS (1u << 16)

static uint32_t sort_key(const struct found_at *f, enum sort_by by)
{
    if (by == BY_DEPTH)
        return SORT_KEYS - 1 - MIN(f->depth, SORT_KEYS - 1);
    return f->used >> (by == BY_AGE_HIGH ? 16 : 0) & (SORT_KEYS - 1);
}

static void sort_pass(const struct found_at *from, struct found_at *to, uint32_t n, enum sort_by by,
                      uint32_t count[SORT_KEYS])
{
    memset(count, 0, SORT_KEYS * sizeof *count);
    for (uint32_t i = 0; i < n; i++)
        count[sort_key(&from[i], by)]++;
    for (uint32_t i = 0, sum = 0; i < SORT_KEYS; i++) {
        const uint32_t k = count[i];
        count[i] = sum;
        sum += k;
    }
    for (uint32_t i = 0; i < n; i++)
        to[count[sort_key(&from[i], by)]++] = from[i];
}

static void found_known(struct core *c, struct block *b)
{
    const struct core_wish wish = {.level = b->copies - 1u, .duration_ms = RETAIN_FOR_EVER};
    const struct core_ns_spec *spec = &block_ns(c, b)->spec;
    const struct core_cost cost = {spec->prefill_ns_per_token, spec->prefill_ns_per_token_pair};
    const bool wished = b->copies > 0;
    b->copies = 0;
    block_known(c, b, POLICY_NO_BLOCK, &cost); /* cost: the client that stored b has ended */
    if (!block_in_policy(b))
        block_park(c, b);
    if (wished)
        wish_add(c, b, &wish, false);
}

static void known_soon(const struct core *c, const struct block *b)
{
    if (c->cfg.policy->prefetch)
        c->cfg.policy->prefetch(c->policy, index_hash(c, b->ns, b->group, b->key.b));
}

/* Oldest first, of equal age children before parents: each becomes the youngest. */
static void enter_all(struct core *c, struct found_at *a, struct found_at *b, uint32_t n,
                      uint32_t count[SORT_KEYS])
{
    uint32_t oldest = core__stamp(c);
    for (uint32_t i = 0; i < n; i++)
        if ((int32_t)(a[i].used - oldest) < 0)
            oldest = a[i].used;
    for (uint32_t i = 0; i < n; i++)
        a[i].used -= oldest;
    sort_pass(a, b, n, BY_DEPTH, count);
    sort_pass(b, a, n, BY_AGE_LOW, count);
    sort_pass(a, b, n, BY_AGE_HIGH, count);
    for (uint32_t i = 0; i < n; i++) {
        if (i + RECOVER_AHEAD < n)
            known_soon(c, &c->blocks[b[i + RECOVER_AHEAD].no]);
        found_known(c, &c->blocks[b[i].no]);
    }
}

static void order_all(struct core *c)
{
    const uint32_t n = (uint32_t)c->m.blocks_present;
    const uint64_t bytes = SORT_KEYS * sizeof(uint32_t) + 2ull * n * sizeof(struct found_at);
    uint32_t *const count = n ? core__pages(bytes) : NULL;
    struct found_at *const found = count ? (void *)(count + SORT_KEYS) : NULL;
    uint32_t k = 0;
    for (uint32_t no = 0; no < c->blocks_high && n > 0; no++) {
        struct block *b = &c->blocks[no];
        if (!(b->flags & BLOCK_F_LINKED))
            continue;
        if (count)
            found[k++] = (struct found_at){.used = b->used, .no = no, .depth = b->depth};
        else
            found_known(c, b); /* without memory to sort: in any order */
    }
    if (!count)
        return;
    enter_all(c, found, found + n, n, count);
    core__pages_put(count, bytes);
}

uint32_t core_recover_end(struct core *c)
{
    uint32_t n = 0;
    if (!c->mod.recovery)
        return 0;
    for (uint32_t no = 0; no < c->blocks_high; no++)
        if (c->blocks[no].state == BLOCK_FOUND)
            found_places(c, &c->blocks[no]);
    link_all(c);
    for (uint32_t no = 0; no < c->blocks_high; no++) {
        const struct block *b = &c->blocks[no];
        if (is_found(b) && b->parent == CORE_NONE && !(b->flags & BLOCK_F_KEEP))
            n += reach_tree(c, no);
    }
    for (uint32_t no = 0; no < c->blocks_high; no++) {
        struct block *b = &c->blocks[no];
        if (b->state == BLOCK_REACHED)
            found_present(c, b);
        else if (b->state == BLOCK_FOUND)
            found_drop(c, b);
    }
    order_all(c);
    recover_destroy(c);
    c->recovered_ms = c->now_ms;
    c->m.blocks_recovered += n;
    return n;
}
