/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the arena's chunks come from: memfds, files in a directory, or descriptors that the service
 * manager keeps. Opens, finds and removes them; the three kinds are in backing.h.
 */
#include "backing.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"
#include "layout.h"
#include "sys.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26) /* log2 of the page size, above the flags */
#endif

#define FS_TMPFS     0x01021994u
#define FS_HUGETLBFS 0x958458f6u
#define LOCK_STEP_MS 20u
#define LOCK_LOUD_MS 1000u

struct backing {
    struct backing_config config;
    int dir; /* locked */
    DIR *list;
    uint32_t fs, next_fd, refused;
    uint64_t page_bytes; /* of the directory's file system */
    char text[HOME_PATH_BYTES + 64];
};

/* --- the file system of a directory --- */

static const char *fs_name(uint32_t magic, char text[16])
{
    static const struct {
        uint32_t magic;
        const char *name;
    } known[] = {{FS_TMPFS, "tmpfs"},   {FS_HUGETLBFS, "hugetlbfs"},
                 {0xef53, "ext4"},      {0x58465342, "xfs"},
                 {0x9123683e, "btrfs"}, {0x794c7630, "overlayfs"},
                 {0x858458f6, "ramfs"}, {0x6969, "nfs"},
                 {0x9fa0, "proc"},      {0x2fc12fc1, "zfs"},
                 {0x65735546, "fuse"},  {0x62656572, "sysfs"},
                 {0x01021997, "v9fs"},  {0xf2f52010, "f2fs"}};
    for (unsigned i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].magic == magic)
            return known[i].name;
    (void)snprintf(text, 16, "type %#x", magic);
    return text;
}

/* Looks at the directory; if it is missing, *ret_there is false and its parent is looked at. */
static int backing_look_at(const char *dir, struct statfs *ret_fs, struct stat *ret_st,
                           bool *ret_there)
{
    char parent[HOME_PATH_BYTES];
    *ret_there = stat(dir, ret_st) == 0;
    if (*ret_there)
        return statfs(dir, ret_fs) == 0 ? 0 : -errno;
    if (errno != ENOENT)
        return -errno;
    (void)snprintf(parent, sizeof(parent), "%s", dir);
    char *slash = strrchr(parent, '/');
    if (slash == NULL)
        return -EINVAL;
    slash[slash == parent] = '\0';
    return stat(parent, ret_st) == 0 && statfs(parent, ret_fs) == 0 ? 0 : -errno;
}

const char *backing_dir_problem(const char *dir, char *text, uint32_t cap)
{
    struct statfs fs;
    struct stat st;
    bool there;
    char name[16];
    if (dir[0] != '/' || strlen(dir) > HOME_PATH_BYTES - HOME_NAME_BYTES) {
        (void)snprintf(text, cap, "expected the absolute path of a directory, got '%s'", dir);
        return text;
    }
    const int err = backing_look_at(dir, &fs, &st, &there);
    if (err < 0)
        (void)snprintf(text, cap, "%s: %s", dir, strerror(-err));
    else if (!S_ISDIR(st.st_mode))
        (void)snprintf(text, cap, "%s is not a directory", dir);
    else if ((uint32_t)fs.f_type != FS_TMPFS && (uint32_t)fs.f_type != FS_HUGETLBFS)
        (void)snprintf(text, cap,
                       "%s is on %s; chunks are memory, so it must be on tmpfs or hugetlbfs: for "
                       "example /dev/shm/kvcache, or a mount of its own (mount -t tmpfs -o "
                       "size=64G,mode=0700 kvcache %s)",
                       dir, fs_name((uint32_t)fs.f_type, name), dir);
    else if (there && (st.st_uid != geteuid() || (st.st_mode & 022) != 0))
        (void)snprintf(text, cap,
                       "%s belongs to uid %u and has mode %04o; it must belong to the daemon's uid "
                       "%u and be writable for nobody else",
                       dir, (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777),
                       (unsigned)geteuid());
    else
        return NULL;
    return text;
}

