/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fio.h"
#include "progress.h"

enum { ARGS_MAX = 24, ARG_BYTES = 96, REPORT_BYTES = 1 << 18 };

struct command {
    char text[ARGS_MAX][ARG_BYTES];
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void add(struct command *command, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(command->text[command->n++], ARG_BYTES, format, args);
    va_end(args);
}

static void exec_command(const struct command *command, int out)
{
    const char *argv[ARGS_MAX + 1];
    for (size_t i = 0; i < command->n; i++)
        argv[i] = command->text[i];
    argv[command->n] = NULL;
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Fio's buffers lie on large pages, like the daemon's memory. With small, scattered pages it
     * writes at two thirds of the rate. */
    setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1", 1);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

/* Runs fio with its output in `report`. Returns the wait status, or -1. */
static int bench_fio_run(const struct command *command, char report[REPORT_BYTES])
{
    int ends[2], status = -1;
    size_t n = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        exec_command(command, ends[1]);
    close(ends[1]);
    for (ssize_t got = 1; pid > 0 && got > 0 && n < REPORT_BYTES - 1; n += (size_t)got) {
        got = read(ends[0], report + n, REPORT_BYTES - 1 - n);
        if (got < 0)
            break;
    }
    report[n] = '\0';
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return status;
}

const char *fio_missing(void)
{
    static char report[REPORT_BYTES];
    struct command command = {.n = 0};
    add(&command, "fio");
    add(&command, "--version");
    return bench_fio_run(&command, report) == 0 ? NULL : "fio is not installed (Debian: fio)";
}

static void common(struct command *command, const struct fio_file *file)
{
    add(command, "fio");
    add(command, "--name=kvcachebench");
    add(command, "--output-format=json");
    add(command, "--ioengine=io_uring");
    add(command, "--direct=1");
    add(command, "--filename=/proc/%d/fd/%d", (int)getpid(), file->fd);
    add(command, "--size=%" PRIu64, file->bytes);
}

static int fio_measure(const struct command *command, const char *rw, struct fio_result *ret_result)
{
    static char report[REPORT_BYTES];
    int status = bench_fio_run(command, report);
    if (status == 0 && fio_parse(report, rw, ret_result) == 0)
        return 0;
    say_error("fio %s failed (status %d); it said:", rw, status);
    fprintf(stderr, "  | %.800s\n", report);
    return BENCH_FAILED;
}

int fio_lay(const char *dir, uint64_t bytes, struct fio_file *ret_file)
{
    struct fio_file file = {.fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), .bytes = bytes};
    struct fio_result unused;
    struct command command = {.n = 0};
    if (file.fd < 0) {
        say_error("cannot make a file in %s: %s", dir, strerror(errno));
        return BENCH_FAILED;
    }
    /* The file gets its size at once, because fio would make it anew. */
    int rc = posix_fallocate(file.fd, 0, (off_t)bytes);
    if (rc != 0) {
        say_error("%s: room for %.1f GB: %s", dir, (double)bytes / 1e9, strerror(rc));
        fio_drop(&file);
        return BENCH_FAILED;
    }
    common(&command, &file);
    add(&command, "--rw=write");
    add(&command, "--bs=2m");
    add(&command, "--iodepth=8");
    progress_show(true, "laying out a file of %.1f GB for fio", (double)bytes / 1e9);
    rc = fio_measure(&command, "write", &unused);
    if (rc != 0) {
        fio_drop(&file);
        return rc;
    }
    *ret_file = file;
    return 0;
}

void fio_drop(struct fio_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

int fio_run(const struct fio_job *job, struct fio_result *ret_result)
{
    struct command command = {.n = 0};
    common(&command, job->file);
    add(&command, "--rw=%s", job->rw);
    add(&command, "--bs=%" PRIu64, job->io_bytes);
    add(&command, "--iodepth=%" PRIu64, job->depth);
    add(&command, "--runtime=%.0fms", job->seconds * 1e3);
    add(&command, "--time_based");
    add(&command, "--norandommap");
    add(&command, "--randrepeat=0");
    add(&command, "--fixedbufs");
    add(&command, "--registerfiles");
    return fio_measure(&command, job->rw, ret_result);
}
