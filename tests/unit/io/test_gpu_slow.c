/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's thread on the fake CUDA driver (tests/gpu), which takes its time: it reads its
 * settings when it is loaded, so a test sets them before, in its own process.
 */
#ifndef KVC_HAVE_CUDA
#include <stdio.h>
int main(void)
{
    puts("SKIP: built without CUDA (no nvcc was found, or KVC_CUDA=OFF)");
    return 77;
}
#else
#include <dlfcn.h>
#include <stdlib.h>

#include "fake_cuda.h"
#include "gpu_fixture.h"

static const struct fake_cuda *fake;

static void set(const char *name, const char *value)
{
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void open_fake(const struct gpu_config *config)
{
    loop = make(LOOP_AUTO);
    gpu = open_up(config);
    fake = dlsym(dlopen("libcuda.so.1", RTLD_NOW), FAKE_CUDA_SYMBOL);
    ck_assert_ptr_nonnull(fake);
}

static void close_fake(void)
{
    char text[512];
    gpu_close(&gpu);
    loop_destroy(&loop);
    ck_assert_msg(fake->live(text, sizeof text) == 0, "left:%s", text);
}

/* Four pieces of host memory, of 2 s each: a copy waits for one of them at most. */
START_TEST(a_copy_does_not_wait_for_all_host_memory)
{
    const struct gpu_config config = {.device = "cuda:0", .changed = note_changed};
    static _Alignas(4096) uint8_t host[4][1 << 20];
    struct flight pins[4];
    struct gpu_mem mem;
    set("FAKE_CUDA_PIN_US", "2000000");
    open_fake(&config);
    must_alloc(gpu, &mem, 4096);
    for (unsigned i = 0; i < 4; i++) {
        pins[i] = (struct flight){.op = {.kind = GPU_PIN, .host = host[i], .bytes = MIB}};
        begin(gpu, &pins[i]);
    }
    ck_assert_int_eq(copy_to(gpu, mem.addr, host[0], 4096), 0);
    ck_assert_uint_le(fake->calls("cuMemHostRegister"), 2);
    must_free(gpu, &mem);
    close_fake(); /* those that have not begun never do */
    ck_assert_uint_le(fake->calls("cuMemHostRegister"), 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_slow");
    TCase *tcase = tcase_create("slow");
    tcase_add_test(tcase, a_copy_does_not_wait_for_all_host_memory);
    suite_add_tcase(suite, tcase);
    return check_run(suite);
}
#endif
