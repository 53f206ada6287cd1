/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon with emulated devices: blocks out of workers' pages and into others', read in place on
 * the device, what kvcachectl says of it; a device that fails and comes back, workers that die. */
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvcache/gpu.h>

#include "cases.h"
#include "rig.h"
#include "rig_device.h"

#define BT      16u
#define BLOCKS  32u
#define MIB     (1u << 20)
#define REGIONS 8u /* K and V of four layers */
#define PAGE    512u
#define PPB     2u
#define PAGES   256u

static struct rig rig;
static char dir[64], file[96], fault[96];
static struct kvc *k;
static struct kvc_ns *ns;
static struct kvc_gpu *gpu;
static struct kvc_pool *pool;
static uint8_t *memory;
static uint8_t keys[BLOCKS * KVC_KEY_BYTES], statuses[BLOCKS];

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert(f != NULL && fputs(text, f) >= 0);
    ck_assert_int_eq(fclose(f), 0);
}

/* The worker's side. */
static void open_all(void)
{
    struct kvc_pool_region regions[REGIONS];
    struct kvc_mem *mem;
    void *at;
    k = rig_open(&rig, 4 * MIB);
    ns = rig_ns(k, "m", BT, RIG_BLOCK);
    ck_assert_msg(kvc_gpu_open(k, "emu:0", &gpu) == 0, "%s", kvc_last_error(k));
    ck_assert_int_eq(kvc_mem_alloc(gpu, REGIONS * PAGES * PAGE, &at, &mem), 0);
    memory = at;
    for (uint32_t i = 0; i < REGIONS; i++)
        regions[i] = (struct kvc_pool_region){.mem = mem,
                                              .base = (uint64_t)i * PAGES * PAGE,
                                              .stride_bytes = PAGE,
                                              .page_bytes = PAGE,
                                              .layer = i / 2};
    struct kvc_pool_spec spec = {.pages_max = PAGES, .groups = 1};
    spec.group[0].pages_per_block = PPB;
    spec.group[0].regions = REGIONS;
    spec.group[0].region = regions;
    ck_assert_msg(kvc_pool_open(gpu, &spec, &pool) == 0, "%s", kvc_last_error(k));
    rig_keys(ns, 1, BT, BLOCKS, keys);
}

static void serve(const char *const *sets)
{
    rig_restart(&rig, sets);
    struct kvc *first = rig_open(&rig, 0);
    rig_wait_stat(first, "device0.up", 1);
    rig_wait_stat(first, "device1.up", 1);
    kvc_close(&first);
    open_all();
}

static void setup(void)
{
    char text[1024];
    snprintf(dir, sizeof dir, "/tmp/kvc-devices-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/daemon.yaml", dir);
    snprintf(fault, sizeof fault, "%s/fault", dir);
    snprintf(text, sizeof text,
             "hbm:\n  devices: emu:0=16MiB, emu:1\n  emu_memory: 64MiB\n  emu_fault: %s\n", fault);
    write_file(file, text);
    char set[128];
    snprintf(set, sizeof set, "@%s", file);
    rig_dir(&rig);
    serve((const char *const[]){set, NULL});
}

static void close_all(void)
{
    kvc_pool_close(&pool);
    kvc_gpu_close(&gpu);
    kvc_close(&k);
}

static void teardown(void)
{
    close_all();
    rig_stop(&rig);
    rig_clean(&rig);
    (void)unlink(fault);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(rmdir(dir), 0);
}

/* ---- pages ---- */

/* Block i in pages 2 x at and 2 x at + 1, written or compared. */
static bool in_pages(uint32_t i, uint32_t at, bool put)
{
    uint8_t block[RIG_BLOCK];
    bool same = true;
    rig_fill(keys + (size_t)i * KVC_KEY_BYTES, block, sizeof block);
    for (uint32_t n = 0; n < REGIONS * PPB; n++) {
        uint8_t *page = memory + ((size_t)(n / PPB) * PAGES + PPB * at + n % PPB) * PAGE;
        if (put)
            memcpy(page, block + (size_t)n * PAGE, PAGE);
        same = same && memcmp(page, block + (size_t)n * PAGE, PAGE) == 0;
    }
    return same;
}

static const uint32_t *page_list(uint32_t at)
{
    static uint32_t list[PPB * BLOCKS];
    for (uint32_t i = 0; i < PPB * BLOCKS; i++)
        list[i] = PPB * at + i;
    return list;
}

