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
    void *row; /* n structs of the table's rows */
};

enum rows_form {
    ROWS_AS_IS,    /* by the column's type and unit */
    ROWS_NOT_ZERO, /* the same, but "-" for 0 or an empty text */
    ROWS_WITH_SUB, /* the same, and behind it "/" and the row's sub_tenant, if it has one */
    ROWS_ONE_OF,   /* a bool as one of two words */
    ROWS_SAID      /* the text that the function `say` makes of the row */
};
#define ROWS_SAID_BYTES 512u

/* A column on the screen: its head (as table_create() takes it), and which column of the daemon's
 * table it shows, in which form. */
struct rows_view {
    const char *head, *column;
    enum rows_form form;
    const char *yes, *no;                                            /* ROWS_ONE_OF */
    const char *(*say)(const void *row, char text[ROWS_SAID_BYTES]); /* ROWS_SAID */
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

/* Asks the daemon for all rows that the session may see, or for those of a filter. 0, or the
 * library's error. rows_free() frees them, and accepts an empty struct. */
int rows_take(struct ctl *ctl, enum kvc_table_id table, struct rows *ret_rows);
int rows_take_some(struct ctl *ctl, enum kvc_table_id table, const struct kvc_filter *filter,
                   struct rows *ret_rows);
/* A callback of kvc_list(): adds a row to `to`, a struct rows whose `table` is set. */
int rows_add(void *to, const void *row);
void rows_free(struct rows *rows);
void *rows_at(const struct rows *rows, size_t i);

/* Prints the outcome of rows_take(), whose return value is `rc`, and frees the rows. With --json it
 * prints all columns, else those of `view`, which ends with a NULL head. If there are no rows it
 * prints the line `none`. Returns an enum ctl_exit. */
int rows_show(struct ctl *ctl, int rc, struct rows *rows, const struct rows_view *view,
              const char *none);

/* Parts of rows_show(). */
void rows_print(const struct ctl *ctl, const struct rows *rows, const struct rows_view *view,
                const char *none);
void rows_table(const struct rows *rows, const struct rows_view *view, bool colour);
/* The rows as an array of objects, which the caller owns. */
struct json_t *rows_array(const struct rows *rows);
/* Writes where a block is: "host chunk 3 at 4096". */
const char *rows_where(const struct kvc_block_info *block, char text[ROWS_SAID_BYTES]);
/* The word for a value of an enum; `unit` (enum kvc_unit) says which enum. NULL: the value has no
 * word. */
const char *rows_word(unsigned unit, uint64_t value);
/* Adds columns of a row to `object`. `columns`: their names, NULL at the end; NULL: all. */
void rows_json(struct json_t *object, const struct kvc_table *table, const void *row,
               const char *const *columns);
void rows_cell(struct table *to, const struct kvc_table *table, const void *row,
               const struct rows_view *view);
/* The column of that name, which must exist, and the number in a column of a row. */
const struct kvc_column *rows_column(const struct kvc_table *table, const char *name);
uint64_t rows_number(const struct kvc_column *column, const void *row);

#endif
