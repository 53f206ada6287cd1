/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: memory on them that is given to the daemon, pools of pages in it, words and streams.
 *
 * A memory and a pool keep a reference to their device's object, and that one to its session's.
 * When session or device is closed, the library has freed what belongs to it, and the objects are
 * not used any more.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvcpy.h"

struct memory {
    PyObject ob_base;
    struct device *device;
    struct kvc_mem *mem; /* NULL once closed */
    unsigned long long address, bytes;
};

/* ---- arguments ---- */

bool device_from(PyObject *from, struct device **ret_device)
{
    *ret_device = NULL;
    if (Py_IsNone(from))
        return true;
    if (!PyObject_TypeCheck(from, device_type)) {
        PyErr_SetString(PyExc_TypeError, "a device of Session.device, or None, was expected");
        return false;
    }
    *ret_device = (struct device *)from;
    return true;
}

bool pages_from(PyObject *from, const struct layout **ret_layout, struct pool **ret_pool)
{
    *ret_pool = NULL;
    if (PyObject_TypeCheck(from, layout_type)) {
        *ret_layout = (const struct layout *)from;
        return true;
    }
    if (!PyObject_TypeCheck(from, pool_type)) {
        PyErr_SetString(PyExc_TypeError, "a page layout, or a pool of a device, was expected");
        return false;
    }
    *ret_pool = (struct pool *)from;
    *ret_layout = (*ret_pool)->layout;
    return true;
}

#define WORD(TO) U32_WITHIN("word", 0, KVC_WORDS - 1, TO)

bool word_from(PyObject *from, struct kvc_word *ret_word)
{
    uint32_t word;
    uint64_t value;
    *ret_word = (struct kvc_word){0};
    if (Py_IsNone(from))
        return true;
    if (!PyTuple_Check(from) ||
        !PyArg_ParseTuple(from, "O&O&", WORD(&word), U64_WITHIN("value", INT64_MAX, &value))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a word is a tuple (number, value), or None");
        return false;
    }
    *ret_word = (struct kvc_word){.word = word + 1, .value = value};
    return true;
}

/* ---- calls that concern a device ---- */

PyThreadState *device_begin(struct session *session, const struct device *device,
                            const struct pool *pool)
{
    const struct device *d = pool != NULL ? pool->device : device;
    if (d != NULL && d->session != session) {
        raise_errorf(-EINVAL, "the device is another session's");
        return NULL;
    }
    PyThreadState *state = session_enter(session);
    if (state == NULL || d == NULL)
        return state;
    if (d->gpu != NULL && (pool == NULL || pool->pool != NULL))
        return state;
    const char *what = d->gpu == NULL ? "device" : "pool";
    (void)session_leave(session, state, 0);
    PyErr_Format(PyExc_ValueError, "the %s is closed", what);
    return NULL;
}

int device_gpu(struct session *session, const struct device *device, struct kvc_gpu **ret_gpu)
{
    if (device == NULL)
        return session_host(session, ret_gpu);
    *ret_gpu = device->gpu;
    return 0;
}

int layout_pool(struct session *session, const struct layout *layout, const struct pool *pool,
                struct kvc_pool **ret_own, struct kvc_pool **ret_pool)
{
    struct kvc_gpu *host;
    *ret_own = NULL;
    *ret_pool = pool != NULL ? pool->pool : NULL;
    if (pool != NULL)
        return 0;
    int rc = session_host(session, &host);
    if (rc == 0)
        rc = kvc_pool_open(host, &layout->spec, ret_own);
    *ret_pool = *ret_own;
    return rc;
}

/* ---- pools ---- */

/* The regions of a layout, placed in memories of a device. */
struct places {
    struct device *device;
    struct kvc_pool_spec spec;
    struct kvc_pool_region *region; /* regions of all groups, for `spec` */
    const struct memory **of;       /* the memory of each region */
    size_t n;
};

static bool place_region(struct places *p, struct kvc_pool_region region, PyObject *memories)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(memories); i++) {
        const struct memory *m = (const struct memory *)PyTuple_GetItem(memories, i);
        if (!PyObject_TypeCheck((PyObject *)(uintptr_t)m, memory_type)) {
            PyErr_SetString(PyExc_TypeError, "memories of Device.alloc and register were expected");
            return false;
        }
        if (m->device != p->device) {
            raise_errorf(-EINVAL, "memory %zd is of another device", i);
            return false;
        }
        if (region.base >= m->address && region.base - m->address < m->bytes) {
            region.base -= m->address;
            p->of[p->n] = m;
            p->region[p->n++] = region;
            return true;
        }
    }
    raise_errorf(-EINVAL, "a region at address %#llx lies in none of the pool's %zd memories",
                 (unsigned long long)region.base, PyTuple_Size(memories));
    return false;
}

