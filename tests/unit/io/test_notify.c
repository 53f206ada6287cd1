/* SPDX-License-Identifier: Apache-2.0 */
/* The manager is a socket of this process; descriptors come to a program that is started anew. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "io_fixture.h"
#include "notify.h"

static int manager = -1;
static char heard[1024];
static int heard_fd;

static void setup(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    scratch_make(false);
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(manager, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", in_scratch("notify"));
    ck_assert_int_eq(bind(manager, (const struct sockaddr *)&at, sizeof at), 0);
    char *absolute = realpath(at.sun_path, NULL); /* libsystemd takes no relative path */
    ck_assert_ptr_nonnull(absolute);
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", absolute, 1), 0);
    free(absolute);
}

static void teardown(void)
{
    close(manager);
    scratch_remove();
}

static const char *hear(void)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))];
    struct iovec iov = {heard, sizeof heard - 1};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    heard_fd = -1;
    const ssize_t n = recvmsg(manager, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return "nothing";
    heard[n] = '\0';
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
        if (c->cmsg_type == SCM_RIGHTS)
            memcpy(&heard_fd, CMSG_DATA(c), sizeof heard_fd);
    return heard;
}

CASES(.setup = setup, .teardown = teardown);

CASE(the_manager_hears_what_is_said)
{
    ck_assert(notify_is_managed());
    ck_assert_int_eq(notify_ready(), 1);
    ck_assert_str_eq(hear(), "READY=1");
    ck_assert_int_eq(notify_status("12 blocks\nREADY=1"), 1);
    ck_assert_str_eq(hear(), "STATUS=12 blocks");
    ck_assert_int_eq(notify_extend(UINT64_C(1500000000)), 1);
    ck_assert_str_eq(hear(), "EXTEND_TIMEOUT_USEC=1500000");
    ck_assert_int_eq(notify_watchdog(), 1);
    ck_assert_str_eq(hear(), "WATCHDOG=1");
    ck_assert_int_eq(notify_stopping(), 1);
    ck_assert_str_eq(hear(), "STOPPING=1");
}

CASE(a_descriptor_is_given_away_by_name)
{
    const int fd = memfd_create("chunk", MFD_CLOEXEC);
    ck_assert_int_eq(write(fd, "kept", 4), 4);
    ck_assert_int_eq(notify_store_fd("kvcache-chunk-7", fd), 1);
    close(fd);
    ck_assert_str_eq(hear(), "FDSTORE=1\nFDNAME=kvcache-chunk-7");
    char text[5] = "";
    ck_assert_int_eq(pread(heard_fd, text, 4, 0), 4);
    ck_assert_str_eq(text, "kept");
    close(heard_fd);
    ck_assert_int_eq(notify_remove_fd("kvcache-chunk-7"), 1);
    ck_assert_str_eq(hear(), "FDSTOREREMOVE=1\nFDNAME=kvcache-chunk-7");
}

CASE(a_name_that_would_be_misread_is_refused)
{
    static const char *const wrong[] = {"", "a b", "a:b", "a\nREADY=1", "\x7f"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_int_eq(notify_store_fd(wrong[i], 0), -EINVAL);
        ck_assert_int_eq(notify_remove_fd(wrong[i]), -EINVAL);
    }
    ck_assert_int_eq(notify_store_fd("name", -1), -EINVAL);
    ck_assert_str_eq(hear(), "nothing");
}

static void take_none(void *ctx, const char *name, int fd)
{
    (void)ctx;
    ck_abort_msg("was handed %s, descriptor %d", name, fd);
}

CASE(without_a_manager_nothing_is_said_and_nothing_found)
{
    unsetenv("NOTIFY_SOCKET");
    ck_assert(!notify_is_managed());
    ck_assert_int_eq(notify_ready(), 0);
    ck_assert_int_eq(notify_store_fd("name", 1), 0);
    ck_assert_uint_eq(notify_watchdog_interval_ns(), 0);
    ck_assert_int_eq(notify_take_fds(take_none, NULL), 0);
    ck_assert_str_eq(hear(), "nothing");
}

CASE(a_manager_that_is_gone_is_an_error)
{
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1), 0);
    ck_assert_int_lt(notify_ready(), 0);
}

CASE(the_watchdog_is_for_this_process)
{
    char pid[16];
    setenv("WATCHDOG_USEC", "3000000", 1);
    ck_assert_uint_eq(notify_watchdog_interval_ns(), UINT64_C(3000000000));
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    ck_assert_uint_eq(notify_watchdog_interval_ns(), UINT64_C(3000000000));
    setenv("WATCHDOG_PID", "1", 1);
    ck_assert_uint_eq(notify_watchdog_interval_ns(), 0);
}

static char taken[256];

static void take(void *ctx, const char *name, int fd)
{
    const size_t used = strlen(taken);
    char text[8] = "";
    (void)ctx;
    if (pread(fd, text, sizeof text - 1, 0) < 0 || !(fcntl(fd, F_GETFD) & FD_CLOEXEC))
        strcpy(text, "?");
    snprintf(taken + used, sizeof taken - used, "%s=%s ", name, text);
}

/* In the manager's child, whose descriptors from 3 on are those that it was passed. */
static int child_that_takes(void)
{
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    const int first = memfd_create("first", 0);
    const int second = memfd_create("second", 0);
    if (write(first, "one", 3) != 3 || write(second, "two", 3) != 3)
        return 2;
    const int high[2] = {fcntl(first, F_DUPFD, 100), fcntl(second, F_DUPFD, 100)};
    if (dup2(high[0], 3) != 3 || dup2(high[1], 4) != 4)
        return 3;
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "2", 1);
    setenv("LISTEN_FDNAMES", "kvcache-chunk-1:stored", 1);
    if (notify_take_fds(take, NULL) != 2 || strcmp(taken, "kvcache-chunk-1=one stored=two ") != 0)
        return 4;
    return notify_take_fds(take, NULL) == 0 ? 0 : 5;
}

CASE(what_was_kept_is_found_once)
{
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        _exit(child_that_takes());
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

CASE(each_refused_call_is_an_error)
{
    ck_assert_int_eq(fault_arm_text("send:1-2,alloc:1"), 0);
    ck_assert_int_eq(notify_ready(), -EAGAIN);
    ck_assert_int_eq(notify_store_fd("name", 0), -EAGAIN);
    ck_assert_int_eq(notify_take_fds(take_none, NULL), -ENOMEM);
    ck_assert_int_eq(notify_ready(), 1);
}
