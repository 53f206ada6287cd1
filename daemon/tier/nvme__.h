/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the NVMe tier share. Thread: control thread.
 *
 * A location is a record of nvme.entry (nvme_entry.c). An extent is one write, of several blocks
 * (nvme_extent.c). Extents lie one behind the other in segments (nvme_seg.c) of paths. Code names
 * entries, extents, segments and paths by their numbers; NVME_NONE is none.
 */
#ifndef KVC_TIER_NVME__H
#define KVC_TIER_NVME__H

#include "list.h"
#include "nvme.h"

#define NVME_NONE  UINT32_MAX
#define NVME_PAGE  DISK_PAGE_BYTES
#define NVME_RETRY 3u /* how often a page that cannot be read at start is tried */

/* ---- the format (nvme_table.c); all numbers are little-endian ---- */

#define NVME_SUPER_BYTES 512u /* one sector: it is written whole or not at all */
/* Of a path: superblocks on pages 0 and 1, two to spare. */
#define NVME_HEADER_PAGES (NVME_PATH_HEADER_BYTES / NVME_PAGE)
#define NVME_HEAD_BYTES   128u  /* of a table */
#define NVME_ITEM_BYTES   112u  /* of each of its items */
#define NVME_ITEMS_MAX    1000u /* in a table */
#define NVME_RECORDS_MAX  8u    /* items of a table that are records of namespaces */
#define NVME_TABLE_PAGES \
    ((NVME_HEAD_BYTES + NVME_ITEMS_MAX * NVME_ITEM_BYTES + NVME_PAGE - 1) / NVME_PAGE)
#define NVME_HEAD_PAGES  (NVME_TABLE_PAGES + NVME_RECORDS_MAX)
#define NVME_EXTENT_MAX  65535u /* pages */
#define NVME_VALUE_BYTES 192u   /* of the journal, for an extent */
#define NVME_MAP_BYTES   ((NVME_ITEMS_MAX + 7) / 8)

struct nvme_super {
    uint8_t uuid[16];
    uint64_t seq; /* of a path's two superblocks, the one with the larger seq counts */
    uint32_t path, paths;
    uint32_t seg_pages, segments;
    uint32_t formatted; /* how many segments are in use: the first ones, which were zeroed */
    uint32_t epoch;     /* grows at each start, before anything else is written */
};
/* Zeroes the rest of `page`. */
void nvme__super_encode(const struct nvme_super *s, uint8_t page[NVME_PAGE]);
/* 0; -ENOENT: the page was never written; -EINVAL: it is no superblock; -EUCLEAN: it is damaged;
 * -EPROTONOSUPPORT: a later version wrote it. */
KVC_WARN_UNUSED int nvme__super_decode(const uint8_t *page, struct nvme_super *ret_super);

/* Flags of tables and of the journal's values. NVME_T_DEADS, of tables alone: the sector of dead
 * blocks was written with the table. Without the flag a sector of zeroes says that none is dead. */
enum { NVME_T_DURABLE = 1, NVME_T_DEADS = 2 };
struct nvme_head {
    uint8_t uuid[16];
    uint32_t flags, path, seg, page, pages; /* page: of the segment; pages: of the extent */
    uint32_t items;
    uint32_t head_pages; /* of table and records of namespaces; the payload is behind them */
    uint64_t gen;        /* of the segment */
    uint64_t seq;        /* of the extent: grows with time */
    /* When this table was written, all extents from `since` to `safe` were synced, on all paths.
     * `since` 0: an older version wrote the table, which does not say. */
    uint64_t since, safe;
    struct hash128 sum;
};
/* nvme_item.flags. RECORD: the record of a namespace, not a block. PARENT: `parent` is valid. */
enum { NVME_I_RECORD = 1, NVME_I_DURABLE = 2, NVME_I_PARENT = 4, NVME_I_BY_PIN = 8 };
struct nvme_item {
    struct key256 key, parent;
    struct hash128 sum;
    uint64_t print;       /* tier_label.print */
    uint32_t page, bytes; /* page: of the extent */
    uint32_t tokens;      /* on disk the low 16 bits are before `shard`, 8 more behind `level` */
    uint16_t shard;
    uint8_t group, flags;
    uint8_t level; /* tier_label.level; 0 in tables of older versions */
};
static inline uint32_t nvme__table_pages(uint32_t items)
{
    return (NVME_HEAD_BYTES + items * NVME_ITEM_BYTES + NVME_PAGE - 1) / NVME_PAGE;
}
/* Writes the head. All items must be encoded before: it zeroes the bytes behind the last item, and
 * sums the whole table. */
void nvme__table_finish(uint8_t *table, struct nvme_head *head);
void nvme__item_encode(uint8_t *table, uint32_t i, const struct nvme_item *item);
/* The last sector of a table says which items are dead, under a checksum of its own. A sector is
 * written whole or not at all. Zeroes: no item is dead. Dead: the block of the item was dropped, so
 * recovery must not bring it back. */
#define NVME_DEAD_BYTES 512u
static inline bool nvme__dead_fits(uint32_t items)
{
    return nvme__table_pages(items) * NVME_PAGE - NVME_HEAD_BYTES - items * NVME_ITEM_BYTES >=
           NVME_DEAD_BYTES;
}
struct nvme_value;
/* Writes the dead of v into last_page, the last page of the extent's table. uuid: of the store. */
void nvme__dead_encode(uint8_t *last_page, const uint8_t uuid[16], const struct nvme_value *v);
/* Adds to `dead` the items that the table calls dead; head_decode() must have accepted the table.
 * False: the sector is neither valid nor zeroes, so the extent was only partly written, or partly
 * overwritten. */