/* --- files of a directory --- */

/* Most wrong bits in a magic that still counts as one. By chance, eight bytes of another program's
 * file are so near to a magic once in 4e14. */
#define MAGIC_FLIPS 3

static const char names_file[] = "names", chunk_prefix[] = "chunk-", fd_prefix[] = "kvc-";

/* Whether `name` is the name of a chunk: `prefix`, then its id. */
static bool is_chunk(const char *name, const char *prefix, uint32_t *ret_id)
{
    const size_t n = strlen(prefix);
    char back[HOME_NAME_BYTES], *end;
    if (strncmp(name, prefix, n) != 0)
        return false;
    const unsigned long id = strtoul(name + n, &end, 10);
    (void)snprintf(back, sizeof(back), "%s%lu", prefix, id);
    if (id == 0 || id > UINT32_MAX || strcmp(back, name) != 0)
        return false;
    *ret_id = (uint32_t)id;
    return true;
}

/* Whether no other user can have written the file: owner, mode and links are as the daemon sets
 * them. */
static bool is_ours(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 07777) == 0600 && st.st_nlink <= 1;
}

static bool has_whole_pages(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size % LAYOUT_PAGE_BYTES == 0;
}

/* False also for a daemon's file that was not written yet, or whose magic has flipped bits. */
static bool has_magic(int fd, uint64_t magic)
{
    uint64_t first;
    return pread(fd, &first, sizeof(first), 0) == sizeof(first) && first == magic;
}

static bool is_made_here(int fd, uint64_t magic)
{
    uint64_t first = 0;
    const ssize_t n = pread(fd, &first, sizeof(first), 0);
    if (has_magic(fd, magic))
        return true;
    const bool maybe =
        n == 0 ||
        (n == sizeof(first) && (first == 0 || __builtin_popcountll(first ^ magic) <= MAGIC_FLIPS));
    return maybe && is_ours(fd);
}

enum kin {
    KIN_NONE,     /* its name is none that the daemon gives; the others have such a name */
    KIN_STRANGER, /* not made by the daemon, or not readable */
    KIN_DAMAGED,  /* its content is none of ours; but is_ours() */
    KIN_MADE, /* probably made by the daemon: the magic is right, or almost right and is_ours() */
    KIN_OURS, /* made by the daemon, certainly: the magic is right, and is_ours() */
};

/* Whether there is a file `names`, or a chunk, with name, owner, mode and size as the daemon makes
 * them. The content does not matter. */
struct seen {
    bool names, chunk;
};

static enum kin kin_of(int dir, const char *name, struct seen *seen)
{
    struct stat st;
    uint32_t id;
    const bool chunk = is_chunk(name, chunk_prefix, &id);
    const uint64_t magic = chunk ? LAYOUT_CHUNK_MAGIC : LAYOUT_NAMES_MAGIC;
    if (!chunk && strcmp(name, names_file) != 0)
        return KIN_NONE;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
        return KIN_STRANGER;
    const int fd = FAULT(fd) ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return KIN_STRANGER;
    const bool ours = is_ours(fd);
    if (ours && has_whole_pages(fd))
        *(chunk ? &seen->chunk : &seen->names) = true;
    const enum kin kin = ours && has_magic(fd, magic) ? KIN_OURS
                         : is_made_here(fd, magic)    ? KIN_MADE
                         : ours                       ? KIN_DAMAGED
                                                      : KIN_STRANGER;
    (void)close(fd);
    return kin;
}

