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

static void chat_show(struct worker *w, uint32_t token)
{
    text_put(&w->text, &w->out, token, stdout);
    (void)fflush(stdout);
}

/* Appends a message. A message is a line; without a template its line break belongs to it. */
static int turn_of(struct worker *w, const char *line, size_t n)
{
    struct turn turn;
    if (worker_has_turns(w) && line[n - 1] == '\n')
        n--;
    if (n == 0)
        return 0;
    int rc = worker_say_to(w, 0, TEXT_USER, line, n);
    rc = rc == 0 ? worker_turn(w, chat_show, &turn) : rc;
    if (rc != 0)
        return rc;
    text_put_end(&w->out, stdout);
    putchar('\n');
    (void)fflush(stdout);
    rc = worker_keep(w);
    if (rc == 0) /* the turn has been stored when this is printed */
        say_turn(w, &turn);
    return rc;
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
        rc = turn_of(w, line, (size_t)n);
    }
    free(line);
    return rc;
}
