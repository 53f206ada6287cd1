/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu: one device: its memory, memory of other processes on it, and copies from and to it.
 *
 * Two implementations: CUDA (the driver, found at run time: a binary built with it starts where
 * there is none, and says so), and an emulated device (shared host memory; copies end later, as
 * slow as asked for, and fail when told to). Everything above is the same for both.
 *
 * All work is an operation: submitted on the control thread, done by the device's own thread, and
 * ended by done() on the control thread, exactly once, never inline. Between submit and done the
 * operation, its fragments and all memory that it names belong to the device. Operations that copy
 * begin in the order in which they were submitted, as far as their `after` words let them; others
 * (memory) run as soon as the thread is free, but for GPU_PIN: registering takes 0.1 to 0.5 s per
 * GiB, so one at a time goes between copies, the newest first, for half of the time at most.
 *
 * A question to a device has three answers: done, not yet, and anything else. Anything else takes
 * the device out: every operation in flight ends with -EIO once nothing touches its memory any
 * more, new ones end with -EIO too, and all memory of it is void (free it all the same: a struct
 * stays until then). A device that is out is tried again by itself every `retry_ns`; when it is
 * back it is empty.
 *
 * Threads: all functions on the control thread, all callbacks there, from loop_turn().
 * Memory: what gpu_open() allocates, and struct gpu_mem.
 */
#ifndef KVC_IO_GPU_H
#define KVC_IO_GPU_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvcache/kernels.h>

#include "device.h"
#include "err.h"
#include "inbox.h"
#include "list.h"
#include "loop.h"
#include "metric.h"
#include "stat.h"

#define GPU_UUID_BYTES DEVICE_UUID_BYTES
#define GPU_WHY_BYTES  256u
#define GPU_NAME_BYTES 64u
#define GPU_FRAGS_MAX  (1u << 20) /* of one copy */

struct gpu;

/* ---- memory ---- */

/* Memory on the device that this process can name: its own, or imported. The struct is the
 * caller's, zeroed, from the submit of GPU_ALLOC or GPU_IMPORT to the done() of GPU_FREE (or to
 * gpu_close()), and stays where it is. */
struct gpu_mem {
    uint64_t addr; /* device address; 0: none (not there yet, or void) */
    uint64_t bytes;
    struct device_handle handle; /* of ALLOC: for others to import; its fd is the memory's */
    bool imported;
    uint32_t generation;   /* gpu_generation() at the time: another one, and it is void */
    void *priv;            /* the implementation's */
    struct list_node link; /* gpu.c's */
};

/* ---- operations ---- */

enum gpu_op_kind {
    GPU_ALLOC = 1, /* mem, bytes: memory of the daemon's, all zero. -ENOMEM, -EMFILE */
    GPU_IMPORT,    /* mem, handle (its fd is borrowed until done). -EINVAL: not of this device, or
                    * shorter than it says; -EOPNOTSUPP: this kind cannot be imported here */
    GPU_FREE,      /* mem, of either kind; always 0. No copy of it may be in flight */
    GPU_PIN,       /* host, bytes: host memory is registered, so that copies from and to it are
                    * asynchronous and fast. Needed for nothing. -ENOMEM, -EOPNOTSUPP; -ECANCELED
                    * when it had not begun */
    GPU_UNPIN,     /* the same memory; always 0. A GPU_PIN that has not begun ends before it */
    GPU_COPY,      /* frags. -ETIMEDOUT and -ECANCELED when it had not begun; -ECANCELED when it was
                    * revoked, whatever was copied; -EIO; -EINVAL: a fragment is not in memory of
                    * this device; others may have been copied */
    GPU_NOTHING    /* ends with 0, later, whatever the device does: for who must not call back from
                    * inside a call */
};

enum gpu_direction { GPU_TO_DEVICE = 1, GPU_FROM_DEVICE = 2, GPU_ON_DEVICE = 3 };

/* When fragments up to `end` have been copied, the operation's word is raised to `value`. */
struct gpu_mark {
    uint32_t end;
    uint64_t value; /* not 0 */
};

/* A piece ends at a mark when it has this much by then; for less another call to the driver costs
 * more than the mark's delay. */
