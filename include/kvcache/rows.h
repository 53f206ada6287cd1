/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables that LIST reads (kvc_list). Each row is declared once. Its C struct, its bytes on the
 * wire, kvcachectl's columns and JSON, and the text of PROTOCOL.md follow from that declaration.
 *
 * X(name, TYPE, UNIT, meaning) is a column. New columns are added at the end: readers find columns
 * by name, and older readers pass over columns that they do not know.
 */
#ifndef KVCACHE_ROWS_H
#define KVCACHE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include <kvcache/proto.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NAME is UTF-8 of at most 127 bytes, TEXT of at most 255. In C a zero byte ends them. */
enum kvc_column_type {
    KVC_COLUMN_U8,
    KVC_COLUMN_U32,
    KVC_COLUMN_U64,
    KVC_COLUMN_BOOL,
    KVC_COLUMN_NAME,
    KVC_COLUMN_TEXT,
    KVC_COLUMN_KEY,
    KVC_COLUMN_UUID
};

/* How a cell is printed for people. */
enum kvc_unit {
    KVC_UNIT_NONE,  /* as it is: a number, a word, a text */
    KVC_UNIT_COUNT, /* 12k */
    KVC_UNIT_BYTES, /* 12 MiB */
    KVC_UNIT_MS,    /* 1 min 30 s */
    KVC_UNIT_LIMIT, /* bytes; UINT64_MAX: none */
    KVC_UNIT_SCOPE, /* a word of enum kvc_scope */
    KVC_UNIT_PATH,  /* a word of enum kvc_path_state */
    KVC_UNIT_COPY,  /* a word of enum kvc_copy_path */
    KVC_UNIT_RATE,  /* 12 GB/s */
    KVC_UNIT_KIND,  /* a word of enum kvc_name_kind */
    KVC_UNIT_STATE, /* a word of enum kvc_block_state */
    KVC_UNIT_MISS,  /* a word of enum kvc_miss */
    KVC_UNIT_TIERS  /* words: a set of enum kvc_tier_id */
};

#define KVC_ROW_NAMESPACES(X)                                                               \
    X(ns, U32, NONE, "number of the namespace")                                             \
    X(principal, NAME, NONE, "principal that the namespace belongs to")                     \
    X(tenant, NAME, NONE, "tenant of the principal")                                        \
    X(sub_tenant, NAME, NONE, "sub-tenant of the namespace, or empty")                      \
    X(model, NAME, NONE, "model that NS_OPEN named")                                        \
    X(dtype, NAME, NONE, "dtype that NS_OPEN named")                                        \
    X(shards, U32, NONE, "shards of each block")                                            \
    X(groups, U32, NONE, "groups of layers")                                                \
    X(block_tokens, U32, NONE, "tokens of a block of the first group")                      \
    X(block_bytes, U32, BYTES, "bytes of one shard of a block of the first group")          \
    X(blocks, U64, COUNT, "blocks that are present")                                        \
    X(bytes, U64, BYTES, "payload bytes of these blocks, each block once")                  \
    X(host_bytes, U64, BYTES, "bytes that its blocks take in host memory")                  \
    X(nvme_bytes, U64, BYTES, "bytes that its blocks take on storage")                      \
    X(device_bytes, U64, BYTES, "bytes that its blocks take in slots of devices")           \
    X(pinned_bytes, U64, BYTES, "payload bytes of pinned blocks, each block once")          \
    X(named_bytes, U64, BYTES, "payload bytes of blocks that names reach, each block once") \
    X(promised_bytes, U64, BYTES,                                                           \
      "bytes on storage that are promised to names, pins and durable commits")              \
    X(leased_bytes, U64, BYTES, "payload bytes under lease; a block counts once for each lease")

