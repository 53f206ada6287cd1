/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists of blocks in pieces of fixed size from one pool. Leases, loads, pins and reservations hold
 * their blocks in such lists.
 */
#include "block.h"

void run_init(struct run_list *l)
{
    *l = (struct run_list){.head = CORE_NONE, .tail = CORE_NONE};
}

int run_push(struct core *c, uint32_t holder, struct run_list *l, uint32_t block, uint32_t gen)
{
    struct run *r = l->tail == CORE_NONE ? NULL : pool_at(c->runs, l->tail);
    if (!r || r->n == CORE_RUN_ENTRIES) {
        struct run *more = share_get(&c->run_share, holder, c->runs);
        if (!more)
            return KVC_E_BUSY;
        more->next = CORE_NONE;
        uint32_t no = pool_index(c->runs, more);
        if (r)
            r->next = no;
        else
            l->head = no;
        l->tail = no;
        r = more;
    }
    r->e[r->n++] = (struct run_entry){block, gen};
    l->n++;
    return 0;
}

void run_free(struct core *c, uint32_t holder, struct run_list *l)
{
    for (uint32_t i = l->head; i != CORE_NONE;) {
        struct run *r = pool_at(c->runs, i);
        i = r->next;
        share_put(&c->run_share, holder, c->runs, r);
    }
    run_init(l);
}

void run_reverse(struct core *c, struct run_list *l)
{
    uint32_t before = CORE_NONE;
    for (uint32_t i = l->head; i != CORE_NONE;) {
        struct run *r = pool_at(c->runs, i);
        const uint32_t no = i;
        for (uint32_t a = 0, b = r->n; a + 1 < b; a++) {
            const struct run_entry e = r->e[a];
            r->e[a] = r->e[--b];
            r->e[b] = e;
        }
        i = r->next;
        r->next = before;
        before = no;
    }
    l->tail = l->head;
    l->head = before;
}

struct run_iter run_begin(struct core *c, const struct run_list *l)
{
    return (struct run_iter){.r = l->head == CORE_NONE ? NULL : pool_at(c->runs, l->head)};
}

struct run_iter run_at(struct core *c, const struct run_list *l, uint32_t i)
{
    struct run_iter it = run_begin(c, l);
    for (; it.r && i >= CORE_RUN_ENTRIES; i -= CORE_RUN_ENTRIES)
        it.r = it.r->next == CORE_NONE ? NULL : pool_at(c->runs, it.r->next);
    it.i = i;
    return it;
}

const struct run_entry *run_next(struct core *c, struct run_iter *it)
{
    if (it->r && it->i == it->r->n) {
        it->r = it->r->next == CORE_NONE ? NULL : pool_at(c->runs, it->r->next);
        it->i = 0;
    }
    return it->r ? &it->r->e[it->i++] : NULL;
}
