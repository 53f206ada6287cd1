/* SPDX-License-Identifier: Apache-2.0 */
#include "node_hbm.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gpu.h"
#include "log.h"
#include "stat.h"
#include "svc.h"
#include "sys.h"

/* The least bytes of a block's copy on a device: a page. */
#define HBM_BYTES_MIN 4096u
#define CHUNK_BYTES   (UINT64_C(64) << 20)
/* WATCHES_EACH: a device's inbox, the timer of its thread and that of its copies.
 * DESCRIPTORS_EACH: these and the ones that its driver opens. */
#define WATCHES_EACH     3u
#define DESCRIPTORS_EACH 64u
#define MPS_DIRECTORY    "/tmp/nvidia-mps" /* where the driver looks for MPS by default */

METRIC_STRUCT(device, DEVICE_METRICS);
METRIC_DESC(device, DEVICE_METRICS);

struct node_hbm {
    uint32_t n;
    struct hbm *hbm[DEVICES_MAX];
    struct device *device[DEVICES_MAX];
    struct device_metrics metrics[DEVICES_MAX];
    char prefix[DEVICES_MAX][24];
    char name[DEVICES_MAX][HBM_DEVICE_NAME_BYTES];
    char twice[160];   /* text: why refuse_twice() refused a device last */
    struct host *host; /* borrowed */
};

/* ---- from configuration to parts ---- */

static bool is_emulated(const struct hbm_device_entry *d)
{
    return strncmp(d->name, "emu:", 4) == 0;
}

static bool all_emulated(const struct config *cfg)
{
    for (uint32_t i = 0; i < cfg->hbm.devices.n; i++)
        if (!is_emulated(&cfg->hbm.devices.entry[i]))
            return false;
    return true;
}

static struct hbm_config hbm_config_of(const struct config *cfg, uint32_t i)
{
    const struct hbm_device_entry *d = &cfg->hbm.devices.entry[i];
    return (struct hbm_config){
        .gpu = {.device = d->name,
                .wanted_bytes = d->limit_bytes,
                .calibrate = true,
                .emu = {.memory_bytes = cfg->hbm.emu_memory,
                        .latency_ns = cfg->hbm.emu_latency,
                        .bytes_per_s = cfg->hbm.emu_bandwidth,
                        .fault_file = cfg->hbm.emu_fault[0] != '\0' ? cfg->hbm.emu_fault : NULL}},
        .no = i,
        .limit_bytes = d->limit_bytes,
        .chunk_bytes = d->limit_bytes != 0 ? cfg->hbm.chunk : 0};
}

static uint64_t limits_of(const struct config *cfg)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < cfg->hbm.devices.n; i++)
        sum += cfg->hbm.devices.entry[i].limit_bytes;
    return sum;
}

/* An upper bound: small devices have smaller, and so more, chunks. */
static uint64_t chunks_of(const struct config *cfg)
{
    const uint64_t chunk = cfg->hbm.chunk != 0 ? cfg->hbm.chunk : CHUNK_BYTES;
    return limits_of(cfg) / chunk + (uint64_t)cfg->hbm.devices.n * 33;
}

uint32_t node_hbm_loop_watches(const struct config *cfg)
{
    return WATCHES_EACH * cfg->hbm.devices.n;
}

uint64_t node_hbm_bytes(const struct config *cfg)
{
    uint64_t bytes =
        cfg->hbm.devices.n != 0 ? svc_device_bytes(cfg->limits.sessions, chunks_of(cfg)) : 0;
    for (uint32_t i = 0; i < cfg->hbm.devices.n; i++) {
        const struct hbm_config hbm = hbm_config_of(cfg, i);
        bytes += hbm_host_bytes(&hbm);
        bytes +=
            is_emulated(&cfg->hbm.devices.entry[i]) ? cfg->hbm.devices.entry[i].limit_bytes : 0;
    }
    return bytes;
}

/* Three descriptors for each chunk: two of its headers, one of its memory. */
uint64_t node_hbm_descriptors(const struct config *cfg)
{
    const uint64_t n = cfg->hbm.devices.n != 0 ? SVC_IMPORTS_MAX : 0;
    return n + DESCRIPTORS_EACH * (uint64_t)cfg->hbm.devices.n + 3 * chunks_of(cfg);
}

uint32_t node_hbm_copies_max(const struct config *cfg)
{
    return (uint32_t)MIN(limits_of(cfg) / HBM_BYTES_MIN, cfg->index.blocks);
}

