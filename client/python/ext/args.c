/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments and results: converts Python's values to what libkvcache takes, and results back. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvcpy.h"

/* ---- integers ---- */

enum { DIGITS_SHOWN = 40 };

/* A value out of range as a text. Long numbers are shortened, because Python refuses to write
 * thousands of digits. */
static PyObject *args_value_text(PyObject *value)
{
    PyObject *text = PyObject_Str(value);
    if (text != NULL || !PyErr_ExceptionMatches(PyExc_ValueError))
        return text;
    PyErr_Clear();
    return PyUnicode_FromString("a number of thousands of digits");
}

static void whole_refuse(const struct whole *w, PyObject *value)
{
    char index[32] = "";
    PyObject *text = args_value_text(value);
    const char *shown = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
    if (w->in_list)
        (void)snprintf(index, sizeof(index), "[%zu]", w->index);
    if (shown != NULL)
        raise_errorf(-EINVAL, "%s%s is %.*s%s: %llu to %llu were expected", w->name, index,
                     DIGITS_SHOWN, shown, strlen(shown) > DIGITS_SHOWN ? "..." : "",
                     (unsigned long long)w->min, (unsigned long long)w->max);
    Py_XDECREF(text);
}

static void whole_is_none(const struct whole *w, PyObject *from)
{
    PyObject *type = PyType_GetName(Py_TYPE(from));
    if (type != NULL && w->in_list)
        PyErr_Format(PyExc_TypeError, "%s[%zu]: an integer was expected, not %U", w->name, w->index,
                     type);
    else if (type != NULL)
        PyErr_Format(PyExc_TypeError, "%s: an integer was expected, not %U", w->name, type);
    Py_XDECREF(type);
}

int whole_from(PyObject *from, void *whole)
{
    const struct whole *w = whole;
    if (!PyIndex_Check(from)) {
        whole_is_none(w, from);
        return 0;
    }
    PyObject *index = PyNumber_Index(from);
    if (index == NULL)
        return 0;
    unsigned long long value = PyLong_AsUnsignedLongLong(index);
    bool fits = value != ULLONG_MAX || !PyErr_Occurred();
    if (!fits && PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Clear();
    bool good = fits && value >= w->min && value <= w->max;
    if (good && w->u32 != NULL)
        *w->u32 = (uint32_t)value;
    else if (good)
        *w->u64 = value;
    else if (!PyErr_Occurred())
        whole_refuse(w, index);
    Py_DECREF(index);
    return good;
}

/* ---- keys ---- */

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

static bool keys_from(PyObject *item, uint32_t group, struct seq_arg *seq)
{
    PyObject *bytes = keys_bytes(item);
    if (bytes == NULL)
        return false;
    seq->kept[group] = bytes;
    seq->seq.group[group].keys = (const uint8_t *)PyBytes_AsString(bytes);
    seq->seq.group[group].n = (uint32_t)(PyBytes_Size(bytes) / KVC_KEY_BYTES);
    return true;
}

bool seq_from(const struct space *space, PyObject *keys, uint32_t tokens, const char *sub,
              struct seq_arg *ret_seq)
{
    *ret_seq = (struct seq_arg){.seq = {.tokens = tokens, .sub_tenant = sub}};
    bool is_one = PyBytes_Check(keys) || PyByteArray_Check(keys) || PyMemoryView_Check(keys);
    if (PyUnicode_Check(keys)) {
        PyErr_SetString(PyExc_TypeError,
                        "keys: bytes, or one bytes object for each group, were expected, not str");
        return false;
    }
    Py_ssize_t n = is_one ? 1 : PySequence_Size(keys);
    if (n < 0)
        return false;
    if (n != (Py_ssize_t)space->groups) {
        raise_errorf(-EINVAL, "keys of %zd groups: the namespace has %u", n, space->groups);
        return false;
    }
    if (is_one)
        return keys_from(keys, 0, ret_seq);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(keys, i);
        bool good = item != NULL && keys_from(item, (uint32_t)i, ret_seq);
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

/* ---- numbers ---- */

/* Stores `item` as n.at[i] and takes its reference. False: an exception is set. */
static bool number_put(struct numbers *n, size_t i, PyObject *item, const char *what)
{
    struct whole w = {
        .name = what, .index = i, .in_list = true, .max = UINT32_MAX, .u32 = &n->at[i]};
    bool good = item != NULL && whole_from(item, &w);
    Py_XDECREF(item);
    return good;
}

static bool numbers_alloc(struct numbers *n, size_t count)
{
    n->n = count;
    n->at = malloc(count > 0 ? count * sizeof(*n->at) : 1);
    if (n->at == NULL)
        PyErr_NoMemory();
    return n->at != NULL;
}

/* Stores element i of a buffer as n.at[i]. False: an exception is set. */
static bool element_put(struct numbers *n, size_t i, const Py_buffer *b, const char *what)
{
    const char *at = (const char *)b->buf + i * (size_t)b->itemsize;
    bool is_signed = strchr("ilq", b->format[strlen(b->format) - 1]) != NULL;
    uint64_t u = 0;
    uint32_t u32;
    if (b->itemsize == 8) {
        memcpy(&u, at, 8);
    } else {
        memcpy(&u32, at, 4);
        u = is_signed ? (uint64_t)(int64_t)(int32_t)u32 : u32;
    }
    n->at[i] = (uint32_t)u;
    if (u <= UINT32_MAX)
        return true;
    PyObject *value = is_signed ? PyLong_FromLongLong((int64_t)u) : PyLong_FromUnsignedLongLong(u);
    return number_put(n, i, value, what);
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
        if (!element_put(ret_numbers, i, b, what)) {
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
    for (size_t i = 0; good && i < ret_numbers->n; i++)
        good = number_put(ret_numbers, i, PySequence_GetItem(list, (Py_ssize_t)i), what);
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
