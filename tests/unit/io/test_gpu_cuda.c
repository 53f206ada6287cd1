/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver behind gpu_drv.h: names, memory, other processes' memory, host memory, copies. */
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
#include <sys/stat.h>
#include <sys/wait.h>

#include "cases.h"
#include "cuda_copies.h"

#define UUID0 "GPU-6b76632d-6661-6b65-2d63-7564612d2da0"
#define UUID1 "GPU-6b76632d-6661-6b65-2d63-7564612d2da1"

static void setup(void)
{
    dev = open_device(DEV0);
}

static void teardown(void)
{
    close_device(dev);
}

/* ---- names ---- */

CASE_EACH(devices_are_found_by_ordinal_and_by_uuid, 4)
{
    static const char *const names[] = {"cuda:1", UUID1, "GPU-6B76632D-6661-6B65-2D63-7564612D2DA1",
                                        "MIG-6b76632d-6661-6b65-2d63-7564612d2da1"};
    ck_assert_ptr_null(gpu_device_problem(names[_i]));
    dev = open_device(names[_i]);
    ck_assert_str_eq(info.name, "Fake 1");
    ck_assert_uint_eq(info.uuid[0], 0x6b);
    ck_assert_uint_eq(info.uuid[15], 0xa1);
    ck_assert_int_eq(info.exports, DEVICE_HANDLE_FD);
    ck_assert(info.has_kernel);
    close_device(dev);
}

CASE(a_device_that_is_not_there_is_enodev)
{
    find_fake();
    ck_assert_int_eq(try_open_as("cuda:2", &dev), -ENODEV);
    ck_assert_ptr_nonnull(strstr(why, "sees 2"));
    ck_assert_int_eq(try_open_as("GPU-6b76632d-6661-6b65-2d63-7564612d2daf", &dev), -ENODEV);
    ck_assert_ptr_nonnull(strstr(why, "UUID"));
    assert_nothing_left();
}

CASE(a_device_without_unified_addresses_is_enodev)
{
    set("FAKE_CUDA_UNIFIED", "0");
    find_fake();
    ck_assert_int_eq(try_open_as(DEV0, &dev), -ENODEV);
    ck_assert_ptr_nonnull(strstr(why, "addresses"));
    assert_nothing_left();
}

/* A driver without devices, one whose kernel module is another version's, and the like. */
CASE_EACH(a_driver_that_does_not_start_is_enodev_and_tried_again, 4)
{
    static const char *const fails[] = {"cuInit:1=100", "cuInit:1=803", "cuDeviceGet:1=101",
                                        "cuDevicePrimaryCtxRetain:1=46"};
    set("FAKE_CUDA_FAIL", fails[_i]);
    find_fake();
    ck_assert_int_eq(try_open_as(UUID0, &dev), -ENODEV);
    ck_assert_ptr_nonnull(strstr(why, "cu"));
    assert_nothing_left();
    close_device(open_device(UUID0));
}

/* ---- drivers ---- */

static void run_self(const char *library_path, char *ret_said, size_t bytes)
{
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        char *const argv[] = {(char *)"test_gpu_cuda", (char *)"problem", NULL};
        (void)dup2(fds[1], STDOUT_FILENO);
        set("LD_LIBRARY_PATH", library_path);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    close(fds[1]);
    size_t n = 0;
    ssize_t got;
    while ((got = read(fds[0], ret_said + n, bytes - 1 - n)) > 0)
        n += (size_t)got;
    ret_said[n] = '\0';
    close(fds[0]);
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A file that is no library stands in the way of a driver that the machine may have. */
CASE(a_program_starts_without_a_driver_and_says_what_to_do)
{
    char dir[] = "/tmp/kvc-test-XXXXXX", path[64], said[512];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/libcuda.so.1", dir);
    const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, "no ELF file", 11), 11);
    close(fd);
    run_self(dir, said, sizeof(said));
    unlink(path);
    rmdir(dir);
    ck_assert_msg(strstr(said, "install the NVIDIA driver") != NULL, "%s", said);
    run_self(FAKE_CUDA_DIR, said, sizeof(said));
    ck_assert_str_eq(said, "-\n");
}

CASE_EACH(an_old_driver_is_told_which_is_needed, 2)
{
    set(_i == 0 ? "FAKE_CUDA_HIDE" : "FAKE_CUDA_VERSION", _i == 0 ? "cuMemMap" : "11080");
    const char *problem = gpu_drv_cuda.problem();
    ck_assert_ptr_nonnull(problem);
    ck_assert_ptr_nonnull(strstr(problem, "R525"));
    ck_assert_ptr_nonnull(strstr(problem, _i == 0 ? "cuMemMap:" : "older than CUDA 12.0"));
    ck_assert_int_eq(try_open_as(DEV0, &dev), -ENODEV);
    ck_assert_str_eq(why, problem);
}

