/* SPDX-License-Identifier: Apache-2.0 */
/* Workers whose memory is none, lies about its size or changes under the copies; floods of
 * descriptors; completion words full of nonsense. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cases.h"
#include "hostile.h"

#define MEM_BYTES (1u << 20)
#define KEYS      16u
#define PAGES     1024u
#define PAGE      64u /* two to a block, in 64 regions: that of HOSTILE_BLOCK */
#define REGIONS   64u

static struct hostile s;
static struct peer p;
static char dir[64], config[128];
static uint8_t uuid[KVC_UUID_BYTES];
static uint8_t buf[1u << 16];

static void device_uuid(void)
{
    struct msg_reply_head reply_head;
    struct kvc_device device = {.up = false};
    const struct msg_list list = {.table = KVC_TABLE_DEVICES};
    while (!device.up) {
        const struct msg_head head = peer_head(&p, KVC_OP_LIST);
        struct codec_rows rows;
        int len = codec_enc_list(buf, sizeof buf, &head, &list), n;
        ck_assert_int_eq(peer_ask(&p, &head, buf, len, &n), KVC_ST_OK);
        ck_assert_int_eq(
            codec_rows_read(buf, (size_t)n, codec_table(list.table), &reply_head, &rows), 0);
        ck_assert_int_eq(codec_rows_next(&rows, &device), 1);
    }
    memcpy(uuid, device.uuid, sizeof uuid);
}

static void setup(void)
{
    snprintf(dir, sizeof dir, "/tmp/kvc-hostile-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(config, sizeof config, "@%s/daemon.yaml", dir);
    FILE *f = fopen(config + 1, "w");
    ck_assert(f != NULL && fputs("hbm:\n  devices: emu:0\n  emu_bandwidth: 64MiB\n", f) >= 0);
    ck_assert_int_eq(fclose(f), 0);
    const char *const sets[] = {config, "limits.sessions=8", NULL};
    hostile_begin(&s, sets);
    rig_wait_stat(s.k, "device0.up", 1);
    s.fds = daemon_descriptors(s.rig); /* with the device's own */
    peer_open(&p, s.rig, 0);
    device_uuid();
}

static void teardown(void)
{
    peer_close(&p);
    rig_wait_stat(s.k, "svc.sessions", 1);
    rig_wait_stat(s.k, "svc.mems", 0);
    rig_wait_stat(s.k, "svc.pools", 0);
    rig_wait_stat(s.k, "device0.imported_bytes", 0);
    hostile_end(&s);
    ck_assert_int_eq(unlink(config + 1), 0);
    ck_assert_int_eq(rmdir(dir), 0);
}

/* ---- messages ---- */

static void send_with(int attach, const void *bytes, size_t len, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_LEN(sizeof fd);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(h), &fd, sizeof fd);
    }
    (void)sendmsg(attach, &m, MSG_NOSIGNAL);
}

static void send_mem(uint32_t mem, uint8_t kind, uint64_t bytes, int fd)
{
    static const uint8_t ipc[KVC_IPC_BYTES];
    struct att_mem msg = {.mem = mem, .kind = kind, .bytes = bytes};
    uint8_t out[KVC_ATTACH_MAX];
    memcpy(msg.uuid, uuid, sizeof uuid);
    if (kind == KVC_HANDLE_IPC)
        msg.ipc = (struct codec_bin){ipc, sizeof ipc};
    int len = codec_enc_att_mem(out, sizeof out, &msg);
    ck_assert_int_gt(len, 0);
    send_with(p.attach, out, (size_t)len, fd);
}

static uint16_t mem_is(uint32_t mem)
{
    uint8_t in[KVC_ATTACH_MAX];
    struct att_mem_is msg;
    int fd, n = peer_datagram(p.attach, in, &fd);
    ck_assert(n > 0 && fd == -1);
    ck_assert_int_eq(codec_dec_att_mem_is(in, (size_t)n, &msg), 0);
    ck_assert_uint_eq(msg.mem, mem);
    return msg.status;
}