/* ---- host memory ---- */

/* Registers a chunk of the host tier with all devices. Without that, copies are slower. */
static void node_hbm_on_ready(void *ctx, void *base, uint64_t bytes)
{
    struct node_hbm *h = ctx;
    for (uint32_t i = 0; i < h->n; i++)
        hbm_pin_host(h->hbm[i], base, bytes);
}

static void on_gone(void *ctx, void *base, uint64_t bytes)
{
    struct node_hbm *h = ctx;
    for (uint32_t i = 0; i < h->n; i++)
        hbm_unpin_host(h->hbm[i], base, bytes);
}

/* The largest value of all devices, not the sum: all devices register the same pages. */
static uint64_t on_leaving(void *ctx)
{
    const struct node_hbm *h = ctx;
    uint64_t most = 0;
    for (uint32_t i = 0; i < h->n; i++)
        most = MAX(most, hbm_leaving_bytes(h->hbm[i]));
    return most;
}

/* ---- life ---- */

/* Two names may mean one device (cuda:0 and its UUID): the name that comes up later is refused. A
 * device that came up once belongs to its name until the daemon ends. */
static const char *refuse_twice(void *ctx, uint32_t no, const uint8_t uuid[GPU_UUID_BYTES])
{
    static const uint8_t never_up[GPU_UUID_BYTES];
    struct node_hbm *h = ctx;
    for (uint32_t i = 0; i < h->n; i++) {
        const uint8_t *other = gpu_uuid(hbm_gpu(h->hbm[i]));
        if (i == no || memcmp(other, never_up, GPU_UUID_BYTES) == 0 ||
            memcmp(other, uuid, GPU_UUID_BYTES) != 0)
            continue;
        (void)snprintf(h->twice, sizeof h->twice,
                       "it is the same device as %s, which is in use; leave one of the two away in "
                       "hbm.devices",
                       h->name[i]);
        return h->twice;
    }
    return NULL;
}

static int open_one(struct node_hbm *h, const struct config *cfg, struct loop *loop,
                    node_hbm_retired_fn *retired, void *ctx)
{
    const uint32_t i = h->n;
    struct hbm_config hbm = hbm_config_of(cfg, i);
    hbm.refuse = refuse_twice;
    hbm.refuse_ctx = h;
    (void)snprintf(h->name[i], sizeof h->name[i], "%s", cfg->hbm.devices.entry[i].name);
    int err = hbm_create(&hbm, loop, &h->hbm[i]);
    if (err) {
        const char *problem = gpu_device_problem(cfg->hbm.devices.entry[i].name);
        LOG_ERROR("device %s: %s%s%s", cfg->hbm.devices.entry[i].name, err_name(err),
                  problem != NULL ? ": " : "", problem != NULL ? problem : "");
        return err;
    }
    hbm_set_retired_cb(h->hbm[i], retired, ctx);
    h->device[i] = hbm_device(h->hbm[i]);
    (void)snprintf(h->prefix[i], sizeof h->prefix[i], "device%u", i);
    h->n++;
    LOG_INFO("%s", hbm_note(h->hbm[i]));
    return 0;
}

/* Logs whether MPS is used. The driver finds MPS by a directory and reports nothing if there is
 * none; then kernels of the daemon and of workers run one after the other. */
static void log_mps(const struct config *cfg)
{
    const char *set = getenv("CUDA_MPS_PIPE_DIRECTORY");
    const char *dir = set != NULL && set[0] != '\0' ? set : MPS_DIRECTORY;
    char pipe[PATH_MAX];
    (void)snprintf(pipe, sizeof pipe, "%s/control", dir);
    if (access(pipe, F_OK) == 0)
        LOG_INFO("MPS: its control daemon is at %s: it has one server, for one uid at a time, so "
                 "workers must run with this daemon's uid (systemd/README.md); a GPU that fails %s",
                 dir,
                 cfg->hbm.exit_when_lost ? "ends this daemon"
                                         : "takes no new worker while this daemon stays attached: "
                                           "set hbm.exit_when_lost");
    else if (set != NULL)
        LOG_WARN("MPS: CUDA_MPS_PIPE_DIRECTORY is %s, and this process sees no %s: GPUs are used "
                 "without it. Start nvidia-cuda-mps-control first, in a directory that this "
                 "service sees: PrivateTmp=yes hides those in /tmp (systemd/README.md)",
                 dir, pipe);
}

