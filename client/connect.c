/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "channel.h"
#include "client_gpu__.h"
#include "sys.h"

/* The daemon may read staging for a store that it never ended, also long after this: what is stored
 * must be what was there. So it keeps the file, and the caller gets other memory in its place. */
static void leave_staging(struct kvc *k)
{
    bool is_read = false;
    for (const struct kvc_op *op = k->live_ops; op != NULL && !is_read; op = op->next)
        is_read =
            op->borrows && op->pool == NULL && (op->stage == OP_SENT || op->stage == OP_SETTLING);
    if (!is_read || k->staging == NULL || k->staging_epoch != k->epoch)
        return;
    spread__forget_staging(k);
    /* Without memory for that the caller must do with memory that is void. */
    (void)!sys_mmap(k->staging, k->staging_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1);
}

static int end_link(struct kvc *k, int error)
{
    ending__begin(k);
    watch__remove(k, k->wire.fd);
    wire__disconnect(&k->wire);
    map__retire_all(&k->maps); /* the end of the connection says that this is done */
    fork__hold_off();
    channel__close(&k->attach_fd);
    fork__go_on();
    k->state = LINK_DOWN;
    k->down_error = error;
    k->asked_n = 0;
    k->mems_asked = 0;
    k->reopening = 0;
    k->is_probed = false;
    op__fail_all(k, error);
    watch__update(k);
    return error;
}

int kvc__down(struct kvc *k, int error, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(k->error, sizeof(k->error), fmt, ap);
    va_end(ap);
    leave_staging(k);
    watch__remove(k, k->attach_fd);
    parted__add(k, true);
    return end_link(k, error);
}

int kvc__lost(struct kvc *k, int error, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(k->error, sizeof(k->error), fmt, ap);
    va_end(ap);
    watch__remove(k, k->attach_fd);
    k->silent_ns = 0; /* the next daemon is another one */
    return end_link(k, error);
}

/* ---- the attach channel ---- */

int kvc__malformed(struct kvc *k, const char *what)
{
    return kvc__down(k, KVC_E_BAD_MESSAGE, "the daemon sent a malformed %s; disconnected", what);
}

/* Milliseconds for poll(2). */
static int poll_ms(uint64_t until_ns)
{
    uint32_t ms = kvc__ms_until(until_ns);
    return ms > 60000 ? 60000 : (int)ms;
}

/* Requests that wait for this chunk go on. */
static void chunk_came(struct kvc *k, uint64_t what, uint32_t chunk, int refused)
{
    for (uint32_t i = 0; i < k->asked_n; i++) {
        if (k->asked[i] == (what | chunk))
            k->asked[i--] = k->asked[--k->asked_n];
    }
    struct kvc_op *op = k->live_ops;
    while (op != NULL && k->state != LINK_DOWN) {
        struct kvc_op *next = op->next;
        if (op->stage == OP_CHUNKS)
            read__go_on(op, chunk, refused);
        op = next;
    }
}

static int take_chunk(struct kvc *k, const uint8_t *buf, size_t len, int passed)
{
    struct att_chunk c;
    if (codec_dec_att_chunk(buf, len, &c) < 0)
        return kvc__malformed(k, "CHUNK");
    int rc = 0;
    if (c.status != KVC_ST_OK) {
        rc = kvc__fail(k, kvc__status_error(c.status), "chunk %u: %.*s", c.chunk, (int)c.detail.n,
                       (const char *)c.detail.p);
    } else {
        rc = passed < 0 ? -EINVAL : map__add(&k->maps, c.chunk, passed, c.bytes);
        if (rc == -EINVAL)
            return kvc__malformed(k, "CHUNK (no descriptor, or one of a shorter file)");
        if (rc < 0)
            rc = kvc__fail(k, rc, "cannot map chunk %u of %llu bytes: %s", c.chunk,
                           (unsigned long long)c.bytes, strerrordesc_np(-rc));
    }
    chunk_came(k, ASK_MAP, c.chunk, rc);
    return k->state == LINK_DOWN ? k->down_error : 0;
}

static int take_chunk_on(struct kvc *k, const uint8_t *buf, size_t len, int passed)
{
    uint32_t chunk = 0;
    int rc = near__chunk_on(k, buf, len, passed, &chunk);
    if (k->state == LINK_DOWN)
        return rc;
    chunk_came(k, ASK_ON, chunk, rc);
    return k->state == LINK_DOWN ? k->down_error : 0;
}

