/* SPDX-License-Identifier: Apache-2.0 */
/* The attach socket, with workers that are sockets of this process. */
#include "attach.h"
#include "cases.h"
#include "loop_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <kvcache/proto.h>

#define CONNS 4u

static char dir[] = "/tmp/kvc-attach-XXXXXX";
static struct sockaddr_un addr;
static struct loop *loop;
static struct attach *attach;

static struct {
    unsigned opened, messages, closed;
    uint32_t conn;
    uid_t uid;
    pid_t pid;
    size_t len;
    uint8_t bytes[KVC_ATTACH_MAX + 1];
    int refuse; /* what opened() returns */
    bool takes; /* the descriptor of a message */
    int fd;     /* that came with the last one */
} got;

static int on_opened(void *ctx, uint32_t conn, uid_t uid, pid_t pid)
{
    (void)ctx;
    got.opened++;
    got.conn = conn;
    got.uid = uid;
    got.pid = pid;
    return got.refuse;
}

static void on_message(void *ctx, uint32_t conn, const void *buf, size_t len, int *fd)
{
    (void)ctx;
    got.fd = *fd;
    if (got.takes)
        *fd = -1;
    got.messages++;
    got.conn = conn;
    got.len = len;
    memcpy(got.bytes, buf, len);
}

static void on_closed(void *ctx, uint32_t conn)
{
    (void)ctx;
    got.closed++;
    got.conn = conn;
}

static const struct attach_handlers handlers = {
    .opened = on_opened, .message = on_message, .closed = on_closed};

static int make_attach(struct attach **ret)
{
    struct attach_config config = {.path = addr.sun_path, .mode = 0600, .conns_max = CONNS};
    return attach_create(&config, loop, &handlers, ret);
}

static void setup(void)
{
    memset(&got, 0, sizeof got);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    addr.sun_family = AF_UNIX;
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s/attach.sock", dir);
    loop = make(LOOP_AUTO);
    ck_assert_int_eq(make_attach(&attach), 0);
}

static void teardown(void)
{
    attach_destroy(&attach);
    loop_destroy(&loop);
    unlink(addr.sun_path);
    rmdir(dir);
}

static int worker_new(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&addr, sizeof addr), 0);
    return fd;
}

/* Turns until *count is n. */
static void turn_until(const unsigned *count, unsigned n)
{
    while (*count < n)
        ck_assert_int_gt(turn_some(loop), 0);
    ck_assert_uint_eq(*count, n);
}

static int worker_opened(void)
{
    unsigned before = got.opened;
    int fd = worker_new();
    turn_until(&got.opened, before + 1);
    return fd;
}

/* A datagram with n copies of a descriptor. */
static void send_with(int to, const char *text, int fd, unsigned n)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(n * sizeof(int));
    for (unsigned i = 0; i < n; i++)
        memcpy(CMSG_DATA(h) + i * sizeof fd, &fd, sizeof fd);
    ck_assert_int_eq(sendmsg(to, &m, 0), (int)strlen(text));
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_connection_comes_with_its_credentials)
{
    int worker = worker_opened();
    ck_assert_uint_eq(got.uid, getuid());
    ck_assert_int_eq(got.pid, getpid());
    close(worker);
}

CASE(a_datagram_is_one_message)
{
    int worker = worker_opened();
    ck_assert_int_eq(send(worker, "first", 5, 0), 5);
    ck_assert_int_eq(send(worker, "second", 6, 0), 6);
    turn_until(&got.messages, 2);
    ck_assert_uint_eq(got.len, 6);
    ck_assert_mem_eq(got.bytes, "second", 6);
    close(worker);
}

CASE(a_datagram_above_the_limit_is_seen_to_be_too_long)
{
    static uint8_t bytes[2 * KVC_ATTACH_MAX];
    int worker = worker_opened();
    ck_assert_int_eq(send(worker, bytes, sizeof bytes, 0), (int)sizeof bytes);
    turn_until(&got.messages, 1);
    ck_assert_uint_eq(got.len, KVC_ATTACH_MAX + 1);
    close(worker);
}