/* ---- memory ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(memory_is_exported_and_no_program_sees_into_it)
{
    struct gpu_mem mem = alloc(dev, 3 * MIB + 5);
    struct stat st;
    ck_assert_uint_eq(mem.bytes, 3 * MIB + 5);
    ck_assert(!mem.imported);
    ck_assert_int_eq(mem.handle.kind, DEVICE_HANDLE_FD);
    ck_assert_uint_eq(mem.handle.bytes, mem.bytes);
    ck_assert_int_eq(fcntl(mem.handle.fd, F_GETFD), FD_CLOEXEC);
    /* Not with the CPU: the fake makes it so, and other tests rest on it. */
    ck_assert_int_eq(write(mem.handle.fd, (void *)(uintptr_t)mem.addr, 1), -1);
    ck_assert_int_eq(errno, EFAULT);
    const int fd = mem.handle.fd;
    gpu_drv_cuda.free(dev, &mem);
    ck_assert_int_eq(fstat(fd, &st), -1);
}

/* What others copy holds up nobody who wants memory, and what they have is zero before they get it.
 * _i: it is given back before. */
CASE_EACH(memory_is_filled_with_zeros_behind_the_callers_back, 2)
{
    struct gpu_mem mem = alloc(dev, MIB), more = {0};
    unsigned char *host = host_memory(MIB), *zeros = host_memory(MIB);
    const struct kvc_frag frag = {mem.addr, (uintptr_t)host, MIB};
    uint64_t ticket = 0;
    must_pin(dev, host, MIB);
    fake->hold(1);
    const uint64_t copied = must_copy(dev, GPU_PATH_ENGINE, GPU_TO_DEVICE, &frag, 1);
    ck_assert_int_eq(gpu_drv_cuda.alloc(dev, MIB, &more, &ticket), 0);
    ck_assert_int_eq(gpu_drv_cuda.poll(dev, ticket), 0);
    fake->hold(0);
    if (_i == 0) {
        ck_assert_int_eq(wait_for(dev, ticket), 1);
        fill(host, MIB, 3);
        copy_from(dev, host, more.addr, MIB);
        ck_assert_mem_eq(host, zeros, MIB);
    }
    gpu_drv_cuda.free(dev, &more);
    ck_assert_int_eq(wait_for(dev, copied), 1);
    gpu_drv_cuda.unpin(dev, host, MIB);
    gpu_drv_cuda.free(dev, &mem);
    free(host);
    free(zeros);
}

CASES();

CASE(memory_that_there_is_not_is_enomem_and_no_more)
{
    uint64_t ticket;
    set("FAKE_CUDA_MEMORY", "67108864");
    dev = open_device(DEV0);
    struct gpu_mem mem = {0};
    ck_assert_int_eq(gpu_drv_cuda.alloc(dev, UINT64_C(1) << 40, &mem, &ticket), -ENOMEM);
    ck_assert_int_eq(gpu_drv_cuda.alloc(dev, UINT64_MAX, &mem, &ticket), -ENOMEM);
    struct gpu_mem most = alloc(dev, 63 * MIB);
    ck_assert_int_eq(gpu_drv_cuda.alloc(dev, 3 * MIB, &mem, &ticket), -ENOMEM);
    ck_assert_ptr_nonnull(
        strstr(gpu_drv_cuda.why(dev), "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"));
    ck_assert_uint_eq(mem.addr, 0);
    gpu_drv_cuda.free(dev, &most);
    mem = alloc(dev, 3 * MIB);
    gpu_drv_cuda.free(dev, &mem);
    close_device(dev);
}

CASES(.setup = setup, .teardown = teardown);

CASE(what_is_not_freed_goes_when_the_device_is_closed)
{
    unsigned char byte = 1;
    const struct gpu_mem mem = alloc(dev, MIB);
    unsigned char *host = host_memory(MIB);
    must_pin(dev, host, MIB);
    const struct kvc_frag frag = {.to = mem.addr, .from = (uintptr_t)&byte, .bytes = 1};
    (void)must_copy(dev, GPU_PATH_ENGINE, GPU_TO_DEVICE, &frag, 1);
    close_device(dev);
    ck_assert_int_eq(fcntl(mem.handle.fd, F_GETFD), -1);
    free(host);
    dev = open_device(DEV0);
}

CASE(memory_of_an_earlier_time_is_nobodys)
{
    struct gpu_mem old = alloc(dev, MIB);
    close_device(dev);
    dev = open_device(DEV0);
    struct gpu_mem now = alloc(dev, MIB);
    gpu_drv_cuda.free(dev, &old); /* at the same address, perhaps */
    ck_assert_int_eq(fcntl(now.handle.fd, F_GETFD), FD_CLOEXEC);
    copy_to(dev, now.addr, "x", 1);
    gpu_drv_cuda.free(dev, &now);
}

CASES();

CASE_EACH(without_vmm_memory_is_exported_by_ipc, 2)
{
    set("FAKE_CUDA_VMM", "0");
    set("FAKE_CUDA_IPC", _i == 0 ? "1" : "0");
    dev = open_device(DEV0);
    ck_assert_int_eq(info.exports, DEVICE_HANDLE_IPC);
    struct gpu_mem mem = alloc(dev, 1000);
    ck_assert_int_eq(mem.handle.kind, _i == 0 ? DEVICE_HANDLE_IPC : 0);
    ck_assert_int_eq(mem.handle.fd, -1);
    ck_assert_uint_eq(mem.handle.offset, 0);
    copy_to(dev, mem.addr + 997, "abc", 3);
    const struct device_handle fd = {.kind = DEVICE_HANDLE_FD, .fd = 0, .bytes = 1};
    struct gpu_mem none = {0};
    ck_assert_int_eq(gpu_drv_cuda.import(dev, &fd, &none), -EOPNOTSUPP);
    gpu_drv_cuda.free(dev, &mem);
    close_device(dev);
}

