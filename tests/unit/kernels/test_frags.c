/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU twin of the kernel for fragments, and the image of the kernel. */
#include <kvcache/kernels.h>
#include <string.h>

#include "check_run.h"

START_TEST(fragments_are_copied_and_nothing_else)
{
    unsigned char from[64], to[64] = {0}, expected[64] = {0};
    for (unsigned i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(i + 1);
    const struct kvc_frag list[] = {{(uintptr_t)to + 3, (uintptr_t)from + 10, 7},
                                    {(uintptr_t)to + 32, (uintptr_t)from, 16},
                                    {(uintptr_t)to + 63, (uintptr_t)from + 63, 1}};
    memcpy(expected + 3, from + 10, 7);
    memcpy(expected + 32, from, 16);
    expected[63] = 64;
    kvc_copy_frags_cpu(list, 3);
    ck_assert_mem_eq(to, expected, sizeof(to));
    kvc_copy_frags_cpu(NULL, 0);
}
END_TEST

#ifdef KVC_HAVE_CUDA
/* nvcc's container: a magic number, the bytes of its head, the bytes behind it. */
START_TEST(the_image_is_there_whole)
{
    uint32_t magic;
    uint16_t head_bytes;
    uint64_t bytes;
    ck_assert_uint_gt(kvc_frags_image_bytes, 16);
    memcpy(&magic, kvc_frags_image, sizeof(magic));
    memcpy(&head_bytes, kvc_frags_image + 6, sizeof(head_bytes));
    memcpy(&bytes, kvc_frags_image + 8, sizeof(bytes));
    ck_assert_uint_eq(magic, 0xba55ed50);
    ck_assert_uint_eq(head_bytes + bytes, kvc_frags_image_bytes);
    ck_assert_uint_eq((uintptr_t)kvc_frags_image % 16, 0);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("frags");
    TCase *tcase = tcase_create("copies");
    tcase_add_test(tcase, fragments_are_copied_and_nothing_else);
#ifdef KVC_HAVE_CUDA
    tcase_add_test(tcase, the_image_is_there_whole);
#endif
    suite_add_tcase(suite, tcase);
    return check_run(suite);
}
