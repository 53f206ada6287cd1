/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations: each asks the core for something and compares its answer with the model. */
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

/* The next functions need devices. */
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

/* Call it when nothing is in use: evicts all blocks, and fails if one stays. */
void evict_all(struct model *m);
void close_client(struct model *m, int i);
/* Callbacks of core and tier. */
void on_idle(void *ctx);
void on_end(void *ctx, struct tier_op *op);
void on_submit(void *ctx, struct tier_op *op);
void on_device_submit(void *ctx, struct device_copy *copy);
void on_device_end(void *ctx, struct device_copy *copy);
/* A copy out of pages was submitted: its entries that waited now have their places. */
void on_pages_begin(struct model *m, const struct device_copy *copy);
/* A copy out of pages has ended: settles its entries. */
void on_pages_end(struct model *m, const struct device_copy *copy);
/* Makes the page numbers of n blocks of so many bytes: from 0 on, in random order, now and then one
 * that is out of range. *ret_shape: the group of these pages. */
uint32_t *some_pages(struct model *m, uint32_t bytes, uint32_t n,
                     struct fake_pool_group *ret_shape);
bool pages_fit(const uint32_t *pages, uint32_t n, uint32_t pages_max);
/* The status that a requester gets for the end of a copy. */
uint8_t m_status(int err);
#define M_WAIT_NS UINT64_C(100000000) /* copies wait at most so long for their turn */
/* One of the last few leases, alive or not; or M_NONE. */
int any_lease(struct model *m);

/* An open client, or M_NONE. */
int any_client(struct model *m);
/* A namespace that the client names by its id and perhaps a sub-tenant; or M_NONE. */
int pick_ns(struct model *m, int client, struct core_ns **ret_ns);
void random_seq(struct model *m, uint32_t ns, struct m_seq *ret);
/* Makes room for one more item, which is zeroed; the array may move. */
void *grow_one(void *items, int *n, int *cap, size_t size);

#endif
