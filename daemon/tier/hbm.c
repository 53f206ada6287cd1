/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device as core sees it (api/device.h): configuration, its making and end, and what happens when
 * the device is lost or back. The other hbm_*.c have room, pools and copies.
 */
#include "hbm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_name.h"
#include "hbm__.h"
#include "sys.h"

/* --- configuration --- */

const char *hbm_config_problem(const struct hbm_config *config)
{
    if (config->no >= DEVICES_MAX)
        return "there can be at most 16 devices";
    if (config->gpu.device == NULL)
        return "a device must be named: GPU-<uuid>, cuda:<ordinal> or emu:<number>";
    const char *problem = gpu_name_problem(config->gpu.device);
    if (problem != NULL || config->limit_bytes == 0)
        return problem;
    if (config->limit_bytes < HBM_LIMIT_MIN || config->limit_bytes > HBM_LIMIT_MAX)
        return "a device's limit must be 0 (no blocks there) or 8MiB to 8TiB";
    if (config->chunk_bytes == 0)
        return NULL;
    if (config->chunk_bytes % HBM_CHUNK_UNIT != 0 || config->chunk_bytes > ARENA_CHUNK_MAX)
        return "a device's chunk must be auto, or 2MiB to 1GiB and a multiple of 2MiB";
    if (config->limit_bytes / config->chunk_bytes < 2)
        return "a device's chunk must be at most half of its limit";
    if (config->limit_bytes / config->chunk_bytes > HBM_CHUNKS_MAX)
        return "a device's chunk is too small for its limit: at most 16384 chunks, each of which "
               "takes two descriptors";
    return NULL;
}

uint64_t hbm_host_bytes(const struct hbm_config *config)
{
    MUST(hbm_config_problem(config) == NULL);
    return sizeof(struct hbm) + hbm__slots_host_bytes(config) + hbm__pins_host_bytes() +
           hbm__verify_host_bytes(config);
}

/* --- the device comes and goes --- */

static void lost(struct hbm *h)
{
    h->up = false;
    hbm__slots_lost(h);
    hbm__copies_look(h);
    if (h->device.events.lost != NULL)
        h->device.events.lost(h->device.events.ctx, &h->device);
}

static void on_changed(void *ctx, struct gpu *gpu)
{
    struct hbm *h = ctx;
    const bool up = gpu_state(gpu) == GPU_UP;
    if (h->closing)
        return;
    if (h->up && (!up || gpu_generation(gpu) != h->generation))
        lost(h);
    if (h->up || !up)
        return;
    h->up = true;
    h->generation = gpu_generation(gpu);
    hbm__pins_up(h);
    if (h->device.events.up != NULL)
        h->device.events.up(h->device.events.ctx, &h->device);
}

static const char *on_up(void *ctx, const uint8_t uuid[GPU_UUID_BYTES])
{
    const struct hbm *h = ctx;
    return h->config.refuse != NULL ? h->config.refuse(h->config.refuse_ctx, h->device.no, uuid)
                                    : NULL;
}

/* --- device_ops --- */

/* The path that copies of fragments of this size take; UNKNOWN: neither path was measured. */
static uint8_t path_taken(const struct hbm *h, enum gpu_direction direction, uint64_t frag_bytes,
                          const uint64_t *rate)
{
    if (rate[GPU_PATH_ENGINE] == 0 && rate[GPU_PATH_KERNEL] == 0)
        return KVC_COPY_UNKNOWN;
    return gpu_path_of(h->gpu, direction, frag_bytes) == GPU_PATH_KERNEL ? KVC_COPY_KERNEL
                                                                         : KVC_COPY_ENGINE;
}

static bool op_up(const struct device *d)
{
    return hbm__is_up(hbm__of(d));
}

static void hbm_op_view(struct device *d, struct device_view *ret_view)
{
    const struct hbm *h = hbm__of(d);
    const struct gpu_metrics *m = gpu_metrics(h->gpu);
    const struct gpu_rates *r = gpu_rates(h->gpu);
    const char *name = gpu_name(h->gpu);
    struct device_view v = {
        .name = name[0] != '\0' ? name : h->name,
        .why = gpu_why(h->gpu),
        .up = hbm__is_up(h),
        .emulated = gpu_is_emulated(h->gpu),
        .limit_bytes = h->config.limit_bytes,
        .memory_bytes = m->memory_bytes,
        .imported_bytes = m->imported_bytes,
        .held_bytes = hbm__held_bytes(h),
        .copies = m->copies,
        .copy_bytes = m->copy_bytes,
        .failures = m->failures,
        .outs = m->outs,
        .plain_to = r->plain_to,
        .plain_from = r->plain_from,
    };
    _Static_assert(DEVICE_RATES == GPU_CALIBRATED, "one row each");
    memcpy(v.uuid, gpu_uuid(h->gpu), sizeof(v.uuid));
    if (name[0] != '\0')
        device_name_print(v.uuid, v.emulated, v.device);
    else
        (void)!snprintf(v.device, sizeof(v.device), "%s", h->name);
    for (unsigned i = 0; i < DEVICE_RATES; i++)
        v.rate[i] = (struct device_rate){
            .frag_bytes = r->frag_bytes[i],
            .to_engine = r->to[i][GPU_PATH_ENGINE],
            .to_kernel = r->to[i][GPU_PATH_KERNEL],
            .from_engine = r->from[i][GPU_PATH_ENGINE],
            .from_kernel = r->from[i][GPU_PATH_KERNEL],
            .to_window = gpu_window_rate(r, i),
            .to_path = path_taken(h, GPU_TO_DEVICE, r->frag_bytes[i], r->to[i]),
            .from_path = path_taken(h, GPU_FROM_DEVICE, r->frag_bytes[i], r->from[i]),
        };
    if (h->arena != NULL) {
        struct arena_stats as;
        arena_stats(h->arena, &as);
        v.used_bytes = as.used_bytes;
    }
    *ret_view = v;
}