/* ---- memory of another process ---- */

CASE_EACH(another_processs_memory_is_read_and_written, 2)
{
    const uint64_t bytes = 3 * MIB + 17;
    char text[16] = "";
    int socket;
    set("FAKE_CUDA_VMM", _i == 0 ? "1" : "0");
    const pid_t pid = worker_start(DEV0, bytes, &socket);
    dev = open_device(DEV0);
    struct device_handle handle = receive_handle(socket);
    struct gpu_mem mem = {0}, part = {0};
    ck_assert_int_eq(gpu_drv_cuda.import(dev, &handle, &mem), 0);
    ck_assert_uint_eq(mem.bytes, bytes);
    ck_assert(mem.imported);
    copy_from(dev, text, mem.addr + bytes - 5, 5);
    ck_assert_str_eq(text, "hello");
    /* Twice, as two tensors of one allocation are; IPC gives the same addresses then. */
    if (handle.kind == DEVICE_HANDLE_IPC)
        handle.offset = 1;
    handle.bytes -= 1;
    ck_assert_int_eq(gpu_drv_cuda.import(dev, &handle, &part), 0);
    gpu_drv_cuda.free(dev, &mem);
    copy_to(dev, part.addr + (handle.kind == DEVICE_HANDLE_IPC ? 0 : 1), "again", 5);
    gpu_drv_cuda.free(dev, &part);
    worker_end(pid, socket, 0);
    close_device(dev);
    if (handle.fd >= 0)
        close(handle.fd);
}

static void assert_refused(const struct device_handle *handle, int err)
{
    struct gpu_mem mem = {0};
    ck_assert_int_eq(gpu_drv_cuda.import(dev, handle, &mem), err);
    ck_assert_uint_eq(mem.addr, 0);
    ck_assert_str_ne(gpu_drv_cuda.why(dev), "");
}

CASE_EACH(memory_that_is_shorter_than_it_says_is_refused, 2)
{
    int socket;
    set("FAKE_CUDA_VMM", _i == 0 ? "1" : "0");
    const pid_t pid = worker_start(DEV0, 4 * MIB, &socket);
    dev = open_device(DEV0);
    const struct device_handle told = receive_handle(socket);
    struct device_handle handle = told;
    const uint64_t lies[] = {0, 4 * MIB + 1, 100 * MIB, UINT64_C(1) << 40, UINT64_MAX};
    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        handle.bytes = lies[i];
        assert_refused(&handle, -EINVAL);
    }
    handle = told;
    handle.offset = 1;
    assert_refused(&handle, -EINVAL);
    handle.offset = UINT64_MAX;
    assert_refused(&handle, -EINVAL);
    struct gpu_mem mem = {0};
    ck_assert_int_eq(gpu_drv_cuda.import(dev, &told, &mem), 0);
    copy_to(dev, mem.addr + 1, "again", 5);
    gpu_drv_cuda.free(dev, &mem);
    worker_end(pid, socket, 0);
    close_device(dev);
}

CASE_EACH(memory_of_another_device_is_refused, 2)
{
    int socket;
    set("FAKE_CUDA_VMM", _i == 0 ? "1" : "0");
    const pid_t pid = worker_start("cuda:1", 4 * MIB, &socket);
    dev = open_device(DEV0);
    const struct device_handle handle = receive_handle(socket);
    assert_refused(&handle, -EINVAL);
    worker_end(pid, socket, 1);
    close_device(dev);
}

/* A worker sees one device of two, and counts it as its first. */
CASE_EACH(the_worker_counts_devices_otherwise, 2)
{
    int socket;
    set("FAKE_CUDA_VMM", _i == 0 ? "1" : "0");
    set("CUDA_VISIBLE_DEVICES", "1");
    const pid_t pid = worker_start(DEV0, 4 * MIB, &socket);
    set("CUDA_VISIBLE_DEVICES", _i == 0 ? "0,1" : "1,0");
    dev = open_device(UUID1);
    ck_assert_str_eq(info.name, "Fake 1");
    const struct device_handle handle = receive_handle(socket);
    struct gpu_mem mem = {0};
    ck_assert_int_eq(gpu_drv_cuda.import(dev, &handle, &mem), 0);
    copy_to(dev, mem.addr + 1, "again", 5);
    gpu_drv_cuda.free(dev, &mem);
    worker_end(pid, socket, 0);
    close_device(dev);
}

CASES(.setup = setup, .teardown = teardown);

