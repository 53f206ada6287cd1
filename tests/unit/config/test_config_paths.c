/* SPDX-License-Identifier: Apache-2.0 */
/* What the configuration needs of the file system. */
#include "cases.h"
#include "nvme_paths.h"
#include "remedy.h"
#include "scratch.h"

#include <grp.h>
#include <linux/magic.h>
#include <sys/prctl.h>
#include <sys/vfs.h>

/* The one error of loading `path` (NULL: none) with one --set; "" when it is accepted. */
static const char *load_error(const char *path, const char *set)
{
    static char text[2048];
    static struct config cfg;
    const char *sets[] = {scratch_runtime, set};
    struct config_errors errors;

    if (config_load(path, sets, set != NULL ? 2 : 1, &cfg, &errors) == 0)
        return "";
    ck_assert_uint_eq(errors.count, 1);
    return config_error_format(&errors.list[0], text, sizeof(text));
}

/* "KEY=DIR/NAME" */
static const char *set_path(const char *key, const char *name)
{
    static char set[512];

    (void)!snprintf(set, sizeof(set), "%s=%s/%s", key, scratch_dir, name);
    return set;
}

/* `fmt` with the scratch directory for every "DIR". */
static const char *in_dir(const char *text)
{
    static char out[2048];
    size_t n = 0;

    for (; *text != '\0'; text++) {
        if (strncmp(text, "DIR", 3) == 0) {
            n += (size_t)snprintf(out + n, sizeof(out) - n, "%s", scratch_dir);
            text += 2;
        } else {
            out[n++] = *text;
        }
    }
    out[n] = '\0';
    return out;
}

/* To a uid that file modes stop. The test runs in a process of its own. */
static void become_nobody(void)
{
    if (geteuid() != 0)
        return;
    ck_assert_int_eq(setgroups(0, NULL), 0);
    ck_assert_int_eq(seteuid(65534), 0);
}

/* Back to what may clean up, and what a leak checker may look into. */
static void teardown(void)
{
    if (getuid() == 0) {
        ck_assert_int_eq(seteuid(0), 0);
        ck_assert_int_eq(prctl(PR_SET_DUMPABLE, 1), 0);
    }
    scratch_teardown();
}

CASES(.setup = scratch_setup, .teardown = teardown);

CASE(a_missing_file_is_refused)
{
    ck_assert_str_eq(load_error("none.yaml", NULL),
                     "none.yaml: expected a file that can be read, got: No such file or directory");
}

/* A FIFO that nobody writes to would be waited for. */
CASE(what_is_no_regular_file_is_refused)
{
    ck_assert_int_eq(mkdir("d.yaml", 0700), 0);
    ck_assert_int_eq(mkfifo("f.yaml", 0600), 0);

    ck_assert_str_eq(load_error("d.yaml", NULL),
                     "d.yaml: expected a regular file, got a directory, a FIFO or a device");
    ck_assert_str_eq(load_error("f.yaml", NULL),
                     "f.yaml: expected a regular file, got a directory, a FIFO or a device");
    ck_assert_str_eq(load_error("/dev/null", NULL),
                     "/dev/null: expected a regular file, got a directory, a FIFO or a device");
}

CASE(an_unreadable_file_is_refused)
{
    scratch_write("x.yaml", "", 0);
    ck_assert_int_eq(chmod("x.yaml", 0), 0);
    become_nobody();

    ck_assert_str_eq(load_error("x.yaml", NULL),
                     "x.yaml: expected a file that can be read, got: Permission denied");
}

CASE(a_gigabyte_is_refused)
{
    scratch_write("x.yaml", "", 0);
    ck_assert_int_eq(truncate("x.yaml", 1 << 30), 0);

    ck_assert_str_eq(load_error("x.yaml", NULL),
                     "x.yaml: expected a configuration of at most 1MiB, got a larger file");
}

CASE(the_largest_file_that_is_allowed_is_read)
{
    char *text = malloc(CONFIG_FILE_BYTES_MAX);

    ck_assert_ptr_nonnull(text);
    memset(text, '#', CONFIG_FILE_BYTES_MAX);
    scratch_write("x.yaml", text, CONFIG_FILE_BYTES_MAX);
    free(text);

    ck_assert_str_eq(load_error("x.yaml", NULL), "");
}

CASE(a_runtime_dir_may_exist_or_be_made)
{
    ck_assert_int_eq(mkdir("there", 0700), 0);

    ck_assert_str_eq(load_error(NULL, set_path("runtime_dir", "there")), "");
    ck_assert_str_eq(load_error(NULL, set_path("runtime_dir", "new")), "");
    ck_assert_str_eq(load_error(NULL, set_path("runtime_dir", "new//")), "");
}

