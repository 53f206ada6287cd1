/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a file that is written and read all the time is out of service, and what to do: the same
 * words in the daemon's log and from kvcachectl. Any thread.
 */
#ifndef KVC_WIRE_OUTAGE_H
#define KVC_WIRE_OUTAGE_H

struct outage {
    const char *what; /* is wrong with it, after its name and ": "; NULL: the error says all */
    const char *next; /* to be done about it */
};

/* error: the name of an errno, as PATHS has it ("EIO"); another one, "" too, is the drive's. */
const struct outage *outage_of(const char *error);

#endif
