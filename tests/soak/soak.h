/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of the soak test share. */
#ifndef KVC_TEST_SOAK_H
#define KVC_TEST_SOAK_H

#include <stdatomic.h>
#include <stdint.h>

#include "rig.h"

#define SOAK_SLOTS 8u

enum soak_role {
    SOAK_TALK,  /* conversations, through the library */
    SOAK_AUDIT, /* single requests; every reply is counted */
    SOAK_ROGUE, /* sends bytes that are no message */
    SOAK_ROLES
};

/* Counts of one worker; the parent adds them when the worker has ended. */
struct soak_slot {
    uint32_t role;
    uint32_t uid;
    uint64_t seed;
    uint64_t life_ms;
    _Atomic uint64_t sent;       /* requests */
    _Atomic uint64_t replied;    /* requests that got their reply */
    _Atomic uint64_t late;       /* calls whose reply came after the library's own limit */
    _Atomic uint64_t blocks_hit; /* blocks that were read and compared */
    _Atomic uint64_t blocks_stored;
    _Atomic uint64_t refused; /* FULL, BUSY, LIMIT: a limit was reached */
    _Atomic uint64_t stale;   /* holds that were stale */
    _Atomic uint64_t wrong;   /* blocks with wrong bytes in a hold that was valid */
    _Atomic uint64_t faults;  /* errors that a correct worker never gets */
};

struct soak_shared {
    _Atomic int stop;
    struct soak_slot slot[SOAK_SLOTS];
};

/* Runs in the worker's process; returns its exit status. */
int soak_worker(const struct rig *rig, struct soak_shared *sh, unsigned slot);

static inline uint64_t soak_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

#endif
