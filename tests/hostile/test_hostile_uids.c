/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of other uids: without rights, or of another principal. Needs root, to become them. */
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "hostile.h"

#define UID_ONE      54321u
#define UID_STRANGER 54322u

static struct hostile s;
static char config[64];

static void setup(void)
{
    static char at[80];
    static const char *const sets[] = {at,
                                       "policy.eviction=lru", /* who floods takes what is old */
                                       "limits.sessions=16",
                                       "limits.namespaces=16",
                                       "staging.total=16MiB",
                                       "staging.session_max=2MiB",
                                       NULL};
    strcpy(config, "/tmp/kvc-config-XXXXXX");
    int fd = mkstemp(config);
    ck_assert_int_ge(fd, 0);
    dprintf(fd,
            "principals:\n"
            "  - name: ops\n    uids: [0]\n    admin: true\n    gateway: true\n"
            "  - name: one\n    uids: [%u]\n",
            UID_ONE);
    close(fd);
    snprintf(at, sizeof at, "@%s", config);
    hostile_begin(&s, sets);
}

static void teardown(void)
{
    hostile_end(&s);
    unlink(config);
}

/* ---- a process of another uid, and when to go on ---- */

struct other {
    pid_t pid;
    int ready, go; /* pipes */
};

static void say(int fd)
{
    ck_assert_int_eq(write(fd, "x", 1), 1);
}

static void hear(int fd)
{
    char c;
    ck_assert_int_eq(read(fd, &c, 1), 1);
}

/* Runs `fn` there; it says that it is ready, and goes on when told. */
static void other_begin(struct other *o, uid_t uid, void (*fn)(int ready, int go))
{
    int ready[2], go[2];
    ck_assert_int_eq(pipe(ready) | pipe(go), 0);
    fflush(NULL);
    o->pid = fork();
    ck_assert_int_ge(o->pid, 0);
    if (o->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setgroups(0, NULL) || setgid(uid) || setuid(uid))
            _exit(99);
        fn(ready[1], go[0]);
        _exit(0);
    }
    close(ready[1]);
    close(go[0]);
    o->ready = ready[0];
    o->go = go[1];
    hear(o->ready);
}

static void other_end(struct other *o)
{
    int status;
    say(o->go);
    ck_assert_int_eq(waitpid(o->pid, &status, 0), o->pid);
    ck_assert_int_eq(status, 0);
    close(o->ready);
    close(o->go);
}

/* ---- no rights ---- */

static void as_stranger(int ready, int go)
{
    struct peer p;
    uint8_t route[KVC_ROUTE_BYTES] = "k";
    static int fd[200];
    ck_assert_int_eq(peer_hello(&p, s.rig, KVC_PROTO_MIN, KVC_PROTO_MAX, 4096), KVC_ST_DENIED);
    peer_close(&p);
    p.control = peer_control_socket(s.rig); /* closed before it says anything */
    ck_assert(p.control < 0 || peer_is_cut(p.control));
    peer_greet(p.control, route, sizeof route);
    for (unsigned i = 0; i < 200; i++)
        fd[i] = i % 2 ? peer_attach_socket(s.rig) : peer_control_socket(s.rig);
    say(ready);
    hear(go);
    (void)fd;
}

static void as_one_briefly(int ready, int go)
{
    struct peer p;
    peer_open(&p, s.rig, 65536);
    ck_assert_int_eq(peer_ping(&p), KVC_ST_OK);
    peer_close(&p);
    say(ready);
    hear(go);
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 600);

CASE(who_has_no_rights_is_told_and_keeps_nobody_out)
{
    struct other stranger, one;
    other_begin(&stranger, UID_STRANGER, as_stranger);
    hostile_serve_hit(&s);
    other_begin(&one, UID_ONE, as_one_briefly);
    other_end(&one);
    other_end(&stranger);
}

/* ---- a principal that takes all it gets ---- */

static void as_many_sessions(int ready, int go)
{
    static struct peer p[64];
    unsigned n = 0;
    while (n < 64 && peer_hello(&p[n], s.rig, KVC_PROTO_MIN, KVC_PROTO_MAX, 2u << 20) == KVC_ST_OK)
        n++;
    ck_assert_uint_gt(n, 3);
    ck_assert_uint_lt(n, 16);
    while (n < 64 && peer_hello(&p[n], s.rig, KVC_PROTO_MIN, KVC_PROTO_MAX, 0) == KVC_ST_OK)
        n++;
    ck_assert_uint_lt(n, 16);
    say(ready);
    hear(go);
}