static int take_dropped(struct kvc *k, const uint8_t *buf, size_t len)
{
    struct att_dropped d;
    if (codec_dec_att_dropped(buf, len, &d) < 0)
        return kvc__malformed(k, "DROPPED");
    watch__remove(k, k->attach_fd);
    parted__add(k, false);
    return kvc__lost(k, KVC_E_DOWN, "the daemon ended the session: %s: %.*s",
                     codec_status_name(d.status), (int)d.detail.n, (const char *)d.detail.p);
}

/* One datagram of a session that has been welcomed. */
static int take_news(struct kvc *k, const uint8_t *buf, size_t len, int passed)
{
    struct att_retired r;
    switch (codec_att_code(buf, len)) {
    case KVC_ATTACH_CHUNK:
        return take_chunk(k, buf, len, passed);
    case KVC_ATTACH_RETIRED:
        if (codec_dec_att_retired(buf, len, &r) < 0)
            return kvc__malformed(k, "RETIRED");
        map__retire(&k->maps, r.chunk);
        near__tell_unmapped(k);
        return 0;
    case KVC_ATTACH_DROPPED:
        return take_dropped(k, buf, len);
    case KVC_ATTACH_WORDS_ARE:
        return words__are(k, buf, len, passed);
    case KVC_ATTACH_MEM_IS:
        return mem__is(k, buf, len);
    case KVC_ATTACH_CHUNK_ON:
        return take_chunk_on(k, buf, len, passed);
    default:
        return kvc__malformed(k, "attach message");
    }
}

/* Length of the next datagram, 0 = none; an error has ended the link. */
static int next_datagram(struct kvc *k, uint8_t buf[KVC_ATTACH_MAX], int *ret_passed)
{
    int n = channel__recv(k->attach_fd, buf, KVC_ATTACH_MAX, ret_passed);
    if (n == -EPROTO)
        return kvc__malformed(k, "attach message");
    if (n < 0)
        return kvc__lost(k, KVC_E_DOWN, "the daemon at %s is gone (%s)", k->socket,
                         n == -EPIPE ? "it closed the connection" : strerrordesc_np(-n));
    if (n > 0)
        k->silent_ns = 0;
    return n;
}

int kvc__news(struct kvc *k)
{
    k->news_ns = kvc__now();
    near__tell_unmapped(k);
    for (;;) {
        uint8_t buf[KVC_ATTACH_MAX];
        int passed = -1;
        int n = next_datagram(k, buf, &passed);
        if (n <= 0)
            return n;
        int rc = take_news(k, buf, (size_t)n, passed);
        if (passed >= 0)
            close(passed);
        if (rc < 0)
            return rc;
    }
}

int kvc__tell(struct kvc *k, const void *buf, int len, int pass, uint64_t until_ns)
{
    if (len < 0)
        return kvc__fail(k, len, "an attach message does not fit %u bytes", KVC_ATTACH_MAX);
    for (;;) {
        int rc = channel__send(k->attach_fd, buf, (size_t)len, pass);
        if (rc == 0)
            return 0;
        if (rc != -EAGAIN)
            return kvc__lost(k, KVC_E_DOWN, "the daemon at %s is gone (%s)", k->socket,
                             strerrordesc_np(-rc));
        struct pollfd p = {.fd = k->attach_fd, .events = POLLOUT};
        if (poll(&p, 1, poll_ms(until_ns)) == 0 && kvc__ms_until(until_ns) == 0)
            return kvc__fail(k, KVC_E_TIMEOUT, "the daemon does not read the attach channel");
    }
}

static bool is_asked(const struct kvc *k, uint64_t what)
{
    for (uint32_t i = 0; i < k->asked_n; i++) {
        if (k->asked[i] == what)
            return true;
    }
    return false;
}

int kvc__ask_chunk(struct kvc *k, uint64_t what, uint32_t chunk)
{
    if (is_asked(k, what | chunk))
        return 0;
    /* What is asked for now must not be said to be unmapped afterwards. */
    if (!near__tell_unmapped(k))
        return kvc__fail(k, KVC_E_TIMEOUT, "the daemon does not read the attach channel");
    if (k->asked_n == k->asked_cap) {
        uint32_t cap = k->asked_cap == 0 ? 16 : 2 * k->asked_cap;
        uint64_t *p = sys_realloc(k->asked, cap * sizeof(*p));
        if (p == NULL)
            return kvc__fail(k, -ENOMEM, "out of memory");
        k->asked = p;
        k->asked_cap = cap;
    }
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_map ask = {.chunk = chunk};
    struct att_map_on ask_on = {.chunk = chunk};
    int len = what == ASK_ON ? codec_enc_att_map_on(buf, sizeof(buf), &ask_on)
                             : codec_enc_att_map(buf, sizeof(buf), &ask);
    int rc = kvc__tell(k, buf, len, -1, 0);
    if (rc == 0)
        k->asked[k->asked_n++] = what | chunk;
    return rc;
}

