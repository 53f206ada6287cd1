/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk and a journal for tests. Operations end in random order when the test says so, and a crash
 * leaves any state that a real one may leave.
 *
 * Writes without a sync may be lost, whole or in sectors; synced ones stay. Of commits that were
 * not reported done any prefix stays. After fake_off() nothing reaches the medium: operations end
 * with -EIO, so that the tier can be destroyed as if it had died.
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

/* Lets the n-th operation from now on (1: the next) fail with that error; 0: none fails. */
void fake_disk_fail_nth(struct fake_disk *d, uint64_t n, int error);
/* per_mille operations of 1,000 fail with -EIO; of writes as many go to a wrong place. */
void fake_disk_fail(struct fake_disk *d, unsigned per_mille);
void fake_disk_misdirect(struct fake_disk *d, unsigned per_mille);
/* Every operation on the path fails with that error (0: none fails any more), or does not end. */
void fake_disk_break(struct fake_disk *d, uint32_t path, int error);
/* Reads of these bytes of the path fail with -EIO; bytes 0: all reads succeed. */
void fake_disk_unreadable(struct fake_disk *d, uint32_t path, uint64_t off, uint64_t bytes);
/* The path's name leads to another file. */
void fake_disk_unlink(struct fake_disk *d, uint32_t path, bool gone);
/* cut: the path is shorter than before; else it has its length again. */
void fake_disk_cut(struct fake_disk *d, uint32_t path, bool cut);
void fake_disk_stall(struct fake_disk *d, uint32_t path, bool stalled);

/* Overwrites the first bytes of a path with zeros. */
void fake_disk_wipe(struct fake_disk *d, uint32_t path, uint64_t bytes);
/* Puts other contents, zeros at first, in place of the path; the next call puts the old ones back.
 */
void fake_disk_swap(struct fake_disk *d, uint32_t path);

/* The bytes of a path now, and those that a power failure would leave. */
uint8_t *fake_disk_bytes(struct fake_disk *d, uint32_t path);
const uint8_t *fake_disk_stable(const struct fake_disk *d, uint32_t path);
/* The end of the highest byte that was ever written. */
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
/* Keeps the journal's state; puts it back as it was kept. */
void fake_journal_keep(struct fake_journal *j);
void fake_journal_back(struct fake_journal *j);
/* walk() returns -EUCLEAN until clear() is called. */
void fake_journal_damage(struct fake_journal *j);
void fake_journal_on_commit(struct fake_journal *j,
                            void (*fn)(void *ctx, const struct journal_txn *c), void *ctx);
/* Calls `each` for each entry that is committed for certain. */
int fake_journal_each(const struct fake_journal *j, journal_each_fn *each, void *ctx);

/* From now on nothing reaches the medium. */
void fake_off(struct fake_disk *d, struct fake_journal *j);
/* Starts the machine again. power: writes without a sync may be lost; else only the process had
 * died, and operations in flight may have had their effect or not. No operation may be in flight.
 */
void fake_on(struct fake_disk *d, struct fake_journal *j, bool power);

uint64_t fake_rand(uint64_t *state);

#endif
