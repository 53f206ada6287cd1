/* SPDX-License-Identifier: Apache-2.0 */
/* An NVMe tier on the fake disk, and blocks whose bytes follow from a number and a version. */
#ifndef KVC_TEST_NVME_RIG_H
#define KVC_TEST_NVME_RIG_H

#include "fake_disk.h"
#include "nvme.h"

#define RIG_FOUND_MAX 4096u

struct rig {
    struct nvme_config config;
    struct fake_disk *disk;
    struct fake_journal *journal;
    struct nvme *nvme;
    struct tier *tier;
    uint64_t now_ns, wall_ns;
    struct nvme_report report;
    struct nvme_found found[RIG_FOUND_MAX];
    uint32_t founds, records;
    uint32_t pumps_left; /* the next start dies (-EINTR) after so many pumps; 0: it does not */
    bool dead;
    bool by_id; /* blocks are named by their ids, not by their index in `found` */
};

/* Sets a small store, with segments of 16 pages. The caller may change config before rig_open(). */
void rig_init(struct rig *g, uint32_t paths, uint64_t path_bytes, uint64_t seed);
/* Calls nvme_create() and nvme_recover(). The blocks found are in g->found, and are kept. */
KVC_WARN_UNUSED int rig_open(struct rig *g);
/* The same with this by_id. */
KVC_WARN_UNUSED int rig_open_as(struct rig *g, bool by_id);
/* Runs one turn: time advances by ns, the tier is kicked, and all operations that can end do. */
void rig_turn(struct rig *g, uint64_t ns);
/* Runs turns until no work is left, formatting included. */
void rig_settle(struct rig *g);
/* Stops the tier, waits, and destroys it. */
void rig_close(struct rig *g);
/* Lets the tier die; disk and journal keep what such a death leaves. */
void rig_crash(struct rig *g, bool power);
void rig_destroy(struct rig *g);

/* rig_fill() writes the bytes of a block, whole pages. rig_label() makes its label; rig_id() is the
 * number in a label. */
void rig_fill(uint8_t *to, uint32_t bytes, uint32_t id, uint32_t version);
struct tier_label rig_label(uint32_t id);
uint32_t rig_id(const struct tier_label *label);

/* Puts and labels one block; the result of the PUT, or of its allocation. */
KVC_WARN_UNUSED int rig_put(struct rig *g, uint32_t id, uint32_t bytes, bool durable,
                            struct tier_loc *ret_loc);
/* Reads the block at `loc` and checks that it is the one with this number. */
KVC_WARN_UNUSED int rig_get(struct rig *g, struct tier_loc loc, uint32_t id, uint32_t bytes);
/* Where the last rig_open() found the block; id 0: it was not found. */
struct tier_loc rig_where(const struct rig *g, uint32_t id);

#endif
