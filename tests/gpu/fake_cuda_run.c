/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread per context executes what its streams hold: a stream in its order, the streams among
 * each other in any, each thing some time after it was asked for.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_cuda__.h"
#ifdef FAKE_CUDA_FIBRES
#include "fibres.h"
#endif

#define IMAGE_MAGIC     0xba55ed50u
#define IMAGE_MAX_BYTES (UINT64_C(64) << 20)
#define STRING(name)    STRING_(name)
#define STRING_(name)   #name

struct event {
    struct list_node node;
    struct fake_device *device;
    bool is_pending;
    bool is_asked; /* since it was recorded: the first question is always too early */
};

enum work_kind { COPY, FILL, LAUNCH, DECODE, RECORD, WAIT, WRITE, AWAIT };
struct work {
    struct list_node node;
    enum work_kind kind;
    uint64_t ready_ns;
    struct kvc_frag *copy; /* COPY: [n], owned */
    uint64_t list; /* LAUNCH: device address of n fragments; DECODE: of the KV; FILL: of n bytes */
    uint32_t n;
    struct event *event;      /* RECORD, WAIT */
    uint64_t word, value;     /* WRITE, AWAIT: its device address; DECODE: the sum's, words of KV */
    unsigned blocks, threads; /* LAUNCH, DECODE: the grid */
};

struct stream {
    struct list_node node;
    struct fake_device *device;
    struct list_node queue;
    CUstream name; /* of a default stream: NULL, CU_STREAM_PER_THREAD; else its own address */
    bool is_default;
};

