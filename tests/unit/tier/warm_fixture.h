/* SPDX-License-Identifier: Apache-2.0 */
/* Places in which an arena's chunks wait for its next run. */
#ifndef KVC_TEST_WARM_FIXTURE_H
#define KVC_TEST_WARM_FIXTURE_H

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "arena.h"

#define KIB      1024u
#define MIB      (1024u * 1024u)
#define KEPT_MAX 64u
#define TMPFS    0x01021994

static const uint64_t two_principals[] = {0, 0x1111, 0x2222};

/* ---- a place for chunks: a directory, or this process in the role of a service manager ---- */

struct kept {
    char dir[64];
    struct backing_fd fds[KEPT_MAX];
    uint32_t nfds;
    uint32_t stored;
    bool refuse;
};

static inline int prefault_takes(void *ctx, const char *name, int fd)
{
    struct kept *k = ctx;
    if (k->refuse)
        return -ENOBUFS;
    ck_assert_uint_lt(k->nfds, KEPT_MAX);
    struct backing_fd *f = &k->fds[k->nfds++];
    ck_assert_int_lt(snprintf(f->name, sizeof(f->name), "%s", name), (int)sizeof(f->name));
    f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    ck_assert_int_ge(f->fd, 0);
    k->stored++;
    return 0;
}

static inline void prefault_drops(void *ctx, const char *name)
{
    struct kept *k = ctx;
    for (uint32_t i = 0; i < k->nfds; i++)
        if (strcmp(k->fds[i].name, name) == 0) {
            close(k->fds[i].fd);
            k->fds[i--] = k->fds[--k->nfds];
        }
}

static inline bool kept_begin(struct kept *k)
{
    struct statfs fs;
    *k = (struct kept){0};
    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS) {
        printf("SKIP: /dev/shm is no tmpfs\n");
        return false;
    }
    snprintf(k->dir, sizeof(k->dir), "/dev/shm/kvc-warm-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(k->dir));
    return true;
}

static inline void kept_end(struct kept *k)
{
    char path[512];
    DIR *d = opendir(k->dir);
    ck_assert_ptr_nonnull(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        snprintf(path, sizeof(path), "%s/%s", k->dir, e->d_name);
        (void)unlink(path);
    }
    closedir(d);
    ck_assert_int_eq(rmdir(k->dir), 0);
    while (k->nfds > 0)
        close(k->fds[--k->nfds].fd);
}

static inline struct arena_config config_of(struct kept *k, enum arena_persist persist)
{
    return (struct arena_config){.limit_bytes = 16 * MIB,
                                 .chunk_bytes = 2 * MIB,
                                 .backing = {.persist = persist,
                                             .dir = k->dir,
                                             .store = prefault_takes,
                                             .remove = prefault_drops,
                                             .ctx = k},
                                 .names_max = 8,
                                 .prints = two_principals,
                                 .nprints = ARRAY_LEN(two_principals)};
}

/* The service manager passes duplicates of the descriptors and keeps its own. */
static inline void give_back(const struct kept *k, struct arena_config *config,
                             struct backing_fd given[KEPT_MAX])
{
    for (uint32_t i = 0; i < k->nfds; i++) {
        given[i] = k->fds[i];
        given[i].fd = fcntl(k->fds[i].fd, F_DUPFD_CLOEXEC, 0);
        ck_assert_int_ge(given[i].fd, 0);
    }
    config->backing.fds = given;
    config->backing.nfds = k->nfds;
}

static inline struct arena *start(struct kept *k, const struct arena_config *config)
{
    struct backing_fd given[KEPT_MAX];
    struct arena_config c = *config;
    struct arena *a = NULL;
    give_back(k, &c, given);
    ck_assert_int_eq(arena_create(&c, &a), 0);
    for (uint32_t i = 0; i < c.backing.nfds && c.backing.persist == ARENA_PERSIST_FDS; i++)
        ck_assert_int_eq(given[i].fd, -1);
    return a;
}

#endif