#define KVC_ROW_SESSIONS(X)                                                           \
    X(session, U32, NONE, "number of the session")                                    \
    X(name, NAME, NONE, "name of the client, from HELLO")                             \
    X(principal, NAME, NONE, "principal of the client")                               \
    X(tenant, NAME, NONE, "tenant of the principal")                                  \
    X(uid, U32, NONE, "uid of the client's process")                                  \
    X(pid, U32, NONE, "process id of the client")                                     \
    X(dropped, BOOL, NONE, "DROPPED has been sent, and the connection is not closed") \
    X(leases, U32, NONE, "leases of the session")                                     \
    X(leased_bytes, U64, BYTES, "payload bytes under these leases")                   \
    X(lease_age_ms, U64, MS, "age of the oldest lease; 0: no lease")                  \
    X(reservations, U32, NONE, "reservations of the session")                         \
    X(reserved_bytes, U64, BYTES, "payload bytes announced and not committed")        \
    X(reservation_age_ms, U64, MS, "age of the oldest reservation; 0: no reservation")

#define KVC_ROW_PINS(X)                                                                 \
    X(pin, U64, NONE, "number of the pin")                                              \
    X(principal, NAME, NONE, "principal that the pin belongs to")                       \
    X(tenant, NAME, NONE, "tenant whose budget of pinned bytes the pin counts against") \
    X(sub_tenant, NAME, NONE, "sub-tenant of the namespace, or empty")                  \
    X(ns, U32, NONE, "number of the namespace of the pinned blocks")                    \
    X(tokens, U32, COUNT, "tokens of the pinned sequence")                              \
    X(bytes, U64, BYTES, "payload bytes of the pinned blocks")                          \
    X(in_memory, BOOL, NONE, "the blocks' copies in host memory stay too")              \
    X(left_ms, U64, MS, "time until the pin ends; 0: without end")                      \
    X(tip, KEY, NONE, "key of the last pinned block of the first group")

#define KVC_ROW_QUOTAS(X)                                                                   \
    X(scope, U8, SCOPE, "what the quota bounds: 1 a tenant, 2 a sub-tenant, 3 a namespace") \
    X(tenant, NAME, NONE, "the tenant, or that of the sub-tenant or namespace")             \
    X(sub_tenant, NAME, NONE, "the sub-tenant, or that of the namespace; may be empty")     \
    X(ns, U32, NONE, "number of the namespace; 0 unless scope is 3")                        \
    X(host_limit, U64, LIMIT, "most bytes in host memory; 2^64 - 1: no limit")              \
    X(nvme_limit, U64, LIMIT, "most bytes on storage; 2^64 - 1: no limit")                  \
    X(host_share, U64, BYTES, "bytes that are guaranteed in host memory")                   \
    X(nvme_share, U64, BYTES, "bytes that are guaranteed on storage")                       \
    X(host_bytes, U64, BYTES, "bytes taken in host memory now")                             \
    X(nvme_bytes, U64, BYTES, "bytes taken on storage now")                                 \
    X(host_promised, U64, BYTES, "bytes in host memory that are promised to pins")          \
    X(nvme_promised, U64, BYTES,                                                            \
      "bytes on storage that are promised to names, pins and durable commits, written or not yet")

#define KVC_ROW_PATHS(X)                                                                         \
    X(path, TEXT, NONE, "file or device of the path")                                            \
    X(state, U8, PATH, "0 formatting (in service, being written over once), 1 up, 2 out")        \
    X(error, NAME, NONE, "why the path is out, or empty")                                        \
    X(bytes, U64, BYTES, "bytes of its segments")                                                \
    X(used_bytes, U64, BYTES, "bytes of shards on it, in whole pages")                           \
    X(formatted_bytes, U64, BYTES, "bytes written over so far")                                  \
    X(reads, U64, COUNT, "read I/Os")                                                            \
    X(read_bytes, U64, BYTES, "bytes read")                                                      \
    X(read_p50_us, U64, NONE, "median latency of a read I/O, in microseconds")                   \
    X(read_p99_us, U64, NONE, "99th percentile of the latency of a read I/O, in microseconds")   \
    X(read_max_us, U64, NONE, "longest latency of a read I/O, in microseconds")                  \
    X(writes, U64, COUNT, "write I/Os")                                                          \
    X(write_bytes, U64, BYTES, "bytes written")                                                  \
    X(write_p50_us, U64, NONE, "median latency of a write I/O, in microseconds")                 \
    X(write_p99_us, U64, NONE, "99th percentile of the latency of a write I/O, in microseconds") \
    X(write_max_us, U64, NONE, "longest latency of a write I/O, in microseconds")                \
    X(syncs, U64, COUNT, "sync I/Os")                                                            \
    X(queued, U64, COUNT, "I/Os in flight or waiting")                                           \
    X(queued_bytes, U64, BYTES, "bytes of I/Os in flight or waiting")                            \
    X(errors, U64, COUNT, "I/Os that failed")                                                    \
    X(outs, U64, COUNT, "times that the path was taken out of service")

