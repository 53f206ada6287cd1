/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a store and of host memory that outlives its daemon: kept, put back, damaged. */
#ifndef KVC_TEST_CRASH_FILES_H
#define KVC_TEST_CRASH_FILES_H

#include <stdbool.h>
#include <stdint.h>

#define FILES_MAX  64u
#define FILES_PAGE 4096u

enum files_class {
    FILES_PAYLOAD, /* pages of blocks in a store */
    FILES_META,    /* its other pages that are not empty: superblocks, tables, namespaces */
    FILES_JOURNAL, /* the LMDB file */
    FILES_SLOTS,   /* pages of blocks in host memory */
    FILES_HEADERS, /* its other pages that are not empty */
    FILES_ANY,     /* any byte of any file */
    FILES_CLASSES
};
extern const char *const files_class_name[FILES_CLASSES];

struct files {
    struct files_one {
        char path[256];
        uint8_t *bytes;
        uint64_t size;
        bool host, journal;
    } file[FILES_MAX];
    unsigned n;
    struct files_page { /* by class, at random places */
        uint16_t file;
        uint32_t page;
    } * page[FILES_CLASSES];
    uint32_t pages[FILES_CLASSES];
};

/* Takes all files below a directory in: of a store, or of host memory. Sockets, logs and what
 * belongs to the runtime directory are left out. */
void files_keep(struct files *f, const char *dir, bool host);
/* Sorts pages into classes: one is of a block when its first word is in `words`, which are put in
 * order. */
void files_sort(struct files *f, uint64_t *words, uint32_t n);
/* Everything as it was when it was kept; what has come since goes. */
void files_put_back(const struct files *f, const char *const *dirs, unsigned ndirs);
/* Flips one bit of a class in its file. false: there is no page of that class. *ret_where: which.
 */
bool files_flip(const struct files *f, enum files_class which, uint64_t *random,
                char ret_where[320]);
void files_free(struct files *f);

#endif
