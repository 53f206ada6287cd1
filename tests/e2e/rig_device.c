/* SPDX-License-Identifier: Apache-2.0 */
#include "rig_device.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SPOILED = 0xa5, LIST_MAX = 512 };

static uint64_t region_bytes(const struct rig_pages *p)
{
    return (uint64_t)p->places * RIG_DEVICE_PPB * p->page_bytes;
}

uint64_t rig_pages_bytes(const struct rig_pages *p)
{
    return RIG_DEVICE_REGIONS * region_bytes(p);
}

int rig_pages_open(struct kvc_gpu *gpu, uint32_t block_bytes, uint32_t places,
                   struct rig_pages *ret_pages)
{
    struct rig_pages p = {.gpu = gpu,
                          .places = places,
                          .block_bytes = block_bytes,
                          .page_bytes = block_bytes / (RIG_DEVICE_REGIONS * RIG_DEVICE_PPB)};
    struct kvc_pool_region region[RIG_DEVICE_REGIONS];
    void *at;
    ck_assert_uint_eq(block_bytes % (RIG_DEVICE_REGIONS * RIG_DEVICE_PPB), 0);
    int err = kvc_mem_alloc(gpu, rig_pages_bytes(&p), &at, &p.mem);
    if (err)
        return err;
    p.at = at;
    for (uint32_t r = 0; r < RIG_DEVICE_REGIONS; r++)
        region[r] = (struct kvc_pool_region){.mem = p.mem,
                                             .base = r * region_bytes(&p),
                                             .stride_bytes = p.page_bytes,
                                             .page_bytes = p.page_bytes,
                                             .layer = r / 2};
    const struct kvc_pool_spec spec = {.pages_max = places * RIG_DEVICE_PPB,
                                       .groups = 1,
                                       .group[0] = {.pages_per_block = RIG_DEVICE_PPB,
                                                    .regions = RIG_DEVICE_REGIONS,
                                                    .region = region}};
    err = kvc_pool_open(gpu, &spec, &p.pool);
    if (err) {
        kvc_mem_free(&p.mem);
        return err;
    }
    *ret_pages = p;
    return 0;
}

void rig_pages_close(struct rig_pages *p)
{
    kvc_pool_close(&p->pool);
    kvc_mem_free(&p->mem);
}

/* ---- contents ---- */

/* What a place has in one region. */
static uint8_t *part(const struct rig_pages *p, uint32_t region, uint32_t place)
{
    return p->at + region * region_bytes(p) + (uint64_t)place * RIG_DEVICE_PPB * p->page_bytes;
}

static uint32_t part_bytes(const struct rig_pages *p)
{
    return RIG_DEVICE_PPB * p->page_bytes;
}

static uint8_t *scratch(const struct rig_pages *p)
{
    static _Thread_local uint8_t block[1 << 17];
    ck_assert_uint_le(p->block_bytes, sizeof block);
    return block;
}

void rig_pages_put(struct rig_pages *p, uint32_t place, const uint8_t *key)
{
    uint8_t *block = scratch(p);
    rig_fill(key, block, p->block_bytes);
    for (uint32_t r = 0; r < RIG_DEVICE_REGIONS; r++)
        memcpy(part(p, r, place), block + (size_t)r * part_bytes(p), part_bytes(p));
}

bool rig_pages_has(const struct rig_pages *p, uint32_t place, const uint8_t *key)
{
    uint8_t *block = scratch(p);
    for (uint32_t r = 0; r < RIG_DEVICE_REGIONS; r++)
        memcpy(block + (size_t)r * part_bytes(p), part(p, r, place), part_bytes(p));
    return rig_check(key, block, p->block_bytes);
}

void rig_pages_spoil(struct rig_pages *p, uint32_t place, uint32_t n)
{
    for (uint32_t r = 0; r < RIG_DEVICE_REGIONS; r++)
        memset(part(p, r, place), SPOILED, (size_t)n * part_bytes(p));
}

bool rig_pages_untouched(const struct rig_pages *p, uint32_t place, uint32_t n)
{
    for (uint32_t r = 0; n > 0 && r < RIG_DEVICE_REGIONS; r++) {
        const uint8_t *at = part(p, r, place);
        if (at[0] != SPOILED || memcmp(at, at + 1, (size_t)n * part_bytes(p) - 1) != 0)
            return false;
    }
    return true;
}

/* ---- calls ---- */

const uint32_t *rig_pages_list(uint32_t first, uint32_t n)
{
    static _Thread_local uint32_t list[LIST_MAX * RIG_DEVICE_PPB];
    ck_assert_uint_le(n, LIST_MAX);
    for (uint32_t i = 0; i < n * RIG_DEVICE_PPB; i++)
        list[i] = first * RIG_DEVICE_PPB + i;
    return list;
}

