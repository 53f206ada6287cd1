/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "served.h"

#define WINDOW_BYTES (UINT64_C(4) << 20)

int served_open(struct peer *peer, const char *const *command)
{
    struct rig_options options = {.server = command};
    int rc = rig_start(&options, &peer->rig);
    if (rc != 0)
        return rc;
    struct stream *stream = malloc(sizeof(*stream));
    if (!stream) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    stream->fd = -1;
    peer->state = stream;
    return stream_open(rig_socket(peer->rig), command[0], stream);
}

void served_close(struct peer *peer)
{
    if (peer->state)
        stream_close(peer->state);
    free(peer->state);
    peer->state = NULL;
    rig_stop(&peer->rig);
}

int served_pipeline(struct peer *peer, uint32_t first, uint32_t n,
                    int (*send)(struct peer *peer, uint32_t index),
                    int (*take)(struct peer *peer, uint32_t index))
{
    uint64_t fits = WINDOW_BYTES / peer->plan->block_bytes;
    uint32_t window = fits < 2 ? 2 : (uint32_t)fits;
    uint32_t sent = 0;
    int rc = 0;
    for (uint32_t done = 0; rc == 0 && done < n; done++) {
        for (; rc == 0 && sent < n && sent - done < window; sent++)
            rc = send(peer, first + sent);
        if (rc == 0)
            rc = take(peer, first + done);
    }
    return rc;
}
