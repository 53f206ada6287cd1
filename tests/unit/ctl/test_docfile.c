/* SPDX-License-Identifier: Apache-2.0 */
/* Documents as safetensors files: what is written is read again, what is damaged is refused. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "docfile.h"

#define TOKENS 100u

static struct docfile doc;
static struct st_tensor tensor[8];
static uint32_t tensors;
static FILE *file;
static uint64_t data_at, data_bytes;

static struct kvc_ns_spec spec(void)
{
    return (struct kvc_ns_spec){
        .model = "m",
        .dtype = "bf16",
        .position_params = "theta=\"500000\"",
        .attention = "causal",
        .layers = 2,
        .kv_heads = 3,
        .head_size = 64,
        .shards = 2,
        .prefill_ns_per_token = UINT64_MAX,
        .groups = 2,
        .group = {
            {.block_tokens = 16, .block_bytes = 10},
            {.block_tokens = 64, .block_bytes = 3, .rule = KVC_RULE_STATE, .replicated = true}}};
}

static void write_header(void)
{
    json_t *metadata = docfile_metadata(&doc);
    ck_assert_ptr_nonnull(metadata);
    ck_assert_int_eq(st_write_header(file, metadata, tensor, tensors, &data_at), 0);
    json_decref(metadata);
}

static void setup(void)
{
    const struct kvc_ns_spec s = spec();
    doc = (struct docfile){.name = "book", .tokens = TOKENS, .keys_of_ids = true};
    ck_assert_int_eq(docfile_set_spec(&doc, &s), 0);
    doc.group[0].n = 7;
    doc.group[1].first = 1;
    doc.group[1].n = 1;
    ck_assert_int_eq(docfile_make_room(&doc), 0);
    doc.ids = calloc(TOKENS, sizeof(*doc.ids));
    for (uint32_t i = 0; i < TOKENS; i++)
        doc.ids[i] = UINT32_MAX - i;
    memset(doc.group[0].key, 0xab, 7 * KVC_KEY_BYTES);
    tensors = docfile_tensors(&doc, tensor);
    data_bytes = tensor[tensors - 1].begin + tensor[tensors - 1].bytes;
    file = tmpfile();
    write_header();
    for (uint64_t i = 0; i < data_bytes; i++)
        fputc((int)(i & 0xff), file);
}

static void teardown(void)
{
    docfile_free(&doc);
    fclose(file);
}

static int load(struct docfile *ret_doc, char why[ST_WHY_BYTES])
{
    struct st_header h;
    int rc = st_read(file, why, &h);
    *ret_doc = (struct docfile){.tokens = 0};
    if (rc < 0)
        return rc;
    rc = docfile_load(&h, why, ret_doc);
    st_free(&h);
    return rc;
}

CASES(.setup = setup, .teardown = teardown);

CASE(what_is_written_is_read)
{
    char why[ST_WHY_BYTES];
    struct docfile got;
    ck_assert_uint_eq(tensors, 3); /* two shards, and one group that all ranks have equal */
    ck_assert_uint_eq(data_at % 8, 0);
    ck_assert_msg(load(&got, why) == 0, "%s", why);
    ck_assert_str_eq(got.name, "book");
    ck_assert_str_eq(got.spec.position_params, "theta=\"500000\"");
    ck_assert_uint_eq(got.spec.shards, 2);
    ck_assert_uint_eq(got.tokens, TOKENS);
    ck_assert_mem_eq(got.ids, doc.ids, TOKENS * sizeof(*doc.ids));
    ck_assert_uint_eq(got.group[0].keys, 7);
    ck_assert_uint_eq(got.group[1].first, 1);
    ck_assert_mem_eq(got.group[0].key, doc.group[0].key, 7 * KVC_KEY_BYTES);
    ck_assert_uint_eq(docfile_differences(&got.spec, &doc.spec, NULL, NULL), 0);
    docfile_free(&got);
}

