/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "cases.h"
#include "fio.h"

static struct fio_result result;

static const char good[] =
    "note: both iodepth >= 1 and synchronous I/O engine are selected\n"
    "{\"jobs\":[{\"error\":0,\"usr_cpu\":2.0,\"sys_cpu\":8.0,"
    "\"read\":{\"io_bytes\":4000000000,\"bw_bytes\":2000000000,\"runtime\":2000},"
    "\"write\":{\"io_bytes\":0,\"bw_bytes\":0,\"runtime\":0}}]}\n";

CASE(rate_and_processor_time_are_of_the_way_that_ran)
{
    ck_assert_int_eq(fio_parse(good, "randread", &result), 0);
    ck_assert_double_eq_tol(result.bytes_per_s, 2e9, 1);
    ck_assert_double_eq_tol(result.cpu_s_per_gb, 0.05, 1e-9); /* a tenth of 2 s for 4 GB */
}

CASE(a_run_that_moved_nothing_is_refused)
{
    ck_assert_int_eq(fio_parse(good, "write", &result), -EINVAL);
}

CASE(what_is_no_report_is_refused)
{
    static const char *const wrong[] = {
        "",
        "fio: no such engine",
        "{",
        "{}",
        "{\"jobs\":[]}",
        "{\"jobs\":[{\"error\":5}]}",
        "{\"jobs\":[{\"error\":5,\"read\":{\"io_bytes\":1,\"bw_bytes\":1,\"runtime\":1}}]}"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_msg(fio_parse(wrong[i], "read", &result) == -EINVAL, "'%s' was taken", wrong[i]);
}