/* The far end of a pipe reads its end only when nobody holds the near one. */
static void expect_nobody_holds(int end)
{
    struct pollfd p = {.fd = end, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 0), 1);
    ck_assert(p.revents & POLLHUP);
}

/* Message by message: how many come with it, whether it is wanted. */
CASE(descriptors_that_nobody_takes_are_closed)
{
    int worker = worker_opened();
    for (unsigned n = 1; n <= 3; n++) {
        int ends[2];
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        send_with(worker, "with some", ends[1], n);
        close(ends[1]);
        turn_until(&got.messages, n);
        expect_nobody_holds(ends[0]);
        ck_assert_mem_eq(got.bytes, "with some", 9);
        ck_assert((got.fd >= 0) == (n == 1));
        close(ends[0]);
    }
    close(worker);
}

CASE(a_descriptor_that_is_taken_is_the_takers)
{
    int ends[2];
    int worker = worker_opened();
    got.takes = true;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    send_with(worker, "take it", ends[1], 1);
    close(ends[1]);
    turn_until(&got.messages, 1);
    ck_assert_int_ge(got.fd, 0);
    ck_assert_int_eq(fcntl(got.fd, F_GETFD), FD_CLOEXEC);
    struct pollfd p = {.fd = ends[0], .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    close(got.fd);
    expect_nobody_holds(ends[0]);
    close(ends[0]);
    close(worker);
}

/* Of several none is taken, for nobody knows which was meant. */
CASE(of_several_descriptors_none_can_be_taken)
{
    int ends[2];
    int worker = worker_opened();
    got.takes = true;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    send_with(worker, "with two", ends[1], 2);
    close(ends[1]);
    turn_until(&got.messages, 1);
    ck_assert_int_eq(got.fd, -1);
    expect_nobody_holds(ends[0]);
    close(ends[0]);
    close(worker);
}

/* Such a datagram ends the connection, like a closed one; what it carries was lost once. */
CASE(a_descriptor_in_an_empty_datagram_is_closed)
{
    int ends[2];
    int worker = worker_opened();
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    send_with(worker, "", ends[1], 1);
    close(ends[1]);
    turn_until(&got.closed, 1);
    expect_nobody_holds(ends[0]);
    close(ends[0]);
    close(worker);
}

CASE(closing_the_worker_ends_the_connection)
{
    int worker = worker_opened();
    close(worker);
    turn_until(&got.closed, 1);
    ck_assert_uint_eq(got.messages, 0);
}

CASE(a_worker_that_dies_is_gone_though_its_child_holds_the_socket)
{
    int pipe_fds[2];
    ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)worker_new();
        if (fork() == 0) { /* holds the socket until the test is through */
            char c;
            close(pipe_fds[1]);
            _exit(read(pipe_fds[0], &c, 1) == 0 ? 0 : 1);
        }
        _exit(0);
    }
    turn_until(&got.opened, 1);
    ck_assert_int_eq(got.pid, pid);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    turn_until(&got.closed, 1);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

CASE(a_refused_connection_is_closed_and_not_told_of_again)
{
    got.refuse = -EMFILE;
    int worker = worker_opened();
    char c;
    ck_assert_int_eq(recv(worker, &c, 1, 0), 0);
    ck_assert_uint_eq(got.closed, 0);
    close(worker);
}

CASE(beyond_the_limit_connections_are_closed_at_once)
{
    int worker[CONNS];
    for (unsigned i = 0; i < CONNS; i++)
        worker[i] = worker_opened();
    int more = worker_new();
    struct pollfd p = {.fd = more, .events = POLLIN};
    for (unsigned i = 0; i < 1000 && poll(&p, 1, 1) == 0; i++)
        ck_assert_int_ge(loop_turn(loop, 0), 0);
    char c;
    ck_assert_int_eq(recv(more, &c, 1, 0), 0);
    ck_assert_uint_eq(got.opened, CONNS);
    close(worker[0]);
    turn_until(&got.closed, 1);
    close(more);
    more = worker_opened(); /* a place is free again */
    close(more);
    for (unsigned i = 1; i < CONNS; i++)
        close(worker[i]);
}