#define GPU_PIECE_ENOUGH (UINT64_C(1) << 20)
/* The part of a copy that one call of the driver gets. */
struct gpu_piece {
    const struct kvc_frag *frag;
    uint32_t n;
    uint64_t bytes;
    enum gpu_direction direction;
    uint64_t
        ready; /* the operation's word is raised to it when the piece has ended; 0: it is not */
    bool last; /* of the copy */
};
struct gpu_op;
/* The next piece of a copy whose fragments are made as they are needed, on the device's thread: at
 * least one fragment, written to frag[], and no more than these limits. */
typedef void(gpu_next_fn)(struct gpu_op *op, struct kvc_frag *frag, uint32_t frags_max,
                          uint64_t bytes_max, struct gpu_piece *ret_piece);

/* Taken back by whoever's memory it is, at any time, from another process: when *word is not 0 any
 * more. It is looked at before each piece that the driver is given, by an emulated device before
 * each that it copies, and when all has ended: a copy that ended well read nothing, and wrote
 * nothing, after the word was raised. */
struct gpu_revoke {
    const _Atomic uint64_t *word; /* in host memory that outlives the operation; NULL: never */
    _Atomic bool seen;            /* the device's: a word that is lowered again says nothing */
};

struct gpu_op {
    enum gpu_op_kind kind;
    struct gpu_mem *mem;
    struct device_handle handle;
    void *host;
    uint64_t bytes; /* ALLOC, PIN; COPY: the sum; submit computes it, but with `next_piece` */

    /* COPY: of `frag`, one after the other; or, with `next_piece`, of the pieces that it makes. */
    gpu_next_fn *next_piece;
    enum gpu_direction direction;
    uint8_t path; /* 0: what gpu_path_of() says; else 1 + a gpu_path, where that can be taken (a
                   * kernel: all host memory is pinned). For measurements */
    const struct kvc_frag *frag;
    uint32_t nfrags;
    const struct gpu_mark *mark; /* ascending; may be none */
    uint32_t nmarks;
    /* Raised (release) as marks and pieces say, in host memory that outlives the operation. */
    _Atomic uint64_t *ready;
    struct device_fence after; /* while it is pending the copy holds up no other */
    uint64_t deadline_ns; /* clock_now_ns(); 0: none. A copy that runs is not interrupted by it */
    /* A copy that has not begun is skipped; of one with `next_piece` what the driver has not been
     * given, as in gpu_close(): then it ends with -ECANCELED. NULL: never. */
    const _Atomic bool *cancel;
    struct gpu_revoke revoke;

    int status; /* result */
    void (*done)(struct gpu_op *op);
    void *owner;

    struct gpu_op *next; /* the device's */
    struct inbox_item item;
    uint64_t begun_ns;    /* 0: it has not */
    uint64_t part_bytes;  /* of fragment `at` given */
    uint64_t given_bytes; /* to the driver */
    uint32_t at, mark_at; /* fragments given to the driver, and marks */
    bool given;           /* all of it */
    uint8_t turn;         /* pieces given since its turn began */
    bool waits;           /* counted in gpu_waiting() */
    uint32_t generation;  /* that it was submitted for */
};

/* ---- devices ---- */

enum gpu_state { GPU_STARTING, GPU_UP, GPU_OUT };

/* Of the emulated device. */
struct gpu_emu_config {
    uint64_t memory_bytes; /* 0: 1 GiB */
    uint64_t latency_ns;   /* from start to end of a copy, at least */
    uint64_t bytes_per_s;  /* 0: as fast as it goes */
    /* A file of one word, looked at before each operation: "" or no file: all is well; "sticky":
     * every operation fails, and the device is out until the word goes; "lost": the same, and
     * opening it fails; "oom": ALLOC, IMPORT and PIN fail with -ENOMEM. NULL: none. Borrowed. For
     * tests. */
    const char *fault_file;
};

struct gpu_config {
    const char *device; /* "GPU-<uuid>", "MIG-<uuid>", "cuda:<ordinal>", "emu:<number>"; borrowed
                           during open */
    uint64_t inflight_bytes; /* given to the driver at a time; the rest waits in order: 0: 64 MiB */
    uint64_t retry_ns;       /* 0: 5 s */
    uint64_t wanted_bytes;   /* what will be allocated: the log says so where less is free; 0 */
    uint64_t stuck_ns;       /* how long a call of the driver may take: 0: 30 s */
    bool calibrate;          /* at start, in the device's thread, before it is UP */
    uint64_t recalibrate_ns; /* what could not be measured then is tried again so often at most,
                              * when nothing is in flight: 0: 60 s */
    struct gpu_emu_config emu;
    /* The state has changed. Not from inside a call of this interface. */
    void (*changed)(void *ctx, struct gpu *gpu);
    /* It comes up and turns out to be this one: NULL, or why it is not to be used (copied).
     * Then it is out, is not tried again, and has no UUID. NULL: any will do. */
    const char *(*refuse)(void *ctx, const uint8_t uuid[GPU_UUID_BYTES]);
    void *ctx;
};

