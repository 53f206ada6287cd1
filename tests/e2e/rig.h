/* SPDX-License-Identifier: Apache-2.0 */
/* A real daemon in a private directory, and workers against it. Everything here fails the test that
 * calls it when it cannot do its work. */
#ifndef KVC_TEST_RIG_H
#define KVC_TEST_RIG_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <kvcache/admin.h>
#include <kvcache/async.h>
#include <kvcache/kvcache.h>

#define RIG_BLOCK 8192u

struct rig {
    pid_t pid;
    char dir[64];
    char socket[96];
    const char *config; /* --config, or NULL */
};

/* Starts a daemon with a small host tier; `sets` is a NULL-terminated list of "key=value" on top;
 * "@file" is a configuration file below them.
 * The loop is the one named by $KVC_LOOP. Returns when it accepts connections. */
void rig_start(struct rig *r, const char *const *sets);
/* A private directory, and no daemon in it yet. */
void rig_dir(struct rig *r);
/* Starts a daemon there with this KVC_FAULT (NULL: none). 0 once it accepts connections; when it
 * ends instead, its wait status, which is not 0, and r->pid is 0. */
int rig_try(struct rig *r, const char *const *sets, const char *fault);
/* Its two halves: the daemon's process is made; it is waited for. */
void rig_begin(struct rig *r, const char *const *sets, const char *fault);
int rig_await(struct rig *r);
/* The same directory again, after rig_kill() or rig_stop(). */
void rig_restart(struct rig *r, const char *const *sets);
/* Until the daemon touches no memory in the background any more, as after its start: a keeper
 * (prefault.h) that has nothing to do sleeps, and one that gets no processor does not. */
void rig_await_prefault(const struct rig *r);
/* SIGTERM; the daemon must exit with 0. */
void rig_stop(struct rig *r);
void rig_kill(struct rig *r);           /* SIGKILL */
void rig_clean(struct rig *r);          /* removes the directory and all in it */
void rig_show_log(const struct rig *r); /* on stderr */
/* Before the daemon starts: AddressSanitizer keeps little of what was freed, which would hide what
 * is not. */
void rig_free_soon(void);
/* Where the programs of this build are: $KVC_BIN_DIR, or where this one lies. */
const char *rig_bin(void);

/* This test program again, as a worker in a process of its own: starts with exec, because a fork of
 * a process with threads may not make threads of its own under ThreadSanitizer. Descriptors without
 * close-on-exec stay open. */
pid_t rig_spawn(const struct rig *r, const char *role, uint64_t arg);
/* In main(): whether this is such a process; then *ret_rig has the socket of the daemon. */
bool rig_is_child(int argc, char **argv, struct rig *ret_rig, const char **ret_role,
                  uint64_t *ret_arg);

/* Runs `work` there so that assertions count; returns main()'s result: what work returns, or 125
 * when an assertion failed (it is printed). */
int rig_child_main(int (*work)(const char *role, uint64_t arg), const char *role, uint64_t arg);

/* All of main() for a test with such workers: `work` in a worker, which finds the daemon's socket
 * in *ret_rig; otherwise the cases. */
int rig_main(int argc, char **argv, struct rig *ret_rig,
             int (*work)(const char *role, uint64_t arg));

struct kvc *rig_open(const struct rig *r, uint64_t staging_bytes);
/* block_tokens per block, block_bytes each, one full group. */
struct kvc_ns *rig_ns(struct kvc *k, const char *model, uint32_t block_tokens,
                      uint32_t block_bytes);
/* A spec with everything filled in, to be changed. */
struct kvc_ns_spec rig_spec(const char *model, uint32_t block_tokens, uint32_t block_bytes);

/* n keys of the chain number `chain` (any number) of full blocks. */
void rig_keys(const struct kvc_ns *ns, uint32_t chain, uint32_t block_tokens, uint32_t n,
              uint8_t *keys);
/* What a block with this key must contain. */
void rig_fill(const uint8_t *key, void *p, uint32_t bytes);
bool rig_check(const uint8_t *key, const void *p, uint32_t bytes);
/* Stores blocks first .. n-1 of a chain of n keys through staging; returns how many were OK. */
uint32_t rig_store(struct kvc *k, struct kvc_ns *ns, const uint8_t *keys, uint32_t first,
                   uint32_t n, uint32_t block_tokens, uint32_t block_bytes, uint8_t *statuses);
struct kvc_seq rig_seq(const uint8_t *keys, uint32_t n, uint32_t block_tokens);
/* Acquires the chain, checks every byte and releases; returns the number of blocks hit. */
uint32_t rig_load(struct kvc *k, struct kvc_ns *ns, const uint8_t *keys, uint32_t n,
                  uint32_t block_tokens, uint32_t block_bytes);
/* One statistic; fails when there is none of that name. */
uint64_t rig_stat(struct kvc *k, const char *name);
/* Waits (at most 10 s) until the statistic has this value. */
void rig_wait_stat(struct kvc *k, const char *name, uint64_t value);
/* Writes what only memory has to storage (at most 60 s). */
void rig_drain(struct kvc *k);
void rig_sleep_ms(unsigned ms);
uint64_t rig_now_ms(void);

/* For a test at random moments: how many rounds, $KVC_ROUNDS or as many as usual. Begins the
 * numbers below from $KVC_SEED, or from the clock, and prints the seed. */
unsigned rig_rounds(unsigned usual);
/* The next of them (splitmix64: Steele, Lea and Flood, OOPSLA 2014). */
uint64_t rig_next_random(void);

#endif
