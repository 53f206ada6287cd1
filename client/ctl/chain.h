/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cached sequence as an operator names it: by its last block, by its token ids, or by the name of
 * a document or conversation; and what libkvcache wants to have of it. One thread.
 */
#ifndef CTL_CHAIN_H
#define CTL_CHAIN_H

#include "ctl.h"
#include "key.h"

struct chain {
    struct kvc_ns_spec *spec; /* owned */
    struct kvc_ns *ns;        /* borrowed from the session */
    struct kvc_seq seq;       /* its keys are owned */
    uint32_t *ids;            /* owned: those of the seq.tokens tokens; NULL = not known */
};

/* How a sequence was named on the command line. Zero: not at all. */
struct chain_ask {
    uint32_t ns;
    struct key_arg tip; /* the last block, in a group of full attention if there is one */
    const char *tokens; /* a file with token ids, see tokens_read() */
    uint32_t *ids;      /* owned: what it has, after chain_read() */
    uint32_t nids;
};

/* Rows of a table of options, for what no help text lists; `member` is the struct chain_ask. */
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

/* Fills in the namespace with this id: spec and ns. 0, or an enum ctl_exit after saying what is
 * wrong. chain_free() in any case. */
int chain_open_ns(const struct ctl *ctl, uint32_t ns, struct chain *chain);
/* The sequence that was asked for, in its namespace. With a tip its keys are those of the blocks
 * that are there; with token ids and no tip, those that libkvcache makes of them. Groups with
 * blocks of another size than the tip's need the ids, which the chain takes over. As above. */
int chain_find(const struct ctl *ctl, struct chain_ask *ask, struct chain *chain);
/* That of a document or conversation, whose particulars are in `info`. As above. */
int chain_of_name(const struct ctl *ctl, const struct kvc_name_info *info, const char *sub,
                  struct chain *chain);
/* kvc_name_show(), with its errors told: 0, or an enum ctl_exit. */
int chain_show_name(const struct ctl *ctl, enum kvc_name_kind kind, const char *name,
                    const char *sub, struct kvc_name_info *ret_info);
void chain_free(struct chain *chain);

/* Makes the keys of all groups from chain->ids, with this namespace's seed. */
int chain_hash(struct chain *chain, uint32_t tokens);
/* Blocks that `tokens` tokens take in this group. */
uint32_t chain_blocks(const struct kvc_ns_spec *spec, uint32_t group, uint32_t tokens);

/* "document" or "conversation". */
const char *chain_kind_name(unsigned kind);

/* Token ids from a file: a JSON array if its name ends in .json, else u32 little-endian. Returns
 * owned. 0, or CTL_USAGE after saying what is wrong. */
int tokens_read(const char *path, uint32_t **ret_ids, uint32_t *ret_n);

#endif
