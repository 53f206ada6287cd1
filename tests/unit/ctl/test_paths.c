/* SPDX-License-Identifier: Apache-2.0 */
/* What kvcachectl says about a path that is out of service. */
#include <stdio.h>
#include <string.h>

#include "cases.h"
#include "outage.h"
#include "paths.h"

static const char *const files[] = {"ENOENT", "ENODATA", "ESTALE", "ENOSPC", "EDQUOT", "EROFS"};

static const char *text_of(const char *error)
{
    static char text[PATHS_OUT_BYTES];
    struct kvc_path x = {.path = "/mnt/a/kvcache.store", .state = KVC_PATH_OUT};
    snprintf(x.error, sizeof x.error, "%s", error);
    paths_out_text(&x, text, sizeof text);
    ck_assert_uint_lt(strlen(text), sizeof text - 1);
    return text;
}

/* Each was told to look at the drive, with which nothing is wrong. */
CASE_EACH(a_file_that_is_wrong_is_told_as_such, sizeof files / sizeof files[0])
{
    const char *text = text_of(files[_i]);
    const struct outage *why = outage_of(files[_i]);
    ck_assert_ptr_nonnull(why->what);
    ck_assert_ptr_nonnull(strstr(text, files[_i]));
    ck_assert_ptr_nonnull(strstr(text, why->what));
    ck_assert_ptr_nonnull(strstr(text, why->next));
    ck_assert_ptr_null(strstr(text, "smartctl"));
}

CASE(what_may_be_the_drive_is_looked_for_there)
{
    ck_assert_ptr_nonnull(strstr(text_of("EIO"), "out: EIO. Its blocks"));
    ck_assert_ptr_nonnull(strstr(text_of("EIO"), "smartctl"));
    ck_assert_ptr_nonnull(strstr(text_of("ETIMEDOUT"), "smartctl"));
    ck_assert_ptr_nonnull(strstr(text_of(""), "no reason is known"));
}

CASE(each_file_that_is_wrong_has_words_of_its_own)
{
    ck_assert_ptr_nonnull(strstr(text_of("ENODATA"), "shorter"));
    ck_assert_ptr_nonnull(strstr(text_of("ENOENT"), "not there any more"));
    ck_assert_ptr_nonnull(strstr(text_of("ESTALE"), "another store"));
    ck_assert_ptr_nonnull(strstr(text_of("ESTALE"), "nvme.replaced"));
    ck_assert_ptr_nonnull(strstr(text_of("ENOSPC"), "make room"));
}
