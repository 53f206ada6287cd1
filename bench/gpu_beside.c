/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes on one device. The child is a worker that decodes (gpu_decode.c). The parent loads
 * as the daemon does, with its adapter: fragments of registered host memory, scattered on the
 * device. Ways to load take turns, with none in between:
 *
 *   engine, kernel                by the daemon, over that path; one of them is what it has chosen
 *   worker engine, worker kernel  by the worker itself, as kvc_gpu_load() does
 *   window                        by the daemon in one piece to memory on the device that both
 *                                 have, from there by the worker to where they belong, as blocks in
 *                                 the daemon's slots with kvc_gpu_load()
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_bench.h"
#include "out.h"
#include "progress.h"
#include "stdfds.h"
#include "units.h"

#define DEPTH        BENCH_DEVICE_DEPTH
#define OP_BYTES     BENCH_DEVICE_OP_BYTES
#define WINDOW_BYTES (DEPTH * OP_BYTES)
/* limit: a step beside loads by a step alone, for the way of loading that was chosen. */
#define WANTED 1.03
/* libkvcache scatters smaller fragments by kernel, larger ones by the copy engine. */
#define SCATTER_KERNEL_BELOW (64u << 10)

#define ENGINE (1 + GPU_PATH_ENGINE)
#define KERNEL (1 + GPU_PATH_KERNEL)
static const struct way {
    const char *name;
    /* Paths of the daemon's and of the worker's copies (gpu_op.path); 0: it makes none. */
    uint8_t daemon, worker;
    bool window;
} ways[] = {{.name = "alone"},
            {.name = "engine", .daemon = ENGINE},
            {.name = "kernel", .daemon = KERNEL},
            {.name = "worker engine", .worker = ENGINE},
            {.name = "worker kernel", .worker = KERNEL},
            {.name = "window", .window = true}};
#define WAYS ARRAY_LEN(ways)

/* Shared by both processes. Word s counts how often slot s of the window was filled and emptied. */
struct shared {
    _Atomic uint64_t filled[DEPTH], emptied[DEPTH];
};

struct ask {
    uint32_t way;
    uint64_t frag_bytes;
    double seconds;
};
struct answer {
    int rc;
    bool mps;
    double step_s, rate;
};

/* The state of one process. */
struct half {
    const struct gpu_args *args;
    struct bench_device d;
    int socket;
    struct shared *shared;
    struct gpu_mem window;
    struct kvc_frag piece[DEPTH]; /* daemon: each slot of the window, in one piece */
    struct gpu_mark mark[DEPTH];
    /* worker */
    struct gpu_decode *decode;
    struct kvc_frag *scatter; /* fragments of each slot, WINDOW_BYTES in all */
    uint32_t scattered;       /* fragments of one slot */
};

/* ---- the window ---- */

/* Rounds count from 1; copy n uses slot n % DEPTH. */
static void gpu_beside_hand_over(struct half *h, uint64_t n, struct gpu_op *op,
                                 _Atomic uint64_t *words)
{
    struct gpu_mark *mark = &h->mark[n % DEPTH];
    *mark = (struct gpu_mark){.end = op->nfrags, .value = n / DEPTH + 1};
    op->mark = mark;
    op->nmarks = 1;
    op->ready = &words[n % DEPTH];
}

static void next_fill(void *ctx, uint64_t n, struct gpu_op *op)
{
    struct half *h = ctx;
    const uint64_t slot = n % DEPTH;
    h->piece[slot] = (struct kvc_frag){h->window.addr + slot * OP_BYTES,
                                       (uintptr_t)h->d.host + slot * OP_BYTES, OP_BYTES};
    op->direction = GPU_TO_DEVICE;
    op->path = ENGINE;
    op->frag = &h->piece[slot];
    op->nfrags = 1;
    op->after.word = &h->shared->emptied[slot];
    op->after.value = n / DEPTH;
    gpu_beside_hand_over(h, n, op, h->shared->filled);
}

static void next_scatter(void *ctx, uint64_t n, struct gpu_op *op)
{
    struct half *h = ctx;
    op->direction = GPU_ON_DEVICE;
    op->path = h->d.frag_bytes < SCATTER_KERNEL_BELOW ? KERNEL : ENGINE;
    op->frag = h->scatter + (n % DEPTH) * h->scattered;
    op->nfrags = h->scattered;
    op->after.word = &h->shared->filled[n % DEPTH];
    op->after.value = n / DEPTH + 1;
    gpu_beside_hand_over(h, n, op, h->shared->emptied);
}

