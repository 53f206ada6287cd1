/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lapsed promises. A client was told that a block is durable, with all blocks before it. Since then
 * the block has lost its copy on disk, or the promise of that copy, and it is still in memory.
 *
 * The block's mark (BLOCK_F_SAFE, block_names_safe()) stays, and so do the marks of blocks below
 * it, because finding these would take a search. Instead, marks prove nothing in a namespace where
 * some block has lapsed.
 */
#ifndef KVC_CORE_LAPSE_H
#define KVC_CORE_LAPSE_H

#include "block.h"

uint64_t lapse_blocks(const struct core *c); /* number of lapsed blocks, of all namespaces */
bool block_lapsed(const struct core *c, const struct block *b);
/* To be called after a change of b's state, mark or copy on disk. was: block_lapsed() before. */
void lapse_changed(struct core *c, const struct block *b, bool was);

#endif