KVC_WARN_UNUSED bool nvme__dead_decode(const uint8_t *table, const struct nvme_head *h,
                                       uint8_t dead[NVME_MAP_BYTES]);
/* -ENOENT: no table; -ENOBUFS: the table is longer than `bytes`; -EUCLEAN: it is damaged. */
KVC_WARN_UNUSED int nvme__head_decode(const uint8_t *table, uint64_t bytes,
                                      struct nvme_head *ret_head);
/* head_decode() must have accepted the table. */
void nvme__item_decode(const uint8_t *table, uint32_t i, struct nvme_item *ret_item);
/* Whether the pages that the item names are where its kind, record or block, may lie. */
bool nvme__item_ok(const struct nvme_head *head, const struct nvme_item *item);

#define NVME_KEY_META   (UINT64_C(1) << 63)
#define NVME_KEY_STORE  (NVME_KEY_META | 1) /* UUID, epoch, the epoch of each path */
#define NVME_KEY_BUDGET (NVME_KEY_META | 2)
/* Of each path a u64, its forward mark: the journal has the extents of the path up to that
 * nvme_extent.seq, or they are lost. Recovery looks forward for later ones only. */
#define NVME_KEY_FORWARD (NVME_KEY_META | 3)
/* What the journal says of an extent, with the fields of its nvme_head. */
struct nvme_value {
    uint32_t flags, pages, items, head_pages, records;
    uint64_t gen, seq;
    struct hash128 sum;
    uint8_t dead[NVME_MAP_BYTES]; /* a bit per item */
};
/* The journal's key of the extent that begins at this page of the path. */
static inline uint64_t nvme__key(uint32_t path, uint64_t page)
{
    return (uint64_t)path << 56 | page;
}
/* The value of the extent that this table heads, with no item dead. */
static inline struct nvme_value nvme__value_of(const struct nvme_head *h)
{
    return (struct nvme_value){.flags = h->flags,
                               .pages = h->pages,
                               .items = h->items,
                               .head_pages = h->head_pages,
                               .records = h->head_pages - nvme__table_pages(h->items),
                               .gen = h->gen,
                               .seq = h->seq,
                               .sum = h->sum};
}
uint32_t nvme__value_encode(const struct nvme_value *v, uint8_t ret_value[NVME_VALUE_BYTES]);
KVC_WARN_UNUSED int nvme__value_decode(const void *value, uint32_t bytes,
                                       struct nvme_value *ret_value);

/* ---- entries and extents (nvme_entry.c) ---- */

enum nvme_entry_state {
    NVME_E_FREE,
    NVME_E_NEW,     /* handed out, not written */
    NVME_E_QUEUED,  /* its PUT waits */
    NVME_E_WRITING, /* its PUT is written, or waits for the sync or the journal */
    NVME_E_WRITTEN, /* done() has run or is about to */
    NVME_E_LIVE     /* set_label() was called */
};
/* DURABLE: its PUT was durable. TOLD: reclaim has told core of the block. MOVING: the block
 * is being written again, to new room. */
enum { NVME_E_DURABLE = 1, NVME_E_TOLD = 2, NVME_E_MOVING = 4 };
struct nvme_entry {
    struct hash128 sum;
    uint32_t extent;     /* NONE: not written */
    uint32_t prev, next; /* in its extent; next also in the free list */
    uint32_t block_no, bytes;
    uint16_t item;    /* of the extent's table */
    uint16_t page;    /* of the extent */
    uint16_t readers; /* GETs and VERIFYs in flight */
    uint8_t state, flags;
};

enum nvme_extent_state {
    NVME_X_FREE,
    NVME_X_WRITING,    /* in flight, or an extent before it in its segment still is */
    NVME_X_WRITTEN,    /* on its path's list `written` */
    NVME_X_SYNCING,    /* on its path's list `syncing` */
    NVME_X_SYNCED,     /* on the list `synced` */
    NVME_X_COMMITTING, /* in the commit that is gathered or in flight */
    NVME_X_COMMITTED,  /* the journal names it */
    NVME_X_LOST        /* on the list `lost` until its last entry is gone */
};
/* DIRTY: the journal does not know all deaths in it. LISTED: it is on the list nvme.dirty. UNREAD:
 * it stays as it is for the next start. DROPPED: core did not take all of its blocks at start. */
enum {
    NVME_X_DURABLE = 1,
    NVME_X_DIRTY = 2,
    NVME_X_LISTED = 4,
    NVME_X_UNREAD = 8,
    NVME_X_DROPPED = 16,
    NVME_X_BURIED = 32 /* its table says that all of it is dead */
};
struct nvme_extent {
    struct hash128 sum;
    uint64_t seq;
    uint32_t seg, page, pages; /* page: of the segment */
    uint32_t first;            /* the first of its entries; NONE: all are freed */
    uint32_t next;             /* in its list */
    uint32_t seg_next;         /* in its segment: the one that was written before it */
    uint16_t items;            /* of its table: records and blocks */
    uint16_t live;             /* entries */
    uint8_t head_pages, records, state, flags;
};
/* A list of extents, chained by nvme_extent.next. */
struct nvme_extents {
    uint32_t head, tail, n;
};

/* ---- segments and paths ---- */