static void lay_out_scatter(struct half *h)
{
    h->scattered = (uint32_t)(OP_BYTES / h->d.frag_bytes);
    for (uint32_t i = 0; i < DEPTH * h->scattered; i++)
        h->scatter[i] = (struct kvc_frag){h->d.frag[i].to,
                                          h->window.addr + i / h->scattered * OP_BYTES +
                                              i % h->scattered * h->d.frag_bytes,
                                          h->d.frag_bytes};
}

/* ---- messages ---- */

static int broken(const char *who)
{
    say_error("%s has gone; what it said is above", who);
    return BENCH_FAILED;
}

static int send_handle(int socket, const struct device_handle *handle)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                          .cmsg_level = SOL_SOCKET,
                          .cmsg_type = SCM_RIGHTS}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)handle, .iov_len = sizeof(*handle)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (handle->fd >= 0) {
        memcpy(CMSG_DATA(&control.head), &handle->fd, sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) == sizeof(*handle) ? 0 : broken("the worker");
}

static int receive_handle(int socket, struct device_handle *ret_handle)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = ret_handle, .iov_len = sizeof(*ret_handle)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != sizeof(*ret_handle))
        return BENCH_FAILED; /* the other process has printed why */
    const struct cmsghdr *with = CMSG_FIRSTHDR(&message);
    if (ret_handle->fd >= 0 && with == NULL)
        return broken("a descriptor");
    if (ret_handle->fd >= 0)
        memcpy(&ret_handle->fd, CMSG_DATA(with), sizeof(int));
    return 0;
}

/* ---- the worker ---- */

static bool steps_are_over(void *ctx)
{
    const struct half *h = ctx;
    return gpu_decode_is_over(h->decode);
}

static int measure_steps(struct half *h, const struct ask *ask, struct answer *ret)
{
    const struct way *way = &ways[ask->way];
    const struct bench_flood flood = {.is_over = steps_are_over,
                                      .ctx = h,
                                      .path = way->worker,
                                      .next = way->window ? next_scatter : NULL};
    double rate = 0;
    if (ask->frag_bytes != h->d.frag_bytes) {
        bench_device_lay_out(&h->d, GPU_TO_DEVICE, ask->frag_bytes);
        lay_out_scatter(h);
    }
    int rc = gpu_decode_start(h->decode, ask->seconds);
    if (rc != 0)
        return rc;
    if (way->worker != 0 || way->window)
        rc = bench_device_flood(&h->d, &flood, &rate);
    const int stepped = gpu_decode_wait(h->decode, &ret->step_s);
    ret->rate = rate;
    return rc != 0 ? rc : stepped;
}

/* The daemon's process has opened the device and calibrated it before its window arrives. */
static int worker_open(struct half *h)
{
    struct device_handle handle;
    const uint64_t smallest = h->args->perf.sizes[0];
    int rc = receive_handle(h->socket, &handle);
    if (rc != 0)
        return rc;
    rc = bench_device_open(&h->d, h->args->device, h->args->bytes, 0, smallest);
    if (rc == 0) {
        struct gpu_op import = {.kind = GPU_IMPORT, .mem = &h->window, .handle = handle};
        rc = bench_device_run(&h->d, &import, "importing the window");
    }
    if (handle.fd >= 0)
        close(handle.fd);
    h->scatter = calloc(WINDOW_BYTES / smallest, sizeof(*h->scatter));
    if (rc == 0 && h->scatter == NULL) {
        say_error("out of memory");
        rc = BENCH_FAILED;
    }
    return rc == 0 ? gpu_decode_open(&h->d, h->args->kv_bytes, &h->decode) : rc;
}

static void worker_close(struct half *h)
{
    gpu_decode_close(&h->decode);
    bench_device_close(&h->d);
    free(h->scatter);
}

static int worker_main(struct half *h)
{
    struct ask ask;
    struct answer answer = {.rc = worker_open(h)};
    answer.mps = answer.rc == 0 && gpu_decode_has_mps(h->decode);
    while (send(h->socket, &answer, sizeof(answer), MSG_NOSIGNAL) == sizeof(answer) &&
           answer.rc == 0 && read(h->socket, &ask, sizeof(ask)) == sizeof(ask))
        answer.rc = measure_steps(h, &ask, &answer);
    worker_close(h);
    return answer.rc;
}

