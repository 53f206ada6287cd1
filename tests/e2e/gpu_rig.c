/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_rig.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *gpu_rig_device(void)
{
    const char *name = getenv("KVC_TEST_DEVICE");
    return name != NULL && name[0] != '\0' ? name : "emu:0";
}

const char *gpu_rig_setting(const char *size)
{
    static char text[128];
    snprintf(text, sizeof(text), "hbm.devices=%s=%s", gpu_rig_device(), size);
    return text;
}

static bool is_emulated(void)
{
    return strncmp(gpu_rig_device(), "emu:", 4) == 0;
}

const char *gpu_rig_problem(void)
{
    if (is_emulated() || dlopen("libcuda.so.1", RTLD_NOW) != NULL)
        return NULL;
    return "this machine has no NVIDIA driver (libcuda.so.1)";
}

/* ---- bytes on the device ---- */

/* The driver as any program has it: the functions by name and version, without its headers. */
static struct {
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*make_stream)(void **stream, unsigned flags, int priority);
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
    int (*query)(void *stream);
    void *context, *stream;
} cuda;

static void use_cuda(void)
{
    typedef int get_fn(const char *name, void **function, int version, uint64_t flags,
                       void *status);
    static const struct {
        const char *name;
        int version;
        void *to;
    } calls[] = {{"cuDevicePrimaryCtxRetain", 7000, (void *)&cuda.retain},
                 {"cuCtxSetCurrent", 4000, (void *)&cuda.set_current},
                 {"cuStreamCreateWithPriority", 5050, (void *)&cuda.make_stream},
                 {"cuMemcpyAsync", 4000, (void *)&cuda.copy},
                 {"cuStreamQuery", 2000, (void *)&cuda.query}};
    if (cuda.stream != NULL)
        return;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    ck_assert_msg(library != NULL, "%s", dlerror());
    get_fn *get = (get_fn *)dlsym(library, "cuGetProcAddress_v2");
    ck_assert_ptr_nonnull((const void *)get);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        ck_assert_int_eq(get(calls[i].name, calls[i].to, calls[i].version, 0, NULL), 0);
    ck_assert_int_eq(cuda.retain(&cuda.context, 0), 0); /* the library has called cuInit */
    ck_assert_int_eq(cuda.set_current(cuda.context), 0);
    ck_assert_int_eq(cuda.make_stream(&cuda.stream, 1, 0), 0);
}

void *gpu_stream(void)
{
    if (!is_emulated())
        use_cuda();
    return cuda.stream;
}

void gpu_sync(void)
{
    int rc = 0;
    if (gpu_stream() == NULL)
        return;
    while ((rc = cuda.query(cuda.stream)) == 600) { /* not ready */
    }
    ck_assert_int_eq(rc, 0);
}

static void copy(uint64_t to, uint64_t from, uint64_t bytes)
{
    if (is_emulated()) {
        memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
        return;
    }
    void *stream = gpu_stream();
    ck_assert_int_eq(cuda.copy(to, from, bytes, stream), 0);
    gpu_sync();
}

void gpu_put(struct gpu_worker *w, uint64_t to, const void *from, uint64_t bytes)
{
    (void)w;
    copy(to, (uint64_t)(uintptr_t)from, bytes);
}

void gpu_get(struct gpu_worker *w, void *to, uint64_t from, uint64_t bytes)
{
    (void)w;
    copy((uint64_t)(uintptr_t)to, from, bytes);
}

/* ---- the worker ---- */

static struct kvc_pool_region region_of(const struct gpu_worker *w, uint32_t r)
{
    const uint64_t page = GPU_PAGE;
    switch (w->layout) {
    case GPU_APART:
        return (struct kvc_pool_region){
            .base = r * GPU_PAGES * page, .stride_bytes = page, .page_bytes = page, .layer = r / 2};
    case GPU_BESIDE:
        return (struct kvc_pool_region){.base = (r / 2) * GPU_PAGES * 2 * page + (r % 2) * page,
                                        .stride_bytes = 2 * page,
                                        .page_bytes = page,
                                        .layer = r / 2};
    case GPU_ACROSS:
        return (struct kvc_pool_region){.base = r * page,
                                        .stride_bytes = GPU_REGIONS * page,
                                        .page_bytes = page,
                                        .layer = r / 2};
    default:
        return (struct kvc_pool_region){.base = r * GPU_PAGES * 2 * page,
                                        .stride_bytes = 2 * page,
                                        .page_bytes = 2 * page,
                                        .layer = r};
    }
}

struct kvc_pool_spec gpu_spec(const struct gpu_worker *w)
{
    return (struct kvc_pool_spec){
        .pages_max = GPU_PAGES,
        .groups = 1,
        .group = {{.pages_per_block = GPU_PPB, .regions = w->regions, .region = w->region}}};
}

void gpu_open_pool(struct gpu_worker *w)
{
    struct kvc_pool_spec spec = gpu_spec(w);
    int rc = kvc_pool_open(w->gpu, &spec, &w->pool);
    ck_assert_msg(rc == 0, "kvc_pool_open: %s: %s", kvc_error_name(rc), kvc_last_error(w->k));
}

