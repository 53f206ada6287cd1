/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket alone, against a ROUTER that ends: asking ZeroMQ takes the news of it from the
 * descriptor, so each question must tell of it.
 */
#include <check.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "check_run.h"
#include "wire.h"

static void *router;
static struct wire wire;

static void wire_open(void)
{
    static const uint8_t route[KVC_ROUTE_BYTES] = {1};
    char endpoint[256];
    size_t size = sizeof(endpoint);
    char byte;
    memset(&wire, 0, sizeof(wire));
    ck_assert_int_eq(wire__init(&wire), 0);
    router = zmq_socket(wire.ctx, ZMQ_ROUTER);
    ck_assert_ptr_nonnull(router);
    ck_assert_int_eq(zmq_bind(router, "ipc://*"), 0);
    ck_assert_int_eq(zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &size), 0);
    ck_assert_int_eq(wire__connect(&wire, endpoint, route), 0);
    ck_assert_int_eq(wire__send(&wire, "x", 1), 0);
    ck_assert_int_eq(zmq_recv(router, &byte, 1, 0), KVC_ROUTE_BYTES);
    ck_assert_int_eq(zmq_recv(router, &byte, 1, 0), 1);
}

static void wire_close(void)
{
    if (router != NULL)
        (void)zmq_close(router);
    wire__destroy(&wire);
}

START_TEST(a_connection_that_lasts_is_no_news)
{
    ck_assert(!wire__has_news(&wire));
    ck_assert(!wire__is_cut(&wire));
}
END_TEST

START_TEST(each_question_tells_of_a_connection_that_ended)
{
    ck_assert_int_eq(zmq_close(router), 0);
    router = NULL;
    while (!wire__is_cut(&wire)) /* until this test's limit of time */
        usleep(1000);
    for (int i = 0; i < 3; i++) {
        ck_assert(wire__has_news(&wire));
        ck_assert(wire__is_cut(&wire));
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("wire");
    TCase *tc = tcase_create("wire");
    tcase_add_checked_fixture(tc, wire_open, wire_close);
    tcase_add_test(tc, a_connection_that_lasts_is_no_news);
    tcase_add_test(tc, each_question_tells_of_a_connection_that_ended);
    suite_add_tcase(s, tc);
    return check_run(s);
}
