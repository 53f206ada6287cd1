/* SPDX-License-Identifier: Apache-2.0 */
#include "sm.h"

#include <stdio.h>

const char *sm_name(const struct sm_table *t, unsigned state)
{
    return state < t->n ? t->states[state] : "?";
}

bool sm_valid(const struct sm_table *t, unsigned start)
{
    if (t->n == 0 || t->n > SM_STATES_MAX || start >= t->n)
        return false;
    const uint32_t all = t->n == SM_STATES_MAX ? UINT32_MAX : SM_BIT(t->n) - 1;
    uint32_t reached = SM_BIT(start), before;
    for (unsigned i = 0; i < t->n; i++)
        if (t->states[i] == NULL || (t->edges[i] & ~all) != 0)
            return false;
    do {
        before = reached;
        for (unsigned i = 0; i < t->n; i++)
            if ((reached & SM_BIT(i)) != 0)
                reached |= t->edges[i];
    } while (reached != before);
    return reached == all;
}

_Noreturn void sm__refuse(const struct sm_table *t, unsigned from, unsigned to, const char *file,
                          int line, const char *func)
{
    char text[160];
    const int n = snprintf(text, sizeof(text), "%s: %s (%u) -> %s (%u) is an edge", t->name,
                           sm_name(t, from), from, sm_name(t, to), to);
    must_fail(file, line, func, n > 0 ? text : t->name);
}
