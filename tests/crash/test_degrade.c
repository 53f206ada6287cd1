/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A storage tier whose disk errs, is full, or is slow: fewer hits, answers within deadlines, no
 * stop, and by itself back in service when the disk is. What was acknowledged as durable is there
 * at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "judge.h"
#include "place.h"
#include "rig_ctl.h"

#define CHAINS   30u /* 13 MiB, more than memory has room for */
#define BACK_MS  120000u
#define SHORT_MS 500u

static struct place place;
static struct world world;
static unsigned acknowledged, refused, hits, misses;

static void setup(void)
{
    place_make(&place, 1, false);
    place_set(&place, "host.limit=4MiB");
    place_set(&place, "host.chunk=2MiB");
    place_set(&place, "host.huge_pages=off");
    place_set(&place, "nvme.limit=64MiB");
    place_set(&place, "nvme.segment=1MiB");
    place_set(&place, "nvme.sync=100ms");
    world = (struct world){.rig = &place.rig, .durable_works = true};
    acknowledged = refused = hits = misses = 0;
}

static void teardown(void)
{
    place_remove(&place);
}

static void start(const char *fault)
{
    int status = place_try(&place, fault);
    if (status)
        rig_show_log(&place.rig);
    ck_assert_msg(status == 0, "%s: the daemon does not start: %x", fault ? fault : "no fault",
                  (unsigned)status);
}

/* Lines of the daemon's log that contain it. */
static unsigned lines_with(const char *text)
{
    char path[160], line[1024];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/log", place.rig.dir);
    FILE *log = fopen(path, "r");
    ck_assert_ptr_nonnull(log);
    while (fgets(line, sizeof line, log))
        n += strstr(line, text) != NULL;
    (void)fclose(log);
    return n;
}

/* What a correct caller may be told while a disk is ill. DOWN: a request on a busy machine had no
 * answer in time, and calls fail at once until there is one (rig_stop() finds a daemon that died).
 */
static bool may_be(int err)
{
    return err >= 0 || err == KVC_E_TIMEOUT || err == KVC_E_DOWN || err == KVC_E_TIER ||
           err == KVC_E_BUSY || err == KVC_E_FULL || err == KVC_E_GONE || err == KVC_STALE;
}

static void read_one(struct world_session *s, uint32_t c)
{
    const struct world_chain *chain = &world.chain[c];
    struct world_read read;
    int err = world_read(s, chain, WORLD_IN_MEMORY, SHORT_MS, &read);
    ck_assert_msg(may_be(err), "read: %s: %s", kvc_error_name(err), kvc_last_error(s->k));
    if (err)
        return;
    for (uint32_t b = 0; b < read.hit; b++)
        ck_assert_msg(read.version[b] == 1, "chain %u block %u has wrong bytes", c, b);
    hits += read.hit;
    misses += WORLD_LEN - read.hit;
}

/* Stores and reads everything once, every third chain with a promise. */
static void exercise(struct world_session *s)
{
    for (uint32_t c = 0; c < CHAINS; c++) {
        const bool durable = c % 3 == 0;
        int ok = world_store(s, &world.chain[c], 0, WORLD_LEN, durable);
        ck_assert_msg(may_be(ok), "store: %s: %s", kvc_error_name(ok), kvc_last_error(s->k));
        if (durable)
            *(ok == (int)WORLD_LEN ? &acknowledged : &refused) += 1;
        read_one(s, c);
        read_one(s, c / 2);
    }
    for (uint32_t c = 0; c < CHAINS; c++)
        read_one(s, c);
}

/* The path is in service and a promise is given again. */
static void wait_until_back(struct world_session *s)
{
    const uint64_t until = rig_now_ms() + BACK_MS;
    while (rig_stat(s->k, "nvme.paths_out") > 0) {
        ck_assert_msg(rig_now_ms() < until, "the path does not come back");
        rig_sleep_ms(50);
    }
    const uint32_t c = CHAINS; /* one that was not stored before */
    for (unsigned i = 0; i < 100; i++) {
        int ok = world_store(s, &world.chain[c + i % 3], 0, WORLD_LEN, true);
        ck_assert_msg(may_be(ok), "store: %s: %s", kvc_error_name(ok), kvc_last_error(s->k));
        if (ok == (int)WORLD_LEN)
            return;
        struct kvc_evict_filter f = {.key = world.chain[c + i % 3].keys};
        for (uint32_t b = 0; b < WORLD_LEN; b++) /* part of it may have been promised */
            world.chain[c + i % 3].block[b].durable = 0;
        struct kvc_evicted evicted;
        ck_assert_int_eq(kvc_evict(s->k, &f, &evicted), 0);
        rig_sleep_ms(100);
    }
    ck_abort_msg("no durable store after the path came back");
}

