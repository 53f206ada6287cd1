/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs that documents and conversations have in common. */
#include "named.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "key.h"
#include "progress.h"
#include "rows.h"
#include "units.h"

#define PRELOAD_STEP_MS 1000u

/* ---- the command line ---- */

int named_parse_ttl(const char *text, void *at, const char **ret_why)
{
    uint64_t ns = 0;
    const int rc = strcmp(text, "none") == 0 ? 0 : units_parse_duration(text, &ns, ret_why);
    if (rc == 0 && ns < 1000000 && strcmp(text, "none") != 0) {
        *ret_why = "must be at least 1ms";
        return -EINVAL;
    }
    *(uint64_t *)at = ns / 1000000;
    return rc;
}

static const struct arg sub_table[] = {NAMED_SUB, {0}};
static const struct arg save_table[] = {
    CTL_NS(struct named, ask.ns,
           "the namespace; 'kvcachectl ns' lists them. It must be your principal's"),
    {"--tip KEY",
     "the sequence's last block; 'kvcachectl blocks' shows what is there. As tables do, 16 of the "
     "64 digits are enough",
     ARG_PARSE(struct named, ask.tip, key_arg_parse)},
    {"--tokens FILE",
     "its token ids, u32 little-endian (a JSON array if FILE ends in .json). They are kept with "
     "the "
     "name; without --tip the keys are made of them",
     ARG_TEXT(struct named, ask.tokens)},
    NAMED_TTL("TIME", "the name ends when it was not used for so long (default: never)"),
    NAMED_PRIORITY,
    NAMED_PIN,
    {"--durable", "return when the blocks are on stable storage", ARG_FLAG(struct named, durable)},
    {0},
};
static const struct arg forget_table[] = {
    {"--evict",
     "they go too, but for what others share, pin, use or build on: how many stay for which reason "
     "is said",
     ARG_FLAG(struct named, evict), ARG_WHOLE_NAME},
    NAMED_SUB,
    {0},
};
static const struct arg preload_table[] = {
    {"--no-wait", "only begin", ARG_FLAG(struct named, no_wait)},
    NAMED_TTL("TIME|none", "another time to live"),
    NAMED_SUB,
    {0},
};

static int check_name(const struct named *n, bool must)
{
    if (must && !n->name)
        return ctl_usage("which one? Give its name; 'kvcachectl %s list' shows them",
                         n->kind == KVC_NAME_DOCUMENT ? "doc" : "conv");
    if (n->name && (strlen(n->name) >= KVC_STRING_MAX || (must && !n->name[0])))
        return ctl_usage("'%s': a name has 1 to %u bytes", n->name, KVC_STRING_MAX - 1);
    return 0;
}

int named_options2(struct named *n, int argc, char **argv, const struct arg *options,
                   const char *help, const char **ret_file)
{
    n->priority = n->ttl_ms = UINT64_MAX;
    const int rc = ctl_options(n->ctl, argc, argv, options, help, n);
    if (rc != 0)
        return rc;
    if (optind < argc)
        n->name = argv[optind++];
    if (ret_file && optind < argc)
        *ret_file = argv[optind++];
    if (optind < argc)
        return ctl_usage("'%s' is not understood: one name at a time", argv[optind]);
    return check_name(n, ret_file != NULL);
}

int named_options(struct named *n, int argc, char **argv, const struct arg *options,
                  const char *help, bool must)
{
    const int rc = named_options2(n, argc, argv, options, help, NULL);
    return rc == 0 ? check_name(n, must) : rc;
}

/* ---- whether the journal of names works ---- */

static int take_names_error(void *ctx, const struct kvc_stat *stat)
{
    if (strcmp(stat->name, "core.names_error") == 0)
        *(int *)ctx = (int)stat->value;
    return 0;
}

/* Returns 0 also if this session may not see the statistic, which only administrators may. */
int named_error(struct ctl *ctl)
{
    int error = 0;
    return kvc_stats(ctl->kvc, take_names_error, &error) < 0 ? 0 : error;
}

void named_tell_error(int error)
{
    if (error != 0)
        ctl_error("names are noted nowhere, for names.dir fails (%s): they end with the daemon, "
                  "whose log says what to do",
                  strerror(error));
}

json_t *named_error_json(int error)
{
    return error != 0 ? json_string(strerror(error)) : json_null();
}

/* ---- list ---- */

static enum kvc_table_id table_of(const struct named *n)
{
    return n->kind == KVC_NAME_DOCUMENT ? KVC_TABLE_DOCUMENTS : KVC_TABLE_CONVERSATIONS;
}

static const char *used_said(const void *row, char text[ROWS_SAID_BYTES])
{
    const struct kvc_name_info *x = row;
    char idle[UNITS_TEXT_BYTES];
    snprintf(text, ROWS_SAID_BYTES, "%s ago", units_format_duration_ms(x->idle_ms, idle));
    return text;
}

