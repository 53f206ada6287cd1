/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA driver behind gpu_drv.h, when the driver or the system fails. */
#ifndef KVC_HAVE_CUDA
#include <stdio.h>
int main(void)
{
    puts("SKIP: built without CUDA (no nvcc was found, or KVC_CUDA=OFF)");
    return 77;
}
#else
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#include "cuda_fixture.h"
#include "fault.h"

/* ---- a life of a device, step by step, as far as it goes ---- */

static unsigned char *host;          /* 1 MiB */
static struct device_handle foreign; /* of a worker, to be imported; kind 0: the device's own */

static int copy_and_wait(enum gpu_path path, enum gpu_direction direction,
                         const struct kvc_frag *frag, uint32_t n)
{
    uint64_t ticket = 0;
    const int r = gpu_drv_cuda.copy(dev, path, direction, frag, n, NULL, &ticket);
    return r < 0 ? r : wait_for(dev, ticket);
}

static int copies(const struct gpu_mem *mem)
{
    const uint64_t here = (uintptr_t)host, there = mem->addr;
    const struct kvc_frag to[] = {{there, here, 4096}, {there + 8192, here + 4096, 100}};
    const struct kvc_frag from[] = {{here + 65536, there, 5000}};
    int r = copy_and_wait(GPU_PATH_ENGINE, GPU_TO_DEVICE, to, 2);
    if (r > 0)
        r = copy_and_wait(GPU_PATH_ENGINE, GPU_FROM_DEVICE, from, 1);
    return r > 0 ? copy_and_wait(GPU_PATH_KERNEL, GPU_TO_DEVICE, to, 2) : r;
}

/* 0, or the first error. Whatever fails, all that was got is given back. */
static int live(void)
{
    struct gpu_mem mem = {0}, imported = {0};
    uint64_t ticket = 0;
    int r = try_open_as(DEV0, &dev);
    if (r < 0)
        return r;
    const int first = r = gpu_drv_cuda.alloc(dev, 3 * MIB, &mem, &ticket);
    const int second = r =
        r < 0 ? r : gpu_drv_cuda.import(dev, foreign.kind ? &foreign : &mem.handle, &imported);
    const int third = r = r < 0 ? r : gpu_drv_cuda.pin(dev, host, 32768);
    r = r < 0 ? r : copies(&mem);
    if (r < 0)
        ck_assert_str_ne(gpu_drv_cuda.why(dev), "");
    if (third == 0)
        gpu_drv_cuda.unpin(dev, host, 32768);
    if (second == 0)
        gpu_drv_cuda.free(dev, &imported);
    if (first == 0)
        gpu_drv_cuda.free(dev, &mem);
    gpu_drv_cuda.close(dev);
    return MIN(r, 0);
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* ---- each function fails once in turn ---- */

static const char *const functions[] = {
#define NAME(name, version) "cu" #name,
    CUDA_CALLS(NAME)
#undef NAME
        "cuMemcpyBatchAsync",
    "exec"};

/* 999: an error without a name; 2: out of memory; 700: what the context does not forget. */
static const char *const codes[] = {"999", "2", "700!"};

static bool is_an_answer(int r)
{
    return r == 0 || r == -EIO || r == -ENOMEM || r == -EINVAL || r == -EOPNOTSUPP || r == -ENODEV;
}

/* Whether the nth call was reached. */
static bool fail_once(const char *function, uint64_t nth, const char *code)
{
    char text[96];
    const unsigned descriptors = open_descriptors();
    snprintf(text, sizeof(text), "%s:%ju=%s", function, (uintmax_t)nth, code);
    fake->arm(text);
    const uint64_t before = fake->calls(function);
    const int r = live();
    const bool was_reached = fake->calls(function) - before >= nth;
    fake->arm("");
    ck_assert_msg(is_an_answer(r), "%s: %d", text, r);
    ck_assert_msg(open_descriptors() == descriptors, "%s: descriptors leak", text);
    assert_nothing_left();
    const int again = live();
    ck_assert_msg(again == 0, "after %s: %d", text, again);
    assert_nothing_left();
    return was_reached;
}

static void fail_each(void)
{
    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
        /* It is told apart below; and 1,000 events are like the first three. */
        if (strcmp(functions[i], "cuDevicePrimaryCtxRelease") == 0)
            continue;
        const uint64_t most = strncmp(functions[i], "cuEvent", 7) == 0 ? 3 : 100;
        for (uint64_t nth = 1; nth <= most; nth++) {
            bool was_reached = true;
            for (size_t k = 0; k < CHECK_SHARE(ARRAY_LEN(codes)) && was_reached; k++)
                was_reached = fail_once(functions[i], nth, codes[(i + nth + k) % ARRAY_LEN(codes)]);
            if (!was_reached)
                break;
            ck_assert_uint_lt(nth, 100);
        }
    }
}