#define KVC_ROW_WRITES(X)                                                                     \
    X(per_day_bytes, U64, BYTES,                                                              \
      "bytes that may be written each day (the write budget); 0: no budget")                  \
    X(spent_bytes, U64, BYTES, "bytes written since the day of the budget began")             \
    X(left_bytes, U64, BYTES, "bytes that the budget allows now; 0 without a budget")         \
    X(accepted_bytes, U64, BYTES,                                                             \
      "payload bytes of shards written, without those written again by reclaim")              \
    X(written_bytes, U64, BYTES, "bytes written to the paths: payload, tables, superblocks")  \
    X(kept_bytes, U64, BYTES, "bytes among written_bytes of shards that reclaim wrote again") \
    X(journal_bytes, U64, BYTES, "bytes of values committed to the journal")

#define KVC_ROW_DEVICES(X)                                                                         \
    X(device, NAME, NONE,                                                                          \
      "GPU-<uuid> or emu:<number>; the configured name until the device is up for the first time") \
    X(used_bytes, U64, BYTES, "bytes of slots in use")                                             \
    X(limit_bytes, U64, BYTES, "most bytes that slots may take")                                   \
    X(blocks, U64, COUNT, "copies of blocks in slots now")                                         \
    X(name, NAME, NONE, "model name of the device")                                                \
    X(up, BOOL, NONE, "the device is in service")                                                  \
    X(why, TEXT, NONE, "why the device is out, or empty")                                          \
    X(emulated, BOOL, NONE, "the device is an emulation in host memory")                           \
    X(memory_bytes, U64, BYTES, "bytes of device memory that the daemon allocated")                \
    X(imported_bytes, U64, BYTES, "bytes of clients' device memory that the daemon imported")      \
    X(held_bytes, U64, BYTES,                                                                      \
      "bytes of retired chunks that clients have not unmapped yet; they count against "            \
      "limit_bytes")                                                                               \
    X(hits, U64, COUNT, "blocks that ACQUIRE_ON found in slots")                                   \
    X(fills, U64, COUNT, "blocks copied into slots")                                               \
    X(drops, U64, COUNT, "copies of blocks evicted from slots to make room")                       \
    X(copies, U64, COUNT, "copies from and to the device that succeeded")                          \
    X(copy_bytes, U64, BYTES, "bytes of these copies")                                             \
    X(failures, U64, COUNT, "operations on the device that failed")                                \
    X(outs, U64, COUNT, "times that the device was taken out of service")                          \
    X(plain_to, U64, RATE, "speed of one large copy from pinned host memory, bytes per second")    \
    X(plain_from, U64, RATE, "speed of one large copy to pinned host memory, bytes per second")    \
    X(uuid, UUID, NONE, "UUID of the device; zeroes until it is up for the first time")

#define KVC_ROW_RATES(X)                                                                      \
    X(device, NAME, NONE, "name of the device in table 7")                                    \
    X(fragment_bytes, U32, BYTES, "size of the fragments whose copies were measured")         \
    X(to_engine, U64, RATE, "speed to the device by the copy engine")                         \
    X(to_kernel, U64, RATE, "speed to the device by a kernel")                                \
    X(to_window, U64, RATE,                                                                   \
      "speed to the device in one piece, then scattered there (ACQUIRE_ON and a copy of the " \
      "client's own)")                                                                        \
    X(from_engine, U64, RATE, "speed from the device by the copy engine")                     \
    X(from_kernel, U64, RATE, "speed from the device by a kernel")                            \
    X(to_path, U8, COPY,                                                                      \
      "how the daemon copies such fragments to the device: 1 copy engine, 2 kernel, 0 not "   \
      "measured yet")                                                                         \
    X(from_path, U8, COPY,                                                                    \
      "how the daemon copies such fragments from the device; values as to_path")

