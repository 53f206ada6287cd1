/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C client beside an engine, for measure_vllm.py: it loads the blocks that the engine has
 * loaded, from the same daemon and namespace, into pages of the same sizes and numbers in memory of
 * its own.
 *
 * stdin: a line of JSON, {"socket": , "ns": [model, revision, dtype, quant, layout, position,
 * position_params, attention, lora, extra, layers, kv_heads, head_size, shards, block_tokens,
 * block_bytes], "pages": how many there are, "regions": [[stride, bytes], ...], "keys": in
 * hexadecimal}. Then each line is a load, the numbers of its blocks' pages in JSON, and is answered
 * by its nanoseconds: what the connector's worker does (redeems a ticket, copies, checks,
 * releases). All bytes are compared after the first.
 */
#include <jansson.h>
#include <kvcache/gpu.h>
#include <kvcache/kvcache.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { REGIONS_MAX = 1024, BLOCKS_MAX = 4096 };

struct bench {
    struct kvc *kvc;
    struct kvc_ns *ns;
    struct kvc_gpu *host;
    struct kvc_ns_spec ns_spec;
    struct kvc_pool_spec spec;
    struct kvc_pool_region region[REGIONS_MAX];
    uint32_t blocks, page[BLOCKS_MAX];
    uint8_t keys[BLOCKS_MAX * KVC_KEY_BYTES];
};

static int c_loads_fail(const struct bench *b, const char *what, int rc)
{
    fprintf(stderr, "c_loads: %s: %s: %s\n", what, kvc_error_name(rc), kvc_last_error(b->kvc));
    return 1;
}

static int bad(const char *what)
{
    fprintf(stderr, "c_loads: stdin: %s\n", what);
    return 1;
}

/* ---- what is loaded ---- */

static int read_regions(struct bench *b, const json_t *regions)
{
    size_t i;
    json_t *one;
    if (json_array_size(regions) == 0 || json_array_size(regions) > REGIONS_MAX)
        return bad("1 to 1,024 regions were expected");
    json_array_foreach(regions, i, one)
    {
        json_int_t stride, bytes;
        if (json_unpack(one, "[I,I!]", &stride, &bytes) < 0 || bytes <= 0 || stride < bytes)
            return bad("a region is [stride, bytes]");
        const size_t size = b->spec.pages_max * (size_t)stride;
        void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED)
            return bad("no memory for as many pages");
        memset(at, 1, size); /* in use, as the engine's are */
        b->region[i] = (struct kvc_pool_region){.base = (uintptr_t)at,
                                                .stride_bytes = (uint64_t)stride,
                                                .page_bytes = (uint64_t)bytes,
                                                .layer = (uint32_t)i};
    }
    b->spec.groups = 1;
    b->spec.group[0].pages_per_block = 1;
    b->spec.group[0].regions = (uint32_t)json_array_size(regions);
    b->spec.group[0].region = b->region;
    return 0;
}

static int nibble(char c)
{
    const char *const digits = "0123456789abcdef", *at = c == '\0' ? NULL : strchr(digits, c);
    return at == NULL ? -1 : (int)(at - digits);
}

static int read_keys(struct bench *b, const char *keys)
{
    const size_t bytes = strlen(keys) / 2;
    b->blocks = (uint32_t)(bytes / KVC_KEY_BYTES);
    if (b->blocks == 0 || b->blocks > BLOCKS_MAX || bytes % KVC_KEY_BYTES != 0)
        return bad("1 to 4,096 keys of 64 digits were expected");
    for (size_t i = 0; i < bytes; i++) {
        const int high = nibble(keys[2 * i]), low = nibble(keys[2 * i + 1]);
        if (high < 0 || low < 0)
            return bad("keys in hexadecimal were expected");
        b->keys[i] = (uint8_t)(high * 16 + low);
    }
    return 0;
}

static int c_loads_read_pages(struct bench *b, const char *line)
{
    json_error_t error;
    json_t *numbers = json_loads(line, 0, &error);
    const bool is_right = json_array_size(numbers) == b->blocks;
    for (uint32_t i = 0; is_right && i < b->blocks; i++)
        b->page[i] = (uint32_t)json_integer_value(json_array_get(numbers, i));
    json_decref(numbers);
    return is_right ? 0 : bad("as many numbers of pages as blocks were expected");
}

static int c_loads_open_all(struct bench *b, const char *socket)
{
    const struct kvc_options o = {
        .socket = socket, .name = "c_loads", .must_connect = true, .timeout_ms = 60000};
    int rc = kvc_open(&o, &b->kvc);
    if (rc == 0)
        rc = kvc_ns_open(b->kvc, &b->ns_spec, &b->ns);
    if (rc == 0)
        rc = kvc_gpu_open(b->kvc, "host", &b->host);
    return rc < 0 ? c_loads_fail(b, "open", rc) : 0;
}

