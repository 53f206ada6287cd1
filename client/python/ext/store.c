/* SPDX-License-Identifier: Apache-2.0 */
/* Stores blocks: those that are in staging already, or out of buffers, or out of an engine's pages.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvcpy.h"
#include "request.h"

/* Source of the blocks' bytes: exactly one of the three is set. */
struct source {
    uint64_t *offsets; /* the blocks are in staging already, at these offsets */
    Py_buffer *buffers;
    uint32_t nbuffers;
    const struct layout *layout;
    struct pool *pool; /* pool of the layout, on a device; or NULL */
    struct kvc_word after;
    struct numbers pages;
};
struct store {
    struct space *space;
    struct kvc_blocks blocks;
    struct kvc_retain retain[KVC_RETAIN_MAX];
    struct source from;
    struct numbers tokens;
    bool has_tokens;
    uint8_t *statuses;
    Py_buffer keys, parent;
    const char *why;
};

static void store_free(struct store *s)
{
    for (uint32_t i = 0; i < s->from.nbuffers; i++)
        PyBuffer_Release(&s->from.buffers[i]);
    free(s->from.buffers);
    free(s->from.offsets);
    numbers_free(&s->from.pages);
    numbers_free(&s->tokens);
    if (s->keys.obj != NULL)
        PyBuffer_Release(&s->keys);
    if (s->parent.obj != NULL)
        PyBuffer_Release(&s->parent);
}

/* ---- arguments ---- */

static bool store_keys(struct store *s, PyObject *keys, PyObject *parent)
{
    if (PyObject_GetBuffer(keys, &s->keys, PyBUF_SIMPLE) < 0)
        return false;
    if (s->keys.len == 0 || s->keys.len % (Py_ssize_t)KVC_KEY_BYTES != 0) {
        PyErr_Format(PyExc_ValueError, "keys of %zd bytes: a multiple of %u was expected",
                     s->keys.len, KVC_KEY_BYTES);
        return false;
    }
    s->blocks.keys = s->keys.buf;
    s->blocks.n = (uint32_t)(s->keys.len / KVC_KEY_BYTES);
    if (Py_IsNone(parent))
        return true;
    if (PyObject_GetBuffer(parent, &s->parent, PyBUF_SIMPLE) < 0)
        return false;
    if (s->parent.len != (Py_ssize_t)KVC_KEY_BYTES) {
        PyErr_Format(PyExc_ValueError, "parent of %zd bytes: %u were expected", s->parent.len,
                     KVC_KEY_BYTES);
        return false;
    }
    s->blocks.parent = s->parent.buf;
    return true;
}

static bool wish_from(PyObject *item, Py_ssize_t i, struct kvc_retain *r)
{
    if (PyTuple_Check(item) && PyTuple_Size(item) == 4)
        return PyArg_ParseTuple(item, "O&O&O&O&", U32("retain's first_token", &r->first_token),
                                U32("retain's end_token", &r->end_token),
                                U32_WITHIN("retain's priority", 0, KVC_PRIORITY_MAX, &r->priority),
                                U64("retain's duration_ms", &r->duration_ms));
    PyErr_Format(PyExc_TypeError,
                 "retain[%zd] is %.100R: a Retain, or a tuple (first_token, end_token, priority, "
                 "duration_ms), was expected",
                 i, item);
    return false;
}

