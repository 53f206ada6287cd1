/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of two principals who fill a device in turn and do not unmap what they have read. Needs
 * root, to become them. */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "rig_device.h"

#define UID_ONE 54321u
#define UID_TWO 54322u
#define BT      16u
#define BLOCK   65536u
#define PART    32u /* blocks of one acquire: 2 MiB */
#define PARTS   6u
#define MIB     (1u << 20)
#define LIMIT   (8u * MIB)
#define CHUNK   (2u * MIB)
#define WORKERS 4u

static struct rig rig;
static struct kvc *k;
static char config[64];

static void setup(void)
{
    static char at[80];
    static const char *const sets[] = {
        at,  "hbm.devices=emu:0=8MiB", "hbm.chunk=2MiB", "hbm.emu_memory=64MiB", "host.limit=64MiB",
        NULL};
    strcpy(config, "/tmp/kvc-config-XXXXXX");
    const int fd = mkstemp(config);
    ck_assert_int_ge(fd, 0);
    dprintf(fd,
            "principals:\n"
            "  - name: ops\n    uids: [0]\n    admin: true\n"
            "  - name: one\n    uids: [%u]\n"
            "  - name: two\n    uids: [%u]\n",
            UID_ONE, UID_TWO);
    close(fd);
    snprintf(at, sizeof at, "@%s", config);
    rig_start(&rig, sets);
    k = rig_open(&rig, 0);
    rig_await_device(k, true);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
    ck_assert_int_eq(unlink(config), 0);
}

/* ---- workers ---- */

struct worker {
    pid_t pid;
    int said, told; /* pipes */
};

static char hear(int fd)
{
    char c;
    ck_assert_int_eq(read(fd, &c, 1), 1);
    return c;
}

static void say(int fd, char c)
{
    ck_assert_int_eq(write(fd, &c, 1), 1);
}

/* Reads each part of its chains once, on the device as far as it comes there: what was there. */
static uint32_t read_all(struct kvc_ns *ns, struct kvc_gpu *gpu, struct kvc *mine, uint32_t chains)
{
    static uint8_t keys[PART * KVC_KEY_BYTES], statuses[PART];
    uint32_t hbm = 0;
    for (uint32_t i = 0; i < PARTS; i++) {
        struct kvc_hold *hold = NULL;
        rig_keys(ns, chains + i, BT, PART, keys);
        (void)rig_store(mine, ns, keys, 0, PART, BT, BLOCK, statuses);
        const struct kvc_seq seq = rig_seq(keys, PART, BT);
        ck_assert_msg(kvc_acquire_on(ns, &seq, gpu, NULL, &hold) == 0, "%s", kvc_last_error(mine));
        for (uint32_t b = 0; b < hold->group[0].n; b++) {
            hbm += kvc_hold_device(hold, 0, b) != NULL;
            ck_assert(rig_check(keys + (size_t)b * KVC_KEY_BYTES, rig_hold_data(hold, b), BLOCK));
        }
        ck_assert_int_eq(kvc_hold_check(hold), 0);
        kvc_release(mine, &hold);
    }
    return hbm;
}

static _Noreturn void work(int said, int told, uint32_t chains)
{
    struct kvc_gpu *gpu;
    struct kvc *mine = rig_open(&rig, 4 * MIB);
    struct kvc_ns *ns = rig_ns(mine, "m", BT, BLOCK);
    ck_assert_int_eq(kvc_gpu_open(mine, "emu:0", &gpu), 0);
    for (char c = 'r'; c != 'q'; c = hear(told)) {
        uint64_t ms;
        if (c == 'r')
            say(said, read_all(ns, gpu, mine, chains) > 0 ? 'y' : 'n');
        else
            say(said, kvc_ping(mine, &ms) == 0 && kvc_progress(mine) >= 0 ? 'y' : 'n');
    }
    kvc_close(&mine);
    _exit(0);
}

/* What work() is told when it has become that uid. */
#define PACK(said, told, chains, uid) \
    ((uint64_t)(said) | (uint64_t)(told) << 8 | (uint64_t)(chains) << 16 | (uint64_t)(uid) << 32)

static int child_main(const char *role, uint64_t arg)
{
    (void)role;
    const uid_t uid = (uid_t)(arg >> 32);
    if (setgroups(0, NULL) || setgid(uid) || setuid(uid))
        return 99;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* forgotten with the uid */
    work((int)(arg & 0xff), (int)(arg >> 8 & 0xff), (uint32_t)(arg >> 16 & 0xffff));
}

