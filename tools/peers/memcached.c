/* SPDX-License-Identifier: Apache-2.0 */
/* memcached's meta commands, pipelined, over its unix socket, without a client library. */
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "served.h"

static const char *memcached_missing(const struct peer_plan *plan)
{
    (void)plan;
    return peer_has_program("memcached") ? NULL : "memcached is not in PATH";
}

static int ask_version(struct peer *peer)
{
    static char command[] = "version\r\n";
    char line[64];
    struct iovec part = {.iov_base = command, .iov_len = sizeof(command) - 1};
    int rc = stream_send(peer->state, &part, 1);
    if (rc == 0)
        rc = stream_line(peer->state, line, sizeof(line));
    if (rc == 0)
        snprintf(peer->version, sizeof(peer->version), "memcached %s",
                 strncmp(line, "VERSION ", 8) == 0 ? line + 8 : line);
    return rc;
}

static int memcached_open_it(struct peer *peer)
{
    /* As root memcached must be told which user to become. */
    const struct passwd *user = getpwuid(getuid());
    const char *command[] = {"memcached",
                             "-u",
                             user ? user->pw_name : "root",
                             "-s",
                             RIG_SERVER_SOCKET,
                             "-a",
                             "0700",
                             "-m",
                             "4096",
                             "-I",
                             "8m",
                             "-t",
                             "4",
                             NULL};
    int rc = served_open(peer, command);
    return rc == 0 ? ask_version(peer) : rc;
}

static int memcached_send_set(struct peer *peer, uint32_t index)
{
    static char end[] = "\r\n";
    char key[PEER_KEY_BYTES], head[96];
    uint64_t bytes = peer->plan->block_bytes;
    peer_text_key(index, key);
    int n = snprintf(head, sizeof(head), "ms %s %llu\r\n", key, (unsigned long long)bytes);
    struct iovec parts[] = {{.iov_base = head, .iov_len = (size_t)n},
                            {.iov_base = peer->source + index * bytes, .iov_len = bytes},
                            {.iov_base = end, .iov_len = 2}};
    return stream_send(peer->state, parts, 3);
}

static int memcached_take_stored(struct peer *peer, uint32_t index)
{
    char line[128];
    int rc = stream_line(peer->state, line, sizeof(line));
    if (rc == 0 && strncmp(line, "HD", 2) != 0) {
        say_error("memcached did not store block %u: %s", index, line);
        return BENCH_FAILED;
    }
    return rc;
}

static int memcached_store(struct peer *peer, uint32_t first, uint32_t n)
{
    return served_pipeline(peer, first, n, memcached_send_set, memcached_take_stored);
}

static int memcached_send_get(struct peer *peer, uint32_t index)
{
    char key[PEER_KEY_BYTES], head[96];
    peer_text_key(index, key);
    int n = snprintf(head, sizeof(head), "mg %s v\r\n", key);
    struct iovec part = {.iov_base = head, .iov_len = (size_t)n};
    return stream_send(peer->state, &part, 1);
}

static int memcached_take_value(struct peer *peer, uint32_t index)
{
    char line[128], expected[32];
    uint64_t bytes = peer->plan->block_bytes;
    int rc = stream_line(peer->state, line, sizeof(line));
    if (rc != 0)
        return rc;
    snprintf(expected, sizeof(expected), "VA %llu", (unsigned long long)bytes);
    if (strcmp(line, expected) != 0) {
        say_error("memcached does not have block %u: '%s' where '%s' was expected", index, line,
                  expected);
        return BENCH_FAILED;
    }
    rc = stream_bytes(peer->state, peer->target, bytes);
    if (rc == 0)
        rc = stream_line(peer->state, line, sizeof(line));
    if (rc == 0)
        peer_use_block(peer, index, peer->target);
    return rc;
}

static int memcached_load(struct peer *peer, uint32_t first, uint32_t n)
{
    return served_pipeline(peer, first, n, memcached_send_get, memcached_take_value);
}

const struct peer_ops peer_memcached = {
    .name = "memcached",
    .settings =
        "-m 4096 -I 8m -t 4; unix socket, meta commands, pipelined, 4 MiB in flight, values "
        "received straight into the caller's buffer",
    .missing = memcached_missing,
    .open = memcached_open_it,
    .store = memcached_store,
    .load = {{.how = "mg", .run = memcached_load}},
    .close = served_close,
};
