/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory there is: the kernel's files about this process's cgroup and about the machine.
 */
#include "budget.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys.h"
#include "units.h"

#define CGROUP_DIR "/sys/fs/cgroup"
/* Version 1 writes "none" as the largest multiple of the page size in 63 bits. */
#define V1_NONE (UINT64_C(1) << 62)

/* Reads the start of a small file into `buf`, with a final NUL. Returns its length, or -errno. */
static int read_text(const char *path, char *buf, size_t cap)
{
    const int fd = sys_open(path, O_RDONLY, 0);
    size_t len = 0;
    ssize_t n;

    if (fd < 0)
        return -errno;
    while (len < cap - 1 &&
           ((n = read(fd, buf + len, cap - 1 - len)) > 0 || (n < 0 && errno == EINTR)))
        len += n > 0 ? (size_t)n : 0;
    const int r = len < cap - 1 && n < 0 ? -errno : (int)len;
    close(fd);
    if (r >= 0)
        buf[len] = '\0';
    return r;
}

/* A search for the lowest limit. An error for lack of descriptors or memory ends it: the file may
 * hold a limit, so it must not count as missing. */
struct finding {
    struct budget_limit limit;
    int want; /* the first error for lack of descriptors or memory; 0: none */
};

static bool is_want(int err)
{
    return err == -EMFILE || err == -ENFILE || err == -ENOMEM;
}

/* Lowers f->limit to the number in the file, if that is a limit and lower. */
static void lower_to(const char *root, const char *path, struct finding *f)
{
    char full[PATH_MAX], text[64];
    uint64_t bytes;
    int len = 0;

    if (snprintf(full, sizeof(full), "%s%s", root, path) >= (int)sizeof(full) ||
        (len = read_text(full, text, sizeof(text))) < 0) {
        if (is_want(len) && f->want == 0)
            f->want = len;
        return;
    }
    text[strcspn(text, "\n")] = '\0';
    if (units_parse_count(text, &bytes, NULL) < 0 || bytes >= V1_NONE || bytes >= f->limit.bytes)
        return;
    f->limit.bytes = bytes;
    (void)!snprintf(f->limit.source, sizeof(f->limit.source), "%.*s",
                    (int)sizeof(f->limit.source) - 1, path);
}

/*
 * Lowers the limit by each cgroup from this one up to the root of the hierarchy. Missing
 * directories are skipped: inside a container the path is often the host's, and only the mount
 * point shows the container's cgroup.
 */
static void lower_along(const char *root, const char *mount, const char *cgroup,
                        const char *const *names, struct finding *f)
{
    char path[PATH_MAX], file[PATH_MAX + NAME_MAX];
    const size_t mount_len = strlen(mount);
    size_t len;

    if (snprintf(path, sizeof(path), "%s%s", mount, cgroup) >= (int)sizeof(path))
        return;
    len = strlen(path);
    while (len > mount_len && path[len - 1] == '/')
        path[--len] = '\0';
    for (; len >= mount_len; len--) {
        if (path[len] != '/' && path[len] != '\0')
            continue;
        path[len] = '\0';
        for (const char *const *name = names; *name != NULL; name++) {
            (void)!snprintf(file, sizeof(file), "%s/%s", path, *name);
            lower_to(root, file, f);
        }
    }
}

static bool has_memory(const char *controllers, size_t len)
{
    static const char name[] = "memory";
    const size_t name_len = sizeof(name) - 1;

    for (size_t i = 0; i + name_len <= len; i++) {
        const bool starts = i == 0 || controllers[i - 1] == ',';
        const bool ends = i + name_len == len || controllers[i + name_len] == ',';
        if (starts && ends && strncmp(controllers + i, name, name_len) == 0)
            return true;
    }
    return false;
}

/* One line of /proc/self/cgroup: "0::/a/b" is version 2, "9:cpu,memory:/a/b" version 1. */
static void lower_by_line(const char *root, char *line, struct finding *f)
{
    static const char *const v2[] = {"memory.max", "memory.high", NULL};
    static const char *const v1[] = {"memory.limit_in_bytes", NULL};
    char *controllers = strchr(line, ':'), *path;

    if (controllers == NULL || (path = strchr(++controllers, ':')) == NULL || path[1] != '/')
        return;
    const size_t len = (size_t)(path - controllers);
    /* "/.." leads out of the mounted hierarchy; only the limits of the mount point can be read. */
    const char *cgroup = strstr(path, "/..") != NULL ? "" : path + 1;
    if (len == 0)
        lower_along(root, CGROUP_DIR, cgroup, v2, f);
    else if (has_memory(controllers, len))
        lower_along(root, CGROUP_DIR "/memory", cgroup, v1, f);
}

static int mem_total(const char *root, uint64_t *ret)
{
    static const char label[] = "MemTotal:";
    char full[PATH_MAX], text[4096], *at, *end;

    if (snprintf(full, sizeof(full), "%s/proc/meminfo", root) >= (int)sizeof(full))
        return -ENAMETOOLONG;
    const int r = read_text(full, text, sizeof(text));
    if (r < 0)
        return r;
    at = strstr(text, label);
    if (at == NULL)
        return -ENODATA;
    const unsigned long long kib = strtoull(at + sizeof(label) - 1, &end, 10);
    if (kib == 0 || kib > UINT64_MAX / 1024 || strncmp(end, " kB", 3) != 0)
        return -ENODATA;
    *ret = (uint64_t)kib * 1024;
    return 0;
}

int budget_memory_limit(const char *root, struct budget_limit *ret)
{
    struct finding f = {.limit.source = "MemTotal"};
    char full[PATH_MAX], text[16384], *rest = text, *line;
    int r = mem_total(root, &f.limit.bytes);

    if (r < 0)
        return r;
    if (snprintf(full, sizeof(full), "%s/proc/self/cgroup", root) < (int)sizeof(full)) {
        r = read_text(full, text, sizeof(text));
        if (is_want(r))
            return r;
        while (r >= 0 && (line = strsep(&rest, "\n")) != NULL)
            lower_by_line(root, line, &f);
    }
    if (f.want != 0)
        return f.want;
    *ret = f.limit;
    return 0;
}
