/* SPDX-License-Identifier: Apache-2.0 */
/* A whole sequence in one call: stores its missing blocks from an engine's pages, or loads its
 * cached blocks into pages of a device. */
#include <errno.h>
#include <stdlib.h>

#include "kvcpy.h"
#include "request.h"

struct put {
    struct space *space;
    struct kvc_put put;
    const struct layout *layout;
    struct pool *pool; /* pool of the layout, on a device; or NULL */
    struct kvc_word after;
    struct seq_arg seq;
    struct numbers tokens, pages[KVC_GROUPS_MAX];
    struct kvc_retain retain[KVC_RETAIN_MAX];
    PyObject *statuses[KVC_GROUPS_MAX];
};

static void put_free(struct put *p)
{
    for (uint32_t g = 0; g < KVC_GROUPS_MAX; g++) {
        numbers_free(&p->pages[g]);
        Py_CLEAR(p->statuses[g]);
    }
    numbers_free(&p->tokens);
    seq_free(&p->seq);
}

static bool put_sequence(struct put *p, PyObject *keys, uint32_t tokens, PyObject *ids,
                         const char *sub)
{
    if (!Py_IsNone(ids) && !numbers_from(ids, "tokens", &p->tokens))
        return false;
    p->put.tokens = p->tokens.at;
    p->put.ntokens = (uint32_t)p->tokens.n;
    if (!seq_from(p->space, keys, tokens, sub, &p->seq))
        return false;
    p->put.seq = &p->seq.seq;
    return true;
}

static bool put_group(struct put *p, uint32_t group, PyObject *pages, bool with_statuses)
{
    uint32_t n = p->seq.seq.group[group].n;
    if (!numbers_from(pages, "pages", &p->pages[group]) ||
        !layout_count(p->layout, group, &p->pages[group], n))
        return false;
    p->put.pages[group] = p->pages[group].at;
    if (!with_statuses)
        return true;
    p->statuses[group] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
    if (p->statuses[group] == NULL)
        return false;
    p->put.statuses[group] = (uint8_t *)PyBytes_AsString(p->statuses[group]);
    return true;
}

static bool put_pages(struct put *p, PyObject *pages, bool with_statuses)
{
    Py_ssize_t n = PySequence_Size(pages);
    if (n < 0)
        return false;
    if (n != (Py_ssize_t)p->space->groups) {
        raise_errorf(-EINVAL, "pages of %zd groups: the namespace has %u", n, p->space->groups);
        return false;
    }
    for (uint32_t g = 0; g < p->space->groups; g++) {
        PyObject *item = PySequence_GetItem(pages, (Py_ssize_t)g);
        bool good = item != NULL && put_group(p, g, item, with_statuses);
        Py_XDECREF(item);
        if (!good)
            return false;
    }
    return true;
}

static int put_run(struct put *p, struct kvc_put_result *ret_result)
{
    struct kvc_pool *own;
    int rc = layout_pool(p->space->session, p->layout, p->pool, &own, &p->put.pool);
    if (rc < 0)
        return rc;
    p->put.after = &p->after;
    rc = kvc_put(p->space->ns, &p->put, ret_result);
    kvc_pool_close(&own);
    return rc;
}

/* (tokens, bytes, ((stored, there, left, status, statuses), ...)) */
static PyObject *put_result(struct put *p, const struct kvc_put_result *result)
{
    PyObject *groups = PyTuple_New((Py_ssize_t)p->space->groups);
    for (uint32_t g = 0; groups != NULL && g < p->space->groups; g++) {
        PyObject *one =
            Py_BuildValue("IIIIO", result->group[g].stored, result->group[g].there,
                          result->group[g].left, (unsigned)result->group[g].status, p->statuses[g]);
        if (one == NULL || PyTuple_SetItem(groups, (Py_ssize_t)g, one) < 0)
            Py_CLEAR(groups);
    }
    if (groups == NULL)
        return NULL;
    return Py_BuildValue("IKN", result->tokens, (unsigned long long)result->bytes, groups);
}