struct module {
    struct list_node node;
    struct fake_device *device;
    enum work_kind kind; /* what its function does: LAUNCH, DECODE */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* ---- objects ---- */

static void *object(size_t bytes)
{
    void *at = calloc(1, bytes);
    if (!at)
        fake__wrong("no memory");
    return at;
}

static struct list_node *find(struct list_node *head, const void *node)
{
    LIST_FOR_EACH_SAFE (at, next, head) {
        if (at == node)
            return at;
    }
    return NULL;
}

/* The two default streams, which are there when they are used. One stands for those of all threads,
 * and the legacy one does not wait for others: who relies on either is wrong. */
static struct stream *default_stream(CUstream name)
{
    LIST_FOR_EACH_SAFE (node, next, &fake__current->streams) {
        struct stream *s = CONTAINER_OF(node, struct stream, node);
        if (s->is_default && s->name == name)
            return s;
    }
    struct stream *s = object(sizeof(*s));
    s->device = fake__current;
    s->name = name;
    s->is_default = true;
    list_init(&s->queue);
    list_push_back(&fake__current->streams, &s->node);
    return s;
}

static struct stream *stream_of(const char *call, CUstream handle)
{
    if (!handle || handle == CU_STREAM_LEGACY)
        return default_stream(NULL);
    if (handle == CU_STREAM_PER_THREAD)
        return default_stream(handle);
    struct list_node *node = find(&fake__current->streams, handle);
    if (!node)
        fake__wrong("%s: no stream of this context", call);
    return CONTAINER_OF(node, struct stream, node);
}

static struct event *event_of(const char *call, CUevent handle)
{
    struct list_node *node = find(&fake__current->events, handle);
    if (!node)
        fake__wrong("%s: no event of this context", call);
    return CONTAINER_OF(node, struct event, node);
}

/* ---- executing ---- */

/* As the hardware: the context is broken. */
static bool is_written(struct fake_device *d, uint64_t to)
{
    if (!fake__may_write(d, to))
        d->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    return d->sticky == CUDA_SUCCESS;
}

static void execute_copies(struct fake_device *d, const struct work *w)
{
    for (uint32_t i = w->n; i > 0; i--) { /* a batch promises no order */
        const struct kvc_frag *c = &w->copy[i - 1];
        bool pageable = false;
        char *to = fake__reach_any(d, c->to, c->bytes, &pageable);
        const char *from = fake__reach_any(d, c->from, c->bytes, &pageable);
        if (!to || !from || pageable)
            fake__wrong("memory of a copy has gone before it was executed");
        if (is_written(d, c->to))
            memcpy(to, from, c->bytes);
    }
}

static void execute_fill(struct fake_device *d, const struct work *w)
{
    char *to = fake__reach(d, w->list, w->n);
    if (!to)
        fake__wrong("memory has gone before it was filled");
    if (is_written(d, w->list))
        memset(to, (int)w->value, w->n);
}

/* The kernels themselves, on fibres: one launch backwards, the next one not. False: twins are asked
 * for. */
static bool run_kernel(const char *kernel, const struct work *w, void *const *args)
{
#ifdef FAKE_CUDA_FIBRES
    if (fake.twins)
        return false;
    static atomic_uint launches;
    const unsigned grid[3] = {w->blocks, 1, 1}, block[3] = {w->threads, 1, 1};
    fibres_run(kernel, grid, block, atomic_fetch_add(&launches, 1) % 2 == 0, args);
    return true;
#else
    (void)kernel, (void)w, (void)args;
    return false;
#endif
}

/* A fragment with addresses of the device, as the kernel finds it here. */
static struct kvc_frag frag_here(const struct fake_device *d, const struct kvc_frag *frag,
                                 uint32_t i)
{
    const char *to = fake__reach(d, frag->to, frag->bytes);
    const char *from = fake__reach(d, frag->from, frag->bytes);
    if (!to || !from || frag->bytes == 0)
        fake__wrong("fragment %u (to %#jx, from %#jx, %ju bytes) is out of the kernel's reach", i,
                    (uintmax_t)frag->to, (uintmax_t)frag->from, (uintmax_t)frag->bytes);
    return (struct kvc_frag){.to = (uintptr_t)to, .from = (uintptr_t)from, .bytes = frag->bytes};
}

static void execute_launch(const struct fake_device *d, const struct work *w)
{
    const struct kvc_frag *list = (const void *)fake__reach(d, w->list, w->n * sizeof(*list));
    if (!list)
        fake__wrong("the kernel cannot reach its list");
    struct kvc_frag *here = object(w->n * sizeof(*here));
    uint32_t n = w->n;
    for (uint32_t i = 0; i < n; i++)
        here[i] = frag_here(d, &list[i], i);
    if (!run_kernel(STRING(KVC_FRAGS_KERNEL), w, (void *[]){&here, &n}))
        kvc_copy_frags_cpu(here, n);
    free(here);
}

static void execute_decode(const struct fake_device *d, const struct work *w)
{
    const uint32_t *kv = (const void *)fake__reach(d, w->list, w->value * sizeof(*kv));
    uint32_t *sum = (void *)fake__reach(d, w->word, sizeof(*sum));
    uint64_t words = w->value;
    if (!kv || !sum)
        fake__wrong("the KV that a decode step reads, or its sum, has gone");
    if (!run_kernel(STRING(KVC_DECODE_KERNEL), w, (void *[]){&kv, &words, &sum}))
        kvc_decode_cpu(kv, words, sum);
}

static volatile uint64_t *word_of(const struct fake_device *d, const struct work *w)
{
    char *at = fake__reach(d, w->word, sizeof(uint64_t));
    if (!at)
        fake__wrong("the word at %#jx has gone before it was written or had its value",
                    (uintmax_t)w->word);
    return (volatile uint64_t *)(void *)at;
}

/* As the driver compares: signed, round the corner. */
static bool is_reached(const struct fake_device *d, const struct work *w)
{
    const uint64_t now = __atomic_load_n(word_of(d, w), __ATOMIC_ACQUIRE);
    return (int64_t)(now - w->value) >= 0;
}

static void work_free(struct work *w)
{
    free(w->copy);
    free(w);
}

static void execute(struct fake_device *d, struct work *w)
{
    if (w->kind == RECORD) {
        w->event->is_pending = false;
    } else if (w->kind == WRITE) {
        __atomic_store_n(word_of(d, w), w->value, __ATOMIC_RELEASE);
    } else if (w->kind != WAIT && w->kind != AWAIT) {
        const CUresult r = fake__count("exec", d);
        if (r != CUDA_SUCCESS)
            d->sticky = r; /* what fails while it is executed is not forgotten */
        else if (w->kind == COPY)
            execute_copies(d, w);
        else if (w->kind == FILL)
            execute_fill(d, w);
        else if (w->kind == DECODE)
            execute_decode(d, w);
        else
            execute_launch(d, w);
    }
    list_remove(&w->node);
    work_free(w);
    pthread_cond_broadcast(&fake.moved);
}

/* The first of any stream that is old enough; the streams are asked in changing order. */
static struct work *next_work(struct fake_device *d, uint64_t now, bool *ret_waits)
{
    struct work *found = NULL;
    unsigned seen = 0;
    *ret_waits = false;
    LIST_FOR_EACH_SAFE (node, next, &d->streams) {
        struct list_node *first = list_first(&CONTAINER_OF(node, struct stream, node)->queue);
        if (!first)
            continue;
        struct work *w = CONTAINER_OF(first, struct work, node);
        if (w->kind == WAIT && w->event->is_pending)
            continue;
        if (w->ready_ns > now || (w->kind == AWAIT && !is_reached(d, w))) {
            *ret_waits = true;
            continue;
        }
        d->random = d->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        if ((d->random >> 33) % ++seen == 0)
            found = w;
    }
    return found;
}

static void *worker_main(void *arg)
{
    struct fake_device *d = arg;
    pthread_mutex_lock(&fake.lock);
    while (!d->stop) {
        bool waits = false;
        struct work *w = NULL;
        if (!fake.is_held && d->sticky == CUDA_SUCCESS)
            w = next_work(d, now_ns(), &waits);
        if (w) {
            execute(d, w);
        } else if (waits) {
            pthread_mutex_unlock(&fake.lock);
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
            pthread_mutex_lock(&fake.lock);
        } else {
            pthread_cond_wait(&fake.moved, &fake.lock);
        }
    }
    pthread_mutex_unlock(&fake.lock);
    return NULL;
}

void fake__start(struct fake_device *device)
{
    device->stop = false;
    if (pthread_create(&device->worker, NULL, worker_main, device) != 0)
        fake__wrong("no thread");
    device->has_worker = true;
}

static void queue_end(struct stream *s)
{
    LIST_FOR_EACH_SAFE (node, next, &s->queue) {
        work_free(CONTAINER_OF(node, struct work, node));
    }
    list_remove(&s->node);
    free(s);
}

void fake__stop(struct fake_device *device)
{
    device->stop = true;
    pthread_cond_broadcast(&fake.moved);
    pthread_mutex_unlock(&fake.lock);
    if (device->has_worker)
        pthread_join(device->worker, NULL);
    pthread_mutex_lock(&fake.lock);
    device->has_worker = false;
    LIST_FOR_EACH_SAFE (node, next, &device->streams) {
        queue_end(CONTAINER_OF(node, struct stream, node));
    }
    LIST_FOR_EACH_SAFE (node, next, &device->events) {
        list_remove(node);
        free(CONTAINER_OF(node, struct event, node));
    }
    LIST_FOR_EACH_SAFE (node, next, &device->modules) {
        list_remove(node);
        free(CONTAINER_OF(node, struct module, node));
    }
}

static unsigned count(const struct list_node *head)
{
    unsigned n = 0;
    LIST_FOR_EACH_SAFE (node, next, head) {
        n++;
    }
    return n;
}

static unsigned defaults(const struct fake_device *device)
{
    unsigned n = 0;
    LIST_FOR_EACH_SAFE (node, next, (struct list_node *)&device->streams) {
        n += CONTAINER_OF(node, struct stream, node)->is_default;
    }
    return n;
}

unsigned fake__run_live(const struct fake_device *device, char *text, size_t bytes)
{
    return fake__say(count(&device->streams) - defaults(device), "streams", text, bytes) +
           fake__say(count(&device->events), "events", text, bytes) +
           fake__say(count(&device->modules), "modules", text, bytes);
}

/* ---- streams ---- */

static struct work *enqueue(struct stream *s, enum work_kind kind)
{
    struct work *w = object(sizeof(*w));
    if (fake.is_capturing)
        fake__wrong("something is given to a stream that is captured, or to the default stream");
    w->kind = kind;
    w->ready_ns = now_ns() + fake.delay_us * UINT64_C(1000);
    list_push_back(&s->queue, &w->node);
    pthread_cond_broadcast(&fake.moved);
    return w;
}

/* Until a stream of the current context is empty, or the context is broken. */
static CUresult drain(const struct stream *s)
{
    while (!list_empty(&s->queue) && fake__current->sticky == CUDA_SUCCESS)
        pthread_cond_wait(&fake.moved, &fake.lock);
    return fake__current->sticky;
}

CUresult fake_StreamCreateWithPriority(CUstream *ret_stream, unsigned flags, int priority)
{
    const CUresult r = fake__enter("cuStreamCreateWithPriority", FAKE_CONTEXT);
    if (flags != CU_STREAM_NON_BLOCKING || priority > FAKE_PRIORITY_LOW ||
        priority < FAKE_PRIORITY_TOP)
        fake__wrong("cuStreamCreateWithPriority: flags %#x, priority %d", flags, priority);
    if (r != CUDA_SUCCESS)
        return fake__leave(r);
    struct stream *s = object(sizeof(*s));
    s->device = fake__current;
    list_init(&s->queue);
    list_push_back(&fake__current->streams, &s->node);
    *ret_stream = (CUstream)&s->node;
    return fake__leave(r);
}

CUresult fake_StreamDestroy(CUstream stream)
{
    const CUresult r = fake__enter("cuStreamDestroy", FAKE_CONTEXT);
    struct stream *s = stream_of("cuStreamDestroy", stream);
    if (s->is_default)
        fake__wrong("cuStreamDestroy: a default stream");
    if (!list_empty(&s->queue))
        fake__wrong("cuStreamDestroy: there is work in it");
    if (r == CUDA_SUCCESS)
        queue_end(s);
    return fake__leave(r);
}

CUresult fake_StreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret_status)
{
    CUresult r = fake__enter("cuStreamIsCapturing", FAKE_CONTEXT);
    const struct stream *s = stream_of("cuStreamIsCapturing", stream);
    if (r == CUDA_SUCCESS && fake.is_capturing && s->is_default && !s->name)
        r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (r == CUDA_SUCCESS)
        *ret_status = fake.is_capturing && !s->is_default ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                          : CU_STREAM_CAPTURE_STATUS_NONE;
    return fake__leave(r);
}

