/* SPDX-License-Identifier: Apache-2.0 */
/* Pauses between attempts to store while memory has no room, because earlier blocks are still being
 * written to storage. One thread. */
#ifndef CTL_PAUSE_H
#define CTL_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

/* All zero before the first pause, and again after each success. */
struct pause {
    uint32_t waited_ms, ms; /* all pauses together; the last pause */
};

/* Waits, each time twice as long, at most a second. Frequent attempts would do harm: each counts as
 * a use of the blocks, and a block that is used while it is written to storage stays in memory.
 * False: limit_ms have passed. */
bool pause_again(struct pause *p, uint32_t limit_ms);

#endif
