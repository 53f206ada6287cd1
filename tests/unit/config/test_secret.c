/* SPDX-License-Identifier: Apache-2.0 */
/* secret_file: made once, read ever after, refused when others can read it or it is no secret. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "secret.h"

static char dir[] = "/tmp/kvc-secret-XXXXXX";
static char path[64];

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/secret", dir);
}

static void teardown(void)
{
    unlink(path);
    rmdir(dir);
}

static void write_file(size_t bytes, mode_t mode)
{
    static const char text[64] = "0123456789abcdef0123456789abcdef0123456789abcdef";
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, bytes), (ssize_t)bytes);
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

CASES(.setup = setup, .teardown = teardown);

CASE(it_is_made_once_and_stays_the_same)
{
    struct key256 first, second;
    ck_assert_int_eq(secret_load(path, &first), 0);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_int_eq(st.st_size, (off_t)sizeof first.b);
    ck_assert_int_eq(secret_load(path, &second), 0);
    ck_assert_mem_eq(first.b, second.b, sizeof first.b);
}

CASE(what_a_killed_start_left_is_no_hindrance)
{
    struct key256 first, second;
    char aside[80];
    snprintf(aside, sizeof aside, "%s.new", path);
    int fd = open(aside, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "half", 4), 4);
    close(fd);
    ck_assert_int_eq(secret_load(path, &first), 0);
    ck_assert_int_eq(secret_load(path, &second), 0);
    ck_assert_mem_eq(first.b, second.b, sizeof first.b);
    ck_assert_int_eq(access(aside, F_OK), -1);
}

CASE(without_a_file_each_start_has_its_own)
{
    struct key256 first, second;
    ck_assert_int_eq(secret_load("", &first), 0);
    ck_assert_int_eq(secret_load("", &second), 0);
    ck_assert_mem_ne(first.b, second.b, sizeof first.b);
}

/* What is refused leaves the output alone. */
static void expect_refused(int err)
{
    struct key256 secret, before;
    memset(&secret, 0x5a, sizeof secret);
    before = secret;
    ck_assert_int_eq(secret_load(path, &secret), err);
    ck_assert_mem_eq(secret.b, before.b, sizeof before.b);
}

CASE(one_that_others_can_read_is_refused)
{
    write_file(32, 0640);
    expect_refused(-EPERM);
}

CASE_EACH(one_of_another_length_is_refused, 2)
{
    write_file(_i == 0 ? 31 : 33, 0600);
    expect_refused(-EINVAL);
}

CASE(a_link_is_not_followed)
{
    ck_assert_int_eq(symlink("/dev/zero", path), 0);
    expect_refused(-ELOOP);
}

CASE(a_directory_that_is_not_there_is_refused)
{
    snprintf(path, sizeof path, "%s/nowhere/secret", dir);
    expect_refused(-ENOENT);
}
