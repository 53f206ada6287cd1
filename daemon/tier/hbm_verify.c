/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verifies slots on a device (TIER_VERIFY): one at a time, a piece after the other is copied into a
 * buffer of host memory and summed there. Copies go first. A piece begins while no copy runs or
 * could run, or when several times its bytes were copied meanwhile, so that it gets its turn at
 * all.
 */
#include "hbm__.h"

#include <sys/mman.h>

#include "clock.h"
#include "hash.h"
#include "layout.h"
#include "sys.h"

/* While copies run, a piece is verified after this many times its bytes were copied. */
#define COPY_WEIGHT 16u

/* Takes the first page of its memory; the buffer begins with the second. */
struct hbm_verify {
    struct tier_op *head, *tail; /* operations that have not begun */
    struct tier_op *op;          /* the operation that is running; NULL: none */
    bool pinned;                 /* the buffer was registered, at the first operation */
    bool reading;                /* a piece of `op` is in flight */
    uint64_t at, piece_bytes;
    uint64_t copied_bytes; /* by copies since the last piece */
    struct hash_stream sum;
    struct gpu_op copy;
    struct kvc_frag frag;
};
_Static_assert(sizeof(struct hbm_verify) <= LAYOUT_PAGE_BYTES, "its buffer begins with a page");

static void *buffer_of(struct hbm_verify *v)
{
    return (uint8_t *)v + LAYOUT_PAGE_BYTES;
}

/* --- the queue --- */

static void hbm_verify_push(struct hbm_verify *v, struct tier_op *op)
{
    op->next = NULL;
    if (v->tail != NULL)
        v->tail->next = op;
    else
        v->head = op;
    v->tail = op;
}

static struct tier_op *hbm_verify_pop(struct hbm_verify *v)
{
    struct tier_op *op = v->head;
    if (op == NULL)
        return NULL;
    v->head = op->next;
    if (v->head == NULL)
        v->tail = NULL;
    return op;
}

static void hbm_verify_tell(struct tier_op *op, int status)
{
    op->status = status;
    op->done(op);
}

/* --- a piece --- */

/* Returns the error that ends `op` before its next piece. 0: none, *ret_addr is its slot's address.
 */
static int refusal(struct hbm *h, const struct tier_op *op, uint64_t *ret_addr)
{
    if (h->closing || atomic_load_explicit(&op->cancel, memory_order_relaxed))
        return -ECANCELED;
    if (op->deadline_ns != 0 && clock_now_ns() >= op->deadline_ns)
        return -ETIMEDOUT;
    /* A labelled slot had memory: if it has none now, that was lost. */
    if (!hbm__is_up(h) || hbm__slot_at(h, op->loc, ret_addr) < 0)
        return -EIO;
    return 0;
}

static uint64_t next_bytes(const struct hbm_verify *v)
{
    return MIN(v->op->bytes - v->at, HBM_VERIFY_BYTES);
}

static bool has_turn(const struct hbm *h)
{
    return !hbm__copies_run(h) || h->verify->copied_bytes / COPY_WEIGHT >= next_bytes(h->verify);
}

static void hbm_verify_on_piece(struct gpu_op *copy);

static void piece_begin(struct hbm *h, uint64_t addr)
{
    struct hbm_verify *v = h->verify;
    v->piece_bytes = next_bytes(v);
    v->frag = (struct kvc_frag){
        .to = (uintptr_t)buffer_of(v), .from = addr + v->at, .bytes = v->piece_bytes};
    v->copy = (struct gpu_op){.kind = GPU_COPY,
                              .direction = GPU_FROM_DEVICE,
                              .frag = &v->frag,
                              .nfrags = 1,
                              .done = hbm_verify_on_piece,
                              .ctx = h};
    v->copied_bytes = 0;
    v->reading = true;
    gpu_submit(h->gpu, &v->copy);
}

