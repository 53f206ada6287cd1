/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs of 'doc' and 'conv' share. One thread. */
#ifndef CTL_NAMED_H
#define CTL_NAMED_H

#include "chain.h"

struct json_t;

/* A verb's command line. */
struct named {
    struct ctl *ctl;
    enum kvc_name_kind kind;
    const char *name; /* the operand; NULL = none */
    const char *sub;  /* --sub */
    struct chain_ask ask;
    uint64_t priority, ttl_ms; /* UINT64_MAX = not given */
    bool pin, off, durable, evict, no_wait;
};

/* Rows for the tables of verbs. */
#define NAMED_SUB                                                                             \
    {                                                                                         \
        "--sub NAME", "for gateways: the sub-tenant of the name", ARG_TEXT(struct named, sub) \
    }
#define NAMED_PRIORITY                                                    \
    {                                                                     \
        "--priority N", "1 to 100; higher ones stay longer (default 35)", \
            ARG_COUNT(struct named, priority, 1, KVC_PRIORITY_MAX)        \
    }
#define NAMED_TTL(value, help)                                                 \
    {                                                                          \
        "--ttl " value, help, ARG_PARSE(struct named, ttl_ms, named_parse_ttl) \
    }
#define NAMED_PIN                                                                       \
    {                                                                                   \
        "--pin", "no block is evicted to make room, within the budget of pinned bytes", \
            ARG_FLAG(struct named, pin)                                                 \
    }
/* Parses a TTL: "none", or a time of at least a millisecond. */
int named_parse_ttl(const char *text, void *at, const char **ret_why);

/* Parses a verb's command line with its one operand, a name (`must` false: it may be missing). 0,
 * an enum ctl_exit, or -1 after --help. */
int named_options(struct named *n, int argc, char **argv, const struct arg *options,
                  const char *help, bool must);
/* The same for a verb with a file behind the name; *ret_file NULL: no file was given. */
int named_options2(struct named *n, int argc, char **argv, const struct arg *options,
                   const char *help, const char **ret_file);
/* Calls kvc_name_put() as the command line says, and prints the outcome. `old`: the name as it is
 * now, whose priority, TTL and pin stay unless the command line has others; NULL: a new name.
 * Returns an enum ctl_exit. */
int named_put(const struct named *n, const struct chain *chain, const struct kvc_name_info *old);
/* Prints the error of kvc_name_put(); returns an enum ctl_exit. */
int named_fail(const struct named *n, int error);

/* The error because of which the daemon has no journal of names, so that names end with it. 0:
 * there is none, or this session may not know (only administrators see the statistics). */
int named_error(struct ctl *ctl);
/* Prints that error on stderr; nothing for 0. */
void named_tell_error(int error);
/* That error as a text, or null for 0; the caller owns the value. */
struct json_t *named_error_json(int error);

/* Verbs that documents and conversations have in common. */
int named_list(struct named *n, int argc, char **argv, const char *help);
int named_show(struct named *n, int argc, char **argv, const char *help);
int named_save(struct named *n, int argc, char **argv, const char *help);
int named_forget(struct named *n, int argc, char **argv, const char *help);
int named_preload(struct named *n, int argc, char **argv, const char *help);

/* Writes why blocks stay: "; 16 stay: 14 are shared with other names, 2 in use"; "" if none stays.
 */
#define NAMED_STAYS_BYTES 320u
const char *named_stays(const struct kvc_evicted *done, const struct kvc_kept *kept,
                        char text[NAMED_STAYS_BYTES]);
struct json_t *named_kept_json(const struct kvc_kept *kept);

/* doc_export.c, doc_import.c */
int doc_export(struct ctl *ctl, int argc, char **argv);
int doc_import(struct ctl *ctl, int argc, char **argv);

#endif
