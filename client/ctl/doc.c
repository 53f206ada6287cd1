/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl doc: puts, lists, shows, pins, preloads and forgets documents; export and import are
 * in doc_export.c and doc_import.c.
 */
#include <stdio.h>

#include "named.h"

static const char help[] =
    "Usage: kvcachectl doc put|list|show|pin|preload|forget|export|import ...\n"
    "\n"
    "A document is a name for KV that was computed once, to be used often; it protects the blocks "
    "of this KV. If the daemon has storage, these blocks are written to it at once, are kept there "
    "as long as the name lasts, and are found again after a restart. Without storage they stay in "
    "memory by their priority, or by --pin. Documents behind one system prefix share its blocks.\n"
    "\n"
    "  put NAME      give this name to a cached sequence, or move the name to it\n"
    "  list [PREFIX] documents that you may see\n"
    "  show NAME     one document: tokens, bytes by tier, age, last block\n"
    "  pin NAME      none of its blocks is evicted to make room; --off ends that\n"
    "  preload NAME  load its blocks into memory before they are asked for\n"
    "  forget NAME   remove the name; with --evict its blocks too\n"
    "  export NAME   write its blocks to a safetensors file\n"
    "  import FILE   store the blocks of such a file, and give them their name\n"
    "\n"
    "'kvcachectl doc VERB --help' says more.\n"
    "\n"
    "Exit code 1 when there is no such document, or nothing of it is cached.\n";

static const char put_help[] =
    "Usage: kvcachectl doc put NAME --ns ID (--tip KEY | --tokens FILE) [OPTIONS]\n"
    "\n"
    "Gives a document's name to a sequence whose blocks are cached (a worker computed and stored "
    "them), or moves the name to it.\n"
    "\n" ARGS_HERE "\n"
    "Where several groups of layers have blocks of different sizes, --tip needs --tokens too.\n"
    "\n"
    "Example:\n"
    "  kvcachectl doc put handbook --ns 65538 --tokens handbook.json --pin\n";

static const char list_help[] =
    "Usage: kvcachectl doc list [PREFIX] [--sub NAME] [--json]\n"
    "\n"
    "Documents that you may see, or those whose names begin with PREFIX: tokens, how many of them "
    "are cached now, bytes by tier, priority, last use, time to live.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachectl doc list\n";

static const char show_help[] =
    "Usage: kvcachectl doc show NAME [--sub NAME] [--json]\n"
    "\n"
    "Shows one document: the blocks that it reaches, their tiers, and its last block (tip).\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachectl doc show handbook --json\n";

static const char pin_help[] =
    "Usage: kvcachectl doc pin NAME [--off] [--sub NAME]\n"
    "\n"
    "None of the document's blocks is evicted to make room while its name lasts. They count "
    "against the tenant's budget of pinned bytes.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachectl doc pin handbook\n";

static const char preload_help[] =
    "Usage: kvcachectl doc preload NAME [--no-wait] [--ttl TIME|none] [--sub NAME]\n"
    "\n"
    "Begins to load the document's blocks from storage into host memory, and waits until all have "
    "come or no more will. Counts as a use.\n"
    "\n" ARGS_HERE "\n"
    "Exit code 1 when not all blocks could be loaded.\n"
    "\n"
    "Example:\n"
    "  kvcachectl doc preload handbook\n";

static const char forget_help[] = "Usage: kvcachectl doc forget NAME [--evict] [--sub NAME]\n"
                                  "\n"
                                  "Removes the name; its blocks become ordinary ones.\n"
                                  "\n" ARGS_HERE "\n"
                                  "Example:\n"
                                  "  kvcachectl doc forget handbook --evict\n";

#define DOC                                   \
    {                                         \
        .ctl = ctl, .kind = KVC_NAME_DOCUMENT \
    }

static int doc_put(struct ctl *ctl, int argc, char **argv)
{
    struct named n = DOC;
    return named_save(&n, argc, argv, put_help);
}

static int doc_list(struct ctl *ctl, int argc, char **argv)
{
    struct named n = DOC;
    return named_list(&n, argc, argv, list_help);
}

static int doc_show(struct ctl *ctl, int argc, char **argv)
{
    struct named n = DOC;
    return named_show(&n, argc, argv, show_help);
}

static const struct arg pin_table[] = {
    {"--off", "it is not pinned any more", ARG_FLAG(struct named, off)},
    NAMED_SUB,
    {0},
};

/* Puts the same name again, with or without the pin. */
static int doc_pin(struct ctl *ctl, int argc, char **argv)
{
    struct named n = DOC;
    struct kvc_name_info info;
    struct chain chain = {.ids = NULL};
    int rc = named_options(&n, argc, argv, pin_table, pin_help, true);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    n.pin = !n.off;
    rc = ctl_connect(ctl);
    if (rc == 0)
        rc = chain_show_name(ctl, n.kind, n.name, n.sub, &info);
    if (rc == 0)
        rc = chain_of_name(ctl, &info, n.sub, &chain);
    if (rc == 0)
        rc = named_put(&n, &chain, &info);
    chain_free(&chain);
    return rc;
}

static int preload(struct ctl *ctl, int argc, char **argv)
{
    struct named n = DOC;
    return named_preload(&n, argc, argv, preload_help);
}

static int doc_forget(struct ctl *ctl, int argc, char **argv)
{
    struct named n = DOC;
    return named_forget(&n, argc, argv, forget_help);
}

int cmd_doc(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_cmd verbs[] = {
        {"put", doc_put},       {"list", doc_list},     {"show", doc_show},
        {"pin", doc_pin},       {"preload", preload},   {"forget", doc_forget},
        {"export", doc_export}, {"import", doc_import}, {NULL, NULL}};
    return ctl_verbs(ctl, argc, argv, NULL, help, verbs);
}
