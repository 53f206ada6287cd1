/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Services: sessions and identity, one handler per request, administration. node_turn() passes in
 * what the sockets receive; handlers call core and reply.
 *
 * Thread: control thread only. svc does no I/O: bytes come in through svc_*() and go out through
 * `struct svc_ports`, so that a simulation can stand in for sockets and descriptors. Every request
 * gets exactly one reply, by its deadline. Sessions that must end are ended in svc_turn_end(),
 * never inside a handler.
 */
#ifndef KVC_SVC_H
#define KVC_SVC_H

#include <sys/types.h>

#include "core.h"
#include "metric.h"
#include "stat.h"

#define SVC_UIDS_MAX    16
#define SVC_METRIC_SETS (8 + DEVICES_MAX)
/* The longest time for which the reply to a RELEASE waits for another reply of the session. */
#define SVC_RELEASE_NS UINT64_C(2000000)
/* How long a session may map device memory of a retired chunk before the log names it, and again
 * each time. */
#define SVC_RECALL_NS UINT64_C(30000000000)
/* Memories of devices being imported at a time, each with a descriptor; one more is answered BUSY.
 */
#define SVC_IMPORTS_MAX 512u
/* Bytes of requests that wait, over all sessions; one more is answered BUSY. */
#define SVC_KEPT_MAX (64u << 20)

struct svc;
struct kvc_path;
struct kvc_writes;

/* The outputs of svc. All are called on the control thread and do not call back inline. */
struct svc_ports {
    void *ctx;
    /* Sends a reply. 0; negative: the peer is gone or takes nothing any more (its session is then
     * dropped). */
    int (*reply)(void *ctx, const uint8_t route[KVC_ROUTE_BYTES], const void *buf, size_t len);
    /* Optional. Whether the peer has so many unread bytes that none of its requests is begun or
     * continued; asked again every millisecond. */
    bool (*backlogged)(void *ctx, const uint8_t route[KVC_ROUTE_BYTES]);
    /* Optional, both. admit: from now on `route` is received, over a connection of `uid`. dismiss:
     * no longer, and messages that wait for it are discarded. Bytes 1 and 2 of a route (the lower
     * first) are a number below sessions_max that no other admitted route has. */
    void (*admit)(void *ctx, const uint8_t route[KVC_ROUTE_BYTES], uid_t uid);
    void (*dismiss)(void *ctx, const uint8_t route[KVC_ROUTE_BYTES]);
    /* Sends on an attach connection, with descriptor fd unless -1 (borrowed). */
    int (*attach_send)(void *ctx, uint32_t conn, const void *buf, size_t len, int fd);
    /* Closes the connection; svc_attach_closed() does not follow. */
    void (*attach_close)(void *ctx, uint32_t conn);
    /* Keeps a request's bytes after the handler has returned, until unkeep(). They are at *ret_buf
     * from now on; bytes with a key among them stay where they were. NULL: no more can be kept. */
    void *(*keep)(void *ctx, void *msg, const void **ret_buf);
    void (*unkeep)(void *ctx, void *kept);
    /* Starts making a staging area; svc_staging_ready(tag) follows unless this fails. */
    int (*staging_make)(void *ctx, uint64_t bytes, uint64_t tag);
    void (*staging_free)(void *ctx, void *staging);
    /* Brings the metrics that were added with svc_add_metrics() up to date. */
    void (*refresh)(void *ctx);
    /* A page of completion words: a sealed memfd, all zero, mapped for reading and writing. Its
     * descriptor is svc's to close. Optional, as are the next two, where there are no devices. */
    int (*words_make)(void *ctx, uint64_t bytes, int *ret_fd, void **ret_base);
    void (*words_free)(void *ctx, void *base, uint64_t bytes);
    /* Closes a descriptor that was taken from svc_attach_message(), or made by words_make(). */
    void (*fd_close)(void *ctx, int fd);
    /* The chunk's read-only descriptor, borrowed; -ENOENT, -EACCES. Not of devices' chunks. */
    int (*chunk_fd)(void *ctx, uint32_t chunk, uint32_t principal, uint64_t *ret_bytes);
    /* Figures of path i of the storage tier (false: it has no such path), and of all its writes.
     * NULL: no storage tier exists, and requests that need one are refused. */
    bool (*path)(void *ctx, uint32_t i, struct kvc_path *ret_path);
    void (*writes)(void *ctx, struct kvc_writes *ret_writes);
};

struct svc_principal {
    char name[KVC_STRING_MAX];
    char tenant[KVC_STRING_MAX];
    uint32_t uids[SVC_UIDS_MAX];
    uint32_t nuids;
    bool gateway, admin;
};

