/* SPDX-License-Identifier: Apache-2.0 */
#ifdef KVC_HAVE_CUDA
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu_cuda__.h"
#include "sys.h"

/* CUDA IPC exports the piece of 2 MiB and more that an allocation lies in, with what else is there.
 */
#define CUDA_IPC_BYTES (2u << 20)
#define SPANS_FIRST    16u

_Static_assert(sizeof(CUipcMemHandle) == DEVICE_IPC_BYTES, "an IPC handle passes whole");

/* ---- spans ---- */

int cuda__span_room(struct cuda_spans *spans)
{
    if (spans->n < spans->room)
        return 0;
    const uint32_t room = spans->room ? 2 * spans->room : SPANS_FIRST;
    struct cuda_span *at = sys_realloc(spans->at, room * sizeof(*at));
    if (!at)
        return -ENOMEM;
    spans->at = at;
    spans->room = room;
    return 0;
}

/* How many begin at addr or before. */
static uint32_t count_up_to(const struct cuda_spans *spans, uint64_t addr)
{
    uint32_t low = 0, high = spans->n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (spans->at[middle].start <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void cuda__span_add(struct cuda_spans *spans, const struct cuda_span *span)
{
    MUST(spans->n < spans->room);
    const uint32_t i = count_up_to(spans, span->start);
    memmove(&spans->at[i + 1], &spans->at[i], (spans->n - i) * sizeof(*span));
    spans->at[i] = *span;
    spans->n++;
}

void cuda__span_remove(struct cuda_spans *spans, struct cuda_span *span)
{
    const uint32_t i = (uint32_t)(span - spans->at);
    MUST(i < spans->n);
    spans->n--;
    memmove(span, span + 1, (spans->n - i) * sizeof(*span));
}

struct cuda_span *cuda__span_find(const struct cuda_spans *spans, uint64_t addr, uint32_t *hint,
                                  uint64_t *ret_next)
{
    if (*hint < spans->n) {
        struct cuda_span *guess = &spans->at[*hint];
        if (addr >= guess->start && addr < guess->end)
            return guess;
    }
    const uint32_t after = count_up_to(spans, addr);
    if (after > 0 && addr < spans->at[after - 1].end) {
        *hint = after - 1;
        return &spans->at[after - 1];
    }
    *ret_next = after < spans->n ? spans->at[after].start : UINT64_MAX;
    return NULL;
}

/* ---- what there is of an allocation ---- */

static uint64_t next_serial(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/* Undoes as much as can be: true when nothing is left. */
static bool release(struct gpu_dev *dev, struct cuda_span *s)
{
    const struct cuda_api *cu = dev->cu;
    if (s->cleared > dev->ended && !dev->broken &&
        !cuda__undone(dev, "cuEventSynchronize",
                      cu->EventSynchronize(dev->event[s->cleared % CUDA_TICKETS])))
        return false;
    const uint64_t bytes = s->end - s->start;
    if (s->mapped && cuda__undone(dev, "cuMemUnmap", cu->MemUnmap(s->start, bytes)))
        s->mapped = false;
    if (s->reserved && !s->mapped &&
        cuda__undone(dev, "cuMemAddressFree", cu->MemAddressFree(s->start, bytes)))
        s->reserved = false;
    if (s->created && cuda__undone(dev, "cuMemRelease", cu->MemRelease(s->handle)))
        s->created = false;
    if (s->held && s->kind == CUDA_PLAIN && cuda__undone(dev, "cuMemFree", cu->MemFree(s->start)))
        s->held = false;
    if (s->held && s->kind == CUDA_IPC &&
        cuda__undone(dev, "cuIpcCloseMemHandle", cu->IpcCloseMemHandle(s->start)))
        s->held = false;
    if (s->fd >= 0)
        (void)close(s->fd);
    s->fd = -1;
    return !s->mapped && !s->reserved && !s->created && !s->held;
}

/* Of one that is not whole: what cannot be undone now is undone when the device is closed. */
static int give_up(struct gpu_dev *dev, struct cuda_span *s, int err)
{
    if (dev->broken || !release(dev, s))
        cuda__span_add(&dev->mem, s);
    return dev->broken ? -EIO : err;
}

static void hand_over(struct gpu_dev *dev, struct cuda_span *s, const struct gpu_mem *made,
                      struct gpu_mem *mem)
{
    s->serial = next_serial();
    cuda__span_add(&dev->mem, s);
    mem->addr = made->addr;
    mem->bytes = made->bytes;
    mem->handle = made->handle;
    mem->imported = made->imported;
    mem->priv = (void *)(uintptr_t)s->serial;
}

/* ---- VMM ---- */

/* Gives s->handle `bytes` of addresses. What fails because of the handle is -EINVAL when it came
 * from elsewhere. */
static int map(struct gpu_dev *dev, struct cuda_span *s, uint64_t bytes, int otherwise)
{
    const struct cuda_api *cu = dev->cu;
    CUdeviceptr at = 0;
    int r = cuda__may(dev, "cuMemAddressReserve", cu->MemAddressReserve(&at, bytes, 0, 0, 0), -EIO);
    if (r < 0)
        return r;
    s->start = at;
    s->end = at + bytes;
    s->reserved = true;
    r = cuda__may(dev, "cuMemMap", cu->MemMap(at, bytes, 0, s->handle, 0), otherwise);
    if (r < 0)
        return r;
    s->mapped = true;
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cuda__may(dev, "cuMemSetAccess", cu->MemSetAccess(at, bytes, &access, 1), otherwise);
}

static int export_fd(struct gpu_dev *dev, struct cuda_span *s, struct device_handle *handle)
{
    int fd = -1;
    const int r = cuda__may(dev, "cuMemExportToShareableHandle",
                            dev->cu->MemExportToShareableHandle(
                                &fd, s->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                            -EIO);
    if (r < 0)
        return r;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* fails for no open descriptor */
    handle->kind = DEVICE_HANDLE_FD;
    handle->fd = fd;
    s->fd = fd;
    return 0;
}

static int alloc_vmm(struct gpu_dev *dev, uint64_t bytes, struct cuda_span *s,
                     struct device_handle *handle)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev->device}};
    const uint64_t whole = ROUND_UP(bytes, dev->granularity);
    s->kind = CUDA_VMM;
    int r = cuda__may(dev, "cuMemCreate", dev->cu->MemCreate(&s->handle, whole, &prop, 0), -EIO);
    if (r < 0)
        return r;
    s->created = true;
    r = map(dev, s, whole, -EIO);
    return r < 0 ? r : export_fd(dev, s, handle);
}

static int import_fd(struct gpu_dev *dev, const struct device_handle *handle, struct cuda_span *s)
{
    const struct cuda_api *cu = dev->cu;
    if (!dev->vmm)
        return cuda__refuse(dev, -EOPNOTSUPP, "this device takes no descriptors of memory");
    if (handle->fd < 0 || handle->offset != 0)
        return cuda__refuse(dev, -EINVAL, "a descriptor of memory stands for all of it");
    s->kind = CUDA_VMM;
    int r = cuda__may(dev, "cuMemImportFromShareableHandle",
                      cu->MemImportFromShareableHandle(&s->handle, (void *)(intptr_t)handle->fd,
                                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                      -EINVAL);
    if (r < 0)
        return r;
    s->created = true;
    CUmemAllocationProp prop = {0};
    r = cuda__may(dev, "cuMemGetAllocationPropertiesFromHandle",
                  cu->MemGetAllocationPropertiesFromHandle(&prop, s->handle), -EINVAL);
    if (r < 0)
        return r;
    if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop.location.id != dev->device)
        return cuda__refuse(dev, -EINVAL, "memory of another device, or of none");
    /* More than there is cannot be mapped: to drivers it is something that they do not support. */
    r = map(dev, s, ROUND_UP(handle->bytes, dev->granularity), -EINVAL);
    return r == -EOPNOTSUPP ? -EINVAL : r;
}

/* ---- CUDA IPC ---- */

static int alloc_plain(struct gpu_dev *dev, uint64_t bytes, struct cuda_span *s,
                       struct device_handle *handle)
{
    const struct cuda_api *cu = dev->cu;
    const uint64_t whole = ROUND_UP(bytes, CUDA_IPC_BYTES);
    CUdeviceptr at = 0;
    s->kind = CUDA_PLAIN;
    int r = cuda__may(dev, "cuMemAlloc", cu->MemAlloc(&at, whole), -EIO);
    if (r < 0)
        return r;
    s->start = at;
    s->end = at + whole;
    s->held = true;
    CUipcMemHandle ipc;
    r = cuda__may(dev, "cuIpcGetMemHandle", cu->IpcGetMemHandle(&ipc, at), -EIO);
    if (r == -EOPNOTSUPP)
        return 0; /* memory that cannot be exported is memory all the same */
    if (r < 0)
        return r;
    handle->kind = DEVICE_HANDLE_IPC;
    memcpy(handle->ipc, &ipc, sizeof(ipc));
    return 0;
}

static int import_ipc(struct gpu_dev *dev, const struct device_handle *handle, struct cuda_span *s)
{
    const struct cuda_api *cu = dev->cu;
    CUipcMemHandle ipc;
    CUdeviceptr at = 0, base = 0;
    size_t bytes = 0;
    int ordinal = -1;
    memcpy(&ipc, handle->ipc, sizeof(ipc));
    s->kind = CUDA_IPC;
    int r = cuda__may(dev, "cuIpcOpenMemHandle",
                      cu->IpcOpenMemHandle(&at, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS), -EINVAL);
    if (r < 0)
        return r;
    s->start = at;
    s->end = at; /* until it is known */
    s->held = true;
    r = cuda__may(dev, "cuPointerGetAttribute",
                  cu->PointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at),
                  -EINVAL);
    if (r < 0)
        return r;
    if (ordinal != dev->device)
        return cuda__refuse(dev, -EINVAL, "memory of another device");
    r = cuda__may(dev, "cuMemGetAddressRange", cu->MemGetAddressRange(&base, &bytes, at), -EINVAL);
    if (r < 0)
        return r;
    if (base != at || handle->offset > bytes || handle->bytes > bytes - handle->offset)
        return cuda__refuse(dev, -EINVAL, "memory of %zu bytes, said to have %ju at %ju", bytes,
                            (uintmax_t)handle->bytes, (uintmax_t)handle->offset);
    s->end = at + bytes;
    return 0;
}

