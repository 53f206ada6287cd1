/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I/O of the storage tier on the loop: each operation becomes one of the loop's (loop_uring.c), and
 * its end is told to the tier. Opening a path is in disk_file_open.c.
 */
#include "disk_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "disk_file__.h"
#include "fault.h"
#include "sys.h"

/* --- operations --- */

static struct disk_file *disk_of(struct disk *d)
{
    return CONTAINER_OF(d, struct disk_file, disk);
}

static void disk_file_start(struct disk_file *d, struct disk_path *p, struct disk_op *op);

static void disk_file_finish(struct disk_io *io, int64_t result)
{
    struct disk_file *d = io->disk;
    struct disk_op *op = io->op;
    struct disk_path *p = &d->paths[op->path];
    io->next = p->free;
    p->free = io;
    p->inflight--;
    struct disk_op *const next = p->queue_head;
    if (next) {
        p->queue_head = next->next;
        if (!p->queue_head)
            p->queue_tail = NULL;
        disk_file_start(d, p, next);
    }
    op->result = result;
    op->done(op);
}

static void disk_file_on_moved(struct loop_file_op *file)
{
    struct disk_io *io = file->ctx;
    /* Short: another process truncated the file, or the device has shrunk. */
    const bool is_short = file->result >= 0 && (uint64_t)file->result != io->op->bytes;
    disk_file_finish(io, is_short ? -EIO : file->result);
}

static void submit_file(struct disk_io *io)
{
    static const enum loop_file_kind kinds[] = {
        [DISK_READ] = LOOP_READV, [DISK_WRITE] = LOOP_WRITEV, [DISK_SYNC] = LOOP_FDATASYNC};
    const struct disk_op *op = io->op;
    io->file = (struct loop_file_op){.kind = kinds[op->kind],
                                     .fd = io->disk->paths[op->path].fd,
                                     .iov = op->iov,
                                     .iovs = op->iovs,
                                     .off = op->off,
                                     .done = disk_file_on_moved,
                                     .ctx = io};
    loop_file_submit(io->disk->loop, &io->file);
}

static void on_pause(struct loop_file_op *file)
{
    struct disk_io *io = file->ctx;
    if (io->fault != 0)
        disk_file_finish(io, io->fault);
    else
        submit_file(io);
}

/* Fault injection: the error that a test sets for this I/O (0: none), and its delay. */
static int fault_of(const struct disk_op *op, uint32_t *ret_delay_ms)
{
    switch (op->kind) {
    case DISK_READ:
        return FAULT_IO(read, ret_delay_ms);
    case DISK_WRITE:
        return FAULT_IO(write, ret_delay_ms);
    default:
        return FAULT_IO(sync, ret_delay_ms);
    }
}

static void disk_file_start(struct disk_file *d, struct disk_path *p, struct disk_op *op)
{
    uint32_t delay_ms;
    struct disk_io *io = p->free;
    p->free = io->next;
    p->inflight++;
    io->op = op;
    io->fault = fault_of(op, &delay_ms);
    if (d->readonly && op->kind == DISK_WRITE)
        io->fault = -EROFS;
    if (io->fault == 0 && delay_ms == 0) {
        submit_file(io);
        return;
    }
    io->file = (struct loop_file_op){
        .kind = LOOP_PAUSE, .off = delay_ms * UINT64_C(1000000), .done = on_pause, .ctx = io};
    loop_file_submit(d->loop, &io->file);
}

static void must_be_right(const struct disk_file *d, const struct disk_op *op)
{
    MUST(op->done && op->path < d->disk.paths);
    if (op->kind == DISK_SYNC) {
        MUST(op->iovs == 0 && op->bytes == 0);
        return;
    }
    MUST(op->kind == DISK_READ || op->kind == DISK_WRITE);
    MUST(op->iovs >= 1 && op->iovs <= DISK_IOV_MAX);
    const uint64_t size = d->paths[op->path].bytes;
    MUST(op->off % DISK_PAGE_BYTES == 0 && op->off <= size && op->bytes <= size - op->off);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < op->iovs; i++) {
        MUST((uintptr_t)op->iov[i].iov_base % DISK_PAGE_BYTES == 0);
        MUST(op->iov[i].iov_len > 0 && op->iov[i].iov_len % DISK_PAGE_BYTES == 0);
        sum += op->iov[i].iov_len;
    }
    MUST(sum == op->bytes);
}

static void submit(struct disk *disk, struct disk_op *op)
{
    struct disk_file *d = disk_of(disk);
    must_be_right(d, op);
    struct disk_path *p = &d->paths[op->path];
    if (p->inflight < d->inflight_max) {
        disk_file_start(d, p, op);
        return;
    }
    op->next = NULL;
    if (p->queue_tail)
        p->queue_tail->next = op;
    else
        p->queue_head = op;
    p->queue_tail = op;
}

static uint64_t disk_file_bytes_of(const struct disk *disk, uint32_t path)
{
    const struct disk_file *d = (const struct disk_file *)disk; /* its first member */
    MUST(path < disk->paths);
    return d->paths[path].bytes;
}

