/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake_cuda__.h"

#define EXPORTED    __attribute__((visibility("default")))
#define FAILS_MAX   16
#define NAMES_MAX   96
#define NAME_BYTES  48
#define UUID_FAMILY "kvc-fake-cuda--" /* and the ordinal */

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER,
                    .moved = PTHREAD_COND_INITIALIZER,
                    .handles = {&fake.handles, &fake.handles},
                    .ranges = {&fake.ranges, &fake.ranges},
                    .hosts = {&fake.hosts, &fake.hosts}};
_Thread_local struct fake_device *fake__current;

/* ---- failures ---- */

static struct {
    char name[NAME_BYTES];
    uint64_t nth;
    CUresult code;
    bool sticky;
} fails[FAILS_MAX];
static unsigned nfails;

static struct {
    char name[NAME_BYTES];
    uint64_t calls, since_armed;
} counts[NAMES_MAX];
static unsigned ncounts;

_Noreturn void fake__wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "fake_cuda: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    abort();
}

/* "cuMemMap:2=700!,cuMemCreate:1=2": the 2nd call returns 700, and so does every call after it (!);
 * the first of another returns 2. */
static void arm(const char *text)
{
    nfails = 0;
    for (unsigned i = 0; i < ncounts; i++)
        counts[i].since_armed = 0;
    while (*text != '\0') {
        int code = 0, end = 0;
        unsigned long nth = 0;
        char name[NAME_BYTES];
        if (nfails == FAILS_MAX ||
            sscanf(text, "%47[A-Za-z0-9]:%lu=%d%n", name, &nth, &code, &end) != 3)
            fake__wrong("FAKE_CUDA_FAIL: not understood: '%s'", text);
        memcpy(fails[nfails].name, name, NAME_BYTES);
        fails[nfails].nth = nth;
        fails[nfails].code = (CUresult)code;
        text += end;
        fails[nfails].sticky = *text == '!';
        text += *text == '!';
        text += *text == ',';
        nfails++;
    }
}

/* Adds n, and gives the calls since failures were armed; n 0: all calls. */
static uint64_t count_of(const char *name, uint64_t n)
{
    unsigned i = 0;
    while (i < ncounts && strcmp(counts[i].name, name) != 0)
        i++;
    if (i == ncounts) {
        if (ncounts == NAMES_MAX)
            fake__wrong("more than %d names are counted", NAMES_MAX);
        snprintf(counts[i].name, NAME_BYTES, "%s", name);
        ncounts++;
    }
    counts[i].calls += n;
    counts[i].since_armed += n;
    return n > 0 ? counts[i].since_armed : counts[i].calls;
}

void fake__add(const char *name, uint64_t n)
{
    (void)count_of(name, n);
}

CUresult fake__count(const char *name, struct fake_device *device)
{
    const uint64_t n = count_of(name, 1);
    for (unsigned i = 0; i < nfails; i++) {
        if (fails[i].nth != n || strcmp(fails[i].name, name) != 0)
            continue;
        if (fails[i].sticky && device)
            device->sticky = fails[i].code;
        return fails[i].code;
    }
    return CUDA_SUCCESS;
}

/* ---- entering ---- */

CUresult fake__enter(const char *call, enum fake_need need)
{
    pthread_mutex_lock(&fake.lock);
    if (need != FAKE_NOTHING && !fake.is_ready)
        fake__wrong("%s before cuInit", call);
    if (need == FAKE_CONTEXT && (!fake__current || !fake__current->is_alive))
        fake__wrong("%s without a context that is alive", call);
    const CUresult r = fake__count(call, fake__current);
    while (fake.hung && strcmp(fake.hung, call) == 0)
        pthread_cond_wait(&fake.moved, &fake.lock);
    if (r != CUDA_SUCCESS)
        return r;
    return need != FAKE_NOTHING && fake__current ? fake__current->sticky : CUDA_SUCCESS;
}

CUresult fake__leave(CUresult r)
{
    pthread_mutex_unlock(&fake.lock);
    return r;
}

