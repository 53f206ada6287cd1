/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A document as a safetensors file: for each group and shard a tensor "group<G>.shard<S>" of U8
 * [blocks, block_bytes], and in __metadata__, as texts:
 *
 *   format          "kvcache-document"          format_version  "2"
 *   name            of the document
 *   namespace       JSON: the whole specification of the namespace
 *   tokens          their number                block_tokens    JSON: of each group
 *   token_ids       JSON array; missing when the ids are not known
 *   keys.<G>        hex: 32 bytes for each block of the sequence
 *   keys_from       "token_ids" when kvc_hash_chain() makes them of the ids, else "engine"
 *   seed_print      hex: a hash of the namespace's seed, which keeps the seed secret
 *   first.<G>       number of the first block in the tensors (a sliding window needs no earlier
 *                   ones)
 *   sums.<G>.<S>    hex: XXH3-128 of each block in the tensor
 *   header_sum      hex: SHA-256 of all other texts; without it, one wrong token id would give the
 *                   blocks to another sequence
 *
 * An unknown field of `namespace`, or of one of its groups, is refused, because the KV may depend
 * on it. Other unknown texts are ignored, but header_sum covers them.
 *
 * No I/O. The header that is read is checked for contradictions.
 */
#ifndef CTL_DOCFILE_H
#define CTL_DOCFILE_H

#include <kvcache/kvcache.h>

#include "safetensors.h"

#define DOC_SUM_BYTES   16u
#define DOC_PRINT_BYTES 16u
/* The text of header_sum: hex digits and a zero byte. */
#define DOC_HEADER_SUM_BYTES 65u

struct docfile {
    char name[KVC_STRING_MAX];
    struct kvc_ns_spec spec;  /* borrows its texts from `spec_json` */
    struct json_t *spec_json; /* owned */
    uint32_t tokens;
    uint32_t *ids;    /* owned; NULL = not known */
    bool keys_of_ids; /* kvc_hash_chain() makes the keys from `ids`; false: an engine made them */
    uint8_t seed_print[DOC_PRINT_BYTES];
    struct {
        uint32_t keys;  /* blocks of the whole sequence */
        uint32_t first; /* the file has blocks first .. first + n - 1 */
        uint32_t n;
        uint8_t *key;                 /* owned: keys x KVC_KEY_BYTES */
        uint8_t *sum[KVC_SHARDS_MAX]; /* owned: n x DOC_SUM_BYTES */
    } group[KVC_GROUPS_MAX];
};

/* Shards that a group has in the file: one when all ranks hold the same bytes. */
uint32_t docfile_shards(const struct kvc_ns_spec *spec, uint32_t group);
/* Allocates keys and sums, when spec, tokens, first and n are set. -ENOMEM. */
ST_MUST_USE int docfile_make_room(struct docfile *doc);
/* Writes the document's tensors in the file's order; returns their number. ret_tensor may be NULL.
 */
uint32_t docfile_tensors(const struct docfile *doc, struct st_tensor *ret_tensor);
/* Makes the texts of __metadata__; the caller owns them. NULL: no memory. Documents of equal sizes
 * have texts of equal lengths. */
struct json_t *docfile_metadata(const struct docfile *doc);
/* Computes the header_sum of these texts. -ENOMEM, -EIO. */
ST_MUST_USE int docfile_sum(const struct json_t *metadata, char ret_sum[DOC_HEADER_SUM_BYTES]);
/* Fills `doc` from a file's header. 0; -EINVAL, -EBADMSG (header_sum differs), -ENOMEM, with `why`.
 * The caller calls docfile_free() in either case. */
ST_MUST_USE int docfile_load(const struct st_header *header, char why[ST_WHY_BYTES],
                             struct docfile *doc);
void docfile_free(struct docfile *doc);

/* The specification as JSON, which the caller owns; NULL: no memory. */
struct json_t *docfile_spec_json(const struct kvc_ns_spec *spec);
/* Sets doc->spec from JSON. The document owns the JSON from now on, and doc->spec borrows its
 * texts. Returns NULL, or the name of the field that is wrong (static). NULL is wrong JSON. */
const char *docfile_take_spec(struct docfile *doc, struct json_t *json);
/* The name of a field in that JSON which this program does not know, borrowed; NULL: none. */
const char *docfile_unknown_field(const struct docfile *doc);
/* Sets doc->spec to a copy of a specification. -ENOMEM; -EINVAL: a text is not UTF-8. */
ST_MUST_USE int docfile_set_spec(struct docfile *doc, const struct kvc_ns_spec *spec);
/* Calls fn for each field by which blocks of one namespace are useless in the other ("dtype: bf16
 * here, fp8 there"), and returns the number of these fields. Tenant and prefill cost do not count.
 */
unsigned docfile_differences(const struct kvc_ns_spec *a, const struct kvc_ns_spec *b,
                             void (*fn)(void *ctx, const char *field, const char *of_a,
                                        const char *of_b),
                             void *ctx);

/* The seed_print of a seed. -ENOMEM. */
ST_MUST_USE int docfile_seed_print(const uint8_t *seed, uint8_t ret_print[DOC_PRINT_BYTES]);

#endif
