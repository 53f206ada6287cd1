/* SPDX-License-Identifier: Apache-2.0 */
/* A session: its life, its lock, staging, counters and statistics. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvcpy.h"
#include "request.h"

PyThreadState *session_enter(struct session *session)
{
    if (session->pid != getpid()) {
        raise_error(-EPERM, "the session belongs to the parent process: open one after fork()");
        return NULL;
    }
    PyThreadState *state = PyEval_SaveThread();
    (void)pthread_mutex_lock(&session->lock);
    if (session->kvc != NULL)
        return state;
    (void)pthread_mutex_unlock(&session->lock);
    PyEval_RestoreThread(state);
    PyErr_SetString(PyExc_ValueError, "the session is closed");
    return NULL;
}

int session_leave(struct session *session, PyThreadState *state, int rc)
{
    char text[512] = "";
    if (rc < 0 && session->kvc != NULL) {
        strncpy(text, kvc_last_error(session->kvc), sizeof(text) - 1);
    }
    (void)pthread_mutex_unlock(&session->lock);
    PyEval_RestoreThread(state);
    if (rc < 0)
        raise_error(rc, text);
    return rc;
}

bool session_enter_quietly(struct session *session, PyThreadState **ret_state, bool *ret_free)
{
    if (session->pid == getpid()) {
        *ret_state = PyEval_SaveThread();
        (void)pthread_mutex_lock(&session->lock);
        *ret_free = true;
        return true;
    }
    /* A thread that the child does not have may have been inside the session; then the child must
     * not touch it. */
    *ret_state = NULL;
    *ret_free = pthread_mutex_trylock(&session->lock) == 0;
    return *ret_free;
}

void session_leave_quietly(struct session *session, PyThreadState *state)
{
    (void)pthread_mutex_unlock(&session->lock);
    if (state != NULL)
        PyEval_RestoreThread(state);
}

int session_host(struct session *session, struct kvc_gpu **ret_host)
{
    int rc = 0;
    if (session->host == NULL)
        rc = kvc_gpu_open(session->kvc, "host", &session->host);
    if (rc == 0)
        *ret_host = session->host;
    return rc;
}

/* The daemon grants at most what it has; a larger wish is a mistake. */
#define STAGING_MAX (1ull << 40)

static PyObject *session_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    struct kvc_options o = {0};
    int must_connect, no_wait;
    if (!PyArg_ParseTuple(args, "zzO&O&O&pp", &o.socket, &o.name,
                          U64_WITHIN("staging_bytes", STAGING_MAX, &o.staging_bytes),
                          U32_WITHIN("shard", 0, KVC_SHARDS_MAX - 1, &o.shard),
                          TIMEOUT(&o.timeout_ms), &must_connect, &no_wait))
        return NULL;
    o.must_connect = must_connect != 0;
    o.no_wait = no_wait != 0;
    struct kvc *kvc = NULL;
    char text[512] = "";
    int rc;
    Py_BEGIN_ALLOW_THREADS;
    rc = kvc_open(&o, &kvc);
    if (rc < 0) {
        strncpy(text, kvc_last_error(NULL), sizeof(text) - 1);
    }
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        return raise_error(rc, text);
    struct session *s = (struct session *)PyType_GenericAlloc(type, 0);
    if (s == NULL) {
        kvc_close(&kvc);
        return NULL;
    }
    s->kvc = kvc;
    s->pid = getpid();
    (void)pthread_mutex_init(&s->lock, NULL);
    return (PyObject *)s;
}

/* Closes the session; call it with the lock. All objects of the session become void. Returns the
 * requests that were in flight. */
static struct request *session_shut(struct session *s)
{
    struct request *orphans = s->requests;
    s->requests = NULL;
    while (s->holds != NULL)
        hold_unlink(s->holds);
    for (struct request *r = orphans; r != NULL; r = r->next)
        r->op = NULL;
    s->host = NULL;
    kvc_close(&s->kvc);
    return orphans;
}

