/* SPDX-License-Identifier: Apache-2.0 */
/* Paged KV memory of an engine in host memory: the place of page p of each layer. */
#include <errno.h>
#include <stdlib.h>

#include "kvcpy.h"

bool layout_count(const struct layout *layout, uint32_t group, const struct numbers *pages,
                  uint64_t blocks)
{
    if (group >= layout->spec.groups) {
        raise_errorf(-EINVAL, "the page layout has %u groups, and none of number %u",
                     layout->spec.groups, group);
        return false;
    }
    uint64_t wanted = blocks * layout->spec.group[group].pages_per_block;
    if (pages->n == wanted)
        return true;
    raise_errorf(-EINVAL, "group %u: %zu page numbers; %llu blocks of %u pages need %llu", group,
                 pages->n, (unsigned long long)blocks, layout->spec.group[group].pages_per_block,
                 (unsigned long long)wanted);
    return false;
}

static bool region_from(PyObject *item, struct kvc_pool_region *ret_region)
{
    struct kvc_pool_region r = {0};
    if (!PyTuple_Check(item) ||
        !PyArg_ParseTuple(item, "O&O&O&O&", U64("address", &r.base), U64("stride", &r.stride_bytes),
                          U64("bytes", &r.page_bytes), U32("layer", &r.layer))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a region is a tuple (address, stride, bytes, layer)");
        return false;
    }
    if (r.base == 0) {
        raise_errorf(-EINVAL, "a region at address 0");
        return false;
    }
    *ret_region = r;
    return true;
}

static bool group_from(struct layout *layout, uint32_t group, PyObject *regions)
{
    Py_ssize_t n = PySequence_Size(regions);
    if (n < 0)
        return false;
    if (n > (Py_ssize_t)KVC_REGIONS_MAX) {
        raise_errorf(-EINVAL, "group %u: %zd regions; at most %u are allowed", group, n,
                     KVC_REGIONS_MAX);
        return false;
    }
    struct kvc_pool_region *region = calloc((size_t)n + 1, sizeof(*region));
    if (region == NULL) {
        PyErr_NoMemory();
        return false;
    }
    layout->region[group] = region;
    layout->spec.group[group].region = region;
    layout->spec.group[group].regions = (uint32_t)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(regions, i);
        bool good = item != NULL && region_from(item, &region[i]);
        Py_XDECREF(item);
        if (!good)
            return false;
    }
    return true;
}

static PyObject *layout_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *groups, *per_block;
    uint32_t pages_max;
    if (!PyArg_ParseTuple(args, "OO&O", &groups, U32("pages_max", &pages_max), &per_block))
        return NULL;
    Py_ssize_t n = PySequence_Size(groups);
    struct numbers pages;
    if (n < 0 || !numbers_from(per_block, "pages_per_block", &pages))
        return NULL;
    if (n == 0 || n > (Py_ssize_t)KVC_GROUPS_MAX || pages.n != (size_t)n) {
        numbers_free(&pages);
        return raise_errorf(-EINVAL, "%zd groups of regions: 1 to %u were expected", n,
                            KVC_GROUPS_MAX);
    }
    struct layout *layout = (struct layout *)PyType_GenericAlloc(type, 0);
    bool good = layout != NULL;
    for (uint32_t i = 0; good && i < (uint32_t)n; i++) {
        layout->spec.pages_max = pages_max;
        layout->spec.groups = i + 1;
        layout->spec.group[i].pages_per_block = pages.at[i];
        PyObject *regions = PySequence_GetItem(groups, i);
        good = regions != NULL && group_from(layout, i, regions);
        Py_XDECREF(regions);
    }
    numbers_free(&pages);
    if (!good)
        Py_CLEAR(layout);
    return (PyObject *)layout;
}

static void layout_dealloc(PyObject *self)
{
    struct layout *layout = (struct layout *)self;
    PyTypeObject *type = Py_TYPE(self);
    for (uint32_t i = 0; i < layout->spec.groups; i++)
        free(layout->region[i]);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_new, layout_new},
    {Py_tp_dealloc, layout_dealloc},
    {0, NULL},
};
static PyType_Spec spec = {
    .name = "kvcache_client._kvc.Layout",
    .basicsize = sizeof(struct layout),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

PyTypeObject *layout_make(PyObject *module)
{
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
