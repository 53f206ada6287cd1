/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A module: a file of the core with state of its own. core.c has a table of all modules, by which
 * it creates and destroys them. Included by state.h.
 */
#ifndef KVC_CORE_MODULE_H
#define KVC_CORE_MODULE_H

#include <stddef.h>
#include <stdint.h>

#include "sys.h"

struct core;

/* The file declares its state as a struct, to which core->mod (state.h) has a pointer. core.c gives
 * the struct zeroed room beside struct core, and sets the pointer, before it calls any create(). */
struct core_module {
    size_t pointer, bytes;         /* by CORE_STATE(): offset of the pointer in struct core, size of
                                    * the struct; bytes 0: no room is given */
    int (*create)(struct core *c); /* sets up the state, and allocates what belongs to it. 0, or an
                                    * error; NULL: nothing to do */
    void (*destroy)(struct core *c); /* frees that; called also when create() has failed, or was not
                                      * called; NULL: nothing to do */
    /* The module's large table, for core_memory(); NULL: it has none. */
    struct sys_range (*memory)(const struct core *c);
};
/* The first two fields of a module whose state is `struct name`, at core->mod.name. */
#define CORE_STATE(name) .pointer = offsetof(struct core, mod.name), .bytes = sizeof(struct name)

extern const struct core_module recover_module;
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
extern const struct core_module hbm_module;
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
