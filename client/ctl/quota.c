/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachectl quota: shows and sets limits and shares of tenants, sub-tenants and namespaces. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "plain.h"
#include "rows.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl quota show [--json]\n"
    "       kvcachectl quota set WHOSE [--host SIZE|none] [--nvme SIZE|none]\n"
    "                                  [--host-share SIZE] [--nvme-share SIZE]\n"
    "       kvcachectl quota clear WHOSE\n"
    "\n"
    "How much a tenant, one of its sub-tenants, or a namespace may hold, and is guaranteed. Needs "
    "admin rights. Changes last until the daemon ends; then the quotas of its configuration hold "
    "again.\n"
    "\n"
    "WHOSE is one of\n"
    "  --tenant NAME               all blocks of this tenant\n"
    "  --tenant NAME --sub NAME    all blocks of this sub-tenant\n"
    "  --ns ID                     one namespace; 'kvcachectl ns' lists them\n"
    "\n" ARGS_HERE "\n"
    "Limits and shares that 'set' is not given stay as they are. 'clear' removes all of them.\n"
    "\n"
    "Exit code 1: 'clear' found no quota.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl quota set --tenant research --host 64GiB --host-share 16GiB\n"
    "  kvcachectl quota show\n";

#define NONE UINT64_MAX
enum part { HOST, NVME, HOST_SHARE, NVME_SHARE, PARTS };

struct ask {
    struct ctl *ctl;
    struct kvc_quota quota;
    const char *tenant, *sub;
    struct ctl_size part[PARTS];
    bool found; /* the list has the quota, and `quota` is filled in from it */
};

/* The options that name the owner stand above this list in the help. */
static const struct arg option_table[] = {
    {"--host SIZE|none", "most bytes in host memory; blocks above it are evicted",
     ARG_PARSE(struct ask, part[HOST], ctl_parse_size)},
    {"--nvme SIZE|none",
     "most bytes on storage. Blocks that names, pins and durable commits keep there stay until "
     "these end; a limit below their bytes is reached then. New ones are refused at once",
     ARG_PARSE(struct ask, part[NVME], ctl_parse_size)},
    {"--host-share SIZE",
     "guaranteed room: others may borrow it while it lies idle, and lose it first",
     ARG_PARSE(struct ask, part[HOST_SHARE], ctl_parse_size)},
    {"--nvme-share SIZE",
     "the same on storage. All shares together must fit host memory, or seven eighths of storage, "
     "else they are refused.",
     ARG_PARSE(struct ask, part[NVME_SHARE], ctl_parse_size)},
    {"--tenant NAME", NULL, ARG_NAME(struct ask, tenant, KVC_STRING_MAX - 1)},
    {"--sub NAME", NULL, ARG_NAME(struct ask, sub, KVC_STRING_MAX - 1)},
    CTL_NS(struct ask, quota.ns, NULL),
    {0},
};

static uint64_t *part_of(struct kvc_quota *q, enum part part)
{
    uint64_t *const parts[PARTS] = {&q->host_limit, &q->nvme_limit, &q->host_share, &q->nvme_share};
    return parts[part];
}

/* ---- showing ---- */

static const char *whose_text(const void *row, char text[ROWS_SAID_BYTES])
{
    const struct kvc_quota *q = row;
    if (q->scope == KVC_SCOPE_NS)
        snprintf(text, ROWS_SAID_BYTES, "ns %u", q->ns);
    else
        snprintf(text, ROWS_SAID_BYTES, "%s%s%s", q->tenant, q->sub_tenant[0] ? "/" : "",
                 q->sub_tenant);
    return plain(text);
}

static const struct rows_view view[] = {
    ROWS_SAY("WHOSE", whose_text),           ROWS_PLAIN(">HOST", "host_bytes"),
    ROWS_PLAIN(">LIMIT", "host_limit"),      ROWS_DASH(">SHARE", "host_share"),
    ROWS_DASH(">PROMISED", "host_promised"), ROWS_PLAIN(">NVME", "nvme_bytes"),
    ROWS_PLAIN(">LIMIT", "nvme_limit"),      ROWS_DASH(">SHARE", "nvme_share"),
    ROWS_DASH(">PROMISED", "nvme_promised"), ROWS_END};

