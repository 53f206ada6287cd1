/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's side on a CUDA device: the library on the fake CUDA driver (tests/gpu), against the
 * fake daemon, which maps the driver's memory as a daemon imports it. The driver reads its settings
 * when it is loaded, by the first kvc_gpu_open(): a test sets them before, in its own process.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "dlpack__.h"
#include "fake_cuda.h"
#include "gpu_fixture.h"

#define MIB (UINT64_C(1) << 20)

/* ---- the driver, as a worker has it ---- */

static const struct fake_cuda *control;
static CUcontext context;
static CUstream stream;

static void *entry(const char *name, int version)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *function = NULL;
    ck_assert_msg(library != NULL, "%s", dlerror());
    control = dlsym(library, FAKE_CUDA_SYMBOL);
    ck_assert_msg(control != NULL, "libcuda.so.1 is not the fake driver");
    PFN_cuGetProcAddress_v12000 get =
        (PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
    ck_assert_int_eq(get(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, NULL), 0);
    ck_assert_ptr_nonnull(function);
    return function;
}
#define CU(name, version) ((PFN_cu##name##_v##version)entry("cu" #name, version))

static void use_driver(void)
{
    ck_assert_int_eq(CU(Init, 2000)(0), 0);
    ck_assert_int_eq(CU(DevicePrimaryCtxRetain, 7000)(&context, 0), 0);
    ck_assert_int_eq(CU(CtxSetCurrent, 4000)(context), 0);
    ck_assert_int_eq(CU(StreamCreateWithPriority, 5050)(&stream, CU_STREAM_NON_BLOCKING, 0), 0);
}

static void drain(void)
{
    while (CU(StreamQuery, 2000)(stream) == CUDA_ERROR_NOT_READY)
        usleep(100);
}

/* Device memory, and what it holds; the copy of pageable memory waits for the stream. */
static void get(uint64_t at, void *bytes, size_t n)
{
    ck_assert_int_eq(CU(MemcpyAsync, 4000)((CUdeviceptr)(uintptr_t)bytes, at, n, stream), 0);
}

static void put(uint64_t at, const void *bytes, size_t n)
{
    ck_assert_int_eq(CU(MemcpyAsync, 4000)(at, (CUdeviceptr)(uintptr_t)bytes, n, stream), 0);
}

static bool device_is(uint64_t at, uint8_t byte, size_t n)
{
    static uint8_t bytes[FAKE_BLOCK_BYTES];
    ck_assert_uint_le(n, sizeof(bytes));
    get(at, bytes, n);
    return is_filled(bytes, byte, n);
}

static void set(const char *name, const char *value)
{
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void open_cuda(void)
{
    ck_assert_msg(kvc_gpu_open(kvc, "cuda:0", &gpu) == 0, "%s", kvc_last_error(kvc));
    use_driver();
}

static uint64_t at_of(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* Closes all, and looks whether anything of the driver's is left. */
static void close_all(void)
{
    char text[512] = "";
    kvc_close(&kvc);
    drain();
    ck_assert_int_eq(CU(StreamDestroy, 4000)(stream), 0);
    ck_assert_int_eq(CU(DevicePrimaryCtxRelease, 11000)(0), 0);
    ck_assert_msg(control->live(text, sizeof(text)) == 0, "left:%s", text);
}

/* ---- opening ---- */

CASES(.setup = start_open, .teardown = stop);

CASE(a_device_has_an_ordinal_and_a_uuid)
{
    struct kvc_gpu *by_uuid = NULL, *second = NULL, *instance = NULL;
    open_cuda();
    ck_assert_int_eq(kvc_gpu_open(kvc, "GPU-6b76632d-66616b65-2d637564-612d2da0", &by_uuid),
                     -ENODEV); /* the dashes are elsewhere */
    ck_assert_int_eq(kvc_gpu_open(kvc, "GPU-6b76632d-6661-6b65-2d63-7564612d2da0", &by_uuid),
                     -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "opened device"));
    ck_assert_int_eq(kvc_gpu_open(kvc, "GPU-6B76632D-6661-6B65-2D63-7564612D2DA1", &second), 0);
    kvc_gpu_close(&second);
    ck_assert_int_eq(kvc_gpu_open(kvc, "MIG-6b76632d-6661-6b65-2d63-7564612d2da1", &instance), 0);
    kvc_gpu_close(&instance);
    ck_assert_int_eq(kvc_gpu_open(kvc, "GPU-6B76632D-6661-6B65-2D63-7564612D2DA1", &second), 0);
    ck_assert_int_eq(kvc_gpu_open(kvc, "cuda:2", &by_uuid), -ENODEV);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "nvidia-smi -L"));
    kvc_gpu_close(&second);
    close_all();
}