CUresult fake_StreamQuery(CUstream stream)
{
    CUresult r = fake__enter("cuStreamQuery", FAKE_CONTEXT);
    const struct stream *s = stream_of("cuStreamQuery", stream);
    if (r == CUDA_SUCCESS && !list_empty(&s->queue))
        r = CUDA_ERROR_NOT_READY;
    return fake__leave(r);
}

/* For what the event was recorded for the last time; the order of calls is the order of that. */
CUresult fake_StreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    const CUresult r = fake__enter("cuStreamWaitEvent", FAKE_CONTEXT);
    struct stream *s = stream_of("cuStreamWaitEvent", stream);
    struct event *e = event_of("cuStreamWaitEvent", event);
    if (flags != 0)
        fake__wrong("cuStreamWaitEvent: flags %#x", flags);
    if (r == CUDA_SUCCESS && e->is_pending)
        enqueue(s, WAIT)->event = e;
    return fake__leave(r);
}

CUresult fake_CtxSynchronize(void)
{
    CUresult r = fake__enter("cuCtxSynchronize", FAKE_CONTEXT);
    LIST_FOR_EACH_SAFE (node, next, &fake__current->streams) {
        if (r == CUDA_SUCCESS)
            r = drain(CONTAINER_OF(node, struct stream, node));
    }
    return fake__leave(r);
}