/* Explains why an owner may hold more than its limit, and how that ends. */
static void explain_tier(const struct kvc_quota *q, bool nvme)
{
    const uint64_t limit = nvme ? q->nvme_limit : q->host_limit;
    const uint64_t held = nvme ? q->nvme_bytes : q->host_bytes;
    const uint64_t promised = nvme ? q->nvme_promised : q->host_promised;
    char whose[ROWS_SAID_BYTES], a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    if (limit == NONE || (held <= limit && promised <= limit))
        return;
    printf("%s %s: ", whose_text(q, whose), nvme ? "on storage" : "in host memory");
    if (held > limit)
        printf("%s are held, %s above the limit%s\n", units_format_bytes(held, a),
               units_format_bytes(held - limit, b),
               promised > limit ? "" : "; that leaves in steps, but for what is in use");
    if (promised <= limit)
        return;
    fputs(held > limit ? "  " : "", stdout);
    printf("%s %s: the limit is reached when %s of that have ended, and nothing more is promised "
           "until then.\n  %s\n",
           units_format_bytes(promised, a),
           nvme ? "are promised to names, pins and durable commits, and stay"
                : "are pinned, and stay",
           units_format_bytes(promised - limit, b),
           nvme ? "'kvcachectl doc list', 'conv list' and 'pin list' show them; 'doc forget', "
                  "'conv forget' and 'pin rm' end them, 'evict' what durable commits stored"
                : "'kvcachectl pin list' shows them, 'pin rm' ends one");
}

static void print_rows(const struct ctl *ctl, const struct rows *rows)
{
    rows_print(ctl, rows, view,
               "no quotas: everyone may hold what there is; 'kvcachectl quota set' makes one");
    for (size_t i = 0; i < rows->n && !ctl->json; i++) {
        explain_tier(rows_at(rows, i), false);
        explain_tier(rows_at(rows, i), true);
    }
}

