/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constants of the wire protocol, shared by daemon, library and tools. PROTOCOL.md beside this file
 * describes every message; a value here never changes its meaning once released.
 */
#ifndef KVCACHE_PROTO_H
#define KVCACHE_PROTO_H

#include <stdint.h>

/* The protocol versions that this tree speaks. Two peers use the highest version that both speak.
 */
#define KVC_PROTO_MIN   2u
#define KVC_PROTO_MAX   2u
#define KVC_PROTO_MAGIC "kvca"

#define KVC_KEY_BYTES    32u
#define KVC_SUM_BYTES    16u
#define KVC_ROUTE_BYTES  16u
#define KVC_TICKET_BYTES 16u
#define KVC_LOC_BYTES    32u

#define KVC_GROUPS_MAX       16u
#define KVC_SHARDS_MAX       64u
#define KVC_BLOCK_TOKENS_MAX 65536u
/* Payload of one shard of one block. */
#define KVC_BLOCK_BYTES_MAX (1u << 30)
/* Keys of one LOOKUP or ACQUIRE, summed over its groups; blocks of one RESERVE or STORE. */
#define KVC_KEYS_MAX    131072u
#define KVC_STORE_MAX   4096u
#define KVC_RELEASE_MAX 1024u
/* Blocks that one VERIFY reads, and so the most that it finds corrupt. */
#define KVC_VERIFY_MAX 64u
/* Retention of one RESERVE or STORE: ranges of tokens. One is 20 bytes on the wire. */
#define KVC_RETAIN_MAX       16u
#define KVC_RETAIN_BYTES     20u
#define KVC_PRIORITY_DEFAULT 35u
#define KVC_PRIORITY_MAX     100u
/* Rows of one LIST reply, and keys that one LIST asks for; columns of a row; bytes of a cursor. */
#define KVC_LIST_MAX    256u
#define KVC_COLUMNS_MAX 32u
#define KVC_CURSOR_MAX  320u
/* Devices of a daemon; bytes of a device's UUID; bytes of a CUDA IPC handle of its memory. */
#define KVC_DEVICES_MAX 16u
#define KVC_UUID_BYTES  16u
#define KVC_IPC_BYTES   64u
/* Of one session: memories on devices, pools, completion words (8 bytes each). One more word
 * follows them, the revocation. It is 0 until the worker gives up requests of the session that the
 * daemon has neither ended nor cancelled. From then on the daemon begins no copy from or to the
 * worker's pages, and any such copy whose end the daemon has not seen counts as failed. */
#define KVC_MEMS_MAX     1024u
#define KVC_POOLS_MAX    8u
#define KVC_WORDS        512u
#define KVC_WORD_REVOKED KVC_WORDS
#define KVC_WORDS_BYTES  (8u * (KVC_WORDS + 1u))
/* Regions of one POOL_OPEN, over its groups; one is 40 bytes on the wire. */
#define KVC_REGIONS_MAX  4096u
#define KVC_REGION_BYTES 40u
/* Page numbers of one PAGES_LOAD or PAGES_STORE. */
#define KVC_PAGES_MAX 262144u
#define KVC_NO_WORD   UINT32_MAX
/* Records of one TRACE_DUMP reply; least and most memory of a trace, in bytes. */
#define KVC_TRACE_MAX       256u
#define KVC_TRACE_BYTES_MIN (1u << 20)
#define KVC_TRACE_BYTES_MAX (1u << 30)
/* Bytes of one message of the control plane; ZMQ_MAXMSGSIZE at both ends. */
#define KVC_MESSAGE_MAX (8u << 20)
/* Bytes of one message of the attach channel. */
#define KVC_ATTACH_MAX 4096u
#define KVC_STRING_MAX 128u
#define KVC_PARAMS_MAX 256u
/* Deadline that a request with deadline 0 gets, and the longest one that is accepted. */
#define KVC_DEADLINE_DEFAULT_MS 5000u
#define KVC_DEADLINE_MAX_MS     600000u

