/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at LMDB's file page by page, before LMDB does, for LMDB believes what it reads: a page
 * that is marked as several makes it write memory that it does not own, and a damaged free list
 * makes it write over pages in use, long after the start.
 *
 * The format is version 1 of LMDB's data file, as LMDB 0.9 writes it on a little-endian machine
 * with pointers of 8 bytes (mdb.c: MDB_page, MDB_node, MDB_meta, MDB_db). Both of its B+trees, the
 * free list and the records, are walked from their roots; each page belongs to one of them, or to
 * the free list, or is one of the two meta pages, and there are no others.
 */
#include "meta__.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys.h"

#define MAGIC           0xbeefc0deu
#define DATA_VERSION    1u
#define PAGE_BRANCH     0x01u
#define PAGE_LEAF       0x02u
#define PAGE_OVERFLOW   0x04u
#define PAGE_META       0x08u
#define NODE_BIG        0x01u /* the node has the number of its first overflow page, not data */
#define FREE_LIST_FLAGS 0x08u /* flags of the free list's tree: its keys are numbers */
#define NO_PAGE         UINT64_MAX
#define FIRST_PAGE      2u /* the first one after the two meta pages */
#define DEPTH_MAX       32u
#define KEY_MAX         511u
#define HEAD_BYTES      16u /* head of a page */
#define NODE_BYTES      8u  /* head of a node */
#define PAGE_MIN        512u
#define PAGE_MAX        65536u
/* Most pages up to root.last_page that the file may lack: a transaction that took pages and gave
 * them back does not write them. */
#define SPARE_PAGES 65536u

struct head {
    uint64_t number;
    uint16_t pad;
    uint16_t flags;
    uint16_t lower; /* end of the node offsets */
    uint16_t upper; /* first byte of the nodes */
};

struct tree {
    uint32_t page_bytes; /* of the free list's only */
    uint16_t flags;
    uint16_t depth;
    uint64_t branches, leaves, overflows, entries;
    uint64_t root;
};

struct root {
    uint32_t magic, version;
    uint64_t address, map_bytes;
    struct tree free_list, records;
    uint64_t last_page;
    uint64_t transaction;
};

_Static_assert(sizeof(struct head) == HEAD_BYTES && sizeof(struct tree) == 48 &&
                   sizeof(struct root) == 136,
               "LMDB's own");

struct pages {
    const uint8_t *base; /* the file */
    uint64_t bytes;
    uint64_t page_bytes;
    struct root root;
    uint8_t *used; /* a byte for each page up to root.last_page */
    uint64_t n_used;
    struct tree seen;     /* counts of the tree that is being walked */
    bool is_free_list;    /* the tree that is being walked is the free list's */
    uint64_t list_before; /* the key (transaction) of the last list in it that was read */
    const char *why;
};

static bool meta_pages_wrong(struct pages *p, const char *why)
{
    if (!p->why)
        p->why = why;
    return false;
}

static const uint8_t *meta_pages_page_at(const struct pages *p, uint64_t number)
{
    return p->base + number * p->page_bytes;
}