CASE(handles_that_are_none_cost_nothing)
{
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    struct device_handle handle = {.kind = DEVICE_HANDLE_FD, .fd = fds[0], .bytes = MIB};
    assert_refused(&handle, -EINVAL);
    handle.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_refused(&handle, -EINVAL);
    close(handle.fd);
    assert_refused(&handle, -EINVAL);
    handle.fd = -1;
    assert_refused(&handle, -EINVAL);
    handle.kind = DEVICE_HANDLE_IPC;
    memset(handle.ipc, 0xff, sizeof(handle.ipc));
    assert_refused(&handle, -EINVAL);
    handle.kind = DEVICE_HANDLE_EMU;
    assert_refused(&handle, -EOPNOTSUPP);
    handle.kind = 0;
    assert_refused(&handle, -EOPNOTSUPP);
    struct gpu_mem mem = alloc(dev, MIB);
    copy_to(dev, mem.addr, "fine", 4);
    gpu_drv_cuda.free(dev, &mem);
}

/* ---- host memory ---- */

static void copy_by_kernel(struct gpu_dev *to, const struct gpu_mem *mem, const void *host)
{
    const struct kvc_frag frag = {mem->addr, (uintptr_t)host, mem->bytes};
    ck_assert_int_eq(wait_for(to, must_copy(to, GPU_PATH_KERNEL, GPU_TO_DEVICE, &frag, 1)), 1);
}

CASE(host_memory_is_pinned_once_for_all_devices)
{
    struct gpu_dev *second = open_device("cuda:1");
    unsigned char *host = host_memory(MIB);
    struct gpu_mem mem = alloc(second, MIB);
    must_pin(on(dev), host, MIB);
    must_pin(on(second), host, MIB);
    ck_assert_uint_eq(fake->calls("cuMemHostRegister"), 1);
    ck_assert_int_eq(gpu_drv_cuda.pin(second, host, MIB), -EINVAL);
    ck_assert_int_eq(gpu_drv_cuda.pin(second, host + 4096, MIB - 4096), -EOPNOTSUPP);
    gpu_drv_cuda.unpin(on(dev), host, MIB);
    ck_assert_uint_eq(fake->calls("cuMemHostUnregister"), 0);
    copy_by_kernel(on(second), &mem, host);
    ck_assert_uint_gt(fake->calls("frag"), 0);
    gpu_drv_cuda.unpin(second, host, MIB);
    ck_assert_uint_eq(fake->calls("cuMemHostUnregister"), 1);
    gpu_drv_cuda.free(second, &mem);
    gpu_drv_cuda.close(second);
    (void)on(dev);
    free(host);
}

/* The context that registered the memory goes, in peace or not; the other device copies on, and
 * gets the fast way back when somebody pins the memory again. */
CASE_EACH(memory_whose_registration_went_with_a_device_is_copied_all_the_same, 2)
{
    struct gpu_dev *second = open_device("cuda:1");
    unsigned char *host = host_memory(MIB), *seen = host_memory(MIB);
    struct gpu_mem mem = alloc(second, MIB);
    must_pin(on(dev), host, MIB);
    must_pin(on(second), host, MIB);
    if (_i == 1) {
        fake->arm("cuEventRecord:1=700!");
        uint64_t ticket;
        ck_assert_int_eq(
            gpu_drv_cuda.copy(on(dev), GPU_PATH_ENGINE, GPU_TO_DEVICE, NULL, 0, NULL, &ticket),
            -EIO);
    }
    gpu_drv_cuda.close(on(dev));
    fill(host, MIB, 1);
    copy_by_kernel(on(second), &mem, host);
    ck_assert_uint_eq(fake->calls("frag"), 0);
    copy_from(second, seen, mem.addr, MIB);
    ck_assert_mem_eq(seen, host, MIB);
    dev = open_device(DEV0);
    must_pin(dev, host, MIB);
    copy_by_kernel(on(second), &mem, host);
    ck_assert_uint_gt(fake->calls("frag"), 0);
    gpu_drv_cuda.unpin(on(dev), host, MIB);
    gpu_drv_cuda.close(on(second));
    (void)on(dev);
    free(host);
    free(seen);
}

CASES();

/* What the vendor's documents leave open. */
CASE(a_registration_that_outlives_its_context_is_made_anew)
{
    set("FAKE_CUDA_KEEP_PINS", "1");
    dev = open_device(DEV0);
    unsigned char *host = host_memory(MIB);
    must_pin(dev, host, MIB);
    fake->arm("cuMemAlloc:1=700!,cuMemCreate:1=700!");
    struct gpu_mem mem = {0};
    uint64_t ticket;
    ck_assert_int_eq(gpu_drv_cuda.alloc(dev, MIB, &mem, &ticket), -EIO);
    gpu_drv_cuda.close(dev);
    dev = open_device(DEV0);
    must_pin(dev, host, MIB);
    gpu_drv_cuda.unpin(dev, host, MIB);
    close_device(dev);
    free(host);
}

CASES(.setup = setup, .teardown = teardown);

