/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which copies a block is to have, whoever asks that: pins, names, promises, or blocks that build
 * on it. And the set of blocks whose copies may differ from that: all that reconcile_step()
 * (keep/reconcile.c) looks at.
 */
#ifndef KVC_CORE_WANTS_H
#define KVC_CORE_WANTS_H

#include "state.h"

/* What pins, names and promises ask of its copy in this tier, the least state: COPY_NONE (none is
 * needed), COPY_READY, and on disk COPY_FOR_PIN or COPY_DURABLE. Depends on its record alone. */
enum copy_state block_asked(const struct core *c, const struct block *b, enum core_tier tier);
/* The same, and what blocks on disk that build on it need: looks at up to 1,024 children. */
enum copy_state block_wants(const struct core *c, const struct block *b, enum core_tier tier);
/* The copy has at least that state. */
bool copy_is_enough(const struct block *b, enum core_tier tier, enum copy_state wanted);
/* What blocks that build on it need of its copy on disk: as they are there, or are written there,
 * so is what they build on; what is promised is promised with all before it. */
enum copy_state block_carries(const struct core *c, const struct block *b);
/* Some copy was found at start that the last run had written for pins: until the end of that they
 * keep their promises, for they may be pinned again. Then all records are looked at. */
void found_begin(struct core *c);
bool found_keeps(const struct core *c);
void found_end(struct core *c);

/* Of the set of blocks. */
uint64_t unmet_bytes(const struct core_config *cfg);
/* Its copies, or what is asked of it, have changed; as often as may be. */
void unmet_add(struct core *c, const struct block *b);
uint32_t unmet_count(const struct core *c);
bool unmet_has(const struct core *c, const struct block *b);
/* The next one in the order of the records, which leaves the set; NULL: it is empty. */
struct block *unmet_take(struct core *c);

#endif