int retain_from(PyObject *from, struct kvc_retain ret_retain[KVC_RETAIN_MAX])
{
    Py_ssize_t n = PySequence_Size(from);
    if (n < 0)
        return -1;
    if (n > (Py_ssize_t)KVC_RETAIN_MAX) {
        raise_errorf(-EINVAL, "%zd wishes in retain: at most %u are allowed", n, KVC_RETAIN_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(from, i);
        bool good = item != NULL && wish_from(item, i, &ret_retain[i]);
        Py_XDECREF(item);
        if (!good)
            return -1;
    }
    return (int)n;
}

static bool store_retain(struct store *s, PyObject *retain)
{
    int n = retain_from(retain, s->retain);
    s->blocks.retain = s->retain;
    s->blocks.nretain = n < 0 ? 0 : (uint32_t)n;
    return n >= 0;
}

static bool source_offsets(struct store *s, PyObject *offsets)
{
    PyObject *list = sequence_from(offsets);
    if (list == NULL)
        return false;
    size_t n = (size_t)PySequence_Size(list);
    if (n != s->blocks.n) {
        raise_errorf(-EINVAL, "%zu offsets for %u keys", n, s->blocks.n);
    } else if ((s->from.offsets = calloc(n, sizeof(*s->from.offsets))) == NULL) {
        PyErr_NoMemory();
    } else {
        for (size_t i = 0; i < n && !PyErr_Occurred(); i++) {
            struct whole at = {.name = "offsets",
                               .index = i,
                               .in_list = true,
                               .max = UINT64_MAX,
                               .u64 = &s->from.offsets[i]};
            PyObject *item = PySequence_GetItem(list, (Py_ssize_t)i);
            if (item != NULL)
                (void)whole_from(item, &at); /* a failure has set an exception */
            Py_XDECREF(item);
        }
    }
    Py_DECREF(list);
    return !PyErr_Occurred();
}

static bool source_buffer(struct store *s, PyObject *list, uint32_t i, uint32_t block_bytes)
{
    Py_buffer *b = &s->from.buffers[i];
    PyObject *item = PySequence_GetItem(list, (Py_ssize_t)i);
    int rc = item == NULL ? -1 : PyObject_GetBuffer(item, b, PyBUF_SIMPLE);
    Py_XDECREF(item);
    if (rc < 0)
        return false;
    s->from.nbuffers = i + 1;
    if (b->len == (Py_ssize_t)block_bytes)
        return true;
    raise_errorf(-EINVAL, "block %u has %zd bytes: the group's blocks have %u", i, b->len,
                 block_bytes);
    return false;
}

static bool source_buffers(struct store *s, PyObject *blocks, uint32_t block_bytes)
{
    PyObject *list = sequence_from(blocks);
    if (list == NULL)
        return false;
    size_t n = (size_t)PySequence_Size(list);
    bool good = false;
    if (n != s->blocks.n) {
        raise_errorf(-EINVAL, "%zu blocks for %u keys", n, s->blocks.n);
    } else if ((s->from.buffers = calloc(n, sizeof(*s->from.buffers))) == NULL) {
        PyErr_NoMemory();
    } else {
        good = true;
        for (uint32_t i = 0; i < n && good; i++)
            good = source_buffer(s, list, i, block_bytes);
    }
    Py_DECREF(list);
    return good;
}

static bool source_pages(struct store *s, PyObject *layout, PyObject *pages, PyObject *after)
{
    return pages_from(layout, &s->from.layout, &s->from.pool) && word_from(after, &s->from.after) &&
           numbers_from(pages, "pages", &s->from.pages) &&
           layout_count(s->from.layout, s->blocks.group, &s->from.pages, s->blocks.n);
}

static bool source_from(struct store *s, PyObject *offsets, PyObject *blocks, PyObject *layout,
                        PyObject *pages, PyObject *after)
{
    uint32_t block_bytes = s->space->group[s->blocks.group].block_bytes;
    if (!Py_IsNone(offsets) && !Py_IsNone(blocks)) {
        raise_errorf(-EINVAL, "blocks and offsets were given: one of the two was expected");
        return false;
    }
    if (Py_IsNone(offsets) && Py_IsNone(blocks) && Py_IsNone(layout)) {
        raise_errorf(-EINVAL, "neither blocks nor offsets were given: the blocks themselves, or "
                              "where they lie in staging, were expected");
        return false;
    }
    if (!Py_IsNone(offsets))
        return source_offsets(s, offsets);
    if (!Py_IsNone(blocks))
        return source_buffers(s, blocks, block_bytes);
    return source_pages(s, layout, pages, after);
}

/* ---- sending ---- */

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

/* Copies blocks from `first` on to staging, as many as fit. Returns their number; offsets[i] is the
 * place of each. Copies nothing if nothing is sent (NO_STORE), or if there is no daemon (the
 * library counts the blocks as dropped). */
static int stage_some(struct store *s, uint32_t first, uint32_t most, uint64_t *offsets)
{
    const struct kvc_group_spec *g = &s->space->group[s->blocks.group];
    uint64_t step = ((uint64_t)g->block_bytes + 63) / 64 * 64, room = 0;
    if (s->from.offsets != NULL) {
        memcpy(offsets, s->from.offsets + first, most * sizeof(*offsets));
        return (int)most;
    }
    uint8_t *at = kvc_staging(s->space->session->kvc, &room);
    if ((s->blocks.flags & KVC_F_NO_STORE) != 0 ||
        (at == NULL && room == 0 && !kvc_is_up(s->space->session->kvc))) {
        memset(offsets, 0, most * sizeof(*offsets));
        return (int)most;
    }
    uint32_t n = at == NULL ? 0 : least(most, (room + step - g->block_bytes) / step);
    if (n == 0) {
        s->why = "staging has no room for one block: open the session with staging_bytes of "
                 "several blocks";
        return -EINVAL;
    }
    for (uint32_t i = 0; i < n; i++) {
        offsets[i] = i * step;
        memcpy(at + offsets[i], s->from.buffers[first + i].buf, g->block_bytes);
    }
    return (int)n;
}

/* The token ids of blocks first .. first + n - 1. */
static const uint32_t *store_tokens_of(const struct store *s, uint32_t first, uint32_t n,
                                       size_t *ret_n)
{
    uint64_t per_block = s->space->group[s->blocks.group].block_tokens;
    uint64_t from = first * per_block, to = (first + n) * per_block;
    from = from < s->tokens.n ? from : s->tokens.n;
    to = to < s->tokens.n ? to : s->tokens.n;
    *ret_n = (size_t)(to - from);
    return s->has_tokens ? s->tokens.at + from : NULL;
}

/* Stores one piece: as many blocks as fit in staging and in one request. Returns their number. */
static int store_piece(struct store *s, uint32_t first, uint64_t *offsets)
{
    uint32_t left = s->blocks.n - first;
    int n = stage_some(s, first, least(left, KVC_STORE_MAX), offsets);
    if (n < 0)
        return n;
    struct kvc_blocks piece = s->blocks;
    if (first > 0)
        piece.parent = s->blocks.keys + (size_t)(first - 1) * KVC_KEY_BYTES;
    piece.keys = s->blocks.keys + (size_t)first * KVC_KEY_BYTES;
    piece.n = (uint32_t)n;
    piece.first_token += first * s->space->group[s->blocks.group].block_tokens;
    if ((uint32_t)n < left)
        piece.last_tokens = 0;
    size_t ntokens;
    const uint32_t *tokens = store_tokens_of(s, first, piece.n, &ntokens);
    int rc = kvc_store(s->space->ns, &piece, offsets, tokens, ntokens, s->statuses + first);
    return rc < 0 ? rc : n;
}

/* Whether to continue behind a block with this status. Children of a missing block cannot be
 * stored, so their bytes need not be copied for the answer. */
static bool goes_on(uint8_t status, unsigned flags)
{
    return status == KVC_ST_OK || status == KVC_ST_EXISTS || status == KVC_ST_PENDING ||
           (flags & (KVC_F_DURABLE | KVC_F_NO_STORE)) != 0;
}

static int store_pieces(struct store *s)
{
    uint64_t *offsets = calloc(least(s->blocks.n, KVC_STORE_MAX), sizeof(*offsets));
    if (offsets == NULL)
        return -ENOMEM;
    uint32_t first = 0;
    int n = 0;
    while (n >= 0 && first < s->blocks.n) {
        n = store_piece(s, first, offsets);
        if (n < 0)
            break;
        first += (uint32_t)n;
        if (!goes_on(s->statuses[first - 1], s->blocks.flags))
            break;
    }
    free(offsets);
    memset(s->statuses + first, KVC_ST_NO_PARENT, s->blocks.n - first);
    return n < 0 ? n : 0;
}

/* Stores all blocks in one call, because the library divides them itself. */
static int store_pages(struct store *s)
{
    struct kvc_pool *own, *pool;
    int rc = layout_pool(s->space->session, s->from.layout, s->from.pool, &own, &pool);
    if (rc < 0)
        return rc;
    rc = kvc_pages_store(s->space->ns, &s->blocks, pool, s->from.pages.at, s->from.after,
                         s->has_tokens ? s->tokens.at : NULL, s->tokens.n, s->statuses);
    kvc_pool_close(&own);
    return rc;
}

static int store_all(struct store *s)
{
    return s->from.layout != NULL ? store_pages(s) : store_pieces(s);
}

static PyObject *store_run(struct store *s)
{
    PyObject *statuses = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)s->blocks.n);
    if (statuses == NULL)
        return NULL;
    s->statuses = (uint8_t *)PyBytes_AsString(statuses);
    PyThreadState *state = device_begin(s->space->session, NULL, s->from.pool);
    if (state == NULL) {
        Py_DECREF(statuses);
        return NULL;
    }
    int rc = store_all(s);
    const char *why = s->why;
    if (why != NULL) {
        (void)session_leave(s->space->session, state, 0);
        raise_error(rc, why);
    } else {
        (void)session_leave(s->space->session, state, rc);
    }
    if (rc < 0)
        Py_CLEAR(statuses);
    return statuses;
}

