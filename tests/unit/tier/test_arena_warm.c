/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a killed run leaves in kept chunks, and what the next one makes of it: in files of a tmpfs,
 * and in memfds that a service manager holds. KVC_SEED=n repeats a run, KVC_WARM_ROUNDS=n makes it
 * longer.
 */
#include "arena.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "fault.h"
#include "layout.h"
#include "warm_fixture.h"

#define BLOCKS 4096u

static const struct tier_loc anywhere = {0};

/* --- what was stored, in memory that a child shares with its parent --- */

struct block {
    _Atomic bool may;  /* be found: set before it is published, cleared after it is freed */
    _Atomic bool must; /* be found: set after it is published, cleared before it is freed */
    _Atomic uint32_t stamp;
    uint32_t bytes, principal;
    struct tier_loc loc;
    uint64_t gen; /* in the run that stored it */
};

struct shared {
    struct block block[BLOCKS];
    _Atomic uint64_t published, freed;
    uint32_t principals;
};

static struct shared *share(void)
{
    void *p = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    ((struct shared *)p)->principals = 2;
    return p;
}

/* All that stands in a header follows from number and stamp. */
static struct tier_label label_of(uint32_t no, uint32_t stamp)
{
    struct tier_label l = {.print = 0x7000 + no % 3,
                           .group = no % 16,
                           .shard = stamp % 64,
                           .tokens = 65536 - stamp % 3,
                           .has_parent = no % 2 == 1,
                           .durable = no % 5 == 0,
                           .level = (uint8_t)(stamp % 102)};
    memcpy(l.key.b, &no, sizeof(no));
    memcpy(l.key.b + 4, &stamp, sizeof(stamp));
    if (l.has_parent)
        memset(l.parent.b, (int)(stamp & 0xff), sizeof(l.parent.b));
    return l;
}

static void fill(uint8_t *payload, uint32_t bytes, uint32_t no, uint32_t stamp)
{
    memset(payload, (int)(no ^ stamp), bytes);
    memcpy(payload, &stamp, sizeof(stamp));
    memcpy(payload + bytes - sizeof(no), &no, sizeof(no));
}

static uint64_t next_random(uint64_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return *rng;
}

static void store(struct arena *a, struct shared *sh, uint32_t no, uint64_t *rng)
{
    static const uint32_t sizes[] = {4096, 4000, 5000, 16384, 65536, 65536, 300000};
    struct block *b = &sh->block[no];
    const uint32_t bytes = sizes[next_random(rng) % ARRAY_LEN(sizes)];
    const uint32_t principal = 1 + no % sh->principals;
    struct tier_loc loc;
    if (arena_alloc(a, principal, bytes, anywhere, no, &loc) != 0)
        return;
    b->bytes = bytes;
    b->principal = principal;
    b->loc = loc;
    b->stamp++;
    const struct tier_label label = label_of(no, b->stamp);
    fill(arena_payload(a, loc), bytes, no, b->stamp);
    const struct hash128 sum = hash_sum(arena_payload(a, loc), bytes);
    struct tier_view v;
    b->may = true;
    arena_set_label(a, loc, &label, &sum, bytes);
    b->must = true;
    arena_view(a, loc, &v);
    b->gen = v.gen;
    sh->published++;
}

static void drop(struct arena *a, struct shared *sh, uint32_t no)
{
    struct block *b = &sh->block[no];
    b->must = false;
    arena_free(a, b->loc);
    b->may = false;
    sh->freed++;
}

/* Until somebody kills us. */
static void work(struct arena *a, struct shared *sh, uint64_t seed, uint64_t steps)
{
    uint64_t rng = seed | 1;
    for (uint64_t i = 0; i < steps; i++) {
        const uint32_t no = (uint32_t)(next_random(&rng) >> 8) % BLOCKS;
        if (sh->block[no].must)
            drop(a, sh, no);
        else
            store(a, sh, no, &rng);
    }
}

