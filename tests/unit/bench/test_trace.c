/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "trace.h"

#define REQUESTS 1500
#define KINDS    12 /* conversations, and those of trace_kind() */

static struct trace trace;
static char why[TRACE_WHY_BYTES];

static void setup(void)
{
    memset(&trace, 0, sizeof(trace));
    why[0] = '\0';
}

static void teardown(void)
{
    free(trace.requests);
    free(trace.ids);
}

static void assert_refused(const char *line, const char *reason)
{
    ck_assert_int_eq(trace__parse_line(&trace, line, why), -EINVAL);
    ck_assert_msg(strstr(why, reason) != NULL, "'%s' does not say '%s'", why, reason);
    ck_assert_uint_eq(trace.n_requests, 0);
    ck_assert_uint_eq(trace.n_ids, 0);
}

CASES(.setup = setup, .teardown = teardown);

CASE(reads_a_line_of_the_published_form)
{
    ck_assert_int_eq(trace__parse_line(&trace,
                                       "{\"timestamp\": 27482, \"input_length\": 6955, "
                                       "\"output_length\": 52, \"hash_ids\": [46, 47, 2353]}\n",
                                       why),
                     0);
    ck_assert_uint_eq(trace.n_requests, 1);
    const struct trace_request *r = &trace.requests[0];
    ck_assert_uint_eq(r->timestamp_ms, 27482);
    ck_assert_uint_eq(r->input_tokens, 6955);
    ck_assert_uint_eq(r->output_tokens, 52);
    ck_assert_uint_eq(r->blocks, 3);
    ck_assert_uint_eq(trace.ids[r->first + 2], 2353);
}

CASE(skips_fields_that_it_does_not_know)
{
    ck_assert_int_eq(trace__parse_line(&trace,
                                       " { \"chat\" : {\"a\":[1,{\"b\":\"]}\\\"\"}],\"c\":null} ,"
                                       "\"hash_ids\":[18446744073709551615],\"ok\":true,"
                                       "\"timestamp\":1.75}\r\n",
                                       why),
                     0);
    ck_assert_uint_eq(trace.ids[0], UINT64_MAX);
    ck_assert_uint_eq(trace.requests[0].timestamp_ms, 1);
    ck_assert_uint_eq(trace.requests[0].input_tokens, 0);
}

CASE(takes_a_request_without_blocks)
{
    ck_assert_int_eq(trace__parse_line(&trace, "{\"hash_ids\": []}", why), 0);
    ck_assert_uint_eq(trace.requests[0].blocks, 0);
}

CASE(refuses_what_is_no_request)
{
    assert_refused("", "'{' is expected at the start");
    assert_refused("[1,2]", "'{' is expected at the start");
    assert_refused("{}", "no hash_ids");
    assert_refused("{\"input_length\":5}", "no hash_ids");
    assert_refused("{\"hash_ids\":[1,2}", "']' is expected");
    assert_refused("{\"hash_ids\":[1,2]", "line ends where '}' is expected");
    assert_refused("{\"hash_ids\":[1]} {\"hash_ids\":[2]}", "one request a line");
    assert_refused("{\"hash_ids\":[1],\"hash_ids\":[2]}", "given twice");
    assert_refused("{\"hash_ids", "inside a string");
    assert_refused("{\"x\":[1,2", "inside a value");
    assert_refused("{\"x\":}", "'}' where a value is expected");
}

CASE(refuses_ids_and_lengths_out_of_range)
{
    assert_refused("{\"hash_ids\":[\"a\"]}", "a hash id must be a number");
    assert_refused("{\"hash_ids\":[-1]}", "a hash id must be a number");
    assert_refused("{\"hash_ids\":[1.5]}", "a hash id must be a whole number");
    assert_refused("{\"hash_ids\":[18446744073709551616]}", "64 bits");
    assert_refused("{\"hash_ids\":[1],\"input_length\":4294967296}", "32 bits");
}