/* (group, parent, keys, offsets, blocks, layout or pool, pages, first_token, last_tokens, flags,
 * tokens, retain, sub_tenant, after) -> statuses */
PyObject *space_store(PyObject *self, PyObject *args)
{
    struct store s = {.space = (struct space *)self};
    PyObject *parent, *keys, *offsets, *blocks, *layout, *pages, *tokens, *retain, *after;
    if (!PyArg_ParseTuple(args, "O&OOOOOOO&O&O&OOzO", GROUP(&s.blocks.group), &parent, &keys,
                          &offsets, &blocks, &layout, &pages,
                          U32("first_token", &s.blocks.first_token),
                          U32("last_tokens", &s.blocks.last_tokens), U32("flags", &s.blocks.flags),
                          &tokens, &retain, &s.blocks.sub_tenant, &after))
        return NULL;
    if (s.blocks.group >= s.space->groups)
        return raise_errorf(-EINVAL, "group %u: the namespace has %u", s.blocks.group,
                            s.space->groups);
    PyObject *statuses = NULL;
    s.has_tokens = !Py_IsNone(tokens);
    if (store_keys(&s, keys, parent) && store_retain(&s, retain) &&
        source_from(&s, offsets, blocks, layout, pages, after) &&
        (!s.has_tokens || numbers_from(tokens, "tokens", &s.tokens)))
        statuses = store_run(&s);
    store_free(&s);
    return statuses;
}

