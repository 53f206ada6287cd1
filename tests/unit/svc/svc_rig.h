/* SPDX-License-Identifier: Apache-2.0 */
/* Services over a core on a fake tier, with fake ports: no sockets, no descriptors, no clock. */
#ifndef KVC_TEST_SVC_RIG_H
#define KVC_TEST_SVC_RIG_H

#include "codec.h"
#include "fake_device.h"
#include "fake_disk.h"
#include "fake_tier.h"
#include "svc.h"

#define SR_PEERS   8
#define SR_REPLIES 4096
#define SR_UID_ONE 1000 /* this uid and 1001 are of principal "one" */
#define SR_UID_TWO 2000 /* of principal "two" */
#define SR_UID_OPS 0    /* of principal "ops", an administrator */
#define SR_UID_GW  3000 /* of principal "gate", a gateway */

struct sr_reply {
    uint64_t corr;
    uint8_t route[KVC_ROUTE_BYTES];
    uint8_t *bytes;
    size_t len;
};

struct sr_staging {
    uint64_t tag, bytes;
    uint8_t *mem; /* NULL: freed */
    bool ready;
};

struct sr_peer {
    uint32_t conn;
    uint8_t route[KVC_ROUTE_BYTES];
    uint64_t staging_bytes;
    uint8_t *staging;
    /* What arrived on the attach connection. */
    unsigned messages;
    uint8_t last[KVC_ATTACH_MAX];
    size_t last_len;
    int last_fd;
    bool closed;       /* the daemon has closed it */
    bool deaf;         /* takes no replies */
    unsigned deaf_for; /* does not take the next so many replies */
    bool backlogged;   /* has many replies that it has not read */
    bool full;         /* takes no attach messages */
    bool left;         /* the peer has closed its end of the attach connection */
};

/* A device.h device: a fake one, plus workers' memory. */
#define SR_DEVICES 2
#define SR_FDS     4096
struct sr_device {
    struct fake_device *fake;
    struct device_ops ops;
    uint8_t uuid[KVC_UUID_BYTES];
    struct device_mem *mems; /* list of all imported memories */
    unsigned nmems, imports; /* nmems: their number; imports: imports that have not ended */
    unsigned pools, dropped;
    unsigned lent; /* chunks that chunk_lend() gave and chunk_give_back() has not taken back */
    uint32_t last_given_back;
    unsigned outs;
    int verdict; /* what mem_import() returns */
    struct srig *rig;
};

struct sr_storage {
    uint32_t paths;
    struct kvc_path path[2];
    struct kvc_writes writes;
};

struct srig {
    struct core *core;
    struct core_config core_cfg;
    struct fake_tier *tier;
    uint32_t regions; /* regions of host memory, each of 64 blocks; set it before sr_begin() */
    struct fake_disk *disk; /* the storage tier; exists if `storage` was set before sr_begin() */
    struct svc *svc;
    struct svc_config cfg;
    uint64_t now_ns, corr;
    struct sr_peer peer[SR_PEERS];
    struct sr_staging staging[64];
    unsigned nstaging;
    int staging_verdict; /* what staging_make() returns */
    struct sr_reply reply[SR_REPLIES];
    unsigned nreplies, kept, refreshed;
    bool keep_fails;
    uint32_t ndevices; /* set it before sr_begin() */
    uint32_t slots;    /* regions of slots of each device; set it before sr_begin() */
    struct sr_device device[SR_DEVICES];
    struct device *devices[SR_DEVICES];
    bool open[SR_FDS]; /* descriptors that svc owns; index 0 is SR_FD_FIRST */
    uint32_t next_fd;
    unsigned words; /* number of pages of words */
    int words_verdict;
    const struct sr_storage *storage; /* figures of the storage tier; NULL: no storage tier */
    uint8_t buf[1u << 20];            /* the request that is being encoded */
};

void sr_defaults(struct srig *s);
void sr_begin(struct srig *s);
/* Ends all sessions and copies and evicts all blocks; fails if anything is left. */
void sr_end(struct srig *s);

/* Runs one turn of the control thread `ms` later: timers, waiters, a piece of work, sessions to be
 * closed. */
void sr_turn(struct srig *s, uint64_t ms);
/* Runs turns until nothing is left to do at this time. */
void sr_settle(struct srig *s);
void sr_copies(struct srig *s); /* ends all copies with success */

