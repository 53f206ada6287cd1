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

#define KVC_ROW_NAMESPACES(X)                                                                \
    X(ns, U32, NONE, "its number")                                                           \
    X(principal, NAME, NONE, "whose it is")                                                  \
    X(tenant, NAME, NONE, "its tenant")                                                      \
    X(sub_tenant, NAME, NONE, "its sub-tenant, or empty")                                    \
    X(model, NAME, NONE, "as NS_OPEN had it")                                                \
    X(dtype, NAME, NONE, "as NS_OPEN had it")                                                \
    X(shards, U32, NONE, "of each block")                                                    \
    X(groups, U32, NONE, "of layers")                                                        \
    X(block_tokens, U32, NONE, "tokens of a block of its first group")                       \
    X(block_bytes, U32, BYTES, "bytes of a shard of such a block")                           \
    X(blocks, U64, COUNT, "that are present")                                                \
    X(bytes, U64, BYTES, "of them, each once")                                               \
    X(host_bytes, U64, BYTES, "in host memory")                                              \
    X(nvme_bytes, U64, BYTES, "on storage")                                                  \
    X(device_bytes, U64, BYTES, "in slots of devices")                                       \
    X(pinned_bytes, U64, BYTES, "that pins hold")                                            \
    X(named_bytes, U64, BYTES, "that names hold")                                            \
    X(promised_bytes, U64, BYTES, "on storage, promised to names, pins and durable commits") \
    X(leased_bytes, U64, BYTES, "under lease")

#define KVC_ROW_SESSIONS(X)                                                           \
    X(session, U32, NONE, "its number")                                               \
    X(name, NAME, NONE, "as HELLO had it")                                            \
    X(principal, NAME, NONE, "whose it is")                                           \
    X(tenant, NAME, NONE, "of its principal")                                         \
    X(uid, U32, NONE, "of its process")                                               \
    X(pid, U32, NONE, "of its process")                                               \
    X(dropped, BOOL, NONE, "DROPPED has been sent, and the connection is not closed") \
    X(leases, U32, NONE, "it has")                                                    \
    X(leased_bytes, U64, BYTES, "under them")                                         \
    X(lease_age_ms, U64, MS, "of the oldest; 0: there is none")                       \
    X(reservations, U32, NONE, "it has")                                              \
    X(reserved_bytes, U64, BYTES, "announced, and not committed")                     \
    X(reservation_age_ms, U64, MS, "of the oldest; 0: there is none")

#define KVC_ROW_PINS(X)                                           \
    X(pin, U64, NONE, "its number")                               \
    X(principal, NAME, NONE, "whose it is")                       \
    X(tenant, NAME, NONE, "whose budget it counts against")       \
    X(sub_tenant, NAME, NONE, "of its namespace, or empty")       \
    X(ns, U32, NONE, "the namespace of what it holds")            \
    X(tokens, U32, COUNT, "of the sequence that it holds")        \
    X(bytes, U64, BYTES, "of it")                                 \
    X(in_memory, BOOL, NONE, "its copy in host memory stays too") \
    X(left_ms, U64, MS, "until it ends; 0: without end")          \
    X(tip, KEY, NONE, "key of the last block of the first group")

#define KVC_ROW_QUOTAS(X)                                             \
    X(scope, U8, SCOPE, "1 tenant, 2 sub-tenant, 3 namespace")        \
    X(tenant, NAME, NONE, "whose it is, or its namespace is")         \
    X(sub_tenant, NAME, NONE, "likewise, or empty")                   \
    X(ns, U32, NONE, "of scope 3, else 0")                            \
    X(host_limit, U64, LIMIT, "bytes in host memory; 2^64 - 1: none") \
    X(nvme_limit, U64, LIMIT, "bytes on storage; 2^64 - 1: none")     \
    X(host_share, U64, BYTES, "guaranteed in host memory")            \
    X(nvme_share, U64, BYTES, "guaranteed on storage")                \
    X(host_bytes, U64, BYTES, "held in host memory now")              \
    X(nvme_bytes, U64, BYTES, "held on storage now")                  \
    X(host_promised, U64, BYTES, "of pins in host memory")            \
    X(nvme_promised, U64, BYTES,                                      \
      "of names, pins and durable commits on storage, what is yet to be written there too")