CASE(a_runtime_dir_without_parent_is_refused)
{
    ck_assert_str_eq(load_error(NULL, set_path("runtime_dir", "none/run")),
                     in_dir("--set: runtime_dir: expected a directory whose parent exists, got "
                            "DIR/none/run: DIR/none: No such file or directory; make the parent, "
                            "or name another directory"));
}

CASE(a_file_is_no_runtime_dir)
{
    scratch_write("file", "", 0);

    ck_assert_str_eq(load_error(NULL, set_path("runtime_dir", "file")),
                     in_dir("--set: runtime_dir: expected a directory, got DIR/file: Not a "
                            "directory; for example '/run/kvcache'"));
    ck_assert_str_eq(load_error(NULL, set_path("runtime_dir", "file/run")),
                     in_dir("--set: runtime_dir: expected a directory, got DIR/file/run: Not a "
                            "directory; for example '/run/kvcache'"));
}

CASE(a_runtime_dir_must_be_writable)
{
    char expected[1024];

    ck_assert_int_eq(mkdir("locked", 0500), 0);
    become_nobody();
    (void)!snprintf(expected, sizeof(expected),
                    "--set: runtime_dir: expected a directory that uid %u may write, got "
                    "%s/locked: Permission denied; try: chown %u %s/locked",
                    (unsigned)geteuid(), scratch_dir, (unsigned)geteuid(), scratch_dir);

    ck_assert_str_eq(load_error(NULL, set_path("runtime_dir", "locked")), expected);
}

CASE(the_parent_of_a_new_runtime_dir_must_be_writable)
{
    char expected[1024];

    ck_assert_int_eq(mkdir("locked", 0555), 0);
    become_nobody();
    (void)!snprintf(expected, sizeof(expected),
                    "--set: runtime_dir: expected a directory that exists or can be made, got "
                    "%s/locked/run: %s/locked is not writable for uid %u; for example, as root: "
                    "install -d -o %u %s/locked/run",
                    scratch_dir, scratch_dir, (unsigned)geteuid(), (unsigned)geteuid(),
                    scratch_dir);

    ck_assert_str_eq(load_error(NULL, set_path("runtime_dir", "locked/run")), expected);
}

/* The socket's whole path has to fit into a sockaddr_un. */
CASE(a_runtime_dir_too_long_for_a_socket_is_refused)
{
    char name[128] = "";
    const size_t room = 94 - strlen(scratch_dir) - 1;

    memset(name, 'x', room);
    ck_assert_str_eq(load_error(NULL, set_path("runtime_dir", name)), "");
    name[room] = 'x';
    ck_assert_str_eq(load_error(NULL, set_path("runtime_dir", name)),
                     "--set: runtime_dir: expected at most 94 bytes, for a unix socket has no room "
                     "for a longer path, got 95");
}

CASE(a_line_goes_with_a_path_from_the_file)
{
    static const char text[] = "log: {}\n\nsecret_file: /none/secret\n";

    scratch_write("x.yaml", text, strlen(text));

    ck_assert_str_eq(load_error("x.yaml", NULL),
                     "x.yaml:3: secret_file: expected a file in a directory that exists, got "
                     "/none/secret: /none: No such file or directory; make the directory, or name "
                     "a file elsewhere");
}

CASE(a_secret_file_may_be_made_later)
{
    ck_assert_str_eq(load_error(NULL, set_path("secret_file", "secret")), "");
}

CASE(a_secret_that_others_may_read_is_refused)
{
    scratch_write("secret", "s", 1);
    ck_assert_int_eq(chmod("secret", 0640), 0);
    ck_assert_str_eq(load_error(NULL, set_path("secret_file", "secret")),
                     in_dir("--set: secret_file: expected a file that only its owner may read, got "
                            "DIR/secret with mode 0640; try: chmod 600 DIR/secret"));

    ck_assert_int_eq(chmod("secret", 0600), 0);
    ck_assert_str_eq(load_error(NULL, set_path("secret_file", "secret")), "");
}

CASE(a_secret_that_the_daemon_may_not_read_is_refused)
{
    char expected[1024];

    scratch_write("secret", "s", 1);
    ck_assert_int_eq(chmod("secret", 0), 0);
    ck_assert_int_eq(mkdir("run", 0777), 0);
    ck_assert_int_eq(chmod("run", 0777), 0);
    become_nobody();
    (void)!snprintf(expected, sizeof(expected),
                    "--set: secret_file: expected a file that uid %u may read, got %s/secret: "
                    "Permission denied; try: chown %u %s/secret",
                    (unsigned)geteuid(), scratch_dir, (unsigned)geteuid(), scratch_dir);

    ck_assert_str_eq(load_error(NULL, set_path("secret_file", "secret")), expected);
}

