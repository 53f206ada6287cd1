/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <zmq.h>

#include "bench_rig.h"
#include "echo.h"

#define MESSAGE_MAX (256u << 10)

struct echo {
    pid_t pid;
    char dir[64];
    char endpoint[96];
    void *context, *socket;
    size_t request_bytes;
    uint8_t buffer[MESSAGE_MAX];
};

/* The first four bytes of a request say how long the reply is. */
static void echo_serve(const char *endpoint)
{
    static uint8_t buffer[MESSAGE_MAX];
    void *context = zmq_ctx_new();
    void *socket = context ? zmq_socket(context, ZMQ_ROUTER) : NULL;
    if (!socket || zmq_bind(socket, endpoint) != 0)
        _exit(1);
    for (;;) {
        uint8_t route[256];
        uint32_t reply_bytes;
        int route_bytes = zmq_recv(socket, route, sizeof(route), 0);
        int n = zmq_recv(socket, buffer, sizeof(buffer), 0);
        if (route_bytes < 0 || n < (int)sizeof(reply_bytes))
            _exit(1);
        memcpy(&reply_bytes, buffer, sizeof(reply_bytes));
        if (zmq_send(socket, route, (size_t)route_bytes, ZMQ_SNDMORE) < 0 ||
            zmq_send(socket, buffer, reply_bytes, 0) < 0)
            _exit(1);
    }
}

static int start_server(struct echo *echo)
{
    snprintf(echo->dir, sizeof(echo->dir), "/tmp/kvcachebench-echo-XXXXXX");
    if (!mkdtemp(echo->dir)) {
        say_error("cannot make a directory in /tmp: %s", strerror(errno));
        echo->dir[0] = '\0';
        return BENCH_FAILED;
    }
    snprintf(echo->endpoint, sizeof(echo->endpoint), "ipc://%s/echo", echo->dir);
    fflush(NULL);
    echo->pid = fork();
    if (echo->pid == 0) {
        rig_disown();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        echo_serve(echo->endpoint);
    }
    if (echo->pid < 0) {
        echo->pid = 0;
        say_error("fork: %s", strerror(errno));
        return BENCH_FAILED;
    }
    return 0;
}

static int connect_client(struct echo *echo)
{
    int wait_ms = 5000, linger = 0;
    echo->context = zmq_ctx_new();
    echo->socket = echo->context ? zmq_socket(echo->context, ZMQ_DEALER) : NULL;
    if (!echo->socket ||
        zmq_setsockopt(echo->socket, ZMQ_RCVTIMEO, &wait_ms, sizeof(wait_ms)) != 0 ||
        zmq_setsockopt(echo->socket, ZMQ_LINGER, &linger, sizeof(linger)) != 0 ||
        zmq_connect(echo->socket, echo->endpoint) != 0) {
        say_error("ZeroMQ: %s", zmq_strerror(zmq_errno()));
        return BENCH_FAILED;
    }
    return 0;
}

int echo_start(struct echo **ret_echo)
{
    struct echo *echo = calloc(1, sizeof(*echo));
    if (!echo) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    int rc = start_server(echo);
    if (rc == 0)
        rc = connect_client(echo);
    if (rc != 0) {
        echo_stop(&echo);
        return rc;
    }
    *ret_echo = echo;
    return 0;
}

static int send_one(struct echo *echo)
{
    if (zmq_send(echo->socket, echo->buffer, echo->request_bytes, 0) >= 0)
        return 0;
    say_error("echo: %s", zmq_strerror(zmq_errno()));
    return BENCH_FAILED;
}

static int receive_one(struct echo *echo)
{
    uint8_t reply[4096];
    if (zmq_recv(echo->socket, reply, sizeof(reply), 0) >= 0)
        return 0;
    say_error("echo: %s", zmq_strerror(zmq_errno()));
    return BENCH_FAILED;
}

int echo_sizes(struct echo *echo, size_t request_bytes, size_t reply_bytes)
{
    uint32_t reply = (uint32_t)reply_bytes;
    if (request_bytes > MESSAGE_MAX || reply_bytes > MESSAGE_MAX || request_bytes < sizeof(reply)) {
        say_error("a message of %zu bytes is beyond what the echo can do", request_bytes);
        return BENCH_FAILED;
    }
    echo->request_bytes = request_bytes;
    memcpy(echo->buffer, &reply, sizeof(reply));
    int rc = send_one(echo);
    return rc == 0 ? receive_one(echo) : rc;
}

int echo_round_trips(struct echo *echo, double seconds, struct lat *lat)
{
    uint64_t until = now_ns() + (uint64_t)(seconds * 1e9);
    int rc = 0;
    for (uint64_t begun = now_ns(); rc == 0 && begun < until;) {
        rc = send_one(echo);
        if (rc == 0)
            rc = receive_one(echo);
        uint64_t ended = now_ns();
        lat_add(lat, ended - begun);
        begun = ended;
    }
    return rc;
}

int echo_rate(struct echo *echo, double seconds, unsigned depth, double *ret_rate)
{
    uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9), done = 0;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < depth; i++)
        rc = send_one(echo);
    for (; rc == 0 && now_ns() < until; done++) {
        rc = receive_one(echo);
        if (rc == 0)
            rc = send_one(echo);
    }
    for (unsigned i = 0; rc == 0 && i < depth; i++, done++)
        rc = receive_one(echo);
    *ret_rate = (double)done / ((double)(now_ns() - begun) * 1e-9);
    return rc;
}

void echo_stop(struct echo **echo)
{
    if (!echo || !*echo)
        return;
    struct echo *e = *echo;
    if (e->socket)
        zmq_close(e->socket);
    if (e->context)
        zmq_ctx_term(e->context);
    if (e->pid > 0) {
        kill(e->pid, SIGKILL);
        waitpid(e->pid, NULL, 0);
    }
    if (e->dir[0]) {
        unlink(e->endpoint + strlen("ipc://"));
        rmdir(e->dir);
    }
    free(e);
    *echo = NULL;
}
