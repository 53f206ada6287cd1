/* SPDX-License-Identifier: Apache-2.0 */
/* A worker as the command line says it: its model, its store, its sequences. One thread. */
#ifndef WORKER_H
#define WORKER_H

#include "options.h"
#include "sequence.h"

struct worker {
    struct options is;
    struct model model;
    struct store *store; /* NULL: works alone */
    struct sequence seq[OPTIONS_PROMPTS_MAX];
    uint32_t seqs;
    float *logits; /* [seqs][vocab] */
    uint64_t load_ns;
    char why[MODEL_WHY_BYTES];
};

/* What came of a turn, of all sequences. */
struct turn {
    uint64_t ttft_ns, decode_ns;
    uint32_t steps; /* after the first token */
};

/* 0, or an exit code after saying why. */
int worker_begin(const struct options *options, struct worker **ret_worker);
void worker_end(struct worker **worker);
/* Sequence i, which begins with what the document or conversation has. */
int worker_sequence(struct worker *w, uint32_t i);
/* Prefill of all sequences and `new_tokens` tokens of each, which are appended; `shown`, where it
 * is given, is called with each. */
int worker_turn(struct worker *w, void (*shown)(uint32_t token), struct turn *ret_turn);
/* What was said is stored, and named where it has a name. */
int worker_keep(struct worker *w);
/* The loop of --chat. */
int worker_chat(struct worker *w);
/* Says `w->why` and returns EXIT_FAULT. */
int worker_fault(struct worker *w);

/* Text as tokens, each byte one. */
int text_append(struct worker *w, struct sequence *seq, const char *text, size_t n);
int ids_append(struct worker *w, struct sequence *seq, const char *text);
/* On stdout: a byte that a terminal takes as it is, '?' for others, <id> for what is no byte. */
void token_show(uint32_t token);

#endif
