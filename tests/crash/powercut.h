/* SPDX-License-Identifier: Apache-2.0 */
/* The log of powercut.c, which power.c reads: records, each followed by `bytes` bytes. */
#ifndef KVC_TEST_POWERCUT_H
#define KVC_TEST_POWERCUT_H

#include <stdint.h>

enum cut_kind {
    CUT_FILE = 1, /* file: its number from here on; serial: its inode */
    CUT_WRITE,    /* serial: the write's; behind it what was there before */
    CUT_DONE,     /* serial: of a write that has ended */
    CUT_SAFE,     /* the same, and it needs no sync (O_DSYNC) */
    CUT_SYNC,     /* serial: of a sync of `file` that begins */
    CUT_SYNCED    /* of one that has ended well: what was done before it began is safe */
};

struct cut_record {
    uint32_t kind, file;
    uint64_t serial, off, bytes;
};

#endif
