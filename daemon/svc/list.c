/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handler of LIST: fills the rows of the tables of <kvcache/rows.h> (namespaces, pins, quotas,
 * blocks and others) from the core.
 */
#include "cursor.h"
#include "svc__.h"

/* Blocks that the names in one reply may look at: some 200 us. After that a reply has one row. */
#define NAMES_BLOCKS 4096u

/* State while one reply is made. */
struct rows {
    struct svc *s;
    const struct session *who; /* the session that asks */
    const struct msg_list *asked;
    const struct kvc_table *table;
    struct codec_list list;
    uint32_t max;
    uint64_t after;               /* rows behind this one */
    uint8_t next[KVC_CURSOR_MAX]; /* where the next reply continues */
    uint32_t next_bytes;
    bool more; /* there are more rows */
    int err;   /* an error instead of rows; why: its text, NULL: the error needs none */
    const char *why;
};

static void row_put(struct rows *rows, const void *row)
{
    MUST(codec_rows_add(&rows->list, rows->table, row) == 0); /* a message has room for all */
}

static bool row_fits(struct rows *rows)
{
    rows->more = rows->list.count >= rows->max;
    return !rows->more;
}

static void rows_next(struct rows *rows, uint64_t at)
{
    struct wcursor w;
    wcursor_init(&w, rows->next, sizeof rows->next);
    wcursor_put_u64le(&w, at);
    rows->next_bytes = 8;
}

/* Adds a row. at: where the next reply continues after it. False: there is no room. */
static bool row_add(struct rows *rows, const void *row, uint64_t at)
{
    if (!row_fits(rows))
        return false;
    row_put(rows, row);
    rows_next(rows, at);
    return true;
}

/* Copies a text, cut at `cap`; the encoder then drops a character that was cut. */
static void cell_text(char *to, size_t cap, const char *from)
{
    memcpy(to, from, MIN(strlen(from), cap));
}
#define CELL_TEXT(row, column, from) cell_text((row).column, sizeof(row).column, from)

static const char *principal_name(const struct svc *s, uint32_t id)
{
    return id >= 1 && id <= s->cfg.nprincipals ? s->cfg.principals[id - 1].name : "?";
}

static void list_namespaces(struct rows *rows)
{
    struct core_ns *page[CORE_NS_PAGE];
    const uint32_t n = core_ns_page(rows->s->core, rows->who->client,
                                    (uint32_t)MIN(rows->after, UINT32_MAX), page);
    for (uint32_t i = 0; i < n; i++) {
        struct core_ns_view v;
        core_ns_view(page[i], &v);
        struct kvc_ns_info row = {.ns = v.id,
                                  .shards = v.spec->shards,
                                  .groups = v.spec->ngroups,
                                  .block_tokens = v.spec->group[0].block_tokens,
                                  .block_bytes = v.spec->group[0].block_bytes,
                                  .blocks = v.blocks,
                                  .bytes = v.bytes,
                                  .host_bytes = v.held[0],
                                  .nvme_bytes = v.held[1],
                                  .device_bytes = v.hbm_bytes,
                                  .pinned_bytes = v.pinned_bytes,
                                  .named_bytes = v.named_bytes,
                                  .promised_bytes = v.bound[1],
                                  .leased_bytes = v.leased_bytes};
        CELL_TEXT(row, principal, principal_name(rows->s, v.principal));
        CELL_TEXT(row, tenant, v.tenant);
        CELL_TEXT(row, sub_tenant, v.spec->sub);
        CELL_TEXT(row, model, v.spec->model);
        CELL_TEXT(row, dtype, v.spec->dtype);
        if (!row_add(rows, &row, v.id))
            return;
    }
    rows->more = n == CORE_NS_PAGE;
}

#define SESSIONS_PAGE 64u

static struct kvc_session_info session_row(const struct svc *s, const struct session *se)
{
    struct core_client_view v;
    core_client_view(s->core, se->client, &v);
    struct kvc_session_info row = {.session = se->serial,
                                   .uid = se->uid,
                                   .pid = (uint32_t)se->pid,
                                   .dropped = se->state == SESSION_DROPPED,
                                   .leases = v.leases,
                                   .leased_bytes = v.leased_bytes,
                                   .lease_age_ms = v.lease_age_ms,
                                   .reservations = v.reservations,
                                   .reserved_bytes = v.reserved_bytes,
                                   .reservation_age_ms = v.reservation_age_ms};
    CELL_TEXT(row, name, se->name);
    CELL_TEXT(row, principal, se->principal->name);
    CELL_TEXT(row, tenant, se->principal->tenant);
    return row;
}

