/* SPDX-License-Identifier: Apache-2.0 */
#include "stage.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "adapt.h"
#include "codec.h"
#include "fuzz.h"
#include "wire.h"

#define NS_PER_MS   UINT64_C(1000000)
#define QUEUED_MAX  8u
#define FILE_BYTES  65536u
#define GUARD       4096u
#define GUARDED_MAX 64u

static struct {
    struct records in;
    bool running, tame, hung_up;
    int attach_fd; /* the daemon's end; -1 */
    int wire_fd;   /* stands for the control socket; never readable by itself */
    uint64_t now_ns, corr;
    uint8_t op;  /* of the last request */
    long mapped; /* pages */
    void *guarded[GUARDED_MAX];
    unsigned nguarded;
    uint64_t fds_before;
    struct {
        uint8_t *bytes;
        size_t len;
    } queued[QUEUED_MAX]; /* replies, from the oldest on */
    unsigned nqueued;
    int broken; /* what the control socket returns next; 0 = nothing wrong */
} st;

/* ---- what the library calls ---- */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (!st.running)
        return __real_clock_gettime(clock, ret);
    st.now_ns += 1000;
    ret->tv_sec = (time_t)(st.now_ns / 1000000000u);
    ret->tv_nsec = (long)(st.now_ns % 1000000000u);
    return 0;
}

void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off);
int __real_munmap(void *at, size_t len);
int __wrap_munmap(void *at, size_t len);

/* Of a mapping, which may go in pieces. */
static long pages_of(size_t len)
{
    return (long)((len + GUARD - 1) / GUARD);
}

static size_t with_guard(size_t len)
{
    return (len + GUARD - 1) / GUARD * GUARD + GUARD;
}

/* A file's mapping is followed by a page that faults: a read past its end does not go unseen. */
static void *map_guarded(size_t len, int prot, int flags, int fd, off_t off)
{
    void *base = __real_mmap(NULL, with_guard(len), PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return base;
    void *p = __real_mmap(base, len, prot, flags | MAP_FIXED, fd, off);
    if (p == MAP_FAILED) {
        int error = errno;
        FUZZ_CHECK(__real_munmap(base, with_guard(len)) == 0, "%d", errno);
        errno = error;
    } else {
        st.guarded[st.nguarded++] = p;
    }
    return p;
}

void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
    bool guard = st.running && fd >= 0 && at == NULL && len > 0 && len < SIZE_MAX / 2 &&
                 st.nguarded < GUARDED_MAX;
    void *p =
        guard ? map_guarded(len, prot, flags, fd, off) : __real_mmap(at, len, prot, flags, fd, off);
    if (p != MAP_FAILED && (flags & MAP_FIXED) == 0)
        st.mapped += pages_of(len);
    return p;
}

int __wrap_munmap(void *at, size_t len)
{
    st.mapped -= pages_of(len);
    for (unsigned i = 0; i < st.nguarded; i++) {
        if (st.guarded[i] != at)
            continue;
        st.guarded[i] = st.guarded[--st.nguarded];
        return __real_munmap(at, with_guard(len));
    }
    return __real_munmap(at, len);
}

static void to_attach(const void *bytes, size_t len, const int *fds, unsigned nfds)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (st.attach_fd < 0 || st.hung_up)
        return;
    if (nfds > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
    }
    /* A full queue, or a library that has hung up: then it never arrives. */
    (void)!sendmsg(st.attach_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void to_attach_with_files(const struct record *r, unsigned nfds)
{
    static const off_t bytes[] = {FILE_BYTES, 0, 1, 4096, 4097, 1 << 20, 1ll << 40, FILE_BYTES - 1};
    int fds[2] = {-1, -1};
    for (unsigned i = 0; i < nfds; i++) {
        fds[i] = memfd_create("file", MFD_CLOEXEC);
        FUZZ_CHECK(fds[i] >= 0 && ftruncate(fds[i], bytes[r->arg % 8u]) == 0, "no file");
    }
    to_attach(r->bytes, r->len, fds, nfds);
    for (unsigned i = 0; i < nfds; i++)
        close(fds[i]);
}

static void welcome(void)
{
    struct record r = {.arg = 0};
    struct att_welcome w = {.version = KVC_PROTO_MAX,
                            .session = 1,
                            .route = "kroute",
                            .endpoint = {(const uint8_t *)"ipc://x", 7},
                            .staging_bytes = FILE_BYTES};
    uint8_t buf[KVC_ATTACH_MAX];
    int len = codec_enc_att_welcome(buf, sizeof(buf), &w);
    FUZZ_CHECK(len > 0, "%d", len);
    r.bytes = buf;
    r.len = (size_t)len;
    to_attach_with_files(&r, 1);
}

int __wrap_channel__connect(const char *path);
int __wrap_channel__connect(const char *path)
{
    int pair[2];
    (void)path;
    if (st.attach_fd >= 0)
        close(st.attach_fd);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0,
               "%d", errno);
    st.attach_fd = pair[1];
    st.hung_up = false;
    if (st.tame)
        welcome();
    return pair[0];
}

