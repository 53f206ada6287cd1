/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu: one device: its memory, memory of other processes on it, and copies from and to it.
 *
 * Two implementations: CUDA, and an emulated device. CUDA's driver is found at run time: a binary
 * with CUDA also starts without the driver, and says so. The emulated device is shared host memory;
 * its copies end later, as slowly as configured, and fail when a test asks for it.
 *
 * All work is an operation: submitted on the control thread, done by the device's own thread, and
 * ended by done() on the control thread, exactly once, never inline. Between submit and done the
 * operation, its fragments and all memory that it names belong to the device. Copies begin in the
 * order in which they were submitted, as far as their `after` words allow. Operations on memory run
 * as soon as the thread is free. Only GPU_PIN waits: registering takes 0.1 to 0.5 s per GiB. So
 * pins run one at a time between copies, the newest first, for at most half of the time.
 *
 * The driver answers a poll with: ended, not yet, or an error. An error takes the device out: every
 * operation in flight ends with -EIO once nothing touches its memory any more, new ones end with
 * -EIO too, and all memory on the device is void (the caller frees it all the same: the struct
 * stays until then). The device's thread tries to open it again every `retry_ns`; then it is empty.
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
    uint64_t addr; /* device address; 0: not allocated yet, or void */
    uint64_t bytes;
    struct device_handle handle; /* after GPU_ALLOC: for other processes to import; gpu.c closes its
                                  * fd with the memory */
    bool imported;
    uint32_t generation;   /* gpu_generation() when it was made; if that differs, it is void */
    void *priv;            /* the implementation's */
    struct list_node link; /* gpu.c's */
};

/* ---- operations ---- */

enum gpu_op_kind {
    GPU_ALLOC = 1, /* mem, bytes: makes memory of the daemon's, all zero. -ENOMEM, -EMFILE */
    GPU_IMPORT,    /* mem, handle (its fd is borrowed until done). -EINVAL: not of this device, or
                    * shorter than it says; -EOPNOTSUPP: this kind cannot be imported here */
    GPU_FREE,      /* mem, allocated or imported; always 0. No copy of it may be in flight */
    GPU_PIN,       /* host, bytes: registers host memory, so that copies from and to it are
                    * asynchronous and fast. Copies also work without. -ENOMEM, -EOPNOTSUPP;
                    * -ECANCELED: ended before it began */
    GPU_UNPIN,     /* the same memory; always 0. A GPU_PIN that has not begun ends before it */
    GPU_COPY,      /* frags. -ETIMEDOUT, -ECANCELED: ended before it began; -ECANCELED too: it was
                    * revoked, and any part may have been copied; -EIO; -EINVAL: a fragment is not
                    * in memory of this device, others may have been copied */
    GPU_NOTHING    /* ends with 0 in a later turn, whatever the device does: for a caller that must
                    * not call back inline */
};

enum gpu_direction { GPU_TO_DEVICE = 1, GPU_FROM_DEVICE = 2, GPU_ON_DEVICE = 3 };

/* When the fragments before number `end` have been copied, the operation's `ready` word is raised
 * to `value`. */
struct gpu_mark {
    uint32_t end;
    uint64_t value; /* not 0 */
};

/* A piece that has at least so many bytes ends at the next mark. For a smaller piece another call
 * of the driver costs more than the mark's delay. */
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

/* How another process takes its memory back from a copy at any time: it sets *word to
 * another value than 0. The word is read before each piece is given to the driver (by an emulated
 * device before each copy), and when all has ended. So a copy that ended well neither read nor
 * wrote after the word was set. */
struct gpu_revoke {
    const _Atomic uint64_t *word; /* in host memory that outlives the operation; NULL: never */
    _Atomic bool seen; /* the device has read it as set; it stays so if the word becomes 0 again */
};

struct gpu_op {
    enum gpu_op_kind kind;
    struct gpu_mem *mem;
    struct device_handle handle;
    void *host;
    uint64_t
        bytes; /* ALLOC, PIN; COPY: the sum, which submit computes unless `next_piece` is set */

