/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One writer per ring. Record i goes to slot i mod n, then head becomes i + 1. All stores are
 * releases and all loads of the reader acquires (plain moves on x86-64): who sees a word of record
 * i + n also sees head >= i + n. So after copying record i, head < i + n proves that no word of the
 * copy is newer, and a whole ring shows its last n - 1 records.
 */
#include "flight.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "sys.h"

#define NAME_BYTES 16
#define REC_WORDS  (sizeof(struct flight_rec) / sizeof(uint64_t))

struct ring {
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint64_t name[NAME_BYTES / sizeof(uint64_t)]; /* characters; words, for a rename */
    _Atomic uint64_t *words;
    uint64_t mask;
    uint16_t thread;
};

/* The dump's place in a ring: the record at `next`, copied, while next < end. */
struct place {
    uint64_t next, end;
    struct flight_rec rec;
};

static struct {
    void *room;
    struct ring *rings;
    struct place *places;
    unsigned threads_max, records;
    _Atomic unsigned threads; /* threads that asked for a ring: may exceed threads_max */
    atomic_flag dumping;
} recorder = {.dumping = ATOMIC_FLAG_INIT};

static _Thread_local struct ring *self;

#define NAME(name, text) #name,
static const char *const event_names[] = {FLIGHT_EVENTS(NAME)};
#undef NAME
#define MEANING(name, text) text,
static const char *const event_meanings[] = {FLIGHT_EVENTS(MEANING)};
#undef MEANING

int flight_init(unsigned threads_max, unsigned records)
{
    if (threads_max == 0 || threads_max > 1024 || records < 2 || !IS_POW2(records))
        return -EINVAL;
    if (recorder.room != NULL)
        return -EALREADY;
    const size_t rings = sizeof(struct ring) * threads_max;
    const size_t places = ROUND_UP(sizeof(struct place) * threads_max, 64);
    const size_t ring_words = sizeof(struct flight_rec) * records;
    char *room = sys_calloc(1, 64 + rings + places + ring_words * threads_max);
    if (room == NULL)
        return -ENOMEM;
    char *at = room + (64 - (uintptr_t)room % 64) % 64;
    recorder.room = room;
    recorder.rings = (struct ring *)(void *)at;
    recorder.places = (struct place *)(void *)(at + rings);
    recorder.threads_max = threads_max;
    recorder.records = records;
    atomic_store(&recorder.threads, 0);
    for (unsigned i = 0; i < threads_max; i++) {
        struct ring *r = &recorder.rings[i];
        r->words = (_Atomic uint64_t *)(void *)(at + rings + places + ring_words * i);
        r->mask = records - 1;
        r->thread = (uint16_t)i;
    }
    return 0;
}

void flight_fini(void)
{
    free(recorder.room);
    recorder.room = NULL;
    recorder.rings = NULL;
    recorder.threads_max = 0;
    self = NULL;
}

int flight_thread(const char *name)
{
    if (recorder.room == NULL)
        return -ENODEV;
    if (self == NULL) {
        const unsigned i = atomic_fetch_add(&recorder.threads, 1);
        if (i >= recorder.threads_max)
            return -ENOSPC;
        self = &recorder.rings[i];
    }
    uint64_t words[NAME_BYTES / sizeof(uint64_t)] = {0};
    memcpy(words, name, MIN(strlen(name), (size_t)NAME_BYTES - 1));
    for (unsigned i = 0; i < ARRAY_LEN(words); i++)
        atomic_store(&self->name[i], words[i]);
    return 0;
}

void flight__add(enum flight_event event, uint32_t a, uint64_t b, uint64_t c)
{
    struct ring *r = self;
    if (r == NULL)
        return;
    const struct flight_rec rec = {.t_ns = clock_now_ns(),
                                   .event = (uint16_t)event,
                                   .thread = r->thread,
                                   .a = a,
                                   .b = b,
                                   .c = c};
    uint64_t words[REC_WORDS];
    memcpy(words, &rec, sizeof(rec));
    const uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    _Atomic uint64_t *to = r->words + (head & r->mask) * REC_WORDS;
    for (unsigned i = 0; i < REC_WORDS; i++)
        atomic_store_explicit(&to[i], words[i], memory_order_release);
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
}

/* Copies the record at p->next, or the first after it that has not been overwritten. */
static void flight_load(struct place *p, struct ring *r)
{
    for (; p->next < p->end; p->next++) {
        uint64_t words[REC_WORDS];
        _Atomic uint64_t *from = r->words + (p->next & r->mask) * REC_WORDS;
        for (unsigned i = 0; i < REC_WORDS; i++)
            words[i] = atomic_load_explicit(&from[i], memory_order_acquire);
        const uint64_t head = atomic_load_explicit(&r->head, memory_order_acquire);
        if (head - p->next <= r->mask) {
            memcpy(&p->rec, words, sizeof(p->rec));
            return;
        }
    }
}

