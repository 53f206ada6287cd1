/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a store or journal is out of service, and what to do: the same words in the daemon's log and
 * from kvcachectl. Any thread.
 */
#ifndef KVC_WIRE_OUTAGE_H
#define KVC_WIRE_OUTAGE_H

struct outage {
    const char *what; /* what is wrong, printed after the file's name and ": "; NULL: the error says
                       * all */
    const char *next; /* what the operator is to do */
};

/* error: the name of an errno, as a row of paths has it ("EIO"). Any name that is not known here,
 * "" too, counts as a fault of the drive. */
const struct outage *outage_of(const char *error);

#endif
