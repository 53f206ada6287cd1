/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "json.h"
#include "key_find.h"
#include "table.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl explain KEY... [--ns ID] [--json]\n"
    "\n"
    "Where the blocks with these keys are, or why they are not there. A KEY is 64 hexadecimal\n"
    "digits, as the library's kvc_hash_chain() makes them, or of a block that is cached the first\n"
    "16, as tables show them.\n"
    "\n"
    "  --ns ID  look in this namespace only; 'kvcachectl ns' lists them (default: in all that you\n"
    "           may see)\n"
    "\n"
    "Exit code 1 when at least one key is not cached.\n"
    "\n"
    "Example:\n"
    "  kvcachectl explain --ns 65538 "
    "c0ffee0000000000000000000000000000000000000000000000000000000000\n";

struct explain {
    struct ctl *ctl;
    uint32_t ns;
    struct key_arg *given; /* one per key, and so the two below */
    uint8_t *keys;
    bool *present;
    uint32_t n;
    uint32_t first; /* key of the request under way */
    struct table *table;
    json_t *array;
};

/* "dtype, lora": the fields of the namespaces that differ. */
static void field_names(uint32_t bits, char *text, size_t cap)
{
    static const char *const names[] = {
#define X(bit, name, string) [bit] = string,
        KVC_NS_FIELD_MAP(X)
#undef X
    };
    size_t n = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < KVC_NS_FIELD_COUNT && n < cap; i++) {
        if (bits & (1u << i))
            n += (size_t)snprintf(text + n, cap - n, "%s%s", n ? ", " : "", names[i]);
    }
}

static void why_absent(const struct kvc_explanation *x, char *text, size_t cap)
{
    char fields[160];
    field_names(x->detail, fields, sizeof(fields));
    if (x->reason == KVC_MISS_NAMESPACE && fields[0])
        snprintf(text, cap, "%s: %s", kvc_miss_text(x->reason), fields);
    else
        snprintf(text, cap, "%s", kvc_miss_text(x->reason));
}

static void add_json(struct explain *e, const char *key, const struct kvc_explanation *x)
{
    char fields[160];
    field_names(x->reason == KVC_MISS_NAMESPACE ? x->detail : 0, fields, sizeof(fields));
    json_t *item = json_pack("{s:s, s:I, s:I, s:s}", "key", key, "ns", (json_int_t)x->ns, "group",
                             (json_int_t)x->group, "state", ctl_state_name(x->state));
    json_t *more =
        x->state == KVC_BLOCK_ABSENT
            ? json_pack("{s:s, s:s, s:s}", "reason", kvc_miss_name(x->reason), "text",
                        kvc_miss_text(x->reason), "fields", fields)
            : json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "tier",
                        ctl_tier_names(x->tiers), "tokens", (json_int_t)x->tokens, "bytes",
                        (json_int_t)x->bytes, "shards", (json_int_t)x->shards, "shards_present",
                        (json_int_t)x->shards_present, "leases", (json_int_t)x->leases, "children",
                        (json_int_t)x->children, "age_ms", (json_int_t)x->age_ms, "chunk",
                        (json_int_t)x->chunk, "offset", (json_int_t)x->off);
    json_object_update(item, more);
    json_decref(more);
    json_array_append_new(e->array, item);
}

static void add_row(struct explain *e, const char *key, const struct kvc_explanation *x)
{
    char text[240];
    table_cell(e->table, "%.16s", key);
    table_cell(e->table, x->ns ? "%u" : "-", x->ns);
    table_cell(e->table, "%u", x->group);
    table_cell(e->table, "%s", ctl_state_name(x->state));
    if (x->state == KVC_BLOCK_ABSENT) {
        why_absent(x, text, sizeof(text));
        table_cell(e->table, "%s", text);
        return;
    }
    char where[80], size[UNITS_TEXT_BYTES], age[UNITS_TEXT_BYTES];
    snprintf(where, sizeof(where), "%s%s", ctl_tier_names(x->tiers),
             x->reason == KVC_MISS_NOT_LOADED ? ", out of service" : "");
    if (x->tiers & KVC_TIER_HOST)
        snprintf(where, sizeof(where), "%s chunk %u at %llu", ctl_tier_names(x->tiers), x->chunk,
                 (unsigned long long)x->off);
    table_cell(e->table,
               "%s; %s, %u tokens, %u of %u shards, leases %u, children %u, last used %s ago",
               where, units_format_bytes(x->bytes, size), x->tokens, x->shards_present, x->shards,
               x->leases, x->children, units_format_duration_ms(x->age_ms, age));
}