/* (epoch, group, parent, keys, offsets, first_token, last_tokens, flags, tokens, retain,
 * sub_tenant): one request, begun. epoch: in which the blocks were brought to staging. */
PyObject *space_store_begin(PyObject *self, PyObject *args)
{
    struct store s = {.space = (struct space *)self};
    PyObject *parent, *keys, *offsets, *tokens, *retain;
    uint32_t epoch;
    if (!PyArg_ParseTuple(args, "O&O&OOOO&O&O&OOz", U32("epoch", &epoch), GROUP(&s.blocks.group),
                          &parent, &keys, &offsets, U32("first_token", &s.blocks.first_token),
                          U32("last_tokens", &s.blocks.last_tokens), U32("flags", &s.blocks.flags),
                          &tokens, &retain, &s.blocks.sub_tenant))
        return NULL;
    PyObject *request = NULL;
    if (store_keys(&s, keys, parent) && store_retain(&s, retain) && source_offsets(&s, offsets) &&
        (Py_IsNone(tokens) || numbers_from(tokens, "tokens", &s.tokens)))
        request = request_store(s.space, &s.blocks, epoch, s.from.offsets, &s.tokens);
    store_free(&s);
    return request;
}

/* (pool, group, parent, keys, pages, first_token, last_tokens, flags, tokens, retain, sub_tenant,
 * after): one request, begun */
PyObject *space_store_pages_begin(PyObject *self, PyObject *args)
{
    struct store s = {.space = (struct space *)self};
    PyObject *pool, *parent, *keys, *pages, *tokens, *retain, *after;
    if (!PyArg_ParseTuple(args, "O!O&OOOO&O&O&OOzO", pool_type, &pool, GROUP(&s.blocks.group),
                          &parent, &keys, &pages, U32("first_token", &s.blocks.first_token),
                          U32("last_tokens", &s.blocks.last_tokens), U32("flags", &s.blocks.flags),
                          &tokens, &retain, &s.blocks.sub_tenant, &after))
        return NULL;
    PyObject *request = NULL;
    if (store_keys(&s, keys, parent) && store_retain(&s, retain) &&
        source_pages(&s, pool, pages, after) &&
        (Py_IsNone(tokens) || numbers_from(tokens, "tokens", &s.tokens)))
        request = request_pages_store(s.space, &s.blocks, s.from.pool, &s.from.pages, s.from.after,
                                      &s.tokens);
    store_free(&s);
    return request;
}

/* (layout, group, pages, offsets, device, stream): copies blocks from their pages into staging. */
PyObject *space_stage(PyObject *self, PyObject *args)
{
    struct store s = {.space = (struct space *)self};
    struct session *session = s.space->session;
    struct device *device;
    PyObject *layout, *pages, *offsets, *on;
    uint32_t group;
    uint64_t stream;
    if (!PyArg_ParseTuple(args, "O!O&OOOO&", layout_type, &layout, GROUP(&group), &pages, &offsets,
                          &on, U64("stream", &stream)) ||
        !device_from(on, &device))
        return NULL;
    Py_ssize_t n = PySequence_Size(offsets);
    s.blocks.n = (uint32_t)n;
    s.from.layout = (const struct layout *)layout;
    PyThreadState *state = NULL;
    if (n >= 0 && source_offsets(&s, offsets) && numbers_from(pages, "pages", &s.from.pages) &&
        layout_count(s.from.layout, group, &s.from.pages, s.blocks.n))
        state = device_begin(session, device, NULL);
    int rc = -1;
    if (state != NULL) {
        struct kvc_gpu *gpu;
        rc = device_gpu(session, device, &gpu);
        if (rc == 0)
            rc = kvc_gpu_stage(gpu, &s.from.layout->spec, group, s.from.pages.at, s.blocks.n,
                               s.from.offsets, (void *)(uintptr_t)stream);
        rc = session_leave(session, state, rc);
    }
    store_free(&s);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}
