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
    NVME_S_OPEN,
    NVME_S_FULL,
    NVME_S_VICTIM,  /* full, and its occupants are being told to go */
    NVME_S_DELETING /* empty; its extents leave the journal */
};
struct nvme_seg {
    uint64_t gen;
    uint64_t opened_ns; /* 0: by an earlier life */
    uint32_t extents;   /* the newest; chained by seg_next */
    uint32_t next;      /* in a list of segments */
    uint32_t used_pages, live_pages, live, durable_pages;
    uint32_t pending;    /* extents that are not in the journal yet */
    uint32_t done_pages; /* written without a gap, from the first on */
    uint32_t readers;
    uint32_t told; /* of a victim: the extent that is being told, NONE: all were */
    uint8_t state, path;
    bool settling; /* DELETING: what is settled waits until it has gone */
    bool durable;
    bool broken; /* an extent was lost: what is behind it is lost too */
    bool named;  /* the journal has an extent of this generation, so the rest is found */
    bool unread; /* holds an extent whose table could not be read at start */
};

enum nvme_class { NVME_NORMAL, NVME_DURABLE, NVME_CLASSES };
#define NVME_OPEN_PRINTS 32u
struct nvme_open {
    uint32_t seg; /* NONE: none */
    uint32_t prints;
    struct {
        uint64_t print;
        uint32_t extent;
    } print[NVME_OPEN_PRINTS];
};

struct nvme;
struct nvme_io {
    struct disk_op op;
    struct list_node node; /* of its path's `inflight`, oldest first */
    struct nvme *n;
    uint64_t start_ns;
    bool parts; /* a read of several blocks: if it fails they are read one by one */
    void (*end)(struct nvme_io *io);
};

struct nvme_ops {
    struct tier_op *head, *tail;
    uint64_t bytes;
    uint32_t n;
};

enum nvme_super_phase { NVME_SB_IDLE, NVME_SB_LOOK, NVME_SB_WRITE, NVME_SB_READ, NVME_SB_SYNC };
struct nvme_path {
    enum nvme_path_state state;
    int error;
    bool absent; /* at start it could not be read, or was not there: out until the next */
    uint32_t number, first_seg, segs, formatted;
    uint32_t zeroing;      /* segments before this one are written, but not in the superblock */
    uint32_t zero_target;  /* where the batch ends */
    uint32_t zero_page;    /* of the segment `zeroing` */
    uint32_t era;          /* changes when a sync fails */
    uint32_t errors_row;   /* failed reads since the last good I/O, at places that differ */
    uint64_t bad_off;      /* of the last of them */
    uint32_t writes;       /* extents in flight */
    uint64_t queued_bytes; /* in flight */
    uint64_t queued;
    struct list_node inflight;
    struct nvme_open open[NVME_CLASSES];
    uint32_t free_seg, free_segs;
    struct nvme_extents written, syncing;
    uint64_t written_seq, syncing_seq; /* the lowest in each; UINT64_MAX: it is empty */
    struct nvme_ops durable;           /* PUTs that wait for sync and journal */
    struct nvme_io sync;
    bool sync_busy;
    uint64_t sync_due_ns;                           /* UINT64_MAX: nothing to sync */
    uint64_t dead_wrote, dead_syncing, dead_synced; /* tables that say who died; of them, synced */
    uint64_t written_pages;                         /* since a sync was last begun */
    uint64_t settled;  /* what the journal has under NVME_KEY_SETTLED */
    bool hold_settled; /* it stays: what is behind it could not be read at start */
    /* superblock */
    uint64_t super_seq;
    enum nvme_super_phase super_phase;
    bool super_probe;         /* what is written decides whether the path comes back */
    uint32_t super_formatted; /* what is being written */
    struct nvme_io super_io;
    struct iovec super_iov;
    uint8_t *super_page;
    struct nvme_io zero_io;
    struct iovec zero_iov[16];
    bool zero_busy;
    uint64_t probe_ns, pause_ns, since_ns;
    uint64_t reads, writes_done, syncs, read_bytes, write_bytes, errors, outs, corrupt;
    struct histo read_ns, write_ns;
};

/* ---- I/O that is in flight ---- */