    /* COPY: of `frag`, one after the other; or, with `next_piece`, of the pieces that it makes. */
    gpu_next_fn *next_piece;
    enum gpu_direction direction;
    uint8_t path; /* 0: as gpu_path_of() says; else 1 + enum gpu_path, for measurements: used where
                   * it is possible (a kernel: only if all host memory is pinned) */
    const struct kvc_frag *frag;
    uint32_t nfrags;
    const struct gpu_mark *mark; /* ascending; may be none */
    uint32_t nmarks;
    /* Raised (release) as marks and pieces say, in host memory that outlives the operation. */
    _Atomic uint64_t *ready;
    struct device_fence after; /* the copy begins when it has passed; others need not wait for it */
    uint64_t deadline_ns; /* clock_now_ns(); 0: none. A copy that runs is not interrupted by it */
    /* When it is true, a copy that has not begun ends with -ECANCELED; one with `next_piece` also
     * ends so without the pieces that the driver has not been given, as in gpu_close(). NULL: the
     * copy cannot be cancelled. */
    const _Atomic bool *cancel;
    struct gpu_revoke revoke;

    int status; /* result */
    void (*done)(struct gpu_op *op);
    void *ctx;

    struct gpu_op *next; /* from here on: the device's */
    struct inbox_item item;
    uint64_t begun_ns;    /* 0: not begun; after the end: how long it ran */
    uint64_t part_bytes;  /* bytes of fragment `at` that the driver was given */
    uint64_t given_bytes; /* all bytes that the driver was given */
    uint32_t at, mark_at; /* how many fragments the driver was given, and marks among them */
    bool given;           /* the driver was given the whole copy */
    uint8_t turn;         /* pieces given since its turn began */
    bool waits;           /* counted in gpu_waiting() */
    uint32_t
        generation; /* of the device for which it was submitted; another one ends it with -EIO */
};

/* ---- devices ---- */

enum gpu_state { GPU_STARTING, GPU_UP, GPU_OUT };

/* What the emulated device is like. */
struct gpu_emu_config {
    uint64_t memory_bytes; /* 0: 1 GiB */
    uint64_t latency_ns;   /* from start to end of a copy, at least */
    uint64_t bytes_per_s;  /* 0: no limit */
    /* A file of one word, looked at before each operation: "" or no file: all is well; "sticky":
     * every operation fails, and the device is out until the word goes; "lost": the same, and
     * opening it fails; "oom": ALLOC, IMPORT and PIN fail with -ENOMEM. NULL: none. Borrowed. For
     * tests. */
    const char *fault_file;
};

struct gpu_config {
    const char *device; /* "GPU-<uuid>", "MIG-<uuid>", "cuda:<ordinal>", "emu:<number>"; borrowed
                           during open */
    uint64_t inflight_bytes; /* credit: bytes with the driver at a time, others wait; 0: 64 MiB */
    uint64_t retry_ns;       /* how often a device that is out is tried again; 0: 5 s */
    uint64_t wanted_bytes;   /* bytes that blocks will take; if less is free, a warning is logged */
    uint64_t stuck_ns; /* the device is given up after a call of the driver so long; 0: 30 s */
    bool calibrate;    /* copies are measured on the device's thread, before it is UP */
    uint64_t recalibrate_ns; /* the pause before sizes that could not be measured are tried again,
                              * while nothing is in flight; 0: 60 s */
    struct gpu_emu_config emu;
    /* The state has changed. Not from inside a call of this interface. */
    void (*changed)(void *ctx, struct gpu *gpu);
    /* Asked when the device comes up, with its UUID: NULL, or why it must not be used (copied).
     * Then it is out, is not tried again, and has no UUID. Without the function every device is
     * used. */
    const char *(*refuse)(void *ctx, const uint8_t uuid[GPU_UUID_BYTES]);
    void *ctx;
};

