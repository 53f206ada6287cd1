/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files about devices, and called by the other files of this directory.
 *
 * A new daemon knows nothing of words, memories and pools. So in each epoch the first call that
 * needs them sends WORDS for the page of words, and MEM for each memory of a pool, then POOL_OPEN.
 * Requests that name the pool are PARKED until it is open. The library opens pools again without
 * the caller, like namespaces. It cannot do so for words: the values of the old page are not in the
 * new one. So a request may name words only after the caller has seen the new page.
 */
#ifndef KVC_CLIENT_GPU_PRIVATE_H
#define KVC_CLIENT_GPU_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvcache/gpu.h>

#include "codec.h"
#include "device__.h"

struct kvc_op;
struct map;

struct kvc_gpu {
    struct kvc *kvc;
    struct kvc_gpu *next;
    struct device *device; /* one reference */
};

/* ---- words.c ---- */

/* The page of completion words of one epoch. The newest WORDS_PAGES pages stay mapped, because a
 * stream may still write to an old one. */
struct words {
    struct words *next;
    volatile uint64_t *word; /* [KVC_WORDS], and behind them KVC_WORD_REVOKED */
    uint32_t epoch;
    struct device
        *pinned; /* the device with which the page is registered, one reference; or NULL */
};
#define WORDS_PAGES 8u
#define WORDS_BYTES KVC_WORDS_BYTES

/* Streams compare words as signed numbers. */
#define WORDS_VALUE_MAX (UINT64_MAX / 2)

/* Maps the page of this epoch; the descriptor stays the caller's. -ENOMEM. */
__attribute__((warn_unused_result)) int words__map(struct kvc *k, int fd);
/* Whether a request may name this word (number + 1; 0 = none) with this value. 0; KVC_E_DOWN: the
 * caller has not seen the page of this epoch; -EINVAL. */
__attribute__((warn_unused_result)) int words__check(struct kvc *k, uint32_t word, uint64_t value);
/* Raises word number `word` of that epoch's page to `value`, unless it is that or more already. */
void words__raise(struct kvc *k, uint32_t epoch, uint32_t word, uint64_t value);
/* Tells a daemon of that epoch that the caller's pages are not to be touched any more. */
void words__revoke(struct kvc *k, uint32_t epoch);
/* The device is being closed: unregisters the pages that are registered with it. */
void words__forget(struct kvc *k, const struct device *d);
void words__destroy_all(struct kvc *k);

/* ---- stream.c ---- */

/* Handles WORDS_ARE. 1 = the page, or the daemon's refusal, is there: pool__mem_came() is to
 * follow. An error has ended the link. */
__attribute__((warn_unused_result)) int words__are(struct kvc *k, const uint8_t *buf, size_t len,
                                                   int passed);
/* A pool needs the page before it is opened. 1 = the page of this epoch is there; 0 = the daemon
 * was asked, and pool__mem_came() follows; else the reason why there is no page. */
__attribute__((warn_unused_result)) int words__make(struct kvc *k);
/* If the daemon refused the page with BUSY, the next words__make() asks again. */
void words__again(struct kvc *k);

/* ---- mem.c ---- */

/* What the daemon knows of a memory: nothing; MEM is unanswered; a pool may name it. */
enum mem_state { MEM_UNKNOWN, MEM_ASKED, MEM_KNOWN };

struct kvc_mem {
    struct kvc_gpu *gpu;
    uint32_t no;    /* its number in requests, index in kvc.mems.by_no */
    uint32_t epoch; /* in which `state` was set; in another one the state is MEM_UNKNOWN */
    enum mem_state state;
    int error;         /* MEM_UNKNOWN: why the daemon of this epoch refused it; 0: it did not */
    uint32_t pools;    /* pools that name this memory */
    bool free_pending; /* the caller has freed it; it ends with the last of these pools */
    struct device_mem memory;
};

/* What the daemon of this epoch knows of the memory. */
enum mem_state mem__state(const struct kvc_mem *m);
/* Sends MEM. 0, or an error; the link may be down then. */
__attribute__((warn_unused_result)) int mem__ask(struct kvc_mem *m);
/* Tells the daemon to forget the memory, if it was told of it. */
void mem__drop(struct kvc_mem *m);
/* A pool that named the memory is closed. */
void mem__unref(struct kvc_mem *m);
/* Handles MEM_IS. 1 = pool__mem_came() is to follow; 0 = the memory was dropped meanwhile; an error
 * has ended the link. */
__attribute__((warn_unused_result)) int mem__is(struct kvc *k, const uint8_t *buf, size_t len);
/* Frees all memories of a device. */
void mem__free_all(struct kvc_gpu *g);

/* ---- gpu.c ---- */

/* Closes all devices of a session, with their pools and memories. */
void gpu__destroy_all(struct kvc *k);

/* ---- pool.c ---- */

/* One group of a pool's specification: its regions, and the sizes that follow from them. */
struct pool_group {
    uint32_t pages_per_block, regions, layers;
    uint64_t block_bytes;
    struct kvc_pool_region *region; /* owned */
};

/* Not open, and not being opened; waits for memories and the page of words; POOL_OPEN is
 * unanswered; open. */
