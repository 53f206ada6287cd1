/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation: services, core and policy in one process. One seed drives a tier, a clock and
 * clients. README.md says what happens and what is checked.
 *
 * A rule that is broken ends the process (SIM_CHECK, MUST, a sanitizer); main.c prints the seed and
 * the turn. One thread.
 */
#ifndef KVC_TEST_SIM_H
#define KVC_TEST_SIM_H

#include "codec.h"
#include "core_slices.h"
#include "fake_disk.h"
#include "fake_tier.h"
#include "svc.h"

#define SIM_CLIENTS    24
#define SIM_REQS       24 /* requests that a client remembers */
#define SIM_LEASES     16
#define SIM_RESVS      8
#define SIM_SPECS      4
#define SIM_SUBS       3 /* none, "a", "b" */
#define SIM_PRINCIPALS 4
#define SIM_GROUPS     3
#define SIM_CHAINS     8
#define SIM_BLOCKS     20  /* blocks of one group of a chain */
#define SIM_SLOT       256 /* bytes of a block in staging */
#define SIM_SLOTS      32
#define SIM_FLIGHTS    1024
#define SIM_STAGINGS   256
#define SIM_TICKETS    16
#define SIM_OPS        32 /* operation codes that are counted separately */
#define SIM_NONE       UINT32_MAX
#define SIM_MS         UINT64_C(1000000)

/* Actions that a client may begin: X(name, highest weight, may be off). */
#define SIM_ACTIONS(X)     \
    X(DIE, 3, true)        \
    X(NS_OPEN, 4, false)   \
    X(LOOKUP, 8, true)     \
    X(ACQUIRE, 16, true)   \
    X(WAIT, 16, true)      \
    X(REDEEM, 8, true)     \
    X(RELEASE, 16, true)   \
    X(RESERVE, 16, true)   \
    X(COMMIT, 24, true)    \
    X(STORE, 24, true)     \
    X(DROP, 6, true)       \
    X(CONFUSED, 16, true)  \
    X(CANCEL, 8, true)     \
    X(EXPLAIN, 4, true)    \
    X(EVICT, 3, true)      \
    X(BLOCKS, 3, true)     \
    X(VERIFY, 4, true)     \
    X(STATS, 1, true)      \
    X(LIST, 2, true)       \
    X(PING, 2, true)       \
    X(ILLEGAL, 6, true)    \
    X(GARBAGE, 2, true)    \
    X(BAD_ATTACH, 1, true) \
    X(MAP, 2, true)        \
    X(RETIRE, 1, true)     \
    X(DEAF, 1, true)

enum sim_action {
#define X(name, weight, off) ACT_##name,
    SIM_ACTIONS(X)
#undef X
        ACT_COUNT
};

/* Choices that a seed makes once: which actions occur, and how large and how hostile its world is.
 */
struct sim_swarm {
    uint32_t weight[ACT_COUNT], weights;
    uint32_t clients, specs, chains, actions_max; /* actions_max: actions in a turn */
    uint32_t calm; /* of the actions that end a session, one in so many is done */
    uint32_t still_pct, step_ms, seconds_pm, hours_pm;
    uint32_t latency_ms, fail_pct, hang_pct, outage_pm, outage_ms;
    uint32_t staging_ms, staging_fail_pct, attach_fail_pm, keep_fail_pct;
    uint32_t delay_pct; /* percent of requests that arrive late */
    uint32_t wrong_pct; /* percent of parents that are of another chain */
    uint32_t short_pct; /* percent of deadlines of a few milliseconds */
    uint32_t keep_pct;  /* percent for quotas, pins and wishes */
};

/* Digests of what the daemon said in one seed, and when. */
struct sim_digest {
    /* Replies of NS_OPEN and of requests that find, store and hold blocks; engines with devices. */
    uint64_t blocks;
    uint64_t rest; /* administration, HELLO, the attach channel */
};