CASE_EACH(memory_that_cannot_be_pinned_is_an_errno, 6)
{
    static const struct {
        const char *fail;
        int err;
    } cases[] = {{"cuMemHostRegister:1=2", -ENOMEM},
                 {"cuMemHostRegister:1=304", -ENOMEM},
                 {"cuMemHostRegister:1=801", -EOPNOTSUPP},
                 {"cuMemHostRegister:1=1", -EOPNOTSUPP},
                 {"cuMemHostGetDevicePointer:1=1", -EOPNOTSUPP},
                 {"cuMemHostRegister:1=700!", -EIO}};
    unsigned char *host = host_memory(MIB);
    fake->arm(cases[_i].fail);
    ck_assert_int_eq(gpu_drv_cuda.pin(dev, host, MIB), cases[_i].err);
    if (cases[_i].err != -EIO) {
        must_pin(dev, host, MIB);
        gpu_drv_cuda.unpin(dev, host, MIB);
    }
    gpu_drv_cuda.unpin(dev, host, MIB); /* no harm */
    free(host);
}

/* ---- copies ---- */

static const struct {
    const char *version, *host_offset;
    bool has_kernel;
    enum cuda_pins pins;
} ways[] = {{"13000", "0", true, PINNED},
            {"13000", "0", true, NOT_PINNED},
            {"13000", "0", true, IN_PARTS},
            {"13000", "0x400000000000", true, IN_PARTS},
            {"12080", "0x400000000000", true, IN_PARTS},
            {"12070", "0x400000000000", true, IN_PARTS},
            {"12070", "0", true, PINNED},
            {"13000", "0", false, PINNED}};

CASES();

CASE_EACH(fragments_arrive_on_either_path, ARRAY_LEN(ways))
{
    set("FAKE_CUDA_VERSION", ways[_i].version);
    set("FAKE_CUDA_HOST_OFFSET", ways[_i].host_offset);
    set("FAKE_CUDA_FAIL",
        ways[_i].has_kernel ? "" : "cuModuleLoadData:1=209,cuModuleLoadData:2=218");
    set("FAKE_CUDA_DELAY_US", "20");
    dev = open_device(DEV0);
    ck_assert_int_eq(info.has_kernel, ways[_i].has_kernel);
    copy_random_fragments(ways[_i].pins, 7 + (uint64_t)_i);
    ck_assert_int_eq(fake->calls("frag") > 0, ways[_i].has_kernel);
    const bool has_batch = strcmp(ways[_i].version, "12070") != 0;
    ck_assert_int_eq(fake->calls("cuMemcpyBatchAsync") > 0, has_batch);
    close_device(dev);
}

/* A driver of CUDA 12 knows no image of CUDA 13; a device may be one that the image has no code
 * for. */
CASE_EACH(an_image_that_is_refused_is_loaded_as_ptx, 3)
{
    static const char *const versions[] = {"12000", "12080", "13000"};
    set("FAKE_CUDA_VERSION", versions[_i]);
    set("FAKE_CUDA_FAIL", "cuModuleLoadData:1=209");
    dev = open_device(DEV0);
    ck_assert(info.has_kernel);
    ck_assert_uint_eq(fake->calls("ptx"), 1);
    copy_random_fragments(PINNED, 3);
    ck_assert_uint_gt(fake->calls("frag"), 0);
    close_device(dev);
}

/* n fragments of `bytes` from host on, `gap` apart there and next to each other on the device. */
static uint64_t pieces_of(const struct gpu_mem *mem, const unsigned char *host, uint32_t n,
                          uint64_t bytes, uint64_t gap)
{
    struct kvc_frag frag[16];
    const uint64_t before = fake->calls("piece");
    for (uint32_t i = 0; i < n; i++)
        frag[i] = (struct kvc_frag){.to = mem->addr + i * bytes,
                                    .from = (uintptr_t)host + i * (bytes + gap),
                                    .bytes = bytes};
    (void)wait_for(dev, must_copy(dev, GPU_PATH_ENGINE, GPU_TO_DEVICE, frag, n));
    return fake->calls("piece") - before;
}

CASES(.setup = setup, .teardown = teardown);

CASE(neighbours_are_joined_and_registrations_are_not)
{
    struct gpu_mem mem = alloc(dev, MIB);
    unsigned char *host = host_memory(MIB);
    must_pin(dev, host + 65536, 65536);
    must_pin(dev, host + 131072, 65536);
    ck_assert_uint_eq(pieces_of(&mem, host + 65536, 16, 4096, 0), 1);
    ck_assert_uint_eq(pieces_of(&mem, host + 65536, 8, 4096, 4096), 8);
    ck_assert_uint_eq(pieces_of(&mem, host, 4, 8192, 0), 1);         /* none is registered */
    ck_assert_uint_eq(pieces_of(&mem, host + 61440, 2, 4096, 0), 2); /* the second is */
    ck_assert_uint_eq(pieces_of(&mem, host + 61440, 1, 8192, 0), 2); /* half of it is */
    ck_assert_uint_eq(pieces_of(&mem, host + 126976, 2, 4096, 0), 2);
    ck_assert_uint_eq(pieces_of(&mem, host, 1, MIB / 2, 0), 4);
    gpu_drv_cuda.free(dev, &mem);
    close_device(dev);
    free(host);
    dev = open_device(DEV0);
}

