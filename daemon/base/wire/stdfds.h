/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors 0, 1 and 2 of a program that was started without some of them, and whether what was
 * printed has arrived. */
#ifndef KVC_WIRE_STDFDS_H
#define KVC_WIRE_STDFDS_H

/* First thing in main(): what a program opens later does not get one of these numbers, and with it
 * what is meant for stdout. Reading and writing those that were closed fails with EBADF, as before.
 * 0 or a negative errno. */
__attribute__((warn_unused_result)) int stdfds_hold(void);
/* Writes out what stdout holds: 0, or the negative errno of the first write to it that failed.
 * main() says so and ends with an exit code of its own, so only loops need to look. */
int stdfds_flush(void);

#endif