/* What is wrong with a device's name, or NULL: it is malformed, or of a kind that this binary has
 * not. And what else can be said without opening it: there is no driver; that may change. In words
 * that name the next step. */
const char *gpu_name_problem(const char *device);
const char *gpu_device_problem(const char *device);
/* Whether this binary has CUDA, and the driver is there; text for the startup log. Static. */
const char *gpu_cuda_text(void);

/* Starts the device's thread, which opens it: GPU_STARTING, then `changed`. -EINVAL (see
 * gpu_name_problem), -ENOMEM, -EAGAIN. Borrows loop until gpu_close(). */
KVC_WARN_UNUSED int gpu_open(const struct gpu_config *config, struct loop *loop,
                             struct gpu **ret_gpu);
/* Waits for what runs; what has not begun ends with -ECANCELED, and all done()s run, from here.
 * Accepts NULL. */
void gpu_close(struct gpu **gpu);

void gpu_submit(struct gpu *gpu, struct gpu_op *op);
/* Copies that wait for their word, by now. */
uint32_t gpu_waiting(const struct gpu *gpu);

enum gpu_state gpu_state(const struct gpu *gpu);
const char *gpu_why(const struct gpu *gpu);     /* why it is out; "" */
uint32_t gpu_generation(const struct gpu *gpu); /* grows each time it comes up */
const char *gpu_name(const struct gpu *gpu);    /* "NVIDIA H200", "emulated" */
const uint8_t *gpu_uuid(const struct gpu *gpu); /* GPU_UUID_BYTES; all zero while never up. An
                                                 * emulated one's: "kvc-emu", five zero bytes, its
                                                 * number as four bytes, big-endian */
bool gpu_is_emulated(const struct gpu *gpu);
/* Whether it can copy by GPU_PATH_KERNEL; of a device that was up. */
bool gpu_has_kernel(const struct gpu *gpu);
/* How the daemon's own memory can be exported. */
enum device_handle_kind gpu_exports(const struct gpu *gpu);

/* ---- copy paths ---- */

enum gpu_path {
    GPU_PATH_ENGINE, /* the copy engine, a fragment at a time or in batches */
    GPU_PATH_KERNEL, /* a kernel that gathers or scatters, over pinned host memory */
    GPU_PATHS
};
/* Measured at start (`calibrate`), in bytes per second; 0: not measured, or there is none. */
#define GPU_CALIBRATED 6u /* fragments of 1, 2, 6, 18 and 64 KiB, whole (8 MiB) */
struct gpu_rates {
    uint32_t frag_bytes[GPU_CALIBRATED];
    uint64_t to[GPU_CALIBRATED][GPU_PATHS], from[GPU_CALIBRATED][GPU_PATHS];
    uint64_t plain_to, plain_from; /* one contiguous pinned copy: the bound */
    /* From one place on the device to scattered ones. Of the largest size two halves. */
    uint64_t within[GPU_CALIBRATED][GPU_PATHS];
    bool by_turns; /* kernels of other processes and the daemon's take turns: there is no MPS */
};
/* To the device by a window: all over the link in one piece, then scattered on the device, one
 * after the other; 0: not measured. It is what a worker gets that has blocks brought into slots and
 * scatters them on its own stream. */
uint64_t gpu_window_rate(const struct gpu_rates *rates, unsigned i);
const struct gpu_rates *gpu_rates(const struct gpu *gpu); /* borrowed */
/* The one that a copy of such fragments takes: the kernel where it was a quarter faster, or more
 * than three times as fast by turns, and the host memory is pinned. */
enum gpu_path gpu_path_of(const struct gpu *gpu, enum gpu_direction direction, uint64_t frag_bytes);

METRIC_STRUCT(gpu, GPU_METRICS);
const struct gpu_metrics *gpu_metrics(const struct gpu *gpu);

#endif
