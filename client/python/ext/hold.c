/* SPDX-License-Identifier: Apache-2.0 */
/* A hold: blocks in place, as views, and copied to an engine's pages. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kvcpy.h"

struct hold *hold_new(struct space *space)
{
    struct hold *h = (struct hold *)PyType_GenericAlloc(hold_type, 0);
    if (h != NULL)
        h->space = (struct space *)Py_NewRef((PyObject *)space);
    return h;
}

void hold_link(struct hold *hold, struct kvc_hold *held)
{
    struct session *s = hold->space->session;
    hold->hold = held;
    hold->next = s->holds;
    hold->prev = NULL;
    if (s->holds != NULL)
        s->holds->prev = hold;
    s->holds = hold;
}

void hold_unlink(struct hold *hold)
{
    struct session *s = hold->space->session;
    if (hold->prev != NULL)
        hold->prev->next = hold->next;
    else
        s->holds = hold->next;
    if (hold->next != NULL)
        hold->next->prev = hold->prev;
    hold->hold = NULL;
}

/* Gives the hold back to the library, unless closing the session has done so. */
static void hold_give_back(struct hold *h)
{
    PyThreadState *state;
    bool may_free;
    struct session *s = h->space->session;
    if (!session_enter_quietly(s, &state, &may_free))
        return;
    if (h->hold != NULL) {
        struct kvc_hold *held = h->hold;
        hold_unlink(h);
        kvc_release(s->kvc, &held);
    }
    session_leave_quietly(s, state);
}

