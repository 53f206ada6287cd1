/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reply of LIST: writes and reads the rows of a table by its columns. The tables of
 * <kvcache/rows.h> are data here, so that daemon, library and kvcachectl share one declaration.
 */
#include <string.h>

#include "message.h"

#define LEN(a) (sizeof(a) / sizeof((a)[0]))

#define CELL(n, t, u, text) KVC_CELL_##t(n)
#define COLUMN(n, t, u, text)                   \
    {.name = #n,                                \
     .meaning = text,                           \
     .type = KVC_COLUMN_##t,                    \
     .unit = KVC_UNIT_##u,                      \
     .at = (uint16_t)offsetof(struct cells, n), \
     .bytes = (uint16_t)sizeof(((struct cells *)0)->n)},
/* `struct cells` has the layout of the table's row, because the same declaration makes both. */
#define X(number, table, text, row)                                                     \
    static const struct kvc_table *table_##text(void)                                   \
    {                                                                                   \
        struct cells {                                                                  \
            KVC_ROW_##table(CELL)                                                       \
        };                                                                              \
        static const struct kvc_column columns[] = {KVC_ROW_##table(COLUMN)};           \
        static const struct kvc_table t = {.name = #text,                               \
                                           .id = KVC_TABLE_##table,                     \
                                           .row_bytes = (uint32_t)sizeof(struct row),   \
                                           .columns = (uint32_t)LEN(columns),           \
                                           .column = columns};                          \
        _Static_assert(sizeof(struct cells) == sizeof(struct row), "the row's struct"); \
        _Static_assert(LEN(columns) <= KVC_COLUMNS_MAX, "the limit on the wire");       \
        return &t;                                                                      \
    }
KVC_TABLE_MAP(X)
#undef X
#undef COLUMN
#undef CELL

const struct kvc_table *codec_table(unsigned id)
{
#define X(number, table, text, row) [number] = table_##text,
    static const struct kvc_table *(*const tables[])(void) = {KVC_TABLE_MAP(X)};
#undef X
    return id > 0 && id < LEN(tables) ? tables[id]() : NULL;
}

static struct field cell_field(const struct kvc_column *c)
{
    static const struct {
        uint8_t kind;
        uint64_t max;
        const char *must;
    } types[] = {
        [KVC_COLUMN_U8] = {FIELD_UINT, UINT8_MAX, "a cell must be an integer from 0 to 255"},
        [KVC_COLUMN_U32] = {FIELD_UINT, UINT32_MAX, "a cell must be an integer from 0 to 2^32 - 1"},
        [KVC_COLUMN_U64] = {FIELD_UINT, UINT64_MAX, "a cell must be an integer from 0 to 2^64 - 1"},
        [KVC_COLUMN_BOOL] = {FIELD_UINT, 1, "a cell must be 0 or 1"},
        [KVC_COLUMN_NAME] = {FIELD_STRING, KVC_STRING_MAX - 1,
                             "a cell must be UTF-8 text of at most 127 bytes without NUL"},
        [KVC_COLUMN_TEXT] = {FIELD_STRING, KVC_PARAMS_MAX - 1,
                             "a cell must be UTF-8 text of at most 255 bytes without NUL"},
        [KVC_COLUMN_KEY] = {FIELD_FIXED, 0, "a cell must be binary of 32 bytes"},
        [KVC_COLUMN_UUID] = {FIELD_FIXED, 0, "a cell must be binary of 16 bytes"},
    };
    return (struct field){.name = c->name,
                          .must = types[c->type].must,
                          .max = types[c->type].max,
                          .at = c->at,
                          .width = c->bytes,
                          .kind = types[c->type].kind};
}

static const struct field name_fields[] = {
    {.name = "",
     .kind = FIELD_TEXT,
     .min = 1,
     .max = KVC_STRING_MAX - 1,
     .width = sizeof(struct codec_bin),
     .must = "columns must be an array of at most 32 texts"},
};
static const struct schema name_schema = {.fields = name_fields, .nfields = 1};

static const struct field cursor_fields[] = {
    {.name = "cursor",
     .kind = FIELD_BLOB,
     .unit = 1,
     .max = KVC_CURSOR_MAX,
     .width = sizeof(struct codec_bin),
     .must = "cursor must be binary of at most 320 bytes"},
};
static const struct schema cursor_schema = {.fields = cursor_fields, .nfields = 1};

/* ---- writing ---- */

int codec_rows_begin(struct codec_list *list, void *buf, size_t cap, const struct msg_head *head,
                     const struct kvc_table *table)
{
    struct pack pk;
    pack_init(&pk, buf, cap);
    message_pack_reply_head(&pk, head, KVC_ST_OK, 4);
    pack_uint(&pk, table->id);
    pack_array(&pk, table->columns);
    for (uint32_t i = 0; i < table->columns; i++) {
        const struct codec_bin name = codec_text(table->column[i].name);
        message_pack_fields(&pk, &name_schema, &name);
    }
    return list__start(list, &pk);
}

int codec_rows_add(struct codec_list *list, const struct kvc_table *table, const void *row)
{
    struct field field[KVC_COLUMNS_MAX];
    const struct schema schema = {.fields = field, .nfields = (uint16_t)table->columns};
    for (uint32_t i = 0; i < table->columns; i++)
        field[i] = cell_field(&table->column[i]);
    return list__add(list, &schema, row);
}

int codec_rows_end(struct codec_list *list, struct codec_bin cursor)
{
    struct pack pk;
    const size_t len = list__close(list);
    pack_init(&pk, list->buf + len, list->cap - len);
    message_pack_fields(&pk, &cursor_schema, &cursor);
    return pk.err != 0 ? pk.err : (int)(len + pk.len);
}

/* ---- reading ---- */

static uint8_t column_find(const struct kvc_table *table, const struct codec_bin *name)
{
    uint8_t i = 0;
    while (i < table->columns && (strlen(table->column[i].name) != name->n ||
                                  memcmp(table->column[i].name, name->p, name->n) != 0))
        i++;
    return i;
}

static void columns_read(struct unpack *un, struct codec_rows *rows)
{
    const char *must = name_fields[0].must;
    const uint32_t n = unpack_array(un, must);
    if (un->err == 0 && n > KVC_COLUMNS_MAX)
        unpack_fail(un, KVC_E_BAD_ARGUMENT, must);
    for (; un->err == 0 && rows->columns < n; rows->columns++) {
        struct codec_bin name = {0};
        unpack_fields(un, &name_schema, &name);
        const uint8_t at = column_find(rows->table, &name);
        if (at < rows->table->columns && memchr(rows->column, at, rows->columns) != NULL)
            unpack_fail(un, KVC_E_BAD_MESSAGE, "a column is there twice");
        rows->column[rows->columns] = at;
    }
}

int codec_rows_read(const void *buf, size_t len, const struct kvc_table *table,
                    struct msg_reply_head *ret_head, struct codec_rows *ret_rows)
{
    struct unpack un;
    struct codec_rows rows = {.table = table};
    unpack_init(&un, buf, len);
    const uint32_t n = message_unpack_reply_head(&un, ret_head);
    if (un.err == 0 && ret_head->op != KVC_OP_LIST)
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "a reply to another operation than expected");
    if (un.err == 0 && ret_head->status != KVC_ST_OK)
        return message_error(ret_head->status);
    if (un.err == 0 && n != 4)
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "the reply has too few or too many fields");
    if (unpack_uint(&un, 0, UINT8_MAX, "table must be an integer from 0 to 255") != table->id)
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "rows of another table than expected");
    columns_read(&un, &rows);
    rows.left = unpack_array(&un, "rows must be an array of arrays");
    rows.p = un.c.p;
    rows.end = un.c.end;
    if (un.err == 0)
        *ret_rows = rows;
    else
        ret_head->detail = codec_text(un.detail);
    return un.err;
}

static void cell_read(struct unpack *un, const struct codec_rows *rows, uint32_t i, uint8_t *row)
{
    const uint8_t at = rows->column[i];
    if (at == rows->table->columns) {
        unpack_skip(un);
        return;
    }
    const struct field field = cell_field(&rows->table->column[at]);
    const struct schema one = {.fields = &field, .nfields = 1};
    unpack_fields(un, &one, row);
}

/* An invalid row is not skipped: every further call fails at it. */
int codec_rows_next(struct codec_rows *rows, void *ret_row)
{
    struct unpack un;
    unpack_init(&un, rows->p, (size_t)(rows->end - rows->p));
    if (rows->left == 0) {
        unpack_fields(&un, &cursor_schema, &rows->cursor);
        unpack_end(&un);
        return un.err;
    }
    const uint32_t n = unpack_array(&un, "a row must be an array");
    if (un.err == 0 && n != rows->columns)
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "a row has too few or too many cells");
    memset(ret_row, 0, rows->table->row_bytes);
    for (uint32_t i = 0; un.err == 0 && i < n; i++)
        cell_read(&un, rows, i, ret_row);
    if (un.err != 0)
        return un.err;
    rows->p = un.c.p;
    rows->left--;
    return 1;
}
