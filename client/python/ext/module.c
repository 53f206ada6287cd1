/* SPDX-License-Identifier: Apache-2.0 */
/* The module: its functions, constants and types, and how errors become exceptions. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvcpy.h"

PyTypeObject *session_type, *space_type, *hold_type, *layout_type, *view_type, *request_type,
    *dlpack_type, *device_type, *memory_type, *pool_type;

PyObject *raise_error(int rc, const char *text)
{
    PyObject *errors = PyImport_ImportModule("kvcache_client._errors"), *from_code = NULL,
             *made = NULL;
    /* Looked up in the dictionary, because Python's cache would keep the name of an attribute. */
    if (errors != NULL)
        from_code = PyMapping_GetItemString(PyModule_GetDict(errors), "from_code");
    if (from_code != NULL)
        made = PyObject_CallFunction(from_code, "iszz", rc, kvc_error_name(rc), kvc_error_text(rc),
                                     text);
    if (made != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(made), made);
    Py_XDECREF(made);
    Py_XDECREF(from_code);
    Py_XDECREF(errors);
    return NULL;
}

PyObject *raise_errorf(int rc, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return raise_error(rc, text);
}

static PyObject *hash_chain(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer parent, extra;
    PyObject *tokens;
    uint32_t block_tokens;
    if (!PyArg_ParseTuple(args, "y*OO&y*", &parent, &tokens,
                          U32_WITHIN("block_tokens", 1, KVC_BLOCK_TOKENS_MAX, &block_tokens),
                          &extra))
        return NULL;
    PyObject *keys = NULL;
    struct numbers ids = {0};
    if (parent.len != (Py_ssize_t)KVC_KEY_BYTES) {
        PyErr_Format(PyExc_ValueError, "parent of %zd bytes: %u were expected", parent.len,
                     KVC_KEY_BYTES);
    } else if (numbers_from(tokens, "tokens", &ids)) {
        size_t n = (ids.n + block_tokens - 1) / block_tokens;
        keys = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(n * KVC_KEY_BYTES));
        if (keys != NULL) {
            uint8_t *out = (uint8_t *)PyBytes_AsString(keys);
            int rc;
            Py_BEGIN_ALLOW_THREADS;
            rc = kvc_hash_chain(parent.buf, ids.at, ids.n, block_tokens, extra.buf,
                                (size_t)extra.len, out);
            Py_END_ALLOW_THREADS;
            if (rc < 0) {
                Py_CLEAR(keys);
                raise_error(rc, NULL);
            }
        }
    }
    numbers_free(&ids);
    PyBuffer_Release(&parent);
    PyBuffer_Release(&extra);
    return keys;
}

static PyObject *miss_name(PyObject *module, PyObject *args)
{
    (void)module;
    uint32_t reason;
    if (!PyArg_ParseTuple(args, "O&", U32("reason", &reason)))
        return NULL;
    return Py_BuildValue("ss", kvc_miss_name(reason), kvc_miss_text(reason));
}

/* (object with the buffer protocol) -> (address, bytes of an element, read_only, shape, strides in
 * bytes) */
static PyObject *buffer_info(PyObject *module, PyObject *object)
{
    (void)module;
    Py_buffer b;
    if (PyObject_GetBuffer(object, &b, PyBUF_STRIDED_RO) < 0)
        return NULL;
    PyObject *shape = PyTuple_New(b.ndim), *strides = PyTuple_New(b.ndim);
    bool good = shape != NULL && strides != NULL;
    for (int i = 0; good && i < b.ndim; i++) {
        PyObject *size = PyLong_FromSsize_t(b.shape[i]), *step = PyLong_FromSsize_t(b.strides[i]);
        good = size != NULL && step != NULL && PyTuple_SetItem(shape, i, Py_NewRef(size)) == 0 &&
               PyTuple_SetItem(strides, i, Py_NewRef(step)) == 0;
        Py_XDECREF(size);
        Py_XDECREF(step);
    }
    PyObject *info = NULL;
    if (good)
        info = Py_BuildValue("KnOOO", (unsigned long long)(uintptr_t)b.buf, b.itemsize,
                             b.readonly ? Py_True : Py_False, shape, strides);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    PyBuffer_Release(&b);
    return info;
}

/* (owner, address, bytes, read_only) -> memoryview that keeps the owner. The caller vouches for the
 * memory. */
static PyObject *memory(PyObject *module, PyObject *args)
{
    static Py_ssize_t views; /* counted, but never read */
    (void)module;
    PyObject *owner;
    uint64_t address, bytes;
    int read_only;
    if (!PyArg_ParseTuple(args, "OO&O&p", &owner, U64("address", &address),
                          U64_WITHIN("bytes", PY_SSIZE_T_MAX, &bytes), &read_only))
        return NULL;
    return view_new(owner, &views, (void *)(uintptr_t)address, (Py_ssize_t)bytes, read_only != 0);
}

