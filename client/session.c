/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include "channel.h"
#include "sys.h"

#define DEFAULT_SOCKET  "/run/kvcache/attach.sock"
#define SOCKET_PATH_MAX sizeof(((struct sockaddr_un *)0)->sun_path)

/* kvc_open has no session to keep the text of its failure in. */
static _Thread_local char open_error[512];

int kvc__status_error(unsigned status)
{
    /* A daemon of a later version may know more statuses; their numbers are not for our callers. */
    return status < KVC_ST_COUNT ? -(int)(1000 + status) : KVC_E_INTERNAL;
}

int kvc__fail(struct kvc *k, int error, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(k->error, sizeof(k->error), fmt, ap);
    va_end(ap);
    return error;
}

int kvc__fail_open(int error, const char *text)
{
    (void)snprintf(open_error, sizeof(open_error), "%s", text);
    return error;
}

uint64_t kvc__deadline(const struct kvc *k, uint32_t timeout_ms)
{
    return kvc__now() + NS_PER_MS * (timeout_ms != 0 ? timeout_ms : k->timeout_ms);
}

int kvc__enter(struct kvc *k, uint64_t deadline_ns)
{
    if (fork__is_child(k))
        return kvc__fail(k, -EPERM,
                         "this session belongs to the parent process; open one after fork()");
    bool up = k->state == LINK_UP;
    if (up && kvc__now() - k->news_ns > NEWS_INTERVAL_MS * NS_PER_MS)
        up = kvc__news(k) == 0;
    if (up)
        return 0;

    /* The wait for a WELCOME is spent once; later calls of the same attach only look. */
    uint64_t welcome_ns = kvc__now();
    if (k->state == LINK_DOWN)
        welcome_ns = kvc__min(deadline_ns, welcome_ns + WELCOME_WAIT_MS * NS_PER_MS);
    return kvc__connect(k, welcome_ns, deadline_ns) == 0 ? 0 : KVC_E_DOWN;
}

/* ---- open and close ---- */

static int check_options(const struct kvc_options *o)
{
    if (o->timeout_ms > KVC_DEADLINE_MAX_MS)
        return kvc__fail_open(-EINVAL, "timeout_ms is above 600000, the longest deadline");
    if (o->shard >= KVC_SHARDS_MAX)
        return kvc__fail_open(-EINVAL, "shard must be below 64");
    if (o->socket != NULL && o->socket[0] == '\0')
        return kvc__fail_open(-EINVAL, "socket is an empty string; NULL means the default");
    return 0;
}

static void release_memory(struct kvc *k)
{
    op__destroy_all(k);
    hold__destroy_all(k);
    map__retire_all(&k->maps);
    while (k->ns != NULL) {
        struct kvc_ns *next = k->ns->next;
        free(k->ns);
        k->ns = next;
    }
    if (k->staging != NULL)
        (void)munmap(k->staging, k->staging_bytes);
    if (k->tx != NULL)
        (void)munmap(k->tx, KVC_MESSAGE_MAX);
    fork__leave(k);
    free(k->parting);
    free(k->resv);
    free(k->socket);
    free(k);
}

static int create(const struct kvc_options *o, struct kvc **ret_kvc)
{
    struct kvc *k = sys_calloc(1, sizeof(*k));
    if (k == NULL)
        return kvc__fail_open(-ENOMEM, "out of memory");
    const char *path = o->socket != NULL ? o->socket : getenv("KVCACHE_SOCKET");
    k->socket = sys_strdup(path != NULL && path[0] != '\0' ? path : DEFAULT_SOCKET);
    (void)snprintf(k->name, sizeof(k->name), "%s",
                   o->name != NULL ? o->name : program_invocation_short_name);
    k->staging_wanted = o->staging_bytes;
    k->shard = o->shard;
    k->timeout_ms = o->timeout_ms != 0 ? o->timeout_ms : KVC_DEADLINE_DEFAULT_MS;
    k->attach_fd = -1;
    k->backoff_ms = RECONNECT_MIN_MS;
    k->tx = sys_pages(KVC_MESSAGE_MAX);
    if (k->socket != NULL && strlen(k->socket) >= SOCKET_PATH_MAX) {
        release_memory(k);
        return kvc__fail_open(-EINVAL, "the socket's path is longer than 107 bytes");
    }
    int rc = k->socket == NULL || k->tx == NULL ? -ENOMEM : fork__enter(k);
    if (rc == 0)
        rc = wire__init(&k->wire);
    if (rc < 0) {
        release_memory(k);
        return kvc__fail_open(rc, strerrordesc_np(-rc));
    }
    *ret_kvc = k;
    return 0;
}

int kvc_open(const struct kvc_options *options, struct kvc **ret_kvc)
{
    static const struct kvc_options defaults;
    const struct kvc_options *o = options != NULL ? options : &defaults;
    if (ret_kvc == NULL)
        return kvc__fail_open(-EINVAL, "ret_kvc is NULL");
    int rc = check_options(o);
    if (rc < 0)
        return rc;
    struct kvc *k;
    rc = create(o, &k);
    if (rc < 0)
        return rc;
    uint64_t deadline = kvc__deadline(k, 0);
    rc = kvc__connect(k, deadline, deadline);
    /* A refusal is for the operator to mend; absence mends itself. */
    if (rc == KVC_E_DENIED || rc == -EACCES || rc == KVC_E_VERSION || (rc < 0 && o->must_connect)) {
        if (rc != KVC_E_DENIED && rc != -EACCES && rc != KVC_E_VERSION)
            rc = KVC_E_DOWN;
        (void)kvc__fail_open(rc, k->error);
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
    /* In a child of fork() the ZeroMQ context has no thread and must not be touched, and nothing
     * may be said on the parent's connection; closing the copied descriptor does not end it. */
    if (!fork__is_child(k)) {
        wire__destroy(&k->wire);
        channel__close(&k->attach_fd);
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
    return kvc->state == LINK_UP && !fork__is_child(kvc);
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
    if (!kvc_is_up(kvc) || kvc->staging == NULL || kvc->staging_epoch != kvc->epoch)
        return NULL;
    kvc->staging_asked = kvc->epoch;
    if (ret_bytes != NULL)
        *ret_bytes = kvc->staging_bytes;
    return kvc->staging;
}

int kvc_ping(struct kvc *kvc, uint64_t *ret_uptime_ms)
{
    uint64_t deadline = kvc__deadline(kvc, 0);
    int rc = kvc__enter(kvc, deadline);
    if (rc < 0)
        return rc;
    struct kvc_op *op;
    rc = op__new(kvc, KVC_OP_PING, deadline, &op);
    if (rc < 0)
        return rc;
    rc = op__call(op, codec_enc_bare(kvc->tx, KVC_MESSAGE_MAX, &op->head));
    if (rc == 0) {
        struct msg_reply_head head;
        struct msg_ping_reply reply;
        rc = op__checked(op, codec_dec_ping_reply(op->msg.data, op->msg.len, &head, &reply));
        if (rc == 0 && ret_uptime_ms != NULL)
            *ret_uptime_ms = reply.uptime_ms;
    }
    op__free(op);
    return rc;
}
