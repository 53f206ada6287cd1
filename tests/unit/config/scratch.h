/* SPDX-License-Identifier: Apache-2.0 */
/* A private working directory for each test, files in it, and configurations that are loaded from
 * them. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <check.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

static char scratch_dir[64];
static char scratch_runtime[96]; /* a --set that works on every machine */

static void scratch_setup(void)
{
    (void)!snprintf(scratch_dir, sizeof(scratch_dir), "/tmp/kvc-config-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(scratch_dir));
    ck_assert_int_eq(chmod(scratch_dir, 0755), 0);
    ck_assert_int_eq(chdir(scratch_dir), 0);
    (void)!snprintf(scratch_runtime, sizeof(scratch_runtime), "runtime_dir=%s/run", scratch_dir);
}

static int scratch__remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void scratch_teardown(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    (void)!nftw(scratch_dir, scratch__remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* Writes a file; makes missing directories. */
__attribute__((unused)) static void scratch_write(const char *path, const char *text, size_t len)
{
    char dir[PATH_MAX];

    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        (void)!snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
        (void)!mkdir(dir, 0755);
    }
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, len, f), len);
    ck_assert_int_eq(fclose(f), 0);
}

/* Loads `text` as x.yaml, with the scratch runtime_dir. ret_text: the errors, one per line; "" if
 * none. */
__attribute__((unused)) static int scratch_load(const char *text, struct config *ret,
                                                char *ret_text, size_t cap)
{
    const char *sets[] = {scratch_runtime};
    struct config_errors errors;

    ret_text[0] = '\0';
    scratch_write("x.yaml", text, strlen(text));
    const int r = config_load("x.yaml", sets, 1, ret, &errors);
    FILE *f = fmemopen(ret_text, cap, "w");
    ck_assert_ptr_nonnull(f);
    if (r < 0)
        config_errors_print(&errors, f);
    ck_assert_int_eq(fclose(f), 0);
    return r;
}

/* The same; fails the test if it does not load. */
__attribute__((unused)) static struct config scratch_config(const char *text)
{
    struct config cfg;
    char errors[4096] = "";

    ck_assert_msg(scratch_load(text, &cfg, errors, sizeof(errors)) == 0, "%s", errors);
    return cfg;
}

#endif