/* ---- connecting ---- */

static int start_attach(struct kvc *k)
{
    uint64_t now = kvc__now();
    if (now < k->next_try_ns)
        return KVC_E_DOWN; /* the text says why the last try failed */
    k->next_try_ns = now + k->backoff_ms * NS_PER_MS;
    k->backoff_ms = (uint32_t)kvc__min(2 * k->backoff_ms, RECONNECT_MAX_MS);
    k->attach_until_ns = now + WELCOME_MAX_MS * NS_PER_MS;

    if (parted__prepare(k) < 0)
        return kvc__fail(k, KVC_E_DOWN, "out of memory");
    fork__hold_off();
    int fd = channel__connect(k->socket);
    k->attach_fd = fd < 0 ? -1 : fd;
    fork__go_on();
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

/* Another area takes its place: who was given this one may write to it until he asks again. */
static void staging_leave(struct kvc *k)
{
    if (k->staging_asked != k->staging_epoch) {
        (void)munmap(k->staging, k->staging_bytes);
        return;
    }
    k->staging_before = k->staging;
    k->staging_before_bytes = k->staging_bytes;
}

/* The new area takes the place of the old one where it fits: a caller who still has the old pointer
 * then writes to memory that is void, not to memory that is gone. */
static int map_staging(struct kvc *k, int fd, uint64_t bytes)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return kvc__malformed(k, "WELCOME (its staging file is shorter than it says)");
    spread__forget_staging(k);
    bool in_place = k->staging != NULL && k->staging_bytes == bytes;
    void *at = in_place
                   ? sys_mmap(k->staging, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd)
                   : sys_map_file(bytes, PROT_READ | PROT_WRITE, fd);
    int rc = at == MAP_FAILED ? -errno : 0;
    if (k->staging != NULL && in_place && rc < 0)
        (void)munmap(k->staging, k->staging_bytes);
    else if (k->staging != NULL && !in_place)
        staging_leave(k);
    k->staging = rc < 0 ? NULL : at;
    if (rc < 0)
        return kvc__down(k, rc, "cannot map %llu bytes of staging: %s", (unsigned long long)bytes,
                         strerrordesc_np(-rc));
    k->staging_bytes = bytes;
    k->staging_epoch = k->epoch + 1;
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

/* An epoch begins. A namespace that cannot be asked for now is opened by the first call that needs
 * it. */
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

/* HELLO is answered, or given up. */
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
        return take_dropped(k, buf, len);
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
        int rc = map_staging(k, passed, w.staging_bytes);
        if (rc < 0)
            return rc;
    }
    return start_greeting(k, &w);
}

/* What it says of a HELLO, if it has said anything yet; *ret_came: it has. */
static int read_welcome(struct kvc *k, bool *ret_came)
{
    uint8_t buf[KVC_ATTACH_MAX];
    int passed = -1;
    int n = next_datagram(k, buf, &passed);
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
                              .staging_bytes = k->staging_wanted,
                              .shard = k->shard};
    int len = codec_enc_att_hello(buf, sizeof(buf), &hello);
    int rc = len < 0 ? len : channel__send(k->attach_fd, buf, (size_t)len, -1);
    bool told = false;
    if (rc == -EPIPE) { /* it has closed already, and may have said why */
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
        (void)poll(&p, 1, poll_ms(welcome_ns));
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
            break; /* the attach channel was not waited on */
        if (k->state == LINK_GREETING || k->state == LINK_REOPENING)
            return kvc__fail(k, KVC_E_DOWN, "the daemon at %s has not answered yet", k->socket);
    }
    return k->state == LINK_UP ? 0 : k->down_error;
}

/* ---- what every call begins with ---- */

/* Whether a daemon that was silent has said something: 0, or KVC_E_TIMEOUT; an error with the link
 * down. */
static int hear(struct kvc *k, uint64_t deadline_ns)
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
        int rc = hear(k, deadline_ns);
        watch__update(k);
        if (k->state == LINK_UP)
            return rc;
    }

    /* The wait for a WELCOME is spent once; later calls of the same attach only look. */
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