CASE(a_secret_must_be_a_regular_file)
{
    ck_assert_int_eq(mkdir("secret", 0700), 0);

    ck_assert_str_eq(load_error(NULL, set_path("secret_file", "secret")),
                     in_dir("--set: secret_file: expected a regular file, got DIR/secret, which is "
                            "not; name a file that is not there yet, and it is made"));
}

CASE(a_storage_path_that_is_not_there_is_refused_with_what_makes_it)
{
    char expected[1024];

    (void)!snprintf(expected, sizeof(expected),
                    "--set: nvme.paths: expected a directory, a file or a block device, got "
                    "%s/none: No such file or directory; for example, as root: install -d -o %u "
                    "%s/none",
                    scratch_dir, (unsigned)geteuid(), scratch_dir);
    ck_assert_str_eq(load_error(NULL, set_path("nvme.paths", "none")), expected);
}

CASE(a_storage_path_may_be_a_directory_or_a_file)
{
    ck_assert_int_eq(mkdir("d", 0700), 0);
    scratch_write("f", "", 0);

    ck_assert_str_eq(load_error(NULL, set_path("nvme.paths", "d")), "");
    ck_assert_str_eq(load_error(NULL, set_path("nvme.paths", "f")), "");
    ck_assert_str_eq(load_error(NULL, in_dir("nvme.paths=DIR/d, DIR/f")), "");
}

/* Each path has a header of 16KiB besides its segments, which 8MiB leave no room for. */
CASE(each_storage_path_has_room_for_four_segments)
{
    static struct config cfg;
    const char *paths = "nvme.paths=DIR/a,DIR/b";
    struct config_errors errors;

    ck_assert_int_eq(mkdir("a", 0700), 0);
    ck_assert_int_eq(mkdir("b", 0700), 0);
    for (unsigned i = 0; i < 3; i++) {
        const bool fits = i == 2;
        const char *limit = i == 0   ? "nvme.limit=8MiB"
                            : i == 1 ? "nvme.limit=8421375"
                                     : "nvme.limit=8421376";
        const char *sets[] = {scratch_runtime, in_dir(paths), limit, "nvme.segment=1MiB"};
        ck_assert_int_eq(config_load(NULL, sets, 4, &cfg, &errors), fits ? 0 : -EINVAL);
    }
    ck_assert_uint_eq(nvme_paths_least(&cfg, 1), 8u << 20);
    ck_assert_uint_eq(nvme_paths_least(&cfg, 2), 9u << 20);
    ck_assert_uint_eq(nvme_paths_least(&cfg, 16), 65u << 20);
}

CASE(a_store_and_its_directory_are_one_path)
{
    ck_assert_int_eq(mkdir("d", 0700), 0);
    scratch_write("d/kvcache.store", "", 0);

    const char *error = load_error(NULL, in_dir("nvme.paths=DIR/d,DIR/d/kvcache.store"));
    ck_assert_ptr_nonnull(strstr(error, "expected each path once"));
}

CASE(a_storage_path_must_be_writable)
{
    char expected[1024];

    ck_assert_int_eq(mkdir("d", 0500), 0);
    ck_assert_int_eq(mkdir("run", 0777), 0);
    ck_assert_int_eq(chmod("run", 0777), 0);
    become_nobody();
    (void)!snprintf(expected, sizeof(expected),
                    "--set: nvme.paths: expected a directory that uid %u may write, got %s/d: "
                    "Permission denied; try: chown %u %s/d",
                    (unsigned)geteuid(), scratch_dir, (unsigned)geteuid(), scratch_dir);
    ck_assert_str_eq(load_error(NULL, set_path("nvme.paths", "d")), expected);
}

/* One that is mistyped ended the start late, with an errno and no word of what to do. */
CASE(a_names_dir_may_exist_or_be_made)
{
    scratch_write("file", "", 0);
    ck_assert_int_eq(mkdir("n", 0700), 0);
    ck_assert_int_eq(mkdir("locked", 0500), 0);
    ck_assert_int_eq(mkdir("run", 0777), 0);
    ck_assert_int_eq(chmod("run", 0777), 0);
    ck_assert_str_eq(load_error(NULL, set_path("names.dir", "n")), "");
    ck_assert_str_eq(load_error(NULL, set_path("names.dir", "new")), "");
    ck_assert_str_eq(load_error(NULL, set_path("names.dir", "file")),
                     in_dir("--set: names.dir: expected a directory, got DIR/file: Not a "
                            "directory; name a directory that exists, or make this one"));
    ck_assert_ptr_nonnull(strstr(load_error(NULL, set_path("names.dir", "none/n")),
                                 "none: No such file or directory; name a directory that exists, "
                                 "or make this one"));
    become_nobody();
    ck_assert_ptr_nonnull(
        strstr(load_error(NULL, set_path("names.dir", "locked")), "Permission denied; try: chown"));
    ck_assert_ptr_nonnull(strstr(load_error(NULL, set_path("names.dir", "locked/n")),
                                 "Permission denied; try: chown"));
}

