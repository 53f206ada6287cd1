/* SPDX-License-Identifier: Apache-2.0 */
#include "docfile.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "units.h"

#define FORMAT  "kvcache-document"
#define VERSION "2"
#define SUM     "header_sum"

_Static_assert(sizeof(struct hash128) == DOC_SUM_BYTES, "sums are XXH3-128");

/* ---- hex ---- */

static char *to_hex(const uint8_t *bytes, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    char *text = malloc(2 * n + 1);
    if (!text)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * n] = '\0';
    return text;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads exactly n bytes. */
static bool from_hex(const char *text, uint8_t *bytes, size_t n)
{
    if (!text || strlen(text) != 2 * n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* ---- shape ---- */

uint32_t docfile_shards(const struct kvc_ns_spec *spec, uint32_t group)
{
    return spec->group[group].replicated ? 1 : spec->shards;
}

int docfile_make_room(struct docfile *doc)
{
    for (uint32_t g = 0; g < doc->spec.groups; g++) {
        const uint32_t size = doc->spec.group[g].block_tokens;
        doc->group[g].keys = doc->tokens / size + (doc->tokens % size != 0);
        doc->group[g].key = calloc(doc->group[g].keys + 1, KVC_KEY_BYTES);
        if (!doc->group[g].key)
            return -ENOMEM;
        for (uint32_t s = 0; s < docfile_shards(&doc->spec, g); s++) {
            doc->group[g].sum[s] = calloc(doc->group[g].n + 1, DOC_SUM_BYTES);
            if (!doc->group[g].sum[s])
                return -ENOMEM;
        }
    }
    return 0;
}

uint32_t docfile_tensors(const struct docfile *doc, struct st_tensor *ret_tensor)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < doc->spec.groups; g++) {
        const uint64_t bytes = (uint64_t)doc->group[g].n * doc->spec.group[g].block_bytes;
        for (uint32_t s = 0; s < docfile_shards(&doc->spec, g); s++, n++) {
            if (!ret_tensor)
                continue;
            struct st_tensor *t = &ret_tensor[n];
            *t = (struct st_tensor){.dtype = "U8",
                                    .dims = 2,
                                    .shape = {doc->group[g].n, doc->spec.group[g].block_bytes},
                                    .begin =
                                        n ? ret_tensor[n - 1].begin + ret_tensor[n - 1].bytes : 0,
                                    .bytes = bytes};
            snprintf(t->name, sizeof(t->name), "group%u.shard%u", g, s);
        }
    }
    return n;
}

/* ---- texts by which the header itself is checked ---- */

#define TAG_KEY  1u
#define TAG_TEXT 2u

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int sum_of(const json_t *metadata, const char **key, size_t n, struct key256 *ret_sum)
{
    struct sha256 *s;
    int rc = sha256_create(&s);
    if (rc < 0)
        return rc;
    rc = sha256_begin(s);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const json_t *text = json_object_get(metadata, key[i]);
        rc = sha256_add(s, TAG_KEY, key[i], strlen(key[i]));
        if (rc == 0)
            rc = sha256_add(s, TAG_TEXT, json_string_value(text), json_string_length(text));
    }
    if (rc == 0)
        rc = sha256_end(s, ret_sum);
    sha256_destroy(&s);
    return rc;
}

int docfile_sum(const json_t *metadata, char ret_sum[DOC_HEADER_SUM_BYTES])
{
    const char **key = malloc((json_object_size(metadata) + 1) * sizeof(*key)), *name;
    struct key256 sum;
    json_t *text;
    size_t n = 0;
    if (!key)
        return -ENOMEM;
    json_object_foreach((json_t *)metadata, name, text) if (strcmp(name, SUM) != 0) key[n++] = name;
    qsort(key, n, sizeof(*key), by_name);
    const int rc = sum_of(metadata, key, n, &sum);
    free(key);
    char *hex = rc == 0 ? to_hex(sum.b, sizeof(sum.b)) : NULL;
    if (!hex)
        return rc < 0 ? rc : -ENOMEM;
    memcpy(ret_sum, hex, DOC_HEADER_SUM_BYTES);
    free(hex);
    return 0;
}

/* ---- metadata, written ---- */

