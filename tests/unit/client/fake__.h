/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the fake daemon share: fake.c, and fake_devices.c about devices. */
#ifndef KVC_TEST_CLIENT_FAKE_PRIVATE_H
#define KVC_TEST_CLIENT_FAKE_PRIVATE_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "codec.h"
#include "fake.h"

#define NEED(cond)                                                                      \
    do {                                                                                \
        if (!(cond)) {                                                                  \
            fprintf(stderr, "fake daemon: %s:%d: %s (%s)\n", __FILE__, __LINE__, #cond, \
                    strerror(errno));                                                   \
            _exit(99);                                                                  \
        }                                                                               \
    } while (0)

#define CONNS 8
/* Device memory of the worker, and its pages. */
struct fake_memory {
    uint8_t *at, *base; /* base: beginning of the mapping */
    uint64_t bytes, base_bytes;
};
struct fake_pool {
    bool is_open;
    uint32_t groups, pages_max;
    struct {
        uint32_t pages_per_block, regions;
        struct msg_region region[FAKE_POOL_REGIONS];
    } group[2];
};
/* A load that writes its pages later. */
struct late {
    bool armed;
    uint64_t at_ms; /* when; 0: at its cancel */
    uint32_t pool, n;
    uint32_t pages[FAKE_PAGES];
};

struct later {
    uint8_t buf[8192];
    size_t len;
    uint64_t at_ms;
    uint64_t corr; /* 0: the entry is free */
    uint8_t op;
    bool after_next;
    bool silent;
};

struct daemon {
    struct fake *f;
    struct fake_shared *s;
    void *ctx, *router;
    char endpoint[128];
    int listener;
    int conn[CONNS];
    bool greeted[CONNS];
    int last_conn;
    uint8_t route[KVC_ROUTE_BYTES];
    uint8_t *staging;
    uint64_t staging_bytes;
    struct later later[128];
    uint64_t lease, reservation;
    uint32_t ns;
    uint8_t tx[65536];

    uint64_t *words;
    uint8_t hbm_uuid[KVC_UUID_BYTES]; /* uuid of the last ACQUIRE_ON */
    struct fake_memory memory[KVC_MEMS_MAX];
    struct fake_pool pool[KVC_POOLS_MAX];
    struct late late;
};

/* ---- fake.c ---- */

void att_send(int fd, const void *buf, int len, int pass);
struct codec_bin text(const char *s);
int lease(struct daemon *d, const struct msg_head *h, uint32_t ngroups, uint32_t hbm, uint8_t *out,
          size_t cap);
void statuses(struct daemon *d, uint8_t *out, uint32_t n);

/* ---- fake_devices.c ---- */

/* Handles an attach message and its descriptor (-1: none). False: the message is not about devices.
 */
bool gpu_attach(struct daemon *d, int conn, const uint8_t *buf, size_t len, int passed);
/* Handles a request. Returns the answer's length; 0: the request is not about devices. */
int gpu_list(const struct msg_list *m, const struct msg_head *h, uint8_t *out, size_t cap);
int gpu_answer(struct daemon *d, const struct msg_head *h, const uint8_t *in, size_t len,
               uint8_t *out, size_t cap);
void gpu_late(struct daemon *d, bool is_cancelled);
/* Forgets the device objects of the session. */
void gpu_session_ended(struct daemon *d);
void gpu_create(struct fake *f);
void gpu_destroy(struct fake *f);

#endif