static void queue(const void *bytes, size_t len)
{
    if (st.nqueued == QUEUED_MAX)
        return;
    st.queued[st.nqueued].bytes = fuzz_copy(bytes, len);
    st.queued[st.nqueued++].len = len;
}

static void queue_reply(const struct record *r)
{
    static uint8_t out[70000];
    size_t n = adapt_corr(st.corr, r->bytes, r->len, out, sizeof(out));
    if (n > 0)
        queue(out, n);
    else
        queue(r->bytes, r->len);
}

/* True when the record was something that the daemon does, and has happened. */
static bool happen(const struct record *r)
{
    static const int errors[] = {-EPROTO, -EIO, -EAGAIN, -ENOMEM};
    static const uint32_t ms[] = {1, 11, 260, 5300};
    switch (r->verb % 16u) {
    case STAGE_DATAGRAM:
        to_attach(r->bytes, r->len, NULL, 0);
        return true;
    case STAGE_DATAGRAM_FILE:
        to_attach_with_files(r, 1);
        return true;
    case STAGE_DATAGRAM_TWO:
        to_attach_with_files(r, 2);
        return true;
    case STAGE_MESSAGE:
        queue(r->bytes, r->len);
        return true;
    case STAGE_REPLY:
        queue_reply(r);
        return true;
    case STAGE_HANG_UP:
        if (st.attach_fd >= 0)
            (void)shutdown(st.attach_fd, SHUT_RDWR);
        st.hung_up = true;
        return true;
    case STAGE_BROKEN:
        st.broken = errors[r->arg % 4u];
        return true;
    case STAGE_LATER:
        st.now_ns += ms[r->arg % 4u] * NS_PER_MS;
        return true;
    default:
        return false;
    }
}

/* The next thing that the daemon does; false when it is the caller's turn, or the end. */
static bool happen_next(void)
{
    struct record r;
    if (!records_peek(&st.in, &r) || !happen(&r))
        return false;
    (void)records_next(&st.in, &r);
    return true;
}

/* A tame daemon gives the chunks that it is asked for. True when it was asked. */
static bool give_chunk(void)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_map ask;
    struct record r = {.arg = 5};
    ssize_t n =
        st.tame && st.attach_fd >= 0 ? recv(st.attach_fd, buf, sizeof(buf), MSG_DONTWAIT) : 0;
    if (n <= 0 || codec_att_code(buf, (size_t)n) != KVC_ATTACH_MAP)
        return n > 0;
    FUZZ_CHECK(codec_dec_att_map(buf, (size_t)n, &ask) == 0, "the library sent a broken MAP");
    struct att_chunk chunk = {.chunk = ask.chunk, .bytes = 1 << 20};
    int len = codec_enc_att_chunk(buf, sizeof(buf), &chunk);
    FUZZ_CHECK(len > 0, "%d", len);
    r.bytes = buf;
    r.len = (size_t)len;
    to_attach_with_files(&r, 1);
    return true;
}

/* Unless the input has a chunk of its own for who asks. */
static bool chunk_first(void)
{
    struct record r;
    bool has_file = records_peek(&st.in, &r) &&
                    (r.verb % 16u == STAGE_DATAGRAM_FILE || r.verb % 16u == STAGE_DATAGRAM_TWO);
    return !has_file && give_chunk();
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
    if (!st.running)
        return __real_poll(fds, n, ms);
    if (!chunk_first() && !happen_next() && !give_chunk())
        st.now_ns += (uint64_t)(ms > 0 ? ms : 1) * NS_PER_MS;
    int ready = __real_poll(fds, n, 0);
    for (nfds_t i = 0; i < n; i++)
        if (fds[i].fd >= 0 && fds[i].fd == st.wire_fd && st.nqueued > 0) {
            fds[i].revents = POLLIN;
            ready++;
        }
    return ready;
}

/* ---- the control socket ---- */

int __wrap_wire__init(struct wire *w);
int __wrap_wire__init(struct wire *w)
{
    *w = (struct wire){.fd = -1};
    return 0;
}

void __wrap_wire__disconnect(struct wire *w);
void __wrap_wire__disconnect(struct wire *w)
{
    w->sock = NULL;
    if (st.wire_fd >= 0)
        close(st.wire_fd);
    w->fd = st.wire_fd = -1;
    while (st.nqueued > 0)
        free(st.queued[--st.nqueued].bytes);
}

void __wrap_wire__destroy(struct wire *w);
void __wrap_wire__destroy(struct wire *w)
{
    __wrap_wire__disconnect(w);
}

int __wrap_wire__connect(struct wire *w, const char *endpoint, const uint8_t *route);
int __wrap_wire__connect(struct wire *w, const char *endpoint, const uint8_t *route)
{
    (void)route;
    __wrap_wire__disconnect(w);
    if (strncmp(endpoint, "ipc://", 6) != 0)
        return -EINVAL; /* as ZeroMQ says of a transport that it does not have */
    w->sock = &st;
    w->fd = st.wire_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    FUZZ_CHECK(w->fd >= 0, "no descriptor");
    return 0;
}