static int add_outs(void *ctx, const void *row)
{
    const struct kvc_path *path = row;
    *(uint64_t *)ctx += path->outs;
    return 0;
}

static uint64_t outs(struct world_session *s)
{
    uint64_t n = 0;
    ck_assert_int_eq(kvc_list(s->k, KVC_TABLE_PATHS, NULL, add_outs, &n), 0);
    return n;
}

/* What is left of the fault may take the path out only now, for it is these reads that it counts:
 * then all is looked at again when the path is back. */
static void look(const char *when)
{
    struct world_session s;
    struct judged j;
    uint64_t before;
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    do {
        before = outs(&s);
        j = (struct judged){0};
        ck_assert_int_eq(judge_chains(&s, &j), 0);
        ck_assert_int_eq(judge_accounts(&s, true, &j), 0);
        if (outs(&s) != before)
            wait_until_back(&s);
    } while (outs(&s) != before);
    ck_assert_msg(j.wrong_bytes + j.durable_lost + j.accounting_errors == 0, "%s: %s", when,
                  j.first);
    world_close(&s);
}

/* One daemon that has this fault for some calls; then it is killed, and its successor has none. */
static void live_through(const char *fault)
{
    struct world_session s;
    start(fault);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    exercise(&s);
    ck_assert_int_eq(kvc_ping(s.k, &(uint64_t){0}), 0);
    wait_until_back(&s);
    world_close(&s);
    look("in service again");
    rig_kill(&place.rig);
    world_crashed(&world);
    start(NULL);
    look("after a restart");
    rig_stop(&place.rig);
    printf("%s: %u durable chains acknowledged, %u not; %u blocks hit, %u missed\n", fault,
           acknowledged, refused, hits, misses);
    fflush(stdout);
}

static const char *const faults[] = {
    "write:30-31=EIO",
    "write:30-31=ENOSPC",
    "write:30-31=EROFS",
    "read:8-9=EIO",
    "sync:20-21=EIO",
    "sync:20-20=ENOSPC",
    "write:40-42=EIO,read:9-10=EIO",
};

CASES(.setup = setup, .teardown = teardown, .timeout_s = 580);

CASE_EACH(a_disk_that_errs_for_a_while, sizeof faults / sizeof faults[0])
{
    live_through(faults[_i]);
}

/* I/Os take two seconds each, for some of them. */
static const char *const stalls[] = {"read:8-11=2000ms", "write:30-33=2000ms", "sync:20-21=2000ms"};

CASE_EACH(a_disk_that_is_slow_for_a_while, sizeof stalls / sizeof stalls[0])
{
    place_set(&place, "nvme.io_timeout=1s");
    live_through(stalls[_i]);
}

/* ---- a file system that is full ---- */

static bool mount_of(const char *size)
{
    char options[64];
    snprintf(options, sizeof options, "size=%s,mode=0700", size);
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return false;
    return mount("tmpfs", place.store[0], "tmpfs", 0, options) == 0;
}

static void write_filler(const char *path, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(posix_fallocate(fd, 0, (off_t)bytes), 0);
    close(fd);
}

CASE(a_file_system_that_is_full_for_a_while)
{
    char filler[128];
    struct world_session s;
    if (!mount_of("200m")) {
        printf("SKIP: a full file system; only root can mount one\n");
        return;
    }
    snprintf(filler, sizeof filler, "%s/filler", place.store[0]);
    write_filler(filler, 190u << 20);
    int status = place_try(&place, NULL);
    if (status) { /* refused at once: then with a word, and without harm once there is room */
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) <= 2);
        ck_assert_int_eq(unlink(filler), 0);
        start(NULL);
        printf("a full file system: refused to start\n");
    }
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    exercise(&s);
    (void)!unlink(filler);
    wait_until_back(&s);
    world_close(&s);
    look("with room again");
    rig_stop(&place.rig);
    start(NULL);
    look("after a restart");
    rig_stop(&place.rig);
    ck_assert_int_eq(umount2(place.store[0], MNT_DETACH), 0);
}

