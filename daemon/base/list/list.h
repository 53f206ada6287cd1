/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intrusive doubly linked list. The caller embeds a struct list_node; a head is a list_node too.
 *
 * Ownership: the list owns nothing. A node is on at most one list at a time.
 * Threads: none of its own; whoever owns the head owns every node on it.
 * A zeroed node (fresh from a pool) counts as unlinked, so that it need not be initialised; a head
 * must be.
 */
#ifndef KVC_BASE_LIST_H
#define KVC_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list_node {
    struct list_node *prev, *next;
};

/* The object that embeds `ptr` as `member`. The unevaluated sizeof makes a wrong pointer type a
 * compiler diagnostic. */
#define CONTAINER_OF(ptr, type, member)              \
    ((void)sizeof(0 ? (ptr) : &((type *)0)->member), \
     (type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Walks `head` and declares `node` and `next` itself. The body may remove or free `node`, and
 * nothing else that is on the list. */
#define LIST_FOR_EACH_SAFE(node, next, head)                                        \
    for (struct list_node *node = (head)->next, *next = node->next; node != (head); \
         node = next, next = node->next)

static inline void list_init(struct list_node *node)
{
    node->prev = node;
    node->next = node;
}

static inline bool list_empty(const struct list_node *head)
{
    return head->next == head;
}

/* Whether `node` (not a head) is on a list. */
static inline bool list_is_linked(const struct list_node *node)
{
    return node->next != NULL && node->next != node;
}

/* Puts the unlinked `node` in front of `at`, which is a linked node or a head. */
static inline void list_insert_before(struct list_node *node, struct list_node *at)
{
    node->prev = at->prev;
    node->next = at;
    at->prev->next = node;
    at->prev = node;
}

static inline void list_push_front(struct list_node *head, struct list_node *node)
{
    list_insert_before(node, head->next);
}

static inline void list_push_back(struct list_node *head, struct list_node *node)
{
    list_insert_before(node, head);
}

/* Takes `node` off its list and leaves it initialised. Does no harm to an unlinked or zeroed node.
 */
static inline void list_remove(struct list_node *node)
{
    if (node->next != NULL) {
        node->prev->next = node->next;
        node->next->prev = node->prev;
    }
    list_init(node);
}

/* First and last node, or NULL when the list is empty. */
static inline struct list_node *list_first(const struct list_node *head)
{
    return list_empty(head) ? NULL : head->next;
}

static inline struct list_node *list_last(const struct list_node *head)
{
    return list_empty(head) ? NULL : head->prev;
}

#endif