CASE(sessions_and_staging_of_one_principal_leave_another_its)
{
    struct other one;
    struct peer mine[3];
    other_begin(&one, UID_ONE, as_many_sessions);
    for (unsigned i = 0; i < 3; i++) {        /* with the client: 4 of 16 sessions are promised */
        peer_open(&mine[i], s.rig, 1u << 20); /* and 4 MiB of 16 */
        ck_assert_uint_eq(mine[i].staging_bytes, 1u << 20);
    }
    hostile_serve_hit(&s);
    for (unsigned i = 0; i < 3; i++)
        peer_close(&mine[i]);
    other_end(&one);
}

static void as_many_namespaces(int ready, int go)
{
    struct peer p;
    uint32_t id, keep = 0;
    uint8_t seed[KVC_KEY_BYTES];
    peer_open(&p, s.rig, 0);
    for (unsigned i = 0; i < 100; i++) {
        char model[16];
        snprintf(model, sizeof model, "m%u", i);
        ck_assert_int_eq(peer_ns(&p, model, 16, 4096, &id, seed), KVC_ST_OK);
        keep = id;
    }
    say(ready);
    hear(go);
    uint32_t again; /* the last one it opened: nobody took it meanwhile */
    ck_assert_int_eq(peer_ns(&p, "m99", 16, 4096, &again, seed), KVC_ST_OK);
    ck_assert_uint_eq(again, keep);
    peer_close(&p);
}

CASE(namespaces_of_one_principal_leave_another_its)
{
    struct other one;
    struct peer p;
    uint32_t first, id;
    uint8_t seed[KVC_KEY_BYTES];
    peer_open(&p, s.rig, 0);
    ck_assert_int_eq(peer_ns(&p, "empty", 16, 4096, &first, seed), KVC_ST_OK);
    other_begin(&one, UID_ONE, as_many_namespaces);
    ck_assert_int_eq(peer_ns(&p, "empty", 16, 4096, &id, seed), KVC_ST_OK);
    ck_assert_uint_eq(id, first); /* empty, older, and still there */
    ck_assert_int_eq(peer_ns(&p, "another", 16, 4096, &id, seed), KVC_ST_OK);
    peer_close(&p);
    other_end(&one);
}

CASE(reading_of_a_sub_tenant_creates_nothing)
{
    struct peer p;
    uint32_t ns;
    uint64_t lease = 1;
    uint8_t seed[KVC_KEY_BYTES], keys[4 * KVC_KEY_BYTES], buf[1024];
    peer_open(&p, s.rig, 65536);
    ck_assert_int_eq(peer_ns(&p, "gate", 16, 4096, &ns, seed), KVC_ST_OK);
    peer_keys(seed, 1, 16, 4, keys);
    uint64_t before = rig_stat(s.k, "core.namespaces");
    for (unsigned i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "tenant%u", i);
        struct msg_seq seq = {.ns = ns,
                              .sub = {(const uint8_t *)name, (uint32_t)strlen(name)},
                              .tokens = 64,
                              .ngroups = 1,
                              .keys[0] = {keys, sizeof keys}};
        struct msg_acquire acquire = {.seq = seq, .flags = i % 2 ? KVC_F_WAIT : 0};
        ck_assert_int_eq(peer_acquire(&p, &acquire, &lease, NULL), KVC_ST_OK);
        ck_assert_uint_eq(lease, 0);
        struct msg_head head = peer_head(&p, KVC_OP_LOOKUP);
        struct msg_lookup lookup = {.seq = seq};
        struct msg_reply_head rh;
        struct msg_lookup_reply reply;
        int len = codec_enc_lookup(buf, sizeof buf, &head, &lookup);
        ck_assert_int_eq(peer_ask(&p, &head, buf, len, &len), KVC_ST_OK);
        ck_assert_int_eq(codec_dec_lookup_reply(buf, (size_t)len, &rh, &reply), 0);
        ck_assert_uint_eq(reply.hit_tokens, 0);
        ck_assert_uint_eq(reply.groups[0].reason, KVC_MISS_NEVER);
    }
    ck_assert_uint_eq(rig_stat(s.k, "core.namespaces"), before);
    static const uint64_t offset;
    struct msg_store store = {.reserve = {.ns = ns,
                                          .sub = {(const uint8_t *)"tenant1", 7},
                                          .keys = {keys, KVC_KEY_BYTES}},
                              .offsets = {(const uint8_t *)&offset, 8}};
    ck_assert_int_eq(peer_store(&p, &store, NULL), KVC_ST_OK); /* a writer does */
    ck_assert_uint_eq(rig_stat(s.k, "core.namespaces"), before + 1);
    peer_close(&p);
}