const char *backing_stranger(const char *dir, char *text, uint32_t cap)
{
    char found[NAME_MAX + 1] = "";
    DIR *list = FAULT(alloc) ? NULL : opendir(dir);
    const struct dirent *e;
    struct seen seen = {0};
    enum kin worst = KIN_NONE;
    bool backing = false;
    if (list == NULL) {
        (void)snprintf(text, cap, "%s cannot be read", dir);
        return text;
    }
    while (worst != KIN_STRANGER && (e = readdir(list)) != NULL) {
        const enum kin kin = kin_of(dirfd(list), e->d_name, &seen);
        backing |= kin == KIN_OURS;
        if (kin != KIN_STRANGER && kin != KIN_DAMAGED)
            continue;
        worst = kin;
        (void)snprintf(found, sizeof(found), "%s", e->d_name);
    }
    (void)closedir(list);
    /* Beside a file that is certainly ours, a KIN_DAMAGED one is ours too, and recovery gives it
     * up. The same holds where `names` and a chunk stand side by side: a run that stored nothing
     * leaves no other files. One of them alone may be another user's file. */
    backing |= seen.names && seen.chunk;
    if (worst == KIN_NONE || (worst == KIN_DAMAGED && backing))
        return NULL;
    (void)snprintf(text, cap,
                   "%s/%s has a name that kvcache-daemon gives its memory, and is not of its "
                   "making, or damaged; nothing was changed: move it away, or set host.persist "
                   "to a directory of the daemon's own",
                   dir, found);
    return text;
}

/* --- open, close --- */

static void sleep_ms(unsigned ms)
{
    const struct timespec ts = {.tv_nsec = (long)ms * 1000000};
    (void)nanosleep(&ts, NULL);
}

static int backing_lock(int dir, const struct backing_config *config)
{
    for (uint64_t waited = 0; flock(dir, LOCK_EX | LOCK_NB) != 0; waited += LOCK_STEP_MS) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (waited >= config->wait_ms)
            return -EBUSY;
        if (waited == LOCK_LOUD_MS && config->waits != NULL)
            config->waits(config->ctx);
        sleep_ms(LOCK_STEP_MS);
    }
    return 0;
}

static int open_dir(struct backing *h)
{
    const char *dir = h->config.dir;
    char text[512], name[16];
    struct statfs fs;
    if (backing_dir_problem(dir, text, sizeof(text)) != NULL)
        return -EINVAL;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return -errno;
    h->dir = sys_open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
    if (h->dir < 0 || fstatfs(h->dir, &fs) != 0)
        return -errno;
    h->fs = (uint32_t)fs.f_type;
    h->page_bytes = (uint64_t)fs.f_bsize;
    (void)snprintf(h->text, sizeof(h->text), "files in %s (%s)", dir, fs_name(h->fs, name));
    const int err = backing_lock(h->dir, &h->config);
    if (err < 0)
        return err;
    if (backing_stranger(dir, text, sizeof(text)) != NULL)
        return -EEXIST;
    h->list = FAULT(alloc) ? NULL : opendir(dir);
    return h->list != NULL ? 0 : -ENOMEM;
}

int backing_open(const struct backing_config *config, struct backing **ret_backing)
{
    struct backing *h = sys_calloc(1, sizeof(*h));
    if (h == NULL)
        return -ENOMEM;
    h->config = *config;
    h->dir = -1;
    h->page_bytes = 4096;
    int err = 0;
    if (config->persist == ARENA_PERSIST_DIR)
        err = open_dir(h);
    else
        (void)snprintf(h->text, sizeof(h->text), "%s",
                       config->persist == ARENA_PERSIST_FDS
                           ? "descriptors kept by the service manager"
                           : "off (host.persist)");
    if (err < 0) {
        backing_close(&h);
        return err;
    }
    *ret_backing = h;
    return 0;
}

void backing_close(struct backing **backing)
{
    if (backing == NULL || *backing == NULL)
        return;
    struct backing *h = *backing;
    if (h->list != NULL)
        (void)closedir(h->list);
    if (h->dir >= 0)
        (void)close(h->dir);
    free(h);
    *backing = NULL;
}

bool backing_keeps(const struct backing *h)
{
    return h->config.persist != ARENA_PERSIST_OFF;
}

bool backing_is_huge(const struct backing *h)
{
    return h->dir >= 0 && h->fs == FS_HUGETLBFS;
}

