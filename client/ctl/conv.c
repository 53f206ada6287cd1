/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl conv: lists, shows, saves, preloads and forgets conversations, and changes how long
 * they live.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "json.h"
#include "named.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl conv list|show|save|extend|preload|forget ...\n"
    "\n"
    "A conversation is a name for the sequence of what was said so far; it protects the blocks "
    "that this sequence needs. If the daemon has storage, these blocks are written to it at once, "
    "are kept there as long as the name lasts, and are found again after a restart. Without "
    "storage they stay in memory by their priority. Workers make and move conversations with the "
    "library; this command shows and changes them.\n"
    "\n"
    "  list [PREFIX]  conversations that you may see\n"
    "  show NAME      one conversation: tokens, bytes by tier, age, last block\n"
    "  save NAME      give this name to a cached sequence, or move the name to it\n"
    "  extend NAME    give it a longer time to live, or move it on to a later block\n"
    "  preload NAME   load its blocks into memory before somebody resumes it\n"
    "  forget NAME    remove the name; with --evict its blocks too\n"
    "\n"
    "'kvcachectl conv VERB --help' says more.\n"
    "\n"
    "Exit code 1 when there is no such conversation, or nothing of it is cached.\n";

static const char list_help[] =
    "Usage: kvcachectl conv list [PREFIX] [--sub NAME] [--json]\n"
    "\n"
    "Conversations that you may see, or those whose names begin with PREFIX: tokens, how many of "
    "them are cached now, bytes by tier, priority, last use, time to live.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachectl conv list\n";

static const char show_help[] =
    "Usage: kvcachectl conv show NAME [--sub NAME] [--json]\n"
    "\n"
    "Shows one conversation: the blocks that it reaches, their tiers, and its last block (tip).\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachectl conv show alice-17 --json\n";

static const char save_help[] =
    "Usage: kvcachectl conv save NAME --ns ID (--tip KEY | --tokens FILE) [OPTIONS]\n"
    "\n"
    "Gives a conversation's name to a cached sequence, or moves the name to it. Blocks that the "
    "name reached before, and that no other name reaches, lose their protection.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachectl conv save alice-17 --ns 65538 --ttl 2h --tip "
    "c0ffee0000000000000000000000000000000000000000000000000000000000\n";

static const char extend_help[] =
    "Usage: kvcachectl conv extend NAME (--ttl TIME|none | --tip KEY [--tokens FILE]) [--sub "
    "NAME]\n"
    "\n"
    "Counts as a use. At least one of --ttl and --tip is needed: 'kvcachectl conv preload NAME "
    "--no-wait' counts a use and changes nothing.\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachectl conv extend alice-17 --ttl 1d\n";

static const char preload_help[] =
    "Usage: kvcachectl conv preload NAME [--no-wait] [--ttl TIME|none] [--sub NAME]\n"
    "\n"
    "Begins to load the conversation's blocks from storage into host memory, and waits until all "
    "have come or no more will. Counts as a use.\n"
    "\n" ARGS_HERE "\n"
    "Exit code 1 when not all blocks could be loaded.\n"
    "\n"
    "Example:\n"
    "  kvcachectl conv preload alice-17\n";

static const char forget_help[] = "Usage: kvcachectl conv forget NAME [--evict] [--sub NAME]\n"
                                  "\n"
                                  "Removes the name; its blocks become ordinary ones.\n"
                                  "\n" ARGS_HERE "\n"
                                  "Example:\n"
                                  "  kvcachectl conv forget alice-17 --evict\n";

#define CONV                                      \
    {                                             \
        .ctl = ctl, .kind = KVC_NAME_CONVERSATION \
    }

static int conv_list(struct ctl *ctl, int argc, char **argv)
{
    struct named n = CONV;
    return named_list(&n, argc, argv, list_help);
}

static int conv_show(struct ctl *ctl, int argc, char **argv)
{
    struct named n = CONV;
    return named_show(&n, argc, argv, show_help);
}

static int save(struct ctl *ctl, int argc, char **argv)
{
    struct named n = CONV;
    return named_save(&n, argc, argv, save_help);
}

static int preload(struct ctl *ctl, int argc, char **argv)
{
    struct named n = CONV;
    return named_preload(&n, argc, argv, preload_help);
}

static int conv_forget(struct ctl *ctl, int argc, char **argv)
{
    struct named n = CONV;
    return named_forget(&n, argc, argv, forget_help);
}

/* ---- extend ---- */

static int renew(const struct named *n)
{
    char ttl[UNITS_TEXT_BYTES];
    uint64_t bytes = 0;
    const int rc =
        kvc_name_load(n->ctl->kvc, n->kind, n->name, n->sub, n->ttl_ms, false, 0, &bytes);
    if (rc < 0)
        return named_fail(n, rc);
    if (n->ctl->json)
        json_print(json_pack("{s:s, s:I, s:I}", "name", n->name, "ttl_ms", json_number(n->ttl_ms),
                             "bytes_in_memory", (json_int_t)bytes));
    else
        ctl_line("conversation '%s': %s%s", n->name,
                 n->ttl_ms ? "goes when it was not used for " : "does not go by itself",
                 n->ttl_ms ? units_format_duration_ms(n->ttl_ms, ttl) : "");
    return CTL_OK;
}

static const struct arg extend_table[] = {
    NAMED_TTL("TIME|none", "another time to live"),
    {"--tip KEY",
     "it moves on to that block of its namespace, and keeps priority, pin and, without --ttl, its "
     "time to live",
     ARG_PARSE(struct named, ask.tip, key_arg_parse)},
    {"--tokens FILE", "the token ids up to there, as for 'conv save'",
     ARG_TEXT(struct named, ask.tokens)},
    NAMED_SUB,
    {0},
};

static int extend(struct ctl *ctl, int argc, char **argv)
{
    struct named n = CONV;
    struct kvc_name_info info;
    struct chain chain = {.ids = NULL};
    int rc = named_options(&n, argc, argv, extend_table, extend_help, true);
    if (rc == 0 && n.ttl_ms == UINT64_MAX && !n.ask.tip.digits)
        rc = ctl_usage("how? Give --ttl TIME, or --tip KEY of a later block; 'kvcachectl conv "
                       "preload NAME --no-wait' counts a use and changes nothing");
    if (rc == 0 && n.ask.tokens && !n.ask.tip.digits)
        rc = ctl_usage("--tokens %s: goes with --tip KEY, the last block of these", n.ask.tokens);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = chain_read(&n.ask);
    if (rc == 0)
        rc = ctl_connect(ctl);
    if (rc == 0)
        rc = chain_show_name(ctl, n.kind, n.name, n.sub, &info);
    if (rc == 0 && !n.ask.tip.digits) {
        rc = renew(&n);
    } else if (rc == 0) {
        n.ask.ns = info.ns;
        rc = chain_find(ctl, &n.ask, &chain);
        if (rc == 0)
            rc = named_put(&n, &chain, &info);
    }
    chain_free(&chain);
    chain_ask_free(&n.ask);
    return rc;
}

int cmd_conv(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_cmd verbs[] = {
        {"list", conv_list},  {"show", conv_show},     {"save", save}, {"extend", extend},
        {"preload", preload}, {"forget", conv_forget}, {NULL, NULL}};
    return ctl_verbs(ctl, argc, argv, NULL, help, verbs);
}
