/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachectl pin: adds, lists and removes pins. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"
#include "json.h"
#include "rows.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl pin add WHAT [--ttl TIME] [--memory] [--json]\n"
    "       kvcachectl pin list [--json]\n"
    "       kvcachectl pin rm PIN...\n"
    "\n"
    "Pins the cached blocks of a sequence: none of them is evicted to make room. They count "
    "against the tenant's budget of pinned bytes (policy.pin_limit). A pin ends with its TTL, by "
    "rm, or with the daemon; 'kvcachectl doc pin' lasts longer.\n"
    "\n"
    "WHAT is one of\n"
    "  --doc NAME, --conv NAME    the blocks that a document or conversation reaches now\n"
    "  --ns ID --tip KEY          the block KEY (64 digits, or the first 16 that tables show) and\n"
    "                             all before it\n"
    "  --ns ID --tokens FILE      the sequence of these token ids: u32 little-endian, or a JSON\n"
    "                             array in a file whose name ends in .json\n"
    "\n" ARGS_HERE "\n"
    "Exit code 1 when no block of the sequence is cached, or no such pin exists.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl pin add --doc handbook --ttl 2h --memory\n"
    "  kvcachectl pin list && kvcachectl pin rm 17    (a PIN that it showed)\n";

struct pin {
    struct ctl *ctl;
    struct chain_ask ask;
    const char *doc, *conv, *sub;
    const char *name; /* of the document or conversation */
    enum kvc_name_kind kind;
    uint64_t ttl_ms;
    bool memory;
};

/* ---- add ---- */

static const struct arg add_table[] = {
    {"--ttl TIME", "it ends after this: 90s, 10min, 2h (default: never)",
     ARG_MS(struct pin, ttl_ms, 1, UINT64_MAX)},
    {"--memory",
     "the blocks' copies in host memory stay too; without it each block keeps one copy, in any "
     "tier",
     ARG_FLAG(struct pin, memory)},
    {"--sub NAME", "for gateways: the sub-tenant that the document or conversation belongs to",
     ARG_TEXT(struct pin, sub)},
    {"--doc NAME", NULL, ARG_TEXT(struct pin, doc)},
    {"--conv NAME", NULL, ARG_TEXT(struct pin, conv)},
    CHAIN_OPTIONS(struct pin, ask),
    {0},
};

static int pin_check(struct pin *p, int argc, char **argv)
{
    p->name = p->doc ? p->doc : p->conv;
    p->kind = p->doc ? KVC_NAME_DOCUMENT : KVC_NAME_CONVERSATION;
    const bool block = p->ask.ns || p->ask.tip.digits || p->ask.tokens;
    if (optind < argc)
        return ctl_usage("'%s' is not understood; a document is named with --doc", argv[optind]);
    if ((p->doc && p->conv) || (p->name && block))
        return ctl_usage("which of them? One at a time: --doc, --conv, or --ns with --tip");
    if (!p->name && !block)
        return ctl_usage("what? Give --doc NAME, --conv NAME, or --ns ID with --tip KEY");
    return p->name ? 0 : chain_check(&p->ask);
}

static int ctl_pin_find(struct pin *p, struct chain *chain)
{
    struct kvc_name_info info;
    if (!p->name)
        return chain_find(p->ctl, &p->ask, chain);
    const int rc = chain_show_name(p->ctl, p->kind, p->name, p->sub, &info);
    return rc != 0 ? rc : chain_of_name(p->ctl, &info, p->sub, chain);
}

static int pin_fail(const struct ctl *ctl, int error)
{
    if (error == KVC_E_PIN_LIMIT)
        ctl_error("%s; 'kvcachectl pin list' shows what is pinned, 'kvcachectl policy set "
                  "--pin-limit SIZE' allows more",
                  kvc_last_error(ctl->kvc));
    else if (error == KVC_E_QUOTA)
        ctl_error("%s; 'kvcachectl quota show' says which and what is promised, 'kvcachectl quota "
                  "set' allows more",
                  kvc_last_error(ctl->kvc));
    else if (error == KVC_E_GONE)
        ctl_error("nothing of it is cached");
    else
        return ctl_fail(ctl, error);
    return error == KVC_E_GONE ? CTL_NOTHING : CTL_FAILED;
}

struct seek {
    uint64_t id, bytes;
    uint32_t tokens;
};

