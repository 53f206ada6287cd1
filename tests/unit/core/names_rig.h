/* SPDX-License-Identifier: Apache-2.0 */
/* Short functions for tests of names on a core rig. A failure fails the test. */
#ifndef KVC_TEST_NAMES_RIG_H
#define KVC_TEST_NAMES_RIG_H

#include <string.h>

#include "core_slices.h"
#include "one_core.h"

/* Like begin_core(), of a core that can keep names. */
static inline void begin(uint32_t host, uint32_t disk, bool journal)
{
    rig_defaults(&r);
    r.with_journal = journal;
    room_for(host, disk);
    begin_ns();
}

static inline void store(uint32_t chain, uint32_t first, uint32_t n)
{
    rig_store(&r, 1, ns, 0, chain, first, n);
    rig_settle(&r);
    rig_step(&r);
}

/* The result that a waiter gets. */
struct waited {
    struct core_name_waiter w; /* must be first */
    unsigned calls;
    int err;
};

static inline void on_waited(struct core_name_waiter *w, int err)
{
    struct waited *x = (struct waited *)(void *)w;
    x->calls++;
    x->err = err;
}

static inline struct core_name_id id_of(uint8_t kind, const char *name, const char *sub)
{
    return (struct core_name_id){.kind = kind,
                                 .name = (const uint8_t *)name,
                                 .name_bytes = (uint32_t)strlen(name),
                                 .sub = (const uint8_t *)sub,
                                 .sub_bytes = (uint32_t)strlen(sub)};
}

/* Puts a conversation of client 1 on the first `tokens` of a chain. */
static inline int put(const char *name, uint32_t chain, uint32_t tokens, struct core_name_put in,
                      struct waited *w, struct core_named *ret_named)
{
    struct core_seq seq = rig_seq(ns, chain, tokens);
    if (!in.id.name)
        in.id = id_of(KVC_NAME_CONVERSATION, name, "");
    in.seq = &seq;
    if (w)
        *w = (struct waited){.w = {.fn = on_waited}};
    int rc = core_name_put(r.core, r.cl[1], &in, w ? &w->w : NULL, ret_named, &r.why);
    core_check(r.core);
    return rc;
}

static inline struct core_named named(const char *name, uint32_t chain, uint32_t tokens)
{
    struct core_named n = {0};
    ck_assert_int_eq(put(name, chain, tokens, (struct core_name_put){0}, NULL, &n), 0);
    return n;
}

static inline struct core_name *find(const char *name)
{
    struct core_name *nm = NULL;
    const struct core_name_id id = id_of(KVC_NAME_CONVERSATION, name, "");
    int rc = core_name_find(r.core, r.cl[1], &id, &nm);
    ck_assert(rc == 0 || (rc == KVC_E_NO_NAME && !nm));
    return nm;
}

static inline struct core_name_view view(const char *name)
{
    struct core_name_view v;
    struct core_name *nm = find(name);
    ck_assert_ptr_nonnull(nm);
    (void)core_name_view(r.core, nm, &v);
    return v;
}

static inline struct core_evicted would_evict(const struct core_name *nm)
{
    struct core_would x = {.content = 0};
    while (core_name_would_step(r.core, nm, &x))
        core_check(r.core);
    return x.evicted;
}

static inline struct core_evicted forget(const char *name, bool evict)
{
    struct core_name *nm = find(name);
    ck_assert_ptr_nonnull(nm);
    const struct core_evicted would = would_evict(nm);
    struct core_evicted did = {0};
    core_check(r.core);
    ck_assert_int_eq(core_name_forget(r.core, nm, evict ? &did : NULL, NULL), 0);
    if (evict)
        ck_assert_mem_eq(&did, &would, sizeof did);
    core_check(r.core);
    ck_assert_ptr_null(find(name));
    return did;
}

#endif