const char *backing_text(const struct backing *h)
{
    return h->text;
}

void backing_space(const struct backing *h, uint64_t *ret_total, uint64_t *ret_free)
{
    struct statfs fs;
    *ret_total = *ret_free = UINT64_MAX;
    if (h->dir < 0 || h->fs != FS_TMPFS || fstatfs(h->dir, &fs) != 0 || fs.f_blocks == 0)
        return; /* f_blocks is 0 for a tmpfs without a limit; hugetlbfs reserves when it is mapped
                 */
    *ret_total = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
    *ret_free = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
}

/* --- names --- */

static void backing_name_of(const struct backing *h, uint32_t id, char name[HOME_NAME_BYTES])
{
    (void)snprintf(name, HOME_NAME_BYTES, "%s%s%u", h->dir >= 0 ? "" : fd_prefix, chunk_prefix, id);
}

static void backing_path_of(const struct backing *h, const char *name, char path[HOME_PATH_BYTES])
{
    (void)snprintf(path, HOME_PATH_BYTES, "%.*s/%s", (int)(HOME_PATH_BYTES - HOME_NAME_BYTES - 2),
                   h->config.dir, name);
}

/* Whether `name` is one that backing_name_of() gives; *ret_id: the chunk's id. */
static bool backing_id_of(const struct backing *h, const char *name, uint32_t *ret_id)
{
    const size_t n = h->dir >= 0 ? 0 : strlen(fd_prefix);
    return strncmp(name, fd_prefix, n) == 0 && is_chunk(name + n, chunk_prefix, ret_id);
}

static void tier_home_forget(struct backing *h, const char *name)
{
    char path[HOME_PATH_BYTES];
    if (h->config.persist == ARENA_PERSIST_FDS) {
        if (h->config.remove != NULL)
            h->config.remove(h->config.ctx, name);
    } else if (h->config.persist == ARENA_PERSIST_DIR) {
        backing_path_of(h, name, path);
        (void)unlink(path); /* a file that is left is handled by the next start */
    }
}

void backing_forget(struct backing *h, uint32_t id)
{
    char name[HOME_NAME_BYTES];
    backing_name_of(h, id, name);
    tier_home_forget(h, name);
}

static int give(struct backing *h, const char *name, int fd)
{
    return h->config.store != NULL ? h->config.store(h->config.ctx, name, fd) : -ENOTCONN;
}

/* --- making --- */

static int make_memfd(const char *name, uint64_t bytes, bool huge)
{
    const int fd = sys_memfd_sized(name, huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0, bytes);
    return fd < 0 ? -errno : fd;
}

