/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated traces. Conversations arrive at random, each starts with one of a few system prompts
 * (some much more popular than others) and takes several turns; a turn's prompt is all that was
 * said before plus the new question. A block that was only partly filled in one turn has another id
 * in the next, as its contents differ.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "random.h"
#include "trace.h"

enum {
    SYSTEM_PROMPTS = 8,
    ARRIVAL_MEAN_MS = 1000,
    THINK_MEAN_MS = 30000,
    TURNS_MEAN = 5,
    QUESTION_MEAN_TOKENS = 600,
    ANSWER_MEAN_TOKENS = 350,
    PROMPT_MAX_TOKENS = 120000
};

struct talk {
    uint64_t at_ms; /* time of its next turn */
    uint32_t tokens;
    uint32_t turns_left;
    uint32_t whole_blocks; /* ids[0 .. whole_blocks) do not change any more */
    uint32_t cap;
    uint64_t *ids;
};

struct gen {
    uint64_t random;
    uint64_t next_id;
    uint32_t block_tokens;
    uint32_t system_tokens[SYSTEM_PROMPTS];
    uint64_t system_first_id[SYSTEM_PROMPTS];
    uint64_t next_arrival_ms;
    struct talk **heap; /* the earliest comes first */
    size_t n_talks, heap_cap;
};

static uint32_t draw_exponential(struct gen *gen, uint32_t mean)
{
    double x = -log(1.0 - random_unit(&gen->random)) * mean;
    return 1 + (uint32_t)fmin(x, 20.0 * mean);
}

/* Prompt k is chosen with a probability proportional to 1 / (k + 1). */
static unsigned draw_system_prompt(struct gen *gen)
{
    double sum = 0;
    for (unsigned i = 0; i < SYSTEM_PROMPTS; i++)
        sum += 1.0 / (i + 1);
    double x = random_unit(&gen->random) * sum;
    for (unsigned i = 0; i < SYSTEM_PROMPTS; i++) {
        x -= 1.0 / (i + 1);
        if (x < 0)
            return i;
    }
    return SYSTEM_PROMPTS - 1;
}

static void swap(struct talk **a, struct talk **b)
{
    struct talk *t = *a;
    *a = *b;
    *b = t;
}

static int heap_push(struct gen *gen, struct talk *talk)
{
    if (gen->n_talks == gen->heap_cap) {
        size_t cap = gen->heap_cap ? 2 * gen->heap_cap : 64;
        struct talk **heap = realloc(gen->heap, cap * sizeof(*heap));
        if (!heap)
            return -ENOMEM;
        gen->heap = heap;
        gen->heap_cap = cap;
    }
    size_t i = gen->n_talks++;
    gen->heap[i] = talk;
    for (; i > 0 && gen->heap[(i - 1) / 2]->at_ms > gen->heap[i]->at_ms; i = (i - 1) / 2)
        swap(&gen->heap[(i - 1) / 2], &gen->heap[i]);
    return 0;
}

static struct talk *heap_pop(struct gen *gen)
{
    struct talk *first = gen->heap[0];
    gen->heap[0] = gen->heap[--gen->n_talks];
    for (size_t i = 0;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < gen->n_talks && gen->heap[child + 1]->at_ms < gen->heap[child]->at_ms)
            child++;
        if (child >= gen->n_talks || gen->heap[i]->at_ms <= gen->heap[child]->at_ms)
            break;
        swap(&gen->heap[i], &gen->heap[child]);
        i = child;
    }
    return first;
}

static int talk_reserve(struct talk *talk, uint32_t blocks)
{
    if (blocks <= talk->cap)
        return 0;
    uint64_t *ids = realloc(talk->ids, 2 * blocks * sizeof(*ids));
    if (!ids)
        return -ENOMEM;
    talk->ids = ids;
    talk->cap = 2 * blocks;
    return 0;
}

static void talk_free(struct talk *talk)
{
    free(talk->ids);
    free(talk);
}

static int talk_begin(struct gen *gen)
{
    struct talk *talk = calloc(1, sizeof(*talk));
    if (!talk)
        return -ENOMEM;
    unsigned prompt = draw_system_prompt(gen);
    talk->at_ms = gen->next_arrival_ms;
    talk->tokens = gen->system_tokens[prompt];
    talk->turns_left = draw_exponential(gen, TURNS_MEAN);
    talk->whole_blocks = talk->tokens / gen->block_tokens;
    int rc = talk_reserve(talk, talk->whole_blocks + 1);
    if (rc == 0)
        rc = heap_push(gen, talk);
    if (rc < 0) {
        talk_free(talk);
        return rc;
    }
    for (uint32_t i = 0; i < talk->whole_blocks; i++)
        talk->ids[i] = gen->system_first_id[prompt] + i;
    gen->next_arrival_ms += draw_exponential(gen, ARRIVAL_MEAN_MS);
    return 0;
}

static int write_turn(struct gen *gen, struct talk *talk, FILE *to)
{
    talk->tokens += draw_exponential(gen, QUESTION_MEAN_TOKENS);
    uint32_t answer = draw_exponential(gen, ANSWER_MEAN_TOKENS);
    uint32_t blocks = (talk->tokens + gen->block_tokens - 1) / gen->block_tokens;
    int rc = talk_reserve(talk, blocks);
    if (rc < 0)
        return rc;
    errno = 0;
    for (uint32_t i = talk->whole_blocks; i < blocks; i++)
        talk->ids[i] = gen->next_id++;

    fprintf(to, "{\"timestamp\": %" PRIu64 ", \"input_length\": %u, \"output_length\": %u, ",
            talk->at_ms, talk->tokens, answer);
    fputs("\"hash_ids\": [", to);
    for (uint32_t i = 0; i < blocks; i++)
        fprintf(to, "%s%" PRIu64, i ? ", " : "", talk->ids[i]);
    if (fputs("]}\n", to) < 0 || ferror(to))
        return errno ? -errno : -EIO;

    talk->whole_blocks = talk->tokens / gen->block_tokens;
    talk->tokens += answer;
    talk->at_ms += draw_exponential(gen, THINK_MEAN_MS);
    talk->turns_left--;
    return 0;
}

static int next_turn(struct gen *gen, FILE *to)
{
    while (gen->n_talks == 0 || gen->next_arrival_ms < gen->heap[0]->at_ms) {
        int rc = talk_begin(gen);
        if (rc < 0)
            return rc;
    }
    struct talk *talk = heap_pop(gen);
    int rc = write_turn(gen, talk, to);
    if (rc == 0 && talk->turns_left > 0 && talk->tokens < PROMPT_MAX_TOKENS)
        rc = heap_push(gen, talk);
    else
        talk_free(talk);
    return rc;
}

int trace_generate(const struct trace_gen_options *options, FILE *to)
{
    struct gen gen = {.random = options->seed, .block_tokens = options->block_tokens};
    for (unsigned i = 0; i < SYSTEM_PROMPTS; i++) {
        gen.system_tokens[i] = 500 + (uint32_t)(random_next(&gen.random) % 3000);
        gen.system_first_id[i] = gen.next_id;
        gen.next_id += gen.system_tokens[i] / gen.block_tokens;
    }
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < options->requests; i++)
        rc = next_turn(&gen, to);
    while (gen.n_talks > 0)
        talk_free(gen.heap[--gen.n_talks]);
    free(gen.heap);
    return rc == 0 && fflush(to) != 0 ? -errno : rc;
}