static int store_pages(uint32_t at)
{
    const struct kvc_blocks blocks = {.keys = keys, .n = BLOCKS};
    for (uint32_t i = 0; i < BLOCKS; i++)
        (void)in_pages(i, at + i, true);
    return kvc_pages_store(ns, &blocks, pool, page_list(at), (struct kvc_word){0}, NULL, 0,
                           statuses);
}

static uint32_t load_pages(uint32_t at)
{
    const struct kvc_seq seq = rig_seq(keys, BLOCKS, BT);
    struct kvc_pages_load load = {.timeout_ms = 20000};
    struct kvc_loaded loaded;
    load.pages[0] = page_list(at);
    int rc = kvc_pages_load(ns, &seq, pool, &load, &loaded);
    ck_assert_msg(rc == 0, "%d: %s", rc, kvc_last_error(k));
    for (uint32_t i = 0; i < loaded.tokens / BT; i++)
        ck_assert_msg(in_pages(i, at + i, false), "block %u", i);
    return loaded.tokens;
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 250);

CASE(blocks_go_from_pages_to_pages)
{
    ck_assert_int_eq(store_pages(0), 0);
    for (uint32_t i = 0; i < BLOCKS; i++)
        ck_assert_uint_eq(statuses[i], KVC_ST_OK);
    ck_assert(!in_pages(0, 64, false));
    ck_assert_uint_eq(load_pages(64), BLOCKS * BT);
    /* The same blocks to who reads host memory. */
    ck_assert_uint_eq(rig_load(k, ns, keys, BLOCKS, BT, RIG_BLOCK), BLOCKS);
    ck_assert_uint_ge(rig_stat(k, "device0.copy_bytes"), 2ull * BLOCKS * RIG_BLOCK);
    ck_assert_uint_eq(rig_stat(k, "svc.pools"), 1);
    kvc_pool_close(&pool);
    rig_wait_stat(k, "svc.pools", 0);
}

CASE(what_was_stored_from_staging_is_loaded_into_pages)
{
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, BLOCKS, BT, RIG_BLOCK, statuses), BLOCKS);
    ck_assert_uint_eq(load_pages(10), BLOCKS * BT);
}

static uint32_t on_device(void)
{
    const struct kvc_seq seq = rig_seq(keys, BLOCKS, BT);
    struct kvc_acquire_options options = {.timeout_ms = 20000};
    struct kvc_hold *hold = NULL;
    uint32_t n = 0;
    ck_assert_msg(kvc_acquire_on(ns, &seq, gpu, &options, &hold) >= 0, "%s", kvc_last_error(k));
    ck_assert_ptr_nonnull(hold);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        const void *at = kvc_hold_device(hold, 0, i); /* emulated: a pointer */
        if (at == NULL)
            continue;
        ck_assert(rig_check(keys + (size_t)i * KVC_KEY_BYTES, at, RIG_BLOCK));
        n++;
    }
    ck_assert_int_eq(kvc_hold_check(hold), 0);
    kvc_release(k, &hold);
    return n;
}

CASE(blocks_are_read_in_place_on_the_device)
{
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, BLOCKS, BT, RIG_BLOCK, statuses), BLOCKS);
    while (on_device() < BLOCKS) /* its memory is made when it is first wanted */
        rig_sleep_ms(10);
    ck_assert_uint_eq(rig_stat(k, "device0.blocks"), BLOCKS);
    ck_assert_uint_eq(on_device(), BLOCKS);
    ck_assert_uint_ge(rig_stat(k, "device0.hits"), BLOCKS);
    ck_assert_uint_eq(load_pages(40), BLOCKS * BT); /* out of the slots */
}

/* A bit of block i in memory of the daemon; false where the system forbids that. */
static bool flip(const char *name, uint32_t i)
{
    uint8_t block[RIG_BLOCK];
    rig_fill(keys + (size_t)i * KVC_KEY_BYTES, block, sizeof block);
    return rig_flip(rig.pid, name, block, sizeof block);
}

