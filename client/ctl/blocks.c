/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl blocks: lists cached blocks, from a place in the forest or from its roots on, with
 * tiers, copies and who keeps them.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "json.h"
#include "key_find.h"
#include "rows.h"
#include "units.h"

enum { PLACES_MAX = 64, INDENT_MAX = 24 };

static const char help[] =
    "Usage: kvcachectl blocks --key KEY [--ns ID] [--down] [--depth N] [--limit N] [--full] "
    "[--json]\n"
    "       kvcachectl blocks --ns ID [--group N] [--limit N] [--full] [--json]\n"
    "\n"
    "Lists cached blocks. With --key: that block and those before it, back to the first one of its "
    "sequence; with --down too: that block and all that follow it. Without --key: the first blocks "
    "of all sequences in a namespace.\n"
    "\n" ARGS_HERE "\n"
    "Exit code 1 when there is nothing: the block is not cached, or the namespace holds none.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl ns && kvcachectl blocks --ns 65538    (an ID that it showed)\n"
    "  kvcachectl blocks --down --depth 4 --key "
    "c0ffee0000000000000000000000000000000000000000000000000000000000\n";

struct place {
    uint32_t ns, group;
};

struct blocks {
    struct ctl *ctl;
    struct kvc_filter walk;
    struct key_arg key;
    bool down, full;
    uint64_t group, depth; /* UINT64_MAX: not given */
    uint64_t limit, shown;
    struct place place[PLACES_MAX];
    size_t n_places;
    uint32_t first_depth; /* of the walk's first block */
    bool cut;
    char why[160]; /* for a key that is nowhere */
    struct table *table;
};

/* ---- where the key is ---- */

static int add_place(void *ctx, const void *row)
{
    struct blocks *b = ctx;
    const struct kvc_block_info *x = row;
    if (x->state == KVC_BLOCK_ABSENT) {
        snprintf(b->why, sizeof(b->why), "%s", kvc_miss_text(x->reason));
        return 0;
    }
    bool wanted = b->group == UINT64_MAX || x->group == b->group;
    if (wanted && b->n_places < PLACES_MAX)
        b->place[b->n_places++] = (struct place){x->ns, x->group};
    return 0;
}

static int find_places(struct blocks *b)
{
    if (!b->walk.keys) {
        b->place[b->n_places++] = (struct place){b->walk.ns, b->walk.group};
        return 0;
    }
    int rc = key_find(b->ctl, b->walk.ns, &b->key);
    if (rc != 0)
        return rc;
    const struct kvc_filter where = {
        .mode = KVC_WALK_KEYS, .ns = b->walk.ns, .keys = b->key.key, .n = 1};
    rc = kvc_list(b->ctl->kvc, KVC_TABLE_BLOCKS, &where, add_place, b);
    return rc < 0 ? ctl_fail(b->ctl, rc) : 0;
}

/* ---- one block ---- */

static void blocks_print_json(const struct kvc_block_info *x)
{
    static const char *const all[] = {
        "key",    "parent",         "ns",    "group",  "depth",  "state",    "tokens",
        "shards", "shards_present", "bytes", "age_ms", "leases", "children", NULL};
    static const char *const where[] = {"chunk", "offset", NULL};
    const struct kvc_table *table = kvc_table(KVC_TABLE_BLOCKS);
    json_t *item = json_object();
    rows_json(item, table, x, all);
    if (x->tier != KVC_TIER_NONE)
        rows_json(item, table, x, (const char *const[]){"tier", NULL});
    if (x->tier & KVC_TIER_HOST)
        rows_json(item, table, x, where);
    json_print(item);
}

static const char *say_shards(const void *row, char text[ROWS_SAID_BYTES])
{
    const struct kvc_block_info *x = row;
    snprintf(text, ROWS_SAID_BYTES, "%u/%u", x->shards_present, x->shards);
    return text;
}

static const char *say_used(const void *row, char text[ROWS_SAID_BYTES])
{
    char age[UNITS_TEXT_BYTES];
    const struct kvc_block_info *x = row;
    snprintf(text, ROWS_SAID_BYTES, "%s ago", units_format_duration_ms(x->age_ms, age));
    return text;
}

static const char *say_where(const void *row, char text[ROWS_SAID_BYTES])
{
    return rows_where(row, text);
}

static const struct rows_view blocks_view[] = {
    ROWS_PLAIN("KEY", "key"), /* indented, or whole */
    ROWS_PLAIN(">NS", "ns"),         ROWS_PLAIN(">GROUP", "group"),
    ROWS_PLAIN(">DEPTH", "depth"),   ROWS_PLAIN("STATE", "state"),
    ROWS_PLAIN(">TOKENS", "tokens"), ROWS_SAY(">SHARDS", say_shards),
    ROWS_PLAIN(">SIZE", "bytes"),    ROWS_SAY(">USED", say_used),
    ROWS_PLAIN(">LEASES", "leases"), ROWS_PLAIN(">CHILDREN", "children"),
    ROWS_SAY("WHERE", say_where),    ROWS_END};

static void add_row(struct blocks *b, const struct kvc_block_info *x)
{
    char key[KEY_TEXT_BYTES];
    uint32_t below = b->down ? x->depth - b->first_depth : 0;
    int indent = 2 * (int)(below < INDENT_MAX / 2 ? below : INDENT_MAX / 2);
    table_cell(b->table, "%*s%.*s", indent, "", b->full ? KEY_DIGITS : (int)KEY_SHORT,
               key_format(x->key, key));
    for (const struct rows_view *v = blocks_view + 1; v->head; v++)
        rows_cell(b->table, kvc_table(KVC_TABLE_BLOCKS), x, v);
}

