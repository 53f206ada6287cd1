/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a store, and of host memory that outlives its daemon: copied, put back, damaged. */
#ifndef KVC_TEST_CRASH_FILES_H
#define KVC_TEST_CRASH_FILES_H

#include <stdbool.h>
#include <stdint.h>

#define FILES_MAX  64u
#define FILES_PAGE 4096u

enum files_class {
    FILES_PAYLOAD, /* pages of blocks in a store */
    FILES_META,    /* other pages of a store that are not empty: superblocks, tables, namespaces */
    FILES_JOURNAL, /* the LMDB file */
    FILES_SLOTS,   /* pages of blocks in host memory */
    FILES_HEADERS, /* other pages of host memory that are not empty */
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
    struct files_page { /* by class; in each class in random order */
        uint16_t file;
        uint32_t page;
    } * page[FILES_CLASSES];
    uint32_t pages[FILES_CLASSES];
};

/* Copies all files below a directory, of a store or (host) of host memory. It leaves out sockets,
 * logs and the runtime directory's own files. */
void files_keep(struct files *f, const char *dir, bool host);
/* Sorts pages into classes. A page belongs to a block if its first word is in `words`; `words` are
 * sorted. */
void files_sort(struct files *f, uint64_t *words, uint32_t n);
/* Puts all files back as they were copied, and removes files that have been made since. */
void files_put_back(const struct files *f, const char *const *dirs, unsigned ndirs);
/* Flips one bit of a page of this class, in its file. false: no page has this class. *ret_where:
 * which bit. */
bool files_flip(const struct files *f, enum files_class which, uint64_t *random,
                char ret_where[320]);
void files_free(struct files *f);

#endif