struct nvme_write {
    struct nvme_io io;
    struct nvme_write *next;
    struct tier_op *ops;
    uint32_t extent, path, era;
    bool ended, good;
    uint8_t *head; /* NVME_HEAD_PAGES: table, then namespaces from NVME_TABLE_PAGES on */
    struct iovec iov[DISK_IOV_MAX];
};
#define NVME_READ_IOVS 512u
struct nvme_read {
    struct nvme_io io;
    struct nvme_read *next;
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

/* Moves blocks of one extent to new room. */
#define NVME_MOVE_ITEMS 128u
struct nvme_move {
    struct tier_op op; /* loc: where it goes */
    struct tier_loc from;
    uint32_t page; /* of the extent */
    uint16_t slot;
    bool abandoned; /* core has freed `from` meanwhile */
    bool ended;
};
enum nvme_mover_phase { NVME_M_IDLE, NVME_M_HEAD, NVME_M_PAYLOAD, NVME_M_WRITE };
struct nvme_mover {
    struct nvme *n;
    struct nvme_io io;
    enum nvme_mover_phase phase;
    uint32_t items, left;
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
    uint32_t extent, seg; /* extent: NONE when the commit did not wait for it */
    bool busy;
    bool buries; /* what is written says that all of the extent is dead */
};

#define NVME_COMMIT_MAX  1024u
#define NVME_COMMIT_KEPT 2u /* of them, for the budget and what is settled */
struct nvme_commit {
    struct journal_commit commit;
    bool busy;
    struct nvme_extents extents; /* whose first commit this is */
    uint64_t dirty;              /* what `dirty_out` is when it is done */
    bool telling;                /* tables are told first */
    uint32_t told, tell_n;       /* of `tell`: begun; there are */
    uint32_t tell[NVME_COMMIT_MAX];
    uint32_t deleted; /* extents, chained by next */
    struct journal_change change[NVME_COMMIT_MAX];
    uint8_t value[NVME_COMMIT_MAX][NVME_VALUE_BYTES];
};

/* Freed blocks must stay away after a crash (nvme_settle.c). */
enum nvme_settle_phase { NVME_ST_IDLE, NVME_ST_OPEN, NVME_ST_TOLD, NVME_ST_SYNC };
struct nvme_settle {
    struct nvme_ops next, now; /* tier_storage_ops.settle: of the next round, and of this one */
    enum nvme_settle_phase phase;
    uint64_t seq;      /* OPEN: extents up to this one are to be in the journal, or lost */
    uint64_t dirty;    /* TOLD: so many are to have been in a commit since they were dirty */
    uint32_t deleting; /* TOLD: segments that are to be out of the journal */
    uint64_t dead[DISK_PATHS_MAX]; /* SYNC: so many tables of each path are to be synced */
    bool untold; /* something died in an extent that is left as it is for the next start */
};

struct nvme_budget {
    uint64_t granted; /* what came, since core last asked */
    int64_t tokens;
    uint64_t wall_ns, day_ns, spent;
    uint64_t age_max_ms;
    uint64_t step_ns;
    bool changed;
};

struct nvme {
    struct tier tier;
    struct nvme_config c;
    struct disk *disk;
    struct journal *journal;
    struct nvme_metrics m;
    uint64_t now_ns, wall_ns;
    uint8_t uuid[16];
    uint32_t epoch;
    uint32_t gen_count;
    uint64_t seq_count;
    uint64_t since_seq; /* of extents from here on none was lost */
    bool running, stopping, flushing;
    bool recovering; /* until the first tick: core says what of what was found it takes */
    bool partial;    /* the start could not see all that may be there */
    int journal_error;
    uint64_t look_ns; /* then it is looked whether paths and journal are there still */
    uint64_t share_bytes[DISK_PATHS_MAX];
    uint32_t paths, seg_pages, segs;

    struct nvme_entry *entry; /* [0] is not used */
    uint32_t entries_max, entries_fresh, entry_free, entries_used;
    struct nvme_extent *extent;
    uint32_t extents_max, extents_fresh, extent_free, extents_used;
    struct nvme_seg *seg;
    uint32_t segs_free, segs_deleting, segs_victim, segs_durable;
    uint64_t oldest_ns; /* when what was reclaimed last had been opened; 0: not in this life */
    uint64_t told_ns;   /* when reclaim last told core of an occupant */
    struct {
        uint32_t most;  /* segments that were free or about to be; less by those that PUTs took */
        uint32_t begun; /* by reclaim since they were as many */
        bool asked;     /* for room that there was not, since the last of these */
        uint64_t freed_pages, until_ns, pause_ns;
    } vain;
    uint32_t delete_head; /* segments that go, chained */
    struct nvme_path path[DISK_PATHS_MAX];
    uint32_t turn_path; /* where the search for a path begins */
    uint64_t live_pages, durable_pages, reserved_pages;

    struct nvme_extents synced, dirty, lost;
    struct nvme_ops put[NVME_CLASSES], get_new, get_ready, verify_wait, finish;
    uint64_t write_inflight, read_inflight;
    uint32_t ios;                        /* in flight */
    void (*io_done)(struct disk_op *op); /* of each of them */
    struct nvme_write *write, *write_free;
    struct nvme_read *read, *read_free;
    uint32_t writes_n, reads_n;
    struct nvme_verify verify[NVME_VERIFIES];
    struct nvme_mover mover[NVME_MOVERS];
    struct nvme_keep *keep;
    uint32_t keep_head, keeps;
    struct nvme_commit commit;
    struct nvme_dead dead[NVME_DEADS];
    struct nvme_settle settle;
    uint64_t dirty_in, dirty_out; /* extents that came on the list; that a commit has told of */
    struct nvme_budget budget;
    uint64_t commit_due_ns; /* UINT64_MAX: nothing */
    bool tell_settled;      /* an extent was lost, and is not to be looked for */
    /* Blocks that recovery would find though nobody holds them: in extents that are not synced, in
     * those that are, and those that the commit in flight tells of. */
    uint64_t deaths_open, deaths_new, deaths_commit;
    bool tell_room, draining;
    bool work;     /* an I/O has ended since the queues were looked at */
    uint8_t *zero; /* NVME_ZERO_BYTES */
};
#define NVME_ZERO_BYTES (UINT64_C(64) << 10)

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
    n->commit_due_ns = nvme__sooner(n->commit_due_ns, n->now_ns + n->c.sync_ns);
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
void nvme__health_io(struct nvme *n, struct nvme_path *p, const struct nvme_io *io);
void nvme__path_out(struct nvme *n, struct nvme_path *p, int error);
/* Bytes that are not those that were stored. */
void nvme__count_corrupt(struct nvme *n, struct tier_loc loc);
void nvme__health_tick(struct nvme *n);
uint64_t nvme__health_next(const struct nvme *n);
/* Writes the superblock, reads it back (probe) and syncs. */
void nvme__super_start(struct nvme *n, struct nvme_path *p, uint32_t formatted, bool probe);
/* nvme_format.c */
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