static const struct {
    const char *name, *value, *text;
} no_driver[] = {
    {"FAKE_CUDA_VERSION", "11080", "update it to R525"},
    {"FAKE_CUDA_HIDE", "cuMemMap", "has no cuMemMap"},
    {"FAKE_CUDA_FAIL", "cuInit:1=100", "'nvidia-smi' says why"},
    {"FAKE_CUDA_DEVICES", "0", "this process sees 0"},
    {"FAKE_CUDA_FAIL", "cuDevicePrimaryCtxRetain:1=719", "cuDevicePrimaryCtxRetain"},
    {"FAKE_CUDA_FAIL", "cuDeviceGetCount:1=999", "cuDeviceGetCount: CUDA error 999"},
    {"FAKE_CUDA_FAIL", "cuDeviceGetUuid:1=1", "CUDA_ERROR_INVALID_VALUE (some words)"},
};

CASE_EACH(a_driver_that_is_none_is_said_with_the_next_step,
          sizeof(no_driver) / sizeof(no_driver[0]))
{
    set(no_driver[_i].name, no_driver[_i].value);
    ck_assert_int_eq(kvc_gpu_open(kvc, "cuda:0", &gpu), -ENODEV);
    ck_assert_msg(strstr(kvc_last_error(kvc), no_driver[_i].text) != NULL, "%s",
                  kvc_last_error(kvc));
}

/* ---- memory ---- */

static const uint32_t pages[] = {9, 4, 20, 21, 0, 31};

/* Opens a pool over `mem`, has three blocks loaded into it, and three stored from it. `base` is
 * where region 0 begins on the device. */
static void load_and_store(uint64_t base)
{
    struct kvc_pool_spec spec = pool_spec();
    struct kvc_seq seq = seq_of(3);
    struct kvc_pages_load load = {.pages = {pages}};
    struct kvc_blocks blocks = blocks_of(3);
    struct kvc_loaded l;
    uint8_t st[3], byte = 0;
    ck_assert_msg(kvc_pool_open(gpu, &spec, &pool) == 0, "%s", kvc_last_error(kvc));
    atomic_store(&fake.s->hit_blocks, 3);
    ck_assert_int_eq(kvc_pages_load(ns, &seq, pool, &load, &l), 0);
    ck_assert_uint_eq(l.tokens, 48);
    for (uint32_t b = 0; b < 3; b++) {
        for (uint32_t r = 0; r < REGIONS; r++) {
            for (uint32_t j = 0; j < PPB; j++)
                ck_assert(device_is(base + ((uint64_t)r * PAGES + pages[b * PPB + j]) * PAGE_BYTES,
                                    fake_page_byte(b, r, j), PAGE_BYTES));
        }
    }
    byte = 0xab;
    for (uint32_t i = 0; i < PAGE_BYTES; i++)
        put(base + ((uint64_t)2 * PAGES + 31) * PAGE_BYTES + i, &byte, 1);
    ck_assert_int_eq(kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st),
                     0);
    ck_assert(is_filled(fake.s->stored[2] + (size_t)(2 * PPB + 1) * PAGE_BYTES, 0xab, PAGE_BYTES));
    ck_assert_uint_eq(fake.s->stored[1][0], fake_page_byte(1, 0, 0));
    kvc_pool_close(&pool);
}

CASE(memory_is_exported_as_a_descriptor)
{
    void *at;
    open_cuda();
    ck_assert_int_eq(kvc_mem_alloc(gpu, 3 * MIB, &at, &mem), 0);
    load_and_store(at_of(at));
    ck_assert_uint_eq(atomic_load(&fake.s->mem_kind), KVC_HANDLE_FD);
    ck_assert_uint_eq(atomic_load(&fake.s->mem_bytes), 4 * MIB);
    ck_assert_mem_eq(fake.s->device, "kvc-fake-cuda--\xa0", KVC_UUID_BYTES);
    close_all();
}

CASE(memory_is_exported_by_ipc_where_descriptors_are_not_to_be_had)
{
    void *at;
    set("FAKE_CUDA_VMM", "0");
    open_cuda();
    ck_assert_int_eq(kvc_mem_alloc(gpu, 3 * MIB, &at, &mem), 0);
    load_and_store(at_of(at));
    ck_assert_uint_eq(atomic_load(&fake.s->mem_kind), KVC_HANDLE_IPC);
    ck_assert_uint_eq(atomic_load(&fake.s->mem_offset), 0);
    close_all();
}