static void hbm_verify_finish(struct hbm *h, int status)
{
    struct hbm_verify *v = h->verify;
    struct tier_op *op = v->op;
    v->op = NULL;
    hbm__slot_release(h, op->loc);
    hbm_verify_tell(op, status);
}

/* Ends operations that are refused, and begins the next piece, of `op` or of the next in line. */
static void hbm_verify_run(struct hbm *h)
{
    struct hbm_verify *v = h->verify;
    while (!v->reading) {
        uint64_t addr;
        if (v->op == NULL) {
            if ((v->op = hbm_verify_pop(v)) == NULL)
                return;
            v->at = 0;
            hash_stream_init(&v->sum);
            hbm__slot_hold(h, v->op->loc);
        }
        const int err = refusal(h, v->op, &addr);
        if (err < 0)
            hbm_verify_finish(h, err);
        else if (has_turn(h))
            piece_begin(h, addr);
        else
            return;
    }
}

static void hbm_verify_on_piece(struct gpu_op *copy)
{
    struct hbm *h = copy->ctx;
    struct hbm_verify *v = h->verify;
    v->reading = false;
    if (copy->status != 0) {
        hbm_verify_finish(h, copy->status == -ECANCELED ? -ECANCELED : -EIO);
    } else {
        hash_stream_update(&v->sum, buffer_of(v), v->piece_bytes);
        v->at += v->piece_bytes;
        if (v->at == v->op->bytes) {
            v->op->sum = hash_stream_final(&v->sum);
            hbm_verify_finish(h, 0);
        }
    }
    hbm_verify_run(h);
}

/* --- calls of hbm_copy.c and hbm_slots.c --- */

void hbm__verify_submit(struct hbm *h, struct tier_op *op)
{
    MUST(op->kind == TIER_VERIFY && op->bytes > 0 && op->done != NULL);
    MUST(hbm__slot_holds(h, op->loc, op->bytes));
    if (!h->verify->pinned)
        hbm_pin_host(h, buffer_of(h->verify), HBM_VERIFY_BYTES);
    h->verify->pinned = true;
    hbm_verify_push(h->verify, op);
    hbm__copies_tick(h,
                     hbm__copies_run(h) ? HBM_TICK_NS : 1); /* done() is never called from here */
}

void hbm__verify_copied(struct hbm *h, uint64_t bytes)
{
    if (h->verify != NULL && !hbm__verify_is_idle(h))
        h->verify->copied_bytes += bytes;
}

void hbm__verify_tick(struct hbm *h)
{
    struct hbm_verify *v = h->verify;
    uint64_t addr;
    if (v == NULL)
        return;
    struct tier_op *all = v->head;
    v->head = v->tail = NULL;
    for (struct tier_op *op; (op = all) != NULL;) {
        all = op->next;
        const int err = refusal(h, op, &addr);
        if (err < 0)
            hbm_verify_tell(op, err);
        else
            hbm_verify_push(v, op);
    }
    hbm_verify_run(h);
}

bool hbm__verify_is_idle(const struct hbm *h)
{
    return h->verify == NULL || (h->verify->op == NULL && h->verify->head == NULL);
}

/* --- made, and ended --- */

uint64_t hbm__verify_host_bytes(const struct hbm_config *config)
{
    return config->limit_bytes != 0 ? LAYOUT_PAGE_BYTES + HBM_VERIFY_BYTES : 0;
}

int hbm__verify_create(struct hbm *h)
{
    const uint64_t bytes = hbm__verify_host_bytes(&h->config);
    if (bytes == 0)
        return 0;
    h->verify = sys_pages(bytes);
    if (h->verify == NULL)
        return -errno;
    return 0;
}

void hbm__verify_destroy(struct hbm *h)
{
    if (h->verify == NULL)
        return;
    MUST(!h->verify->reading);
    hbm__verify_tick(h);
    MUST(hbm__verify_is_idle(h));
    (void)munmap(h->verify, hbm__verify_host_bytes(&h->config));
    h->verify = NULL;
}