CASE(what_a_terminal_would_not_show_is_named_by_its_number)
{
    assert_refused("\033[2J", "\\x1b where '{' is expected");
    assert_refused("{\"hash_ids\":[1]}\xc3", "\\xc3 behind the end");
    assert_refused("{\"hash_ids\"\x7f", "\\x7f where ':' is expected");
    assert_refused("{\"x\":,\001", "',' where a value");
}

static void write_trace(char *path, const char *text, size_t n)
{
    FILE *file = fdopen(mkstemp(path), "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, n, file), n);
    fclose(file);
}

CASE(a_nul_byte_is_an_error_of_its_line)
{
    static const char *const says[] = {":2: column 17: a NUL byte", ":2: column 1: a NUL byte"};
    static const char after[] = "{\"hash_ids\":[1]}\n{\"hash_ids\":[2]}\0{}\n";
    static const char alone[] = "{\"hash_ids\":[1]}\n\0\n";
    for (int i = 0; i < 2; i++) {
        char path[] = "trace-XXXXXX";
        struct trace *loaded = NULL;
        write_trace(path, i == 0 ? after : alone, i == 0 ? sizeof(after) - 1 : sizeof(alone) - 1);
        ck_assert_int_eq(trace_load(path, 0, why, &loaded), -EINVAL);
        ck_assert_msg(strstr(why, says[i]) != NULL, "'%s' does not say '%s'", why, says[i]);
        remove(path);
    }
}

CASE(a_directory_is_said_to_be_one)
{
    struct trace *loaded = NULL;
    ck_assert_int_eq(trace_load(".", 0, why, &loaded), -EISDIR);
    ck_assert_msg(strncmp(why, ".: is a directory; give a trace", 31) == 0, "%s", why);
}

CASE(names_file_and_line)
{
    static const char text[] = "{\"hash_ids\":[1]}\n\n{\"hash_ids\":[oops]}\n";
    char path[] = "trace-XXXXXX";
    write_trace(path, text, sizeof(text) - 1);
    struct trace *loaded = NULL;
    ck_assert_int_eq(trace_load(path, 0, why, &loaded), -EINVAL);
    char where[64];
    snprintf(where, sizeof(where), "%s:3: column 14:", path);
    ck_assert_msg(strncmp(why, where, strlen(where)) == 0, "'%s' does not begin with '%s'", why,
                  where);
    ck_assert_int_eq(trace_load(path, 1, why, &loaded), 0);
    ck_assert_uint_eq(loaded->n_requests, 1);
    trace_destroy(&loaded);
    remove(path);
}

CASE(counts_distinct_blocks)
{
    ck_assert_int_eq(trace__parse_line(&trace, "{\"hash_ids\":[7,8,9]}", why), 0);
    ck_assert_int_eq(trace__parse_line(&trace, "{\"hash_ids\":[7,8,10]}", why), 0);
    uint64_t unique;
    ck_assert_int_eq(trace_unique_blocks(&trace, &unique), 0);
    ck_assert_uint_eq(unique, 4);
}

static void add(const char *line)
{
    ck_assert_int_eq(trace__parse_line(&trace, line, why), 0);
}

CASE(ids_that_do_not_go_with_the_lengths_are_noticed)
{
    uint32_t fit = 99;
    add("{\"input_length\": 64, \"hash_ids\": [1, 2, 3, 4]}");
    add("{\"input_length\": 49, \"hash_ids\": [1, 2, 3, 5]}");
    add("{\"hash_ids\": [1, 2]}"); /* says nothing */
    ck_assert(trace_fits(&trace, 16, &fit));
    ck_assert_uint_eq(fit, 99);
    ck_assert(!trace_fits(&trace, 512, &fit));
    ck_assert_uint_eq(fit, 16);
    ck_assert(!trace_fits(&trace, 8, &fit));
    add("{\"input_length\": 1, \"hash_ids\": [1, 2, 3]}");
    ck_assert(!trace_fits(&trace, 512, &fit));
    ck_assert_uint_eq(fit, 0); /* nothing does for all */
}

CASE(grows_past_many_requests)
{
    for (int i = 0; i < 5000; i++)
        ck_assert_int_eq(trace__parse_line(&trace, "{\"hash_ids\":[1,2,3]}", why), 0);
    ck_assert_uint_eq(trace.n_requests, 5000);
    ck_assert_uint_eq(trace.n_ids, 15000);
    ck_assert_uint_eq(trace.ids[14999], 3);
}

/* Kind 0: conversations. */
static struct trace *generated(unsigned kind, uint64_t seed, char **ret_text)
{
    const struct trace_gen_options options = {
        .requests = REQUESTS, .seed = seed, .block_tokens = 512};
    const char *text, *name = kind > 0 ? trace_kind(kind - 1, &text) : NULL;
    char path[] = "gen-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w+");
    ck_assert_int_eq(
        name ? trace_generate_kind(&options, name, file) : trace_generate(&options, file), 0);
    long length = ftell(file);
    rewind(file);
    *ret_text = calloc(1, (size_t)length + 1);
    ck_assert_uint_eq(fread(*ret_text, 1, (size_t)length, file), (size_t)length);
    fclose(file);
    struct trace *loaded = NULL;
    ck_assert_msg(trace_load(path, 0, why, &loaded) == 0, "%s", why);
    remove(path);
    return loaded;
}