/* Memory that an engine made with cuMemCreate. */
static CUdeviceptr make_vmm(uint64_t bytes, CUmemGenericAllocationHandle *ret_handle)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes =
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc access = {.location = prop.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = 0;
    ck_assert_int_eq(CU(MemCreate, 10020)(ret_handle, bytes, &prop, 0), 0);
    ck_assert_int_eq(CU(MemAddressReserve, 10020)(&at, bytes, 0, 0, 0), 0);
    ck_assert_int_eq(CU(MemMap, 10020)(at, bytes, 0, *ret_handle, 0), 0);
    ck_assert_int_eq(CU(MemSetAccess, 10020)(at, bytes, &access, 1), 0);
    return at;
}

static void unmake_vmm(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    ck_assert_int_eq(CU(MemUnmap, 10020)(at, bytes), 0);
    ck_assert_int_eq(CU(MemAddressFree, 10020)(at, bytes), 0);
    ck_assert_int_eq(CU(MemRelease, 10020)(handle), 0);
}

CASE(memory_of_the_engines_own_is_exported_as_it_is)
{
    CUmemGenericAllocationHandle handle = 0;
    open_cuda();
    CUdeviceptr at = make_vmm(4 * MIB, &handle);
    CUdeviceptr part = at + MIB + 4096;
    ck_assert_msg(kvc_mem_register(gpu, (void *)(uintptr_t)part, MIB, &mem) == 0, "%s",
                  kvc_last_error(kvc));
    load_and_store(part);
    ck_assert_uint_eq(atomic_load(&fake.s->mem_kind), KVC_HANDLE_FD);
    ck_assert_uint_eq(atomic_load(&fake.s->mem_bytes), 4 * MIB);
    kvc_mem_free(&mem);
    ck_assert_int_eq(kvc_mem_register(gpu, (void *)(uintptr_t)part, 3 * MIB, &mem), -EOPNOTSUPP);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "not all of one allocation"));
    unmake_vmm(at, 4 * MIB, handle);
    close_all();
}

CASE(memory_of_cudamalloc_is_exported_by_ipc)
{
    CUdeviceptr at = 0;
    open_cuda();
    ck_assert_int_eq(CU(MemAlloc, 3020)(&at, 3 * MIB), 0);
    ck_assert_int_eq(kvc_mem_register(gpu, (void *)(uintptr_t)(at + 8192), MIB, &mem), 0);
    load_and_store(at + 8192);
    ck_assert_uint_eq(atomic_load(&fake.s->mem_kind), KVC_HANDLE_IPC);
    ck_assert_uint_eq(atomic_load(&fake.s->mem_bytes), MIB);
    ck_assert_uint_eq(atomic_load(&fake.s->mem_offset), 8192);
    kvc_mem_free(&mem);
    ck_assert_int_eq(kvc_mem_register(gpu, (void *)(uintptr_t)(at + MIB), 3 * MIB, &mem),
                     -EOPNOTSUPP);
    ck_assert_int_eq(CU(MemFree, 3020)(at), 0);
    close_all();
}

CASE(memory_that_cannot_be_exported_is_said_to_be_so)
{
    static uint8_t host[4096];
    CUdeviceptr at = 0;
    set("FAKE_CUDA_IPC", "0");
    open_cuda();
    ck_assert_int_eq(kvc_mem_register(gpu, host, sizeof(host), &mem), -EINVAL);
    ck_assert_int_eq(CU(MemAlloc, 3020)(&at, MIB), 0);
    ck_assert_int_eq(kvc_mem_register(gpu, (void *)(uintptr_t)at, MIB, &mem), -EOPNOTSUPP);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "kvc_gpu_load"));
    ck_assert_int_eq(CU(MemFree, 3020)(at), 0);
    close_all();
}

CASE(more_memory_than_there_is_is_refused)
{
    void *at = NULL;
    open_cuda();
    ck_assert_int_eq(kvc_mem_alloc(gpu, UINT64_C(1) << 40, &at, &mem), -ENOMEM);
    ck_assert_ptr_null(at);
    close_all();
}

/* ---- words ---- */

CASE(a_word_is_written_when_the_stream_comes_by)
{
    open_cuda();
    volatile uint64_t *w = kvc_gpu_words(gpu);
    control->hold(1);
    ck_assert_msg(kvc_gpu_signal(gpu, stream, 3, 9) == 0, "%s", kvc_last_error(kvc));
    usleep(20000);
    ck_assert_uint_eq(w[3], 0);
    control->hold(0);
    drain();
    ck_assert_uint_eq(w[3], 9);
    close_all();
}