/* ---- events ---- */

CUresult fake_EventCreate(CUevent *ret_event, unsigned flags)
{
    const CUresult r = fake__enter("cuEventCreate", FAKE_CONTEXT);
    if (flags != CU_EVENT_DISABLE_TIMING)
        fake__wrong("cuEventCreate: flags %#x", flags);
    if (r != CUDA_SUCCESS)
        return fake__leave(r);
    struct event *e = object(sizeof(*e));
    e->device = fake__current;
    list_push_back(&fake__current->events, &e->node);
    *ret_event = (CUevent)&e->node;
    return fake__leave(r);
}

CUresult fake_EventDestroy(CUevent event)
{
    const CUresult r = fake__enter("cuEventDestroy", FAKE_CONTEXT);
    struct event *e = event_of("cuEventDestroy", event);
    if (e->is_pending)
        fake__wrong("cuEventDestroy: it has not happened yet");
    if (r == CUDA_SUCCESS) {
        list_remove(&e->node);
        free(e);
    }
    return fake__leave(r);
}

/* The driver would take it; here a ring of events that overtakes itself is a fault. */
CUresult fake_EventRecord(CUevent event, CUstream stream)
{
    const CUresult r = fake__enter("cuEventRecord", FAKE_CONTEXT);
    struct event *e = event_of("cuEventRecord", event);
    struct stream *s = stream_of("cuEventRecord", stream);
    if (e->is_pending)
        fake__wrong("cuEventRecord: what it was recorded for has not happened yet");
    if (r == CUDA_SUCCESS) {
        e->is_pending = true;
        e->is_asked = false;
        enqueue(s, RECORD)->event = e;
    }
    return fake__leave(r);
}

