/* SPDX-License-Identifier: Apache-2.0 */
/* A million tokens at 16 a block: every call that names a sequence takes all 62,500 keys of it. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cases.h"
#include "rig.h"

#define BT     16u
#define BLOCKS 62500u
#define TOKENS (BT * BLOCKS)
#define BYTES  64u   /* a slot of 4 KiB each */
#define WINDOW 1024u /* tokens */
#define MIB    (1u << 20)

static struct rig rig, other;
static struct kvc *k;
static struct kvc_ns *ns;
static uint8_t *keys;
static uint32_t *tokens;
static struct kvc_seq seq;
static const char *const sets[] = {"host.limit=320MiB", "index.blocks=131072", "host.chunk=32MiB",
                                   "policy.pin_limit=50", NULL};

static void setup(void)
{
    rig_start(&rig, sets);
    k = rig_open(&rig, 8 * MIB);
    ns = rig_ns(k, "m", BT, BYTES);
    keys = malloc((size_t)BLOCKS * KVC_KEY_BYTES);
    tokens = malloc((size_t)TOKENS * sizeof *tokens);
    ck_assert(keys && tokens);
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i;
    ck_assert_int_eq(kvc_hash_chain(kvc_ns_seed(ns), tokens, TOKENS, BT, NULL, 0, keys), BLOCKS);
    seq = rig_seq(keys, BLOCKS, BT);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
    free(keys);
    free(tokens);
}

static void good(int rc, const char *what)
{
    ck_assert_msg(rc >= 0, "%s: %s: %s", what, kvc_error_name(rc), kvc_last_error(k));
}
#define GOOD(call) good(call, #call)

/* ctx: the first token that there is of a group whose rule is not full. */
static int fill(void *ctx, const struct kvc_run *run)
{
    if (run->group > 0 && run->first_token < *(const uint32_t *)ctx)
        return 1;
    for (uint32_t i = 0; i < run->n; i++)
        rig_fill(keys + (size_t)(run->first + i) * KVC_KEY_BYTES,
                 (uint8_t *)run->data + i * run->stride_bytes, run->block_bytes);
    return 0;
}

static void store(struct kvc_ns *to, const struct kvc_seq *chain, uint32_t from)
{
    const struct kvc_put put = {.seq = chain, .fill = fill, .ctx = &from, .flags = KVC_F_ADMIT};
    struct kvc_put_result done;
    GOOD(kvc_put(to, &put, &done));
    ck_assert_uint_eq(done.tokens, TOKENS);
}

static void look(struct kvc_ns *in, const struct kvc_seq *chain, uint32_t expected)
{
    struct kvc_prefix p;
    GOOD(kvc_lookup(in, chain, KVC_F_TOUCH, &p));
    ck_assert_uint_eq(p.tokens, expected);
    ck_assert_uint_eq(p.group[0].blocks, expected / BT);
    ck_assert_uint_eq(p.group[0].reason, expected == TOKENS ? KVC_MISS_NONE : KVC_MISS_EVICTED);
}

/* It holds blocks `first` to `end` of group g, which are as they were stored. */
static void holds(const struct kvc_hold *hold, uint32_t g, uint32_t first, uint32_t end)
{
    ck_assert_uint_eq(hold->group[g].first, first);
    ck_assert_uint_eq(hold->group[g].n, end - first);
    bool same = true;
    for (uint32_t i = first; i < end; i++)
        same &= rig_check(keys + (size_t)i * KVC_KEY_BYTES, hold->group[g].block[i - first].data,
                          BYTES);
    ck_assert(same);
    ck_assert_int_eq(kvc_hold_check(hold), 0);
}

static void acquire(uint32_t from, uint32_t first)
{
    const struct kvc_acquire_options options = {.from_tokens = from};
    struct kvc_hold *hold;
    GOOD(kvc_acquire(ns, &seq, &options, &hold));
    ck_assert_uint_eq(hold->prefix.tokens, TOKENS);
    holds(hold, 0, first, BLOCKS);
    kvc_release(k, &hold);
    rig_wait_stat(k, "core.leases", 0);
}

__attribute__((format(printf, 2, 3))) static void ctl(const struct rig *r, const char *format, ...)
{
    char words[512], line[1024], text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    snprintf(line, sizeof line, "KVCACHE_SOCKET=%s %s/kvcachectl --timeout 60s %s 2>&1", r->socket,
             rig_bin(), words);
    FILE *out = popen(line, "r"); /* NOLINT(cert-env33-c): our own words */
    ck_assert_ptr_nonnull(out);
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    const int status = pclose(out);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "kvcachectl %s: %s", words, text);
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_million_tokens_are_found_held_and_passed_on)
{
    store(ns, &seq, 0);
    look(ns, &seq, TOKENS);
    acquire(0, 0);
    acquire(TOKENS - BT, BLOCKS - 1);

    struct kvc_op *op;
    struct kvc_hold *first, *second;
    GOOD(kvc_acquire_begin(ns, &seq, NULL, &op));
    GOOD(kvc_wait(&op, NULL, &first, NULL));
    GOOD(kvc_redeem(ns, first->ticket, &second));
    kvc_release(k, &first);
    holds(second, 0, 0, BLOCKS);
    kvc_release(k, &second);
    GOOD(kvc_hint(ns, &seq, KVC_HINT_CONTINUE, 0));
    rig_wait_stat(k, "core.leases", 0);
}

