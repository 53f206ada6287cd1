/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of devices: "emu:<number>" (an emulated one), "cuda:<ordinal>", and "GPU-<uuid>" or
 * "MIG-<uuid>" as 'nvidia-smi -L' prints them.
 *
 * Threads: any.
 */
#ifndef KVC_GPU_DEVICE_NAME_H
#define KVC_GPU_DEVICE_NAME_H

#include <stdbool.h>
#include <stdint.h>

#include "device_handle.h"

#define DEVICE_NAME_BYTES 64u /* room for any name */

enum device_name_kind { DEVICE_NAME_EMULATED = 1, DEVICE_NAME_ORDINAL, DEVICE_NAME_UUID };
struct device_name {
    enum device_name_kind kind;
    uint32_t number;                 /* EMULATED, ORDINAL */
    uint8_t uuid[DEVICE_UUID_BYTES]; /* UUID */
};

/* False: the text is no such name, or is longer than DEVICE_NAME_BYTES allows. */
bool device_name_parse(const char *text, struct device_name *ret_name);
/* Writes "GPU-01234567-89ab-...", or "emu:<number>". */
void device_name_print(const uint8_t uuid[DEVICE_UUID_BYTES], bool is_emulated,
                       char ret_text[DEVICE_NAME_BYTES]);
/* The UUID of an emulated device: "kvc-emu", five zero bytes, its number as four bytes, big-endian.
 */
void device_name_emu_uuid(uint32_t number, uint8_t ret_uuid[DEVICE_UUID_BYTES]);

#endif
