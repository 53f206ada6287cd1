/* SPDX-License-Identifier: Apache-2.0 */
/* A request that was begun. It is in its session's list until its outcome is taken. */
#ifndef KVC_PYTHON_REQUEST_H
#define KVC_PYTHON_REQUEST_H

#include "kvcpy.h"

struct request {
    PyObject ob_base;
    struct kvc_op *op; /* NULL once finished, or when the session was closed */
    struct session *session;
    struct space *space; /* NULL for a ping */
    struct pool *pool;   /* the pool whose pages the daemon uses meanwhile; or NULL */
    struct request *prev, *next;
    bool is_done; /* the library has reported that it is done */
    bool is_told; /* progress() has handed it out, with one of the list's references */
};

extern PyMethodDef session_request_methods[];
extern PyMethodDef space_request_methods[];

/* Number of references that the session's list has. Call it with the session's lock, or when the
 * session is closed. */
int request_refs(const struct request *request);
void request_drop(struct request *request, int refs);
/* Begins a store of blocks that were brought to staging in `epoch`. If the present epoch is another
 * one, KVC_E_DOWN is raised. The library cannot check that: it only knows that somebody has asked
 * for staging since. */
PyObject *request_store(struct space *space, const struct kvc_blocks *blocks, uint32_t epoch,
                        const uint64_t *offsets, const struct numbers *tokens);
/* Begins a store out of a pool's pages, or a load into them. */
PyObject *request_pages_store(struct space *space, const struct kvc_blocks *blocks,
                              struct pool *pool, const struct numbers *pages, struct kvc_word after,
                              const struct numbers *tokens);
PyObject *request_pages_load(struct space *space, const struct kvc_seq *seq, struct pool *pool,
                             const struct kvc_pages_load *load);

#endif