void fake__sleep_us(uint64_t us)
{
    struct timespec left = {.tv_sec = (time_t)(us / 1000000),
                            .tv_nsec = (long)(us % 1000000) * 1000};
    while (nanosleep(&left, &left) < 0)
        continue;
}

struct fake_device *fake__device(CUdevice device)
{
    if (device < 0 || device >= fake.devices)
        fake__wrong("there is no device %d", device);
    return &fake.device[device];
}

unsigned fake__say(unsigned n, const char *what, char *text, size_t bytes)
{
    const size_t used = strlen(text);
    if (n > 0)
        snprintf(text + used, bytes - used, " %u %s", n, what);
    return n;
}

/* ---- start ---- */

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

/* CUDA_VISIBLE_DEVICES: numbers of the machine's devices, in the order in which the program counts
 * them; what is behind a number that there is not is not seen. */
static void number_devices(int machine)
{
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    fake.devices = machine;
    for (int i = 0; i < FAKE_DEVICES_MAX; i++)
        fake.device[i].ordinal = fake.device[i].number = i;
    if (!text)
        return;
    for (fake.devices = 0; fake.devices < machine && *text != '\0'; text += *text == ',') {
        char *end;
        const unsigned long number = strtoul(text, &end, 10);
        if (end == text || number >= (unsigned long)machine)
            return;
        fake.device[fake.devices++].number = (int)number;
        text = end;
    }
}

__attribute__((constructor)) static void read_settings(void)
{
    const int machine = (int)setting("FAKE_CUDA_DEVICES", 2);
    if (machine > FAKE_DEVICES_MAX)
        fake__wrong("FAKE_CUDA_DEVICES: at most %d", FAKE_DEVICES_MAX);
    number_devices(machine);
    fake.version = (int)setting("FAKE_CUDA_VERSION", 13000);
    fake.memory_bytes = setting("FAKE_CUDA_MEMORY", UINT64_C(1) << 30);
    fake.taken_bytes = setting("FAKE_CUDA_TAKEN", 0);
    fake.pins_bytes = setting("FAKE_CUDA_PINS", UINT64_MAX);
    fake.host_offset = setting("FAKE_CUDA_HOST_OFFSET", 0);
    fake.delay_us = (unsigned)setting("FAKE_CUDA_DELAY_US", 100);
    fake.pin_us_per_mib = (unsigned)setting("FAKE_CUDA_PIN_US", 0);
    fake.twins = setting("FAKE_CUDA_TWINS", 0);
    fake.vmm = setting("FAKE_CUDA_VMM", 1);
    fake.ipc = setting("FAKE_CUDA_IPC", 1);
    fake.unified = setting("FAKE_CUDA_UNIFIED", 1);
    fake.mps = setting("FAKE_CUDA_MPS", 0);
    fake.keep_pins = setting("FAKE_CUDA_KEEP_PINS", 0);
    fake.read_only_pins = setting("FAKE_CUDA_READ_ONLY_PINS", 1);
    fake.read_only_maps = setting("FAKE_CUDA_READ_ONLY_MAPS", 1);
    fake.words = setting("FAKE_CUDA_WORDS", 1);
    const char *text = getenv("FAKE_CUDA_FAIL");
    arm(text ? text : "");
    for (int i = 0; i < FAKE_DEVICES_MAX; i++) {
        struct fake_device *d = &fake.device[i];
        d->random = (uint64_t)i + 1;
        list_init(&d->streams);
        list_init(&d->events);
        list_init(&d->modules);
    }
}

CUresult fake_DriverGetVersion(int *ret_version)
{
    const CUresult r = fake__enter("cuDriverGetVersion", FAKE_NOTHING);
    if (r == CUDA_SUCCESS)
        *ret_version = fake.version;
    return fake__leave(r);
}

CUresult fake_Init(unsigned flags)
{
    const CUresult r = fake__enter("cuInit", FAKE_NOTHING);
    if (flags != 0)
        fake__wrong("cuInit: flags %#x", flags);
    if (r == CUDA_SUCCESS)
        fake.is_ready = true;
    return fake__leave(r);
}