static void answer(const struct msg_head *head)
{
    uint8_t buf[512];
    struct msg_hello_reply hello = {.version = KVC_PROTO_MAX};
    struct msg_ns_open_reply ns = {.ns = 7, .seed = {1}};
    int n = head->op == KVC_OP_HELLO ? codec_enc_hello_reply(buf, sizeof(buf), head, &hello)
                                     : codec_enc_ns_open_reply(buf, sizeof(buf), head, &ns);
    FUZZ_CHECK(n > 0, "%d", n);
    queue(buf, (size_t)n);
}

int __wrap_wire__send(struct wire *w, const void *buf, size_t len);
int __wrap_wire__send(struct wire *w, const void *buf, size_t len)
{
    struct msg_head head;
    FUZZ_CHECK(w->sock != NULL, "sent without a socket");
    FUZZ_CHECK(codec_dec_head(buf, len, &head) == 0, "the library sent what is no request");
    if (st.broken == -EAGAIN || st.broken == -EIO) {
        int rc = st.broken;
        st.broken = 0;
        return rc;
    }
    st.corr = head.corr;
    st.op = head.op;
    if (st.tame && (head.op == KVC_OP_HELLO || head.op == KVC_OP_NS_OPEN))
        answer(&head);
    return 0;
}

int __wrap_wire__msg_make(struct wire_msg *ret, const void *buf, size_t len);
int __wrap_wire__msg_make(struct wire_msg *ret, const void *buf, size_t len)
{
    FUZZ_CHECK(!ret->full, "a message is lost");
    *ret = (struct wire_msg){.data = fuzz_copy(buf, len), .len = len, .full = true};
    return 0;
}

int __wrap_wire__send_msg(struct wire *w, struct wire_msg *msg);
int __wrap_wire__send_msg(struct wire *w, struct wire_msg *msg)
{
    FUZZ_CHECK(msg->full, "no message is sent");
    return __wrap_wire__send(w, msg->data, msg->len);
}

bool __wrap_wire__has_news(struct wire *w);
bool __wrap_wire__has_news(struct wire *w)
{
    FUZZ_CHECK(w->sock != NULL, "asked without a socket");
    return st.nqueued > 0;
}

bool __wrap_wire__is_cut(struct wire *w);
bool __wrap_wire__is_cut(struct wire *w)
{
    FUZZ_CHECK(w->sock != NULL, "asked without a socket");
    w->quiet = st.nqueued == 0;
    if (!w->quiet || st.broken != -EAGAIN)
        return false;
    st.broken = 0;
    return true;
}

int __wrap_wire__recv(struct wire *w, bool nap, struct wire_msg *ret);
int __wrap_wire__recv(struct wire *w, bool nap, struct wire_msg *ret)
{
    FUZZ_CHECK(w->sock != NULL && !ret->full, "received without a socket, or over a message");
    while (nap && st.nqueued == 0 && st.broken == 0 && happen_next())
        continue;
    if (st.broken != 0 && st.broken != -EAGAIN) {
        int rc = st.broken;
        st.broken = 0;
        return rc;
    }
    if (st.nqueued == 0)
        return 0;
    *ret = (struct wire_msg){.data = st.queued[0].bytes, .len = st.queued[0].len, .full = true};
    st.nqueued--;
    memmove(&st.queued[0], &st.queued[1], st.nqueued * sizeof(st.queued[0]));
    return 1;
}

void __wrap_wire__msg_move(struct wire_msg *to, struct wire_msg *from);
void __wrap_wire__msg_move(struct wire_msg *to, struct wire_msg *from)
{
    FUZZ_CHECK(!to->full, "a message is lost");
    *to = *from;
    *from = (struct wire_msg){.full = false};
}

void __wrap_wire__msg_free(struct wire_msg *msg);
void __wrap_wire__msg_free(struct wire_msg *msg)
{
    if (msg->full)
        free((void *)(uintptr_t)msg->data);
    *msg = (struct wire_msg){.full = false};
}

/* ---- what the target calls ---- */

void stage_begin(const uint8_t *data, size_t size, bool tame)
{
    memset(&st, 0, sizeof(st));
    st.in = records_of(data, size);
    st.tame = tame;
    st.attach_fd = st.wire_fd = -1;
    st.now_ns = 1000 * NS_PER_MS;
    st.fds_before = fuzz_open_fds();
    st.running = true;
}

void stage_end(void)
{
    st.running = false;
    if (st.attach_fd >= 0)
        close(st.attach_fd);
    while (st.nqueued > 0)
        free(st.queued[--st.nqueued].bytes);
    FUZZ_CHECK(fuzz_open_fds() == st.fds_before, "a descriptor is left open");
    FUZZ_CHECK(st.mapped == 0, "%ld pages are left mapped", st.mapped);
}

bool stage_next_call(struct record *ret)
{
    while (happen_next())
        continue;
    return records_next(&st.in, ret);
}