static int take_first(void *ctx, const void *row)
{
    const struct kvc_device *d = row;
    *(struct kvc_device *)ctx = *d;
    return 1;
}

bool gpu_device_is_up(struct kvc *k)
{
    struct kvc_device d = {.up = false};
    return kvc_is_up(k) && kvc_list(k, KVC_TABLE_DEVICES, NULL, take_first, &d) == 1 && d.up;
}

struct kvc_device gpu_device(struct kvc *k)
{
    struct kvc_device d = {.up = false};
    int rc = kvc_list(k, KVC_TABLE_DEVICES, NULL, take_first, &d);
    ck_assert_msg(rc == 1, "kvc_list: %s: %s", rc < 0 ? kvc_error_name(rc) : "no device",
                  kvc_last_error(k));
    return d;
}

void gpu_open(struct gpu_worker *w, const struct rig *r, enum gpu_layout layout)
{
    void *at;
    *w = (struct gpu_worker){.layout = layout};
    w->regions = layout < GPU_TOGETHER ? GPU_REGIONS : GPU_LAYERS;
    w->k = rig_open(r, 4u << 20);
    /* What is in a page is part of what a block is. */
    w->ns = rig_ns(w->k, layout < GPU_TOGETHER ? "gpu" : "gpu-wide", GPU_BT, RIG_BLOCK);
    for (uint64_t end = rig_now_ms() + 60000; rig_now_ms() < end && !gpu_device(w->k).up;)
        rig_sleep_ms(10);
    ck_assert_msg(gpu_device(w->k).up, "the device is out: %s", gpu_device(w->k).why);
    int rc = kvc_gpu_open(w->k, gpu_rig_device(), &w->gpu);
    ck_assert_msg(rc == 0, "kvc_gpu_open: %s", kvc_last_error(w->k));
    ck_assert_int_eq(kvc_mem_alloc(w->gpu, GPU_BYTES, &at, &w->mem), 0);
    w->at = (uint64_t)(uintptr_t)at;
    for (uint32_t i = 0; i < w->regions; i++) {
        w->region[i] = region_of(w, i);
        w->region[i].mem = w->mem;
    }
    gpu_open_pool(w);
}

void gpu_close(struct gpu_worker *w)
{
    if (w->k != NULL) {
        kvc_gpu_close(&w->gpu);
        kvc_close(&w->k);
    }
    w->pool = NULL;
    w->mem = NULL;
}

/* ---- pages ---- */

uint64_t gpu_page_at(const struct gpu_worker *w, uint32_t region, uint32_t page)
{
    return w->at + w->region[region].base + page * w->region[region].stride_bytes;
}

void gpu_put_block(struct gpu_worker *w, const uint32_t *pages, const void *block)
{
    const uint8_t *from = block;
    for (uint32_t r = 0; r < w->regions; r++) {
        for (uint32_t j = 0; j < GPU_PPB; j++, from += w->region[r].page_bytes)
            gpu_put(w, gpu_page_at(w, r, pages[j]), from, w->region[r].page_bytes);
    }
}

void gpu_get_block(struct gpu_worker *w, const uint32_t *pages, void *ret_block)
{
    uint8_t *to = ret_block;
    for (uint32_t r = 0; r < w->regions; r++) {
        for (uint32_t j = 0; j < GPU_PPB; j++, to += w->region[r].page_bytes)
            gpu_get(w, to, gpu_page_at(w, r, pages[j]), w->region[r].page_bytes);
    }
}

void gpu_fill_page(struct gpu_worker *w, uint32_t page, uint8_t byte)
{
    uint8_t bytes[2 * GPU_PAGE];
    memset(bytes, byte, sizeof(bytes));
    for (uint32_t r = 0; r < w->regions; r++)
        gpu_put(w, gpu_page_at(w, r, page), bytes, w->region[r].page_bytes);
}

bool gpu_page_is(struct gpu_worker *w, uint32_t page, uint8_t byte)
{
    uint8_t bytes[2 * GPU_PAGE];
    for (uint32_t r = 0; r < w->regions; r++) {
        gpu_get(w, bytes, gpu_page_at(w, r, page), w->region[r].page_bytes);
        for (uint64_t i = 0; i < w->region[r].page_bytes; i++) {
            if (bytes[i] != byte)
                return false;
        }
    }
    return true;
}

uint32_t gpu_random(uint64_t *random, uint32_t below)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*random >> 33) % below);
}

void gpu_pick_pages(uint64_t *random, uint32_t n, uint32_t *ret_pages)
{
    uint32_t all[GPU_PAGES];
    for (uint32_t i = 0; i < GPU_PAGES; i++)
        all[i] = i;
    ck_assert_uint_le(n, GPU_PAGES);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i + gpu_random(random, GPU_PAGES - i);
        ret_pages[i] = all[at];
        all[at] = all[i];
    }
}