enum pool_state { POOL_AWAY, POOL_MEMS, POOL_OPENING, POOL_OPEN };

struct kvc_pool {
    struct kvc_gpu *gpu;
    uint32_t no;    /* its number in requests, index in kvc.pool */
    uint32_t epoch; /* in which `state` was set */
    enum pool_state state;
    bool is_void; /* the daemon's device went out of service, and the daemon lost its memories */
    /* POOL_AWAY: why the pool is not open, and when the library tries again. */
    int error;
    char why[256];
    uint64_t retry_ns;
    struct kvc_op *opening; /* POOL_OPEN in flight; or NULL */
    uint32_t pages_max, groups, layers;
    struct pool_group group[KVC_GROUPS_MAX];
    uint8_t *wire; /* all regions as POOL_OPEN carries them, KVC_REGION_BYTES each */
    /* The outcome of the last load that was finished; loaded.statuses points into `statuses`. */
    struct kvc_loaded loaded;
    uint8_t *statuses; /* KVC_KEYS_MAX */
};

/* Checks the shape of a group, and returns its block size. with_memory false: a specification
 * without memories, whose `base` is an address. gpu: the device whose memory it may name. 0, or
 * KVC_E_BAD_ARGUMENT with its text. */
__attribute__((warn_unused_result)) int pool__check_group(const struct kvc_gpu *gpu,
                                                          const struct kvc_pool_spec *spec,
                                                          uint32_t group, bool with_memory,
                                                          uint64_t *ret_block_bytes);
/* Checks that page numbers are below pages_max, or (may_lack) KVC_NO_PAGE. 0, or -EINVAL. */
__attribute__((warn_unused_result)) int pool__check_pages(struct kvc *k, const uint32_t *pages,
                                                          uint64_t n, uint32_t pages_max,
                                                          bool may_lack);
/* Whether the pool is on the device "host", so that the library copies its pages itself. */
bool pool__is_host(const struct kvc_pool *p);
/* The specification with which the pool was opened; it borrows the pool's regions. */
struct kvc_pool_spec pool__spec(const struct kvc_pool *p);
bool pool__is_open(const struct kvc_pool *p);
/* Begins to open the pool in this epoch. Requests parked for it are sent when it is open, or end
 * with the error. 0 = open, or being opened; else the reason why it cannot be opened now. */
__attribute__((warn_unused_result)) int pool__make(struct kvc_pool *p);
/* A MEM or WORDS was answered: continues with the pools that wait for it. */
void pool__mem_came(struct kvc *k);

/* ---- pages.c ---- */

/* Checks that the pool's blocks have the sizes of the namespace's. 0, or -EINVAL. */
__attribute__((warn_unused_result)) int
pages__check_pool(struct kvc_ns *ns, const struct kvc_pool *pool, uint32_t group);

/* Wait for the op, and hand out its outcome; they do not free the op. A load's outcome is in its
 * pool too. */
__attribute__((warn_unused_result)) int pages__finish_load(struct kvc_op *op,
                                                           struct kvc_prefix *ret_prefix);
__attribute__((warn_unused_result)) int pages__finish_store(struct kvc_op *op,
                                                            uint8_t *ret_statuses);
/* Which blocks of a group have arrived in their pages. */
struct pages_have {
    uint32_t block_tokens, window;
    uint8_t rule;            /* enum kvc_rule */
    uint32_t first, n;       /* blocks first .. first + n - 1 of the group were loaded */
    const uint8_t *statuses; /* n; KVC_ST_OK: the block is in its pages */
};
/* The longest prefix of at most `hit` tokens whose blocks are all in their pages, by the rules of
 * the groups. 0 if that is no more than from_tokens. */
uint32_t pages__tokens(const struct pages_have *group, uint32_t groups, uint32_t hit,
                       uint32_t from_tokens);

/* ---- host.c ---- */

/* 0 if `after` names no word; else -EINVAL, because stores from host memory cannot wait for one. */
__attribute__((warn_unused_result)) int host__check_after(struct kvc *k, struct kvc_word after);
/* kvc_pages_load() and kvc_pages_store() for a pool in host memory. Their arguments were checked.
 */
__attribute__((warn_unused_result)) int host__load(struct kvc_ns *ns, const struct kvc_seq *seq,
                                                   struct kvc_pool *pool,
                                                   const struct kvc_pages_load *load,
                                                   struct kvc_loaded *ret_loaded);
__attribute__((warn_unused_result)) int host__store(struct kvc_ns *ns,
                                                    const struct kvc_blocks *blocks,
                                                    struct kvc_pool *pool, const uint32_t *pages,
                                                    struct kvc_word after, const uint32_t *tokens,
                                                    size_t ntokens, uint8_t *statuses);

/* ---- device_slots.c ---- */

/* Handles CHUNK_ON. *ret_chunk: the chunk that it is about. 0 = the chunk's memory on the device is
 * mapped; else why it is not, and the link may be down. */
__attribute__((warn_unused_result)) int
device__chunk_on(struct kvc *k, const uint8_t *buf, size_t len, int passed, uint32_t *ret_chunk);

#endif
