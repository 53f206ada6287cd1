/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations: each asks the core for something and checks the answer with the model. */
#ifndef KVC_TEST_ACT_H
#define KVC_TEST_ACT_H

#include "model.h"

void do_client_open(struct model *m);
void do_client_close(struct model *m);
void do_quarantine(struct model *m);
void do_ns_open(struct model *m);
void do_reserve(struct model *m);
void do_commit(struct model *m);
void do_commit_cancel(struct model *m);
void do_drop(struct model *m);
void do_acquire(struct model *m);
void do_waiter_deadline(struct model *m);
void do_lookup(struct model *m);
void do_release(struct model *m);
void do_redeem(struct model *m);
void do_evict(struct model *m);

/* Only where there are devices. */
void do_fill(struct model *m);
void do_fill_cancel(struct model *m);
void do_send(struct model *m);
void do_send_cancel(struct model *m);
void do_words(struct model *m);
void do_device(struct model *m);
void do_device_copies(struct model *m);
void do_look_hbm(struct model *m);

void do_pin(struct model *m);
void do_unpin(struct model *m);
void do_wish(struct model *m);
void unpin_all(struct model *m);

/* When nothing is in use any more: all of it goes. */
void evict_all(struct model *m);
void close_client(struct model *m, int i);
/* What core and tier call back. */
void on_idle(void *ctx);
void on_end(void *ctx, struct tier_op *op);
void on_submit(void *ctx, struct tier_op *op);
void on_device_submit(void *ctx, struct device_copy *copy);
void on_device_end(void *ctx, struct device_copy *copy);
/* A copy out of pages has been submitted: those of its entries that waited know where they go. */
void on_pages_begin(struct model *m, const struct device_copy *copy);
/* A copy out of pages has ended: what becomes of its entries. */
void on_pages_end(struct model *m, const struct device_copy *copy);
/* The pages of n blocks of so many bytes, numbered from 0, in any order; now and then a number is
 * wrong. *ret_shape: their group. */
uint32_t *some_pages(struct model *m, uint32_t bytes, uint32_t n,
                     struct fake_pool_group *ret_shape);
bool pages_fit(const uint32_t *pages, uint32_t n, uint32_t pages_max);
/* What a copy's end is to who asked for it. */
uint8_t m_status(int err);
#define M_WAIT_NS UINT64_C(100000000) /* for their turn, copies wait some of them */
/* One of the last few, alive or not; or M_NONE. */
int any_lease(struct model *m);

/* An open one, or M_NONE. */
int any_client(struct model *m);
/* A namespace for this client, by way of its id and perhaps a sub-tenant; or M_NONE. */
int pick_ns(struct model *m, int client, struct core_ns **ret_ns);
void random_seq(struct model *m, uint32_t ns, struct m_seq *ret);
/* Room for one more, zeroed; the address of the array may change. */
void *grow_one(void *items, int *n, int *cap, size_t size);

#endif