/* gpu_name_problem(): what is wrong with a device's name, with the next step: it is malformed, or
 * of a kind that this binary was built without. NULL: nothing. gpu_device_problem() also says that
 * the driver is missing, which may change; it opens nothing. */
const char *gpu_name_problem(const char *device);
const char *gpu_device_problem(const char *device);
/* Whether this binary has CUDA, and the driver is there; text for the startup log. Static. */
const char *gpu_cuda_text(void);

/* Starts the device's thread, which opens it: GPU_STARTING, then `changed`. -EINVAL (see
 * gpu_name_problem), -ENOMEM, -EAGAIN. Borrows loop until gpu_close(). */
KVC_WARN_UNUSED int gpu_open(const struct gpu_config *config, struct loop *loop,
                             struct gpu **ret_gpu);
/* Waits for operations that have begun; the others end with -ECANCELED. All done() run from inside
 * this call. Accepts NULL. */
void gpu_close(struct gpu **gpu);

void gpu_submit(struct gpu *gpu, struct gpu_op *op);
/* How many copies wait for their `after` word now. */
uint32_t gpu_waiting(const struct gpu *gpu);

enum gpu_state gpu_state(const struct gpu *gpu);
const char *gpu_why(const struct gpu *gpu);     /* why it is out; "": it is not */
uint32_t gpu_generation(const struct gpu *gpu); /* grows each time it comes up */
const char *gpu_name(const struct gpu *gpu);    /* "NVIDIA H200", "emulated" */
const uint8_t *gpu_uuid(const struct gpu *gpu); /* GPU_UUID_BYTES; all zero while never up. An
                                                 * emulated one's: "kvc-emu", five zero bytes, its
                                                 * number as four bytes, big-endian */
bool gpu_is_emulated(const struct gpu *gpu);
/* Whether the device can copy by GPU_PATH_KERNEL; false before it was up. */
bool gpu_has_kernel(const struct gpu *gpu);
/* How memory of GPU_ALLOC is exported to other processes. */
enum device_handle_kind gpu_exports(const struct gpu *gpu);

/* ---- copy paths ---- */

enum gpu_path {
    GPU_PATH_ENGINE, /* the copy engine, a fragment at a time or in batches */
    GPU_PATH_KERNEL, /* a kernel that gathers or scatters, over pinned host memory */
    GPU_PATHS
};
/* Measured at start (`calibrate`), in bytes per second; 0: not measured, or no such path exists. */
#define GPU_CALIBRATED 6u /* fragments of 1, 2, 6, 18 and 64 KiB, whole (8 MiB) */
struct gpu_rates {
    uint32_t frag_bytes[GPU_CALIBRATED];
    uint64_t to[GPU_CALIBRATED][GPU_PATHS], from[GPU_CALIBRATED][GPU_PATHS];
    uint64_t plain_to, plain_from; /* of one contiguous pinned copy: the upper bound */
    /* From contiguous memory on the device to scattered places on it; the largest size as two
     * halves. */
    uint64_t within[GPU_CALIBRATED][GPU_PATHS];
    bool by_turns; /* without MPS: kernels of the daemon and of other processes run in turns */
};
/* The rate to the device in two steps: one contiguous copy over the link, then a scatter on the
 * device of fragments of size i; 0: not measured. It is the rate of a worker that has blocks copied
 * to slots and scatters them on its own stream. */
uint64_t gpu_window_rate(const struct gpu_rates *rates, unsigned i);
const struct gpu_rates *gpu_rates(const struct gpu *gpu); /* borrowed */
/* The path for copies of such fragments. The kernel, where it was measured a quarter faster, with
 * `by_turns` more than three times as fast; the copy itself also needs pinned host memory. */
enum gpu_path gpu_path_of(const struct gpu *gpu, enum gpu_direction direction, uint64_t frag_bytes);

METRIC_STRUCT(gpu, GPU_METRICS);
const struct gpu_metrics *gpu_metrics(const struct gpu *gpu);

#endif
