/* SPDX-License-Identifier: Apache-2.0 */
/* The ring of trace records: bounded, oldest first to go, outputs found. */
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "ring.h"

#define BT 16u

static struct ring *ring;
static uint8_t keys[4096 * 32];

static void setup(void)
{
    for (unsigned i = 0; i < sizeof(keys); i++)
        keys[i] = (uint8_t)(i / 32 * 7 + i % 32 * 11 + i / 8192);
    ck_assert_int_eq(ring_create(RING_BYTES_MIN, 5000000, &ring), 0);
}

static void teardown(void)
{
    ring_destroy(&ring);
}

static struct ring_chain chain(uint32_t first, uint32_t n, uint32_t tokens)
{
    return (struct ring_chain){.ns = 1,
                               .session = 3,
                               .block_tokens = BT,
                               .first_token = first * BT,
                               .tokens = tokens,
                               .parent = first ? keys + (size_t)(first - 1) * 32 : NULL,
                               .keys = keys + (size_t)first * 32,
                               .n = n};
}

static struct ring_record record(uint64_t no)
{
    struct ring_record r;
    ring_at(ring, no, &r);
    return r;
}

static uint64_t records(void)
{
    struct ring_state st;
    ring_state(ring, &st);
    return st.end - st.first;
}

CASES(.setup = setup, .teardown = teardown);

CASE(equal_keys_have_equal_ids_and_others_not)
{
    struct ring_chain a = chain(0, 10, 160), b = chain(0, 4, 60), c = a;
    c.ns = 2;
    ring_asked(ring, &a, 6000000);
    ring_asked(ring, &b, 9000000);
    ring_asked(ring, &c, 9000000);
    struct ring_record x = record(0), y = record(1), z = record(2);
    ck_assert_uint_eq(x.n, 10);
    ck_assert_uint_eq(y.n, 4);
    ck_assert_uint_eq(x.input_tokens, 160);
    ck_assert_uint_eq(y.input_tokens, 60);
    ck_assert_uint_eq(x.timestamp_ms, 1);
    ck_assert_uint_eq(y.timestamp_ms, 4);
    ck_assert_mem_eq(x.ids, y.ids, 4 * sizeof(uint64_t));
    for (unsigned i = 0; i < 10; i++) {
        ck_assert_uint_ne(x.ids[i], z.ids[i]);
        for (unsigned k = 0; k < i; k++)
            ck_assert_uint_ne(x.ids[i], x.ids[k]);
    }
}

CASE(two_traces_have_nothing_in_common)
{
    struct ring_chain a = chain(0, 2, 32);
    ring_asked(ring, &a, 6000000);
    uint64_t id = record(0).ids[0];
    ring_destroy(&ring);
    ck_assert_int_eq(ring_create(RING_BYTES_MIN, 0, &ring), 0);
    ring_asked(ring, &a, 6000000);
    ck_assert_uint_ne(record(0).ids[0], id);
}

CASE(what_is_stored_behind_a_request_is_its_output)
{
    struct ring_chain asked = chain(0, 10, 160), one = chain(10, 1, 16), two = chain(11, 2, 20);
    ring_asked(ring, &asked, 6000000);
    ring_stored(ring, &one);
    ck_assert_uint_eq(record(0).output_tokens, 16);
    ring_stored(ring, &two);
    ck_assert_uint_eq(record(0).output_tokens, 36);
}

CASE(prompt_and_output_stored_in_one_go_count_from_the_prompts_end)
{
    struct ring_chain asked = chain(0, 10, 155), all = chain(4, 10, 160);
    ring_asked(ring, &asked, 6000000); /* its last block is partly filled */
    ring_stored(ring, &all);
    ck_assert_uint_eq(record(0).output_tokens, 4 * BT + 160 - 155);
}

CASE(the_rest_of_a_prompt_is_no_output)
{
    struct ring_chain asked = chain(0, 10, 160), rest = chain(6, 4, 64);
    ring_asked(ring, &asked, 6000000);
    ring_stored(ring, &rest);
    ck_assert_uint_eq(record(0).output_tokens, 0);
}

CASE(another_sessions_store_is_not_this_ones_output)
{
    struct ring_chain asked = chain(0, 10, 160), theirs = chain(10, 1, 16);
    theirs.session = 4;
    ring_asked(ring, &asked, 6000000);
    ring_stored(ring, &theirs);
    ck_assert_uint_eq(record(0).output_tokens, 0);
}

CASE(the_oldest_go_and_what_stays_is_whole)
{
    uint64_t random = 7;
    uint32_t sizes[200000];
    struct ring_state st;
    for (unsigned i = 0; i < 20000; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint32_t n = (uint32_t)(random >> 33) % (i % 100 == 0 ? 4096 : 40);
        struct ring_chain a = chain(0, n, n * BT);
        sizes[i] = n;
        ring_asked(ring, &a, 6000000 + i * UINT64_C(1000000));
        ring_state(ring, &st);
        ck_assert_uint_eq(st.end, i + 1);
        ck_assert_uint_le(st.used_bytes, RING_BYTES_MIN);
        ck_assert_uint_lt(st.first, st.end);
        struct ring_record oldest = record(st.first), newest = record(i);
        ck_assert_uint_eq(oldest.n, sizes[st.first]);
        ck_assert_uint_eq(oldest.timestamp_ms, st.first + 1);
        ck_assert_uint_eq(newest.n, n);
    }
    ck_assert_uint_gt(st.first, 0);
    ck_assert_uint_gt(records(), 500);
    struct ring_chain all = chain(0, 4096, 4096 * BT);
    ring_asked(ring, &all, UINT64_C(1) << 40);
    struct ring_record whole = record(20000);
    for (uint64_t no = st.first + 500; no < 20000; no += 7) {
        ring_state(ring, &st);
        if (no < st.first)
            continue;
        struct ring_record r = record(no);
        ck_assert_uint_eq(r.n, sizes[no]);
        if (r.n)
            ck_assert_mem_eq(r.ids, whole.ids, r.n * sizeof(uint64_t));
    }
}

CASE(sizes_outside_the_limits_are_refused)
{
    struct ring *other = NULL;
    ck_assert_int_eq(ring_create(RING_BYTES_MIN - 1, 0, &other), -EINVAL);
    ck_assert_int_eq(ring_create(RING_BYTES_MAX + 1, 0, &other), -EINVAL);
    ck_assert_ptr_null(other);
}
