/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

void place_set(struct place *p, const char *format, ...)
{
    va_list args;
    ck_assert_uint_lt(p->nsets, PLACE_SETS_MAX);
    char *text = p->text[p->nsets];
    va_start(args, format);
    int n = vsnprintf(text, sizeof p->text[0], format, args);
    va_end(args);
    ck_assert_int_lt(n, (int)sizeof p->text[0]);
    p->sets[p->nsets++] = text;
    p->sets[p->nsets] = NULL;
}

void place_make(struct place *p, unsigned paths, bool persist)
{
    memset(p, 0, sizeof *p);
    rig_dir(&p->rig);
    p->paths = paths;
    for (unsigned i = 0; i < paths; i++) {
        snprintf(p->store[i], sizeof p->store[i], "%s/store%u", p->rig.dir, i);
        ck_assert_int_eq(mkdir(p->store[i], 0700), 0);
        strcat(strcat(p->list, i ? "," : ""), p->store[i]);
    }
    if (paths > 0)
        place_set(p, "nvme.paths=%s", p->list);
    if (persist) {
        strcpy(p->persist, "/dev/shm/kvc-test-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(p->persist));
        place_set(p, "host.persist=%s", p->persist);
    }
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

void place_remove(struct place *p)
{
    rig_clean(&p->rig);
    if (p->persist[0])
        (void)!nftw(p->persist, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    if (p->group[0])
        (void)!rmdir(p->group);
}

void place_forget_log(const struct place *p)
{
    char path[96];
    snprintf(path, sizeof path, "%s/log", p->rig.dir);
    unlink(path);
}

/* ---- the daemon ---- */

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = write(fd, text, strlen(text));
    int err = n < 0 ? -errno : 0;
    close(fd);
    return err;
}

void place_begin(struct place *p, const char *fault)
{
    rig_begin(&p->rig, p->sets, fault);
    if (!p->group[0])
        return;
    char path[192], pid[32];
    snprintf(path, sizeof path, "%s/cgroup.procs", p->group);
    snprintf(pid, sizeof pid, "%d", (int)p->rig.pid);
    ck_assert_int_eq(write_text(path, pid), 0);
}

int place_try(struct place *p, const char *fault)
{
    place_begin(p, fault);
    return rig_await(&p->rig);
}

static void run_check(const struct place *p)
{
    char path[512], log[96];
    snprintf(path, sizeof path, "%s/kvcache-daemon", rig_bin());
    snprintf(log, sizeof log, "%s/log", p->rig.dir);
    const char *argv[] = {path, "--check-store", p->list, NULL};
    int fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
        _exit(126);
    execv(path, (char *const *)(uintptr_t)argv);
    _exit(127);
}

int place_check_store(struct place *p)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        run_check(p);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

bool place_is_free(const struct place *p)
{
    for (unsigned i = 0; i < p->paths; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/kvcache.store", p->store[i]);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            continue;
        bool locked = flock(fd, LOCK_EX | LOCK_NB) < 0;
        close(fd);
        if (locked)
            return false;
    }
    return true;
}

/* ---- a slow disk ---- */

/* "major:minor" of the whole disk below a path. */
static int disk_of(const char *path, char ret_disk[32])
{
    struct stat st;
    char link[64];
    unsigned major_no, minor_no;
    if (stat(path, &st) < 0)
        return -errno;
    snprintf(link, sizeof link, "/sys/dev/block/%u:%u/partition", major(st.st_dev),
             minor(st.st_dev));
    bool part = access(link, F_OK) == 0;
    snprintf(link, sizeof link, "/sys/dev/block/%u:%u/%sdev", major(st.st_dev), minor(st.st_dev),
             part ? "../" : "");
    FILE *f = fopen(link, "re");
    if (!f)
        return -ENOENT;
    int n = fscanf(f, "%u:%u", &major_no, &minor_no);
    fclose(f);
    if (n != 2)
        return -ENOENT;
    snprintf(ret_disk, 32, "%u:%u", major_no, minor_no);
    return 0;
}

/* Version 1 has a group of its own for block devices, version 2 one for all. */
static const struct {
    const char *root, *file, *word;
} kinds[] = {
    {"/sys/fs/cgroup/blkio", "blkio.throttle.write_bps_device", ""},
    {"/sys/fs/cgroup", "io.max", "wbps="},
};

static int join_group(struct place *p, unsigned kind, const char *disk, uint64_t rate)
{
    char path[256], text[96];
    snprintf(p->group, sizeof p->group, "%s/kvc-test-XXXXXX", kinds[kind].root);
    if (!mkdtemp(p->group)) {
        p->group[0] = '\0';
        return -errno;
    }
    snprintf(path, sizeof path, "%s/%s", p->group, kinds[kind].file);
    snprintf(text, sizeof text, "%s %s%llu", disk, kinds[kind].word, (unsigned long long)rate);
    int err = write_text(path, text);
    if (err) {
        (void)!rmdir(p->group);
        p->group[0] = '\0';
    }
    return err;
}

int place_slow_down(struct place *p, uint64_t bytes_per_s, char ret_why[160])
{
    char disk[32];
    int err = disk_of(p->store[0], disk);
    if (err) {
        snprintf(ret_why, 160, "%s is on no block device", p->store[0]);
        return -ENOTSUP;
    }
    for (unsigned kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        if (access(kinds[kind].root, W_OK) == 0)
            err = join_group(p, kind, disk, bytes_per_s);
        if (p->group[0])
            return 0;
    }
    snprintf(ret_why, 160, "no control group may limit writes to disk %s (%s)", disk,
             err ? strerror(-err) : "none is mounted");
    return -ENOTSUP;
}
