/* SPDX-License-Identifier: Apache-2.0 */
/* What shells complete behind kvcachectl: names that the daemon has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "rig_ctl.h"

#define BT     16u
#define MIB    (1u << 20)
#define BLOCKS 8u

static struct rig rig;
static struct kvc *k;
static struct kvc_ns *ns;
static uint8_t keys[BLOCKS * KVC_KEY_BYTES], statuses[BLOCKS];

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

static const uint8_t *key_at(uint32_t block)
{
    return keys + (size_t)block * KVC_KEY_BYTES;
}

/* What the shell offers behind the words, which are quoted as for sh, is in `said`, each with a
 * line's end before it; false where there is no such shell. */
static bool offers(const char *shell, const char *words)
{
    char line[1024];
    snprintf(line, sizeof line,
             "echo; cd %s && PATH=%s:$PATH KVCACHE_SOCKET=%s sh %s/tests/gates/complete.sh %s "
             "%s/etc/completion %s 2>&1",
             rig.dir, rig_bin(), rig.socket, getenv("KVC_SOURCE_DIR"), shell,
             getenv("KVC_SOURCE_DIR"), words);
    const int status = said_by(line);
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
    const char *tip = key_text(key_at(BLOCKS - 1));
    ctl(&rig, 0, "doc put handbook --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "doc put 'hand book' --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "doc put 'hand$(touch pwned)' --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "conv save talk-1 --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "conv save chat:17 --ns %u --tip %s", id, tip);
    ctl(&rig, 0, "quota set --tenant research --host 1GiB");
    ctl(&rig, 0, "pin add --ns %u --tip %s", id, tip);
}

CASES(.setup = setup, .teardown = teardown);

CASE(shells_complete_what_the_daemon_has)
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
        static const char *const docs[] = {"forget", "export"};
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

/* They come from workers, and a shell expands what it is given. */
CASE(names_that_a_shell_would_run_are_only_text)
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
