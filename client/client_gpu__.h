/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files about devices share, and what the other files of this directory call of them.
 *
 * In each epoch the first call that needs it tells the daemon anew: WORDS for the page of words;
 * MEM for each memory that a pool names, then POOL_OPEN. Requests that name the pool are PARKED
 * meanwhile. Pools are made again without the caller, like namespaces. Words are not: values
 * written to the old page are not in the new one, so a call that names words must have seen the new
 * page.
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
    struct device *device; /* counted */
};

/* ---- words.c ---- */

/* A page of words. Old ones stay for a while: a stream may still write to them. */
struct words {
    struct words *next;
    volatile uint64_t *word; /* [KVC_WORDS], and the revocation */
    uint32_t epoch;
    struct device *pinned; /* registered there, counted; or NULL */
};
#define WORDS_PAGES 8u
#define WORDS_BYTES KVC_WORDS_BYTES

/* Streams compare as signed numbers. */
#define WORDS_VALUE_MAX (UINT64_MAX / 2)

/* The page of this epoch. -ENOMEM. */
__attribute__((warn_unused_result)) int words__map(struct kvc *k, int fd);
/* Whether a request may name these words (number + 1; 0 = none) now: 0, KVC_E_DOWN when the caller
 * has not seen the page of this epoch, -EINVAL. */
__attribute__((warn_unused_result)) int words__check(struct kvc *k, uint32_t word, uint64_t value);
/* The word of that epoch is `value` at least from now on. */
void words__raise(struct kvc *k, uint32_t epoch, uint32_t word, uint64_t value);
/* The caller has its pages back, whatever requests of that epoch are with the daemon. */
void words__revoke(struct kvc *k, uint32_t epoch);
/* The device goes: pages that are registered there are so no more. */
void words__forget(struct kvc *k, const struct device *d);
void words__destroy_all(struct kvc *k);

/* ---- stream.c ---- */

/* WORDS_ARE. 1 = there is a page, or the reason why there is none, for pool__mem_came(); or an
 * error with the link down. */
__attribute__((warn_unused_result)) int words__are(struct kvc *k, const uint8_t *buf, size_t len,
                                                   int passed);
/* For a pool, which is not asked for without: 1: the page of this epoch is there; 0: it was asked
 * for, and pool__mem_came() follows; else why it cannot be had. words__again(): BUSY is no answer
 * for ever. */
__attribute__((warn_unused_result)) int words__make(struct kvc *k);
void words__again(struct kvc *k);

/* ---- mem.c ---- */

enum mem_state { MEM_UNKNOWN, MEM_ASKED, MEM_KNOWN };

struct kvc_mem {
    struct kvc_gpu *gpu;
    uint32_t no;    /* the daemon's name for it */
    uint32_t epoch; /* of `state` */
    enum mem_state state;
    int error;         /* MEM_UNKNOWN: why the daemon refused it in this epoch */
    uint32_t pools;    /* that name it */
    bool free_pending; /* to be freed with the last of them */
    struct device_mem memory;
};

/* In this epoch. */
enum mem_state mem__state(const struct kvc_mem *m);
/* MEM. 0, or an error; the link may be down then. */
__attribute__((warn_unused_result)) int mem__ask(struct kvc_mem *m);
/* The daemon is to forget it, if it knows of it. */
void mem__drop(struct kvc_mem *m);
/* One pool less names it. */
void mem__unref(struct kvc_mem *m);
/* MEM_IS. 1 = the memory was asked for, and pool__mem_came() is to follow; 0; or an error with the
 * link down. */
__attribute__((warn_unused_result)) int mem__is(struct kvc *k, const uint8_t *buf, size_t len);
/* All memories of a device. */
void mem__free_all(struct kvc_gpu *g);

/* ---- gpu.c ---- */

/* All devices of a session, with all that is of them. */
void gpu__destroy_all(struct kvc *k);

/* ---- pool.c ---- */

