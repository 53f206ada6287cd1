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

/* Options beyond CHAIN_OPTIONS, for the tables of verbs. */
#define NAMED_SUB                           \
    {                                       \
        "sub", required_argument, NULL, 's' \
    }
#define NAMED_PRIORITY                           \
    {                                            \
        "priority", required_argument, NULL, 'p' \
    }
#define NAMED_TTL                           \
    {                                       \
        "ttl", required_argument, NULL, 'l' \
    }
#define NAMED_PIN                     \
    {                                 \
        "pin", no_argument, NULL, 'P' \
    }
#define NAMED_DURABLE                     \
    {                                     \
        "durable", no_argument, NULL, 'D' \
    }

/* Goes through a verb's command line, with its one operand: a name (0 = it may be missing). 0, an
 * enum ctl_exit, or -1 when --help was served. */
int named_options(struct named *n, int argc, char **argv, const struct option *options,
                  const char *help, bool must);
/* The same for a verb with a file behind the name (NULL: there was none). */
int named_options2(struct named *n, int argc, char **argv, const struct option *options,
                   const char *help, const char **ret_file);
/* One option of a verb's table; `ctx` of ctl_options() is the struct named. */
int named_take(void *ctx, int c, const char *value);
/* kvc_name_put() with what the command line says, and the outcome on stdout. `old`: its place in
 * the names so far, whose priority, TTL and pin stay unless others were given; NULL: a new one. */
int named_put(const struct named *n, const struct chain *chain, const struct kvc_name_info *old);
/* What kvc_name_put() failed with; an enum ctl_exit. */
int named_fail(const struct named *n, int error);

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
