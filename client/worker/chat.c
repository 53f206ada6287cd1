/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation in the terminal. With a name it is stored after each turn, so that it goes on when
 * worker and daemon have died in between. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker.h"

static void say_turn(const struct worker *w, const struct turn *turn)
{
    const struct sequence *s = &w->seq[0];
    if (w->is.quiet)
        return;
    fprintf(stderr, "[%u tokens: %u from the daemon, %u computed; first token after %.1f ms]\n",
            s->n, s->prefill.taken, s->prefill.computed, (double)turn->ttft_ns / 1e6);
}

int worker_chat(struct worker *w)
{
    char *line = NULL;
    size_t room = 0;
    int rc = worker_sequence(w, 0);
    const bool typed = isatty(STDIN_FILENO);
    if (rc == 0 && w->is.conversation && !w->is.quiet)
        worker_say("conversation '%s': %u tokens so far; end with Ctrl-D", w->is.conversation,
                   w->seq[0].n);
    while (rc == 0) {
        if (typed)
            fputs("> ", stdout);
        (void)fflush(stdout);
        const ssize_t n = getline(&line, &room, stdin);
        if (n <= 0)
            break;
        struct turn turn;
        rc = text_append(w, &w->seq[0], line, (size_t)n);
        rc = rc == 0 ? worker_turn(w, token_show, &turn) : rc;
        if (rc == 0) {
            putchar('\n');
            say_turn(w, &turn);
            rc = worker_keep(w);
        }
    }
    free(line);
    return rc;
}