/* ---- the daemon's half ---- */

static int gpu_beside_hear(const struct half *h, struct answer *ret)
{
    if (read(h->socket, ret, sizeof(*ret)) != sizeof(*ret))
        return broken("the worker");
    return ret->rc;
}

/* Or whether the worker has ended. */
static bool is_answered(void *ctx)
{
    const struct half *h = ctx;
    struct pollfd p = {.fd = h->socket, .events = POLLIN};
    return poll(&p, 1, 0) != 0;
}

static int gpu_beside_measure(struct half *h, uint32_t w, double *ret_step, double *ret_rate)
{
    const struct way *way = &ways[w];
    const struct ask ask = {
        .way = w, .frag_bytes = h->d.frag_bytes, .seconds = h->args->perf.seconds};
    const struct bench_flood flood = {.is_over = is_answered,
                                      .ctx = h,
                                      .path = way->daemon,
                                      .next = way->window ? next_fill : NULL};
    struct answer answer = {0};
    double rate = 0;
    int rc = 0;
    for (unsigned s = 0; s < DEPTH; s++) { /* in both processes nothing is in flight */
        atomic_store(&h->shared->filled[s], 0);
        atomic_store(&h->shared->emptied[s], 0);
    }
    if (send(h->socket, &ask, sizeof(ask), MSG_NOSIGNAL) != sizeof(ask))
        return broken("the worker");
    if (way->daemon != 0 || way->window)
        rc = bench_device_flood(&h->d, &flood, &rate);
    const int heard = gpu_beside_hear(h, &answer);
    *ret_step = answer.step_s;
    *ret_rate = way->daemon != 0 ? rate : answer.rate;
    return rc != 0 ? rc : heard;
}

/* ---- results ---- */

struct result {
    double step[WAYS][PERF_PAIRS_MAX], rate[WAYS][PERF_PAIRS_MAX];
    double slower[PERF_PAIRS_MAX];
    bool mps;
};

static bool is_chosen(const struct half *h, const struct way *way)
{
    return way->daemon == 1 + gpu_path_of(h->d.gpu, GPU_TO_DEVICE, h->d.frag_bytes);
}

static void gpu_beside_print_json(const struct half *h, const struct way *way, double alone,
                                  double slower, double rate, bool mps)
{
    struct out_metric line = {.bench = "gpu",
                              .keys = {{.key = "device", .text = h->d.name},
                                       {.key = "path", .text = way->name},
                                       {.key = "block_bytes", .number = h->d.frag_bytes},
                                       {.key = "chosen", .number = is_chosen(h, way)},
                                       {.key = "mps", .number = mps}},
                              .metric = "decode_step",
                              .value = alone * slower,
                              .unit = "s",
                              .limit_what = "alone",
                              .limit = alone,
                              .ratio = slower};
    out_json(&line);
    line.metric = "load_beside_bytes_per_s";
    line.value = rate;
    line.unit = "B/s";
    line.limit_what = NULL;
    out_json(&line);
}

static void gpu_beside_print_text(const struct half *h, const struct way *way, double alone,
                                  double slower, double rate)
{
    char size[UNITS_TEXT_BYTES], speed[UNITS_TEXT_BYTES];
    units_format_rate((uint64_t)rate, speed);
    printf("  %10s  %-13s  step %9.3f ms   by one alone %.3f   loads %14s",
           units_format_bytes(h->d.frag_bytes, size), way->name, alone * slower * 1e3, slower,
           speed);
    if (is_chosen(h, way))
        printf("   chosen, wanted %.2f: %s", WANTED, slower <= WANTED ? "good" : "MISSED");
    puts("");
    (void)stdfds_flush();
}

/* A step beside loads by a step alone in the same round; the median of all rounds. */
static void gpu_beside_report(const struct half *h, struct result *r, const bool *measured)
{
    const size_t pairs = h->args->perf.pairs;
    double slower[WAYS];
    for (uint32_t w = 1; w < WAYS; w++) {
        for (size_t i = 0; i < pairs; i++)
            r->slower[i] = r->step[w][i] / r->step[0][i];
        slower[w] = out_median(r->slower, pairs);
    }
    const double alone = out_median(r->step[0], pairs);
    for (uint32_t w = 1; w < WAYS; w++) {
        if (!measured[w])
            continue;
        const double rate = out_median(r->rate[w], pairs);
        if (h->args->perf.json)
            gpu_beside_print_json(h, &ways[w], alone, slower[w], rate, r->mps);
        else
            gpu_beside_print_text(h, &ways[w], alone, slower[w], rate);
    }
}

