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
#define SR_UID_ONE 1000 /* of principal "one", as 1001 */
#define SR_UID_TWO 2000 /* "two" */
#define SR_UID_OPS 0    /* "ops": administrator */
#define SR_UID_GW  3000 /* "gate": gateway */

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
    /* What the attach connection has seen. */
    unsigned messages;
    uint8_t last[KVC_ATTACH_MAX];
    size_t last_len;
    int last_fd;
    bool closed;       /* by the daemon */
    bool deaf;         /* takes no replies */
    unsigned deaf_for; /* does not take so many */
    bool backlogged;   /* has many replies to read yet */
    bool full;         /* takes no attach messages */
    bool left;         /* has closed its end of the attach connection */
};

/* A device over the fake one, with memory of workers. */
#define SR_DEVICES 2
#define SR_FDS     4096
struct sr_device {
    struct fake_device *fake;
    struct device_ops ops;
    uint8_t uuid[KVC_UUID_BYTES];
    struct device_mem *mems; /* all that there are */
    unsigned nmems, imports; /* there are; of them, under way */
    unsigned pools, dropped;
    unsigned lent; /* chunk_lend() without chunk_give_back() */
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
    uint32_t regions;       /* of host memory, 64 blocks each; before sr_begin() */
    struct fake_disk *disk; /* the storage tier, when `storage` is set before sr_begin() */
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
    uint32_t ndevices; /* before sr_begin() */
    uint32_t slots;    /* regions of slots that each has; before sr_begin() */
    struct sr_device device[SR_DEVICES];
    struct device *devices[SR_DEVICES];
    bool open[SR_FDS]; /* descriptors that svc has; SR_FD_FIRST and up */
    uint32_t next_fd;
    unsigned words; /* pages of words that there are */
    int words_verdict;
    const struct sr_storage *storage; /* what the storage tier counts; NULL: there is none */
    uint8_t buf[1u << 20];            /* of the request being made */
};

void sr_defaults(struct srig *s);
void sr_begin(struct srig *s);
/* Ends all sessions and copies, evicts all, and wants nothing left. */
void sr_end(struct srig *s);

/* One turn of the control thread `ms` later: timers, waiters, a step of work, doomed sessions. */
void sr_turn(struct srig *s, uint64_t ms);
/* Turns until nothing is left to do at this time. */
void sr_settle(struct srig *s);
void sr_copies(struct srig *s); /* all end well */

/* ---- attach channel ---- */
struct sr_peer *sr_connect(struct srig *s, unsigned i, uid_t uid);
/* There is no place, and it is told so; ret_detail: the text. */
void sr_connect_in_vain(struct srig *s, unsigned i, uid_t uid, char *ret_detail, size_t cap);
void sr_attach_hello(struct srig *s, struct sr_peer *p, uint32_t ver_min, uint32_t ver_max,
                     uint64_t staging_bytes);
/* The oldest staging area that was asked for and not answered. */
void sr_staging_ready(struct srig *s, int err);
/* Connected, welcomed and greeted. */
struct sr_peer *sr_peer(struct srig *s, unsigned i, uid_t uid, uint64_t staging_bytes);
void sr_leave(struct srig *s, struct sr_peer *p);
uint16_t sr_welcome_status(const struct sr_peer *p, char *ret_detail, size_t cap);
/* Status of the DROPPED that the peer has got last; fails when it has got something else. */
uint16_t sr_dropped_status(const struct sr_peer *p);