/* False: an exception is set. The caller frees both arrays even then. */
static bool device_place_all(struct places *p, const struct layout *layout, PyObject *memories)
{
    size_t n = 1;
    p->spec = layout->spec;
    for (uint32_t g = 0; g < p->spec.groups; g++)
        n += p->spec.group[g].regions;
    p->region = calloc(n, sizeof(*p->region));
    p->of = calloc(n, sizeof(const struct memory *));
    if (p->region == NULL || p->of == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (uint32_t g = 0; g < p->spec.groups; g++) {
        const struct kvc_pool_region *from = p->spec.group[g].region;
        p->spec.group[g].region = &p->region[p->n];
        for (uint32_t i = 0; i < p->spec.group[g].regions; i++)
            if (!place_region(p, from[i], memories))
                return false;
    }
    return true;
}

/* Call it with the session's lock, so that nobody closes a memory meanwhile. */
static int place_open(struct places *p, struct kvc_pool **ret_pool)
{
    for (size_t i = 0; i < p->n; i++)
        p->region[i].mem = p->of[i]->mem; /* NULL if it was closed: the library refuses that */
    return kvc_pool_open(p->device->gpu, &p->spec, ret_pool);
}

/* (layout, (memory, ...)) */
static PyObject *device_pool(PyObject *self, PyObject *args)
{
    struct device *d = (struct device *)self;
    PyObject *layout, *memories;
    if (!PyArg_ParseTuple(args, "O!O!", layout_type, &layout, &PyTuple_Type, &memories))
        return NULL;
    struct places places = {.device = d};
    struct pool *p = (struct pool *)PyType_GenericAlloc(pool_type, 0);
    if (p != NULL) {
        p->device = (struct device *)Py_NewRef(self);
        p->layout = (struct layout *)Py_NewRef(layout);
        p->memories = Py_NewRef(memories);
    }
    PyThreadState *state = NULL;
    if (p != NULL && device_place_all(&places, p->layout, memories))
        state = device_begin(d->session, d, NULL);
    if (state == NULL || session_leave(d->session, state, place_open(&places, &p->pool)) < 0)
        Py_CLEAR(p);
    free(places.region);
    free(places.of);
    return (PyObject *)p;
}

/* ---- memory, words, streams ---- */

static struct memory *memory_new(struct device *d, unsigned long long bytes)
{
    struct memory *m = (struct memory *)PyType_GenericAlloc(memory_type, 0);
    if (m == NULL)
        return NULL;
    m->device = (struct device *)Py_NewRef((PyObject *)d);
    m->bytes = bytes;
    return m;
}

/* (bytes) -> (memory, address) */
static PyObject *device_alloc(PyObject *self, PyObject *args)
{
    struct device *d = (struct device *)self;
    uint64_t bytes;
    void *at = NULL;
    if (!PyArg_ParseTuple(args, "O&", U64("size", &bytes)))
        return NULL;
    struct memory *m = memory_new(d, bytes);
    PyThreadState *state = m == NULL ? NULL : device_begin(d->session, d, NULL);
    if (state == NULL ||
        session_leave(d->session, state, kvc_mem_alloc(d->gpu, bytes, &at, &m->mem)) < 0) {
        Py_XDECREF((PyObject *)m);
        return NULL;
    }
    m->address = (uintptr_t)at;
    return Py_BuildValue("NK", (PyObject *)m, m->address);
}

/* (address, bytes) -> memory */
static PyObject *device_register(PyObject *self, PyObject *args)
{
    struct device *d = (struct device *)self;
    uint64_t address, bytes;
    if (!PyArg_ParseTuple(args, "O&O&", U64("address", &address), U64("size", &bytes)))
        return NULL;
    struct memory *m = memory_new(d, bytes);
    PyThreadState *state = m == NULL ? NULL : device_begin(d->session, d, NULL);
    void *at = (void *)(uintptr_t)address;
    if (state == NULL ||
        session_leave(d->session, state, kvc_mem_register(d->gpu, at, bytes, &m->mem)) < 0)
        Py_CLEAR(m);
    else
        m->address = address;
    return (PyObject *)m;
}

typedef int (*word_call)(struct kvc_gpu *gpu, void *stream, uint32_t word, uint64_t value);

static PyObject *word_run(PyObject *self, PyObject *args, word_call call)
{
    struct device *d = (struct device *)self;
    uint32_t word;
    uint64_t value, stream;
    if (!PyArg_ParseTuple(args, "O&O&O&", WORD(&word), U64_WITHIN("value", INT64_MAX, &value),
                          U64("stream", &stream)))
        return NULL;
    PyThreadState *state = device_begin(d->session, d, NULL);
    if (state == NULL ||
        session_leave(d->session, state, call(d->gpu, (void *)(uintptr_t)stream, word, value)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *device_signal(PyObject *self, PyObject *args)
{
    return word_run(self, args, kvc_gpu_signal);
}

static PyObject *device_wait(PyObject *self, PyObject *args)
{
    return word_run(self, args, kvc_gpu_wait);
}

/* (word) -> its value now */
static PyObject *device_word(PyObject *self, PyObject *args)
{
    struct device *d = (struct device *)self;
    uint32_t number;
    unsigned long long value = 0;
    if (!PyArg_ParseTuple(args, "O&", WORD(&number)))
        return NULL;
    PyThreadState *state = device_begin(d->session, d, NULL);
    if (state == NULL)
        return NULL;
    volatile uint64_t *words = kvc_gpu_words(d->gpu);
    if (words != NULL)
        value = __atomic_load_n(&words[number], __ATOMIC_ACQUIRE);
    if (session_leave(d->session, state, words == NULL ? KVC_E_DOWN : 0) < 0)
        return NULL;
    return PyLong_FromUnsignedLongLong(value);
}

/* ---- life ---- */

/* Closes a device, a memory or a pool (the two others are NULL), unless the end of session or
 * device has freed it already. */
static void part_close(struct device *d, struct kvc_gpu **gpu, struct kvc_mem **mem,
                       struct kvc_pool **pool)
{
    PyThreadState *state;
    bool may_free;
    if (d == NULL || d->session == NULL || !session_enter_quietly(d->session, &state, &may_free))
        return;
    if (d->session->kvc != NULL && d->gpu != NULL) {
        kvc_pool_close(pool);
        kvc_mem_free(mem);
        kvc_gpu_close(gpu);
    }
    session_leave_quietly(d->session, state);
}

static PyObject *device_close(PyObject *self, PyObject *args)
{
    (void)args;
    part_close((struct device *)self, &((struct device *)self)->gpu, NULL, NULL);
    Py_RETURN_NONE;
}

static PyObject *memory_close(PyObject *self, PyObject *args)
{
    (void)args;
    part_close(((struct memory *)self)->device, NULL, &((struct memory *)self)->mem, NULL);
    Py_RETURN_NONE;
}

static PyObject *pool_close(PyObject *self, PyObject *args)
{
    (void)args;
    part_close(((struct pool *)self)->device, NULL, NULL, &((struct pool *)self)->pool);
    Py_RETURN_NONE;
}

static void part_free(PyObject *self, PyObject *keeps)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_XDECREF(keeps);
    Py_DECREF(type);
}

static void device_dealloc(PyObject *self)
{
    Py_DECREF(device_close(self, NULL));
    part_free(self, (PyObject *)((struct device *)self)->session);
}

static void memory_dealloc(PyObject *self)
{
    Py_DECREF(memory_close(self, NULL));
    part_free(self, (PyObject *)((struct memory *)self)->device);
}

static void pool_dealloc(PyObject *self)
{
    struct pool *p = (struct pool *)self;
    Py_DECREF(pool_close(self, NULL));
    Py_XDECREF(p->memories);
    Py_XDECREF((PyObject *)p->layout);
    part_free(self, (PyObject *)p->device);
}

/* (name) -> Device */
PyObject *session_device(PyObject *self, PyObject *args)
{
    struct session *s = (struct session *)self;
    const char *name;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    if (strcmp(name, "host") == 0)
        return raise_errorf(-EINVAL, "pages in host memory need no device: a PageLayout is enough");
    struct device *d = (struct device *)PyType_GenericAlloc(device_type, 0);
    if (d == NULL)
        return NULL;
    d->session = (struct session *)Py_NewRef(self);
    PyThreadState *state = session_enter(s);
    if (state == NULL || session_leave(s, state, kvc_gpu_open(s->kvc, name, &d->gpu)) < 0)
        Py_CLEAR(d);
    return (PyObject *)d;
}

/* ---- types ---- */

static PyMethodDef device_methods[] = {
    {"close", device_close, METH_NOARGS, NULL},        {"alloc", device_alloc, METH_VARARGS, NULL},
    {"register", device_register, METH_VARARGS, NULL}, {"pool", device_pool, METH_VARARGS, NULL},
    {"signal", device_signal, METH_VARARGS, NULL},     {"wait", device_wait, METH_VARARGS, NULL},
    {"word", device_word, METH_VARARGS, NULL},         {NULL, NULL, 0, NULL},
};
static PyMethodDef memory_methods[] = {
    {"close", memory_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef pool_methods[] = {
    {"close", pool_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *ext_device_make(PyObject *module, const char *name, size_t bytes,
                                     destructor dealloc, PyMethodDef *methods)
{
    PyType_Slot slots[] = {
        {Py_tp_dealloc, (void *)dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    PyType_Spec spec = {
        .name = name,
        .basicsize = (int)bytes,
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}

PyTypeObject *device_make(PyObject *module)
{
    return ext_device_make(module, "kvcache_client._kvc.Device", sizeof(struct device),
                           device_dealloc, device_methods);
}

PyTypeObject *memory_make(PyObject *module)
{
    return ext_device_make(module, "kvcache_client._kvc.Memory", sizeof(struct memory),
                           memory_dealloc, memory_methods);
}

PyTypeObject *pool_make(PyObject *module)
{
    return ext_device_make(module, "kvcache_client._kvc.Pool", sizeof(struct pool), pool_dealloc,
                           pool_methods);
}
