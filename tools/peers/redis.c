/* SPDX-License-Identifier: Apache-2.0 */
/* redis over its unix socket: RESP without a client library, which costs the fewest copies. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "redis_server.h"
#include "served.h"

const char *const redis_command[] = {"redis-server",
                                     "--port",
                                     "0",
                                     "--unixsocket",
                                     RIG_SERVER_SOCKET,
                                     "--unixsocketperm",
                                     "700",
                                     "--save",
                                     "",
                                     "--appendonly",
                                     "no",
                                     "--loglevel",
                                     "warning",
                                     NULL};

const char *redis_missing(const struct peer_plan *plan)
{
    (void)plan;
    return peer_has_program("redis-server") ? NULL : "redis-server is not in PATH";
}

/* The length in a reply's head "$N"; -1: the line is something else. */
static int64_t redis_bulk_length(const char *line)
{
    int64_t length;
    char end;
    return sscanf(line, "$%" SCNd64 "%c", &length, &end) == 1 ? length : -1;
}

static int ask_version(struct peer *peer)
{
    static char command[] = "*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n";
    char line[256], text[8192] = "";
    struct iovec part = {.iov_base = command, .iov_len = sizeof(command) - 1};
    int rc = stream_send(peer->state, &part, 1);
    if (rc == 0)
        rc = stream_line(peer->state, line, sizeof(line));
    if (rc != 0)
        return rc;
    int64_t length = redis_bulk_length(line);
    if (length < 0 || (size_t)length + 2 >= sizeof(text)) {
        say_error("redis does not answer INFO as expected: %s", line);
        return BENCH_FAILED;
    }
    rc = stream_bytes(peer->state, text, (size_t)length + 2);
    const char *at = strstr(text, "redis_version:");
    if (rc == 0 && at)
        snprintf(peer->version, sizeof(peer->version), "redis %.*s", (int)strcspn(at + 14, "\r\n"),
                 at + 14);
    return rc;
}

static int redis_open_it(struct peer *peer)
{
    int rc = served_open(peer, redis_command);
    return rc == 0 ? ask_version(peer) : rc;
}

static int redis_send_set(struct peer *peer, uint32_t index)
{
    static char end[] = "\r\n";
    char key[PEER_KEY_BYTES], head[128];
    uint64_t bytes = peer->plan->block_bytes;
    peer_text_key(index, key);
    int n = snprintf(head, sizeof(head), "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%llu\r\n", strlen(key),
                     key, (unsigned long long)bytes);
    struct iovec parts[] = {{.iov_base = head, .iov_len = (size_t)n},
                            {.iov_base = peer->source + index * bytes, .iov_len = bytes},
                            {.iov_base = end, .iov_len = 2}};
    return stream_send(peer->state, parts, 3);
}

static int redis_take_stored(struct peer *peer, uint32_t index)
{
    char line[256];
    int rc = stream_line(peer->state, line, sizeof(line));
    if (rc == 0 && strcmp(line, "+OK") != 0) {
        say_error("redis did not store block %u: %s", index, line);
        return BENCH_FAILED;
    }
    return rc;
}

static int redis_store(struct peer *peer, uint32_t first, uint32_t n)
{
    return served_pipeline(peer, first, n, redis_send_set, redis_take_stored);
}

static int redis_send_get(struct peer *peer, uint32_t index)
{
    char key[PEER_KEY_BYTES], head[128];
    peer_text_key(index, key);
    int n = snprintf(head, sizeof(head), "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", strlen(key), key);
    struct iovec part = {.iov_base = head, .iov_len = (size_t)n};
    return stream_send(peer->state, &part, 1);
}

static int redis_take_value(struct peer *peer, uint32_t index)
{
    char line[256];
    uint64_t bytes = peer->plan->block_bytes;
    int rc = stream_line(peer->state, line, sizeof(line));
    if (rc != 0)
        return rc;
    if (redis_bulk_length(line) != (int64_t)bytes) {
        say_error("redis does not have block %u: %s", index, line);
        return BENCH_FAILED;
    }
    rc = stream_bytes(peer->state, peer->target, bytes);
    if (rc == 0)
        rc = stream_line(peer->state, line, sizeof(line));
    if (rc == 0)
        peer_use_block(peer, index, peer->target);
    return rc;
}

static int redis_load(struct peer *peer, uint32_t first, uint32_t n)
{
    return served_pipeline(peer, first, n, redis_send_get, redis_take_value);
}

const struct peer_ops peer_redis = {
    .name = "redis",
    .settings = "no persistence, else defaults; unix socket, SET and GET, pipelined, 4 MiB in "
                "flight, values received straight into the caller's buffer",
    .missing = redis_missing,
    .open = redis_open_it,
    .store = redis_store,
    .load = {{.how = "GET", .run = redis_load}},
    .close = served_close,
};
