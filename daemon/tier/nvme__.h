/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the NVMe tier share. Thread: control thread.
 *
 * A location is an entry of a table (nvme_entry.c); what was written at once is an extent
 * (nvme_extent.c); extents lie one behind the other in segments (nvme_seg.c) of paths. Everything
 * is named by its number.
 */
#ifndef KVC_TIER_NVME__H
#define KVC_TIER_NVME__H

#include "list.h"
#include "nvme.h"

#define NVME_NONE  UINT32_MAX
#define NVME_PAGE  DISK_PAGE_BYTES
#define NVME_RETRY 3u /* a table that cannot be read at start is read so often */

/* ---- the format (nvme_table.c); all numbers are little-endian ---- */

#define NVME_SUPER_BYTES  512u  /* one sector: it is written whole or not at all */
#define NVME_HEADER_PAGES 4u    /* of a path: superblocks on pages 0 and 1, two to spare */
#define NVME_HEAD_BYTES   128u  /* of a table */
#define NVME_ITEM_BYTES   112u  /* of each of its items */
#define NVME_ITEMS_MAX    1000u /* in a table */
#define NVME_RECORDS_MAX  8u    /* of them, namespaces */
#define NVME_TABLE_PAGES \
    ((NVME_HEAD_BYTES + NVME_ITEMS_MAX * NVME_ITEM_BYTES + NVME_PAGE - 1) / NVME_PAGE)
#define NVME_HEAD_PAGES  (NVME_TABLE_PAGES + NVME_RECORDS_MAX)
#define NVME_EXTENT_MAX  65535u /* pages */
#define NVME_VALUE_BYTES 192u   /* of the journal, for an extent */
#define NVME_MAP_BYTES   ((NVME_ITEMS_MAX + 7) / 8)

struct nvme_super {
    uint8_t uuid[16];
    uint64_t seq; /* the larger of two counts */
    uint32_t path, paths;
    uint32_t seg_pages, segments;
    uint32_t formatted; /* segments that were written once, from the first on */
    uint32_t epoch;     /* grows with each start, before anything is written */
};
/* `page` is zeroed behind it. */
void nvme__super_encode(const struct nvme_super *s, uint8_t page[NVME_PAGE]);
/* 0; -ENOENT: nothing was ever written; -EINVAL: something else is there; -EUCLEAN: damaged;
 * -EPROTONOSUPPORT: of a later version. */
KVC_WARN_UNUSED int nvme__super_decode(const uint8_t *page, struct nvme_super *ret_super);

/* Flags of tables, and of the journal's values. DEADS: of a table alone, its sector of the dead was
 * written with it; without, zeros there say that none is. */
enum { NVME_T_DURABLE = 1, NVME_T_DEADS = 2 };
struct nvme_head {
    uint8_t uuid[16];
    uint32_t flags, path, seg, page, pages; /* page: of the segment; pages: of the extent */
    uint32_t items;
    uint32_t head_pages; /* table and namespaces, which come before all payload */
    uint64_t gen;        /* of the segment */
    uint64_t seq;        /* of the extent: grows with time */
    /* Extents from `since` to `safe` had been synced when this was written, all of them, on all
     * paths. `since` 0: a table from before there was this, which does not say. */
    uint64_t since, safe;
    struct hash128 sum;
};
enum { NVME_I_RECORD = 1, NVME_I_DURABLE = 2, NVME_I_PARENT = 4, NVME_I_BY_PIN = 8 };
struct nvme_item {
    struct key256 key, parent;
    struct hash128 sum;
    uint64_t print;
    uint32_t page, bytes; /* page: of the extent */
    uint32_t tokens;      /* on disk: 16 bits with the others, the rest behind `level` */
    uint16_t shard;
    uint8_t group, flags;
    uint8_t level; /* core's: tier_label.level; 0 in tables from before there was one */
};
static inline uint32_t nvme__table_pages(uint32_t items)
{
    return (NVME_HEAD_BYTES + items * NVME_ITEM_BYTES + NVME_PAGE - 1) / NVME_PAGE;
}
/* Items first, then this: it zeroes what is behind the last one and sums it all up. */
void nvme__table_seal(uint8_t *table, struct nvme_head *head);
void nvme__item_encode(uint8_t *table, uint32_t i, const struct nvme_item *item);
/* Behind the items of a table, under a checksum of its own, which of them are dead: in the last
 * sector of its last page, so that it is written whole or not at all. Zeros: none is. */
