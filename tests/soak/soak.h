/* SPDX-License-Identifier: Apache-2.0 */
/* What the soak's processes share. */
#ifndef KVC_TEST_SOAK_H
#define KVC_TEST_SOAK_H

#include <stdatomic.h>
#include <stdint.h>

#include "rig.h"

#define SOAK_SLOTS 8u

enum soak_role {
    SOAK_TALK,  /* conversations, through the library */
    SOAK_AUDIT, /* requests by hand, every reply counted */
    SOAK_ROGUE, /* sends what is no message */
    SOAK_ROLES
};

/* One worker's; it counts, the parent adds up when it has gone. */
struct soak_slot {
    uint32_t role;
    uint32_t uid;
    uint64_t seed;
    uint64_t life_ms;
    _Atomic uint64_t sent;       /* requests */
    _Atomic uint64_t replied;    /* requests whose reply came */
    _Atomic uint64_t late;       /* waits whose answer came after the library's own patience */
    _Atomic uint64_t blocks_hit; /* read and compared */
    _Atomic uint64_t blocks_stored;
    _Atomic uint64_t refused; /* FULL, BUSY, LIMIT: limits at work */
    _Atomic uint64_t stale;   /* holds that said so */
    _Atomic uint64_t wrong;  /* blocks with other bytes than were stored, in a hold that was good */
    _Atomic uint64_t faults; /* errors that a correct worker must not see */
};

struct soak_shared {
    _Atomic int stop;
    struct soak_slot slot[SOAK_SLOTS];
};

/* In the worker's process: what it returns is its exit status. */
int soak_worker(const struct rig *rig, struct soak_shared *sh, unsigned slot);

static inline uint64_t soak_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

#endif
