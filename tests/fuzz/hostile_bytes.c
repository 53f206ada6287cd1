/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Malformed input against a live daemon: some of each corpus, damaged. Messages go over real
 * sockets from several sessions at a time; files and command lines go through the programs. Each
 * sender must be told (a reply, an exit code with a text) or dropped (DROPPED, or its attach
 * connection closed), within two minutes even on a busy machine. Beside it a client stores and
 * loads, and checks every byte. At the end the daemon serves on, its own memory and its descriptors
 * are where they were, all sessions are gone, and SIGTERM ends it with 0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "args.h"
#include "cases.h"
#include "hostile_bytes.h"

#define BLOCK_TOKENS 16u
#define BLOCKS       8u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ANON_GROWTH_MAX (96u << 20) /* of the sanitizer's allocator, which keeps what was freed */
#else
#define ANON_GROWTH_MAX (8u << 20)
#endif

static struct rig rig;
static struct options {
    uint64_t messages, seed;
} options = {.messages = CHECK_SHARE(500), .seed = 1};

/* ---- the healthy client: a process of its own ---- */

struct health {
    volatile uint32_t stop;
    volatile uint64_t rounds, blocks, misses;
};

static struct health *map_health(int fd)
{
    void *p = mmap(NULL, sizeof(struct health), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    return p;
}

/* Hostile sessions of the same principal may evict: then it misses, and stores again. */
static int serve_healthy(struct health *h)
{
    struct kvc *k = rig_open(&rig, 1 << 20);
    struct kvc_ns *ns = rig_ns(k, "healthy", BLOCK_TOKENS, RIG_BLOCK);
    uint8_t keys[BLOCKS * KVC_KEY_BYTES], statuses[BLOCKS];
    while (!h->stop) {
        rig_keys(ns, (uint32_t)(h->rounds % 5), BLOCK_TOKENS, BLOCKS, keys);
        (void)rig_store(k, ns, keys, 0, BLOCKS, BLOCK_TOKENS, RIG_BLOCK, statuses);
        uint32_t hit = rig_load(k, ns, keys, BLOCKS, BLOCK_TOKENS, RIG_BLOCK);
        h->blocks += hit;
        h->misses += BLOCKS - hit;
        h->rounds++;
        rig_sleep_ms(2);
    }
    kvc_close(&k);
    return 0;
}

static int child_main(const char *role, uint64_t arg)
{
    ck_assert_str_eq(role, "healthy");
    return serve_healthy(map_health((int)arg));
}

/* ---- what the daemon holds ---- */

struct held {
    uint64_t anon_bytes; /* its own memory; not the arena and staging, which have limits */
    unsigned files;      /* of memory */
    unsigned others;     /* descriptors that are no such file */
};

static uint64_t anon_bytes(pid_t pid)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "RssAnon: %llu kB", &kib) == 1)
            break;
    fclose(f);
    ck_assert_uint_gt(kib, 0);
    return kib << 10;
}

static struct held held_by(pid_t pid)
{
    struct held h = {.anon_bytes = anon_bytes(pid)};
    for (unsigned fd = 0; fd < 4096; fd++) {
        char path[64], target[64];
        snprintf(path, sizeof(path), "/proc/%d/fd/%u", (int)pid, fd);
        ssize_t n = readlink(path, target, sizeof(target));
        if (n < 0)
            continue;
        if (n >= 7 && memcmp(target, "/memfd:", 7) == 0)
            h.files++;
        else
            h.others++;
    }
    return h;
}

/* Any of the messages and command lines may have turned the trace on, which takes memory. */
static void forget_trace(struct kvc *k)
{
    struct kvc_trace_state state;
    int err = kvc_trace(k, KVC_TRACE_OFF, 0, 0, &state);
    ck_assert_msg(err == 0, "kvc_trace: %s", kvc_error_name(err));
}

/* ZeroMQ closes its sockets a moment after the session has gone. */
static struct held held_at_rest(const struct held *before)
{
    struct held now = held_by(rig.pid);
    for (unsigned i = 0; i < 1000 && now.others > before->others; i++) {
        rig_sleep_ms(20);
        now = held_by(rig.pid);
    }
    return now;
}

/* ---- the test ---- */

static void show(const char *corpus, const struct tally *t)
{
    printf("%-8s %10llu %12llu %14llu %9llu %8llu\n", corpus,
           (unsigned long long)(t->ok + t->error + t->dropped + t->silent),
           (unsigned long long)t->ok, (unsigned long long)t->error, (unsigned long long)t->dropped,
           (unsigned long long)t->silent);
    fflush(stdout);
}

static void finish(const char *corpus, const struct tally *t)
{
    show(corpus, t);
    ck_assert_msg(t->silent == 0, "%s: %llu senders were neither told nor dropped", corpus,
                  (unsigned long long)t->silent);
    ck_assert_uint_eq(t->ok + t->error + t->dropped, options.messages);
    ck_assert_uint_gt(t->error + t->dropped, 0);
}

