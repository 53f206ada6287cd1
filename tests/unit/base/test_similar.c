/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "cases.h"
#include "similar.h"

static const char *nearest(const char *text)
{
    static const char *const known[] = {"ping",  "stats", "ns",         "explain",   "blocks",
                                        "evict", "size",  "host.limit", "host.numa", "log.level"};
    struct similar n = similar_to(text);
    for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        similar_offer(&n, known[i]);
    return n.best;
}

CASE(distance_counts_letters_that_differ)
{
    ck_assert_uint_eq(similar_distance("", ""), 0);
    ck_assert_uint_eq(similar_distance("abc", ""), 3);
    ck_assert_uint_eq(similar_distance("stats", "stats"), 0);
    ck_assert_uint_eq(similar_distance("stast", "stats"), 1); /* swapped */
    ck_assert_uint_eq(similar_distance("stat", "stats"), 1);
    ck_assert_uint_eq(similar_distance("kitten", "sitting"), 3);
}

CASE(a_similar_word_is_found)
{
    ck_assert_str_eq(nearest("stast"), "stats");
    ck_assert_str_eq(nearest("pign"), "ping");
    ck_assert_str_eq(nearest("evcit"), "evict");
    ck_assert_str_eq(nearest("expl"), "explain");
    ck_assert_str_eq(nearest("limit"), "host.limit");
    ck_assert_str_eq(nearest("hots.limit"), "host.limit");
    ck_assert_str_eq(nearest("level"), "log.level");
}

CASE(a_word_that_differs_more_is_not)
{
    ck_assert_ptr_null(nearest("frobnicate"));
    ck_assert_ptr_null(nearest("x"));
    ck_assert_ptr_null(nearest(""));
    ck_assert_ptr_null(nearest("bytes"));
    ck_assert_ptr_null(
        nearest("a-word-that-is-much-longer-than-any-other-one-that-is-known-to-it-here"));
}
