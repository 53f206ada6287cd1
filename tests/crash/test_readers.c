/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that go on reading what a daemon of before has leased to them, while the next one begins
 * with its memory in every way that costs chunks: no worker ends by a signal, and what was read
 * counts only with the generation that it had.
 */
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "layout.h"
#include "manager.h"
#include "place.h"

#define BT      16u
#define LEN     512u /* of RIG_BLOCK: 4 MiB a chain */
#define READERS 3u
#define ROUNDS  20u /* that each reads its chain after a change */
#define UID_ONE 54321u
#define OTHER   12288u /* so that a slab for it has fewer headers than one for RIG_BLOCK */
#define LARGE   (1u << 20)
#define STAGING (4u << 20)
#define FLOOD   400u
#define FDS_MAX 128u
#define CHUNK   (2u << 20)

struct shared {
    volatile uint32_t turn;     /* which hold is to be had; each is held until the next */
    volatile uint32_t want;     /* blocks of a chain that it is to have */
    volatile uint32_t replaced; /* the last turn of which the daemon is no more */
    volatile int stop;
    struct {
        volatile uint32_t turn;   /* that it holds */
        volatile uint64_t rounds; /* its chain, read once */
        volatile uint64_t right, stale, wrong;
        volatile uint64_t believed; /* kvc_hold_check() said 0 of a daemon that was no more */
    } reader[READERS];
};

static struct place place;
static struct shared *shared;
static int shared_fd;
static pid_t reader[READERS];
static char config[64];

/* ---- a worker ---- */

static uint8_t keys[LEN * KVC_KEY_BYTES], statuses[LEN];

static void become_one(void)
{
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(setgroups(0, NULL) | setgid(UID_ONE) | setuid(UID_ONE), 0);
    ck_assert_int_eq(prctl(PR_SET_PDEATHSIG, SIGKILL), 0);
}

static struct shared *map_shared(int fd)
{
    struct shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(sh, MAP_FAILED);
    return sh;
}

/* What is wanted of the chain, stored anew where it is not there; the daemon may be gone at any
 * moment. */
static struct kvc_hold *hold_chain(struct kvc *k, struct kvc_ns *ns)
{
    const uint32_t n = shared->want;
    struct kvc_seq seq = rig_seq(keys, n, BT);
    struct kvc_hold *hold = NULL;
    for (uint64_t end = rig_now_ms() + 60000; rig_now_ms() < end; rig_sleep_ms(2)) {
        if (kvc_acquire(ns, &seq, NULL, &hold) == 0 && hold->group[0].n == n)
            return hold;
        kvc_release(k, &hold);
        uint64_t bytes;
        if (kvc_staging(k, &bytes) != NULL && kvc_is_up(k))
            (void)rig_store(k, ns, keys, 0, n, BT, RIG_BLOCK, statuses);
    }
    ck_abort_msg("a worker cannot hold its chain: %s", kvc_last_error(k));
}

/* The reading rule of PROTOCOL.md, block by block. */
static void read_once(const struct kvc_hold *hold, unsigned no)
{
    static uint8_t copy[RIG_BLOCK];
    for (uint32_t i = 0; i < hold->group[0].n; i++) {
        const struct kvc_block *b = &hold->group[0].block[i];
        memcpy(copy, b->data, sizeof copy);
        __sync_synchronize(); /* ThreadSanitizer refuses weaker fences */
        if (__atomic_load_n(b->gen_at, __ATOMIC_RELAXED) != b->gen)
            shared->reader[no].stale++;
        else if (rig_check(keys + (size_t)i * KVC_KEY_BYTES, copy, sizeof copy))
            shared->reader[no].right++;
        else
            shared->reader[no].wrong++;
    }
    shared->reader[no].rounds++;
}

static int read_for_ever(int fd, unsigned no)
{
    shared = map_shared(fd);
    become_one();
    struct kvc *k = rig_open(&place.rig, STAGING);
    struct kvc_ns *ns = rig_ns(k, "readers", BT, RIG_BLOCK);
    rig_keys(ns, 1 + no, BT, LEN, keys);
    while (!shared->stop) {
        const uint32_t turn = shared->turn;
        struct kvc_hold *hold = hold_chain(k, ns);
        shared->reader[no].turn = turn;
        while (shared->turn == turn && !shared->stop) {
            const bool is_gone = shared->replaced == turn;
            const int said = kvc_hold_check(hold);
            shared->reader[no].believed += is_gone && said == 0;
            read_once(hold, no);
            rig_sleep_ms(1); /* the daemon and its manager need the processors too */
        }
        kvc_release(k, &hold);
    }
    kvc_close(&k);
    return 0;
}

