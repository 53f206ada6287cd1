/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpus.h"
#include "json.h"
#include "table.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl usage [--by ns|tenant|principal|model] [--json]\n"
    "\n"
    "Who holds the room, in host memory, on storage and on devices; the largest first. Without "
    "admin\n"
    "rights: what your own principal holds.\n"
    "\n"
    "  --by WHAT  a row for each namespace (ns, the default), tenant with its sub-tenants,\n"
    "             principal, or model\n"
    "  --json     bytes as numbers\n"
    "\n"
    "  HOST, NVME, HBM  bytes of room taken; a block can be in all of them. Quotas count the "
    "first\n"
    "                   two; what is on devices (HBM) is a further copy\n"
    "  PINNED, NAMED    of them, pinned; reached by conversations and documents\n"
    "  PROMISED         what names, pins and durable commits keep on storage, or will\n"
    "  LEASED           read right now\n"
    "  SHARE            of all the room taken\n"
    "\n"
    "\n"
    "Examples:\n"
    "  kvcachectl usage --by tenant\n"
    "  kvcachectl usage --json | jq '.rows[] | select(.host_bytes > 1e9) | .model'\n";

enum by { BY_NS, BY_TENANT, BY_PRINCIPAL, BY_MODEL, BY_NOTHING };
static const char *const by_names[] = {"ns", "tenant", "principal", "model"};

struct usage {
    struct ctl *ctl;
    enum by by;
    struct kvc_usage *row; /* of a group of namespaces: their sums; ns 0 when it has several */
    size_t n, cap;
    struct kvc_usage total;
};

static uint64_t held(const struct kvc_usage *u)
{
    return u->host_bytes + u->nvme_bytes + u->device_bytes;
}

static void sum(struct kvc_usage *to, const struct kvc_usage *from)
{
    to->blocks += from->blocks;
    to->host_bytes += from->host_bytes;
    to->nvme_bytes += from->nvme_bytes;
    to->pinned_bytes += from->pinned_bytes;
    to->named_bytes += from->named_bytes;
    to->leased_bytes += from->leased_bytes;
    to->device_bytes += from->device_bytes;
    to->promised_bytes += from->promised_bytes;
}

static bool same(enum by by, const struct kvc_usage *a, const struct kvc_usage *b)
{
    switch (by) {
    case BY_TENANT:
        return strcmp(a->tenant, b->tenant) == 0 && strcmp(a->sub, b->sub) == 0;
    case BY_PRINCIPAL:
        return strcmp(a->principal, b->principal) == 0;
    case BY_MODEL:
        return strcmp(a->model, b->model) == 0;
    default:
        return false;
    }
}

static int add(void *ctx, const struct kvc_usage *x)
{
    struct usage *u = ctx;
    sum(&u->total, x);
    for (size_t i = 0; i < u->n; i++) {
        if (same(u->by, &u->row[i], x)) {
            sum(&u->row[i], x);
            return 0;
        }
    }
    if (u->n == u->cap) {
        u->cap = u->cap ? 2 * u->cap : 64;
        struct kvc_usage *more = realloc(u->row, u->cap * sizeof(*more));
        if (!more) {
            fputs("kvcachectl: out of memory\n", stderr);
            abort();
        }
        u->row = more;
    }
    u->row[u->n++] = *x;
    return 0;
}

static int larger(const void *a, const void *b)
{
    const uint64_t x = held(a), y = held(b);
    return x < y ? 1 : x > y ? -1 : 0;
}

static json_t *row_json(enum by by, const struct kvc_usage *x)
{
    json_t *item = json_object();
    if (by == BY_NS)
        json_object_set_new(item, "ns", json_integer(x->ns));
    if (by == BY_NS || by == BY_PRINCIPAL)
        json_object_set_new(item, "principal", json_string(x->principal));
    if (by == BY_NS || by == BY_TENANT) {
        json_object_set_new(item, "tenant", json_string(x->tenant));
        json_object_set_new(item, "sub_tenant", json_string(x->sub));
    }
    if (by == BY_NS || by == BY_MODEL)
        json_object_set_new(item, "model", json_string(x->model));
    json_object_update_new(
        item, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "blocks", (json_int_t)x->blocks,
                        "host_bytes", (json_int_t)x->host_bytes, "nvme_bytes",
                        (json_int_t)x->nvme_bytes, "device_bytes", (json_int_t)x->device_bytes,
                        "pinned_bytes", (json_int_t)x->pinned_bytes, "named_bytes",
                        (json_int_t)x->named_bytes, "promised_bytes", (json_int_t)x->promised_bytes,
                        "leased_bytes", (json_int_t)x->leased_bytes));
    return item;
}

