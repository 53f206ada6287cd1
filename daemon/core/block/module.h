/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the core that keep state to themselves. Included by state.h. */
#ifndef KVC_CORE_MODULE_H
#define KVC_CORE_MODULE_H

#include <stddef.h>
#include <stdint.h>

#include "sys.h"

struct core;

/* Its state is a struct that is declared in the file, and a pointer to that in struct core. There
 * is zeroed room for it beside struct core before anything is created. */
struct core_module {
    size_t pointer, bytes;           /* CORE_STATE(); 0: it has none, or takes the room itself */
    int (*create)(struct core *c);   /* what else it needs: 0, or an error; NULL: nothing */
    void (*destroy)(struct core *c); /* also when create() has failed, or was not called */
    struct sys_range (*memory)(const struct core *c); /* its large table; NULL: there is none */
};
#define CORE_STATE(name) .pointer = offsetof(struct core, name), .bytes = sizeof(struct name)

extern const struct core_module adopt_module;
extern const struct core_module asks_module;
extern const struct core_module clean_module;
extern const struct core_module evict_module;
extern const struct core_module gone_module;
extern const struct core_module host_room_module;
extern const struct core_module leases_module;
extern const struct core_module loads_module;
extern const struct core_module moves_module;
extern const struct core_module names_module;
extern const struct core_module namespaces_module;
extern const struct core_module near_module;
extern const struct core_module pins_module;
extern const struct core_module place_module;
extern const struct core_module progress_module;
extern const struct core_module promises_module;
extern const struct core_module quotas_module;
extern const struct core_module reclaim_module;
extern const struct core_module reads_module;
extern const struct core_module reconcile_module;
extern const struct core_module records_module;
extern const struct core_module regions_module;
extern const struct core_module resvs_module;
extern const struct core_module rules_module;
extern const struct core_module unmet_module;
extern const struct core_module verify_module;
extern const struct core_module worth_module;
extern const struct core_module writes_module;

#endif