static PyMethodDef functions[] = {
    {"buffer_info", buffer_info, METH_O, NULL},
    {"memory", memory, METH_VARARGS, NULL},
    {"hash_chain", hash_chain, METH_VARARGS, NULL},
    {"miss_name", miss_name, METH_VARARGS, NULL},
    {"dlpack_info", dlpack_info, METH_VARARGS, NULL},
    {"model_read", model_read, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static const struct {
    const char *name;
    long value;
} constants[] = {
    {"KEY_BYTES", KVC_KEY_BYTES},
    {"GROUPS_MAX", KVC_GROUPS_MAX},
    {"STORE_MAX", KVC_STORE_MAX},
    {"NO_PAGE", KVC_NO_PAGE},
    {"WORDS", KVC_WORDS},
    {"BLOCK_TOKENS_MAX", KVC_BLOCK_TOKENS_MAX},
    {"BLOCK_BYTES_MAX", KVC_BLOCK_BYTES_MAX},
    {"PRIORITY_DEFAULT", KVC_PRIORITY_DEFAULT},
    {"F_WAIT", KVC_F_WAIT},
    {"F_TOUCH", KVC_F_TOUCH},
    {"F_DURABLE", KVC_F_DURABLE},
    {"F_PREFETCH", KVC_F_PREFETCH},
    {"F_NO_LOAD", KVC_F_NO_LOAD},
    {"F_READ_ONLY", KVC_F_READ_ONLY},
    {"F_ALL", KVC_F_ALL},
    {"F_ADMIT", KVC_F_ADMIT},
    {"F_DECODED", KVC_F_DECODED},
    {"F_NO_STORE", KVC_F_NO_STORE},
    {"F_PINNED", KVC_F_PINNED},
    {"RULE_FULL", KVC_RULE_FULL},
    {"RULE_WINDOW", KVC_RULE_WINDOW},
    {"RULE_STATE", KVC_RULE_STATE},
};

/* STATUSES: {"OK": 0, ...}, MISSES: {"NONE": 0, ...}: from the lists of <kvcache/proto.h>. */
static int add_names(PyObject *module)
{
    PyObject *statuses = PyDict_New(), *misses = PyDict_New();
    bool good = statuses != NULL && misses != NULL;
#define X(value, name, text) good = good && dict_take(statuses, #name, PyLong_FromLong(value));
    KVC_STATUS_MAP(X)
#undef X
#define X(value, name, text) good = good && dict_take(misses, #name, PyLong_FromLong(value));
    KVC_MISS_MAP(X)
#undef X
    good = good && PyModule_AddObjectRef(module, "STATUSES", statuses) == 0 &&
           PyModule_AddObjectRef(module, "MISSES", misses) == 0;
    Py_XDECREF(statuses);
    Py_XDECREF(misses);
    return good ? 0 : -1;
}

static int add_types(PyObject *module)
{
    const struct {
        const char *name;
        PyTypeObject **type;
        PyTypeObject *(*make)(PyObject *module);
    } types[] = {
        {"Session", &session_type, session_make}, {"Namespace", &space_type, space_make},
        {"Hold", &hold_type, hold_make},          {"Layout", &layout_type, layout_make},
        {"View", &view_type, view_make},          {"DLPack", &dlpack_type, dlpack_make},
        {"Request", &request_type, request_make}, {"Device", &device_type, device_make},
        {"Memory", &memory_type, memory_make},    {"Pool", &pool_type, pool_make},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        PyTypeObject *made = types[i].make(module);
        if (made == NULL || PyModule_AddObjectRef(module, types[i].name, (PyObject *)made) < 0) {
            if (!PyErr_Occurred())
                PyErr_NoMemory(); /* Python 3.11 sets no exception here */
            Py_XDECREF((PyObject *)made);
            return -1;
        }
        Py_XDECREF((PyObject *)*types[i].type); /* left by an import that failed */
        *types[i].type = made;
    }
    return 0;
}

/* Checks that the loaded library fits the headers with which this module was built; the loader may
 * have found another one. */
static int check_abi(void)
{
    static const struct kvc_abi abi[] = {KVC_ABI_STRUCTS, KVC_ABI_ASYNC, KVC_ABI_ADMIN,
                                         KVC_ABI_GPU};
    const char *differs = kvc_abi(KVC_API_VERSION, abi, sizeof(abi) / sizeof(abi[0]));
    if (differs != NULL)
        PyErr_Format(PyExc_ImportError, "kvcache_client and libkvcache do not fit: %s", differs);
    return differs == NULL ? 0 : -1;
}

static int add_all(PyObject *module)
{
    if (check_abi() < 0 || PyModule_AddStringConstant(module, "LIBRARY_VERSION", kvc_version()) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
        if (PyModule_AddIntConstant(module, constants[i].name, constants[i].value) < 0)
            return -1;
    return add_names(module) < 0 ? -1 : add_types(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_all},
    {0, NULL},
};
static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "kvcache_client._kvc",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kvc(void);
PyMODINIT_FUNC PyInit__kvc(void)
{
    return PyModuleDef_Init(&definition);
}