/* (layout or pool, keys, tokens, ids, pages, from_tokens, flags, retain, sub_tenant, after) */
PyObject *space_put(PyObject *self, PyObject *args)
{
    struct put p = {.space = (struct space *)self};
    PyObject *layout, *keys, *ids, *pages, *retain, *after, *made = NULL;
    uint32_t tokens;
    const char *sub;
    if (!PyArg_ParseTuple(args, "OOO&OOO&O&OzO", &layout, &keys, U32("tokens", &tokens), &ids,
                          &pages, U32("from_tokens", &p.put.from_tokens),
                          U32("flags", &p.put.flags), &retain, &sub, &after) ||
        !pages_from(layout, &p.layout, &p.pool) || !word_from(after, &p.after))
        return NULL;
    int n = retain_from(retain, p.retain);
    p.put.retain = p.retain;
    p.put.nretain = n < 0 ? 0 : (uint32_t)n;
    if (n >= 0 && put_sequence(&p, keys, tokens, ids, sub) && put_pages(&p, pages, true)) {
        struct kvc_put_result result = {0};
        PyThreadState *state = device_begin(p.space->session, NULL, p.pool);
        if (state != NULL && session_leave(p.space->session, state, put_run(&p, &result)) == 0)
            made = put_result(&p, &result);
    }
    put_free(&p);
    return made;
}

/* Leaves out page numbers of earlier blocks: the library wants those from the block on that has
 * from_tokens. */
static void get_pages(const struct put *p, struct kvc_pages_load *load)
{
    for (uint32_t g = 0; g < p->space->groups; g++) {
        uint32_t skipped = load->from_tokens / p->space->group[g].block_tokens;
        uint32_t n = p->seq.seq.group[g].n;
        load->pages[g] = p->pages[g].at + (size_t)(skipped < n ? skipped : n) *
                                              p->layout->spec.group[g].pages_per_block;
    }
}

/* Reads (pool, keys, tokens, pages, from_tokens, flags, timeout_ms, sub_tenant, after, ready).
 * False: an exception is set; the caller frees p even then. */
static bool get_from(PyObject *args, struct put *p, struct kvc_pages_load *load)
{
    PyObject *pool, *keys, *pages, *after, *ready;
    uint32_t tokens;
    const char *sub;
    if (!PyArg_ParseTuple(args, "O!OO&OO&O&O&zOO", pool_type, &pool, &keys, U32("tokens", &tokens),
                          &pages, U32("from_tokens", &load->from_tokens),
                          U32("flags", &load->flags), TIMEOUT(&load->timeout_ms), &sub, &after,
                          &ready) ||
        !pages_from(pool, &p->layout, &p->pool) || !word_from(after, &load->after) ||
        !word_from(ready, &load->ready) || !put_sequence(p, keys, tokens, Py_None, sub) ||
        !put_pages(p, pages, false))
        return false;
    get_pages(p, load);
    return true;
}

/* (arguments of get_from()) -> tokens. */
PyObject *space_get(PyObject *self, PyObject *args)
{
    struct put p = {.space = (struct space *)self};
    struct kvc_pages_load load = {.flags = 0};
    PyObject *made = NULL;
    if (get_from(args, &p, &load)) {
        struct kvc_loaded loaded = {.tokens = 0};
        PyThreadState *state = device_begin(p.space->session, NULL, p.pool);
        if (state != NULL && session_leave(p.space->session, state,
                                           kvc_pages_load(p.space->ns, &p.seq.seq, p.pool->pool,
                                                          &load, &loaded)) == 0)
            made = PyLong_FromUnsignedLong(loaded.tokens);
    }
    put_free(&p);
    return made;
}

/* (arguments of get_from()) -> a request that was begun. */
PyObject *space_get_begin(PyObject *self, PyObject *args)
{
    struct put p = {.space = (struct space *)self};
    struct kvc_pages_load load = {.flags = 0};
    PyObject *request = NULL;
    if (get_from(args, &p, &load))
        request = request_pages_load(p.space, &p.seq.seq, p.pool, &load);
    put_free(&p);
    return request;
}
