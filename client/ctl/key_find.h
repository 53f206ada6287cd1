/* SPDX-License-Identifier: Apache-2.0 */
/* A key of which the command line has the beginning only, as tables show them. One thread. */
#ifndef CTL_KEY_FIND_H
#define CTL_KEY_FIND_H

#include "ctl.h"
#include "key.h"

/* Completes a shortened key: asks the daemon for the cached blocks whose keys begin with it, in
 * namespace `ns` (0 = in all that the session may see). Does nothing for a whole key. 0; or an enum
 * ctl_exit after saying that no key begins so, or which keys do. */
int key_find(const struct ctl *ctl, uint32_t ns, struct key_arg *key);

#endif
