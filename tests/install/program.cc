/* SPDX-License-Identifier: Apache-2.0 */
/* The headers in C++, and a round trip. */
#include <kvcache/async.h>
#include <kvcache/gpu.h>
#include <kvcache/kvcache.h>

#include <cstdio>
#include <cstring>

int main()
{
    struct kvc_options options;
    std::memset(&options, 0, sizeof(options));
    options.name = "out-of-tree-c++";
    options.must_connect = true;
    struct kvc *kvc = nullptr;
    int rc = kvc_open(&options, &kvc);
    if (rc < 0) {
        std::fprintf(stderr, "kvc_open: %s: %s\n", kvc_error_name(rc), kvc_last_error(nullptr));
        return 1;
    }
    struct kvc_op *op = nullptr;
    struct kvc_result result;
    rc = kvc_ping_begin(kvc, &op);
    if (rc == 0)
        rc = kvc_finish(&op, &result);
    if (rc < 0 || result.kind != KVC_OP_PING)
        std::fprintf(stderr, "ping: %s\n", kvc_error_name(rc));
    else
        std::puts("pinged from C++");
    kvc_close(&kvc);
    return rc < 0 ? 1 : 0;
}