CASE(large_fragments_are_divided_among_the_warps)
{
    struct gpu_mem mem = alloc(dev, MIB);
    unsigned char *host = host_memory(MIB);
    must_pin(dev, host, MIB);
    const struct kvc_frag frag = {.to = mem.addr, .from = (uintptr_t)host, .bytes = MIB};
    (void)wait_for(dev, must_copy(dev, GPU_PATH_KERNEL, GPU_TO_DEVICE, &frag, 1));
    ck_assert_uint_eq(fake->calls("frag"), MIB / CUDA_LIST_BYTES);
    ck_assert_uint_eq(fake->calls("cuLaunchKernel"), 1);
    gpu_drv_cuda.unpin(dev, host, MIB);
    gpu_drv_cuda.free(dev, &mem);
    free(host);
}

CASES();

/* Twice what all lists hold, in one copy. */
CASE(more_fragments_than_the_lists_hold)
{
    const uint32_t n = 2 * CUDA_LISTS_MAX * CUDA_LIST_FRAGS;
    set("FAKE_CUDA_DELAY_US", "100000"); /* so that they are all on their way */
    dev = open_device(DEV0);
    struct gpu_mem mem = alloc(dev, 2 * n);
    unsigned char *host = host_memory(2 * n);
    unsigned char *seen = host_memory(2 * n);
    struct kvc_frag *frag = calloc(n, sizeof(*frag));
    ck_assert_ptr_nonnull(frag);
    must_pin(dev, host, 2 * n);
    fill(host, 2 * n, 3);
    copy_to(dev, mem.addr, seen, 2 * n);
    for (uint32_t i = 0; i < n; i++)
        frag[i] =
            (struct kvc_frag){.to = mem.addr + 2 * i, .from = (uintptr_t)host + 2 * i, .bytes = 1};
    const uint64_t ticket = must_copy(dev, GPU_PATH_KERNEL, GPU_TO_DEVICE, frag, n);
    memset(frag, 0xff, n * sizeof(*frag)); /* they are the caller's again */
    ck_assert_int_eq(wait_for(dev, ticket), 1);
    copy_from(dev, seen, mem.addr, 2 * n);
    for (uint32_t i = 0; i < n; i++)
        ck_assert(seen[2 * i] == host[2 * i] && seen[2 * i + 1] == 0);
    free(frag);
    gpu_drv_cuda.unpin(dev, host, 2 * n);
    gpu_drv_cuda.free(dev, &mem);
    close_device(dev);
    free(host);
    free(seen);
}

/* Scattered, so that each is a piece of its own. */
static void scatter(struct kvc_frag *frag, uint32_t n, uint64_t device, const unsigned char *host)
{
    for (uint32_t i = 0; i < n; i++)
        frag[i] = (struct kvc_frag){device + i * 8192, (uintptr_t)host + i * 8192, 4096};
}

CASES(.setup = setup, .teardown = teardown);

/* The driver has the function, and does not do it here: the copies are made all the same, each by
 * itself, and it is not asked each time. */
CASE(a_batch_that_is_not_supported_is_copied_piece_by_piece)
{
    struct kvc_frag frag[16];
    struct gpu_mem mem = alloc(dev, MIB);
    unsigned char *host = host_memory(MIB), *seen = host_memory(MIB);
    must_pin(dev, host, MIB);
    fill(host, MIB, 5);
    scatter(frag, 16, mem.addr, host);
    fake->arm("cuMemcpyBatchAsync:1=801");
    for (unsigned turn = 0; turn < 2; turn++)
        ck_assert_int_eq(wait_for(dev, must_copy(dev, GPU_PATH_ENGINE, GPU_TO_DEVICE, frag, 16)),
                         1);
    fake->arm("");
    ck_assert_uint_eq(fake->calls("cuMemcpyBatchAsync"), 1);
    copy_from(dev, seen, mem.addr, MIB);
    for (uint32_t i = 0; i < 16; i++)
        ck_assert_int_eq(memcmp(seen + i * 8192, host + i * 8192, 4096), 0);
    gpu_drv_cuda.unpin(dev, host, MIB);
    gpu_drv_cuda.free(dev, &mem);
    free(host);
    free(seen);
}

/* _i: by batch, by kernel, one by one. */
CASE_EACH(a_copy_that_was_taken_back_is_not_begun_and_ends, 3)
{
    const bool pinned = _i < 2;
    _Atomic uint64_t word = 1;
    struct gpu_revoke revoke = {.word = &word};
    struct kvc_frag frag[16];
    struct gpu_mem mem = alloc(dev, MIB);
    unsigned char *host = host_memory(MIB), *seen = host_memory(MIB);
    if (pinned)
        must_pin(dev, host, MIB);
    fill(host, MIB, 5);
    scatter(frag, 16, mem.addr, host);
    for (unsigned turn = 0; turn < 2; turn++) {
        uint64_t ticket = 0;
        const uint64_t before = fake->calls("piece") + fake->calls("frag");
        ck_assert_int_eq(gpu_drv_cuda.copy(dev, _i == 1 ? GPU_PATH_KERNEL : GPU_PATH_ENGINE,
                                           GPU_TO_DEVICE, frag, 16, &revoke, &ticket),
                         0);
        ck_assert_int_eq(wait_for(dev, ticket), 1);
        ck_assert_uint_eq(fake->calls("piece") + fake->calls("frag"), before);
        ck_assert(revoke.seen);
        word = 0; /* a word that is lowered changes nothing */
    }
    copy_to(dev, mem.addr, host, 100); /* the next is whole */
    copy_from(dev, seen, mem.addr, MIB);
    ck_assert_int_eq(memcmp(seen, host, 100), 0);
    for (uint32_t i = 100; i < MIB; i++)
        ck_assert_uint_eq(seen[i], 0);
    if (pinned)
        gpu_drv_cuda.unpin(dev, host, MIB);
    gpu_drv_cuda.free(dev, &mem);
    free(host);
    free(seen);
}