CUresult fake_EventQuery(CUevent event)
{
    CUresult r = fake__enter("cuEventQuery", FAKE_CONTEXT);
    struct event *e = event_of("cuEventQuery", event);
    if (r == CUDA_SUCCESS && (e->is_pending || !e->is_asked))
        r = CUDA_ERROR_NOT_READY;
    e->is_asked = true;
    return fake__leave(r);
}

CUresult fake_EventSynchronize(CUevent event)
{
    CUresult r = fake__enter("cuEventSynchronize", FAKE_CONTEXT);
    struct event *e = event_of("cuEventSynchronize", event);
    while (r == CUDA_SUCCESS && e->is_pending && fake__current->sticky == CUDA_SUCCESS)
        pthread_cond_wait(&fake.moved, &fake.lock);
    e->is_asked = true;
    return fake__leave(r == CUDA_SUCCESS ? fake__current->sticky : r);
}

/* ---- words ---- */

static CUresult add_word(const char *call, enum work_kind kind, CUstream stream, CUdeviceptr word,
                         uint64_t value, unsigned flags)
{
    const CUresult r = fake__enter(call, FAKE_CONTEXT);
    struct stream *s = stream_of(call, stream);
    if (flags != 0 || word % 8 != 0 || !fake.words || !fake__reach(fake__current, word, 8))
        fake__wrong("%s: flags %#x, word at %#llx, which the device must reach", call, flags, word);
    if (r == CUDA_SUCCESS) {
        struct work *w = enqueue(s, kind);
        w->word = word;
        w->value = value;
    }
    return fake__leave(r);
}

CUresult fake_StreamWriteValue64(CUstream stream, CUdeviceptr word, cuuint64_t value,
                                 unsigned flags)
{
    return add_word("cuStreamWriteValue64", WRITE, stream, word, value, flags);
}