enum nvme_seg_state {
    NVME_S_BLANK, /* not formatted */
    NVME_S_FREE,
    NVME_S_OPEN,    /* extents are written to it */
    NVME_S_FULL,    /* no further extent is written to it */
    NVME_S_VICTIM,  /* full, and core is being told of its blocks, to keep or free each */
    NVME_S_DELETING /* empty; its extents are being deleted from the journal */
};
struct nvme_seg {
    uint64_t gen;           /* of the extents in it; 0: the segment is free */
    uint64_t opened_ns;     /* 0: before this start */
    uint32_t extents;       /* the newest; chained by seg_next */
    uint32_t next;          /* in the free list of its path, or among the segments to be deleted */
    uint32_t used_pages;    /* where the next extent begins */
    uint32_t live_pages;    /* of blocks that are not freed */
    uint32_t live;          /* blocks that are not freed */
    uint32_t durable_pages; /* of live_pages, those of durable blocks */
    uint32_t pending;       /* extents whose commit or deletion is not done */
    uint32_t done_pages;    /* written without a gap, from the first on */
    uint32_t readers;       /* reads, moves and writes of tables that still need it */
    uint32_t told;          /* VICTIM: the extent that core is told of next; NONE: told of all */
    uint8_t state, path;
    bool confirming; /* DELETING: a confirm round waits until it is out of the journal */
    bool durable;    /* opened for durable blocks, and has some */
    bool broken;     /* an extent was lost, so extents behind it are lost too */
    bool named;  /* the journal has an extent of this generation, so recovery finds the others */
    bool unread; /* holds an extent whose table could not be read at start */
};

/* NVME_DURABLE: durable blocks, which have segments of their own. */
enum nvme_class { NVME_NORMAL, NVME_DURABLE, NVME_CLASSES };
#define NVME_OPEN_RECORDS 32u
/* The segment of a path to which extents of one class are written. */
struct nvme_open {
    uint32_t seg; /* NONE: no segment is open */
    /* The records of namespaces in the segment, as far as they have room here. A namespace that is
     * not here gets another record, which costs a page. */
    uint32_t records;
    struct {
        uint64_t print; /* tier_label.print */
        uint32_t extent;
    } record[NVME_OPEN_RECORDS];
};

struct nvme;
/* One I/O. Its memory, iovecs and buffers stay until end() is called. */
struct nvme_io {
    struct disk_op op;
    struct list_node node; /* of its path's `inflight`, oldest first */
    struct nvme *n;
    uint64_t start_ns;
    bool parts; /* a read of several blocks: if it fails they are read one by one */
    void (*end)(struct nvme_io *io);
};

/* A queue of operations, chained by tier_op.next. */
struct nvme_ops {
    struct tier_op *head, *tail;
    uint64_t bytes;
    uint32_t n;
};

/* The superblock of a path: what is being written to it, looked at or read back. */
enum nvme_super_phase { NVME_SB_IDLE, NVME_SB_LOOK, NVME_SB_WRITE, NVME_SB_READ, NVME_SB_SYNC };
struct nvme_path_super {
    enum nvme_super_phase phase;
    uint64_t seq;       /* of the superblock that was written last; its lowest bit is the page */
    uint32_t formatted; /* nvme_super.formatted of the one that is being written */
    bool probe;         /* the path is out; it comes back if the write succeeds */
    uint8_t *page;      /* two pages */
    struct nvme_io io;
    struct iovec iov;
};

/* A path's extents on their way to the medium (nvme_sync.c). */
struct nvme_path_sync {
    struct nvme_io io;
    bool busy;                         /* the sync is in flight */
    uint64_t due_ns;                   /* when the next one begins; UINT64_MAX: nothing to sync */
    struct nvme_extents written;       /* extents that wait for the next sync */
    struct nvme_extents syncing;       /* extents that the sync in flight makes safe */
    uint64_t written_seq, syncing_seq; /* the lowest in each list; UINT64_MAX: it is empty */
    uint64_t written_pages;            /* since a sync was last begun */
    /* Writes of dead sectors (nvme_dead.c) since the start: all that ended well; those that the
     * sync in flight covers; those that are synced. */
    uint64_t dead_wrote, dead_syncing, dead_synced;
};

/* A path's I/O since the start. */
struct nvme_path_count {
    uint64_t reads, writes, syncs, read_bytes, write_bytes;
    uint64_t errors;  /* I/O that failed */
    uint64_t outs;    /* how often the path was taken out */
    uint64_t corrupt; /* blocks whose bytes were not those that were stored */
    struct histo read_ns, write_ns;
};

struct nvme_path {
    enum nvme_path_state state;
    int error;   /* why the path is out: negative errno */
    bool absent; /* at start the path was missing or not readable: out until the next start */
    uint32_t number;
    uint32_t first_seg, segs;
    uint32_t formatted; /* how many segments, the first ones, are in use: nvme_super.formatted */
    uint32_t zeroing;   /* how many were zeroed; those from `formatted` on are not in use yet */
    uint32_t era;       /* changes when a sync fails: writes that began before it do not count */
    uint32_t writes;    /* extents in flight */
    uint64_t queued, queued_bytes; /* I/O in flight */
    struct list_node inflight;     /* the same, by nvme_io.node */
    struct nvme_open open[NVME_CLASSES];
    struct {
        uint32_t first; /* in order of place, chained by nvme_seg.next; NONE: no segment is free */
        uint32_t n;
    } free;
    struct nvme_ops durable; /* durable PUTs that wait for the sync, or for the journal after it */
    /* The path's part of NVME_KEY_FORWARD, as the journal has it or gets it next; UINT64_MAX: the
     * journal has none, and recovery does not look forward. */
    uint64_t forward_mark;
    bool hold_forward_mark; /* forward_mark stays: an extent behind it could not be read at start */
    struct nvme_path_sync sync;
    struct nvme_path_super super;
    struct nvme_path_count count;
};

/* ---- I/O that is in flight ---- */