static void session_dealloc(PyObject *self)
{
    struct session *s = (struct session *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyThreadState *state;
    bool may_free;
    if (session_enter_quietly(s, &state, &may_free)) {
        /* None is in flight, because each would have a reference to its session. */
        (void)session_shut(s);
        session_leave_quietly(s, state);
    }
    if (may_free)
        (void)pthread_mutex_destroy(&s->lock);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static bool views_live(struct session *s)
{
    bool live = s->views > 0;
    for (struct hold *h = s->holds; h != NULL && !live; h = h->next)
        live = h->views > 0;
    return live;
}

static PyObject *session_close(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    if (s->kvc == NULL || s->closing)
        Py_RETURN_NONE;
    PyThreadState *state;
    bool may_free;
    s->closing = true; /* from here on no view is made */
    if (!session_enter_quietly(s, &state, &may_free))
        Py_RETURN_NONE;
    /* Counts of views change only with the GIL. New views cannot appear; existing ones may still
     * end. */
    bool live = views_live(s);
    struct request *orphans = live ? NULL : session_shut(s);
    session_leave_quietly(s, state);
    while (orphans != NULL) {
        struct request *r = orphans;
        orphans = r->next;
        request_drop(r, request_refs(r));
    }
    if (!live)
        Py_RETURN_NONE;
    s->closing = false;
    PyErr_SetString(PyExc_BufferError,
                    "the session has views of staging or of blocks in use: drop them first");
    return NULL;
}

static PyObject *session_up(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    if (s->kvc == NULL || s->pid != getpid())
        Py_RETURN_FALSE;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    int up = kvc_is_up(s->kvc);
    (void)session_leave(s, state, 0);
    return PyBool_FromLong(up);
}

static PyObject *session_epoch(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    uint32_t epoch = kvc_epoch(s->kvc);
    (void)session_leave(s, state, 0);
    return PyLong_FromUnsignedLong(epoch);
}

static PyObject *session_ping(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    uint64_t uptime = 0;
    if (session_leave(s, state, kvc_ping(s->kvc, &uptime)) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(uptime);
}

static PyObject *session_last_error(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    char text[512] = "";
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    strncpy(text, kvc_last_error(s->kvc), sizeof(text) - 1);
    (void)session_leave(s, state, 0);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

static PyObject *session_counters(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    struct kvc_counters c;
    kvc_get_counters(s->kvc, &c);
    (void)session_leave(s, state, 0);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "lookups_down",
                         (unsigned long long)c.lookups_down, "stores_dropped_blocks",
                         (unsigned long long)c.stores_dropped_blocks, "stores_dropped_bytes",
                         (unsigned long long)c.stores_dropped_bytes, "reconnects",
                         (unsigned long long)c.reconnects, "stale", (unsigned long long)c.stale);
}

static PyObject *session_fileno(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    int fd = kvc_fd(s->kvc);
    if (session_leave(s, state, fd) < 0)
        return NULL;
    return PyLong_FromLong(fd);
}

/* Asks for staging. *ret_epoch belongs to the area that is returned. False: an exception is set. */
static bool ask_staging(struct session *s, void **ret_at, uint64_t *ret_bytes, uint32_t *ret_epoch)
{
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return false;
    *ret_at = kvc_staging(s->kvc, ret_bytes);
    *ret_epoch = kvc_epoch(s->kvc);
    (void)session_leave(s, state, 0);
    return true;
}

static PyObject *session_staging(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    void *at;
    uint64_t bytes = 0;
    uint32_t epoch;
    if (!ask_staging(s, &at, &bytes, &epoch))
        return NULL;
    if (at == NULL)
        Py_RETURN_NONE;
    if (s->closing) {
        PyErr_SetString(PyExc_ValueError, "the session is being closed");
        return NULL;
    }
    return view_new(self, &s->views, at, (Py_ssize_t)bytes, false);
}

/* -> (epoch, bytes) or None: asks for staging, for blocks that staging_fill brings there. */
static PyObject *session_staging_ask(PyObject *self, PyObject *args)
{
    (void)args;
    void *at;
    uint64_t bytes = 0;
    uint32_t epoch;
    if (!ask_staging((struct session *)self, &at, &bytes, &epoch))
        return NULL;
    if (at == NULL)
        Py_RETURN_NONE;
    return Py_BuildValue("IK", epoch, (unsigned long long)bytes);
}

/* Copies a block to staging; call it with the lock. -EINVAL: it would end outside of staging. */
static int fill_locked(struct session *s, uint32_t epoch, uint64_t at, const Py_buffer *from)
{
    uint64_t bytes = 0, size = (uint64_t)from->len;
    uint8_t *staging = kvc_staging(s->kvc, &bytes);
    if (staging == NULL || kvc_epoch(s->kvc) != epoch)
        return KVC_E_DOWN;
    if (size > bytes || at > bytes - size)
        return -EINVAL;
    memcpy(staging + at, from->buf, (size_t)from->len);
    return 0;
}

/* (epoch, at, block): copies a block to staging. The session's lock keeps the area mapped, and lets
 * it be the one of that epoch. */
static PyObject *session_staging_fill(PyObject *self, PyObject *args)
{
    struct session *s = (struct session *)self;
    uint32_t epoch;
    uint64_t at;
    Py_buffer from;
    if (!PyArg_ParseTuple(args, "O&O&y*", U32("epoch", &epoch), U64("at", &at), &from))
        return NULL;
    PyThreadState *state = session_enter(s);
    int rc = -1;
    if (state != NULL) {
        rc = fill_locked(s, epoch, at, &from);
        (void)session_leave(s, state, 0);
        if (rc == KVC_E_DOWN)
            raise_error(rc, STAGING_IS_VOID);
        else if (rc < 0)
            raise_errorf(rc, "a block of %zd bytes at %llu would end outside of staging", from.len,
                         (unsigned long long)at);
    }
    PyBuffer_Release(&from);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- statistics ---- */

struct stats {
    struct kvc_stat *item;
    size_t n, room;
};

static int stats_take(void *ctx, const struct kvc_stat *stat)
{
    struct stats *all = ctx;
    if (all->n == all->room) {
        size_t room = all->room == 0 ? 256 : 2 * all->room;
        struct kvc_stat *item = realloc(all->item, room * sizeof(*item));
        if (item == NULL)
            return -ENOMEM;
        all->item = item;
        all->room = room;
    }
    all->item[all->n++] = *stat;
    return 0;
}

static PyObject *session_stats(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    struct stats all = {0};
    PyObject *dict = NULL;
    if (session_leave(s, state, kvc_stats(s->kvc, stats_take, &all)) == 0)
        dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < all.n; i++)
        if (!dict_take(dict, all.item[i].name, PyLong_FromUnsignedLongLong(all.item[i].value)))
            Py_CLEAR(dict);
    free(all.item);
    return dict;
}

static PyObject *session_namespace(PyObject *self, PyObject *args)
{
    return space_open((struct session *)self, args);
}

static PyMethodDef own_methods[] = {
    {"close", session_close, METH_NOARGS, NULL},
    {"up", session_up, METH_NOARGS, NULL},
    {"epoch", session_epoch, METH_NOARGS, NULL},
    {"ping", session_ping, METH_NOARGS, NULL},
    {"last_error", session_last_error, METH_NOARGS, NULL},
    {"counters", session_counters, METH_NOARGS, NULL},
    {"fileno", session_fileno, METH_NOARGS, NULL},
    {"staging", session_staging, METH_NOARGS, NULL},
    {"staging_ask", session_staging_ask, METH_NOARGS, NULL},
    {"staging_fill", session_staging_fill, METH_VARARGS, NULL},
    {"stats", session_stats, METH_NOARGS, NULL},
    {"namespace", session_namespace, METH_VARARGS, NULL},
    {"device", session_device, METH_VARARGS, NULL},
};

/* One table for the type, because the type keeps a pointer to it. */
static PyMethodDef methods[40];

static size_t methods_add(size_t n, const PyMethodDef *from, size_t count)
{
    for (size_t i = 0; i < count && from[i].ml_name != NULL; i++)
        methods[n++] = from[i];
    return n;
}

PyTypeObject *session_make(PyObject *module)
{
    size_t n = methods_add(0, own_methods, sizeof(own_methods) / sizeof(own_methods[0]));
    n = methods_add(n, session_name_methods, 12);
    (void)methods_add(n, session_request_methods, 12);
    static PyType_Slot slots[] = {
        {Py_tp_new, session_new},
        {Py_tp_dealloc, session_dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "kvcache_client._kvc.Session",
        .basicsize = sizeof(struct session),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