CUresult fake_StreamWaitValue64(CUstream stream, CUdeviceptr word, cuuint64_t value, unsigned flags)
{
    return add_word("cuStreamWaitValue64", AWAIT, stream, word, value, flags);
}

/* ---- copies ---- */

static void must_reach(const char *call, uint64_t to, uint64_t from, uint64_t bytes)
{
    if (bytes == 0 || !fake__reach(fake__current, to, bytes) ||
        !fake__reach(fake__current, from, bytes))
        fake__wrong("%s: to %#jx, from %#jx, %ju bytes: memory that the device cannot reach", call,
                    (uintmax_t)to, (uintmax_t)from, (uintmax_t)bytes);
}

static void enqueue_copies(struct stream *s, const CUdeviceptr *to, const CUdeviceptr *from,
                           const size_t *bytes, size_t n)
{
    struct work *w = enqueue(s, COPY);
    w->n = (uint32_t)n;
    w->copy = object(n * sizeof(*w->copy));
    fake__add("piece", n);
    for (size_t i = 0; i < n; i++)
        w->copy[i] = (struct kvc_frag){.to = to[i], .from = from[i], .bytes = bytes[i]};
}

CUresult fake_MemsetD8(CUdeviceptr at, unsigned char value, size_t bytes)
{
    const CUresult r = fake__enter("cuMemsetD8", FAKE_CONTEXT);
    bool pageable = false;
    char *there = fake__reach_any(fake__current, at, bytes, &pageable);
    if (bytes == 0 || !there || pageable)
        fake__wrong("cuMemsetD8: %zu bytes at %#llx: memory that is not there", bytes, at);
    if (r == CUDA_SUCCESS)
        memset(there, value, bytes);
    return fake__leave(r);
}

CUresult fake_MemsetD8Async(CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream)
{
    const CUresult r = fake__enter("cuMemsetD8Async", FAKE_CONTEXT);
    struct stream *s = stream_of("cuMemsetD8Async", stream);
    if (bytes == 0 || bytes > UINT32_MAX || !fake__reach(fake__current, at, bytes))
        fake__wrong("cuMemsetD8Async: %zu bytes at %#llx: memory that is not there", bytes, at);
    if (r == CUDA_SUCCESS) {
        struct work *w = enqueue(s, FILL);
        w->list = at;
        w->n = (uint32_t)bytes;
        w->value = value;
    }
    return fake__leave(r);
}

/* A copy of pageable memory is not asynchronous. */
CUresult fake_MemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CUresult r = fake__enter("cuMemcpyAsync", FAKE_CONTEXT);
    struct stream *s = stream_of("cuMemcpyAsync", stream);
    bool pageable = false;
    char *there = fake__reach_any(fake__current, to, bytes, &pageable);
    const char *here = fake__reach_any(fake__current, from, bytes, &pageable);
    if (bytes == 0 || !there || !here)
        fake__wrong("cuMemcpyAsync: to %#llx, from %#llx, %zu bytes: memory that is not there, or "
                    "registered in part",
                    to, from, bytes);
    if (r == CUDA_SUCCESS && pageable) {
        if (fake.is_capturing)
            fake__wrong("cuMemcpyAsync: of pageable memory under capture");
        r = drain(s);
        if (r == CUDA_SUCCESS && is_written(fake__current, to))
            memcpy(there, here, bytes);
        fake__add("piece", 1);
    } else if (r == CUDA_SUCCESS) {
        enqueue_copies(s, &to, &from, &bytes, 1);
    }
    return fake__leave(r);
}