CASE(a_million_tokens_are_pinned_and_evicted_from_a_block_on)
{
    uint64_t pin;
    store(ns, &seq, 0);
    GOOD(kvc_pin(ns, &seq, true, 0, &pin));
    struct kvc_evict_filter from = {.key = keys + (size_t)40000 * KVC_KEY_BYTES};
    struct kvc_evicted gone;
    GOOD(kvc_evict(k, &from, &gone));
    ck_assert(gone.blocks == 0 && gone.kept_blocks == BLOCKS - 40000);
    GOOD(kvc_unpin(k, pin));
    GOOD(kvc_evict(k, &from, &gone));
    ck_assert_uint_eq(gone.blocks, BLOCKS - 40000);
    look(ns, &seq, 40000 * BT);
    store(ns, &seq, 0);
    look(ns, &seq, TOKENS);
}

static uint32_t cached_of(const struct rig *r, const char *name)
{
    struct kvc *s = rig_open(r, 0);
    struct kvc_name_info info;
    const int rc = kvc_name_show(s, KVC_NAME_DOCUMENT, name, NULL, &info);
    ck_assert_msg(rc == 0, "kvc_name_show: %s", kvc_error_name(rc));
    ck_assert(info.tokens == TOKENS && info.blocks == BLOCKS && info.has_tokens);
    kvc_close(&s);
    return info.tokens_cached;
}

CASE(a_document_of_a_million_tokens_goes_to_another_daemon)
{
    const struct kvc_name_options options = {.tokens = tokens};
    struct kvc_named named;
    uint64_t bytes;
    store(ns, &seq, 0);
    GOOD(kvc_name_put(ns, KVC_NAME_DOCUMENT, "book", &seq, &options, &named));
    ck_assert(named.tokens == TOKENS && named.bytes == (uint64_t)BLOCKS * BYTES);
    ck_assert_uint_eq(cached_of(&rig, "book"), TOKENS);
    GOOD(kvc_name_load(k, KVC_NAME_DOCUMENT, "book", NULL, UINT64_MAX, true, 0, &bytes));
    ck_assert_uint_eq(bytes, named.bytes);
    ctl(&rig, "doc export book %s/book.safetensors", rig.dir);
    ctl(&rig, "pin add --doc book");

    rig_start(&other, sets);
    ctl(&other, "doc import %s/book.safetensors --pin", rig.dir);
    ck_assert_uint_eq(cached_of(&other, "book"), TOKENS);
    ctl(&other, "doc forget book --evict");
    ctl(&other, "ping");
    rig_stop(&other);
    rig_clean(&other);

    GOOD(kvc_name_forget(k, KVC_NAME_DOCUMENT, "book", NULL, false));
    look(ns, &seq, TOKENS);
}

/* 125,000 keys, of which the window takes 64 blocks. */
CASE(a_million_tokens_in_two_groups)
{
    struct kvc_ns_spec spec = rig_spec("two", BT, BYTES);
    spec.groups = 2;
    spec.group[1] = spec.group[0];
    spec.group[1].rule = KVC_RULE_WINDOW;
    spec.group[1].window = WINDOW;
    struct kvc_ns *two;
    GOOD(kvc_ns_open(k, &spec, &two));
    ck_assert_int_eq(kvc_hash_chain(kvc_ns_seed(two), tokens, TOKENS, BT, NULL, 0, keys), BLOCKS);
    seq.group[1].keys = keys;
    seq.group[1].n = BLOCKS;
    store(two, &seq, TOKENS - WINDOW);
    look(two, &seq, TOKENS);
    struct kvc_hold *hold;
    GOOD(kvc_acquire(two, &seq, NULL, &hold));
    ck_assert_uint_eq(hold->prefix.tokens, TOKENS);
    holds(hold, 0, 0, BLOCKS);
    holds(hold, 1, BLOCKS - WINDOW / BT, BLOCKS);
    kvc_release(k, &hold);
}

/* What no request can have is refused with what can be. */
CASE(more_keys_than_a_request_has_are_refused)
{
    struct kvc_prefix p;
    seq.group[0].n = KVC_KEYS_MAX + 1;
    seq.tokens = (KVC_KEYS_MAX + 1) * BT;
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), -EINVAL);
    ck_assert_str_eq(kvc_last_error(k), "131073 keys in one request; at most 131072");
}