/* Text on its way to fd; the first error of write(2) stays in err. */
struct out {
    int fd, err;
    size_t len;
    char text[4096];
};

static void flush(struct out *o)
{
    for (size_t at = 0; at < o->len && o->err == 0;) {
        const ssize_t n = write(o->fd, o->text + at, o->len - at);
        if (n < 0 && errno != EINTR)
            o->err = -errno;
        else if (n > 0)
            at += (size_t)n;
    }
    o->len = 0;
}

static void out_text(struct out *o, const char *s, size_t width)
{
    const size_t n = strlen(s), padded = MAX(n, width);
    if (padded > sizeof(o->text) - o->len)
        flush(o);
    memcpy(o->text + o->len, s, n);
    memset(o->text + o->len + n, ' ', padded - n);
    o->len += padded;
}

/* At least `digits` digits; no stdio, for a signal handler's sake. */
static void out_number(struct out *o, uint64_t v, unsigned base, unsigned digits)
{
    char text[24];
    char *at = text + sizeof(text) - 1;
    *at = '\0';
    for (unsigned i = 0; v != 0 || i < digits; i++, v /= base)
        *--at = "0123456789abcdef"[v % base];
    out_text(o, at, 0);
}

/* Ids and counts read best in decimal, keys and pointers in hexadecimal; size tells them apart. */
static void out_value(struct out *o, const char *label, uint64_t v)
{
    out_text(o, label, 0);
    if (v > UINT32_MAX)
        out_text(o, "0x", 0);
    out_number(o, v, v > UINT32_MAX ? 16 : 10, 1);
}

static void out_rec(struct out *o, const struct flight_rec *rec)
{
    uint64_t words[NAME_BYTES / sizeof(uint64_t)];
    char name[NAME_BYTES + 1] = {0};
    for (unsigned i = 0; i < ARRAY_LEN(words); i++)
        words[i] = atomic_load(&recorder.rings[rec->thread].name[i]);
    memcpy(name, words, NAME_BYTES);
    out_number(o, rec->t_ns / 1000000000u, 10, 1);
    out_text(o, ".", 0);
    out_number(o, rec->t_ns % 1000000000u, 10, 9);
    out_text(o, " ", 0);
    out_text(o, name, 8);
    out_text(o, " ", 0);
    out_text(o, rec->event < FLIGHT_EVENT_COUNT ? event_names[rec->event] : "?", 12);
    out_value(o, " a=", rec->a);
    out_value(o, " b=", rec->b);
    out_value(o, " c=", rec->c);
    out_text(o, "\n", 0);
}

/* Explains the events in the dump, because its reader seldom has the sources. */
static void out_legend(struct out *o)
{
    out_text(o, "# seconds since boot, thread, event, and what a, b and c of it are (decimal):\n",
             0);
    for (unsigned i = 0; i < FLIGHT_EVENT_COUNT; i++) {
        out_text(o, "# ", 0);
        out_text(o, event_names[i], 13);
        out_text(o, event_meanings[i], 0);
        out_text(o, "\n", 0);
    }
}

/* The place whose record is the oldest, or NULL when all records have been written. */
static struct place *oldest(unsigned threads)
{
    struct place *best = NULL;
    for (unsigned i = 0; i < threads; i++) {
        struct place *p = &recorder.places[i];
        if (p->next < p->end && (best == NULL || p->rec.t_ns < best->rec.t_ns))
            best = p;
    }
    return best;
}

int flight_dump(int fd)
{
    if (recorder.room == NULL)
        return 0;
    if (atomic_flag_test_and_set(&recorder.dumping))
        return -EBUSY;
    const unsigned threads = MIN(atomic_load(&recorder.threads), recorder.threads_max);
    struct out o = {.fd = fd};
    out_text(&o, "flight recorder: ", 0);
    out_number(&o, threads, 10, 1);
    out_text(&o, " threads, the last ", 0);
    out_number(&o, recorder.records - 1, 10, 1);
    out_text(&o, " events of each\n", 0);
    out_legend(&o);
    for (unsigned i = 0; i < threads; i++) {
        struct place *p = &recorder.places[i];
        struct ring *r = &recorder.rings[i];
        p->end = atomic_load_explicit(&r->head, memory_order_acquire);
        p->next = p->end >= recorder.records ? p->end - recorder.records + 1 : 0;
        flight_load(p, r);
    }
    for (struct place *p; o.err == 0 && (p = oldest(threads)) != NULL;) {
        out_rec(&o, &p->rec);
        p->next++;
        flight_load(p, &recorder.rings[p - recorder.places]);
    }
    flush(&o);
    atomic_flag_clear(&recorder.dumping);
    return o.err;
}

void flight_dump_stderr(void)
{
    /* The process is about to end, and an error of stderr cannot be reported. */
    (void)!flight_dump(STDERR_FILENO);
}