/* ---- memory ---- */

static sigjmp_buf fault;

static void on_bus(int signo)
{
    siglongjmp(fault, signo);
}

/* Stores 64 blocks of its own, and returns a chunk of them: its descriptor. */
static int chunk_of_mine(struct peer *p, struct stat *ret_st)
{
    uint32_t ns;
    uint64_t offsets[64], lease;
    uint8_t seed[KVC_KEY_BYTES], keys[64 * KVC_KEY_BYTES];
    struct msg_loc loc;
    ck_assert_int_eq(peer_ns(p, "mine", 16, 4096, &ns, seed), KVC_ST_OK);
    peer_keys(seed, 1, 16, 64, keys);
    memset(p->staging, 'A', p->staging_bytes);
    for (unsigned i = 0; i < 64; i++)
        offsets[i] = i * 4096;
    struct msg_store store = {.reserve = {.ns = ns, .keys = {keys, sizeof keys}},
                              .offsets = {(const uint8_t *)offsets, sizeof offsets}};
    ck_assert_int_eq(peer_store(p, &store, NULL), KVC_ST_OK);
    struct msg_acquire acquire = {
        .seq = {.ns = ns, .tokens = 64 * 16, .ngroups = 1, .keys[0] = {keys, sizeof keys}}};
    ck_assert_int_eq(peer_acquire(p, &acquire, &lease, &loc), KVC_ST_OK);
    ck_assert_uint_ne(lease, 0);
    int fd = peer_map(p, loc.chunk);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, ret_st), 0);
    return fd;
}

