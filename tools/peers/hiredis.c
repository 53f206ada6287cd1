/* SPDX-License-Identifier: Apache-2.0 */
/* Redis through hiredis, its usual C client: the cost for a caller who writes no client. No other
 * file includes the header of hiredis. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "redis_server.h"
#include "served.h"

static int hiredis_fail(redisContext *context, const char *what)
{
    say_error("hiredis: %s: %s", what, context ? context->errstr : "out of memory");
    return BENCH_FAILED;
}

static void hiredis_close_it(struct peer *peer)
{
    if (peer->state)
        redisFree(peer->state);
    peer->state = NULL;
    rig_stop(&peer->rig);
}

static int hiredis_open_it(struct peer *peer)
{
    struct rig_options options = {.server = redis_command};
    int rc = rig_start(&options, &peer->rig);
    if (rc != 0)
        return rc;
    redisContext *context = redisConnectUnix(rig_socket(peer->rig));
    peer->state = context;
    if (!context || context->err)
        return hiredis_fail(context, "connecting");
    /* Keeps the buffer between replies, as hiredis advises for large values. */
    context->reader->maxbuf = 0;
    snprintf(peer->version, sizeof(peer->version), "hiredis %d.%d.%d", HIREDIS_MAJOR, HIREDIS_MINOR,
             HIREDIS_PATCH);
    return 0;
}

static int append(redisContext *context, int n, const char **argv, const size_t *lengths)
{
    return redisAppendCommandArgv(context, n, argv, lengths) == REDIS_OK
               ? 0
               : hiredis_fail(context, "adding a command");
}

static int hiredis_send_set(struct peer *peer, uint32_t index)
{
    char key[PEER_KEY_BYTES];
    uint64_t bytes = peer->plan->block_bytes;
    peer_text_key(index, key);
    const char *argv[] = {"SET", key, (const char *)peer->source + index * bytes};
    const size_t lengths[] = {3, strlen(key), bytes};
    return append(peer->state, 3, argv, lengths);
}

static int hiredis_send_get(struct peer *peer, uint32_t index)
{
    char key[PEER_KEY_BYTES];
    peer_text_key(index, key);
    const char *argv[] = {"GET", key};
    const size_t lengths[] = {3, strlen(key)};
    return append(peer->state, 2, argv, lengths);
}

static int hiredis_take(struct peer *peer, int type, redisReply **ret_reply)
{
    redisReply *reply = NULL;
    if (redisGetReply(peer->state, (void **)&reply) != REDIS_OK)
        return hiredis_fail(peer->state, "reading a reply");
    if (reply->type != type) {
        say_error("hiredis: a reply of type %d: %s", reply->type, reply->str ? reply->str : "nil");
        freeReplyObject(reply);
        return BENCH_FAILED;
    }
    *ret_reply = reply;
    return 0;
}

static int hiredis_take_stored(struct peer *peer, uint32_t index)
{
    (void)index;
    redisReply *reply;
    int rc = hiredis_take(peer, REDIS_REPLY_STATUS, &reply);
    if (rc == 0)
        freeReplyObject(reply);
    return rc;
}

static int hiredis_take_value(struct peer *peer, uint32_t index)
{
    redisReply *reply;
    int rc = hiredis_take(peer, REDIS_REPLY_STRING, &reply);
    if (rc != 0)
        return rc;
    if ((uint64_t)reply->len == peer->plan->block_bytes) {
        peer_use_block(peer, index, reply->str);
    } else {
        say_error("hiredis: block %u has %zu bytes", index, (size_t)reply->len);
        rc = BENCH_FAILED;
    }
    freeReplyObject(reply);
    return rc;
}

static int hiredis_store(struct peer *peer, uint32_t first, uint32_t n)
{
    return served_pipeline(peer, first, n, hiredis_send_set, hiredis_take_stored);
}

static int hiredis_load(struct peer *peer, uint32_t first, uint32_t n)
{
    return served_pipeline(peer, first, n, hiredis_send_get, hiredis_take_value);
}

const struct peer_ops peer_hiredis = {
    .name = "redis, hiredis",
    .settings = "the same server; redisAppendCommandArgv and redisGetReply, 4 MiB in flight, "
                "maxbuf 0; replies are used where hiredis puts them",
    .missing = redis_missing,
    .open = hiredis_open_it,
    .store = hiredis_store,
    .load = {{.how = "GET", .run = hiredis_load}},
    .close = hiredis_close_it,
};
