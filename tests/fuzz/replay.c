/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main of a target where libFuzzer does not drive it: every input of the files and directories
 * given, and damaged ones.
 */
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "corpus.h"
#include "fuzz.h"
#include "mutate.h"

#define INPUT_MAX 65536u

static uint64_t damage = 88172645463325252u;

/* For the mutators of the targets, which libFuzzer would serve. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
{
    return mutate(&damage, data, size, max_size);
}

__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return 0;
}

/* A target without a mutator of its own: bytes are bytes. */
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
                                                     unsigned seed)
{
    (void)seed;
    return mutate(&damage, data, size, max_size);
}

static const char *current = "the empty input";

static void run(const void *bytes, size_t len)
{
    uint8_t *copy = fuzz_copy(bytes, len);
    (void)LLVMFuzzerTestOneInput(copy, len);
    free(copy);
}

static void run_all(const struct corpus *c)
{
    run(NULL, 0);
    for (size_t i = 0; i < c->n; i++) {
        current = c->in[i].name;
        run(c->in[i].bytes, c->in[i].len);
    }
}

static void run_mutated(const struct corpus *c, uint64_t n)
{
    static uint8_t buf[INPUT_MAX];
    char name[4608];
    for (uint64_t i = 0; i < n && c->n > 0; i++) {
        const struct corpus_input *a = &c->in[mutate_below(&damage, (uint32_t)c->n)];
        const struct corpus_input *b = &c->in[mutate_below(&damage, (uint32_t)c->n)];
        size_t len = a->len < INPUT_MAX ? a->len : INPUT_MAX;
        if (len != 0)
            memcpy(buf, a->bytes, len);
        if (mutate_below(&damage, 8) == 0)
            len = mutate_splice(&damage, buf, len, INPUT_MAX, b->bytes, b->len);
        len = LLVMFuzzerCustomMutator(buf, len, INPUT_MAX, (unsigned)mutate_random(&damage));
        snprintf(name, sizeof(name), "mutation %llu, of %s", (unsigned long long)i, a->name);
        current = name;
        run(buf, len);
    }
}

/* Says which input it was, wherever the process ends. */
static void say(void)
{
    if (current != NULL)
        dprintf(2, "the input was: %s\n", current);
}

static void on_abort(int sig)
{
    say();
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

/* There in a sanitizer's build. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void say_at_the_end(void)
{
    if (__sanitizer_set_death_callback != NULL)
        __sanitizer_set_death_callback(say);
    (void)signal(SIGABRT, on_abort);
}

static const char help[] =
    "Usage: fuzz_WHAT [OPTIONS] FILE|DIRECTORY...\n"
    "\n"
    "Runs each input: a file that ends in .txt is a packed corpus, another one is one input.\n"
    "\n" ARGS_HERE;

struct options {
    uint64_t mutate, mutate_only, seed;
};

static const struct arg option_table[] = {
    {"--mutate N", "also N damaged ones, the same for the same --seed",
     ARG_COUNT(struct options, mutate, 0, UINT64_MAX)},
    {"--mutate-only N", "these alone", ARG_COUNT(struct options, mutate_only, 1, UINT64_MAX)},
    {"--seed N", "of the damage (default 1)", ARG_COUNT(struct options, seed, 0, UINT64_MAX)},
    {"--help", "this text", ARG_SHOWN},
    {0},
};

static int take_options(int argc, char **argv, struct options *ret)
{
    const struct command_line line = {
        .options = option_table, .base = ret, .help = help, .usage = args_usage};
    const int rc = args_take(&line, argc, argv);
    if (rc != 0)
        return rc;
    if (ret->mutate && ret->mutate_only)
        return args_usage("--mutate and --mutate-only: one of them");
    return optind == argc ? args_usage("which inputs? Give a file or a directory") : 0;
}

int main(int argc, char **argv)
{
    struct corpus c = {0};
    struct options o = {.seed = 1};
    const int rc = take_options(argc, argv, &o);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    const bool whole = o.mutate_only == 0;
    const uint64_t mutations = whole ? o.mutate : o.mutate_only;
    for (int i = optind; i < argc; i++)
        corpus_add(&c, argv[i]);
    damage = mutate_seed(o.seed);
    (void)LLVMFuzzerInitialize(&argc, &argv);
    say_at_the_end();
    if (whole)
        run_all(&c);
    run_mutated(&c, mutations);
    current = NULL;
    printf("%zu inputs and %llu mutations (seed %llu): %lu taken, %lu refused\n",
           whole ? c.n + 1 : 0, (unsigned long long)mutations, (unsigned long long)o.seed,
           fuzz_tally.taken, fuzz_tally.refused);
    corpus_free(&c);
    return 0;
}