/* Sizes of a pool's specification, and what of it is kept. */
struct pool_group {
    uint32_t pages_per_block, regions, layers;
    uint64_t block_bytes;
    struct kvc_pool_region *region; /* owned */
};

enum pool_state { POOL_AWAY, POOL_MEMS, POOL_OPENING, POOL_OPEN };

struct kvc_pool {
    struct kvc_gpu *gpu;
    uint32_t no;
    uint32_t epoch; /* of `state` */
    enum pool_state state;
    bool is_void; /* the daemon's device went out: what it knows of memories is void */
    /* POOL_AWAY: why, and when it is tried again. */
    int error;
    char why[256];
    uint64_t retry_ns;
    struct kvc_op *opening; /* POOL_OPEN in flight */
    uint32_t pages_max, groups, layers;
    struct pool_group group[KVC_GROUPS_MAX];
    uint8_t *wire; /* all regions, as they travel: KVC_REGION_BYTES each */
    /* Of the last load that was finished. */
    struct kvc_loaded loaded;
    uint8_t *statuses; /* KVC_KEYS_MAX */
};

/* The shape of a group; also of specifications without memory (base is an address then). 0, or
 * KVC_E_BAD_ARGUMENT with what is wrong. gpu: whose memory it may name. */
__attribute__((warn_unused_result)) int pool__check_group(const struct kvc_gpu *gpu,
                                                          const struct kvc_pool_spec *spec,
                                                          uint32_t group, bool with_memory,
                                                          uint64_t *ret_block_bytes);
/* Page numbers below the limit; may_lack: or KVC_NO_PAGE. 0, or -EINVAL. */
__attribute__((warn_unused_result)) int pool__check_pages(struct kvc *k, const uint32_t *pages,
                                                          uint64_t n, uint32_t pages_max,
                                                          bool may_lack);
/* Whether the library copies its pages itself. */
bool pool__is_host(const struct kvc_pool *p);
/* What it was opened with; borrows the pool's regions. */
struct kvc_pool_spec pool__spec(const struct kvc_pool *p);
bool pool__is_open(const struct kvc_pool *p);
/* Begins to open it; requests parked for it go on then, or end. 0 = under way, or open; else why it
 * cannot be now. */
__attribute__((warn_unused_result)) int pool__make(struct kvc_pool *p);
/* A MEM or WORDS was answered. */
void pool__mem_came(struct kvc *k);

/* ---- pages.c ---- */

/* That the pool's blocks are those of the namespace. 0, or -EINVAL. */
__attribute__((warn_unused_result)) int
pages__check_pool(struct kvc_ns *ns, const struct kvc_pool *pool, uint32_t group);

/* As in read.c and write.c. The outcome of a load is in its pool too. */
__attribute__((warn_unused_result)) int pages__finish_load(struct kvc_op *op,
                                                           struct kvc_prefix *ret_prefix);
__attribute__((warn_unused_result)) int pages__finish_store(struct kvc_op *op,
                                                            uint8_t *ret_statuses);
/* Of the keys of a sequence, the groups' blocks that are in their pages: the longest prefix of
 * `hit` tokens of which all that it needs is there; 0 when that is no more than from_tokens. */
struct pages_have {
    uint32_t block_tokens, window;
    uint8_t rule; /* enum kvc_rule */
    uint32_t first, n;
    const uint8_t *statuses;
};
uint32_t pages__tokens(const struct pages_have *group, uint32_t groups, uint32_t hit,
                       uint32_t from_tokens);

/* ---- host.c ---- */

/* -EINVAL for a word, which blocks in host memory cannot wait for. */
__attribute__((warn_unused_result)) int host__check_after(struct kvc *k, struct kvc_word after);
/* The calls of pages.c for a pool in host memory, whose arguments are checked. */
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

/* CHUNK_ON. 0 = its memory is there; else why not, and the link may be down. */
__attribute__((warn_unused_result)) int
device__chunk_on(struct kvc *k, const uint8_t *buf, size_t len, int passed, uint32_t *ret_chunk);

#endif
