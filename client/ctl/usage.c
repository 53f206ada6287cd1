/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl usage: who holds how much of each tier, added up by namespace, tenant, principal or
 * model.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpus.h"
#include "json.h"
#include "rows.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl usage [--by ns|tenant|principal|model] [--json]\n"
    "\n"
    "Who holds the room, in host memory, on storage and on devices; the largest first. Without "
    "admin rights: what your own principal holds.\n"
    "\n" ARGS_HERE "\n"
    "  HOST, NVME, HBM  bytes of room taken; a block can be in all of them. Quotas count the "
    "first\n"
    "                   two; what is on devices (HBM) is a further copy\n"
    "  PINNED, NAMED    bytes of pinned blocks; bytes that conversations and documents reach\n"
    "  PROMISED         bytes that names, pins and durable commits keep on storage, or will\n"
    "  LEASED           bytes under lease, which workers read now\n"
    "  SHARE            part of all the room taken\n"
    "\n"
    "Examples:\n"
    "  kvcachectl usage --by tenant\n"
    "  kvcachectl usage --json | jq '.rows[] | select(.host_bytes > 1e9) | .model'\n";

enum by { BY_NS, BY_TENANT, BY_PRINCIPAL, BY_MODEL, BY_NOTHING };
static const char *const by_names[] = {"ns", "tenant", "principal", "model"};

/* For each way of grouping: the columns that a group's namespaces share, and those that are added
 * up. */
static const char *const whose[][6] = {
    [BY_NS] = {"ns", "principal", "tenant", "sub_tenant", "model"},
    [BY_TENANT] = {"tenant", "sub_tenant"},
    [BY_PRINCIPAL] = {"principal"},
    [BY_MODEL] = {"model"},
    [BY_NOTHING] = {NULL}};
static const char *const parts[] = {"blocks",         "host_bytes",   "nvme_bytes",
                                    "device_bytes",   "pinned_bytes", "named_bytes",
                                    "promised_bytes", "leased_bytes", NULL};

struct usage {
    struct ctl *ctl;
    enum by by;
    struct rows rows; /* one row for each group: its first namespace, with the sums of all */
    struct kvc_ns_info total;
};

static uint64_t held(const struct kvc_ns_info *u)
{
    return u->host_bytes + u->nvme_bytes + u->device_bytes;
}

static void sum(const struct usage *u, void *to, const void *from)
{
    for (const char *const *name = parts; *name; name++) {
        const struct kvc_column *c = rows_column(u->rows.table, *name);
        uint64_t *at = (void *)((char *)to + c->at);
        *at += rows_number(c, from);
    }
}

static bool same(const struct usage *u, const void *a, const void *b)
{
    for (const char *const *name = whose[u->by]; *name; name++) {
        const struct kvc_column *c = rows_column(u->rows.table, *name);
        if (memcmp((const char *)a + c->at, (const char *)b + c->at, c->bytes) != 0)
            return false;
    }
    return true;
}

static int larger(const void *a, const void *b)
{
    const uint64_t x = held(a), y = held(b);
    return x < y ? 1 : x > y ? -1 : 0;
}

static void group(struct usage *u)
{
    size_t n = 0, at;
    for (size_t i = 0; i < u->rows.n; i++) {
        const struct kvc_ns_info *x = rows_at(&u->rows, i);
        sum(u, &u->total, x);
        for (at = 0; at < n && !same(u, rows_at(&u->rows, at), x); at++)
            ;
        if (at < n)
            sum(u, rows_at(&u->rows, at), x);
        else
            memmove(rows_at(&u->rows, n++), x, sizeof(*x));
    }
    u->rows.n = n;
    if (n > 0)
        qsort(u->rows.row, n, sizeof(struct kvc_ns_info), larger);
}

static json_t *row_json(const struct usage *u, enum by by, const void *row)
{
    json_t *item = json_object();
    rows_json(item, u->rows.table, row, whose[by]);
    rows_json(item, u->rows.table, row, parts);
    return item;
}

static void usage_print_json(const struct usage *u, const struct devices *devices)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < u->rows.n; i++)
        json_array_append_new(rows, row_json(u, u->by, rows_at(&u->rows, i)));
    json_print(json_pack("{s:s, s:o, s:o, s:o}", "by", by_names[u->by], "rows", rows, "total",
                         row_json(u, BY_NOTHING, &u->total), "devices", devices_use_json(devices)));
}