CUresult fake_GetErrorName(CUresult error, const char **ret_name)
{
    CUresult r = fake__enter("cuGetErrorName", FAKE_NOTHING);
    if (r == CUDA_SUCCESS) {
        *ret_name = error == CUDA_ERROR_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                    : error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                    : error == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
                                                        : "CUDA_ERROR_OTHER";
        if (error == CUDA_ERROR_UNKNOWN) {
            *ret_name = NULL;
            r = CUDA_ERROR_INVALID_VALUE;
        }
    }
    return fake__leave(r);
}

CUresult fake_GetErrorString(CUresult error, const char **ret_text)
{
    const CUresult r = fake__enter("cuGetErrorString", FAKE_NOTHING);
    if (r == CUDA_SUCCESS)
        *ret_text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "some words";
    return fake__leave(r);
}

/* ---- devices ---- */

CUresult fake_DeviceGetCount(int *ret_count)
{
    const CUresult r = fake__enter("cuDeviceGetCount", FAKE_INIT);
    if (r == CUDA_SUCCESS)
        *ret_count = fake.devices;
    return fake__leave(r);
}

CUresult fake_DeviceGet(CUdevice *ret_device, int ordinal)
{
    CUresult r = fake__enter("cuDeviceGet", FAKE_INIT);
    if (r == CUDA_SUCCESS && (ordinal < 0 || ordinal >= fake.devices))
        r = CUDA_ERROR_INVALID_DEVICE;
    if (r == CUDA_SUCCESS)
        *ret_device = ordinal;
    return fake__leave(r);
}

CUresult fake_DeviceGetName(char *name, int bytes, CUdevice device)
{
    const CUresult r = fake__enter("cuDeviceGetName", FAKE_INIT);
    if (r == CUDA_SUCCESS)
        snprintf(name, (size_t)bytes, "Fake %d", fake__device(device)->number);
    return fake__leave(r);
}

CUresult fake_DeviceGetUuid(CUuuid *ret_uuid, CUdevice device)
{
    const CUresult r = fake__enter("cuDeviceGetUuid", FAKE_INIT);
    if (r == CUDA_SUCCESS) {
        memcpy(ret_uuid->bytes, UUID_FAMILY, sizeof(ret_uuid->bytes));
        ret_uuid->bytes[15] = (char)(0xa0 + fake__device(device)->number);
    }
    return fake__leave(r);
}

CUresult fake_DeviceTotalMem(size_t *ret_bytes, CUdevice device)
{
    const CUresult r = fake__enter("cuDeviceTotalMem", FAKE_INIT);
    (void)fake__device(device);
    if (r == CUDA_SUCCESS)
        *ret_bytes = fake.memory_bytes;
    return fake__leave(r);
}

CUresult fake_DeviceGetAttribute(int *ret_value, CUdevice_attribute which, CUdevice device)
{
    const CUresult r = fake__enter("cuDeviceGetAttribute", FAKE_INIT);
    (void)fake__device(device);
    if (r != CUDA_SUCCESS)
        return fake__leave(r);
    switch ((int)which) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *ret_value = FAKE_MULTIPROCESSORS;
        break;
    case CUDA_ATTRIBUTE_MPS:
        *ret_value = fake.mps;
        break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        *ret_value = fake.unified;
        break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *ret_value = fake.vmm;
        break;
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
        *ret_value = fake.read_only_pins;
        break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        *ret_value = fake.words;
        break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        *ret_value = fake.host_offset == 0;
        break;
    default:
        fake__wrong("cuDeviceGetAttribute: attribute %d is not known here", (int)which);
    }
    return fake__leave(r);
}

/* ---- contexts ---- */

CUresult fake_DevicePrimaryCtxSetFlags(CUdevice device, unsigned flags)
{
    CUresult r = fake__enter("cuDevicePrimaryCtxSetFlags", FAKE_INIT);
    struct fake_device *d = fake__device(device);
    if (r == CUDA_SUCCESS && d->is_alive && d->flags != flags)
        r = CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    if (r == CUDA_SUCCESS)
        d->flags = flags;
    return fake__leave(r);
}

