/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects to the daemon, in steps that need not wait, and kvc__enter(), with which every call of
 * the library begins.
 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "channel.h"

/* ---- connecting ---- */

static int start_attach(struct kvc *k)
{
    uint64_t now = kvc__now();
    if (now < k->next_try_ns)
        return KVC_E_DOWN; /* kvc_last_error still says why the last attempt failed */
    k->next_try_ns = now + k->backoff_ms * NS_PER_MS;
    k->backoff_ms = (uint32_t)kvc__min(2 * k->backoff_ms, RECONNECT_MAX_MS);
    k->attach_until_ns = now + WELCOME_MAX_MS * NS_PER_MS;

    if (orphan__prepare(k) < 0)
        return kvc__fail(k, KVC_E_DOWN, "out of memory");
    fork__forbid();
    int fd = channel__connect(k->socket);
    k->attach_fd = fd < 0 ? -1 : fd;
    fork__allow();
    if (fd == -EACCES)
        return kvc__fail(k, fd,
                         "user %u may not connect to %s: the daemon's socket_mode, or a directory "
                         "above the socket, forbids it",
                         (unsigned)geteuid(), k->socket);
    if (fd == -EAGAIN)
        return kvc__fail(k, KVC_E_DOWN,
                         "the daemon at %s has not let in those who came before: its queue is full",
                         k->socket);
    if (fd < 0) {
        k->silent_ns = 0;
        return kvc__fail(k, KVC_E_DOWN, "no daemon at %s (%s)", k->socket, strerrordesc_np(-fd));
    }
    watch__add(k, fd);
    k->state = LINK_ATTACHING;
    return 0;
}

static void link_up(struct kvc *k)
{
    k->state = LINK_UP;
    k->backoff_ms = RECONNECT_MIN_MS;
    k->news_ns = kvc__now();
}

void kvc__reopened_one(struct kvc *k)
{
    if (k->state == LINK_REOPENING && --k->reopening == 0)
        link_up(k);
}

/* An epoch begins. If NS_OPEN of a namespace cannot be sent now, the first call that needs the
 * namespace opens it. */
static void reopen_namespaces(struct kvc *k)
{
    k->state = LINK_REOPENING;
    if (k->epoch++ > 0)
        k->counters.reconnects++;
    k->reopening = 1;
    for (struct kvc_ns *ns = k->ns; ns != NULL && k->state == LINK_REOPENING; ns = ns->next)
        k->reopening += ns__reopen(ns) == 0;
    kvc__reopened_one(k);
}

/* The HELLO was answered, or given up. */
static void greeted(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    struct msg_reply_head head;
    struct msg_hello_reply reply;
    int rc = op->error;
    bool malformed = rc == 0 && codec_dec_hello_reply(op->msg.data, op->msg.len, &head, &reply) < 0;
    bool answered = op->msg.full;
    op__explain(op);
    op__free(op);
    char why[sizeof(k->error)];
    (void)snprintf(why, sizeof(why), "%s", k->error);
    if (malformed)
        (void)kvc__down(k, KVC_E_BAD_MESSAGE,
                        "the daemon sent a malformed reply to HELLO; disconnected");
    else if (!answered)
        (void)kvc__down(k, KVC_E_DOWN, "the daemon at %s accepts but does not answer", k->socket);
    else if (rc < 0)
        (void)kvc__down(k, rc, "the daemon refused HELLO: %s", why);
    else
        reopen_namespaces(k);
}

