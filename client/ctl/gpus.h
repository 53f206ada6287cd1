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

/* Asks the daemon for its devices. 0, or the library's error. devices_free() frees them. */
int devices_take(struct ctl *ctl, struct devices *ret_devices);
void devices_free(struct devices *devices);
const struct kvc_device *devices_at(const struct devices *devices, size_t i);
/* Prints `before` and a table of the rates that were measured at start, by device and size of
 * fragment. Prints nothing if there are none. */
void devices_print_rates(const struct devices *devices, const char *before, bool colour);
/* All columns of all devices as an array, which the caller owns. */
struct json_t *devices_json(const struct devices *devices);
/* Prints for each device that may hold blocks how much it holds. */
void devices_print_use(const struct devices *devices);
/* The same as an array, which the caller owns. */
struct json_t *devices_use_json(const struct devices *devices);

#endif
