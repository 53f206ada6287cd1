/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk and a journal for tests: operations end in random order when the test says so, and a crash
 * leaves of them what a crash may leave.
 *
 * What was written and not synced may be lost, whole or in sectors; what was synced stays. Of
 * commits that were not reported done, any prefix stays. After fake_off() nothing reaches the
 * medium: operations end with -EIO, so that the tier can be taken down as if it had died.
 */
#ifndef KVC_TEST_FAKE_DISK_H
#define KVC_TEST_FAKE_DISK_H

#include "disk.h"
#include "journal.h"

struct fake_disk;
struct fake_journal;

struct fake_disk *fake_disk_create(uint32_t paths, uint64_t bytes, uint64_t seed);
void fake_disk_destroy(struct fake_disk **d);
struct disk *fake_disk_of(struct fake_disk *d);
/* Ends up to n operations; returns how many. */
unsigned fake_disk_run(struct fake_disk *d, unsigned n);
unsigned fake_disk_inflight(const struct fake_disk *d);
/* Operations submitted so far. */
uint64_t fake_disk_ops(const struct fake_disk *d);

/* The n-th operation from now on (1: the next) fails with that error; 0: none does. */
void fake_disk_fail_nth(struct fake_disk *d, uint64_t n, int error);
/* Of a thousand operations so many fail with -EIO; so many writes land elsewhere. */
void fake_disk_fail(struct fake_disk *d, unsigned per_mille);
void fake_disk_misdirect(struct fake_disk *d, unsigned per_mille);
/* Every operation on the path fails with that error (0: no more), or does not end. */
void fake_disk_break(struct fake_disk *d, uint32_t path, int error);
/* Reads of these bytes of the path fail with -EIO; bytes 0: none do. */
void fake_disk_unreadable(struct fake_disk *d, uint32_t path, uint64_t off, uint64_t bytes);
/* The path's name leads to another file. */
void fake_disk_unlink(struct fake_disk *d, uint32_t path, bool gone);
/* The path is shorter than it was, and has its length again. */
void fake_disk_cut(struct fake_disk *d, uint32_t path, bool cut);
void fake_disk_stall(struct fake_disk *d, uint32_t path, bool stalled);

/* The first bytes of a path become zero, for good. */
void fake_disk_wipe(struct fake_disk *d, uint32_t path, uint64_t bytes);
/* Something else is in the path's place, zeros at first; called again, it is back as it was. */
void fake_disk_swap(struct fake_disk *d, uint32_t path);

/* What is there, and what would be there after a loss of power. */
uint8_t *fake_disk_bytes(struct fake_disk *d, uint32_t path);
const uint8_t *fake_disk_stable(const struct fake_disk *d, uint32_t path);
/* The highest byte that was ever written, plus one. */
uint64_t fake_disk_written(const struct fake_disk *d, uint32_t path);
void fake_disk_on_submit(struct fake_disk *d, void (*fn)(void *ctx, const struct disk_op *op),
                         void *ctx);

struct fake_journal *fake_journal_create(uint64_t seed);
void fake_journal_destroy(struct fake_journal **j);
struct journal *fake_journal_of(struct fake_journal *j);
unsigned fake_journal_run(struct fake_journal *j, unsigned n);
unsigned fake_journal_inflight(const struct fake_journal *j);
uint64_t fake_journal_commits(const struct fake_journal *j);
void fake_journal_fail_nth(struct fake_journal *j, uint64_t n, int error);
void fake_journal_unlink(struct fake_journal *j);
/* As it was when it was kept. */
void fake_journal_keep(struct fake_journal *j);
void fake_journal_back(struct fake_journal *j);
/* walk() says -EUCLEAN until clear(). */
void fake_journal_damage(struct fake_journal *j);
void fake_journal_on_commit(struct fake_journal *j,
                            void (*fn)(void *ctx, const struct journal_txn *c), void *ctx);
/* What is in the journal for certain. */
int fake_journal_each(const struct fake_journal *j, journal_each_fn *each, void *ctx);

/* Nothing reaches the medium any more. */
void fake_off(struct fake_disk *d, struct fake_journal *j);
/* The machine is on again. power: what was not synced may be gone; else only the process had died,
 * and what was in flight may have landed or not. No operation may be in flight. */
void fake_on(struct fake_disk *d, struct fake_journal *j, bool power);

uint64_t fake_rand(uint64_t *state);

#endif