/* A row of the tables of conversations and of documents. */
#define KVC_ROW_NAMES(X)                                                                  \
    X(kind, U8, KIND, "1 conversation, 2 document")                                       \
    X(name, NAME, NONE, "name that NAME_PUT gave")                                        \
    X(principal, NAME, NONE, "principal that the name belongs to")                        \
    X(tenant, NAME, NONE, "tenant of the principal")                                      \
    X(sub_tenant, NAME, NONE, "sub-tenant of the name, or empty")                         \
    X(model, NAME, NONE, "model of its namespace; empty while the namespace is not open") \
    X(ns, U32, NONE, "number of its namespace; 0: not open")                              \
    X(tokens, U32, COUNT, "tokens of the sequence that was put")                          \
    X(tokens_cached, U32, COUNT, "tokens of the prefix that is cached now, in any tier")  \
    X(blocks, U32, COUNT, "blocks of the sequence that was put")                          \
    X(bytes, U64, BYTES, "payload bytes of the sequence that was put")                    \
    X(bytes_in_memory, U64, BYTES, "payload bytes of its blocks in host memory now")      \
    X(bytes_on_disk, U64, BYTES, "payload bytes of its blocks on storage now")            \
    X(age_ms, U64, MS, "time since the name was made")                                    \
    X(idle_ms, U64, MS, "time since its last use")                                        \
    X(ttl_ms, U64, MS, "the name ends after so much time without use; 0: never")          \
    X(priority, U32, NONE, "priority of its blocks")                                      \
    X(pinned, BOOL, NONE, "none of its blocks is evicted to make room")                   \
    X(has_tokens, BOOL, NONE, "token ids were put with the name")                         \
    X(tip, KEY, NONE, "key of the last block of the first group")

#define KVC_ROW_CONVERSATIONS(X) KVC_ROW_NAMES(X)
#define KVC_ROW_DOCUMENTS(X)     KVC_ROW_NAMES(X)

/* A row about a block, or about a key that has no block. */
#define KVC_ROW_BLOCKS(X)                                                                          \
    X(key, KEY, NONE, "key of the block")                                                          \
    X(parent, KEY, NONE, "key of the block before it in its sequence; zeroes: it is the first")    \
    X(ns, U32, NONE,                                                                               \
      "number of its namespace; if absent, of the namespace that gave the reason, or 0")           \
    X(group, U32, NONE, "number of its group; if absent, of the group that gave the reason")       \
    X(depth, U32, NONE, "blocks before it in its sequence")                                        \
    X(state, U8, STATE, "0 absent, 1 pending, 2 present")                                          \
    X(reason, U8, MISS,                                                                            \
      "if absent, the miss reason; if present, NOT_LOADED: on storage alone and not readable now") \
    X(detail, U32, NONE, "if absent, the detail of the miss reason")                               \
    X(tokens, U32, NONE, "tokens of the block")                                                    \
    X(shards, U32, NONE, "shards that the block has when it is complete")                          \
    X(shards_present, U32, NONE, "shards that are stored")                                         \
    X(leases, U32, NONE, "leases, loads and reservations that hold the block")                     \
    X(children, U32, NONE, "blocks that build on it directly")                                     \
    X(bytes, U64, BYTES, "payload bytes of the shards that are stored")                            \
    X(age_ms, U64, MS, "time since its last use")                                                  \
    X(tier, U8, TIERS,                                                                             \
      "where shard 0 is, a sum: 0 nowhere yet, 1 host memory, 2 storage, 4 a device too")          \
    X(chunk, U32, NONE, "chunk of shard 0 in host memory")                                         \
    X(offset, U64, NONE, "offset of shard 0 in that chunk, in bytes")

