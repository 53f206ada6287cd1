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
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "fault.h"
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
CASE(a_copy_does_not_wait_for_all_host_memory)
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

/* The control thread gives up the device; the copy stays in flight, for nobody knows what touches
 * its memory. When the call is back the device is tried again. */
CASE(a_call_that_does_not_come_back_takes_the_device_out)
{
    const struct gpu_config config = {
        .device = "cuda:0", .stuck_ns = 3000 * MS, .retry_ns = MS, .changed = note_changed};
    static uint8_t host[4096];
    struct gpu_mem mem;
    open_fake(&config);
    must_alloc(gpu, &mem, sizeof host);
    const struct kvc_frag frag = {mem.addr, at(host), sizeof host};
    struct flight hung = copy_of(GPU_TO_DEVICE, &frag, 1), late = copy_of(GPU_TO_DEVICE, &frag, 1);
    fake->hang("cuMemcpyAsync");
    begin(gpu, &hung);
    wait_for_state(gpu, GPU_OUT);
    ck_assert_ptr_nonnull(strstr(gpu_why(gpu), "has not come back for 3"));
    ck_assert_uint_eq(mem.addr, 0);
    ck_assert_int_eq(run(gpu, &late), -EIO);
    ck_assert_uint_eq(hung.calls, 0);
    ck_assert_uint_eq(gpu_metrics(gpu)->outs, 1);
    fake->hang(NULL);
    ck_assert_int_eq(end_of(&hung), -EIO);
    wait_for_state(gpu, GPU_UP);
    ck_assert_uint_eq(gpu_generation(gpu), 2);
    ck_assert_uint_eq(gpu_metrics(gpu)->outs, 1);
    must_free(gpu, &mem);
    must_alloc(gpu, &mem, sizeof host);
    ck_assert_int_eq(copy_to(gpu, mem.addr, host, sizeof host), 0);
    must_free(gpu, &mem);
    close_fake();
}

/* More often than the driver has tickets: each ends, and is free again. */
CASE(memory_without_a_descriptor_leaves_nothing)
{
    const struct gpu_config config = {.device = "cuda:0", .changed = note_changed};
    static uint8_t host[4096];
    struct gpu_mem mem;
    open_fake(&config);
    for (unsigned i = 0; i < 100; i++) {
        ck_assert_int_eq(fault_arm("fd", 1), 0);
        ck_assert_int_eq(alloc(gpu, &mem, MIB), -EMFILE);
        fault_reset();
    }
    ck_assert_uint_eq(gpu_metrics(gpu)->memory_bytes, 0);
    must_alloc(gpu, &mem, MIB);
    ck_assert_int_eq(copy_to(gpu, mem.addr, host, sizeof host), 0);
    must_free(gpu, &mem);
    close_fake();
}

/* Opening it is no loss. */
CASE(a_device_that_comes_up_late_is_up)
{
    const struct gpu_config config = {
        .device = "cuda:0", .stuck_ns = 100 * MS, .retry_ns = MS, .changed = note_changed};
    fake = dlsym(dlopen("libcuda.so.1", RTLD_NOW), FAKE_CUDA_SYMBOL);
    fake->hang("cuInit");
    loop = make(LOOP_AUTO);
    ck_assert_int_eq(gpu_open(&config, loop, &gpu), 0);
    wait_for_state(gpu, GPU_OUT);
    ck_assert_ptr_nonnull(strstr(gpu_why(gpu), "has not come back"));
    fake->hang(NULL);
    wait_for_state(gpu, GPU_UP);
    close_fake();
}

static size_t said(int fd, char *text, size_t bytes)
{
    const ssize_t n = pread(fd, text, bytes - 1, 0);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    return (size_t)n;
}

/* _i: others have so much that the limit cannot be had; and they share it by MPS. */
CASE_EACH(a_limit_above_what_is_free_is_told, 2)
{
    const struct gpu_config config = {
        .device = "cuda:0", .wanted_bytes = 512 * MIB, .changed = note_changed};
    char text[4096];
    const int err = dup(STDERR_FILENO), file = memfd_create("stderr", MFD_CLOEXEC);
    set("FAKE_CUDA_MPS", _i == 1 ? "1" : "0");
    set("FAKE_CUDA_TAKEN", _i == 0 ? "536870912" : "536870913");
    ck_assert_int_ge(dup2(file, STDERR_FILENO), 0);
    open_fake(&config);
    close_fake();
    ck_assert_int_ge(dup2(err, STDERR_FILENO), 0);
    (void)said(file, text, sizeof text);
    ck_assert_msg((strstr(text, "hbm.devices gives blocks 512.00 MiB") != NULL) == (_i == 1), "%s",
                  text);
    ck_assert((strstr(text, "Fake 0 is up, by MPS") != NULL) == (_i == 1));
}

#endif