#define KVC_ROW_PATHS(X)                                                                  \
    X(path, TEXT, NONE, "its file or device")                                             \
    X(state, U8, PATH, "0 formatting (in service, being written over once), 1 up, 2 out") \
    X(error, NAME, NONE, "why it is out, or empty")                                       \
    X(bytes, U64, BYTES, "its size")                                                      \
    X(used_bytes, U64, BYTES, "taken")                                                    \
    X(formatted_bytes, U64, BYTES, "written over so far")                                 \
    X(reads, U64, COUNT, "I/Os")                                                          \
    X(read_bytes, U64, BYTES, "by them")                                                  \
    X(read_p50_us, U64, NONE, "their latency")                                            \
    X(read_p99_us, U64, NONE, "their latency")                                            \
    X(read_max_us, U64, NONE, "their latency")                                            \
    X(writes, U64, COUNT, "I/Os")                                                         \
    X(write_bytes, U64, BYTES, "by them")                                                 \
    X(write_p50_us, U64, NONE, "their latency")                                           \
    X(write_p99_us, U64, NONE, "their latency")                                           \
    X(write_max_us, U64, NONE, "their latency")                                           \
    X(syncs, U64, COUNT, "I/Os")                                                          \
    X(queued, U64, COUNT, "I/Os under way and waiting")                                   \
    X(queued_bytes, U64, BYTES, "of them")                                                \
    X(errors, U64, COUNT, "I/Os that failed")                                             \
    X(outs, U64, COUNT, "times that it was taken out")

#define KVC_ROW_WRITES(X)                                                               \
    X(per_day_bytes, U64, BYTES, "the budget; 0: no limit")                             \
    X(spent_bytes, U64, BYTES, "since the budget's day began")                          \
    X(left_bytes, U64, BYTES, "that may be written now; 0 without a limit")             \
    X(accepted_bytes, U64, BYTES, "payload put")                                        \
    X(written_bytes, U64, BYTES, "payload, tables, superblocks")                        \
    X(kept_bytes, U64, BYTES, "of them, payload written again when room was reclaimed") \
    X(journal_bytes, U64, BYTES, "of the journal")

#define KVC_ROW_DEVICES(X)                                                                      \
    X(device, NAME, NONE, "GPU-<uuid>, emu:<number>; as configured while it has never been up") \
    X(used_bytes, U64, BYTES, "of slots for blocks")                                            \
    X(limit_bytes, U64, BYTES, "of slots for blocks")                                           \
    X(blocks, U64, COUNT, "in slots now")                                                       \
    X(name, NAME, NONE, "its model")                                                            \
    X(up, BOOL, NONE, "in service")                                                             \
    X(why, TEXT, NONE, "why it is out, or empty")                                               \
    X(emulated, BOOL, NONE, "it is in host memory")                                             \
    X(memory_bytes, U64, BYTES, "allocated by the daemon")                                      \
    X(imported_bytes, U64, BYTES, "of clients")                                                 \
    X(held_bytes, U64, BYTES, "of the limit: what clients have yet to unmap")                   \
    X(hits, U64, COUNT, "blocks that ACQUIRE_ON found there")                                   \
    X(fills, U64, COUNT, "blocks that were copied there")                                       \
    X(drops, U64, COUNT, "blocks that were let go of for others")                               \
    X(copies, U64, COUNT, "that ended well")                                                    \
    X(copy_bytes, U64, BYTES, "of them")                                                        \
    X(failures, U64, COUNT, "operations that failed")                                           \
    X(outs, U64, COUNT, "times that it was taken out")                                          \
    X(plain_to, U64, RATE, "one large copy from pinned host memory, bytes per second")          \
    X(plain_from, U64, RATE, "one large copy to pinned host memory, bytes per second")          \
    X(uuid, UUID, NONE, "zeroes while it has never been up")

