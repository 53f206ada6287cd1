/* SPDX-License-Identifier: Apache-2.0 */
/* Pins, which the model foresees block by block; wishes and advice, which change nothing that it
 * foresees. */
#include <stdlib.h>

#include "act.h"

static bool some_seq(struct model *m, struct m_seq *s, struct core_seq *ret)
{
    struct core_ns *ns;
    const int c = any_client(m), no = c == M_NONE ? M_NONE : pick_ns(m, c, &ns);
    if (no == M_NONE)
        return false;
    random_seq(m, (uint32_t)no, s);
    m_seq_core(m, s, ns, ret);
    return true;
}

static struct m_pin *free_pin(struct model *m)
{
    for (int i = 0; i < M_PINS_MAX; i++)
        if (m->pin[i].id == 0)
            return &m->pin[i];
    return NULL;
}

/* The blocks that the hit needs. */
static uint64_t pin_blocks(struct model *m, const struct m_seq *s, const struct m_hit *hit,
                           struct m_pin *p)
{
    uint64_t bytes = 0;
    p->n = 0;
    for (uint32_t g = 0; g < m->ns[s->ns].spec.ngroups; g++)
        for (uint32_t i = hit->first[g]; i < hit->end[g]; i++) {
            const int b = hit->block[g][i];
            p->block[p->n++] = b;
            m->block[b].pins++;
            bytes += m_bytes(m, &m->block[b]);
        }
    return bytes;
}

void do_pin(struct model *m)
{
    static struct m_seq s;
    static struct m_hit hit;
    struct core_pin in = {.in_memory = rnd(m, 2)};
    struct core_pinned got;
    const char *why;
    if (!some_seq(m, &s, &in.seq))
        return;
    m_lookup(m, &s, &hit);
    const int err = core_pin(m->core, &in, &got, &why);
    if (hit.tokens == 0) {
        HOLDS(m, err == KVC_E_GONE);
        return;
    }
    struct m_pin *p = free_pin(m);
    if (p == NULL) {
        HOLDS(m, err == KVC_E_LIMIT);
        return;
    }
    HOLDS(m, err == 0 && got.id != 0 && got.tokens == hit.tokens);
    const uint64_t bytes = pin_blocks(m, &s, &hit, p);
    HOLDS(m, got.blocks == (uint32_t)p->n && got.bytes == bytes);
    p->id = got.id;
}

static void unpin(struct model *m, struct m_pin *p)
{
    HOLDS(m, core_unpin(m->core, NULL, p->id) == 0);
    HOLDS(m, core_unpin(m->core, NULL, p->id) == KVC_E_NO_NAME);
    for (int i = 0; i < p->n; i++)
        m->block[p->block[i]].pins--;
    p->id = 0;
}

void do_unpin(struct model *m)
{
    struct m_pin *p = &m->pin[rnd(m, M_PINS_MAX)];
    if (p->id != 0)
        unpin(m, p);
}

void unpin_all(struct model *m)
{
    for (int i = 0; i < M_PINS_MAX; i++)
        if (m->pin[i].id != 0)
            unpin(m, &m->pin[i]);
}

void do_wish(struct model *m)
{
    static struct m_seq s;
    struct core_seq seq;
    const char *why;
    const struct core_wish wish = {rnd(m, RETAIN_MAX + 1), rnd(m, 2) * rnd(m, 900)};
    if (!some_seq(m, &s, &seq))
        return;
    HOLDS(m, core_wish(m->core, &seq, rnd(m, 20), &wish, rnd(m, 2), &why) >= 0);
    HOLDS(m, core_advise(m->core, &seq, POLICY_ADVICE_ENDED + rnd(m, 4), 500, &why) >= 0);
}
