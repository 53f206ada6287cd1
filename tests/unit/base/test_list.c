/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "cases.h"
#include "list.h"

struct thing {
    int id;
    struct list_node node;
};

static int id_of(struct list_node *node)
{
    return CONTAINER_OF(node, struct thing, node)->id;
}

CASE(an_empty_list_has_no_ends)
{
    struct list_node head;
    list_init(&head);
    ck_assert(list_empty(&head));
    ck_assert_ptr_null(list_first(&head));
    ck_assert_ptr_null(list_last(&head));
}

CASE(pushes_keep_their_order)
{
    struct list_node head;
    struct thing a = {.id = 1}, b = {.id = 2}, c = {.id = 3};
    list_init(&head);
    list_push_back(&head, &b.node);
    list_push_front(&head, &a.node);
    list_push_back(&head, &c.node);
    int want = 1;
    LIST_FOR_EACH_SAFE (node, next, &head)
        ck_assert_int_eq(id_of(node), want++);
    ck_assert_int_eq(want, 4);
    ck_assert_int_eq(id_of(list_first(&head)), 1);
    ck_assert_int_eq(id_of(list_last(&head)), 3);
}

CASE(insert_before_a_node_and_before_the_head)
{
    struct list_node head;
    struct thing a = {.id = 1}, b = {.id = 2}, c = {.id = 3};
    list_init(&head);
    list_insert_before(&b.node, &head);
    list_insert_before(&a.node, &b.node);
    list_insert_before(&c.node, &head);
    ck_assert_ptr_eq(head.next, &a.node);
    ck_assert_ptr_eq(a.node.next, &b.node);
    ck_assert_ptr_eq(b.node.next, &c.node);
    ck_assert_ptr_eq(head.prev, &c.node);
}

CASE(a_removed_node_is_unlinked_and_may_be_removed_again)
{
    struct list_node head;
    struct thing a = {.id = 1};
    list_init(&head);
    ck_assert(!list_is_linked(&a.node));
    list_push_back(&head, &a.node);
    ck_assert(list_is_linked(&a.node));
    list_remove(&a.node);
    ck_assert(!list_is_linked(&a.node));
    ck_assert(list_empty(&head));
    list_remove(&a.node);
    list_push_front(&head, &a.node);
    ck_assert(!list_empty(&head));
}

CASE(a_zeroed_node_counts_as_unlinked)
{
    struct thing a = {.id = 1};
    list_remove(&a.node);
    ck_assert(!list_is_linked(&a.node));
}

CASE(the_body_of_the_walk_may_free_its_node)
{
    struct list_node head;
    list_init(&head);
    for (int i = 0; i < 10; i++) {
        struct thing *t = calloc(1, sizeof(*t));
        ck_assert_ptr_nonnull(t);
        t->id = i;
        list_push_back(&head, &t->node);
    }
    int seen = 0;
    LIST_FOR_EACH_SAFE (node, next, &head) {
        ck_assert_int_eq(id_of(node), seen++);
        list_remove(node);
        free(CONTAINER_OF(node, struct thing, node));
    }
    ck_assert_int_eq(seen, 10);
    ck_assert(list_empty(&head));
}