static int start_greeting(struct kvc *k, const struct att_welcome *w)
{
    char endpoint[256];
    if (w->endpoint.n < 1 || w->endpoint.n >= sizeof(endpoint))
        return kvc__malformed(k, "WELCOME (its endpoint is empty or too long)");
    memcpy(endpoint, w->endpoint.p, w->endpoint.n);
    endpoint[w->endpoint.n] = '\0';
    int rc = wire__connect(&k->wire, endpoint, w->route);
    if (rc < 0)
        return kvc__down(k, KVC_E_DOWN, "cannot connect to %s (%s)", endpoint,
                         strerrordesc_np(-rc));
    watch__add(k, k->wire.fd);
    k->state = LINK_GREETING;
    struct msg_hello hello = {.ver_min = KVC_PROTO_MIN, .ver_max = KVC_PROTO_MAX};
    struct kvc_op *op = NULL;
    rc = op__new_own(k, KVC_OP_HELLO, k->attach_until_ns, &op);
    if (rc == 0) {
        op->then = greeted;
        rc = op__send(op, codec_enc_hello(k->tx, KVC_MESSAGE_MAX, &op->head, &hello));
    }
    if (rc < 0)
        op__free(op);
    if (rc < 0 && k->state != LINK_DOWN)
        return kvc__down(k, KVC_E_DOWN, "cannot greet the daemon (%s)", kvc_error_name(rc));
    return rc;
}

static int take_welcome(struct kvc *k, const uint8_t *buf, size_t len, int passed)
{
    struct att_welcome w;
    if (codec_att_code(buf, len) == KVC_ATTACH_DROPPED)
        return kvc__dropped(k, buf, len);
    if (codec_dec_att_welcome(buf, len, &w) < 0)
        return kvc__malformed(k, "WELCOME");
    if (w.status != KVC_ST_OK)
        return kvc__down(k, kvc__status_error(w.status), "%s: %.*s", codec_status_name(w.status),
                         (int)w.detail.n, (const char *)w.detail.p);
    if (w.version < KVC_PROTO_MIN || w.version > KVC_PROTO_MAX)
        return kvc__down(k, KVC_E_VERSION,
                         "the daemon chose protocol version %u; this library speaks %u to %u",
                         w.version, KVC_PROTO_MIN, KVC_PROTO_MAX);
    if ((w.staging_bytes != 0) != (passed >= 0))
        return kvc__malformed(k, "WELCOME (staging and descriptor do not agree)");
    if (w.staging_bytes != 0) {
        int rc = staging__map(k, passed, w.staging_bytes);
        if (rc == -EPROTO)
            return kvc__malformed(k, "WELCOME (its staging file is shorter than it says)");
        if (rc < 0)
            return kvc__down(k, rc, "cannot map %llu bytes of staging: %s",
                             (unsigned long long)w.staging_bytes, strerrordesc_np(-rc));
    }
    return start_greeting(k, &w);
}

/* Handles the daemon's WELCOME, if it has arrived. *ret_came: a datagram has arrived. */
static int read_welcome(struct kvc *k, bool *ret_came)
{
    uint8_t buf[KVC_ATTACH_MAX];
    int passed = -1;
    int n = kvc__datagram(k, buf, &passed);
    *ret_came = n > 0;
    if (n <= 0)
        return n;
    int rc = take_welcome(k, buf, (size_t)n, passed);
    if (passed >= 0)
        close(passed);
    return rc;
}

static int say_hello(struct kvc *k)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_hello hello = {.ver_min = KVC_PROTO_MIN,
                              .ver_max = KVC_PROTO_MAX,
                              .client = codec_text(k->name),
                              .staging_bytes = k->staging.wanted,
                              .shard = k->shard};
    int len = codec_enc_att_hello(buf, sizeof(buf), &hello);
    int rc = len < 0 ? len : channel__send(k->attach_fd, buf, (size_t)len, -1);
    bool told = false;
    if (rc == -EPIPE) { /* the daemon has closed the connection, and may have sent the reason */
        int why = read_welcome(k, &told);
        if (told || k->state == LINK_DOWN)
            return why;
    }
    return rc < 0 ? kvc__lost(k, KVC_E_DOWN, "the daemon at %s is gone (%s)", k->socket,
                              strerrordesc_np(-rc))
                  : 0;
}

