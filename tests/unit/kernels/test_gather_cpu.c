/* SPDX-License-Identifier: Apache-2.0 */
/* Gather and scatter against a loop over single bytes, at sizes and offsets of every alignment. */
#include <check.h>
#include <errno.h>
#include <kvcache/kernels.h>
#include <string.h>

#include "check_run.h"

enum { PAGES = 13, LISTED = 7, MEMORY_BYTES = 64 * 1024, UNTOUCHED = 0xEE };

static const uint64_t page_sizes[] = {1, 2, 3, 7, 15, 16, 17, 31, 64, 255, 256, 1000, 4096};
static const uint32_t page_list[LISTED] = {12, 0, 5, 1, 11, 7, 4};

static unsigned char paged_memory[MEMORY_BYTES];
static unsigned char packed[MEMORY_BYTES];
static unsigned char expected[MEMORY_BYTES];

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
    unsigned state = seed * 2654435761u + 1;

    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(state >> 24);
    }
}

static struct kvc_paged paged_at(size_t offset, uint64_t page_bytes, uint64_t gap_bytes)
{
    struct kvc_paged paged = {
        .base = paged_memory + offset,
        .stride_bytes = page_bytes + gap_bytes,
        .page_bytes = page_bytes,
        .pages_max = PAGES,
    };
    ck_assert_uint_le(offset + paged.pages_max * paged.stride_bytes, MEMORY_BYTES);
    return paged;
}

START_TEST(gather_packs_pages_in_list_order)
{
    uint64_t page_bytes = page_sizes[_i];
    uint32_t bad_pages = 0;

    for (size_t offset = 0; offset < 3; offset++) {
        struct kvc_paged from = paged_at(offset, page_bytes, offset * 5);
        fill(paged_memory, MEMORY_BYTES, (unsigned)_i + 1);
        memset(packed, UNTOUCHED, MEMORY_BYTES);
        memset(expected, UNTOUCHED, MEMORY_BYTES);
        for (size_t f = 0; f < LISTED; f++)
            for (uint64_t b = 0; b < page_bytes; b++)
                expected[offset + f * page_bytes + b] =
                    paged_memory[offset + page_list[f] * from.stride_bytes + b];

        ck_assert_int_eq(kvc_gather_cpu(&from, page_list, LISTED, packed + offset, &bad_pages), 0);
        ck_assert_mem_eq(packed, expected, MEMORY_BYTES);
    }
    ck_assert_uint_eq(bad_pages, 0);
}
END_TEST

START_TEST(scatter_writes_the_listed_pages_only)
{
    uint64_t page_bytes = page_sizes[_i];
    uint32_t bad_pages = 0;

    for (size_t offset = 0; offset < 3; offset++) {
        struct kvc_paged to = paged_at(offset, page_bytes, offset * 5);
        fill(packed, MEMORY_BYTES, (unsigned)_i + 1);
        memset(paged_memory, UNTOUCHED, MEMORY_BYTES);
        memset(expected, UNTOUCHED, MEMORY_BYTES);
        for (size_t f = 0; f < LISTED; f++)
            for (uint64_t b = 0; b < page_bytes; b++)
                expected[offset + page_list[f] * to.stride_bytes + b] =
                    packed[offset + f * page_bytes + b];

        ck_assert_int_eq(kvc_scatter_cpu(&to, page_list, LISTED, packed + offset, &bad_pages), 0);
        ck_assert_mem_eq(paged_memory, expected, MEMORY_BYTES);
    }
    ck_assert_uint_eq(bad_pages, 0);
}
END_TEST

START_TEST(gather_may_name_a_page_twice)
{
    const uint32_t twice[2] = {3, 3};
    struct kvc_paged from = paged_at(0, 17, 2);
    uint32_t bad_pages = 0;

    fill(paged_memory, MEMORY_BYTES, 5);
    ck_assert_int_eq(kvc_gather_cpu(&from, twice, 2, packed, &bad_pages), 0);
    ck_assert_mem_eq(packed, paged_memory + 3 * from.stride_bytes, 17);
    ck_assert_mem_eq(packed + 17, packed, 17);
}
END_TEST

