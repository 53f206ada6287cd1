/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A module: a file of the core with state that no other file sees. core.c creates and destroys them
 * all by the list below. Included by state.h.
 */
#ifndef KVC_CORE_MODULE_H
#define KVC_CORE_MODULE_H

#include <stddef.h>
#include <stdint.h>

#include "sys.h"

struct core;

/* The file declares its state as a struct; struct core has a pointer to it. Zeroed room for the
 * struct is there, beside struct core, before anything is created. */
struct core_module {
    size_t pointer, bytes;           /* CORE_STATE(); 0: no state, or the module allocates it */
    int (*create)(struct core *c);   /* allocates the rest. 0, or an error; NULL: nothing */
    void (*destroy)(struct core *c); /* also when create() has failed, or was not called */
    struct sys_range (*memory)(const struct core *c); /* its large table; NULL: none */
};
#define CORE_STATE(name) .pointer = offsetof(struct core, name), .bytes = sizeof(struct name)

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
