/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's devices, as `gpu`, `stats` and `usage` show them. One thread. */
#ifndef CTL_GPUS_H
#define CTL_GPUS_H

#include <kvcache/gpu.h>

#include "ctl.h"

struct json_t;

struct devices {
    uint32_t n;
    struct kvc_device device[KVC_DEVICES_MAX];
    uint64_t held_bytes[KVC_DEVICES_MAX]; /* of gpu alone */
};

/* Asks the daemon. 0, or the library's error. */
int devices_take(struct ctl *ctl, struct devices *ret_devices);
/* Rates measured at start, by device and size of fragment. Nothing for none; `before` comes before
 * the table. */
void devices_print_rates(const struct devices *devices, const char *before, bool colour);
/* An array of all that is known of each. Returns owned. */
struct json_t *devices_json(const struct devices *devices);
/* A line for each that may hold blocks: how much it holds. */
void devices_print_use(const struct devices *devices);
/* An array of that. Returns owned. */
struct json_t *devices_use_json(const struct devices *devices);

#endif