#define NVME_DEAD_BYTES 512u
static inline bool nvme__dead_fits(uint32_t items)
{
    return nvme__table_pages(items) * NVME_PAGE - NVME_HEAD_BYTES - items * NVME_ITEM_BYTES >=
           NVME_DEAD_BYTES;
}
struct nvme_value;
/* Into the last page of the table of an extent of v, of the store `uuid`. */
void nvme__dead_encode(uint8_t *last_page, const uint8_t uuid[16], const struct nvme_value *v);
/* Adds those that the table says are dead, for head_decode() has accepted it. False: its sector is
 * neither right nor zeros, so the extent is not whole: it was being written, or written over. */
KVC_WARN_UNUSED bool nvme__dead_decode(const uint8_t *table, const struct nvme_head *h,
                                       uint8_t dead[NVME_MAP_BYTES]);
/* -ENOENT: no table, -ENOBUFS: it is longer than `bytes`, -EUCLEAN: damaged. */
KVC_WARN_UNUSED int nvme__head_decode(const uint8_t *table, uint64_t bytes,
                                      struct nvme_head *ret_head);
/* Of a table that head_decode() accepted. */
void nvme__item_decode(const uint8_t *table, uint32_t i, struct nvme_item *ret_item);
/* Whether the item lies where items of its kind may. */
bool nvme__item_ok(const struct nvme_head *head, const struct nvme_item *item);

#define NVME_KEY_META   (UINT64_C(1) << 63)
#define NVME_KEY_STORE  (NVME_KEY_META | 1) /* UUID, epoch, the epoch of each path */
#define NVME_KEY_BUDGET (NVME_KEY_META | 2)
/* Of each path a u64: extents up to that number are in the journal, or are not looked for. */
#define NVME_KEY_SETTLED (NVME_KEY_META | 3)
struct nvme_value {
    uint32_t flags, pages, items, head_pages, records;
    uint64_t gen, seq;
    struct hash128 sum;
    uint8_t dead[NVME_MAP_BYTES]; /* a bit per item */
};
static inline uint64_t nvme__key(uint32_t path, uint64_t page)
{
    return (uint64_t)path << 56 | page;
}
/* Of an extent as its table tells it, nothing of it dead. */
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
    NVME_E_NEW,     /* handed out; nothing is there */
    NVME_E_QUEUED,  /* a PUT waits */
    NVME_E_WRITING, /* or waits for sync and journal */
    NVME_E_WRITTEN, /* done() has run or is about to */
    NVME_E_LIVE     /* published */
};
enum { NVME_E_DURABLE = 1, NVME_E_TOLD = 2, NVME_E_MOVING = 4 };
struct nvme_entry {
    struct hash128 sum;
    uint32_t extent;     /* NONE: not written */
    uint32_t prev, next; /* in its extent; next: in the free list */
    uint32_t owner, bytes;
    uint16_t slot, page; /* item of the table; page of the extent */
    uint16_t readers;
    uint8_t state, flags;
};

