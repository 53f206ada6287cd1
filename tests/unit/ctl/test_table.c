/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "plain.h"
#include "table.h"

static const char *const heads[] = {"NAME", ">VALUE", "WHY", NULL};

static char *printed(const struct table *table, bool colour)
{
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);
    table_print(table, to, colour);
    fclose(to);
    return text;
}

CASE(columns_line_up_and_numbers_go_right)
{
    struct table *table = table_create(heads);
    table_cell(table, "a");
    table_cell(table, "%d", 12345678);
    table_cell(table, "x");
    table_cell(table, "long name");
    table_cell(table, "%d", 7);
    table_cell(table, "yy");
    ck_assert_uint_eq(table_rows(table), 2);
    char *text = printed(table, false);
    ck_assert_str_eq(text, "NAME          VALUE  WHY\n"
                           "a          12345678  x\n"
                           "long name         7  yy\n");
    free(text);
    table_destroy(&table);
    ck_assert_ptr_null(table);
}

CASE(colour_is_for_the_heads_only)
{
    struct table *table = table_create(heads);
    char *text = printed(table, true);
    ck_assert_str_eq(text, "\033[1mNAME  VALUE  WHY\033[0m\n");
    free(text);
    table_destroy(&table);
}

CASE(control_characters_do_not_reach_the_terminal)
{
    struct table *table = table_create(NULL);
    table_cell(table, "model");
    table_cell(table, "%s", "\033[2Jevil\n\xc2\x9b\xc3\xa9");
    char *text = printed(table, false);
    ck_assert_str_eq(text, "model  ?[2Jevil??\xc3\xa9\n");
    free(text);
    table_destroy(&table);
}

/* Letters with marks, kana, Han, an emoji, Hangul of three jamo: each row ends in the same column.
 */
CASE(columns_line_up_whatever_the_script)
{
    static const char *const names[] = {
        "e\xcc\x81t\xc3\xa9",                   /* 3 */
        "\xe3\x83\xa2\xe3\x83\x87\xe3\x83\xab", /* 6 */
        "\xe6\xa8\xa1\xe5\x9e\x8b-7b",          /* 7 */
        "\xf0\x9f\xa6\x99",                     /* 2 */
        "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", /* 2 */
    };
    static const int gaps[] = {4, 1, 0, 5, 5};
    struct table *table = table_create(heads);
    char want[512] = "NAME     VALUE  WHY\n";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        table_cell(table, "%s", names[i]);
        table_cell(table, "%d", 1);
        table_cell(table, "x");
        char line[64];
        snprintf(line, sizeof(line), "%s%*s      1  x\n", names[i], gaps[i], "");
        strcat(want, line); /* NOLINT(clang-analyzer-security.insecureAPI.strcpy): it fits */
    }
    char *text = printed(table, false);
    ck_assert_str_eq(text, want);
    free(text);
    table_destroy(&table);
}

/* Each control between two letters, and one mark for it; the last but one is C1 and no UTF-8. */
CASE(text_does_not_change_direction)
{
    static const char *const controls[] = {
        "\xd8\x9c",     "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xaa", "\xe2\x80\xae",
        "\xe2\x81\xa6", "\xe2\x81\xa9", "\xc2\x9b",     "\x9b",         "\x7f"};
    for (size_t i = 0; i < sizeof(controls) / sizeof(controls[0]); i++) {
        char text[16];
        snprintf(text, sizeof(text), "a%sb", controls[i]);
        plain(text);
        ck_assert_uint_eq(strspn(text + 1, "?"), 1);
        ck_assert_int_eq(text[0], 'a');
        ck_assert_str_eq(text + 2, "b");
    }
    char kept[] = "\xe2\x80\x8d\xe2\x80\xa6\xe2\x81\xaa"; /* beside them */
    ck_assert_str_eq(plain(kept), "\xe2\x80\x8d\xe2\x80\xa6\xe2\x81\xaa");
}

CASE(columns_that_do_not_fit_are_left_out_whole)
{
    static const char *const three[] = {"NAME", ">SIZE", "OWNER", NULL};
    static const struct {
        size_t columns;
        const char *want;
    } cases[] = {{SIZE_MAX, "NAME   SIZE  OWNER\nabcd  1 GiB  me\n"},
                 {18, "NAME   SIZE  OWNER\nabcd  1 GiB  me\n"},
                 {17, "NAME   SIZE\nabcd  1 GiB\n"},
                 {11, "NAME   SIZE\nabcd  1 GiB\n"},
                 {10, "NAME\nabcd\n"},
                 {1, "NAME\nabcd\n"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct table *table = table_create(three);
        table_cell(table, "abcd");
        table_cell(table, "1 GiB");
        table_cell(table, "me");
        table_fit(table, cases[i].columns);
        char *text = printed(table, false);
        ck_assert_str_eq(text, cases[i].want);
        free(text);
        table_destroy(&table);
    }
}

CASE(takes_many_rows)
{
    struct table *table = table_create(NULL);
    for (int i = 0; i < 2000; i++)
        table_cell(table, "%d", i);
    ck_assert_uint_eq(table_rows(table), 1000);
    table_destroy(&table);
}