/* Sums over all seeds of a run; in memory that the processes of a run share. */
struct sim_totals {
    uint64_t seed, turn;      /* the seed that runs, and its turn */
    uint64_t next;            /* place of that seed among all that are to run */
    struct sim_digest digest; /* digests of that seed */
    uint64_t seeds, turns;
    uint64_t replies[SIM_OPS][KVC_ST_COUNT]; /* by operation and status */
    uint64_t keys[KVC_ST_COUNT];             /* statuses of single keys */
    uint64_t misses[KVC_MISS_COUNT];
    uint64_t welcomes[KVC_ST_COUNT], drops[KVC_ST_COUNT];
    uint64_t bytes_checked, locs_checked, copies, copy_failures, deaths, refused, evicted, leases;
    /* Counts of engines with devices. hbm_only: blocks leased in slots alone. hbm_only_lost: such
     * leases lost with their device. hbm_only_tickets: refused tickets of such leases.
     * transfer_waits: acquires that waited for loads. */
    uint64_t locs_hbm, blocks_sent, blocks_from_pages;
    uint64_t hbm_only, hbm_only_lost, hbm_only_tickets, transfer_waits;
    bool told; /* the reason of the last failure has been printed */
};

/* A namespace: its principal, specification and sub-tenant. */
struct sim_space {
    uint32_t principal, spec, sub;
};

/* The first `tokens` of a chain; partial: with keys of partly filled last blocks. */
struct sim_seq {
    struct sim_space space;
    uint32_t chain, tokens;
    bool partial;
};

/* Blocks first .. first + n - 1 of one group of a chain. */
struct sim_span {
    struct sim_space space;
    uint32_t chain, group, shard, first, n, last_tokens; /* last_tokens 0: the last block is full */
    const uint8_t *parent; /* a parent in place of the right one; or NULL */
    bool durable;
};

struct sim_ticket {
    uint8_t bytes[KVC_TICKET_BYTES];
    uint32_t client, life, principal;
    uint64_t lease;
    struct sim_seq seq;
    uint32_t from;
};

struct sim_req {
    bool used, delivered, wait, timed_out, any; /* any: only that a reply comes is checked */
    uint8_t op;
    uint32_t allowed; /* statuses that the reply may have, one bit each */
    uint64_t corr, due_ns, target;
    uint64_t turn; /* turn in which it was sent */
    struct sim_seq seq;
    uint32_t from, wait_tokens, shard;
    struct sim_span span;
    /* Index of a reservation: RESERVE writes its result to it, COMMIT and DROP use it. */
    uint32_t resv;
    uint64_t lease;
    struct sim_ticket ticket; /* ticket of a REDEEM; lease 0: an invented one */
    bool ticket_good, ticket_bad;
    uint8_t offset[SIM_BLOCKS]; /* enum sim_offset */
    uint8_t slot[SIM_BLOCKS];
    int verdict[SIM_BLOCKS]; /* result of each copy; 1 = none was made, 2 = in flight */
};
enum sim_offset { OFFSET_GOOD, OFFSET_SKIP, OFFSET_BAD };

struct sim_lease {
    uint64_t id;        /* 0: the entry is free */
    uint64_t releasing; /* corr of the RELEASE in flight, or 0 */
    struct sim_seq seq;
    uint32_t hit, shard, n;
    uint64_t bytes;
    struct {
        struct tier_view view;
        uint8_t group;
        uint16_t block;
    } loc[SIM_BLOCKS * SIM_GROUPS];
};

struct sim_resv {
    bool used, asked;
    uint64_t id;
    struct sim_span span;
    uint8_t status[SIM_BLOCKS];
};

enum sim_client_state { CL_OFF, CL_CONNECTING, CL_OPEN, CL_HELLO, CL_READY, CL_DROPPED };

