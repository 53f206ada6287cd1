/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of kvcache_client._kvc: libkvcache for Python, by the limited API of 3.11.
 *
 * Threads. libkvcache wants one thread at a time in a session: each session has a lock. A call
 * drops the GIL first and takes the lock then (session_enter), and goes back in the other order
 * (session_leave), so nobody waits for the lock with the GIL held. Lists of holds and requests are
 * guarded by the session's lock; counts of views and the flags beside them by the GIL.
 *
 * Fork. A child's objects of its parent's session only raise, and free their memory.
 */
#ifndef KVC_PYTHON_KVCPY_H
#define KVC_PYTHON_KVCPY_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include <kvcache/admin.h>
#include <kvcache/async.h>
#include <kvcache/gpu.h>
#include <kvcache/kvcache.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct hold;
struct request;

struct session {
    PyObject ob_base;
    struct kvc *kvc; /* NULL once closed */
    pthread_mutex_t lock;
    pid_t pid;
    bool closing;
    Py_ssize_t views; /* number of views of staging that live */
    /* Host memory as a device: NULL until pages are copied; ends with the session. */
    struct kvc_gpu *host;
    struct hold *holds;
    struct request *requests;
};

struct space { /* a namespace */
    PyObject ob_base;
    struct kvc_ns *ns;
    struct session *session;
    uint32_t groups;
    struct kvc_group_spec group[KVC_GROUPS_MAX];
};

struct hold {
    PyObject ob_base;
    struct kvc_hold *hold; /* NULL once released */
    struct space *space;
    struct hold *prev, *next;
    Py_ssize_t views;
    bool closing;
};

/* Places of pages, by region of each group: in host memory, or on a device that a call names. */
struct layout {
    PyObject ob_base;
    struct kvc_pool_spec spec;
    struct kvc_pool_region *region[KVC_GROUPS_MAX]; /* regions of each group, for `spec` */
};

struct device {
    PyObject ob_base;
    struct kvc_gpu *gpu; /* NULL once closed */
    struct session *session;
};

/* A layout whose pages the daemon reads and writes. */
struct pool {
    PyObject ob_base;
    struct kvc_pool *pool; /* NULL once closed */
    struct device *device;
    struct layout *layout;
    PyObject *memories;
};

extern PyTypeObject *session_type, *space_type, *hold_type, *layout_type, *view_type, *request_type,
    *dlpack_type, *device_type, *memory_type, *pool_type;

/* ---- module.c ---- */

/* Raises kvcache_client's exception for what a function of libkvcache returned. Returns NULL. */
PyObject *raise_error(int rc, const char *text);
/* The same with a text made here. */
__attribute__((format(printf, 2, 3))) PyObject *raise_errorf(int rc, const char *format, ...);

/* ---- args.c ---- */

/* An integer argument. whole_from() is a converter for "O&" of PyArg_ParseTuple; the macros below
 * make its argument. A value that is no integer raises TypeError, one outside of min..max
 * BadArgument. Both name the argument; BadArgument has the value and the range too. */
struct whole {
    const char *name;
    size_t index; /* with in_list: the message says name[index] */
    bool in_list;
    uint64_t min, max;
    uint32_t *u32; /* where the value goes: exactly one of the two is set */
    uint64_t *u64;
};
int whole_from(PyObject *from, void *whole);

#define U32_WITHIN(NAME, MIN, MAX, TO)                          \
    whole_from, &(struct whole)                                 \
    {                                                           \
        .name = (NAME), .min = (MIN), .max = (MAX), .u32 = (TO) \
    }
#define U32(NAME, TO) U32_WITHIN(NAME, 0, UINT32_MAX, TO)
#define GROUP(TO)     U32_WITHIN("group", 0, KVC_GROUPS_MAX - 1, TO)
#define TIMEOUT(TO)   U32_WITHIN("timeout_ms", 0, KVC_DEADLINE_MAX_MS, TO)
#define U64_WITHIN(NAME, MAX, TO)                 \
    whole_from, &(struct whole)                   \
    {                                             \
        .name = (NAME), .max = (MAX), .u64 = (TO) \
    }
#define U64(NAME, TO) U64_WITHIN(NAME, UINT64_MAX, TO)

/* A sequence of tokens as chains of keys, from Python's arguments. */
struct seq_arg {
    struct kvc_seq seq;
    PyObject *kept[KVC_GROUPS_MAX];
};
/* keys: bytes (one group), or a sequence of them, one for each group of the namespace. False: an
 * exception is set. */
bool seq_from(const struct space *space, PyObject *keys, uint32_t tokens, const char *sub,
              struct seq_arg *ret_seq);
void seq_free(struct seq_arg *seq);

/* Returns a list or tuple as it is, and any other iterable as a list; a new reference.
 * PySequence_List() is not used, because in Python 3.11 it leaks its argument when memory is short.
 */
PyObject *sequence_from(PyObject *from);

/* Unsigned numbers of 32 bits, from a buffer of 32- or 64-bit integers or any sequence of int. */
struct numbers {
    uint32_t *at;
    size_t n;
};
bool numbers_from(PyObject *from, const char *what, struct numbers *ret_numbers);
void numbers_free(struct numbers *numbers);

PyObject *prefix_to(const struct kvc_prefix *prefix, uint32_t groups);
/* Sets dict[key] = value, and takes value's reference. False: an exception is set. */
bool dict_take(PyObject *dict, const char *key, PyObject *value);