int rig_pages_store(struct kvc_ns *ns, struct rig_pages *p, uint32_t place, const uint8_t *keys,
                    uint32_t first, uint32_t n, uint32_t block_tokens, unsigned flags,
                    uint8_t *statuses)
{
    const struct kvc_blocks b = {.parent =
                                     first ? keys + (size_t)(first - 1) * KVC_KEY_BYTES : NULL,
                                 .keys = keys + (size_t)first * KVC_KEY_BYTES,
                                 .n = n - first,
                                 .first_token = first * block_tokens,
                                 .flags = flags};
    for (uint32_t i = first; i < n; i++)
        rig_pages_put(p, place + i - first, keys + (size_t)i * KVC_KEY_BYTES);
    return kvc_pages_store(ns, &b, p->pool, rig_pages_list(place, n - first), (struct kvc_word){0},
                           NULL, 0, statuses);
}

int rig_pages_load(struct kvc_ns *ns, struct rig_pages *p, uint32_t place, const uint8_t *keys,
                   uint32_t n, uint32_t block_tokens, unsigned timeout_ms)
{
    const struct kvc_seq seq = rig_seq(keys, n, block_tokens);
    const struct kvc_pages_load load = {.timeout_ms = timeout_ms,
                                        .pages[0] = rig_pages_list(place, n)};
    struct kvc_loaded loaded;
    rig_pages_spoil(p, place, n);
    int err = kvc_pages_load(ns, &seq, p->pool, &load, &loaded);
    return err ? err : (int)(loaded.tokens / block_tokens);
}

const void *rig_hold_data(const struct kvc_hold *hold, uint32_t i)
{
    const void *hbm = kvc_hold_device(hold, 0, i);
    return hbm ? hbm : hold->group[0].block[i].data;
}

/* ---- from outside ---- */

static int on_device(void *ctx, const void *row)
{
    const struct kvc_device *device = row;
    if (strcmp(device->device, RIG_DEVICE) == 0)
        *(struct kvc_device *)ctx = *device;
    return 0;
}

/* Its uuid is known once it was up. */
static bool find_device(struct kvc *k, struct kvc_device *ret_device)
{
    *ret_device = (struct kvc_device){.up = false};
    int err = kvc_list(k, KVC_TABLE_DEVICES, NULL, on_device, ret_device);
    ck_assert_msg(err == 0, "kvc_list: %s: %s", kvc_error_name(err), kvc_last_error(k));
    return ret_device->device[0] != '\0';
}

struct kvc_device rig_device(struct kvc *k)
{
    struct kvc_device d;
    ck_assert_msg(find_device(k, &d), "the daemon has no %s", RIG_DEVICE);
    return d;
}

void rig_await_device(struct kvc *k, bool up)
{
    struct kvc_device d;
    for (unsigned i = 0; i < 4000; i++) {
        if (find_device(k, &d) && d.up == up)
            return;
        rig_sleep_ms(5);
    }
    ck_abort_msg("%s does not go %s: %s", RIG_DEVICE, up ? "up" : "out", d.why);
}

uint64_t rig_mapped(pid_t pid, const char *name)
{
    char path[64], line[512];
    uint64_t bytes = 0, begin, end;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        if (strstr(line, name) && sscanf(line, "%" SCNx64 "-%" SCNx64, &begin, &end) == 2)
            bytes += end - begin;
    fclose(f);
    return bytes;
}

static uint64_t find_in(int mem, uint64_t from, uint64_t to, const void *block, uint32_t bytes)
{
    static uint8_t page[4096];
    const uint32_t n = bytes < sizeof page ? bytes : sizeof page;
    for (uint64_t at = from; at + bytes <= to; at += sizeof page) /* slots begin with pages */
        if (pread(mem, page, n, (off_t)at) == (ssize_t)n && memcmp(page, block, n) == 0)
            return at;
    return 0;
}

bool rig_flip(pid_t pid, const char *name, const void *block, uint32_t block_bytes)
{
    char path[64], line[512];
    uint64_t from, to, at = 0;
    uint8_t byte;
    snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
    const int mem = open(path, O_RDWR | O_CLOEXEC);
    if (mem < 0) {
        printf("SKIP: %s cannot be opened for writing here\n", path);
        return false;
    }
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "r");
    ck_assert_ptr_nonnull(maps);
    while (at == 0 && fgets(line, sizeof line, maps))
        if (strstr(line, name) && sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) == 2)
            at = find_in(mem, from, to, block, block_bytes);
    fclose(maps);
    ck_assert_uint_ne(at, 0);
    at += block_bytes / 2;
    ck_assert_int_eq(pread(mem, &byte, 1, (off_t)at), 1);
    byte ^= 0x40;
    ck_assert_int_eq(pwrite(mem, &byte, 1, (off_t)at), 1);
    close(mem);
    return true;
}

unsigned rig_descriptors(pid_t pid)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}