CASE(a_stream_waits_for_a_load)
{
    void *at;
    struct kvc_op *op = NULL;
    struct kvc_result r;
    struct kvc_seq seq = seq_of(3);
    struct kvc_pages_load load = {.pages = {pages}};
    open_cuda();
    ck_assert_int_eq(kvc_mem_alloc(gpu, MIB, &at, &mem), 0);
    struct kvc_pool_spec spec = pool_spec();
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
    atomic_store(&fake.s->hit_blocks, 3);
    ck_assert_ptr_nonnull((const void *)kvc_gpu_words(gpu));
    load.after = (struct kvc_word){.word = 1, .value = 1};
    load.ready = (struct kvc_word){.word = 2, .value = 10};
    ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op), 0);
    ck_assert_int_eq(kvc_gpu_signal(gpu, stream, 0, 1), 0);
    ck_assert_int_eq(kvc_gpu_wait(gpu, stream, 1, 12), 0);
    ck_assert(device_is(at_of(at) + 9 * PAGE_BYTES, fake_page_byte(0, 0, 0), PAGE_BYTES));
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    close_all();
}

/* It would hang otherwise, with the engine behind it. */
CASE(a_stream_that_waits_for_a_load_goes_on_when_the_daemon_dies)
{
    void *at;
    struct kvc_op *op = NULL;
    struct kvc_result r;
    struct kvc_seq seq = seq_of(3);
    struct kvc_pages_load load = {.pages = {pages}};
    open_cuda();
    ck_assert_int_eq(kvc_mem_alloc(gpu, MIB, &at, &mem), 0);
    struct kvc_pool_spec spec = pool_spec();
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
    ck_assert_ptr_nonnull((const void *)kvc_gpu_words(gpu));
    fake_rule(&fake, KVC_OP_PAGES_LOAD, FAKE_SILENCE, 0, 1);
    load.ready = (struct kvc_word){.word = 2, .value = 10};
    ck_assert_int_eq(kvc_pages_load_begin(ns, &seq, pool, &load, &op), 0);
    ck_assert_int_eq(kvc_gpu_wait(gpu, stream, 1, 12), 0);
    usleep(20000);
    ck_assert_int_eq(CU(StreamQuery, 2000)(stream), CUDA_ERROR_NOT_READY);
    fake_kill(&fake);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_eq(r.prefix.tokens, 0);
    drain();
    close_all();
}

CASE(streams_that_know_no_words_are_said_to_be_so)
{
    set("FAKE_CUDA_WORDS", "0");
    open_cuda();
    ck_assert_int_eq(kvc_gpu_signal(gpu, stream, 0, 1), -EOPNOTSUPP);
    ck_assert_int_eq(kvc_gpu_wait(gpu, stream, 0, 1), -EOPNOTSUPP);
    close_all();
}

/* ---- slots ---- */

static int acquire(uint32_t blocks, uint32_t hbm, struct kvc_hold **ret_hold)
{
    struct kvc_seq seq = seq_of(8);
    atomic_store(&fake.s->hit_blocks, blocks);
    atomic_store(&fake.s->hbm_blocks, hbm);
    return kvc_acquire_on(ns, &seq, gpu, NULL, ret_hold);
}

CASE(blocks_on_the_device_are_read_in_place)
{
    struct kvc_hold *hold = NULL;
    open_cuda();
    atomic_store(&fake.s->hbm, FAKE_HBM_CUDA);
    ck_assert_msg(acquire(4, 3, &hold) == 0, "%s", kvc_last_error(kvc));
    for (uint32_t i = 0; i < 3; i++)
        ck_assert(
            device_is(at_of(kvc_hold_device(hold, 0, i)), fake_hbm_byte(0, i), FAKE_BLOCK_BYTES));
    ck_assert_ptr_null(kvc_hold_device(hold, 0, 3));
    struct DLManagedTensor *t = kvc_hold_dlpack(hold, 0, 2);
    ck_assert_int_eq(t->dl_tensor.device.type, DL_CUDA);
    ck_assert_int_eq(t->dl_tensor.device.id, 0);
    ck_assert_ptr_eq(t->dl_tensor.data, kvc_hold_device(hold, 0, 2));
    t->deleter(t);
    struct DLManagedTensorVersioned *v = kvc_hold_dlpack_versioned(hold, 0, 2);
    ck_assert_int_eq(v->dl_tensor.device.type, DL_CUDA);
    ck_assert_ptr_eq(v->dl_tensor.data, kvc_hold_device(hold, 0, 2));
    v->deleter(v);
    kvc_release(kvc, &hold);
    close_all();
}

