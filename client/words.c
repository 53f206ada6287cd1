/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of completion words, shared with the daemon: maps them, checks and raises words, and keeps
 * old pages for streams that still write to them.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client.h"
#include "client_gpu__.h"
#include "sys.h"

static void words_destroy(struct words *w)
{
    if (w->pinned != NULL)
        w->pinned->ops->unpin(w->pinned, (void *)(uintptr_t)w->word);
    device__unref(w->pinned);
    (void)munmap((void *)(uintptr_t)w->word, WORDS_BYTES);
    free(w);
}

static void keep_newest(struct kvc *k, uint32_t pages)
{
    struct words **at = &k->words.pages;
    while (*at != NULL && pages > 0) {
        at = &(*at)->next;
        pages--;
    }
    while (*at != NULL) {
        struct words *w = *at;
        *at = w->next;
        words_destroy(w);
    }
}

void words__destroy_all(struct kvc *k)
{
    keep_newest(k, 0);
}

void words__forget(struct kvc *k, const struct device *d)
{
    for (struct words *w = k->words.pages; w != NULL; w = w->next) {
        if (w->pinned != d)
            continue;
        w->pinned->ops->unpin(w->pinned, (void *)(uintptr_t)w->word);
        device__unref(w->pinned);
        w->pinned = NULL;
    }
}

int words__map(struct kvc *k, int fd)
{
    struct words *w = sys_malloc(sizeof(*w));
    void *at = MAP_FAILED;
    if (w != NULL)
        at = sys_mmap(NULL, WORDS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    if (w == NULL || at == MAP_FAILED) {
        free(w);
        return -ENOMEM;
    }
    *w = (struct words){.next = k->words.pages, .word = at, .epoch = k->epoch};
    k->words.pages = w;
    keep_newest(k, WORDS_PAGES);
    return 0;
}

/* ---- use ---- */

int words__check(struct kvc *k, uint32_t word, uint64_t value)
{
    if (word == 0)
        return 0;
    if (word > KVC_WORDS || value > WORDS_VALUE_MAX)
        return kvc__fail(k, -EINVAL,
                         "word %u (a number + 1) with value %llu: the number must be below %u, the "
                         "value below 2^63",
                         word, (unsigned long long)value, KVC_WORDS);
    if (k->words.given != k->epoch)
        return kvc__fail(k, KVC_E_DOWN,
                         "the daemon is a new one, and the completion words are zero again: call "
                         "kvc_gpu_words or kvc_gpu_signal, and begin anew");
    return 0;
}

static struct words *of_epoch(struct kvc *k, uint32_t epoch)
{
    struct words *w = k->words.pages;
    while (w != NULL && w->epoch != epoch)
        w = w->next;
    return w;
}

void words__raise(struct kvc *k, uint32_t epoch, uint32_t word, uint64_t value)
{
    struct words *w = of_epoch(k, epoch);
    if (w != NULL && __atomic_load_n(&w->word[word], __ATOMIC_ACQUIRE) < value)
        __atomic_store_n(&w->word[word], value, __ATOMIC_RELEASE);
}

void words__revoke(struct kvc *k, uint32_t epoch)
{
    struct words *w = of_epoch(k, epoch);
    if (w == NULL)
        return;
    __atomic_store_n(&w->word[KVC_WORD_REVOKED], 1, __ATOMIC_SEQ_CST);
    __sync_synchronize(); /* before what the caller writes to its pages */
}
