/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wanted copies of a block: those that pins, names, promises and blocks which build on it need.
 * And the set of blocks whose copies may differ from these; reconcile_step() (keep/reconcile.c)
 * begins the copies that are missing.
 */
#ifndef KVC_CORE_WANTS_H
#define KVC_CORE_WANTS_H

#include "state.h"

/* The least state that pins, names and promises ask of b's copy in this tier: COPY_NONE (no copy is
 * needed), COPY_READY, and on disk COPY_FOR_PIN or COPY_DURABLE. Looks only at b's record and
 * whether names reach b. */
enum copy_state block_asked(const struct core *c, const struct block *b, enum core_tier tier);
/* The higher one of block_asked() and, on disk, block_carries(). Looks at up to 1,024 children. */
enum copy_state block_wants(const struct core *c, const struct block *b, enum core_tier tier);
/* Whether b's copy in this tier has at least the state `wanted`. */
bool copy_is_enough(const struct block *b, enum core_tier tier, enum copy_state wanted);
/* Whether b's copy in this tier is less than block_asked(). */
bool block_lacks(const struct core *c, const struct block *b, enum core_tier tier);
/* The state that blocks which build on b need of its copy on disk: COPY_READY where such a block is
 * on disk or being written there, COPY_DURABLE where one is promised. */
enum copy_state block_carries(const struct core *c, const struct block *b);
/* found_begin(): recovery has found a copy that the last run wrote for pins. Until found_end()
 * found_keeps() is true: such copies keep their promises, because their blocks may be pinned again.
 * found_end() adds all records to the set. */
void found_begin(struct core *c);
bool found_keeps(const struct core *c);
void found_end(struct core *c);

/* Memory of the set of blocks. */
uint64_t unmet_bytes(const struct core_config *cfg);
/* Adds b to the set, because its copies or its wanted copies have changed. Adding twice is no
 * error. */
void unmet_add(struct core *c, const struct block *b);
uint32_t unmet_count(const struct core *c);
bool unmet_has(const struct core *c, const struct block *b);
/* Takes the next block in the order of records out of the set; NULL: the set is empty. */
struct block *unmet_take(struct core *c);

#endif
