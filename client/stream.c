/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion words and streams: asks the daemon for the page of words, and has a worker's stream
 * write to a word (kvc_gpu_signal()) or wait for one (kvc_gpu_wait()).
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "client.h"
#include "client_gpu__.h"

/* ---- asking ---- */

/* Whether the file is a page of words that the daemon cannot truncate: writing to a truncated file
 * would raise SIGBUS. */
static bool is_page(int fd)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 &&
           st.st_size >= (off_t)WORDS_BYTES;
}

int words__are(struct kvc *k, const uint8_t *buf, size_t len, int passed)
{
    struct att_words_are m;
    if (codec_dec_att_words_are(buf, len, &m) < 0)
        return kvc__malformed(k, "WORDS_ARE");
    if (k->words.asked != k->epoch || (k->words.pages != NULL && k->words.pages->epoch == k->epoch))
        return kvc__malformed(k, "WORDS_ARE (nobody asked)");
    if (m.status != KVC_ST_OK) {
        /* BAD_ARGUMENT can only mean that the daemon has no devices. */
        int error = m.status == KVC_ST_BAD_ARGUMENT ? KVC_E_TIER : kvc__status_error(m.status);
        k->words.error = kvc__fail(k, error, "the daemon gives no completion words: %.*s",
                                   (int)m.detail.n, (const char *)m.detail.p);
        return 1;
    }
    if (passed < 0 || m.bytes < WORDS_BYTES || !is_page(passed))
        return kvc__malformed(k, "WORDS_ARE (a memfd of 4104 bytes, sealed against shrinking, was "
                                 "expected)");
    if (words__map(k, passed) < 0) /* the daemon has given this session its page */
        return kvc__down(k, KVC_E_DOWN, "cannot map the page of completion words; disconnected");
    return 1;
}

static int stream_ask(struct kvc *k)
{
    uint8_t buf[KVC_ATTACH_MAX];
    const struct att_words m = {.words = KVC_WORDS};
    if (k->words.asked == k->epoch)
        return k->words.error;
    int rc = kvc__tell(k, buf, codec_enc_att_words(buf, sizeof(buf), &m), -1, 0);
    if (rc == 0) {
        k->words.asked = k->epoch;
        k->words.error = 0;
    }
    return rc;
}

static bool has_page(const struct kvc *k)
{
    return k->state == LINK_UP && k->words.pages != NULL && k->words.pages->epoch == k->epoch;
}

int words__make(struct kvc *k)
{
    if (has_page(k))
        return 1;
    return k->state == LINK_UP ? stream_ask(k) : KVC_E_DOWN;
}

void words__again(struct kvc *k)
{
    if (k->words.error == KVC_E_BUSY)
        k->words.asked = 0;
}

/* Returns the page of this epoch; asks for it and waits, if necessary. */
static int stream_get(struct kvc *k, struct words **ret_words)
{
    uint64_t deadline = kvc__deadline(k, 0);
    int rc = kvc__enter(k, deadline);
    words__again(k);
    while (rc == 0 && !has_page(k)) {
        rc = k->state == LINK_UP ? stream_ask(k) : KVC_E_DOWN;
        if (rc == 0 && op__pump(k, deadline, false) == 0)
            rc = kvc__fail(k, KVC_E_TIMEOUT, "the daemon does not give the completion words");
    }
    watch__update(k);
    if (rc == 0)
        *ret_words = k->words.pages;
    return rc;
}

/* The same, and notes that the caller has seen this epoch's page. */
static int get_seen(struct kvc *k, struct words **ret_words)
{
    int rc = stream_get(k, ret_words);
    if (rc == 0)
        k->words.given = k->epoch;
    return rc;
}

/* ---- use ---- */

volatile uint64_t *kvc_gpu_words(struct kvc_gpu *gpu)
{
    struct words *w;
    return get_seen(gpu->kvc, &w) == 0 ? w->word : NULL;
}

static int stream_check(struct kvc_gpu *gpu, uint32_t word, uint64_t value)
{
    if (word < KVC_WORDS && value <= WORDS_VALUE_MAX)
        return 0;
    return kvc__fail(gpu->kvc, -EINVAL,
                     "word %u, value %llu: the word must be below %u, the value below 2^63", word,
                     (unsigned long long)value, KVC_WORDS);
}

/* The same, and registers the page with the device, whose streams can reach it then. */
static int get_pinned(struct kvc_gpu *gpu, struct words **ret_words)
{
    struct device *d = gpu->device;
    int rc = get_seen(gpu->kvc, ret_words);
    if (rc < 0 || (*ret_words)->pinned != NULL)
        return rc;
    rc = d->ops->pin(d, (void *)(uintptr_t)(*ret_words)->word, KVC_WORDS * 8u, false);
    if (rc < 0)
        return rc;
    (*ret_words)->pinned = d;
    device__ref(d);
    return 0;
}

/* The same after checks of the caller's stream, word and value. */
static int get_named(struct kvc_gpu *gpu, void *stream, uint32_t word, uint64_t value,
                     struct words **ret_words)
{
    int rc = stream_check(gpu, word, value);
    if (rc == 0)
        rc = device__may_use(gpu->device, stream);
    return rc < 0 ? rc : get_pinned(gpu, ret_words);
}

int kvc_gpu_signal(struct kvc_gpu *gpu, void *stream, uint32_t word, uint64_t value)
{
    struct device *d = gpu->device;
    struct words *w = NULL;
    const int rc = get_named(gpu, stream, word, value, &w);
    return rc < 0 ? rc : d->ops->signal(d, stream, &w->word[word], value);
}

/* Waits in the caller's thread, and handles datagrams of the attach channel meanwhile. */
static int stream_await(struct kvc *k, const struct words *w, uint32_t word, uint64_t value)
{
    uint64_t deadline = kvc__deadline(k, 0);
    struct timespec nap = {.tv_nsec = 20000};
    while (__atomic_load_n(&w->word[word], __ATOMIC_ACQUIRE) < value) {
        uint64_t now = kvc__now();
        if (now >= deadline)
            return kvc__fail(k, -ETIMEDOUT, "word %u has not become %llu in time", word,
                             (unsigned long long)value);
        if (now - k->news_ns > NEWS_INTERVAL_MS * NS_PER_MS && kvc__news(k) < 0)
            return KVC_E_DOWN;
        (void)nanosleep(&nap, NULL);
        if (nap.tv_nsec < 1000000)
            nap.tv_nsec *= 2;
    }
    return 0;
}

int kvc_gpu_wait(struct kvc_gpu *gpu, void *stream, uint32_t word, uint64_t value)
{
    struct device *d = gpu->device;
    struct words *w = NULL;
    int rc = get_named(gpu, stream, word, value, &w);
    if (rc < 0)
        return rc;
    if (d->ops->wait != NULL)
        return d->ops->wait(d, stream, &w->word[word], value);
    rc = stream_await(gpu->kvc, w, word, value);
    watch__update(gpu->kvc);
    return rc;
}
