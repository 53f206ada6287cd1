/* SPDX-License-Identifier: Apache-2.0 */
#include "node_check.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "arena.h"
#include "log.h"
#include "meta.h"
#include "node_config.h"
#include "node_nvme.h"
#include "nvme_paths.h"
#include "sys.h"
#include "units.h"

#define HUGE_PAGE_BYTES (UINT64_C(2) << 20)
#define HUGE_PAGES_DIR  "/sys/kernel/mm/hugepages/hugepages-2048kB/"

/* ---- directories ---- */

/* Warns of a directory that other users may write to: they can replace the daemon's files and
 * sockets, unless it has the sticky bit. `path`: the directory, or a file in it, which may not
 * exist yet. */
static void warn_of_others(const char *key, const char *path)
{
    char dir[NVME_PATH_FILE_BYTES];
    struct stat st;
    (void)!snprintf(dir, sizeof dir, "%s", path);
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode)) {
        nvme_paths_dir_of(path, dir);
        if (stat(dir, &st) != 0)
            return;
    }
    if ((st.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH)
        LOG_WARN("%s: every user may write to %s (mode %04o), and put files of their own in place "
                 "of the daemon's; try: chmod o-w %s",
                 key, dir, (unsigned)(st.st_mode & 07777), dir);
    else if (st.st_uid != geteuid() && st.st_uid != 0)
        LOG_WARN("%s: %s belongs to uid %u, and the daemon is uid %u: that user may put files of "
                 "its own in place of the daemon's; try: chown %u %s",
                 key, dir, (unsigned)st.st_uid, (unsigned)geteuid(), (unsigned)geteuid(), dir);
}

static void warn_of_directories(const struct config *cfg)
{
    struct nvme_paths paths;
    char why[CONFIG_ERROR_TEXT_MAX];
    warn_of_others("runtime_dir", cfg->runtime_dir);
    if (cfg->names.dir[0] != '\0' && cfg->limits.names != 0)
        warn_of_others("names.dir", cfg->names.dir);
    if (cfg->nvme.paths[0] == '\0' ||
        nvme_paths_read(cfg->nvme.paths, cfg->nvme.journal, &paths, why, sizeof why) < 0)
        return; /* no paths: the configuration was checked before, so this is no error */
    for (uint32_t i = 0; i < paths.n; i++)
        if (paths.path[i].place != NVME_PLACE_DEVICE)
            warn_of_others("nvme.paths", paths.path[i].given);
    if (cfg->nvme.journal[0] != '\0')
        warn_of_others("nvme.journal", cfg->nvme.journal);
}

/* ---- the size of files ---- */

struct file_need {
    const char *key;
    uint64_t bytes;
    const char *remedy;
};

/* Checks RLIMIT_FSIZE against the files needed. The limit holds for shared memory too. */
static bool may_be_as_large(const struct config *cfg, uint64_t store_bytes)
{
    const bool journal = cfg->nvme.paths[0] != '\0';
    const bool names =
        cfg->limits.names != 0 && (cfg->names.dir[0] != '\0' || cfg->host.persist[0] == '/');
    const struct file_need needs[] = {
        {"nvme.limit", store_bytes, ", or lower nvme.limit, or give it more paths"},
        {"staging.session_max", cfg->staging.session_max, ", or lower staging.session_max"},
        {"host.chunk", cfg->host.chunk, ", or lower host.chunk"},
        {"nvme.journal", journal ? META_MAP_BYTES : 0, ""},
        {"names.dir", names ? META_MAP_BYTES : 0, ", or set limits.names to 0"}};
    struct rlimit limit;
    char wanted[UNITS_TEXT_BYTES], most[UNITS_TEXT_BYTES];
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return true;
    bool ok = true;
    for (unsigned i = 0; i < ARRAY_LEN(needs); i++) {
        if (needs[i].bytes <= limit.rlim_cur)
            continue;
        LOG_ERROR("%s: a file of %s is needed, and this process may make files of %s at most "
                  "(RLIMIT_FSIZE): raise that (ulimit -f unlimited, LimitFSIZE=infinity)%s",
                  needs[i].key, units_format_bytes(needs[i].bytes, wanted),
                  units_format_bytes(limit.rlim_cur, most), needs[i].remedy);
        ok = false;
    }
    return ok;
}

/* ---- descriptors ---- */

static bool has_descriptors(const struct config *cfg)
{
    struct rlimit limit;
    const uint64_t need = node_descriptors(cfg);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= need)
        return true;
    LOG_ERROR("%llu descriptors may be needed and the hard limit is %llu (RLIMIT_NOFILE): raise it "
              "(ulimit -Hn, LimitNOFILE), lower limits.sessions or raise host.chunk",
              (unsigned long long)need, (unsigned long long)limit.rlim_max);
    return false;
}

/* ---- huge pages ---- */

/* Reads a count from sysfs. False: the kernel does not have it. */
static bool read_count(const char *path, uint64_t *ret)
{
    char text[32];
    const int fd = sys_open(path, O_RDONLY, 0);
    if (fd < 0)
        return false;
    const ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return units_parse_count(text, ret, NULL) == 0;
}

/* False: host.huge_pages is `require`, but host.persist is on tmpfs, which has no hugetlbfs pages.
 */
static bool may_be_huge(const struct config *cfg)
{
    struct statfs fs;
    if (cfg->host.huge_pages != CONFIG_HUGE_REQUIRE || cfg->host.persist[0] != '/' ||
        statfs(cfg->host.persist, &fs) != 0 || fs.f_type != TMPFS_MAGIC)
        return true;
    LOG_ERROR("host.huge_pages: require: host.persist, %s, is on tmpfs, which has none of the huge "
              "pages that are reserved: mount hugetlbfs there, or set host.huge_pages to try",
              cfg->host.persist);
    return false;
}

/* Compares the need with all reserved pages, not the free ones: a daemon that still runs returns
 * its pages before the next one starts. */
static bool has_huge_pages(const struct config *cfg)
{
    const struct arena_config arena = {.limit_bytes = cfg->host.limit,
                                       .chunk_bytes = cfg->host.chunk};
    struct arena_sizes sizes;
    uint64_t reserved, more;
    if (cfg->host.huge_pages != CONFIG_HUGE_REQUIRE || cfg->host.persist[0] == '/' ||
        !read_count(HUGE_PAGES_DIR "nr_hugepages", &reserved) ||
        !read_count(HUGE_PAGES_DIR "nr_overcommit_hugepages", &more))
        return true;
    arena_sizes(&arena, &sizes);
    const uint64_t wanted = sizes.chunks * sizes.chunk_bytes / HUGE_PAGE_BYTES;
    if (reserved + more >= wanted)
        return true;
    LOG_ERROR("host.huge_pages: require: %llu pages of 2 MiB are needed, and the kernel has %llu: "
              "reserve "
              "them (sysctl vm.nr_hugepages=%llu), lower host.limit, or set host.huge_pages to try",
              (unsigned long long)wanted, (unsigned long long)(reserved + more),
              (unsigned long long)wanted);
    return false;
}

bool node_check(const struct config *cfg)
{
    uint64_t store_bytes = 0;
    warn_of_directories(cfg);
    const bool fits = node_nvme_fits(cfg, &store_bytes);
    const bool large = may_be_as_large(cfg, store_bytes);
    const bool open = has_descriptors(cfg);
    return may_be_huge(cfg) && has_huge_pages(cfg) && fits && large && open;
}
