/* SPDX-License-Identifier: Apache-2.0 */
/* The secret from which the salts of namespaces come. */
#ifndef KVC_SECRET_H
#define KVC_SECRET_H

#include "err.h"
#include "hash.h"

/* path "": a new random secret. Else the 32 bytes of that file, which is made (mode 0600) when it
 * is absent. A file that others can read, or of another size, is refused: -EPERM, -EINVAL. What is
 * wrong is logged here. */
KVC_WARN_UNUSED int secret_load(const char *path, struct key256 *ret_secret);

#endif
