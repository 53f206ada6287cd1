/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A conversation that goes on in another process, and after the daemon was restarted where it has
 * storage: each turn loads what was said before (in whole blocks), stores the rest, and moves the
 * name.
 *
 *     cc conversation.c $(pkg-config --cflags --libs kvcache) -o conversation
 *     ./conversation NAME 1; ./conversation NAME 2; ./conversation NAME 3
 */
#include <kvcache/kvcache.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURN_TOKENS = 40, TURNS_MAX = 100, BLOCK_TOKENS = 16, TOKEN_BYTES = 256 };

static unsigned computed;

/* Of a token the example's KV is its id, so the memory of an engine is left out. */
static int fill(void *ctx, const struct kvc_run *run)
{
    const uint32_t *tokens = ctx;
    for (uint32_t t = 0; t < run->tokens; t++, computed++)
        memset((char *)run->data + t / BLOCK_TOKENS * run->stride_bytes +
                   (size_t)(t % BLOCK_TOKENS) * TOKEN_BYTES,
               (int)tokens[run->first_token + t], TOKEN_BYTES);
    return 0;
}

static int compare(void *ctx, const struct kvc_run *run)
{
    const uint32_t *tokens = ctx;
    for (uint32_t t = 0; t < run->tokens; t++)
        if (((unsigned char *)run->data)[t / BLOCK_TOKENS * run->stride_bytes +
                                         (size_t)(t % BLOCK_TOKENS) * TOKEN_BYTES] !=
            tokens[run->first_token + t])
            return 1;
    return 0;
}

/* The name stands for all that was said: it protects its blocks, and brings them back from disk. */
static int turn(struct kvc *kvc, struct kvc_ns *ns, const char *name, uint32_t *said, uint32_t n)
{
    uint64_t bytes;
    struct kvc_got got;
    struct kvc_named named;
    struct kvc_seq *seq;
    int rc = kvc_name_load(kvc, KVC_NAME_CONVERSATION, name, NULL, UINT64_MAX, true, 0, &bytes);
    if (rc < 0 && rc != KVC_E_NO_NAME) /* NO_NAME: the conversation begins */
        return rc;
    rc = kvc_seq_new(ns, said, n, NULL, 0, &seq);
    if (rc < 0)
        return rc;
    struct kvc_get get = {.seq = seq, .take = compare, .ctx = said};
    rc = kvc_get(ns, &get, &got);
    struct kvc_put put = {.seq = seq, .fill = fill, .ctx = said, .flags = KVC_F_ADMIT};
    put.from_tokens = rc == 0 ? got.tokens : 0;
    rc = rc == 0 ? kvc_put(ns, &put, NULL) : rc;
    if (rc == 0)
        rc = kvc_name_put(ns, KVC_NAME_CONVERSATION, name, seq, NULL, &named);
    if (rc == 0)
        printf("%s: %u tokens loaded, %u computed, the name stands for %u\n", name, got.tokens,
               computed, named.tokens);
    kvc_seq_free(&seq);
    return rc;
}

int main(int argc, char **argv)
{
    const long turns = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (turns < 1 || turns > TURNS_MAX)
        return 2;
    uint32_t said[TURN_TOKENS * TURNS_MAX], n = TURN_TOKENS * (uint32_t)turns;
    for (uint32_t i = 0; i < n; i++)
        said[i] = (i * i + 3) % 241;
    struct kvc_options options = {
        .name = "conversation", .staging_bytes = 1 << 20, .must_connect = true};
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
    struct kvc *kvc = NULL;
    struct kvc_ns *ns;
    int rc = kvc_open(&options, &kvc);
    rc = rc < 0 ? rc : kvc_ns_open(kvc, &spec, &ns);
    rc = rc < 0 ? rc : turn(kvc, ns, argv[1], said, n);
    if (rc != 0)
        fprintf(stderr, "%s: %s\n", kvc_error_name(rc), kvc_last_error(kvc));
    kvc_close(&kvc);
    return rc != 0;
}