struct sim_client {
    uint8_t state;              /* enum sim_client_state */
    bool greeted, deaf, doomed; /* doomed: the daemon must end the session in this turn */
    bool late;                  /* sent nothing for so long that the daemon may end it */
    bool lost; /* a reply could not be delivered: the client does not know all that it holds */
    uint32_t conn, life, principal;
    uid_t uid;
    uint64_t opened_ns, arrive_ns;
    uint8_t route[KVC_ROUTE_BYTES];
    uint8_t *staging;
    uint64_t staging_bytes;
    uint32_t slot_req[SIM_SLOTS]; /* request that uses the slot; SIM_NONE: free */
    uint64_t cursor;              /* cursor of its last list of blocks */
    uint32_t ns[SIM_SPECS][SIM_SUBS];
    struct sim_req req[SIM_REQS];
    struct sim_lease lease[SIM_LEASES];
    struct sim_resv resv[SIM_RESVS];
};

struct sim_flight {
    struct tier_op *op;
    uint64_t end_ns;
    int verdict;
    uint32_t client, life, entry;
    uint64_t corr;
    const uint8_t *src;
};

struct sim_staging {
    bool used, made;
    uint64_t tag, bytes, ready_ns;
    uint8_t *mem;
    uint32_t client, life;
};

struct sim_message { /* a request that has not arrived yet */
    struct sim_message *next;
    uint64_t at_ns, corr;
    uint32_t client, life, deadline_ms;
    uint8_t route[KVC_ROUTE_BYTES];
    size_t len;
    uint8_t bytes[];
};

struct sim_answer { /* a reply that has not been read yet */
    uint32_t client, life;
    size_t len;
    uint8_t *bytes;
};

struct sim_choice {
    uint8_t act; /* enum sim_action */
    uint32_t client;
};

/* A request of act_keep.c that core runs in slices; one at a time. */
struct sim_keep {
    bool asks;
    struct core_asking asking;
    uint8_t keys[SIM_GROUPS][SIM_BLOCKS * KVC_KEY_BYTES];
    uint64_t bound;    /* bound bytes in memory when it began */
    uint64_t unpinned; /* a pin that has ended and may still hold blocks; 0: none */
};

struct sim_seen; /* check.c: all locations that were seen */
struct sim_hbm;  /* devices and engines: devices.c */

struct sim {
    bool slices; /* long requests run in slices, and later ones of the session wait for them */
    uint64_t seed, turns, turn, random, now_ns, corr;
    uint32_t conns;
    bool trace, draining, ending, more;
    struct sim_totals *totals;
    struct sim_swarm swarm;
    struct core *core;
    struct core_config core_cfg;
    struct svc *svc;
    struct svc_config svc_cfg;
    struct fake_tier *tier;
    struct fake_tier_config tier_cfg;
    struct fake_disk *disk; /* NULL: no storage */
    uint32_t disk_regions;
    bool disk_out;
    uint64_t disk_out_turn; /* the turn behind the last one in which the disk was out */
    /* The disk has lost a copy: a client that loads it meanwhile keeps a block that nobody can
     * read. */
    bool disk_lost;
    struct core_client *observer[SIM_PRINCIPALS];
    uint64_t outage_until_ns;
    struct msg_ns_open spec[SIM_SPECS];
    /* share: tokens that a chain has in common with its base chain. */
    uint32_t base[SIM_CHAINS], share[SIM_CHAINS];
    bool seed_known[SIM_PRINCIPALS][SIM_SPECS][SIM_SUBS];
    uint8_t seed_of[SIM_PRINCIPALS][SIM_SPECS][SIM_SUBS][KVC_KEY_BYTES];
    struct sim_client client[SIM_CLIENTS];
    struct sim_keep keep;
    uint32_t speaking; /* client whose attach message or request is being handled */
    uint64_t asking;   /* number of that request */
    struct sim_flight flight[SIM_FLIGHTS];
    uint32_t nflights;
    struct sim_staging staging[SIM_STAGINGS];
    struct sim_message *mail;
    struct sim_answer answer[4096];
    uint32_t nanswers, kept, admitted;
    struct sim_ticket ticket[SIM_TICKETS];
    uint32_t nticket;
    struct sim_seen *seen;
    struct sim_hbm *hbm;  /* NULL: no devices */
    uint32_t hbm_regions; /* regions of each device */
    struct sim_choice choice[32];
    uint32_t nchoices;
    int chunk_answer; /* what chunk_fd() returned last */
    uint8_t keys[SIM_GROUPS][SIM_BLOCKS * KVC_KEY_BYTES], parent[KVC_KEY_BYTES];
    uint8_t offsets[SIM_BLOCKS * 8], tokens[SIM_BLOCKS * 64 * 4];
    uint8_t buf[1u << 16];
};

