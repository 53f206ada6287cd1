/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvcache/proto.h>

#include "file_kind.h"
#include "trace.h"

struct scan {
    const char *begin, *at;
    char *why;
};

static size_t trace_room_for(size_t have, size_t need)
{
    size_t cap = have ? have : 1024;
    while (cap < need)
        cap *= 2;
    return cap;
}

/* The capacities are powers of two that follow from the counts, so no field has them. */
static int append_id(struct trace *trace, uint64_t id)
{
    size_t n = trace->n_ids;
    if (n == 0 || (n >= 1024 && (n & (n - 1)) == 0)) {
        uint64_t *ids = realloc(trace->ids, trace_room_for(0, n + 1) * sizeof(*ids));
        if (!ids)
            return -ENOMEM;
        trace->ids = ids;
    }
    trace->ids[trace->n_ids++] = id;
    return 0;
}

static int append_request(struct trace *trace, const struct trace_request *request)
{
    size_t n = trace->n_requests;
    if (n == 0 || (n >= 1024 && (n & (n - 1)) == 0)) {
        size_t bytes = trace_room_for(0, n + 1) * sizeof(*trace->requests);
        struct trace_request *requests = realloc(trace->requests, bytes);
        if (!requests)
            return -ENOMEM;
        trace->requests = requests;
    }
    trace->requests[trace->n_requests++] = *request;
    if (request->blocks > trace->blocks_max)
        trace->blocks_max = request->blocks;
    return 0;
}