CUresult fake_DevicePrimaryCtxRetain(CUcontext *ret_context, CUdevice device)
{
    CUresult r = fake__enter("cuDevicePrimaryCtxRetain", FAKE_INIT);
    struct fake_device *d = fake__device(device);
    if (r == CUDA_SUCCESS)
        r = d->kept;
    if (r != CUDA_SUCCESS)
        return fake__leave(r);
    d->refs++;
    if (!d->is_alive) {
        d->is_alive = true;
        d->sticky = CUDA_SUCCESS;
        fake__start(d);
    }
    *ret_context = (CUcontext)d;
    return fake__leave(r);
}

static void end_context(struct fake_device *d)
{
    fake__stop(d);
    fake__memory_reset(d);
    d->is_alive = false;
    d->kept = fake.keep_errors ? d->sticky : CUDA_SUCCESS;
    d->sticky = CUDA_SUCCESS;
}

CUresult fake_DevicePrimaryCtxReset(CUdevice device)
{
    const CUresult r = fake__enter("cuDevicePrimaryCtxReset", FAKE_NOTHING);
    struct fake_device *d = fake__device(device);
    if (r == CUDA_SUCCESS && d->is_alive)
        end_context(d);
    return fake__leave(r);
}

/* The last to release a context that nobody has reset has tidied up before. */
CUresult fake_DevicePrimaryCtxRelease(CUdevice device)
{
    const CUresult r = fake__enter("cuDevicePrimaryCtxRelease", FAKE_NOTHING);
    struct fake_device *d = fake__device(device);
    char text[512] = "";
    if (r != CUDA_SUCCESS)
        return fake__leave(r);
    if (d->refs == 0)
        fake__wrong("cuDevicePrimaryCtxRelease: device %d is not retained", device);
    if (--d->refs > 0)
        return fake__leave(r);
    if (d->is_alive && d->sticky == CUDA_SUCCESS &&
        fake__run_live(d, text, sizeof(text)) + fake__memory_live(d, true, text, sizeof(text)) > 0)
        fake__wrong("the context of device %d is released with%s", device, text);
    if (fake__memory_live(d, false, text, sizeof(text)) > 0)
        fake__wrong("device %d is released with%s", device, text);
    if (d->is_alive)
        end_context(d);
    return fake__leave(r);
}

CUresult fake_CtxSetCurrent(CUcontext context)
{
    const CUresult r = fake__enter("cuCtxSetCurrent", FAKE_NOTHING);
    struct fake_device *d = (struct fake_device *)context;
    bool is_known = !d;
    for (int i = 0; i < fake.devices; i++)
        is_known |= d == &fake.device[i] && d->refs > 0;
    if (!is_known)
        fake__wrong("cuCtxSetCurrent: no such context");
    if (r == CUDA_SUCCESS)
        fake__current = d;
    return fake__leave(r);
}

/* What was current before, one below the other. */
static _Thread_local struct fake_device *pushed[8];
static _Thread_local unsigned npushed;

CUresult fake_CtxPushCurrent(CUcontext context)
{
    const CUresult r = fake__enter("cuCtxPushCurrent", FAKE_NOTHING);
    struct fake_device *d = (struct fake_device *)context;
    if (!d || d->refs == 0 || npushed == sizeof(pushed) / sizeof(pushed[0]))
        fake__wrong("cuCtxPushCurrent: no such context, or too many");
    if (r == CUDA_SUCCESS) {
        pushed[npushed++] = fake__current;
        fake__current = d;
    }
    return fake__leave(r);
}

CUresult fake_CtxPopCurrent(CUcontext *ret_context)
{
    const CUresult r = fake__enter("cuCtxPopCurrent", FAKE_NOTHING);
    if (npushed == 0)
        fake__wrong("cuCtxPopCurrent: nothing was pushed");
    if (r == CUDA_SUCCESS) {
        *ret_context = (CUcontext)fake__current;
        fake__current = pushed[--npushed];
    }
    return fake__leave(r);
}

