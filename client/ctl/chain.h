/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cached sequence that an operator names by its last block, by its token ids, or by the name of a
 * document or conversation; and its keys, which libkvcache needs. One thread.
 */
#ifndef CTL_CHAIN_H
#define CTL_CHAIN_H

#include "ctl.h"
#include "key.h"

struct chain {
    struct kvc_ns_spec *spec; /* owned */
    struct kvc_ns *ns;        /* borrowed from the session */
    struct kvc_seq seq;       /* its keys are owned */
    uint32_t *ids;            /* owned: the ids of all seq.tokens tokens; NULL = not known */
};

/* How the command line names a sequence. All zero: it names none. */
struct chain_ask {
    uint32_t ns;
    struct key_arg tip; /* the last block, in a group of full attention if there is one */
    const char *tokens; /* a file with token ids, see tokens_read() */
    uint32_t *ids;      /* owned: the ids of that file, after chain_read() */
    uint32_t nids;
};

/* Rows of a table of options, which the help does not list; `member` is the struct chain_ask. */
#define CHAIN_OPTIONS(type, member)                                      \
    CTL_NS(type, member.ns, NULL),                                       \
        {"--tip KEY", NULL, ARG_PARSE(type, member.tip, key_arg_parse)}, \
    {                                                                    \
        "--tokens FILE", NULL, ARG_TEXT(type, member.tokens)             \
    }
/* 0, or CTL_USAGE after saying what is missing. */
int chain_check(const struct chain_ask *ask);
/* Reads the file with token ids, if one was named: 0, or an enum ctl_exit after saying what is
 * wrong. */
int chain_read(struct chain_ask *ask);
void chain_ask_free(struct chain_ask *ask);

/* The next three fill `chain`, and return 0, or an enum ctl_exit after saying what is wrong. The
 * caller calls chain_free() in either case.
 *
 * Opens the namespace with this number: sets `spec` and `ns`. */
int chain_open_ns(const struct ctl *ctl, uint32_t ns, struct chain *chain);
/* Finds the sequence of the command line in its namespace. With a tip, its keys are those of the
 * cached blocks; with token ids alone, libkvcache makes the keys from them. A group whose block
 * size differs from the tip's needs the ids. The chain takes the ids over. */
int chain_find(const struct ctl *ctl, struct chain_ask *ask, struct chain *chain);
/* Finds the sequence of the document or conversation that `info` describes. */
int chain_of_name(const struct ctl *ctl, const struct kvc_name_info *info, const char *sub,
                  struct chain *chain);
/* kvc_name_show(); prints its error. 0, or an enum ctl_exit. */
int chain_show_name(const struct ctl *ctl, enum kvc_name_kind kind, const char *name,
                    const char *sub, struct kvc_name_info *ret_info);
void chain_free(struct chain *chain);

/* Makes the keys of all groups from the first `tokens` ids of chain->ids, with this namespace's
 * seed. */
int chain_hash(struct chain *chain, uint32_t tokens);
/* How many blocks `tokens` tokens have in this group. */
uint32_t chain_blocks(const struct kvc_ns_spec *spec, uint32_t group, uint32_t tokens);

/* "document" or "conversation". */
const char *chain_kind_name(unsigned kind);

/* Token ids from a file: a JSON array if its name ends in .json, else u32 little-endian. Returns
 * owned. 0, or CTL_USAGE after saying what is wrong. */
int tokens_read(const char *path, uint32_t **ret_ids, uint32_t *ret_n);

#endif
