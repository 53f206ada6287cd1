/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the rig's own files. */
#ifndef KVC_TEST_SVC_RIG_INTERNAL_H
#define KVC_TEST_SVC_RIG_INTERNAL_H

#include "svc__.h"
#include "svc_rig.h"

#define BLOCK_TOKENS 8u
#define BLOCK_BYTES  64u

struct msg_reserve sr__reserve(const struct sr_blocks *b);
struct msg_seq sr__seq(const struct sr_blocks *b);

void sr__device_ports(struct svc_ports *ports);
/* Called in this order: after the host tier and before the core; whether copies or imports are in
 * flight; after the core. */
void sr__devices_begin(struct srig *s);
bool sr__devices_are_busy(const struct srig *s);
void sr__devices_end(struct srig *s);

#endif
