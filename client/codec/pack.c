/* SPDX-License-Identifier: Apache-2.0 */
/* Writes msgpack with msgpack-c: the adapter behind pack.h, through which every message leaves. */
#include "pack.h"
#include "must.h"

#include <errno.h>
#include <msgpack.h>
#include <string.h>

static int write_bytes(void *data, const char *bytes, size_t n)
{
    struct pack *pk = data;
    if (pk->err != 0)
        return -1;
    MUST(pk->len <= pk->cap);
    if (n > pk->cap - pk->len) {
        pk->err = -ENOSPC;
        return -1;
    }
    memcpy(pk->buf + pk->len, bytes, n);
    pk->len += n;
    return 0;
}

/* Msgpack-c's packer consists of two pointers. A packing function returns what write_bytes()
 * returned, which is kept in pk->err. */
static msgpack_packer packer(struct pack *pk)
{
    return (msgpack_packer){.data = pk, .callback = write_bytes};
}

void pack_init(struct pack *pk, void *buf, size_t cap)
{
    *pk = (struct pack){.buf = buf, .cap = cap};
}

void pack_array(struct pack *pk, uint32_t n)
{
    msgpack_packer to = packer(pk);
    (void)msgpack_pack_array(&to, n);
}

void pack_uint(struct pack *pk, uint64_t v)
{
    msgpack_packer to = packer(pk);
    (void)msgpack_pack_uint64(&to, v);
}

void pack_text(struct pack *pk, const void *p, uint32_t n)
{
    msgpack_packer to = packer(pk);
    if (msgpack_pack_str(&to, n) == 0 && n != 0)
        (void)msgpack_pack_str_body(&to, p, n);
}

void pack_blob(struct pack *pk, const void *p, uint32_t n)
{
    msgpack_packer to = packer(pk);
    if (msgpack_pack_bin(&to, n) == 0 && n != 0)
        (void)msgpack_pack_bin_body(&to, p, n);
}
