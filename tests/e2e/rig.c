/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"
#include "cases.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RIG_ARGS 64

void rig_sleep_ms(unsigned ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&ts, &ts) && errno == EINTR)
        continue;
}

uint64_t rig_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static uint64_t random_state;

/* What the variable asks for, or this. */
static uint64_t from_env(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    char *end;
    if (!text)
        return usual;
    const uint64_t v = strtoull(text, &end, 0);
    ck_assert_msg(*text != '\0' && *end == '\0', "%s=%s is not a number", name, text);
    return v;
}

unsigned rig_rounds(unsigned usual)
{
    const uint64_t rounds = from_env("KVC_ROUNDS", CHECK_SHARE(usual));
    ck_assert_msg(rounds > 0 && rounds <= UINT32_MAX, "KVC_ROUNDS must be 1 or more");
    random_state = from_env("KVC_SEED", (uint64_t)time(NULL));
    printf("seed %llu (KVC_SEED repeats it)\n", (unsigned long long)random_state);
    fflush(stdout);
    return (unsigned)rounds;
}

uint64_t rig_next_random(void)
{
    uint64_t v = random_state += UINT64_C(0x9e3779b97f4a7c15);
    v = (v ^ (v >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    v = (v ^ (v >> 27)) * UINT64_C(0x94d049bb133111eb);
    return v ^ (v >> 31);
}

const char *rig_bin(void)
{
    static char dir[512];
    const char *bin = getenv("KVC_BIN_DIR");
    if (bin != NULL)
        return bin;
    ssize_t n = readlink("/proc/self/exe", dir, sizeof dir - 1);
    if (n <= 0)
        return ".";
    dir[n] = '\0';
    *strrchr(dir, '/') = '\0';
    return dir;
}

static void run_daemon(const struct rig *r, const char *const *sets, const char *fault)
{
    static char dir[128], loop[64], path[512], log[128];
    const char *argv[RIG_ARGS] = {path};
    const char *backend = getenv("KVC_LOOP");
    unsigned n = 1;
    snprintf(path, sizeof path, "%s/kvcache-daemon", rig_bin());
    snprintf(dir, sizeof dir, "runtime_dir=%s", r->dir);
    snprintf(loop, sizeof loop, "loop.backend=%s", backend ? backend : "auto");
    const char *base[] = {dir,
                          loop,
                          "host.limit=16MiB",
                          "host.chunk=4MiB",
                          "staging.total=64MiB",
                          "staging.session_max=8MiB",
                          "index.blocks=16384",
                          "limits.leases=8192",
                          "limits.names=2048",
                          "limits.sessions=64",
                          "socket_mode=0666"};
    for (unsigned i = 0; i < sizeof base / sizeof base[0]; i++) {
        argv[n++] = "--set";
        argv[n++] = base[i];
    }
    if (r->config) {
        argv[n++] = "--config";
        argv[n++] = r->config;
    }
    for (; sets && *sets; sets++) {
        argv[n++] = **sets == '@' ? "--config" : "--set";
        argv[n++] = **sets == '@' ? *sets + 1 : *sets;
    }
    snprintf(log, sizeof log, "%s/log", r->dir);
    if (!freopen(log, "a", stderr))
        _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fault ? setenv("KVC_FAULT", fault, 1) : unsetenv("KVC_FAULT"))
        _exit(126);
    execv(path, (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* The daemon's own words, when it did not start. */
void rig_show_log(const struct rig *r)
{
    char line[512];
    snprintf(line, sizeof line, "%s/log", r->dir);
    FILE *f = fopen(line, "r");
    while (f && fgets(line, sizeof line, f))
        fputs(line, stderr);
    if (f)
        fclose(f);
}

void rig_begin(struct rig *r, const char *const *sets, const char *fault)
{
    fflush(NULL);
    r->pid = fork();
    if (r->pid == 0) /* and no word to Check: its descriptor may be another's by now */
        run_daemon(r, sets, fault);
    ck_assert_int_ge(r->pid, 0);
}

int rig_try(struct rig *r, const char *const *sets, const char *fault)
{
    rig_begin(r, sets, fault);
    return rig_await(r);
}

int rig_await(struct rig *r)
{
    /* Long: of a machine on which much is tested at once. */
    for (uint64_t end = rig_now_ms() + 100000; rig_now_ms() < end;) {
        int status;
        if (waitpid(r->pid, &status, WNOHANG) == r->pid) {
            r->pid = 0;
            ck_assert_int_ne(status, 0);
            return status;
        }
        struct kvc_options o = {.socket = r->socket, .name = "rig", .must_connect = true};
        struct kvc *k;
        if (kvc_open(&o, &k) == 0) {
            kvc_close(&k);
            return 0;
        }
        rig_sleep_ms(5);
    }
    rig_show_log(r);
    ck_abort_msg("the daemon does not answer");
}

void rig_restart(struct rig *r, const char *const *sets)
{
    int status = rig_try(r, sets, NULL);
    if (status)
        rig_show_log(r);
    ck_assert_msg(status == 0, "the daemon did not start: status %x", (unsigned)status);
}

void rig_free_soon(void)
{
    const char *asan = getenv("ASAN_OPTIONS");
    char options[512];
    snprintf(options, sizeof options, "%s:quarantine_size_mb=8", asan ? asan : "detect_leaks=1");
    ck_assert_int_eq(setenv("ASAN_OPTIONS", options, 1), 0);
}

void rig_dir(struct rig *r)
{
    strcpy(r->dir, "/tmp/kvc-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(r->dir));
    ck_assert_int_eq(chmod(r->dir, 0755), 0);
    snprintf(r->socket, sizeof r->socket, "%s/attach.sock", r->dir);
}

void rig_start(struct rig *r, const char *const *sets)
{
    rig_dir(r);
    rig_restart(r, sets);
}

static bool is_busy_keeper(int pid, const char *thread)
{
    char path[64], name[32] = "", state = 'S';
    snprintf(path, sizeof path, "/proc/%d/task/%.16s/stat", pid, thread);
    FILE *f = fopen(path, "r");
    if (!f) /* it has ended */
        return false;
    const int n = fscanf(f, "%*d (%31[^)]) %c", name, &state);
    fclose(f);
    return n == 2 && strcmp(name, "kvc-prefault") == 0 && state != 'S';
}

static bool touches_memory(const struct rig *r)
{
    char path[64];
    bool busy = false;
    snprintf(path, sizeof path, "/proc/%d/task", (int)r->pid);
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *e; !busy && (e = readdir(dir));)
        busy = is_busy_keeper((int)r->pid, e->d_name);
    closedir(dir);
    return busy;
}

void rig_await_prefault(const struct rig *r)
{
    for (unsigned still = 0; still < 3;) {
        rig_sleep_ms(20);
        still = touches_memory(r) ? 0 : still + 1;
    }
}

void rig_stop(struct rig *r)
{
    int status;
    ck_assert_int_eq(kill(r->pid, SIGTERM), 0);
    ck_assert_int_eq(waitpid(r->pid, &status, 0), r->pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        rig_show_log(r);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "daemon ended with status %x",
                  (unsigned)status);
}

void rig_kill(struct rig *r)
{
    int status;
    ck_assert_int_eq(kill(r->pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(r->pid, &status, 0), r->pid);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

void rig_clean(struct rig *r)
{
    (void)!nftw(r->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

pid_t rig_spawn(const struct rig *r, const char *role, uint64_t arg)
{
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)arg);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) { /* and no word to Check: its descriptor may be another's by now */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setenv("KVC_RIG_SOCKET", r->socket, 1) == 0)
            execl("/proc/self/exe", "worker", role, number, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_ge(pid, 0);
    return pid;
}

bool rig_is_child(int argc, char **argv, struct rig *ret_rig, const char **ret_role,
                  uint64_t *ret_arg)
{
    const char *socket = getenv("KVC_RIG_SOCKET");
    if (argc != 3 || !socket)
        return false;
    snprintf(ret_rig->socket, sizeof ret_rig->socket, "%s", socket);
    *ret_role = argv[1];
    *ret_arg = strtoull(argv[2], NULL, 10);
    return true;
}

static struct {
    int (*work)(const char *role, uint64_t arg);
    const char *role;
    uint64_t arg;
    int result;
} child;

START_TEST(as_a_worker)
{
    child.result = child.work(child.role, child.arg);
}
END_TEST

/* Check has room for assertions inside of a test only. */
int rig_child_main(int (*work)(const char *role, uint64_t arg), const char *role, uint64_t arg)
{
    child.work = work;
    child.role = role;
    child.arg = arg;
    Suite *s = suite_create(role);
    TCase *t = tcase_create(role);
    tcase_add_test(t, as_a_worker);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_SILENT);
    if (srunner_ntests_failed(r))
        srunner_print(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 125 : child.result;
}

int rig_main(int argc, char **argv, struct rig *ret_rig,
             int (*work)(const char *role, uint64_t arg))
{
    const char *role;
    uint64_t arg;
    if (rig_is_child(argc, argv, ret_rig, &role, &arg))
        return rig_child_main(work, role, arg);
    return cases_run();
}

struct kvc *rig_open(const struct rig *r, uint64_t staging_bytes)
{
    struct kvc_options o = {.socket = r->socket,
                            .name = "test",
                            .staging_bytes = staging_bytes,
                            .timeout_ms = 10000,
                            .must_connect = true};
    struct kvc *k;
    int err = kvc_open(&o, &k);
    for (int i = 0; i < 5 && err == KVC_E_DOWN; i++) /* much may be tested at once */
        err = kvc_open(&o, &k);
    ck_assert_msg(err == 0, "kvc_open: %s", kvc_error_name(err));
    return k;
}

struct kvc_ns_spec rig_spec(const char *model, uint32_t block_tokens, uint32_t block_bytes)
{
    return (struct kvc_ns_spec){.model = model,
                                .revision = "1",
                                .dtype = "bf16",
                                .layout = "NHD",
                                .position = "rope",
                                .attention = "causal",
                                .layers = 2,
                                .kv_heads = 2,
                                .head_size = 64,
                                .shards = 1,
                                .groups = 1,
                                .group[0] = {.block_tokens = block_tokens,
                                             .block_bytes = block_bytes,
                                             .rule = KVC_RULE_FULL}};
}

struct kvc_ns *rig_ns(struct kvc *k, const char *model, uint32_t block_tokens, uint32_t block_bytes)
{
    struct kvc_ns_spec spec = rig_spec(model, block_tokens, block_bytes);
    struct kvc_ns *ns;
    int err = kvc_ns_open(k, &spec, &ns);
    ck_assert_msg(err == 0, "kvc_ns_open: %s: %s", kvc_error_name(err), kvc_last_error(k));
    return ns;
}

void rig_keys(const struct kvc_ns *ns, uint32_t chain, uint32_t block_tokens, uint32_t n,
              uint8_t *keys)
{
    uint32_t *tokens = calloc((size_t)n * block_tokens, sizeof *tokens);
    ck_assert_ptr_nonnull(tokens);
    for (uint32_t i = 0; i < n * block_tokens; i++)
        tokens[i] = chain * 1000003u + i;
    int made = kvc_hash_chain(kvc_ns_seed(ns), tokens, (size_t)n * block_tokens, block_tokens, NULL,
                              0, keys);
    ck_assert_int_eq(made, (int)n);
    free(tokens);
}

/* Each byte of each block in most tests goes through these. Their memory is the daemon's too, which
 * is another process: ThreadSanitizer has nothing to compare with, and takes most of a test for it.
 */
#define UNWATCHED __attribute__((no_sanitize_thread))

UNWATCHED static uint64_t word_of(const uint8_t *key, uint32_t i)
{
    uint64_t a, b;
    memcpy(&a, key, 8);
    memcpy(&b, key + 8, 8);
    return (a ^ (b + i)) * 0x9e3779b97f4a7c15ull + i;
}

/* Whole words by themselves: a copy of a size that is known is no call, which a sanitizer would
 * watch. */
UNWATCHED void rig_fill(const uint8_t *key, void *p, uint32_t bytes)
{
    uint8_t *to = p;
    const uint32_t whole = bytes / 8 * 8;
    for (uint32_t i = 0; i < whole; i += 8) {
        const uint64_t w = word_of(key, i);
        memcpy(to + i, &w, 8);
    }
    const uint64_t last = word_of(key, whole);
    memcpy(to + whole, &last, bytes - whole);
}

UNWATCHED bool rig_check(const uint8_t *key, const void *p, uint32_t bytes)
{
    const uint8_t *at = p;
    const uint32_t whole = bytes / 8 * 8;
    for (uint32_t i = 0; i < whole; i += 8) {
        uint64_t w;
        memcpy(&w, at + i, 8);
        if (w != word_of(key, i))
            return false;
    }
    const uint64_t last = word_of(key, whole);
    return memcmp(at + whole, &last, bytes - whole) == 0;
}

/* After a restart of the daemon there is none until the session has connected anew. */
static uint8_t *rig_staging(struct kvc *k, uint64_t *ret_bytes)
{
    uint8_t *staging = kvc_staging(k, ret_bytes);
    for (const uint64_t end = rig_now_ms() + 60000; !staging && rig_now_ms() < end;) {
        rig_sleep_ms(5);
        staging = kvc_staging(k, ret_bytes);
    }
    ck_assert_ptr_nonnull(staging);
    return staging;
}

uint32_t rig_store(struct kvc *k, struct kvc_ns *ns, const uint8_t *keys, uint32_t first,
                   uint32_t n, uint32_t block_tokens, uint32_t block_bytes, uint8_t *statuses)
{
    uint64_t staging_bytes, *offsets = calloc(n, sizeof *offsets);
    uint8_t *staging = rig_staging(k, &staging_bytes);
    uint64_t stride = (block_bytes + 63ull) / 64 * 64;
    ck_assert_uint_le((n - first) * stride, staging_bytes);
    for (uint32_t i = first; i < n; i++) {
        offsets[i - first] = (i - first) * stride;
        rig_fill(keys + (size_t)i * KVC_KEY_BYTES, staging + offsets[i - first], block_bytes);
    }
    struct kvc_blocks b = {.parent = first ? keys + (size_t)(first - 1) * KVC_KEY_BYTES : NULL,
                           .keys = keys + (size_t)first * KVC_KEY_BYTES,
                           .n = n - first,
                           .first_token = first * block_tokens,
                           .flags = KVC_F_ADMIT};
    int err = kvc_store(ns, &b, offsets, NULL, 0, statuses);
    ck_assert_msg(err == 0, "kvc_store: %s: %s", kvc_error_name(err), kvc_last_error(k));
    free(offsets);
    uint32_t ok = 0;
    for (uint32_t i = 0; i < n - first; i++)
        ok += statuses[i] == KVC_ST_OK;
    return ok;
}

struct kvc_seq rig_seq(const uint8_t *keys, uint32_t n, uint32_t block_tokens)
{
    struct kvc_seq seq = {.tokens = n * block_tokens};
    seq.group[0].keys = keys;
    seq.group[0].n = n;
    return seq;
}

uint32_t rig_load(struct kvc *k, struct kvc_ns *ns, const uint8_t *keys, uint32_t n,
                  uint32_t block_tokens, uint32_t block_bytes)
{
    struct kvc_seq seq = rig_seq(keys, n, block_tokens);
    struct kvc_hold *hold;
    int err = kvc_acquire(ns, &seq, NULL, &hold);
    ck_assert_msg(err == 0, "kvc_acquire: %s: %s", kvc_error_name(err), kvc_last_error(k));
    uint32_t hit = hold->group[0].n;
    for (uint32_t i = 0; i < hit; i++) {
        const struct kvc_block *b = &hold->group[0].block[i];
        ck_assert_uint_eq(b->bytes, block_bytes);
        ck_assert_msg(rig_check(keys + (size_t)i * KVC_KEY_BYTES, b->data, b->bytes),
                      "block %u has other bytes than were stored", i);
    }
    ck_assert_int_eq(kvc_hold_check(hold), 0);
    kvc_release(k, &hold);
    return hit;
}

struct wanted {
    const char *name;
    uint64_t value;
    bool found;
};

static int on_stat(void *ctx, const struct kvc_stat *s)
{
    struct wanted *w = ctx;
    if (strcmp(s->name, w->name) != 0)
        return 0;
    w->value = s->value;
    w->found = true;
    return 0;
}

uint64_t rig_stat(struct kvc *k, const char *name)
{
    struct wanted w = {.name = name};
    int err = kvc_stats(k, on_stat, &w);
    ck_assert_msg(err == 0, "kvc_stats: %s: %s", kvc_error_name(err), kvc_last_error(k));
    ck_assert_msg(w.found, "no statistic '%s'", name);
    return w.value;
}

void rig_wait_stat(struct kvc *k, const char *name, uint64_t value)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 2000; i++) {
        v = rig_stat(k, name);
        if (v == value)
            return;
        rig_sleep_ms(5);
    }
    ck_abort_msg("%s is %llu, expected %llu", name, (unsigned long long)v,
                 (unsigned long long)value);
}

void rig_drain(struct kvc *k)
{
    struct kvc_drained d = {.left = 1};
    const uint64_t until = rig_now_ms() + 60000;
    while (d.left > 0 && rig_now_ms() < until) {
        ck_assert_int_eq(kvc_drain(k, 8u << 20, &d), 0);
        rig_sleep_ms(10);
    }
    ck_assert_uint_eq(d.left, 0);
}