/* An extent that is being written. */
struct nvme_write {
    struct nvme_io io;
    struct nvme_write *next; /* in the list of those that are free */
    struct tier_op *ops;     /* the PUTs whose blocks it has */
    uint32_t extent, path;
    uint32_t era;     /* of the path when the write began */
    bool ended, good; /* ended: the I/O has ended, well if `good`; end_write() is still to come */
    uint8_t *head;    /* NVME_HEAD_PAGES: the table, then records from page NVME_TABLE_PAGES on */
    struct iovec iov[DISK_IOV_MAX];
};
#define NVME_READ_IOVS 512u
/* Neighbouring blocks that are read at once, into the memory of their GETs. */
struct nvme_read {
    struct nvme_io io;
    struct nvme_read *next; /* in the list of those that are free */
    struct tier_op *ops;
    struct iovec iov[NVME_READ_IOVS];
};
/* Reads a block piece by piece, for its sum. */
struct nvme_verify {
    struct nvme_io io;
    struct tier_op *op; /* NULL: idle */
    struct iovec iov;
    struct hash_stream sum;
    uint8_t *buf;
    uint64_t at; /* bytes read */
};
#define NVME_VERIFIES     2u
#define NVME_VERIFY_BYTES (UINT64_C(1) << 20)

/* Moves blocks of one extent to new room (nvme_keep.c). */
#define NVME_MOVE_ITEMS 128u
struct nvme_move {
    struct tier_op op; /* the PUT of the block; op.loc: its new room */
    struct tier_loc from;
    uint32_t page;  /* of the extent */
    uint16_t item;  /* of the extent's table */
    bool abandoned; /* core has freed `from` meanwhile */
    bool ended;
};
enum nvme_mover_phase { NVME_M_IDLE, NVME_M_HEAD, NVME_M_PAYLOAD, NVME_M_WRITE };
struct nvme_mover {
    struct nvme *n;
    struct nvme_io io;
    enum nvme_mover_phase phase;
    uint32_t items; /* moves of `item` that are in use */
    uint32_t left;  /* of them, those that have not ended */
    uint32_t seg;
    uint64_t first_page; /* of the extent, on its path */
    uint32_t from_page;  /* of the extent, where buf begins */
    struct hash128 sum;  /* of the table */
    struct iovec iov;
    uint8_t *head, *buf; /* NVME_TABLE_PAGES; extent_bytes */
    struct nvme_move item[NVME_MOVE_ITEMS];
};
#define NVME_MOVERS    4u
#define NVME_KEEPS_MAX 4096u /* blocks that wait to be moved */
struct nvme_keep {
    struct tier_loc from; /* 0: it was freed meanwhile */
    struct tier_loc to;
};

/* Before a commit, the dead sector of its extents' tables is written: one such write
 * (nvme_dead.c). */
#define NVME_DEADS 32u
struct nvme_dead {
    struct nvme_io io;
    struct iovec iov;
    uint8_t *page;
    uint32_t extent; /* NONE: the commit does not wait for this write, for its path is out */
    uint32_t seg;
    bool busy;
    bool buries; /* the write says that all blocks of the extent are dead */
};

#define NVME_COMMIT_MAX  1024u
#define NVME_COMMIT_KEPT 2u /* changes kept free for the budget and for NVME_KEY_FORWARD */
/* The one commit to the journal: gathered, then tables are told, then it is in flight. */
struct nvme_commit {
    struct journal_txn txn;
    uint64_t due_ns;        /* when the next one begins; UINT64_MAX: there is none to come */
    bool tell_forward_mark; /* a commit must follow with new forward marks: an extent was lost */
    bool busy;              /* tables are being told, or the journal has it */
    bool telling;           /* tables are being told, and the journal has not got it yet */
    struct nvme_extents extents;    /* new extents, of which this commit tells the journal */
    uint64_t dirty;                 /* nvme.dirty.out when the commit is done */
    uint32_t tell[NVME_COMMIT_MAX]; /* extents whose dead sectors are written before it */
    uint32_t tell_n;                /* how many `tell` has */
    uint32_t told;                  /* how many of `tell` were begun */
    uint32_t deleted; /* extents that the commit deletes, chained by nvme_extent.next; NONE: none */
    struct journal_change change[NVME_COMMIT_MAX];
    uint8_t value[NVME_COMMIT_MAX][NVME_VALUE_BYTES];
};

/* A confirm round ends when the blocks that were freed before it stay away after a crash
 * (nvme_confirm.c). Each phase waits for what its line says. */
enum nvme_confirm_phase {
    NVME_CF_IDLE, /* no round runs */
    NVME_CF_OPEN, /* extents begun before the round are in the journal, or lost */
    NVME_CF_TOLD, /* the journal knows all deaths */
    NVME_CF_SYNC  /* tables that were told of deaths are synced */
};
struct nvme_confirm {
    struct nvme_ops next; /* operations of confirm_frees() that wait for the next round */
    struct nvme_ops now;  /* operations that this round ends */
    enum nvme_confirm_phase phase;
    uint64_t seq;      /* OPEN: extents up to this one must be in the journal, or lost */
    uint64_t dirty;    /* TOLD waits until nvme.dirty.out has reached it */
    uint32_t deleting; /* TOLD waits for so many segments to leave the journal */
    uint64_t dead[DISK_PATHS_MAX]; /* SYNC waits until dead_synced of each path has reached it */
    bool untold; /* a block died in an UNREAD extent, so no round can succeed any more: -EIO */
};

