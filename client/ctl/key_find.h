/* SPDX-License-Identifier: Apache-2.0 */
/* A key of which the command line has the beginning only, as tables show them. One thread. */
#ifndef CTL_KEY_FIND_H
#define CTL_KEY_FIND_H

#include "ctl.h"
#include "key.h"

/* Completes the key: asks the daemon for the blocks whose keys begin so, in the namespace `ns` (0 =
 * in all that the session may see). A whole key is left as it is, cached or not. 0; or an enum
 * ctl_exit after saying that there is none, or which there are. */
int key_find(const struct ctl *ctl, uint32_t ns, struct key_arg *key);

#endif
