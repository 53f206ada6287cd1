/* SPDX-License-Identifier: Apache-2.0 */
#include "node_tables.h"

int node_tables_touch(const struct core *core, const struct svc *svc, const struct front *front,
                      struct keeper **ret_keeper)
{
    /* What the first requests use comes first. */
    struct sys_range all[CORE_RANGES + 2] = {svc_memory(svc), front_memory(front)};
    core_memory(core, &all[2]);
    int err = keeper_create(CORE_RANGES + 2, ret_keeper);
    if (err)
        return err;
    for (uint32_t i = 0; i < CORE_RANGES + 2; i++)
        keeper_set(*ret_keeper, i, all[i].base, all[i].bytes, false);
    keeper_aim(*ret_keeper, UINT64_MAX);
    return 0;
}
