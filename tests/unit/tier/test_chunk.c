/* SPDX-License-Identifier: Apache-2.0 */
/* Who can do what with a chunk's memory: another uid, the worker that has it, the same uid. */
#include "cases.h"
#include "chunk.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (UINT64_C(2) << 20)

/* A file needs no name any more once it is open. */
static struct chunk_mem make_for(enum arena_persist persist)
{
    char dir[] = "/dev/shm/kvc-chunk-XXXXXX";
    const struct backing_config config = {.persist = persist, .dir = dir};
    struct backing *backing = NULL;
    struct chunk_mem mem;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(backing_open(&config, &backing), 0);
    const struct chunk_want want = {.backing = backing, .id = 1, .bytes = BYTES};
    ck_assert_int_eq(chunk_create(&want, &mem), 0);
    backing_forget(backing, 1);
    backing_close(&backing);
    ck_assert_int_eq(rmdir(dir), 0);
    return mem;
}

static struct chunk_mem make(void)
{
    return make_for(ARENA_PERSIST_OFF);
}

/* Exit status of body(arg) in a child, or 128 + the signal that ended it. */
static int in_child(int (*body)(void *), void *arg)
{
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)signal(SIGSEGV, SIG_DFL);
        (void)signal(SIGBUS, SIG_DFL);
        _exit(body(arg));
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int reopen(int fd, int flags)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int again = open(path, flags | O_CLOEXEC);
    return again < 0 ? -errno : again;
}

CASE(a_chunk_is_mode_0600_from_birth_and_close_on_exec)
{
    struct chunk_mem mem = make();
    struct stat st;
    ck_assert_int_eq(fstat(mem.ro_fd, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(st.st_size, BYTES);
    ck_assert_uint_eq(st.st_blocks, 0); /* nothing touched yet */
    ck_assert(fcntl(mem.fd, F_GETFD) & FD_CLOEXEC);
    ck_assert(fcntl(mem.ro_fd, F_GETFD) & FD_CLOEXEC);
    chunk_destroy(&mem);
    ck_assert_ptr_null(mem.base);
    chunk_destroy(&mem);
}

CASE(the_workers_descriptor_reads_and_does_not_write)
{
    struct chunk_mem mem = make();
    memcpy(mem.base + 8192, "kv", 2);
    char back[2];
    ck_assert_int_eq(pread(mem.ro_fd, back, 2, 8192), 2);
    ck_assert_mem_eq(back, "kv", 2);
    ck_assert_int_eq(pwrite(mem.ro_fd, "no", 2, 8192), -1);
    ck_assert_int_eq(errno, EBADF);
    ck_assert_int_eq(ftruncate(mem.ro_fd, 0), -1);
    ck_assert_ptr_eq(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, mem.ro_fd, 0),
                     MAP_FAILED);
    ck_assert_int_eq(errno, EACCES);
    void *p = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, mem.ro_fd, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    ck_assert_mem_eq((char *)p + 8192, "kv", 2);
    ck_assert_int_eq(mprotect(p, BYTES, PROT_READ | PROT_WRITE), -1);
    ck_assert_int_eq(errno, EACCES);
    munmap(p, BYTES);
    chunk_destroy(&mem);
}

static int write_into_mapping(void *arg)
{
    const struct chunk_mem *mem = arg;
    volatile char *p = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, mem->ro_fd, 0);
    if (p == MAP_FAILED)
        return 2;
    if (p[4096] != 'x')
        return 3;
    p[4096] = 'y';
    return 0;
}

CASE(a_worker_that_writes_into_its_mapping_dies)
{
    struct chunk_mem mem = make();
    mem.base[4096] = 'x';
    ck_assert_int_eq(in_child(write_into_mapping, &mem), 128 + SIGSEGV);
    ck_assert_int_eq(mem.base[4096], 'x');
    chunk_destroy(&mem);
}

struct reopening {
    int open_fd;  /* a memfd as the kernel makes them, to show that the way is open */
    int chunk_fd; /* a descriptor that this process got */
    int flags;
};

