/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads blocks from disk. The GETs of one turn are sorted by place; neighbours on disk become one
 * read, into the slots that they are for. Reads of one turn go before those of the next.
 */
#include "nvme__.h"

/* ---- order ---- */

static bool comes_before(const struct nvme *n, const struct tier_op *a, const struct tier_op *b)
{
    const struct nvme_entry *x = &n->entry[a->loc.id], *y = &n->entry[b->loc.id];
    const struct nvme_extent *xx = &n->extent[x->extent], *yx = &n->extent[y->extent];
    if (xx->seg != yx->seg)
        return xx->seg < yx->seg;
    return xx->page + x->page < yx->page + y->page;
}

static struct tier_op *nvme_read_merge(const struct nvme *n, struct tier_op *a, struct tier_op *b)
{
    struct tier_op *head = NULL, **tail = &head;
    while (a != NULL && b != NULL) {
        struct tier_op **least = comes_before(n, b, a) ? &b : &a;
        *tail = *least;
        tail = &(*least)->next;
        *least = *tail;
    }
    *tail = a != NULL ? a : b;
    return head;
}

/* Merge sort, bottom up: bin i holds a sorted list of 2^i operations. */
static struct tier_op *sorted(const struct nvme *n, struct tier_op *list)
{
    struct tier_op *bin[32] = {NULL};
    while (list != NULL) {
        struct tier_op *one = list;
        list = list->next;
        one->next = NULL;
        unsigned i = 0;
        for (; bin[i] != NULL; i++) {
            one = nvme_read_merge(n, bin[i], one);
            bin[i] = NULL;
        }
        bin[i] = one;
    }
    struct tier_op *all = NULL;
    for (unsigned i = 0; i < ARRAY_LEN(bin); i++)
        if (bin[i] != NULL)
            all = all == NULL ? bin[i] : nvme_read_merge(n, bin[i], all);
    return all;
}

void nvme__read_sort(struct nvme *n)
{
    if (n->queue.get_new.n == 0)
        return;
    struct tier_op *op = sorted(n, n->queue.get_new.head);
    n->queue.get_new = (struct nvme_ops){0};
    for (struct tier_op *next; op != NULL; op = next) {
        next = op->next;
        nvme__ops_push(&n->queue.get_ready, op);
    }
}

/* ---- reads ---- */

/* The error that ends an operation before it begins; 0: none. */
static int refusal(struct nvme *n, struct tier_op *op)
{
    const struct nvme_entry *e = nvme__entry(n, op->loc);
    MUST(e->readers > 0 && e->extent != NVME_NONE);
    if (atomic_load_explicit(&op->cancel, memory_order_relaxed))
        return -ECANCELED;
    if (op->deadline_ns != 0 && op->deadline_ns <= n->now_ns)
        return -ETIMEDOUT;
    if (!nvme__path_up(nvme__entry_path(n, e)) || n->extent[e->extent].state == NVME_X_LOST)
        return -EIO;
    return 0;
}

static void on_alone(struct nvme_io *io);

/* A read that failed is tried block by block: a bad place costs only the block that it is in. */
static void read_alone(struct nvme *n, struct nvme_read *r)
{
    int why = 0;
    while (r->ops != NULL && (why = refusal(n, r->ops)) != 0) {
        struct tier_op *op = r->ops;
        r->ops = op->next;
        nvme__finish(n, op, why);
    }
    if (r->ops == NULL) {
        r->next = n->reads.free;
        n->reads.free = r;
        return;
    }
    const struct nvme_entry *e = nvme__entry(n, r->ops->loc);
    const uint64_t bytes = (uint64_t)nvme__pages(r->ops->bytes) * NVME_PAGE;
    r->iov[0] = (struct iovec){r->ops->dst, bytes};
    r->io.parts = false;
    n->m.reads++;
    n->inflight.read_bytes += bytes;
    nvme__issue(n, &r->io, DISK_READ, nvme__entry_path(n, e), r->iov, 1, nvme__entry_page(n, e),
                bytes, on_alone);
}

static void on_alone(struct nvme_io *io)
{
    struct nvme_read *r = CONTAINER_OF(io, struct nvme_read, io);
    struct nvme *n = io->n;
    struct tier_op *op = r->ops;
    MUST(op != NULL && n->inflight.read_bytes >= io->op.bytes);
    r->ops = op->next;
    n->inflight.read_bytes -= io->op.bytes;
    nvme__finish(n, op, io->op.result < 0 ? -EIO : 0);
    read_alone(n, r);
}

static void nvme_read_on_read(struct nvme_io *io)
{
    struct nvme_read *r = CONTAINER_OF(io, struct nvme_read, io);
    struct nvme *n = io->n;
    MUST(r->ops != NULL && n->inflight.read_bytes >= io->op.bytes);
    n->inflight.read_bytes -= io->op.bytes;
    if (io->op.result < 0 && io->parts) {
        read_alone(n, r);
        return;
    }
    for (struct tier_op *op = r->ops, *next; op != NULL; op = next) {
        next = op->next;
        nvme__finish(n, op, io->op.result < 0 ? -EIO : 0);
    }
    r->next = n->reads.free;
    n->reads.free = r;
}

