/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools: where a worker's pages lie in memory, and what the daemon knows of that.
 *
 * AWAY -> MEMS (the daemon is given the pool's memories) -> OPENING (POOL_OPEN in flight) -> OPEN.
 * Back to AWAY when a step fails, and in each new epoch.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "client_gpu__.h"
#include "sys.h"

/* So many MEM requests are unanswered at a time at most: each takes a descriptor of the daemon. */
#define MEMS_AT_ONCE 8u
/* After a failure the library does not try to open the pool for so long. */
#define RETRY_MS 200u

/* ---- specifications ---- */

static int pool_wrong(struct kvc *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int pool_wrong(struct kvc *k, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return kvc__fail(k, KVC_E_BAD_ARGUMENT, "pool: %s", text);
}

/* Whether the region's last page ends inside the memory. */
static bool fits(const struct kvc_pool_region *r, uint32_t pages_max, uint64_t bytes)
{
    uint64_t end;
    return !__builtin_mul_overflow((uint64_t)pages_max - 1, r->stride_bytes, &end) &&
           !__builtin_add_overflow(end, r->page_bytes, &end) &&
           !__builtin_add_overflow(end, r->base, &end) && end <= bytes;
}

static int check_region(const struct kvc_gpu *gpu, const struct kvc_pool_spec *spec, uint32_t group,
                        uint32_t i, bool with_memory)
{
    struct kvc *k = gpu->kvc;
    const struct kvc_pool_region *r = &spec->group[group].region[i];
    if (r->page_bytes == 0 || r->stride_bytes < r->page_bytes)
        return pool_wrong(
            k,
            "group %u, region %u: page_bytes is %llu, stride_bytes %llu: at least 1, and "
            "at least page_bytes, were expected",
            group, i, (unsigned long long)r->page_bytes, (unsigned long long)r->stride_bytes);
    if (i > 0 && r->layer < r[-1].layer)
        return pool_wrong(k, "group %u, region %u: layer %u comes after layer %u: they must ascend",
                          group, i, r->layer, r[-1].layer);
    if (r->mem == NULL && with_memory && !gpu->device->is_host)
        return pool_wrong(k, "group %u, region %u: mem is NULL", group, i);
    if (r->mem != NULL && r->mem->gpu != gpu)
        return pool_wrong(k, "group %u, region %u: mem is of another device", group, i);
    uint64_t bytes = r->mem != NULL ? r->mem->memory.bytes : UINT64_MAX;
    if (!fits(r, spec->pages_max, bytes))
        return pool_wrong(
            k, "group %u, region %u: page %u would end beyond the %llu bytes of its memory", group,
            i, spec->pages_max - 1, (unsigned long long)bytes);
    return 0;
}

int pool__check_group(const struct kvc_gpu *gpu, const struct kvc_pool_spec *spec, uint32_t group,
                      bool with_memory, uint64_t *ret_block_bytes)
{
    struct kvc *k = gpu->kvc;
    uint32_t ppb = spec->group[group].pages_per_block, n = spec->group[group].regions;
    if (spec->pages_max == 0)
        return pool_wrong(k, "pages_max is 0");
    if (ppb < 1 || ppb > KVC_BLOCK_TOKENS_MAX)
        return pool_wrong(k, "group %u: pages_per_block is %u; it must be 1 to %u", group, ppb,
                          KVC_BLOCK_TOKENS_MAX);
    if (n < 1 || n > KVC_REGIONS_MAX || spec->group[group].region == NULL)
        return pool_wrong(k, "group %u: %u regions; it must be 1 to %u, with a pointer", group, n,
                          KVC_REGIONS_MAX);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        int rc = check_region(gpu, spec, group, i, with_memory);
        if (rc < 0)
            return rc;
        bytes += spec->group[group].region[i].page_bytes * ppb;
        if (spec->group[group].region[i].page_bytes > KVC_BLOCK_BYTES_MAX ||
            bytes > KVC_BLOCK_BYTES_MAX)
            return pool_wrong(k, "group %u: a block of more than %u bytes", group,
                              KVC_BLOCK_BYTES_MAX);
    }
    *ret_block_bytes = bytes;
    return 0;
}

int pool__check_pages(struct kvc *k, const uint32_t *pages, uint64_t n, uint32_t pages_max,
                      bool may_lack)
{
    for (uint64_t i = 0; i < n; i++) {
        if (pages[i] >= pages_max && !(may_lack && pages[i] == KVC_NO_PAGE))
            return kvc__fail(k, -EINVAL, "page number %llu is %u; it must be below %u",
                             (unsigned long long)i, pages[i], pages_max);
    }
    return 0;
}

/* ---- life ---- */

static void client_pool_destroy(struct kvc_pool *p)
{
    for (uint32_t g = 0; g < p->groups; g++) {
        for (uint32_t i = 0; i < p->group[g].regions; i++) {
            if (p->group[g].region[i].mem != NULL)
                mem__unref(p->group[g].region[i].mem);
        }
        free(p->group[g].region);
    }
    free(p->wire);
    free(p->statuses);
    free(p);
}

static uint32_t count_layers(const struct kvc_pool_region *region, uint32_t n)
{
    uint32_t layers = n > 0;
    for (uint32_t i = 1; i < n; i++)
        layers += region[i].layer != region[i - 1].layer;
    return layers;
}

static int copy_group(struct kvc_pool *p, const struct kvc_pool_spec *spec, uint32_t group)
{
    struct pool_group *to = &p->group[group];
    uint32_t n = spec->group[group].regions;
    uint64_t bytes = 0;
    int rc = pool__check_group(p->gpu, spec, group, true, &bytes);
    if (rc < 0)
        return rc;
    to->region = sys_malloc(n * sizeof(*to->region));
    if (to->region == NULL)
        return kvc__fail(p->gpu->kvc, -ENOMEM, "out of memory");
    memcpy(to->region, spec->group[group].region, n * sizeof(*to->region));
    for (uint32_t i = 0; i < n; i++) {
        if (to->region[i].mem != NULL)
            to->region[i].mem->pools++;
    }
    to->pages_per_block = spec->group[group].pages_per_block;
    to->regions = n;
    to->layers = count_layers(to->region, n);
    to->block_bytes = bytes;
    p->layers += to->layers;
    p->groups = group + 1;
    return 0;
}

/* Allocates all memory of the pool, so that opening it again later needs none. */
static int client_pool_create(struct kvc_gpu *gpu, const struct kvc_pool_spec *spec,
                              struct kvc_pool **ret_pool)
{
    struct kvc *k = gpu->kvc;
    uint64_t regions = 0;
    if (spec->groups < 1 || spec->groups > KVC_GROUPS_MAX)
        return pool_wrong(k, "groups is %u; it must be 1 to %u", spec->groups, KVC_GROUPS_MAX);
    for (uint32_t g = 0; g < spec->groups; g++)
        regions += spec->group[g].regions;
    if (regions > KVC_REGIONS_MAX)
        return pool_wrong(k, "%llu regions, over all groups; at most %u",
                          (unsigned long long)regions, KVC_REGIONS_MAX);
    struct kvc_pool *p = sys_calloc(1, sizeof(*p));
    if (p == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    p->gpu = gpu;
    p->pages_max = spec->pages_max;
    int rc = 0;
    for (uint32_t g = 0; g < spec->groups && rc == 0; g++)
        rc = copy_group(p, spec, g);
    if (rc == 0) {
        p->wire = sys_malloc((regions + 1) * KVC_REGION_BYTES);
        p->statuses = sys_malloc(KVC_KEYS_MAX);
        if (p->wire == NULL || p->statuses == NULL)
            rc = kvc__fail(k, -ENOMEM, "out of memory");
    }
    if (rc < 0) {
        client_pool_destroy(p);
        return rc;
    }
    *ret_pool = p;
    return 0;
}

/* ---- opening ---- */

bool pool__is_host(const struct kvc_pool *p)
{
    return p->gpu->device->is_host;
}

struct kvc_pool_spec pool__spec(const struct kvc_pool *p)
{
    struct kvc_pool_spec spec = {.pages_max = p->pages_max, .groups = p->groups};
    for (uint32_t g = 0; g < p->groups; g++) {
        spec.group[g].pages_per_block = p->group[g].pages_per_block;
        spec.group[g].regions = p->group[g].regions;
        spec.group[g].region = p->group[g].region;
    }
    return spec;
}

bool pool__is_open(const struct kvc_pool *p)
{
    return p->state == POOL_OPEN && p->epoch == p->gpu->kvc->epoch && !p->is_void;
}

static bool is_under_way(const struct kvc_pool *p)
{
    return p->epoch == p->gpu->kvc->epoch && (p->state == POOL_MEMS || p->state == POOL_OPENING);
}

/* Sends the requests that were parked for the pool, or (error < 0) ends them. */
static void unpark(struct kvc_pool *p, int error)
{
    struct kvc *k = p->gpu->kvc;
    struct kvc_op *next;
    for (struct kvc_op *op = k->ops.live; op != NULL; op = next) {
        next = op->next;
        if (k->state == LINK_DOWN)
            return; /* all have ended with the link */
        if (op->stage != OP_PARKED || op->pool != p)
            continue;
        if (error < 0)
            op__end(op, error);
        else if (op->ns->epoch == k->epoch)
            op__resend(op);
    }
}

static int pool_failed(struct kvc_pool *p, int error)
{
    struct kvc *k = p->gpu->kvc;
    p->state = POOL_AWAY;
    p->error = error;
    p->retry_ns = kvc__now() + RETRY_MS * NS_PER_MS;
    (void)snprintf(p->why, sizeof(p->why), "%.*s", (int)sizeof(p->why) - 1, k->error);
    unpark(p, error);
    return error;
}

/* The op of a POOL_OPEN is freed: after its reply, or because the link ends. */
static void pool_let_go(struct kvc_op *op)
{
    if (op->pool == NULL)
        return;
    op->pool->opening = NULL;
    op->pool->state = POOL_AWAY;
}

/* The POOL_OPEN was answered, or given up. */
static void opened(struct kvc_op *op)
{
    struct kvc *k = op->kvc;
    struct kvc_pool *p = op->pool;
    struct msg_reply_head head;
    op__explain(op);
    int rc = op->error;
    if (rc == 0)
        rc = op__checked(op, codec_dec_bare_reply(op->msg.data, op->msg.len, &head));
    if (k->state == LINK_DOWN)
        return; /* the op has ended with the link */
    op__free(op);
    if (rc < 0) {
        p->is_void = rc == KVC_E_TIER; /* its memories too, which may have been taken before */
        (void)pool_failed(p, rc);
        return;
    }
    p->state = POOL_OPEN;
    p->is_void = false;
    unpark(p, 0);
}

static struct codec_bin put_regions(const struct pool_group *g, uint8_t *at)
{
    for (uint32_t i = 0; i < g->regions; i++) {
        const struct kvc_pool_region *r = &g->region[i];
        const struct msg_region m = {.mem = r->mem->no,
                                     .layer = r->layer,
                                     .base = r->base + r->mem->memory.shift,
                                     .stride_bytes = r->stride_bytes,
                                     .page_bytes = r->page_bytes};
        codec_put_region(at + (size_t)i * KVC_REGION_BYTES, &m);
    }
    return (struct codec_bin){.p = at, .n = g->regions * KVC_REGION_BYTES};
}

static int send_open(struct kvc_pool *p)
{
    struct kvc *k = p->gpu->kvc;
    struct kvc_op *op = NULL;
    int rc = op__new_own(k, KVC_OP_POOL_OPEN, kvc__deadline(k, 0), &op);
    if (rc < 0)
        return rc;
    struct msg_pool_open m = {.pool = p->no, .pages_max = p->pages_max, .ngroups = p->groups};
    memcpy(m.uuid, p->gpu->device->uuid, sizeof(m.uuid));
    uint8_t *at = p->wire;
    for (uint32_t g = 0; g < p->groups; g++) {
        m.groups[g].pages_per_block = p->group[g].pages_per_block;
        m.groups[g].regions = put_regions(&p->group[g], at);
        at += m.groups[g].regions.n;
    }
    op->pool = p;
    op->then = opened;
    op->let_go = pool_let_go;
    p->opening = op;
    p->state = POOL_OPENING;
    rc = op__send(op, codec_enc_pool_open(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc < 0)
        op__free(op);
    return rc;
}

/* Sends MEM for the memories that the daemon does not have yet, and then POOL_OPEN. */
static int go_on(struct kvc_pool *p)
{
    struct kvc *k = p->gpu->kvc;
    bool all = true;
    for (uint32_t g = 0; g < p->groups; g++) {
        for (uint32_t i = 0; i < p->group[g].regions; i++) {
            struct kvc_mem *m = p->group[g].region[i].mem;
            enum mem_state state = mem__state(m);
            all = all && state == MEM_KNOWN;
            if (state != MEM_UNKNOWN)
                continue;
            if (m->epoch == k->epoch && m->error < 0)
                return m->error;
            if (k->mems.asked >= MEMS_AT_ONCE)
                return 0;
            int rc = mem__ask(m);
            if (rc < 0)
                return rc;
        }
    }
    const int rc = all ? words__make(k) : 0;
    return rc == 1 ? send_open(p) : rc;
}

void pool__mem_came(struct kvc *k)
{
    for (uint32_t i = 0; i < KVC_POOLS_MAX && k->state != LINK_DOWN; i++) {
        struct kvc_pool *p = k->pool[i];
        if (p == NULL || p->state != POOL_MEMS || p->epoch != k->epoch)
            continue;
        int rc = go_on(p);
        if (rc < 0 && k->state != LINK_DOWN)
            (void)pool_failed(p, rc);
    }
}

/* Tells the daemon to forget the pool. */
static void take_back(struct kvc_pool *p)
{
    struct kvc *k = p->gpu->kvc;
    const struct msg_pool_close m = {.pool = p->no};
    const struct msg_head head = op__post_head(k, KVC_OP_POOL_CLOSE);
    op__post(k, codec_enc_pool_close(k->tx, KVC_MESSAGE_MAX, &head, &m));
}

/* The daemon's device went out of service: the memories of a void pool are unknown to it, too. */
static void forget_memories(struct kvc_pool *p)
{
    for (uint32_t g = 0; g < p->groups; g++) {
        for (uint32_t i = 0; i < p->group[g].regions; i++) {
            struct kvc_mem *m = p->group[g].region[i].mem;
            if (p->is_void && mem__state(m) == MEM_KNOWN)
                mem__drop(m);
            m->error = 0;
        }
    }
}

/* Whether a request names the pool: the daemon does not close it then. */
static bool is_named(const struct kvc_pool *p)
{
    const struct kvc *k = p->gpu->kvc;
    const struct kvc_op *op = k->ops.live;
    while (op != NULL && !(op->borrows && op->pool == p && op->epoch == k->epoch &&
                           (op->stage == OP_SENT || op->stage == OP_QUIESCING)))
        op = op->next;
    return op != NULL;
}

int pool__make(struct kvc_pool *p)
{
    struct kvc *k = p->gpu->kvc;
    if (is_under_way(p) || pool__is_open(p))
        return 0;
    if (p->epoch == k->epoch && p->state == POOL_OPEN && is_named(p))
        return kvc__fail(k, KVC_E_TIER,
                         "the daemon's device was out; the pool is opened again when its requests "
                         "that are in flight have ended");
    if (p->epoch == k->epoch && p->state == POOL_AWAY && p->error < 0 && kvc__now() < p->retry_ns)
        return kvc__fail(k, p->error, "%s", p->why);
    if (p->epoch == k->epoch && p->state == POOL_OPEN)
        take_back(p);
    if (p->epoch != k->epoch)
        p->is_void = false;
    forget_memories(p);
    p->epoch = k->epoch;
    p->state = POOL_MEMS;
    p->error = 0;
    p->is_void = false;
    words__again(k);
    int rc = k->state == LINK_DOWN ? k->down_error : go_on(p);
    if (rc < 0 && k->state != LINK_DOWN)
        return pool_failed(p, rc);
    return rc;
}

/* ---- the public half ---- */

static int await_open(struct kvc_pool *p, uint64_t deadline_ns)
{
    struct kvc *k = p->gpu->kvc;
    int rc = kvc__enter(k, deadline_ns);
    if (rc == 0)
        rc = pool__make(p);
    const uint32_t epoch = k->epoch;
    while (rc == 0 && is_under_way(p)) {
        if (op__pump(k, deadline_ns + GRACE_MS * NS_PER_MS, true) == 0) {
            op__expire(k);
            if (p->state == POOL_MEMS)
                rc = kvc__fail(k, KVC_E_TIMEOUT, "the daemon does not answer MEM, or WORDS");
        }
        if (k->state == LINK_DOWN || k->epoch != epoch)
            rc = kvc__is_down(k->down_error) ? KVC_E_DOWN : k->down_error;
    }
    if (rc == 0 && p->state == POOL_AWAY)
        rc = kvc__fail(k, p->error, "%s", p->why);
    watch__update(k);
    return rc;
}

int kvc_pool_open(struct kvc_gpu *gpu, const struct kvc_pool_spec *spec, struct kvc_pool **ret_pool)
{
    struct kvc *k = gpu->kvc;
    if (fork__is_child(k))
        return kvc__fail(k, -EPERM, "this session belongs to the parent process");
    uint32_t no = 0;
    while (no < KVC_POOLS_MAX && k->pool[no] != NULL)
        no++;
    if (no == KVC_POOLS_MAX)
        return kvc__fail(k, KVC_E_LIMIT, "a session has at most %u pools", KVC_POOLS_MAX);
    struct kvc_pool *p = NULL;
    int rc = client_pool_create(gpu, spec, &p);
    if (rc < 0)
        return rc;
    p->no = no;
    k->pool[no] = p;
    rc = pool__is_host(p) ? 0 : await_open(p, kvc__deadline(k, 0));
    if (rc < 0) {
        char why[sizeof(k->error)];
        memcpy(why, k->error, sizeof(why));
        kvc_pool_close(&p);
        memcpy(k->error, why, sizeof(why));
        return rc;
    }
    *ret_pool = p;
    return 0;
}

/* Closes the pool in the daemon, and waits for that. Without a daemon there is nothing to do. */
static void close_there(struct kvc_pool *p)
{
    struct kvc *k = p->gpu->kvc;
    struct kvc_op *op = NULL;
    if (k->state != LINK_UP || p->epoch != k->epoch ||
        (p->state != POOL_OPEN && p->state != POOL_OPENING))
        return;
    if (op__new_own(k, KVC_OP_POOL_CLOSE, kvc__deadline(k, 0), &op) < 0) {
        take_back(p);
        return;
    }
    const struct msg_pool_close m = {.pool = p->no};
    (void)!op__call(op, codec_enc_pool_close(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    op__free(op);
}

void kvc_pool_close(struct kvc_pool **pool)
{
    if (pool == NULL || *pool == NULL)
        return;
    struct kvc_pool *p = *pool;
    struct kvc *k = p->gpu->kvc;
    *pool = NULL;
    if (!fork__is_child(k)) {
        op__stop_all(k, p);
        close_there(p);
        op__free(p->opening);
        watch__update(k);
    }
    for (struct kvc_op *op = k->ops.live; op != NULL; op = op->next) {
        if (op->pool == p)
            op->pool = NULL;
    }
    k->pool[p->no] = NULL;
    client_pool_destroy(p);
}
