/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket alone, against a ROUTER that ends: asking ZeroMQ takes the news of it from the
 * descriptor, so each question must tell of it.
 */
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "cases.h"
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

CASES(.setup = wire_open, .teardown = wire_close);

CASE(a_connection_that_lasts_is_no_news)
{
    ck_assert(!wire__has_news(&wire));
    ck_assert(!wire__is_cut(&wire));
}

CASE(each_question_tells_of_a_connection_that_ended)
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