CASES(.timeout_s = 300);

CASE(nothing_is_left_whatever_fails)
{
    set("FAKE_CUDA_DELAY_US", "1");
    find_fake();
    host = host_memory(MIB);
    ck_assert_int_eq(live(), 0);
    fail_each();
    free(host);
}

CASE(nothing_is_left_whatever_fails_with_ipc)
{
    int socket;
    set("FAKE_CUDA_VMM", "0");
    set("FAKE_CUDA_DELAY_US", "1");
    const pid_t pid = worker_start(DEV0, 2 * MIB, &socket);
    foreign = receive_handle(socket);
    find_fake();
    host = host_memory(MIB);
    ck_assert_int_eq(live(), 0);
    fail_each();
    free(host);
    worker_end(pid, socket, 1);
}

CASE(a_context_that_cannot_be_released_stays_and_serves_again)
{
    find_fake();
    host = host_memory(MIB);
    fake->arm("cuDevicePrimaryCtxRelease:1=999");
    ck_assert_int_eq(live(), 0);
    char text[64];
    ck_assert_uint_eq(fake->live(text, sizeof(text)), 1);
    ck_assert_int_eq(live(), 0);
    free(host);
}

CASE(no_memory_at_any_allocation_of_ours)
{
    find_fake();
    host = host_memory(MIB);
    uint64_t nth = 0;
    int r;
    do {
        ck_assert_int_eq(fault_arm("alloc", ++nth), 0);
        r = live();
        fault_reset();
        ck_assert(r == 0 || r == -ENOMEM);
        assert_nothing_left();
    } while (r != 0);
    ck_assert_uint_ge(nth, 4); /* a device, room for memory, room for pins, a pin */
    free(host);
}

/* ---- what costs the device, and what does not ---- */

/* alloc, then import of a worker's, then pin, then a copy. */
static const struct {
    const char *fail;
    bool vmm;
    int alloc, import;
} kept[] = {{"cuMemCreate:1=2", true, -ENOMEM, 0},
            {"cuMemAddressReserve:1=2", true, -ENOMEM, 0},
            {"cuMemMap:1=2", true, -ENOMEM, 0},
            {"cuMemSetAccess:1=2", true, -ENOMEM, 0},
            {"cuMemExportToShareableHandle:1=304", true, -ENOMEM, 0},
            {"cuMemImportFromShareableHandle:1=1", true, 0, -EINVAL},
            {"cuMemImportFromShareableHandle:1=999", true, 0, -EINVAL},
            {"cuMemImportFromShareableHandle:1=304", true, 0, -ENOMEM},
            {"cuMemImportFromShareableHandle:1=801", true, 0, -EOPNOTSUPP},
            {"cuMemGetAllocationPropertiesFromHandle:1=1", true, 0, -EINVAL},
            {"cuMemAddressReserve:2=2", true, 0, -ENOMEM},
            {"cuMemMap:2=1", true, 0, -EINVAL},
            {"cuMemSetAccess:2=1", true, 0, -EINVAL},
            {"cuMemSetAccess:2=2", true, 0, -ENOMEM},
            {"cuMemAlloc:1=2", false, -ENOMEM, 0},
            {"cuIpcGetMemHandle:1=2", false, -ENOMEM, 0},
            {"cuIpcOpenMemHandle:1=400", false, 0, -EINVAL},
            {"cuIpcOpenMemHandle:1=205", false, 0, -EINVAL},
            {"cuIpcOpenMemHandle:1=2", false, 0, -ENOMEM},
            {"cuPointerGetAttribute:1=1", false, 0, -EINVAL},
            {"cuMemGetAddressRange:1=500", false, 0, -EINVAL}};