static const enum fake_hbm wrong_memory[] = {FAKE_HBM_CUDA_OTHER, FAKE_HBM_CUDA_SHORT};

CASE_EACH(memory_of_the_daemons_that_is_not_what_it_says_is_refused, 2)
{
    struct kvc_hold *hold = NULL;
    open_cuda();
    atomic_store(&fake.s->hbm, wrong_memory[_i]);
    ck_assert_int_lt(acquire(4, 3, &hold), 0);
    ck_assert(kvc_is_up(kvc));
    atomic_store(&fake.s->hbm, FAKE_HBM_CUDA);
    ck_assert_int_eq(acquire(4, 3, &hold), 0);
    kvc_release(kvc, &hold);
    close_all();
}

/* ---- the worker's own copies ---- */

/* How the copies are made. */
static const struct {
    const char *name, *value;
    bool batch, kernel;
} ways[] = {
    {"FAKE_CUDA_DELAY_US", "50", true, true},
    {"FAKE_CUDA_VERSION", "12040", false, true},
    {"FAKE_CUDA_HOST_OFFSET", "0x10000000000", false, false}, /* other addresses on the device */
    {"FAKE_CUDA_READ_ONLY_PINS", "0", false, false},
    {"FAKE_CUDA_VERSION", "12080", true, true}, /* its kernel is PTX */
    {"FAKE_CUDA_FAIL", "cuModuleLoadData:1=209", true, true},
    {"FAKE_CUDA_FAIL", "cuModuleLoadData:1=209,cuModuleLoadData:2=218", true, false},
    {"FAKE_CUDA_FAIL", "cuMemHostRegister:1=2", false, false},
};

/* A pool of pages in memory that nobody exports. */
static struct kvc_pool_spec own_spec(uint64_t base, uint32_t stride)
{
    struct kvc_pool_spec spec = pool_spec();
    for (uint32_t r = 0; r < REGIONS; r++) {
        regions[r].mem = NULL;
        regions[r].base = base + (uint64_t)r * PAGES * stride;
        regions[r].stride_bytes = stride;
    }
    return spec;
}

CASE_EACH(a_hold_is_copied_into_pages, sizeof(ways) / sizeof(ways[0]))
{
    static const uint32_t list[] = {9, 4, 20, 21, 0, 31, 7, 2};
    const uint32_t *const lists[KVC_GROUPS_MAX] = {list};
    struct kvc_hold *hold = NULL;
    CUdeviceptr own = 0;
    set(ways[_i].name, ways[_i].value);
    open_cuda();
    ck_assert_int_eq(CU(MemAlloc, 3020)(&own, MIB), 0);
    struct kvc_pool_spec spec = own_spec(own, 2048);
    struct kvc_seq seq = seq_of(4);
    atomic_store(&fake.s->hit_blocks, 4);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    ck_assert_msg(kvc_gpu_load(gpu, hold, &spec, lists, stream) == 0, "%s", kvc_last_error(kvc));
    for (uint32_t i = 0; i < 4 * PPB; i++) {
        for (uint32_t r = 0; r < REGIONS; r++)
            ck_assert(device_is(own + ((uint64_t)r * PAGES + list[i]) * 2048, fake_byte(0, i / PPB),
                                PAGE_BYTES));
    }
    ck_assert((control->calls("cuLaunchKernel") > 0) == ways[_i].kernel);
    ck_assert((control->calls("cuMemcpyBatchAsync") > 0) == (ways[_i].batch && !ways[_i].kernel));
    ck_assert_int_eq(CU(MemFree, 3020)(own), 0);
    kvc_release(kvc, &hold);
    close_all();
}