/* Operations of the control plane. A reply carries op | KVC_OP_REPLY. */
enum kvc_op_code {
    KVC_OP_HELLO = 1,
    KVC_OP_PING = 2,
    KVC_OP_NS_OPEN = 3,
    KVC_OP_LOOKUP = 4,
    KVC_OP_ACQUIRE = 5,
    KVC_OP_REDEEM = 6,
    KVC_OP_RELEASE = 7,
    KVC_OP_RESERVE = 8,
    KVC_OP_COMMIT = 9,
    KVC_OP_STORE = 10,
    KVC_OP_DROP = 11,
    KVC_OP_CANCEL = 12,
    KVC_OP_STATS = 13,
    KVC_OP_EVICT = 16,
    KVC_OP_VERIFY = 18,
    KVC_OP_TRACE = 19,
    KVC_OP_TRACE_DUMP = 20,
    KVC_OP_DRAIN = 21,
    KVC_OP_HINT = 23,
    KVC_OP_NAME_PUT = 24,
    KVC_OP_NAME_FORGET = 26,
    KVC_OP_NAME_LOAD = 27,
    KVC_OP_NAME_TOKENS = 28,
    KVC_OP_PIN = 29,
    KVC_OP_UNPIN = 30,
    KVC_OP_QUOTA_SET = 32,
    KVC_OP_POLICY = 35,
    KVC_OP_NS_SPEC = 36,
    KVC_OP_POOL_OPEN = 38,
    KVC_OP_POOL_CLOSE = 39,
    KVC_OP_PAGES_LOAD = 40,
    KVC_OP_PAGES_STORE = 41,
    KVC_OP_ACQUIRE_ON = 42,
    KVC_OP_SESSION_END = 43,
    KVC_OP_LIST = 44,
    KVC_OP_REPLY = 0x80
};

/* Messages of the attach channel. */
enum kvc_attach_code {
    KVC_ATTACH_HELLO = 1,     /* worker: its name, versions, the size of staging that it wants */
    KVC_ATTACH_WELCOME = 2,   /* daemon: session, route, endpoint; staging descriptor */
    KVC_ATTACH_MAP = 3,       /* worker: wants a chunk */
    KVC_ATTACH_CHUNK = 4,     /* daemon: the chunk's read-only descriptor, or an error */
    KVC_ATTACH_RETIRED = 5,   /* daemon: a chunk is gone; the worker unmaps it */
    KVC_ATTACH_DROPPED = 6,   /* daemon: this session has ended, and why */
    KVC_ATTACH_WORDS = 7,     /* worker: wants its page of completion words */
    KVC_ATTACH_WORDS_ARE = 8, /* daemon: the page's descriptor, or an error */
    KVC_ATTACH_MEM = 9,       /* worker: memory on a device, for pools; its descriptor */
    KVC_ATTACH_MEM_IS = 10,   /* daemon: pools may name the memory from now on, or an error */
    KVC_ATTACH_MEM_DROP = 11, /* worker: it no longer needs the memory */
    KVC_ATTACH_MAP_ON = 12,   /* worker: wants the device memory of a chunk */
    KVC_ATTACH_CHUNK_ON = 13, /* daemon: that memory's descriptor or handle, or an error */
    KVC_ATTACH_UNMAPPED = 14  /* worker: it has unmapped the device memory of a chunk */
};

/*
 * Statuses: X(value, NAME, text). Every reply carries one. The library returns a status other than
 * OK as KVC_E_<NAME> = -(1000 + value).
 */
#define KVC_STATUS_MAP(X)                                                            \
    X(0, OK, "done")                                                                 \
    X(1, BAD_MESSAGE, "the bytes are not a message of this protocol")                \
    X(2, BAD_ARGUMENT, "an argument is outside its limits")                          \
    X(3, UNKNOWN_OP, "no such operation")                                            \
    X(4, VERSION, "no protocol version in common")                                   \
    X(5, DENIED, "the caller has no right to this")                                  \
    X(6, NO_NAMESPACE, "no such namespace in this session; open it first")           \
    X(7, UNSOUND, "reuse of KV is unsound for this attention or position scheme")    \
    X(8, TIMEOUT, "the deadline passed")                                             \
    X(9, CANCELLED, "the request was cancelled")                                     \
    X(10, BUSY, "too many requests in flight or a pool is empty; try again")         \
    X(11, FULL, "no room: what could be evicted is held by leases or being written") \
    X(12, NO_PARENT, "the parent block is not cached")                               \
    X(13, GONE, "the reservation or its block was dropped")                          \
    X(14, NO_LEASE, "no such lease or ticket")                                       \
    X(15, TOO_LARGE, "larger than this daemon can hold")                             \
    X(16, LIMIT, "a limit of this session is reached")                               \
    X(17, SHUTDOWN, "the daemon is shutting down")                                   \
    X(18, TIER, "the tier failed or is taken out")                                   \
    X(19, INTERNAL, "an error inside the daemon; its log says which")                \
    X(20, PENDING, "another writer is storing this block")                           \
    X(21, EXISTS, "the block is cached already")                                     \
    X(22, QUOTA, "a quota is exhausted and nothing under it may go")                 \
    X(23, PIN_LIMIT, "the budget of pinned bytes is exhausted")                      \
    X(24, NO_NAME, "no such conversation, document or pin")                          \
    X(25, NO_STORE, "not stored, as the request wished")                             \
    X(26, NOT_WORTH, "not taken: what would go for it is worth more")

