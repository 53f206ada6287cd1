/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA adapter on a real device: what it takes for granted of the driver, and that the kernel
 * copies what its twin does. The suite runs the same program on the fake driver.
 */
#ifndef KVC_HAVE_CUDA
#include <stdio.h>
int main(void)
{
    puts("SKIP: built without CUDA (no nvcc was found, or KVC_CUDA=OFF)");
    return 77;
}
#else
#include <errno.h>
#include <fcntl.h>

#include "cases.h"
#include "cuda_copies.h"

/* KVC_TEST_GPU, as in test_gpu. */
static const char *device_name(void)
{
    const char *name = getenv("KVC_TEST_GPU");
    return name && name[0] != '\0' ? name : DEV0;
}

#define WORKER_BYTES (6 * MIB)

static void setup(void)
{
    dev = open_device(device_name());
}

static void teardown(void)
{
    if (dev)
        close_device(dev);
}

static void assert_well(void)
{
    char text[8] = "";
    struct gpu_mem mem = alloc(dev, MIB);
    copy_to(dev, mem.addr + 5, "well", 4);
    copy_from(dev, text, mem.addr + 5, 4);
    ck_assert_str_eq(text, "well");
    gpu_drv_cuda.free(dev, &mem);
}

CASES(.name = "one process", .setup = setup, .teardown = teardown);

CASE(the_device_says_what_it_is)
{
    char name[64];
    printf("%s, exports by %s, %s a kernel for copies\n", info.name,
           info.exports == DEVICE_HANDLE_FD ? "descriptor" : "CUDA IPC",
           info.has_kernel ? "with" : "without");
    snprintf(name, sizeof(name),
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             info.uuid[0], info.uuid[1], info.uuid[2], info.uuid[3], info.uuid[4], info.uuid[5],
             info.uuid[6], info.uuid[7], info.uuid[8], info.uuid[9], info.uuid[10], info.uuid[11],
             info.uuid[12], info.uuid[13], info.uuid[14], info.uuid[15]);
    close_device(dev);
    dev = open_device(name);
    ck_assert(info.has_kernel);
    assert_well();
}

CASE_RANGE(fragments_arrive_on_either_path, NOT_PINNED, IN_PARTS + 1)
{
    copy_random_fragments((enum cuda_pins)_i, 11 + (uint64_t)_i);
}

/* ---- memory of another process ---- */

/* A worker whose memory comes from cuMemAlloc(), as most engines' does. */
static void be_an_ipc_worker(int socket)
{
    char text[16] = "", go;
    CUdeviceptr at;
    struct device_handle handle = {.kind = DEVICE_HANDLE_IPC, .fd = -1, .bytes = WORKER_BYTES};
    dev = open_device(device_name());
    ck_assert_int_eq(dev->cuda.cu->MemAlloc(&at, WORKER_BYTES), CUDA_SUCCESS);
    ck_assert_int_eq(dev->cuda.cu->IpcGetMemHandle((CUipcMemHandle *)handle.ipc, at), CUDA_SUCCESS);
    const struct gpu_span span = {
        .start = at,
        .end = at + WORKER_BYTES,
        .range = {.kind = DEVICE_RANGE_PLAIN, .at = at, .bytes = WORKER_BYTES, .held = true},
        .fd = -1};
    ck_assert_int_eq(gpu_span_room(&dev->mem), 0);
    gpu_span_add(&dev->mem, &span);
    copy_to(dev, at + WORKER_BYTES - 5, "hello", 5);
    send_handle(socket, &handle);
    ck_assert_int_eq(read(socket, &go, 1), 1);
    copy_from(dev, text, at + 1, 5);
    gpu_drv_cuda.close(dev);
    _exit(strcmp(text, "again") == 0 ? 0 : 1);
}