/* A read-only file system was to be given another owner. */
CASE(a_remedy_is_for_what_is_wrong)
{
    char text[REMEDY_BYTES];
    ck_assert_ptr_nonnull(strstr(remedy_of(-EROFS, "/a", false, text), "read-write"));
    ck_assert_ptr_null(strstr(text, "chown"));
    ck_assert_ptr_nonnull(strstr(remedy_of(EACCES, "/a", true, text), "chown -R "));
    ck_assert_ptr_nonnull(strstr(remedy_of(-EACCES, "/a", false, text), "/a"));
    ck_assert_ptr_null(strstr(text, "-R"));
    ck_assert_ptr_nonnull(strstr(remedy_of(-ENOSPC, "/a", false, text), "make room"));
    ck_assert_ptr_nonnull(strstr(remedy_of(-EDQUOT, "/a", false, text), "make room"));
    ck_assert_str_eq(remedy_of(-EIO, "/a", false, text), "");
}

CASE(journal_and_secret_lie_beside_the_first_store)
{
    struct nvme_paths p;
    char why[256], secret[NVME_PATH_FILE_BYTES];

    ck_assert_int_eq(mkdir("d", 0700), 0);
    ck_assert_int_eq(nvme_paths_read(strchr(in_dir("=DIR/d"), '=') + 1, "", &p, why, sizeof(why)),
                     0);
    nvme_paths_secret(&p, secret);
    ck_assert_str_eq(p.path[0].file, in_dir("DIR/d/kvcache.store"));
    ck_assert_str_eq(p.journal, in_dir("DIR/d/journal"));
    ck_assert_str_eq(secret, in_dir("DIR/d/secret"));
    ck_assert_uint_gt(nvme_paths_room(&p), 0);
}

/* A path that is empty shares the limit: a share below the store that is there would cut it. */
CASE(the_limit_that_keeps_the_stores_follows_the_largest)
{
    static const uint64_t bytes = UINT64_C(3) << 20;
    struct nvme_paths p;
    char why[256];
    FILE *f;

    ck_assert_int_eq(mkdir("a", 0700), 0);
    ck_assert_int_eq(mkdir("b", 0700), 0);
    scratch_write("a/kvcache.store", "", 0);
    ck_assert_int_eq(truncate("a/kvcache.store", (off_t)bytes), 0);
    ck_assert_int_eq(
        nvme_paths_read(strchr(in_dir("=DIR/a,DIR/b"), '=') + 1, "", &p, why, sizeof(why)), 0);
    ck_assert_uint_eq(nvme_paths_kept(&p), 0); /* zeroes: no store yet */

    f = fopen("a/kvcache.store", "r+");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs("store", f), 0);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_uint_eq(nvme_paths_kept(&p), 2 * bytes);
    p.n = 1;
    ck_assert_uint_eq(nvme_paths_kept(&p), bytes);
}

CASE(host_memory_may_outlive_the_daemon_in_a_directory)
{
    char memory[] = "/dev/shm/kvc-config-XXXXXX", set[64];
    struct statfs fs;

    ck_assert_ptr_nonnull(mkdtemp(memory));
    (void)!snprintf(set, sizeof(set), "host.persist=%s", memory);
    ck_assert_str_eq(load_error(NULL, set), "");
    ck_assert_int_eq(chmod(memory, 0777), 0);
    ck_assert_ptr_nonnull(strstr(load_error(NULL, set), "be writable for nobody else"));
    ck_assert_int_eq(rmdir(memory), 0);
    ck_assert_int_eq(mkdir("d", 0700), 0);
    ck_assert_int_eq(statfs("d", &fs), 0);
    if (fs.f_type != TMPFS_MAGIC)
        ck_assert_ptr_nonnull(strstr(load_error(NULL, set_path("host.persist", "d")),
                                     "it must be on tmpfs or hugetlbfs"));
    ck_assert_str_eq(load_error(NULL, "host.persist=systemd"), "");
    ck_assert_ptr_nonnull(strstr(load_error(NULL, set_path("host.persist", "none")),
                                 "expected a directory on tmpfs or hugetlbfs"));
}
