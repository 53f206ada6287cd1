/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged files and command lines, while the daemon serves. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "corpus.h"
#include "hostile_bytes.h"
#include "mutate.h"

#define WORDS_MAX  64
#define LINE_MAX_  4096u
#define PATIENCE_S 120u

static void set(const char *name, const char *value)
{
    if (setenv(name, value, 0) != 0)
        abort(); /* Check has room for assertions inside of a test only */
}

/* A sanitizer has read its options before main(): so the program begins again with them. */
void hostile_environment(char **argv)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n <= 0 || getenv("KVC_BIN_DIR") != NULL)
        return;
    path[n] = '\0';
    *strrchr(path, '/') = '\0';
    set("KVC_BIN_DIR", path);
    set("KVC_SOURCE_DIR", KVC_FUZZ_SOURCE);
    set("ASAN_OPTIONS", "detect_leaks=1:quarantine_size_mb=8");
    set("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1");
    set("TSAN_OPTIONS", "halt_on_error=1:suppressions=" KVC_FUZZ_SOURCE "/tests/tsan.supp");
    execv("/proc/self/exe", argv);
}

void hostile_corpus(struct corpus *c, const char *target)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s.txt", KVC_FUZZ_CORPUS, target);
    corpus_add(c, path);
    snprintf(path, sizeof(path), "%s/%s.txt", KVC_FUZZ_SEEDS, target);
    if (access(path, R_OK) == 0)
        corpus_add(c, path);
    ck_assert_uint_gt(c->n, 0);
}

/* ---- in the target's own process ---- */

struct tally hostile_in_process(const char *target, uint64_t n, uint64_t seed)
{
    char seeds[PATH_MAX], command[4 * PATH_MAX], line[512] = "", last[512] = "";
    struct tally t = {0};
    unsigned long long taken = 0, refused = 0;
    snprintf(seeds, sizeof(seeds), "%s/%s.txt", KVC_FUZZ_SEEDS, target);
    snprintf(command, sizeof(command),
             "'%s/fuzz_%s' --seed %llu --mutate-only %llu '%s/%s.txt' '%s'", getenv("KVC_BIN_DIR"),
             target, (unsigned long long)seed, (unsigned long long)n, KVC_FUZZ_CORPUS, target,
             access(seeds, R_OK) == 0 ? seeds : "/dev/null");
    FILE *f = popen(command, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f) != NULL)
        memcpy(last, line, sizeof(last));
    int status = pclose(f);
    ck_assert_msg(status == 0, "fuzz_%s ended with %x", target, (unsigned)status);
    const char *at = strstr(last, "): ");
    ck_assert_msg(at != NULL && sscanf(at, "): %llu taken, %llu refused", &taken, &refused) == 2,
                  "fuzz_%s said '%s'", target, last);
    t.ok = taken;
    t.error = refused;
    return t;
}

/* ---- command lines ---- */

/* Words at newlines, without what would write or wait: paths, and stats --watch. Returns how many.
 */
static int split(char *text, char **words)
{
    static char program[PATH_MAX];
    int n = 0;
    snprintf(program, sizeof(program), "%s/kvcachectl", getenv("KVC_BIN_DIR"));
    words[n++] = program;
    for (char *word = text; word != NULL && n < WORDS_MAX;) {
        char *stop = strchr(word, '\n');
        if (stop != NULL)
            *stop++ = '\0';
        for (char *c = word; *c != '\0'; c++)
            *c = *c == '/' ? '_' : *c;
        if (strncmp(word, "--w", 3) != 0)
            words[n++] = word;
        word = stop;
    }
    words[n] = NULL;
    return n;
}

/* Its exit code; -1 when it ended otherwise. What it says goes to `fd`, from the start of it. */
static int run_ctl(char **words, const char *dir, int fd)
{
    int status;
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    ck_assert_int_eq((int)lseek(fd, 0, SEEK_SET), 0);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        alarm(PATIENCE_S);
        if (dup2(fd, 1) < 0 || dup2(fd, 2) < 0 || chdir(dir) != 0)
            _exit(127);
        execv(words[0], words);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        return -2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void show_words(char **words)
{
    fprintf(stderr, "the command line was:");
    for (int i = 1; words[i] != NULL; i++)
        fprintf(stderr, " '%s'", words[i]);
    fputc('\n', stderr);
}

static void judge(int code, int fd, char **words, struct tally *t)
{
    static char said[65536];
    ssize_t n = pread(fd, said, sizeof(said) - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    bool reported = strstr(said, "Sanitizer") != NULL || strstr(said, "runtime error:") != NULL;
    if (code == -1 || code > 6 || reported || (code >= 0 && n <= 0))
        show_words(words);
    ck_assert_msg(code != -1 && code <= 6 && !reported, "kvcachectl ended with %d: %s", code, said);
    ck_assert_msg(code < 0 || n > 0, "kvcachectl ended with %d and said nothing", code);
    t->silent += code == -2;
    t->ok += code == 0;
    t->error += code > 0;
}

struct tally hostile_command_lines(const struct rig *r, uint64_t n, uint64_t seed)
{
    struct corpus c = {0};
    struct tally t = {0};
    uint64_t state = mutate_seed(seed);
    static char text[LINE_MAX_ + 1];
    char dir[] = "/tmp/kvc-hostile-XXXXXX", *words[WORDS_MAX + 1];
    int fd = memfd_create("said", MFD_CLOEXEC);
    ck_assert(fd >= 0 && mkdtemp(dir) != NULL);
    ck_assert_int_eq(setenv("KVCACHE_SOCKET", r->socket, 1), 0);
    hostile_corpus(&c, "ctl");
    for (uint64_t i = 0; i < n; i++) {
        const struct corpus_input *in = &c.in[mutate_below(&state, (uint32_t)c.n)];
        size_t len = in->len < LINE_MAX_ ? in->len : LINE_MAX_;
        memcpy(text, in->bytes, len);
        if (mutate_below(&state, 8) > 0)
            len = mutate(&state, (uint8_t *)text, len, LINE_MAX_);
        text[len] = '\0';
        (void)split(text, words);
        judge(run_ctl(words, dir, fd), fd, words, &t);
    }
    close(fd);
    rmdir(dir);
    corpus_free(&c);
    return t;
}
