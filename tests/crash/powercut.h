/* SPDX-License-Identifier: Apache-2.0 */
/* The log that powercut.c writes and power.c reads: records, each followed by `bytes` bytes. */
#ifndef KVC_TEST_POWERCUT_H
#define KVC_TEST_POWERCUT_H

#include <stdint.h>

enum cut_kind {
    /* file: the number that the file has in the following records; serial: its inode. */
    CUT_FILE = 1,
    CUT_WRITE, /* serial: number of the write; the bytes that it overwrote follow */
    CUT_DONE,  /* serial: the write that has ended */
    CUT_SAFE,  /* the same, of a write that needs no sync (O_DSYNC) */
    CUT_SYNC,  /* serial: number of a sync of `file` that begins */
    CUT_SYNCED /* a sync has succeeded: writes that had ended before it began are safe */
};

struct cut_record {
    uint32_t kind, file;
    uint64_t serial, off, bytes;
};

#endif