static int read_all(struct bench *b, json_t *line)
{
    const char *socket, *keys;
    json_t *regions;
    json_error_t error;
    struct kvc_ns_spec *s = &b->ns_spec;
    s->groups = 1;
    if (json_unpack_ex(line, &error, JSON_STRICT,
                       "{s:s, s:[s,s,s,s,s,s,s,s,s,s,i,i,i,i,i,i], s:i, s:o, s:s}", "socket",
                       &socket, "ns", &s->model, &s->revision, &s->dtype, &s->quant, &s->layout,
                       &s->position, &s->position_params, &s->attention, &s->lora, &s->extra,
                       &s->layers, &s->kv_heads, &s->head_size, &s->shards,
                       &s->group[0].block_tokens, &s->group[0].block_bytes, "pages",
                       &b->spec.pages_max, "regions", &regions, "keys", &keys) < 0)
        return bad(error.text);
    int rc = read_regions(b, regions);
    if (rc == 0)
        rc = read_keys(b, keys);
    return rc == 0 ? c_loads_open_all(b, socket) : rc;
}

/* ---- loads ---- */

static uint64_t c_loads_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Page by page, in the order of a block's bytes. */
static bool pages_match(const struct bench *b, const struct kvc_hold *hold)
{
    for (uint32_t i = 0; i < b->blocks; i++) {
        const uint8_t *from = hold->group[0].block[i].data;
        for (uint32_t r = 0; r < b->spec.group[0].regions; r++) {
            const struct kvc_pool_region *g = &b->region[r];
            const void *at = (const void *)(uintptr_t)(g->base + b->page[i] * g->stride_bytes);
            if (memcmp(at, from, g->page_bytes) != 0)
                return false;
            from += g->page_bytes;
        }
    }
    return true;
}

/* What the connector's worker does with a ticket. */
static int load_ticket(struct bench *b, const uint8_t *ticket)
{
    const uint32_t *pages[KVC_GROUPS_MAX] = {b->page};
    struct kvc_hold *hold = NULL;
    int rc = kvc_redeem(b->ns, ticket, &hold);
    if (rc == 0)
        rc = kvc_gpu_load(b->host, hold, &b->spec, pages, NULL);
    if (rc == 0)
        rc = kvc_hold_check(hold);
    kvc_release(b->kvc, &hold);
    return rc;
}

/* The hold is the scheduler's part. */
static int c_loads_load(struct bench *b, const char *line, bool is_checked)
{
    if (c_loads_read_pages(b, line) != 0)
        return 1;
    const struct kvc_seq seq = {.tokens = b->blocks * b->ns_spec.group[0].block_tokens,
                                .group = {{.keys = b->keys, .n = b->blocks}}};
    struct kvc_hold *hold = NULL;
    int rc = kvc_acquire(b->ns, &seq, NULL, &hold);
    if (rc < 0)
        return c_loads_fail(b, "acquire", rc);
    if (hold->group[0].n != b->blocks) {
        fprintf(stderr, "c_loads: %u of %u blocks are cached\n", hold->group[0].n, b->blocks);
        kvc_release(b->kvc, &hold);
        return 1;
    }
    const uint64_t began = c_loads_now_ns();
    rc = load_ticket(b, hold->ticket);
    const uint64_t ns = c_loads_now_ns() - began;
    const bool is_right = rc < 0 || !is_checked || pages_match(b, hold);
    kvc_release(b->kvc, &hold);
    if (rc < 0)
        return c_loads_fail(b, "load", rc);
    if (!is_right) {
        fprintf(stderr, "c_loads: wrong bytes were loaded\n");
        return 1;
    }
    printf("%llu\n", (unsigned long long)ns);
    return fflush(stdout) == 0 ? 0 : 1;
}

int main(void)
{
    static struct bench b;
    char *line = NULL;
    size_t room = 0;
    json_error_t error;
    json_t *what = getline(&line, &room, stdin) > 0 ? json_loads(line, 0, &error) : NULL;
    int rc = what == NULL ? bad("a line of JSON was expected") : read_all(&b, what);
    for (bool is_first = true; rc == 0 && getline(&line, &room, stdin) > 0; is_first = false)
        rc = c_loads_load(&b, line, is_first);
    kvc_close(&b.kvc); /* and what belongs to it */
    json_decref(what);
    free(line);
    return rc;
}
