/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A document whose KV is computed once: stored, named and pinned, then read by others. Files of
 * documents are kvcachectl's; they go to other daemons too, because token ids are stored with it.
 *     cc document.c $(pkg-config --cflags --libs kvcache) -o document
 *     ./document store manual
 *     kvcachectl doc export manual manual.safetensors
 *     kvcachectl doc forget manual --evict
 *     kvcachectl doc import manual.safetensors --pin
 *     ./document read manual
 */
#include <kvcache/kvcache.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 1000, BLOCK_TOKENS = 16, TOKEN_BYTES = 256 };

static uint32_t tokens[TOKENS];

/* Of a token the example's KV is its id. */
static unsigned char *kv_of(const struct kvc_run *run, uint32_t t)
{
    return (unsigned char *)run->data + t / BLOCK_TOKENS * run->stride_bytes +
           (size_t)(t % BLOCK_TOKENS) * TOKEN_BYTES;
}

static int fill(void *ctx, const struct kvc_run *run)
{
    (void)ctx;
    for (uint32_t t = 0; t < run->tokens; t++)
        memset(kv_of(run, t), (int)tokens[run->first_token + t], TOKEN_BYTES);
    return 0;
}

static int compare(void *ctx, const struct kvc_run *run)
{
    (void)ctx;
    for (uint32_t t = 0; t < run->tokens; t++)
        if (*kv_of(run, t) != tokens[run->first_token + t])
            return 1;
    return 0;
}

static int store(struct kvc_ns *ns, const char *name)
{
    struct kvc_put put = {.tokens = tokens, .ntokens = TOKENS, .fill = fill, .flags = KVC_F_ADMIT};
    struct kvc_name_options options = {.flags = KVC_F_PINNED, .tokens = tokens};
    struct kvc_named named;
    struct kvc_seq *seq;
    int rc = kvc_put(ns, &put, NULL);
    rc = rc < 0 ? rc : kvc_seq_new(ns, tokens, TOKENS, NULL, 0, &seq);
    if (rc < 0)
        return rc;
    rc = kvc_name_put(ns, KVC_NAME_DOCUMENT, name, seq, &options, &named);
    if (rc == 0)
        printf("%s: %u tokens stored and pinned\n", name, named.tokens);
    kvc_seq_free(&seq);
    return rc;
}

static int load(struct kvc_ns *ns, const char *name)
{
    struct kvc_get get = {.tokens = tokens, .ntokens = TOKENS, .take = compare};
    struct kvc_got got;
    int rc = kvc_get(ns, &get, &got);
    if (rc == 0)
        printf("%s: %u of %u tokens loaded\n", name, got.tokens, TOKENS);
    return rc;
}

int main(int argc, char **argv)
{
    struct kvc_options options = {
        .name = "document", .staging_bytes = 1 << 20, .must_connect = true};
    struct kvc_ns_spec spec = {
        .model = "example",
        .dtype = "u8",
        .position = "rope",
        .attention = "causal",
        .layers = 1,
        .kv_heads = 1,
        .head_size = TOKEN_BYTES,
        .with_tokens = true,
        .groups = 1,
        .group = {{.block_tokens = BLOCK_TOKENS, .block_bytes = BLOCK_TOKENS * TOKEN_BYTES}}};
    struct kvc *kvc = NULL;
    struct kvc_ns *ns;
    if (argc != 3)
        return 2;
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = (i * i + 1) % 239;
    int rc = kvc_open(&options, &kvc);
    rc = rc < 0 ? rc : kvc_ns_open(kvc, &spec, &ns);
    rc = rc < 0 ? rc : (strcmp(argv[1], "store") == 0 ? store : load)(ns, argv[2]);
    if (rc != 0)
        fprintf(stderr, "%s: %s\n", kvc_error_name(rc), kvc_last_error(kvc));
    kvc_close(&kvc);
    return rc != 0;
}