static int blocks_add(void *ctx, const void *row)
{
    struct blocks *b = ctx;
    const struct kvc_block_info *x = row;
    if (b->limit && b->shown == b->limit) {
        b->cut = true;
        return 1;
    }
    if (b->shown == 0)
        b->first_depth = x->depth;
    b->shown++;
    if (b->ctl->json)
        blocks_print_json(x);
    else
        add_row(b, x);
    return 0;
}

/* ---- the command ---- */

/* Prints where a key is that is in several groups or namespaces (different models, same tokens). */
static int say_ambiguous(const struct blocks *b)
{
    char text[240] = "";
    size_t n = 0;
    for (size_t i = 0; i < b->n_places && n < sizeof(text); i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s--ns %u --group %u", i ? ", " : "",
                              b->place[i].ns, b->place[i].group);
    return ctl_usage("the key is cached in several places; say which: %s", text);
}

static int blocks_show(struct blocks *b)
{
    if (b->n_places > 1)
        return say_ambiguous(b);
    if (b->n_places == 0) {
        ctl_error("that block is not cached: %s", b->why[0] ? b->why : "another group has it");
        return CTL_NOTHING;
    }
    b->walk.ns = b->place[0].ns;
    b->walk.group = b->place[0].group;
    int rc = kvc_list(b->ctl->kvc, KVC_TABLE_BLOCKS, &b->walk, blocks_add, b);
    if (!b->ctl->json && b->shown > 0)
        table_print(b->table, stdout, b->ctl->colour);
    if (rc == KVC_E_GONE) {
        ctl_error("blocks were evicted while they were being listed; run it again for the rest");
        return CTL_FAILED;
    }
    if (rc < 0)
        return ctl_fail(b->ctl, rc);
    if (b->cut)
        ctl_error("there are more than %llu; raise --limit to see them",
                  (unsigned long long)b->limit);
    if (b->shown == 0)
        ctl_error(b->walk.keys ? "that block is not cached any more"
                               : "nothing is cached in that group of the namespace");
    return b->shown > 0 ? CTL_OK : CTL_NOTHING;
}

static const struct arg option_table[] = {
    {"--key KEY",
     "where to begin: 64 hexadecimal digits, or the first 16 that tables show. (From token ids "
     "alone no key can be made here: it depends on the namespace's seed, which only the workers "
     "get.)",
     ARG_PARSE(struct blocks, key, key_arg_parse)},
    {"--ns ID", "the namespace; 'kvcachectl ns' lists them. With --key it may be left out",
     ARG_DO_AT(struct blocks, walk.ns, ctl_take_ns)},
    {"--group N",
     "the group of layers, where a namespace has several (default: with --key the one that has it, "
     "else 0)",
     ARG_COUNT(struct blocks, group, 0, KVC_GROUPS_MAX - 1)},
    {"--down",
     "list the blocks behind KEY instead of those before it; two blocks with the same parent are "
     "two sequences that part at it",
     ARG_FLAG(struct blocks, down)},
    {"--depth N", "with --down: so many blocks behind KEY at most",
     ARG_COUNT(struct blocks, depth, 0, UINT32_MAX)},
    {"--limit N", "stop after N blocks (default 1000; 0 = never)",
     ARG_COUNT(struct blocks, limit, 0, UINT64_MAX)},
    {"--full", "whole keys in the table, not just their first 16 digits",
     ARG_FLAG(struct blocks, full)},
    {"--json", "one object per line and block", ARG_SHOWN},
    {0},
};

static int blocks_check(struct blocks *b, int argc, char **argv)
{
    if (optind < argc)
        return ctl_usage("'%s' is not understood; a block is named with --key", argv[optind]);
    if (b->key.digits) {
        b->walk.keys = b->key.key;
        b->walk.n = 1;
    }
    if (!b->walk.keys && !b->walk.ns)
        return ctl_usage("which? Give --key for a block, or --ns for the sequences of a namespace");
    if (!b->walk.keys && b->down)
        return ctl_usage("--down from which block? Give its --key");
    if (b->depth != UINT64_MAX && !b->down)
        return ctl_usage("--depth is how far to go --down; give that too");
    b->walk.group = b->group == UINT64_MAX ? 0 : (uint32_t)b->group;
    b->walk.depth = b->depth == UINT64_MAX ? 0 : (uint32_t)b->depth;
    b->walk.mode = !b->walk.keys ? KVC_WALK_ROOTS : b->down ? KVC_WALK_DOWN : KVC_WALK_UP;
    return 0;
}

int cmd_blocks(struct ctl *ctl, int argc, char **argv)
{
    const char *heads[sizeof(blocks_view) / sizeof(blocks_view[0])] = {NULL};
    struct blocks b = {.ctl = ctl, .group = UINT64_MAX, .depth = UINT64_MAX, .limit = 1000};
    int rc = ctl_options(ctl, argc, argv, option_table, help, &b);
    if (rc == 0)
        rc = blocks_check(&b, argc, argv);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc == 0)
        rc = find_places(&b);
    if (rc == 0) {
        for (size_t i = 0; blocks_view[i].head; i++)
            heads[i] = blocks_view[i].head;
        b.table = table_create(heads);
        rc = blocks_show(&b);
    }
    table_destroy(&b.table);
    return rc;
}
