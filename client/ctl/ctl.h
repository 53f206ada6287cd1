/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the commands of kvcachectl: the session, the options that every command has, exit
 * codes, messages. One thread. Each command is one file with a function cmd_<name>().
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
    CTL_DOWN = 3,   /* there is no daemon, or it does not answer in time */
    CTL_DENIED = 4, /* this uid has no right to do that */
    CTL_FAILED = 5,
    CTL_CORRUPT = 6 /* verify found blocks whose bytes are not those that were stored */
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

/* Parses a command line: the options of every command go to `ctl`, those of this command to `base`.
 * base NULL: `options` are those of the command's verbs, and only the help uses them. 0, and optind
 * is at the first operand; an enum ctl_exit when something is wrong; -1 after --help or --version.
 */
int ctl_options(struct ctl *ctl, int argc, char **argv, const struct arg *options, const char *help,
                void *base);
/* The same for a command that has no operands, and refuses them. */
int ctl_options_only(struct ctl *ctl, int argc, char **argv, const struct arg *options,
                     const char *help, void *base);
/* The same up to the first operand, for a program with commands or a command with verbs. */
int ctl_options_before(struct ctl *ctl, int argc, char **argv, const struct arg *listed,
                       const char *help);
/* Prints a help text, and behind it the options that every command has. */
void ctl_help(FILE *to, const char *help);

/* Runs the verb that argv names. `verbs` ends with a NULL name. `listed`: options of the verbs, for
 * the help; or NULL. */
int ctl_verbs(struct ctl *ctl, int argc, char **argv, const struct arg *listed, const char *help,
              const struct ctl_cmd *verbs);

/* Opens a regular file of the command line for reading; the caller closes it with fclose(). NULL
 * after saying why not: the command's exit code is CTL_USAGE then. */
FILE *ctl_open(const char *path);

/* Opens ctl->kvc. 0, or an enum ctl_exit after saying what is wrong and what to do. */
int ctl_connect(struct ctl *ctl);
/* Prints the error of a call of the library, and returns the enum ctl_exit for it. */
int ctl_fail(const struct ctl *ctl, int error);
/* Prints a line on stdout, with '?' in place of control characters. */
__attribute__((format(printf, 1, 2))) void ctl_line(const char *format, ...);
/* Prints "kvcachectl: TEXT" on stderr, likewise. */
__attribute__((format(printf, 1, 2))) void ctl_error(const char *format, ...);
/* The same, and then a hint to --help; returns CTL_USAGE. */
__attribute__((format(printf, 1, 2))) int ctl_usage(const char *format, ...);
/* Sets the name of the command that runs, for messages and hints; "" for none. */
void ctl_set_command(const char *name);
/* The path of the daemon's socket, for messages. */
const char *ctl_socket(const struct ctl *ctl);

/* The names of a set of enum kvc_tier_id: "host", "hbm+host+nvme", ...; "-" for an empty set. */
const char *ctl_tier_names(unsigned tiers);
/* A row for --ns ID. Namespace ids are whole numbers from 1 on. */
#define CTL_NS(type, member, help)                            \
    {                                                         \
        "--ns ID", help, ARG_DO_AT(type, member, ctl_take_ns) \
    }
int ctl_take_ns(void *at, const char *text);
/* The value of an option --NAME SIZE|none. */
struct ctl_size {
    uint64_t bytes; /* UINT64_MAX: "none" */
    bool given;     /* the command line has the option */
};
int ctl_parse_size(const char *text, void *at, const char **ret_why);

#endif