#ifdef CUDA_BATCH_OLD
static CUresult batch(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n,
                      CUmemcpyAttributes *attributes, size_t *firsts, size_t nattributes,
                      CUstream stream)
{
    const CUresult r = fake__enter("cuMemcpyBatchAsync", FAKE_CONTEXT);
    struct stream *s = stream_of("cuMemcpyBatchAsync", stream);
    if (s->is_default && !s->name)
        fake__wrong("cuMemcpyBatchAsync: not on the default stream");
    if (n == 0 || nattributes != 1 || firsts[0] != 0 ||
        attributes->srcAccessOrder != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)
        fake__wrong("cuMemcpyBatchAsync: attributes");
    for (size_t i = 0; i < n; i++)
        must_reach("cuMemcpyBatchAsync", to[i], from[i], bytes[i]);
    if (r == CUDA_SUCCESS)
        enqueue_copies(s, to, from, bytes, n);
    return fake__leave(r);
}

CUresult fake_MemcpyBatchAsyncOld(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n,
                                  CUmemcpyAttributes *attributes, size_t *firsts,
                                  size_t nattributes, size_t *ret_failed, CUstream stream)
{
    if (!ret_failed || fake.version < CUDA_BATCH_OLD)
        fake__wrong("cuMemcpyBatchAsync of 12.8: no room for an index, or a driver before it");
    return batch(to, from, bytes, n, attributes, firsts, nattributes, stream);
}
#endif

#ifdef CUDA_BATCH_NEW
CUresult fake_MemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n,
                               CUmemcpyAttributes *attributes, size_t *firsts, size_t nattributes,
                               CUstream stream)
{
    if (fake.version < CUDA_BATCH_NEW)
        fake__wrong("cuMemcpyBatchAsync of 13.0 of an older driver");
    return batch(to, from, bytes, n, attributes, firsts, nattributes, stream);
}
#endif

/* ---- kernels ---- */

/* PTX 9.0 is CUDA 13.0's, 8.0 12.0's, 7.0 11.0's. */
static CUresult load_ptx(const char *text)
{
    const char *line = strstr(text, "\n.version ");
    int version = 0;
    if (!line || sscanf(line, "\n.version %d.", &version) != 1 || !strstr(text, "\n}\n"))
        fake__wrong("cuModuleLoadData: no image of device code, and no PTX");
    fake__add("ptx", 1);
    return version + 4 > fake.version / 1000 ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION : CUDA_SUCCESS;
}

/* By a driver of an older CUDA than the compiler's, the image's code is not known. */
static CUresult load_image(const void *image)
{
    uint32_t magic;
    uint16_t head_bytes;
    uint64_t bytes;
    memcpy(&magic, image, sizeof(magic));
    memcpy(&head_bytes, (const char *)image + 6, sizeof(head_bytes));
    memcpy(&bytes, (const char *)image + 8, sizeof(bytes));
    if (magic != IMAGE_MAGIC || head_bytes != 16 || bytes == 0 || bytes > IMAGE_MAX_BYTES)
        return load_ptx(image);
    return CUDA_VERSION / 1000 > fake.version / 1000 ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
                                                     : CUDA_SUCCESS;
}

CUresult fake_ModuleLoadData(CUmodule *ret_module, const void *image)
{
    CUresult r = fake__enter("cuModuleLoadData", FAKE_CONTEXT);
    if (r == CUDA_SUCCESS)
        r = load_image(image);
    if (r != CUDA_SUCCESS)
        return fake__leave(r);
    struct module *m = object(sizeof(*m));
    m->device = fake__current;
    list_push_back(&fake__current->modules, &m->node);
    *ret_module = (CUmodule)&m->node;
    return fake__leave(r);
}

static struct module *module_of(const char *call, const void *handle)
{
    struct list_node *node = find(&fake__current->modules, handle);
    if (!node)
        fake__wrong("%s: no module of this context", call);
    return CONTAINER_OF(node, struct module, node);
}

CUresult fake_ModuleUnload(CUmodule module)
{
    const CUresult r = fake__enter("cuModuleUnload", FAKE_CONTEXT);
    struct module *m = module_of("cuModuleUnload", module);
    if (r == CUDA_SUCCESS) {
        list_remove(&m->node);
        free(m);
    }
    return fake__leave(r);
}

