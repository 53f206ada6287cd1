/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of eviction policies, and the search by name (`policy.eviction` in the configuration).
 */
#include "policy.h"

#include <string.h>

static const struct policy_ops *const policies[] = {&policy_density, &policy_lru, &policy_s3fifo,
                                                    &policy_arc, &policy_lru2};

const struct policy_ops *policy_at(unsigned i)
{
    return i < sizeof policies / sizeof policies[0] ? policies[i] : NULL;
}

const struct policy_ops *policy_by_name(const char *name)
{
    if (strcmp(name, "default") == 0)
        name = POLICY_DEFAULT;
    for (unsigned i = 0; policy_at(i); i++)
        if (strcmp(policy_at(i)->name, name) == 0)
            return policy_at(i);
    return NULL;
}
