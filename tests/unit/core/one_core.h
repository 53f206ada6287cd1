/* SPDX-License-Identifier: Apache-2.0 */
/* The core of a case, and words. A file of cases includes this once:
 *
 *     begin_core(16, 64);     host memory of 16 blocks, a disk of 64; namespace `ns`
 *     CASES(.teardown = end); what was begun is ended after each case
 *
 * One who needs another core says rig_defaults(&r), what differs, and begin_ns(). The core ends
 * after the case has returned: what a case leaves with it, as a waiter that waits still, is static.
 */
#ifndef KVC_TEST_ONE_CORE_H
#define KVC_TEST_ONE_CORE_H

#include "cases.h"
#include "core_rig.h"

#define BT   8u  /* tokens of a block of `ns` */
#define SLOT 64u /* bytes of such a block */

static CK_ATTRIBUTE_UNUSED struct rig r;
static CK_ATTRIBUTE_UNUSED struct core_ns *ns; /* model "m", opened by client 1; one FULL group */

/* Sets room for so many blocks of `ns`; disk 0: no disk, else it has regions of 8 blocks. */
static inline void room_for(uint32_t host, uint32_t disk)
{
    r.tier_cfg.regions = 1;
    r.tier_cfg.region_bytes = host * SLOT;
    r.disk_cfg = (struct fake_disk_config){.slots = disk, .region_slots = 8, .seed = 3};
}

/* Opens `ns` again after a restart of the core. */
static inline void open_ns(void)
{
    const struct core_ns_spec spec = rig_spec("m", BT, SLOT);
    ns = rig_ns(&r, 1, &spec);
}

static inline void begin_ns(void)
{
    rig_begin(&r);
    open_ns();
}

static inline void begin_core(uint32_t host, uint32_t disk)
{
    rig_defaults(&r);
    room_for(host, disk);
    begin_ns();
}

/* Ends the core, if one was begun. */
static inline void end(void)
{
    for (unsigned i = 0; r.core && i < r.cfg.ndevices; i++)
        fake_device_up(r.device[i]);
    if (r.core)
        rig_end(&r);
}

static inline const struct core_metrics *metrics(void)
{
    return core_metrics(r.core);
}

/* Stores chains first .. first + n - 1, each of two blocks, one after the other. */
static inline void store_chains(uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        rig_store(&r, 1, ns, 0, first + i, 0, 2);
        rig_settle(&r);
        rig_step(&r);
    }
}

/* Loads a chain and checks the bytes of the hit. Returns its tokens. */
static inline uint32_t load(uint32_t chain, uint32_t tokens)
{
    struct core_held held = rig_load(&r, 1, ns, chain, tokens);
    if (held.lease) {
        rig_check_lease(&r, 1, held.lease, 0);
        rig_release(&r, 1, &held);
    }
    return held.prefix.tokens;
}

#endif
