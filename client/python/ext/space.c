/* SPDX-License-Identifier: Apache-2.0 */
/* A namespace: opens it, looks up, acquires. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvcpy.h"
#include "request.h"

static bool spec_group(PyObject *item, struct kvc_group_spec *ret_group)
{
    int replicated;
    uint32_t rule;
    struct kvc_group_spec g = {0};
    if (!PyTuple_Check(item) ||
        !PyArg_ParseTuple(item, "O&O&O&O&p",
                          U32_WITHIN("block_tokens", 1, KVC_BLOCK_TOKENS_MAX, &g.block_tokens),
                          U32_WITHIN("block_bytes", 1, KVC_BLOCK_BYTES_MAX, &g.block_bytes),
                          U32("rule", &rule), U32("window", &g.window), &replicated)) {
        if (!PyErr_Occurred())
            PyErr_SetString(
                PyExc_TypeError,
                "a group is a tuple (block_tokens, block_bytes, rule, window, replicated)");
        return false;
    }
    g.rule = (enum kvc_rule)rule;
    g.replicated = replicated != 0;
    *ret_group = g;
    return true;
}

static bool spec_groups(PyObject *groups, struct kvc_ns_spec *spec)
{
    Py_ssize_t n = PySequence_Size(groups);
    if (n < 0)
        return false;
    if (n == 0 || n > (Py_ssize_t)KVC_GROUPS_MAX) {
        raise_errorf(-EINVAL, "%zd groups: 1 to %u were expected", n, KVC_GROUPS_MAX);
        return false;
    }
    spec->groups = (uint32_t)n;
    for (uint32_t i = 0; i < spec->groups; i++) {
        PyObject *item = PySequence_GetItem(groups, (Py_ssize_t)i);
        bool good = item != NULL && spec_group(item, &spec->group[i]);
        Py_XDECREF(item);
        if (!good)
            return false;
    }
    return true;
}

bool space_spec(PyObject *args, struct kvc_ns_spec *ret_spec)
{
    struct kvc_ns_spec s = {0};
    int with_tokens;
    PyObject *groups;
    if (!PyArg_ParseTuple(
            args, "ssssssssssz(O&O&O&O&)pO&O&O", &s.model, &s.revision, &s.dtype, &s.quant,
            &s.layout, &s.position, &s.position_params, &s.attention, &s.lora, &s.extra,
            &s.sub_tenant, U32("layers", &s.layers), U32("kv_heads", &s.kv_heads),
            U32("head_size", &s.head_size), U32_WITHIN("shards", 0, KVC_SHARDS_MAX, &s.shards),
            &with_tokens, U64("prefill_ns_per_token", &s.prefill_ns_per_token),
            U64("prefill_ns_per_token_pair", &s.prefill_ns_per_token_pair), &groups) ||
        !spec_groups(groups, &s))
        return false;
    s.with_tokens = with_tokens != 0;
    *ret_spec = s;
    return true;
}

struct space *space_new(struct session *session, uint32_t groups,
                        const struct kvc_group_spec *group)
{
    struct space *space = (struct space *)PyType_GenericAlloc(space_type, 0);
    if (space == NULL)
        return NULL;
    space->session = (struct session *)Py_NewRef((PyObject *)session);
    space->groups = groups;
    memcpy(space->group, group, groups * sizeof(*group));
    return space;
}

PyObject *space_open(struct session *session, PyObject *args)
{
    struct kvc_ns_spec spec;
    if (!space_spec(args, &spec))
        return NULL;
    struct space *space = space_new(session, spec.groups, spec.group);
    if (space == NULL)
        return NULL;
    PyThreadState *state = session_enter(session);
    if (state == NULL ||
        session_leave(session, state, kvc_ns_open(session->kvc, &spec, &space->ns)) < 0)
        Py_CLEAR(space);
    return (PyObject *)space;
}

static void space_dealloc(PyObject *self)
{
    struct space *space = (struct space *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF((PyObject *)space->session);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *space_id(PyObject *self, PyObject *args)
{
    (void)args;
    struct space *space = (struct space *)self;
    PyThreadState *state = session_enter(space->session);
    if (state == NULL)
        return NULL;
    uint32_t id = kvc_ns_id(space->ns);
    (void)session_leave(space->session, state, 0);
    return PyLong_FromUnsignedLong(id);
}

static PyObject *space_seed(PyObject *self, PyObject *args)
{
    (void)args;
    struct space *space = (struct space *)self;
    uint8_t seed[KVC_KEY_BYTES];
    PyThreadState *state = session_enter(space->session);
    if (state == NULL)
        return NULL;
    const uint8_t *at = kvc_ns_seed(space->ns);
    if (at != NULL)
        memcpy(seed, at, sizeof(seed));
    (void)session_leave(space->session, state, 0);
    if (at == NULL)
        return raise_error(KVC_E_DOWN,
                           "the namespace has not been opened yet: its seed is unknown");
    return PyBytes_FromStringAndSize((const char *)seed, sizeof(seed));
}

static PyObject *space_lookup(PyObject *self, PyObject *args)
{
    struct space *space = (struct space *)self;
    PyObject *keys;
    uint32_t tokens, flags;
    const char *sub;
    struct seq_arg seq;
    if (!PyArg_ParseTuple(args, "OO&O&z", &keys, U32("tokens", &tokens), U32("flags", &flags),
                          &sub) ||
        !seq_from(space, keys, tokens, sub, &seq))
        return NULL;
    PyObject *found = NULL;
    PyThreadState *state = session_enter(space->session);
    if (state != NULL) {
        struct kvc_prefix prefix = {0};
        int rc = kvc_lookup(space->ns, &seq.seq, flags, &prefix);
        if (session_leave(space->session, state, rc) == 0)
            found = prefix_to(&prefix, space->groups);
    }
    seq_free(&seq);
    return found;
}

static PyObject *space_acquire(PyObject *self, PyObject *args)
{
    struct space *space = (struct space *)self;
    PyObject *keys, *on;
    struct device *device;
    uint32_t tokens;
    const char *sub;
    struct kvc_acquire_options o = {0};
    struct seq_arg seq;
    if (!PyArg_ParseTuple(args, "OO&O&O&O&O&zO", &keys, U32("tokens", &tokens),
                          U32("flags", &o.flags), U32("from_tokens", &o.from_tokens),
                          U32("wait_tokens", &o.wait_tokens), TIMEOUT(&o.timeout_ms), &sub, &on) ||
        !device_from(on, &device) || !seq_from(space, keys, tokens, sub, &seq))
        return NULL;
    struct hold *hold = hold_new(space);
    PyThreadState *state = hold == NULL ? NULL : device_begin(space->session, device, NULL);
    if (state != NULL) {
        struct kvc_hold *held = NULL;
        int rc = device == NULL ? kvc_acquire(space->ns, &seq.seq, &o, &held)
                                : kvc_acquire_on(space->ns, &seq.seq, device->gpu, &o, &held);
        if (rc == 0)
            hold_link(hold, held);
        if (session_leave(space->session, state, rc) < 0)
            Py_CLEAR(hold);
    } else {
        Py_CLEAR(hold);
    }
    seq_free(&seq);
    return (PyObject *)hold;
}

static PyObject *space_redeem(PyObject *self, PyObject *args)
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
    struct hold *hold = hold_new(space);
    PyThreadState *state = hold == NULL ? NULL : session_enter(space->session);
    if (state == NULL) {
        Py_CLEAR(hold);
        return NULL;
    }
    struct kvc_hold *held = NULL;
    int rc = kvc_redeem(space->ns, (const uint8_t *)ticket, &held);
    if (rc == 0)
        hold_link(hold, held);
    if (session_leave(space->session, state, rc) < 0)
        Py_CLEAR(hold);
    return (PyObject *)hold;
}

static PyMethodDef own_methods[] = {
    {"id", space_id, METH_NOARGS, NULL},          {"seed", space_seed, METH_NOARGS, NULL},
    {"lookup", space_lookup, METH_VARARGS, NULL}, {"acquire", space_acquire, METH_VARARGS, NULL},
    {"redeem", space_redeem, METH_VARARGS, NULL}, {"store", space_store, METH_VARARGS, NULL},
    {"stage", space_stage, METH_VARARGS, NULL},   {"put", space_put, METH_VARARGS, NULL},
    {"get", space_get, METH_VARARGS, NULL},       {"name_put", space_name_put, METH_VARARGS, NULL},
    {"pin", space_pin, METH_VARARGS, NULL},       {"hint", space_hint, METH_VARARGS, NULL},
};

PyTypeObject *space_make(PyObject *module)
{
    enum { OWN = sizeof(own_methods) / sizeof(own_methods[0]) };
    static PyMethodDef methods[OWN + 12];
    memcpy(methods, own_methods, sizeof(own_methods));
    for (size_t i = 0; i < 11 && space_request_methods[i].ml_name != NULL; i++)
        methods[OWN + i] = space_request_methods[i];
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, space_dealloc},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "kvcache_client._kvc.Namespace",
        .basicsize = sizeof(struct space),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
