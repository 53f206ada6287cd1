/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl evict: evicts a name's blocks, or those that a filter matches; --dry-run counts
 * them.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "chain.h"
#include "json.h"
#include "key_find.h"
#include "named.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl evict FILTER... [--force] [--dry-run] [--json]\n"
    "       kvcachectl evict --doc NAME | --conv NAME [--sub NAME] [--dry-run] [--json]\n"
    "\n"
    "Evicts the blocks that match every FILTER, least recently used first. Each FILTER may be "
    "given once; --all and --force must be written in full. Blocks that are being read or written "
    "stay, and so do pinned blocks, blocks that documents and conversations reach, and blocks that "
    "all of these need; they are counted as kept.\n"
    "\n" ARGS_HERE "\n"
    "The output has the number of evicted blocks, their size, and the tiers that they were in: a "
    "block can be in host memory, on storage and on devices at once.\n"
    "\n"
    "Exit code 1 when nothing matched.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl evict --older-than 1h --dry-run\n"
    "  kvcachectl evict --doc handbook --dry-run\n"
    "  kvcachectl evict --tenant research --priority-below 35\n"
    "  kvcachectl ns && kvcachectl evict --ns 65538 --bytes 4GiB    (an ID that it showed)\n";

struct evict {
    struct kvc_evict_filter filter;
    struct key_arg key;
    bool all;
    const char *doc, *conv, *sub;
    const char *name; /* of the document or conversation */
    enum kvc_name_kind kind;
};

static const struct arg option_table[] = {
    {"--ns ID", "of this namespace; 'kvcachectl ns' lists them",
     ARG_DO_AT(struct evict, filter.ns, ctl_take_ns)},
    {"--prefix KEY",
     "this block and all that follow it: 64 hexadecimal digits, or the first 16 that tables show; "
     "--key is the same",
     ARG_PARSE(struct evict, key, key_arg_parse)},
    {"--key KEY", NULL, ARG_PARSE(struct evict, key, key_arg_parse)},
    {"--tenant NAME", "of this tenant", ARG_NAME(struct evict, filter.tenant, KVC_STRING_MAX - 1)},
    {"--model NAME", "of this model", ARG_NAME(struct evict, filter.model, KVC_STRING_MAX - 1)},
    {"--older-than TIME", "not used for so long: 90s, 10min, 2h, 1d",
     ARG_MS(struct evict, filter.older_than_ms, 1, UINT64_MAX)},
    {"--priority-below N", "of a lower priority than N (1 to 101); those without a wish have 35",
     ARG_COUNT(struct evict, filter.priority_below, 1, KVC_PRIORITY_MAX + 1)},
    {"--bytes SIZE", "stop when so much has been evicted: 512MiB, 4GiB",
     ARG_BYTES(struct evict, filter.bytes, 1, UINT64_MAX)},
    {"--all", "everything that you may evict", ARG_FLAG(struct evict, all), ARG_WHOLE_NAME},
    {"--force", "pinned and named blocks too; blocks that are being read or written still stay",
     ARG_FLAG(struct evict, filter.force), ARG_WHOLE_NAME},
    {"--dry-run", "say what would be evicted now, and change nothing",
     ARG_FLAG(struct evict, filter.dry_run)},
    {"--doc NAME",
     "this document: removes its name, and evicts its blocks except those that others share, pin, "
     "use or build on",
     ARG_NAME(struct evict, doc, KVC_STRING_MAX - 1)},
    {"--conv NAME", "the same for a conversation",
     ARG_NAME(struct evict, conv, KVC_STRING_MAX - 1)},
    {"--sub NAME", "for gateways: the sub-tenant that the document or conversation belongs to",
     ARG_NAME(struct evict, sub, KVC_STRING_MAX - 1)},
    {0},
};

static int evict_check(struct evict *e)
{
    struct kvc_evict_filter *f = &e->filter;
    f->key = e->key.digits ? e->key.key : NULL;
    e->name = e->doc ? e->doc : e->conv;
    e->kind = e->doc ? KVC_NAME_DOCUMENT : KVC_NAME_CONVERSATION;
    const bool filtered = f->ns || f->key || f->older_than_ms || f->bytes || f->tenant ||
                          f->model || f->priority_below;
    if ((e->doc && e->conv) || (e->name && (filtered || e->all || f->force)))
        return ctl_usage("which of them? --doc or --conv goes with --sub and --dry-run alone");
    if (e->sub && !e->name)
        return ctl_usage("--sub %s: of which --doc or --conv?", e->sub);
    if (!filtered && !e->all && !e->name)
        return ctl_usage("what? Give --ns, --prefix, --tenant, --model, --older-than, "
                         "--priority-below, --bytes, --doc or --conv, or --all for everything");
    if (filtered && e->all)
        return ctl_usage("--all means everything; leave it away, or the other filters");
    return 0;
}

/* ---- blocks that were evicted ---- */