/* --- what is found --- */

struct check {
    struct arena *a;
    struct shared *sh;
    uint32_t found, unwanted, refuse_every;
    uint64_t last_gen;
    bool seen[BLOCKS];
};

static uint32_t on_found(void *ctx, const struct arena_found *f)
{
    struct check *c = ctx;
    uint32_t no, stamp;
    memcpy(&no, f->label.key.b, sizeof(no));
    memcpy(&stamp, f->label.key.b + 4, sizeof(stamp));
    ck_assert_uint_lt(no, BLOCKS);
    const struct block *b = &c->sh->block[no];
    const struct tier_label want = label_of(no, stamp);
    ck_assert_msg(b->may, "block %u was freed and is found", no);
    ck_assert(!c->seen[no]);
    ck_assert_uint_eq(stamp, b->stamp);
    ck_assert_uint_eq(f->bytes, b->bytes);
    ck_assert_uint_eq(f->principal, b->principal);
    ck_assert(key256_equal(&f->label.parent, &want.parent));
    ck_assert_uint_eq(f->label.print, want.print);
    ck_assert_uint_eq(f->label.group, want.group);
    ck_assert_uint_eq(f->label.shard, want.shard);
    ck_assert_uint_eq(f->label.tokens, want.tokens);
    ck_assert_uint_eq(f->label.has_parent, want.has_parent);
    ck_assert_uint_eq(f->label.durable, want.durable);
    ck_assert_uint_eq(f->label.level, want.level);
    const struct hash128 sum = hash_sum(arena_payload(c->a, f->loc), f->bytes);
    ck_assert(hash128_equal(&sum, &f->sum));
    if (c->refuse_every != 0 && no % c->refuse_every == 0) {
        c->unwanted++;
        return UINT32_MAX;
    }
    c->seen[no] = true;
    c->found++;
    c->sh->block[no].loc = f->loc;
    return no;
}

static void recover(struct arena *a, struct shared *sh, struct check *ret_check,
                    struct arena_recovery *ret_recovery)
{
    *ret_check = (struct check){.a = a, .sh = sh, .refuse_every = ret_check->refuse_every};
    arena_recover(a, on_found, ret_check, ret_recovery);
    arena_check(a);
    ck_assert_uint_eq(ret_recovery->slots, ret_check->found);
}

static void nothing_is_missing(const struct check *c)
{
    for (uint32_t no = 0; no < BLOCKS; no++)
        ck_assert_msg(!c->sh->block[no].must || c->seen[no], "block %u is missing", no);
}

/* --- kill --- */

static uint64_t from_env(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 0) : fallback;
}

/* One run: takes over, checks, works. The parent kills it, in whatever it is doing then. */
static void child_run(struct kept *k, enum arena_persist persist, struct shared *sh, uint64_t seed,
                      int ready)
{
    static struct check c;
    struct arena_recovery r;
    const struct arena_config config = config_of(k, persist);
    c.refuse_every = 0;
    struct arena *a = start(k, &config);
    recover(a, sh, &c, &r);
    nothing_is_missing(&c);
    ck_assert_uint_eq(r.damaged + r.foreign + r.no_principal + r.slabs_damaged, 0);
    ck_assert_uint_le(r.slots_damaged, 1);   /* the one that was being published */
    for (uint32_t no = 0; no < BLOCKS; no++) /* what was being freed or stored just then */
        sh->block[no].may = sh->block[no].must = c.seen[no];
    ck_assert_int_eq(write(ready, "r", 1), 1);
    work(a, sh, seed, UINT64_MAX);
}

/* What a child gives to the service manager would be known in the child alone. So all chunks have
 * a principal, and are stored, before the first child; with one principal none changes hands. */