CASE(a_byte_that_changed_in_host_memory_gets_into_no_slot)
{
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, BLOCKS, BT, RIG_BLOCK, statuses), BLOCKS);
    if (!flip(RIG_HOST_MEMORY, 20))
        return;
    const struct kvc_seq seq = rig_seq(keys, BLOCKS, BT);
    struct kvc_hold *hold = NULL;
    ck_assert_int_ge(kvc_acquire_on(ns, &seq, gpu, NULL, &hold), 0);
    ck_assert_uint_eq(hold->prefix.tokens, 20 * BT);
    ck_assert_uint_eq(hold->prefix.group[0].reason, KVC_MISS_CORRUPT);
    for (uint32_t i = 0; i < hold->group[0].n; i++) {
        const void *at = kvc_hold_device(hold, 0, i);
        ck_assert(rig_check(keys + (size_t)i * KVC_KEY_BYTES,
                            at ? at : hold->group[0].block[i].data, RIG_BLOCK));
    }
    ck_assert_int_eq(kvc_hold_check(hold), 0);
    kvc_release(k, &hold);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_corrupt"), 1);
    ck_assert_uint_eq(load_pages(40), 20 * BT);
}

CASE(a_byte_that_changed_in_host_memory_gets_into_no_pages)
{
    ck_assert_int_eq(store_pages(0), 0);
    if (!flip(RIG_HOST_MEMORY, 20))
        return;
    ck_assert_uint_eq(load_pages(64), 20 * BT); /* compares them */
    ck_assert(!in_pages(20, 64 + 20, false));
    ck_assert_uint_eq(rig_stat(k, "core.blocks_corrupt"), 1);
    ck_assert_uint_eq(load_pages(96), 20 * BT);
    ck_assert_int_eq(store_pages(0), 0); /* it can be stored again */
    ck_assert_uint_eq(load_pages(64), BLOCKS * BT);
}

CASE(a_worker_cannot_write_to_slots)
{
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, BLOCKS, BT, RIG_BLOCK, statuses), BLOCKS);
    while (on_device() < BLOCKS)
        rig_sleep_ms(10);
    const struct kvc_seq seq = rig_seq(keys, BLOCKS, BT);
    struct kvc_hold *hold = NULL;
    ck_assert_int_ge(kvc_acquire_on(ns, &seq, gpu, NULL, &hold), 0);
    const uintptr_t at = (uintptr_t)kvc_hold_device(hold, 0, 0);
    const uintptr_t page = at & ~(uintptr_t)4095;
    ck_assert_uint_ne(at, 0);
    ck_assert_int_lt(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE), 0);
    ck_assert_int_eq(errno, EACCES);
    kvc_release(k, &hold);
    ck_assert_uint_eq(on_device(), BLOCKS);
}

/* ---- kvcachectl ---- */

static void ends_and_says(const char *command, int code, const char *what)
{
    static char line[512], said[65536];
    snprintf(line, sizeof line, "KVCACHE_SOCKET=%s %s/kvcachectl %s 2>&1", rig.socket, rig_bin(),
             command);
    FILE *f = popen(line, "r");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(said, 1, sizeof said - 1, f);
    said[n] = '\0';
    const int status = pclose(f);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == code, "%s: %x: %s", line,
                  (unsigned)status, said);
    ck_assert_msg(strstr(said, what) != NULL, "no '%s' in: %s", what, said);
}

static void says(const char *command, const char *what)
{
    ends_and_says(command, 0, what);
}

CASE(operators_see_devices)
{
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, BLOCKS, BT, RIG_BLOCK, statuses), BLOCKS);
    while (on_device() < BLOCKS)
        rig_sleep_ms(10);
    says("gpu", "emu:1");
    says("gpu", "of 16.00 MiB");
    says("gpu --json", "\"limit_bytes\":16777216");
    says("gpu --json", "\"blocks\":32");
    says("stats", " FRAGMENT  TO ");
    says("stats", " WINDOW  BEST ");
    says("gpu --json", "\"to_window\":");
    says("gpu --json", "\"to_best\":");
    says("gpu --json", "\"to_path\":"); /* null while a slow machine has not measured it */
    says("usage --json", "\"device_bytes\":262144");
    says("stats devices", "emu:1");
    says("stats device0.credit", "64.00 MiB");
    says("stats --json", "\"fragment_bytes\":6144");
    says("usage", "on emu:0:");
    says("usage --json", "\"limit_bytes\":16777216");
    char command[128] = "explain ";
    for (uint32_t i = 0; i < KVC_KEY_BYTES; i++)
        snprintf(command + 8 + (size_t)i * 2, 3, "%02x", keys[i]);
    says(command, "hbm+host");
    write_file(fault, "sticky");
    (void)load_pages(0);
    rig_wait_stat(k, "device0.up", 0);
    says("gpu", "emu:0 is out:");
    ck_assert_int_eq(unlink(fault), 0);
}