/* Sessions are stored in no order. So those with the lowest numbers behind `after` are picked
 * first. */
static void list_sessions(struct rows *rows)
{
    const struct session *page[SESSIONS_PAGE] = {NULL};
    uint32_t n = 0;
    bool more = false;
    for (uint32_t i = 0; i < svc_conns_max(&rows->s->cfg); i++) {
        const struct session *se = &rows->s->sessions[i];
        uint32_t at = n;
        if (!svc__may_see(rows->who, se) || se->serial <= rows->after)
            continue;
        more |= at == SESSIONS_PAGE;
        if (at == SESSIONS_PAGE && page[--at]->serial < se->serial)
            continue;
        for (; at > 0 && page[at - 1]->serial > se->serial; at--)
            page[at] = page[at - 1];
        page[at] = se;
        n += n < SESSIONS_PAGE;
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct kvc_session_info row = session_row(rows->s, page[i]);
        if (!row_add(rows, &row, row.session))
            return;
    }
    rows->more = more;
}

static void list_pins(struct rows *rows)
{
    struct core_pin_view v;
    uint64_t cursor = rows->after;
    while (core_pin_next(rows->s->core, rows->who->client, &cursor, &v)) {
        struct kvc_pin_info row = {.pin = v.id,
                                   .ns = v.ns,
                                   .tokens = v.tokens,
                                   .bytes = v.bytes,
                                   .in_memory = v.in_memory,
                                   .left_ms = v.left_ms};
        CELL_TEXT(row, principal, v.principal);
        CELL_TEXT(row, tenant, v.tenant);
        CELL_TEXT(row, sub_tenant, v.sub);
        memcpy(row.tip, v.tip.b, sizeof row.tip);
        if (!row_add(rows, &row, cursor))
            return;
    }
}

static void list_quotas(struct rows *rows)
{
    struct core_quota q;
    uint32_t cursor = (uint32_t)MIN(rows->after, UINT32_MAX);
    while (core_quota_next(rows->s->core, &cursor, &q)) {
        struct kvc_quota row = {.scope = q.scope,
                                .ns = q.ns,
                                .host_limit = q.bytes.limit[0],
                                .nvme_limit = q.bytes.limit[1],
                                .host_share = q.bytes.share[0],
                                .nvme_share = q.bytes.share[1],
                                .host_bytes = q.held[0],
                                .nvme_bytes = q.held[1],
                                .host_promised = q.bound[0],
                                .nvme_promised = q.bound[1]};
        CELL_TEXT(row, tenant, q.tenant);
        CELL_TEXT(row, sub_tenant, q.sub);
        if (!row_add(rows, &row, cursor))
            return;
    }
}

static void list_paths(struct rows *rows)
{
    const struct svc *s = rows->s;
    struct kvc_path row;
    for (uint32_t i = (uint32_t)MIN(rows->after, UINT32_MAX);
         s->ports.path && s->ports.path(s->ports.ctx, i, &row); i++)
        if (!row_add(rows, &row, i + 1))
            return;
}

static void list_writes(struct rows *rows)
{
    struct kvc_writes row;
    if (!rows->s->ports.writes || rows->after > 0)
        return;
    rows->s->ports.writes(rows->s->ports.ctx, &row);
    (void)row_add(rows, &row, 1);
}

/* The same for a text of a driver, which may not be valid UTF-8. */
#define CELL_SAID(row, column, from) \
    CELL_TEXT(row, column, codec_is_text(codec_text(from)) ? (from) : "?")

