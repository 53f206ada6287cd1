/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A journal in memory behind journal.h for tests: commits end when the test says so, or fail; what
 * has ended outlives a core. Misuse by the caller fails a MUST.
 */
#ifndef KVC_TEST_FAKE_JOURNAL_H
#define KVC_TEST_FAKE_JOURNAL_H

#include "journal.h"

struct fake_journal;

struct fake_journal *fake_journal_create(void);
void fake_journal_destroy(struct fake_journal **journal);
struct journal *fake_journal_of(struct fake_journal *f);

/* Ends the commits that were begun; err: they and all that follow fail. Returns how many ended. */
unsigned fake_journal_run(struct fake_journal *f, int err);
/* The process died: what had not ended never happened, and the next one may walk again. */
void fake_journal_crash(struct fake_journal *f);
/* The entry at this place of the order is damaged: walks end there. UINT32_MAX: none is. */
void fake_journal_damage(struct fake_journal *f, uint32_t at);
/* Its name leads to another file from now on. */
void fake_journal_unlink(struct fake_journal *f);
uint32_t fake_journal_entries(const struct fake_journal *f);
/* Takes the entry at this place of the order away. */
void fake_journal_drop(struct fake_journal *f, uint32_t at);

#endif