static void keep_all(struct kept *k, struct shared *sh)
{
    static struct check c;
    struct arena_recovery r;
    const struct arena_config config = config_of(k, ARENA_PERSIST_FDS);
    struct arena *a = start(k, &config);
    sh->principals = 1;
    recover(a, sh, &c, &r);
    struct tier_loc locs[16];
    uint32_t n = 0;
    struct arena_stats st;
    do {
        ck_assert_int_eq(arena_alloc(a, 1, 1100 * KIB, anywhere, 0, &locs[n]), 0);
        n++;
        arena_stats(a, &st);
    } while (n < 16 && st.chunks_owned * 2 * MIB < st.mapped_bytes);
    for (uint32_t i = 0; i < n; i++)
        arena_free(a, locs[i]);
    arena_destroy(&a);
}

static void kill_rounds(enum arena_persist persist)
{
    struct kept k;
    struct timespec now;
    if (!kept_begin(&k))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed = from_env("KVC_SEED", (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32);
    const uint64_t rounds = from_env("KVC_WARM_ROUNDS", 20);
    uint64_t rng = seed | 1;
    struct shared *sh = share();
    printf("KVC_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    if (persist == ARENA_PERSIST_FDS)
        keep_all(&k, sh);
    for (uint64_t i = 0; i < rounds; i++) {
        int fds[2], status;
        char byte;
        ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
        const uint64_t mine = next_random(&rng);
        const pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            close(fds[0]);
            child_run(&k, persist, sh, mine, fds[1]);
            _exit(0);
        }
        close(fds[1]);
        const bool ready = read(fds[0], &byte, 1) == 1;
        close(fds[0]);
        /* By what it has done and not by the clock: then it is killed somewhere behind that. */
        const uint64_t until = sh->published + sh->freed + next_random(&rng) % 3000;
        while (ready && sh->published + sh->freed < until)
            (void)usleep((useconds_t)(next_random(&rng) % 200));
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(ready, "round %" PRIu64 " found something wrong", i);
    }
    printf("  %" PRIu64 " published, %" PRIu64 " freed, %" PRIu64 " kills\n", sh->published,
           sh->freed, rounds);
    ck_assert_uint_gt(sh->freed, 0);
    munmap(sh, sizeof(*sh));
    kept_end(&k);
}

CASES(.timeout_s = 300);

CASE(a_killed_run_leaves_what_it_had_published_in_files)
{
    kill_rounds(ARENA_PERSIST_DIR);
}

CASE(a_killed_run_leaves_what_it_had_published_with_the_service_manager)
{
    kill_rounds(ARENA_PERSIST_FDS);
}

/* --- a clean stop, and a start under other circumstances --- */

/* A run that ends by itself; false: there is no place to keep anything. */
static bool first_run(struct kept *k, enum arena_persist persist, struct shared *sh)
{
    static struct check c;
    struct arena_recovery r;
    if (!kept_begin(k))
        return false;
    const struct arena_config config = config_of(k, persist);
    struct arena *a = start(k, &config);
    recover(a, sh, &c, &r);
    ck_assert_uint_eq(c.found, 0);
    work(a, sh, 12345, 3000);
    arena_destroy(&a);
    return true;
}

static void second_run(struct kept *k, const struct arena_config *config, struct shared *sh,
                       struct check *c, struct arena_recovery *ret_recovery)
{
    struct arena *a = start(k, config);
    recover(a, sh, c, ret_recovery);
    arena_destroy(&a);
}

/* Of a case: what is stored, where chunks are kept, what the last run found of it. */
static struct shared *all;
static struct kept place;
static struct check found;
static struct arena_recovery recovery;

static void setup(void)
{
    all = share();
}

static void teardown(void)
{
    if (place.dir[0])
        kept_end(&place);
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 300);

CASE_EACH(a_clean_stop_keeps_all, 2)
{
    const enum arena_persist persist = _i == 0 ? ARENA_PERSIST_DIR : ARENA_PERSIST_FDS;
    if (!first_run(&place, persist, all))
        return;
    const struct arena_config config = config_of(&place, persist);

    second_run(&place, &config, all, &found, &recovery);

    nothing_is_missing(&found);
    ck_assert_uint_gt(found.found, 50);
    ck_assert_uint_eq(recovery.slots_damaged + recovery.slots_unwanted + recovery.slabs_damaged, 0);
    second_run(&place, &config, all, &found, &recovery); /* and once more */
    nothing_is_missing(&found);
}

CASE(every_slot_that_is_kept_gets_a_new_generation_and_its_room_is_used_again)
{
    if (!first_run(&place, ARENA_PERSIST_DIR, all))
        return;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_DIR);
    struct arena *a = start(&place, &config);
    recover(a, all, &found, &recovery);
    struct arena_stats st;
    for (uint32_t no = 0; no < BLOCKS; no++) {
        struct tier_view v;
        if (!found.seen[no])
            continue;
        arena_view(a, all->block[no].loc, &v);
        ck_assert_uint_ne(v.gen, all->block[no].gen);
        ck_assert_uint_eq(v.bytes, all->block[no].bytes);
        arena_free(a, all->block[no].loc);
    }
    arena_check(a);
    arena_stats(a, &st);
    ck_assert_uint_eq(st.used_bytes, 0);
    ck_assert_uint_eq(st.slabs, 0);
    uint32_t n = 0;
    struct tier_loc loc;
    while (arena_alloc(a, 1, 64 * KIB, anywhere, n, &loc) == 0)
        n++;
    ck_assert_uint_eq(n, 16 * MIB / (64 * KIB)); /* the limit is as exact as ever */
    arena_destroy(&a);
}