CASE(a_header_with_the_sums_is_as_long_as_one_without)
{
    const uint64_t before = data_at;
    for (uint32_t s = 0; s < 2; s++)
        memset(doc.group[0].sum[s], 0xff, 7 * DOC_SUM_BYTES);
    write_header();
    ck_assert_uint_eq(data_at, before);
}

CASE(a_file_cut_off_or_prolonged_is_refused_everywhere)
{
    char why[ST_WHY_BYTES];
    struct docfile got;
    fputc(0, file);
    ck_assert_int_eq(load(&got, why), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "do not fill"));
    for (int64_t size = (int64_t)(data_at + data_bytes) - 1; size >= 0; size--) {
        ck_assert_int_eq(fflush(file), 0);
        ck_assert_int_eq(ftruncate(fileno(file), size), 0);
        ck_assert_int_eq(load(&got, why), -EINVAL);
        ck_assert_uint_gt(strlen(why), 0);
        docfile_free(&got);
    }
}

CASE(each_text_of_the_metadata_is_needed)
{
    static const char *const keys[] = {"format",    "format_version", "name",     "namespace",
                                       "tokens",    "token_ids",      "keys.0",   "keys.1",
                                       "keys_from", "seed_print",     "first.0",  "first.1",
                                       "sums.0.0",  "sums.0.1",       "sums.1.0", "block_tokens"};
    char why[ST_WHY_BYTES];
    struct docfile got;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        json_t *metadata = docfile_metadata(&doc);
        uint64_t bytes;
        ck_assert_int_eq(json_object_del(metadata, keys[i]), 0);
        ck_assert_int_eq(st_write_header(file, metadata, tensor, tensors, &bytes), 0);
        ck_assert_int_eq(fflush(file), 0);
        ck_assert_int_eq(ftruncate(fileno(file), (off_t)(bytes + data_bytes)), 0);
        ck_assert_msg(load(&got, why) == -EINVAL, "without %s", keys[i]);
        docfile_free(&got);
        json_decref(metadata);
    }
}

/* Were it taken, the blocks would be found under the keys of other tokens. */
CASE(a_text_that_changed_on_the_way_is_refused)
{
    static const char *const texts[][2] = {{"token_ids", NULL},  {"first.1", "0"},
                                           {"name", "book2"},    {"keys_from", "engine"},
                                           {"header_sum", "00"}, {"more", "text"}};
    char why[ST_WHY_BYTES];
    struct docfile got;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json_t *metadata = docfile_metadata(&doc);
        char *ids = strdup(json_string_value(json_object_get(metadata, "token_ids")));
        uint64_t bytes;
        ids[1] = '3'; /* another id, which is as good */
        ck_assert_int_eq(json_object_set_new(metadata, texts[i][0],
                                             json_string(texts[i][1] ? texts[i][1] : ids)),
                         0);
        ck_assert_int_eq(st_write_header(file, metadata, tensor, tensors, &bytes), 0);
        ck_assert_int_eq(fflush(file), 0);
        ck_assert_int_eq(ftruncate(fileno(file), (off_t)(bytes + data_bytes)), 0);
        ck_assert_msg(load(&got, why) == -EBADMSG, "with another %s", texts[i][0]);
        ck_assert_ptr_nonnull(strstr(why, "header_sum"));
        docfile_free(&got);
        json_decref(metadata);
        free(ids);
    }
}