/* Blocks of another size, for the same principal, until each free run is used. */
static int fill_with_others(void)
{
    enum { N = 64 };
    static uint8_t others[N * KVC_KEY_BYTES], said[N];
    become_one();
    struct kvc *k = rig_open(&place.rig, STAGING);
    struct kvc_ns *ns = rig_ns(k, "others", BT, OTHER);
    for (uint32_t chain = 0; chain < 2 * (16u << 20) / OTHER / N; chain++) {
        rig_keys(ns, chain, BT, N, others);
        (void)rig_store(k, ns, others, 0, N, BT, OTHER, said);
    }
    kvc_close(&k);
    return 0;
}

static int work(const char *role, uint64_t arg)
{
    if (strcmp(role, "fill") == 0)
        return fill_with_others();
    return read_for_ever((int)(arg / READERS), arg % READERS);
}

/* ---- what befalls the memory of a daemon that is no more ---- */

static void at_each_chunk(void (*damage)(int fd))
{
    char pattern[96];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/chunk-*", place.persist);
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const int fd = open(found.gl_pathv[i], O_RDWR | O_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        damage(fd);
        close(fd);
    }
    globfree(&found);
}

static void put(int fd, const void *p, size_t bytes, uint64_t at)
{
    ck_assert_int_eq(pwrite(fd, p, bytes, (off_t)at), (ssize_t)bytes);
}

static void spoil_chunk(int fd)
{
    const uint64_t wrong = 1;
    put(fd, &wrong, sizeof wrong, offsetof(struct chunk_header, check));
}

static void age_chunk(int fd)
{
    const uint32_t older = LAYOUT_VERSION - 1;
    put(fd, &older, sizeof older, offsetof(struct chunk_header, version));
}

static void spoil_slabs(int fd)
{
    uint64_t bits[CHUNK / LAYOUT_PAGE_BYTES / 64];
    const uint64_t wrong = 1;
    ck_assert_int_eq(pread(fd, bits, sizeof bits, offsetof(struct chunk_header, slabs)),
                     sizeof bits);
    for (uint64_t page = 0; page < CHUNK / LAYOUT_PAGE_BYTES; page++)
        if (bits[page / 64] >> page % 64 & 1)
            put(fd, &wrong, sizeof wrong,
                page * LAYOUT_PAGE_BYTES + offsetof(struct slab_header, check));
}

static void nothing(void)
{
}

static void other_chunks(void)
{
    place_set(&place, "host.chunk=4MiB");
}

static void less_memory(void)
{
    place_set(&place, "host.limit=4MiB");
    shared->want = LEN / 8; /* what three of them can have under lease there */
}

static void damaged_chunks(void)
{
    at_each_chunk(spoil_chunk);
}

static void older_chunks(void)
{
    at_each_chunk(age_chunk);
}

static void damaged_slabs(void)
{
    at_each_chunk(spoil_slabs);
}

static void another_store(void)
{
    char path[96];
    snprintf(path, sizeof path, "%s/names", place.persist);
    ck_assert_int_eq(unlink(path), 0);
}

static void write_config(const char *name)
{
    FILE *f = fopen(config, "we");
    ck_assert_ptr_nonnull(f);
    fprintf(f,
            "principals:\n"
            "  - name: ops\n    uids: [%u]\n    admin: true\n"
            "  - name: %s\n    uids: [%u]\n",
            (unsigned)geteuid(), name, UID_ONE);
    ck_assert_int_eq(fclose(f), 0);
}

static void other_principals(void)
{
    write_config("two");
}

/* ---- what the next daemon does with it ---- */

static void no_more(void)
{
}

