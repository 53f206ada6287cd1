/* SPDX-License-Identifier: Apache-2.0 */
/* What `hbm.devices` names: devices, and how much of each is for blocks. Pure. */
#ifndef KVC_HBM_DEVICES_H
#define KVC_HBM_DEVICES_H

#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "err.h"

#define HBM_DEVICE_NAME_BYTES 64u

struct hbm_device_entry {
    char name[HBM_DEVICE_NAME_BYTES]; /* "GPU-<uuid>", "cuda:<ordinal>", "emu:<number>" */
    uint64_t limit_bytes;             /* for slots; 0: none, workers' pools alone */
};
struct hbm_devices {
    struct hbm_device_entry entry[DEVICES_MAX];
    uint32_t n;
};

/* Parses "cuda:0=20GiB, emu:1". -EINVAL with `why` naming the entry: empty, no such kind of name,
 * not a size, given twice, too many. Does not ask whether the device exists. */
KVC_WARN_UNUSED int hbm_devices_read(const char *list, struct hbm_devices *ret_devices, char *why,
                                     size_t why_cap);
/* The sum of limit_bytes over all devices. */
uint64_t hbm_devices_bytes(const struct hbm_devices *devices);

#endif
