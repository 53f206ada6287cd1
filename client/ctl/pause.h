/* SPDX-License-Identifier: Apache-2.0 */
/* Trying again what fails for want of room, while earlier blocks are on their way to storage. One
 * thread. */
#ifndef CTL_PAUSE_H
#define CTL_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

/* All zero before the first pause, and again after each success. */
struct pause {
    uint32_t waited_ms, ms; /* all pauses together; the last pause */
};

/* Waits, each time twice as long, at most a second. More attempts would do harm: each counts as a
 * use of blocks, and a block that is used while it is written to storage stays in memory. False:
 * limit_ms have passed. */
bool pause_again(struct pause *p, uint32_t limit_ms);

#endif
