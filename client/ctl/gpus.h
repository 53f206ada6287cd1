/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's devices, as `gpu`, `stats` and `usage` show them. One thread. */
#ifndef CTL_GPUS_H
#define CTL_GPUS_H

#include <kvcache/gpu.h>

#include "rows.h"

struct json_t;

struct devices {
    struct rows rows, rates;
};

/* Asks the daemon. 0, or the library's error. What was taken is given back by devices_free(). */
int devices_take(struct ctl *ctl, struct devices *ret_devices);
void devices_free(struct devices *devices);
const struct kvc_device *devices_at(const struct devices *devices, size_t i);
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