/* The default streams: a thread's own takes batches, the legacy one does not. */
CASE_EACH(a_default_stream_is_as_good_as_one_that_was_made, 6)
{
    const CUstream defaults[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    static const uint32_t list[] = {9, 4, 20, 21, 0, 31, 7, 2};
    const uint32_t *const lists[KVC_GROUPS_MAX] = {list};
    struct kvc_hold *hold = NULL;
    CUdeviceptr own = 0;
    if (_i >= 3)
        set("FAKE_CUDA_FAIL", "cuModuleLoadData:1=209,cuModuleLoadData:2=218");
    open_cuda();
    const CUstream made = stream;
    stream = defaults[_i % 3];
    ck_assert_int_eq(CU(MemAlloc, 3020)(&own, MIB), 0);
    struct kvc_pool_spec spec = own_spec(own, 2048);
    struct kvc_seq seq = seq_of(4);
    atomic_store(&fake.s->hit_blocks, 4);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    ck_assert_msg(kvc_gpu_load(gpu, hold, &spec, lists, stream) == 0, "%s", kvc_last_error(kvc));
    ck_assert_int_eq(kvc_gpu_signal(gpu, stream, 3, 77), 0);
    ck_assert_int_eq(kvc_gpu_wait(gpu, stream, 3, 77), 0);
    for (uint32_t i = 0; i < 4 * PPB; i++)
        ck_assert(device_is(own + (uint64_t)list[i] * 2048, fake_byte(0, i / PPB), PAGE_BYTES));
    ck_assert_uint_eq(kvc_gpu_words(gpu)[3], 77);
    ck_assert((control->calls("cuMemcpyBatchAsync") > 0) == (_i == 5));
    drain();
    stream = made;
    ck_assert_int_eq(CU(MemFree, 3020)(own), 0);
    kvc_release(kvc, &hold);
    close_all();
}

/* Before it has done anything that would end the capture: the fake aborts upon that. */
CASE_EACH(a_stream_under_capture_is_refused_by_name, 2)
{
    static const uint32_t list[] = {9, 4, 20, 21, 0, 31, 7, 2};
    static const uint64_t offsets[] = {8192, 64};
    const uint32_t *const lists[KVC_GROUPS_MAX] = {list};
    struct kvc_hold *hold = NULL;
    CUdeviceptr own = 0;
    open_cuda();
    const CUstream asked = _i == 0 ? stream : NULL;
    ck_assert_int_eq(CU(MemAlloc, 3020)(&own, MIB), 0);
    struct kvc_pool_spec spec = own_spec(own, 2048);
    struct kvc_seq seq = seq_of(4);
    atomic_store(&fake.s->hit_blocks, 4);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    control->capture(1);
    const uint64_t before = control->calls("cuMemHostRegister");
    const int refused[] = {kvc_gpu_load(gpu, hold, &spec, lists, asked),
                           kvc_gpu_stage(gpu, &spec, 0, list, 2, offsets, asked),
                           kvc_gpu_signal(gpu, asked, 3, 77), kvc_gpu_wait(gpu, asked, 3, 77)};
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(refused[i], -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "captured into a graph"));
    ck_assert_uint_eq(control->calls("cuMemHostRegister"), before);
    control->capture(0);
    ck_assert_int_eq(kvc_gpu_load(gpu, hold, &spec, lists, asked), 0);
    ck_assert_int_eq(kvc_gpu_signal(gpu, asked, 3, 77), 0);
    const CUstream made = stream;
    stream = asked;
    drain();
    stream = made;
    ck_assert_int_eq(CU(MemFree, 3020)(own), 0);
    kvc_release(kvc, &hold);
    close_all();
}

/* Slots are mapped for reading, where the driver can: a worker that writes to one loses its own
 * context, and nobody else's bytes. */
CASE_EACH(slots_are_mapped_for_reading, 2)
{
    struct kvc_hold *hold = NULL;
    set("FAKE_CUDA_READ_ONLY_MAPS", _i == 0 ? "1" : "0");
    open_cuda();
    atomic_store(&fake.s->hbm, FAKE_HBM_CUDA);
    ck_assert_int_eq(acquire(4, 2, &hold), 0);
    const CUdeviceptr slot = at_of(kvc_hold_device(hold, 0, 0));
    uint8_t byte = (uint8_t)(1 + fake_hbm_byte(0, 0));
    put(slot, &byte, 1);
    ck_assert_int_eq(CU(StreamQuery, 2000)(stream),
                     _i == 0 ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS);
    if (_i == 1) {
        kvc_release(kvc, &hold);
        close_all();
    }
}

CASE(blocks_on_the_device_are_copied_there)
{
    static const uint32_t list[] = {9, 4, 20, 21, 0, 31, 7, 2};
    const uint32_t *const lists[KVC_GROUPS_MAX] = {list};
    struct kvc_hold *hold = NULL;
    CUdeviceptr own = 0;
    open_cuda();
    atomic_store(&fake.s->hbm, FAKE_HBM_CUDA);
    ck_assert_int_eq(CU(MemAlloc, 3020)(&own, MIB), 0);
    struct kvc_pool_spec spec = own_spec(own, PAGE_BYTES);
    ck_assert_int_eq(acquire(4, 2, &hold), 0);
    ck_assert_int_eq(kvc_gpu_load(gpu, hold, &spec, lists, stream), 0);
    for (uint32_t i = 0; i < 4 * PPB; i++) {
        uint8_t byte = i / PPB < 2 ? fake_hbm_byte(0, i / PPB) : fake_byte(0, i / PPB);
        ck_assert(device_is(own + ((uint64_t)3 * PAGES + list[i]) * PAGE_BYTES, byte, PAGE_BYTES));
    }
    ck_assert_int_eq(CU(MemFree, 3020)(own), 0);
    kvc_release(kvc, &hold);
    close_all();
}

