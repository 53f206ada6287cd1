/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests in two halves, for an event loop: *_begin, the session's progress(), and finish(). A
 * request in flight is in its session's list. The list owns two references: one until the outcome
 * is taken, one that progress() hands out. So no other thread's finish() frees what is handed out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvcpy.h"
#include "request.h"

/* Gives back references: the caller's, or those of its session's list. */
void request_drop(struct request *r, int refs)
{
    while (refs-- > 0)
        Py_DECREF((PyObject *)r);
}

int request_refs(const struct request *r)
{
    return r->is_told ? 1 : 2;
}

/* A request is made with all references that it will have, because none can be counted without the
 * GIL. */
enum { REFS_NEW = 3 };

static struct request *request_new(struct session *session, struct space *space, struct pool *pool)
{
    struct request *r = (struct request *)PyType_GenericAlloc(request_type, 0);
    if (r == NULL)
        return NULL;
    r->session = (struct session *)Py_NewRef((PyObject *)session);
    r->space = (struct space *)Py_XNewRef((PyObject *)space);
    r->pool = (struct pool *)Py_XNewRef((PyObject *)pool);
    for (int i = 1; i < REFS_NEW; i++)
        Py_INCREF((PyObject *)r); /* for the list */
    return r;
}

/* Puts the request into the list; call it with the session's lock. The references of the list were
 * counted before, with the GIL. */
static void request_link(struct request *r, struct kvc_op *op)
{
    struct session *s = r->session;
    r->op = op;
    kvc_op_set_user(op, r);
    r->next = s->requests;
    r->prev = NULL;
    if (s->requests != NULL)
        s->requests->prev = r;
    s->requests = r;
}

/* Takes the request out of the list, because its outcome is taken. The caller gets the list's
 * references; returns their number. */
static int request_unlink(struct request *r)
{
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        r->session->requests = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    r->op = NULL;
    return request_refs(r);
}

/* Ends the begin half of a request. rc: what the library returned; *op: the op that it began. After
 * a failure all references are given back. */
static PyObject *request_begun(struct request *r, PyThreadState *state, int rc,
                               struct kvc_op *const *op)
{
    if (rc == 0)
        request_link(r, *op);
    if (session_leave(r->session, state, rc) == 0)
        return (PyObject *)r;
    request_drop(r, REFS_NEW);
    return NULL;
}

/* session_enter() for a request that is about to begin. NULL: an exception is set, and the request
 * is freed. */
static PyThreadState *request_begin(struct request *r)
{
    if (r == NULL)
        return NULL;
    PyThreadState *state = device_begin(r->session, NULL, r->pool);
    if (state != NULL)
        return state;
    request_drop(r, REFS_NEW);
    return NULL;
}

/* The request is not in flight, because its session's list would have a reference. */
static void request_dealloc(PyObject *self)
{
    struct request *r = (struct request *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF((PyObject *)r->pool);
    Py_XDECREF((PyObject *)r->space);
    Py_XDECREF((PyObject *)r->session);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* ---- begin halves ---- */

static PyObject *ping_begin(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    struct request *r = request_new(s, NULL, NULL);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state != NULL)
        return request_begun(r, state, kvc_ping_begin(s->kvc, &op), &op);
    return NULL;
}

static PyObject *namespace_begin(PyObject *self, PyObject *args)
{
    struct session *s = (struct session *)self;
    struct kvc_ns_spec spec;
    if (!space_spec(args, &spec))
        return NULL;
    struct space *space = space_new(s, spec.groups, spec.group);
    struct request *r = space == NULL ? NULL : request_new(s, space, NULL);
    Py_XDECREF((PyObject *)space);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state != NULL)
        return request_begun(r, state, kvc_ns_open_begin(s->kvc, &spec, &op), &op);
    return NULL;
}

static PyObject *lookup_begin(PyObject *self, PyObject *args)
{
    struct space *space = (struct space *)self;
    PyObject *keys, *made = NULL;
    uint32_t tokens, flags;
    const char *sub;
    struct seq_arg seq;
    if (!PyArg_ParseTuple(args, "OO&O&z", &keys, U32("tokens", &tokens), U32("flags", &flags),
                          &sub) ||
        !seq_from(space, keys, tokens, sub, &seq))
        return NULL;
    struct request *r = request_new(space->session, space, NULL);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state != NULL)
        made = request_begun(r, state, kvc_lookup_begin(space->ns, &seq.seq, flags, &op), &op);
    seq_free(&seq);
    return made;
}