/* ---- requests: encode into s->buf with the head from sr_head(), then send ---- */
const struct msg_head *sr_head(struct srig *s, uint8_t op, uint32_t deadline_ms);
/* Returns the corr. `len` is an encoder's result. */
uint64_t sr_send(struct srig *s, struct sr_peer *p, int len);
/* Encodes and sends without a deadline; its corr: SR_SEND(&s, p, lookup, LOOKUP, &msg). */
#define SR_SEND(s, p, name, op, msg) \
    sr_send(s, p, codec_enc_##name((s)->buf, sizeof(s)->buf, sr_head(s, KVC_OP_##op, 0), msg))
void sr_send_raw(struct srig *s, const uint8_t *route, size_t route_len, const void *buf,
                 size_t len);
/* Replies to it so far. */
unsigned sr_replies(const struct srig *s, uint64_t corr);
/* The one reply; fails when there is none, or more. */
const struct sr_reply *sr_reply(const struct srig *s, uint64_t corr);
/* Reads it: SR_READ(&s, corr, lookup, &head, &reply). */
#define SR_READ(s, corr, name, ret_head, ret_reply)                                               \
    do {                                                                                          \
        const struct sr_reply *r__ = sr_reply(s, corr);                                           \
        ck_assert_int_eq(codec_dec_##name##_reply(r__->bytes, r__->len, ret_head, ret_reply), 0); \
    } while (0)
unsigned sr_status(const struct srig *s, uint64_t corr);
/* Its place in the order of replies. */
unsigned sr_order(const struct srig *s, uint64_t corr);
const char *sr_detail(const struct srig *s, uint64_t corr);

/* ---- devices ---- */

/* What a worker sends; its number. */
int sr_fd(struct srig *s);
unsigned sr_fds(const struct srig *s); /* that svc has */
/* A message with a descriptor, -1: none. Returns whether svc has taken it. */
bool sr_attach_raw(struct srig *s, struct sr_peer *p, const void *buf, size_t len, int fd);
bool sr_attach_send(struct srig *s, struct sr_peer *p, int len, int fd); /* of s->buf */
/* MEM; the reply, if there is one at once, is in p->last. */
bool sr_mem(struct srig *s, struct sr_peer *p, uint32_t mem, uint32_t device, int fd);
void sr_mem_drop(struct srig *s, struct sr_peer *p, uint32_t mem);
uint16_t sr_mem_is(const struct sr_peer *p, uint32_t mem); /* the status of the last message */
/* The oldest import of a device ends. */
void sr_imported(struct srig *s, uint32_t device, int err);
_Atomic uint64_t *sr_words(struct srig *s, struct sr_peer *p);
/* Memory 0 of the device, and a pool in it whose pages fit sr_ns(): two to a block, 64 in all. */
void sr_pool(struct srig *s, struct sr_peer *p, uint32_t pool, uint32_t device);
uint64_t sr_pool_open(struct srig *s, struct sr_peer *p, uint32_t pool, uint32_t device);
uint64_t sr_pool_close(struct srig *s, struct sr_peer *p, uint32_t pool);
struct device_pool *sr_pool_of(struct srig *s, struct sr_peer *p, uint32_t pool);
/* What a block of the chain holds, in pages 2 x at and 2 x at + 1, put there or found. */
void sr_pages_put(struct device_pool *pool, uint32_t chain, uint32_t i, uint32_t at);
bool sr_pages_hold(const struct device_pool *pool, uint32_t chain, uint32_t i, uint32_t at);
void sr_device_copies(struct srig *s); /* all end well */

/* The key of block i of a chain. */
void sr_key(uint32_t chain, uint32_t i, uint8_t ret_key[KVC_KEY_BYTES]);

/* ---- whole requests; each returns its corr ---- */
uint64_t sr_hello(struct srig *s, struct sr_peer *p);
uint64_t sr_bare(struct srig *s, struct sr_peer *p, uint8_t op);
/* LIST: the reply's head; with OK its rows and the number of them, which must fit or (page) be n;
 * the cursor is kept. */
const struct msg_reply_head *sr_list(struct srig *s, struct sr_peer *p, const struct msg_list *msg);
struct codec_bin sr_page(struct srig *s, struct sr_peer *p, const struct msg_list *msg,
                         uint8_t cursor[KVC_CURSOR_MAX], void *ret_rows, uint32_t n);
uint32_t sr_rows(struct srig *s, struct sr_peer *p, enum kvc_table_id table, uint32_t max,
                 void *ret_rows);
uint64_t sr_ns_open(struct srig *s, struct sr_peer *p, const char *model, const char *sub);
/* The id, of a reply that is OK. */
uint32_t sr_ns(struct srig *s, struct sr_peer *p, const char *model);
/* Blocks first .. first + n - 1 of a chain: 8 tokens, 64 bytes each, from staging on. */
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
/* From and to pages 2 x at and up, block by block. */
struct sr_pages {
    struct sr_blocks b;
    uint32_t pool, at, from_tokens, flags, shard;
    uint32_t after, ready; /* number of a word + 1; 0: none */
    uint64_t after_value, ready_value;
};
uint64_t sr_pages_store(struct srig *s, struct sr_peer *p, const struct sr_pages *g);
uint64_t sr_pages_load(struct srig *s, struct sr_peer *p, const struct sr_pages *g);
uint64_t sr_acquire_on(struct srig *s, struct sr_peer *p, const struct sr_blocks *b,
                       uint32_t device);
struct msg_pages_load_reply sr_loaded(const struct srig *s, uint64_t corr);

/* Of replies that must be OK. */
uint64_t sr_reservation(const struct srig *s, uint64_t corr);
struct msg_acquire_reply sr_held(const struct srig *s, uint64_t corr);
uint32_t sr_hit(const struct srig *s, uint64_t corr);
/* All per-key statuses of a COMMIT or STORE are this. */
void sr_all(const struct srig *s, uint64_t corr, uint8_t status);
uint64_t sr_metric(const struct srig *s, const char *name); /* of svc */

#endif