CASE(what_nobody_wants_is_free_room_now_and_later)
{
    if (!first_run(&place, ARENA_PERSIST_DIR, all))
        return;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_DIR);
    found.refuse_every = 2;
    second_run(&place, &config, all, &found, &recovery);
    const uint32_t left = found.found;
    ck_assert_uint_gt(found.unwanted, 0);
    ck_assert_uint_eq(recovery.slots_unwanted, found.unwanted);
    found.refuse_every = 0;

    second_run(&place, &config, all, &found, &recovery);

    ck_assert_uint_eq(found.found, left);
}

CASE(a_smaller_limit_keeps_as_much_as_it_allows)
{
    if (!first_run(&place, ARENA_PERSIST_DIR, all))
        return;
    struct arena_config config = config_of(&place, ARENA_PERSIST_DIR);
    config.limit_bytes = 5 * MIB;
    struct arena *a = start(&place, &config);

    recover(a, all, &found, &recovery);

    struct arena_stats st;
    arena_stats(a, &st);
    ck_assert_uint_gt(recovery.misfits, 0);
    ck_assert_uint_gt(st.used_bytes, 2 * MIB);
    ck_assert_uint_le(st.used_bytes, 5 * MIB);
    arena_destroy(&a);
}

CASE_EACH(chunks_of_another_size_are_discarded, 2)
{
    const enum arena_persist persist = _i == 0 ? ARENA_PERSIST_DIR : ARENA_PERSIST_FDS;
    if (!first_run(&place, persist, all))
        return;
    struct arena_config config = config_of(&place, persist);
    config.chunk_bytes = 4 * MIB;

    second_run(&place, &config, all, &found, &recovery);

    ck_assert_uint_eq(found.found, 0);
    ck_assert_uint_gt(recovery.misfits, 0);
    config.chunk_bytes = 2 * MIB; /* they are not there any more */
    second_run(&place, &config, all, &found, &recovery);
    ck_assert_uint_eq(found.found, 0);
}

CASE(a_principal_that_is_no_more_takes_its_chunks_along)
{
    static const uint64_t other[] = {0, 0x2222, 0x3333};
    if (!first_run(&place, ARENA_PERSIST_DIR, all))
        return;
    struct arena_config config = config_of(&place, ARENA_PERSIST_DIR);
    config.prints = other;
    uint32_t of_second = 0;
    for (uint32_t no = 0; no < BLOCKS; no++) {
        of_second += all->block[no].must && all->block[no].principal == 2;
        all->block[no].principal = all->block[no].principal == 2 ? 1 : 99;
    }

    second_run(&place, &config, all, &found, &recovery);

    ck_assert_uint_gt(recovery.no_principal, 0);
    ck_assert_uint_eq(found.found, of_second);
}