static pid_t ipc_worker_start(int *ret_socket)
{
    int sockets[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        be_an_ipc_worker(sockets[1]);
    close(sockets[1]);
    *ret_socket = sockets[0];
    return pid;
}

static void assert_refused(const struct device_handle *handle)
{
    struct gpu_mem mem = {0};
    ck_assert_int_eq(gpu_drv_cuda.import(dev, handle, &mem), -EINVAL);
    assert_well();
}

CASES(.name = "two processes");

/* Even _i: a descriptor; odd: CUDA IPC. The device is opened after the fork. */
CASE_EACH(another_processs_memory_is_used_as_far_as_it_goes, 2)
{
    int socket;
    char text[8] = "";
    struct gpu_mem mem = {0};
    const pid_t pid =
        _i % 2 ? ipc_worker_start(&socket) : worker_start(device_name(), WORKER_BYTES, &socket);
    dev = open_device(device_name());
    const struct device_handle told = receive_handle(socket);
    struct device_handle handle = told;
    handle.bytes = WORKER_BYTES + 1;
    assert_refused(&handle);
    handle.bytes = 100 * WORKER_BYTES;
    assert_refused(&handle);
    handle = told;
    handle.offset = 1;
    assert_refused(&handle);
    ck_assert_int_eq(gpu_drv_cuda.import(dev, &told, &mem), 0);
    copy_from(dev, text, mem.addr + WORKER_BYTES - 5, 5);
    ck_assert_str_eq(text, "hello");
    copy_to(dev, mem.addr + 1, "again", 5);
    worker_end(pid, socket, 0);
    /* Its exporter has gone; the memory has not. */
    copy_from(dev, text, mem.addr + 1, 5);
    ck_assert_str_eq(text, "again");
    gpu_drv_cuda.free(dev, &mem);
    close_device(dev);
}

CASES(.name = "one process", .setup = setup, .teardown = teardown);

CASE(handles_that_are_none_do_not_cost_the_device)
{
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    struct device_handle handle = {.kind = DEVICE_HANDLE_FD, .fd = fds[0], .bytes = MIB};
    assert_refused(&handle);
    handle.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_refused(&handle);
    handle.kind = DEVICE_HANDLE_IPC;
    assert_refused(&handle);
    memset(handle.ipc, 0xff, sizeof(handle.ipc));
    assert_refused(&handle);
}

/* ---- host memory ---- */

CASE(host_memory_is_pinned_again_and_shared)
{
    unsigned char *host = host_memory(4 * MIB);
    for (int i = 0; i < 3; i++) {
        must_pin(dev, host, 4 * MIB);
        gpu_drv_cuda.unpin(dev, host, 4 * MIB);
    }
    must_pin(dev, host, 4 * MIB);
    close_device(dev); /* with the registration */
    dev = open_device(device_name());
    must_pin(dev, host, 4 * MIB);
    assert_well();
    gpu_drv_cuda.unpin(dev, host, 4 * MIB);
    free(host);
}

/* ---- the end of a context ---- */

/* A copy to no memory, past the check: what a kernel does then, no context forgets. */
static void poison(void)
{
    struct kvc_frag *frag = dev->cuda.lists.list[0].frag;
    uint32_t n = 1;
    void *arguments[] = {&dev->cuda.lists.list[0].device_addr, &n};
    frag[0] = (struct kvc_frag){.to = 4096, .from = 8192, .bytes = 16};
    if (fake)
        fake->arm("exec:1=700!");
    ck_assert_int_eq(dev->cuda.cu->LaunchKernel(dev->cuda.lists.kernel, 1, 1, 1, KVC_FRAGS_THREADS,
                                                1, 1, 0, dev->stream[0], arguments, NULL),
                     CUDA_SUCCESS);
}

CASES(.name = "an error that stays", .setup = setup, .teardown = teardown);

/* _i: the fake driver keeps the error. A real one may, and says so then. */
CASE_EACH(a_context_that_died_is_followed_by_one_that_lives_or_by_none, 2)
{
    if (fake)
        fake->keep_errors(_i);
    unsigned char *host = host_memory(MIB);
    struct gpu_mem mem = alloc(dev, MIB);
    const struct kvc_frag frag = {mem.addr, (uintptr_t)host, MIB};
    uint64_t ticket = 0;
    must_pin(dev, host, MIB);
    poison();
    int r = gpu_drv_cuda.copy(dev, GPU_PATH_ENGINE, GPU_TO_DEVICE, &frag, 1, NULL, &ticket);
    if (r == 0)
        r = wait_for(dev, ticket);
    ck_assert_int_eq(r, -EIO);
    printf("died of: %s\n", gpu_drv_cuda.why(dev));
    close_device(dev);
    if (fake)
        fake->arm("");
    r = try_open_as(device_name(), &dev);
    if (fake)
        ck_assert_int_eq(r, _i ? -EIO : 0);
    if (r == 0) {
        must_pin(dev, host, MIB);
        assert_well();
        gpu_drv_cuda.unpin(dev, host, MIB);
    } else {
        ck_assert_int_eq(r, -EIO);
        ck_assert_msg(strstr(why, "the driver gives this process no context; restart it"), "%s",
                      why);
        dev = NULL;
    }
    free(host);
}

/* In a process of its own, since a process that has used CUDA must not fork. */
static bool is_there(void)
{
    const pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        struct gpu_dev *opened = NULL;
        const char *problem = gpu_drv_cuda.problem();
        const int r = problem ? 0 : try_open_as(device_name(), &opened);
        if (problem || r == -ENODEV)
            printf("SKIP: %s\n", problem ? problem : why);
        if (opened)
            gpu_drv_cuda.close(opened);
        fflush(stdout);
        _exit(problem || r == -ENODEV ? 1 : 0);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

int main(void)
{
    if (!is_there())
        return 77;
    return cases_run();
}
#endif