/* The write budget (nvme_budget.c). */
struct nvme_budget {
    uint64_t granted;    /* bytes by which the tokens grew since core last asked */
    int64_t tokens;      /* bytes that may be written; below 0: more was written than there were */
    uint64_t wall_ns;    /* wall clock: the tokens for the time until then were added */
    uint64_t day_ns;     /* wall clock: when `spent` began */
    uint64_t spent;      /* bytes written since day_ns */
    uint64_t age_max_ms; /* older blocks are refused while tokens are short */
    uint64_t step_ns;    /* when age_max_ms was last adjusted */
    bool changed;        /* since the last commit, which has it */
};

/* ---- the tier ---- */

/* The store's identity, and the numbers that it gave last. */
struct nvme_store {
    uint8_t uuid[16];
    uint32_t epoch;     /* of this start */
    uint32_t gen_count; /* generations given to segments since the start */
    uint64_t seq_count; /* nvme_extent.seq of the newest extent */
    uint64_t since_seq; /* the first extent behind the last one that was lost */
};

/* How much of a table with numbered records is in use. */
struct nvme_use {
    uint32_t max;
    uint32_t fresh; /* records from here on were never used */
    uint32_t free;  /* list of records that are free again; NONE: empty */
    uint32_t used;
};

struct nvme_seg_use {
    uint32_t free, deleting, victims; /* segments of that state */
    uint32_t durable;                 /* segments with nvme_seg.durable */
    uint32_t delete_head; /* those of state DELETING, chained by nvme_seg.next; NONE: none */
    uint32_t turn_path;   /* where the search for a path with room begins */
};

/* Reclaim is in vain while core keeps all blocks: writing them again gains no room. Then it is
 * tried ever more rarely. */
struct nvme_vain {
    uint32_t most;  /* the highest count of free and DELETING segments at the begin of a reclaim;
                     * each segment that a PUT opens lowers it */
    uint32_t begun; /* segments that reclaim has begun since the last gain of room */
    bool asked;     /* a PUT was refused for want of room since the last try */
    uint64_t freed_pages;        /* of freed blocks; an eighth of a segment is a gain of room */
    uint64_t until_ns, pause_ns; /* when the next try may begin; how long it waits */
};
struct nvme_reclaim {
    uint64_t opened_ns; /* nvme_seg.opened_ns of the segment that was begun last; 0: none since the
                         * start */
    uint64_t told_ns;   /* when core was last told of a block */
    struct nvme_vain vain;
};

/* Operations that core has submitted, by what they wait for. */
struct nvme_queues {
    struct nvme_ops put[NVME_CLASSES];
    struct nvme_ops get_new;   /* of this turn: nvme__read_sort() sorts them into get_ready */
    struct nvme_ops get_ready; /* wait for a read */
    struct nvme_ops verify;    /* wait for an nvme_verify */
    struct nvme_ops finish;    /* have ended: nvme__call_done() calls their done() */
    bool calling_done;         /* nvme__call_done() is running, so a call inside it does nothing */
};

struct nvme_health; /* nvme_health.c */
struct nvme_format; /* nvme_format.c */

struct nvme {
    struct tier tier;
    struct nvme_config c; /* with defaults in place of zeroes */
    struct disk *disk;
    struct journal *journal;
    struct nvme_metrics m;
    uint64_t now_ns, wall_ns; /* as nvme_tick() was last told */
    struct nvme_store store;
    bool running;    /* since recovery has ended */
    bool stopping;   /* nvme_stop() was called: nothing new begins */
    bool flushing;   /* sync and commit begin at once, until nothing is left */
    bool recovering; /* until the first tick: core says which of the blocks found it takes */
    bool partial;    /* the start could not read some path or segment, which may hold more blocks */
    bool tell_room;  /* events.room is to be called */
    bool work;       /* the queues must be looked at again, because something has ended */
    int journal_error;                    /* negative errno; 0: the journal works */
    uint64_t share_bytes[DISK_PATHS_MAX]; /* of the limit, of each path */
    uint32_t paths, seg_pages, segs;

    struct nvme_entry *entry; /* [0] is not used */
    struct nvme_use entries;
    struct nvme_extent *extent;
    struct nvme_use extents;
    struct nvme_seg *seg;
    struct nvme_seg_use seg_use;
    struct nvme_reclaim reclaim;
    struct nvme_path path[DISK_PATHS_MAX];
    struct {
        uint64_t live;     /* of blocks that are written and not freed */
        uint64_t durable;  /* of them, of durable blocks */
        uint64_t reserved; /* of entries that are not written */
    } pages;

    struct nvme_extents synced; /* safe on the medium; the next commit tells the journal */
    struct nvme_extents lost;   /* extents of whose blocks core is still to be told (events.lost) */
    /* Extents with dead blocks that the journal still calls alive. */
    struct {
        struct nvme_extents list;
        uint64_t in;  /* how many extents came to the list since the start */
        uint64_t out; /* how many of them a commit that is done has told the journal of */
    } dirty;
    /* Counts of dead blocks that recovery would still find. */
    struct {
        uint64_t open;       /* in extents that are not synced */
        uint64_t synced;     /* in synced extents */
        uint64_t committing; /* those that the commit in flight tells of */
    } deaths;
    struct nvme_queues queue;
    struct {
        uint32_t n;           /* I/O of all kinds and paths */
        uint64_t write_bytes; /* of extents */
        uint64_t read_bytes;  /* for GETs */
    } inflight;
    void (*io_done)(struct disk_op *op); /* disk_op.done of each I/O */
    struct {
        struct nvme_write *at, *free;
        uint32_t n;
    } writes;
    struct {
        struct nvme_read *at, *free;
        uint32_t n;
    } reads;
    struct nvme_verify verify[NVME_VERIFIES];
    struct nvme_mover mover[NVME_MOVERS];
    struct {
        struct nvme_keep *at; /* a ring of NVME_KEEPS_MAX */
        uint32_t head, n;
    } keeps;
    struct nvme_commit commit;
    struct nvme_dead dead[NVME_DEADS];
    struct nvme_confirm confirm;
    struct nvme_budget budget;
    struct nvme_health *health;
    struct nvme_format *format;
};

