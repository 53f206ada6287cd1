/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands of kvcachectl share: the session, the options that every command takes, exit
 * codes, messages. One thread; every command is one file with a cmd_<name>() in it.
 */
#ifndef CTL_H
#define CTL_H

#include <getopt.h> /* optind */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <kvcache/admin.h>
#include <kvcache/kvcache.h>

#include "args.h"

enum ctl_exit {
    CTL_OK = 0,
    CTL_NOTHING = 1, /* nothing matched, or a key is not cached */
    CTL_USAGE = 2,
    CTL_DOWN = 3,   /* no daemon there, or it does not answer in time */
    CTL_DENIED = 4, /* the daemon gives this uid no rights to it */
    CTL_FAILED = 5,
    CTL_CORRUPT = 6 /* verify found blocks that were not what had been stored */
};

struct ctl {
    const char *socket; /* NULL = the library's default */
    uint32_t timeout_ms;
    bool json;
    bool colour;
    struct kvc *kvc; /* NULL before ctl_connect */
};

struct ctl_cmd {
    const char *name;
    int (*run)(struct ctl *ctl, int argc, char **argv); /* returns enum ctl_exit */
};

int cmd_ping(struct ctl *ctl, int argc, char **argv);
int cmd_stats(struct ctl *ctl, int argc, char **argv);
int cmd_top(struct ctl *ctl, int argc, char **argv);
int cmd_ns(struct ctl *ctl, int argc, char **argv);
int cmd_explain(struct ctl *ctl, int argc, char **argv);
int cmd_blocks(struct ctl *ctl, int argc, char **argv);
int cmd_verify(struct ctl *ctl, int argc, char **argv);
int cmd_drain(struct ctl *ctl, int argc, char **argv);
int cmd_trace(struct ctl *ctl, int argc, char **argv);
int cmd_size(struct ctl *ctl, int argc, char **argv);
int cmd_evict(struct ctl *ctl, int argc, char **argv);
int cmd_doc(struct ctl *ctl, int argc, char **argv);
int cmd_conv(struct ctl *ctl, int argc, char **argv);
int cmd_pin(struct ctl *ctl, int argc, char **argv);
int cmd_quota(struct ctl *ctl, int argc, char **argv);
int cmd_policy(struct ctl *ctl, int argc, char **argv);
int cmd_usage(struct ctl *ctl, int argc, char **argv);
int cmd_sessions(struct ctl *ctl, int argc, char **argv);
int cmd_gpu(struct ctl *ctl, int argc, char **argv);

/* Takes the options of every command into `ctl`, and those of this one into `base` (NULL: they are
 * another verb's, and the help lists them; NULL too: there are none). 0 with optind at the first
 * operand; an enum ctl_exit when something is wrong; -1 when
 * --help or --version was served. */
int ctl_options(struct ctl *ctl, int argc, char **argv, const struct arg *options, const char *help,
                void *base);
/* The same for a command line without operands: one is refused. */
int ctl_options_only(struct ctl *ctl, int argc, char **argv, const struct arg *options,
                     const char *help, void *base);
/* The same up to the first operand, for what has commands or verbs. */
int ctl_options_before(struct ctl *ctl, int argc, char **argv, const struct arg *listed,
                       const char *help);
/* A help text that lists the options of every command. */
void ctl_help(FILE *to, const char *help);

/* A command of several verbs: runs the one that argv names. `verbs` ends with a NULL name. `listed`
 * are options of verbs that the help lists, or NULL. */
int ctl_verbs(struct ctl *ctl, int argc, char **argv, const struct arg *listed, const char *help,
              const struct ctl_cmd *verbs);

/* A regular file that the command line names, to be read; closed by fclose(). NULL after saying why
 * not: that is CTL_USAGE. */
FILE *ctl_open(const char *path);

/* 0, or an enum ctl_exit after saying what is wrong and what to do. */
int ctl_connect(struct ctl *ctl);
/* Says what a call of the library failed with; returns the fitting enum ctl_exit. */
int ctl_fail(const struct ctl *ctl, int error);
/* A line on stdout, with '?' for what could steer the terminal. */
__attribute__((format(printf, 1, 2))) void ctl_line(const char *format, ...);
/* "kvcachectl: TEXT" on stderr, likewise. */
__attribute__((format(printf, 1, 2))) void ctl_error(const char *format, ...);
/* The same, with the hint to --help; returns CTL_USAGE. */
__attribute__((format(printf, 1, 2))) int ctl_usage(const char *format, ...);
/* For messages and hints: the command that runs, "" for none. */
void ctl_set_command(const char *name);
const char *ctl_socket(const struct ctl *ctl);

/* "host", "hbm+host+nvme", ..., "-" of a set of enum kvc_tier_id. */
const char *ctl_tier_names(unsigned tiers);
/* --ns ID: namespace ids are whole numbers from 1 on. */
#define CTL_NS(type, member, help)                            \
    {                                                         \
        "--ns ID", help, ARG_DO_AT(type, member, ctl_take_ns) \
    }
int ctl_take_ns(void *at, const char *text);
/* --NAME SIZE|none, in a table of options. */
struct ctl_size {
    uint64_t bytes; /* UINT64_MAX: none */
    bool given;
};
int ctl_parse_size(const char *text, void *at, const char **ret_why);

#endif