struct svc_config {
    uint32_t sessions_max; /* sessions of peers that have rights */
    uint32_t requests_max; /* in flight, per session */
    uint32_t calls_max;    /* requests that wait or copy, over all sessions */
    uint64_t staging_session_max;
    uint64_t staging_total; /* over all sessions; principals' shares are parts of it */
    const char *endpoint;   /* the address of the ROUTER socket, for WELCOME */
    const char *server;     /* name and release, for HELLO */
    const struct svc_principal *principals; /* borrowed */
    uint32_t nprincipals;
    struct device *const *devices; /* borrowed */
    uint32_t ndevices;
    const char *policy_chosen; /* where the configuration chose the eviction policy; borrowed */
    /* Whether each principal is guaranteed a part of sessions and staging, and each session one
     * of the calls (share.h). Off: first come, first served. */
    bool fair;
    uint32_t turn_work; /* work of one turn, in core_work() units: the rest waits for another turn;
                         * 0: 1024 */
};

METRIC_STRUCT(svc, SVC_METRICS);

/* The most attach connections at a time: sessions, and uids without rights until they are told
 * so. */
uint32_t svc_conns_max(const struct svc_config *config);
uint64_t svc_bytes(const struct svc_config *config); /* memory that svc_create() will allocate */
/* Memory that so many sessions may take for what they have on devices, allocated as they ask.
 * chunks: of all devices. */
uint64_t svc_device_bytes(uint32_t sessions, uint64_t chunks);
KVC_WARN_UNUSED int svc_create(const struct svc_config *config, struct core *core,
                               const struct svc_ports *ports, struct svc **ret_svc);
/* Every session must have ended. Accepts NULL. */
void svc_destroy(struct svc **svc);
/* Its buffers, for a caller that faults their memory in before use. */
struct sys_range svc_memory(const struct svc *s);
/* Adds a module's metrics to STATS. Borrows the set's memory. */
void svc_add_metrics(struct svc *s, struct metric_set set);
/* All metrics, svc's and core's included. Borrowed; ports.refresh() brings them up to date. */
const struct metric_set *svc_metric_sets(const struct svc *s, uint32_t *ret_n);

/* Runs first in each turn: takes the time, and runs the timers that are due. */
void svc_turn_begin(struct svc *s, uint64_t now_ns);
/* Runs last in each turn: requests that wait for their turn, and slices of long ones, as much as a
 * turn may take; then ends sessions that a handler has marked. */
void svc_turn_end(struct svc *s);
/* When svc_turn_begin() must run next at the latest; UINT64_MAX = no timer. 0: at once. */
uint64_t svc_next_ns(const struct svc *s);

/* ---- attach channel ---- */

/* A connection was accepted. -EMFILE: no session is free, or the uid's principal has its share of
 * them, and the peer was told so (WELCOME with LIMIT); the caller closes the connection. */
KVC_WARN_UNUSED int svc_attach_open(struct svc *s, uint32_t conn, uid_t uid, pid_t pid);
/* A message was received. fd: the descriptor that came with it, -1: none (NULL too). If svc takes
 * it, *fd becomes -1. What a session has on devices is allocated at its first message about them;
 * the list of what it maps there grows with use. */
void svc_attach_message(struct svc *s, uint32_t conn, const void *buf, size_t len, int *fd);
/* The peer closed the connection, or its process has ended. The caller closes its end. */
void svc_attach_closed(struct svc *s, uint32_t conn);
/* The staging area that ports.staging_make() began is ready. err 0: fd (borrowed until
 * staging_free), the daemon's own mapping and its size; else why there is none. */
void svc_staging_ready(struct svc *s, uint64_t tag, int err, void *staging, int fd,
                       const uint8_t *base, uint64_t bytes);
void svc_chunk_retired(struct svc *s, uint32_t chunk, uint32_t principal);

/* ---- control plane ---- */

/* Handles one request; ports->keep() takes `msg`. In bytes that are kept, lists of pages are moved
 * to where they are aligned. */
void svc_request(struct svc *s, const void *route, size_t route_len, const void *buf, size_t len,
                 void *msg);

/* A process (pid 0: the kernel) sent the daemon a signal, and the daemon acts on it: writes a line
 * of log, counted with what sessions do by hand. Accepts NULL: before svc is created. */
void svc_audit_signal(struct svc *s, uint32_t uid, int pid, const char *what);

/* From now on requests are answered with SHUTDOWN; commits in flight end as usual. */
void svc_shutdown(struct svc *s);
/* Whether no request is waiting or copying. */
bool svc_is_quiet(const struct svc *s);
/* Ends all sessions; their processes are told why. */
void svc_end_all(struct svc *s);
/* Whether no session is left, not even a closed one whose copies are still in flight. */
bool svc_is_empty(const struct svc *s);

#endif
