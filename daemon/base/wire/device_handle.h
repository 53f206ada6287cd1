/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How memory on a device passes from process to process: a descriptor (CUDA VMM), bytes (CUDA IPC),
 * or the memfd that an emulated device's memory is.
 */
#ifndef KVC_WIRE_DEVICE_HANDLE_H
#define KVC_WIRE_DEVICE_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvcache/proto.h>

#define DEVICE_UUID_BYTES KVC_UUID_BYTES
#define DEVICE_IPC_BYTES  KVC_IPC_BYTES

enum device_handle_kind {
    DEVICE_HANDLE_FD = KVC_HANDLE_FD,
    DEVICE_HANDLE_IPC = KVC_HANDLE_IPC,
    DEVICE_HANDLE_EMU = KVC_HANDLE_EMU
};
struct device_handle {
    uint8_t kind;    /* enum device_handle_kind; 0: none */
    int fd;          /* FD, EMU; else -1 */
    bool owned;      /* fd is the handle's, to be closed with it; else it is the memory's */
    uint64_t bytes;  /* of the memory, as its owner says */
    uint64_t offset; /* IPC: of the memory in the allocation that the handle names */
    uint8_t ipc[DEVICE_IPC_BYTES];
};

#endif
