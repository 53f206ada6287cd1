/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises that have lapsed: somebody was told that the block is durable, with all before it, and
 * it has lost its copy on disk since, or the promise of that copy; memory has it yet. Its mark
 * (BLOCK_F_SAFE, block_names_safe()) stays, and so do those of the blocks below it, so that nothing
 * has to be looked for. Instead marks count for nothing where a block of the namespace has lapsed.
 */
#ifndef KVC_CORE_LAPSE_H
#define KVC_CORE_LAPSE_H

#include "block.h"

uint64_t lapse_blocks(const struct core *c); /* of all namespaces */
bool block_lapsed(const struct core *c, const struct block *b);
/* What that depends on has been set; was: what it said before. */
void lapse_changed(struct core *c, const struct block *b, bool was);

#endif
