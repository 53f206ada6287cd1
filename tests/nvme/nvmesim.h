/* SPDX-License-Identifier: Apache-2.0 */
/* The world of one seed: an NVMe tier over several lives (starts), and the checks of it. */
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
    bool durable; /* put durably, and durability was confirmed */
    bool moving;
    /* Durable as hidden_version, which a start with a missing path or journal did not find. */
    bool hidden;
    uint32_t hidden_version;
    /* Moved in this life: its old place may be overwritten, and a rebuild may report it. */
    bool moved;
    bool whole;        /* its place has its bytes, even if it was found by an extent's table */
    uint32_t versions; /* number of versions that were ever put */
    uint32_t dead;     /* versions up to this one are dead for certain */
    uint32_t born;     /* versions up to this one are of earlier lives */
    bool confirmed[SIM_VERSIONS]; /* dead for certain, with or without a journal */
    uint32_t gone;                /* dead versions that are of another store */
    struct {
        struct hash128 sum;
        uint32_t bytes;
    } put[SIM_VERSIONS];
};

/* Digests of one seed: what the tier reported, and what it wrote to disk and journal. */
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
    /* Writes have gone to wrong places in this world: wrong bytes may lie anywhere. */
    bool misdirects;
    /* Extents were found by their tables; those of dead blocks too, overwritten or not. */
    bool rebuilt;
    bool anew;       /* a start since the last life found extents by their tables */
    bool faults;     /* an operation failed in this life */
    bool bad;        /* this life began with a path or the journal missing */
    bool no_journal; /* the next life begins without a journal */
    uint32_t away;   /* number + 1 of the path that is missing in this life; 0: none */
    bool dying;
    uint32_t ops;
    struct sim_totals *totals;
    struct sim_digest *digest;
    bool trace;
};

_Noreturn void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_run(uint64_t seed, bool trace, struct sim_totals *totals, struct sim_digest *ret_digest);
/* Adds to the seed's digest that an operation on this version of a block ended (0 or -errno), or
 * what happened to it. */
enum sim_fate { SIM_MOVED = 1, SIM_LOST, SIM_IN_THE_WAY, SIM_FOUND, SIM_FOUND_DURABLE };
void sim_told(struct sim *s, uint32_t id, uint32_t version, int what);

/* nvmesim_check.c: watches the operations on disk and journal. */
void sim_watch(struct sim *s);
/* Call it after recovery: checks that each block found may be there. */
void sim_check_found(struct sim *s, bool clean);
/* Call it while nothing is in flight: reads the whole store and compares it with the tier. */
void sim_check_store(struct sim *s);

#endif