CASE(chunk_ids_do_not_come_again)
{
    uint32_t highest = 0;
    if (!first_run(&place, ARENA_PERSIST_FDS, all))
        return;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_FDS);
    /* Chunks without a principal are not stored, so their numbers are nowhere but beside them. */
    for (unsigned i = 0; i < 3; i++) {
        struct arena *a = start(&place, &config);
        recover(a, all, &found, &recovery);
        struct tier_loc loc;
        struct tier_view v;
        uint32_t fresh = 0;
        for (unsigned n = 0; n < 4 && arena_alloc(a, 1, 1900 * KIB, anywhere, 0, &loc) == 0; n++) {
            arena_view(a, loc, &v);
            fresh = v.chunk > fresh ? v.chunk : fresh;
        }
        if (i > 0 && fresh != 0)
            ck_assert_uint_gt(fresh, highest);
        highest = fresh > highest ? fresh : highest;
        arena_destroy(&a);
    }
}

static uint32_t count_found(void *ctx, const struct arena_found *f)
{
    (void)f;
    return (*(uint32_t *)ctx)++;
}

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* KVC_WARM_BLOCKS=1000000 says how long a real one takes; no payload is touched. */
CASE(many_small_blocks_are_found_by_their_headers_alone)
{
    const uint32_t blocks = (uint32_t)from_env("KVC_WARM_BLOCKS", 20000);
    uint32_t n = 0;
    if (!kept_begin(&place))
        return;
    struct arena_config config = config_of(&place, ARENA_PERSIST_FDS);
    config.limit_bytes = (uint64_t)blocks * 4096 + 16 * MIB;
    config.chunk_bytes = blocks > 100000 ? 256 * MIB : 4 * MIB;
    struct arena *a = start(&place, &config);
    arena_recover(a, count_found, &n, &recovery);
    for (uint32_t i = 0; i < blocks; i++) {
        const struct tier_label label = label_of(i, 1);
        const struct hash128 sum = {{1}};
        struct tier_loc loc;
        ck_assert_int_eq(arena_alloc(a, 1, 4096, anywhere, i, &loc), 0);
        arena_set_label(a, loc, &label, &sum, 4096);
    }
    arena_destroy(&a);
    const uint64_t from = now_us();
    a = start(&place, &config);
    const uint64_t between = now_us();

    arena_recover(a, count_found, &n, &recovery);

    printf("  %u blocks: %" PRIu64 " us to take over %u chunks, %" PRIu64 " us for the rest\n",
           blocks, between - from, recovery.chunks, now_us() - between);
    ck_assert_uint_eq(n, blocks);
    ck_assert_uint_eq(recovery.slots, blocks);
    arena_destroy(&a);
}

/* --- the directory --- */

CASE(two_daemons_do_not_share_a_directory)
{
    if (!kept_begin(&place))
        return;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_DIR);
    struct arena *a = NULL, *b = NULL;
    ck_assert_int_eq(arena_create(&config, &a), 0);
    arena_recover(a, on_found, NULL, &recovery);

    ck_assert_int_eq(arena_create(&config, &b), -EBUSY);

    ck_assert_ptr_null(b);
    arena_destroy(&a);
    ck_assert_int_eq(arena_create(&config, &b), 0);
    arena_destroy(&b);
}

/* A file of somebody else's making, under a name of ours. */
static void plant(const struct kept *k, const char *name, mode_t mode, const void *bytes, size_t n)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", k->dir, name);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fchmod(fd, mode), 0);
    ck_assert_int_eq(write(fd, bytes, n), (ssize_t)n);
    ck_assert_int_eq(ftruncate(fd, 2 * MIB), 0);
    close(fd);
}