enum kvc_status {
#define X(value, name, text) KVC_ST_##name = value,
    KVC_STATUS_MAP(X)
#undef X
        KVC_ST_COUNT
};

/* The statuses as negative return values; KVC_E_OK is never returned. */
enum kvc_error {
#define X(value, name, text) KVC_E_##name = -(1000 + value),
    KVC_STATUS_MAP(X)
#undef X
    /* Not statuses of the protocol. */
    KVC_STALE = -1100,    /* bytes that were read may have changed: discard them */
    KVC_E_DOWN = -1101,   /* no daemon: counted as a miss, or as a dropped store */
    KVC_E_NO_ROOM = -1102 /* used only inside the daemon: evict, then try again */
};

/* Why the cached prefix of a group ends where it ends: X(value, NAME, text). */
#define KVC_MISS_MAP(X)                                                           \
    X(0, NONE, "every block asked for is cached")                                 \
    X(1, NEVER, "never stored, or so long ago that no trace is left")             \
    X(2, EVICTED, "evicted to make room or on request")                           \
    X(3, PENDING, "being stored right now")                                       \
    X(4, CORRUPT, "its checksum, or that of a block before it, did not match")    \
    X(5, NOT_WORTH, "loading would take longer than computing it again")          \
    X(6, NAMESPACE, "cached in a namespace that differs")                         \
    X(7, DROPPED, "its writer did not finish it, or its only copy was lost")      \
    X(8, OTHER_GROUP, "cached here, but another group of layers ends the prefix") \
    X(9, NOT_LOADED, "on disk, and not loaded into memory, or not readable now")

enum kvc_miss {
#define X(value, name, text) KVC_MISS_##name = value,
    KVC_MISS_MAP(X)
#undef X
        KVC_MISS_COUNT
};

/* Hit rule of a group of layers. */
enum kvc_rule {
    KVC_RULE_FULL = 0,   /* full attention: every block of the prefix */
    KVC_RULE_WINDOW = 1, /* sliding window: the blocks that cover the prefix's last W tokens */
    KVC_RULE_STATE = 2   /* recurrent state: the one block that ends at the prefix's end */
};

/* Fields in which two namespaces can differ: X(bit, NAME, text). The bits of `similar` and of a
 * miss's detail. */
#define KVC_NS_FIELD_MAP(X)                  \
    X(0, MODEL, "model")                     \
    X(1, REVISION, "revision")               \
    X(2, DTYPE, "dtype")                     \
    X(3, QUANT, "quant")                     \
    X(4, LAYOUT, "layout")                   \
    X(5, LAYERS, "layers")                   \
    X(6, KV_HEADS, "kv_heads")               \
    X(7, HEAD_SIZE, "head_size")             \
    X(8, POSITION, "position")               \
    X(9, POSITION_PARAMS, "position_params") \
    X(10, ATTENTION, "attention")            \
    X(11, LORA, "lora")                      \
    X(12, SHARDS, "shards")                  \
    X(13, GROUPS, "groups")                  \
    X(14, EXTRA, "extra")                    \
    X(15, SUB_TENANT, "sub_tenant")          \
    X(16, TOKENS, "tokens")

enum kvc_ns_field {
#define X(bit, name, text) KVC_NS_FIELD_##name = bit,
    KVC_NS_FIELD_MAP(X)
#undef X
        KVC_NS_FIELD_COUNT
};

/* Flags of requests. */
enum kvc_flag {
    KVC_F_WAIT = 1u << 0,  /* ACQUIRE: wait for pending blocks */
    KVC_F_TOUCH = 1u << 1, /* LOOKUP: also count as a use; without it a lookup has no side effect */
    KVC_F_DRY_RUN = 1u << 2,    /* EVICT: count, change nothing */
    KVC_F_TOKENS = 1u << 3,     /* NS_OPEN: commits carry the token ids */
    KVC_F_REPLICATED = 1u << 4, /* group: all ranks hold the same bytes; stored once */
    KVC_F_DURABLE = 1u << 5,    /* RESERVE, STORE: commits are answered when the blocks, and all
                                   before them in their chains, are on stable storage */
    KVC_F_PREFETCH = 1u << 6,   /* LOOKUP: also start to load blocks on disk into memory */
    KVC_F_NO_LOAD = 1u << 7,    /* ACQUIRE: only blocks in memory; blocks on disk begin to load, but
                                  the reply does not wait for them */
    KVC_F_READ_ONLY = 1u << 8,  /* LOOKUP, ACQUIRE: leaves no trace: no use is counted,
                                   nothing is learned from it, and nothing is loaded */
    KVC_F_ALL =
        1u
        << 9, /* LOOKUP, ACQUIRE, PAGES_LOAD: also blocks that are quicker computed than loaded */
    KVC_F_DECODED =
        1u << 10, /* RESERVE, STORE: blocks of decoded tokens, with a wish of their own */
    KVC_F_NO_STORE = 1u << 11, /* of the library: RESERVE and STORE answer NO_STORE for each block,
                                  without traffic */
    KVC_F_PINNED = 1u << 12,   /* NAME_PUT: also pin the blocks while the name lasts */
    KVC_F_FORCE = 1u << 13,    /* EVICT: also blocks that are pinned or named */
    KVC_F_ADMIT =
        1u << 14 /* STORE, PAGES_STORE: also blocks that are worth less than their victim */
};

