/* SPDX-License-Identifier: Apache-2.0 */
/* A request that was begun, and is in its session's list until its outcome is taken. */
#ifndef KVC_PYTHON_REQUEST_H
#define KVC_PYTHON_REQUEST_H

#include "kvcpy.h"

struct request {
    PyObject ob_base;
    struct kvc_op *op; /* NULL once finished, or when the session went */
    struct session *session;
    struct space *space; /* NULL for a ping */
    struct request *prev, *next;
};

extern PyMethodDef session_request_methods[];
extern PyMethodDef space_request_methods[];

/* With the session's lock; the list's reference is then the caller's. */
void request_unlink(struct request *request);
/* Begins a store of what is in staging. */
PyObject *request_store(struct space *space, const struct kvc_blocks *blocks,
                        const uint64_t *offsets, const struct numbers *tokens);

#endif