static void list_devices(struct rows *rows)
{
    const struct svc *s = rows->s;
    for (uint64_t i = rows->after; i < s->cfg.ndevices; i++) {
        struct device *d = s->cfg.devices[i];
        struct device_view v;
        struct core_hbm_stats hbm;
        d->ops->view(d, &v);
        core_hbm_stats(s->core, d->no, &hbm);
        struct kvc_device row = {.used_bytes = v.used_bytes,
                                 .limit_bytes = v.limit_bytes,
                                 .blocks = hbm.blocks,
                                 .up = v.up,
                                 .emulated = v.emulated,
                                 .memory_bytes = v.memory_bytes,
                                 .imported_bytes = v.imported_bytes,
                                 .held_bytes = v.held_bytes,
                                 .hits = hbm.hits,
                                 .fills = hbm.fills,
                                 .drops = hbm.drops,
                                 .copies = v.copies,
                                 .copy_bytes = v.copy_bytes,
                                 .failures = v.failures,
                                 .outs = v.outs,
                                 .plain_to = v.plain_to,
                                 .plain_from = v.plain_from};
        CELL_TEXT(row, device, v.device);
        CELL_SAID(row, name, v.name);
        CELL_SAID(row, why, v.why);
        memcpy(row.uuid, v.uuid, sizeof row.uuid);
        if (!row_add(rows, &row, i + 1))
            return;
    }
}

static void list_rates(struct rows *rows)
{
    const struct svc *s = rows->s;
    for (uint64_t i = rows->after; i < (uint64_t)s->cfg.ndevices * DEVICE_RATES; i++) {
        struct device *d = s->cfg.devices[i / DEVICE_RATES];
        struct device_view v;
        d->ops->view(d, &v);
        const struct device_rate *r = &v.rate[i % DEVICE_RATES];
        if (r->frag_bytes == 0)
            continue;
        struct kvc_rate row = {.fragment_bytes = r->frag_bytes,
                               .to_engine = r->to_engine,
                               .to_kernel = r->to_kernel,
                               .to_window = r->to_window,
                               .from_engine = r->from_engine,
                               .from_kernel = r->from_kernel,
                               .to_path = r->to_path,
                               .from_path = r->from_path};
        CELL_TEXT(row, device, v.device);
        if (!row_add(rows, &row, i + 1))
            return;
    }
}

/* Adds a name's row. Returns how many of its blocks were looked at. */
static uint32_t name_put(struct rows *rows, const struct core_name *nm)
{
    struct core_name_view v;
    const uint32_t looked = core_name_view(rows->s->core, nm, &v);
    struct kvc_name_info row = {.kind = v.kind,
                                .ns = v.ns,
                                .tokens = v.tokens,
                                .tokens_cached = v.tokens_cached,
                                .blocks = v.blocks,
                                .bytes = v.bytes,
                                .bytes_in_memory = v.bytes_in_memory,
                                .bytes_on_disk = v.bytes_on_disk,
                                .age_ms = v.age_ms,
                                .idle_ms = v.idle_ms,
                                .ttl_ms = v.ttl_ms,
                                .priority = v.priority,
                                .pinned = v.pinned,
                                .has_tokens = v.has_ids};
    CELL_TEXT(row, name, v.name);
    CELL_TEXT(row, principal, v.principal);
    CELL_TEXT(row, tenant, v.tenant);
    CELL_TEXT(row, sub_tenant, v.sub);
    CELL_TEXT(row, model, v.model);
    memcpy(row.tip, v.tip.b, sizeof row.tip);
    row_put(rows, &row);
    return looked;
}

static int name_one(struct rows *rows, uint8_t kind)
{
    const struct msg_list *m = rows->asked;
    const struct core_name_id id = {.kind = kind,
                                    .name = m->prefix.p,
                                    .name_bytes = m->prefix.n,
                                    .sub = m->sub.p,
                                    .sub_bytes = m->sub.n};
    struct core_name *nm;
    const int err = core_name_find(rows->s->core, rows->who->client, &id, &nm);
    if (!err)
        (void)name_put(rows, nm);
    return err;
}

/* Lists names in the order of their bytes. */
static void list_names(struct rows *rows)
{
    const struct msg_list *m = rows->asked;
    struct core_name *nm = NULL;
    struct core_name_list in = {.kind = m->table == KVC_TABLE_DOCUMENTS ? KVC_NAME_DOCUMENT
                                                                        : KVC_NAME_CONVERSATION,
                                .prefix = m->prefix.p,
                                .prefix_bytes = m->prefix.n,
                                .sub = m->sub.p,
                                .sub_bytes = m->sub.n,
                                .cursor = m->cursor.p,
                                .cursor_bytes = m->cursor.n};
    if (m->exact) {
        rows->err = name_one(rows, in.kind);
        return;
    }
    for (uint32_t looked = 0;;) {
        rows->err = core_name_next(rows->s->core, rows->who->client, &in, &nm);
        if (rows->err || !nm || !row_fits(rows))
            return;
        looked += name_put(rows, nm);
        if (looked >= NAMES_BLOCKS)
            rows->max = rows->list.count;
        in.cursor_bytes = rows->next_bytes = core_name_cursor(nm, rows->next);
        in.cursor = rows->next;
    }
}