static void begin(struct worker *w, uid_t uid, uint32_t chains)
{
    int said[2], told[2];
    ck_assert_int_eq(pipe2(said, O_CLOEXEC) | pipe2(told, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(said[1], F_SETFD, 0) | fcntl(told[0], F_SETFD, 0), 0);
    ck_assert(said[1] < 256 && told[0] < 256);
    w->pid = rig_spawn(&rig, "work", PACK(said[1], told[0], chains, uid));
    close(said[1]);
    close(told[0]);
    w->said = said[0];
    w->told = told[1];
}

static void end(struct worker *w, bool kills)
{
    int status;
    if (kills)
        ck_assert_int_eq(kill(w->pid, SIGKILL), 0);
    else
        say(w->told, 'q');
    ck_assert_int_eq(waitpid(w->pid, &status, 0), w->pid);
    ck_assert(kills || status == 0);
    close(w->said);
    close(w->told);
}

/* ---- what is mapped ---- */

struct inodes {
    uint64_t no[64];
    uint32_t n;
};

static void add_mapped(pid_t pid, struct inodes *to)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, RIG_DAEMONS_MEMORY);
        uint32_t i = 0;
        if (!at)
            continue;
        while (at[-1] == ' ' || at[-1] == '/') /* the inode stands before the name */
            at--;
        while (at[-1] != ' ')
            at--;
        const uint64_t no = strtoull(at, NULL, 10);
        ck_assert_uint_gt(no, 0);
        while (i < to->n && to->no[i] != no)
            i++;
        ck_assert_uint_lt(i, 64);
        to->no[i] = no;
        to->n = to->n > i ? to->n : i + 1;
    }
    fclose(f);
}

/* Allocations of the daemon's that it or a worker has mapped are within the limit. */
static uint32_t check_mapped(const struct worker *w, uint32_t n)
{
    struct inodes all = {.n = 0}, theirs = {.n = 0};
    for (uint32_t i = 0; i < n; i++) {
        add_mapped(w[i].pid, &all);
        add_mapped(w[i].pid, &theirs);
    }
    add_mapped(rig.pid, &all);
    ck_assert_uint_le(all.n, LIMIT / CHUNK);
    return theirs.n;
}

/* Reads again and again until it did so on the device. */
static void read_there(const struct worker *all, uint32_t n, const struct worker *w)
{
    for (char c = hear(w->said); c != 'y'; c = hear(w->said)) {
        (void)check_mapped(all, n);
        rig_sleep_ms(20);
        say(w->told, 'r');
    }
}

/* ---- the cases ---- */

CASES(.setup = setup, .teardown = teardown, .timeout_s = 600);

CASE(what_idle_workers_map_is_within_the_limit)
{
    struct worker w[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        begin(&w[i], i % 2 ? UID_TWO : UID_ONE, 1000 * i);
        (void)hear(w[i].said);
        ck_assert_uint_gt(check_mapped(w, i + 1), 0);
    }
    /* Whoever wants room while all of it is theirs gets none there, and every byte all the same. */
    for (uint32_t i = 0; i < 8; i++) {
        rig_sleep_ms(300);
        say(w[1].told, 'r');
        (void)hear(w[1].said);
        (void)check_mapped(w, WORKERS);
    }
    ck_assert_uint_gt(rig_stat(k, "device0.held_bytes"), 0);
    ck_assert_uint_gt(rig_stat(k, "svc.recalled"), 0);
    ck_assert_uint_le(rig_stat(k, "device0.memory_bytes"), LIMIT);
    for (uint32_t i = 0; i < WORKERS; i++)
        end(&w[i], i % 2 == 0);
    rig_wait_stat(k, "device0.held_bytes", 0);
    rig_wait_stat(k, "svc.recalled", 0);
}

/* A worker that comes back from computing makes room by its next call, whatever that is. */
CASE(workers_that_call_make_room_for_one_another)
{
    struct worker w[2];
    begin(&w[0], UID_ONE, 0);
    read_there(w, 1, &w[0]);
    begin(&w[1], UID_TWO, 1000);
    for (char c = hear(w[1].said); c != 'y'; c = hear(w[1].said)) {
        (void)check_mapped(w, 2);
        rig_sleep_ms(20);
        say(w[0].told, 'p');
        ck_assert_int_eq(hear(w[0].said), 'y');
        say(w[1].told, 'r');
    }
    for (uint32_t i = 0; i < 10; i++) {
        const struct worker *at = &w[i % 2];
        const struct worker *beside = &w[1 - i % 2];
        say(at->told, 'r');
        say(beside->told, 'p');
        ck_assert_int_eq(hear(beside->said), 'y');
        (void)hear(at->said);
        (void)check_mapped(w, 2);
    }
    end(&w[0], false);
    end(&w[1], false);
    rig_wait_stat(k, "device0.held_bytes", 0);
}

/* The end of its process is as good as its word. */
CASE(a_worker_that_dies_makes_room)
{
    struct worker w[2];
    begin(&w[0], UID_ONE, 0);
    read_there(w, 1, &w[0]);
    ck_assert_uint_eq(check_mapped(w, 1), LIMIT / CHUNK);
    begin(&w[1], UID_TWO, 1000);
    ck_assert_int_eq(hear(w[1].said), 'n');
    ck_assert_uint_gt(rig_stat(k, "device0.held_bytes"), 0);
    end(&w[0], true);
    say(w[1].told, 'r');
    read_there(&w[1], 1, &w[1]);
    end(&w[1], false);
}

int main(int argc, char **argv)
{
    if (argc == 1 && geteuid() != 0) {
        printf("SKIP: only root can become another uid\n");
        return 77;
    }
    return rig_main(argc, argv, &rig, child_main);
}
