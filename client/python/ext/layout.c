/* SPDX-License-Identifier: Apache-2.0 */
/* Paged KV memory of an engine in host memory: where page p of each layer lies. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvcpy.h"

void layout_scatter(const struct layout *layout, uint32_t group, const uint32_t *pages,
                    const uint8_t *block)
{
    for (uint32_t r = 0; r < layout->group[group].regions; r++) {
        const struct region *region = &layout->group[group].region[r];
        for (uint32_t p = 0; p < layout->group[group].pages_per_block; p++) {
            memcpy(region->base + pages[p] * region->stride, block, region->bytes);
            block += region->bytes;
        }
    }
}

void layout_gather(const struct layout *layout, uint32_t group, const uint32_t *pages,
                   uint8_t *block)
{
    for (uint32_t r = 0; r < layout->group[group].regions; r++) {
        const struct region *region = &layout->group[group].region[r];
        for (uint32_t p = 0; p < layout->group[group].pages_per_block; p++) {
            memcpy(block, region->base + pages[p] * region->stride, region->bytes);
            block += region->bytes;
        }
    }
}

bool layout_check(const struct layout *layout, uint32_t group, uint32_t block_bytes,
                  const struct numbers *pages, uint64_t blocks)
{
    if (group >= layout->groups || layout->group[group].regions == 0) {
        raise_errorf(-EINVAL, "the page layout has no regions for group %u", group);
        return false;
    }
    if (layout->group[group].block_bytes != block_bytes) {
        raise_errorf(-EINVAL,
                     "group %u: the regions of the page layout make blocks of %llu bytes; the "
                     "namespace has blocks of %u",
                     group, (unsigned long long)layout->group[group].block_bytes, block_bytes);
        return false;
    }
    uint64_t wanted = blocks * layout->group[group].pages_per_block;
    if (pages->n != wanted) {
        raise_errorf(-EINVAL, "group %u: %zu page numbers; %llu blocks of %u pages need %llu",
                     group, pages->n, (unsigned long long)blocks,
                     layout->group[group].pages_per_block, (unsigned long long)wanted);
        return false;
    }
    for (size_t i = 0; i < pages->n; i++)
        if (pages->at[i] >= layout->pages_max) {
            raise_errorf(-EINVAL, "group %u: page %u; the page layout has pages below %u", group,
                         pages->at[i], layout->pages_max);
            return false;
        }
    return true;
}

static bool region_from(PyObject *item, struct region *ret_region)
{
    unsigned long long base, stride, bytes;
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "KKK", &base, &stride, &bytes)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a region is a tuple (address, stride, bytes)");
        return false;
    }
    if (base == 0 || bytes == 0 || bytes > KVC_BLOCK_BYTES_MAX) {
        raise_errorf(-EINVAL,
                     "a region at address %llu with pages of %llu bytes: an address and 1 to %u "
                     "bytes were expected",
                     base, bytes, KVC_BLOCK_BYTES_MAX);
        return false;
    }
    *ret_region = (struct region){.base = (uint8_t *)(uintptr_t)base, stride, bytes};
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
    struct region *region = calloc((size_t)n + 1, sizeof(*region));
    if (region == NULL) {
        PyErr_NoMemory();
        return false;
    }
    layout->group[group].region = region;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(regions, i);
        bool good = item != NULL && region_from(item, &region[i]);
        Py_XDECREF(item);
        if (!good)
            return false;
        layout->group[group].block_bytes += region[i].bytes * layout->group[group].pages_per_block;
    }
    layout->group[group].regions = (uint32_t)n;
    return true;
}

static PyObject *layout_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)kwargs;
    PyObject *groups, *per_block;
    unsigned pages_max;
    if (!PyArg_ParseTuple(args, "OIO", &groups, &pages_max, &per_block))
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
        layout->pages_max = pages_max;
        layout->groups = i + 1;
        layout->group[i].pages_per_block = pages.at[i];
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
    for (uint32_t i = 0; i < layout->groups; i++)
        free(layout->group[i].region);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* (group, pages, to, offsets): copies blocks from their pages to offsets of a writable buffer. */
static PyObject *layout_stage(PyObject *self, PyObject *args)
{
    struct layout *layout = (struct layout *)self;
    PyObject *from, *offsets;
    unsigned group;
    Py_buffer to;
    struct numbers pages = {0}, at = {0};
    if (!PyArg_ParseTuple(args, "IOw*O", &group, &from, &to, &offsets))
        return NULL;
    bool good = numbers_from(from, "pages", &pages) && numbers_from(offsets, "offsets", &at);
    uint64_t bytes = group < layout->groups ? layout->group[group].block_bytes : 0;
    good = good && layout_check(layout, group, (uint32_t)bytes, &pages, at.n);
    for (size_t i = 0; good && i < at.n; i++)
        if (at.at[i] + bytes > (uint64_t)to.len) {
            raise_errorf(-EINVAL, "offset %u: a block of %llu bytes ends behind %zd bytes",
                         at.at[i], (unsigned long long)bytes, to.len);
            good = false;
        }
    if (good) {
        Py_BEGIN_ALLOW_THREADS;
        for (size_t i = 0; i < at.n; i++)
            layout_gather(layout, group, pages.at + i * layout->group[group].pages_per_block,
                          (uint8_t *)to.buf + at.at[i]);
        Py_END_ALLOW_THREADS;
    }
    numbers_free(&pages);
    numbers_free(&at);
    PyBuffer_Release(&to);
    if (!good)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"stage", layout_stage, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot slots[] = {
    {Py_tp_methods, methods},
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
