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
#define NAMED_SUB                                                                    \
    {                                                                                \
        "--sub NAME", "of gateways: of this sub-tenant", ARG_TEXT(struct named, sub) \
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
#define NAMED_PIN                                                         \
    {                                                                     \
        "--pin", "nothing of it goes, within the budget of pinned bytes", \
            ARG_FLAG(struct named, pin)                                   \
    }
/* "none", or at least a millisecond. */
int named_parse_ttl(const char *text, void *at, const char **ret_why);

/* Goes through a verb's command line, with its one operand: a name (0 = it may be missing). 0, an
 * enum ctl_exit, or -1 when --help was served. */
int named_options(struct named *n, int argc, char **argv, const struct arg *options,
                  const char *help, bool must);
/* The same for a verb with a file behind the name (NULL: there was none). */
int named_options2(struct named *n, int argc, char **argv, const struct arg *options,
                   const char *help, const char **ret_file);
/* kvc_name_put() with what the command line says, and the outcome on stdout. `old`: its place in
 * the names so far, whose priority, TTL and pin stay unless others were given; NULL: a new one. */
int named_put(const struct named *n, const struct chain *chain, const struct kvc_name_info *old);
/* What kvc_name_put() failed with; an enum ctl_exit. */
int named_fail(const struct named *n, int error);

/* The error by which names are noted nowhere and end with the daemon; 0: none, or the daemon does
 * not say, for it tells its statistics to administrators alone. */
int named_error(struct ctl *ctl);
/* On stderr; nothing for 0. */
void named_tell_error(int error);
/* Owned by the caller: a text, or null for 0. */
struct json_t *named_error_json(int error);

/* Verbs of both. */
int named_list(struct named *n, int argc, char **argv, const char *help);
int named_show(struct named *n, int argc, char **argv, const char *help);
int named_save(struct named *n, int argc, char **argv, const char *help);
int named_forget(struct named *n, int argc, char **argv, const char *help);
int named_preload(struct named *n, int argc, char **argv, const char *help);

/* "; 16 stay: 14 are shared with other names, 2 in use", or nothing when none does. */
#define NAMED_STAYS_BYTES 320u
const char *named_stays(const struct kvc_evicted *done, const struct kvc_kept *kept,
                        char text[NAMED_STAYS_BYTES]);
struct json_t *named_kept_json(const struct kvc_kept *kept);

/* doc_export.c, doc_import.c */
int doc_export(struct ctl *ctl, int argc, char **argv);
int doc_import(struct ctl *ctl, int argc, char **argv);

#endif
