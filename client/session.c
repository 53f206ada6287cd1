/* SPDX-License-Identifier: Apache-2.0 */
/* A session: kvc_open(), kvc_close(), and small questions about it. */
#include "client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include "channel.h"
#include "client_gpu__.h"
#include "sys.h"

#define DEFAULT_SOCKET  "/run/kvcache/attach.sock"
#define SOCKET_PATH_MAX sizeof(((struct sockaddr_un *)0)->sun_path)

/* The text of a kvc_open that failed: there is no session to keep it in. */
static _Thread_local char open_error[512];

/* Keeps a text for kvc_last_error(NULL) in this thread, and returns `error`. */
static int fail_open(int error, const char *text)
{
    (void)snprintf(open_error, sizeof(open_error), "%s", text);
    return error;
}

static int session_check_options(const struct kvc_options *o)
{
    if (o->timeout_ms > KVC_DEADLINE_MAX_MS)
        return fail_open(-EINVAL, "timeout_ms is above 600000, the longest deadline");
    if (o->shard >= KVC_SHARDS_MAX)
        return fail_open(-EINVAL, "shard must be below 64");
    if (o->must_connect && o->no_wait)
        return fail_open(-EINVAL, "must_connect and no_wait exclude each other");
    if (o->socket != NULL && o->socket[0] == '\0')
        return fail_open(-EINVAL, "socket is an empty string; NULL means the default");
    return 0;
}

/* Frees everything that maps the daemon's memory. */
static void unmap_all(struct kvc *k)
{
    gpu__destroy_all(k);
    op__destroy_all(k);
    hold__destroy_all(k);
    map__retire_all(&k->maps);
}

static void release_memory(struct kvc *k)
{
    unmap_all(k);
    words__destroy_all(k);
    daemon_exit__close(k);
    while (k->ns != NULL) {
        struct kvc_ns *next = k->ns->next;
        free(k->ns);
        k->ns = next;
    }
    staging__destroy(k);
    if (k->tx != NULL)
        (void)munmap(k->tx, KVC_MESSAGE_MAX);
    watch__close(k);
    fork__leave(k);
    free(k->resvs);
    free(k->asked);
    free(k->next_orphan);
    free(k->socket);
    free(k);
}

