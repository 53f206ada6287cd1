/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests in two halves, for an event loop: *_begin, the session's progress(), and finish(). A
 * request in flight is in its session's list, which owns a reference.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvcpy.h"
#include "request.h"

/* With two references: the caller's and the list's. */
static struct request *request_new(struct session *session, struct space *space)
{
    struct request *r = (struct request *)PyType_GenericAlloc(request_type, 0);
    if (r == NULL)
        return NULL;
    r->session = (struct session *)Py_NewRef((PyObject *)session);
    r->space = (struct space *)Py_XNewRef((PyObject *)space);
    Py_INCREF((PyObject *)r); /* for the list */
    return r;
}

/* With the session's lock. The list's reference was made before, with the GIL. */
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

void request_unlink(struct request *r)
{
    if (r->prev != NULL)
        r->prev->next = r->next;
    else
        r->session->requests = r->next;
    if (r->next != NULL)
        r->next->prev = r->prev;
    r->op = NULL;
}

/* Ends a begin half: rc is the library's, *op what it began. The caller's reference goes with a
 * failure. */
static PyObject *request_begun(struct request *r, PyThreadState *state, int rc,
                               struct kvc_op *const *op)
{
    if (rc == 0)
        request_link(r, *op);
    if (session_end(r->session, state, rc) == 0)
        return (PyObject *)r;
    Py_DECREF((PyObject *)r); /* the list's */
    Py_DECREF((PyObject *)r);
    return NULL;
}

/* session_begin for a request that is about to begin. NULL: an exception is set, and the request is
 * gone. */
static PyThreadState *request_begin(struct request *r)
{
    if (r == NULL)
        return NULL;
    PyThreadState *state = session_begin(r->session);
    if (state != NULL)
        return state;
    Py_DECREF((PyObject *)r); /* the list's */
    Py_DECREF((PyObject *)r);
    return NULL;
}

/* Not in flight: its session's list has a reference of its own. */
static void request_dealloc(PyObject *self)
{
    struct request *r = (struct request *)self;
    PyTypeObject *type = Py_TYPE(self);
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
    struct request *r = request_new(s, NULL);
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
    struct request *r = space == NULL ? NULL : request_new(s, space);
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
    unsigned tokens, flags;
    const char *sub;
    struct seq_arg seq;
    if (!PyArg_ParseTuple(args, "OIIz", &keys, &tokens, &flags, &sub) ||
        !seq_from(keys, tokens, sub, &seq))
        return NULL;
    struct request *r = request_new(space->session, space);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state != NULL)
        made = request_begun(r, state, kvc_lookup_begin(space->ns, &seq.seq, flags, &op), &op);
    seq_free(&seq);
    return made;
}

static PyObject *acquire_begin(PyObject *self, PyObject *args)
{
    struct space *space = (struct space *)self;
    PyObject *keys, *made = NULL;
    unsigned tokens;
    const char *sub;
    struct kvc_acquire_options o = {0};
    struct seq_arg seq;
    if (!PyArg_ParseTuple(args, "OIIIIIz", &keys, &tokens, &o.flags, &o.from_tokens, &o.wait_tokens,
                          &o.timeout_ms, &sub) ||
        !seq_from(keys, tokens, sub, &seq))
        return NULL;
    struct request *r = request_new(space->session, space);
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
    struct request *r = request_new(space->session, space);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state != NULL)
        return request_begun(r, state, kvc_redeem_begin(space->ns, (const uint8_t *)ticket, &op),
                             &op);
    return NULL;
}

PyObject *request_store(struct space *space, const struct kvc_blocks *blocks,
                        const uint64_t *offsets, const struct numbers *tokens)
{
    struct request *r = request_new(space->session, space);
    PyThreadState *state = request_begin(r);
    struct kvc_op *op = NULL;
    if (state != NULL)
        return request_begun(
            r, state, kvc_store_begin(space->ns, blocks, offsets, tokens->at, tokens->n, &op), &op);
    return NULL;
}

/* ---- outcomes ---- */