static int make_file(struct backing *h, const char *name, uint64_t bytes)
{
    char path[HOME_PATH_BYTES];
    backing_path_of(h, name, path);
    const int fd = sys_open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    if (fchmod(fd, S_IRUSR | S_IWUSR) == 0 && sys_ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    const int err = -errno;
    (void)close(fd);
    (void)unlink(path);
    return err;
}

int backing_make(struct backing *h, uint32_t id, uint64_t bytes, bool huge, int *ret_fd)
{
    char name[HOME_NAME_BYTES];
    backing_name_of(h, id, name);
    if (h->dir >= 0 && huge != (h->fs == FS_HUGETLBFS))
        return -ENOTSUP;
    const int fd = h->dir >= 0 ? make_file(h, name, bytes) : make_memfd(name, bytes, huge);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

int backing_keep(struct backing *h, uint32_t id, int fd)
{
    char name[HOME_NAME_BYTES];
    if (h->config.persist != ARENA_PERSIST_FDS)
        return 0;
    backing_name_of(h, id, name);
    return give(h, name, fd);
}

int backing_reserve(const struct backing *h, int fd, uint64_t at, uint64_t bytes)
{
    if (h->dir < 0 || h->fs != FS_TMPFS)
        return 0;
    if (FAULT(map))
        return -ENOSPC;
    for (;;) {
        if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes) == 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

/* --- chunks that were kept --- */

static int backing_open_file(struct backing *h, const char *name)
{
    char path[HOME_PATH_BYTES];
    backing_path_of(h, name, path);
    const int fd = sys_open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
    return fd < 0 ? -errno : fd;
}

/* Returns the descriptor of the next chunk's file, and its name. -EAGAIN: this file is no chunk;
 * -ENOENT: there are no more; else the error of open(). */
static int next_file(struct backing *h, const char **ret_name)
{
    const struct dirent *e = readdir(h->list);
    if (e == NULL)
        return -ENOENT;
    uint32_t id;
    *ret_name = e->d_name;
    return backing_id_of(h, e->d_name, &id) ? backing_open_file(h, e->d_name) : -EAGAIN;
}

static int next_stored(struct backing *h, const char **ret_name)
{
    if (h->next_fd == h->config.nfds)
        return -ENOENT;
    struct backing_fd *f = &h->config.fds[h->next_fd++];
    uint32_t id;
    if (f->fd < 0 || !backing_id_of(h, f->name, &id))
        return -EAGAIN;
    const int fd = f->fd;
    f->fd = -1;
    *ret_name = f->name;
    return fd;
}

int backing_next(struct backing *h, uint32_t *ret_id, int *ret_fd)
{
    const char *name = NULL;
    for (;;) {
        int fd = -ENOENT;
        if (h->config.persist == ARENA_PERSIST_DIR)
            fd = next_file(h, &name);
        else if (h->config.persist == ARENA_PERSIST_FDS)
            fd = next_stored(h, &name);
        if (fd == -EAGAIN)
            continue; /* not a chunk */
        if (fd == -ENOENT)
            return 0;
        if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
            return fd;
        if (fd < 0 || !is_ours(fd)) {
            if (fd >= 0)
                (void)close(fd);
            tier_home_forget(h, name);
            h->refused++;
            continue;
        }
        const bool mine = backing_id_of(h, name, ret_id);
        MUST(mine);
        *ret_fd = fd;
        return 1;
    }
}

uint32_t backing_refused(const struct backing *h)
{
    return h->refused;
}

/* --- names --- */

static int find_names(struct backing *h, const char *name)
{
    if (h->dir >= 0)
        return backing_open_file(h, name);
    for (uint32_t i = 0; i < h->config.nfds; i++) {
        struct backing_fd *f = &h->config.fds[i];
        if (f->fd < 0 || strcmp(f->name, name) != 0)
            continue;
        const int fd = f->fd;
        f->fd = -1;
        return fd;
    }
    return -ENOENT;
}

int backing_names(struct backing *h, uint64_t bytes, int *ret_fd, uint64_t *ret_bytes)
{
    char name[HOME_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "%s%s", h->dir >= 0 ? "" : fd_prefix, names_file);
    struct stat st;
    int fd = find_names(h, name);
    if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM)
        return fd;
    if (fd >= 0 && (!is_ours(fd) || !is_made_here(fd, LAYOUT_NAMES_MAGIC))) {
        (void)close(fd);
        fd = -EPERM;
    }
    bytes = ROUND_UP(bytes, h->page_bytes);
    const bool refused = fd < 0 && fd != -ENOENT;
    if (fd < 0) {
        if (refused)
            tier_home_forget(h, name);
        fd = h->dir >= 0 ? make_file(h, name, bytes) : make_memfd(name, bytes, false);
        if (fd < 0)
            return fd;
        /* If the service manager refuses, the next start finds no names and discards the chunks. */
        if (h->config.persist == ARENA_PERSIST_FDS)
            (void)!give(h, name, fd);
    }
    if (fstat(fd, &st) != 0 ||
        ((uint64_t)st.st_size < bytes && sys_ftruncate(fd, (off_t)bytes) != 0)) {
        const int err = -errno;
        (void)close(fd);
        return err;
    }
    *ret_fd = fd;
    *ret_bytes = MAX((uint64_t)st.st_size, bytes);
    return refused;
}