enum nvme_extent_state {
    NVME_X_FREE,
    NVME_X_WRITING, /* or written, but something before it in its segment is not */
    NVME_X_WRITTEN, /* on its path's list `written` */
    NVME_X_SYNCING, /* on its path's list `syncing` */
    NVME_X_SYNCED,  /* on the list `synced` */
    NVME_X_COMMITTING,
    NVME_X_COMMITTED,
    NVME_X_LOST /* on the list `lost` until its last entry is gone */
};
/* DROPPED: at start not all of it was taken. UNREAD: for the next start it stays as it is. */
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
    uint32_t first;            /* entry */
    uint32_t next, seg_next;   /* in its list; in its segment, from the newest on */
    uint16_t items, live;
    uint8_t head_pages, records, state, flags;
};
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
    uint64_t gen;           /* of what is written in it now; 0: free */
    uint64_t opened_ns;     /* 0: before this start */
    uint32_t extents;       /* the newest; chained by seg_next */
    uint32_t next;          /* in the free list of its path, or among the segments to be deleted */
    uint32_t used_pages;    /* where the next extent begins */
    uint32_t live_pages;    /* of blocks that are not freed */
    uint32_t live;          /* blocks that are not freed */
    uint32_t durable_pages; /* of live_pages, those of promises */
    uint32_t pending;       /* extents whose commit or deletion is not done */
    uint32_t done_pages;    /* written without a gap, from the first on */
    uint32_t readers;       /* reads, moves and writes of tables that still need it */
    uint32_t told;          /* VICTIM: the extent that core is told of next; NONE: told of all */
    uint8_t state, path;
    bool settling; /* DELETING: a settle round waits until it is out of the journal */
    bool durable;  /* opened for promises, and has some */
    bool broken;   /* an extent was lost, so extents behind it are lost too */
    bool named;    /* the journal has an extent of this generation, so recovery finds the others */
    bool unread;   /* holds an extent whose table could not be read at start */
};

