/* SPDX-License-Identifier: Apache-2.0 */
/* A hot set that pauses while another worker's blocks stream through a daemon's memory: blocks are
 * counted, not time. */
#include "cases.h"
#include "rig.h"

#define BT     16u
#define BYTES  32768u
#define MIB    (1u << 20)
#define ROOM   1024u /* blocks that memory has: 32 MiB */
#define HOT    128u
#define CHAIN  32u
#define ROUNDS CHECK_SHARE(100u)

static struct rig rig;
static struct kvc *worker, *streamer;
static struct kvc_ns *hot, *cold;
static uint8_t keys[HOT * KVC_KEY_BYTES], statuses[HOT];

static void start(const char *const *sets)
{
    rig_start(&rig, sets);
    worker = rig_open(&rig, 8 * MIB);
    streamer = rig_open(&rig, 8 * MIB);
    hot = rig_ns(worker, "m", BT, BYTES);
    cold = rig_ns(streamer, "m", BT, BYTES);
    ck_assert_ptr_nonnull(kvc_staging(streamer, NULL));
}

static void teardown(void)
{
    kvc_close(&worker);
    kvc_close(&streamer);
    rig_stop(&rig);
    rig_clean(&rig);
}

static uint32_t ask_hot(void)
{
    rig_keys(hot, 1, BT, HOT, keys);
    return rig_load(worker, hot, keys, HOT, BT, BYTES);
}

/* Returns how many of its blocks were not taken. */
static uint32_t stream(uint32_t blocks, bool asks, unsigned flags)
{
    static uint8_t new_keys[CHAIN * KVC_KEY_BYTES];
    uint64_t offsets[CHAIN]; /* whatever bytes are there: none is read */
    const struct kvc_blocks chain = {.keys = new_keys, .n = CHAIN, .flags = flags};
    static uint32_t number = 1000;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < CHAIN; i++)
        offsets[i] = (uint64_t)i * BYTES;
    for (uint32_t i = 0; i < blocks / CHAIN; i++) {
        rig_keys(cold, number++, BT, CHAIN, new_keys);
        if (asks)
            ck_assert_uint_eq(rig_load(streamer, cold, new_keys, CHAIN, BT, BYTES), 0);
        const int err = kvc_store(cold, &chain, offsets, NULL, 0, statuses);
        ck_assert_msg(err == 0, "%s: %s", kvc_error_name(err), kvc_last_error(streamer));
        for (uint32_t k = 0; k < CHAIN; k++)
            refused += statuses[k] != KVC_ST_OK;
    }
    return refused;
}

CASES(.teardown = teardown);

/* Whether the stream asks before it stores, and whether its blocks are judged. */
CASE_EACH(a_hot_set_that_pauses_is_kept, 4)
{
    static const char *const sets[] = {"host.limit=32MiB", "host.chunk=2MiB", NULL};
    const unsigned flags = _i / 2 ? 0 : KVC_F_ADMIT;
    start(sets);
    rig_keys(hot, 1, BT, HOT, keys);
    ck_assert_uint_eq(rig_store(worker, hot, keys, 0, HOT, BT, BYTES, statuses), HOT);
    for (unsigned i = 0; i < ROUNDS; i++)
        ck_assert_uint_eq(ask_hot(), HOT);
    uint32_t refused = stream(4 * ROOM, _i % 2, flags);
    ck_assert_uint_eq(ask_hot(), HOT);
    refused += stream(ROOM / 2, _i % 2, flags);
    ck_assert_uint_eq(ask_hot(), HOT);
    ck_assert_uint_gt(rig_stat(worker, "core.blocks_evicted") + refused, 3 * ROOM);
}