int node_hbm_open(const struct config *cfg, struct loop *loop, struct host *host,
                  node_hbm_retired_fn *retired, void *ctx, struct node_hbm **ret_hbm)
{
    if (cfg->hbm.devices.n == 0) {
        *ret_hbm = NULL;
        return 0;
    }
    struct node_hbm *h = sys_calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    const char *text = gpu_cuda_text();
    if (!all_emulated(cfg)) {
        LOG_INFO("%s", text);
        log_mps(cfg);
    }
    int err = 0;
    while (!err && h->n < cfg->hbm.devices.n)
        err = open_one(h, cfg, loop, retired, ctx);
    if (err) {
        node_hbm_close(&h);
        return err;
    }
    h->host = host;
    host_set_ready_cb(host, node_hbm_on_ready, on_gone, on_leaving, h);
    *ret_hbm = h;
    return 0;
}

void node_hbm_close(struct node_hbm **hbm)
{
    struct node_hbm *h = *hbm;
    if (!h)
        return;
    if (h->host)
        host_set_ready_cb(h->host, NULL, NULL, NULL, NULL);
    for (uint32_t i = h->n; i-- > 0;)
        hbm_destroy(&h->hbm[i]);
    free(h);
    *hbm = NULL;
}

struct device *const *node_hbm_devices(const struct node_hbm *h, uint32_t *ret_n)
{
    *ret_n = h ? h->n : 0;
    return h ? h->device : NULL;
}

bool node_hbm_ends(const struct node_hbm *h, const struct config *cfg)
{
    for (uint32_t i = 0; h && cfg->hbm.exit_when_lost && i < h->n; i++) {
        const struct gpu *gpu = hbm_gpu(h->hbm[i]);
        if (gpu_generation(gpu) == 0 || gpu_state(gpu) != GPU_OUT)
            continue;
        LOG_ERROR("device %s has failed, and hbm.exit_when_lost is true: leaving", h->name[i]);
        return true;
    }
    return false;
}

/* ---- statistics ---- */

#define FROM_GPU(kind, name, help) .name = g->name,

uint32_t node_hbm_metric_sets(const struct node_hbm *h, struct metric_set ret[DEVICES_MAX])
{
    const uint32_t n = h ? h->n : 0;
    for (uint32_t i = 0; i < n; i++)
        ret[i] = METRIC_SET(device, h->prefix[i], &h->metrics[i]);
    return n;
}

void node_hbm_refresh(struct node_hbm *h, const struct core *core)
{
    for (uint32_t i = 0; h && i < h->n; i++) {
        struct device_view v;
        struct core_hbm_stats hbm;
        h->device[i]->ops->view(h->device[i], &v);
        core_hbm_stats(core, i, &hbm);
        const struct gpu_metrics *g = gpu_metrics(hbm_gpu(h->hbm[i]));
        h->metrics[i] = (struct device_metrics){.up = v.up,
                                                .limit_bytes = v.limit_bytes,
                                                .used_bytes = v.used_bytes,
                                                .held_bytes = v.held_bytes,
                                                .blocks = hbm.blocks,
                                                .hits = hbm.hits,
                                                .fills = hbm.fills,
                                                .drops = hbm.drops,
                                                GPU_METRICS(FROM_GPU)};
    }
}

/* ---- completion words ---- */

/* The memfd is sealed before a worker gets it: a worker that truncated it would end its readers by
 * SIGBUS. */
static int words_fd(uint64_t bytes)
{
    const int fd = sys_memfd_sized("kvcache-words", 0, bytes);
    if (fd < 0)
        return errno == ENOSPC ? -ENOMEM : -errno; /* a memfd's space is memory */
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    const int err = -errno;
    (void)close(fd);
    return err;
}

int node_hbm_words_make(uint64_t bytes, int *ret_fd, void **ret_base)
{
    const int fd = words_fd(bytes);
    if (fd < 0)
        return fd;
    void *base = sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    if (base == MAP_FAILED) {
        const int err = -errno;
        (void)close(fd);
        return err;
    }
    /* Allocates the pages now, not when a device writes to them. */
    memset(base, 0, bytes);
    *ret_fd = fd;
    *ret_base = base;
    return 0;
}

void node_hbm_words_free(void *base, uint64_t bytes)
{
    MUST(munmap(base, bytes) == 0);
}
