/* SPDX-License-Identifier: Apache-2.0 */
#include "rig_reader.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BT = 16, CHAIN = 32, FROM = 0, INTO = CHAIN, PLACES = 128 };

static uint8_t keys[CHAIN * KVC_KEY_BYTES], statuses[CHAIN];

static struct rig_shared *map_shared(int fd)
{
    struct rig_shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(sh, MAP_FAILED);
    return sh;
}

struct reader {
    struct rig_shared *sh;
    unsigned no;
    struct kvc *k;
    struct kvc_ns *ns;
    struct kvc_gpu *gpu;
    struct rig_pages pages;
};

static void into_pages(struct reader *r)
{
    int n = rig_pages_load(r->ns, &r->pages, INTO, keys, CHAIN, BT, 300);
    ck_assert_msg(n >= 0, "kvc_pages_load: %s: %s", kvc_error_name(n), kvc_last_error(r->k));
    for (int i = 0; i < n; i++)
        r->sh->wrong +=
            !rig_pages_has(&r->pages, INTO + (uint32_t)i, keys + (size_t)i * KVC_KEY_BYTES);
    if (n > 0) {
        r->sh->loaded[r->no]++;
        return;
    }
    r->sh->misses++;
    /* Stored again; daemon or device may be gone at any moment. */
    statuses[0] = KVC_ST_OK;
    int err = rig_pages_store(r->ns, &r->pages, FROM, keys, 0, CHAIN, BT, 0, statuses);
    r->sh->refused += err != 0 || statuses[0] == KVC_ST_TIER;
    rig_sleep_ms(2);
}

static void in_place(struct reader *r)
{
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    struct kvc_acquire_options soon = {.timeout_ms = 300};
    struct kvc_hold *hold = NULL;
    uint64_t wrong = 0, hbm = 0;
    if (kvc_acquire_on(r->ns, &seq, r->gpu, &soon, &hold) != 0)
        return;
    for (uint32_t i = 0; i < hold->group[0].n; i++) {
        hbm += kvc_hold_device(hold, 0, i) != NULL;
        wrong += !rig_check(keys + (size_t)i * KVC_KEY_BYTES, rig_hold_data(hold, i), RIG_BLOCK);
    }
    if (kvc_hold_check(hold) == 0) {
        r->sh->wrong += wrong;
        r->sh->hbm[r->no] += hbm > 0;
        r->sh->held[r->no] += hold->group[0].n > 0;
    }
    kvc_release(r->k, &hold);
}

int rig_read_for_ever(const struct rig *rig, uint64_t arg)
{
    struct reader r = {
        .sh = map_shared((int)(arg / RIG_READERS)), .no = arg % RIG_READERS, .k = rig_open(rig, 0)};
    struct kvc_ns_spec spec = rig_spec("readers", BT, RIG_BLOCK);
    ck_assert_int_eq(kvc_gpu_open(r.k, RIG_DEVICE, &r.gpu), 0);
    while (kvc_ns_open(r.k, &spec, &r.ns) != 0) /* the daemon may be killed before it was seen */
        rig_sleep_ms(2);
    while (rig_pages_open(r.gpu, RIG_BLOCK, PLACES, &r.pages) != 0)
        rig_sleep_ms(2);
    while (!r.sh->stop) {
        rig_keys(r.ns, 1 + r.no, BT, CHAIN, keys);
        into_pages(&r);
        in_place(&r);
    }
    rig_pages_close(&r.pages);
    kvc_gpu_close(&r.gpu);
    kvc_close(&r.k);
    return 0;
}

struct rig_shared *rig_readers_start(const struct rig *r, pid_t ret_pids[RIG_READERS])
{
    int fd = memfd_create("shared", 0); /* stays open in those that are spawned */
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, sizeof(struct rig_shared)), 0);
    struct rig_shared *sh = map_shared(fd);
    for (unsigned i = 0; i < RIG_READERS; i++)
        ret_pids[i] = rig_spawn(r, "read", (uint64_t)fd * RIG_READERS + i);
    close(fd);
    return sh;
}

void rig_readers_await(const struct rig *r, const struct rig_shared *sh)
{
    const struct rig_shared then = *sh;
    for (uint64_t end = rig_now_ms() + 90000; rig_now_ms() < end; rig_sleep_ms(1)) {
        bool all = true;
        for (unsigned i = 0; i < RIG_READERS; i++)
            all = all && sh->loaded[i] >= then.loaded[i] + 2 && sh->hbm[i] >= then.hbm[i] + 2;
        if (all)
            return;
    }
    rig_show_log(r);
    ck_abort_msg("no life: loaded %llu %llu, hbm %llu %llu, misses %llu, refused %llu",
                 (unsigned long long)sh->loaded[0], (unsigned long long)sh->loaded[1],
                 (unsigned long long)sh->hbm[0], (unsigned long long)sh->hbm[1],
                 (unsigned long long)sh->misses, (unsigned long long)sh->refused);
}

void rig_readers_stop(struct rig_shared *sh, const pid_t pids[RIG_READERS])
{
    sh->stop = 1;
    for (unsigned i = 0; i < RIG_READERS; i++) {
        int status;
        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert_int_eq(status, 0);
    }
}
