/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dlpack.py calls: a worker that has stored blocks and holds them, so that a Python program
 * needs none of the library's structs. Block i is full of bytes 17 * i + 1. One worker a process.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <kvcache/admin.h>
#include <kvcache/gpu.h>

enum { BLOCKS = 8, BLOCK_BYTES = 8192, BLOCK_TOKENS = 16, UP_TIMEOUT_MS = 30000 };

struct kvc *dlpack_open(const char *socket);
struct kvc_hold *dlpack_hold(bool on_device);
const void *dlpack_at(const struct kvc_hold *hold, uint32_t i);
void dlpack_close(void);

static struct kvc *k;
static struct kvc_ns *ns;
static struct kvc_gpu *gpu;
static uint8_t keys[BLOCKS * KVC_KEY_BYTES];

static bool said(int rc, const char *call)
{
    if (rc < 0)
        fprintf(stderr, "%s: %s: %s\n", call, kvc_error_name(rc), kvc_last_error(k));
    return rc < 0;
}

static int is_up(void *ctx, const void *row)
{
    const struct kvc_device *device = row;
    *(bool *)ctx |= device->up;
    return 0;
}

static bool wait_for_device(void)
{
    bool up = false;
    for (int i = 0; i < UP_TIMEOUT_MS / 10 && !up; i++) {
        const struct timespec pause = {.tv_nsec = 10000000};
        if (said(kvc_list(k, KVC_TABLE_DEVICES, NULL, is_up, &up), "kvc_list"))
            return false;
        nanosleep(&pause, NULL);
    }
    return up;
}

static bool store(void)
{
    uint64_t offsets[BLOCKS];
    uint8_t statuses[BLOCKS];
    uint8_t *staging = kvc_staging(k, NULL);
    if (!staging)
        return false;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        offsets[i] = (uint64_t)i * BLOCK_BYTES;
        keys[i * KVC_KEY_BYTES] = (uint8_t)(i + 1);
        memset(staging + offsets[i], (int)(17 * i + 1), BLOCK_BYTES);
    }
    const struct kvc_blocks blocks = {.keys = keys, .n = BLOCKS};
    if (said(kvc_store(ns, &blocks, offsets, NULL, 0, statuses), "kvc_store"))
        return false;
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (statuses[i] != KVC_ST_OK)
            return false;
    return true;
}

/* The session; NULL after saying why. */
struct kvc *dlpack_open(const char *socket)
{
    const struct kvc_options options = {
        .socket = socket, .name = "dlpack", .staging_bytes = 1u << 20, .must_connect = true};
    const struct kvc_ns_spec spec = {
        .model = "dlpack",
        .dtype = "bf16",
        .layout = "opaque",
        .position = "rope",
        .attention = "causal",
        .layers = 1,
        .kv_heads = 1,
        .head_size = 64,
        .groups = 1,
        .group = {
            {.block_tokens = BLOCK_TOKENS, .block_bytes = BLOCK_BYTES, .rule = KVC_RULE_FULL}}};
    if (said(kvc_open(&options, &k), "kvc_open") ||
        said(kvc_ns_open(k, &spec, &ns), "kvc_ns_open") || !wait_for_device() ||
        said(kvc_gpu_open(k, "emu:0", &gpu), "kvc_gpu_open") || !store())
        return NULL;
    return k;
}

struct kvc_hold *dlpack_hold(bool on_device)
{
    const struct kvc_seq seq = {.tokens = BLOCKS * BLOCK_TOKENS,
                                .group = {{.keys = keys, .n = BLOCKS}}};
    struct kvc_hold *hold = NULL;
    int rc =
        on_device ? kvc_acquire_on(ns, &seq, gpu, NULL, &hold) : kvc_acquire(ns, &seq, NULL, &hold);
    if (said(rc, "acquire"))
        return NULL;
    return hold;
}

/* Where a tensor of it must be: on the device, where the hold was asked for there. */
const void *dlpack_at(const struct kvc_hold *hold, uint32_t i)
{
    const void *hbm = kvc_hold_device(hold, 0, i);
    return hbm ? hbm : hold->group[0].block[i].data;
}

void dlpack_close(void)
{
    kvc_gpu_close(&gpu);
    kvc_close(&k);
}