CASE(what_lies_in_the_directory_and_is_not_ours_harms_nobody)
{
    static const uint8_t rubbish[4096] = {1, 2, 3};
    char path[128];
    struct stat st;
    if (!first_run(&place, ARENA_PERSIST_DIR, all))
        return;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_DIR);
    plant(&place, "chunk-0902", 0600, rubbish, sizeof(rubbish));
    plant(&place, "secret", 0600, rubbish, sizeof(rubbish));
    const uint64_t magic = LAYOUT_CHUNK_MAGIC;
    plant(&place, "chunk-901", 0644, &magic, sizeof(magic)); /* others may have it open */
    plant(&place, "chunk-900", 0600, &magic, sizeof(magic));
    const uint64_t flipped = magic ^ UINT64_C(0x8000000000001);
    plant(&place, "chunk-899", 0600, &flipped, sizeof(flipped)); /* ours, and damaged */

    second_run(&place, &config, all, &found, &recovery);

    nothing_is_missing(&found);
    ck_assert_uint_eq(recovery.damaged + recovery.foreign, 3);
    snprintf(path, sizeof(path), "%s/secret", place.dir);
    ck_assert_int_eq(lstat(path, &st), 0); /* not a name of ours */
}

/* One damaged header kept the daemon from starting. The file is unlinked, never cut. */
CASE(a_chunk_file_with_a_damaged_header_is_left_to_its_readers)
{
    static const uint8_t rubbish[4096] = {1, 2, 3};
    char path[128];
    struct stat st;
    if (!first_run(&place, ARENA_PERSIST_DIR, all))
        return;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_DIR);
    plant(&place, "chunk-907", 0600, rubbish, sizeof(rubbish));
    snprintf(path, sizeof(path), "%s/chunk-907", place.dir);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);

    second_run(&place, &config, all, &found, &recovery);

    nothing_is_missing(&found);
    ck_assert_uint_eq(recovery.damaged, 1);
    ck_assert_int_ne(lstat(path, &st), 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_size, 2 * MIB);
    close(fd);
    plant(&place, "chunk-908", 0644, rubbish, sizeof(rubbish)); /* others may have made it */
    struct arena *a = NULL;
    ck_assert_int_eq(arena_create(&config, &a), -EEXIST);
}

/* They were overwritten or removed: somebody's notes in a file `names`, for one. */
CASE(files_of_others_that_bear_our_names_refuse_the_start_and_stay)
{
    static const char *const names[] = {"names", "chunk-903", "chunk-904", "chunk-905",
                                        "chunk-906"};
    const uint64_t magic = LAYOUT_CHUNK_MAGIC, far = magic ^ 15, near = magic ^ 1;
    char path[128], text[512];
    struct stat st;
    if (!kept_begin(&place))
        return;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_DIR);
    for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
        struct arena *a = NULL;
        snprintf(path, sizeof(path), "%s/%s", place.dir, names[i]);
        if (i == 2)
            ck_assert_int_eq(symlink("/etc/passwd", path), 0);
        else if (i == 3)
            plant(&place, names[i], 0600, &far, sizeof(far));
        else if (i == 4)
            plant(&place, names[i], 0644, &near, sizeof(near));
        else
            plant(&place, names[i], 0600, "my own notes", 12);
        ck_assert_int_eq(arena_create(&config, &a), -EEXIST);
        ck_assert_ptr_nonnull(backing_stranger(place.dir, text, sizeof(text)));
        ck_assert_ptr_nonnull(strstr(text, path));
        ck_assert_int_eq(lstat(path, &st), 0);
        ck_assert(i == 2 || st.st_size == 2 * MIB);
        ck_assert_int_eq(unlink(path), 0);
    }
    struct arena *a = NULL;
    ck_assert_int_eq(arena_create(&config, &a), 0);
    arena_destroy(&a);
}

/* --- damage --- */

