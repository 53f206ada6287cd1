/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A document as a safetensors file: for each group and shard a tensor "group<G>.shard<S>" of U8
 * [blocks, block_bytes], and in __metadata__, as texts:
 *
 *   format          "kvcache-document"          format_version  "2"
 *   name            of the document
 *   namespace       JSON: what the namespace was opened with, all of it
 *   tokens          how many                    block_tokens    JSON: of each group
 *   token_ids       JSON array; missing when they are not known
 *   keys.<G>        hex: 32 bytes for each block of the sequence
 *   keys_from       "token_ids" when kvc_hash_chain() makes them of the ids, else "engine"
 *   seed_print      hex: tells seeds apart, and does not give them away
 *   first.<G>       number of the first block in the tensors (earlier ones of a sliding window are
 *                   not needed)
 *   sums.<G>.<S>    hex: XXH3-128 of each block in the tensor
 *   header_sum      hex: SHA-256 of all other texts, or one wrong token id would give the blocks to
 *                   another sequence
 *
 * A field of `namespace` or of one of its groups that is not known is refused: it may be what makes
 * KV another. A text beside those above is read over; the header_sum is of it too.
 *
 * Pure but for memory. What is read is checked against all that it says of itself.
 */
#ifndef CTL_DOCFILE_H
#define CTL_DOCFILE_H

#include <kvcache/kvcache.h>

#include "safetensors.h"

#define DOC_SUM_BYTES   16u
#define DOC_PRINT_BYTES 16u
/* A text: hex and its end. */
#define DOC_HEADER_SUM_BYTES 65u

struct docfile {
    char name[KVC_STRING_MAX];
    struct kvc_ns_spec spec;  /* its texts are in `spec_json` */
    struct json_t *spec_json; /* owned */
    uint32_t tokens;
    uint32_t *ids;    /* owned; NULL = not known */
    bool keys_of_ids; /* kvc_hash_chain() makes the keys */
    uint8_t seed_print[DOC_PRINT_BYTES];
    struct {
        uint32_t keys;                /* of the whole sequence */
        uint32_t first;               /* the first block that is stored */
        uint32_t n;                   /* so many are */
        uint8_t *key;                 /* owned: keys x KVC_KEY_BYTES */
        uint8_t *sum[KVC_SHARDS_MAX]; /* owned: n x DOC_SUM_BYTES */
    } group[KVC_GROUPS_MAX];
};

/* Shards that a group has in the file: one when all ranks hold the same bytes. */
uint32_t docfile_shards(const struct kvc_ns_spec *spec, uint32_t group);
/* Room for spec, tokens, first and n that are set: allocates keys and sums. -ENOMEM. */
ST_MUST_USE int docfile_make_room(struct docfile *doc);
/* The tensors, in their order; returns how many. ret_tensor may be NULL. */
uint32_t docfile_tensors(const struct docfile *doc, struct st_tensor *ret_tensor);
/* Returns owned; NULL when memory is out. Texts of a document of one shape are of one length. */
struct json_t *docfile_metadata(const struct docfile *doc);
/* header_sum of these texts. -ENOMEM, -EIO. */
ST_MUST_USE int docfile_sum(const struct json_t *metadata, char ret_sum[DOC_HEADER_SUM_BYTES]);
/* Takes a file's header. 0, or with `why` -EINVAL, -EBADMSG (header_sum differs), -ENOMEM.
 * docfile_free() in any case. */
ST_MUST_USE int docfile_load(const struct st_header *header, char why[ST_WHY_BYTES],
                             struct docfile *doc);
void docfile_free(struct docfile *doc);

/* The specification as JSON. Returns owned; NULL when memory is out. */
struct json_t *docfile_spec_json(const struct kvc_ns_spec *spec);
/* Takes the JSON over (NULL counts as wrong), whose texts doc->spec then borrows. NULL, or the
 * field that is wrong (static). */
const char *docfile_take_spec(struct docfile *doc, struct json_t *json);
/* A field of what was taken that nobody here knows, borrowed from `doc`; or NULL. */
const char *docfile_unknown_field(const struct docfile *doc);
/* Sets `doc`'s own copy of a specification. -ENOMEM, -EINVAL (a text is not UTF-8). */
ST_MUST_USE int docfile_set_spec(struct docfile *doc, const struct kvc_ns_spec *spec);
/* Names what differs so that blocks of one are of no use in the other ("dtype: bf16 here, fp8
 * there"), one call of fn for each. Whose it is and what prefill costs does not count. Returns how
 * many. */
unsigned docfile_differences(const struct kvc_ns_spec *a, const struct kvc_ns_spec *b,
                             void (*fn)(void *ctx, const char *field, const char *of_a,
                                        const char *of_b),
                             void *ctx);

/* What tells this seed from others. -ENOMEM. */
ST_MUST_USE int docfile_seed_print(const uint8_t *seed, uint8_t ret_print[DOC_PRINT_BYTES]);

#endif
