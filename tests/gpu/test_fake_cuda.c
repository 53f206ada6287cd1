/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver notices what it is there to notice: each case must abort. */
#ifndef KVC_HAVE_CUDA
#include <stdio.h>
int main(void)
{
    puts("SKIP: built without CUDA (no nvcc was found, or KVC_CUDA=OFF)");
    return 77;
}
#else
#include <signal.h>
#include <sys/mman.h>

#include "cuda_fixture.h"

static const struct cuda_api *cu;
static struct gpu_mem mem;
#define FAKE_BYTES (4 * MIB)
static _Alignas(4096) unsigned char host[4096];

static CUdeviceptr here(const void *at)
{
    return (uintptr_t)at;
}

static CUstream stream(void)
{
    return dev->stream[0];
}

/* ---- what is wrong ---- */

static CUresult copy_behind_the_end(void)
{
    return cu->MemcpyAsync(mem.addr + FAKE_BYTES - 1, here(host), 2, stream());
}

static CUresult copy_to_nowhere(void)
{
    return cu->MemcpyAsync(4096, here(host), 1, stream());
}

static CUresult copy_from_unmapped_host_memory(void)
{
    return cu->MemcpyAsync(mem.addr, 4096, 1, stream());
}

static CUresult copy_of_memory_registered_in_part(void)
{
    must_pin(dev, host, 100);
    return cu->MemcpyAsync(mem.addr, here(host), 200, stream());
}

static CUresult copy_of_freed_memory(void)
{
    const CUdeviceptr at = mem.addr;
    gpu_drv_cuda.free(dev, &mem);
    return cu->MemcpyAsync(at, here(host), 1, stream());
}

static CUresult memory_freed_under_a_copy(void)
{
    must_pin(dev, host, sizeof(host));
    fake->hold(1);
    const CUresult r = cu->MemcpyAsync(mem.addr, here(host), 1, stream());
    ck_assert_int_eq(r, CUDA_SUCCESS);
    gpu_drv_cuda.free(dev, &mem);
    fake->hold(0);
    return cu->CtxSynchronize();
}

static CUresult batch_of_pageable_memory(void)
{
#ifdef CUDA_BATCH_NEW
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUdeviceptr to = mem.addr, from = here(host);
    size_t bytes = 1, first = 0;
    return cu->MemcpyBatchAsync(&to, &from, &bytes, 1, &attributes, &first, 1, stream());
#else
    return copy_to_nowhere();
#endif
}

static CUresult launch(struct kvc_frag frag)
{
    uint32_t n = 1;
    dev->cuda.lists.list[0].frag[0] = frag;
    void *arguments[] = {&dev->cuda.lists.list[0].device_addr, &n};
    const CUresult r = cu->LaunchKernel(dev->cuda.lists.kernel, 1, 1, 1, KVC_FRAGS_THREADS, 1, 1, 0,
                                        stream(), arguments, NULL);
    ck_assert_int_eq(r, CUDA_SUCCESS);
    return cu->CtxSynchronize();
}

static CUresult kernel_over_pageable_memory(void)
{
    return launch((struct kvc_frag){mem.addr, here(host), 1});
}

static CUresult kernel_behind_the_end(void)
{
    return launch((struct kvc_frag){mem.addr + FAKE_BYTES, mem.addr, 1});
}

static CUresult list_that_the_device_cannot_reach(void)
{
    CUdeviceptr list = here(host);
    uint32_t n = 1;
    void *arguments[] = {&list, &n};
    return cu->LaunchKernel(dev->cuda.lists.kernel, 1, 1, 1, KVC_FRAGS_THREADS, 1, 1, 0, stream(),
                            arguments, NULL);
}

static CUresult stream_of_another_context(void)
{
    const CUstream ours = stream();
    struct gpu_dev *other = open_device("cuda:1");
    const CUresult r = cu->StreamQuery(ours);
    gpu_drv_cuda.close(other);
    return r;
}

static CUresult call_without_a_context(void)
{
    ck_assert_int_eq(cu->CtxSetCurrent(NULL), CUDA_SUCCESS);
    return cu->StreamQuery(stream());
}

static CUresult event_recorded_before_it_has_happened(void)
{
    fake->hold(1);
    const CUresult r = cu->EventRecord(dev->event[0], stream());
    ck_assert_int_eq(r, CUDA_SUCCESS);
    return cu->EventRecord(dev->event[0], stream());
}

static CUresult handle_released_twice(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle handle;
    ck_assert_int_eq(cu->MemCreate(&handle, 2 * MIB, &prop, 0), CUDA_SUCCESS);
    ck_assert_int_eq(cu->MemRelease(handle), CUDA_SUCCESS);
    return cu->MemRelease(handle);
}