CASE_EACH(generated_trace_is_read_back_and_repeats, KINDS)
{
    char *first, *again, *other;
    struct trace *a = generated((unsigned)_i, 1, &first), *b = generated((unsigned)_i, 1, &again),
                 *c = generated((unsigned)_i, 2, &other);
    ck_assert_uint_eq(a->n_requests, REQUESTS);
    ck_assert_str_eq(first, again);
    ck_assert_str_ne(first, other);
    for (size_t i = 0; i < a->n_requests; i++) {
        const struct trace_request *r = &a->requests[i];
        ck_assert_uint_eq(r->blocks, (r->input_tokens + 511) / 512);
        if (i > 0)
            ck_assert_uint_ge(r->timestamp_ms, a->requests[i - 1].timestamp_ms);
    }
    uint64_t unique;
    ck_assert_int_eq(trace_unique_blocks(a, &unique), 0);
    ck_assert_uint_lt(unique, a->n_ids); /* something comes again */
    ck_assert(_i > 0 || unique < a->n_ids / 2);
    free(first);
    free(again);
    free(other);
    trace_destroy(&a);
    trace_destroy(&b);
    trace_destroy(&c);
}

/* A hit is a prefix: an id that came after two different ids would be two different blocks. */
CASE_EACH(generated_ids_have_one_parent_each, KINDS)
{
    char *text;
    struct trace *t = generated((unsigned)_i, 3, &text);
    uint64_t top = 0;
    for (size_t i = 0; i < t->n_ids; i++)
        top = t->ids[i] > top ? t->ids[i] : top;
    uint64_t *parent = calloc(top + 1, sizeof(*parent));
    for (size_t i = 0; i < t->n_requests; i++) {
        uint64_t before = UINT64_MAX;
        for (uint32_t j = 0; j < t->requests[i].blocks; j++) {
            uint64_t id = t->ids[t->requests[i].first + j];
            ck_assert(parent[id] == 0 || parent[id] == before + 2);
            parent[id] = before + 2;
            before = id;
        }
    }
    free(parent);
    free(text);
    trace_destroy(&t);
}

CASE(there_are_as_many_kinds_as_are_named)
{
    const struct trace_gen_options options = {.requests = 1, .block_tokens = 512};
    const char *text;
    for (unsigned i = 0; i < KINDS - 1; i++)
        ck_assert_ptr_nonnull(trace_kind(i, &text));
    ck_assert_ptr_null(trace_kind(KINDS - 1, &text));
    ck_assert_int_eq(trace_generate_kind(&options, "talk", stdout), -EINVAL);
}
