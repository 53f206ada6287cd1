/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU twins of the kernels, and the kernels' images. */
#include <kvcache/kernels.h>
#include <string.h>

#include "cases.h"

CASE(fragments_are_copied_and_nothing_else)
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

/* Whatever their addresses and lengths, around a line and around what is streamed at all. */
CASE(fragments_that_are_streamed_are_copied_and_nothing_else)
{
    enum { ROOM = 8192 };
    static const uint64_t lengths[] = {1, 63, 64, 65, 1023, 1024, 1025, 1088, 2047, 4096};
    static unsigned char from[ROOM], to[2 * ROOM], expected[2 * ROOM];
    for (unsigned i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(1 + i % 251);
    for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (uint32_t shift = 0; shift < 64; shift += 7) {
            const uint64_t n = lengths[i];
            const struct kvc_frag list[] = {{(uintptr_t)to + shift, (uintptr_t)from + i, n},
                                            {(uintptr_t)to + ROOM + i, (uintptr_t)from + shift, n}};
            memset(to, 0, sizeof(to));
            memset(expected, 0, sizeof(expected));
            memcpy(expected + shift, from + i, n);
            memcpy(expected + ROOM + i, from + shift, n);
            kvc_stream_frags_cpu(list, 2);
            ck_assert_mem_eq(to, expected, sizeof(to));
        }
    }
    kvc_stream_frags_cpu(NULL, 0);
}

CASE(a_decode_step_reads_every_word_once)
{
    uint32_t kv[64], sum = 5, expected = 5;
    for (unsigned i = 0; i < 64; i++) {
        kv[i] = 0x9e3779b9u * (i + 1);
        expected += kv[i];
    }
    kvc_decode_cpu(kv, 64, &sum);
    ck_assert_uint_eq(sum, expected);
    kvc_decode_cpu(kv, 0, &sum);
    ck_assert_uint_eq(sum, expected);
}

#ifdef KVC_HAVE_CUDA
/* nvcc's container: a magic number, the bytes of its head, the bytes behind it. */
static void assert_whole(const unsigned char *image, size_t image_bytes, const char *kernel)
{
    uint32_t magic;
    uint16_t head_bytes;
    uint64_t bytes;
    ck_assert_uint_gt(image_bytes, 16);
    memcpy(&magic, image, sizeof(magic));
    memcpy(&head_bytes, image + 6, sizeof(head_bytes));
    memcpy(&bytes, image + 8, sizeof(bytes));
    ck_assert_uint_eq(magic, 0xba55ed50);
    ck_assert_uint_eq(head_bytes + bytes, image_bytes);
    ck_assert_uint_eq((uintptr_t)image % 16, 0);
    ck_assert_ptr_nonnull(memmem(image, image_bytes, kernel, strlen(kernel)));
}

#define STRING(name)  STRING_(name)
#define STRING_(name) #name

CASE(the_images_are_there_whole)
{
    assert_whole(kvc_frags_image, kvc_frags_image_bytes, STRING(KVC_FRAGS_KERNEL));
    assert_whole(kvc_decode_image, kvc_decode_image_bytes, STRING(KVC_DECODE_KERNEL));
}
#endif