CASE(a_slot_that_went_bad_is_found_and_its_block_stays)
{
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, BLOCKS, BT, RIG_BLOCK, statuses), BLOCKS);
    while (on_device() < BLOCKS)
        rig_sleep_ms(10);
    says("verify --tier hbm --json", "\"blocks\":32");
    if (!flip(RIG_DAEMONS_MEMORY, 20))
        return;
    ends_and_says("verify --tier hbm --json", 6, "\"corrupt\":1");
    ck_assert_uint_eq(rig_stat(k, "core.hbm_corrupt"), 1);
    ck_assert_uint_eq(rig_stat(k, "device0.blocks"), BLOCKS - 1);
    says("verify", "read 63 blocks");
    while (on_device() < BLOCKS) /* compares them; host memory has it still */
        rig_sleep_ms(10);
    ck_assert_uint_eq(load_pages(40), BLOCKS * BT);
    says("verify --tier hbm --json", "\"corrupt\":0");
}

/* ---- what befalls a device ---- */

CASE(a_device_that_fails_costs_misses_and_is_used_again)
{
    ck_assert_int_eq(store_pages(0), 0);
    while (on_device() < BLOCKS)
        rig_sleep_ms(10);
    write_file(fault, "sticky");
    uint32_t tokens = BLOCKS * BT;
    while (tokens > 0 || rig_stat(k, "device0.up") == 1)
        tokens = load_pages(64);
    ck_assert_uint_eq(on_device(), 0);
    ck_assert_uint_eq(rig_load(k, ns, keys, BLOCKS, BT, RIG_BLOCK), BLOCKS); /* nothing is lost */
    ck_assert_uint_eq(rig_stat(k, "device0.blocks"), 0);
    ck_assert_int_eq(unlink(fault), 0);
    rig_wait_stat(k, "device0.up", 1);
    while (load_pages(96) < BLOCKS * BT) /* the library makes its pool again */
        rig_sleep_ms(10);
    while (on_device() < BLOCKS)
        rig_sleep_ms(10);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void remove_persisted(const char *path)
{
    ck_assert_int_eq(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT), 0);
}

/* As setup() did, for teardown(). */
static void serve_again(void)
{
    char base[128];
    snprintf(base, sizeof base, "@%s", file);
    serve((const char *const[]){base, NULL});
}

#ifdef KVC_HAVE_CUDA
/* What it says of MPS at start, with a GPU that is out. */
static bool says_of_mps(const char *what)
{
    char path[128], text[16384];
    const char *const sets[] = {"hbm.devices=cuda:63", NULL};
    rig_restart(&rig, sets);
    rig_stop(&rig);
    snprintf(path, sizeof path, "%s/log", rig.dir);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(unlink(path), 0);
    return strstr(text, what) != NULL;
}

CASE(mps_that_is_not_seen_is_told_and_so_is_what_is_seen)
{
    char control[128];
    close_all();
    rig_stop(&rig);
    ck_assert(!says_of_mps("MPS:"));
    ck_assert_int_eq(setenv("CUDA_MPS_PIPE_DIRECTORY", dir, 1), 0);
    ck_assert(says_of_mps("PrivateTmp=yes hides"));
    snprintf(control, sizeof control, "%s/control", dir);
    ck_assert_int_eq(mkfifo(control, 0600), 0);
    ck_assert(says_of_mps("set hbm.exit_when_lost"));
    ck_assert_int_eq(unlink(control), 0);
    serve_again();
}
#endif

