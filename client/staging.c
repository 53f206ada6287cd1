/* SPDX-License-Identifier: Apache-2.0 */
/* The staging area: mapped, registered with a device, left to a daemon that may still read it. */
#include "client.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client_gpu__.h"
#include "sys.h"

void staging__unpin(struct kvc *k)
{
    struct device *d = k->staging.pinned;
    k->staging.pinned = NULL;
    if (d == NULL)
        return;
    d->ops->unpin(d, k->staging.at);
    device__unref(d);
}

/* If a store has not ended, the daemon may read staging long after this, and must read what the
 * caller stored. So the daemon keeps the file, and the caller gets other memory in its place. */
void staging__leave(struct kvc *k)
{
    bool is_read = false;
    for (const struct kvc_op *op = k->ops.live; op != NULL && !is_read; op = op->next)
        is_read =
            op->borrows && op->pool == NULL && (op->stage == OP_SENT || op->stage == OP_QUIESCING);
    if (!is_read || k->staging.at == NULL || k->staging.epoch != k->epoch)
        return;
    staging__unpin(k);
    /* If there is no memory for that, the caller keeps the old area, whose contents are void. */
    (void)!sys_mmap(k->staging.at, k->staging.bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1);
}

/* A new area replaces this one. If the caller got this one from kvc_staging(), it stays mapped,
 * because the caller may write to it until the next kvc_staging(). */
static void set_aside(struct kvc *k)
{
    if (k->staging.asked != k->staging.epoch) {
        (void)munmap(k->staging.at, k->staging.bytes);
        return;
    }
    k->staging.before = k->staging.at;
    k->staging.before_bytes = k->staging.bytes;
}

/* A new area of equal size is mapped at the addresses of the old one. So a caller that still has
 * the old pointer writes to valid memory, though its contents are void. */
int staging__map(struct kvc *k, int fd, uint64_t bytes)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return -EPROTO;
    staging__unpin(k);
    bool in_place = k->staging.at != NULL && k->staging.bytes == bytes;
    void *at = in_place ? sys_mmap(k->staging.at, bytes, PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_FIXED, fd)
                        : sys_map_file(bytes, PROT_READ | PROT_WRITE, fd);
    int rc = at == MAP_FAILED ? -errno : 0;
    if (k->staging.at != NULL && in_place && rc < 0)
        (void)munmap(k->staging.at, k->staging.bytes);
    else if (k->staging.at != NULL && !in_place)
        set_aside(k);
    k->staging.at = rc < 0 ? NULL : at;
    if (rc < 0)
        return rc;
    k->staging.bytes = bytes;
    k->staging.epoch = k->epoch + 1;
    return 0;
}

void staging__forget_before(struct kvc *k)
{
    if (k->staging.before != NULL)
        (void)munmap(k->staging.before, k->staging.before_bytes);
    k->staging.before = NULL;
}

void staging__destroy(struct kvc *k)
{
    if (k->staging.at != NULL)
        (void)munmap(k->staging.at, k->staging.bytes);
    staging__forget_before(k);
}
