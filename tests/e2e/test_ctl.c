/* SPDX-License-Identifier: Apache-2.0 */
/* How kvcachectl takes what it shows itself: the beginnings of keys. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rig_ctl.h"

#define BT     16u
#define MIB    (1u << 20)
#define BLOCKS 8u

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *ns;
static uint8_t keys[BLOCKS * KVC_KEY_BYTES], statuses[BLOCKS];
static char text[2 * KVC_KEY_BYTES + 1];

static void setup(void)
{
    rig_start(&rig, NULL);
    k = rig_open(&rig, 4 * MIB);
    ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, BLOCKS, BT, RIG_BLOCK, statuses), BLOCKS);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

static const char *hex(const uint8_t *key)
{
    for (uint32_t i = 0; i < KVC_KEY_BYTES; i++)
        snprintf(text + 2 * (size_t)i, 3, "%02x", key[i]);
    return text;
}

static const uint8_t *key_at(uint32_t block)
{
    return keys + (size_t)block * KVC_KEY_BYTES;
}

/* ---- the first 16 digits, as tables show them ---- */

/* Of the tables that show them. */
static void take_shown(char shown[17], const char *words, const char *whole)
{
    ctl(&rig, 0, "%s", words);
    snprintf(shown, 17, "%.16s", whole);
    SAYS(shown);
    SAYS_NOT(whole);
}

START_TEST(each_command_takes_what_a_table_shows)
{
    char tip[17], third[17], words[120];
    const uint32_t id = kvc_ns_id(ns);
    snprintf(words, sizeof words, "blocks --ns %u --key %s", id, hex(key_at(BLOCKS - 1)));
    take_shown(tip, words, hex(key_at(BLOCKS - 1)));
    take_shown(third, words, hex(key_at(2)));
    ctl(&rig, 0, "explain %s %.20s", tip, hex(key_at(2)));
    SAYS("present");
    SAYS(third);
    ctl(&rig, 0, "blocks --key %s --json", third);
    SAYS(hex(key_at(2)));
    SAYS_NOT(hex(key_at(3)));
    ctl(&rig, 0, "blocks --key %s --ns %u --down --depth 1 --json", third, id);
    SAYS(hex(key_at(3)));
    ctl(&rig, 0, "doc put book --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "doc show book");
    SAYS(hex(key_at(BLOCKS - 1)));
    ctl(&rig, 0, "conv save talk --ns %u --tip %s", id, third);
    ctl(&rig, 0, "conv extend talk --tip %s", tip);
    ctl(&rig, 0, "conv show talk");
    SAYS(hex(key_at(BLOCKS - 1)));
    ctl(&rig, 0, "pin add --ns %u --tip %s", id, third);
    const unsigned long long pin = strtoull(said + strlen("pin "), NULL, 10);
    take_shown(third, "pin list", hex(key_at(2)));
    ctl(&rig, 0, "pin rm %llu", pin);
    ctl(&rig, 0, "doc forget book");
    ctl(&rig, 0, "conv forget talk");
    ctl(&rig, 0, "evict --key %s", tip);
    SAYS("evicted 1 block");
    ctl(&rig, 0, "evict --prefix %s", third);
    SAYS("evicted 5 blocks");
    SAYS_NOT("kept");
}
END_TEST

START_TEST(keys_that_begin_alike_are_told)
{
    uint8_t like[KVC_KEY_BYTES];
    char whole[2 * KVC_KEY_BYTES + 1];
    memcpy(like, key_at(0), sizeof like);
    like[8] ^= 0x01; /* the 18th digit */
    snprintf(whole, sizeof whole, "%s", hex(like));
    ck_assert_uint_eq(rig_store(k, ns, like, 0, 1, BT, RIG_BLOCK, statuses), 1);
    static const char *const ways[] = {"explain",
                                       "blocks --key",
                                       "evict --dry-run --key",
                                       "doc put book --tip",
                                       "conv save talk --tip",
                                       "pin add --tip"};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        ctl(&rig, 2, "%s %.*s --ns %u", ways[i], i % 2 ? 16 : 17, whole, kvc_ns_id(ns));
        SAYS("the keys of several blocks begin with");
        SAYS(whole);
        SAYS(hex(key_at(0)));
    }
    ctl(&rig, 0, "explain %.18s", whole);
    SAYS("present");
    ctl(&rig, 0, "evict --key %.18s", whole);
    SAYS("evicted 1 block,");
    ctl(&rig, 0, "explain %.16s", whole); /* the other one is alone now */
}
END_TEST

START_TEST(one_key_in_two_namespaces_is_one_key)
{
    struct kvc_ns *other = rig_ns(k, "other", BT, RIG_BLOCK);
    ck_assert_uint_eq(rig_store(k, other, keys, 0, 1, BT, RIG_BLOCK, statuses), 1);
    ctl(&rig, 0, "explain %.16s --json", hex(key_at(0)));
    char both[80];
    snprintf(both, sizeof both, "\"ns\":%u", kvc_ns_id(ns));
    SAYS(both);
    snprintf(both, sizeof both, "\"ns\":%u", kvc_ns_id(other));
    SAYS(both);
    ctl(&rig, 2, "blocks --key %.16s", hex(key_at(0)));
    SAYS("several places; say which: --ns");
    ctl(&rig, 0, "evict --key %.16s --ns %u", hex(key_at(0)), kvc_ns_id(other));
    SAYS("evicted 1 block,");
}
END_TEST

START_TEST(a_beginning_that_nothing_has_is_told)
{
    ctl(&rig, 1, "explain 0123456789abcdef");
    SAYS("no block whose key begins with 0123456789abcdef is cached;");
    ctl(&rig, 1, "evict --key 0123456789abcdef --ns %u", kvc_ns_id(ns));
    SAYS("is cached in that namespace");
    ctl(&rig, 1, "blocks --key 0123456789abcdef --ns 77");
    SAYS("no namespace 77");
    ctl(&rig, 2, "explain 0123456789abcde");
    SAYS("at least the first 16 of them, and this has fewer");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ctl");
    TCase *t = tcase_create("ctl");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, each_command_takes_what_a_table_shows);
    tcase_add_test(t, keys_that_begin_alike_are_told);
    tcase_add_test(t, one_key_in_two_namespaces_is_one_key);
    tcase_add_test(t, a_beginning_that_nothing_has_is_told);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
