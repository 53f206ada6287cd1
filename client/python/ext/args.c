/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments and results: what Python has, as what libkvcache takes, and back. */
#include <stdlib.h>
#include <string.h>

#include "kvcpy.h"

static PyObject *keys_bytes(PyObject *from)
{
    PyObject *bytes = PyBytes_Check(from) ? Py_NewRef(from) : PyBytes_FromObject(from);
    if (bytes != NULL && PyBytes_Size(bytes) % KVC_KEY_BYTES != 0) {
        Py_ssize_t size = PyBytes_Size(bytes);
        Py_CLEAR(bytes);
        PyErr_Format(PyExc_ValueError, "keys of %zd bytes: a multiple of %u was expected", size,
                     KVC_KEY_BYTES);
    }
    return bytes;
}

static bool group_from(PyObject *item, uint32_t group, struct seq_arg *seq)
{
    PyObject *bytes = keys_bytes(item);
    if (bytes == NULL)
        return false;
    seq->kept[group] = bytes;
    seq->seq.group[group].keys = (const uint8_t *)PyBytes_AsString(bytes);
    seq->seq.group[group].n = (uint32_t)(PyBytes_Size(bytes) / KVC_KEY_BYTES);
    return true;
}

bool seq_from(PyObject *keys, uint32_t tokens, const char *sub, struct seq_arg *ret_seq)
{
    *ret_seq = (struct seq_arg){.seq = {.tokens = tokens, .sub_tenant = sub}};
    if (PyBytes_Check(keys))
        return group_from(keys, 0, ret_seq);
    Py_ssize_t n = PySequence_Size(keys);
    if (n < 0)
        return false;
    if (n > (Py_ssize_t)KVC_GROUPS_MAX) {
        PyErr_Format(PyExc_ValueError, "keys of %zd groups: at most %u were expected", n,
                     KVC_GROUPS_MAX);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(keys, i);
        bool good = item != NULL && group_from(item, (uint32_t)i, ret_seq);
        Py_XDECREF(item);
        if (!good) {
            seq_free(ret_seq);
            return false;
        }
    }
    return true;
}

void seq_free(struct seq_arg *seq)
{
    for (uint32_t i = 0; i < KVC_GROUPS_MAX; i++)
        Py_CLEAR(seq->kept[i]);
}

/* value -> n.at[i]; false: an exception is set. */
static bool number_put(struct numbers *n, size_t i, int64_t value, bool negative, const char *what)
{
    if (negative || value < 0 || value > (int64_t)UINT32_MAX) {
        PyErr_Format(PyExc_ValueError, "%s[%zu] is %lld: 0 to 4294967295 were expected", what, i,
                     (long long)value);
        return false;
    }
    n->at[i] = (uint32_t)value;
    return true;
}

static bool numbers_alloc(struct numbers *n, size_t count)
{
    n->n = count;
    n->at = malloc(count > 0 ? count * sizeof(*n->at) : 1);
    if (n->at == NULL)
        PyErr_NoMemory();
    return n->at != NULL;
}

static int64_t element(const Py_buffer *b, size_t i, bool *ret_over)
{
    const char *at = (const char *)b->buf + i * (size_t)b->itemsize;
    bool is_signed = strchr("bhilqn", b->format[strlen(b->format) - 1]) != NULL;
    if (b->itemsize == 8) {
        int64_t v;
        memcpy(&v, at, 8);
        *ret_over = !is_signed && v < 0;
        return v;
    }
    uint32_t u;
    memcpy(&u, at, 4);
    *ret_over = false;
    return is_signed ? (int64_t)(int32_t)u : (int64_t)u;
}

static bool numbers_of_buffer(const Py_buffer *b, const char *what, struct numbers *ret_numbers)
{
    const char *format = b->format == NULL ? "B" : b->format;
    size_t length = strlen(format);
    bool native = length == 1 || (length == 2 && strchr("@=<", format[0]) != NULL);
    if (!native || strchr("iIlLqQ", format[length - 1]) == NULL ||
        (b->itemsize != 4 && b->itemsize != 8) || b->ndim > 1) {
        PyErr_Format(PyExc_TypeError,
                     "%s: one dimension of 32- or 64-bit integers was expected, not %d of '%s'",
                     what, b->ndim, format);
        return false;
    }
    if (!numbers_alloc(ret_numbers, (size_t)(b->len / b->itemsize)))
        return false;
    for (size_t i = 0; i < ret_numbers->n; i++) {
        bool over;
        int64_t v = element(b, i, &over);
        if (!number_put(ret_numbers, i, v, over, what)) {
            numbers_free(ret_numbers);
            return false;
        }
    }
    return true;
}

PyObject *sequence_from(PyObject *from)
{
    return PySequence_Fast(from, "a sequence was expected");
}

static bool numbers_of_sequence(PyObject *from, const char *what, struct numbers *ret_numbers)
{
    PyObject *list = sequence_from(from);
    if (list == NULL)
        return false;
    bool good = numbers_alloc(ret_numbers, (size_t)PySequence_Size(list));
    for (size_t i = 0; good && i < ret_numbers->n; i++) {
        int over = 0;
        PyObject *item = PySequence_GetItem(list, (Py_ssize_t)i);
        PyObject *index = item == NULL ? NULL : PyNumber_Index(item);
        long long v = index == NULL ? -1 : PyLong_AsLongLongAndOverflow(index, &over);
        Py_XDECREF(index);
        Py_XDECREF(item);
        good = !PyErr_Occurred() && number_put(ret_numbers, i, v, over != 0, what);
    }
    Py_DECREF(list);
    if (!good)
        numbers_free(ret_numbers);
    return good;
}

bool numbers_from(PyObject *from, const char *what, struct numbers *ret_numbers)
{
    *ret_numbers = (struct numbers){0};
    if (!PyObject_CheckBuffer(from))
        return numbers_of_sequence(from, what, ret_numbers);
    Py_buffer b;
    if (PyObject_GetBuffer(from, &b, PyBUF_ND | PyBUF_FORMAT) < 0)
        return false;
    bool good = numbers_of_buffer(&b, what, ret_numbers);
    PyBuffer_Release(&b);
    return good;
}

void numbers_free(struct numbers *numbers)
{
    free(numbers->at);
    *numbers = (struct numbers){0};
}

PyObject *prefix_to(const struct kvc_prefix *prefix, uint32_t groups)
{
    PyObject *list = PyTuple_New((Py_ssize_t)groups);
    for (uint32_t i = 0; list != NULL && i < groups; i++) {
        PyObject *one = Py_BuildValue("III", prefix->group[i].blocks, prefix->group[i].reason,
                                      prefix->group[i].detail);
        if (one == NULL || PyTuple_SetItem(list, (Py_ssize_t)i, one) < 0)
            Py_CLEAR(list);
    }
    if (list == NULL)
        return NULL;
    return Py_BuildValue("IIKN", prefix->tokens, prefix->cached_tokens,
                         (unsigned long long)prefix->load_us, list);
}

bool dict_take(PyObject *dict, const char *key, PyObject *value)
{
    int rc = value == NULL ? -1 : PyDict_SetItemString(dict, key, value);
    Py_XDECREF(value);
    return rc == 0;
}
