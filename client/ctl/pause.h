/* SPDX-License-Identifier: Apache-2.0 */
/* Trying again what fails for want of room, while earlier blocks are on their way to storage. One
 * thread. */
#ifndef CTL_PAUSE_H
#define CTL_PAUSE_H

#include <stdbool.h>
#include <stdint.h>

/* Zero before the first pause, and again when something went on. */
struct pause {
    uint32_t waited_ms, ms;
};

/* Waits, each time twice as long, up to the second: a try counts as a use of blocks, and what is
 * used while it is written stays in memory. False when limit_ms are over. */
bool pause_again(struct pause *p, uint32_t limit_ms);

#endif
