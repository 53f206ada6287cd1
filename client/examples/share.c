/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes share a prefix: the first computes its KV, the second finds it.
 *
 *     cc share.c $(pkg-config --cflags --libs kvcache) -o share && ./share
 */
#include <kvcache/kvcache.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOKENS = 100, BLOCK_TOKENS = 16, TOKEN_BYTES = 256 };

static unsigned char kv[TOKENS][TOKEN_BYTES]; /* the engine's memory: KV of each token */
static unsigned computed;

/* Prefill, and its KV on the way to the cache: only blocks that nobody has stored are asked for. */
static int fill(void *ctx, const struct kvc_run *run)
{
    const uint32_t *tokens = ctx;
    for (uint32_t t = run->first_token; t < run->first_token + run->tokens; t++, computed++)
        memset(kv[t], (int)tokens[t], TOKEN_BYTES);
    for (uint32_t i = 0; i < run->n; i++) {
        const uint32_t first = i * BLOCK_TOKENS;
        const uint32_t n = run->tokens - first < BLOCK_TOKENS ? run->tokens - first : BLOCK_TOKENS;
        memcpy((char *)run->data + i * run->stride_bytes, kv[run->first_token + first],
               (size_t)n * TOKEN_BYTES);
    }
    return 0;
}

/* KV out of the cache: the last block may be partly filled. */
static int take(void *ctx, const struct kvc_run *run)
{
    (void)ctx;
    for (uint32_t i = 0; i < run->n; i++) {
        const uint32_t first = i * BLOCK_TOKENS;
        const uint32_t n = run->tokens - first < BLOCK_TOKENS ? run->tokens - first : BLOCK_TOKENS;
        memcpy(kv[run->first_token + first], (const char *)run->data + i * run->stride_bytes,
               (size_t)n * TOKEN_BYTES);
    }
    return 0;
}

static int worker(const char *name, uint32_t *tokens)
{
    struct kvc_options options = {.name = name, .staging_bytes = 1 << 20};
    struct kvc_ns_spec spec = {
        .model = "example",
        .dtype = "u8",
        .position = "rope",
        .attention = "causal",
        .layers = 1,
        .kv_heads = 1,
        .head_size = TOKEN_BYTES,
        .groups = 1,
        .group = {{.block_tokens = BLOCK_TOKENS, .block_bytes = BLOCK_TOKENS * TOKEN_BYTES}}};
    struct kvc *kvc;
    struct kvc_ns *ns;
    if (kvc_open(&options, &kvc) < 0 || kvc_ns_open(kvc, &spec, &ns) < 0)
        return 1;

    struct kvc_get get = {.tokens = tokens, .ntokens = TOKENS, .take = take};
    struct kvc_put put = {.tokens = tokens, .ntokens = TOKENS, .fill = fill, .ctx = tokens};
    struct kvc_got got = {.tokens = 0};
    int rc = kvc_get(ns, &get, &got); /* what is cached comes into the engine's memory */
    put.from_tokens = got.tokens;     /* the rest is computed, and stored for others */
    if (rc == 0)
        rc = kvc_put(ns, &put, NULL);

    for (uint32_t t = 0; t < TOKENS && rc == 0; t++)
        rc = kv[t][0] == tokens[t] && kv[t][TOKEN_BYTES - 1] == tokens[t] ? 0 : 1;
    printf("%s: %u tokens loaded, %u computed, %s\n", name, got.tokens, computed,
           rc == 0  ? "all right"
           : rc < 0 ? kvc_last_error(kvc)
                    : "WRONG");
    kvc_close(&kvc);
    return rc != 0;
}

int main(void)
{
    uint32_t tokens[TOKENS];
    int status = 1;
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (i * i + 7) % 251;
    if (fork() == 0) /* each process has a session of its own */
        return worker("first", tokens);
    wait(&status);
    return status != 0 || worker("second", tokens);
}
