/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "world.h"

const char *const files_class_name[FILES_CLASSES] = {
    [FILES_PAYLOAD] = "payload", [FILES_META] = "meta",       [FILES_JOURNAL] = "journal",
    [FILES_SLOTS] = "slots",     [FILES_HEADERS] = "headers", [FILES_ANY] = "any"};

static struct files *into; /* nftw has no context */
static bool as_host;

static void move_all(int fd, uint8_t *bytes, uint64_t size, bool out)
{
    for (uint64_t at = 0; at < size;) {
        ssize_t n = out ? pwrite(fd, bytes + at, size - at, (off_t)at)
                        : pread(fd, bytes + at, size - at, (off_t)at);
        ck_assert_msg(n > 0, "a file cannot be copied: %s", strerror(errno));
        at += (uint64_t)n;
    }
}

static int keep_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    const char *name = path + at->base;
    if (kind != FTW_F || !S_ISREG(st->st_mode))
        return 0;
    ck_assert_uint_lt(into->n, FILES_MAX);
    struct files_one *one = &into->file[into->n++];
    *one = (struct files_one){
        .size = (uint64_t)st->st_size, .host = as_host, .journal = strcmp(name, "data.mdb") == 0};
    ck_assert_uint_lt(strlen(path), sizeof one->path);
    strcpy(one->path, path);
    one->bytes = malloc(one->size + 1);
    ck_assert_ptr_nonnull(one->bytes);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    move_all(fd, one->bytes, one->size, false);
    close(fd);
    return 0;
}

void files_keep(struct files *f, const char *dir, bool host)
{
    into = f;
    as_host = host;
    ck_assert_int_eq(nftw(dir, keep_one, 16, FTW_PHYS | FTW_MOUNT), 0);
}

/* ---- classes ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static bool is_empty(const uint8_t *page, uint64_t bytes)
{
    return page[0] == 0 && memcmp(page, page + 1, bytes - 1) == 0;
}

static void add(struct files *f, enum files_class which, unsigned file, uint64_t page)
{
    struct files_page **list = &f->page[which];
    const uint32_t n = f->pages[which]++;
    if ((n & (n - 1)) == 0) {
        *list = realloc(*list, (n ? 2 * (size_t)n : 1) * sizeof **list);
        ck_assert_ptr_nonnull(*list);
    }
    (*list)[n] = (struct files_page){(uint16_t)file, (uint32_t)page};
}

static uint64_t page_bytes(const struct files_one *one, uint64_t page)
{
    const uint64_t left = one->size - page * FILES_PAGE;
    return left < FILES_PAGE ? left : FILES_PAGE;
}

static void sort_page(struct files *f, unsigned file, uint64_t page, const uint64_t *words,
                      uint32_t n)
{
    const struct files_one *one = &f->file[file];
    const uint8_t *p = one->bytes + page * FILES_PAGE;
    const uint64_t bytes = page_bytes(one, page);
    uint64_t word = 0;
    memcpy(&word, p, bytes < sizeof word ? bytes : sizeof word);
    if (is_empty(p, bytes))
        return;
    add(f, FILES_ANY, file, page);
    if (one->journal) {
        add(f, FILES_JOURNAL, file, page);
        return;
    }
    const bool block = bsearch(&word, words, n, sizeof word, by_value) != NULL;
    if (one->host)
        add(f, block ? FILES_SLOTS : FILES_HEADERS, file, page);
    else if (one->size > FILES_PAGE) /* not the secret, nor locks */
        add(f, block ? FILES_PAYLOAD : FILES_META, file, page);
}

void files_sort(struct files *f, uint64_t *words, uint32_t n)
{
    qsort(words, n, sizeof words[0], by_value);
    for (unsigned i = 0; i < f->n; i++)
        for (uint64_t page = 0; page * FILES_PAGE < f->file[i].size; page++)
            sort_page(f, i, page, words, n);
}

/* ---- back, and damaged ---- */

static const struct files *known;

static int remove_unknown(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)at;
    if (kind != FTW_F)
        return 0;
    for (unsigned i = 0; i < known->n; i++)
        if (strcmp(known->file[i].path, path) == 0)
            return 0;
    return remove(path);
}

void files_put_back(const struct files *f, const char *const *dirs, unsigned ndirs)
{
    known = f;
    for (unsigned i = 0; i < ndirs; i++)
        ck_assert_int_eq(nftw(dirs[i], remove_unknown, 16, FTW_PHYS | FTW_MOUNT), 0);
    for (unsigned i = 0; i < f->n; i++) {
        const struct files_one *one = &f->file[i];
        char above[sizeof one->path];
        strcpy(above, one->path);
        *strrchr(above, '/') = '\0';
        (void)!mkdir(above, 0700); /* of the journal: it may have been moved aside */
        int fd = open(one->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(ftruncate(fd, (off_t)one->size), 0);
        move_all(fd, one->bytes, one->size, true);
        close(fd);
    }
}

bool files_flip(const struct files *f, enum files_class which, uint64_t *random,
                char ret_where[320])
{
    if (f->pages[which] == 0)
        return false;
    const struct files_page *page = &f->page[which][world_random(random) % f->pages[which]];
    const struct files_one *one = &f->file[page->file];
    uint64_t at = 0;
    /* Rather where something is written than in what fills the page. */
    for (unsigned i = 0; i < 16; i++) {
        at = (uint64_t)page->page * FILES_PAGE +
             (world_random(random) >> 8) % page_bytes(one, page->page);
        if (one->bytes[at] != 0)
            break;
    }
    const unsigned bit = (unsigned)(world_random(random) >> 8) % 8;
    uint8_t byte = 0;
    int fd = open(one->path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
    byte = (uint8_t)(byte ^ (1u << bit));
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
    close(fd);
    snprintf(ret_where, 320, "%s: byte %llu, bit %u", one->path, (unsigned long long)at, bit);
    return true;
}

void files_free(struct files *f)
{
    for (unsigned i = 0; i < f->n; i++)
        free(f->file[i].bytes);
    for (unsigned i = 0; i < FILES_CLASSES; i++)
        free(f->page[i]);
}