/* ---- main.c ---- */

_Noreturn void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(const struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define SIM_CHECK(s, cond, ...) \
    (__builtin_expect(!!(cond), 1) ? (void)0 : sim_fail((s), __VA_ARGS__))
#define SIM_TRACE(s, ...) ((s)->trace ? sim_trace((s), __VA_ARGS__) : (void)0)

/* ---- run.c: a seed's life ---- */

extern bool sim_with_disk;
extern const struct policy_ops *sim_policy; /* NULL: each seed takes the next policy */
void sim_run(uint64_t seed, uint64_t turns, bool trace, struct sim_totals *totals);
/* A random number below `below`. Call it once in an argument list: compilers differ in the order of
 * two. */
uint32_t sim_rnd(struct sim *s, uint32_t below);
bool sim_pct(struct sim *s, uint32_t pct);

/* ---- ports.c ---- */

extern const struct svc_principal sim_principals[SIM_PRINCIPALS];
extern const uid_t sim_uid[SIM_PRINCIPALS + 1]; /* the last uid has no rights */
struct svc_ports sim_ports(struct sim *s);
/* Answers for staging areas that are due, or for all. */
void sim_staging_step(struct sim *s, bool all);
/* The client's session has ended: forgets all that it had. */
void sim_client_gone(struct sim *s, struct sim_client *cl);

/* ---- tier.c: when and how copies end ---- */

void sim_tier_begin(struct sim *s);
/* One turn of the storage tier: ends operations, and lets it fail, lose or move. calm: it only ends
 * operations. */
void sim_disk_step(struct sim *s, bool calm);
/* Ends copies that are due, in random order; or all copies. */
void sim_tier_step(struct sim *s, bool all);
/* Number of copies in flight for this request. */
uint32_t sim_tier_of(const struct sim *s, const struct sim_client *cl, uint64_t corr);

/* ---- space.c: what there is to store ---- */

void sim_space_begin(struct sim *s);
const char *sim_sub(uint32_t sub);
/* The key of the block that ends at `end`, in a group with `bt` tokens per block. */
void sim_key(const struct sim *s, uint32_t chain, uint32_t bt, uint32_t end, uint8_t *ret_key);
/* Writes the contents of that block's shard. */
void sim_fill(const struct sim_space *space, uint32_t group, const uint8_t *key, uint32_t shard,
              uint8_t *to, uint32_t bytes);
uint32_t sim_end_of(const struct sim *s, const struct sim_seq *q, uint32_t group, uint32_t block);
uint32_t sim_nkeys(const struct sim *s, const struct sim_seq *q, uint32_t group);
uint32_t sim_tokens_max(const struct sim *s, uint32_t spec);
/* Blocks first .. end - 1: those that a prefix of `tokens` needs and that end after `from`. */
void sim_needs(const struct sim *s, uint32_t spec, uint32_t group, uint32_t tokens, uint32_t from,
               uint32_t *ret_first, uint32_t *ret_end);
/* Payload bytes of a block, all shards. */
uint64_t sim_block_bytes(const struct sim *s, uint32_t spec, uint32_t group);
/* Makes the message's sequence; its keys are in s->keys. */
struct msg_seq sim_msg_seq(struct sim *s, const struct sim_client *cl, const struct sim_seq *q);
struct msg_reserve sim_msg_reserve(struct sim *s, const struct sim_client *cl,
                                   const struct sim_span *p);
void sim_span_key(const struct sim *s, const struct sim_span *p, uint32_t i, uint8_t *ret_key);

/* ---- act.c, act_read.c, act_write.c, act_odd.c: what clients do ---- */

/* sim_act_choose() draws the actions of a turn. sim_act_attach() then lets clients connect, send
 * HELLO and die; sim_act_requests() sends the requests of the others. */
void sim_act_choose(struct sim *s);
void sim_act_attach(struct sim *s);
void sim_act_requests(struct sim *s);
void sim_die(struct sim *s, struct sim_client *cl);
uint32_t sim_index(const struct sim *s, const struct sim_client *cl);
/* A free entry for a request, whose corr is s->corr; NULL: all are in use. */
struct sim_req *sim_req_new(struct sim *s, struct sim_client *cl, uint8_t op);
/* The head of the request, with a random deadline. */
const struct msg_head *sim_head(struct sim *s, const struct sim_req *r);
/* Sends `len` bytes of s->buf to the daemon, at once or later. */
void sim_send(struct sim *s, struct sim_client *cl, struct sim_req *r, int len);
void sim_mail(struct sim *s, bool all);
bool sim_some_seq(struct sim *s, const struct sim_client *cl, struct sim_seq *ret);
bool sim_some_span(struct sim *s, const struct sim_client *cl, struct sim_span *ret);
void sim_act_read(struct sim *s, struct sim_client *cl, enum sim_action act);
void sim_act_write(struct sim *s, struct sim_client *cl, enum sim_action act);
void sim_act_odd(struct sim *s, struct sim_client *cl, enum sim_action act);
void sim_ns_open(struct sim *s, struct sim_client *cl, uint32_t spec, uint32_t sub);
void sim_acquire(struct sim *s, struct sim_client *cl, const struct sim_seq *q, bool wait);

/* ---- reply.c ---- */

/* Adds bytes that a client was told to the seed's digest. */
void sim_told(struct sim *s, uint64_t *digest, const void *p, size_t n);
/* Adds the end of a core call that no message asked for: an error or 0, and a number. */
void sim_ended(struct sim *s, int err, uint64_t n);
/* Checks the replies that have come. */
void sim_read_answers(struct sim *s);
void sim_reply_held(struct sim *s, struct sim_client *cl, struct sim_req *r,
                    const struct msg_acquire_reply *m);
struct sim_req *sim_req_by_corr(struct sim_client *cl, uint64_t corr);
/* Makes staging slots of the request free for the client again, and overwrites them. */
void sim_slots_back(struct sim *s, struct sim_client *cl, const struct sim_req *r);

/* ---- check.c ---- */

void sim_check_begin(struct sim *s);
void sim_check_end(struct sim *s);
void sim_check_turn(struct sim *s);
void sim_check_lease(struct sim *s, const struct sim_client *cl, const struct sim_lease *l);
/* Checks that this location has never belonged to another block. */
void sim_check_seen(struct sim *s, const struct tier_view *v, const struct sim_space *space,
                    uint32_t group, const uint8_t *key, uint32_t shard);
/* Notes that a client was told of this reservation. */
void sim_check_told(struct sim *s, uint64_t reservation);
/* Core's namespace of a client's sequence; NULL: it has gone. */
struct core_ns *sim_core_ns(struct sim *s, const struct sim_client *cl,
                            const struct sim_space *space);
struct core_seq sim_core_seq(struct sim *s, struct core_ns *ns, const struct sim_seq *q);

/* act_keep.c */
void sim_act_keep(struct sim *s);
void sim_check_keep(struct sim *s);
/* Cancels the request that core runs in slices. */
void sim_keep_end(struct sim *s);

#endif