static int gpu_beside_one_size(struct half *h, struct result *r, uint64_t frag_bytes)
{
    const size_t pairs = h->args->perf.pairs;
    bool measured[WAYS];
    bench_device_lay_out(&h->d, GPU_TO_DEVICE, frag_bytes);
    for (uint32_t w = 0; w < WAYS; w++)
        measured[w] =
            (ways[w].daemon != KERNEL && ways[w].worker != KERNEL) || gpu_has_kernel(h->d.gpu);
    for (size_t round = 0; round < pairs; round++) {
        for (uint32_t i = 0; i < WAYS; i++) {
            const uint32_t w = round % 2 ? (uint32_t)WAYS - 1 - i : i;
            if (!measured[w])
                continue;
            progress_show(true, "gpu: round %zu of %zu, decode, %s", round + 1, pairs,
                          ways[w].name);
            const int rc = gpu_beside_measure(h, w, &r->step[w][round], &r->rate[w][round]);
            if (rc != 0)
                return rc;
        }
    }
    progress_clear();
    gpu_beside_report(h, r, measured);
    return 0;
}

static int daemon_open(struct half *h, bool *ret_mps)
{
    struct answer answer = {0};
    int rc = bench_device_open(&h->d, h->args->device, h->args->bytes, WINDOW_BYTES,
                               h->args->perf.sizes[0]);
    if (rc == 0) {
        struct gpu_op alloc = {.kind = GPU_ALLOC, .mem = &h->window, .bytes = WINDOW_BYTES};
        rc = bench_device_run(&h->d, &alloc, "memory for a window");
    }
    if (rc == 0)
        memset(h->d.host, 1, h->d.bytes); /* pages that were never written may all be one page */
    if (rc == 0)
        rc = send_handle(h->socket, &h->window.handle);
    if (rc == 0)
        rc = gpu_beside_hear(h, &answer);
    if (rc == 0)
        *ret_mps = answer.mps;
    return rc;
}

static int daemon_main(struct half *h)
{
    static struct result r;
    char size[UNITS_TEXT_BYTES];
    int rc = daemon_open(h, &r.mps);
    if (rc == 0 && !h->args->perf.json)
        printf("decode steps of %s of KV on %s, %s MPS, beside loads:\n",
               units_format_bytes(h->args->kv_bytes, size), h->d.name, r.mps ? "with" : "without");
    for (size_t i = 0; rc == 0 && i < h->args->perf.n_sizes; i++)
        rc = gpu_beside_one_size(h, &r, h->args->perf.sizes[i]);
    bench_device_close(&h->d);
    return rc;
}

/* ---- both ---- */

static int fork_worker(struct half *h, pid_t *ret_pid)
{
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        say_error("a pair of sockets: %s", strerror(errno));
        return BENCH_FAILED;
    }
    (void)stdfds_flush();
    *ret_pid = fork();
    if (*ret_pid == 0) {
        close(sockets[0]);
        h->socket = sockets[1];
        _exit(worker_main(h));
    }
    close(sockets[1]);
    h->socket = sockets[0];
    if (*ret_pid < 0)
        say_error("a process for the worker: %s", strerror(errno));
    return *ret_pid < 0 ? BENCH_FAILED : 0;
}

static int run_halves(struct half *h)
{
    pid_t pid = 0;
    int status = 0;
    int rc = fork_worker(h, &pid);
    if (rc == 0)
        rc = daemon_main(h);
    close(h->socket); /* the worker ends when it is closed */
    if (pid > 0 && (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)))
        rc = rc != 0 ? rc : broken("the worker");
    return rc;
}

int gpu_beside(const struct gpu_args *args)
{
    struct half h = {.args = args, .socket = -1};
    if (strncmp(args->device, "emu:", 4) == 0) {
        fprintf(stderr,
                "kvcachebench gpu: --decode skipped: no kernels on an emulated device (%s)\n",
                args->device);
        return BENCH_OK;
    }
    h.shared =
        mmap(NULL, sizeof(*h.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (h.shared == MAP_FAILED) {
        say_error("shared memory: %s", strerror(errno));
        return BENCH_FAILED;
    }
    const int rc = run_halves(&h);
    munmap(h.shared, sizeof(*h.shared));
    return rc;
}
