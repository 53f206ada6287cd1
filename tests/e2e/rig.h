/* SPDX-License-Identifier: Apache-2.0 */
/* A real daemon in a private directory, and workers that use it. A function that cannot do its work
 * fails the test. */
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

/* Starts a daemon with a small host tier; returns when it accepts connections. `sets` ends with
 * NULL and adds "key=value" settings; "@file" names a configuration file, over which they win.
 * $KVC_LOOP names the loop. */
void rig_start(struct rig *r, const char *const *sets);
/* Makes a private directory, without a daemon. */
void rig_dir(struct rig *r);
/* Starts a daemon in the directory with this KVC_FAULT (NULL: none). 0: it accepts connections. If
 * it ends instead: its wait status, which is not 0; r->pid is 0. */
int rig_try(struct rig *r, const char *const *sets, const char *fault);
/* The two halves of rig_try(): start the process; wait for it. */
void rig_begin(struct rig *r, const char *const *sets, const char *fault);
int rig_await(struct rig *r);
/* Starts a daemon in the same directory again, after rig_kill() or rig_stop(). */
void rig_restart(struct rig *r, const char *const *sets);
/* Waits until the daemon has prefaulted its memory. A prefault thread (prefault.h) that has nothing
 * to do sleeps, whereas one that waits for a processor does not. */
void rig_await_prefault(const struct rig *r);
/* Sends SIGTERM; the daemon must exit with 0. */
void rig_stop(struct rig *r);
void rig_kill(struct rig *r);           /* sends SIGKILL */
void rig_clean(struct rig *r);          /* removes the directory and all in it */
void rig_show_log(const struct rig *r); /* prints the daemon's log on stderr */
/* Call it before the daemon starts. AddressSanitizer then keeps little freed memory, which would
 * hide memory that is not freed. */
void rig_free_soon(void);
/* Directory of this build's programs: $KVC_BIN_DIR, or that of this program. */
const char *rig_bin(void);

/* Runs this test program again in a process of its own, as a worker. The process is made by exec,
 * because a forked child of a process with threads may not make threads under ThreadSanitizer.
 * Descriptors without close-on-exec stay open. */
pid_t rig_spawn(const struct rig *r, const char *role, uint64_t arg);
/* For main(): whether this process is such a worker; *ret_rig then has the daemon's socket. */
bool rig_is_child(int argc, char **argv, struct rig *ret_rig, const char **ret_role,
                  uint64_t *ret_arg);

/* Runs `work` in a worker, with assertions. Returns main()'s result: that of `work`, or 125 if an
 * assertion failed (it is printed). */
int rig_child_main(int (*work)(const char *role, uint64_t arg), const char *role, uint64_t arg);

/* The whole main() of a test with such workers: in a worker it runs `work`, with the daemon's
 * socket in *ret_rig; else it runs the cases. */
int rig_main(int argc, char **argv, struct rig *ret_rig,
             int (*work)(const char *role, uint64_t arg));

struct kvc *rig_open(const struct rig *r, uint64_t staging_bytes);
/* Opens a namespace with one FULL group: block_tokens per block, block_bytes each. */
struct kvc_ns *rig_ns(struct kvc *k, const char *model, uint32_t block_tokens,
                      uint32_t block_bytes);
/* A complete spec, which the caller may change. */
struct kvc_ns_spec rig_spec(const char *model, uint32_t block_tokens, uint32_t block_bytes);

/* Makes n keys of full blocks of chain number `chain` (any number). */
void rig_keys(const struct kvc_ns *ns, uint32_t chain, uint32_t block_tokens, uint32_t n,
              uint8_t *keys);
/* Writes the contents that the block with this key must have. */
void rig_fill(const uint8_t *key, void *p, uint32_t bytes);
bool rig_check(const uint8_t *key, const void *p, uint32_t bytes);
/* Stores blocks first .. n-1 of a chain of n keys through staging. Returns how many were OK. */
uint32_t rig_store(struct kvc *k, struct kvc_ns *ns, const uint8_t *keys, uint32_t first,
                   uint32_t n, uint32_t block_tokens, uint32_t block_bytes, uint8_t *statuses);
struct kvc_seq rig_seq(const uint8_t *keys, uint32_t n, uint32_t block_tokens);
/* Acquires the chain, checks every byte and releases; returns the number of blocks hit. */
uint32_t rig_load(struct kvc *k, struct kvc_ns *ns, const uint8_t *keys, uint32_t n,
                  uint32_t block_tokens, uint32_t block_bytes);
/* Reads one statistic; fails if none has that name. */
uint64_t rig_stat(struct kvc *k, const char *name);
/* Waits (at most 10 s) until the statistic has this value. */
void rig_wait_stat(struct kvc *k, const char *name, uint64_t value);
/* Has all blocks that only memory has written to storage (at most 60 s). */
void rig_drain(struct kvc *k);
void rig_sleep_ms(unsigned ms);
uint64_t rig_now_ms(void);

/* Number of rounds of a random test: $KVC_ROUNDS, or `usual`. Seeds rig_next_random() from
 * $KVC_SEED, or from the clock, and prints the seed. */
unsigned rig_rounds(unsigned usual);
/* The next random number (splitmix64: Steele, Lea and Flood, OOPSLA 2014). */
uint64_t rig_next_random(void);

#endif