/* As under MPS, whose server takes no new process while an old one is attached. */
CASE(a_device_that_fails_ends_a_daemon_that_is_to_be_started_again)
{
    char persist[64], set[96];
    int status = 0;
    close_all();
    rig_stop(&rig);
    snprintf(persist, sizeof persist, "/dev/shm/kvc-lost-%d", (int)getpid());
    ck_assert_int_eq(mkdir(persist, 0700), 0);
    snprintf(set, sizeof set, "host.persist=%s", persist);
    char base[128];
    snprintf(base, sizeof base, "@%s", file);
    const char *const sets[] = {base, set, "hbm.exit_when_lost=true", NULL};
    serve(sets);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, BLOCKS, BT, RIG_BLOCK, statuses), BLOCKS);
    write_file(fault, "sticky");
    while (waitpid(rig.pid, &status, WNOHANG) == 0) {
        (void)load_pages(64);
        rig_sleep_ms(10);
    }
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 1);
    ck_assert_int_eq(unlink(fault), 0);
    close_all();
    serve(sets);
    ck_assert_uint_eq(rig_load(k, ns, keys, BLOCKS, BT, RIG_BLOCK), BLOCKS); /* warm */
    close_all();
    rig_stop(&rig);
    remove_persisted(persist);
    serve_again();
}

/* ---- words ---- */

#define AHEAD  200u /* stores, of a block each, before their word */
#define ROUNDS 40u

/* Another session of the same principal, that waits for no word. */
static int copy_unfenced(void)
{
    open_all();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        rig_keys(ns, 1000 + i, BT, BLOCKS, keys);
        int rc = store_pages(0);
        ck_assert_msg(rc == 0, "%d: %s", rc, kvc_last_error(k));
        for (uint32_t b = 0; b < BLOCKS; b++)
            ck_assert_uint_eq(statuses[b], KVC_ST_OK);
        ck_assert_uint_eq(load_pages(64), BLOCKS * BT);
    }
    close_all();
    return 0;
}

static struct kvc_op *store_ahead(uint32_t chain, uint64_t value)
{
    uint8_t key[KVC_KEY_BYTES];
    struct kvc_op *op = NULL;
    rig_keys(ns, chain, BT, 1, key);
    const struct kvc_blocks blocks = {.keys = key, .n = 1};
    int rc = kvc_pages_store_begin(ns, &blocks, pool, page_list(0), (struct kvc_word){1, value},
                                   NULL, 0, &op);
    ck_assert_msg(rc == 0, "%d: %s", rc, kvc_last_error(k));
    return op;
}

/* It was BUSY for them, from 44 stores on. */
CASE(stores_ahead_of_their_word_hold_up_no_other_session)
{
    static struct kvc_op *ops[AHEAD];
    volatile uint64_t *words = kvc_gpu_words(gpu);
    ck_assert(words != NULL);
    const uint64_t value = words[0] + 1;
    for (uint32_t i = 0; i < AHEAD; i++)
        ops[i] = store_ahead(5000 + i, value);
    rig_wait_stat(k, "svc.calls", AHEAD);
    ck_assert_uint_gt(rig_stat(k, "core.transfers_waiting"), 0);
    pid_t pid = rig_spawn(&rig, "unfenced", 0);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
    words[0] = value;
    for (uint32_t i = 0; i < AHEAD; i++) {
        struct kvc_result result;
        int rc = kvc_finish(&ops[i], &result);
        ck_assert_msg(rc == 0 && result.n == 1 && result.statuses[0] == KVC_ST_OK,
                      "store %u: %d, %u", i, rc, result.statuses[0]);
    }
    ck_assert_uint_eq(rig_stat(k, "core.transfers_waiting"), 0);
}

/* A worker with copies on their way is killed, again and again. */
static int work(const char *role, uint64_t arg)
{
    (void)arg;
    if (strcmp(role, "unfenced") == 0)
        return copy_unfenced();
    ck_assert_str_eq(role, "copies");
    open_all();
    for (;;) {
        (void)store_pages(0);
        (void)load_pages(64);
    }
}

CASE(workers_that_die_leave_nothing_behind)
{
    ck_assert_int_eq(store_pages(0), 0);
    close_all();
    for (unsigned i = 0; i < 8; i++) {
        pid_t pid = rig_spawn(&rig, "copies", 0);
        rig_sleep_ms(40 + 25 * i);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    }
    open_all();
    rig_wait_stat(k, "svc.sessions", 1);
    rig_wait_stat(k, "svc.pools", 1);
    rig_wait_stat(k, "svc.mems", 1);
    rig_wait_stat(k, "device0.imported_bytes", REGIONS * PAGES * PAGE);
    ck_assert_uint_eq(load_pages(64), BLOCKS * BT);
}

int main(int argc, char **argv)
{
    return rig_main(argc, argv, &rig, work);
}
