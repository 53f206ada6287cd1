/* SPDX-License-Identifier: Apache-2.0 */
#include "rows.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "key.h"
#include "units.h"

static void *or_abort(void *memory)
{
    if (!memory) {
        fputs("kvcachectl: out of memory\n", stderr);
        abort();
    }
    return memory;
}

/* ---- taking ---- */

void *rows_at(const struct rows *rows, size_t i)
{
    return (char *)rows->row + i * rows->table->row_bytes;
}

int rows_add(void *to, const void *row)
{
    struct rows *rows = to;
    if (rows->n == rows->cap) {
        rows->cap = rows->cap ? 2 * rows->cap : 64;
        rows->row = or_abort(realloc(rows->row, rows->cap * rows->table->row_bytes));
    }
    memcpy(rows_at(rows, rows->n++), row, rows->table->row_bytes);
    return 0;
}

int rows_take_some(struct ctl *ctl, enum kvc_table_id table, const struct kvc_filter *filter,
                   struct rows *ret_rows)
{
    *ret_rows = (struct rows){.table = kvc_table(table)};
    return kvc_list(ctl->kvc, table, filter, rows_add, ret_rows);
}

int rows_take(struct ctl *ctl, enum kvc_table_id table, struct rows *ret_rows)
{
    return rows_take_some(ctl, table, NULL, ret_rows);
}

void rows_free(struct rows *rows)
{
    free(rows->row);
    rows->row = NULL;
    rows->n = rows->cap = 0;
}

/* ---- cells ---- */

const char *rows_where(const struct kvc_block_info *x, char text[ROWS_SAID_BYTES])
{
    const char *tiers = ctl_tier_names(x->tier);
    if (x->tier & KVC_TIER_HOST)
        snprintf(text, ROWS_SAID_BYTES, "%s chunk %u at %llu", tiers, x->chunk,
                 (unsigned long long)x->offset);
    else
        snprintf(text, ROWS_SAID_BYTES, "%s", tiers);
    return text;
}

/* Columns that are numbers of an enum. */
const char *rows_word(unsigned unit, uint64_t v)
{
    static const char *const words[][4] = {
        [KVC_UNIT_SCOPE] = {"all", "tenant", "sub_tenant", "ns"},
        [KVC_UNIT_PATH] = {"formatting", "up", "out"},
        [KVC_UNIT_COPY] = {NULL, "engine", "kernel", "window"},
        [KVC_UNIT_KIND] = {NULL, "conversation", "document"},
        [KVC_UNIT_STATE] = {"absent", "pending", "present"},
    };
    if (unit == KVC_UNIT_MISS)
        return kvc_miss_name((uint8_t)v);
    if (unit == KVC_UNIT_TIERS)
        return ctl_tier_names((unsigned)v);
    return v < sizeof(words[0]) / sizeof(words[0][0]) ? words[unit][v] : NULL;
}

static bool is_word(unsigned unit)
{
    return unit == KVC_UNIT_SCOPE || unit == KVC_UNIT_PATH || unit == KVC_UNIT_COPY ||
           unit >= KVC_UNIT_KIND;
}

const struct kvc_column *rows_column(const struct kvc_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->columns; i++)
        if (strcmp(table->column[i].name, name) == 0)
            return &table->column[i];
    fprintf(stderr, "kvcachectl: the table %s has no column %s\n", table->name, name);
    abort();
}

static bool is_text(const struct kvc_column *c)
{
    return c->type == KVC_COLUMN_NAME || c->type == KVC_COLUMN_TEXT;
}

uint64_t rows_number(const struct kvc_column *c, const void *row)
{
    const uint8_t *at = (const uint8_t *)row + c->at;
    uint32_t u32;
    uint64_t u64;
    if (c->bytes == sizeof(*at))
        return *at;
    if (c->bytes == sizeof(u32)) {
        memcpy(&u32, at, sizeof(u32));
        return u32;
    }
    memcpy(&u64, at, sizeof(u64));
    return u64;
}

static void number_cell(struct table *to, unsigned unit, uint64_t v)
{
    char bytes[UNITS_TEXT_BYTES], count[UNITS_COUNT_BYTES];
    switch ((enum kvc_unit)unit) {
    case KVC_UNIT_LIMIT:
        table_cell(to, "%s", v == UINT64_MAX ? "-" : units_format_bytes(v, bytes));
        break;
    case KVC_UNIT_SCOPE:
    case KVC_UNIT_PATH:
    case KVC_UNIT_COPY:
    case KVC_UNIT_KIND:
    case KVC_UNIT_STATE:
    case KVC_UNIT_MISS:
    case KVC_UNIT_TIERS:
        table_cell(to, "%s", rows_word(unit, v) ? rows_word(unit, v) : "-");
        break;
    case KVC_UNIT_RATE:
        table_cell(to, "%s", units_format_rate(v, bytes));
        break;
    case KVC_UNIT_COUNT:
        table_cell(to, "%s", units_format_count(v, count));
        break;
    case KVC_UNIT_BYTES:
        table_cell(to, "%s", units_format_bytes(v, bytes));
        break;
    case KVC_UNIT_MS:
        table_cell(to, "%s", units_format_duration_ms(v, bytes));
        break;
    case KVC_UNIT_NONE:
        table_cell(to, "%llu", (unsigned long long)v);
    }
}