static void nvme_read_sweep(struct nvme *n, struct nvme_ops *list)
{
    struct tier_op *prev = NULL;
    for (struct tier_op *op = list->n != 0 ? list->head : NULL, *next; op != NULL; op = next) {
        const int why = refusal(n, op);
        next = op->next;
        if (why != 0)
            nvme__finish(n, nvme__ops_cut(list, prev), why);
        else
            prev = op;
    }
}

void nvme__read_sweep(struct nvme *n)
{
    nvme_read_sweep(n, &n->queue.get_new);
    nvme_read_sweep(n, &n->queue.get_ready);
    nvme_read_sweep(n, &n->queue.verify);
}

static struct tier_op *next_get(struct nvme *n)
{
    struct tier_op *op;
    while ((op = n->queue.get_ready.n != 0 ? n->queue.get_ready.head : NULL) != NULL) {
        const int why = refusal(n, op);
        if (why == 0)
            return op;
        nvme__finish(n, nvme__ops_pop(&n->queue.get_ready), why);
    }
    return NULL;
}

static void nvme_read_add(struct nvme_read *r, uint32_t *iovs, void *to, uint64_t bytes)
{
    struct iovec *last = *iovs != 0 ? &r->iov[*iovs - 1] : NULL;
    if (last != NULL && (uint8_t *)last->iov_base + last->iov_len == to) {
        last->iov_len += bytes;
        return;
    }
    MUST(*iovs < NVME_READ_IOVS);
    r->iov[(*iovs)++] = (struct iovec){to, bytes};
}

static bool read_one(struct nvme *n)
{
    struct tier_op *op = next_get(n);
    if (op == NULL || n->reads.free == NULL ||
        (n->inflight.read_bytes != 0 && n->inflight.read_bytes + op->bytes > n->c.queue_bytes))
        return false;
    struct nvme_read *r = n->reads.free;
    struct nvme_path *p = nvme__entry_path(n, nvme__entry(n, op->loc));
    const uint64_t from = nvme__entry_page(n, nvme__entry(n, op->loc));
    uint64_t page = from;
    uint32_t iovs = 0;
    struct tier_op **tail = &r->ops;
    n->reads.free = r->next;
    do {
        const uint32_t pages = nvme__pages(op->bytes);
        MUST(n->queue.get_ready.head == op); /* next_get() has looked at this one */
        (void)nvme__ops_pop(&n->queue.get_ready);
        nvme_read_add(r, &iovs, op->dst, (uint64_t)pages * NVME_PAGE);
        page += pages;
        *tail = op;
        tail = &op->next;
        n->m.gets++;
        op = next_get(n);
    } while (op != NULL && iovs < NVME_READ_IOVS &&
             nvme__entry_path(n, nvme__entry(n, op->loc)) == p &&
             nvme__entry_page(n, nvme__entry(n, op->loc)) == page &&
             (page - from + nvme__pages(op->bytes)) * NVME_PAGE <= n->c.extent_bytes);
    *tail = NULL;
    r->io.parts = r->ops->next != NULL;
    n->m.reads++;
    n->inflight.read_bytes += (page - from) * NVME_PAGE;
    nvme__issue(n, &r->io, DISK_READ, p, r->iov, iovs, from, (page - from) * NVME_PAGE,
                nvme_read_on_read);
    return true;
}

/* ---- checks (TIER_VERIFY) ---- */

static void verify_next(struct nvme *n, struct nvme_verify *v);

static void on_verify(struct nvme_io *io)
{
    struct nvme_verify *v = CONTAINER_OF(io, struct nvme_verify, io);
    struct nvme *n = io->n;
    struct tier_op *op = v->op;
    MUST(op != NULL && v->at < op->bytes);
    int why = io->op.result < 0 ? -EIO : refusal(n, op);
    if (why == 0) {
        const uint64_t left = op->bytes - v->at;
        const uint64_t got = io->op.bytes < left ? io->op.bytes : left;
        hash_stream_update(&v->sum, v->buf, got);
        v->at += got;
        if (v->at < op->bytes) {
            verify_next(n, v);
            return;
        }
        op->sum = hash_stream_final(&v->sum);
    }
    v->op = NULL;
    nvme__finish(n, op, why);
}

static void verify_next(struct nvme *n, struct nvme_verify *v)
{
    const struct nvme_entry *e = nvme__entry(n, v->op->loc);
    const uint64_t left = (uint64_t)nvme__pages(e->bytes) * NVME_PAGE - v->at;
    const uint64_t bytes = left < NVME_VERIFY_BYTES ? left : NVME_VERIFY_BYTES;
    v->iov = (struct iovec){v->buf, bytes};
    nvme__issue(n, &v->io, DISK_READ, nvme__entry_path(n, e), &v->iov, 1,
                nvme__entry_page(n, e) + v->at / NVME_PAGE, bytes, on_verify);
}

void nvme__read_run(struct nvme *n)
{
    while (read_one(n))
        ;
    for (unsigned i = 0; i < NVME_VERIFIES && n->queue.verify.n != 0; i++) {
        struct nvme_verify *v = &n->verify[i];
        while (v->op == NULL && n->queue.verify.n != 0) {
            struct tier_op *op = nvme__ops_pop(&n->queue.verify);
            const int why = refusal(n, op);
            if (why != 0) {
                nvme__finish(n, op, why);
                continue;
            }
            v->op = op;
            v->at = 0;
            hash_stream_init(&v->sum);
            verify_next(n, v);
        }
    }
}
