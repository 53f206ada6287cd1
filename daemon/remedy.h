/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator does about a file that the daemon may not use. Any thread. */
#ifndef KVC_REMEDY_H
#define KVC_REMEDY_H

#include "config.h"

#define REMEDY_BYTES (CONFIG_PATH_BYTES + 96)

/* Text to put behind the error, such as "; try: chown ..."; "" where nothing helps to say. inside:
 * the remedy is for all files in the directory `path`. err: an errno, positive or negative. */
const char *remedy_of(int err, const char *path, bool inside, char text[REMEDY_BYTES]);

#endif