static void as_writer(int ready, int go)
{
    struct peer p;
    struct stat st;
    char path[64];
    peer_open(&p, s.rig, 1u << 20);
    int fd = chunk_of_mine(&p, &st);
    void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    ck_assert_int_lt(mprotect(map, 4096, PROT_READ | PROT_WRITE), 0);
    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    ck_assert_int_lt(write(fd, "x", 1), 0);
    ck_assert_int_lt(ftruncate(fd, 0), 0);
    ck_assert_int_lt(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    ck_assert_int_lt(fchmod(fd, 0666), 0);
    prctl(PR_SET_DUMPABLE, 1); /* its own /proc is its own again, after setuid */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ck_assert_int_lt(open(path, O_RDWR), 0);
    ck_assert_int_lt(open(path, O_WRONLY), 0);
    peer_close(&p);
    say(ready);
    hear(go);
}

CASE(no_way_to_write_leads_into_a_chunk)
{
    struct other one;
    other_begin(&one, UID_ONE, as_writer);
    other_end(&one);
    /* The daemon's own uid may open it for writing, and neither writes to it nor maps it so. */
    struct peer p;
    struct stat st;
    char path[64];
    peer_open(&p, s.rig, 1u << 20);
    int ro = chunk_of_mine(&p, &st);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ro);
    int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    ck_assert_int_lt(write(fd, "x", 1), 0);
    ck_assert_int_lt(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
    ck_assert_int_lt(ftruncate(fd, st.st_size * 2), 0);
    close(fd);
    close(ro);
    peer_close(&p);
}

/* Of payload that is all 'B'; keys and sums have one by chance. */
static bool is_theirs(volatile const uint8_t *at)
{
    for (unsigned i = 0; i < 16; i++)
        if (at[i] != 'B')
            return false;
    return true;
}

/* Maps a chunk, lets go of its session, keeps the mapping. What it sees afterwards is what it had,
 * zeros or SIGBUS: never what another principal stores. */
static void as_lurker(int ready, int go)
{
    struct peer p;
    struct stat st;
    peer_open(&p, s.rig, 1u << 20);
    int fd = chunk_of_mine(&p, &st);
    volatile const uint8_t *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne((void *)(uintptr_t)map, MAP_FAILED);
    peer_close(&p);
    say(ready);
    hear(go);
    struct sigaction act = {.sa_handler = on_bus};
    ck_assert_int_eq(sigaction(SIGBUS, &act, NULL), 0);
    for (volatile size_t at = 0; at < (size_t)st.st_size; at += 512) {
        if (sigsetjmp(fault, 1) != 0)
            continue;
        ck_assert_msg(!is_theirs(map + at + 64), "another principal's bytes at %zu", (size_t)at);
    }
    /* It takes no memory, mapped or not, as soon as the keeper has got to it. */
    for (unsigned i = 0; i < 1000 && fstat(fd, &st) == 0 && st.st_blocks > 0; i++)
        rig_sleep_ms(10);
    ck_assert_int_eq(st.st_blocks, 0);
    /* A new mapping of the old descriptor shows no more. */
    void *again = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    if (again != MAP_FAILED && sigsetjmp(fault, 1) == 0)
        ck_assert(!is_theirs((volatile uint8_t *)again + 64));
}

CASE(a_chunk_that_was_mapped_never_shows_another_principals_bytes)
{
    struct other one;
    struct peer p;
    uint32_t ns;
    static const uint64_t offset;
    uint8_t seed[KVC_KEY_BYTES], key[KVC_KEY_BYTES];
    other_begin(&one, UID_ONE, as_lurker);
    uint64_t retired = rig_stat(s.k, "daemon.chunks_retired");
    peer_open(&p, s.rig, 2u << 20);
    /* One to a chunk: there are not enough chunks before there is not enough room. */
    ck_assert_int_eq(peer_ns(&p, "flood", 16, 2u << 20, &ns, seed), KVC_ST_OK);
    memset(p.staging, 'B', p.staging_bytes);
    for (unsigned round = 0; round < 20; round++) {
        peer_keys(seed, round, 16, 1, key);
        struct msg_store store = {.reserve = {.ns = ns, .keys = {key, sizeof key}},
                                  .offsets = {(const uint8_t *)&offset, sizeof offset}};
        ck_assert_int_eq(peer_store(&p, &store, NULL), KVC_ST_OK);
    }
    ck_assert_uint_gt(rig_stat(s.k, "daemon.chunks_retired"), retired); /* it did change hands */
    other_end(&one);
    peer_close(&p);
}

/* ---- memory that cannot be evicted ---- */

#define GREEDY  4u          /* sessions */
#define BYTES   (64u << 10) /* of a block */
#define CHAIN   8u          /* blocks */
#define CHAINS  64u         /* as many bytes as host.limit */
#define PROMISE (8u << 20)  /* a quarter of it */

/* As above, with 32 MiB; of the odd rounds, the client's tenant is guaranteed a part of it. */
static void setup_holds(bool share)
{
    static char at[80];
    static const char *const sets[] = {
        at,  "host.limit=32MiB", "host.chunk=2MiB", "policy.eviction=lru", "staging.total=16MiB",
        NULL};
    strcpy(config, "/tmp/kvc-config-XXXXXX");
    int fd = mkstemp(config);
    ck_assert_int_ge(fd, 0);
    dprintf(fd,
            "principals:\n"
            "  - name: ops\n    tenant: tb\n    uids: [0]\n    admin: true\n"
            "  - name: one\n    tenant: ta\n    uids: [%u]\n",
            UID_ONE);
    if (share)
        dprintf(fd, "quotas:\n  - tenant: tb\n    host_share: 16MiB\n");
    close(fd);
    snprintf(at, sizeof at, "@%s", config);
    hostile_begin(&s, sets);
}

static struct peer greedy[GREEDY];
static uint32_t greedy_ns;
static uint8_t greedy_keys[CHAINS][CHAIN * KVC_KEY_BYTES];

static void greedy_open(void)
{
    uint8_t seed[KVC_KEY_BYTES];
    for (unsigned i = 0; i < GREEDY; i++) {
        peer_open(&greedy[i], s.rig, CHAIN * BYTES);
        ck_assert_int_eq(peer_ns(&greedy[i], "greedy", 16, BYTES, &greedy_ns, seed), KVC_ST_OK);
    }
    for (unsigned i = 0; i < CHAINS; i++)
        peer_keys(seed, i, 16, CHAIN, greedy_keys[i]);
}

/* They reserve all that they get, and write nothing. */
static void as_reservers(int ready, int go)
{
    uint64_t id;
    uint8_t statuses[CHAIN];
    unsigned refused = 0;
    greedy_open();
    for (unsigned i = 0; i < CHAINS; i++) {
        const struct msg_reserve reserve = {.ns = greedy_ns,
                                            .keys = {greedy_keys[i], sizeof greedy_keys[i]}};
        ck_assert_int_eq(peer_reserve(&greedy[i % GREEDY], &reserve, &id, statuses), KVC_ST_OK);
        refused += statuses[CHAIN - 1] == KVC_ST_FULL || statuses[CHAIN - 1] == KVC_ST_QUOTA;
    }
    ck_assert_uint_gt(refused, 0);
    say(ready);
    hear(go);
}

/* They fill memory, and then lease all that they get, of each chain so many blocks. */
static void lease_all(uint32_t blocks, int ready, int go)
{
    uint64_t offsets[CHAIN], lease;
    unsigned refused = 0;
    greedy_open();
    for (unsigned i = 0; i < CHAIN; i++)
        offsets[i] = i * BYTES;
    for (unsigned i = 0; i < CHAINS; i++) {
        const struct msg_store store = {
            .reserve = {.ns = greedy_ns, .keys = {greedy_keys[i], sizeof greedy_keys[i]}},
            .offsets = {(const uint8_t *)offsets, sizeof offsets}};
        ck_assert_int_eq(peer_store(&greedy[i % GREEDY], &store, NULL), KVC_ST_OK);
    }
    for (unsigned i = 0; i < CHAINS; i++) {
        const struct msg_acquire acquire = {
            .seq = {.ns = greedy_ns,
                    .tokens = blocks * 16,
                    .ngroups = 1,
                    .keys[0] = {greedy_keys[i], blocks * KVC_KEY_BYTES}}};
        const int status = peer_acquire(&greedy[i % GREEDY], &acquire, &lease, NULL);
        ck_assert(status == KVC_ST_OK || status == KVC_ST_LIMIT);
        refused += status == KVC_ST_LIMIT;
    }
    ck_assert(blocks < CHAIN || refused > 0);
    say(ready);
    hear(go);
}

static void as_lease_holders(int ready, int go)
{
    lease_all(CHAIN, ready, go);
}

/* Few bytes, and some in every chunk. */
static void as_spread_holders(int ready, int go)
{
    lease_all(1, ready, go);
}

/* Twice so much, in stores of half a MiB: each is taken whole, and is there then. kept: so is what
 * was stored before it, back to `bytes`. */
static void store_within(uint64_t bytes, bool kept)
{
    static uint8_t keys[2 * CHAINS][CHAIN * KVC_KEY_BYTES];
    uint8_t statuses[CHAIN];
    struct kvc_ns *ns = rig_ns(s.k, "beside", 16, BYTES);
    const unsigned n = (unsigned)(bytes / (CHAIN * BYTES));
    for (unsigned i = 0; i < 2 * n; i++) {
        rig_keys(ns, i, 16, CHAIN, keys[i]);
        ck_assert_uint_eq(rig_store(s.k, ns, keys[i], 0, CHAIN, 16, BYTES, statuses), CHAIN);
        const unsigned from = !kept ? i : i < n ? 0 : i + 1 - n;
        for (unsigned k = from; k <= i; k++) /* in the order of their use */
            ck_assert_uint_eq(rig_load(s.k, ns, keys[k], CHAIN, 16, BYTES), CHAIN);
    }
}

CASES(.timeout_s = 600);

/* 0, 1: reservations; 2, 3: leases; 4, 5: leases here and there; odd: with a guaranteed share. */
CASE_EACH(what_others_hold_leaves_a_principal_its_part, 6)
{
    static void (*const greedy_fn[])(int ready, int go) = {as_reservers, as_lease_holders,
                                                           as_spread_holders};
    const bool share = _i % 2;
    struct other one;
    setup_holds(share);
    other_begin(&one, UID_ONE, greedy_fn[_i / 2]);
    store_within(share ? 16u << 20 : PROMISE, share);
    other_end(&one);
    teardown();
}

int main(void)
{
    if (geteuid() != 0) {
        printf("SKIP: only root can become another uid\n");
        return 77;
    }
    return cases_run();
}