CASE_EACH(what_others_send_and_what_there_is_not_does_not_cost_the_device, ARRAY_LEN(kept))
{
    int socket;
    struct gpu_mem mem = {0}, imported = {0};
    uint64_t ticket = 0;
    set("FAKE_CUDA_VMM", kept[_i].vmm ? "1" : "0");
    const pid_t pid = worker_start(DEV0, 4 * MIB, &socket);
    foreign = receive_handle(socket);
    dev = open_device(DEV0);
    fake->arm(kept[_i].fail);
    ck_assert_int_eq(gpu_drv_cuda.alloc(dev, MIB, &mem, &ticket), kept[_i].alloc);
    ck_assert_int_eq(gpu_drv_cuda.import(dev, &foreign, &imported), kept[_i].import);
    if (kept[_i].alloc < 0)
        mem = alloc(dev, MIB);
    else
        ck_assert_int_eq(gpu_drv_cuda.import(dev, &foreign, &imported), 0);
    ck_assert_int_eq(wait_for(dev, ticket), 1);
    copy_to(dev, mem.addr, "fine", 4);
    copy_to(dev, imported.addr + 1, "again", 5);
    worker_end(pid, socket, 0);
    gpu_drv_cuda.free(dev, &imported);
    gpu_drv_cuda.free(dev, &mem);
    close_device(dev);
}

static void assert_out(struct gpu_mem *mem)
{
    struct gpu_mem other = {0};
    uint64_t ticket;
    const struct kvc_frag frag = {mem->addr, (uintptr_t)host, 1};
    ck_assert_int_eq(gpu_drv_cuda.poll(dev, 1), -EIO);
    ck_assert_int_eq(gpu_drv_cuda.alloc(dev, 1, &other, &ticket), -EIO);
    ck_assert_int_eq(gpu_drv_cuda.import(dev, &mem->handle, &other), -EIO);
    ck_assert_int_eq(gpu_drv_cuda.pin(dev, host, 4096), -EIO);
    ck_assert_int_eq(
        gpu_drv_cuda.copy(dev, GPU_PATH_ENGINE, GPU_TO_DEVICE, &frag, 1, NULL, &ticket), -EIO);
    ck_assert_msg(strstr(gpu_drv_cuda.why(dev), "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL, "%s",
                  gpu_drv_cuda.why(dev));
}

static const char *const deaths[] = {"exec:1=700!", "cuEventQuery:1=700!", "cuMemcpyAsync:1=700!",
                                     "cuEventRecord:1=700!", "cuStreamQuery:1=700!,cuMemMap:1=1"};

CASE_EACH(an_error_that_stays_takes_the_device_out_and_it_comes_back_empty, ARRAY_LEN(deaths))
{
    dev = open_device(DEV0);
    host = host_memory(MIB);
    struct gpu_mem mem = alloc(dev, MIB), other = {0};
    const struct kvc_frag frag = {mem.addr, (uintptr_t)host, 4096};
    must_pin(dev, host, MIB);
    const int fd = mem.handle.fd;
    fake->arm(deaths[_i]);
    int r = copy_and_wait(GPU_PATH_ENGINE, GPU_TO_DEVICE, &frag, 1);
    if (r > 0)
        r = gpu_drv_cuda.import(dev, &mem.handle, &other);
    ck_assert_int_eq(r, -EIO);
    assert_out(&mem);
    gpu_drv_cuda.unpin(dev, host, MIB);
    close_device(dev);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);

    fake->arm("");
    dev = open_device(DEV0);
    mem = alloc(dev, MIB);
    must_pin(dev, host, MIB);
    copy_to(dev, mem.addr, host, MIB);
    gpu_drv_cuda.unpin(dev, host, MIB);
    gpu_drv_cuda.free(dev, &mem);
    close_device(dev);
    free(host);
}

CASE(an_error_without_a_name_is_told_by_its_number)
{
    dev = open_device(DEV0);
    struct gpu_mem mem = {0};
    uint64_t ticket;
    fake->arm("cuMemCreate:1=999");
    ck_assert_int_eq(gpu_drv_cuda.alloc(dev, MIB, &mem, &ticket), -EIO);
    ck_assert_str_eq(gpu_drv_cuda.why(dev), "cuMemCreate: CUDA error 999");
    close_device(dev);
}

int main(int argc, char **argv)
{
    (void)argc;
    use_the_fake(argv);
    return cases_run();
}
#endif
