/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a connection of the control socket, before ZeroMQ sees them. The input is what
 * comes, in pieces whose lengths its first byte decides. However it is cut, the verdict, the route
 * and what is queued are the same; and no more is queued than came.
 */
#include <string.h>

#include "fuzz.h"
#include "zmtp.h"

#define MESSAGE_MAX 4096u
#define FRAMES_MAX  3u

struct outcome {
    int rc;
    uint64_t queued;
    unsigned calls;
    uint8_t route[KVC_ROUTE_BYTES];
};

/* Routes that begin with a zero are nobody's. */
static int on_ready(void *ctx, const uint8_t route[KVC_ROUTE_BYTES])
{
    struct outcome *o = ctx;
    o->calls++;
    memcpy(o->route, route, KVC_ROUTE_BYTES);
    return route[0] == 0 ? -EACCES : 0;
}

static struct outcome scan(const uint8_t *data, size_t size, size_t piece)
{
    static const struct zmtp_rules rules = {MESSAGE_MAX, FRAMES_MAX, on_ready};
    struct zmtp z;
    struct outcome o = {0};
    memset(&z, 0, sizeof(z));
    for (size_t at = 0; at < size && o.rc == 0; at += piece)
        o.rc =
            zmtp_scan(&z, &rules, &o, data + at, size - at < piece ? size - at : piece, &o.queued);
    FUZZ_CHECK(o.rc <= 0 && o.calls <= 1, "%d after %u routes", o.rc, o.calls);
    FUZZ_CHECK(o.queued <= size && (o.queued == 0 || o.calls == 1), "%llu of %zu bytes are queued",
               (unsigned long long)o.queued, size);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t pieces[] = {2, 3, 7, 8, 9, 64, 65, 1000};
    if (size == 0)
        return 0;
    struct outcome whole = scan(data + 1, size - 1, size), single = scan(data + 1, size - 1, 1);
    struct outcome some = scan(data + 1, size - 1, pieces[data[0] % 8u]);
    FUZZ_CHECK(memcmp(&whole, &single, sizeof(whole)) == 0, "at once: %d, %llu; by bytes: %d, %llu",
               whole.rc, (unsigned long long)whole.queued, single.rc,
               (unsigned long long)single.queued);
    FUZZ_CHECK(memcmp(&whole, &some, sizeof(whole)) == 0, "at once: %d, in pieces: %d", whole.rc,
               some.rc);
    *(whole.rc == 0 ? &fuzz_tally.taken : &fuzz_tally.refused) += 1;
    return 0;
}
