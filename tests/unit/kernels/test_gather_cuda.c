/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels against their CPU twins, at sizes that take each of the three load widths. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <errno.h>
#include <kvcache/kernels.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGES = 97, LISTED = 41, SKIPPED = 77, GAP_BYTES = 48, BUFFER_BYTES = 8 * 1024 * 1024 };

static const uint64_t page_sizes[] = {1, 4, 12, 15, 16, 48, 255, 256, 1000, 4096, 65536, 80008};

struct memory {
    unsigned char *paged;
    unsigned char *packed;
    uint32_t *pages;
    uint32_t *bad_pages;
};

static unsigned char host_paged[BUFFER_BYTES];
static unsigned char host_packed[BUFFER_BYTES];
static unsigned char host_result[BUFFER_BYTES];
static uint32_t host_pages[LISTED];
static struct memory device;

static void require_cuda(cudaError_t status)
{
    ck_assert_msg(status == cudaSuccess, "CUDA: %s", cudaGetErrorString(status));
}

static void setup(void)
{
    require_cuda(cudaMalloc((void **)&device.paged, BUFFER_BYTES));
    require_cuda(cudaMalloc((void **)&device.packed, BUFFER_BYTES));
    require_cuda(cudaMalloc((void **)&device.pages, sizeof(host_pages)));
    require_cuda(cudaMalloc((void **)&device.bad_pages, sizeof(uint32_t)));
    require_cuda(cudaMemset(device.bad_pages, 0, sizeof(uint32_t)));
    for (uint32_t i = 0; i < LISTED; i++)
        host_pages[i] = (i * 29 + 3) % PAGES;
    require_cuda(cudaMemcpy(device.pages, host_pages, sizeof(host_pages), cudaMemcpyHostToDevice));
    for (size_t i = 0; i < BUFFER_BYTES; i++) {
        host_paged[i] = (unsigned char)(i * 131 + i / 251);
        host_packed[i] = (unsigned char)(i * 57 + i / 241 + 9);
    }
    require_cuda(cudaMemcpy(device.paged, host_paged, BUFFER_BYTES, cudaMemcpyHostToDevice));
    require_cuda(cudaMemcpy(device.packed, host_packed, BUFFER_BYTES, cudaMemcpyHostToDevice));
}

static void teardown(void)
{
    (void)cudaFree(device.paged);
    (void)cudaFree(device.packed);
    (void)cudaFree(device.pages);
    (void)cudaFree(device.bad_pages);
}

static uint32_t bad_pages_seen(void)
{
    uint32_t count = UINT32_MAX;

    require_cuda(cudaDeviceSynchronize());
    require_cuda(cudaMemcpy(&count, device.bad_pages, sizeof(count), cudaMemcpyDeviceToHost));
    return count;
}

static struct kvc_paged shape(unsigned char *base, uint64_t page_bytes)
{
    return (struct kvc_paged){base, page_bytes + GAP_BYTES, page_bytes, PAGES};
}

START_TEST(gather_equals_its_twin)
{
    struct kvc_paged there = shape(device.paged, page_sizes[_i]);
    struct kvc_paged here = shape(host_paged, page_sizes[_i]);
    uint32_t bad_pages = 0;

    ck_assert_int_eq(
        kvc_gather_cuda(&there, device.pages, LISTED, device.packed, device.bad_pages, NULL), 0);
    ck_assert_int_eq(kvc_gather_cpu(&here, host_pages, LISTED, host_packed, &bad_pages), 0);
    ck_assert_uint_eq(bad_pages_seen(), 0);
    require_cuda(cudaMemcpy(host_result, device.packed, BUFFER_BYTES, cudaMemcpyDeviceToHost));
    ck_assert_mem_eq(host_result, host_packed, BUFFER_BYTES);
}
END_TEST

START_TEST(scatter_equals_its_twin)
{
    struct kvc_paged there = shape(device.paged, page_sizes[_i]);
    struct kvc_paged here = shape(host_paged, page_sizes[_i]);
    uint32_t bad_pages = 0;

    ck_assert_int_eq(
        kvc_scatter_cuda(&there, device.pages, LISTED, device.packed, device.bad_pages, NULL), 0);
    ck_assert_int_eq(kvc_scatter_cpu(&here, host_pages, LISTED, host_packed, &bad_pages), 0);
    ck_assert_uint_eq(bad_pages_seen(), 0);
    require_cuda(cudaMemcpy(host_result, device.paged, BUFFER_BYTES, cudaMemcpyDeviceToHost));
    ck_assert_mem_eq(host_result, host_paged, BUFFER_BYTES);
}
END_TEST

START_TEST(page_out_of_range_is_counted_and_left_alone)
{
    struct kvc_paged there = shape(device.paged, 4096);
    uint32_t outside = PAGES;

    require_cuda(cudaMemcpy(device.pages, &outside, sizeof(outside), cudaMemcpyHostToDevice));
    ck_assert_int_eq(
        kvc_gather_cuda(&there, device.pages, 1, device.packed, device.bad_pages, NULL), 0);
    ck_assert_uint_eq(bad_pages_seen(), 1);
    require_cuda(cudaMemcpy(host_result, device.packed, BUFFER_BYTES, cudaMemcpyDeviceToHost));
    ck_assert_mem_eq(host_result, host_packed, BUFFER_BYTES);
}
END_TEST

START_TEST(impossible_shapes_are_refused)
{
    struct kvc_paged there = shape(device.paged, 4096);

    there.page_bytes = 0;
    ck_assert_int_eq(
        kvc_gather_cuda(&there, device.pages, 1, device.packed, device.bad_pages, NULL), -EINVAL);
    ck_assert_int_eq(kvc_scatter_cuda(NULL, device.pages, 1, device.packed, device.bad_pages, NULL),
                     -EINVAL);
}
END_TEST

int main(void)
{
    const int sizes = (int)(sizeof(page_sizes) / sizeof(page_sizes[0]));
    int devices = 0;

    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        puts("SKIP: no CUDA device");
        return SKIPPED;
    }

    Suite *suite = suite_create("gather_cuda");
    TCase *tcase = tcase_create("copies");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, gather_equals_its_twin, 0, sizes);
    tcase_add_loop_test(tcase, scatter_equals_its_twin, 0, sizes);
    tcase_add_test(tcase, page_out_of_range_is_counted_and_left_alone);
    tcase_add_test(tcase, impossible_shapes_are_refused);
    suite_add_tcase(suite, tcase);

    /* A CUDA context does not survive fork. */
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
