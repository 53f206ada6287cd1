/* SPDX-License-Identifier: Apache-2.0 */
#include "node_tables.h"

int node_tables_touch(const struct core *core, const struct svc *svc, const struct front *front,
                      struct prefault **ret_prefault)
{
    /* What the first requests use comes first. */
    struct sys_range all[CORE_RANGES + 2] = {svc_memory(svc), front_memory(front)};
    core_memory(core, &all[2]);
    int err = prefault_create(CORE_RANGES + 2, ret_prefault);
    if (err)
        return err;
    for (uint32_t i = 0; i < CORE_RANGES + 2; i++)
        prefault_set(*ret_prefault, i, all[i].base, all[i].bytes, false);
    prefault_aim(*ret_prefault, UINT64_MAX);
    return 0;
}