CASE(who_left_before_being_let_in_takes_no_place)
{
    for (unsigned i = 0; i < 2 * CONNS; i++)
        close(worker_new());
    int worker = worker_new();
    ck_assert_int_eq(send(worker, "x", 1, 0), 1);
    turn_until(&got.messages, 1);
    ck_assert_uint_eq(got.opened, 2 * CONNS + 1);
    ck_assert_uint_eq(got.closed, 2 * CONNS);
    close(worker);
}

CASE(a_descriptor_reaches_the_worker)
{
    int worker = worker_opened();
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(attach_send(attach, got.conn, "take", 4, ends[1]), 0);
    char text[8];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = text, .iov_len = sizeof text};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ck_assert_int_eq(recvmsg(worker, &m, MSG_CMSG_CLOEXEC), 4);
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    ck_assert_ptr_nonnull(h);
    int fd;
    memcpy(&fd, CMSG_DATA(h), sizeof fd);
    ck_assert_int_eq(write(fd, "x", 1), 1);
    ck_assert_int_eq(read(ends[0], text, 1), 1);
    close(fd);
    close(ends[0]);
    close(ends[1]);
    close(worker);
}

CASE(a_worker_that_does_not_read_is_again_and_one_that_is_gone_is_a_broken_pipe)
{
    static uint8_t bytes[KVC_ATTACH_MAX];
    int worker = worker_opened();
    int err = 0;
    for (unsigned i = 0; err == 0 && i < 100000; i++)
        err = attach_send(attach, got.conn, bytes, sizeof bytes, -1);
    ck_assert_int_eq(err, -EAGAIN);
    close(worker);
    ck_assert_int_eq(attach_send(attach, got.conn, bytes, sizeof bytes, -1), -EPIPE);
}

CASE(a_live_listener_is_not_pushed_aside)
{
    struct attach *other = NULL;
    ck_assert_int_eq(make_attach(&other), -EADDRINUSE);
    ck_assert_ptr_null(other);
    int worker = worker_new();      /* the first one still answers */
    turn_until(&got.opened, 1 + 1); /* after the second one, which asked whether it lives */
    close(worker);
}

CASE(a_socket_file_left_over_is_replaced_and_a_plain_file_is_not)
{
    attach_destroy(&attach);
    int stale = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(stale, (const struct sockaddr *)&addr, sizeof addr), 0);
    close(stale);
    ck_assert_int_eq(make_attach(&attach), 0);
    struct stat st;
    ck_assert_int_eq(stat(addr.sun_path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    attach_destroy(&attach);
    int file = open(addr.sun_path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(file, 0);
    close(file);
    ck_assert_int_eq(make_attach(&attach), -EEXIST);
    ck_assert_int_eq(access(addr.sun_path, F_OK), 0);
}

CASE(after_stop_nobody_can_connect_and_who_is_there_stays)
{
    int worker = worker_opened();
    attach_stop(attach);
    int late = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_lt(connect(late, (const struct sockaddr *)&addr, sizeof addr), 0);
    ck_assert_int_eq(send(worker, "still here", 10, 0), 10);
    turn_until(&got.messages, 1);
    close(late);
    close(worker);
}

CASE(a_path_that_does_not_fit_is_refused)
{
    char path[200];
    memset(path, 'x', sizeof path - 1);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    struct attach_config config = {.path = path, .mode = 0600, .conns_max = 1};
    struct attach *other = NULL;
    ck_assert_int_eq(attach_create(&config, loop, &handlers, &other), -ENAMETOOLONG);
    ck_assert_ptr_null(other);
}