/* What the copies do for which there is no list: batches, from CUDA 12.8 on and where the device
 * can (it is asked once). */
static const struct {
    const char *version, *fail;
    unsigned batches;
} engines[] = {
    {"13000", "", 4}, {"12080", "", 4}, {"12040", "", 0}, {"13000", "cuMemcpyBatchAsync:1=801", 1}};

/* More launches than lists, none of which the device has come to yet: nobody waits for it. */
CASE_EACH(copies_are_never_waited_for, sizeof(engines) / sizeof(engines[0]))
{
    set("FAKE_CUDA_VERSION", engines[_i].version);
    set("FAKE_CUDA_FAIL", engines[_i].fail);
    static const uint32_t list[] = {9, 4, 20, 21, 0, 31, 7, 2};
    const uint32_t *const lists[KVC_GROUPS_MAX] = {list};
    struct kvc_hold *hold = NULL;
    CUdeviceptr own = 0;
    open_cuda();
    ck_assert_int_eq(CU(MemAlloc, 3020)(&own, MIB), 0);
    struct kvc_pool_spec spec = own_spec(own, 2048);
    struct kvc_seq seq = seq_of(4);
    atomic_store(&fake.s->hit_blocks, 4);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    control->hold(1);
    for (int i = 0; i < 12; i++)
        ck_assert_int_eq(kvc_gpu_load(gpu, hold, &spec, lists, stream), 0);
    ck_assert_uint_eq(control->calls("cuLaunchKernel"), 8);
    ck_assert_uint_eq(control->calls("cuMemcpyBatchAsync"), engines[_i].batches);
    control->hold(0);
    drain();
    ck_assert_int_eq(CU(MemFree, 3020)(own), 0);
    kvc_release(kvc, &hold);
    close_all();
}

CASE_EACH(pages_are_copied_to_staging, sizeof(ways) / sizeof(ways[0]))
{
    static const uint32_t list[] = {9, 4, 20, 21};
    static const uint64_t offsets[] = {8192, 64};
    CUdeviceptr own = 0;
    uint8_t page[PAGE_BYTES];
    set(ways[_i].name, ways[_i].value);
    open_cuda();
    ck_assert_int_eq(CU(MemAlloc, 3020)(&own, MIB), 0);
    struct kvc_pool_spec spec = own_spec(own, 2048);
    for (uint32_t r = 0; r < REGIONS; r++) {
        for (uint32_t i = 0; i < 4; i++) {
            memset(page, (int)(r * 16 + i + 1), sizeof(page));
            put(own + ((uint64_t)r * PAGES + list[i]) * 2048, page, sizeof(page));
        }
    }
    for (int turn = 0; turn < 2; turn++) {
        const uint8_t *staging = kvc_staging(kvc, NULL);
        ck_assert_ptr_nonnull(staging);
        ck_assert_msg(kvc_gpu_stage(gpu, &spec, 0, list, 2, offsets, stream) == 0, "%s",
                      kvc_last_error(kvc));
        drain();
        for (uint32_t b = 0; b < 2; b++) {
            for (uint32_t i = 0; i < REGIONS * PPB; i++)
                ck_assert(is_filled(staging + offsets[b] + (size_t)i * PAGE_BYTES,
                                    (uint8_t)(i / PPB * 16 + b * PPB + i % PPB + 1), PAGE_BYTES));
        }
        /* Another daemon: another area, at the same addresses. */
        fake_kill(&fake);
        fake_start(&fake);
        for (uint64_t end = fake_now_ms() + 20000; fake_now_ms() < end;) {
            uint64_t ms;
            if (kvc_ping(kvc, &ms) == 0 && kvc_epoch(kvc) == (uint32_t)turn + 2)
                break;
            usleep(10000);
        }
    }
    ck_assert_int_eq(CU(MemFree, 3020)(own), 0);
    close_all();
}

/* ---- failures ---- */

/* Each of the driver's functions in turn refuses its nth call: what the library was asked for is
 * done or refused, and nothing is left behind. */