static void hold_dealloc(PyObject *self)
{
    struct hold *h = (struct hold *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (h->hold != NULL)
        hold_give_back(h);
    Py_XDECREF((PyObject *)h->space);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Whether the hold may be used; call it with the GIL. False: an exception is set. */
static bool hold_usable(const struct hold *h)
{
    if (h->space->session->pid != getpid()) {
        raise_error(-EPERM, "the hold belongs to the parent process");
        return false;
    }
    if (h->hold != NULL && !h->closing && !h->space->session->closing)
        return true;
    PyErr_SetString(PyExc_ValueError, "the hold is released");
    return false;
}

static PyObject *hold_release(PyObject *self, PyObject *args)
{
    (void)args;
    struct hold *h = (struct hold *)self;
    if (h->views > 0) {
        PyErr_Format(PyExc_BufferError,
                     "%zd views of the hold's blocks are in use: drop them first", h->views);
        return NULL;
    }
    h->closing = true;
    if (h->hold != NULL)
        hold_give_back(h);
    Py_RETURN_NONE;
}

/* (lease, ticket, epoch, prefix, ((first, n), ...)) */
static PyObject *hold_info(PyObject *self, PyObject *args)
{
    (void)args;
    struct hold *h = (struct hold *)self;
    if (!hold_usable(h))
        return NULL;
    uint32_t n = h->space->groups;
    PyObject *groups = PyTuple_New((Py_ssize_t)n);
    for (uint32_t i = 0; groups != NULL && i < n; i++) {
        PyObject *one = Py_BuildValue("II", h->hold->group[i].first, h->hold->group[i].n);
        if (one == NULL || PyTuple_SetItem(groups, (Py_ssize_t)i, one) < 0)
            Py_CLEAR(groups);
    }
    PyObject *prefix = groups == NULL ? NULL : prefix_to(&h->hold->prefix, n);
    if (prefix == NULL) {
        Py_XDECREF(groups);
        return NULL;
    }
    return Py_BuildValue("Ky#INN", (unsigned long long)h->hold->lease,
                         (const char *)h->hold->ticket, (Py_ssize_t)KVC_TICKET_BYTES,
                         h->hold->epoch, prefix, groups);
}

/* The block that the arguments (group, i) name; NULL: an exception is set. */
static const struct kvc_block *hold_block_of(const struct hold *h, PyObject *args,
                                             uint32_t *ret_group, uint32_t *ret_i)
{
    if (!PyArg_ParseTuple(args, "O&O&", GROUP(ret_group), U32("i", ret_i)) || !hold_usable(h))
        return NULL;
    if (*ret_group >= h->space->groups || *ret_i >= h->hold->group[*ret_group].n) {
        PyErr_Format(PyExc_IndexError, "block %u of group %u: the hold has %u of it", *ret_i,
                     *ret_group, *ret_group < h->space->groups ? h->hold->group[*ret_group].n : 0u);
        return NULL;
    }
    return &h->hold->group[*ret_group].block[*ret_i];
}

static PyObject *hold_on_device(uint32_t group, uint32_t i)
{
    PyErr_Format(PyExc_BufferError,
                 "block %u of group %u is on the device alone: Hold.device has its address there, "
                 "Hold.dlpack a view",
                 i, group);
    return NULL;
}

static PyObject *hold_block(PyObject *self, PyObject *args)
{
    struct hold *h = (struct hold *)self;
    uint32_t group, i;
    const struct kvc_block *b = hold_block_of(h, args, &group, &i);
    if (b == NULL)
        return NULL;
    if (b->data == NULL)
        return hold_on_device(group, i);
    /* Read-only for the view's user; the mapping is read-only too. */
    return view_new(self, &h->views, (void *)(uintptr_t)b->data, (Py_ssize_t)b->bytes, true);
}

/* (group, i) -> its address on the device; 0: it is in host memory */
static PyObject *hold_device(PyObject *self, PyObject *args)
{
    struct hold *h = (struct hold *)self;
    uint32_t group, i;
    if (hold_block_of(h, args, &group, &i) == NULL)
        return NULL;
    return PyLong_FromUnsignedLongLong((uintptr_t)kvc_hold_device(h->hold, group, i));
}

static PyObject *hold_check(PyObject *self, PyObject *args)
{
    (void)args;
    struct hold *h = (struct hold *)self;
    if (!hold_usable(h))
        return NULL;
    PyThreadState *state = session_enter(h->space->session);
    if (state == NULL)
        return NULL;
    int rc = h->hold == NULL ? KVC_STALE : kvc_hold_check(h->hold);
    (void)session_leave(h->space->session, state, 0);
    return PyBool_FromLong(rc == 0);
}

/* ---- copies ---- */

struct load {
    const struct layout *layout;
    struct device *device; /* NULL: host memory */
    void *stream;
    struct numbers pages[KVC_GROUPS_MAX];
};

static bool load_group(struct load *load, const struct hold *h, uint32_t group, PyObject *pages)
{
    uint32_t n = h->hold->group[group].n;
    if (!Py_IsNone(pages))
        return numbers_from(pages, "pages", &load->pages[group]) &&
               (n == 0 || layout_count(load->layout, group, &load->pages[group], n));
    if (n == 0 || group >= load->layout->spec.groups)
        return true;
    /* None for the group: its blocks have no pages. */
    size_t numbers = (size_t)n * load->layout->spec.group[group].pages_per_block;
    uint32_t *at = malloc(numbers * sizeof(*at) + 1);
    if (at == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < numbers; i++)
        at[i] = KVC_NO_PAGE;
    load->pages[group] = (struct numbers){at, numbers};
    return true;
}

static bool load_from(PyObject *all, struct hold *h, struct load *load)
{
    Py_ssize_t n = PySequence_Size(all);
    if (n < 0)
        return false;
    if (n != (Py_ssize_t)h->space->groups) {
        raise_errorf(-EINVAL, "pages of %zd groups: the namespace has %u", n, h->space->groups);
        return false;
    }
    for (uint32_t g = 0; g < h->space->groups; g++) {
        PyObject *pages = PySequence_GetItem(all, (Py_ssize_t)g);
        bool good = pages != NULL && load_group(load, h, g, pages);
        Py_XDECREF(pages);
        if (!good)
            return false;
    }
    return true;
}

/* Call it with the session's lock. */
static int load_copy(const struct load *load, const struct hold *h)
{
    const uint32_t *pages[KVC_GROUPS_MAX];
    struct kvc_gpu *gpu;
    for (uint32_t g = 0; g < KVC_GROUPS_MAX; g++)
        pages[g] = load->pages[g].at;
    int rc = device_gpu(h->space->session, load->device, &gpu);
    if (rc == 0)
        rc = kvc_gpu_load(gpu, h->hold, &load->layout->spec, pages, load->stream);
    return rc < 0 ? rc : kvc_hold_check(h->hold);
}

/* Whether the bytes that were copied out of the hold are those that were stored; call it with the
 * GIL. False: an exception is set. */
static bool hold_still_true(struct hold *h)
{
    PyThreadState *state = session_enter(h->space->session);
    if (state == NULL)
        return false;
    int rc = kvc_hold_check(h->hold);
    return session_leave(h->space->session, state, rc) == 0;
}

/* Whether all blocks are in host memory. False: an exception is set, because only copies on the
 * device can read the others. */
static bool hold_is_on_host(const struct hold *h)
{
    for (uint32_t g = 0; g < h->space->groups; g++)
        for (uint32_t i = 0; i < h->hold->group[g].n; i++)
            if (h->hold->group[g].block[i].data == NULL)
                return hold_on_device(g, i) != NULL;
    return true;
}

static PyObject *hold_load(PyObject *self, PyObject *args)
{
    struct hold *h = (struct hold *)self;
    PyObject *layout, *pages, *device;
    uint64_t stream;
    if (!PyArg_ParseTuple(args, "O!OOO&", layout_type, &layout, &pages, &device,
                          U64("stream", &stream)))
        return NULL;
    struct load load = {.layout = (const struct layout *)layout,
                        .stream = (void *)(uintptr_t)stream};
    if (!device_from(device, &load.device) || !hold_usable(h))
        return NULL;
    if (load.device == NULL && !hold_is_on_host(h))
        return NULL;
    h->views++; /* so that no thread releases the hold meanwhile */
    bool good = load_from(pages, h, &load);
    PyThreadState *state = good ? device_begin(h->space->session, load.device, NULL) : NULL;
    good = state != NULL && session_leave(h->space->session, state, load_copy(&load, h)) == 0;
    h->views--;
    for (uint32_t g = 0; g < KVC_GROUPS_MAX; g++)
        numbers_free(&load.pages[g]);
    if (!good)
        return NULL;
    Py_RETURN_NONE;
}

static void read_copy(const struct hold *h, uint32_t group, uint8_t *to)
{
    for (uint32_t i = 0; i < h->hold->group[group].n; i++) {
        const struct kvc_block *b = &h->hold->group[group].block[i];
        memcpy(to, b->data, b->bytes);
        to += b->bytes;
    }
}

/* Copies all blocks of a group, one after the other, into a writable buffer. */
static PyObject *hold_read_into(PyObject *self, PyObject *args)
{
    struct hold *h = (struct hold *)self;
    uint32_t group;
    Py_buffer to;
    if (!PyArg_ParseTuple(args, "O&w*", GROUP(&group), &to))
        return NULL;
    bool good = hold_usable(h);
    if (good && group >= h->space->groups) {
        PyErr_Format(PyExc_IndexError, "group %u: the namespace has %u", group, h->space->groups);
        good = false;
    }
    uint64_t wanted =
        good ? (uint64_t)h->hold->group[group].n * h->space->group[group].block_bytes : 0;
    if (good && (uint64_t)to.len != wanted) {
        raise_errorf(-EINVAL, "a buffer of %zd bytes: the hold's blocks of group %u have %llu",
                     to.len, group, (unsigned long long)wanted);
        good = false;
    }
    for (uint32_t i = 0; good && i < h->hold->group[group].n; i++)
        good = h->hold->group[group].block[i].data != NULL || hold_on_device(group, i) != NULL;
    if (good) {
        h->views++;
        Py_BEGIN_ALLOW_THREADS;
        read_copy(h, group, to.buf);
        Py_END_ALLOW_THREADS;
        good = hold_still_true(h);
        h->views--;
    }
    PyBuffer_Release(&to);
    if (!good)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *hold_dlpack(PyObject *self, PyObject *args)
{
    struct hold *h = (struct hold *)self;
    uint32_t group, i;
    if (hold_block_of(h, args, &group, &i) == NULL)
        return NULL;
    return dlpack_new(h, group, i);
}

static PyMethodDef methods[] = {
    {"release", hold_release, METH_NOARGS, NULL},
    {"info", hold_info, METH_NOARGS, NULL},
    {"block", hold_block, METH_VARARGS, NULL},
    {"check", hold_check, METH_NOARGS, NULL},
    {"load", hold_load, METH_VARARGS, NULL},
    {"read_into", hold_read_into, METH_VARARGS, NULL},
    {"dlpack", hold_dlpack, METH_VARARGS, NULL},
    {"device", hold_device, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_dealloc, hold_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};
static PyType_Spec spec = {
    .name = "kvcache_client._kvc.Hold",
    .basicsize = sizeof(struct hold),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};

PyTypeObject *hold_make(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
