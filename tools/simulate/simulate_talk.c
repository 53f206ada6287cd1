/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up conversations: each turn asks for all before it, and some share a system prompt. */
#include <errno.h>
#include <stdlib.h>

#include "simulate.h"

enum {
    TALKS = 4096, /* conversations at the same time */
    PROMPTS = 16,
    PROMPT_BLOCKS = 4, /* so many first blocks of a conversation are its system prompt's */
    TURN_BLOCKS = 16,
    TURNS_MAX = 6
};

/* Ids below this are system prompts'; a conversation's n-th block is its number times that and n.
 */
#define TALK_IDS ((uint64_t)PROMPT_BLOCKS + TURN_BLOCKS * TURNS_MAX)

struct talk {
    uint64_t number;
    uint32_t turns;
};

static uint64_t simulate_talk_draw(uint64_t *random)
{
    *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
    return *random >> 20;
}

static void write_turn(struct trace *trace, const struct talk *talk)
{
    const uint32_t blocks = PROMPT_BLOCKS + talk->turns * TURN_BLOCKS;
    trace->requests[trace->n_requests] = (struct trace_request){
        .timestamp_ms = 10 * (trace->n_requests + 1), .blocks = blocks, .first = trace->n_ids};
    trace->n_requests++;
    for (uint32_t i = 0; i < blocks; i++)
        trace->ids[trace->n_ids++] = i < PROMPT_BLOCKS ? talk->number % PROMPTS * PROMPT_BLOCKS + i
                                                       : talk->number * TALK_IDS + i;
}

int sim_conversations(uint64_t blocks, struct trace **ret_trace)
{
    const uint64_t requests = (blocks + blocks / 2) / TURN_BLOCKS + 1;
    struct trace *trace = calloc(1, sizeof(*trace));
    struct talk *talks = calloc(TALKS, sizeof(*talks));
    if (trace) {
        trace->blocks_max = (uint32_t)TALK_IDS;
        trace->requests = calloc(requests, sizeof(*trace->requests));
        trace->ids = calloc(requests, TALK_IDS * sizeof(*trace->ids));
    }
    if (!talks || !trace || !trace->requests || !trace->ids) {
        free(talks);
        trace_destroy(&trace);
        return -ENOMEM;
    }
    uint64_t random = 88172645463325252u, number = PROMPTS * PROMPT_BLOCKS;
    while (trace->n_requests < requests) {
        struct talk *talk = &talks[simulate_talk_draw(&random) % TALKS];
        if (talk->turns == 0 || talk->turns == TURNS_MAX || simulate_talk_draw(&random) % 3 == 0)
            *talk = (struct talk){.number = ++number};
        talk->turns++;
        write_turn(trace, talk);
    }
    free(talks);
    *ret_trace = trace;
    return 0;
}