/* With one text of the metadata another one, and the sum over it: `why` names what is wrong. */
static void refuses(const char *key, const char *text, const char *says)
{
    char why[ST_WHY_BYTES], sum[DOC_HEADER_SUM_BYTES];
    struct docfile got;
    uint64_t bytes;
    json_t *metadata = docfile_metadata(&doc);
    ck_assert_int_eq(json_object_set_new(metadata, key, json_string(text)), 0);
    ck_assert_int_eq(docfile_sum(metadata, sum), 0);
    ck_assert_int_eq(json_object_set_new(metadata, "header_sum", json_string(sum)), 0);
    ck_assert_int_eq(st_write_header(file, metadata, tensor, tensors, &bytes), 0);
    ck_assert_int_eq(fflush(file), 0);
    ck_assert_int_eq(ftruncate(fileno(file), (off_t)(bytes + data_bytes)), 0);
    ck_assert_msg(load(&got, why) == -EINVAL, "%s: %s", key, text);
    ck_assert_msg(strstr(why, says) != NULL, "no '%s' in: %s", says, why);
    docfile_free(&got);
    json_decref(metadata);
}

CASE(sizes_that_are_not_those_of_the_namespace_are_refused)
{
    refuses("block_tokens", "[16, 32]", "'block_tokens' of group 1 are not the 64");
    refuses("block_tokens", "[16]", "'block_tokens' are not one number for each");
    refuses("block_tokens", "[16, \"64\"]", "'block_tokens' of group 1");
    refuses("block_tokens", "16", "'block_tokens'");
}

CASE(a_number_that_is_wrong_is_told_what_is_right)
{
    refuses("first.0", "1", "its 'first.0' is '1' and must be 0");
    refuses("first.1", "9", "its 'first.1' is '9' and must be a whole number from 0 to 1");
    refuses("tokens", "-1", "its 'tokens' is '-1' and must be a whole number from 0 to 4294967295");
}

/* The specification with a field more, or another one; in a group of it too. */
static void refuses_spec(bool in_group, const char *field, json_t *value, const char *says)
{
    json_t *o = docfile_spec_json(&doc.spec);
    json_t *to = in_group ? json_array_get(json_object_get(o, "groups"), 1) : o;
    ck_assert_int_eq(json_object_set_new(to, field, value), 0);
    char *text = json_dumps(o, JSON_COMPACT);
    refuses("namespace", text, says);
    free(text);
    json_decref(o);
}

CASE(fields_of_the_namespace_that_nobody_knows_are_refused)
{
    refuses_spec(false, "rope_scaling", json_string("yarn"), "has 'rope_scaling'");
    refuses_spec(true, "sinks", json_integer(4), "has 'sinks'");
}

CASE(what_is_wrong_in_a_group_is_named)
{
    refuses_spec(true, "block_tokens", json_integer(0), "groups[].block_tokens");
    refuses_spec(true, "block_bytes", json_string("3"), "groups[].block_bytes");
    refuses_spec(true, "rule", json_string("half"), "groups[].rule");
    refuses_spec(true, "window", json_integer(1), "groups[].window");
    refuses_spec(true, "replicated", json_integer(1), "groups[].replicated");
}

static char named[256];

static void take(void *ctx, const char *field, const char *of_a, const char *of_b)
{
    (void)ctx;
    snprintf(named + strlen(named), sizeof(named) - strlen(named), "%s=%s/%s;", field, of_a, of_b);
}

CASE(differences_are_named_and_costs_are_none)
{
    struct kvc_ns_spec other = spec();
    other.dtype = "fp8";
    other.group[1].block_bytes = 4;
    other.prefill_ns_per_token = 1;
    other.sub_tenant = "somebody";
    ck_assert_uint_eq(docfile_differences(&doc.spec, &other, take, NULL), 2);
    ck_assert_str_eq(named, "dtype=bf16/fp8;groups[1].block_bytes=3/4;");
}

CASE(seeds_are_told_apart_and_not_given_away)
{
    uint8_t seed[KVC_KEY_BYTES] = {1}, a[DOC_PRINT_BYTES], b[DOC_PRINT_BYTES];
    ck_assert_int_eq(docfile_seed_print(seed, a), 0);
    ck_assert_mem_ne(a, seed, sizeof(a));
    seed[31] = 1;
    ck_assert_int_eq(docfile_seed_print(seed, b), 0);
    ck_assert_mem_ne(a, b, sizeof(a));
}