/* All that a finished run has left with the service manager. */
struct image {
    uint8_t *copy[KEPT_MAX];
    uint64_t bytes[KEPT_MAX];
    uint32_t n;
};

static void image_take(const struct kept *k, struct image *im)
{
    *im = (struct image){.n = k->nfds};
    for (uint32_t i = 0; i < k->nfds; i++) {
        struct stat st;
        ck_assert_int_eq(fstat(k->fds[i].fd, &st), 0);
        im->bytes[i] = (uint64_t)st.st_size;
        im->copy[i] = malloc(im->bytes[i]);
        ck_assert_ptr_nonnull(im->copy[i]);
        ck_assert_int_eq(pread(k->fds[i].fd, im->copy[i], im->bytes[i], 0), st.st_size);
    }
}

/* Another service manager that holds the same. */
static struct kept image_put(const struct kept *k, const struct image *im)
{
    struct kept made = *k;
    for (uint32_t i = 0; i < im->n; i++) {
        const int fd = memfd_create("image", MFD_CLOEXEC);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(fchmod(fd, 0600), 0);
        ck_assert_int_eq(pwrite(fd, im->copy[i], im->bytes[i], 0), (ssize_t)im->bytes[i]);
        made.fds[i].fd = fd;
    }
    return made;
}

/* A bit of what a header page holds: chunk header, bitmap, slab and slot headers, names. */
static void flip_header_bit(const struct kept *k, const struct image *im, uint64_t *rng)
{
    const uint32_t i = (uint32_t)(next_random(rng) >> 8) % im->n;
    const struct chunk_header *h = (const struct chunk_header *)(const void *)im->copy[i];
    uint32_t page = 0;
    uint8_t byte;
    if (h->magic == LAYOUT_CHUNK_MAGIC && next_random(rng) % 4 != 0) {
        /* The pages of some slab's headers. */
        const uint32_t pages = (uint32_t)(im->bytes[i] >> LAYOUT_PAGE_SHIFT);
        for (unsigned try = 0; try < 1000 && page == 0; try++) {
            const uint32_t p = (uint32_t)(next_random(rng) >> 8) % pages;
            page = (h->slabs[p / 64] >> (p % 64)) & 1 ? p : 0;
        }
    }
    const off_t at = (off_t)page * LAYOUT_PAGE_BYTES +
                     (off_t)((next_random(rng) >> 8) % (page != 0 ? 4096 : 256));
    ck_assert_int_eq(pread(k->fds[i].fd, &byte, 1, at), 1);
    byte ^= (uint8_t)(1u << (next_random(rng) % 8));
    ck_assert_int_eq(pwrite(k->fds[i].fd, &byte, 1, at), 1);
}

