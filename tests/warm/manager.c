/* SPDX-License-Identifier: Apache-2.0 */
#include "manager.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST_FD   3
#define NAME_BYTES 64

static struct {
    int socket;
    char path[64];
    pthread_t thread;
    pthread_mutex_t lock;
    uint32_t max;
    int fd[MANAGER_FDS_MAX];
    char name[MANAGER_FDS_MAX][NAME_BYTES];
    struct manager_stats stats;
    char names[MANAGER_FDS_MAX * NAME_BYTES]; /* for LISTEN_FDNAMES */
} m = {.socket = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

/* --- what a service says --- */

static void drop_at(uint32_t i)
{
    close(m.fd[i]);
    m.stats.held--;
    m.fd[i] = m.fd[m.stats.held];
    memmove(m.name[i], m.name[m.stats.held], NAME_BYTES);
}

static void store(const char *name, const int *fds, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (m.stats.held == m.max) {
            close(fds[i]);
            m.stats.refused++;
            continue;
        }
        m.fd[m.stats.held] = fds[i];
        snprintf(m.name[m.stats.held], NAME_BYTES, "%s", name[0] != '\0' ? name : "stored");
        m.stats.held++;
        m.stats.stored++;
    }
}

static void drop(const char *name)
{
    for (uint32_t i = 0; i < m.stats.held;) {
        if (strcmp(m.name[i], name) != 0) {
            i++;
            continue;
        }
        drop_at(i);
        m.stats.removed++;
    }
}

/* The value of `key` in lines of KEY=VALUE, cut to NAME_BYTES; false: there is none. */
static bool value_of(const char *text, const char *key, char ret[NAME_BYTES])
{
    const size_t n = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        const size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
        if (length > n && strncmp(line, key, n) == 0 && line[n] == '=') {
            snprintf(ret, NAME_BYTES, "%.*s", (int)(length - n - 1), line + n + 1);
            return true;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return false;
}

static void understand(const char *text, const int *fds, uint32_t n)
{
    char value[NAME_BYTES], name[NAME_BYTES] = "";
    (void)value_of(text, "FDNAME", name);
    pthread_mutex_lock(&m.lock);
    m.stats.ready += value_of(text, "READY", value);
    m.stats.stopping += value_of(text, "STOPPING", value);
    m.stats.watchdogs += value_of(text, "WATCHDOG", value);
    if (value_of(text, "FDSTOREREMOVE", value))
        drop(name);
    if (value_of(text, "FDSTORE", value))
        store(name, fds, n);
    else
        while (n > 0)
            close(fds[--n]);
    pthread_mutex_unlock(&m.lock);
}

static bool receive(void)
{
    char text[4096];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(64 * sizeof(int))];
    } control;
    struct iovec iov = {text, sizeof(text) - 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    int fds[64];
    uint32_t n = 0;
    const ssize_t got = recvmsg(m.socket, &msg, MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return false;
    text[got] = '\0';
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c != NULL; c = CMSG_NXTHDR(&msg, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            n = (uint32_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(fds, CMSG_DATA(c), n * sizeof(int));
        }
    if (strcmp(text, "END") == 0)
        return false;
    understand(text, fds, n);
    return true;
}

static void *listen_main(void *arg)
{
    (void)arg;
    while (receive())
        continue;
    return NULL;
}

/* --- what a service gets --- */

/* In the child, before exec. What was said before must be known by then: the socket is empty. */
static void hand_over(void)
{
    char number[16];
    int high[MANAGER_FDS_MAX];
    if (m.socket < 0)
        return;
    m.names[0] = '\0';
    size_t at = 0;
    for (uint32_t i = 0; i < m.stats.held; i++) {
        high[i] = fcntl(m.fd[i], F_DUPFD, FIRST_FD + (int)MANAGER_FDS_MAX);
        at += (size_t)snprintf(m.names + at, sizeof(m.names) - at, "%s%s", i > 0 ? ":" : "",
                               m.name[i]);
    }
    for (uint32_t i = 0; i < m.stats.held; i++) {
        if (high[i] < 0 || dup2(high[i], FIRST_FD + (int)i) < 0)
            _exit(126);
        close(high[i]);
    }
    snprintf(number, sizeof(number), "%d", (int)getpid());
    if (setenv("LISTEN_PID", number, 1) != 0 || setenv("LISTEN_FDNAMES", m.names, 1) != 0)
        _exit(126);
    snprintf(number, sizeof(number), "%u", m.stats.held);
    if (setenv("LISTEN_FDS", number, 1) != 0 || setenv("NOTIFY_SOCKET", m.path, 1) != 0 ||
        setenv("WATCHDOG_USEC", "30000000", 1) != 0)
        _exit(126);
    if (m.stats.held == 0) {
        unsetenv("LISTEN_PID");
        unsetenv("LISTEN_FDS");
        unsetenv("LISTEN_FDNAMES");
    }
}

/* A killed service's last words are taken before the next one starts, as systemd does. */
static void before_fork(void)
{
    for (unsigned i = 0; m.socket >= 0 && i < 1000; i++) {
        struct pollfd p = {.fd = m.socket, .events = POLLIN};
        if (poll(&p, 1, 0) == 0)
            break;
        usleep(1000);
    }
    pthread_mutex_lock(&m.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&m.lock);
}

static void in_child(void)
{
    pthread_mutex_unlock(&m.lock);
    hand_over();
}

/* --- begin, end --- */

void manager_begin(uint32_t max)
{
    static bool hooked;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    ck_assert_uint_le(max, MANAGER_FDS_MAX);
    m.max = max;
    m.stats = (struct manager_stats){0};
    snprintf(m.path, sizeof(m.path), "/tmp/kvc-manager-%d", (int)getpid());
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", m.path);
    (void)unlink(m.path);
    m.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(m.socket, 0);
    ck_assert_int_eq(bind(m.socket, (struct sockaddr *)&addr, sizeof(addr)), 0);
    ck_assert_int_eq(pthread_create(&m.thread, NULL, listen_main, NULL), 0);
    if (!hooked)
        ck_assert_int_eq(pthread_atfork(before_fork, after_fork, in_child), 0);
    hooked = true;
}

void manager_forget(void)
{
    pthread_mutex_lock(&m.lock);
    while (m.stats.held > 0)
        drop_at(0);
    pthread_mutex_unlock(&m.lock);
}

void manager_stats(struct manager_stats *ret_stats)
{
    pthread_mutex_lock(&m.lock);
    *ret_stats = m.stats;
    pthread_mutex_unlock(&m.lock);
}

void manager_end(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", m.path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(sendto(fd, "END", 3, 0, (struct sockaddr *)&addr, sizeof(addr)), 3);
    close(fd);
    ck_assert_int_eq(pthread_join(m.thread, NULL), 0);
    close(m.socket);
    m.socket = -1;
    (void)unlink(m.path);
    manager_forget();
}