/* Whoever imports it reads all of it, and CUDA does not promise that it is nobody's bytes. On a
 * stream, for a wait here would be one of all copies. */
static int clear(struct gpu_dev *dev, struct cuda_span *s)
{
    MUST(dev->issued - dev->ended < CUDA_TICKETS);
    int r = cuda__may(dev, "cuMemsetD8Async",
                      dev->cu->MemsetD8Async(s->start, 0, s->end - s->start,
                                             dev->stream[GPU_ON_DEVICE - GPU_TO_DEVICE]),
                      -EIO);
    return r < 0 ? r : cuda__ticket(dev, GPU_ON_DEVICE, &s->cleared);
}

/* ---- for gpu_drv.h ---- */

int cuda__alloc(struct gpu_dev *dev, uint64_t bytes, struct gpu_mem *mem, uint64_t *ret_ticket)
{
    MUST(bytes > 0);
    if (dev->broken)
        return -EIO;
    if (bytes > dev->memory_bytes)
        return cuda__refuse(dev, -ENOMEM, "the device has %ju bytes", (uintmax_t)dev->memory_bytes);
    int r = cuda__span_room(&dev->mem);
    if (r < 0)
        return cuda__refuse(dev, r, "no memory for another range of memory");
    struct cuda_span s = {.fd = -1};
    struct gpu_mem made = {.bytes = bytes, .handle = {.fd = -1, .bytes = bytes}};
    r = dev->vmm ? alloc_vmm(dev, bytes, &s, &made.handle)
                 : alloc_plain(dev, bytes, &s, &made.handle);
    if (r == 0)
        r = clear(dev, &s);
    if (r < 0)
        return give_up(dev, &s, r);
    made.addr = s.start;
    hand_over(dev, &s, &made, mem);
    *ret_ticket = s.cleared;
    return 0;
}