/* As another uid that was handed both descriptors. */
static int reopen_as_nobody(void *arg)
{
    const struct reopening *r = arg;
    if (setgid(65534) != 0 || setuid(65534) != 0)
        return 2;
    /* Or else /proc/self is root's, and nothing could be opened for that reason. */
    if (prctl(PR_SET_DUMPABLE, 1) != 0)
        return 3;
    if (reopen(r->open_fd, r->flags) < 0)
        return 4;
    return reopen(r->chunk_fd, r->flags) == -EACCES ? 0 : 5;
}

CASE(another_uid_cannot_open_a_chunk_again)
{
    if (geteuid() != 0) {
        printf("SKIP: not root, so there is no other uid to be\n");
        return;
    }
    static const int flags[] = {O_RDWR, O_WRONLY, O_RDONLY};
    struct chunk_mem mem = make();
    const int open_fd = memfd_create("control", MFD_CLOEXEC);
    ck_assert_int_ge(open_fd, 0);
    for (unsigned i = 0; i < ARRAY_LEN(flags); i++) {
        struct reopening ro = {open_fd, mem.ro_fd, flags[i]};
        struct reopening rw = {open_fd, mem.fd, flags[i]};
        ck_assert_int_eq(in_child(reopen_as_nobody, &ro), 0);
        ck_assert_int_eq(in_child(reopen_as_nobody, &rw), 0);
    }
    close(open_fd);
    chunk_destroy(&mem);
}

CASE(not_even_the_same_uid_gets_a_second_writable_mapping)
{
    struct chunk_mem mem = make();
    if (!mem.sealed) {
        printf("SKIP: this kernel does not know F_SEAL_FUTURE_WRITE\n");
        chunk_destroy(&mem);
        return;
    }
    const int fd = reopen(mem.ro_fd, O_RDWR);
    ck_assert_int_ge(fd, 0); /* 0600, and we are the owner */
    ck_assert_int_eq(pwrite(fd, "no", 2, 0), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_ptr_eq(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    ck_assert_int_eq(errno, EPERM);
    mem.base[0] = 1; /* the daemon's own goes on */
    close(fd);
    chunk_destroy(&mem);
}

static int read_mapping(void *arg)
{
    const volatile char *p = arg;
    return p[4096] == 'x' ? 0 : 1;
}

CASE(a_destroyed_chunk_gives_its_pages_back_though_a_worker_maps_it)
{
    struct chunk_mem mem = make();
    const int worker_fd = dup(mem.ro_fd);
    void *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, worker_fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    mem.base[4096] = 'x';
    ck_assert_int_eq(in_child(read_mapping, map), 0);

    chunk_destroy(&mem);

    struct stat st;
    ck_assert_int_eq(fstat(worker_fd, &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    ck_assert_int_eq(st.st_blocks, 0);
    ck_assert_int_eq(in_child(read_mapping, map), 128 + SIGBUS);
    munmap(map, BYTES);
    close(worker_fd);
}

static int read_zeroes(void *arg)
{
    const volatile char *p = arg;
    for (unsigned i = 0; i < BYTES; i += 512)
        if (p[i] != 0)
            return 1;
    return 0;
}

/* Workers of an earlier life have it mapped, and nobody can tell them in time. */
CASE_EACH(a_destroyed_chunk_that_was_kept_kills_no_reader, 2)
{
    struct chunk_mem mem = make_for(_i == 0 ? ARENA_PERSIST_DIR : ARENA_PERSIST_FDS);
    const int worker_fd = dup(mem.ro_fd);
    void *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, worker_fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    memset(mem.base, 'x', BYTES);

    chunk_destroy(&mem);

    struct stat st;
    ck_assert_int_eq(fstat(worker_fd, &st), 0);
    ck_assert_int_eq(st.st_blocks, 0);
    ck_assert_int_eq(in_child(read_zeroes, map), 0);
    munmap(map, BYTES);
    close(worker_fd);
}

CASE(nobody_makes_a_kept_memfd_shorter)
{
    struct chunk_mem mem = make_for(ARENA_PERSIST_FDS);
    const int fd = reopen(mem.ro_fd, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, 0), -1);
    ck_assert_int_eq(errno, EPERM);
    close(fd);
    chunk_destroy(&mem);
}