static const struct rows_view views[][6] = {
    [BY_NS] = {ROWS_PLAIN(">NS", "ns"), ROWS_PLAIN("PRINCIPAL", "principal"), ROWS_TENANT("TENANT"),
               ROWS_DASH("MODEL", "model"), ROWS_END},
    [BY_TENANT] = {ROWS_TENANT("TENANT"), ROWS_END},
    [BY_PRINCIPAL] = {ROWS_PLAIN("PRINCIPAL", "principal"), ROWS_END},
    [BY_MODEL] = {ROWS_DASH("MODEL", "model"), ROWS_END},
};
static const struct rows_view part_view[] = {ROWS_PLAIN(">BLOCKS", "blocks"),
                                             ROWS_DASH(">HOST", "host_bytes"),
                                             ROWS_DASH(">NVME", "nvme_bytes"),
                                             ROWS_DASH(">HBM", "device_bytes"),
                                             ROWS_DASH(">PINNED", "pinned_bytes"),
                                             ROWS_DASH(">NAMED", "named_bytes"),
                                             ROWS_DASH(">PROMISED", "promised_bytes"),
                                             ROWS_DASH(">LEASED", "leased_bytes"),
                                             ROWS_END};

static void cells(struct table *t, const struct usage *u, const struct kvc_ns_info *x)
{
    for (const struct rows_view *v = part_view; v->head; v++)
        rows_cell(t, u->rows.table, x, v);
    if (held(&u->total))
        table_cell(t, "%.1f %%", 100.0 * (double)held(x) / (double)held(&u->total));
    else
        table_cell(t, "-");
}

static void usage_print_table(const struct usage *u)
{
    const struct rows_view *view = views[u->by];
    const char *heads[TABLE_COLUMNS_MAX + 1] = {NULL};
    size_t n = 0;
    for (const struct rows_view *v = view; v->head; v++)
        heads[n++] = v->head;
    for (const struct rows_view *v = part_view; v->head; v++)
        heads[n++] = v->head;
    heads[n] = ">SHARE";
    struct table *t = table_create(heads);
    for (size_t i = 0; i < u->rows.n; i++) {
        for (const struct rows_view *v = view; v->head; v++)
            rows_cell(t, u->rows.table, rows_at(&u->rows, i), v);
        cells(t, u, rows_at(&u->rows, i));
    }
    table_cell(t, "total");
    for (const struct rows_view *v = view + 1; v->head; v++)
        table_cell(t, "%s", "");
    cells(t, u, &u->total);
    table_print(t, stdout, u->ctl->colour);
    table_destroy(&t);
}

static int parse_by(const char *text, void *at, const char **ret_why)
{
    for (unsigned i = 0; i < sizeof(by_names) / sizeof(by_names[0]); i++) {
        if (strcmp(text, by_names[i]) == 0) {
            *(enum by *)at = (enum by)i;
            return 0;
        }
    }
    *ret_why = "there are ns, tenant, principal and model";
    return -EINVAL;
}

static const struct arg option_table[] = {
    {"--by WHAT",
     "a row for each namespace (ns, the default), tenant with its sub-tenants, principal, or model",
     ARG_PARSE(struct usage, by, parse_by)},
    {"--json", "bytes as numbers", ARG_SHOWN},
    {0},
};

int cmd_usage(struct ctl *ctl, int argc, char **argv)
{
    struct usage u = {.ctl = ctl};
    struct devices devices = {.rows = {.n = 0}};
    int rc = ctl_options_only(ctl, argc, argv, option_table, help, &u);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    rc = rows_take(ctl, KVC_TABLE_NAMESPACES, &u.rows);
    if (rc >= 0)
        rc = devices_take(ctl, &devices);
    if (rc < 0) {
        rows_free(&u.rows);
        devices_free(&devices);
        return ctl_fail(ctl, rc);
    }
    group(&u);
    if (ctl->json)
        usage_print_json(&u, &devices);
    else if (u.rows.n == 0)
        puts("nothing is held: there are no namespaces yet");
    else
        usage_print_table(&u);
    if (!ctl->json)
        devices_print_use(&devices);
    rows_free(&u.rows);
    devices_free(&devices);
    return CTL_OK;
}