static void print_list(struct rows *rows, int error)
{
    json_t *object = json_object();
    json_object_set_new(object, rows->table->name, rows_array(rows));
    json_object_set_new(object, "names_error", named_error_json(error));
    json_print(object);
    rows_free(rows);
}

int named_list(struct named *n, int argc, char **argv, const char *help)
{
    static const struct rows_view view[] = {ROWS_PLAIN("NAME", "name"),
                                            ROWS_TENANT("TENANT"),
                                            ROWS_DASH("MODEL", "model"),
                                            ROWS_PLAIN(">NS", "ns"),
                                            ROWS_PLAIN(">TOKENS", "tokens"),
                                            ROWS_PLAIN(">CACHED", "tokens_cached"),
                                            ROWS_DASH(">SIZE", "bytes"),
                                            ROWS_DASH(">MEMORY", "bytes_in_memory"),
                                            ROWS_DASH(">DISK", "bytes_on_disk"),
                                            ROWS_PLAIN(">PRIORITY", "priority"),
                                            ROWS_EITHER("PINNED", "pinned", "yes", "-"),
                                            ROWS_SAY(">USED", used_said),
                                            ROWS_DASH(">TTL", "ttl_ms"),
                                            ROWS_END};
    struct rows rows;
    int rc = named_options(n, argc, argv, sub_table, help, false);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(n->ctl);
    if (rc != 0)
        return rc;
    const struct kvc_filter filter = {.prefix = n->name, .sub_tenant = n->sub};
    rc = rows_take_some(n->ctl, table_of(n), &filter, &rows);
    const int error = rc == 0 && rows.n > 0 ? named_error(n->ctl) : 0;
    char none[64];
    snprintf(none, sizeof(none), n->name ? "no %s begins with that" : "no %ss",
             chain_kind_name(n->kind));
    const int nothing = n->name && rows.n == 0 ? CTL_NOTHING : CTL_OK;
    if (rc == 0 && n->ctl->json)
        print_list(&rows, error);
    else
        rc = rows_show(n->ctl, rc, &rows, view, none);
    if (rc == 0)
        named_tell_error(error);
    return rc != 0 ? rc : nothing;
}

/* ---- show ---- */

static void print_info(const struct ctl *ctl, const struct kvc_name_info *x)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES], count[UNITS_COUNT_BYTES];
    char tip[KEY_TEXT_BYTES];
    struct table *t = table_create(NULL);
#define ROW(name, ...)           \
    table_cell(t, "%s", (name)); \
    table_cell(t, __VA_ARGS__)
    ROW(chain_kind_name(x->kind), "%s", x->name);
    ROW("principal", "%s", x->principal);
    ROW("tenant", "%s%s%s", x->tenant[0] ? x->tenant : "-", x->sub_tenant[0] ? "/" : "",
        x->sub_tenant);
    ROW("model", "%s", x->model);
    if (x->ns) {
        ROW("namespace", "%u", x->ns);
    } else {
        ROW("namespace", "not there; it comes back when a worker opens it");
    }
    ROW("tokens", "%s", units_format_count(x->tokens, count));
    ROW("cached", "%s of them", units_format_count(x->tokens_cached, count));
    ROW("blocks", "%s", units_format_count(x->blocks, count));
    ROW("size", "%s: %s in memory, %s on disk", units_format_bytes(x->bytes, a),
        units_format_bytes(x->bytes_in_memory, b), units_format_bytes(x->bytes_on_disk, c));
    ROW("made", "%s ago", units_format_duration_ms(x->age_ms, a));
    ROW("used", "%s ago", units_format_duration_ms(x->idle_ms, a));
    ROW("ttl", "%s", x->ttl_ms ? units_format_duration_ms(x->ttl_ms, a) : "none");
    ROW("priority", "%u", x->priority);
    ROW("pinned", "%s", x->pinned ? "yes" : "no");
    ROW("token ids", "%s", x->has_tokens ? "kept" : "not kept");
    ROW("tip", "%s", key_format(x->tip, tip));
#undef ROW
    table_print(t, stdout, ctl->colour);
    table_destroy(&t);
}

int named_show(struct named *n, int argc, char **argv, const char *help)
{
    struct kvc_name_info info;
    int rc = named_options(n, argc, argv, sub_table, help, true);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(n->ctl);
    if (rc == 0)
        rc = chain_show_name(n->ctl, n->kind, n->name, n->sub, &info);
    if (rc != 0)
        return rc;
    const int error = named_error(n->ctl);
    if (n->ctl->json) {
        json_t *object = json_object();
        rows_json(object, kvc_table(table_of(n)), &info, NULL);
        json_object_set_new(object, "names_error", named_error_json(error));
        json_print(object);
    } else {
        print_info(n->ctl, &info);
    }
    named_tell_error(error);
    return CTL_OK;
}