#define KVC_ROW_RATES(X)                                                                         \
    X(device, NAME, NONE, "its name in table 7")                                                 \
    X(fragment_bytes, U32, BYTES, "copied in fragments of this size")                            \
    X(to_engine, U64, RATE,                                                                      \
      "to the device by the copy engine, bytes per second; 0: not measured, or there is none")   \
    X(to_kernel, U64, RATE, "likewise, by a kernel")                                             \
    X(to_window, U64, RATE,                                                                      \
      "likewise, in one piece, and scattered there (ACQUIRE_ON and a copy of the client's own)") \
    X(from_engine, U64, RATE, "from the device")                                                 \
    X(from_kernel, U64, RATE, "from the device")                                                 \
    X(to_path, U8, COPY,                                                                         \
      "what the daemon's copies of such fragments take: 1 the engine, 2 the kernel, 0 not "      \
      "measured yet")                                                                            \
    X(from_path, U8, COPY, "likewise")

/* A row of the tables of conversations and of documents. */
#define KVC_ROW_NAMES(X)                                                                    \
    X(kind, U8, KIND, "1 conversation, 2 document")                                         \
    X(name, NAME, NONE, "as NAME_PUT had it")                                               \
    X(principal, NAME, NONE, "whose it is")                                                 \
    X(tenant, NAME, NONE, "of its principal")                                               \
    X(sub_tenant, NAME, NONE, "or empty")                                                   \
    X(model, NAME, NONE, "of its namespace; empty while that is not open")                  \
    X(ns, U32, NONE, "its namespace; 0: not open")                                          \
    X(tokens, U32, COUNT, "as they were put")                                               \
    X(tokens_cached, U32, COUNT, "of them: the prefix that is there now, in whatever tier") \
    X(blocks, U32, COUNT, "as they were put")                                               \
    X(bytes, U64, BYTES, "as they were put")                                                \
    X(bytes_in_memory, U64, BYTES, "of them")                                               \
    X(bytes_on_disk, U64, BYTES, "of them")                                                 \
    X(age_ms, U64, MS, "since it was made")                                                 \
    X(idle_ms, U64, MS, "since its last use")                                               \
    X(ttl_ms, U64, MS, "it goes when idle for so long; 0: never")                           \
    X(priority, U32, NONE, "of its blocks")                                                 \
    X(pinned, BOOL, NONE, "nothing of it goes")                                             \
    X(has_tokens, BOOL, NONE, "its token ids came with it")                                 \
    X(tip, KEY, NONE, "key of the last block of the first group")

#define KVC_ROW_CONVERSATIONS(X) KVC_ROW_NAMES(X)
#define KVC_ROW_DOCUMENTS(X)     KVC_ROW_NAMES(X)

/* A row about a block, or about a key that has no block. */
#define KVC_ROW_BLOCKS(X)                                                                         \
    X(key, KEY, NONE, "its key")                                                                  \
    X(parent, KEY, NONE, "of the block before it in its sequence; zeroes: it is the first")       \
    X(ns, U32, NONE, "its namespace; of an absent one that which `reason` is of, or 0")           \
    X(group, U32, NONE, "its group, likewise")                                                    \
    X(depth, U32, NONE, "blocks before it in its sequence")                                       \
    X(state, U8, STATE, "0 absent, 1 pending, 2 present")                                         \
    X(reason, U8, MISS,                                                                           \
      "of an absent one, as in a miss; NOT_LOADED of a present one that is on storage alone and " \
      "cannot be read now")                                                                       \
    X(detail, U32, NONE, "of an absent one, as in a miss")                                        \
    X(tokens, U32, NONE, "that it holds")                                                         \
    X(shards, U32, NONE, "that there are to be")                                                  \
    X(shards_present, U32, NONE, "that are stored")                                               \
    X(leases, U32, NONE, "that hold it")                                                          \
    X(children, U32, NONE, "blocks that build on it directly")                                    \
    X(bytes, U64, BYTES, "of the shards that are stored")                                         \
    X(age_ms, U64, MS, "since its last use")                                                      \
    X(tier, U8, TIERS,                                                                            \
      "where shard 0 is, a sum: 0 nowhere yet, 1 host memory, 2 storage, 4 a device too")         \
    X(chunk, U32, NONE, "of shard 0 in host memory")                                              \
    X(offset, U64, NONE, "of shard 0 in that chunk")

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
/* Rates of copies, measured at start for up to six sizes of fragments of each device. */
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