static void print_json(const struct usage *u, const struct devices *devices)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < u->n; i++)
        json_array_append_new(rows, row_json(u->by, &u->row[i]));
    json_print(json_pack("{s:s, s:o, s:o, s:o}", "by", by_names[u->by], "rows", rows, "total",
                         row_json(BY_NOTHING, &u->total), "devices", devices_use_json(devices)));
}

static void cells(struct table *t, const struct usage *u, const struct kvc_usage *x)
{
    char text[UNITS_TEXT_BYTES], count[UNITS_COUNT_BYTES];
    const uint64_t parts[] = {x->host_bytes,  x->nvme_bytes,     x->device_bytes, x->pinned_bytes,
                              x->named_bytes, x->promised_bytes, x->leased_bytes};
    table_cell(t, "%s", units_format_count(x->blocks, count));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        table_cell(t, "%s", parts[i] ? units_format_bytes(parts[i], text) : "-");
    if (held(&u->total))
        table_cell(t, "%.1f %%", 100.0 * (double)held(x) / (double)held(&u->total));
    else
        table_cell(t, "-");
}

static void who(struct table *t, enum by by, const struct kvc_usage *x)
{
    if (by == BY_NS) {
        table_cell(t, "%u", x->ns);
        table_cell(t, "%s", x->principal);
    }
    if (by == BY_NS || by == BY_TENANT)
        table_cell(t, "%s%s%s", x->tenant[0] ? x->tenant : "-", x->sub[0] ? "/" : "", x->sub);
    if (by == BY_PRINCIPAL)
        table_cell(t, "%s", x->principal);
    if (by == BY_NS || by == BY_MODEL)
        table_cell(t, "%s", x->model[0] ? x->model : "-");
}

static void print_table(const struct usage *u)
{
#define PARTS \
    ">BLOCKS", ">HOST", ">NVME", ">HBM", ">PINNED", ">NAMED", ">PROMISED", ">LEASED", ">SHARE", NULL
    static const char *const by_ns[] = {">NS", "PRINCIPAL", "TENANT", "MODEL", PARTS};
    static const char *const by_tenant[] = {"TENANT", PARTS};
    static const char *const by_principal[] = {"PRINCIPAL", PARTS};
    static const char *const by_model[] = {"MODEL", PARTS};
#undef PARTS
    static const char *const *const heads[] = {by_ns, by_tenant, by_principal, by_model};
    struct table *t = table_create(heads[u->by]);
    for (size_t i = 0; i < u->n; i++) {
        who(t, u->by, &u->row[i]);
        cells(t, u, &u->row[i]);
    }
    table_cell(t, "total");
    for (int i = 0; u->by == BY_NS && i < 3; i++)
        table_cell(t, "%s", "");
    cells(t, u, &u->total);
    table_print(t, stdout, u->ctl->colour);
    table_destroy(&t);
}

static int take_option(void *ctx, int c, const char *value)
{
    struct usage *u = ctx;
    if (c != 'b')
        return ctl_usage("an option is not understood");
    for (unsigned i = 0; i < sizeof(by_names) / sizeof(by_names[0]); i++) {
        if (strcmp(value, by_names[i]) == 0) {
            u->by = (enum by)i;
            return 0;
        }
    }
    return ctl_usage("--by %s: there are ns, tenant, principal and model", value);
}

int cmd_usage(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"by", required_argument, NULL, 'b'}, CTL_COMMON_OPTIONS, {0}};
    struct usage u = {.ctl = ctl};
    struct devices devices;
    int rc = ctl_options_only(ctl, argc, argv, options, help, take_option, &u);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    rc = kvc_usage(ctl->kvc, add, &u);
    if (rc >= 0)
        rc = devices_take(ctl, &devices);
    if (rc < 0) {
        free(u.row);
        return ctl_fail(ctl, rc);
    }
    if (u.n > 0)
        qsort(u.row, u.n, sizeof(*u.row), larger);
    if (ctl->json)
        print_json(&u, &devices);
    else if (u.n == 0)
        puts("nothing is held: there are no namespaces yet");
    else
        print_table(&u);
    if (!ctl->json)
        devices_print_use(&devices);
    free(u.row);
    return CTL_OK;
}