/* The outcome as Python's; hold is already in its session's list. */
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
    default:
        return Py_NewRef(Py_None);
    }
}

/* Ends the op, with the lock held; KVC_STORE_MAX bytes for statuses. *ret_listed: the list's
 * reference is to go. */
static int finish_locked(struct request *r, struct hold *hold, struct kvc_result *result,
                         uint8_t *statuses, bool *ret_listed)
{
    struct kvc_op *op = r->op;
    *ret_listed = op != NULL;
    if (op == NULL)
        return KVC_E_GONE;
    request_unlink(r);
    int rc = kvc_finish(&op, result);
    if (rc == 0 && result->hold != NULL)
        hold_link(hold, result->hold);
    if (rc == 0 && result->kind == KVC_OP_NS_OPEN)
        r->space->ns = result->ns;
    if (rc == 0 && result->statuses != NULL)
        memcpy(statuses, result->statuses, result->n);
    return rc;
}

static PyObject *request_finish(PyObject *self, PyObject *args)
{
    (void)args;
    struct request *r = (struct request *)self;
    struct hold *hold = r->space == NULL ? NULL : hold_new(r->space);
    uint8_t *statuses = malloc(KVC_STORE_MAX);
    if (statuses == NULL || (r->space != NULL && hold == NULL)) {
        Py_XDECREF((PyObject *)hold);
        free(statuses);
        return PyErr_NoMemory();
    }
    PyObject *made = NULL;
    PyThreadState *state = session_begin(r->session);
    if (state != NULL) {
        struct kvc_result result = {0};
        bool listed;
        int rc = finish_locked(r, hold, &result, statuses, &listed);
        bool stores = result.statuses != NULL;
        uint32_t n = result.n;
        if (session_end(r->session, state, rc) == 0)
            made = stores ? PyBytes_FromStringAndSize((const char *)statuses, (Py_ssize_t)n)
                          : result_to(r, &result, hold);
        if (listed)
            Py_DECREF((PyObject *)r);
    }
    Py_XDECREF((PyObject *)hold);
    free(statuses);
    return made;
}

static PyObject *request_done(PyObject *self, PyObject *args)
{
    (void)args;
    struct request *r = (struct request *)self;
    PyThreadState *state = session_begin(r->session);
    if (state == NULL)
        return NULL;
    bool done = r->op == NULL || kvc_done(r->op);
    (void)session_end(r->session, state, 0);
    return PyBool_FromLong(done);
}

static PyObject *request_cancel(PyObject *self, PyObject *args)
{
    (void)args;
    struct request *r = (struct request *)self;
    PyThreadState *state = session_begin(r->session);
    if (state == NULL)
        return NULL;
    int rc = r->op == NULL ? 0 : kvc_cancel_begin(r->op);
    if (session_end(r->session, state, rc) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Goes on with all that can go on: -> [requests that are done and were not handed out before]. */
static PyObject *session_progress(PyObject *self, PyObject *args)
{
    (void)args;
    enum { MOST = 1024 }; /* of a session */
    struct session *s = (struct session *)self;
    PyObject **done = calloc(MOST, sizeof(*done));
    if (done == NULL)
        return PyErr_NoMemory();
    PyThreadState *state = session_begin(s);
    if (state == NULL) {
        free(done);
        return NULL;
    }
    struct kvc_op *op;
    size_t n = 0;
    int rc = kvc_progress(s->kvc);
    while (rc >= 0 && n < MOST && (rc = kvc_next(s->kvc, &op)) > 0)
        done[n++] = kvc_op_user(op);
    PyObject *list = NULL;
    if (session_end(s, state, rc) >= 0)
        list = PyList_New(0);
    for (size_t i = 0; list != NULL && i < n; i++)
        if (PyList_Append(list, done[i]) < 0)
            Py_CLEAR(list);
    free(done);
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
    {"acquire_begin", acquire_begin, METH_VARARGS, NULL},
    {"redeem_begin", redeem_begin, METH_VARARGS, NULL},
    {"store_begin", space_store_begin, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