static int quota_show(struct ctl *ctl, int argc, char **argv)
{
    struct rows rows;
    int rc = ctl_options_only(ctl, argc, argv, option_table, help, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    rc = rows_take(ctl, KVC_TABLE_QUOTAS, &rows);
    if (rc < 0)
        rc = ctl_fail(ctl, rc);
    else
        print_rows(ctl, &rows);
    rows_free(&rows);
    return rc;
}

/* ---- changing ---- */

static bool part_given(const struct ask *a)
{
    for (unsigned i = 0; i < PARTS; i++)
        if (a->part[i].given)
            return true;
    return false;
}

static int take_scope(struct ask *a)
{
    struct kvc_quota *q = &a->quota;
    snprintf(q->tenant, sizeof(q->tenant), "%s", a->tenant ? a->tenant : "");
    snprintf(q->sub_tenant, sizeof(q->sub_tenant), "%s", a->sub ? a->sub : "");
    for (unsigned i = 0; i < PARTS; i++) {
        const bool no_share = i >= HOST_SHARE && a->part[i].bytes == NONE;
        if (a->part[i].given)
            *part_of(q, (enum part)i) = no_share ? 0 : a->part[i].bytes;
    }
    if (q->sub_tenant[0] && !q->tenant[0])
        return ctl_usage("whose? --sub %s is of which --tenant", q->sub_tenant);
    if (!q->tenant[0] && !q->ns)
        return ctl_usage("whose? Give --tenant NAME, with or without --sub NAME, or --ns ID");
    if (q->tenant[0] && q->ns)
        return ctl_usage("whose? --tenant and --ns are one too many");
    q->scope = q->ns ? KVC_SCOPE_NS : q->sub_tenant[0] ? KVC_SCOPE_SUB : KVC_SCOPE_TENANT;
    return 0;
}

/* Keeps the values that the command line does not have. */
static int quota_merge(void *ctx, const void *row)
{
    struct ask *a = ctx;
    const struct kvc_quota *old = row;
    struct kvc_quota *q = &a->quota, from = *old;
    /* a row may also name the owner of the namespace. */
    const bool named = q->scope != KVC_SCOPE_NS;
    if (old->scope != q->scope || old->ns != q->ns ||
        (named &&
         (strcmp(old->tenant, q->tenant) != 0 || strcmp(old->sub_tenant, q->sub_tenant) != 0)))
        return 0;
    q->host_bytes = old->host_bytes;
    q->nvme_bytes = old->nvme_bytes;
    q->host_promised = old->host_promised;
    q->nvme_promised = old->nvme_promised;
    for (unsigned i = 0; i < PARTS; i++)
        if (!a->part[i].given)
            *part_of(q, (enum part)i) = *part_of(&from, (enum part)i);
    a->found = true;
    return 0;
}

static int print_result(const struct ask *a, bool cleared)
{
    struct ask now = *a;
    memset(now.part, 0, sizeof(now.part));
    now.found = false;
    const int rc = kvc_list(a->ctl->kvc, KVC_TABLE_QUOTAS, NULL, quota_merge, &now);
    if (rc < 0)
        return ctl_fail(a->ctl, rc);
    const struct rows one = {.table = kvc_table(KVC_TABLE_QUOTAS), .n = 1, .row = &now.quota};
    if (a->ctl->json) {
        json_t *object = json_object();
        rows_json(object, one.table, one.row, NULL);
        json_print(object);
    } else if (cleared) {
        puts("cleared");
    } else {
        print_rows(a->ctl, &one);
    }
    return CTL_OK;
}

/* Reads the quota as it is, and merges the changes of the command line into it. */
static int quota_prepare(struct ask *a)
{
    int rc = take_scope(a);
    if (rc == 0)
        rc = ctl_connect(a->ctl);
    if (rc != 0)
        return rc;
    rc = kvc_list(a->ctl->kvc, KVC_TABLE_QUOTAS, NULL, quota_merge, a);
    return rc < 0 ? ctl_fail(a->ctl, rc) : 0;
}

static int set(struct ctl *ctl, int argc, char **argv)
{
    struct ask a = {.ctl = ctl, .quota = {.host_limit = NONE, .nvme_limit = NONE}};
    int rc = ctl_options_only(ctl, argc, argv, option_table, help, &a);
    if (rc == 0 && !part_given(&a))
        rc = ctl_usage("how much? Give --host, --nvme, --host-share or --nvme-share");
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = quota_prepare(&a);
    if (rc != 0)
        return rc;
    const struct kvc_quota *q = &a.quota;
    if (q->host_share > q->host_limit || q->nvme_share > q->nvme_limit)
        return ctl_usage("the share on %s would be above the limit there: give both, or less",
                         q->host_share > q->host_limit ? "host" : "nvme");
    rc = kvc_quota_set(ctl->kvc, q);
    return rc < 0 ? ctl_fail(ctl, rc) : print_result(&a, false);
}

static int quota_clear(struct ctl *ctl, int argc, char **argv)
{
    struct ask a = {.ctl = ctl};
    int rc = ctl_options_only(ctl, argc, argv, option_table, help, &a);
    if (rc == 0 && part_given(&a))
        rc = ctl_usage("'clear' takes all of it away; say whose it is, and no more");
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = quota_prepare(&a);
    if (rc != 0)
        return rc;
    if (!a.found) {
        ctl_error("there is no such quota; 'kvcachectl quota show' lists them");
        return CTL_NOTHING;
    }
    a.quota.host_limit = a.quota.nvme_limit = NONE;
    a.quota.host_share = a.quota.nvme_share = 0;
    rc = kvc_quota_set(ctl->kvc, &a.quota);
    return rc < 0 ? ctl_fail(ctl, rc) : print_result(&a, true);
}

int cmd_quota(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_cmd verbs[] = {
        {"show", quota_show}, {"set", set}, {"clear", quota_clear}, {NULL, NULL}};
    return ctl_verbs(ctl, argc, argv, option_table, help, verbs);
}