static const struct device_ops hbm_ops = {
    .up = op_up,
    .view = hbm_op_view,
    .mem_import = hbm__mem_import,
    .mem_drop = hbm__mem_drop,
    .pool_open = hbm__pool_open,
    .pool_close = hbm__pool_close,
    .pool_block_bytes = hbm__pool_block_bytes,
    .submit = hbm__copy_submit,
    .chunk_export = hbm__chunk_export,
    .chunk_lend = hbm__chunk_lend,
    .chunk_give_back = hbm__chunk_give_back,
};

/* --- create, destroy --- */

static int hbm_fill(struct hbm *h)
{
    int err = hbm__slots_create(h);
    if (err == 0)
        err = hbm__copies_create(h);
    if (err == 0)
        err = hbm__pins_create(h);
    if (err == 0)
        err = hbm__verify_create(h);
    if (err < 0)
        return err;
    /* Last, because it calls callbacks from here on. */
    return gpu_open(&h->config.gpu, h->loop, &h->gpu);
}

int hbm_create(const struct hbm_config *config, struct loop *loop, struct hbm **ret_hbm)
{
    if (hbm_config_problem(config) != NULL)
        return -EINVAL;
    struct hbm *h = sys_calloc(1, sizeof(*h));
    if (h == NULL)
        return -ENOMEM;
    h->device.ops = &hbm_ops;
    h->device.no = config->no;
    h->config = *config;
    (void)snprintf(h->name, sizeof(h->name), "%s", config->gpu.device);
    h->config.gpu.device = h->name;
    h->config.gpu.changed = on_changed;
    h->config.gpu.refuse = on_up;
    h->config.gpu.ctx = h;
    h->loop = loop;
    h->copies.timer = -1;
    list_init(&h->mems);
    list_init(&h->pools);
    list_init(&h->copies.parked);
    list_init(&h->pins.list);
    const int err = hbm_fill(h);
    if (err < 0) {
        hbm_destroy(&h);
        return err;
    }
    *ret_hbm = h;
    return 0;
}

void hbm_destroy(struct hbm **hbm)
{
    if (hbm == NULL || *hbm == NULL)
        return;
    struct hbm *h = *hbm;
    h->closing = true;
    hbm__copies_look(h);
    gpu_close(&h->gpu);
    hbm__verify_destroy(h);
    hbm__copies_destroy(h);
    hbm__pools_destroy(h);
    hbm__slots_destroy(h);
    hbm__pins_destroy(h);
    free(h);
    *hbm = NULL;
}

struct device *hbm_device(struct hbm *h)
{
    return h != NULL ? &h->device : NULL;
}

struct gpu *hbm_gpu(struct hbm *h)
{
    return h->gpu;
}

void hbm_set_retired_cb(struct hbm *h, void (*fn)(void *ctx, uint32_t chunk, uint32_t principal),
                        void *ctx)
{
    h->retired = fn;
    h->retired_ctx = ctx;
}

/* --- notes --- */

static const char *state_text(const struct hbm *h)
{
    if (hbm__is_up(h))
        return "up";
    return gpu_state(h->gpu) == GPU_OUT ? "out: " : "starting";
}

const char *hbm_note(struct hbm *h)
{
    char room[128] = "no room for blocks";
    if (h->arena != NULL)
        (void)snprintf(room, sizeof(room), "%llu MiB for blocks in %u chunks of %llu MiB",
                       (unsigned long long)(h->chunks * h->chunk_bytes / HBM_MIB), h->chunks,
                       (unsigned long long)(h->chunk_bytes / HBM_MIB));
    (void)snprintf(h->note, sizeof(h->note), "device %u, %s (%s): %s; %s%s", h->device.no, h->name,
                   gpu_name(h->gpu), room, state_text(h), gpu_why(h->gpu));
    return h->note;
}
