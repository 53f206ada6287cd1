/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LMCache's storage layer. It is a Python library, so the client is lmcache_peer.py. It maps the
 * same values from a file on tmpfs, calls the same reader, and times its calls itself. A socket
 * tells it what to do next.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "served.h"

static const char *lmcache_missing(const struct peer_plan *plan)
{
    if (!plan->python)
        return "no --python that has LMCache";
    return access(plan->python, X_OK) == 0 ? NULL : "the --python named does not exist";
}

/* Makes the values in a file that both processes map; the file is removed with its directory. */
static int make_source(struct peer *peer, char *path, size_t size)
{
    uint64_t bytes = peer->plan->blocks * peer->plan->block_bytes;
    snprintf(path, size, "%s/values", peer->plan->tmpfs);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    void *at = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (at == MAP_FAILED) {
        say_error("LMCache: %s: cannot be made", path);
        return BENCH_FAILED;
    }
    peer->source = at;
    return 0;
}

/* Sends a line; takes the reply "ok TEXT" or "error TEXT". */
static int lmcache_ask(struct peer *peer, const char *command, char *reply, size_t size)
{
    char text[256];
    int n = snprintf(text, sizeof(text), "%s\n", command);
    struct iovec part = {.iov_base = text, .iov_len = (size_t)n};
    int rc = stream_send(peer->state, &part, 1);
    if (rc == 0)
        rc = stream_line(peer->state, reply, size);
    if (rc == 0 && strncmp(reply, "ok ", 3) != 0) {
        say_error("LMCache: %s: %s", command, reply);
        return BENCH_FAILED;
    }
    return rc;
}

static int open_backend(struct peer *peer, const char *backend)
{
    const struct peer_plan *plan = peer->plan;
    char source[512], blocks[32], bytes[32], reply[512];
    snprintf(blocks, sizeof(blocks), "%u", plan->blocks);
    snprintf(bytes, sizeof(bytes), "%" PRIu64, plan->block_bytes);
    int rc = make_source(peer, source, sizeof(source));
    if (rc != 0)
        return rc;
    const char *command[] = {plan->python, plan->script, "--socket",      RIG_SERVER_SOCKET,
                             "--backend",  backend,      "--source",      source,
                             "--blocks",   blocks,       "--block-bytes", bytes,
                             "--disk",     plan->disk,   "--reader",      plan->reader,
                             NULL};
    rc = served_open(peer, command);
    if (rc == 0)
        rc = lmcache_ask(peer, "version", reply, sizeof(reply));
    if (rc == 0)
        snprintf(peer->version, sizeof(peer->version), "%.100s", reply + 3);
    return rc;
}

static int open_cpu(struct peer *peer)
{
    return open_backend(peer, "cpu");
}

static int lmcache_open_disk(struct peer *peer)
{
    return open_backend(peer, "disk");
}

static int open_server(struct peer *peer)
{
    return open_backend(peer, "server");
}

static int lmcache_work(struct peer *peer, const char *verb, uint32_t first, uint32_t n)
{
    static const char *const uses[] = {"take", "read", "check"};
    char command[128], reply[512];
    snprintf(command, sizeof(command), "%s %u %u %s", verb, first, n, uses[peer->use]);
    int rc = lmcache_ask(peer, command, reply, sizeof(reply));
    uint64_t ns, wrong;
    if (rc != 0)
        return rc;
    if (sscanf(reply, "ok %" SCNu64 " %" SCNu64, &ns, &wrong) != 2) {
        say_error("LMCache: %s: not understood: %s", command, reply);
        return BENCH_FAILED;
    }
    peer->own_ns = ns;
    peer->wrong_bytes += wrong;
    return 0;
}

static int lmcache_store(struct peer *peer, uint32_t first, uint32_t n)
{
    return lmcache_work(peer, "store", first, n);
}

static int lmcache_load(struct peer *peer, uint32_t first, uint32_t n)
{
    return lmcache_work(peer, "load", first, n);
}

static void lmcache_close_it(struct peer *peer)
{
    served_close(peer);
    if (peer->source)
        munmap(peer->source, peer->plan->blocks * peer->plan->block_bytes);
    peer->source = NULL;
}

const struct peer_ops peer_lmcache_cpu = {
    .name = "LMCache, local CPU",
    .settings = "StorageManager in the worker's own process: allocate, copy in, batched_put; "
                "batched_get, values used where they lie",
    .fills = 1, /* LMCache is slow, and takes its memory when it starts */
    .missing = lmcache_missing,
    .open = open_cpu,
    .store = lmcache_store,
    .load = {{.how = "in process", .run = lmcache_load}},
    .close = lmcache_close_it,
};

const struct peer_ops peer_lmcache_disk = {
    .name = "LMCache, local disk",
    .settings = "the same with local_disk and without local_cpu; a store ends when its files are "
                "written, no O_DIRECT",
    .fills = 1, /* LMCache is slow, and takes its memory when it starts */
    .missing = lmcache_missing,
    .open = lmcache_open_disk,
    .store = lmcache_store,
    .load = {{.how = "files", .run = lmcache_load}},
    .close = lmcache_close_it,
};

const struct peer_ops peer_lmcache_server = {
    .name = "LMCache, server",
    .settings = "the same with remote_url lm://127.0.0.1 (lmcache_server, TCP) and without "
                "local_cpu; a store ends when its put tasks have",
    .fills = 1, /* LMCache is slow, and takes its memory when it starts */
    .missing = lmcache_missing,
    .open = open_server,
    .store = lmcache_store,
    .load = {{.how = "TCP", .run = lmcache_load}},
    .close = lmcache_close_it,
};