CASE(a_flipped_bit_in_a_header_costs_blocks_and_is_never_believed)
{
    struct image im;
    struct timespec now;
    uint64_t missing = 0;
    if (!first_run(&place, ARENA_PERSIST_FDS, all))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed = from_env("KVC_SEED", (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32);
    uint64_t rng = seed | 1;
    printf("KVC_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    image_take(&place, &im);
    uint32_t must = 0;
    for (uint32_t no = 0; no < BLOCKS; no++)
        must += all->block[no].must;
    const uint64_t rounds = from_env("KVC_WARM_FLIPS", 60);
    for (uint64_t round = 0; round < rounds; round++) {
        struct kept mine = image_put(&place, &im);
        const struct arena_config config = config_of(&mine, ARENA_PERSIST_FDS);
        for (uint64_t flips = round % 3 + 1; flips > 0; flips--)
            flip_header_bit(&mine, &im, &rng);
        /* on_found() believes nothing that was not stored. */
        second_run(&mine, &config, all, &found, &recovery);
        missing += must - found.found;
        while (mine.nfds > 0)
            close(mine.fds[--mine.nfds].fd);
    }
    printf("  %u blocks, %" PRIu64 " missing in all rounds\n", must, missing);
    ck_assert(missing > 0 || rounds < 60);
    for (uint32_t i = 0; i < im.n; i++)
        free(im.copy[i]);
}

CASE(payload_that_looks_like_headers_is_not_taken_for_them)
{
    if (!first_run(&place, ARENA_PERSIST_FDS, all))
        return;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_FDS);
    struct arena *a = start(&place, &config);
    recover(a, all, &found, &recovery);
    for (uint32_t no = 0; no < BLOCKS; no += 2) /* those of principal 1 */
        if (found.seen[no])
            drop(a, all, no);
    struct tier_loc small, big;
    struct tier_view v;
    uint64_t bytes;
    ck_assert_int_eq(arena_alloc(a, 1, 4096, anywhere, 0, &small), 0);
    ck_assert_int_eq(arena_alloc(a, 1, 700 * KIB, anywhere, 0, &big), 0);
    /* A whole slab of somebody's, header pages and all, as a worker could store it. */
    arena_view(a, small, &v);
    const int fd = arena_chunk_fd(a, v.chunk, 1, &bytes);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_gt(pread(fd, arena_payload(a, big), 700 * KIB, (off_t)(v.hdr & ~4095ull)), 0);
    const struct tier_label label = {.print = 1, .key = {{0xff, 0xff, 0xff, 0x7f}}};
    const struct hash128 sum = {{0}};
    arena_set_label(a, big, &label, &sum, 700 * KIB);
    arena_free(a, big); /* its pages are free, and as they were */
    arena_free(a, small);
    arena_destroy(&a);

    second_run(&place, &config, all, &found, &recovery);

    nothing_is_missing(&found);
    ck_assert_uint_eq(recovery.slabs_damaged, 0);
}

/* --- the system refuses --- */

CASE(start_unwinds_whatever_fails_and_loses_nothing)
{
    static const char *const points[] = {"alloc", "map", "fd", "thread"};
    unsigned failures = 0;
    if (!first_run(&place, ARENA_PERSIST_DIR, all))
        return;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_DIR);
    for (unsigned p = 0; p < ARRAY_LEN(points); p++) {
        for (uint64_t nth = 1;; nth++) {
            struct arena *a = NULL;
            ck_assert_int_eq(fault_arm(points[p], nth), 0);
            const int err = arena_create(&config, &a);
            const bool reached = fault_count(points[p]) >= nth;
            fault_reset();
            ck_assert_int_eq(err != 0, reached);
            arena_destroy(&a);
            if (!reached)
                break;
            failures++;
        }
    }
    ck_assert_uint_gt(failures, 20);

    second_run(&place, &config, all, &found, &recovery);

    nothing_is_missing(&found);
}

CASE(a_service_manager_that_refuses_costs_the_future_and_nothing_else)
{
    if (!kept_begin(&place))
        return;
    place.refuse = true;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_FDS);
    struct arena *a = start(&place, &config);
    recover(a, all, &found, &recovery);
    work(a, all, 99, 500);
    struct arena_report report;
    arena_report(a, &report);
    ck_assert_int_eq(report.keep_err, -ENOBUFS);
    ck_assert_uint_gt(all->published, 0);
    arena_destroy(&a);
    ck_assert_uint_eq(place.nfds, 0);
}

CASE(a_damaged_header_of_the_names_begins_a_new_store)
{
    uint8_t byte;
    char path[128];
    if (!first_run(&place, ARENA_PERSIST_DIR, all))
        return;
    const struct arena_config config = config_of(&place, ARENA_PERSIST_DIR);
    snprintf(path, sizeof(path), "%s/names", place.dir);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &byte, 1, 20), 1);
    byte ^= 1;
    ck_assert_int_eq(pwrite(fd, &byte, 1, 20), 1);
    close(fd);

    second_run(&place, &config, all, &found, &recovery);

    ck_assert_uint_eq(found.found, 0);
    ck_assert_uint_gt(recovery.foreign, 0);
}
