/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl's command line. The input is its words, one a line. The program's own main() runs in
 * this process, and finds no daemon: kvc_open() ends here, whatever socket is named. A command line
 * is good (--help, or a daemon is looked for), or is refused with exit code 2, an error on stderr
 * that names a word of it or what is missing, and the way to --help.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvcache/kvcache.h>

#include "ctl.h"
#include "fuzz.h"
#include "plain.h"

#define WORDS_MAX 256

int ctl_main(int argc, char **argv); /* client/ctl/main.c */

static unsigned opened;

int __wrap_kvc_open(const struct kvc_options *options, struct kvc **ret_kvc);
int __wrap_kvc_open(const struct kvc_options *options, struct kvc **ret_kvc)
{
    (void)ret_kvc;
    FUZZ_CHECK(options->must_connect && options->timeout_ms >= 1 &&
                   options->timeout_ms <= KVC_DEADLINE_MAX_MS,
               "timeout %u", options->timeout_ms);
    opened++;
    return KVC_E_DOWN;
}

/* Commands may read and write files that are named to them: then of an empty directory, for the
 * words have no slashes (split()). */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char dir[] = "/tmp/kvc-fuzz-ctl-XXXXXX";
    (void)argc;
    (void)argv;
    FUZZ_CHECK(mkdtemp(dir) != NULL && chdir(dir) == 0 && rmdir(dir) == 0, "no directory");
    return 0;
}

static int split(char *text, char *words[WORDS_MAX + 1])
{
    int n = 1; /* [0] is the program's name */
    for (char *word = text; word != NULL && n < WORDS_MAX;) {
        char *stop = strchr(word, '\n');
        if (stop != NULL)
            *stop++ = '\0';
        for (char *c = word; *c != '\0'; c++)
            *c = *c == '/' ? '_' : *c;
        words[n++] = word;
        word = stop;
    }
    words[n] = NULL;
    return n;
}

/* What is wrong is named: a word as it was given, or the value in it; or it says what to give. */
static int names_a_word(const char *said, int argc, char **argv)
{
    if (strstr(said, "Usage:") != NULL || strstr(said, "? ") != NULL)
        return 1;
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        if (strstr(said, argv[i]) != NULL)
            return 1;
        if (equals != NULL && strncmp(argv[i], "--", 2) == 0 && strstr(said, equals + 1) != NULL)
            return 1;
    }
    return 0;
}

/* "kvcachectl size: FILE: ..." */
static int begins_with_a_word(const char *said, int argc, char **argv)
{
    const char *at = strstr(said, ": ");
    for (int i = 1; at != NULL && i < argc; i++) {
        const char *equals = strncmp(argv[i], "--", 2) == 0 ? strchr(argv[i], '=') : NULL;
        const char *word = equals != NULL ? equals + 1 : argv[i];
        size_t n = strlen(word);
        if (n > 0 && strncmp(at + 2, word, n) == 0 && at[2 + n] == ':')
            return 1;
    }
    return 0;
}

static void check(int rc, const char *said, const char *shown, int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        plain(argv[i]); /* as it is said */
    switch (rc) {
    case CTL_OK:
        FUZZ_CHECK(opened == 0 && shown[0] != '\0', "nothing is shown");
        break;
    case CTL_USAGE:
        FUZZ_CHECK(opened == 0, "refused after a daemon was asked");
        /* What is wrong with a file needs no help with words. */
        FUZZ_CHECK(strstr(said, "help") != NULL || begins_with_a_word(said, argc, argv),
                   "no way to help: %s", said);
        FUZZ_CHECK(names_a_word(said, argc, argv), "names nothing that was given: %s", said);
        break;
    case CTL_DOWN:
        FUZZ_CHECK(opened == 1 && said[0] != '\0', "no daemon, and nothing is said");
        break;
    default:
        FUZZ_CHECK(said[0] != '\0', "exit code %d, and nothing is said", rc);
    }
    *(rc == CTL_OK || rc == CTL_DOWN ? &fuzz_tally.taken : &fuzz_tally.refused) += 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *given = fuzz_text(data, size), name[] = "kvcachectl";
    char *words[WORDS_MAX + 1], *kept[WORDS_MAX + 1], *said = NULL, *shown = NULL;
    size_t said_len, shown_len;
    FILE *out = stdout, *err = stderr;
    int argc = split(text, words);
    (void)split(given, kept); /* getopt moves the words about */
    words[0] = kept[0] = name;
    opened = 0;
    ctl_set_command("");
    fflush(stdout);
    stdout = open_memstream(&shown, &shown_len);
    stderr = open_memstream(&said, &said_len);
    FUZZ_CHECK(stdout != NULL && stderr != NULL, "no memory");
    int rc = ctl_main(argc, words);
    fclose(stdout);
    fclose(stderr);
    stdout = out;
    stderr = err;
    check(rc, said, shown, argc, kept);
    free(said);
    free(shown);
    free(text);
    free(given);
    return 0;
}