static int memfd(uint64_t bytes, int seals)
{
    int fd = memfd_create("worker", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    if (seals)
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

/* ---- what is no memory ---- */

static int opened(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    ck_assert_msg(fd >= 0, "%s", path);
    return fd;
}

static int read_only_memfd(void)
{
    char path[64];
    int fd = memfd(MEM_BYTES, F_SEAL_SHRINK);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int ro = opened(path, O_RDONLY);
    close(fd);
    return ro;
}

static int regular_file(void)
{
    char path[96];
    snprintf(path, sizeof path, "%s/file", dir);
    int fd = opened(path, O_RDWR | O_CREAT);
    ck_assert_int_eq(ftruncate(fd, MEM_BYTES), 0);
    ck_assert_int_eq(unlink(path), 0);
    return fd;
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 300);

CASE(what_is_no_memory_of_a_device_is_refused)
{
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    const int fds[] = {regular_file(),
                       opened(dir, O_RDONLY | O_DIRECTORY),
                       opened(dir, O_PATH),
                       opened("/dev/zero", O_RDWR),
                       opened("/dev/null", O_RDWR),
                       ends[0],
                       ends[1],
                       eventfd(0, EFD_CLOEXEC),
                       memfd(MEM_BYTES, 0),                 /* can be cut short */
                       memfd(MEM_BYTES, F_SEAL_GROW),       /* so can this */
                       memfd(MEM_BYTES - 1, F_SEAL_SHRINK), /* shorter than it says */
                       memfd(0, F_SEAL_SHRINK | F_SEAL_GROW),
                       memfd(MEM_BYTES, F_SEAL_SHRINK | F_SEAL_WRITE),
                       read_only_memfd()};
    const uint32_t n = sizeof fds / sizeof fds[0];
    for (uint32_t round = 0; round < 20; round++)
        for (uint32_t i = 0; i < n; i++) {
            send_mem(i, KVC_HANDLE_EMU, MEM_BYTES, fds[i]);
            ck_assert_msg(mem_is(i) == KVC_ST_BAD_ARGUMENT, "descriptor %u was taken", i);
        }
    send_mem(0, KVC_HANDLE_EMU, MEM_BYTES, p.attach); /* the connection itself */
    ck_assert_uint_eq(mem_is(0), KVC_ST_BAD_ARGUMENT);
    send_mem(0, KVC_HANDLE_EMU, MEM_BYTES, -1);
    ck_assert_uint_eq(mem_is(0), KVC_ST_BAD_ARGUMENT);
    int good = memfd(MEM_BYTES, F_SEAL_SHRINK);
    static const uint64_t lies[] = {MEM_BYTES + 1, 1ull << 40, 1ull << 62, UINT64_MAX};
    for (unsigned i = 0; i < 4; i++) {
        send_mem(0, KVC_HANDLE_EMU, lies[i], good);
        ck_assert_uint_eq(mem_is(0), KVC_ST_BAD_ARGUMENT);
    }
    send_mem(0, KVC_HANDLE_FD, MEM_BYTES, good); /* CUDA's, of an emulated one */
    ck_assert_uint_eq(mem_is(0), KVC_ST_UNKNOWN_OP);
    send_mem(0, KVC_HANDLE_IPC, MEM_BYTES, -1);
    ck_assert_uint_eq(mem_is(0), KVC_ST_UNKNOWN_OP);
    send_mem(0, KVC_HANDLE_EMU, MEM_BYTES, good);
    ck_assert_uint_eq(mem_is(0), KVC_ST_OK);
    close(good);
    for (uint32_t i = 0; i < n; i++)
        close(fds[i]);
    hostile_serve(&s);
}

/* Nobody reads the answers. */
CASE(a_flood_of_descriptors_is_bounded)
{
    int good = memfd(MEM_BYTES, F_SEAL_SHRINK);
    for (uint32_t i = 0; i < 20000; i++) {
        struct att_mem msg = {.mem = i % KVC_MEMS_MAX, .kind = KVC_HANDLE_EMU, .bytes = MEM_BYTES};
        uint8_t out[KVC_ATTACH_MAX];
        memcpy(msg.uuid, uuid, sizeof uuid);
        int len = codec_enc_att_mem(out, sizeof out, &msg);
        send_with(p.attach, out, (size_t)len, good);
        if (i % 1000 == 0)
            ck_assert_uint_le(daemon_descriptors(s.rig), s.fds + 200);
    }
    close(good);
    peer_close(&p);
    hostile_serve(&s);
}

CASE(descriptors_in_empty_datagrams_do_not_pile_up)
{
    for (unsigned i = 0; i < 300; i++) {
        int bare = peer_attach_socket(s.rig);
        if (bare < 0)
            continue;
        send_with(bare, "", 0, p.attach);
        close(bare);
    }
    hostile_serve(&s);
    for (unsigned i = 0; i < 1000 && daemon_descriptors(s.rig) > s.fds + 8; i++)
        rig_sleep_ms(10);
    ck_assert_uint_le(daemon_descriptors(s.rig), s.fds + 8);
}

/* ---- memory and words that change under the copies ---- */

static int ask(struct msg_head *head, int len)
{
    int n;
    return peer_ask(&p, head, buf, len, &n);
}

static void open_pool(int fd)
{
    static uint8_t regions[REGIONS * KVC_REGION_BYTES];
    struct msg_pool_open msg = {.pages_max = PAGES, .ngroups = 1};
    send_mem(0, KVC_HANDLE_EMU, (uint64_t)REGIONS * PAGES * PAGE, fd);
    ck_assert_uint_eq(mem_is(0), KVC_ST_OK);
    for (uint32_t i = 0; i < REGIONS; i++)
        codec_put_region(regions + (size_t)i * KVC_REGION_BYTES,
                         &(struct msg_region){.layer = i,
                                              .base = (uint64_t)i * PAGES * PAGE,
                                              .stride_bytes = PAGE,
                                              .page_bytes = PAGE});
    memcpy(msg.uuid, uuid, sizeof uuid);
    msg.groups[0] =
        (struct msg_pool_group){.pages_per_block = 2, .regions = {regions, sizeof regions}};
    struct msg_head head = peer_head(&p, KVC_OP_POOL_OPEN);
    ck_assert_int_eq(ask(&head, codec_enc_pool_open(buf, sizeof buf, &head, &msg)), KVC_ST_OK);
}

static uint64_t *get_words(int *ret_fd)
{
    struct att_words msg = {.words = KVC_WORDS};
    struct att_words_are are;
    uint8_t out[KVC_ATTACH_MAX];
    int len = codec_enc_att_words(out, sizeof out, &msg);
    send_with(p.attach, out, (size_t)len, -1);
    len = peer_datagram(p.attach, out, ret_fd);
    ck_assert_int_eq(codec_dec_att_words_are(out, (size_t)len, &are), 0);
    ck_assert(are.status == KVC_ST_OK && *ret_fd >= 0);
    uint64_t *words = mmap(NULL, are.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
    ck_assert_ptr_ne(words, MAP_FAILED);
    return words;
}

/* One store out of pages, one load into them: any answer. */
static void store_and_load(uint32_t ns, const uint8_t *keys, uint32_t word, uint64_t value)
{
    uint32_t list[2 * KEYS];
    for (uint32_t i = 0; i < 2 * KEYS; i++)
        list[i] = (i * 37 + (uint32_t)value) % (PAGES + 4); /* some are none */
    const struct codec_bin pages = {(const uint8_t *)list, sizeof list};
    struct msg_pages_store store = {.after_word = word, .after_value = value, .pages = pages};
    store.reserve = (struct msg_reserve){.ns = ns, .keys = {keys, KEYS * KVC_KEY_BYTES}};
    struct msg_head head = peer_head(&p, KVC_OP_PAGES_STORE);
    head.deadline_ms = 300;
    ck_assert_int_ge(ask(&head, codec_enc_pages_store(buf, sizeof buf, &head, &store)), 0);
    struct msg_pages_load load = {.seq = {.ns = ns, .tokens = KEYS * HOSTILE_BT, .ngroups = 1},
                                  .after_word = word,
                                  .after_value = value,
                                  .ready_word = 7,
                                  .ready_value = value,
                                  .ngroups = 1};
    load.seq.keys[0] = store.reserve.keys;
    load.pages[0].pages = pages;
    head = peer_head(&p, KVC_OP_PAGES_LOAD);
    head.deadline_ms = 300;
    ck_assert_int_ge(ask(&head, codec_enc_pages_load(buf, sizeof buf, &head, &load)), 0);
}

CASE(memory_and_words_that_change_under_copies_harm_nobody)
{
    static uint8_t seed[KVC_KEY_BYTES], keys[KEYS * KVC_KEY_BYTES];
    const uint64_t bytes = (uint64_t)REGIONS * PAGES * PAGE;
    uint32_t ns;
    int words_fd, fd = memfd(bytes, F_SEAL_SHRINK);
    uint64_t *words = get_words(&words_fd);
    ck_assert_int_eq(ftruncate(words_fd, 0), -1); /* would kill the daemon's reader */
    ck_assert_int_eq(fcntl(words_fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    ck_assert_int_eq(ftruncate(fd, 0), -1);
    open_pool(fd);
    ck_assert_int_eq(peer_ns(&p, "hostile", HOSTILE_BT, HOSTILE_BLOCK, &ns, seed), KVC_ST_OK);
    for (uint32_t i = 0; i < 12; i++) {
        peer_keys(seed, 100 + i, HOSTILE_BT, KEYS, keys);
        for (uint32_t w = 0; w < KVC_WORDS; w++)
            words[w] = i % 3 == 0 ? UINT64_MAX : (uint64_t)w * i;
        ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes),
                         0);
        store_and_load(ns, keys, i % 2 ? KVC_NO_WORD : i, i % 5 == 4 ? UINT64_MAX : i);
        hostile_serve(&s);
    }
    ck_assert(daemon_lives(s.rig));
    ck_assert_int_eq(munmap(words, KVC_WORDS_BYTES), 0);
    close(words_fd);
    close(fd);
}