static void others_of_the_same_principal(void)
{
    int status;
    const pid_t pid = rig_spawn(&place.rig, "fill", 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

/* Another principal stores until the chunks are its own. */
static void chunks_change_hands(void)
{
    static uint8_t key[KVC_KEY_BYTES], said[1];
    struct kvc *k = rig_open(&place.rig, STAGING);
    struct kvc_ns *ns = rig_ns(k, "flood", BT, LARGE);
    for (uint32_t chain = 0; chain < FLOOD && rig_stat(k, "daemon.chunks_retired") < READERS;
         chain++) {
        rig_keys(ns, chain, BT, 1, key);
        (void)rig_store(k, ns, key, 0, 1, BT, LARGE, said);
    }
    ck_assert_uint_ge(rig_stat(k, "daemon.chunks_retired"), READERS);
    kvc_close(&k);
}

/* ---- the campaign ---- */

static const struct {
    const char *name;
    void (*before)(void), (*after)(void);
    bool of_files, of_two;
} changes[] = {
    {"nothing", nothing, no_more, false, false},
    {"chunks that change hands", nothing, chunks_change_hands, false, true},
    {"other blocks of the same principal", nothing, others_of_the_same_principal, false, false},
    {"another host.chunk", other_chunks, no_more, false, false},
    {"a smaller host.limit", less_memory, no_more, false, false},
    {"other principals", other_principals, no_more, false, true},
    {"damaged chunk headers", damaged_chunks, no_more, true, false},
    {"an older layout", older_chunks, no_more, true, false},
    {"another store", another_store, no_more, true, false},
    {"damaged slab headers", damaged_slabs, others_of_the_same_principal, true, false},
};
enum { CHANGES = sizeof changes / sizeof changes[0] };

static void check_alive(void)
{
    for (unsigned i = 0; i < READERS; i++) {
        int status;
        const pid_t pid = waitpid(reader[i], &status, WNOHANG);
        ck_assert_msg(pid == 0, "reader %u ended with status %#x", i, (unsigned)status);
    }
}

/* Until each has read its chain so often again, holding what this turn gave. */
static void await_rounds(uint64_t rounds)
{
    for (unsigned i = 0; i < READERS; i++) {
        const uint64_t from = shared->reader[i].rounds;
        const uint64_t end = rig_now_ms() + 100000;
        while (shared->reader[i].turn != shared->turn || shared->reader[i].rounds < from + rounds) {
            ck_assert_msg(rig_now_ms() < end, "reader %u does not read", i);
            check_alive();
            rig_sleep_ms(1);
        }
    }
}

static void start(void)
{
    const int status = place_try(&place, NULL);
    if (status)
        rig_show_log(&place.rig);
    ck_assert_int_eq(status, 0);
}

static void begin(bool of_files)
{
    static char at[80];
    place_make(&place, 0, of_files);
    strcpy(config, "/tmp/kvc-config-XXXXXX");
    close(mkstemp(config));
    write_config("one");
    snprintf(at, sizeof at, "@%s", config);
    place_set(&place, "%s", at);
    place_set(&place, "host.limit=32MiB");
    place_set(&place, "host.chunk=2MiB");
    place_set(&place, "policy.eviction=lru");
    if (!of_files) {
        manager_begin(FDS_MAX);
        place_set(&place, "host.persist=systemd");
    }
    start();
    /* Stays open in those that are spawned, behind what the manager gives them. */
    const int fd = memfd_create("shared", MFD_CLOEXEC);
    shared_fd = fcntl(fd, F_DUPFD, 2 * FDS_MAX);
    ck_assert_int_ge(shared_fd, 0);
    close(fd);
    ck_assert_int_eq(ftruncate(shared_fd, sizeof *shared), 0);
    shared = map_shared(shared_fd);
    shared->turn = 1;
    shared->want = LEN;
    for (unsigned i = 0; i < READERS; i++)
        reader[i] = rig_spawn(&place.rig, "read", (uint64_t)shared_fd * READERS + i);
}

static void end(bool of_files)
{
    shared->stop = 1;
    for (unsigned i = 0; i < READERS; i++) {
        int status;
        ck_assert_int_eq(waitpid(reader[i], &status, 0), reader[i]);
        ck_assert_int_eq(status, 0);
    }
    rig_stop(&place.rig);
    place_remove(&place);
    unlink(config);
    if (!of_files)
        manager_end();
}

/* Killed or stopped, changed, started again, under readers who notice nothing of it. */
static void restart_under_readers(unsigned no, bool is_killed)
{
    await_rounds(2);
    if (is_killed)
        rig_kill(&place.rig);
    else
        rig_stop(&place.rig);
    changes[no].before();
    start();
    shared->replaced = shared->turn;
    await_rounds(ROUNDS);
    uint64_t right = 0;
    for (unsigned i = 0; i < READERS; i++)
        right += shared->reader[i].right;
    changes[no].after();
    await_rounds(ROUNDS);
    for (unsigned i = 0; i < READERS; i++) {
        ck_assert_uint_eq(shared->reader[i].wrong, 0);
        ck_assert_uint_gt(shared->reader[i].stale, 0);
        ck_assert_uint_eq(shared->reader[i].believed, 0);
        right -= shared->reader[i].right;
    }
    ck_assert_uint_eq(right, 0); /* from the start on, nothing of before is as it was */
    shared->turn++;              /* and then they find, or store, what is theirs */
    await_rounds(2);
}

static void run(unsigned no, bool of_files)
{
    if (changes[no].of_two && geteuid() != 0) {
        printf("SKIP: only root can be two principals\n");
        return;
    }
    begin(of_files);
    restart_under_readers(no, no % 2 == 0);
    printf("%s: %llu blocks read, %llu of them stale\n", changes[no].name,
           (unsigned long long)(shared->reader[0].right + shared->reader[0].stale),
           (unsigned long long)shared->reader[0].stale);
    end(of_files);
}

CASES(.timeout_s = 280);

CASE_EACH(readers_of_files_live_on, CHANGES)
{
    run((unsigned)_i, true);
}

CASE_EACH(readers_of_kept_descriptors_live_on, CHANGES)
{
    if (!changes[_i].of_files)
        run((unsigned)_i, false);
}

int main(int argc, char **argv)
{
    return rig_main(argc, argv, &place.rig, work);
}