static void attack(uint64_t n, bool shown)
{
    struct tally t = hostile_wire(&rig, n, options.seed);
    if (shown)
        finish("wire", &t);
    t = hostile_attach(&rig, n, options.seed);
    if (shown)
        finish("attach", &t);
    t = hostile_stream(&rig, n, options.seed);
    if (shown)
        finish("zmtp", &t);
}

static void attack_files(void)
{
    struct tally t = hostile_in_process("config", options.messages, options.seed);
    finish("config", &t);
    t = hostile_in_process("trace", options.messages, options.seed);
    finish("trace", &t);
    t = hostile_command_lines(&rig, options.messages, options.seed);
    finish("ctl", &t);
}

static void check_flat(const struct held *before)
{
    struct held after = held_at_rest(before);
    printf("daemon: own memory %llu -> %llu KiB, descriptors %u -> %u, memory files %u -> %u\n",
           (unsigned long long)before->anon_bytes >> 10, (unsigned long long)after.anon_bytes >> 10,
           before->others, after.others, before->files, after.files);
    ck_assert_uint_le(after.anon_bytes, before->anon_bytes + ANON_GROWTH_MAX);
    ck_assert_uint_le(after.others, before->others);
    /* A chunk has two, and which chunks there are depends on who stored last: 16 MiB hold four. */
    ck_assert_uint_le(after.files, before->files + 8);
}

static pid_t start_healthy(struct health **ret_health)
{
    int fd = memfd_create("health", 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, sizeof(struct health)), 0);
    *ret_health = map_health(fd);
    pid_t pid = rig_spawn(&rig, "healthy", (uint64_t)fd);
    for (unsigned i = 0; i < 6000 && (*ret_health)->rounds == 0; i++)
        rig_sleep_ms(20);
    ck_assert_uint_gt((*ret_health)->rounds, 0);
    return pid;
}

static void end_healthy(pid_t pid, struct health *h, uint64_t rounds_before)
{
    int status;
    /* It is served to the end: two more rounds after the last message. */
    uint64_t rounds = h->rounds;
    for (unsigned i = 0; i < 6000 && h->rounds < rounds + 2; i++)
        rig_sleep_ms(20);
    ck_assert_uint_ge(h->rounds, rounds + 2);
    h->stop = 1;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == 0, "the healthy client failed: status %x", (unsigned)status);
    printf("healthy client: %llu rounds beside it, %llu blocks read and right, %llu missed\n",
           (unsigned long long)(h->rounds - rounds_before), (unsigned long long)h->blocks,
           (unsigned long long)h->misses);
    ck_assert_uint_gt(h->blocks, 0);
}

CASES(.timeout_s = UNTIMED);

CASE(every_sender_is_told_or_dropped)
{
    struct health *health;
    rig_free_soon();
    rig_start(&rig, NULL);
    printf("seed %llu\n%-8s %10s %12s %14s %9s %8s\n", (unsigned long long)options.seed, "corpus",
           "messages", "answered OK", "answered error", "dropped", "silent");
    pid_t healthy = start_healthy(&health);
    /* Once around first: what is made at first use is there afterwards. */
    attack(options.messages / 5 + 1, false);
    struct kvc *k = rig_open(&rig, 0);
    rig_wait_stat(k, "svc.sessions", 2);
    forget_trace(k);
    rig_await_prefault(&rig);
    struct held before = held_by(rig.pid);
    uint64_t rounds = health->rounds;
    attack(options.messages, true);
    attack_files();
    rig_wait_stat(k, "svc.sessions", 2);
    rig_wait_stat(k, "svc.quarantined", 0);
    forget_trace(k);
    check_flat(&before);
    end_healthy(healthy, health, rounds);
    rig_wait_stat(k, "svc.sessions", 1);
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

static const char help[] =
    "Usage: hostile_bytes [--messages N] [--seed N]\n"
    "\n"
    "Malformed input against a live daemon, from the corpora of tests/fuzz/.\n"
    "\n" ARGS_HERE;

static const struct arg option_table[] = {
    {"--messages N", "of each corpus (default 500; with a sanitizer fewer)",
     ARG_COUNT(struct options, messages, 1, UINT32_MAX)},
    {"--seed N", "of the damage (default 1)", ARG_COUNT(struct options, seed, 1, UINT64_MAX)},
    {"--help", "this text", ARG_SHOWN},
    {0},
};

int main(int argc, char **argv)
{
    const char *role;
    uint64_t arg;
    if (rig_is_child(argc, argv, &rig, &role, &arg))
        return rig_child_main(child_main, role, arg);
    const int rc = args_take_only(option_table, &options, help, args_usage, argc, argv);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    hostile_environment(argv);
    return cases_run();
}
