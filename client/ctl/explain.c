/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachectl explain: where the block of a key is, or why it is not cached. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "json.h"
#include "key_find.h"
#include "rows.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl explain KEY... [--ns ID] [--json]\n"
    "\n"
    "Shows where the blocks with these keys are, or why they are not cached. A KEY has 64 "
    "hexadecimal digits, as the library's kvc_hash_chain() makes them; of a cached block the first "
    "16 are enough, as tables show them.\n"
    "\n" ARGS_HERE "\n"
    "Exit code 1 when at least one key is not cached.\n"
    "\n"
    "Example:\n"
    "  kvcachectl explain --ns 65538 "
    "c0ffee0000000000000000000000000000000000000000000000000000000000\n";

struct explain {
    struct ctl *ctl;
    uint32_t ns;
    struct key_arg *given; /* one per key */
    uint8_t *keys;
    uint32_t n;
    struct rows rows;
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

static void why_absent(const struct kvc_block_info *x, char *text, size_t cap)
{
    char fields[160];
    field_names(x->detail, fields, sizeof(fields));
    if (x->reason == KVC_MISS_NAMESPACE && fields[0])
        snprintf(text, cap, "%s: %s", kvc_miss_text(x->reason), fields);
    else
        snprintf(text, cap, "%s", kvc_miss_text(x->reason));
}

static json_t *explain_json(const struct kvc_block_info *x)
{
    static const char *const both[] = {"ns", "group", "state", NULL};
    static const char *const absent[] = {"reason", NULL};
    static const char *const there[] = {"tier",           "tokens", "bytes",    "shards",
                                        "shards_present", "leases", "children", "age_ms",
                                        "chunk",          "offset", NULL};
    const struct kvc_table *table = kvc_table(KVC_TABLE_BLOCKS);
    json_t *item = json_object();
    char key[KEY_TEXT_BYTES], fields[160];
    json_object_set_new(item, "key", json_string(key_format(x->key, key)));
    rows_json(item, table, x, both);
    rows_json(item, table, x, x->state == KVC_BLOCK_ABSENT ? absent : there);
    if (x->state == KVC_BLOCK_ABSENT) {
        field_names(x->reason == KVC_MISS_NAMESPACE ? x->detail : 0, fields, sizeof(fields));
        json_object_set_new(item, "text", json_string(kvc_miss_text(x->reason)));
        json_object_set_new(item, "fields", json_string(fields));
    }
    return item;
}

static const char *explain_say(const void *row, char text[ROWS_SAID_BYTES])
{
    const struct kvc_block_info *x = row;
    char where[ROWS_SAID_BYTES], size[UNITS_TEXT_BYTES], age[UNITS_TEXT_BYTES];
    if (x->state == KVC_BLOCK_ABSENT) {
        why_absent(x, text, ROWS_SAID_BYTES);
        return text;
    }
    const bool out = x->reason == KVC_MISS_NOT_LOADED && !(x->tier & KVC_TIER_HOST);
    snprintf(text, ROWS_SAID_BYTES,
             "%.80s%s; %s, %u tokens, %u of %u shards, leases %u, children %u, last used %s ago",
             rows_where(x, where), out ? ", out of service" : "",
             units_format_bytes(x->bytes, size), x->tokens, x->shards_present, x->shards, x->leases,
             x->children, units_format_duration_ms(x->age_ms, age));
    return text;
}

/* Completes the shortened keys of the command line. */
static int find_keys(struct explain *e)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < e->n; i++) {
        rc = key_find(e->ctl, e->ns, &e->given[i]);
        memcpy(e->keys + (size_t)i * KVC_KEY_BYTES, e->given[i].key, KVC_KEY_BYTES);
    }
    return rc;
}

static bool explain_present(const struct explain *e, const uint8_t *key)
{
    for (size_t i = 0; i < e->rows.n; i++) {
        const struct kvc_block_info *x = rows_at(&e->rows, i);
        if (x->state == KVC_BLOCK_PRESENT && memcmp(x->key, key, sizeof(x->key)) == 0)
            return true;
    }
    return false;
}

static int explain_ask(struct explain *e)
{
    e->rows.table = kvc_table(KVC_TABLE_BLOCKS);
    for (uint32_t first = 0; first < e->n; first += KVC_LIST_MAX) {
        const struct kvc_filter filter = {.mode = KVC_WALK_KEYS,
                                          .ns = e->ns,
                                          .keys = e->keys + (size_t)first * KVC_KEY_BYTES,
                                          .n = e->n - first < KVC_LIST_MAX ? e->n - first
                                                                           : KVC_LIST_MAX};
        const int rc = kvc_list(e->ctl->kvc, KVC_TABLE_BLOCKS, &filter, rows_add, &e->rows);
        if (rc < 0)
            return ctl_fail(e->ctl, rc);
    }
    return 0;
}

static int explain_show(const struct explain *e)
{
    static const struct rows_view view[] = {ROWS_PLAIN("KEY", "key"),
                                            ROWS_DASH(">NS", "ns"),
                                            ROWS_PLAIN(">GROUP", "group"),
                                            ROWS_PLAIN("STATE", "state"),
                                            ROWS_SAY("WHERE, OR WHY NOT", explain_say),
                                            ROWS_END};
    json_t *array = e->ctl->json ? json_array() : NULL;
    for (size_t i = 0; array && i < e->rows.n; i++)
        json_array_append_new(array, explain_json(rows_at(&e->rows, i)));
    if (array)
        json_print(json_pack("{s:o}", "blocks", array));
    else
        rows_table(&e->rows, view, e->ctl->colour);
    for (uint32_t i = 0; i < e->n; i++)
        if (!explain_present(e, e->keys + (size_t)i * KVC_KEY_BYTES))
            return CTL_NOTHING;
    return CTL_OK;
}

static const struct arg option_table[] = {
    {"--ns ID",
     "look in this namespace only; 'kvcachectl ns' lists them (default: in all namespaces that you "
     "may see)",
     ARG_DO_AT(struct explain, ns, ctl_take_ns)},
    {0},
};

static int take_keys(struct explain *e, int argc, char **argv)
{
    if (optind == argc)
        return ctl_usage("which block? Give its key, 64 hexadecimal digits or the first 16");
    e->n = (uint32_t)(argc - optind);
    e->given = calloc(e->n, sizeof(*e->given));
    e->keys = calloc(e->n, KVC_KEY_BYTES);
    if (!e->given || !e->keys) {
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
    struct explain e = {.ctl = ctl};
    int rc = ctl_options(ctl, argc, argv, option_table, help, &e);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = take_keys(&e, argc, argv);
    if (rc == 0)
        rc = ctl_connect(ctl);
    if (rc == 0)
        rc = find_keys(&e);
    if (rc == 0)
        rc = explain_ask(&e);
    if (rc == 0)
        rc = explain_show(&e);
    rows_free(&e.rows);
    free(e.given);
    free(e.keys);
    return rc;
}