CASE(fragments_outside_the_devices_memory_are_refused)
{
    unsigned char host[16];
    uint64_t ticket = 77;
    struct gpu_mem mem = alloc(dev, 2 * MIB);
    const uint64_t end = mem.addr + 2 * MIB;
    const struct kvc_frag bad[] = {{end - 8, (uintptr_t)host, 9},
                                   {end, (uintptr_t)host, 1},
                                   {mem.addr - 1, (uintptr_t)host, 1},
                                   {(uintptr_t)host, (uintptr_t)host, 1},
                                   {mem.addr, (uintptr_t)host, UINT64_MAX}};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        const struct kvc_frag two[] = {{mem.addr, (uintptr_t)host, 4}, bad[i]};
        ck_assert_int_eq(
            gpu_drv_cuda.copy(dev, GPU_PATH_ENGINE, GPU_TO_DEVICE, two, 2, NULL, &ticket), -EINVAL);
        ck_assert_ptr_nonnull(strstr(gpu_drv_cuda.why(dev), "fragment 1"));
    }
    ck_assert_uint_eq(ticket, 77);
    ck_assert_uint_eq(fake->calls("piece"), 0);
    copy_to(dev, mem.addr, host, sizeof(host));
    gpu_drv_cuda.free(dev, &mem);
}

/* ---- tickets ---- */

CASE(a_ticket_has_ended_when_it_and_all_before_it_have)
{
    unsigned char *host = host_memory(MIB);
    struct gpu_mem mem = alloc(dev, MIB);
    uint64_t last = 0;
    must_pin(dev, host, MIB);
    fake->hold(1);
    const struct kvc_frag to = {mem.addr, (uintptr_t)host, 4096};
    const struct kvc_frag from = {(uintptr_t)host + 8192, mem.addr + 8192, 4096};
    for (int i = 0; i < 10; i++) {
        const uint64_t ticket = i % 2 ? must_copy(dev, GPU_PATH_ENGINE, GPU_FROM_DEVICE, &from, 1)
                                      : must_copy(dev, GPU_PATH_KERNEL, GPU_TO_DEVICE, &to, 1);
        ck_assert_uint_gt(ticket, last);
        last = ticket;
        ck_assert_int_eq(gpu_drv_cuda.poll(dev, ticket), 0);
    }
    fake->hold(0);
    ck_assert_int_eq(wait_for(dev, last - 5), 1);
    ck_assert_int_eq(wait_for(dev, last), 1);
    ck_assert_int_eq(gpu_drv_cuda.poll(dev, last - 9), 1);
    gpu_drv_cuda.unpin(dev, host, MIB);
    gpu_drv_cuda.free(dev, &mem);
    free(host);
}

CASE(events_are_used_again)
{
    unsigned char *host = host_memory(4096);
    struct gpu_mem mem = alloc(dev, MIB);
    uint64_t ticket = 0;
    must_pin(dev, host, 4096);
    for (uint32_t i = 0; i < 20 * CUDA_TICKETS; i++) {
        const struct kvc_frag frag = {mem.addr + 16 * i, (uintptr_t)host, 16};
        ticket = must_copy(dev, GPU_PATH_ENGINE, GPU_TO_DEVICE, &frag, 1);
        if (ticket >= GPU_DRV_COPIES_MAX)
            ck_assert_int_eq(wait_for(dev, ticket - GPU_DRV_COPIES_MAX + 1), 1);
    }
    ck_assert_int_eq(wait_for(dev, ticket), 1);
    gpu_drv_cuda.unpin(dev, host, 4096);
    gpu_drv_cuda.free(dev, &mem);
    free(host);
}

/* ---- order ---- */

static uint64_t waits(void)
{
    return fake->calls("cuStreamWaitEvent");
}