/* NVME_DURABLE: promises, which have segments of their own. */
enum nvme_class { NVME_NORMAL, NVME_DURABLE, NVME_CLASSES };
#define NVME_OPEN_PRINTS 32u
/* The segment of a path to which extents of one class are written. */
struct nvme_open {
    uint32_t seg; /* NONE: no segment is open */
    uint32_t prints;
    struct {
        uint64_t print;
        uint32_t extent;
    } print[NVME_OPEN_PRINTS]; /* namespaces that have a record in the segment, and in which extent
                                */
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
    struct nvme_extents written;       /* wait for the next sync */
    struct nvme_extents syncing;       /* are safe when the sync in flight has ended */
    uint64_t written_seq, syncing_seq; /* the lowest in each list; UINT64_MAX: it is empty */
    uint64_t written_pages;            /* since a sync was last begun */
    /* Counts of writes that told a table who died (nvme_dead.c), since the start: all; those that
     * the sync in flight covers; those that are synced. */
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
    bool absent; /* at start it could not be read, or was not there: out until the next start */
    uint32_t number;
    uint32_t first_seg, segs;
    uint32_t formatted; /* segments that are in use, from the first on: the superblock says so */
    uint32_t zeroing;   /* segments that were zeroed; those from `formatted` on not in use yet */
    uint32_t era;       /* changes when a sync fails: writes that began before it do not count */
    uint32_t writes;    /* extents in flight */
    uint64_t queued, queued_bytes; /* I/O in flight */
    struct list_node inflight;     /* the same, by nvme_io.node */
    struct nvme_open open[NVME_CLASSES];
    struct {
        uint32_t first; /* in order of place, chained by nvme_seg.next; NONE: no segment is free */
        uint32_t n;
    } free;
    struct nvme_ops durable; /* PUTs that wait for sync and journal */
    uint64_t settled;        /* the path's part of the journal's NVME_KEY_SETTLED */
    bool hold_settled;       /* `settled` stays: an extent behind it could not be read at start */
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
    bool ended, good; /* ended: the I/O has, but an extent before it in the segment has not */
    uint8_t *head;    /* NVME_HEAD_PAGES: table, then namespaces from NVME_TABLE_PAGES on */
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
    uint16_t slot;  /* item of the extent's table */
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

/* Before a commit, tables of its extents are told who died (nvme_dead.c). */
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
#define NVME_COMMIT_KEPT 2u /* changes kept free for the budget and for NVME_KEY_SETTLED */
/* The one commit to the journal: gathered, then tables are told, then it is in flight. */
struct nvme_commit {
    struct journal_commit commit;
    uint64_t due_ns;   /* when the next one begins; UINT64_MAX: there is none to come */
    bool tell_settled; /* the next one names anew what is settled, since an extent was lost */
    bool busy;         /* tables are being told, or the journal has it */
    bool telling;      /* tables are being told, and the journal has not got it yet */
    struct nvme_extents extents;    /* those that the journal had not had before */
    uint64_t dirty;                 /* nvme_dirty.out when it is done */
    uint32_t tell[NVME_COMMIT_MAX]; /* extents whose tables are told who died */
    uint32_t tell_n;                /* of them there are */
    uint32_t told;                  /* of them, begun */
    uint32_t deleted;               /* extents, chained by next */
    struct journal_change change[NVME_COMMIT_MAX];
    uint8_t value[NVME_COMMIT_MAX][NVME_VALUE_BYTES];
};

/* A settle round: freed blocks must stay away after a crash (nvme_settle.c). */
enum nvme_settle_phase { NVME_ST_IDLE, NVME_ST_OPEN, NVME_ST_TOLD, NVME_ST_SYNC };
struct nvme_settle {
    struct nvme_ops next; /* operations of tier_storage_ops.settle that wait for the next round */
    struct nvme_ops now;  /* those of this round */
    enum nvme_settle_phase phase;
    uint64_t seq;      /* OPEN: extents up to this one must be in the journal, or lost */
    uint64_t dirty;    /* TOLD: until nvme_dirty.out has reached it */
    uint32_t deleting; /* TOLD: segments that must leave the journal */
    uint64_t dead[DISK_PATHS_MAX]; /* SYNC: until dead_synced of each path has reached it */
    bool untold; /* a block died in an extent that is left as it is for the next start */
};

/* The write budget (nvme_budget.c). */
struct nvme_budget {
    uint64_t granted;    /* bytes that came since core last asked */
    int64_t tokens;      /* bytes that may be written; below 0: more was written than there were */
    uint64_t wall_ns;    /* until when the tokens are filled up */
    uint64_t day_ns;     /* wall clock: when `spent` began */
    uint64_t spent;      /* bytes written since day_ns */
    uint64_t age_max_ms; /* older blocks are refused while tokens are short */
    uint64_t step_ns;    /* when age_max_ms was last adjusted */
    bool changed;        /* since the last commit */
};

/* ---- the tier ---- */

/* Which store it is, and the numbers that it gives away. */
struct nvme_store {
    uint8_t uuid[16];
    uint32_t epoch;     /* of this start */
    uint32_t gen_count; /* generations given to segments since the start */
    uint64_t seq_count; /* nvme_extent.seq of the newest extent */
    uint64_t since_seq; /* no extent from this one on was lost */
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

/* Reclaim that gains no room, for all that it empties is written again, is tried ever more rarely.
 */
struct nvme_vain {
    uint32_t most;  /* most segments that were free or being deleted; less those PUTs took since */
    uint32_t begun; /* segments that reclaim began since there were as many */
    bool asked;     /* a PUT was refused for want of room since the last try */
    uint64_t freed_pages;        /* since they were last counted as a gain */
    uint64_t until_ns, pause_ns; /* the next try; its distance from the last one */
};
struct nvme_reclaim {
    uint64_t oldest_ns; /* when the segment begun last had been opened; 0: none since the start */
    uint64_t told_ns;   /* when core was last told of a block */
    struct nvme_vain vain;
};

/* Operations that core has submitted, by what they wait for. */
struct nvme_queues {
    struct nvme_ops put[NVME_CLASSES];
    struct nvme_ops get_new;   /* of this turn: nvme__read_sort() sorts them into get_ready */
    struct nvme_ops get_ready; /* wait for a read */
    struct nvme_ops verify;    /* wait for an nvme_verify */
    struct nvme_ops finish;    /* have ended: nvme__drain() calls their done() */
    bool draining;             /* nvme__drain() is running, so a call inside it does nothing */
};

struct nvme_health; /* nvme_health.c */
struct nvme_format; /* nvme_format.c */

struct nvme {
    struct tier tier;
    struct nvme_config c; /* complete: zeroes are replaced by what they stand for */
    struct disk *disk;
    struct journal *journal;
    struct nvme_metrics m;
    uint64_t now_ns, wall_ns; /* as nvme_tick() was last told */
    struct nvme_store store;
    bool running;      /* since recovery has ended */
    bool stopping;     /* nvme_stop() was called: nothing new begins */
    bool flushing;     /* sync and commit begin at once, until nothing is left */
    bool recovering;   /* until the first tick: core says which of the blocks found it takes */
    bool partial;      /* the start could not see all that may be there */
    bool tell_room;    /* events.room is to be called */
    bool work;         /* an I/O has ended since the queues were looked at */
    int journal_error; /* negative errno; 0: the journal works */
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
        uint64_t durable;  /* of them, of promises */
        uint64_t reserved; /* of entries that are not written */
    } pages;

