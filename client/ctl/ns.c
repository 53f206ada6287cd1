/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>

#include "ctl.h"
#include "json.h"
#include "listing.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl ns [--json]\n"
    "\n"
    "Lists the namespaces that you may see: a namespace is one model with all that must be equal "
    "for\n"
    "its KV blocks to be usable, of one principal and tenant. Its number is what --ns takes.\n"
    "\n"
    "Example:\n"
    "  kvcachectl ns --json | jq '.namespaces[] | select(.bytes > 1e9) | .model'\n";

static int add(void *ctx, const struct kvc_ns_info *ns)
{
    struct listing *l = ctx;
    if (l->array) {
        json_t *item =
            json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "ns",
                      (json_int_t)ns->ns, "principal", ns->principal, "tenant", ns->tenant,
                      "sub_tenant", ns->sub, "model", ns->model, "dtype", ns->dtype, "shards",
                      (json_int_t)ns->shards, "groups", (json_int_t)ns->groups, "block_tokens",
                      (json_int_t)ns->block_tokens, "block_bytes", (json_int_t)ns->block_bytes,
                      "blocks", (json_int_t)ns->blocks, "bytes", (json_int_t)ns->bytes);
        /* NULL when a name is not UTF-8; the others are still worth listing. */
        if (item)
            json_array_append_new(l->array, item);
        else
            ctl_error("namespace %u has a name that is not UTF-8; left out", ns->ns);
        return 0;
    }
    char block[UNITS_TEXT_BYTES], size[UNITS_TEXT_BYTES], count[UNITS_COUNT_BYTES];
    table_cell(l->table, "%u", ns->ns);
    table_cell(l->table, "%s", ns->model[0] ? ns->model : "-");
    table_cell(l->table, "%s", ns->dtype[0] ? ns->dtype : "-");
    table_cell(l->table, "%s", ns->principal);
    table_cell(l->table, "%s%s%s", ns->tenant[0] ? ns->tenant : "-", ns->sub[0] ? "/" : "",
               ns->sub);
    table_cell(l->table, "%u", ns->groups);
    table_cell(l->table, "%u", ns->shards);
    table_cell(l->table, "%u", ns->block_tokens);
    table_cell(l->table, "%s", units_format_bytes(ns->block_bytes, block));
    table_cell(l->table, "%s", units_format_count(ns->blocks, count));
    table_cell(l->table, "%s", units_format_bytes(ns->bytes, size));
    return 0;
}

int cmd_ns(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
    static const char *const columns[] = {">NS",          "MODEL",   "DTYPE",   "PRINCIPAL",
                                          "TENANT",       ">GROUPS", ">SHARDS", ">TOKENS/BLOCK",
                                          ">BYTES/BLOCK", ">BLOCKS", ">SIZE",   NULL};
    int rc = ctl_options_only(ctl, argc, argv, options, help, NULL, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    struct listing l = listing_begin(ctl, columns);
    rc = kvc_ns_list(ctl->kvc, add, &l);
    return listing_end(ctl, &l, rc, "namespaces",
                       "no namespaces yet; they appear when a worker opens one", CTL_OK);
}