static inline struct nvme *nvme__of(const struct tier *t)
{
    return CONTAINER_OF((struct tier *)(uintptr_t)t, struct nvme, tier);
}
static inline uint32_t nvme__pages(uint32_t bytes)
{
    return (uint32_t)(((uint64_t)bytes + NVME_PAGE - 1) / NVME_PAGE);
}
/* The segment's first page on its path. */
static inline uint64_t nvme__seg_page(const struct nvme *n, uint32_t seg)
{
    const struct nvme_path *p = &n->path[n->seg[seg].path];
    return NVME_HEADER_PAGES + (uint64_t)(seg - p->first_seg) * n->seg_pages;
}
static inline uint64_t nvme__extent_page(const struct nvme *n, const struct nvme_extent *x)
{
    return nvme__seg_page(n, x->seg) + x->page;
}
static inline bool nvme__path_up(const struct nvme_path *p)
{
    return p->state != NVME_PATH_OUT;
}
/* These two need an entry that was written. */
static inline struct nvme_path *nvme__entry_path(struct nvme *n, const struct nvme_entry *e)
{
    return &n->path[n->seg[n->extent[e->extent].seg].path];
}
static inline uint64_t nvme__entry_page(const struct nvme *n, const struct nvme_entry *e)
{
    return nvme__extent_page(n, &n->extent[e->extent]) + e->page;
}

/* The earlier of two times. */
static inline uint64_t nvme__sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The next commit begins within sync_ns. */
static inline void nvme__commit_soon(struct nvme *n)
{
    n->commit.due_ns = nvme__sooner(n->commit.due_ns, n->now_ns + n->c.sync_ns);
}

/* nvme_extent.c */
/* A free record of nvme.extent; NONE: all are in use. */
uint32_t nvme__extent_new(struct nvme *n);
void nvme__extent_free(struct nvme *n, uint32_t extent);
void nvme__extents_push(struct nvme *n, struct nvme_extents *list, uint32_t extent);
uint32_t nvme__extents_pop(struct nvme *n, struct nvme_extents *list);
/* Puts the extent on the list n->dirty: blocks of it died, and the journal calls them alive. */
void nvme__dirty(struct nvme *n, uint32_t extent);
/* The extent's value for the journal, as its blocks are now. */
void nvme__value(const struct nvme *n, uint32_t extent, struct nvme_value *ret_value);

/* nvme_entry.c */
struct nvme_entry *nvme__entry(const struct nvme *n, struct tier_loc loc);
KVC_WARN_UNUSED int nvme__entry_new(struct nvme *n, uint32_t bytes, uint32_t block_no,
                                    struct tier_loc *ret_loc);
/* Frees the location; a block that was written there is dead from now on. */
void nvme__entry_free(struct nvme *n, struct tier_loc loc);
void nvme__entry_link(struct nvme *n, struct nvme_entry *e, uint32_t extent);
/* Takes the entry out of its extent, as if it had not been written. */
void nvme__entry_unlink(struct nvme *n, struct nvme_entry *e);
/* At start: core does not take a block of the extent. */
void nvme__not_taken(struct nvme *n, uint32_t extent);
/* At start: durable blocks of the segment have no room now, so it stays as it is for a later start.
 */
void nvme__hold_seg(struct nvme *n, uint32_t seg);
static inline struct tier_loc nvme__loc(const struct nvme *n, const struct nvme_entry *e)
{
    return (struct tier_loc){(uint32_t)(e - n->entry)};
}

/* nvme_seg.c */
/* Shares, segments and their size: of the store that `super` is of; NULL: of a new store. */
void nvme__geometry(struct nvme *n, const struct nvme_super *super);
KVC_WARN_UNUSED int nvme__segs_alloc(struct nvme *n);
void nvme__seg_attach(struct nvme *n, uint32_t seg, uint32_t extent);
/* Takes an extent that is not in the journal out of its segment, and frees its record. */
void nvme__seg_detach(struct nvme *n, uint32_t extent);
/* The segment is empty and not in the journal: new extents may be written to it. */
void nvme__seg_free(struct nvme *n, uint32_t seg);
/* Frees segments of state DELETING that have left the journal and have no readers. */
void nvme__segs_deleted(struct nvme *n);
/* The segment is full from now on: no further extent is written to it. */
void nvme__seg_close(struct nvme *n, uint32_t seg);
/* If the segment is full and has no block alive, in flight or uncommitted, its deletion begins. */
void nvme__seg_look(struct nvme *n, uint32_t seg);
/* The path with the shortest queue that has room for `pages` of a class; its open segment has that
 * room when this returns. NULL: no path has. moves: the write is a move of reclaim, for which the
 * limit of durable blocks does not count. */
struct nvme_path *nvme__seg_room(struct nvme *n, enum nvme_class which, bool moves, uint32_t pages);
/* Whether any path is in service. */
bool nvme__any_up(const struct nvme *n);
/* Pages that can be written now, on paths in service. */
uint64_t nvme__room_pages(const struct nvme *n);
/* Of nvme__room_pages(), those that are not held back for moves of reclaim. */
uint64_t nvme__put_pages(const struct nvme *n);
/* Whether a PUT of so many pages has room. If not, reclaim is told, which tries again if it had
 * given up. */