static json_t *evicted_json(const struct evict *e, const struct kvc_evicted *done)
{
    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I}", "dry_run", e->filter.dry_run, "blocks",
                     (json_int_t)done->blocks, "bytes", (json_int_t)done->bytes, "kept_blocks",
                     (json_int_t)done->kept_blocks, "host_bytes", (json_int_t)done->host_bytes,
                     "nvme_bytes", (json_int_t)done->nvme_bytes, "device_bytes",
                     (json_int_t)done->device_bytes);
}

/* "12 blocks, 24.00 MiB (24.00 MiB in host memory, 8.00 MiB on storage)" */
static void amount(const struct kvc_evicted *done, char *text, size_t cap)
{
    static const char *const where[] = {"in host memory", "on storage", "on devices"};
    const uint64_t bytes[] = {done->host_bytes, done->nvme_bytes, done->device_bytes};
    char count[UNITS_COUNT_BYTES], size[UNITS_TEXT_BYTES];
    const char *before = " (";
    size_t n =
        (size_t)snprintf(text, cap, "%s block%s, %s", units_format_count(done->blocks, count),
                         done->blocks == 1 ? "" : "s", units_format_bytes(done->bytes, size));
    for (unsigned i = 0; i < 3; i++) {
        if (bytes[i] == 0 || n >= cap)
            continue;
        n += (size_t)snprintf(text + n, cap - n, "%s%s %s", before,
                              units_format_bytes(bytes[i], size), where[i]);
        before = ", ";
    }
    if (before[0] == ',' && n < cap)
        snprintf(text + n, cap - n, ")");
}

static int on_path(void *ctx, const void *row)
{
    const struct kvc_path *p = row;
    (void)ctx;
    if (p->state == KVC_PATH_OUT)
        fprintf(stderr,
                "kvcachectl: path %s is out: what is there and was not seen since the daemon "
                "started was not looked at; evict again when it is back\n",
                p->path);
    return 0;
}

/* Warns of paths that are out of service. Prints nothing for users who are no administrators, who
 * cannot see paths. */
static void warn_of_paths(const struct evict *e, struct ctl *ctl)
{
    if (!e->filter.dry_run)
        (void)!kvc_list(ctl->kvc, KVC_TABLE_PATHS, NULL, on_path, NULL);
}

/* ---- by name ---- */

static void print_name(const struct evict *e, const struct kvc_evicted *done,
                       const struct kvc_kept *kept)
{
    char text[256], stays[NAMED_STAYS_BYTES];
    amount(done, text, sizeof(text));
    ctl_line("%s %s '%s': %s%s", e->filter.dry_run ? "would evict" : "evicted",
             chain_kind_name(e->kind), e->name, text, named_stays(done, kept, stays));
}

static int evict_name(const struct evict *e, struct ctl *ctl)
{
    struct kvc_name_info info;
    struct kvc_evicted done;
    struct kvc_kept kept;
    /* If the name is missing, says so, and names the other kind. */
    int rc = chain_show_name(ctl, e->kind, e->name, e->sub, &info);
    if (rc != 0)
        return rc;
    rc = kvc_name_evict_kept(ctl->kvc, e->kind, e->name, e->sub, e->filter.dry_run, &done, &kept);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    warn_of_paths(e, ctl);
    if (ctl->json) {
        json_t *o = evicted_json(e, &done);
        json_object_set_new(o, "kind", json_string(chain_kind_name(e->kind)));
        json_object_set_new(o, "name", json_string(e->name));
        json_object_set_new(o, "kept", named_kept_json(&kept));
        json_print(o);
    } else {
        print_name(e, &done, &kept);
    }
    return CTL_OK;
}

/* ---- by filter ---- */

static void print_matching(const struct evict *e, const struct kvc_evicted *done)
{
    char text[256], kept[UNITS_COUNT_BYTES];
    amount(done, text, sizeof(text));
    printf("%s %s", e->filter.dry_run ? "would evict" : "evicted", text);
    if (done->kept_blocks)
        printf("; kept %s that %s in use, pinned or named",
               units_format_count(done->kept_blocks, kept), done->kept_blocks == 1 ? "is" : "are");
    putchar('\n');
}

static int evict_matching(struct evict *e, struct ctl *ctl)
{
    struct kvc_evicted done;
    int rc = e->filter.key ? key_find(ctl, e->filter.ns, &e->key) : 0;
    if (rc != 0)
        return rc;
    rc = kvc_evict(ctl->kvc, &e->filter, &done);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    warn_of_paths(e, ctl);
    if (ctl->json)
        json_print(evicted_json(e, &done));
    else
        print_matching(e, &done);
    return done.blocks + done.kept_blocks > 0 ? CTL_OK : CTL_NOTHING;
}

int cmd_evict(struct ctl *ctl, int argc, char **argv)
{
    struct evict e = {0};
    int rc = ctl_options(ctl, argc, argv, option_table, help, &e);
    if (rc == 0 && optind < argc)
        rc = ctl_usage("'%s' is not understood; a block is named with --prefix", argv[optind]);
    if (rc == 0)
        rc = evict_check(&e);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    return e.name ? evict_name(&e, ctl) : evict_matching(&e, ctl);
}
