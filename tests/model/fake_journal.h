/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A journal in memory behind journal.h for tests. Commits end when the test says so, or fail;
 * commits that have ended outlive a core. Misuse by the caller fails a MUST.
 */
#ifndef KVC_TEST_FAKE_JOURNAL_H
#define KVC_TEST_FAKE_JOURNAL_H

#include "journal.h"

struct fake_journal;

struct fake_journal *fake_journal_create(void);
void fake_journal_destroy(struct fake_journal **journal);
struct journal *fake_journal_of(struct fake_journal *f);

/* Ends all begun commits. err: they fail, and so do all later ones. Returns how many ended. */
unsigned fake_journal_run(struct fake_journal *f, int err);
/* Simulates the death of the process: commits that had not ended have no effect, and the next core
 * may walk again. */
void fake_journal_crash(struct fake_journal *f);
/* Damages the entry at this place of the order: walks end there. UINT32_MAX: none is damaged. */
void fake_journal_damage(struct fake_journal *f, uint32_t at);
/* From now on the journal's name leads to another file. */
void fake_journal_unlink(struct fake_journal *f);
uint32_t fake_journal_entries(const struct fake_journal *f);
/* Removes the entry at this place of the order. */
void fake_journal_drop(struct fake_journal *f, uint32_t at);

#endif