static const char *const refusing[] = {
    "cuCtxPushCurrent",
    "cuPointerGetAttribute",
    "cuMemGetAllocationGranularity",
    "cuMemCreate",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemRetainAllocationHandle",
    "cuMemExportToShareableHandle",
    "cuMemImportFromShareableHandle",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuMemHostRegister",
    "cuMemHostGetDevicePointer",
    "cuMemHostAlloc",
    "cuEventCreate",
    "cuEventRecord",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuMemcpyBatchAsync",
    "cuMemcpyAsync",
    "cuStreamWriteValue64",
};

/* 1 when something was refused. */
static int work(uint64_t own)
{
    static const uint32_t list[] = {9, 4, 20, 21, 0, 31, 7, 2};
    static const uint64_t offset = 0;
    const uint32_t *const lists[KVC_GROUPS_MAX] = {list};
    struct kvc_hold *hold = NULL;
    struct kvc_mem *second = NULL;
    void *at = NULL;
    int bad = 0;
    mem = NULL;
    if (kvc_mem_alloc(gpu, MIB, &at, &mem) == 0) {
        struct kvc_pool_spec spec = pool_spec();
        bad |= kvc_pool_open(gpu, &spec, &pool) != 0;
        bad |= kvc_mem_register(gpu, (uint8_t *)at + 4096, 4096, &second) != 0;
    } else {
        bad = 1;
    }
    struct kvc_pool_spec spec = own_spec(own, 2048);
    bad |= kvc_gpu_signal(gpu, stream, 0, 1) != 0;
    bad |= acquire(4, 2, &hold) != 0;
    if (hold != NULL)
        bad |= kvc_gpu_load(gpu, hold, &spec, lists, stream) != 0;
    bad |= kvc_staging(kvc, NULL) == NULL ||
           kvc_gpu_stage(gpu, &spec, 0, list, 1, &offset, stream) != 0;
    regions[0].page_bytes = 2048;
    spec.group[0].regions = 1;
    spec.group[0].pages_per_block = 1;
    bad |= kvc_gpu_stage(gpu, &spec, 0, list, 1, &offset, stream) != 0; /* one fragment */
    drain();
    kvc_release(kvc, &hold);
    kvc_pool_close(&pool);
    kvc_mem_free(&second);
    kvc_mem_free(&mem);
    return bad;
}

CASE_EACH(a_driver_that_refuses_leaves_nothing_behind, sizeof(refusing) / sizeof(refusing[0]))
{
    CUdeviceptr own = 0;
    char text[64];
    int refused = 0;
    atomic_store(&fake.s->hbm, FAKE_HBM_CUDA);
    open_cuda();
    ck_assert_int_eq(CU(MemAlloc, 3020)(&own, MIB), 0);
    kvc_gpu_close(&gpu);
    for (unsigned nth = 1; nth <= 3; nth++) {
        snprintf(text, sizeof(text), "%s:%u=801", refusing[_i], nth);
        control->arm(text);
        if (kvc_gpu_open(kvc, "cuda:0", &gpu) != 0)
            continue;
        refused += work(own);
        kvc_gpu_close(&gpu);
    }
    control->arm("");
    ck_assert_uint_gt(control->calls(refusing[_i]), 0);
    ck_assert_int_eq(kvc_gpu_open(kvc, "cuda:0", &gpu), 0);
    ck_assert_msg(work(own) == 0, "%d before; %s", refused, kvc_last_error(kvc));
    ck_assert_int_eq(CU(MemFree, 3020)(own), 0);
    close_all();
}

CASE(a_child_does_not_call_the_driver)
{
    void *at;
    struct kvc_hold *hold = NULL;
    int status;
    open_cuda();
    atomic_store(&fake.s->hbm, FAKE_HBM_CUDA);
    ck_assert_int_eq(kvc_mem_alloc(gpu, MIB, &at, &mem), 0);
    ck_assert_int_eq(acquire(4, 2, &hold), 0);
    ck_assert_int_eq(kvc_gpu_signal(gpu, stream, 0, 1), 0);
    drain();
    pid_t pid = fork();
    if (pid == 0) {
        static const char *const calls[] = {"cuMemRelease", "cuMemUnmap", "cuMemHostUnregister",
                                            "cuDevicePrimaryCtxRelease", "cuCtxPushCurrent"};
        uint64_t before = 0, after = 0;
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
            before += control->calls(calls[i]);
        kvc_release(kvc, &hold);
        kvc_mem_free(&mem);
        kvc_close(&kvc);
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
            after += control->calls(calls[i]);
        _exit(before != after);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    kvc_release(kvc, &hold);
    close_all();
}
