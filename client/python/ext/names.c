/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations, documents, pins and hints. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvcpy.h"

/* The kind of a name or hint; the library knows which kinds exist. */
#define KIND(TO) U32_WITHIN("kind", 0, INT32_MAX, TO)

PyObject *space_hint(PyObject *self, PyObject *args)
{
    struct space *space = (struct space *)self;
    PyObject *keys;
    uint32_t tokens, kind, within_ms;
    const char *sub;
    struct seq_arg seq;
    if (!PyArg_ParseTuple(args, "OO&O&O&z", &keys, U32("tokens", &tokens), KIND(&kind),
                          U32("within_ms", &within_ms), &sub) ||
        !seq_from(space, keys, tokens, sub, &seq))
        return NULL;
    PyThreadState *state = session_enter(space->session);
    int rc = -1;
    if (state != NULL)
        rc = session_leave(space->session, state,
                           kvc_hint(space->ns, &seq.seq, (enum kvc_hint_kind)kind, within_ms));
    seq_free(&seq);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

static bool ids_match(const struct numbers *ids, uint32_t tokens)
{
    if (ids->at == NULL || ids->n == tokens)
        return true;
    raise_errorf(-EINVAL, "%zu token ids: the sequence has %u tokens", ids->n, tokens);
    return false;
}

/* (kind, name, keys, tokens, flags, priority, ttl_ms, ids, sub_tenant) -> (tokens, bytes) */
PyObject *space_name_put(PyObject *self, PyObject *args)
{
    struct space *space = (struct space *)self;
    PyObject *keys, *from;
    const char *name, *sub;
    uint32_t tokens, kind;
    struct kvc_name_options o = {0};
    struct numbers ids = {0};
    struct seq_arg seq;
    if (!PyArg_ParseTuple(args, "O&sOO&O&O&O&Oz", KIND(&kind), &name, &keys, U32("tokens", &tokens),
                          U32("flags", &o.flags),
                          U32_WITHIN("priority", 0, KVC_PRIORITY_MAX, &o.priority),
                          U64("ttl_ms", &o.ttl_ms), &from, &sub) ||
        (!Py_IsNone(from) && !numbers_from(from, "token_ids", &ids)))
        return NULL;
    PyObject *result = NULL;
    if (ids_match(&ids, tokens) && seq_from(space, keys, tokens, sub, &seq)) {
        struct kvc_named named = {0};
        o.tokens = ids.at;
        PyThreadState *state = session_enter(space->session);
        if (state != NULL && session_leave(space->session, state,
                                           kvc_name_put(space->ns, (enum kvc_name_kind)kind, name,
                                                        &seq.seq, &o, &named)) == 0)
            result = Py_BuildValue("IK", named.tokens, (unsigned long long)named.bytes);
        seq_free(&seq);
    }
    numbers_free(&ids);
    return result;
}

/* Ends a pin whose number the caller cannot get, because an exception is set. */
static void unpin_unseen(struct session *session, uint64_t pin)
{
    PyThreadState *state;
    bool may_free;
    int rc = 0;
    if (!session_enter_quietly(session, &state, &may_free))
        return;
    if (session->kvc != NULL)
        rc = kvc_unpin(session->kvc, pin);
    session_leave_quietly(session, state);
    (void)rc; /* the exception that is set is the one that the caller sees */
}

/* (keys, tokens, in_memory, ttl_ms, sub_tenant) -> pin */
PyObject *space_pin(PyObject *self, PyObject *args)
{
    struct space *space = (struct space *)self;
    PyObject *keys;
    uint32_t tokens;
    int in_memory;
    uint64_t ttl;
    const char *sub;
    struct seq_arg seq;
    if (!PyArg_ParseTuple(args, "OO&pO&z", &keys, U32("tokens", &tokens), &in_memory,
                          U64("ttl_ms", &ttl), &sub) ||
        !seq_from(space, keys, tokens, sub, &seq))
        return NULL;
    PyObject *result = NULL;
    uint64_t pin = 0;
    PyThreadState *state = session_enter(space->session);
    if (state != NULL &&
        session_leave(space->session, state,
                      kvc_pin(space->ns, &seq.seq, in_memory != 0, ttl, &pin)) == 0)
        result = PyLong_FromUnsignedLongLong(pin);
    if (result == NULL && pin != 0)
        unpin_unseen(space->session, pin);
    seq_free(&seq);
    return result;
}

/* ---- lists: collected without the GIL ---- */

struct list {
    char *item;
    size_t bytes, n, room; /* bytes: size of an item */
};

static int list_take(struct list *list, const void *item)
{
    if (list->n == list->room) {
        size_t room = list->room == 0 ? 64 : 2 * list->room;
        char *grown = realloc(list->item, room * list->bytes);
        if (grown == NULL)
            return -ENOMEM;
        list->item = grown;
        list->room = room;
    }
    memcpy(list->item + list->n++ * list->bytes, item, list->bytes);
    return 0;
}

/* Converts the collected list to a Python list, and frees its memory. */
static PyObject *list_to(struct list *list, PyObject *(*one)(const void *item))
{
    PyObject *all = PyList_New(0);
    for (size_t i = 0; all != NULL && i < list->n; i++) {
        PyObject *made = one(list->item + i * list->bytes);
        if (made == NULL || PyList_Append(all, made) < 0)
            Py_CLEAR(all);
        Py_XDECREF(made);
    }
    free(list->item);
    return all;
}

static PyObject *text(const char *s)
{
    return PyUnicode_DecodeUTF8(s, (Py_ssize_t)strlen(s), "replace");
}

static PyObject *whole(uint64_t value)
{
    return PyLong_FromUnsignedLongLong(value);
}

/* Converts a cell of a row by its column. */
static PyObject *cell_to(const struct kvc_column *c, const void *row)
{
    const char *at = (const char *)row + c->at;
    uint64_t value = 0;
    switch ((enum kvc_column_type)c->type) {
    case KVC_COLUMN_NAME:
    case KVC_COLUMN_TEXT:
        return text(at);
    case KVC_COLUMN_KEY:
    case KVC_COLUMN_UUID:
        return PyBytes_FromStringAndSize(at, c->bytes);
    case KVC_COLUMN_BOOL:
        return PyBool_FromLong(*at);
    case KVC_COLUMN_U8:
    case KVC_COLUMN_U32:
    case KVC_COLUMN_U64:
        break;
    }
    /* Little-endian, as every machine that this package is made for. */
    memcpy(&value, at, c->bytes);
    return whole(value);
}

static PyObject *row_to(const struct kvc_table *table, const void *row)
{
    PyObject *d = PyDict_New();
    for (uint32_t i = 0; d != NULL && i < table->columns; i++)
        if (!dict_take(d, table->column[i].name, cell_to(&table->column[i], row)))
            Py_CLEAR(d);
    return d;
}

static PyObject *info_to(const void *item)
{
    return row_to(kvc_table(KVC_TABLE_DOCUMENTS), item); /* conversations have the same columns */
}

static PyObject *pin_to(const void *item)
{
    return row_to(kvc_table(KVC_TABLE_PINS), item);
}

static int take_info(void *ctx, const struct kvc_name_info *info)
{
    return list_take(ctx, info);
}

static int take_row(void *ctx, const void *row)
{
    return list_take(ctx, row);
}

/* (kind, prefix, sub_tenant) -> [dict] */
static PyObject *name_list(PyObject *self, PyObject *args)
{
    struct session *s = (struct session *)self;
    uint32_t kind;
    const char *prefix, *sub;
    if (!PyArg_ParseTuple(args, "O&zz", KIND(&kind), &prefix, &sub))
        return NULL;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    struct list list = {.bytes = sizeof(struct kvc_name_info)};
    if (session_leave(s, state, kvc_name_list(s->kvc, kind, prefix, sub, take_info, &list)) < 0) {
        free(list.item);
        return NULL;
    }
    return list_to(&list, info_to);
}

/* (kind, name, sub_tenant) -> dict */
static PyObject *name_show(PyObject *self, PyObject *args)
{
    struct session *s = (struct session *)self;
    uint32_t kind;
    const char *name, *sub;
    if (!PyArg_ParseTuple(args, "O&sz", KIND(&kind), &name, &sub))
        return NULL;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    struct kvc_name_info info = {0};
    int rc = kvc_name_show(s->kvc, (enum kvc_name_kind)kind, name, sub, &info);
    return session_leave(s, state, rc) < 0 ? NULL : info_to(&info);
}

/* (kind, name, sub_tenant, evict) */
static PyObject *name_forget(PyObject *self, PyObject *args)
{
    struct session *s = (struct session *)self;
    uint32_t kind;
    int evict;
    const char *name, *sub;
    if (!PyArg_ParseTuple(args, "O&szp", KIND(&kind), &name, &sub, &evict))
        return NULL;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    int rc = kvc_name_forget(s->kvc, (enum kvc_name_kind)kind, name, sub, evict != 0);
    if (session_leave(s, state, rc) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* (kind, name, sub_tenant, ttl_ms, wait, timeout_ms) -> bytes in memory */
static PyObject *name_load(PyObject *self, PyObject *args)
{
    struct session *s = (struct session *)self;
    int wait;
    const char *name, *sub;
    uint64_t ttl;
    uint32_t kind, timeout;
    if (!PyArg_ParseTuple(args, "O&szO&pO&", KIND(&kind), &name, &sub, U64("ttl_ms", &ttl), &wait,
                          TIMEOUT(&timeout)))
        return NULL;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    uint64_t bytes = 0;
    int rc =
        kvc_name_load(s->kvc, (enum kvc_name_kind)kind, name, sub, ttl, wait != 0, timeout, &bytes);
    return session_leave(s, state, rc) < 0 ? NULL : whole(bytes);
}

/* (kind, name, sub_tenant, first, max) -> bytes of u32 in the machine's order */
static PyObject *name_tokens(PyObject *self, PyObject *args)
{
    struct session *s = (struct session *)self;
    const char *name, *sub;
    uint32_t kind, first, max;
    if (!PyArg_ParseTuple(args, "O&szO&O&", KIND(&kind), &name, &sub, U32("first", &first),
                          U32("most", &max)))
        return NULL;
    uint32_t *ids = calloc((size_t)max + 1, sizeof(*ids));
    if (ids == NULL)
        return PyErr_NoMemory();
    PyThreadState *state = session_enter(s);
    int n = -1;
    if (state != NULL)
        n = session_leave(
            s, state,
            kvc_name_tokens(s->kvc, (enum kvc_name_kind)kind, name, sub, first, ids, max));
    PyObject *result = n < 0 ? NULL
                             : PyBytes_FromStringAndSize((const char *)ids,
                                                         (Py_ssize_t)((size_t)n * sizeof(*ids)));
    free(ids);
    return result;
}

static PyObject *unpin(PyObject *self, PyObject *args)
{
    struct session *s = (struct session *)self;
    uint64_t pin;
    if (!PyArg_ParseTuple(args, "O&", U64("pin", &pin)))
        return NULL;
    PyThreadState *state = session_enter(s);
    if (state == NULL || session_leave(s, state, kvc_unpin(s->kvc, pin)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *pin_list(PyObject *self, PyObject *args)
{
    (void)args;
    struct session *s = (struct session *)self;
    PyThreadState *state = session_enter(s);
    if (state == NULL)
        return NULL;
    struct list list = {.bytes = sizeof(struct kvc_pin_info)};
    if (session_leave(s, state, kvc_list(s->kvc, KVC_TABLE_PINS, NULL, take_row, &list)) < 0) {
        free(list.item);
        return NULL;
    }
    return list_to(&list, pin_to);
}

PyMethodDef session_name_methods[] = {
    {"name_list", name_list, METH_VARARGS, NULL},     {"name_show", name_show, METH_VARARGS, NULL},
    {"name_forget", name_forget, METH_VARARGS, NULL}, {"name_load", name_load, METH_VARARGS, NULL},
    {"name_tokens", name_tokens, METH_VARARGS, NULL}, {"unpin", unpin, METH_VARARGS, NULL},
    {"pin_list", pin_list, METH_NOARGS, NULL},        {NULL, NULL, 0, NULL},
};
