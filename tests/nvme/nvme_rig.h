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
    uint32_t pumps_left; /* of the next start, which then dies (-EINTR); 0: it does not */
    bool dead;
    bool by_id; /* blocks are named by their ids, not by their place in `found` */
};

/* Small: segments of 16 pages. The caller may change config before rig_open(). */
void rig_init(struct rig *g, uint32_t paths, uint64_t path_bytes, uint64_t seed);
/* nvme_create() and nvme_recover(); what is found is in g->found, and kept. */
KVC_WARN_UNUSED int rig_open(struct rig *g);
/* The same, with by_id. */
KVC_WARN_UNUSED int rig_open_as(struct rig *g, bool by_id);
/* One turn: time goes on by ns, a kick, then all that can end does. */
void rig_turn(struct rig *g, uint64_t ns);
/* Turns until nothing is to be done (formatting too). */
void rig_settle(struct rig *g);
/* Stops, waits and takes it down. */
void rig_close(struct rig *g);
/* It dies; what is left of disk and journal is as after that. */
void rig_crash(struct rig *g, bool power);
void rig_destroy(struct rig *g);

/* Whole pages of a block, and its label and sum. */
void rig_fill(uint8_t *to, uint32_t bytes, uint32_t id, uint32_t version);
struct tier_label rig_label(uint32_t id);
uint32_t rig_id(const struct tier_label *label);

/* Puts and labels one block; the result of the PUT, or of alloc. */
KVC_WARN_UNUSED int rig_put(struct rig *g, uint32_t id, uint32_t bytes, bool durable,
                            struct tier_loc *ret_loc);
/* Whether the block at loc is read and is the one of that number. */
KVC_WARN_UNUSED int rig_get(struct rig *g, struct tier_loc loc, uint32_t id, uint32_t bytes);
/* Where the block was found at the last rig_open(); id 0: it was not. */
struct tier_loc rig_where(const struct rig *g, uint32_t id);

#endif