/* ---- attach channel ---- */
struct sr_peer *sr_connect(struct srig *s, unsigned i, uid_t uid);
/* Connects when no place is free: the daemon refuses; ret_detail: its text. */
void sr_connect_in_vain(struct srig *s, unsigned i, uid_t uid, char *ret_detail, size_t cap);
void sr_attach_hello(struct srig *s, struct sr_peer *p, uint32_t ver_min, uint32_t ver_max,
                     uint64_t staging_bytes);
/* Answers the oldest request for a staging area. */
void sr_staging_ready(struct srig *s, int err);
/* Connects, reads WELCOME, sends the control HELLO. */
struct sr_peer *sr_peer(struct srig *s, unsigned i, uid_t uid, uint64_t staging_bytes);
void sr_leave(struct srig *s, struct sr_peer *p);
uint16_t sr_welcome_status(const struct sr_peer *p, char *ret_detail, size_t cap);
/* The status of the DROPPED that the peer received last; fails if it received something else. */
uint16_t sr_dropped_status(const struct sr_peer *p);

/* ---- requests: encode into s->buf with the head from sr_head(), then send ---- */
const struct msg_head *sr_head(struct srig *s, uint8_t op, uint32_t deadline_ms);
/* Sends a request; `len` is the encoder's result. Returns its corr. */
uint64_t sr_send(struct srig *s, struct sr_peer *p, int len);
/* Encodes and sends a request without a deadline. Returns its corr: SR_SEND(&s, p, lookup, LOOKUP,
 * &msg). */
