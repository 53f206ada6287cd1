/* SPDX-License-Identifier: Apache-2.0 */
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
    "admin\n"
    "rights. Lasts until the daemon ends; those of its configuration come back then.\n"
    "\n"
    "WHOSE is one of\n"
    "  --tenant NAME               all that is this tenant's\n"
    "  --tenant NAME --sub NAME    all that is this sub-tenant's\n"
    "  --ns ID                     one namespace; 'kvcachectl ns' lists them\n"
    "\n"
    "  --host SIZE|none    never more than this in host memory; what is above it is evicted\n"
    "  --nvme SIZE|none    the same on storage, but for what is promised: what names, pins and\n"
    "                      durable commits keep there stays until they end, and a limit below "
    "that\n"
    "                      is reached then. New ones are refused at once\n"
    "  --host-share SIZE   guaranteed room: others may borrow it while it lies idle, and lose it\n"
    "                      first\n"
    "  --nvme-share SIZE   the same on storage\n"
    "                      All shares together are at most what there is: more is refused.\n"
    "\n"
    "What 'set' is not told stays as it is. 'clear' takes all of it away.\n"
    "\n"
    "Exit code 1: 'clear' when there was none.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl quota set --tenant research --host 64GiB --host-share 16GiB\n"
    "  kvcachectl quota show\n";

#define NONE UINT64_MAX
enum part { HOST, NVME, HOST_SHARE, NVME_SHARE, PARTS };
static const char *const part_names[PARTS] = {"host", "nvme", "host-share", "nvme-share"};

struct ask {
    struct ctl *ctl;
    struct kvc_quota quota;
    bool given[PARTS];
    bool found; /* in the list, and `quota` filled in from there */
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

/* Why one that holds more than its limit does, and what ends that. */
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
    static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
    struct rows rows;
    int rc = ctl_options_only(ctl, argc, argv, options, help, NULL, NULL);
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

static int quota_take_text(const char *name, const char *value, char to[KVC_STRING_MAX])
{
    if (strlen(value) == 0 || strlen(value) >= KVC_STRING_MAX)
        return ctl_usage("--%s '%s': must be a name of 1 to %u bytes", name, value,
                         KVC_STRING_MAX - 1);
    snprintf(to, KVC_STRING_MAX, "%s", value);
    return 0;
}

static int take_part(struct ask *a, enum part part, const char *value)
{
    uint64_t *to = part_of(&a->quota, part);
    a->given[part] = true;
    if (strcmp(value, "none") == 0) {
        *to = part >= HOST_SHARE ? 0 : NONE;
        return 0;
    }
    return ctl_take_bytes(part_names[part], value, to);
}

static int quota_take_option(void *ctx, int c, const char *value)
{
    struct ask *a = ctx;
    switch (c) {
    case 't':
        return quota_take_text("tenant", value, a->quota.tenant);
    case 's':
        return quota_take_text("sub", value, a->quota.sub_tenant);
    case 'n':
        return ctl_take_ns(value, &a->quota.ns);
    case 300 + HOST:
    case 300 + NVME:
    case 300 + HOST_SHARE:
    case 300 + NVME_SHARE:
        return take_part(a, (enum part)(c - 300), value);
    default:
        return ctl_usage("an option is not understood");
    }
}

static int take_scope(struct kvc_quota *q)
{
    if (q->sub_tenant[0] && !q->tenant[0])
        return ctl_usage("whose? --sub %s is of which --tenant", q->sub_tenant);
    if (!q->tenant[0] && !q->ns)
        return ctl_usage("whose? Give --tenant NAME, with or without --sub NAME, or --ns ID");
    if (q->tenant[0] && q->ns)
        return ctl_usage("whose? --tenant and --ns are one too many");
    q->scope = q->ns ? KVC_SCOPE_NS : q->sub_tenant[0] ? KVC_SCOPE_SUB : KVC_SCOPE_TENANT;
    return 0;
}

/* What is not given is what it was. */
static int quota_merge(void *ctx, const void *row)
{
    struct ask *a = ctx;
    const struct kvc_quota *old = row;
    struct kvc_quota *q = &a->quota, from = *old;
    const bool named = q->scope != KVC_SCOPE_NS; /* the list may say whose a namespace is, too */
    if (old->scope != q->scope || old->ns != q->ns ||
        (named &&
         (strcmp(old->tenant, q->tenant) != 0 || strcmp(old->sub_tenant, q->sub_tenant) != 0)))
        return 0;
    q->host_bytes = old->host_bytes;
    q->nvme_bytes = old->nvme_bytes;
    q->host_promised = old->host_promised;
    q->nvme_promised = old->nvme_promised;
    for (unsigned i = 0; i < PARTS; i++)
        if (!a->given[i])
            *part_of(q, (enum part)i) = *part_of(&from, (enum part)i);
    a->found = true;
    return 0;
}

static int print_result(const struct ask *a, bool cleared)
{
    struct ask now = *a;
    memset(now.given, 0, sizeof(now.given));
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

/* Before anything is changed: the quota as it is, and what is to change of it. */
static int quota_prepare(struct ask *a)
{
    int rc = take_scope(&a->quota);
    if (rc == 0)
        rc = ctl_connect(a->ctl);
    if (rc != 0)
        return rc;
    rc = kvc_list(a->ctl->kvc, KVC_TABLE_QUOTAS, NULL, quota_merge, a);
    return rc < 0 ? ctl_fail(a->ctl, rc) : 0;
}

#define WHOSE_OPTIONS                                                                \
    {"tenant", required_argument, NULL, 't'}, {"sub", required_argument, NULL, 's'}, \
    {                                                                                \
        "ns", required_argument, NULL, 'n'                                           \
    }

static int set(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        WHOSE_OPTIONS,
        {"host", required_argument, NULL, 300 + HOST},
        {"nvme", required_argument, NULL, 300 + NVME},
        {"host-share", required_argument, NULL, 300 + HOST_SHARE},
        {"nvme-share", required_argument, NULL, 300 + NVME_SHARE},
        CTL_COMMON_OPTIONS,
        {0}};
    struct ask a = {.ctl = ctl, .quota = {.host_limit = NONE, .nvme_limit = NONE}};
    int rc = ctl_options_only(ctl, argc, argv, options, help, quota_take_option, &a);
    bool given = false;
    for (unsigned i = 0; i < PARTS; i++)
        given = given || a.given[i];
    if (rc == 0 && !given)
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
    static const struct option options[] = {WHOSE_OPTIONS, CTL_COMMON_OPTIONS, {0}};
    struct ask a = {.ctl = ctl};
    int rc = ctl_options_only(ctl, argc, argv, options, help, quota_take_option, &a);
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
    return ctl_verbs(ctl, argc, argv, help, verbs);
}
