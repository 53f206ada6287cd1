/* SPDX-License-Identifier: Apache-2.0 */
/* Maps chunks of the daemon's memory read-only, and unmaps them when no hold refers to them. */
#include "map.h"
#include "must.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "sys.h"

static void list_unmapped(struct map_table *t, struct map *m)
{
    m->next = t->unmapped;
    t->unmapped = m;
}

static void map_destroy(struct map *m)
{
    MUST(m->refs == 0 && m->retired);
    bool is_owed = m->on != NULL && m->link == m->table->link;
    if (m->pinned != NULL)
        m->pinned->ops->unpin(m->pinned, (void *)(uintptr_t)m->base);
    device__unref(m->pinned);
    if (m->on != NULL)
        m->on->ops->free(m->on, &m->memory);
    device__unref(m->on);
    (void)munmap((void *)(uintptr_t)m->base, m->bytes);
    if (is_owed)
        list_unmapped(m->table, m);
    else
        free(m);
}

static void retire(struct map_table *t, struct map **at)
{
    struct map *m = *at;
    MUST(!m->retired && t->count > 0);
    *at = m->next;
    m->next = NULL;
    m->retired = true;
    t->count--;
    if (m->refs == 0)
        map_destroy(m);
}

struct map *map__find(const struct map_table *t, uint32_t chunk)
{
    struct map *m = t->bucket[chunk % MAP_BUCKETS];
    while (m != NULL && m->chunk != chunk)
        m = m->next;
    return m;
}

int map__add(struct map_table *t, uint32_t chunk, int fd, uint64_t bytes)
{
    if (map__find(t, chunk) != NULL)
        return 0;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -errno;
    /* Reading past the end of a file raises SIGBUS. */
    if (bytes == 0 || st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return -EINVAL;
    struct map *m = sys_calloc(1, sizeof(*m));
    if (m == NULL)
        return -ENOMEM;
    void *base = sys_map_file(bytes, PROT_READ, fd);
    if (base == MAP_FAILED) {
        int rc = -errno;
        free(m);
        return rc;
    }
    m->base = base;
    m->bytes = bytes;
    m->chunk = chunk;
    m->table = t;
    m->link = t->link;
    m->next = t->bucket[chunk % MAP_BUCKETS];
    t->bucket[chunk % MAP_BUCKETS] = m;
    t->count++;
    return 0;
}

void map__ref(struct map *m)
{
    m->refs++;
}

void map__unref(struct map *m)
{
    MUST(m->refs > 0);
    if (--m->refs == 0 && m->retired)
        map_destroy(m);
}

void map__retire(struct map_table *t, uint32_t chunk)
{
    struct map **at = &t->bucket[chunk % MAP_BUCKETS];
    while (*at != NULL && (*at)->chunk != chunk)
        at = &(*at)->next;
    if (*at != NULL)
        retire(t, at);
}

void map__said(struct map_table *t)
{
    struct map *m = t->unmapped;
    MUST(m != NULL);
    t->unmapped = m->next;
    free(m);
}

void map__declined(struct map_table *t, uint32_t chunk)
{
    struct map *m = sys_calloc(1, sizeof(*m));
    if (m == NULL)
        return;
    m->chunk = chunk;
    list_unmapped(t, m);
}

void map__retire_all(struct map_table *t)
{
    t->link++;
    while (t->unmapped != NULL)
        map__said(t);
    for (uint32_t i = 0; i < MAP_BUCKETS && t->count > 0; i++) {
        while (t->bucket[i] != NULL)
            retire(t, &t->bucket[i]);
    }
}

void map__forget(struct map_table *t, const struct device *d)
{
    for (uint32_t i = 0; i < MAP_BUCKETS; i++) {
        for (struct map **at = &t->bucket[i]; *at != NULL;) {
            if ((*at)->refs == 0 && ((*at)->pinned == d || (*at)->on == d))
                retire(t, at);
            else
                at = &(*at)->next;
        }
    }
}