/* Messages carry UTF-8 only: in a name of another encoding, bytes beyond ASCII become '?'. */
static void set_name(struct kvc *k, const char *name)
{
    (void)snprintf(k->name, sizeof(k->name), "%s",
                   name != NULL ? name : program_invocation_short_name);
    if (codec_is_text(codec_text(k->name)))
        return;
    for (char *c = k->name; *c != '\0'; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
}

static int session_create(const struct kvc_options *o, struct kvc **ret_kvc)
{
    struct kvc *k = sys_calloc(1, sizeof(*k));
    if (k == NULL)
        return fail_open(-ENOMEM, "out of memory");
    const char *path = o->socket != NULL ? o->socket : getenv("KVCACHE_SOCKET");
    k->socket = sys_strdup(path != NULL && path[0] != '\0' ? path : DEFAULT_SOCKET);
    set_name(k, o->name);
    k->staging.wanted = o->staging_bytes;
    k->shard = o->shard;
    k->must_connect = o->must_connect;
    k->timeout_ms = o->timeout_ms != 0 ? o->timeout_ms : KVC_DEADLINE_DEFAULT_MS;
    k->attach_fd = -1;
    for (uint32_t i = 0; i < DAEMON_EXITS_MAX; i++)
        k->exit[i].pidfd = -1;
    k->watch = (struct watch){.epoll = -1, .event = -1, .timer = -1};
    k->backoff_ms = RECONNECT_MIN_MS;
    k->take_news = news__take;
    k->tx = sys_pages(KVC_MESSAGE_MAX);
    if (k->socket != NULL && strlen(k->socket) >= SOCKET_PATH_MAX) {
        release_memory(k);
        return fail_open(-EINVAL, "the socket's path is longer than 107 bytes");
    }
    int rc = k->socket == NULL || k->tx == NULL ? -ENOMEM : fork__enter(k);
    if (rc == 0)
        rc = wire__init(&k->wire);
    if (rc < 0) {
        release_memory(k);
        return fail_open(rc, strerrordesc_np(-rc));
    }
    *ret_kvc = k;
    return 0;
}

int kvc_open(const struct kvc_options *options, struct kvc **ret_kvc)
{
    static const struct kvc_options defaults;
    const struct kvc_options *o = options != NULL ? options : &defaults;
    if (ret_kvc == NULL)
        return fail_open(-EINVAL, "ret_kvc is NULL");
    int rc = session_check_options(o);
    if (rc < 0)
        return rc;
    struct kvc *k;
    rc = session_create(o, &k);
    if (rc < 0)
        return rc;
    uint64_t deadline = o->no_wait ? 0 : kvc__deadline(k, 0);
    rc = kvc__connect(k, deadline, deadline);
    /* An operator has to remove the cause of a refusal, so the call fails. An absent daemon may
     * come later. */
    if (rc == KVC_E_DENIED || rc == -EACCES || rc == KVC_E_VERSION || (rc < 0 && o->must_connect)) {
        if (rc != KVC_E_DENIED && rc != -EACCES && rc != KVC_E_VERSION)
            rc = KVC_E_DOWN;
        (void)fail_open(rc, k->error);
        kvc_close(&k);
        return rc;
    }
    *ret_kvc = k;
    return 0;
}

void kvc_close(struct kvc **kvc)
{
    if (kvc == NULL || *kvc == NULL)
        return;
    struct kvc *k = *kvc;
    *kvc = NULL;
    if (!fork__is_child(k)) {
        read__flush_hints(k);
        op__stop_all(k, NULL);
    }
    k->state = LINK_DOWN; /* no RELEASE is sent: leases end with the connection */
    /* In a child of fork() the ZeroMQ context has no thread and must not be touched, and nothing
     * may be sent on the parent's connection. Closing the copied descriptor does not end it. */
    if (!fork__is_child(k)) {
        unmap_all(k); /* before the connection closes, which tells the daemon so */
        /* The attach connection first: its end is the session's end. In the other order, a reply
         * of the daemon might find only the control connection cut, which it takes for a fault. */
        fork__forbid();
        channel__close(&k->attach_fd);
        fork__allow();
        wire__destroy(&k->wire);
    } else if (k->attach_fd >= 0) {
        close(k->attach_fd);
    }
    release_memory(k);
}

/* ---- small questions ---- */

const char *kvc_last_error(const struct kvc *kvc)
{
    return kvc != NULL ? kvc->error : open_error;
}

bool kvc_is_up(const struct kvc *kvc)
{
    return kvc->state == LINK_UP && kvc->silent_ns == 0 && !fork__is_child(kvc);
}

uint32_t kvc_epoch(const struct kvc *kvc)
{
    return kvc->epoch;
}

void kvc_get_counters(const struct kvc *kvc, struct kvc_counters *ret_counters)
{
    *ret_counters = kvc->counters;
}

void *kvc_staging(struct kvc *kvc, uint64_t *ret_bytes)
{
    /* A session that only stores may make no other call that connects. */
    if (kvc__look(kvc) < 0 || kvc->staging.at == NULL || kvc->staging.epoch != kvc->epoch)
        return NULL;
    staging__forget_before(kvc);
    kvc->staging.asked = kvc->epoch;
    if (ret_bytes != NULL)
        *ret_bytes = kvc->staging.bytes;
    return kvc->staging.at;
}

static int begin_ping(struct kvc *k, int down, bool listed, struct kvc_op **ret_op)
{
    struct kvc_op *op;
    int rc = down < 0 ? down : op__new(k, KVC_OP_PING, kvc__deadline(k, 0), &op);
    if (rc < 0)
        return rc;
    op->listed = listed;
    rc = op__send(op, codec_enc_bare(k->tx, KVC_MESSAGE_MAX, &op->head));
    if (rc < 0)
        op__free(op);
    else
        *ret_op = op;
    return rc;
}

int kvc_ping_begin(struct kvc *kvc, struct kvc_op **ret_op)
{
    return begin_ping(kvc, kvc__look(kvc), true, ret_op);
}

int session__finish_ping(struct kvc_op *op, uint64_t *ret_uptime_ms)
{
    struct msg_reply_head head;
    struct msg_ping_reply reply;
    int rc = op__await(op);
    if (rc == 0)
        rc = op__checked(op, codec_dec_ping_reply(op->msg.data, op->msg.len, &head, &reply));
    if (rc == 0 && ret_uptime_ms != NULL)
        *ret_uptime_ms = reply.uptime_ms;
    return rc;
}

int kvc_ping(struct kvc *kvc, uint64_t *ret_uptime_ms)
{
    struct kvc_op *op;
    int rc = begin_ping(kvc, kvc__enter(kvc, kvc__deadline(kvc, 0)), false, &op);
    if (rc < 0)
        return rc;
    rc = session__finish_ping(op, ret_uptime_ms);
    op__free(op);
    return rc;
}