CASE(directions_run_at_once_and_in_order_where_they_meet)
{
    unsigned char *host = host_memory(MIB);
    struct gpu_mem mem = alloc(dev, MIB);
    const uint64_t here = (uintptr_t)host;
    must_pin(dev, host, MIB);
    fill(host, 65536, 5);
    fake->hold(1);
    const struct kvc_frag to[] = {{mem.addr, here, 65536}};
    const struct kvc_frag other[] = {{here + 262144, mem.addr + 262144, 65536}};
    const struct kvc_frag on[] = {{mem.addr + 131072, mem.addr + 65534, 2}};
    const struct kvc_frag back[] = {{here + 131072, mem.addr + 131073, 1}};
    const struct kvc_frag again[] = {{mem.addr + 524288, here + 131072, 1}};
    (void)must_copy(dev, GPU_PATH_ENGINE, GPU_TO_DEVICE, to, 1);
    (void)must_copy(dev, GPU_PATH_ENGINE, GPU_FROM_DEVICE, other, 1);
    (void)must_copy(dev, GPU_PATH_ENGINE, GPU_TO_DEVICE, to, 1);
    ck_assert_uint_eq(waits(), 0);
    (void)must_copy(dev, GPU_PATH_ENGINE, GPU_ON_DEVICE, on, 1); /* what comes to the device */
    ck_assert_uint_eq(waits(), 1);
    (void)must_copy(dev, GPU_PATH_KERNEL, GPU_FROM_DEVICE, back, 1); /* what it writes there */
    ck_assert_uint_eq(waits(), 2);
    (void)must_copy(dev, GPU_PATH_KERNEL, GPU_TO_DEVICE, again, 1); /* what that brings */
    ck_assert_uint_eq(waits(), 3);
    fake->hold(0);
    copy_from(dev, host, mem.addr + 524288, 1);
    ck_assert_uint_eq(host[0], host[65535]); /* it came all the way */
    gpu_drv_cuda.unpin(dev, host, MIB);
    gpu_drv_cuda.free(dev, &mem);
    free(host);
}

/* Each byte goes to the device, across it and back, in copies that are all in flight. */
CASE(a_chain_of_copies_need_not_be_waited_for)
{
    enum { CHAINS = 16, BYTES = 3000, STEP = 16384 };
    unsigned char *host = host_memory(MIB);
    unsigned char *out = host, *back = host + MIB / 2;
    struct gpu_mem a = alloc(dev, MIB), b = alloc(dev, MIB);
    must_pin(dev, host, MIB);
    for (int round = 0; round < 20; round++) {
        uint64_t ticket = 0;
        fill(out, MIB / 2, (uint64_t)round);
        for (uint64_t i = 0; i < CHAINS; i++) {
            const uint64_t at = i * STEP;
            const struct kvc_frag to = {a.addr + at, (uintptr_t)out + at, BYTES};
            const struct kvc_frag on = {b.addr + at, a.addr + at, BYTES};
            const struct kvc_frag from = {(uintptr_t)back + at, b.addr + at, BYTES};
            const enum gpu_path path = i % 2 ? GPU_PATH_KERNEL : GPU_PATH_ENGINE;
            (void)must_copy(dev, path, GPU_TO_DEVICE, &to, 1);
            (void)must_copy(dev, GPU_PATH_ENGINE, GPU_ON_DEVICE, &on, 1);
            ticket = must_copy(dev, path, GPU_FROM_DEVICE, &from, 1);
        }
        ck_assert_int_eq(wait_for(dev, ticket), 1);
        for (uint64_t i = 0; i < CHAINS; i++)
            ck_assert_mem_eq(back + i * STEP, out + i * STEP, BYTES);
    }
    gpu_drv_cuda.unpin(dev, host, MIB);
    gpu_drv_cuda.free(dev, &a);
    gpu_drv_cuda.free(dev, &b);
    free(host);
}

/* More scattered fragments than the table of what is in flight has places: order is kept all the
 * same. */
CASE(order_is_kept_when_too_much_is_in_flight)
{
    const uint32_t n = 4096, copies = 10;
    const uint64_t step = 16384, bytes = n * copies * step;
    static struct kvc_frag frag[4096];
    unsigned char *host = host_memory(2 * MIB);
    struct gpu_mem mem = alloc(dev, MIB);
    gpu_drv_cuda.free(dev, &mem);
    mem = alloc(dev, bytes);
    must_pin(dev, host, 2 * MIB);
    fake->hold(1);
    for (uint32_t k = 0; k < copies; k++) {
        for (uint32_t i = 0; i < n; i++)
            frag[i] = (struct kvc_frag){mem.addr + (k * n + i) * step, (uintptr_t)host + i % 7, 1};
        (void)must_copy(dev, GPU_PATH_KERNEL, GPU_TO_DEVICE, frag, n);
    }
    ck_assert_uint_eq(waits(), 0);
    /* Any byte of those is now waited for. */
    for (uint64_t i = 0; i < 40; i++) {
        const struct kvc_frag back = {(uintptr_t)host + MIB + i * step,
                                      mem.addr + i * 2039 % (n * copies) * step, 1};
        const uint64_t before = waits();
        (void)must_copy(dev, GPU_PATH_ENGINE, GPU_FROM_DEVICE, &back, 1);
        ck_assert_uint_ge(waits(), before + 1);
    }
    fake->hold(0);
    ck_assert_int_eq(wait_for(dev, dev->issued), 1);
    gpu_drv_cuda.unpin(dev, host, 2 * MIB);
    gpu_drv_cuda.free(dev, &mem);
    free(host);
}

CASE(a_copy_of_nothing_ends)
{
    const uint64_t ticket = must_copy(dev, GPU_PATH_KERNEL, GPU_ON_DEVICE, NULL, 0);
    ck_assert_int_eq(wait_for(dev, ticket), 1);
}

/* ---- main ---- */

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "problem") == 0) {
        const char *problem = gpu_drv_cuda.problem();
        puts(problem ? problem : "-");
        return EXIT_SUCCESS;
    }
    use_the_fake(argv);
    return cases_run();
}
#endif
