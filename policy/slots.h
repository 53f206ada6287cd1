/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of time, for counting things by when they began: narrow when young, merged when old, so
 * their number is fixed. The counts are the caller's; this file knows where slots begin, in the
 * caller's unit of time, oldest first. Pure.
 */
#ifndef KVC_SLOTS_H
#define KVC_SLOTS_H

#include <stdint.h>

/* The slot that a time is in, of n; the first for what was before all. */
unsigned slots_at(const uint64_t *begin, unsigned n, uint64_t then);
/* Makes one slot of two neighbours, those that are the narrowest for their age, of three or more.
 * Returns the first of them: the caller adds the second to it, and closes the gap as is done here.
 */
unsigned slots_merge(uint64_t *begin, unsigned n, uint64_t now);

#endif