static int name_chain(struct world_session *s, bool durable)
{
    const struct kvc_name_options o = {.flags = durable ? KVC_F_DURABLE : 0u};
    const struct world_chain *chain = &world.chain[0];
    struct kvc_seq seq = rig_seq(chain->keys, WORLD_LEN, WORLD_BT);
    struct kvc_named named;
    return kvc_name_put(s->ns[chain->size], KVC_NAME_CONVERSATION, "one", &seq, &o, &named);
}

/* Nothing is left behind by a start that has no room, and it says what would do. */
static void refused_for_room(const char *more, const char *remedy)
{
    char path[128];
    int status = place_try(&place, NULL);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    snprintf(path, sizeof path, "%s/kvcache.store", place.store[0]);
    ck_assert_int_ne(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/journal/env.new", place.store[0]);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_uint_eq(lines_with("does not fit on the file system of"), 1);
    ck_assert_uint_eq(lines_with(more), 1);
    ck_assert_uint_eq(lines_with(remedy), 1);
}

static void resize(const char *size)
{
    ck_assert_int_eq(mount("tmpfs", place.store[0], "tmpfs", MS_REMOUNT, size), 0);
}

/* A store was made, its journal had no room, the store stayed behind, and no word said how much
 * room there should have been. */
CASE(a_start_without_room_for_the_journal)
{
    if (!mount_of("68m")) {
        printf("SKIP: a full file system; only root can mount one\n");
        return;
    }
    refused_for_room("60.25 MiB more are wanted", "set nvme.journal to a directory");
    place_forget_log(&place);
    resize("size=100m");
    refused_for_room("28.25 MiB more are wanted", "set nvme.limit to 35MiB at most");
    place_set(&place, "nvme.limit=35MiB");
    start(NULL);
    rig_stop(&place.rig);
    ck_assert_int_eq(umount2(place.store[0], MNT_DETACH), 0);
}

/* Where the room seems to suffice, the journal may yet fail. */
CASE(a_start_whose_journal_cannot_be_made_leaves_no_store)
{
    char path[128];
    const int status = place_try(&place, "meta:1=EIO");
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    snprintf(path, sizeof path, "%s/kvcache.store", place.store[0]);
    ck_assert_int_ne(access(path, F_OK), 0);
}

/* The text blamed nvme.limit, and asked for a quota. */
CASE(a_journal_on_a_full_file_system_of_its_own)
{
    char filler[128], stores[128];
    if (!mount_of("4m")) {
        printf("SKIP: a full file system; only root can mount one\n");
        return;
    }
    snprintf(stores, sizeof stores, "%s/stores", place.rig.dir);
    ck_assert_int_eq(mkdir(stores, 0700), 0);
    place_set(&place, "nvme.paths=%s", stores);
    place_set(&place, "nvme.journal=%s", place.store[0]);
    int status = place_try(&place, NULL);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    ck_assert_uint_eq(lines_with("nvme.journal: a journal of 64 MiB does not fit"), 1);
    ck_assert_uint_eq(lines_with("60.25 MiB more are wanted"), 1);
    ck_assert_uint_eq(lines_with("is there a quota"), 0);
    place_set(&place, "nvme.journal=%s/journal", stores);
    place_set(&place, "secret_file=%s/secret", place.store[0]);
    snprintf(filler, sizeof filler, "%s/filler", place.store[0]);
    write_filler(filler, 4u << 20);
    place_forget_log(&place);
    status = place_try(&place, NULL);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    ck_assert_uint_eq(lines_with("ENOSPC; make room on its file system"), 1);
    ck_assert_int_eq(umount2(place.store[0], MNT_DETACH), 0);
}

/* The default took the room of the journal that the start before had begun to make. */
CASE(the_default_limit_fits_a_small_file_system)
{
    struct world_session s;
    if (!mount_of("64m")) {
        printf("SKIP: a small file system; only root can mount one\n");
        return;
    }
    place_set(&place, "nvme.limit=auto");
    refused_for_room("8.25 MiB more are wanted", "set nvme.journal to a directory");
    resize("size=73m");
    start(NULL);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    ck_assert_uint_eq(rig_stat(s.k, "core.names_error"), ENOSPC);
    ck_assert_uint_eq(lines_with("Make room for 64 MiB there"), 1);
    ck_assert_int_eq(world_store(&s, &world.chain[0], 0, WORLD_LEN, true), (int)WORLD_LEN);
    world_close(&s);
    rig_stop(&place.rig);
    ck_assert_int_eq(umount2(place.store[0], MNT_DETACH), 0);
}

static void await_names(struct kvc *k)
{
    const uint64_t until = rig_now_ms() + BACK_MS;
    while (rig_stat(k, "core.names_error") != 0) {
        ck_assert_msg(rig_now_ms() < until, "names.db is not made");
        rig_sleep_ms(50);
    }
}

#define NOWHERE "names are noted nowhere, for names.dir fails (No space left on device)"

/* Whoever makes or lists a name hears that it ends with the daemon. */
static void names_are_told_of(const struct world_session *s, bool nowhere)
{
    const struct world_chain *chain = &world.chain[0];
    char save[256];
    snprintf(save, sizeof save, "conv save two --ns %u --tip %s", kvc_ns_id(s->ns[chain->size]),
             key_text(chain->keys + (size_t)(WORLD_LEN - 1) * KVC_KEY_BYTES));
    const char *const lines[] = {save, "conv list", "conv show two"};
    for (unsigned i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        ctl(&place.rig, 0, "%s", lines[i]);
        ck_assert_msg((strstr(said, NOWHERE) != NULL) == nowhere, "%s: %s", lines[i], said);
        ctl(&place.rig, 0, "%s --json 2>/dev/null", lines[i]);
        ck_assert_msg((strstr(said, "\"names_error\":\"No space") != NULL) == nowhere, "%s: %s",
                      lines[i], said);
        ck_assert_msg((strstr(said, "\"names_error\":null") != NULL) != nowhere, "%s: %s", lines[i],
                      said);
    }
}

/* The store and its journal took all the room: the daemon did not start for want of names.db. Then
 * it did without it, and did not look whether there was room later. */
CASE(a_start_without_room_for_names)
{
    struct world_session s;
    if (!mount_of("140m")) {
        printf("SKIP: a full file system; only root can mount one\n");
        return;
    }
    start(NULL);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    ck_assert_uint_eq(rig_stat(s.k, "core.names_error"), ENOSPC);
    ck_assert_uint_eq(lines_with("names.dir: "), 1);
    ck_assert_uint_eq(lines_with("Make room for 64 MiB there"), 1);
    ck_assert_int_eq(world_store(&s, &world.chain[0], 0, WORLD_LEN, true), (int)WORLD_LEN);
    ck_assert_int_eq(name_chain(&s, false), 0);
    ck_assert_int_eq(name_chain(&s, true), KVC_E_TIER);
    names_are_told_of(&s, true);
    ck_assert_int_eq(mount("tmpfs", place.store[0], "tmpfs", MS_REMOUNT, "size=300m"), 0);
    await_names(s.k);
    ck_assert_uint_eq(lines_with("could be made now"), 1);
    ck_assert_int_eq(name_chain(&s, true), 0);
    names_are_told_of(&s, false);
    world_close(&s);
    rig_stop(&place.rig);
    start(NULL);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    ck_assert_uint_eq(rig_stat(s.k, "core.names_error"), 0);
    ck_assert_uint_eq(lines_with("names: 2 conversations and documents"), 1);
    world_close(&s);
    look("with room for names");
    rig_stop(&place.rig);
    ck_assert_int_eq(umount2(place.store[0], MNT_DETACH), 0);
}

/* Nine tenths of what is free went to the store, and the rest to its journal. */
CASE(the_default_limit_leaves_room_for_names)
{
    struct world_session s;
    if (!mount_of("400m")) {
        printf("SKIP: a small file system; only root can mount one\n");
        return;
    }
    place_set(&place, "nvme.limit=auto");
    start(NULL);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    ck_assert_uint_eq(rig_stat(s.k, "core.names_error"), 0);
    world_close(&s);
    rig_stop(&place.rig);
    ck_assert_int_eq(umount2(place.store[0], MNT_DETACH), 0);
}

/* Somebody else took all the room: each start made the store smaller, and dropped promises. */
CASE(the_default_limit_keeps_a_store_on_a_full_file_system)
{
    struct world_session s;
    struct stat before, after;
    struct statvfs fs;
    char file[128], filler[128], two[128];
    if (!mount_of("400m")) {
        printf("SKIP: a small file system; only root can mount one\n");
        return;
    }
    place_set(&place, "nvme.limit=auto");
    start(NULL);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    ck_assert_int_eq(world_store(&s, &world.chain[0], 0, WORLD_LEN, true), (int)WORLD_LEN);
    world_close(&s);
    rig_stop(&place.rig);
    snprintf(file, sizeof file, "%s/kvcache.store", place.store[0]);
    snprintf(filler, sizeof filler, "%s/filler", place.store[0]);
    ck_assert_int_eq(stat(file, &before), 0);
    ck_assert_int_eq(statvfs(place.store[0], &fs), 0);
    write_filler(filler, (size_t)fs.f_bavail * fs.f_frsize - (12u << 20));
    for (unsigned i = 0; i < 3; i++) {
        start(NULL);
        look("on a full file system");
        rig_stop(&place.rig);
        ck_assert_int_eq(stat(file, &after), 0);
        ck_assert_int_eq(after.st_size, before.st_size);
    }
    ck_assert_uint_eq(lines_with("are gone"), 0);
    /* Nor is it cut for a path that cannot have as much. */
    snprintf(two, sizeof two, "%s/two", place.store[0]);
    ck_assert_int_eq(mkdir(two, 0700), 0);
    place_set(&place, "nvme.paths=%s,%s", place.store[0], two);
    const int status = place_try(&place, NULL);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    ck_assert_uint_eq(lines_with("which cuts the stores and drops what is behind their end"), 1);
    ck_assert_int_eq(stat(file, &after), 0);
    ck_assert_int_eq(after.st_size, before.st_size);
    ck_assert_int_eq(unlink(filler), 0);
    ck_assert_int_eq(umount2(place.store[0], MNT_DETACH), 0);
}

/* Told to make room there, or to give the directory another owner. */
CASE(a_start_on_a_file_system_that_is_read_only)
{
    char ro[128];
    struct world_session s;
    if (!mount_of("200m")) {
        printf("SKIP: a read-only file system; only root can mount one\n");
        return;
    }
    snprintf(ro, sizeof ro, "%s/ro", place.rig.dir);
    ck_assert_int_eq(mkdir(ro, 0700), 0);
    ck_assert_int_eq(mount("tmpfs", ro, "tmpfs", MS_RDONLY, "size=1m"), 0);
    place_set(&place, "names.dir=%s/names", ro);
    start(NULL);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    ck_assert_uint_eq(rig_stat(s.k, "core.names_error"), EROFS);
    ck_assert_uint_eq(lines_with("Mount its file system read-write"), 1);
    ck_assert_uint_eq(lines_with("Make room"), 0);
    world_close(&s);
    rig_stop(&place.rig);
    place_set(&place, "nvme.journal=%s/journal", ro);
    const int status = place_try(&place, NULL);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    ck_assert_uint_eq(lines_with("mount its file system read-write"), 1);
    ck_assert_uint_eq(lines_with("chown"), 0);
    ck_assert_int_eq(umount2(ro, MNT_DETACH), 0);
    ck_assert_int_eq(umount2(place.store[0], MNT_DETACH), 0);
}

/* The store's file is cut off below the daemon. */
CASE(a_store_that_loses_its_end)
{
    struct stat st;
    char path[160];
    struct world_session s;
    start(NULL);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    exercise(&s);
    snprintf(path, sizeof path, "%s/kvcache.store", place.store[0]);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(truncate(path, 4 << 20), 0);
    const uint64_t until = rig_now_ms() + BACK_MS;
    while (rig_stat(s.k, "nvme.paths_out") == 0) {
        ck_assert_msg(rig_now_ms() < until, "the path does not go out");
        rig_sleep_ms(50);
    }
    exercise(&s); /* each retry would take it in again, and each read out */
    ck_assert_uint_eq(rig_stat(s.k, "nvme.paths_out"), 1);
    ck_assert_uint_eq(outs(&s), 1);
    char found[64];
    snprintf(found, sizeof found, " bytes found, %llu expected)", /* writes lengthen it again */
             (unsigned long long)st.st_size);
    ck_assert_uint_eq(lines_with(found), 1);
    ck_assert_int_eq(truncate(path, st.st_size), 0);
    wait_until_back(&s);
    world_close(&s);
    rig_stop(&place.rig);
    int status = place_try(&place, NULL);
    if (status)
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) <= 2);
    else
        rig_stop(&place.rig);
}