struct out {
    json_t *o;
    int rc;
};

static void docfile_put(struct out *out, const char *key, json_t *value)
{
    out->rc |= json_object_set_new(out->o, key, value);
}

static void put_number(struct out *out, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    docfile_put(out, key, json_string(text));
}

static void put_hex(struct out *out, const char *key, const uint8_t *bytes, size_t n)
{
    char *text = to_hex(bytes, n);
    docfile_put(out, key, text ? json_string(text) : NULL);
    free(text);
}

/* Adds a JSON value as a text, and frees it. */
static void put_json(struct out *out, const char *key, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    docfile_put(out, key, text ? json_string(text) : NULL);
    free(text);
    json_decref(value);
}

static void docfile_put_group(struct out *out, const struct docfile *doc, uint32_t g)
{
    char key[32];
    snprintf(key, sizeof(key), "keys.%u", g);
    put_hex(out, key, doc->group[g].key, (size_t)doc->group[g].keys * KVC_KEY_BYTES);
    snprintf(key, sizeof(key), "first.%u", g);
    put_number(out, key, doc->group[g].first);
    for (uint32_t s = 0; s < docfile_shards(&doc->spec, g); s++) {
        snprintf(key, sizeof(key), "sums.%u.%u", g, s);
        put_hex(out, key, doc->group[g].sum[s], (size_t)doc->group[g].n * DOC_SUM_BYTES);
    }
}

static void put_sum(struct out *out)
{
    char sum[DOC_HEADER_SUM_BYTES];
    docfile_put(out, SUM, docfile_sum(out->o, sum) == 0 ? json_string(sum) : NULL);
}

json_t *docfile_metadata(const struct docfile *doc)
{
    struct out out = {.o = json_object()};
    json_t *sizes = json_array(), *ids = doc->ids ? json_array() : NULL;
    docfile_put(&out, "format", json_string(FORMAT));
    docfile_put(&out, "format_version", json_string(VERSION));
    docfile_put(&out, "name", json_string(doc->name));
    put_json(&out, "namespace", docfile_spec_json(&doc->spec));
    put_number(&out, "tokens", doc->tokens);
    for (uint32_t g = 0; g < doc->spec.groups; g++)
        out.rc |= json_array_append_new(sizes, json_integer(doc->spec.group[g].block_tokens));
    put_json(&out, "block_tokens", sizes);
    for (uint32_t i = 0; ids && i < doc->tokens; i++)
        out.rc |= json_array_append_new(ids, json_integer(doc->ids[i]));
    if (doc->ids)
        put_json(&out, "token_ids", ids);
    docfile_put(&out, "keys_from", json_string(doc->keys_of_ids ? "token_ids" : "engine"));
    put_hex(&out, "seed_print", doc->seed_print, DOC_PRINT_BYTES);
    for (uint32_t g = 0; g < doc->spec.groups; g++)
        docfile_put_group(&out, doc, g);
    put_sum(&out);
    if (out.rc == 0)
        return out.o;
    json_decref(out.o);
    return NULL;
}

/* ---- metadata, read ---- */

__attribute__((format(printf, 2, 3))) static int bad(char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, ST_WHY_BYTES, format, args);
    va_end(args);
    return -EINVAL;
}

static int docfile_take_number(const struct st_header *h, const char *key, uint32_t max, char *why,
                               uint32_t *ret)
{
    const char *text = st_text(h, key);
    uint64_t value;
    if (!text)
        return bad(why, "its '%s' is missing", key);
    if (units_parse_count(text, &value, NULL) < 0 || value > max)
        return max == 0 ? bad(why, "its '%s' is '%.40s' and must be 0", key, text)
                        : bad(why, "its '%s' is '%.40s' and must be a whole number from 0 to %u",
                              key, text, max);
    *ret = (uint32_t)value;
    return 0;
}

static json_t *docfile_parse(const char *text)
{
    return text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
}