static int stands(const struct disk *disk, uint32_t path)
{
    const struct disk_file *d = (const struct disk_file *)disk; /* its first member */
    MUST(path < disk->paths);
    const struct disk_path *p = &d->paths[path];
    const int gone = disk_id_at(p->name, p->id);
    if (gone < 0)
        return gone;
    return disk_file__length(p) < p->bytes ? -ENODATA : 0;
}

static const struct disk_ops file_ops = {
    .submit = submit, .bytes = disk_file_bytes_of, .stands = stands};

/* --- birth and death --- */

uint32_t disk_file_ops(const struct disk_file_config *config)
{
    return config->count * (config->inflight_max ? config->inflight_max : DISK_FILE_INFLIGHT);
}

static void make_pool(struct disk_file *d, uint32_t paths)
{
    for (uint32_t i = 0; i < paths; i++) {
        struct disk_path *p = &d->paths[i];
        p->fd = -1;
        for (uint32_t k = 0; k < d->inflight_max; k++) {
            struct disk_io *io = &d->ios[i * d->inflight_max + k];
            io->disk = d;
            io->next = p->free;
            p->free = io;
        }
    }
}

static bool is_sound(const struct disk_file_config *config, char *ret_why)
{
    if (config->count >= 1 && config->count <= DISK_PATHS_MAX)
        return true;
    snprintf(ret_why, DISK_FILE_WHY_BYTES, "%u paths; 1 to %u are possible", config->count,
             DISK_PATHS_MAX);
    return false;
}

void disk_file_unmake(struct disk_file *disk)
{
    for (uint32_t i = 0; i < disk->disk.paths; i++) {
        struct disk_path *p = &disk->paths[i];
        if (p->made)
            (void)unlink(p->name);
        else if (!p->is_device && p->before < p->bytes)
            (void)!sys_ftruncate(p->fd, (off_t)p->before);
        p->made = false;
    }
}

static int disk_file_open_all(struct disk_file *d, const struct disk_file_config *config,
                              char *ret_why)
{
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < config->count; i++) {
        r = disk_file__open_path(d, config, i, ret_why);
        d->disk.paths += r == 0;
    }
    for (uint32_t i = 0; r == 0 && i < config->count; i++)
        r = disk_file__size_path(d, config, i, ret_why);
    if (r < 0)
        disk_file_unmake(d);
    return r;
}

int disk_file_open(const struct disk_file_config *config, struct loop *loop,
                   struct disk_file **ret_disk, char ret_why[DISK_FILE_WHY_BYTES])
{
    ret_why[0] = '\0';
    if (!is_sound(config, ret_why))
        return -EINVAL;
    struct disk_file *d = sys_calloc(1, sizeof(*d));
    if (d)
        d->ios = sys_calloc(disk_file_ops(config), sizeof(*d->ios));
    if (!d || !d->ios) {
        free(d);
        snprintf(ret_why, DISK_FILE_WHY_BYTES, "no memory for %u I/Os", disk_file_ops(config));
        return -ENOMEM;
    }
    d->disk.ops = &file_ops;
    d->loop = loop;
    d->readonly = config->readonly;
    d->inflight_max = disk_file_ops(config) / config->count;
    make_pool(d, config->count);
    const int r = disk_file_open_all(d, config, ret_why);
    if (r < 0) {
        disk_file_close(&d);
        return r;
    }
    *ret_disk = d;
    return 0;
}

void disk_file_close(struct disk_file **disk)
{
    if (!disk || !*disk)
        return;
    struct disk_file *d = *disk;
    for (uint32_t i = 0; i < d->disk.paths; i++) {
        MUST(d->paths[i].inflight == 0 && !d->paths[i].queue_head);
        (void)close(d->paths[i].fd);
    }
    free(d->ios);
    free(d);
    *disk = NULL;
}

struct disk *disk_file_disk(struct disk_file *disk)
{
    return &disk->disk;
}

const char *disk_file_name(const struct disk_file *disk, uint32_t path)
{
    MUST(path < disk->disk.paths);
    return disk->paths[path].name;
}

bool disk_file_is_direct(const struct disk_file *disk, uint32_t path)
{
    MUST(path < disk->disk.paths);
    return disk->paths[path].is_direct;
}

int disk_file_cut(struct disk_file *disk, uint32_t path)
{
    MUST(path < disk->disk.paths);
    const struct disk_path *p = &disk->paths[path];
    const uint64_t length = p->is_device ? 0 : disk_file__length(p);
    if (length <= p->bytes || length == UINT64_MAX)
        return 0;
    return sys_ftruncate(p->fd, (off_t)p->bytes) == 0 ? disk_sync_fd(p->fd) : -errno;
}

int disk_file_give_back(struct disk_file *disk, uint32_t path)
{
    MUST(path < disk->disk.paths);
    const struct disk_path *p = &disk->paths[path];
    return p->is_device || sys_ftruncate(p->fd, 0) == 0 ? 0 : -errno;
}

uint64_t disk_file_bytes(const struct disk_file *disk, uint32_t path)
{
    return disk_file_bytes_of(&disk->disk, path);
}

uint64_t disk_file_length(const struct disk_file *disk, uint32_t path)
{
    MUST(path < disk->disk.paths);
    return disk_file__length(&disk->paths[path]);
}

const char *disk_file_note(const struct disk_file *disk)
{
    return disk->note;
}
