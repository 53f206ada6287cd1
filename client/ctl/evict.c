/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "ctl.h"
#include "json.h"
#include "key.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl evict FILTER... [--dry-run] [--json]\n"
    "\n"
    "Throws out the blocks that match every FILTER, least recently used first. Blocks that are "
    "being\n"
    "read or written stay, and so does what they need; they are counted as kept.\n"
    "\n"
    "  --ns ID            of this namespace; 'kvcachectl ns' lists them\n"
    "  --key KEY          this block (64 hexadecimal digits) and all that follow it\n"
    "  --older-than TIME  not used for so long: 90s, 10min, 2h, 1d\n"
    "  --bytes SIZE       stop when this much is gone: 512MiB, 4GiB\n"
    "  --all              everything that you may evict\n"
    "  --dry-run          say what would go, and change nothing\n"
    "\n"
    "Exit code 1 when nothing matched.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl evict --older-than 1h --dry-run\n"
    "  kvcachectl ns && kvcachectl evict --ns 65538 --bytes 4GiB    (an ID that it showed)\n";

struct evict {
    struct kvc_evict_filter filter;
    uint8_t key[KVC_KEY_BYTES];
    bool all;
};

static int take_age(struct evict *e, const char *value)
{
    const char *why = "";
    uint64_t ns;
    if (units_parse_duration(value, &ns, &why) < 0)
        return ctl_usage("--older-than %s: %s", value, why);
    if (ns < 1000000)
        return ctl_usage("--older-than %s: must be at least 1ms; --all is for any age", value);
    e->filter.older_than_ms = ns / 1000000;
    return 0;
}

static int take_bytes(struct evict *e, const char *value)
{
    const char *why = "";
    if (units_parse_bytes(value, &e->filter.bytes, &why) < 0)
        return ctl_usage("--bytes %s: %s", value, why);
    if (e->filter.bytes == 0)
        return ctl_usage("--bytes %s: must be more than nothing", value);
    return 0;
}

static int take_key(struct evict *e, const char *value)
{
    const char *why = "";
    if (key_parse(value, e->key, &why) < 0)
        return ctl_usage("--key %s: %s", value, why);
    e->filter.key = e->key;
    return 0;
}

static int take_option(void *ctx, int c, const char *value)
{
    struct evict *e = ctx;
    switch (c) {
    case 'n':
        return ctl_take_ns(value, &e->filter.ns);
    case 'k':
        return take_key(e, value);
    case 'o':
        return take_age(e, value);
    case 'b':
        return take_bytes(e, value);
    case 'a':
        e->all = true;
        return 0;
    case 'd':
        e->filter.dry_run = true;
        return 0;
    default:
        return ctl_usage("an option is not understood");
    }
}

static int check(const struct evict *e)
{
    const struct kvc_evict_filter *f = &e->filter;
    bool filtered = f->ns || f->key || f->older_than_ms || f->bytes;
    if (!filtered && !e->all)
        return ctl_usage(
            "what? Give --ns, --key, --older-than or --bytes, or --all for everything");
    if (filtered && e->all)
        return ctl_usage("--all means everything; leave it away, or the other filters");
    return 0;
}

static void print_table(const struct evict *e, const struct kvc_evicted *done)
{
    char blocks[UNITS_COUNT_BYTES], size[UNITS_TEXT_BYTES], kept[UNITS_COUNT_BYTES];
    printf("%s %s block%s, %s", e->filter.dry_run ? "would evict" : "evicted",
           units_format_count(done->blocks, blocks), done->blocks == 1 ? "" : "s",
           units_format_bytes(done->bytes, size));
    if (done->kept_blocks)
        printf("; kept %s that %s in use", units_format_count(done->kept_blocks, kept),
               done->kept_blocks == 1 ? "is" : "are");
    putchar('\n');
}

int cmd_evict(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {{"ns", required_argument, NULL, 'n'},
                                            {"key", required_argument, NULL, 'k'},
                                            {"older-than", required_argument, NULL, 'o'},
                                            {"bytes", required_argument, NULL, 'b'},
                                            {"all", no_argument, NULL, 'a'},
                                            {"dry-run", no_argument, NULL, 'd'},
                                            CTL_COMMON_OPTIONS,
                                            {0}};
    struct evict e = {0};
    int rc = ctl_options(ctl, argc, argv, ":h", options, help, take_option, &e);
    if (rc == 0 && optind < argc)
        rc = ctl_usage("'%s' is not understood; a block is named with --key", argv[optind]);
    if (rc == 0)
        rc = check(&e);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;

    struct kvc_evicted done;
    rc = kvc_evict(ctl->kvc, &e.filter, &done);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    if (ctl->json)
        json_print(json_pack("{s:b, s:I, s:I, s:I}", "dry_run", e.filter.dry_run, "blocks",
                             (json_int_t)done.blocks, "bytes", (json_int_t)done.bytes,
                             "kept_blocks", (json_int_t)done.kept_blocks));
    else
        print_table(&e, &done);
    return done.blocks + done.kept_blocks > 0 ? CTL_OK : CTL_NOTHING;
}