#define SR_SEND(s, p, name, op, msg) \
    sr_send(s, p, codec_enc_##name((s)->buf, sizeof(s)->buf, sr_head(s, KVC_OP_##op, 0), msg))
void sr_send_raw(struct srig *s, const uint8_t *route, size_t route_len, const void *buf,
                 size_t len);
/* Number of replies to this corr so far. */
unsigned sr_replies(const struct srig *s, uint64_t corr);
/* The only reply to this corr; fails if there is none, or more than one. */
const struct sr_reply *sr_reply(const struct srig *s, uint64_t corr);
/* Decodes that reply: SR_READ(&s, corr, lookup, &head, &reply). */
#define SR_READ(s, corr, name, ret_head, ret_reply)                                               \
    do {                                                                                          \
        const struct sr_reply *r__ = sr_reply(s, corr);                                           \
        ck_assert_int_eq(codec_dec_##name##_reply(r__->bytes, r__->len, ret_head, ret_reply), 0); \
    } while (0)
unsigned sr_status(const struct srig *s, uint64_t corr);
/* Place of the reply among all replies. */
unsigned sr_order(const struct srig *s, uint64_t corr);
const char *sr_detail(const struct srig *s, uint64_t corr);

/* ---- devices ---- */

/* Makes a descriptor that a worker can send; returns its number. */
int sr_fd(struct srig *s);
unsigned sr_fds(const struct srig *s); /* number of descriptors that svc owns */
/* Sends an attach message with a descriptor (-1: none). Returns whether svc has taken the
 * descriptor. */
bool sr_attach_raw(struct srig *s, struct sr_peer *p, const void *buf, size_t len, int fd);
/* The message is in s->buf. */
bool sr_attach_send(struct srig *s, struct sr_peer *p, int len, int fd);
/* Sends MEM; a reply that comes at once is in p->last. */
bool sr_mem(struct srig *s, struct sr_peer *p, uint32_t mem, uint32_t device, int fd);
void sr_mem_drop(struct srig *s, struct sr_peer *p, uint32_t mem);
uint16_t sr_mem_is(const struct sr_peer *p, uint32_t mem); /* status of the MEM_IS that came last */
/* Ends the oldest import of a device. */
void sr_imported(struct srig *s, uint32_t device, int err);
_Atomic uint64_t *sr_words(struct srig *s, struct sr_peer *p);
/* Gives memory 0 on the device, and opens a pool in it with pages for blocks of sr_ns(): two for
 * each block, 64 in all. */
void sr_pool(struct srig *s, struct sr_peer *p, uint32_t pool, uint32_t device);
uint64_t sr_pool_open(struct srig *s, struct sr_peer *p, uint32_t pool, uint32_t device);
uint64_t sr_pool_close(struct srig *s, struct sr_peer *p, uint32_t pool);
struct device_pool *sr_pool_of(struct srig *s, struct sr_peer *p, uint32_t pool);
/* Writes block i of the chain to pages 2 x at and 2 x at + 1, or says whether they hold it. */
void sr_pages_put(struct device_pool *pool, uint32_t chain, uint32_t i, uint32_t at);
bool sr_pages_hold(const struct device_pool *pool, uint32_t chain, uint32_t i, uint32_t at);
void sr_device_copies(struct srig *s); /* ends all device copies with success */

/* The key of block i of a chain. */
void sr_key(uint32_t chain, uint32_t i, uint8_t ret_key[KVC_KEY_BYTES]);

/* ---- whole requests; each returns its corr ---- */
uint64_t sr_hello(struct srig *s, struct sr_peer *p);
uint64_t sr_bare(struct srig *s, struct sr_peer *p, uint8_t op);
/* sr_list() sends LIST and returns the head of its reply. sr_page() and sr_rows() return the rows;
 * sr_page() wants n of them and keeps the cursor. */
const struct msg_reply_head *sr_list(struct srig *s, struct sr_peer *p, const struct msg_list *msg);
struct codec_bin sr_page(struct srig *s, struct sr_peer *p, const struct msg_list *msg,
                         uint8_t cursor[KVC_CURSOR_MAX], void *ret_rows, uint32_t n);
uint32_t sr_rows(struct srig *s, struct sr_peer *p, enum kvc_table_id table, uint32_t max,
                 void *ret_rows);
uint64_t sr_ns_open(struct srig *s, struct sr_peer *p, const char *model, const char *sub);
/* Opens the namespace and returns its id; the reply must be OK. */
uint32_t sr_ns(struct srig *s, struct sr_peer *p, const char *model);
/* Blocks first .. first + n - 1 of a chain, of 8 tokens and 64 bytes each; their payload begins at
 * the start of staging. */
struct sr_blocks {
    uint32_t ns, chain, first, n, deadline_ms;
    const char *sub;
};
uint64_t sr_reserve(struct srig *s, struct sr_peer *p, const struct sr_blocks *b);
uint64_t sr_store(struct srig *s, struct sr_peer *p, const struct sr_blocks *b);
uint64_t sr_commit(struct srig *s, struct sr_peer *p, uint64_t reservation,
                   const struct sr_blocks *b);
uint64_t sr_lookup(struct srig *s, struct sr_peer *p, const struct sr_blocks *b);
uint64_t sr_acquire(struct srig *s, struct sr_peer *p, const struct sr_blocks *b, bool wait);
uint64_t sr_release(struct srig *s, struct sr_peer *p, uint64_t lease);
uint64_t sr_cancel(struct srig *s, struct sr_peer *p, uint64_t target);
uint64_t sr_drop(struct srig *s, struct sr_peer *p, uint64_t reservation);
/* Blocks and the pages 2 x at and up, from which or to which they are copied. */
struct sr_pages {
    struct sr_blocks b;
    uint32_t pool, at, from_tokens, flags, shard;
    uint32_t after, ready; /* number + 1 of a word; 0: none */
    uint64_t after_value, ready_value;
};
uint64_t sr_pages_store(struct srig *s, struct sr_peer *p, const struct sr_pages *g);
uint64_t sr_pages_load(struct srig *s, struct sr_peer *p, const struct sr_pages *g);
uint64_t sr_acquire_on(struct srig *s, struct sr_peer *p, const struct sr_blocks *b,
                       uint32_t device);
struct msg_pages_load_reply sr_loaded(const struct srig *s, uint64_t corr);

/* Results of replies that must be OK. */
uint64_t sr_reservation(const struct srig *s, uint64_t corr);
struct msg_acquire_reply sr_held(const struct srig *s, uint64_t corr);
uint32_t sr_hit(const struct srig *s, uint64_t corr);
/* Checks that all statuses of a COMMIT or STORE are this one. */
void sr_all(const struct srig *s, uint64_t corr, uint8_t status);
uint64_t sr_metric(const struct srig *s, const char *name); /* a statistic of svc */

#endif