static int docfile_take_head(const struct st_header *h, char *why, struct docfile *doc)
{
    const char *format = st_text(h, "format"), *version = st_text(h, "format_version");
    const char *name = st_text(h, "name"), *from = st_text(h, "keys_from");
    if (!format || strcmp(format, FORMAT) != 0)
        return bad(why,
                   "it is no document of a KV cache: __metadata__ has no format \"" FORMAT "\"");
    if (!version || strcmp(version, VERSION) != 0)
        return bad(why, "its format_version is %.20s; this program reads " VERSION,
                   version ? version : "missing");
    if (!name || !name[0] || strlen(name) >= sizeof(doc->name))
        return bad(why, "its 'name' is no text of 1 to %zu bytes", sizeof(doc->name) - 1);
    memcpy(doc->name, name, strlen(name) + 1);
    if (!from || (strcmp(from, "token_ids") != 0 && strcmp(from, "engine") != 0))
        return bad(why, "its 'keys_from' is neither \"token_ids\" nor \"engine\"");
    doc->keys_of_ids = from[0] == 't';
    const char *field = docfile_take_spec(doc, docfile_parse(st_text(h, "namespace")));
    if (field)
        return bad(why, "its 'namespace' is no specification of one: %s", field);
    field = docfile_unknown_field(doc);
    if (field)
        return bad(why,
                   "its 'namespace' has '%.40s', which this program does not know: it may make the "
                   "KV another; import it with the version that exported it",
                   field);
    if (!from_hex(st_text(h, "seed_print"), doc->seed_print, DOC_PRINT_BYTES))
        return bad(why, "its 'seed_print' is not hexadecimal, or not of %u bytes", DOC_PRINT_BYTES);
    return docfile_take_number(h, "tokens", UINT32_MAX, why, &doc->tokens);
}

static int take_ids(const struct st_header *h, char *why, struct docfile *doc)
{
    const char *text = st_text(h, "token_ids");
    if (!text)
        return doc->keys_of_ids ? bad(why, "its keys are of token_ids, which are missing") : 0;
    json_t *array = docfile_parse(text);
    bool good = json_is_array(array) && json_array_size(array) == doc->tokens;
    doc->ids = good ? malloc((doc->tokens + (size_t)1) * sizeof(*doc->ids)) : NULL;
    const bool full = good && !doc->ids;
    for (uint32_t i = 0; doc->ids && i < doc->tokens; i++) {
        const json_t *v = json_array_get(array, i);
        good = good && json_is_integer(v) && json_integer_value(v) >= 0 &&
               json_integer_value(v) <= UINT32_MAX;
        doc->ids[i] = (uint32_t)json_integer_value(v);
    }
    json_decref(array);
    if (full)
        return -ENOMEM;
    return good ? 0 : bad(why, "its 'token_ids' are not as many token ids as it has tokens");
}

/* Checks sizes that the file has twice, for readers that do not parse the namespace. */
static int check_sizes(const struct st_header *h, char *why, const struct docfile *doc)
{
    json_t *sizes = docfile_parse(st_text(h, "block_tokens"));
    int rc = json_array_size(sizes) == doc->spec.groups
                 ? 0
                 : bad(why,
                       "its 'block_tokens' are not one number for each of its namespace's %u "
                       "groups",
                       doc->spec.groups);
    for (uint32_t g = 0; rc == 0 && g < doc->spec.groups; g++) {
        const json_t *size = json_array_get(sizes, g);
        if (!json_is_integer(size) || json_integer_value(size) != doc->spec.group[g].block_tokens)
            rc = bad(why, "its 'block_tokens' of group %u are not the %u of its namespace", g,
                     doc->spec.group[g].block_tokens);
    }
    json_decref(sizes);
    return rc;
}

