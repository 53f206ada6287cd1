/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachectl ns: lists namespaces with what each holds. */
#include "rows.h"

static const char help[] =
    "Usage: kvcachectl ns [--json]\n"
    "\n"
    "Lists the namespaces that you may see: a namespace is one model with all that must be equal "
    "for its KV blocks to be usable, of one principal and tenant. Its number is what --ns takes.\n"
    "\n"
    "Example:\n"
    "  kvcachectl ns --json | jq '.namespaces[] | select(.bytes > 1e9) | .model'\n";

int cmd_ns(struct ctl *ctl, int argc, char **argv)
{
    static const struct rows_view view[] = {ROWS_PLAIN(">NS", "ns"),
                                            ROWS_DASH("MODEL", "model"),
                                            ROWS_DASH("DTYPE", "dtype"),
                                            ROWS_PLAIN("PRINCIPAL", "principal"),
                                            ROWS_TENANT("TENANT"),
                                            ROWS_PLAIN(">GROUPS", "groups"),
                                            ROWS_PLAIN(">SHARDS", "shards"),
                                            ROWS_PLAIN(">TOKENS/BLOCK", "block_tokens"),
                                            ROWS_PLAIN(">BYTES/BLOCK", "block_bytes"),
                                            ROWS_PLAIN(">BLOCKS", "blocks"),
                                            ROWS_PLAIN(">SIZE", "bytes"),
                                            ROWS_END};
    struct rows rows;
    int rc = ctl_options_only(ctl, argc, argv, NULL, help, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    rc = rows_take(ctl, KVC_TABLE_NAMESPACES, &rows);
    return rows_show(ctl, rc, &rows, view,
                     "no namespaces yet; they appear when a worker opens one");
}
