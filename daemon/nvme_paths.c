/* SPDX-License-Identifier: Apache-2.0 */
#include "nvme_paths.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "meta.h"
#include "nvme.h"
#include "sys.h"

void nvme_paths_dir_of(const char *path, char ret[NVME_PATH_FILE_BYTES])
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash == NULL || slash == path ? 1 : (size_t)(slash - path);
    (void)!snprintf(ret, NVME_PATH_FILE_BYTES, "%.*s", (int)n, path);
}

static void nvme_paths_look(struct store_path *p)
{
    struct stat st;
    p->place = NVME_PLACE_NONE;
    p->err = stat(p->given, &st) < 0 ? errno : 0;
    if (p->err == 0)
        p->place = S_ISDIR(st.st_mode)   ? NVME_PLACE_DIR
                   : S_ISREG(st.st_mode) ? NVME_PLACE_FILE
                   : S_ISBLK(st.st_mode) ? NVME_PLACE_DEVICE
                                         : NVME_PLACE_NONE;
    (void)!snprintf(p->file, sizeof(p->file), p->place == NVME_PLACE_DIR ? "%s/%s" : "%s", p->given,
                    DISK_FILE_NAME);
}

/* Whether two paths mean the same file or device, also by different names. */
static bool is_same(const struct store_path *a, const struct store_path *b)
{
    struct stat x, y;
    if (strcmp(a->file, b->file) == 0)
        return true;
    if (stat(a->given, &x) < 0 || stat(b->given, &y) < 0)
        return false;
    if (S_ISBLK(x.st_mode) && S_ISBLK(y.st_mode))
        return x.st_rdev == y.st_rdev;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Drops spaces on both sides, and slashes at the end. */
static const char *trim(const char *text, size_t *len)
{
    while (*len > 0 && *text == ' ') {
        text++;
        --*len;
    }
    while (*len > 0 && text[*len - 1] == ' ')
        --*len;
    while (*len > 1 && text[*len - 1] == '/')
        --*len;
    return text;
}

static int take_one(struct nvme_paths *p, const char *text, size_t len, char *why, size_t cap)
{
    text = trim(text, &len);
    struct store_path *path = &p->path[p->n];
    const int shown = (int)MIN(len, (size_t)80);
    if (len == 0)
        (void)!snprintf(why, cap, "expected a path before and behind each comma, got an empty one");
    else if (text[0] != '/')
        (void)!snprintf(why, cap, "expected absolute paths, got '%.*s'; for example '/mnt/nvme0'",
                        shown, text);
    else if (len >= CONFIG_PATH_BYTES)
        (void)!snprintf(why, cap, "expected paths of at most %u bytes, got %zu: '%.*s...'",
                        CONFIG_PATH_BYTES - 1, len, shown, text);
    else if (p->n == DISK_PATHS_MAX)
        (void)!snprintf(why, cap, "expected at most %u paths, got more", DISK_PATHS_MAX);
    else {
        (void)!snprintf(path->given, sizeof(path->given), "%.*s", (int)len, text);
        nvme_paths_look(path);
        for (uint32_t i = 0; i < p->n; i++) {
            if (!is_same(&p->path[i], path))
                continue;
            (void)!snprintf(why, cap,
                            "expected each path once, got '%.*s' and '%.*s', which is "
                            "the same",
                            80, p->path[i].given, shown, text);
            return -EINVAL;
        }
        p->n++;
        return 0;
    }
    return -EINVAL;
}

int nvme_paths_read(const char *list, const char *journal, struct nvme_paths *ret_paths, char *why,
                    size_t why_cap)
{
    struct nvme_paths p = {0};
    char dir[NVME_PATH_FILE_BYTES];
    int err = 0;
    for (const char *at = list; err == 0; at++) {
        const size_t len = strcspn(at, ",");
        err = take_one(&p, at, len, why, why_cap);
        at += len;
        if (*at == '\0')
            break;
    }
    if (err)
        return err;
    nvme_paths_dir_of(p.path[0].file, dir);
    if (journal[0] != '\0')
        (void)!snprintf(p.journal, sizeof(p.journal), "%s", journal);
    else
        (void)!snprintf(p.journal, sizeof(p.journal), "%.*s/journal", (int)CONFIG_PATH_BYTES,
                        strcmp(dir, "/") == 0 ? "" : dir);
    *ret_paths = p;
    return 0;
}

int nvme_paths_find(const struct nvme_paths *paths, const char *list, uint32_t *ret_bits, char *why,
                    size_t why_cap)
{
    uint32_t bits = 0;
    for (const char *at = list; *at != '\0'; at += *at == ',') {
        size_t len = strcspn(at, ","), had = len;
        const char *text = trim(at, &len);
        uint32_t i = 0;
        while (i < paths->n && (strlen(paths->path[i].given) != len ||
                                memcmp(paths->path[i].given, text, len) != 0))
            i++;
        if (i == paths->n) {
            (void)!snprintf(why, why_cap, "expected paths that nvme.paths names, got '%.*s'",
                            (int)MIN(len, (size_t)80), text);
            return -EINVAL;
        }
        bits |= UINT32_C(1) << i;
        at += had;
    }
    *ret_bits = bits;
    return 0;
}

/* Whether path i is the first on its file system: paths of one file system share its free room. */
static bool is_first_on(const struct nvme_paths *p, uint32_t i)
{
    struct stat st, other;
    if (stat(p->path[i].given, &st) < 0)
        return false;
    for (uint32_t k = 0; k < i; k++)
        if (p->path[k].place != NVME_PLACE_DEVICE && stat(p->path[k].given, &other) == 0 &&
            other.st_dev == st.st_dev)
            return false;
    return true;
}

/* Bytes of the small files beside a journal: the secret, locks and directories. */
#define SMALL_FILES_BYTES (UINT64_C(256) << 10)

/* Bytes of its file system that a journal will take. 0: it exists already. */
static uint64_t journal_bytes(const char *dir)
{
    char env[NVME_PATH_FILE_BYTES + 32];
    struct stat st;
    (void)!snprintf(env, sizeof(env), "%s/env", dir);
    return stat(env, &st) < 0 && errno == ENOENT ? META_MAP_BYTES + SMALL_FILES_BYTES : 0;
}

/* A directory on the journal's file system: the journal's own if a file system is mounted there,
 * else its parent. */
static void journal_place(const struct nvme_paths *p, char ret[NVME_PATH_FILE_BYTES])
{
    struct stat own, above;
    nvme_paths_dir_of(p->journal, ret);
    if (stat(p->journal, &own) == 0 && stat(ret, &above) == 0 && own.st_dev != above.st_dev)
        (void)!snprintf(ret, NVME_PATH_FILE_BYTES, "%s", p->journal);
}

/* Bytes that journals will take of path i's file system. If room is short, names.db is left out, so
 * that there is a store. */
static uint64_t journals_on(const struct nvme_paths *p, uint32_t i, uint64_t free)
{
    char dir[NVME_PATH_FILE_BYTES], names[NVME_PATH_FILE_BYTES + 16];
    struct stat at, on;
    journal_place(p, dir);
    if (stat(dir, &at) < 0 || stat(p->path[i].given, &on) < 0 || on.st_dev != at.st_dev)
        return 0;
    (void)!snprintf(names, sizeof(names), "%s/" NVME_PATHS_NAMES, dir);
    const uint64_t journal = journal_bytes(p->journal), both = journal + journal_bytes(names);
    return free >= both + config_table[config_key("nvme.limit")].min ? both : journal;
}

uint64_t nvme_paths_room(const struct nvme_paths *paths)
{
    uint64_t room = 0;
    for (uint32_t i = 0; i < paths->n; i++) {
        static struct disk_file_room at;
        char why[DISK_FILE_WHY_BYTES];
        if (disk_file_probe(paths->path[i].given, &at, why) < 0)
            continue;
        room += at.exists ? at.bytes : 0;
        if (!at.is_device && is_first_on(paths, i))
            room += at.free - MIN(at.free, journals_on(paths, i, at.free));
    }
    return room;
}

/* Whether the file holds a store. A file of zeroes does not; one that cannot be read counts as one.
 */
static bool holds_store(const char *file)
{
    static uint8_t head[DISK_FILE_HEAD_BYTES];
    const int fd = sys_open(file, O_RDONLY, 0);
    const ssize_t n = fd < 0 ? -1 : pread(fd, head, sizeof(head), 0);
    if (fd >= 0)
        (void)close(fd);
    for (ssize_t i = 0; i < n; i++)
        if (head[i] != 0)
            return true;
    return n < 0;
}

uint64_t nvme_paths_kept(const struct nvme_paths *paths)
{
    static struct disk_file_room at[DISK_PATHS_MAX];
    char why[DISK_FILE_WHY_BYTES];
    uint64_t largest = 0, kept = 0;
    for (uint32_t i = 0; i < paths->n; i++) {
        if (disk_file_probe(paths->path[i].given, &at[i], why) < 0 || !at[i].exists)
            at[i].is_device = false;
        else if (!at[i].is_device && at[i].bytes > largest && holds_store(at[i].file))
            largest = at[i].bytes;
    }
    for (uint32_t i = 0; i < paths->n; i++)
        kept += at[i].is_device ? MIN(at[i].bytes, largest) : largest;
    return kept;
}

uint64_t nvme_paths_least(const struct config *cfg, uint32_t paths)
{
    const uint64_t shares = paths * NVME_PATH_BYTES_MIN(cfg->nvme.segment),
                   segments = NVME_PATHS_SEGMENTS_MIN * cfg->nvme.segment,
                   key = config_table[config_key("nvme.limit")].min;
    return ROUND_UP(MAX(MAX(shares, segments), key), UINT64_C(1) << 20);
}

/* Bytes wanted of each file system. */
struct rooms {
    struct {
        dev_t dev;
        uint64_t wanted, free;
        const char *dir;
    } at[DISK_PATHS_MAX + 1];
    uint32_t n;
};

static void want_room(struct rooms *r, const char *dir, uint64_t bytes)
{
    struct stat st;
    struct statvfs fs;
    uint32_t i = 0;
    if (stat(dir, &st) < 0 || statvfs(dir, &fs) < 0)
        return;
    while (i < r->n && r->at[i].dev != st.st_dev)
        i++;
    if (i == r->n) {
        r->at[i].dev = st.st_dev;
        r->at[i].free = (uint64_t)fs.f_bavail * fs.f_frsize;
        r->at[i].dir = dir;
        r->n++;
    }
    r->at[i].wanted += bytes;
}

uint64_t nvme_paths_missing(const struct nvme_paths *paths, const uint64_t *bytes,
                            char ret_dir[NVME_PATH_FILE_BYTES])
{
    static char dir[DISK_PATHS_MAX + 1][NVME_PATH_FILE_BYTES];
    struct rooms rooms = {.n = 0};
    uint64_t missing = 0;
    journal_place(paths, dir[DISK_PATHS_MAX]);
    want_room(&rooms, dir[DISK_PATHS_MAX], journal_bytes(paths->journal));
    for (uint32_t i = 0; i < paths->n; i++) {
        static struct disk_file_room room;
        char why[DISK_FILE_WHY_BYTES];
        nvme_paths_dir_of(paths->path[i].file, dir[i]);
        if (disk_file_probe(paths->path[i].given, &room, why) == 0 && !room.is_device)
            want_room(&rooms, dir[i], bytes[i] - MIN(bytes[i], room.bytes));
    }
    for (uint32_t i = 0; i < rooms.n; i++) {
        const uint64_t more = rooms.at[i].wanted - MIN(rooms.at[i].wanted, rooms.at[i].free);
        if (more <= missing)
            continue;
        missing = more;
        (void)!snprintf(ret_dir, NVME_PATH_FILE_BYTES, "%s", rooms.at[i].dir);
    }
    return missing;
}

void nvme_paths_secret(const struct nvme_paths *paths, char ret_file[NVME_PATH_FILE_BYTES])
{
    char dir[NVME_PATH_FILE_BYTES];
    nvme_paths_dir_of(paths->journal, dir);
    (void)!snprintf(ret_file, NVME_PATH_FILE_BYTES, "%.*s/secret", (int)CONFIG_PATH_BYTES,
                    strcmp(dir, "/") == 0 ? "" : dir);
}
