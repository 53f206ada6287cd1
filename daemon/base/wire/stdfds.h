/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors 0, 1 and 2 of a program that was started without some of them, and whether what was
 * printed has arrived. */
#ifndef KVC_WIRE_STDFDS_H
#define KVC_WIRE_STDFDS_H

/* Call it first in main(). Then no file that the program opens gets one of these numbers, and so
 * none gets the output that is meant for stdout. Reading and writing descriptors that were closed
 * fails with EBADF, as before. 0 or a negative errno. */
__attribute__((warn_unused_result)) int stdfds_hold(void);
/* Flushes stdout: 0, or the negative errno of the first write to it that failed. main() reports
 * that at its end with an exit code of its own, so only loops need the result. */
int stdfds_flush(void);

#endif