bool nvme__put_fits(struct nvme *n, uint64_t pages);
/* Whether some path is being formatted. */
bool nvme__formatting(const struct nvme *n);
/* Whether formatting goes on and will bring room: callers without room wait. */
bool nvme__room_grows(const struct nvme *n);
/* Segments that reclaim keeps free. */
uint32_t nvme__reserve(const struct nvme *n);
/* Segments of the reserve that moves of reclaim alone may use, not new PUTs. */
uint32_t nvme__held_segs(const struct nvme *n);
/* Whether durable blocks are spread over so many segments, few of them half full, that new durable
 * PUTs soon find no segment: reclaim merges these segments, even if room is plenty. */
bool nvme__durable_spread(const struct nvme *n);
/* tier_storage_ops.durable_room */
bool nvme__durable_room(const struct tier *t);
/* Blocks of so many pages were freed: reclaim may gain room by that. */
void nvme__vain_freed(struct nvme *n, uint64_t pages);
/* Whether `pages` of this class can be written by a move now. */
bool nvme__can_move(const struct nvme *n, enum nvme_class which, uint64_t pages);
/* Pages that lasting blocks may take, so that rewriting the log does not cost too much. */
uint64_t nvme__lasting_pages(const struct nvme *n);

/* nvme_io.c */
/* Begins an I/O. io, iov and the memory are borrowed until end(io), which never runs inline. page:
 * on the path. DISK_SYNC: no iov, 0 bytes. */
void nvme__issue(struct nvme *n, struct nvme_io *io, enum disk_kind kind, struct nvme_path *p,
                 const struct iovec *iov, uint32_t iovs, uint64_t page, uint64_t bytes,
                 void (*end)(struct nvme_io *io));
/* Takes an I/O that has ended off its path's list, and counts it. */
struct nvme_io *nvme__io_ended(struct disk_op *op);

/* nvme_ops.c */
void nvme__ops_push(struct nvme_ops *list, struct tier_op *op);
struct tier_op *nvme__ops_pop(struct nvme_ops *list);
/* Takes off the operation behind `prev` (NULL: the first one). */
struct tier_op *nvme__ops_cut(struct nvme_ops *list, struct tier_op *prev);
void nvme__write_submit(struct nvme *n, struct tier_op *op);
void nvme__read_submit(struct nvme *n, struct tier_op *op);
/* Queues the operation's end: nvme__call_done() calls its done(). */
void nvme__finish(struct nvme *n, struct tier_op *op, int status);
/* The PUT has failed: its entry is as before the PUT. */
void nvme__put_failed(struct nvme *n, struct tier_op *op, int status);
/* Calls done() of operations that have ended, and events.lost of lost blocks. */
void nvme__call_done(struct nvme *n);

/* nvme_write.c */
void nvme__write_run(struct nvme *n);
/* nvme_read.c */
void nvme__read_sort(struct nvme *n);
void nvme__read_run(struct nvme *n);
/* Ends waiting reads that are cancelled, late, or of a path that is out. */
void nvme__read_sweep(struct nvme *n);
/* nvme_sync.c */
void nvme__sync_run(struct nvme *n);
/* The extent waits for the next sync of its path. */
void nvme__written(struct nvme *n, struct nvme_path *p, uint32_t extent);
/* The extent is lost: it does not count, even if parts of it are on the medium. */
void nvme__extent_lost(struct nvme *n, uint32_t extent);
/* All extents from since_seq to the returned nvme_extent.seq are synced; if it is less than
 * since_seq: none is. */
uint64_t nvme__safe_seq(const struct nvme *n);
/* The value of NVME_KEY_FORWARD for the commit that is gathered. Returns its bytes; 0: the journal
 * has the same value. */
uint32_t nvme__forward_mark_save(struct nvme *n, uint8_t ret_value[NVME_VALUE_BYTES]);
KVC_WARN_UNUSED int nvme__forward_mark_load(struct nvme *n, const void *value, uint32_t bytes);
/* Ends the path's durable PUTs that recovery is certain to find, or that are late. status not 0:
 * the others end with it. */
void nvme__durable_end(struct nvme *n, struct nvme_path *p, int status);
/* Extents that were written to the path since its last good sync are lost. */
void nvme__sync_failed(struct nvme *n, struct nvme_path *p);
/* Whether recovery would have an entry for each block that it finds, if one more durable block
 * were on disk. */