/* Its one function has the module's address, whatever it is in truth: an image is not looked into.
 */
CUresult fake_ModuleGetFunction(CUfunction *ret_function, CUmodule module, const char *name)
{
    CUresult r = fake__enter("cuModuleGetFunction", FAKE_CONTEXT);
    struct module *m = module_of("cuModuleGetFunction", module);
    const bool decodes = strcmp(name, STRING(KVC_DECODE_KERNEL)) == 0;
    if (r == CUDA_SUCCESS && !decodes && strcmp(name, STRING(KVC_FRAGS_KERNEL)) != 0)
        r = CUDA_ERROR_NOT_FOUND;
    if (r == CUDA_SUCCESS) {
        m->kind = decodes ? DECODE : LAUNCH;
        *ret_function = (CUfunction)module;
    }
    return fake__leave(r);
}

static void launch_frags(struct stream *s, unsigned blocks, unsigned threads, void **arguments,
                         bool is_well)
{
    uint64_t list;
    uint32_t n;
    memcpy(&list, arguments[0], sizeof(list));
    memcpy(&n, arguments[1], sizeof(n));
    if (blocks > KVC_FRAGS_BLOCKS || threads != KVC_FRAGS_THREADS)
        fake__wrong("cuLaunchKernel: %u blocks of %u threads copy fragments", blocks, threads);
    if (n == 0 || !fake__reach(fake__current, list, n * sizeof(struct kvc_frag)))
        fake__wrong("cuLaunchKernel: a list of %u fragments at %#jx", n, (uintmax_t)list);
    if (!is_well)
        return;
    struct work *w = enqueue(s, LAUNCH);
    w->list = list;
    w->n = n;
    w->blocks = blocks;
    w->threads = threads;
    fake__add("frag", n);
}

static void launch_decode(struct stream *s, unsigned blocks, unsigned threads, void **arguments,
                          bool is_well)
{
    uint64_t kv, words, sum;
    memcpy(&kv, arguments[0], sizeof(kv));
    memcpy(&words, arguments[1], sizeof(words));
    memcpy(&sum, arguments[2], sizeof(sum));
    if (blocks != KVC_DECODE_BLOCKS * FAKE_MULTIPROCESSORS || threads != KVC_DECODE_THREADS)
        fake__wrong("cuLaunchKernel: %u blocks of %u threads decode", blocks, threads);
    if (words == 0 || words % 4 != 0 || kv % 16 != 0 ||
        !fake__reach(fake__current, kv, 4 * words) || !fake__reach(fake__current, sum, 4))
        fake__wrong("cuLaunchKernel: %ju words of KV at %#jx, a sum at %#jx", (uintmax_t)words,
                    (uintmax_t)kv, (uintmax_t)sum);
    if (!is_well)
        return;
    struct work *w = enqueue(s, DECODE);
    w->list = kv;
    w->value = words;
    w->word = sum;
    w->blocks = blocks;
    w->threads = threads;
}

CUresult fake_LaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, CUstream stream, void **arguments, void **extra)
{
    const CUresult r = fake__enter("cuLaunchKernel", FAKE_CONTEXT);
    struct stream *s = stream_of("cuLaunchKernel", stream);
    const struct module *m = module_of("cuLaunchKernel", function);
    if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 ||
        shared_bytes != 0 || extra)
        fake__wrong("cuLaunchKernel: %u,%u,%u blocks of %u,%u,%u threads", grid_x, grid_y, grid_z,
                    block_x, block_y, block_z);
    if (m->kind == DECODE)
        launch_decode(s, grid_x, block_x, arguments, r == CUDA_SUCCESS);
    else
        launch_frags(s, grid_x, block_x, arguments, r == CUDA_SUCCESS);
    return fake__leave(r);
}
