/* SPDX-License-Identifier: Apache-2.0 */
/* How kvcachectl takes what it shows itself: the beginnings of keys, and names that shells
 * complete. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* ---- completion ---- */

/* What the shell offers behind the words, which are quoted as for sh, is in `said`; false where
 * there is no such shell. */
static bool offers(const char *shell, const char *words)
{
    char line[1024];
    snprintf(line, sizeof line,
             "cd %s && PATH=%s:$PATH KVCACHE_SOCKET=%s sh %s/tests/gates/complete.sh %s "
             "%s/etc/completion %s 2>&1",
             rig.dir, rig_bin(), rig.socket, getenv("KVC_SOURCE_DIR"), shell,
             getenv("KVC_SOURCE_DIR"), words);
    FILE *out = popen(line, "r"); /* NOLINT(cert-env33-c): our own words */
    ck_assert_ptr_nonnull(out);
    said[0] = '\n'; /* so that each line has one before it */
    const size_t n = fread(said + 1, 1, sizeof said - 2, out);
    said[n + 1] = '\0';
    const int status = pclose(out);
    printf("%s offers behind %s:%s", shell, words, said);
    fflush(stdout);
    ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
    return WEXITSTATUS(status) == 0;
}

#define OFFERS(shell, words, line)           \
    do {                                     \
        if (offers(shell, words))            \
            SAYS("\n" line "\n");            \
        else                                 \
            puts("SKIP: no " shell " here"); \
    } while (0)

static void names_for_completion(void)
{
    const uint32_t id = kvc_ns_id(ns);
    const char *tip = hex(key_at(BLOCKS - 1));
    ctl(&rig, 0, "doc put handbook --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "doc put 'hand book' --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "doc put 'hand$(touch pwned)' --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "conv save talk-1 --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "conv save chat:17 --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "quota set --tenant research --host 1GiB");
    ctl(&rig, 0, "pin add --ns %u --tip %s", id, tip);
}

START_TEST(shells_complete_what_the_daemon_has)
{
    static const char *const shells[] = {"bash", "zsh", "fish"};
    names_for_completion();
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        const char *sh = shells[i];
        char id[24];
        if (!offers(sh, "kvcachectl doc show ''")) {
            printf("SKIP: there is no %s here\n", sh);
            continue;
        }
        SAYS("\nhandbook\n");
        SAYS_NOT("talk-1");
        static const char *const docs[] = {"pin", "preload", "forget", "export", "put"};
        for (size_t d = 0; d < sizeof docs / sizeof docs[0]; d++) {
            char words[64];
            snprintf(words, sizeof words, "kvcachectl doc %s hand", docs[d]);
            ck_assert(offers(sh, words));
            SAYS("\nhandbook\n");
        }
        ck_assert(offers(sh, "kvcachectl evict --doc ''"));
        SAYS("\nhandbook\n");
        ck_assert(offers(sh, "kvcachectl conv extend t"));
        SAYS("\ntalk-1\n");
        SAYS_NOT("chat:17");
        ck_assert(offers(sh, "kvcachectl pin add --conv t"));
        SAYS("\ntalk-1\n");
        snprintf(id, sizeof id, "\n%u\n", kvc_ns_id(ns));
        ck_assert(offers(sh, "kvcachectl verify --ns ''"));
        SAYS(id);
        ck_assert(offers(sh, "kvcachectl evict --model ''"));
        SAYS("\nm\n");
        ck_assert(offers(sh, "kvcachectl quota set --tenant re"));
        SAYS("\nresearch\n");
        ck_assert(offers(sh, "kvcachectl pin rm ''"));
        ck_assert(strspn(said, "\n0123456789") == strlen(said) && strlen(said) > 1);
        ck_assert(offers(sh, "kvcachectl sessions end ''"));
        ck_assert(strspn(said, "\n0123456789") == strlen(said) && strlen(said) > 1);
    }
}
END_TEST

/* They come from workers, and a shell expands what it is given. */
START_TEST(names_that_a_shell_would_run_are_only_text)
{
    char path[160];
    names_for_completion();
    ck_assert(offers("bash", "kvcachectl doc show hand"));
    SAYS("\nhand\\ book\n");
    SAYS("\nhand\\$\\(touch\\ pwned\\)\n");
    OFFERS("zsh", "kvcachectl doc show hand", "hand$(touch pwned)");
    OFFERS("fish", "kvcachectl doc show hand", "hand$(touch pwned)"); /* inserts it quoted */
    snprintf(path, sizeof path, "%s/pwned", rig.dir);
    ck_assert_int_ne(access(path, F_OK), 0);
    /* bash ends a word at a colon, and wants what follows it. */
    ck_assert(offers("bash", "kvcachectl conv show chat : 1"));
    ck_assert_str_eq(said, "\n17\n");
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
    tcase_add_test(t, shells_complete_what_the_daemon_has);
    tcase_add_test(t, names_that_a_shell_would_run_are_only_text);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