static PyObject *requests_acquire_begin(PyObject *self, PyObject *args)
{
    struct space *space = (struct space *)self;
    PyObject *keys, *made = NULL;
    uint32_t tokens;
    const char *sub;
    struct kvc_acquire_options o = {0};
    struct seq_arg seq;
    if (!PyArg_ParseTuple(args, "OO&O&O&O&O&z", &keys, U32("tokens", &tokens),
                          U32("flags", &o.flags), U32("from_tokens", &o.from_tokens),
                          U32("wait_tokens", &o.wait_tokens), TIMEOUT(&o.timeout_ms), &sub) ||
        !seq_from(space, keys, tokens, sub, &seq))
        return NULL;
    struct request *r = request_new(space->session, space, NULL);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state != NULL)
        made = request_begun(r, state, kvc_acquire_begin(space->ns, &seq.seq, &o, &op), &op);
    seq_free(&seq);
    return made;
}

static PyObject *redeem_begin(PyObject *self, PyObject *args)
{
    struct space *space = (struct space *)self;
    const char *ticket;
    Py_ssize_t bytes;
    if (!PyArg_ParseTuple(args, "y#", &ticket, &bytes))
        return NULL;
    if (bytes != (Py_ssize_t)KVC_TICKET_BYTES) {
        PyErr_Format(PyExc_ValueError, "a ticket of %zd bytes: %u were expected", bytes,
                     KVC_TICKET_BYTES);
        return NULL;
    }
    struct request *r = request_new(space->session, space, NULL);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state != NULL)
        return request_begun(r, state, kvc_redeem_begin(space->ns, (const uint8_t *)ticket, &op),
                             &op);
    return NULL;
}

PyObject *request_store(struct space *space, const struct kvc_blocks *blocks, uint32_t epoch,
                        const uint64_t *offsets, const struct numbers *tokens)
{
    struct request *r = request_new(space->session, space, NULL);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state == NULL)
        return NULL;
    if (kvc_epoch(r->session->kvc) != epoch) {
        (void)session_leave(r->session, state, 0);
        request_drop(r, REFS_NEW);
        return raise_error(KVC_E_DOWN, STAGING_IS_VOID);
    }
    return request_begun(
        r, state, kvc_store_begin(space->ns, blocks, offsets, tokens->at, tokens->n, &op), &op);
}

PyObject *request_pages_store(struct space *space, const struct kvc_blocks *blocks,
                              struct pool *pool, const struct numbers *pages, struct kvc_word after,
                              const struct numbers *tokens)
{
    struct request *r = request_new(space->session, space, pool);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state != NULL)
        return request_begun(r, state,
                             kvc_pages_store_begin(space->ns, blocks, pool->pool, pages->at, after,
                                                   tokens->at, tokens->n, &op),
                             &op);
    return NULL;
}

PyObject *request_pages_load(struct space *space, const struct kvc_seq *seq, struct pool *pool,
                             const struct kvc_pages_load *load)
{
    struct request *r = request_new(space->session, space, pool);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state != NULL)
        return request_begun(r, state, kvc_pages_load_begin(space->ns, seq, pool->pool, load, &op),
                             &op);
    return NULL;
}

/* ---- outcomes ---- */

/* Converts the outcome to a Python value; a hold is in its session's list already. */
static PyObject *result_to(struct request *r, const struct kvc_result *result, struct hold *hold)
{
    switch ((enum kvc_op_code)result->kind) {
    case KVC_OP_PING:
        return PyLong_FromUnsignedLongLong(result->uptime_ms);
    case KVC_OP_LOOKUP:
        return prefix_to(&result->prefix, r->space->groups);
    case KVC_OP_ACQUIRE:
    case KVC_OP_REDEEM:
        return Py_NewRef((PyObject *)hold);
    case KVC_OP_NS_OPEN:
        return Py_NewRef((PyObject *)r->space);
    case KVC_OP_PAGES_LOAD:
        return PyLong_FromUnsignedLong(result->n);
    default:
        return Py_NewRef(Py_None);
    }
}

/* Ends the op; call it with the lock. statuses has KVC_STORE_MAX bytes. If hold or statuses is
 * NULL, the library's hold is released, or its statuses are dropped. *ret_refs: references of the
 * list, which the caller gives back. */
static int finish_locked(struct request *r, struct hold *hold, struct kvc_result *result,
                         uint8_t *statuses, int *ret_refs)
{
    struct kvc_op *op = r->op;
    *ret_refs = 0;
    if (op == NULL)
        return KVC_E_GONE;
    *ret_refs = request_unlink(r);
    int rc = kvc_finish(&op, result);
    if (rc == 0 && result->hold != NULL && hold != NULL)
        hold_link(hold, result->hold);
    else if (rc == 0 && result->hold != NULL)
        kvc_release(r->session->kvc, &result->hold);
    if (rc == 0 && result->kind == KVC_OP_NS_OPEN)
        r->space->ns = result->ns;
    if (rc == 0 && result->kind == KVC_OP_PAGES_LOAD) {
        /* Valid until the pool's next call; `n` is not used for a PAGES_LOAD otherwise. */
        struct kvc_loaded loaded;
        kvc_pages_loaded(r->pool->pool, &loaded);
        result->n = loaded.tokens;
    }
    if (rc == 0 && result->statuses != NULL && statuses != NULL)
        memcpy(statuses, result->statuses, result->n);
    return rc;
}