static uint16_t u16_at(const uint8_t *bytes)
{
    uint16_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint64_t u64_at(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

/* --- the meta pages --- */

static bool read_root(const struct pages *p, uint64_t page_bytes, unsigned which,
                      struct root *ret_root)
{
    struct head head;
    const uint8_t *at = p->base + which * page_bytes;
    memcpy(&head, at, sizeof head);
    memcpy(ret_root, at + HEAD_BYTES, sizeof *ret_root);
    return head.number == which && head.flags == PAGE_META && ret_root->magic == MAGIC &&
           ret_root->version == DATA_VERSION;
}

/* Picks the meta page of the later transaction, as LMDB does. Transactions write them in turn. */
static bool pages_pick_root(struct pages *p)
{
    struct root root[2];
    if (p->bytes < HEAD_BYTES + sizeof root[0] || !read_root(p, 0, 0, &root[0]))
        return meta_pages_wrong(p, "its first page is damaged");
    p->page_bytes = root[0].free_list.page_bytes;
    if (!IS_POW2(p->page_bytes) || p->page_bytes < PAGE_MIN || p->page_bytes > PAGE_MAX ||
        p->bytes < FIRST_PAGE * p->page_bytes)
        return meta_pages_wrong(p, "its page size is damaged");
    if (!read_root(p, p->page_bytes, 1, &root[1]) || root[1].free_list.page_bytes != p->page_bytes)
        return meta_pages_wrong(p, "its second page is damaged");
    const uint64_t t0 = root[0].transaction;
    const uint64_t t1 = root[1].transaction;
    const bool is_new = t0 == 0 && t1 == 0;
    if (!is_new && (t0 % 2 != 0 || (t1 != t0 + 1 && t1 + 1 != t0)))
        return meta_pages_wrong(p, "the numbers of its transactions are damaged");
    p->root = root[t1 > t0];
    if (p->root.last_page + 1 < FIRST_PAGE ||
        p->root.last_page > p->bytes / p->page_bytes + SPARE_PAGES)
        return meta_pages_wrong(p, "it says that it is larger than its file");
    return true;
}

/* --- pages and nodes --- */

static bool pages_mark(struct pages *p, uint64_t number)
{
    MUST(p->used != NULL);
    if (number < FIRST_PAGE || number > p->root.last_page || p->used[number])
        return meta_pages_wrong(p, "a page is in use twice, or free and in use");
    p->used[number] = 1;
    p->n_used++;
    return true;
}

/* Marks a page as used. False: it is used twice, not in the file, or not the page expected. */
static bool pages_take(struct pages *p, uint64_t number, uint16_t flags, struct head *ret_head)
{
    if (!pages_mark(p, number))
        return false;
    if (number >= p->bytes / p->page_bytes)
        return meta_pages_wrong(p, "a page is behind the end of its file");
    memcpy(ret_head, meta_pages_page_at(p, number), sizeof *ret_head);
    if (ret_head->number != number || ret_head->flags != flags)
        return meta_pages_wrong(p, "a page is not what it should be");
    return true;
}

static bool overflow_take(struct pages *p, uint64_t number, uint64_t bytes)
{
    struct head head;
    uint32_t count;
    if (!pages_take(p, number, PAGE_OVERFLOW, &head))
        return false;
    memcpy(&count, meta_pages_page_at(p, number) + 12, sizeof count);
    if (count < (HEAD_BYTES - 1 + bytes) / p->page_bytes + 1 ||
        count > p->bytes / p->page_bytes - number)
        return meta_pages_wrong(p, "a page is not what it should be");
    for (uint32_t i = 1; i < count; i++)
        if (!pages_mark(p, number + i))
            return false;
    p->seen.overflows += count;
    return true;
}

/* Marks the pages of a free list: their count, then their numbers in falling order, which LMDB
 * needs to merge lists. */
static bool free_list_mark(struct pages *p, const uint8_t *key, uint16_t key_bytes,
                           const uint8_t *list, uint64_t bytes)
{
    const uint64_t n = bytes >= 8 ? u64_at(list) : 0;
    if (key_bytes != 8 || bytes < 8 || n > bytes / 8 - 1)
        return meta_pages_wrong(p, "a free list is damaged");
    const uint64_t transaction = u64_at(key);
    if (transaction <= p->list_before || transaction > p->root.transaction)
        return meta_pages_wrong(p, "a free list is damaged");
    p->list_before = transaction;
    for (uint64_t i = 1; i <= n; i++) {
        const uint64_t number = u64_at(list + 8 * i);
        if (i > 1 && number >= u64_at(list + 8 * (i - 1)))
            return meta_pages_wrong(p, "a free list is damaged");
        if (!pages_mark(p, number))
            return false;
    }
    return true;
}

struct node {
    const uint8_t *key;
    uint16_t key_bytes;
    uint64_t child;      /* branch: the page below it */
    const uint8_t *data; /* leaf: its data */
    uint64_t data_bytes;
    uint16_t flags;
    uint64_t bytes; /* size on its page, with the head */
};

/* A node's head is the size of its data (4 bytes; on a branch the child's number, 6 bytes, its
 * upper part where the flags would be), flags (2) and size of the key (2). */
static struct node node_read(const uint8_t *at, bool is_branch)
{
    struct node n = {.key = at + NODE_BYTES, .key_bytes = u16_at(at + 6)};
    const uint64_t low = u16_at(at) | (uint64_t)u16_at(at + 2) << 16;
    const uint16_t flags = u16_at(at + 4);
    n.bytes = NODE_BYTES + n.key_bytes;
    if (is_branch) {
        n.child = low | (uint64_t)flags << 32;
    } else {
        n.flags = flags;
        n.data_bytes = low;
        n.data = n.key + n.key_bytes;
        n.bytes += flags & NODE_BIG ? sizeof(uint64_t) : low;
    }
    n.bytes += n.bytes % 2;
    return n;
}

static bool leaf_node_look(struct pages *p, const struct node *n)
{
    const uint8_t *data = n->data;
    p->seen.entries++;
    if ((n->flags & ~NODE_BIG) != 0)
        return meta_pages_wrong(p, "a node is not what it should be");
    if (n->flags & NODE_BIG) {
        const uint64_t first = u64_at(n->data);
        if (!overflow_take(p, first, n->data_bytes))
            return false;
        data = meta_pages_page_at(p, first) + HEAD_BYTES;
    }
    return !p->is_free_list || free_list_mark(p, n->key, n->key_bytes, data, n->data_bytes);
}

/* Whether the nodes of a page lie between `upper` and its end, and do not overlap. */
static bool nodes_fit(struct pages *p, const uint8_t *page, const struct head *head)
{
    const bool is_branch = head->flags == PAGE_BRANCH;
    const unsigned n = (head->lower - HEAD_BYTES) / 2;
    uint8_t taken[PAGE_MAX / 2];
    MUST(p->page_bytes / 2 <= sizeof taken && head->lower >= HEAD_BYTES);
    memset(taken, 0, p->page_bytes / 2);
    for (unsigned i = 0; i < n; i++) {
        const uint16_t at = u16_at(page + HEAD_BYTES + 2 * (size_t)i);
        if (at % 2 != 0 || at < head->upper || at + NODE_BYTES > p->page_bytes)
            return meta_pages_wrong(p, "a node is not where it should be");
        const struct node node = node_read(page + at, is_branch);
        if (node.key_bytes > KEY_MAX || node.bytes > p->page_bytes - at)
            return meta_pages_wrong(p, "a node is not what it should be");
        for (uint64_t word = at / 2; word < (at + node.bytes) / 2; word++) {
            if (taken[word])
                return meta_pages_wrong(p, "a node lies over another");
            taken[word] = 1;
        }
    }
    return true;
}

/* Checks a page of nodes and all pages below it. DEPTH_MAX bounds the recursion. */
static bool tree_walk(struct pages *p, uint64_t number, unsigned depth)
{
    const bool is_branch = depth > 1;
    struct head head;
    MUST(depth >= 1 && depth <= DEPTH_MAX);
    if (!pages_take(p, number, is_branch ? PAGE_BRANCH : PAGE_LEAF, &head))
        return false;
    const unsigned fewest = is_branch && !p->is_free_list ? 2 : 1; /* LMDB asserts this */
    if (head.lower < HEAD_BYTES + 2 * fewest || head.lower % 2 != 0 || head.lower > head.upper ||
        head.upper > p->page_bytes)
        return meta_pages_wrong(p, "a page's head is damaged");
    const uint8_t *page = meta_pages_page_at(p, number);
    if (!nodes_fit(p, page, &head))
        return false;
    *(is_branch ? &p->seen.branches : &p->seen.leaves) += 1;
    for (unsigned at = HEAD_BYTES; at < head.lower; at += 2) {
        const struct node n = node_read(page + u16_at(page + at), is_branch);
        if (!(is_branch ? tree_walk(p, n.child, depth - 1) : leaf_node_look(p, &n)))
            return false;
    }
    return true;
}

/* Checks a tree: its pages, and its counts against the pages that were seen. */
static bool tree_look(struct pages *p, const struct tree *t, bool is_free_list)
{
    memset(&p->seen, 0, sizeof p->seen);
    p->is_free_list = is_free_list;
    if (t->flags != (is_free_list ? FREE_LIST_FLAGS : 0))
        return meta_pages_wrong(p, "the flags of a tree are damaged");
    if (t->depth > DEPTH_MAX || (t->depth == 0) != (t->root == NO_PAGE))
        return meta_pages_wrong(p, "the root of a tree is damaged");
    if (t->depth > 0 && !tree_walk(p, t->root, t->depth))
        return false;
    if (t->entries != p->seen.entries)
        return meta_pages_wrong(p, "entries are missing");
    return (t->branches == p->seen.branches && t->leaves == p->seen.leaves &&
            t->overflows == p->seen.overflows) ||
           meta_pages_wrong(p, "pages are missing");
}

static int pages_look(struct pages *p)
{
    if (!pages_pick_root(p))
        return -EUCLEAN;
    p->used = sys_calloc(p->root.last_page + 1, 1);
    if (!p->used)
        return -ENOMEM;
    const bool ok = tree_look(p, &p->root.records, false) && tree_look(p, &p->root.free_list, true);
    free(p->used);
    if (ok && FIRST_PAGE + p->n_used != p->root.last_page + 1)
        (void)meta_pages_wrong(p, "pages are missing");
    return p->why ? -EUCLEAN : 0;
}

static int file_look(struct pages *p, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_size == 0) {
        (void)meta_pages_wrong(p, "it is empty");
        return -EUCLEAN;
    }
    void *map = sys_mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd);
    if (map == MAP_FAILED)
        return -errno;
    p->base = map;
    p->bytes = (uint64_t)st.st_size;
    const int r = pages_look(p);
    (void)munmap(map, (size_t)st.st_size);
    return r;
}

int meta__pages_check(const char *dir, char *ret_why)
{
    struct pages p = {0};
    char file[4096];
    const int n = snprintf(file, sizeof file, "%s/data.mdb", dir);
    if (n < 0 || (size_t)n >= sizeof file)
        return -ENAMETOOLONG;
    const int fd = sys_open(file, O_RDONLY | O_CLOEXEC, 0);
    const int r = fd < 0 ? -errno : file_look(&p, fd);
    if (fd >= 0)
        (void)close(fd);
    if (r < 0)
        snprintf(ret_why, META_WHY_BYTES, "data.mdb: %s", p.why ? p.why : strerror(-r));
    return r;
}