/* ---- put, save ---- */

int named_fail(const struct named *n, int error)
{
    const char *text = kvc_last_error(n->ctl->kvc);
    switch (error) {
    case KVC_E_PIN_LIMIT:
        ctl_error("%s; 'kvcachectl pin list' and 'kvcachectl doc list' show what is pinned, "
                  "'kvcachectl policy set --pin-limit SIZE' allows more",
                  text);
        return CTL_FAILED;
    case KVC_E_QUOTA:
        ctl_error("%s; 'kvcachectl quota show' says which and what is promised: forget names, "
                  "remove pins, or raise it with 'kvcachectl quota set'",
                  text);
        return CTL_FAILED;
    case KVC_E_GONE:
        ctl_error("nothing of it is cached; workers have to compute and store it first");
        return CTL_NOTHING;
    case KVC_E_LIMIT:
        ctl_error("%s; forget some: 'kvcachectl doc list', 'kvcachectl conv list'", text);
        return CTL_FAILED;
    default:
        return ctl_fail(n->ctl, error);
    }
}

static void print_put(const struct named *n, const struct kvc_named *done, uint32_t asked)
{
    char size[UNITS_TEXT_BYTES], tokens[UNITS_COUNT_BYTES], all[UNITS_COUNT_BYTES];
    const int error = named_error(n->ctl);
    if (n->ctl->json)
        json_print(json_pack("{s:s, s:I, s:I, s:I, s:o}", "name", n->name, "tokens",
                             (json_int_t)done->tokens, "bytes", (json_int_t)done->bytes,
                             "tokens_asked", (json_int_t)asked, "names_error",
                             named_error_json(error)));
    else
        ctl_line("%s '%s': %s tokens, %s", chain_kind_name(n->kind), n->name,
                 units_format_count(done->tokens, tokens), units_format_bytes(done->bytes, size));
    if (done->tokens < asked)
        ctl_error("only %s of %s tokens are cached, and the name stands for those",
                  units_format_count(done->tokens, tokens), units_format_count(asked, all));
    named_tell_error(error);
}

int named_put(const struct named *n, const struct chain *chain, const struct kvc_name_info *old)
{
    const bool pinned = n->pin || (old && old->pinned && !n->off);
    const struct kvc_name_options options = {
        .flags = (pinned ? KVC_F_PINNED : 0u) | (n->durable ? KVC_F_DURABLE : 0u),
        .priority = n->priority != UINT64_MAX ? (uint32_t)n->priority
                    : old                     ? old->priority
                                              : 0,
        .ttl_ms = n->ttl_ms != UINT64_MAX ? n->ttl_ms
                  : old                   ? old->ttl_ms
                                          : 0,
        .tokens = chain->ids};
    struct kvc_named done;
    const int rc = kvc_name_put(chain->ns, n->kind, n->name, &chain->seq, &options, &done);
    if (rc < 0)
        return named_fail(n, rc);
    print_put(n, &done, chain->seq.tokens);
    return CTL_OK;
}

int named_save(struct named *n, int argc, char **argv, const char *help)
{
    struct chain chain = {.ids = NULL};
    int rc = named_options(n, argc, argv, save_table, help, true);
    if (rc == 0)
        rc = chain_check(&n->ask);
    if (rc == 0)
        rc = chain_read(&n->ask);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(n->ctl);
    if (rc == 0)
        rc = chain_find(n->ctl, &n->ask, &chain);
    if (rc == 0)
        rc = named_put(n, &chain, NULL);
    chain_free(&chain);
    chain_ask_free(&n->ask);
    return rc;
}

/* ---- forget ---- */

const char *named_stays(const struct kvc_evicted *done, const struct kvc_kept *kept,
                        char text[NAMED_STAYS_BYTES])
{
    static const char *const why[] = {"shared with other names", "pinned", "in use",
                                      "built on by blocks that stay", "left by earlier turns"};
    const uint64_t n[] = {kept->named, kept->pinned, kept->used, kept->below, kept->passed};
    char count[UNITS_COUNT_BYTES];
    text[0] = '\0';
    if (done->kept_blocks == 0)
        return text;
    size_t at = (size_t)snprintf(text, NAMED_STAYS_BYTES,
                                 "; %s stay%s:", units_format_count(done->kept_blocks, count),
                                 done->kept_blocks == 1 ? "s" : "");
    const char *before = " ";
    for (unsigned i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
        if (n[i] == 0 || at >= NAMED_STAYS_BYTES)
            continue;
        at += (size_t)snprintf(text + at, NAMED_STAYS_BYTES - at, "%s%s %s", before,
                               units_format_count(n[i], count), why[i]);
        before = ", ";
    }
    return text;
}