int cuda__import(struct gpu_dev *dev, const struct device_handle *handle, struct gpu_mem *mem)
{
    if (dev->broken)
        return -EIO;
    if (handle->kind != DEVICE_HANDLE_FD && handle->kind != DEVICE_HANDLE_IPC)
        return cuda__refuse(dev, -EOPNOTSUPP, "handles of kind %u are not CUDA's", handle->kind);
    if (handle->bytes == 0 || handle->bytes > dev->memory_bytes)
        return cuda__refuse(dev, -EINVAL, "memory said to have %ju bytes on a device of %ju",
                            (uintmax_t)handle->bytes, (uintmax_t)dev->memory_bytes);
    int r = cuda__span_room(&dev->mem);
    if (r < 0)
        return cuda__refuse(dev, r, "no memory for another range of memory");
    struct cuda_span s = {.fd = -1};
    r = handle->kind == DEVICE_HANDLE_FD ? import_fd(dev, handle, &s) : import_ipc(dev, handle, &s);
    if (r < 0)
        return give_up(dev, &s, r);
    const struct gpu_mem made = {.addr = s.start + handle->offset,
                                 .bytes = handle->bytes,
                                 .handle.fd = -1,
                                 .imported = true};
    hand_over(dev, &s, &made, mem);
    return 0;
}

/* Memory of an earlier time of the device is not found; it went with that. */
void cuda__free(struct gpu_dev *dev, struct gpu_mem *mem)
{
    const uint64_t serial = (uintptr_t)mem->priv;
    uint32_t i = 0;
    while (i < dev->mem.n && dev->mem.at[i].serial != serial)
        i++;
    /* Of a broken one, closing the device frees it. */
    if (i < dev->mem.n && !dev->broken && release(dev, &dev->mem.at[i]))
        cuda__span_remove(&dev->mem, &dev->mem.at[i]);
}

void cuda__free_all(struct gpu_dev *dev, bool after_reset)
{
    for (uint32_t i = dev->mem.n; i > 0; i--) {
        struct cuda_span *s = &dev->mem.at[i - 1];
        if (after_reset)
            s->held = false;
        else if (dev->broken)
            return;
        if (release(dev, s) || after_reset)
            cuda__span_remove(&dev->mem, s);
    }
}
#endif
