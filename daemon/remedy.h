/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator does about a file that the daemon may not use. Any thread. */
#ifndef KVC_REMEDY_H
#define KVC_REMEDY_H

#include "config.h"

#define REMEDY_BYTES (CONFIG_PATH_BYTES + 96)

/* "; try: chown ...", to be put behind the error; "" where the error says all. inside: what is in
 * the directory `path` too. err: an errno, positive or negative. */
const char *remedy_of(int err, const char *path, bool inside, char text[REMEDY_BYTES]);

#endif
