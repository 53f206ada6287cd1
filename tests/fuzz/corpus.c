/* SPDX-License-Identifier: Apache-2.0 */
#include "corpus.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

_Noreturn static void die(const char *what, const char *which)
{
    fprintf(stderr, "corpus: %s: %s\n", what, which);
    exit(2);
}

void corpus_add_bytes(struct corpus *c, const char *name, const void *bytes, size_t len)
{
    struct corpus_input *in = realloc(c->in, (c->n + 1) * sizeof(*in));
    char *copy = strdup(name);
    if (in == NULL || copy == NULL)
        die("no memory", name);
    c->in = in;
    c->in[c->n++] = (struct corpus_input){fuzz_copy(bytes, len), len, copy};
}

static int digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

/* One escape after its backslash: \\ \n \t \r \xNN. Returns how many characters it took. */
static size_t unescape(const char *at, const char *end, uint8_t *ret, const char *where)
{
    static const char letters[] = "\\ntr", values[] = "\\\n\t\r";
    const char *letter = at < end ? memchr(letters, *at, 4) : NULL;
    if (letter != NULL) {
        *ret = (uint8_t)values[letter - letters];
        return 1;
    }
    if (end - at < 3 || at[0] != 'x' || digit(at[1]) < 0 || digit(at[2]) < 0)
        die("not an escape (\\\\ \\n \\t \\r \\xNN)", where);
    *ret = (uint8_t)(digit(at[1]) << 4 | digit(at[2]));
    return 3;
}

static void add_line(struct corpus *c, const char *where, const char *line, size_t n)
{
    uint8_t *bytes = fuzz_copy(line, n);
    size_t len = 0;
    for (const char *at = line, *end = line + n; at < end;) {
        if (*at != '\\')
            bytes[len++] = (uint8_t)*at++;
        else
            at += 1 + unescape(at + 1, end, &bytes[len++], where);
    }
    corpus_add_bytes(c, where, bytes, len);
    free(bytes);
}

static char *read_all(const char *path, size_t *ret_len)
{
    FILE *f = fopen(path, "re");
    char *text = NULL, chunk[65536];
    size_t len = 0, n;
    if (f == NULL)
        die("cannot open", path);
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0) {
        text = realloc(text, len + n);
        if (text == NULL)
            die("no memory", path);
        memcpy(text + len, chunk, n);
        len += n;
    }
    if (ferror(f))
        die("cannot read", path);
    fclose(f);
    *ret_len = len;
    return text;
}

static void add_packed(struct corpus *c, const char *path, const char *text, size_t len)
{
    unsigned number = 0;
    for (const char *line = text, *end = text + len; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n = (size_t)((stop != NULL ? stop : end) - line);
        char where[4352];
        snprintf(where, sizeof(where), "%s:%u", path, ++number);
        if (n > 0 && line[0] != '#')
            add_line(c, where, line, n);
        line += n + 1;
    }
}

static void add_file(struct corpus *c, const char *path)
{
    size_t len, suffix = strlen(path);
    char *text = read_all(path, &len);
    if (suffix > 4 && strcmp(path + suffix - 4, ".txt") == 0)
        add_packed(c, path, text, len);
    else
        corpus_add_bytes(c, path, text, len);
    free(text);
}

void corpus_add(struct corpus *c, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        die("no such file or directory", path);
    if (!S_ISDIR(st.st_mode)) {
        add_file(c, path);
        return;
    }
    struct dirent **entry;
    int n = scandir(path, &entry, NULL, alphasort);
    if (n < 0)
        die("cannot read the directory", path);
    for (int i = 0; i < n; i++) {
        char file[4096];
        snprintf(file, sizeof(file), "%s/%s", path, entry[i]->d_name);
        if (stat(file, &st) == 0 && S_ISREG(st.st_mode))
            add_file(c, file);
        free(entry[i]);
    }
    free(entry);
}

void corpus_free(struct corpus *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->in[i].bytes);
        free(c->in[i].name);
    }
    free(c->in);
    *c = (struct corpus){0};
}