/* Tables: X(number, NAME, name, struct of a row). */
#define KVC_TABLE_MAP(X)                              \
    X(1, NAMESPACES, namespaces, kvc_ns_info)         \
    X(2, SESSIONS, sessions, kvc_session_info)        \
    X(3, PINS, pins, kvc_pin_info)                    \
    X(4, QUOTAS, quotas, kvc_quota)                   \
    X(5, PATHS, paths, kvc_path)                      \
    X(6, WRITES, writes, kvc_writes)                  \
    X(7, DEVICES, devices, kvc_device)                \
    X(8, RATES, rates, kvc_rate)                      \
    X(9, CONVERSATIONS, conversations, kvc_name_info) \
    X(10, DOCUMENTS, documents, kvc_name_info)        \
    X(11, BLOCKS, blocks, kvc_block_info)

enum kvc_table_id {
#define X(number, name, text, row) KVC_TABLE_##name = number,
    KVC_TABLE_MAP(X)
#undef X
        KVC_TABLE_END
};

#define KVC_CELL_U8(name)            uint8_t name;
#define KVC_CELL_U32(name)           uint32_t name;
#define KVC_CELL_U64(name)           uint64_t name;
#define KVC_CELL_BOOL(name)          bool name;
#define KVC_CELL_NAME(name)          char name[KVC_STRING_MAX];
#define KVC_CELL_TEXT(name)          char name[KVC_PARAMS_MAX];
#define KVC_CELL_KEY(name)           uint8_t name[KVC_KEY_BYTES];
#define KVC_CELL_UUID(name)          uint8_t name[KVC_UUID_BYTES];
#define X(name, type, unit, meaning) KVC_CELL_##type(name)
struct kvc_ns_info {
    KVC_ROW_NAMESPACES(X)
};
/* A session, the leases and reservations that it holds, and their age. */
struct kvc_session_info {
    KVC_ROW_SESSIONS(X)
};
/* A pin. While it lasts, no block of its chain is evicted to make room. Its bytes count against its
 * tenant's budget of pinned bytes. */
struct kvc_pin_info {
    KVC_ROW_PINS(X)
};
/* A quota bounds the bytes that a tenant, one of its sub-tenants, or a namespace holds. Limits are
 * never exceeded. While a share is unused, others may borrow it; borrowed room is reclaimed first.
 * Promised bytes are not evicted to make room. So a limit that is set below them takes full effect
 * only when promises end. */
struct kvc_quota {
    KVC_ROW_QUOTAS(X)
};
/* A path of the storage tier. */
struct kvc_path {
    KVC_ROW_PATHS(X)
};
/* The bytes written to all paths of storage together, and the budget for them. */
struct kvc_writes {
    KVC_ROW_WRITES(X)
};
/* A device of the daemon: the name that kvc_gpu_open() takes, the use of its slots, its copies. */
struct kvc_device {
    KVC_ROW_DEVICES(X)
};
/* Speeds of copies in bytes per second, measured at start for up to six sizes of fragments of each
 * device. 0: not measured, or the device has no such copy path. */
struct kvc_rate {
    KVC_ROW_RATES(X)
};
/* A conversation or document. */
struct kvc_name_info {
    KVC_ROW_NAMES(X)
};
/* A block, or the reason why no block has this key. */
struct kvc_block_info {
    KVC_ROW_BLOCKS(X)
};
#undef X

/* The tables' descriptions as data: see kvc_table(). */
struct kvc_column {
    const char *name, *meaning;
    uint8_t type, unit; /* enum kvc_column_type, enum kvc_unit */
    uint16_t at, bytes; /* offset and size of the column's field in the row's struct */
};
struct kvc_table {
    const char *name;
    enum kvc_table_id id;
    uint32_t row_bytes, columns;
    const struct kvc_column *column;
};

#ifdef __cplusplus
}
#endif
#endif