START_TEST(page_out_of_range_is_counted_and_left_alone)
{
    const uint32_t list[3] = {1, PAGES, UINT32_MAX};
    struct kvc_paged paged = paged_at(0, 16, 0);
    uint32_t bad_pages = 0;

    memset(packed, UNTOUCHED, MEMORY_BYTES);
    memset(expected, UNTOUCHED, MEMORY_BYTES);
    fill(paged_memory, MEMORY_BYTES, 6);
    memcpy(expected, paged_memory + 16, 16);
    ck_assert_int_eq(kvc_gather_cpu(&paged, list, 3, packed, &bad_pages), 0);
    ck_assert_uint_eq(bad_pages, 2);
    ck_assert_mem_eq(packed, expected, MEMORY_BYTES);

    memcpy(expected, paged_memory, MEMORY_BYTES);
    ck_assert_int_eq(kvc_scatter_cpu(&paged, list + 1, 2, packed, &bad_pages), 0);
    ck_assert_uint_eq(bad_pages, 4);
    ck_assert_mem_eq(paged_memory, expected, MEMORY_BYTES);
}
END_TEST

START_TEST(no_pages_is_valid_and_copies_nothing)
{
    struct kvc_paged paged = paged_at(0, 16, 0);
    uint32_t bad_pages = 0;

    ck_assert_int_eq(kvc_gather_cpu(&paged, NULL, 0, NULL, &bad_pages), 0);
    ck_assert_int_eq(kvc_scatter_cpu(&paged, NULL, 0, NULL, &bad_pages), 0);
    ck_assert_uint_eq(bad_pages, 0);
}
END_TEST

static void assert_refused(const struct kvc_paged *paged, const uint32_t *pages,
                           uint32_t page_count, void *buffer, uint32_t *bad_pages)
{
    ck_assert_int_eq(kvc_gather_cpu(paged, pages, page_count, buffer, bad_pages), -EINVAL);
    ck_assert_int_eq(kvc_scatter_cpu(paged, pages, page_count, buffer, bad_pages), -EINVAL);
}

START_TEST(null_pointers_are_refused)
{
    struct kvc_paged good = paged_at(0, 16, 0);
    struct kvc_paged no_base = good;
    uint32_t bad_pages = 0;

    no_base.base = NULL;
    assert_refused(NULL, page_list, LISTED, packed, &bad_pages);
    assert_refused(&no_base, page_list, LISTED, packed, &bad_pages);
    assert_refused(&good, NULL, LISTED, packed, &bad_pages);
    assert_refused(&good, page_list, LISTED, NULL, &bad_pages);
    assert_refused(&good, page_list, LISTED, packed, NULL);
}
END_TEST

START_TEST(impossible_shapes_are_refused)
{
    uint32_t bad_pages = 0;
    struct kvc_paged shape = paged_at(0, 16, 0);

    shape.page_bytes = 0;
    assert_refused(&shape, page_list, LISTED, packed, &bad_pages);
    shape.page_bytes = 17;
    assert_refused(&shape, page_list, LISTED, packed, &bad_pages);
    shape.page_bytes = shape.stride_bytes = UINT64_MAX / 2;
    assert_refused(&shape, page_list, LISTED, packed, &bad_pages);
}
END_TEST

START_TEST(overlap_is_refused_and_neighbours_are_not)
{
    struct kvc_paged paged = paged_at(1024, 16, 0);
    unsigned char *start = paged.base;
    unsigned char *end = start + PAGES * paged.stride_bytes;
    uint32_t bad_pages = 0;

    assert_refused(&paged, page_list, LISTED, start, &bad_pages);
    assert_refused(&paged, page_list, LISTED, end - 1, &bad_pages);
    assert_refused(&paged, page_list, LISTED, start - LISTED * 16 + 1, &bad_pages);
    ck_assert_int_eq(kvc_gather_cpu(&paged, page_list, LISTED, end, &bad_pages), 0);
    ck_assert_int_eq(kvc_gather_cpu(&paged, page_list, LISTED, start - LISTED * 16, &bad_pages), 0);
}
END_TEST

int main(void)
{
    const int sizes = (int)(sizeof(page_sizes) / sizeof(page_sizes[0]));
    Suite *suite = suite_create("gather_cpu");
    TCase *tcase = tcase_create("copies");

    tcase_add_loop_test(tcase, gather_packs_pages_in_list_order, 0, sizes);
    tcase_add_loop_test(tcase, scatter_writes_the_listed_pages_only, 0, sizes);
    tcase_add_test(tcase, gather_may_name_a_page_twice);
    tcase_add_test(tcase, page_out_of_range_is_counted_and_left_alone);
    tcase_add_test(tcase, no_pages_is_valid_and_copies_nothing);
    tcase_add_test(tcase, null_pointers_are_refused);
    tcase_add_test(tcase, impossible_shapes_are_refused);
    tcase_add_test(tcase, overlap_is_refused_and_neighbours_are_not);
    suite_add_tcase(suite, tcase);

    return check_run(suite);
}
