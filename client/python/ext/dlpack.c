/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DLPack in both directions: a block of a hold for NumPy and PyTorch (libkvcache makes the views),
 * and the place of a caller's tensor in memory. Layout and numbers are DLPack's:
 * https://dmlc.github.io/dlpack/latest/c_api.html.
 */
#include <stdlib.h>
#include <string.h>

#include "kvcpy.h"

enum { DL_CPU = 1, DL_CUDA_HOST = 3 };

struct dl_tensor {
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* in elements */
    uint64_t byte_offset;
};
struct DLManagedTensor {
    struct dl_tensor tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
};
struct DLManagedTensorVersioned {
    uint32_t major, minor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

/* A view that libkvcache made, and the hold that must live as long. */
struct lent {
    struct DLManagedTensor old;
    struct DLManagedTensorVersioned new;
    struct DLManagedTensor *inner_old;
    struct DLManagedTensorVersioned *inner_new;
    struct hold *hold;
};

struct dlpack {
    PyObject ob_base;
    struct hold *hold;
    uint32_t group, i;
};

PyObject *dlpack_new(struct hold *hold, uint32_t group, uint32_t i)
{
    struct dlpack *d = (struct dlpack *)PyType_GenericAlloc(dlpack_type, 0);
    if (d == NULL)
        return NULL;
    d->hold = (struct hold *)Py_NewRef((PyObject *)hold);
    d->group = group;
    d->i = i;
    hold->views++;
    return (PyObject *)d;
}

static void dlpack_dealloc(PyObject *self)
{
    struct dlpack *d = (struct dlpack *)self;
    PyTypeObject *type = Py_TYPE(self);
    d->hold->views--;
    Py_DECREF((PyObject *)d->hold);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Any thread may call a deleter. */
static void lent_free(struct lent *lent)
{
    PyGILState_STATE state = PyGILState_Ensure();
    if (lent->inner_old != NULL)
        lent->inner_old->deleter(lent->inner_old);
    if (lent->inner_new != NULL)
        lent->inner_new->deleter(lent->inner_new);
    lent->hold->views--;
    Py_DECREF((PyObject *)lent->hold);
    free(lent);
    PyGILState_Release(state);
}

static void delete_old(struct DLManagedTensor *self)
{
    lent_free(self->manager_ctx);
}

static void delete_new(struct DLManagedTensorVersioned *self)
{
    lent_free(self->manager_ctx);
}

/* Frees a capsule that no consumer took. */
static void capsule_drop(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct DLManagedTensor *t = PyCapsule_GetPointer(capsule, "dltensor");
        t->deleter(t);
    } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct DLManagedTensorVersioned *t = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        t->deleter(t);
    }
}

static struct lent *lent_new(struct dlpack *d, bool versioned)
{
    struct lent *lent = calloc(1, sizeof(*lent));
    if (lent == NULL)
        return NULL;
    if (versioned)
        lent->inner_new = kvc_hold_dlpack_versioned(d->hold->hold, d->group, d->i);
    else
        lent->inner_old = kvc_hold_dlpack(d->hold->hold, d->group, d->i);
    if (lent->inner_new == NULL && lent->inner_old == NULL) {
        free(lent);
        return NULL;
    }
    if (versioned) {
        lent->new = *lent->inner_new;
        lent->new.manager_ctx = lent;
        lent->new.deleter = delete_new;
    } else {
        lent->old = *lent->inner_old;
        lent->old.manager_ctx = lent;
        lent->old.deleter = delete_old;
    }
    lent->hold = (struct hold *)Py_NewRef((PyObject *)d->hold);
    d->hold->views++;
    return lent;
}

/* (versioned) -> a capsule */
static PyObject *dlpack_capsule(PyObject *self, PyObject *args)
{
    struct dlpack *d = (struct dlpack *)self;
    int versioned;
    if (!PyArg_ParseTuple(args, "p", &versioned))
        return NULL;
    struct lent *lent = lent_new(d, versioned != 0);
    if (lent == NULL)
        return PyErr_NoMemory();
    PyObject *capsule = versioned ? PyCapsule_New(&lent->new, "dltensor_versioned", capsule_drop)
                                  : PyCapsule_New(&lent->old, "dltensor", capsule_drop);
    if (capsule == NULL)
        lent_free(lent);
    return capsule;
}

/* (type, number) of the device that the block is on */
static PyObject *dlpack_device(PyObject *self, PyObject *args)
{
    (void)args;
    struct dlpack *d = (struct dlpack *)self;
    struct DLManagedTensor *t = kvc_hold_dlpack(d->hold->hold, d->group, d->i);
    if (t == NULL)
        return PyErr_NoMemory();
    PyObject *device = Py_BuildValue("ii", t->tensor.device_type, t->tensor.device_id);
    t->deleter(t);
    return device;
}

static PyMethodDef methods[] = {
    {"capsule", dlpack_capsule, METH_VARARGS, NULL},
    {"device", dlpack_device, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, dlpack_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};
static PyType_Spec spec = {
    .name = "kvcache_client._kvc.DLPack",
    .basicsize = sizeof(struct dlpack),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

PyTypeObject *dlpack_make(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}

/* ---- tensors of the caller ---- */

static PyObject *numbers_to(const int64_t *at, int32_t n)
{
    PyObject *list = PyTuple_New(n);
    for (int32_t i = 0; list != NULL && i < n; i++) {
        PyObject *one = PyLong_FromLongLong(at[i]);
        if (one == NULL || PyTuple_SetItem(list, i, one) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *tensor_info(const struct dl_tensor *t, bool read_only)
{
    if (t->device_type != DL_CPU && t->device_type != DL_CUDA_HOST) {
        PyErr_Format(PyExc_ValueError,
                     "a tensor on device type %d: memory of the host was expected",
                     (int)t->device_type);
        return NULL;
    }
    int64_t dense[64];
    if (t->ndim < 0 || t->ndim > 64) {
        PyErr_Format(PyExc_ValueError, "a tensor of %d dimensions", (int)t->ndim);
        return NULL;
    }
    int64_t step = 1;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        dense[i] = step;
        step *= t->shape[i];
    }
    PyObject *shape = numbers_to(t->shape, t->ndim);
    PyObject *strides = numbers_to(t->strides == NULL ? dense : t->strides, t->ndim);
    if (shape == NULL || strides == NULL) {
        Py_XDECREF(shape);
        Py_XDECREF(strides);
        return NULL;
    }
    unsigned long long address = (uintptr_t)t->data + t->byte_offset;
    unsigned item_bytes = ((unsigned)t->bits * t->lanes + 7u) / 8u;
    return Py_BuildValue("KIONN", address, item_bytes, read_only ? Py_True : Py_False, shape,
                         strides);
}

PyObject *dlpack_info(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *capsule;
    if (!PyArg_ParseTuple(args, "O", &capsule))
        return NULL;
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        struct DLManagedTensorVersioned *t = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        return tensor_info(&t->tensor, (t->flags & 1) != 0);
    }
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        struct DLManagedTensor *t = PyCapsule_GetPointer(capsule, "dltensor");
        return tensor_info(&t->tensor, false);
    }
    PyErr_SetString(PyExc_TypeError, "a DLPack capsule that nobody has taken yet was expected");
    return NULL;
}
