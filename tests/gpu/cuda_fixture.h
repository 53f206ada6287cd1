/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_drv_cuda on the fake driver (tests/gpu/README.md) or on a real one. The fake reads its
 * settings when it is loaded, at the first open_device(). A test sets them before that, in its own
 * process.
 */
#ifndef TESTS_CUDA_FIXTURE_H
#define TESTS_CUDA_FIXTURE_H
#ifdef KVC_HAVE_CUDA

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "fake_cuda.h"
#include "gpu_cuda__.h"

#define MIB  (UINT64_C(1) << 20)
#define DEV0 "cuda:0"

static const struct fake_cuda *fake; /* NULL: a real driver */
static bool needs_fake;
static struct gpu_dev *dev;
static struct gpu_dev_info info;
static char why[GPU_WHY_BYTES];

/* Lets the loader find the fake driver where it looks for the real one. Without LD_LIBRARY_PATH the
 * program starts itself again with it. */
static inline void use_the_fake(char **argv)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    needs_fake = true;
    if (path && strstr(path, FAKE_CUDA_DIR))
        return;
    setenv("LD_LIBRARY_PATH", FAKE_CUDA_DIR, 1);
    execv("/proc/self/exe", argv);
    perror("execv");
    exit(EXIT_FAILURE);
}

static inline void set(const char *name, const char *value)
{
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

static inline void find_fake(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    ck_assert_msg(library != NULL, "%s", dlerror());
    fake = dlsym(library, FAKE_CUDA_SYMBOL);
    ck_assert_msg(fake != NULL || !needs_fake, "libcuda.so.1 is not the fake driver");
}

static inline int try_open_as(const char *name, struct gpu_dev **ret_dev)
{
    const struct gpu_config config = {.device = name};
    why[0] = '\0';
    return gpu_drv_cuda.open(&config, ret_dev, &info, why);
}

static inline struct gpu_dev *open_device(const char *name)
{
    struct gpu_dev *opened = NULL;
    find_fake();
    const int r = try_open_as(name, &opened);
    ck_assert_msg(r == 0, "%s: %s", name, why);
    return opened;
}

/* Makes the device's context current on this thread. Two devices have two threads; in these tests
 * one thread stands for both. */
static inline struct gpu_dev *on(struct gpu_dev *other)
{
    ck_assert_int_eq(other->cuda.cu->CtxSetCurrent(other->context), CUDA_SUCCESS);
    return other;
}

static inline void assert_nothing_left(void)
{
    char text[512];
    if (!fake)
        return;
    const unsigned live = fake->live(text, sizeof(text));
    ck_assert_msg(live == 0, "%u objects are left:%s", live, text);
}

/* Closes the device. The fake aborts if the context goes before its objects. */
static inline void close_device(struct gpu_dev *opened)
{
    gpu_drv_cuda.close(opened);
    assert_nothing_left();
}

/* Waits until the ticket has ended, or the device is out. */
static inline int wait_for(struct gpu_dev *on, uint64_t ticket)
{
    int r;
    while ((r = gpu_drv_cuda.poll(on, ticket)) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return r;
}

static inline struct gpu_mem alloc(struct gpu_dev *on, uint64_t bytes)
{
    struct gpu_mem mem = {0};
    uint64_t ticket = 0;
    const int r = gpu_drv_cuda.alloc(on, bytes, &mem, &ticket);
    ck_assert_msg(r == 0, "%d: %s", r, gpu_drv_cuda.why(on));
    ck_assert_int_eq(wait_for(on, ticket), 1);
    return mem;
}

static inline void must_pin(struct gpu_dev *on, void *host, uint64_t bytes)
{
    const int r = gpu_drv_cuda.pin(on, host, bytes);
    ck_assert_msg(r == 0, "%d: %s", r, gpu_drv_cuda.why(on));
}

static inline uint64_t must_copy(struct gpu_dev *on, enum gpu_path path,
                                 enum gpu_direction direction, const struct kvc_frag *frag,
                                 uint32_t n)
{
    uint64_t ticket = 0;
    const int r = gpu_drv_cuda.copy(on, path, direction, frag, n, NULL, &ticket);
    ck_assert_msg(r == 0, "%d: %s", r, gpu_drv_cuda.why(on));
    return ticket;
}

/* copy_to() copies one run of bytes to the device, copy_from() copies one back. Both wait for the
 * end of the copy. */
static inline void copy_to(struct gpu_dev *on, uint64_t to, const void *from, uint64_t bytes)
{
    const struct kvc_frag frag = {.to = to, .from = (uintptr_t)from, .bytes = bytes};
    ck_assert_int_eq(wait_for(on, must_copy(on, GPU_PATH_ENGINE, GPU_TO_DEVICE, &frag, 1)), 1);
}

static inline void copy_from(struct gpu_dev *on, void *to, uint64_t from, uint64_t bytes)
{
    const struct kvc_frag frag = {.to = (uintptr_t)to, .from = from, .bytes = bytes};
    ck_assert_int_eq(wait_for(on, must_copy(on, GPU_PATH_ENGINE, GPU_FROM_DEVICE, &frag, 1)), 1);
}

/* Allocates page-aligned memory. */
static inline unsigned char *host_memory(size_t bytes)
{
    unsigned char *at = aligned_alloc(4096, bytes);
    ck_assert_ptr_nonnull(at);
    memset(at, 0, bytes);
    return at;
}

static inline uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

static inline void fill(unsigned char *at, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)next_random(&seed);
}

/* ---- another process ---- */

static inline void send_handle(int to, const struct device_handle *handle)
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
    ck_assert_int_eq(sendmsg(to, &message, 0), sizeof(*handle));
}

static inline struct device_handle receive_handle(int from)
{
    struct device_handle handle;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = &handle, .iov_len = sizeof(handle)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ck_assert_int_eq(recvmsg(from, &message, MSG_CMSG_CLOEXEC), sizeof(handle));
    if (handle.fd >= 0)
        memcpy(&handle.fd, CMSG_DATA(&control.head), sizeof(int));
    return handle;
}

/* The other process: a worker with memory on the device, which waits until it is told to end. */
static inline void be_a_worker(int socket, const char *name, uint64_t bytes)
{
    char text[16] = "", go;
    dev = open_device(name);
    struct gpu_mem mem = alloc(dev, bytes);
    copy_to(dev, mem.addr + bytes - 5, "hello", 5);
    send_handle(socket, &mem.handle);
    ck_assert_int_eq(read(socket, &go, 1), 1);
    copy_from(dev, text, mem.addr + 1, 5);
    gpu_drv_cuda.free(dev, &mem);
    close_device(dev);
    _exit(strcmp(text, "again") == 0 ? 0 : 1);
}

static inline pid_t worker_start(const char *name, uint64_t bytes, int *ret_socket)
{
    int sockets[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        close(sockets[0]);
        be_a_worker(sockets[1], name, bytes);
    }
    close(sockets[1]);
    *ret_socket = sockets[0];
    return pid;
}

static inline void worker_end(pid_t pid, int socket, int expected)
{
    int status = 0;
    ck_assert_int_eq(write(socket, "", 1), 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), expected);
    close(socket);
}

#endif
#endif