static CUresult addresses_freed_while_mapped(void)
{
    return cu->MemAddressFree(mem.addr, FAKE_BYTES);
}

static CUresult unmapped_in_part(void)
{
    return cu->MemUnmap(mem.addr, FAKE_BYTES / 2);
}

static CUresult context_released_with_streams(void)
{
    return cu->DevicePrimaryCtxRelease(dev->cuda.id);
}

static CUresult context_released_twice(void)
{
    gpu_drv_cuda.free(dev, &mem);
    gpu_drv_cuda.close(dev);
    return cu->DevicePrimaryCtxRelease(0);
}

static CUresult host_memory_unmapped_while_registered(void)
{
    void *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    must_pin(dev, at, 8192);
    ck_assert_int_eq(munmap(at, 8192), 0);
    return cu->MemcpyAsync(mem.addr, here(at), 1, stream());
}

static CUresult work_for_a_stream_under_capture(void)
{
    fake->capture(1);
    return cu->MemsetD8Async(mem.addr, 0, 1, stream());
}

static CUresult batch_on_the_default_stream(void)
{
    size_t bytes = 1;
    CUdeviceptr to = mem.addr, from = mem.addr + 8;
    return cuda_copy_batch(cu, &to, &from, &bytes, 1, NULL);
}

static CUresult image_that_is_none(void)
{
    CUmodule module;
    return cu->ModuleLoadData(&module, host);
}

static CUresult (*const wrongs[])(void) = {copy_behind_the_end,
                                           copy_to_nowhere,
                                           copy_from_unmapped_host_memory,
                                           copy_of_memory_registered_in_part,
                                           copy_of_freed_memory,
                                           memory_freed_under_a_copy,
                                           batch_of_pageable_memory,
                                           kernel_over_pageable_memory,
                                           kernel_behind_the_end,
                                           list_that_the_device_cannot_reach,
                                           stream_of_another_context,
                                           call_without_a_context,
                                           event_recorded_before_it_has_happened,
                                           handle_released_twice,
                                           addresses_freed_while_mapped,
                                           unmapped_in_part,
                                           context_released_with_streams,
                                           context_released_twice,
                                           host_memory_unmapped_while_registered,
                                           work_for_a_stream_under_capture,
                                           batch_on_the_default_stream,
                                           image_that_is_none};

static void setup(void)
{
    const char *problem;
    dev = open_device(DEV0);
    mem = alloc(dev, FAKE_BYTES);
    cu = cuda_find(&problem);
}

CASE_DIES_EACH(a_breach_of_the_drivers_contract_aborts, SIGABRT, ARRAY_LEN(wrongs))
{
    setup();
    const CUresult r = wrongs[_i]();
    ck_abort_msg("nothing was noticed: %d", (int)r);
}

CASE(what_is_right_does_not)
{
    setup();
    must_pin(dev, host, sizeof(host));
    ck_assert_int_eq(launch((struct kvc_frag){mem.addr, here(host), sizeof(host)}), CUDA_SUCCESS);
    ck_assert_int_eq(cu->MemcpyAsync(mem.addr, here(host) + 1, 5, stream()), CUDA_SUCCESS);
    close_device(dev);
}

/* _i: device memory that is mapped for reading, host memory that is registered so. */
CASE_EACH(who_writes_to_what_is_for_reading_breaks_the_context, 2)
{
    setup();
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev->cuda.id},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    const unsigned flags =
        CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    CUdeviceptr to = mem.addr, from = mem.addr + 8;
    if (_i == 0)
        ck_assert_int_eq(cu->MemSetAccess(mem.addr, FAKE_BYTES, &access, 1), CUDA_SUCCESS);
    else
        ck_assert_int_eq(cu->MemHostRegister(host, 4096, flags), CUDA_SUCCESS);
    to = _i == 0 ? to : here(host);
    ck_assert_int_eq(cu->MemcpyAsync(to, from, 8, stream()), CUDA_SUCCESS);
    ck_assert_int_eq(cu->CtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

CASE(what_can_be_registered_has_a_limit)
{
    set("FAKE_CUDA_PINS", "8192");
    setup();
    must_pin(dev, host, 4096);
    unsigned char *more = host_memory(8192);
    ck_assert_int_eq(gpu_drv_cuda.pin(dev, more, 8192), -ENOMEM);
    gpu_drv_cuda.unpin(dev, host, 4096);
    must_pin(dev, more, 8192);
    close_device(dev);
    free(more);
}

int main(int argc, char **argv)
{
    (void)argc;
    use_the_fake(argv);
    return cases_run();
}
#endif