static int take_size(void *ctx, const void *row)
{
    struct seek *s = ctx;
    const struct kvc_pin_info *x = row;
    if (x->pin == s->id) {
        s->bytes = x->bytes;
        s->tokens = x->tokens;
    }
    return x->pin == s->id;
}

static int take_pin(const struct pin *p, const struct chain *chain)
{
    char size[UNITS_TEXT_BYTES], tokens[UNITS_COUNT_BYTES];
    struct seek s = {.id = 0};
    int rc = kvc_pin(chain->ns, &chain->seq, p->memory, p->ttl_ms, &s.id);
    if (rc < 0)
        return pin_fail(p->ctl, rc);
    rc = kvc_list(p->ctl->kvc, KVC_TABLE_PINS, NULL, take_size, &s);
    if (rc < 0)
        return ctl_fail(p->ctl, rc);
    if (p->ctl->json)
        json_print(json_pack("{s:I, s:I, s:I}", "pin", (json_int_t)s.id, "tokens",
                             (json_int_t)s.tokens, "bytes", (json_int_t)s.bytes));
    else
        printf("pin %llu: %s tokens, %s\n", (unsigned long long)s.id,
               units_format_count(s.tokens, tokens), units_format_bytes(s.bytes, size));
    return CTL_OK;
}

static int ctl_pin_add(struct ctl *ctl, int argc, char **argv)
{
    struct pin p = {.ctl = ctl};
    struct chain chain = {.ids = NULL};
    int rc = ctl_options(ctl, argc, argv, add_table, help, &p);
    if (rc == 0)
        rc = pin_check(&p, argc, argv);
    if (rc == 0)
        rc = chain_read(&p.ask);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc == 0)
        rc = ctl_pin_find(&p, &chain);
    if (rc == 0)
        rc = take_pin(&p, &chain);
    chain_free(&chain);
    chain_ask_free(&p.ask);
    return rc;
}

/* ---- list ---- */

static int pin_list(struct ctl *ctl, int argc, char **argv)
{
    static const struct rows_view view[] = {ROWS_PLAIN(">PIN", "pin"),
                                            ROWS_PLAIN("PRINCIPAL", "principal"),
                                            ROWS_TENANT("TENANT"),
                                            ROWS_PLAIN(">NS", "ns"),
                                            ROWS_PLAIN(">TOKENS", "tokens"),
                                            ROWS_PLAIN(">SIZE", "bytes"),
                                            ROWS_EITHER("WHERE", "in_memory", "memory", "any tier"),
                                            ROWS_DASH(">LEFT", "left_ms"),
                                            ROWS_PLAIN("TIP", "tip"),
                                            ROWS_END};
    struct rows rows;
    int rc = ctl_options_only(ctl, argc, argv, add_table, help, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    rc = rows_take(ctl, KVC_TABLE_PINS, &rows);
    return rows_show(ctl, rc, &rows, view,
                     "nothing is pinned by hand; documents that are, 'kvcachectl doc list' shows");
}

/* ---- rm ---- */

static int rm(struct ctl *ctl, int argc, char **argv)
{
    uint64_t id = 0;
    int rc = ctl_options(ctl, argc, argv, add_table, help, NULL);
    const int first = optind;
    const char *why = "";
    if (rc == 0 && first == argc)
        rc = ctl_usage("which pin? 'kvcachectl pin list' shows them");
    for (int i = first; rc == 0 && i < argc; i++)
        if (units_parse_count(argv[i], &id, &why) < 0)
            rc = ctl_usage("'%s' is no pin: %s; 'kvcachectl pin list' shows them", argv[i], why);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    for (int i = first; i < argc; i++) {
        const int error =
            units_parse_count(argv[i], &id, &why) < 0 ? -EINVAL : kvc_unpin(ctl->kvc, id);
        if (error == KVC_E_NO_NAME)
            ctl_error("there is no pin %s of yours; it may have ended", argv[i]);
        const int code = error == 0               ? 0
                         : error == KVC_E_NO_NAME ? CTL_NOTHING
                                                  : ctl_fail(ctl, error);
        rc = code > rc ? code : rc;
    }
    return rc;
}

int cmd_pin(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_cmd verbs[] = {
        {"add", ctl_pin_add}, {"list", pin_list}, {"rm", rm}, {NULL, NULL}};
    return ctl_verbs(ctl, argc, argv, add_table, help, verbs);
}