/* State of a block as LIST reports it. */
enum kvc_block_state { KVC_BLOCK_ABSENT = 0, KVC_BLOCK_PENDING = 1, KVC_BLOCK_PRESENT = 2 };

/* Which blocks LIST reads. */
enum kvc_walk_mode {
    KVC_WALK_UP = 0,    /* the block, then its parent, ... to the first of the sequence */
    KVC_WALK_DOWN = 1,  /* the block, then all that follow it, each before what follows itself */
    KVC_WALK_ROOTS = 2, /* the blocks of a group that have no parent */
    KVC_WALK_MATCH = 3, /* the blocks of all groups whose keys begin with the given bits */
    KVC_WALK_KEYS = 4   /* for each key: a row for each block that has it, or one row that says why
                           there is none */
};

/* What TRACE does. The reply to each carries the trace's state; that to OFF carries the last one.
 */
enum kvc_trace_action { KVC_TRACE_STATUS = 0, KVC_TRACE_ON = 1, KVC_TRACE_OFF = 2 };

/* Where a block's bytes are. Values are bits: a set of tiers is their sum. */
enum kvc_tier_id { KVC_TIER_NONE = 0, KVC_TIER_HOST = 1, KVC_TIER_NVME = 2, KVC_TIER_HBM = 4 };

/* State of a path of the storage tier. */
enum kvc_path_state {
    KVC_PATH_FORMATTING = 0, /* in service, and being written over once in the background */
    KVC_PATH_UP = 1,
    KVC_PATH_OUT = 2 /* taken out after an error; tried again by itself */
};

/* How memory on a device passes from process to process. */
enum kvc_handle_kind {
    KVC_HANDLE_FD = 1,  /* CUDA virtual memory: a descriptor */
    KVC_HANDLE_IPC = 2, /* CUDA IPC: KVC_IPC_BYTES bytes */
    KVC_HANDLE_EMU = 3  /* an emulated device: the memfd that its memory is */
};

/* How fragments are copied from or to a device. */
enum kvc_copy_path {
    KVC_COPY_UNKNOWN = 0, /* not measured yet */
    KVC_COPY_ENGINE = 1,
    KVC_COPY_KERNEL = 2,
    KVC_COPY_WINDOW = 3 /* in one piece to the device, and scattered there: by the worker */
};

/* What a name stands for. */
enum kvc_name_kind { KVC_NAME_CONVERSATION = 1, KVC_NAME_DOCUMENT = 2 };

/* A client's guess of how a chain will be used. It may be wrong: the daemon learns how far to
 * believe such hints. */
enum kvc_hint_kind {
    KVC_HINT_ENDED = 1,    /* nobody will continue the chain */
    KVC_HINT_CONTINUE = 2, /* somebody will continue it */
    KVC_HINT_SOON = 3, /* somebody will continue it within a given time; it is loaded to memory */
    KVC_HINT_SCAN = 4  /* it is read once, in passing */
};

/* The owners whose room a quota bounds and kvcachectl usage sums up, from the widest to the
 * narrowest. */
enum kvc_scope { KVC_SCOPE_ALL = 0, KVC_SCOPE_TENANT = 1, KVC_SCOPE_SUB = 2, KVC_SCOPE_NS = 3 };

/* What POLICY does. */
enum kvc_policy_action { KVC_POLICY_SHOW = 0, KVC_POLICY_SET = 1 };

/* Why repeated DRAIN requests do not reach 0 bytes left by themselves. */
enum kvc_drain_stop {
    KVC_DRAIN_GOES_ON = 0, /* nothing prevents the end */
    KVC_DRAIN_BUDGET = 1,  /* the write budget allows less than is left */
    KVC_DRAIN_OUT = 2,     /* no path is in service */
    KVC_DRAIN_QUOTA = 3    /* the rest belongs to owners whose quota allows no more on storage */
};

#endif
