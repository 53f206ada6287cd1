/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "capacity.h"
#include "cases.h"

static struct capacity list[CAPACITY_LIST_MAX];
static char why[CAPACITY_WHY_BYTES];
static size_t n;

static uint64_t blocks_of(const char *text, uint64_t block_bytes)
{
    ck_assert_msg(capacity_parse_list(text, why, list, &n) == 0, "%s: %s", text, why);
    ck_assert_uint_eq(n, 1);
    return capacity_blocks(&list[0].host, 182790, block_bytes);
}

CASE(a_share_is_of_the_unique_blocks)
{
    ck_assert_uint_eq(blocks_of("1%", 4096), 1828);
    ck_assert_uint_eq(blocks_of("0.5%", 65536), 914);
    ck_assert_uint_eq(blocks_of("100%", 4096), 182790);
    ck_assert_uint_eq(blocks_of("0.00001%", 4096), 1);
}

CASE(a_size_holds_whole_slots)
{
    ck_assert_uint_eq(blocks_of("1MiB", 4096), 256);
    ck_assert_uint_eq(blocks_of("1MiB", 4097), 128);
    ck_assert_uint_eq(blocks_of("4097B", 100), 1);
    ck_assert_uint_eq(blocks_of("host=64GiB", 2 << 20), 32768);
}

CASE(a_number_of_blocks_is_that)
{
    ck_assert_uint_eq(blocks_of("2000 blocks", 4096), 2000);
    ck_assert_uint_eq(blocks_of("1block", 4096), 1);
}

CASE(a_list_is_a_sweep_and_keeps_the_texts)
{
    ck_assert_int_eq(capacity_parse_list("1%,host=5%,2GiB", why, list, &n), 0);
    ck_assert_uint_eq(n, 3);
    ck_assert_str_eq(list[0].text, "1%");
    ck_assert_str_eq(list[1].text, "5%");
    ck_assert_str_eq(list[2].text, "2GiB");
}

CASE(two_tiers_are_one_capacity)
{
    ck_assert_msg(capacity_parse_list("nvme=10%,host=1%", why, list, &n) == 0, "%s", why);
    ck_assert_uint_eq(n, 1);
    ck_assert(list[0].has_nvme);
    ck_assert_str_eq(list[0].text, "nvme=10%,host=1%");
    ck_assert_uint_eq(capacity_blocks(&list[0].host, 182790, 4096), 1828);
    ck_assert_uint_eq(capacity_blocks(&list[0].nvme, 182790, 4096), 18279);
    ck_assert_int_eq(capacity_parse_list("host=10%", why, list, &n), 0);
    ck_assert(!list[0].has_nvme);
}

CASE(memory_of_a_device_is_a_tier_of_its_own)
{
    ck_assert_msg(capacity_parse_list("hbm=1%,host=5%,nvme=20%", why, list, &n) == 0, "%s", why);
    ck_assert_uint_eq(n, 1);
    ck_assert(list[0].has_hbm && list[0].has_nvme);
    ck_assert_uint_eq(capacity_blocks(&list[0].hbm, 182790, 4096), 1828);
    ck_assert_uint_eq(capacity_blocks(&list[0].host, 182790, 4096), 9140);
    ck_assert_uint_eq(capacity_blocks(&list[0].nvme, 182790, 4096), 36558);
    ck_assert_msg(capacity_parse_list("host=5%,hbm=16MiB", why, list, &n) == 0, "%s", why);
    ck_assert(list[0].has_hbm && !list[0].has_nvme);
    ck_assert_uint_eq(capacity_blocks(&list[0].hbm, 182790, 4096), 4096);
}

CASE(a_number_alone_is_refused_with_what_it_could_be)
{
    static const struct {
        const char *text, *why;
    } bare[] = {
        {"5",
         "'5' does not say of what: give a share of the trace's unique blocks (5%), a size (5GiB), "
         "or a number of blocks (5 blocks)"},
        {"10%,host=2000", "'2000' does not say of what: give a share of the trace's unique blocks "
                          "(5%), a size (2000B), or a number of blocks (2000 blocks)"},
        {"host=1%,nvme=18446744073709551615",
         "'18446744073709551615' does not say of what: give a share of the trace's unique blocks "
         "(5%), a size (18446744073709551615B), or a number of blocks (18446744073709551615 "
         "blocks)"}};
    for (size_t i = 0; i < sizeof(bare) / sizeof(bare[0]); i++) {
        ck_assert_int_eq(capacity_parse_list(bare[i].text, why, list, &n), -EINVAL);
        ck_assert_str_eq(why, bare[i].why);
    }
}

CASE(refuses_what_is_no_capacity)
{
    static const char *const wrong[] = {"",
                                        "0%",
                                        "101%",
                                        "-1%",
                                        "nan%",
                                        "5 %%",
                                        "1%,,5%",
                                        "0",
                                        "0 blocks",
                                        "many",
                                        "12abc",
                                        "nvme=5%",
                                        "1e400%",
                                        "disk=5%",
                                        "1%,nvme=5%",
                                        "host=1%,nvme=5%,nvme=6%",
                                        "host=1%,host=2%,nvme=5%",
                                        "host=1%,nvme=0%",
                                        "host=1%,nvme=",
                                        "host=1%,5%,nvme=5%",
                                        "hbm=1%",
                                        "hbm=1%,nvme=5%",
                                        "hbm=1%,host=5%,hbm=1%",
                                        "hbm=,host=5%",
                                        "hbm=1%,5%"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        why[0] = '\0';
        ck_assert_msg(capacity_parse_list(wrong[i], why, list, &n) == -EINVAL, "'%s' was taken",
                      wrong[i]);
        ck_assert_msg(why[0] != '\0', "'%s' was refused without a reason", wrong[i]);
    }
}