/* ---- session.c ---- */

/* Drops the GIL and takes the session's lock. NULL: an exception is set. */
PyThreadState *session_enter(struct session *session);
/* Releases the lock and takes the GIL again. rc below 0: raises, with the session's last error as
 * its text. */
int session_leave(struct session *session, PyThreadState *state, int rc);
/* session_enter() for deallocation: raises nothing. False: the session belongs to another process,
 * or a thread was inside it when this process was forked. *ret_free: memory may be freed. */
bool session_enter_quietly(struct session *session, PyThreadState **ret_state, bool *ret_free);
void session_leave_quietly(struct session *session, PyThreadState *state);

/* Returns this process's memory as a device of the session. Call it with the session's lock. */
int session_host(struct session *session, struct kvc_gpu **ret_host);

/* The text for staging that was filled in one epoch and cannot be stored in another. */
#define STAGING_IS_VOID                                                                  \
    "the session has lost its daemon since staging was asked for: the blocks in it are " \
    "void, and are not stored"

/* ---- hold.c ---- */

/* An empty hold, not in its session's list. */
struct hold *hold_new(struct space *space);
/* Puts the hold into its session's list. Call it with the session's lock. */
void hold_link(struct hold *hold, struct kvc_hold *held);
void hold_unlink(struct hold *hold);

/* ---- view.c ---- */

/* Makes an exporter of memory. It keeps `owner`, and counts its buffers in *views. */
PyObject *view_new(PyObject *owner, Py_ssize_t *views, void *data, Py_ssize_t bytes,
                   bool read_only);

/* ---- dlpack.c ---- */

PyObject *dlpack_new(struct hold *hold, uint32_t group, uint32_t i);
/* (capsule) -> (address, bytes of an element, read_only, shape, strides): host memory only. */
PyObject *dlpack_info(PyObject *module, PyObject *args);

/* ---- model.c ---- */

PyObject *model_read(PyObject *module, PyObject *args);

/* ---- store.c ---- */

/* Reads ((first_token, end_token, priority, duration_ms), ...). Returns their number; -1: an
 * exception is set. */
int retain_from(PyObject *from, struct kvc_retain ret_retain[KVC_RETAIN_MAX]);

/* ---- device.c ---- */

/* Convert an argument, which stays the owner. device_from(): a device, or None as NULL.
 * pages_from(): a layout or a pool; *ret_pool is NULL for a layout. word_from(): (number, value) or
 * None. False: an exception is set. */
bool device_from(PyObject *from, struct device **ret_device);
bool pages_from(PyObject *from, const struct layout **ret_layout, struct pool **ret_pool);
bool word_from(PyObject *from, struct kvc_word *ret_word);

/* session_enter() for a call that uses a device or a pool (NULL: none); both are open afterwards.
 */
PyThreadState *device_begin(struct session *session, const struct device *device,
                            const struct pool *pool);
/* Call both with the session's lock. device_gpu(): the device, or host memory if it is NULL.
 * layout_pool(): the pool, or for NULL a new one over host memory, *ret_own, which the caller
 * closes. */
int device_gpu(struct session *session, const struct device *device, struct kvc_gpu **ret_gpu);
int layout_pool(struct session *session, const struct layout *layout, const struct pool *pool,
                struct kvc_pool **ret_own, struct kvc_pool **ret_pool);

PyObject *session_device(PyObject *self, PyObject *args);

/* ---- space.c, store.c, put.c, names.c, requests.c: methods ---- */

extern PyMethodDef session_name_methods[];
PyObject *space_open(struct session *session, PyObject *args);
/* Reads the arguments of opening a namespace; texts are borrowed. False: an exception is set. */
bool space_spec(PyObject *args, struct kvc_ns_spec *ret_spec);
struct space *space_new(struct session *session, uint32_t groups,
                        const struct kvc_group_spec *group);
PyObject *space_store(PyObject *self, PyObject *args);
PyObject *space_stage(PyObject *self, PyObject *args);
PyObject *space_put(PyObject *self, PyObject *args);
PyObject *space_get(PyObject *self, PyObject *args);
PyObject *space_store_begin(PyObject *self, PyObject *args);
PyObject *space_store_pages_begin(PyObject *self, PyObject *args);
PyObject *space_get_begin(PyObject *self, PyObject *args);
PyObject *space_name_put(PyObject *self, PyObject *args);
PyObject *space_pin(PyObject *self, PyObject *args);
PyObject *space_hint(PyObject *self, PyObject *args);

/* ---- layout.c ---- */

/* Whether there are as many page numbers as the blocks have pages. False: an exception is set. The
 * library checks the numbers themselves. */
bool layout_count(const struct layout *layout, uint32_t group, const struct numbers *pages,
                  uint64_t blocks);

/* Creates a type of the module. NULL: an exception is set. */
PyTypeObject *session_make(PyObject *module);
PyTypeObject *space_make(PyObject *module);
PyTypeObject *hold_make(PyObject *module);
PyTypeObject *layout_make(PyObject *module);
PyTypeObject *view_make(PyObject *module);
PyTypeObject *dlpack_make(PyObject *module);
PyTypeObject *request_make(PyObject *module);
PyTypeObject *device_make(PyObject *module);
PyTypeObject *memory_make(PyObject *module);
PyTypeObject *pool_make(PyObject *module);

#endif
