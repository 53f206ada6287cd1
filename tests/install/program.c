/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of somebody else's: written from <kvcache/kvcache.h> and <kvcache/gpu.h>, built outside
 * the tree against an installed library. Stores a few blocks, finds and reads them again, does the
 * same from a loop with poll(2), and keeps to the rule about fork. The daemon is the one of
 * $KVCACHE_SOCKET.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvcache/async.h>
#include <kvcache/gpu.h>
#include <kvcache/kvcache.h>

#define BLOCKS       8u
#define BLOCK_TOKENS 16u
#define BLOCK_BYTES  4096u

static struct kvc *kvc;

#define NEED(cond)                                                                               \
    do {                                                                                         \
        if (!(cond)) {                                                                           \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #cond, kvc_last_error(kvc)); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

static uint8_t keys[BLOCKS * KVC_KEY_BYTES];

static struct kvc_ns *open_namespace(void)
{
    struct kvc_ns_spec spec = {
        .model = "out-of-tree",
        .dtype = "bf16",
        .position = "rope",
        .attention = "causal",
        .layers = 2,
        .kv_heads = 2,
        .head_size = 64,
        .groups = 1,
        .group = {
            {.block_tokens = BLOCK_TOKENS, .block_bytes = BLOCK_BYTES, .rule = KVC_RULE_FULL}}};
    struct kvc_ns *ns;
    NEED(kvc_ns_open(kvc, &spec, &ns) == 0);
    return ns;
}

static void make_keys(const struct kvc_ns *ns, uint32_t seed)
{
    uint32_t tokens[BLOCKS * BLOCK_TOKENS];
    for (uint32_t i = 0; i < BLOCKS * BLOCK_TOKENS; i++)
        tokens[i] = seed + i;
    NEED(kvc_hash_chain(kvc_ns_seed(ns), tokens, BLOCKS * BLOCK_TOKENS, BLOCK_TOKENS, NULL, 0,
                        keys) == (int)BLOCKS);
}

/* Block i is full of byte seed + i. */
static void fill(uint8_t *staging, uint64_t offsets[BLOCKS], uint8_t seed)
{
    for (uint32_t i = 0; i < BLOCKS; i++) {
        offsets[i] = (uint64_t)i * BLOCK_BYTES;
        memset(staging + offsets[i], seed + (int)i, BLOCK_BYTES);
    }
}

static void check(const struct kvc_hold *hold, uint8_t seed)
{
    NEED(hold->group[0].n == BLOCKS);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        const struct kvc_block *b = &hold->group[0].block[i];
        const uint8_t *data = b->data;
        NEED(b->bytes == BLOCK_BYTES);
        for (uint32_t at = 0; at < b->bytes; at++)
            NEED(data[at] == (uint8_t)(seed + i));
    }
    NEED(kvc_hold_check(hold) == 0);
}

static struct kvc_seq sequence(void)
{
    struct kvc_seq seq = {.tokens = BLOCKS * BLOCK_TOKENS};
    seq.group[0].keys = keys;
    seq.group[0].n = BLOCKS;
    return seq;
}

static void calls_that_wait(struct kvc_ns *ns)
{
    uint64_t offsets[BLOCKS], bytes;
    uint8_t statuses[BLOCKS];
    uint8_t *staging = kvc_staging(kvc, &bytes);
    NEED(staging != NULL && bytes >= BLOCKS * BLOCK_BYTES);
    make_keys(ns, 1000);
    fill(staging, offsets, 10);
    struct kvc_blocks blocks = {.keys = keys, .n = BLOCKS};
    NEED(kvc_store(ns, &blocks, offsets, NULL, 0, statuses) == 0);
    for (uint32_t i = 0; i < BLOCKS; i++)
        NEED(statuses[i] == KVC_ST_OK || statuses[i] == KVC_ST_EXISTS);

    struct kvc_seq seq = sequence();
    struct kvc_prefix prefix;
    struct kvc_hold *hold;
    NEED(kvc_lookup(ns, &seq, 0, &prefix) == 0 && prefix.tokens == BLOCKS * BLOCK_TOKENS);
    NEED(kvc_acquire(ns, &seq, NULL, &hold) == 0);
    check(hold, 10);
    kvc_release(kvc, &hold);
}

/* Stores, then has several acquires in flight; handles what is done as it comes. */
static void a_loop(struct kvc_ns *ns)
{
    static int store_of_mine, acquire_of_mine;
    uint64_t offsets[BLOCKS];
    struct kvc_op *op;
    int stores = 0, acquires = 0;
    make_keys(ns, 2000);
    fill(kvc_staging(kvc, NULL), offsets, 90);
    struct kvc_blocks blocks = {.keys = keys, .n = BLOCKS};
    struct kvc_seq seq = sequence();
    NEED(kvc_store_begin(ns, &blocks, offsets, NULL, 0, &op) == 0);
    kvc_op_set_user(op, &store_of_mine);

    struct pollfd p = {.fd = kvc_fd(kvc), .events = POLLIN};
    NEED(p.fd >= 0);
    while (acquires < 4) {
        NEED(poll(&p, 1, -1) == 1 || errno == EINTR);
        NEED(kvc_progress(kvc) >= 0);
        while (kvc_next(kvc, &op) > 0) {
            struct kvc_result r;
            NEED(kvc_finish(&op, &r) == 0);
            if (r.user == &store_of_mine) {
                NEED(r.n == BLOCKS && ++stores == 1);
                for (int i = 0; i < 4; i++) {
                    NEED(kvc_acquire_begin(ns, &seq, NULL, &op) == 0);
                    kvc_op_set_user(op, &acquire_of_mine);
                }
            } else {
                NEED(r.user == &acquire_of_mine && r.kind == KVC_OP_ACQUIRE);
                check(r.hold, 90);
                kvc_release(kvc, &r.hold);
                acquires++;
            }
        }
    }
}

static void the_rule_about_fork(void)
{
    uint64_t ms;
    int status;
    pid_t pid = fork();
    NEED(pid >= 0);
    if (pid == 0) {
        int bad = kvc_ping(kvc, &ms) != -EPERM || kvc_fd(kvc) != -EPERM;
        kvc_close(&kvc);
        _exit(bad);
    }
    NEED(waitpid(pid, &status, 0) == pid && status == 0);
    NEED(kvc_ping(kvc, &ms) == 0);
}

/* Memory on an emulated device; a GPU that is there, or is said not to be. */
static void a_device(void)
{
    struct kvc_gpu *gpu = NULL, *none = NULL;
    struct kvc_mem *mem = NULL;
    void *at = NULL;
    NEED(kvc_gpu_open(kvc, "emu:0", &gpu) == 0);
    NEED(kvc_mem_alloc(gpu, 1u << 20, &at, &mem) == 0);
    memset(at, 1, 1u << 20);
    int rc = kvc_gpu_open(kvc, "cuda:0", &none);
    NEED(rc == 0 || (rc == -ENODEV && kvc_last_error(kvc)[0] != '\0'));
    kvc_gpu_close(&none);
    kvc_mem_free(&mem);
    kvc_gpu_close(&gpu);
}

int main(void)
{
    struct kvc_options options = {
        .name = "out-of-tree", .staging_bytes = 1u << 20, .must_connect = true};
    int rc = kvc_open(&options, &kvc);
    if (rc < 0) {
        fprintf(stderr, "kvc_open: %s: %s\n", kvc_error_name(rc), kvc_last_error(NULL));
        return 1;
    }
    struct kvc_ns *ns = open_namespace();
    calls_that_wait(ns);
    a_loop(ns);
    a_device();
    the_rule_about_fork();
    kvc_close(&kvc);
    puts("stored, looked up, acquired, read, looped, used a device, forked");
    return 0;
}
