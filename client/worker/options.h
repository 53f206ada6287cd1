/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of kvcache-worker. */
#ifndef WORKER_OPTIONS_H
#define WORKER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "kv.h"

#define OPTIONS_PROMPTS_MAX 64u

enum { EXIT_GOOD = 0, EXIT_FAULT = 1, EXIT_USAGE = 2, EXIT_NO_DAEMON = 3 };

struct options {
    const char *model, *preset; /* exactly one is set; the other is NULL */
    uint64_t seed;
    struct {
        const char *text; /* or, where ids is set, numbers */
        bool ids;
    } prompt[OPTIONS_PROMPTS_MAX];
    uint32_t prompts;
    bool from_stdin, chat, json, wait, no_daemon, quiet, raw;
    uint32_t new_tokens, chunk, threads;
    const struct kv_strategy *strategy;
    uint32_t k_type, v_type, exact, block, context;
    uint64_t prefill_ns;
    const char *conversation, *document, *file, *system, *socket;
};

/* Reads the command line. -1: the program goes on; else the exit status for main(), and all output
 * has been written. */
int options_take(int argc, char **argv, struct options *ret_options);
/* Writes "kvcache-worker: TEXT" to stderr. */
__attribute__((format(printf, 1, 2))) void worker_say(const char *format, ...);

#endif