static void block_put(void *ctx, const struct kvc_block_info *x)
{
    row_put(ctx, x);
}

static void list_blocks(struct rows *rows)
{
    const struct msg_list *m = rows->asked;
    uint64_t next = 0;
    const struct core_walk in = {.ns = m->ns,
                                 .group = m->group,
                                 .mode = m->mode,
                                 .key = m->keys.p,
                                 .keys = m->keys.n / KVC_KEY_BYTES,
                                 .depth = m->depth,
                                 .limit = rows->max,
                                 .places = &rows->s->places_left,
                                 .cursor = rows->after};
    rows->err = core_walk(rows->s->core, rows->who->client, &in, block_put, rows, &next);
    if (rows->err == KVC_E_NO_NAMESPACE)
        rows->why = "there is no such namespace";
    else if (rows->err == KVC_E_BAD_ARGUMENT)
        rows->why = "group: no such group in the namespace";
    else if (rows->err == KVC_E_GONE)
        rows->why = "the block at which the walk stood is gone; start again";
    rows->more = next != 0;
    rows_next(rows, next);
}

/* Reads a cursor: the number of the last row, as 8 bytes; for names it is core's. */
static bool cursor_read(const struct codec_bin *cursor, uint64_t *ret_after)
{
    struct cursor c;
    cursor_init(&c, cursor->p, cursor->n);
    *ret_after = cursor->n ? cursor_u64le(&c) : 0;
    return cursor_ok(&c) && cursor_left(&c) == 0;
}

/* Adds the rows behind `after` that the session may see, in the order of their numbers. */
typedef void(list_fn)(struct rows *rows);

static const struct {
    list_fn *fn;
    bool admin, names; /* admin: only with admin rights; names: the cursor is core's, of names */
} lists[] = {
    [KVC_TABLE_NAMESPACES] = {.fn = list_namespaces},
    [KVC_TABLE_SESSIONS] = {.fn = list_sessions},
    [KVC_TABLE_PINS] = {.fn = list_pins},
    [KVC_TABLE_QUOTAS] = {.fn = list_quotas, .admin = true},
    [KVC_TABLE_PATHS] = {.fn = list_paths, .admin = true},
    [KVC_TABLE_WRITES] = {.fn = list_writes, .admin = true},
    [KVC_TABLE_DEVICES] = {.fn = list_devices},
    [KVC_TABLE_RATES] = {.fn = list_rates},
    [KVC_TABLE_CONVERSATIONS] = {.fn = list_names, .names = true},
    [KVC_TABLE_DOCUMENTS] = {.fn = list_names, .names = true},
    [KVC_TABLE_BLOCKS] = {.fn = list_blocks},
};

static void rows_fill(struct rows *rows)
{
    const uint8_t table = rows->asked->table;
    if (!lists[table].names && !cursor_read(&rows->asked->cursor, &rows->after))
        rows->err = KVC_E_BAD_ARGUMENT;
    else
        lists[table].fn(rows);
    if (rows->err && !rows->why)
        rows->why = rows->err == KVC_E_BAD_ARGUMENT ? "cursor: not one that a reply had"
                                                    : ns_detail(rows->err);
}

void op_list(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_list msg;
    struct rows rows = {.s = s, .who = rq->se, .asked = &msg};
    rows.err = codec_dec_list(rq->buf, rq->len, &rq->head, &msg);
    rows.why = rows.err ? rq->head.detail : NULL;
    if (!rows.err && lists[msg.table].admin && svc__denied(rq))
        return;
    if (!rows.err) {
        rows.table = codec_table(msg.table);
        rows.max = msg.max ? msg.max : KVC_LIST_MAX;
        MUST(codec_rows_begin(&rows.list, s->out, sizeof s->out, &rq->head, rows.table) == 0);
        rows_fill(&rows);
    }
    if (rows.err) {
        reply_error(s, rq->se, &rq->head, rows.err, rows.why);
        return;
    }
    const struct codec_bin cursor = {.p = rows.next, .n = rows.more ? rows.next_bytes : 0};
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_rows_end(&rows.list, cursor));
}