/* Bytes that went bad on the medium were misses, and no line of the log said so. */
CASE(a_store_whose_bytes_go_bad)
{
    static char bad[1 << 20];
    char path[160];
    struct world_session s;
    struct kvc_drained drained = {.left = 1};
    start(NULL);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    for (uint32_t c = 0; c < CHAINS; c++)
        ck_assert(may_be(world_store(&s, &world.chain[c], 0, WORLD_LEN, false)));
    const uint64_t until = rig_now_ms() + BACK_MS;
    while (drained.left > 0) {
        ck_assert_msg(rig_now_ms() < until, "%llu bytes are not drained",
                      (unsigned long long)drained.left);
        ck_assert_int_eq(kvc_drain(s.k, 8u << 20, &drained), 0);
        rig_sleep_ms(10);
    }
    snprintf(path, sizeof path, "%s/kvcache.store", place.store[0]);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    memset(bad, 0x5a, sizeof bad);
    for (off_t at = 16384; at < (off_t)32 << 20; at += (off_t)sizeof bad)
        ck_assert_int_eq(pwrite(fd, bad, sizeof bad, at), (ssize_t)sizeof bad);
    close(fd);
    for (uint32_t c = 0; rig_stat(s.k, "nvme.blocks_corrupt") < 5; c = (c + 1) % CHAINS) {
        ck_assert_msg(rig_now_ms() < until, "no block is found corrupt");
        read_one(&s, c);
    }
    world_close(&s);
    rig_stop(&place.rig); /* what was found last is told before */
    const unsigned lines = lines_with("blocks were not what had been stored there");
    ck_assert_uint_ge(lines, 1);
    ck_assert_uint_le(lines, 2 + (unsigned)(rig_now_ms() - (until - BACK_MS)) / 10000);
}

