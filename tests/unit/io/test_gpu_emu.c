/* SPDX-License-Identifier: Apache-2.0 */
/* What the emulated device can be told to do: fail, vanish, be slow; and how its memory passes
 * between processes. */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>

#include "gpu_fixture.h"

#define RETRY_NS (1 * MS)

static char fault_file[256];

static void setup(void)
{
    scratch_make(false);
    snprintf(fault_file, sizeof fault_file, "%s", in_scratch("fault"));
    loop = make(LOOP_AUTO);
}

static void teardown(void)
{
    fault_reset();
    gpu_close(&gpu);
    loop_destroy(&loop);
    scratch_remove();
}

/* The word that it shall find, at once and whole. */
static void say(const char *word)
{
    FILE *f = fopen(in_scratch("fault.new"), "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "%s\n", word);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(rename(in_scratch("fault.new"), fault_file), 0);
}

static struct gpu_config config_emu(void)
{
    return (struct gpu_config){.device = "emu:0",
                               .retry_ns = RETRY_NS,
                               .emu = {.memory_bytes = 64 * MIB, .fault_file = fault_file},
                               .changed = note_changed};
}

static void open_emu(void)
{
    const struct gpu_config config = config_emu();
    gpu = open_up(&config);
}

/* --- names --- */

CASES(.setup = setup, .teardown = teardown);

CASE(a_name_that_is_none_is_refused_in_words)
{
    static const char *const wrong[] = {"",
                                        "emu",
                                        "emu:",
                                        "emu:x",
                                        "emu:1x",
                                        "emu:-1",
                                        "emu:4294967296",
                                        "Emu:0",
                                        "cuda",
                                        "cuda:",
                                        "cuda:x",
                                        "cuda:1 ",
                                        "0",
                                        "GPU-",
                                        "GPU-1234",
                                        "GPU-6b76632d-656d-7500-0000-00000000000",
                                        "GPU-6b76632d-656d-7500-0000-00000000000g",
                                        "GPU-6b76632d-656d-7500-0000-0000000000011",
                                        "GPU-6b76632d0656d-7500-0000-000000000001"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const struct gpu_config config = {.device = wrong[i]};
        ck_assert_msg(gpu_device_problem(wrong[i]) != NULL, "'%s'", wrong[i]);
        ck_assert_ptr_nonnull(strstr(gpu_device_problem(wrong[i]), "emu:<number>"));
        ck_assert_int_eq(gpu_open(&config, loop, &gpu), -EINVAL);
        ck_assert_ptr_null(gpu);
    }
    ck_assert_ptr_null(gpu_device_problem("emu:0"));
    ck_assert_ptr_null(gpu_device_problem("emu:4294967295"));
}

CASE(without_a_driver_a_cuda_device_is_out_and_says_so)
{
    static const char *const names[] = {"cuda:0", "GPU-6b76632d-656d-7500-0000-000000000001"};
    ck_assert_str_ne(gpu_cuda_text(), "");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct gpu_config config = {.device = names[i]};
        const char *problem = gpu_device_problem(names[i]);
        if (problem == NULL)
            continue; /* there is one */
        ck_assert_str_ne(problem, gpu_device_problem("no device"));
        if (gpu_name_problem(names[i]) != NULL) { /* built without CUDA */
            ck_assert_int_eq(gpu_open(&config, loop, &gpu), -EINVAL);
            continue;
        }
        ck_assert_int_eq(gpu_open(&config, loop, &gpu), 0);
        while (gpu_state(gpu) == GPU_STARTING)
            ck_assert_int_ge(loop_turn(loop, -1), 0);
        ck_assert_int_eq(gpu_state(gpu), GPU_OUT);
        ck_assert_str_eq(gpu_why(gpu), problem);
        gpu_close(&gpu);
        ck_assert_ptr_null(gpu);
    }
}

CASE(its_uuid_follows_from_its_number)
{
    static const uint8_t want[GPU_UUID_BYTES] = "kvc-emu\0\0\0\0\0\x01\x02\x03\x04";
    struct gpu_config config = config_emu();
    config.device = "emu:16909060";
    gpu = open_up(&config);
    ck_assert_int_eq(memcmp(gpu_uuid(gpu), want, sizeof want), 0);
    ck_assert_str_eq(gpu_name(gpu), "emulated");
    ck_assert(gpu_is_emulated(gpu));
    ck_assert_int_eq(gpu_exports(gpu), DEVICE_HANDLE_EMU);
}