json_t *named_kept_json(const struct kvc_kept *kept)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "named", (json_int_t)kept->named, "pinned",
                     (json_int_t)kept->pinned, "used", (json_int_t)kept->used, "below",
                     (json_int_t)kept->below, "passed", (json_int_t)kept->passed);
}

static void print_gone(const struct kvc_evicted *gone, const struct kvc_kept *kept)
{
    char blocks[UNITS_COUNT_BYTES], size[UNITS_TEXT_BYTES], stays[NAMED_STAYS_BYTES];
    printf("forgotten, and %s block%s of it, %s, %s gone%s\n",
           units_format_count(gone->blocks, blocks), gone->blocks == 1 ? "" : "s",
           units_format_bytes(gone->bytes, size), gone->blocks == 1 ? "is" : "are",
           named_stays(gone, kept, stays));
}

int named_forget(struct named *n, int argc, char **argv, const char *help)
{
    struct kvc_evicted gone = {0}; /* stays zero without --evict */
    struct kvc_kept kept = {0};
    struct kvc_name_info info;
    int rc = named_options(n, argc, argv, forget_table, help, true);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(n->ctl);
    if (rc == 0)
        rc = chain_show_name(n->ctl, n->kind, n->name, n->sub, &info);
    if (rc != 0)
        return rc;
    rc = n->evict ? kvc_name_evict_kept(n->ctl->kvc, n->kind, n->name, n->sub, false, &gone, &kept)
                  : kvc_name_forget(n->ctl->kvc, n->kind, n->name, n->sub, false);
    if (rc < 0)
        return named_fail(n, rc);
    if (n->ctl->json)
        json_print(json_pack("{s:s, s:b, s:I, s:I, s:I, s:o}", "name", n->name, "evicted", n->evict,
                             "blocks", (json_int_t)gone.blocks, "bytes", (json_int_t)gone.bytes,
                             "kept_blocks", (json_int_t)gone.kept_blocks, "kept",
                             named_kept_json(&kept)));
    else if (n->evict)
        print_gone(&gone, &kept);
    else
        printf("forgotten; its blocks are ordinary ones now\n");
    return CTL_OK;
}

/* ---- preload ---- */

static int load_step(const struct named *n, bool wait, uint64_t *ret_bytes)
{
    const int rc = kvc_name_load(n->ctl->kvc, n->kind, n->name, n->sub, n->ttl_ms, wait,
                                 wait ? PRELOAD_STEP_MS : 0, ret_bytes);
    return rc < 0 ? named_fail(n, rc) : 0;
}

/* Loads until all blocks are in memory, or until none has come for as long as an answer may take.
 */
static int named_load(const struct named *n, const struct kvc_name_info *info, uint64_t *ret_bytes)
{
    struct progress bar;
    uint64_t bytes = 0, before = 0;
    uint32_t idle_ms = 0;
    progress_begin(&bar, "loading", info->bytes);
    int rc = load_step(n, false, &bytes);
    while (rc == 0 && !n->no_wait && bytes < info->bytes && idle_ms < n->ctl->timeout_ms) {
        before = bytes;
        rc = load_step(n, true, &bytes);
        progress_show(&bar, bytes);
        /* A step that ends early has found that no more blocks will come. */
        idle_ms = bytes > before ? 0 : idle_ms + PRELOAD_STEP_MS;
    }
    progress_end(&bar);
    *ret_bytes = bytes;
    return rc;
}

int named_preload(struct named *n, int argc, char **argv, const char *help)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
    struct kvc_name_info info;
    uint64_t bytes = 0;
    int rc = named_options(n, argc, argv, preload_table, help, true);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(n->ctl);
    if (rc == 0)
        rc = chain_show_name(n->ctl, n->kind, n->name, n->sub, &info);
    if (rc == 0)
        rc = named_load(n, &info, &bytes);
    if (rc != 0)
        return rc;
    if (n->ctl->json)
        json_print(json_pack("{s:s, s:I, s:I}", "name", n->name, "bytes", (json_int_t)info.bytes,
                             "bytes_in_memory", (json_int_t)bytes));
    else
        printf("%s of %s in memory%s\n", units_format_bytes(bytes, a),
               units_format_bytes(info.bytes, b),
               bytes < info.bytes && n->no_wait ? "; the rest is on its way" : "");
    if (bytes >= info.bytes || n->no_wait)
        return CTL_OK;
    ctl_error("the rest does not come: host memory has no room for it, or it is not cached any "
              "more ('kvcachectl usage', 'kvcachectl %s show')",
              n->kind == KVC_NAME_DOCUMENT ? "doc" : "conv");
    return CTL_NOTHING;
}
