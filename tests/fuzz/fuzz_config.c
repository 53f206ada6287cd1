/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's configuration. The input is a YAML file; behind a byte 1, if there is one, the words
 * of a command line, one a line. What is accepted is printed as --print-config prints it, with
 * "auto" and decided, and loads again to the same; what is refused says what was wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "budget.h"
#include "cli.h"
#include "config.h"
#include "fuzz.h"
#include "node_config.h"

#define WORDS_MAX 128

struct file {
    int fd;
    char path[64];
};
static struct file given = {.fd = -1}, printed = {.fd = -1};

static void fill(struct file *f, const void *bytes, size_t n)
{
    if (f->fd < 0) {
        f->fd = memfd_create("config", MFD_CLOEXEC);
        snprintf(f->path, sizeof(f->path), "/proc/self/fd/%d", f->fd);
    }
    FUZZ_CHECK(f->fd >= 0 && ftruncate(f->fd, 0) == 0, "no file");
    FUZZ_CHECK(pwrite(f->fd, bytes, n, 0) == (ssize_t)n, "cannot write");
}

static void check_errors(const struct config_errors *errors)
{
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);
    FUZZ_CHECK(to != NULL && errors->count > 0, "refused with %u errors", errors->count);
    for (unsigned i = 0; i < MIN(errors->count, CONFIG_ERRORS_MAX); i++)
        FUZZ_CHECK(errors->list[i].text[0] != '\0' && errors->list[i].where[0] != '\0',
                   "error %u of %u is empty", i, errors->count);
    config_errors_print(errors, to);
    fclose(to);
    FUZZ_CHECK(len > 0 && text[len - 1] == '\n', "nothing is printed");
    free(text);
}

static void check_same(const struct config *a, const struct config *b)
{
    char x[CONFIG_PATH_BYTES + 64], y[CONFIG_PATH_BYTES + 64];
    OPTION_FOR_EACH (d, config_table, config_table_len) {
        FUZZ_CHECK(option_format(d, a, x, sizeof(x)) >= 0 && option_format(d, b, y, sizeof(y)) >= 0,
                   "%s does not print", d->key);
        FUZZ_CHECK(strcmp(x, y) == 0, "%s was '%s' and is '%s'", d->key, x, y);
    }
    FUZZ_CHECK(a->socket_mode == b->socket_mode && a->nprincipals == b->nprincipals,
               "%u principals, then %u", a->nprincipals, b->nprincipals);
    for (unsigned i = 0; i < a->nprincipals; i++) {
        const struct config_principal *p = &a->principals[i], *q = &b->principals[i];
        FUZZ_CHECK(strcmp(p->name, q->name) == 0 && strcmp(p->tenant, q->tenant) == 0 &&
                       p->gateway == q->gateway && p->admin == q->admin && p->nuids == q->nuids &&
                       memcmp(p->uids, q->uids, p->nuids * sizeof(p->uids[0])) == 0,
                   "principal %u is another", i);
        for (unsigned u = 0; u < p->nuids; u++)
            FUZZ_CHECK(config_principal_of(a, p->uids[u]) == p, "uid %u", (unsigned)p->uids[u]);
    }
}

static void print_into(struct file *f, const struct config *cfg)
{
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);
    FUZZ_CHECK(to != NULL && config_print(cfg, to) == 0, "does not print");
    fclose(to);
    fill(f, text, len);
    free(text);
}

static void check_again(const struct config *cfg, struct config *ret)
{
    struct config_errors errors;
    char text[CONFIG_ERROR_TEXT_MAX + CONFIG_PATH_BYTES + 96];
    print_into(&printed, cfg);
    int rc = config_load(printed.path, NULL, 0, ret, &errors);
    FUZZ_CHECK(rc == 0, "what was printed is refused: %s",
               config_error_format(&errors.list[0], text, sizeof(text)));
    check_same(cfg, ret);
}

/* With everything decided, as --print-config shows it on a machine with 64 GiB. */
static int check_decided(struct config *cfg)
{
    static const struct budget_limit limit = {.bytes = UINT64_C(64) << 30, .source = "MemTotal"};
    struct config_errors errors;
    struct budget budget;
    struct config again;
    char table[BUDGET_TABLE_BYTES];
    int rc = config_resolve_auto(cfg, &limit, node_budget_inputs, NULL, &budget, &errors);
    if (budget.nlines > 0)
        FUZZ_CHECK(budget_format(&budget, table, sizeof(table))[0] != '\0', "an empty table");
    if (rc < 0) {
        check_errors(&errors);
        return rc;
    }
    check_again(cfg, &again);
    rc = config_resolve_auto(&again, &limit, node_budget_inputs, NULL, &budget, &errors);
    FUZZ_CHECK(rc == 0, "decided, printed, and then refused");
    check_same(cfg, &again);
    return 0;
}

static int load(const struct cli *cli)
{
    struct config cfg, again;
    struct config_errors errors;
    const char *sets[CLI_SETS_MAX + 1];
    memcpy(sets, cli->sets, cli->nsets * sizeof(sets[0]));
    /* A directory that is there on every machine; it is looked at, not made. */
    sets[cli->nsets] = "runtime_dir=/tmp";
    if (config_load(given.path, sets, cli->nsets + 1, &cfg, &errors) < 0) {
        check_errors(&errors);
        return -EINVAL;
    }
    check_again(&cfg, &again);
    return check_decided(&cfg);
}

/* Words at their newlines, in place. */
static int split(char *text, char *words[WORDS_MAX + 1])
{
    int n = 1; /* [0] is the program's name */
    for (char *word = text; word != NULL && n < WORDS_MAX;) {
        char *stop = strchr(word, '\n');
        if (stop != NULL)
            *stop++ = '\0';
        words[n++] = word;
        word = stop;
    }
    words[n] = NULL;
    return n;
}

static int with_words(const uint8_t *data, size_t size)
{
    struct cli cli = {.nsets = 0};
    char name[] = "kvcache-daemon", *text = fuzz_text(data, size), *words[WORDS_MAX + 1];
    char *said = NULL, *shown = NULL;
    size_t said_len, shown_len;
    FILE *out = stdout, *err = stderr;
    int n = split(text, words);
    words[0] = name;
    stdout = open_memstream(&shown, &shown_len);
    stderr = open_memstream(&said, &said_len);
    FUZZ_CHECK(stdout != NULL && stderr != NULL, "no memory");
    int rc = cli_parse(n, words, &cli);
    fclose(stdout);
    fclose(stderr);
    stdout = out;
    stderr = err;
    FUZZ_CHECK((rc > 0) == (said[0] != '\0'), "what is refused is said: %d, '%s'", rc, said);
    FUZZ_CHECK((rc < 0) == (shown[0] != '\0'), "what is served is shown: %d, '%s'", rc, shown);
    free(said);
    free(shown);
    rc = rc == 0 ? load(&cli) : -EINVAL;
    free(text);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *words = size != 0 ? memchr(data, 1, size) : NULL;
    const struct cli none = {.nsets = 0};
    fill(&printed, "", 0); /* makes the file, if this is the first input */
    fill(&given, data, words != NULL ? (size_t)(words - data) : size);
    uint64_t fds = fuzz_open_fds();
    int rc = words != NULL ? with_words(words + 1, (size_t)(data + size - words - 1)) : load(&none);
    FUZZ_CHECK(fuzz_open_fds() == fds, "a descriptor is left open");
    *(rc == 0 ? &fuzz_tally.taken : &fuzz_tally.refused) += 1;
    return 0;
}
