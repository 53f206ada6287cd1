/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the fake driver share: fake_cuda.c (devices, contexts, failures),
 * fake_cuda_mem.c (memory), fake_cuda_run.c (streams, events, kernels). One lock guards all of it.
 */
#ifndef TESTS_GPU_FAKE_CUDA_PRIVATE_H
#define TESTS_GPU_FAKE_CUDA_PRIVATE_H
#ifdef KVC_HAVE_CUDA

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gpu_cuda__.h"
#include "list.h"

#define FAKE_DEVICES_MAX     4
#define FAKE_MULTIPROCESSORS 4
#define FAKE_GRANULARITY     (UINT64_C(2) << 20)
#define FAKE_PLAIN_BYTES     512u /* alignment of memory from cuMemAlloc() */
#define FAKE_PRIORITY_LOW    0
#define FAKE_PRIORITY_TOP    (-5)

struct fake_device {
    int ordinal, number; /* ordinal: number in this process; number: number in the machine */
    unsigned refs;       /* references to the primary context */
    bool is_alive;       /* the context has been retained and not reset since */
    CUresult sticky;
    CUresult kept; /* the error with which every later context of this process is refused */
    uint64_t used_bytes;
    unsigned flags;
    struct list_node streams, events, modules;
    pthread_t worker;
    bool has_worker, stop;
    uint64_t random;
};

struct fake {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* something was executed, or new work has come */
    bool is_ready;        /* cuInit() has run */
    bool is_held, is_capturing;
    const char *hung; /* name of the function whose calls do not return */
    /* From the environment; see README.md. */
    int devices, version;
    uint64_t memory_bytes, taken_bytes, pins_bytes, host_offset;
    unsigned delay_us, pin_us_per_mib;
    bool twins; /* a kernel's CPU twin is executed, for tests of many bytes */
    bool vmm, ipc, unified, keep_pins, keep_errors, mps, read_only_pins, read_only_maps, words;
    struct fake_device device[FAKE_DEVICES_MAX];
    struct list_node handles, ranges, hosts;
};
extern struct fake fake;

/* The context of the calling thread. */
extern _Thread_local struct fake_device *fake__current;

enum fake_need { FAKE_NOTHING, FAKE_INIT, FAKE_CONTEXT };
/* Takes the lock and counts the call. 0, or the error with which the call must fail; the lock is
 * held in both cases. */
CUresult fake__enter(const char *call, enum fake_need need);
/* Releases the lock and returns r. */
CUresult fake__leave(CUresult r);
/* Counts a call; returns the error with which it must fail, or 0. */
CUresult fake__count(const char *name, struct fake_device *device);
/* Counts n events that do not fail. */
void fake__add(const char *name, uint64_t n);
/* The caller broke the driver's contract: prints the text and aborts. */
_Noreturn void fake__wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fake__sleep_us(uint64_t us);
struct fake_device *fake__device(CUdevice device);
/* Appends " 3 streams" to the text if n is 3; returns n. */
unsigned fake__say(unsigned n, const char *what, char *text, size_t bytes);

/* ---- memory ---- */

/* Where device code and copies of `device` find these bytes; NULL: it cannot reach all of them.
 * Host memory is reached at the address that cuMemHostGetDevicePointer() gave. */
char *fake__reach(const struct fake_device *device, uint64_t addr, uint64_t bytes);
/* The same for a copy, which takes host addresses too. *ret_pageable: the address is pageable
 * memory of the process. */
char *fake__reach_any(const struct fake_device *device, uint64_t addr, uint64_t bytes,
                      bool *ret_pageable);
/* Whether `device` may write to memory that it can reach. */
bool fake__may_write(const struct fake_device *device, uint64_t addr);
/* Frees the memory that ends with a device's context. */
void fake__memory_reset(struct fake_device *device);
/* Number of a device's memory objects. of_context: only those that end with its context. */
unsigned fake__memory_live(const struct fake_device *device, bool of_context, char *text,
                           size_t bytes);

/* ---- execution ---- */

void fake__start(struct fake_device *device);
/* Drops work that has not been executed, and all objects of the context. Releases the lock
 * meanwhile. */
void fake__stop(struct fake_device *device);
unsigned fake__run_live(const struct fake_device *device, char *text, size_t bytes);

/* ---- entry points ---- */

#define FAKE__DECLARE(name, version) __typeof__(*(PFN_cu##name##_v##version)0) fake_##name;
CUDA_CALLS(FAKE__DECLARE)
#undef FAKE__DECLARE
#ifdef CUDA_BATCH_OLD
__typeof__(*(PFN_cuMemcpyBatchAsync_v12080)0) fake_MemcpyBatchAsyncOld;
#endif
#ifdef CUDA_BATCH_NEW
__typeof__(*(PFN_cuMemcpyBatchAsync_v13000)0) fake_MemcpyBatchAsync;
#endif

#endif
#endif
