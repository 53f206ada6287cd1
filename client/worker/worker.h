/* SPDX-License-Identifier: Apache-2.0 */
/* A worker as the command line says it: its model, its store, its sequences. One thread. */
#ifndef WORKER_H
#define WORKER_H

#include "options.h"
#include "sequence.h"
#include "text.h"

struct worker {
    struct options is;
    struct model model;
    struct text text;
    struct text_out out; /* of --chat */
    struct store *store; /* NULL: works alone */
    struct sequence seq[OPTIONS_PROMPTS_MAX];
    uint32_t seqs;
    struct {
        uint32_t tokens; /* of the last turn */
        uint32_t end;    /* the token behind which nothing follows, or TOKENIZER_NONE */
    } made[OPTIONS_PROMPTS_MAX];
    float *logits; /* [seqs][vocab] */
    uint64_t load_ns;
    char why[MODEL_WHY_BYTES];
};

/* What came of a turn, of all sequences. */
struct turn {
    uint64_t ttft_ns, decode_ns;
    uint32_t steps; /* tokens, but for the first of each sequence */
};

/* 0, or an exit code after saying why. */
int worker_begin(const struct options *options, struct worker **ret_worker);
void worker_end(struct worker **worker);
/* Sequence i, which begins with what the document or conversation has. */
int worker_sequence(struct worker *w, uint32_t i);
/* Prefill of all sequences and `new_tokens` tokens of each, or up to its end, which are appended;
 * `shown`, where it is given, is called with each. */
int worker_turn(struct worker *w, void (*shown)(struct worker *w, uint32_t token),
                struct turn *ret_turn);
/* What was said is stored, and named where it has a name. */
int worker_keep(struct worker *w);
/* The loop of --chat. */
int worker_chat(struct worker *w);

/* What a role says to sequence i: a message by the model's chat template, where it has one and no
 * --raw forbids it; else text as it is. */
int worker_say_to(struct worker *w, uint32_t i, enum text_role role, const char *text, size_t n);
int ids_append(struct worker *w, struct sequence *seq, const char *text);
/* Whether messages have a template. */
bool worker_has_turns(const struct worker *w);

#endif
