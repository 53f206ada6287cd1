/* SPDX-License-Identifier: Apache-2.0 */
/* One seed's world: an NVMe tier over several lives, and what must be true of it. */
#ifndef KVC_TEST_NVMESIM_H
#define KVC_TEST_NVMESIM_H

#include "nvme_rig.h"

#define SIM_IDS      96u
#define SIM_VERSIONS 512u

enum sim_state { SIM_ABSENT, SIM_PUTTING, SIM_LIVE };
struct sim_thing {
    enum sim_state state;
    struct tier_loc loc;
    uint32_t version, bytes, ops;
    bool durable; /* promised, and the promise was confirmed */
    bool moving;
    bool hidden; /* promised as hidden_version, which a bad start did not find */
    uint32_t hidden_version;
    bool moved;        /* in this life: its old place may be overwritten, and told by a rebuild */
    bool whole;        /* where it is are its bytes, also when it was found by its table */
    uint32_t versions; /* ever put */
    uint32_t dead;     /* versions up to this one are dead for certain */
    uint32_t born;     /* versions up to this one are of earlier lives */
    bool confirmed[SIM_VERSIONS]; /* dead for certain, with or without a journal */
    uint32_t gone;                /* of them, those of another store */
    struct {
        struct hash128 sum;
        uint32_t bytes;
    } put[SIM_VERSIONS];
};

/* Of one seed: what the tier told, and what it wrote to disk and journal. */
struct sim_digest {
    uint64_t told, written;
};

struct sim_totals {
    uint64_t seeds, lives, puts, durables, gets, found, reclaimed, kept, lost, rebuilt, torn,
        forward, checked, confirmed;
};

struct sim {
    uint64_t seed, random, step;
    struct rig rig;
    struct sim_thing thing[SIM_IDS];
    bool misdirects; /* writes have gone astray in this world: wrong bytes may lie anywhere */
    bool rebuilt;    /* extents were found by their tables: so were the dead, overwritten or not */
    bool anew;       /* they were so by a start since the last life */
    bool faults;     /* something failed in this life */
    bool bad;        /* this life began without all that is there */
    bool no_journal; /* the next one begins without */
    uint32_t away;   /* a path + 1 that is not there in this life */
    bool dying;
    uint32_t ops;
    struct sim_totals *totals;
    struct sim_digest *digest;
    bool trace;
};

_Noreturn void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_run(uint64_t seed, bool trace, struct sim_totals *totals, struct sim_digest *ret_digest);
/* An operation on this version of a block ended (0 or -errno), or something befell it: for the
 * seed's digest. */
enum sim_fate { SIM_MOVED = 1, SIM_LOST, SIM_IN_THE_WAY, SIM_FOUND, SIM_FOUND_DURABLE };
void sim_told(struct sim *s, uint32_t id, uint32_t version, int what);

/* nvmesim_check.c: what the disk and the journal are asked to do. */
void sim_watch(struct sim *s);
/* After recovery: what was found is what may be there. */
void sim_check_found(struct sim *s, bool clean);
/* At rest: the store read whole agrees with the tier. */
void sim_check_store(struct sim *s);

#endif