static void text_cell(struct table *to, const struct kvc_table *table, const void *row,
                      const char *text, enum rows_form form)
{
    const char *sub =
        form == ROWS_WITH_SUB ? (const char *)row + rows_column(table, "sub_tenant")->at : "";
    table_cell(to, "%s%s%s", text[0] || form == ROWS_AS_IS ? text : "-", sub[0] ? "/" : "", sub);
}

void rows_cell(struct table *to, const struct kvc_table *table, const void *row,
               const struct rows_view *view)
{
    char key[KEY_TEXT_BYTES], text[ROWS_SAID_BYTES];
    if (view->form == ROWS_SAID) {
        table_cell(to, "%s", view->say(row, text));
        return;
    }
    const struct kvc_column *c = rows_column(table, view->column);
    const void *at = (const char *)row + c->at;
    if (is_text(c))
        text_cell(to, table, row, at, view->form);
    else if (c->type == KVC_COLUMN_KEY)
        table_cell(to, "%.16s", key_format(at, key));
    else if (view->form == ROWS_ONE_OF)
        table_cell(to, "%s", rows_number(c, row) ? view->yes : view->no);
    else if (view->form == ROWS_NOT_ZERO && rows_number(c, row) == 0)
        table_cell(to, "-");
    else
        number_cell(to, c->unit, rows_number(c, row));
}

static json_t *cell_json(const struct kvc_column *c, const void *row)
{
    static const uint8_t no_key[KVC_KEY_BYTES];
    const void *at = (const char *)row + c->at;
    char key[KEY_TEXT_BYTES];
    if (is_text(c))
        return json_string(at);
    if (c->type == KVC_COLUMN_KEY && memcmp(at, no_key, sizeof(no_key)) == 0)
        return json_null();
    if (c->type == KVC_COLUMN_KEY)
        return json_string(key_format(at, key));
    if (c->type == KVC_COLUMN_BOOL)
        return json_boolean(rows_number(c, row));
    const uint64_t v = rows_number(c, row);
    if (is_word(c->unit))
        return rows_word(c->unit, v) ? json_string(rows_word(c->unit, v)) : json_null();
    if (c->unit == KVC_UNIT_LIMIT && v == UINT64_MAX)
        return json_null();
    return json_integer(json_number(v));
}

void rows_json(json_t *object, const struct kvc_table *table, const void *row,
               const char *const *columns)
{
    for (uint32_t i = 0; columns ? columns[i] != NULL : i < table->columns; i++) {
        const struct kvc_column *c = columns ? rows_column(table, columns[i]) : &table->column[i];
        if (c->type != KVC_COLUMN_UUID) /* people see the device by another column */
            json_object_set_new(object, c->name, cell_json(c, row));
    }
}

/* ---- showing ---- */

json_t *rows_array(const struct rows *rows)
{
    json_t *array = json_array();
    for (size_t i = 0; i < rows->n; i++) {
        json_t *object = json_object();
        rows_json(object, rows->table, rows_at(rows, i), NULL);
        json_array_append_new(array, object);
    }
    return array;
}

void rows_table(const struct rows *rows, const struct rows_view *view, bool colour)
{
    const char *heads[TABLE_COLUMNS_MAX + 1] = {NULL};
    for (size_t i = 0; i < TABLE_COLUMNS_MAX && view[i].head; i++)
        heads[i] = view[i].head;
    struct table *t = table_create(heads);
    for (size_t i = 0; i < rows->n; i++)
        for (const struct rows_view *v = view; v->head; v++)
            rows_cell(t, rows->table, rows_at(rows, i), v);
    table_print(t, stdout, colour);
    table_destroy(&t);
}

void rows_print(const struct ctl *ctl, const struct rows *rows, const struct rows_view *view,
                const char *none)
{
    if (ctl->json)
        json_print(json_pack("{s:o}", rows->table->name, rows_array(rows)));
    else if (rows->n > 0)
        rows_table(rows, view, ctl->colour);
    else
        puts(none);
}

int rows_show(struct ctl *ctl, int rc, struct rows *rows, const struct rows_view *view,
              const char *none)
{
    if (rc < 0)
        rc = ctl_fail(ctl, rc);
    else
        rows_print(ctl, rows, view, none);
    rows_free(rows);
    return rc;
}