/* The request is over afterwards, even if memory for its outcome is missing. */
static PyObject *request_finish(PyObject *self, PyObject *args)
{
    (void)args;
    struct request *r = (struct request *)self;
    struct hold *hold = r->space == NULL ? NULL : hold_new(r->space);
    uint8_t *statuses = malloc(KVC_STORE_MAX);
    bool has_room = statuses != NULL && (r->space == NULL || hold != NULL);
    PyErr_Clear(); /* raised again below */
    PyObject *made = NULL;
    PyThreadState *state = session_enter(r->session);
    if (state != NULL) {
        struct kvc_result result = {0};
        int refs, rc = finish_locked(r, hold, &result, statuses, &refs);
        bool stores = result.statuses != NULL;
        uint32_t n = result.n;
        if (session_leave(r->session, state, rc) == 0 && !has_room)
            PyErr_NoMemory();
        else if (rc == 0)
            made = stores ? PyBytes_FromStringAndSize((const char *)statuses, (Py_ssize_t)n)
                          : result_to(r, &result, hold);
        request_drop(r, refs);
    }
    Py_XDECREF((PyObject *)hold);
    free(statuses);
    return made;
}

static PyObject *request_done(PyObject *self, PyObject *args)
{
    (void)args;
    struct request *r = (struct request *)self;
    PyThreadState *state = session_enter(r->session);
    if (state == NULL)
        return NULL;
    bool done = r->op == NULL || kvc_done(r->op);
    (void)session_leave(r->session, state, 0);
    return PyBool_FromLong(done);
}

static PyObject *request_cancel(PyObject *self, PyObject *args)
{
    (void)args;
    struct request *r = (struct request *)self;
    PyThreadState *state = session_enter(r->session);
    if (state == NULL)
        return NULL;
    int rc = r->op == NULL ? 0 : kvc_cancel_begin(r->op);
    if (session_leave(r->session, state, rc) < 0)
        return NULL;
    Py_RETURN_NONE;
}

enum { DONE_MAX = 1024 }; /* most requests of a session */

/* Lets the library continue its requests; call it with the lock. Returns the number of requests
 * that are done and were not handed out yet, each with the list's reference for that; or an error.
 */
static int progress_locked(struct session *s, struct request **ret_done)
{
    struct kvc_op *op;
    int n = 0, rc = kvc_progress(s->kvc);
    while (rc >= 0 && (rc = kvc_next(s->kvc, &op)) > 0)
        ((struct request *)kvc_op_user(op))->is_done = true;
    if (rc < 0)
        return rc;
    for (struct request *r = s->requests; r != NULL && n < DONE_MAX; r = r->next)
        if (r->is_done && !r->is_told) {
            r->is_told = true;
            ret_done[n++] = r;
        }
    return n;
}

/* Memory to hand the requests out is missing. The next progress() does it, except for those that
 * another thread has finished meanwhile. */
static void progress_untold(struct session *s, struct request **done, int n)
{
    PyThreadState *state;
    bool may_free;
    if (!session_enter_quietly(s, &state, &may_free))
        return;
    for (int i = 0; i < n; i++)
        if (done[i]->op != NULL) {
            done[i]->is_told = false;
            done[i] = NULL;
        }
    session_leave_quietly(s, state);
    for (int i = 0; i < n; i++)
        Py_XDECREF((PyObject *)done[i]);
}

/* -> [requests that are done and were not told before] */
static PyObject *session_progress(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    struct request *done[DONE_MAX];
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    int n = progress_locked(s, done);
    if (session_leave(s, state, n) < 0)
        return NULL;
    PyObject *list = PyList_New(n);
    if (list == NULL)
        progress_untold(s, done, n);
    for (int i = 0; list != NULL && i < n; i++)
        (void)PyList_SetItem(list, i, (PyObject *)done[i]);
    return list;
}

static PyMethodDef methods[] = {
    {"finish", request_finish, METH_NOARGS, NULL},
    {"done", request_done, METH_NOARGS, NULL},
    {"cancel", request_cancel, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, request_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};
static PyType_Spec spec = {
    .name = "kvcache_client._kvc.Request",
    .basicsize = sizeof(struct request),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

PyTypeObject *request_make(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}

PyMethodDef session_request_methods[] = {
    {"ping_begin", ping_begin, METH_NOARGS, NULL},
    {"namespace_begin", namespace_begin, METH_VARARGS, NULL},
    {"progress", session_progress, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
PyMethodDef space_request_methods[] = {
    {"lookup_begin", lookup_begin, METH_VARARGS, NULL},
    {"acquire_begin", requests_acquire_begin, METH_VARARGS, NULL},
    {"redeem_begin", redeem_begin, METH_VARARGS, NULL},
    {"store_begin", space_store_begin, METH_VARARGS, NULL},
    {"store_pages_begin", space_store_pages_begin, METH_VARARGS, NULL},
    {"get_begin", space_get_begin, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