/* LMDB reads through a map: its file that was cut ended the daemon with SIGBUS, without a word. */
CASE(a_journal_that_loses_its_end)
{
    char path[160];
    struct world_session s;
    start(NULL);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    exercise(&s);
    ck_assert_uint_gt(acknowledged, 0);
    snprintf(path, sizeof path, "%s/journal/env/data.mdb", place.store[0]);
    ck_assert_int_eq(truncate(path, 4096), 0);
    const uint64_t until = rig_now_ms() + BACK_MS;
    for (uint32_t c = CHAINS; rig_stat(s.k, "nvme.journal_error") == 0; c++) {
        ck_assert_msg(rig_now_ms() < until, "nobody sees that the journal was cut");
        int ok = world_store(&s, &world.chain[c % WORLD_CHAINS], 0, WORLD_LEN, false);
        ck_assert_msg(may_be(ok), "store: %s: %s", kvc_error_name(ok), kvc_last_error(s.k));
    }
    ck_assert_uint_eq(rig_stat(s.k, "nvme.journal_error"), ENODATA);
    read_one(&s, 0);
    world_close(&s);
    rig_stop(&place.rig); /* the statistic may be seen before the line is written */
    ck_assert_uint_eq(lines_with("it has become shorter; until a restart nothing is written"), 1);
    start(NULL);
    look("found again by the tables");
    rig_stop(&place.rig);
}

/* Two paths of which one errs, once: the other serves. */
CASE(a_second_path_serves_on)
{
    struct world_session s;
    place_remove(&place);
    place_make(&place, 2, false);
    place_set(&place, "host.limit=4MiB");
    place_set(&place, "host.chunk=2MiB");
    place_set(&place, "nvme.limit=64MiB");
    place_set(&place, "nvme.segment=1MiB");
    start("write:20=EIO");
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    exercise(&s);
    ck_assert_uint_eq(outs(&s), 1);
    ck_assert_uint_gt(acknowledged, refused);
    wait_until_back(&s);
    world_close(&s);
    look("in service again");
    rig_stop(&place.rig);
}