CUresult fake_CtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    const CUresult r = fake__enter("cuCtxGetStreamPriorityRange", FAKE_CONTEXT);
    if (r == CUDA_SUCCESS) {
        *ret_least = FAKE_PRIORITY_LOW;
        *ret_greatest = FAKE_PRIORITY_TOP;
    }
    return fake__leave(r);
}

/* ---- finding entry points ---- */

static const struct {
    const char *name;
    int version;
    void *function;
} entries[] = {
#define ENTRY(name, version) {"cu" #name, version, (void *)fake_##name},
    CUDA_CALLS(ENTRY)
#undef ENTRY
#ifdef CUDA_BATCH_OLD
        {"cuMemcpyBatchAsync", CUDA_BATCH_OLD, (void *)fake_MemcpyBatchAsyncOld},
#endif
#ifdef CUDA_BATCH_NEW
    {"cuMemcpyBatchAsync", CUDA_BATCH_NEW, (void *)fake_MemcpyBatchAsync},
#endif
};

/* The newest that is no newer than asked for, nor than the driver: as the real one, it does not say
 * that a newer was asked for than it has. */
EXPORTED CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion,
                                      cuuint64_t flags,
                                      CUdriverProcAddressQueryResult *symbolStatus)
{
    const char *hidden = getenv("FAKE_CUDA_HIDE");
    if (flags != CU_GET_PROC_ADDRESS_DEFAULT)
        fake__wrong("cuGetProcAddress: flags %ju", (uintmax_t)flags);
    *pfn = NULL;
    int found = 0;
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        if (strcmp(entries[i].name, symbol) != 0 || entries[i].version > cudaVersion ||
            entries[i].version > fake.version || entries[i].version < found ||
            (hidden && strcmp(hidden, symbol) == 0))
            continue;
        found = entries[i].version;
        *pfn = entries[i].function;
    }
    if (symbolStatus)
        *symbolStatus = *pfn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}

/* ---- for tests ---- */

static unsigned control_live(char *ret_text, size_t bytes)
{
    unsigned live = 0;
    pthread_mutex_lock(&fake.lock);
    ret_text[0] = '\0';
    for (int i = 0; i < fake.devices; i++) {
        const struct fake_device *d = &fake.device[i];
        live += d->refs + fake__run_live(d, ret_text, bytes) +
                fake__memory_live(d, true, ret_text, bytes) +
                fake__memory_live(d, false, ret_text, bytes);
    }
    pthread_mutex_unlock(&fake.lock);
    return live;
}

static uint64_t control_calls(const char *name)
{
    pthread_mutex_lock(&fake.lock);
    const uint64_t n = count_of(name, 0);
    pthread_mutex_unlock(&fake.lock);
    return n;
}

static void control_arm(const char *text)
{
    pthread_mutex_lock(&fake.lock);
    arm(text);
    pthread_mutex_unlock(&fake.lock);
}

static void control_hang(const char *name)
{
    pthread_mutex_lock(&fake.lock);
    fake.hung = name;
    pthread_cond_broadcast(&fake.moved);
    pthread_mutex_unlock(&fake.lock);
}

static void control_keep_errors(int on)
{
    pthread_mutex_lock(&fake.lock);
    fake.keep_errors = on != 0;
    pthread_mutex_unlock(&fake.lock);
}

static void control_capture(int on)
{
    pthread_mutex_lock(&fake.lock);
    fake.is_capturing = on != 0;
    pthread_mutex_unlock(&fake.lock);
}

static void control_hold(int on)
{
    pthread_mutex_lock(&fake.lock);
    fake.is_held = on != 0;
    pthread_cond_broadcast(&fake.moved);
    pthread_mutex_unlock(&fake.lock);
}

extern const struct fake_cuda fake_cuda_control;
EXPORTED const struct fake_cuda fake_cuda_control = {.live = control_live,
                                                     .calls = control_calls,
                                                     .arm = control_arm,
                                                     .hold = control_hold,
                                                     .hang = control_hang,
                                                     .capture = control_capture,
                                                     .keep_errors = control_keep_errors};
