/* SPDX-License-Identifier: Apache-2.0 */
/* The worker that the command line describes: its model, its store, its sequences. One thread. */
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
    struct store *store; /* NULL: without a daemon */
    struct sequence seq[OPTIONS_PROMPTS_MAX];
    uint32_t seqs;
    struct {
        uint32_t tokens; /* tokens that the last turn made */
        uint32_t end;    /* the token that ends the sequence's turn, or TOKENIZER_NONE */
    } made[OPTIONS_PROMPTS_MAX];
    float *logits; /* [seqs][vocab] */
    uint64_t load_ns;
    char why[MODEL_WHY_BYTES];
};

/* Figures of a turn of all sequences. */
struct turn {
    uint64_t ttft_ns, decode_ns; /* time to the first token; time of the tokens after it */
    uint32_t steps;              /* tokens after the first one of each sequence */
};

/* These functions return 0, or the program's exit code after printing the reason. */
int worker_begin(const struct options *options, struct worker **ret_worker);
void worker_end(struct worker **worker);
/* Makes sequence i. It begins with the tokens of the document or conversation, if one is named. */
int worker_sequence(struct worker *w, uint32_t i);
/* Prefills all sequences, and appends `new_tokens` tokens to each, fewer if its turn ends before.
 * Calls `shown`, unless it is NULL, with each of these tokens. */
int worker_turn(struct worker *w, void (*shown)(struct worker *w, uint32_t token),
                struct turn *ret_turn);
/* Stores the sequences, and moves the conversation's or document's name to them, if there is one.
 */
int worker_keep(struct worker *w);
/* The loop of --chat. */
int worker_chat(struct worker *w);

/* Appends to sequence i what a role says: a message by the model's chat template, or the text
 * itself if there is no template or --raw was given. */
int worker_say_to(struct worker *w, uint32_t i, enum text_role role, const char *text, size_t n);
int ids_append(struct worker *w, struct sequence *seq, const char *text);
/* Whether messages have a template. */
bool worker_has_turns(const struct worker *w);

#endif