bool nvme__have_entries(const struct nvme *n);
/* How many blocks of the extent are dead. */
static inline uint32_t nvme__dead_of(const struct nvme_extent *x)
{
    return (uint32_t)(x->items - x->records - x->live);
}
/* The journal takes no more commits: durable PUTs end with -EIO. */
void nvme__journal_failed(struct nvme *n, int error);
/* When nvme__sync_run() must run next; UINT64_MAX: no timer. */
uint64_t nvme__sync_next(const struct nvme *n);
bool nvme__sync_idle(const struct nvme *n);
/* nvme_dead.c */
/* The commit that is gathered waits until the extent's dead sector is written. */
void nvme__dead_add(struct nvme *n, uint32_t extent);
/* Whether a table is being read or written. */
bool nvme__dead_busy(const struct nvme *n);
/* Begins the writes of dead sectors that can begin now. True: the commit waits for none. */
bool nvme__dead_run(struct nvme *n);
/* nvme_confirm.c */
void nvme__confirm_frees(struct tier *t, struct tier_op *op);
void nvme__confirm_run(struct nvme *n);
/* Whether a confirm round runs: written extents are synced at once, and a commit follows. */
static inline bool nvme__confirming(const struct nvme *n)
{
    return n->confirm.phase != NVME_CF_IDLE;
}
/* nvme_reclaim.c */
uint32_t nvme__reclaim(struct tier *t, uint32_t max, tier_occupant_fn *each, void *ctx);
bool nvme__room_soon(const struct tier *t);
/* nvme_keep.c */
void nvme__make_ordinary(struct tier *t, struct tier_loc loc);
uint64_t nvme__granted(struct tier *t);
bool nvme__keep(struct tier *t, struct tier_loc loc, uint32_t block_no);
void nvme__keep_run(struct nvme *n);
void nvme__keep_abandon(struct nvme *n, struct tier_loc from);
bool nvme__keep_idle(const struct nvme *n);
/* Whether a block was freed while it moved, and its new place is not free yet. */
bool nvme__keep_abandoned(const struct nvme *n);
/* Whether a PUT is a move of reclaim. */
bool nvme__keep_owns(const struct nvme *n, const struct tier_op *op);
/* nvme_health.c */
/* Allocates n->health. -ENOMEM. */
KVC_WARN_UNUSED int nvme__health_alloc(struct nvme *n);
void nvme__health_free(struct nvme *n);
/* Bytes that nvme__health_alloc() allocates. */
uint64_t nvme__health_bytes(void);
/* Judges the path by an I/O that has ended. */
void nvme__health_io(struct nvme *n, struct nvme_path *p, const struct nvme_io *io);
/* Takes the path out of service, if it is not out. error: negative errno. */
void nvme__path_out(struct nvme *n, struct nvme_path *p, int error);
/* Counts a block whose bytes are not those that were stored. */
void nvme__count_corrupt(struct nvme *n, struct tier_loc loc);
void nvme__health_tick(struct nvme *n);
uint64_t nvme__health_next(const struct nvme *n);
/* Writes the superblock, with `formatted`, and syncs it. probe: for a path that is out, also looks
 * at the old one first and reads the new one back. */
void nvme__super_start(struct nvme *n, struct nvme_path *p, uint32_t formatted, bool probe);
/* nvme_format.c */
/* Allocates n->format. -ENOMEM; nvme__format_free() cleans up also then. */
KVC_WARN_UNUSED int nvme__format_alloc(struct nvme *n);
void nvme__format_free(struct nvme *n);
/* Bytes that nvme__format_alloc() allocates. */
uint64_t nvme__format_bytes(void);
void nvme__format_run(struct nvme *n);
/* A superblock is synced: segments up to its `formatted` come into use. */
void nvme__format_saved(struct nvme *n, struct nvme_path *p);
/* nvme_budget.c */
void nvme__budget_start(struct nvme *n, bool fresh);
KVC_WARN_UNUSED int nvme__budget_load(struct nvme *n, const void *value, uint32_t bytes);
uint32_t nvme__budget_save(struct nvme *n, uint8_t ret_value[NVME_VALUE_BYTES]);
void nvme__budget_spend(struct nvme *n, uint64_t bytes);
void nvme__budget_tick(struct nvme *n);
uint64_t nvme__budget_next(const struct nvme *n);
bool nvme__admits(const struct tier *t, uint32_t bytes, uint64_t age_ms);
/* nvme_recover.c, nvme_rebuild.c, nvme_torn.c: an extent that recovery has found, and may drop. */
struct nvme_candidate {
    uint64_t seq, gen;
    uint64_t since, safe; /* as in its table; 0: the journal named the extent */
    uint32_t extent;
    bool unsure;  /* found by its table, so maybe not synced */
    bool forward; /* found behind the extents that the journal names */
    bool unread;  /* forward: it cannot be read now */
    bool broken;  /* a record of a namespace in it is torn, so no durable PUT of it, or of
                     extents behind it, has ended with 0 */
    uint8_t dead[NVME_MAP_BYTES];
};
struct nvme_candidates {
    struct nvme_candidate *at;
    uint32_t n, cap;
};
/* Adds the extent at that place as a candidate. -ENOMEM; -ENOSPC: all extent records are in use. */
KVC_WARN_UNUSED int nvme__candidate(struct nvme *n, struct nvme_candidates *list, uint32_t seg,
                                    uint32_t page, const struct nvme_value *v);
/* Adds every extent that the tables on the paths name. whole[i]: reads all segments of path i. */
KVC_WARN_UNUSED int nvme__rebuild(struct nvme *n, const struct nvme_recovery *r,
                                  const bool whole[DISK_PATHS_MAX], struct nvme_candidates *list,
                                  struct nvme_report *report);
/* Adds, as unsure, extents that the journal does not name: they lie behind extents of the list, in
 * durable segments of which the journal names some. */
KVC_WARN_UNUSED int nvme__forward(struct nvme *n, const struct nvme_recovery *r,
                                  struct nvme_candidates *list, struct nvme_report *report);
/* Reads the blocks of unsure extents; blocks with wrong bytes become dead. An extent found forward
 * is marked `unread` if it cannot be read, and `broken` if a record in it is torn. */
KVC_WARN_UNUSED int nvme__look_at_unsure(struct nvme *n, const struct nvme_recovery *r,
                                         struct nvme_candidates *list, struct nvme_report *report);
/* After a rebuild, with the list's newest first: reads the blocks of extents that may not have been
 * synced. Blocks with other bytes than their table says become dead. */
KVC_WARN_UNUSED int nvme__rebuild_torn(struct nvme *n, const struct nvme_recovery *r,
                                       struct nvme_candidates *list, struct nvme_report *report);
/* `pages` of zeroed memory for I/O, not touched yet; NULL: no memory. */
void *nvme__buffer(uint64_t pages);
void nvme__buffer_free(void *buffer, uint64_t pages);

#endif