static int explain_add(void *ctx, const struct kvc_explanation *x)
{
    struct explain *e = ctx;
    uint32_t i = e->first + x->key;
    if (i >= e->n)
        return 0;
    char key[KEY_TEXT_BYTES];
    key_format(e->keys + (size_t)i * KVC_KEY_BYTES, key);
    e->present[i] |= x->state == KVC_BLOCK_PRESENT;
    if (e->array)
        add_json(e, key, x);
    else
        add_row(e, key, x);
    return 0;
}

/* Makes whole keys of those that were given. */
static int find_keys(struct explain *e)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < e->n; i++) {
        rc = key_find(e->ctl, e->ns, &e->given[i]);
        memcpy(e->keys + (size_t)i * KVC_KEY_BYTES, e->given[i].key, KVC_KEY_BYTES);
    }
    return rc;
}

static int explain_ask(struct explain *e)
{
    for (e->first = 0; e->first < e->n; e->first += KVC_EXPLAIN_MAX) {
        uint32_t n = e->n - e->first < KVC_EXPLAIN_MAX ? e->n - e->first : KVC_EXPLAIN_MAX;
        int rc = kvc_explain(e->ctl->kvc, e->ns, e->keys + (size_t)e->first * KVC_KEY_BYTES, n,
                             explain_add, e);
        if (rc < 0)
            return ctl_fail(e->ctl, rc);
    }
    if (e->array)
        json_print(json_pack("{s:O}", "blocks", e->array));
    else if (table_rows(e->table) > 0)
        table_print(e->table, stdout, e->ctl->colour);
    else
        puts("not cached in any namespace that you may see");
    for (uint32_t i = 0; i < e->n; i++) {
        if (!e->present[i])
            return CTL_NOTHING;
    }
    return CTL_OK;
}

static int explain_take_option(void *ctx, int c, const char *value)
{
    struct explain *e = ctx;
    return c == 'n' ? ctl_take_ns(value, &e->ns) : ctl_usage("an option is not understood");
}

static int take_keys(struct explain *e, int argc, char **argv)
{
    if (optind == argc)
        return ctl_usage("which block? Give its key, 64 hexadecimal digits or the first 16");
    e->n = (uint32_t)(argc - optind);
    e->given = calloc(e->n, sizeof(*e->given));
    e->keys = calloc(e->n, KVC_KEY_BYTES);
    e->present = calloc(e->n, sizeof(*e->present));
    if (!e->given || !e->keys || !e->present) {
        ctl_error("out of memory");
        return CTL_FAILED;
    }
    for (uint32_t i = 0; i < e->n; i++) {
        const char *why = "";
        if (key_parse(argv[optind + (int)i], &e->given[i], &why) < 0)
            return ctl_usage("%s: %s", argv[optind + (int)i], why);
    }
    return 0;
}

int cmd_explain(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"ns", required_argument, NULL, 'n'}, CTL_COMMON_OPTIONS, {0}};
    static const char *const heads[] = {"KEY", ">NS", ">GROUP", "STATE", "WHERE, OR WHY NOT", NULL};
    struct explain e = {.ctl = ctl};
    int rc = ctl_options(ctl, argc, argv, ":h", options, help, explain_take_option, &e);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = take_keys(&e, argc, argv);
    if (rc == 0)
        rc = ctl_connect(ctl);
    if (rc == 0)
        rc = find_keys(&e);
    if (rc == 0) {
        e.table = table_create(heads);
        e.array = ctl->json ? json_array() : NULL;
        rc = explain_ask(&e);
    }
    json_decref(e.array);
    table_destroy(&e.table);
    free(e.given);
    free(e.keys);
    free(e.present);
    return rc;
}
