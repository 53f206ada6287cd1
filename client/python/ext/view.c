/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a session or a hold as a Python buffer, counted by its owner. */
#include "kvcpy.h"

struct view {
    PyObject ob_base;
    PyObject *owner;
    Py_ssize_t *views; /* the owner's count */
    void *data;
    Py_ssize_t bytes;
    bool read_only;
};

PyObject *view_new(PyObject *owner, Py_ssize_t *views, void *data, Py_ssize_t bytes, bool read_only)
{
    struct view *v = (struct view *)PyType_GenericAlloc(view_type, 0);
    if (v == NULL)
        return NULL;
    v->owner = Py_NewRef(owner);
    v->views = views;
    v->data = data;
    v->bytes = bytes;
    v->read_only = read_only;
    PyObject *memory = PyMemoryView_FromObject((PyObject *)v);
    Py_DECREF((PyObject *)v);
    return memory;
}

static int view_get(PyObject *self, Py_buffer *buffer, int flags)
{
    struct view *v = (struct view *)self;
    int rc = PyBuffer_FillInfo(buffer, self, v->data, v->bytes, v->read_only, flags);
    if (rc == 0)
        ++*v->views;
    return rc;
}

static void view_put(PyObject *self, Py_buffer *buffer)
{
    (void)buffer;
    --*((struct view *)self)->views;
}

static void view_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((struct view *)self)->owner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_dealloc, view_dealloc},
    {Py_bf_getbuffer, view_get},
    {Py_bf_releasebuffer, view_put},
    {0, NULL},
};
static PyType_Spec spec = {
    .name = "kvcache_client._kvc.View",
    .basicsize = sizeof(struct view),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

PyTypeObject *view_make(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