/* --- memory --- */

CASE(memory_ends_exactly_at_the_limit_and_comes_back)
{
    struct gpu_mem mem[3];
    open_emu();
    must_alloc(gpu, &mem[0], 40 * MIB);
    must_alloc(gpu, &mem[1], 24 * MIB);
    ck_assert_uint_eq(gpu_metrics(gpu)->memory_bytes, 64 * MIB);
    ck_assert_int_eq(alloc(gpu, &mem[2], 1), -ENOMEM);
    ck_assert_int_eq(alloc(gpu, &mem[2], UINT64_MAX), -ENOMEM);
    must_free(gpu, &mem[0]);
    must_alloc(gpu, &mem[2], 40 * MIB - 4095); /* in pages */
    ck_assert_int_eq(alloc(gpu, &mem[0], 1), -ENOMEM);
    ck_assert_uint_eq(gpu_metrics(gpu)->failures, 3);
    must_free(gpu, &mem[1]);
    must_free(gpu, &mem[2]);
}

CASE(its_memory_is_a_sealed_memfd_that_others_can_only_read)
{
    struct gpu_mem mem;
    struct stat st;
    char path[32];
    const uint8_t value = 3;
    open_emu();
    must_alloc(gpu, &mem, MIB);
    const int fd = mem.handle.fd;
    ck_assert_int_eq(mem.handle.kind, DEVICE_HANDLE_EMU);
    ck_assert_uint_eq(mem.handle.bytes, MIB);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_int_eq(st.st_size, MIB);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
    ck_assert_int_lt(ftruncate(fd, 4096), 0);
    ck_assert_int_lt(ftruncate(fd, 2 * MIB), 0);
    ck_assert_ptr_eq(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    uint8_t *map = mmap(NULL, MIB, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    ck_assert_int_lt(mprotect(map, MIB, PROT_READ | PROT_WRITE), 0);
    ck_assert_int_lt(pwrite(fd, &value, 1, 0), 0);
    ck_assert_int_eq(copy_to(gpu, mem.addr + 5, &value, 1), 0);
    ck_assert_uint_eq(map[5], 3);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* opened anew by the same user */
    const int again = open(path, O_RDWR | O_CLOEXEC);
    if (again >= 0) {
        ck_assert_ptr_eq(mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0), MAP_FAILED);
        ck_assert_int_lt(pwrite(again, &value, 1, 0), 0);
        close(again);
    }
    must_free(gpu, &mem);
    ck_assert_int_lt(fcntl(fd, F_GETFD), 0); /* it went with the memory */
    munmap(map, MIB);
}

static int memfd_of(uint64_t bytes, int seals)
{
    const int fd = memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

CASE(memory_of_another_process_is_imported_and_let_go)
{
    struct gpu_mem mem, mine;
    uint8_t value[2] = {3, 4}, back = 0;
    const int fd = memfd_of(8192, F_SEAL_SHRINK);
    const struct device_handle handle = {.kind = DEVICE_HANDLE_EMU, .fd = fd, .bytes = 8000};
    uint8_t *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    open_emu();
    ck_assert_int_eq(import(gpu, &mem, &handle), 0);
    ck_assert(mem.imported && mem.addr != 0);
    ck_assert_uint_eq(mem.bytes, 8000);
    ck_assert_uint_eq(gpu_metrics(gpu)->imported_bytes, 8000);
    ck_assert_uint_eq(gpu_metrics(gpu)->memory_bytes, 0);
    must_alloc(gpu, &mine, 4096);
    ck_assert_int_eq(copy_to(gpu, mem.addr + 7999, &value[0], 1), 0);
    ck_assert_uint_eq(map[7999], 3);
    map[0] = value[1];
    const struct kvc_frag frag = {mine.addr, mem.addr, 1};
    ck_assert_int_eq(copy(gpu, GPU_ON_DEVICE, &frag, 1), 0);
    ck_assert_int_eq(copy_from(gpu, &back, mine.addr, 1), 0);
    ck_assert_uint_eq(back, 4);
    must_free(gpu, &mem);
    ck_assert_uint_eq(gpu_metrics(gpu)->imported_bytes, 0);
    ck_assert_int_ge(fcntl(fd, F_GETFD), 0); /* it was borrowed */
    must_free(gpu, &mine);
    munmap(map, 8192);
    close(fd);
}

CASE(what_could_vanish_under_a_copy_is_not_imported)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW;
    struct gpu_mem mem;
    char path[64];
    open_emu();
    const int good = memfd_of(8192, seals);
    snprintf(path, sizeof path, "/proc/self/fd/%d", good);
    const struct {
        const char *what;
        int fd, err;
        uint64_t bytes;
        uint8_t kind;
    } wrong[] = {
        {"not sealed", memfd_of(8192, 0), -EINVAL, 8192, DEVICE_HANDLE_EMU},
        {"sealed against growing alone", memfd_of(8192, F_SEAL_GROW), -EINVAL, 8192,
         DEVICE_HANDLE_EMU},
        {"sealed against writing", memfd_of(8192, seals | F_SEAL_WRITE), -EINVAL, 8192,
         DEVICE_HANDLE_EMU},
        {"short", good, -EINVAL, 8193, DEVICE_HANDLE_EMU},
        {"endless", good, -EINVAL, UINT64_MAX, DEVICE_HANDLE_EMU},
        {"nothing", good, -EINVAL, 0, DEVICE_HANDLE_EMU},
        {"a file", open(in_scratch("file"), O_RDWR | O_CREAT, 0600), -EINVAL, 1, DEVICE_HANDLE_EMU},
        {"no descriptor", -1, -EINVAL, 4096, DEVICE_HANDLE_EMU},
        {"closed", 1000, -EINVAL, 4096, DEVICE_HANDLE_EMU},
        {"read-only", open(path, O_RDONLY), -EINVAL, 8192, DEVICE_HANDLE_EMU},
        {"a directory", open("/", O_RDONLY), -EINVAL, 1, DEVICE_HANDLE_EMU},
        {"of CUDA", good, -EOPNOTSUPP, 8192, DEVICE_HANDLE_FD},
        {"of CUDA too", good, -EOPNOTSUPP, 8192, DEVICE_HANDLE_IPC},
        {"of no kind", good, -EINVAL, 8192, 0},
        {"of another kind", good, -EINVAL, 8192, 77},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const struct device_handle handle = {
            .kind = wrong[i].kind, .fd = wrong[i].fd, .bytes = wrong[i].bytes};
        const int r = import(gpu, &mem, &handle);
        ck_assert_msg(r == wrong[i].err, "%s: %d", wrong[i].what, r);
        ck_assert_uint_eq(mem.addr, 0);
    }
    ck_assert_int_eq(gpu_state(gpu), GPU_UP);
    ck_assert_uint_eq(gpu_metrics(gpu)->imported_bytes, 0);
}

CASE(memory_of_a_process_is_there_for_several_devices)
{
    struct gpu_config config = config_emu();
    struct gpu_mem one, same, mine, again;
    uint8_t value = 3, back = 0;
    const int fd = memfd_of(MIB, F_SEAL_SHRINK);
    const struct device_handle handle = {.kind = DEVICE_HANDLE_EMU, .fd = fd, .bytes = MIB};
    open_emu();
    config.device = "emu:1";
    struct gpu *other = open_up(&config);
    ck_assert_int_eq(import(gpu, &one, &handle), 0);
    ck_assert_int_eq(import(other, &same, &handle), 0);
    close(fd);
    ck_assert_int_eq(copy_to(gpu, one.addr + MIB - 1, &value, 1), 0);
    must_free(gpu, &one);
    ck_assert_int_eq(copy_from(other, &back, same.addr + MIB - 1, 1), 0); /* it is still there */
    ck_assert_uint_eq(back, 3);
    must_alloc(gpu, &mine, MIB);
    ck_assert_int_eq(import(other, &again, &mine.handle), -EINVAL); /* it is for reading */
    must_free(gpu, &mine);
    gpu_close(&other);
}

/* --- failures --- */

/* Alloc, pin, three copies, import: what each ended with. Step `nth` takes the device out; 0: none
 * does. */
enum { STEPS = 6 };

static void say_at(uint32_t nth, uint32_t step)
{
    if (step == nth)
        say("sticky");
}

static void run_steps(uint32_t nth, int ret_status[STEPS])
{
    static uint8_t host[8192];
    struct gpu_mem mem, imported;
    const int fd = memfd_of(4096, F_SEAL_SHRINK);
    const struct device_handle handle = {.kind = DEVICE_HANDLE_EMU, .fd = fd, .bytes = 4096};
    say_at(nth, 1);
    ret_status[0] = alloc(gpu, &mem, 8192);
    say_at(nth, 2);
    ret_status[1] = pin(gpu, host, sizeof host);
    say_at(nth, 3);
    ret_status[2] = copy_to(gpu, mem.addr, host, 8192);
    say_at(nth, 4);
    ret_status[3] = copy_from(gpu, host, mem.addr, 8192);
    say_at(nth, 5);
    ret_status[4] = import(gpu, &imported, &handle);
    say_at(nth, 6);
    ret_status[5] = copy_to(gpu, mem.addr, host, 1);
    if (ret_status[0] == 0)
        must_free(gpu, &mem);
    if (ret_status[4] == 0)
        must_free(gpu, &imported);
    must_unpin(gpu, host, sizeof host);
    close(fd);
}

CASE(the_nth_operation_fails_and_takes_it_out_until_it_is_tried_again)
{
    for (uint32_t nth = 1; nth <= STEPS + 1; nth++) {
        struct gpu_config config = config_emu();
        int status[STEPS];
        say("");
        config.retry_ns = 600 * (uint64_t)SECOND;
        gpu = open_up(&config);
        run_steps(nth, status);
        for (uint32_t i = 0; i < STEPS; i++)
            ck_assert_int_eq(status[i], i + 1 < nth ? 0 : -EIO);
        const bool reached = nth <= STEPS;
        ck_assert_int_eq(gpu_state(gpu), reached ? GPU_OUT : GPU_UP);
        ck_assert((strstr(gpu_why(gpu), "sticky") != NULL) == reached);
        ck_assert_uint_eq(gpu_metrics(gpu)->outs, reached);
        ck_assert_uint_eq(gpu_metrics(gpu)->memory_bytes, 0);
        ck_assert_uint_eq(gpu_metrics(gpu)->imported_bytes, 0);
        gpu_close(&gpu);
    }
}

CASE(it_comes_back_empty)
{
    struct gpu_mem mem;
    uint8_t value = 1;
    int status[STEPS];
    open_emu();
    must_alloc(gpu, &mem, 64 * MIB);
    say("sticky");
    ck_assert_int_eq(copy_to(gpu, mem.addr, &value, 1), -EIO);
    say("");
    wait_for_state(gpu, GPU_UP);
    must_free(gpu, &mem);
    run_steps(0, status);
    for (unsigned i = 0; i < STEPS; i++)
        ck_assert_int_eq(status[i], 0);
    ck_assert_uint_eq(changes, 3);
    ck_assert(change[0].state == GPU_UP && change[1].state == GPU_OUT && change[2].state == GPU_UP);
    ck_assert_uint_gt(change[2].generation, change[0].generation);
    ck_assert_str_eq(gpu_why(gpu), "");
}

/* "sticky" (0) and "lost" (1): out until the word goes, whatever is tried meanwhile. */
CASE_EACH(what_the_fault_file_says_lasts_until_the_word_goes, 2)
{
    static const char *const words[] = {"sticky", "lost"};
    struct gpu_mem mem, other;
    uint8_t value = 1;
    open_emu();
    must_alloc(gpu, &mem, 4096);
    say(words[_i]);
    const struct kvc_frag frag = {mem.addr, at(&value), 1};
    struct flight f = copy_of(GPU_TO_DEVICE, &frag, 1);
    ck_assert_int_eq(run(gpu, &f), -EIO);
    ck_assert_int_eq(gpu_state(gpu), GPU_OUT);
    ck_assert_ptr_nonnull(strstr(gpu_why(gpu), words[_i]));
    ck_assert_uint_eq(mem.addr, 0);
    for (unsigned i = 0; i < 20; i++) {
        const struct timespec pause = {.tv_nsec = RETRY_NS};
        nanosleep(&pause, NULL);
        ck_assert_int_eq(alloc(gpu, &other, 4096), -EIO);
        ck_assert_int_eq(gpu_state(gpu), GPU_OUT);
    }
    must_free(gpu, &mem); /* of a device that is out */
    say("");
    wait_for_state(gpu, GPU_UP);
    ck_assert_uint_eq(changes, 3);
    must_alloc(gpu, &mem, 4096);
    ck_assert_int_eq(copy_to(gpu, mem.addr, &value, 1), 0);
    must_free(gpu, &mem);
}

CASE(one_that_is_not_there_at_start_comes_up_later)
{
    const struct gpu_config config = config_emu();
    struct gpu_mem mem;
    say("lost");
    ck_assert_int_eq(gpu_open(&config, loop, &gpu), 0);
    ck_assert_int_eq(alloc(gpu, &mem, 4096), -EIO);
    ck_assert_int_eq(gpu_state(gpu), GPU_OUT);
    ck_assert_ptr_nonnull(strstr(gpu_why(gpu), "lost"));
    ck_assert_uint_eq(gpu_generation(gpu), 0);
    ck_assert_int_eq(unlink(fault_file), 0);
    wait_for_state(gpu, GPU_UP);
    must_alloc(gpu, &mem, 4096);
    must_free(gpu, &mem);
}

CASE(memory_can_be_short_without_anything_else_failing)
{
    static uint8_t host[4096];
    struct gpu_mem mem, other;
    const int fd = memfd_of(4096, F_SEAL_SHRINK);
    const struct device_handle handle = {.kind = DEVICE_HANDLE_EMU, .fd = fd, .bytes = 4096};
    open_emu();
    must_alloc(gpu, &mem, 4096);
    say("oom");
    ck_assert_int_eq(alloc(gpu, &other, 4096), -ENOMEM);
    ck_assert_int_eq(import(gpu, &other, &handle), -ENOMEM);
    ck_assert_int_eq(pin(gpu, host, sizeof host), -ENOMEM);
    ck_assert_int_eq(copy_to(gpu, mem.addr, host, sizeof host), 0);
    say("");
    ck_assert_int_eq(import(gpu, &other, &handle), 0);
    ck_assert_int_eq(pin(gpu, host, sizeof host), 0);
    ck_assert_uint_eq(changes, 1);
    must_free(gpu, &other);
    must_free(gpu, &mem);
    close(fd);
}

CASE(all_in_flight_ends_when_it_goes_out_and_nothing_is_touched_after_that)
{
    enum { N = 40 };
    static struct flight all[N];
    static struct kvc_frag frag[N];
    const uint64_t each = 128 * KIB;
    struct gpu_config config = config_emu();
    _Atomic uint64_t never = 0;
    struct gpu_mem mem, other = {0};
    config.emu.bytes_per_s = 64 * MIB; /* 2 ms each */
    config.inflight_bytes = 8 * each;
    gpu = open_up(&config);
    must_alloc(gpu, &mem, N * each);
    uint8_t *host = bytes_new(N * each), *kept = bytes_new(N * each);
    for (unsigned i = 0; i < N; i++) {
        frag[i] = (struct kvc_frag){at(host) + i * each, mem.addr + i * each, each};
        all[i] = copy_of(GPU_FROM_DEVICE, &frag[i], 1);
        all[i].op.after.word = i % 8 == 7 ? &never : NULL;
        all[i].op.after.value = 1;
        begin(gpu, &all[i]);
    }
    ck_assert_int_eq(end_of(&all[0]), 0);
    struct flight alloc_now = {.op = {.kind = GPU_ALLOC, .mem = &other, .bytes = 4096}};
    say("sticky");
    ck_assert_int_eq(run(gpu, &alloc_now), -EIO);
    unsigned failed = 0;
    for (unsigned i = 0; i < N; i++) {
        const int status = end_of(&all[i]);
        ck_assert(status == 0 || status == -EIO);
        failed += status == -EIO;
        ck_assert(i % 8 != 7 || status == -EIO);
    }
    ck_assert_uint_gt(failed, 0);
    memset(host, 0x11, N * each);
    memset(kept, 0x11, N * each);
    say("");
    wait_for_state(gpu, GPU_UP);
    must_equal(host, kept, N * each);
    must_free(gpu, &mem);
    free(host);
    free(kept);
}

CASE(what_was_meant_for_the_device_before_it_went_out_does_not_reach_the_one_after)
{
    uint8_t value = 1;
    struct gpu_mem mem;
    open_emu();
    must_alloc(gpu, &mem, 4096);
    const struct kvc_frag frag = {mem.addr, at(&value), 1};
    struct flight first = copy_of(GPU_TO_DEVICE, &frag, 1), second = first;
    say("sticky");
    begin(gpu, &first);
    for (unsigned i = 0; i < 20; i++) { /* it goes out, and nobody here has heard of it */
        const struct timespec pause = {.tv_nsec = RETRY_NS};
        nanosleep(&pause, NULL);
    }
    say("");
    begin(gpu, &second);
    ck_assert_int_eq(end_of(&first), -EIO);
    ck_assert_int_eq(end_of(&second), -EIO);
    wait_for_state(gpu, GPU_UP);
    ck_assert_uint_eq(gpu_metrics(gpu)->outs, 1);
    must_free(gpu, &mem);
}

/* --- slow --- */

CASE(memory_is_handled_while_a_long_copy_runs)
{
    struct gpu_config config = config_emu();
    struct gpu_mem mem, other = {0};
    const uint64_t bytes = 8 * MIB;
    config.emu.bytes_per_s = 64 * MIB;
    config.inflight_bytes = 256 * KIB;
    gpu = open_up(&config);
    must_alloc(gpu, &mem, bytes);
    uint8_t *host = bytes_new(bytes), *back = bytes_new(bytes);
    scramble(host, bytes, 1);
    const struct kvc_frag frag = {mem.addr, at(host), bytes};
    struct flight f = copy_of(GPU_TO_DEVICE, &frag, 1);
    struct flight alloc_now = {.op = {.kind = GPU_ALLOC, .mem = &other, .bytes = 4096}};
    begin(gpu, &f);
    begin(gpu, &alloc_now);
    ck_assert_int_eq(end_of(&alloc_now), 0);
    ck_assert_int_eq(end_of(&f), 0);
    ck_assert_uint_lt(alloc_now.order, f.order);
    must_free(gpu, &other);
    ck_assert_int_eq(copy_from(gpu, back, mem.addr, bytes), 0);
    must_equal(back, host, bytes);
    must_free(gpu, &mem);
    free(host);
    free(back);
}

/* Larger than what is given to the device at a time, in one fragment and in many. */
CASE_EACH(a_copy_larger_than_the_credit_is_whole, 2)
{
    static struct kvc_frag frag[4096];
    struct gpu_config config = config_emu();
    struct gpu_mem mem;
    const uint64_t bytes = 16 * MIB;
    config.inflight_bytes = _i == 0 ? 1 : 100000;
    gpu = open_up(&config);
    must_alloc(gpu, &mem, bytes);
    uint8_t *host = bytes_new(bytes), *back = bytes_new(bytes);
    scramble(host, bytes, 1);
    ck_assert_int_eq(copy_to(gpu, mem.addr, host, bytes - 1), 0);
    for (uint32_t i = 0; i < 4096; i++)
        frag[i] = (struct kvc_frag){at(back) + i * 4096, mem.addr + i * 4096, 4096};
    frag[4095].bytes--;
    ck_assert_int_eq(copy(gpu, GPU_FROM_DEVICE, frag, 4096), 0);
    must_equal(back, host, bytes - 1);
    ck_assert_uint_eq(back[bytes - 1], 0);
    must_free(gpu, &mem);
    free(host);
    free(back);
}

CASE(a_slow_copy_has_happened_when_it_has_ended_not_before)
{
    struct gpu_config config = config_emu();
    struct gpu_mem mem;
    uint8_t value = 1, back = 0;
    config.emu.latency_ns = 20 * MS;
    gpu = open_up(&config);
    must_alloc(gpu, &mem, 4096);
    const struct kvc_frag to = {mem.addr, at(&value), 1};
    struct flight f = copy_of(GPU_TO_DEVICE, &to, 1);
    const int64_t begun = now_ns();
    begin(gpu, &f);
    ck_assert_int_eq(end_of(&f), 0);
    ck_assert_int_ge(now_ns() - begun, 20 * MS);
    ck_assert_int_eq(copy_from(gpu, &back, mem.addr, 1), 0);
    ck_assert_uint_eq(back, 1);
    must_free(gpu, &mem);
}

CASE(closing_waits_for_what_runs_and_it_is_whole)
{
    struct gpu_config config = config_emu();
    struct gpu_mem mem;
    const uint64_t bytes = 2 * MIB;
    config.emu.bytes_per_s = 64 * MIB;
    config.inflight_bytes = 256 * KIB;
    gpu = open_up(&config);
    must_alloc(gpu, &mem, bytes);
    uint8_t *host = bytes_new(bytes), *back = bytes_new(bytes);
    scramble(host, bytes, 1);
    ck_assert_int_eq(copy_to(gpu, mem.addr, host, bytes), 0);
    const struct kvc_frag frag = {at(back), mem.addr, bytes};
    _Atomic uint64_t word = 0;
    const struct kvc_frag first = {at(back), mem.addr, bytes / 2};
    const struct gpu_mark mark = {.end = 1, .value = 1};
    struct kvc_frag two[] = {first, {at(back) + bytes / 2, mem.addr + bytes / 2, bytes / 2}};
    struct flight runs = copy_of(GPU_FROM_DEVICE, two, 2),
                  waits = copy_of(GPU_FROM_DEVICE, &frag, 1);
    runs.op.mark = &mark;
    runs.op.nmarks = 1;
    runs.op.ready = &word;
    begin(gpu, &runs);
    begin(gpu, &waits);
    while (atomic_load_explicit(&word, memory_order_acquire) == 0)
        ; /* so it has begun */
    gpu_close(&gpu);
    ck_assert_int_eq(runs.op.status, 0);
    ck_assert(waits.op.status == -ECANCELED || waits.op.status == 0);
    must_equal(back, host, bytes);
    free(host);
    free(back);
}

/* --- what the system refuses --- */

CASE(each_refused_call_is_an_error_or_a_device_that_comes_up_later)
{
    static const char *const points[] = {"alloc", "fd", "map", "thread"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        uint64_t nth = 0;
        for (bool reached = true; reached; gpu_close(&gpu)) {
            struct gpu_config config = config_emu();
            config.calibrate = true;
            config.emu.fault_file = NULL;
            ck_assert_int_eq(fault_arm(points[i], ++nth), 0);
            const int r = gpu_open(&config, loop, &gpu);
            ck_assert(r == 0 || gpu == NULL);
            if (r == 0)
                wait_for_state(gpu, GPU_UP);
            reached = fault_count(points[i]) >= nth;
            ck_assert(reached || r == 0);
            fault_reset();
        }
        ck_assert_uint_gt(nth, 1);
    }
}

CASE(memory_that_the_system_refuses_is_an_error_and_leaves_nothing)
{
    static const char *const points[] = {"alloc", "fd", "map"};
    const struct device_handle handle = {
        .kind = DEVICE_HANDLE_EMU, .fd = memfd_of(4096, F_SEAL_SHRINK), .bytes = 4096};
    struct gpu_config config = config_emu();
    config.emu.fault_file = NULL;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        uint64_t nth = 0;
        for (bool reached = true; reached; gpu_close(&gpu)) {
            struct gpu_mem mem, imported, rest;
            gpu = open_up(&config);
            ck_assert_int_eq(fault_arm(points[i], ++nth), 0);
            const int a = alloc(gpu, &mem, 4096), b = import(gpu, &imported, &handle);
            reached = fault_count(points[i]) >= nth;
            fault_reset();
            ck_assert_msg(reached == (a < 0 || b < 0), "%s %u: %d %d", points[i], (unsigned)nth, a,
                          b);
            ck_assert(a == 0 || a == -ENOMEM || a == -EMFILE);
            ck_assert(b == 0 || b == -ENOMEM);
            ck_assert_uint_eq(gpu_metrics(gpu)->memory_bytes, a == 0 ? 4096 : 0);
            must_alloc(gpu, &rest, 64 * MIB - gpu_metrics(gpu)->memory_bytes);
            must_free(gpu, &rest);
            must_free(gpu, &imported);
            must_free(gpu, &mem);
        }
        ck_assert_uint_gt(nth, 1);
    }
    close(handle.fd);
}