static int await_welcome(struct kvc *k, uint64_t welcome_ns)
{
    for (;;) {
        bool came;
        int rc = read_welcome(k, &came);
        if (came || rc < 0)
            return rc;
        if (kvc__now() >= k->attach_until_ns)
            return kvc__down(k, KVC_E_DOWN, "the daemon at %s accepts but does not answer",
                             k->socket);
        if (kvc__ms_until(welcome_ns) == 0)
            return kvc__fail(k, KVC_E_DOWN, "the daemon at %s has not answered yet", k->socket);
        struct pollfd p = {.fd = k->attach_fd, .events = POLLIN};
        (void)poll(&p, 1, kvc__poll_ms(welcome_ns));
    }
}

int kvc__connect(struct kvc *k, uint64_t welcome_ns, uint64_t deadline_ns)
{
    int rc = 0;
    if (k->state == LINK_DOWN) {
        rc = start_attach(k);
        if (rc == 0)
            rc = say_hello(k);
    }
    if (rc == 0 && k->state == LINK_ATTACHING)
        rc = await_welcome(k, welcome_ns);
    if (rc < 0)
        return rc;
    while (k->state == LINK_GREETING || k->state == LINK_REOPENING) {
        if (op__pump(k, deadline_ns, kvc__ms_until(deadline_ns) > 0) != 0)
            continue;
        op__expire(k);
        if (deadline_ns == 0 && k->state != LINK_DOWN && kvc__news(k) < 0)
            break; /* without a wait, op__pump() did not look at the attach channel */
        if (k->state == LINK_GREETING || k->state == LINK_REOPENING)
            return kvc__fail(k, KVC_E_DOWN, "the daemon at %s has not answered yet", k->socket);
    }
    return k->state == LINK_UP ? 0 : k->down_error;
}

/* ---- what every call begins with ---- */

/* Waits for a message of a silent daemon, for PROBE_WAIT_MS at most. 0 = it is silent no more;
 * KVC_E_TIMEOUT = it still is; another error has ended the link. */
static int connect_hear(struct kvc *k, uint64_t deadline_ns)
{
    const uint64_t until_ns = kvc__min(deadline_ns, k->silent_ns + PROBE_WAIT_MS * NS_PER_MS);
    int rc = 1;
    while (k->silent_ns != 0 && k->state == LINK_UP && rc > 0)
        rc = op__pump(k, until_ns, kvc__ms_until(until_ns) > 0);
    if (k->state != LINK_UP)
        return k->down_error;
    if (k->silent_ns == 0)
        return 0;
    return kvc__fail(k, KVC_E_TIMEOUT,
                     "the daemon at %s does not answer (a request was given up %llu ms ago): calls "
                     "fail at once until it does",
                     k->socket, (unsigned long long)((kvc__now() - k->silent_ns) / NS_PER_MS));
}

int kvc__enter(struct kvc *k, uint64_t deadline_ns)
{
    if (fork__is_child(k))
        return kvc__fail(k, -EPERM,
                         "this session belongs to the parent process; open one after fork()");
    bool up = k->state == LINK_UP;
    if (up && kvc__now() - k->news_ns > NEWS_INTERVAL_MS * NS_PER_MS)
        up = kvc__news(k) == 0;
    if (up && k->silent_ns == 0)
        return 0;
    if (up) {
        int rc = connect_hear(k, deadline_ns);
        watch__update(k);
        if (k->state == LINK_UP)
            return rc;
    }

    /* Only one call waits for the WELCOME of an attach; later calls look whether it has come. */
    if (k->silent_ns != 0)
        deadline_ns = 0;
    uint64_t welcome_ns = deadline_ns > 0 ? kvc__now() : 0;
    if (k->state == LINK_DOWN)
        welcome_ns = kvc__min(deadline_ns, welcome_ns + WELCOME_WAIT_MS * NS_PER_MS);
    int rc = kvc__connect(k, welcome_ns, deadline_ns);
    if (rc < 0 && deadline_ns > 0 && (k->state == LINK_GREETING || k->state == LINK_REOPENING))
        op__silent(k);
    watch__update(k);
    return rc == 0 ? 0 : KVC_E_DOWN;
}

int kvc__look(struct kvc *k)
{
    return kvc__enter(k, 0);
}