/* Takes the numbers of blocks from the shapes of the tensors. */
static int take_counts(const struct st_header *h, char *why, struct docfile *doc)
{
    uint64_t keys = 0;
    for (uint32_t g = 0; g < doc->spec.groups; g++) {
        char name[ST_NAME_BYTES];
        const uint32_t size = doc->spec.group[g].block_tokens;
        const uint32_t blocks = doc->tokens / size + (doc->tokens % size != 0);
        keys += blocks;
        if (blocks == 0 || keys > KVC_KEYS_MAX)
            return bad(why, "it has %s blocks", blocks ? "too many" : "no");
        for (uint32_t s = 0; s < docfile_shards(&doc->spec, g); s++) {
            snprintf(name, sizeof(name), "group%u.shard%u", g, s);
            const struct st_tensor *t = st_find(h, name);
            if (!t || strcmp(t->dtype, "U8") != 0 || t->dims != 2 ||
                t->shape[1] != doc->spec.group[g].block_bytes || t->shape[0] > blocks ||
                (s > 0 && t->shape[0] != doc->group[g].n))
                return bad(why, "there is no tensor '%s' of U8, blocks x %u", name,
                           doc->spec.group[g].block_bytes);
            doc->group[g].n = (uint32_t)t->shape[0];
        }
        snprintf(name, sizeof(name), "first.%u", g);
        const int rc =
            docfile_take_number(h, name, blocks - doc->group[g].n, why, &doc->group[g].first);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int take_bytes(const struct st_header *h, char *why, struct docfile *doc)
{
    char name[ST_NAME_BYTES];
    for (uint32_t g = 0; g < doc->spec.groups; g++) {
        snprintf(name, sizeof(name), "keys.%u", g);
        if (!from_hex(st_text(h, name), doc->group[g].key,
                      (size_t)doc->group[g].keys * KVC_KEY_BYTES))
            return bad(why, "its '%s' has not a key for each block", name);
        for (uint32_t s = 0; s < docfile_shards(&doc->spec, g); s++) {
            snprintf(name, sizeof(name), "sums.%u.%u", g, s);
            if (!from_hex(st_text(h, name), doc->group[g].sum[s],
                          (size_t)doc->group[g].n * DOC_SUM_BYTES))
                return bad(why, "its '%s' has not a sum for each block", name);
        }
    }
    return 0;
}

/* Checks header_sum; called last, so that other checks can name the exact error. */
static int check_sum(const struct st_header *h, char *why)
{
    const char *text = st_text(h, SUM);
    char sum[DOC_HEADER_SUM_BYTES];
    const int rc = docfile_sum(h->metadata, sum);
    if (rc < 0)
        return rc == -ENOMEM ? rc : bad(why, "its '" SUM "' could not be computed");
    if (text && strcmp(text, sum) == 0)
        return 0;
    (void)bad(why,
              "its __metadata__ is not what was exported: its '" SUM "' %s. Copy or export "
              "the file again",
              text ? "differs" : "is missing");
    return -EBADMSG;
}

int docfile_load(const struct st_header *header, char why[ST_WHY_BYTES], struct docfile *doc)
{
    *doc = (struct docfile){.tokens = 0};
    why[0] = '\0';
    int rc = docfile_take_head(header, why, doc);
    if (rc == 0)
        rc = check_sizes(header, why, doc);
    if (rc == 0)
        rc = take_counts(header, why, doc);
    if (rc == 0 && docfile_tensors(doc, NULL) != header->tensors)
        rc = bad(why, "it has tensors that are none of the document's");
    if (rc == 0)
        rc = take_ids(header, why, doc);
    if (rc == 0)
        rc = docfile_make_room(doc);
    if (rc == 0)
        rc = take_bytes(header, why, doc);
    if (rc == 0)
        rc = check_sum(header, why);
    if (rc == -ENOMEM)
        snprintf(why, ST_WHY_BYTES, "out of memory");
    return rc;
}

void docfile_free(struct docfile *doc)
{
    for (uint32_t g = 0; g < KVC_GROUPS_MAX; g++) {
        free(doc->group[g].key);
        for (uint32_t s = 0; s < KVC_SHARDS_MAX; s++)
            free(doc->group[g].sum[s]);
    }
    free(doc->ids);
    json_decref(doc->spec_json);
    *doc = (struct docfile){.tokens = 0};
}

/* ---- seeds ---- */

int docfile_seed_print(const uint8_t *seed, uint8_t ret_print[DOC_PRINT_BYTES])
{
    static const char purpose[] = "kvcache document: which seed";
    const uint32_t token = 0;
    uint8_t key[KVC_KEY_BYTES];
    const int n = kvc_hash_chain(seed, &token, 1, 1, purpose, sizeof(purpose) - 1, key);
    if (n < 0)
        return n;
    memcpy(ret_print, key, DOC_PRINT_BYTES);
    return 0;
}
