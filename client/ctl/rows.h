/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's tables (rows.h of the library): taken whole, shown as text and as JSON. One thread.
 */
#ifndef CTL_ROWS_H
#define CTL_ROWS_H

#include "ctl.h"
#include "table.h"

struct json_t;

struct rows {
    const struct kvc_table *table;
    size_t n, cap;
    void *row; /* n structs of the table's */
};

enum rows_form {
    ROWS_AS_IS,    /* by the column's type and unit */
    ROWS_NOT_ZERO, /* "-" instead of 0 or an empty text */
    ROWS_WITH_SUB, /* "-" likewise; with "/" and the row's sub_tenant, if there is one */
    ROWS_ONE_OF,   /* of a bool: one of two words */
    ROWS_SAID      /* what `say` says of the row */
};
#define ROWS_SAID_BYTES 512u

/* A column of text: its head as table_create() has it, and the table's column that it shows. */
struct rows_view {
    const char *head, *column;
    enum rows_form form;
    const char *yes, *no;                                            /* ONE_OF */
    const char *(*say)(const void *row, char text[ROWS_SAID_BYTES]); /* SAID */
};
#define ROWS_PLAIN(head, column)                   \
    {                                              \
        head, column, ROWS_AS_IS, NULL, NULL, NULL \
    }
#define ROWS_DASH(head, column)                       \
    {                                                 \
        head, column, ROWS_NOT_ZERO, NULL, NULL, NULL \
    }
#define ROWS_TENANT(head)                               \
    {                                                   \
        head, "tenant", ROWS_WITH_SUB, NULL, NULL, NULL \
    }
#define ROWS_EITHER(head, column, yes, no)       \
    {                                            \
        head, column, ROWS_ONE_OF, yes, no, NULL \
    }
#define ROWS_SAY(head, say)                    \
    {                                          \
        head, NULL, ROWS_SAID, NULL, NULL, say \
    }
#define ROWS_END                                 \
    {                                            \
        NULL, NULL, ROWS_AS_IS, NULL, NULL, NULL \
    }

/* All rows that the session may see. 0, or the library's error. Given back by rows_free(), which
 * accepts what has none. */
int rows_take(struct ctl *ctl, enum kvc_table_id table, struct rows *ret_rows);
int rows_take_some(struct ctl *ctl, enum kvc_table_id table, const struct kvc_filter *filter,
                   struct rows *ret_rows);
/* Of kvc_list(): one more row behind those of `to`, struct rows whose table is set. */
int rows_add(void *to, const void *row);
void rows_free(struct rows *rows);
void *rows_at(const struct rows *rows, size_t i);

/* Shows what rows_take() gave, with its return value `rc`, and frees it: with --json all columns,
 * else those of `view`, which ends with a NULL head; without rows, `none` on a line. Returns an
 * enum ctl_exit. */
int rows_show(struct ctl *ctl, int rc, struct rows *rows, const struct rows_view *view,
              const char *none);

/* Parts of that. */
void rows_print(const struct ctl *ctl, const struct rows *rows, const struct rows_view *view,
                const char *none);
void rows_table(const struct rows *rows, const struct rows_view *view, bool colour);
/* Of objects, owned by the caller. */
struct json_t *rows_array(const struct rows *rows);
/* Where a block is: "host chunk 3 at 4096". */
const char *rows_where(const struct kvc_block_info *block, char text[ROWS_SAID_BYTES]);
/* The word for a number of an enum (enum kvc_unit); NULL: it has none. */
const char *rows_word(unsigned unit, uint64_t value);
/* `columns`: names, NULL at the end; NULL: all. */
void rows_json(struct json_t *object, const struct kvc_table *table, const void *row,
               const char *const *columns);
void rows_cell(struct table *to, const struct kvc_table *table, const void *row,
               const struct rows_view *view);
/* Column and value by name: the name is the caller's own, and there. */
const struct kvc_column *rows_column(const struct kvc_table *table, const char *name);
uint64_t rows_number(const struct kvc_column *column, const void *row);

#endif
