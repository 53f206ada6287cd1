/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the library share: a fake daemon, a session with it, and sequences. */
#ifndef KVC_TEST_CLIENT_FIXTURE_H
#define KVC_TEST_CLIENT_FIXTURE_H

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kvcache/admin.h>
#include <kvcache/async.h>
#include <kvcache/kvcache.h>

#include "cases.h"
#include "fake.h"

#define STAGING_BYTES 65536u

static struct fake fake;
static struct kvc *kvc;
static struct kvc_ns *ns;
static uint8_t keys[64 * KVC_KEY_BYTES];

static inline struct kvc_ns_spec spec_of(const char *model)
{
    return (struct kvc_ns_spec){
        .model = model,
        .dtype = "bf16",
        .position = "rope",
        .attention = "causal",
        .layers = 32,
        .kv_heads = 8,
        .head_size = 128,
        .groups = 1,
        .group = {{.block_tokens = 16, .block_bytes = FAKE_BLOCK_BYTES, .rule = KVC_RULE_FULL}}};
}

static inline struct kvc_seq seq_of(uint32_t blocks)
{
    return (struct kvc_seq){.tokens = 16 * blocks, .group = {{.keys = keys, .n = blocks}}};
}

static inline struct kvc_blocks blocks_of(uint32_t n)
{
    return (struct kvc_blocks){.keys = keys, .n = n};
}

static inline struct kvc *open_session(uint32_t timeout_ms)
{
    struct kvc_options o = {.socket = fake.path,
                            .name = "test",
                            .staging_bytes = STAGING_BYTES,
                            .shard = 3,
                            .timeout_ms = timeout_ms};
    struct kvc *k;
    ck_assert_int_eq(kvc_open(&o, &k), 0);
    return k;
}

static inline void start(void)
{
    fake_create(&fake);
    for (size_t i = 0; i < sizeof(keys); i++)
        keys[i] = (uint8_t)(i % KVC_KEY_BYTES == 0 ? i / KVC_KEY_BYTES + 1 : i);
}

/* Starts a daemon and opens a session with a long deadline, staging and a namespace. */
static inline void start_open(void)
{
    uint64_t bytes;
    struct kvc_ns_spec spec = spec_of("llama");
    start();
    fake_start(&fake);
    kvc = open_session(10000);
    ck_assert_msg(kvc_is_up(kvc), "%s", kvc_last_error(kvc));
    ck_assert_ptr_nonnull(kvc_staging(kvc, &bytes));
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), 0);
}

static inline void stop(void)
{
    kvc_close(&kvc);
    fake_destroy(&fake);
}

#endif