    struct nvme_extents synced; /* safe on the medium; the next commit tells the journal */
    struct nvme_extents lost;   /* core is to be told of their blocks */
    /* Extents of which the journal says of some blocks that they live, and they do not. */
    struct {
        struct nvme_extents list;
        uint64_t in;  /* how many came to the list since the start */
        uint64_t out; /* how many of them a commit has told of */
    } dirty;
    /* Blocks that recovery would find though nobody holds them. */
    struct {
        uint64_t open;       /* in extents that are not synced */
        uint64_t synced;     /* in extents that are */
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
    struct nvme_settle settle;
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
/* First page of a segment on its path. */
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
/* Of an entry that was written. */
static inline struct nvme_path *nvme__entry_path(struct nvme *n, const struct nvme_entry *e)
{
    return &n->path[n->seg[n->extent[e->extent].seg].path];
}
static inline uint64_t nvme__entry_page(const struct nvme *n, const struct nvme_entry *e)
{
    return nvme__extent_page(n, &n->extent[e->extent]) + e->page;
}

/* Times of timers: the lesser. */
static inline uint64_t nvme__sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The next commit is soon. */
static inline void nvme__commit_soon(struct nvme *n)
{
    n->commit.due_ns = nvme__sooner(n->commit.due_ns, n->now_ns + n->c.sync_ns);
}

/* nvme_extent.c */
/* NONE when there are none left. */
uint32_t nvme__extent_new(struct nvme *n);
void nvme__extent_free(struct nvme *n, uint32_t extent);
void nvme__extents_push(struct nvme *n, struct nvme_extents *list, uint32_t extent);
uint32_t nvme__extents_pop(struct nvme *n, struct nvme_extents *list);
/* The journal says of some of its blocks that they are alive, and they are not. */
void nvme__dirty(struct nvme *n, uint32_t extent);
/* The journal's value for the extent. */
void nvme__value(const struct nvme *n, uint32_t extent, struct nvme_value *ret_value);

/* nvme_entry.c */
struct nvme_entry *nvme__entry(const struct nvme *n, struct tier_loc loc);
KVC_WARN_UNUSED int nvme__entry_new(struct nvme *n, uint32_t bytes, uint32_t owner,
                                    struct tier_loc *ret_loc);
/* Its room is nobody's; with what was written there it dies. */
void nvme__entry_free(struct nvme *n, struct tier_loc loc);
void nvme__entry_link(struct nvme *n, struct nvme_entry *e, uint32_t extent);
/* It is as if it had not been written. */
void nvme__entry_unlink(struct nvme *n, struct nvme_entry *e);
void nvme__not_taken(struct nvme *n, uint32_t extent);
/* At start: what is promised there and has no room now stays as it is, for a start that has. */
void nvme__hold_seg(struct nvme *n, uint32_t seg);
static inline struct tier_loc nvme__loc(const struct nvme *n, const struct nvme_entry *e)
{
    return (struct tier_loc){(uint32_t)(e - n->entry)};
}

/* nvme_seg.c */
void nvme__geometry(struct nvme *n, const struct nvme_super *super);
KVC_WARN_UNUSED int nvme__segs_alloc(struct nvme *n);
void nvme__seg_attach(struct nvme *n, uint32_t seg, uint32_t extent);
/* Takes an extent that is not in the journal out of its segment, and forgets it. */
void nvme__seg_detach(struct nvme *n, uint32_t extent);
void nvme__seg_free(struct nvme *n, uint32_t seg);
/* Segments that the journal has left, and nobody reads, are free. */
void nvme__segs_deleted(struct nvme *n);
/* Nothing is written behind what is there. */
void nvme__seg_seal(struct nvme *n, uint32_t seg);
/* A full segment without anything alive, in flight or uncommitted goes to those to be deleted. */
void nvme__seg_look(struct nvme *n, uint32_t seg);
/* Path for `pages` of a class: the one with the shortest queue; its open segment has that room
 * then. NULL: none. `moves`: reclaim's own, for which promises have no limit. */
struct nvme_path *nvme__seg_room(struct nvme *n, enum nvme_class which, bool moves, uint32_t pages);
/* Of the paths any is in service. */
bool nvme__any_up(const struct nvme *n);
uint64_t nvme__room_pages(const struct nvme *n);
/* Of it, what is not held back for what reclaim keeps. */
uint64_t nvme__put_pages(const struct nvme *n);
/* Whether a PUT of so many pages has room. If not, room was asked for: reclaim that had given up
 * tries again. */
bool nvme__put_fits(struct nvme *n, uint64_t pages);
/* Some path is still being written for the first time. */
bool nvme__formatting(const struct nvme *n);
/* The same, and it goes on: who finds no room waits for it. */
bool nvme__room_grows(const struct nvme *n);
uint32_t nvme__reserve(const struct nvme *n);
/* Of the reserve, segments that are for what moves: new PUTs find room above them only. */
uint32_t nvme__held_segs(const struct nvme *n);
/* Promises lie in so many segments that new ones soon find none, and few of these are half full:
 * reclaim merges them, however much room there is. */
bool nvme__promises_spread(const struct nvme *n);
/* tier_storage_ops.promises */
bool nvme__promises(const struct tier *t);
/* So much has gone that was there: reclaim may gain by it. */
void nvme__vain_freed(struct nvme *n, uint64_t pages);
/* Whether `pages` of this class can be written by a move now. */
bool nvme__can_move(const struct nvme *n, enum nvme_class which, uint64_t pages);
/* Pages that lasting blocks may take, so that rewriting the log does not cost too much. */
uint64_t nvme__lasting_pages(const struct nvme *n);

/* nvme_io.c */
void nvme__issue(struct nvme *n, struct nvme_io *io, enum disk_kind kind, struct nvme_path *p,
                 const struct iovec *iov, uint32_t iovs, uint64_t page, uint64_t bytes,
                 void (*end)(struct nvme_io *io));
/* It is not in flight any more, and counted. */
struct nvme_io *nvme__io_ended(struct disk_op *op);

/* nvme_ops.c */
void nvme__ops_push(struct nvme_ops *list, struct tier_op *op);
struct tier_op *nvme__ops_pop(struct nvme_ops *list);
/* Takes what follows `prev` (NULL: the first) off. */
struct tier_op *nvme__ops_cut(struct nvme_ops *list, struct tier_op *prev);
void nvme__write_submit(struct nvme *n, struct tier_op *op);
void nvme__read_submit(struct nvme *n, struct tier_op *op);
void nvme__finish(struct nvme *n, struct tier_op *op, int status);
/* The PUT has failed: its entry is as it was before it. */
void nvme__put_failed(struct nvme *n, struct tier_op *op, int status);
/* Ends operations and tells of what was lost. */
void nvme__drain(struct nvme *n);

/* nvme_write.c */
void nvme__write_run(struct nvme *n);
/* nvme_read.c */
void nvme__read_sort(struct nvme *n);
void nvme__read_run(struct nvme *n);
/* Ends what is cancelled or late. */
void nvme__read_sweep(struct nvme *n);
/* nvme_sync.c */
void nvme__sync_run(struct nvme *n);
/* The extent waits for the next sync of its path. */
void nvme__written(struct nvme *n, struct nvme_path *p, uint32_t extent);
/* The extent does not count, whatever of it is on the medium. */
void nvme__extent_lost(struct nvme *n, uint32_t extent);
/* Extents from since_seq to this one have been synced; less than since_seq: none. */
uint64_t nvme__safe_seq(const struct nvme *n);
/* The value of NVME_KEY_SETTLED, if there were a commit of all that is synced. Returns its bytes;
 * 0: it is what the journal has. */
uint32_t nvme__settled_save(struct nvme *n, uint8_t ret_value[NVME_VALUE_BYTES]);
KVC_WARN_UNUSED int nvme__settled_load(struct nvme *n, const void *value, uint32_t bytes);
void nvme__durable_settle(struct nvme *n, struct nvme_path *p, int status);
/* All that was written to the path since its last good sync is lost. */
void nvme__sync_failed(struct nvme *n, struct nvme_path *p);
/* Whether there would be entries for all that recovery finds, if a promise more were on disk. */
bool nvme__have_entries(const struct nvme *n);
/* Of an extent, blocks that nobody holds. */
static inline uint32_t nvme__dead_of(const struct nvme_extent *x)
{
    return (uint32_t)(x->items - x->records - x->live);
}
/* No commit follows: what is not in the journal will not be. */
void nvme__journal_failed(struct nvme *n, int error);
uint64_t nvme__sync_next(const struct nvme *n);
bool nvme__sync_idle(const struct nvme *n);
/* nvme_dead.c */
/* The extent is one whose table the next commit waits for. */
void nvme__dead_add(struct nvme *n, uint32_t extent);
bool nvme__dead_busy(const struct nvme *n);
/* Begins what can be; true: all has ended. */
bool nvme__dead_run(struct nvme *n);
/* nvme_settle.c */
void nvme__settle(struct tier *t, struct tier_op *op);
void nvme__settle_run(struct nvme *n);
/* All that is written is to be synced now, and a commit to follow. */
static inline bool nvme__settling(const struct nvme *n)
{
    return n->settle.phase != NVME_ST_IDLE;
}
/* nvme_reclaim.c */
uint32_t nvme__reclaim(struct tier *t, uint32_t max, tier_occupant_fn *each, void *ctx);
bool nvme__room_soon(const struct tier *t);
/* nvme_keep.c */
void nvme__unpromise(struct tier *t, struct tier_loc loc);
uint64_t nvme__granted(struct tier *t);
bool nvme__keep(struct tier *t, struct tier_loc loc, uint32_t owner);
void nvme__keep_run(struct nvme *n);
void nvme__keep_abandon(struct nvme *n, struct tier_loc from);
bool nvme__keep_idle(const struct nvme *n);
/* Some block that is written again was freed meanwhile: its new place is not free yet. */
bool nvme__keep_abandoned(const struct nvme *n);
/* Whether a PUT is one of reclaim's own. */
bool nvme__keep_owns(const struct nvme *n, const struct tier_op *op);
/* nvme_health.c */
/* n->health. -ENOMEM. */
KVC_WARN_UNUSED int nvme__health_alloc(struct nvme *n);
void nvme__health_free(struct nvme *n);
/* Bytes that nvme__health_alloc() allocates. */
uint64_t nvme__health_bytes(void);
void nvme__health_io(struct nvme *n, struct nvme_path *p, const struct nvme_io *io);
void nvme__path_out(struct nvme *n, struct nvme_path *p, int error);
/* Bytes that are not those that were stored. */
void nvme__count_corrupt(struct nvme *n, struct tier_loc loc);
void nvme__health_tick(struct nvme *n);
uint64_t nvme__health_next(const struct nvme *n);
/* Writes the superblock, reads it back (probe) and syncs. */
void nvme__super_start(struct nvme *n, struct nvme_path *p, uint32_t formatted, bool probe);
/* nvme_format.c */
/* n->format. -ENOMEM. */
KVC_WARN_UNUSED int nvme__format_alloc(struct nvme *n);
void nvme__format_free(struct nvme *n);
/* Bytes that nvme__format_alloc() allocates. */
uint64_t nvme__format_bytes(void);
void nvme__format_run(struct nvme *n);
void nvme__format_saved(struct nvme *n, struct nvme_path *p);
/* nvme_budget.c */
void nvme__budget_start(struct nvme *n, bool fresh);
KVC_WARN_UNUSED int nvme__budget_load(struct nvme *n, const void *value, uint32_t bytes);
uint32_t nvme__budget_save(struct nvme *n, uint8_t ret_value[NVME_VALUE_BYTES]);
void nvme__budget_spend(struct nvme *n, uint64_t bytes);
void nvme__budget_tick(struct nvme *n);
uint64_t nvme__budget_next(const struct nvme *n);
bool nvme__admits(const struct tier *t, uint32_t bytes, uint64_t age_ms);
/* nvme_recover.c, nvme_rebuild.c, nvme_torn.c: what is known of an extent before its table was
 * read. */
struct nvme_candidate {
    uint64_t seq, gen;
    uint64_t since, safe; /* as in its table; by the journal: 0 */
    uint32_t extent;
    bool unsure;  /* found by its table: it may not have been synced */
    bool forward; /* behind what the journal names */
    bool unread;  /* forward: it cannot be read now */
    bool broken;  /* forward: a namespace's record is torn, so nothing from here on was promised */
    uint8_t dead[NVME_MAP_BYTES];
};
struct nvme_candidates {
    struct nvme_candidate *at;
    uint32_t n, cap;
};
/* An extent of that place, as candidate. -ENOMEM; -ENOSPC: there are too many. */
KVC_WARN_UNUSED int nvme__candidate(struct nvme *n, struct nvme_candidates *list, uint32_t seg,
                                    uint32_t page, const struct nvme_value *v);
/* Every extent that the tables of a segment name. */
KVC_WARN_UNUSED int nvme__rebuild(struct nvme *n, const struct nvme_recovery *r,
                                  const bool whole[DISK_PATHS_MAX], struct nvme_candidates *list,
                                  struct nvme_report *report);
/* Extents behind those of the list that the journal does not name, in durable segments of which
 * it names some: added to it, and unsure. */
KVC_WARN_UNUSED int nvme__forward(struct nvme *n, const struct nvme_recovery *r,
                                  struct nvme_candidates *list, struct nvme_report *report);
/* Blocks of extents that are unsure are read, and those with other bytes become dead. What is
 * found forward is marked instead when it cannot be read, or has lost a record. */
KVC_WARN_UNUSED int nvme__look_at_unsure(struct nvme *n, const struct nvme_recovery *r,
                                         struct nvme_candidates *list, struct nvme_report *report);
/* What a rebuild has found, the newest first: blocks of extents that may not have been synced are
 * read, and those that have other bytes than their table says become dead. */
KVC_WARN_UNUSED int nvme__rebuild_torn(struct nvme *n, const struct nvme_recovery *r,
                                       struct nvme_candidates *list, struct nvme_report *report);
/* `pages` of zeroed memory for I/O, not touched yet; NULL: none. */
void *nvme__buffer(uint64_t pages);
void nvme__buffer_free(void *buffer, uint64_t pages);

#endif