__attribute__((format(printf, 2, 3))) static int refuse(const struct scan *scan, const char *format,
                                                        ...)
{
    char text[TRACE_WHY_BYTES - 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    snprintf(scan->why, TRACE_WHY_BYTES, "column %td: %s", scan->at - scan->begin + 1, text);
    return -EINVAL;
}

/* A byte of the file for a message: 'x', or its number if a terminal would not show it. */
struct shown {
    char text[8];
};

static struct shown shown(char c)
{
    struct shown s;
    snprintf(s.text, sizeof(s.text), c >= ' ' && c <= '~' ? "'%c'" : "\\x%02x", (unsigned char)c);
    return s;
}

static void skip_space(struct scan *scan)
{
    while (*scan->at == ' ' || *scan->at == '\t' || *scan->at == '\r' || *scan->at == '\n')
        scan->at++;
}

static bool accept(struct scan *scan, char c)
{
    skip_space(scan);
    if (*scan->at != c)
        return false;
    scan->at++;
    return true;
}

static int expect(struct scan *scan, char c, const char *where)
{
    if (accept(scan, c))
        return 0;
    if (*scan->at == '\0')
        return refuse(scan, "the line ends where '%c' is expected %s", c, where);
    return refuse(scan, "%s where '%c' is expected %s", shown(*scan->at).text, c, where);
}

/* Reads the text between the quotes. Escapes are not decoded, because no name that matters has any.
 */
static int read_string(struct scan *scan, const char **ret_text, size_t *ret_length)
{
    int rc = expect(scan, '"', "before a name");
    if (rc < 0)
        return rc;
    const char *text = scan->at;
    while (*scan->at != '"') {
        if (*scan->at == '\\' && scan->at[1] != '\0')
            scan->at++;
        if (*scan->at == '\0')
            return refuse(scan, "the line ends inside a string");
        scan->at++;
    }
    *ret_text = text;
    *ret_length = (size_t)(scan->at - text);
    scan->at++;
    return 0;
}

/* Reads a number that is not negative; decimals are cut off. */
static int read_number(struct scan *scan, const char *name, bool whole, uint64_t *ret)
{
    skip_space(scan);
    if (*scan->at < '0' || *scan->at > '9')
        return refuse(scan, "%s must be a number that is not negative, like 512", name);
    uint64_t value = 0;
    for (; *scan->at >= '0' && *scan->at <= '9'; scan->at++) {
        uint64_t digit = (uint64_t)(*scan->at - '0');
        if (value > (UINT64_MAX - digit) / 10)
            return refuse(scan, "%s does not fit in 64 bits", name);
        value = value * 10 + digit;
    }
    if (*scan->at == '.' && !whole) {
        scan->at++;
        while (*scan->at >= '0' && *scan->at <= '9')
            scan->at++;
    }
    if (strchr(".eE", *scan->at) && *scan->at != '\0')
        return refuse(scan, "%s must be a whole number", name);
    *ret = value;
    return 0;
}

static int read_length(struct scan *scan, const char *name, uint32_t *ret)
{
    uint64_t value;
    int rc = read_number(scan, name, false, &value);
    if (rc < 0)
        return rc;
    if (value > UINT32_MAX)
        return refuse(scan, "%s does not fit in 32 bits", name);
    *ret = (uint32_t)value;
    return 0;
}

static int read_ids(struct scan *scan, struct trace *trace, struct trace_request *request)
{
    int rc = expect(scan, '[', "after \"hash_ids\":");
    if (rc < 0)
        return rc;
    if (accept(scan, ']'))
        return 0;
    do {
        uint64_t id;
        rc = read_number(scan, "a hash id", true, &id);
        if (rc < 0)
            return rc;
        if (request->blocks == KVC_KEYS_MAX)
            return refuse(scan, "more than %u hash ids in one request", KVC_KEYS_MAX);
        rc = append_id(trace, id);
        if (rc < 0)
            return rc;
        request->blocks++;
    } while (accept(scan, ','));
    return expect(scan, ']', "after the hash ids");
}

/* Skips any JSON value. Brackets are only counted. */
static int skip_value(struct scan *scan)
{
    int depth = 0;
    do {
        skip_space(scan);
        const char *text;
        size_t length;
        int rc;
        switch (*scan->at) {
        case '\0':
            return refuse(scan, "the line ends inside a value");
        case '"':
            rc = read_string(scan, &text, &length);
            if (rc < 0)
                return rc;
            break;
        case '[':
        case '{':
            depth++;
            scan->at++;
            break;
        case ']':
        case '}':
            if (depth == 0)
                return refuse(scan, "%s where a value is expected", shown(*scan->at).text);
            depth--;
            scan->at++;
            break;
        default:
            if (depth > 0 && (*scan->at == ',' || *scan->at == ':')) {
                scan->at++;
                break;
            }
            size_t word = strcspn(scan->at, ",:]}\" \t\r\n");
            if (word == 0)
                return refuse(scan, "%s where a value is expected", shown(*scan->at).text);
            scan->at += word;
        }
    } while (depth > 0);
    return 0;
}

static bool is(const char *text, size_t length, const char *name)
{
    return strlen(name) == length && memcmp(text, name, length) == 0;
}

static int read_field(struct scan *scan, struct trace *trace, struct trace_request *request,
                      bool *ret_has_ids)
{
    const char *name = NULL;
    size_t length = 0;
    int rc = read_string(scan, &name, &length);
    if (rc < 0)
        return rc;
    rc = expect(scan, ':', "after a name");
    if (rc < 0)
        return rc;
    if (is(name, length, "hash_ids")) {
        if (*ret_has_ids)
            return refuse(scan, "hash_ids is given twice");
        *ret_has_ids = true;
        return read_ids(scan, trace, request);
    }
    if (is(name, length, "input_length"))
        return read_length(scan, "input_length", &request->input_tokens);
    if (is(name, length, "output_length"))
        return read_length(scan, "output_length", &request->output_tokens);
    if (is(name, length, "timestamp"))
        return read_number(scan, "timestamp", false, &request->timestamp_ms);
    return skip_value(scan);
}

static int parse_object(struct scan *scan, struct trace *trace, struct trace_request *request)
{
    bool has_ids = false;
    int rc = expect(scan, '{', "at the start of a request");
    if (rc < 0)
        return rc;
    if (!accept(scan, '}')) {
        do {
            rc = read_field(scan, trace, request, &has_ids);
            if (rc < 0)
                return rc;
        } while (accept(scan, ','));
        rc = expect(scan, '}', "at the end of a request");
        if (rc < 0)
            return rc;
    }
    skip_space(scan);
    if (*scan->at != '\0')
        return refuse(scan, "%s behind the end of the request; one request a line",
                      shown(*scan->at).text);
    if (!has_ids) {
        return refuse(scan, "no hash_ids; expected a line like "
                            "{\"timestamp\":0,\"input_length\":1024,\"output_length\":10,"
                            "\"hash_ids\":[0,1]}");
    }
    return 0;
}

int trace__parse_line(struct trace *trace, const char *line, char why[TRACE_WHY_BYTES])
{
    struct scan scan = {.begin = line, .at = line, .why = why};
    struct trace_request request = {.first = trace->n_ids};
    int rc = parse_object(&scan, trace, &request);
    if (rc < 0) {
        trace->n_ids = request.first;
        return rc;
    }
    return append_request(trace, &request);
}

/* Reads a line: a request, or nothing. */
static int read_line(struct trace *trace, const char *line, size_t length, char *text)
{
    const size_t until = strlen(line); /* a zero byte, or the line's end */
    if (until < length) {
        snprintf(text, TRACE_WHY_BYTES, "column %zu: a NUL byte, which no text has", until + 1);
        return -EINVAL;
    }
    return line[strspn(line, " \t\r\n")] == '\0' ? 0 : trace__parse_line(trace, line, text);
}

/* A hint about a file whose first line is not one of a trace. */
static const char *trace_hint_of(const char *line, size_t length)
{
    const char *hint = file_kind_hint(line, length);
    if (hint[0] != '\0')
        return hint;
    return line[strspn(line, " \t")] != '{'
               ? "; a trace is JSONL: one {...} a line, not CSV and not an array"
               : "";
}

static int read_lines(FILE *file, const char *path, size_t requests_max, char *why,
                      struct trace *trace)
{
    char *line = NULL;
    size_t cap = 0;
    uint64_t number = 0;
    ssize_t length;
    int rc = 0;
    while (rc == 0 && (requests_max == 0 || trace->n_requests < requests_max) &&
           (length = getline(&line, &cap, file)) >= 0) {
        number++;
        char text[TRACE_WHY_BYTES];
        rc = read_line(trace, line, (size_t)length, text);
        if (rc == -EINVAL)
            snprintf(why, TRACE_WHY_BYTES, "%s:%" PRIu64 ": %.320s%s", path, number, text,
                     number == 1 ? trace_hint_of(line, (size_t)length) : "");
    }
    if (rc == 0 && ferror(file))
        rc = -EIO;
    free(line);
    return rc;
}

/* Negative errno with `why`. */
static int open_trace(const char *path, char *why, FILE **ret_file)
{
    struct stat st;
    FILE *file = strcmp(path, "-") ? fopen(path, "re") : fdopen(dup(STDIN_FILENO), "r");
    int error = file ? 0 : -errno;
    if (file && fstat(fileno(file), &st) == 0 && S_ISDIR(st.st_mode)) {
        error = -EISDIR;
        fclose(file);
    }
    if (error < 0)
        snprintf(why, TRACE_WHY_BYTES,
                 "%s: %s; give a trace in Mooncake's JSONL form, or make one with "
                 "'kvcachebench gen'",
                 path, error == -EISDIR ? "is a directory" : strerror(-error));
    else
        *ret_file = file;
    return error;
}

int trace_load(const char *path, size_t requests_max, char why[TRACE_WHY_BYTES],
               struct trace **ret_trace)
{
    FILE *file = NULL;
    const int error = open_trace(path, why, &file);
    if (error < 0)
        return error;
    struct trace *trace = calloc(1, sizeof(*trace));
    int rc = trace ? read_lines(file, path, requests_max, why, trace) : -ENOMEM;
    fclose(file);
    if (rc == 0 && trace->n_ids == 0) {
        snprintf(why, TRACE_WHY_BYTES, "%s: no request with a hash id in it", path);
        rc = -EINVAL;
    }
    if (rc < 0) {
        if (rc != -EINVAL)
            snprintf(why, TRACE_WHY_BYTES, "%s: %s", path, strerror(-rc));
        trace_destroy(&trace);
        return rc;
    }
    *ret_trace = trace;
    return 0;
}

void trace_destroy(struct trace **trace)
{
    if (!trace || !*trace)
        return;
    free((*trace)->requests);
    free((*trace)->ids);
    free(*trace);
    *trace = NULL;
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

bool trace_fits(const struct trace *trace, uint32_t block_tokens, uint32_t *ret_fit)
{
    size_t fitting = 0, asked = 0;
    uint32_t low = 1, high = UINT32_MAX;
    for (size_t i = 0; i < trace->n_requests; i++) {
        const uint32_t tokens = trace->requests[i].input_tokens, n = trace->requests[i].blocks;
        if (tokens == 0 || n == 0)
            continue;
        const uint32_t blocks = tokens / block_tokens + (tokens % block_tokens != 0);
        const uint32_t least = tokens / n + (tokens % n != 0), most = (tokens - 1) / (n - (n > 1));
        asked++;
        fitting += blocks < n ? n - blocks <= 1 : blocks - n <= 1;
        low = least > low ? least : low;
        high = n > 1 && most < high ? most : high;
    }
    if (2 * fitting >= asked)
        return true;
    uint32_t power = 1;
    while (power < low && power < UINT32_C(1) << 31)
        power *= 2;
    *ret_fit = low > high ? 0 : power <= high ? power : low;
    return false;
}

int trace_unique_blocks(const struct trace *trace, uint64_t *ret_n)
{
    uint64_t *ids = malloc(trace->n_ids * sizeof(*ids));
    if (!ids)
        return -ENOMEM;
    memcpy(ids, trace->ids, trace->n_ids * sizeof(*ids));
    qsort(ids, trace->n_ids, sizeof(*ids), compare_ids);
    uint64_t unique = 0;
    for (size_t i = 0; i < trace->n_ids; i++)
        unique += i == 0 || ids[i] != ids[i - 1];
    free(ids);
    *ret_n = unique;
    return 0;
}
