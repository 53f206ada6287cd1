/* SPDX-License-Identifier: Apache-2.0 */
/* doc export: writes the blocks of a document to a file. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "docfile.h"
#include "hash.h"
#include "json.h"
#include "named.h"
#include "outfile.h"
#include "pause.h"
#include "progress.h"
#include "ranks.h"
#include "units.h"

/* Bytes that are held at a time, about; fewer if the daemon allows a session fewer
 * (limits.lease_bytes). */
#define PIECE_BYTES (UINT64_C(64) << 20)

static const char help[] =
    "Usage: kvcachectl doc export NAME FILE [--sub NAME] [--json]\n"
    "\n"
    "Writes a document's KV to FILE, in safetensors: a tensor for each group of layers and shard, "
    "blocks x bytes, and as metadata the whole namespace, the keys, checksums of the blocks, and "
    "the token ids where they are known. FILE must be a regular file, or not exist; it is replaced "
    "when all of it is written, and unchanged if anything fails. '-' is stdout.\n"
    "\n"
    "A file with token ids can be imported anywhere, another one only where the namespace's seed "
    "is the same: the same daemon (or one with the same secret), principal and tenant.\n"
    "\n"
    "Opens a session for each shard; they must belong to the document's principal.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachectl doc export handbook handbook.safetensors\n"
    "  python3 -c 'import safetensors.numpy as s; print(s.load_file(\"handbook.safetensors\"))'\n";

static const struct arg option_table[] = {NAMED_SUB, {0}};

struct export
{
    struct named n;
    const char *path;
    struct chain chain;
    struct ranks ranks;
    struct docfile doc;
    struct st_tensor *tensor;
    struct outfile out;
    uint64_t data_at, done, total;
    uint32_t unit, step; /* tokens: of the smallest piece, and held at a time */
    struct pause pause;  /* for what is to be loaded */
    struct progress bar;
};

/* ---- before the blocks ---- */

/* Whether these are the keys that libkvcache makes from the ids. */
static bool are_hashed(const struct chain *chain)
{
    bool same = chain->ids != NULL;
    for (uint32_t g = 0; same && g < chain->spec->groups; g++) {
        const size_t n = chain->seq.group[g].n;
        uint8_t *keys = calloc(n + 1, KVC_KEY_BYTES);
        same = keys &&
               kvc_hash_chain(kvc_ns_seed(chain->ns), chain->ids, chain->seq.tokens,
                              chain->spec->group[g].block_tokens, NULL, 0, keys) == (int)n &&
               memcmp(keys, chain->seq.group[g].keys, n * KVC_KEY_BYTES) == 0;
        free(keys);
    }
    return same;
}

/* Finds the blocks that a hit of the whole sequence needs. */
static void needed(const struct kvc_group_spec *g, uint32_t tokens, uint32_t blocks,
                   uint32_t *ret_first, uint32_t *ret_n)
{
    uint32_t first = 0;
    if (g->rule == KVC_RULE_STATE)
        first = blocks - 1;
    if (g->rule == KVC_RULE_WINDOW && g->window < tokens)
        first = (tokens - g->window) / g->block_tokens;
    *ret_first = first;
    *ret_n = blocks - first;
}

static int fill_doc(struct export *e)
{
    struct docfile *doc = &e->doc;
    const struct chain *chain = &e->chain;
    snprintf(doc->name, sizeof(doc->name), "%s", e->n.name);
    int rc = docfile_set_spec(doc, chain->spec);
    doc->tokens = chain->seq.tokens;
    for (uint32_t g = 0; rc == 0 && g < doc->spec.groups; g++)
        needed(&doc->spec.group[g], doc->tokens, chain->seq.group[g].n, &doc->group[g].first,
               &doc->group[g].n);
    if (rc == 0)
        rc = docfile_make_room(doc);
    for (uint32_t g = 0; rc == 0 && g < doc->spec.groups; g++)
        memcpy(doc->group[g].key, chain->seq.group[g].keys,
               (size_t)chain->seq.group[g].n * KVC_KEY_BYTES);
    if (rc == 0)
        rc = docfile_seed_print(kvc_ns_seed(chain->ns), doc->seed_print);
    doc->keys_of_ids = rc == 0 && are_hashed(chain);
    doc->ids = e->chain.ids;
    e->chain.ids = NULL;
    const uint32_t tensors = docfile_tensors(doc, NULL);
    e->tensor = rc == 0 ? calloc(tensors, sizeof(*e->tensor)) : NULL;
    if (rc == 0 && !e->tensor)
        rc = -ENOMEM;
    if (rc == 0)
        (void)docfile_tensors(doc, e->tensor);
    for (uint32_t i = 0; rc == 0 && i < tensors; i++)
        e->total += e->tensor[i].bytes;
    if (rc < 0)
        ctl_error("%s", rc == -EINVAL ? "the namespace has a text that is not UTF-8, so that it "
                                        "cannot be written down"
                                      : strerror(-rc));
    return rc < 0 ? CTL_FAILED : 0;
}

/* Writes the header. It is written once to reserve its place, and again with the same length when
 * the sums are known. */
static int write_header(struct export *e)
{
    json_t *metadata = docfile_metadata(&e->doc);
    int rc = metadata ? st_write_header(e->out.file, metadata, e->tensor,
                                        docfile_tensors(&e->doc, NULL), &e->data_at)
                      : -ENOMEM;
    json_decref(metadata);
    return rc;
}

/* ---- blocks ---- */

/* The index of a group's and shard's tensor. */
static uint32_t tensor_of(const struct docfile *doc, uint32_t group, uint32_t shard)
{
    uint32_t i = shard;
    for (uint32_t g = 0; g < group; g++)
        i += docfile_shards(&doc->spec, g);
    return i;
}

static int write_blocks(struct export *e, const struct kvc_hold *hold, uint32_t g, uint32_t shard)
{
    struct docfile *doc = &e->doc;
    const uint32_t bytes = doc->spec.group[g].block_bytes;
    const uint32_t first = doc->group[g].first;
    for (uint32_t i = 0; i < hold->group[g].n; i++) {
        const uint32_t at = hold->group[g].first + i;
        if (at < first || at - first >= doc->group[g].n || hold->group[g].block[i].bytes != bytes)
            return -EPROTO;
        const struct hash128 sum = hash_sum(hold->group[g].block[i].data, bytes);
        const uint64_t to =
            e->data_at + e->tensor[tensor_of(doc, g, shard)].begin + (uint64_t)(at - first) * bytes;
        memcpy(doc->group[g].sum[shard] + (size_t)(at - first) * DOC_SUM_BYTES, sum.b,
               DOC_SUM_BYTES);
        if (fseeko(e->out.file, (off_t)to, SEEK_SET) != 0 ||
            fwrite(hold->group[g].block[i].data, 1, bytes, e->out.file) != bytes)
            return errno ? -errno : -EIO;
        e->done += bytes;
        progress_show(&e->bar, e->done);
    }
    return 0;
}

/* Writes the blocks of all groups that one rank holds. 0, KVC_STALE, or -errno of writing. */
static int write_rank(struct export *e, const struct kvc_hold *hold, uint32_t rank)
{
    int rc = 0;
    for (uint32_t g = 0; rc == 0 && g < e->doc.spec.groups; g++)
        if (rank < docfile_shards(&e->doc.spec, g))
            rc = write_blocks(e, hold, g, rank);
    return rc == 0 ? kvc_hold_check(hold) : rc;
}

/* Prints an error: -errno of the file, or one of the library. Returns an enum ctl_exit. */
static int write_fail(const struct export *e, int error)
{
    ctl_error("%s: %s", e->path,
              error == -ESPIPE ? "must be a regular file, or not there; it is written in places"
                               : strerror(-error));
    return CTL_FAILED;
}

/* Halves the piece that is held at a time; false: it cannot be smaller. */
static bool step_down(struct export *e)
{
    const uint32_t units = e->step / e->unit;
    if (units <= 1)
        return false;
    e->step = units / 2 * e->unit;
    return true;
}

/* The reason of the first group that has one. */
static enum kvc_miss reason_of(const struct export *e, const struct kvc_prefix *prefix)
{
    for (uint32_t g = 0; g < e->doc.spec.groups; g++)
        if (prefix->group[g].reason != KVC_MISS_NONE)
            return prefix->group[g].reason;
    return KVC_MISS_NONE;
}

/* Called when blocks of a piece are missing. A smaller piece may be complete, or the same one
 * later, because blocks on storage need room in memory. 0: try again; else an enum ctl_exit. */
static int doc_export_missing(struct export *e, const struct kvc_prefix *prefix, uint32_t want)
{
    const enum kvc_miss reason = reason_of(e, prefix);
    if (reason == KVC_MISS_NOT_LOADED &&
        (step_down(e) || pause_again(&e->pause, e->n.ctl->timeout_ms)))
        return 0;
    ctl_error("of %u tokens only %u are there to be read: %s; 'kvcachectl doc preload' brings it "
              "into memory, --timeout allows more time",
              want, prefix->tokens, reason == KVC_MISS_NONE ? "" : kvc_miss_text(reason));
    return CTL_NOTHING;
}

/* Holds in every rank what the first rank holds, and writes it. KVC_E_LIMIT, without a message, or
 * an enum ctl_exit. */
static int write_hold(struct export *e, const struct kvc_hold *hold)
{
    int rc = write_rank(e, hold, 0);
    for (uint32_t r = 1; rc == 0 && r < e->ranks.n; r++) {
        struct kvc_hold *same = NULL;
        rc = kvc_redeem(e->ranks.rank[r].ns, hold->ticket, &same);
        if (rc == KVC_E_LIMIT)
            return rc;
        if (rc < 0)
            return ranks_fail(e->n.ctl, &e->ranks, r, rc);
        rc = write_rank(e, same, r);
        kvc_release(e->ranks.rank[r].kvc, &same);
    }
    if (rc == KVC_STALE || rc == -EPROTO) {
        ctl_error("the session ended, or blocks changed, while they were being read; run it again");
        return CTL_FAILED;
    }
    return rc < 0 ? write_fail(e, rc) : rc;
}

/* Called when the piece is more than the daemon allows a session to hold. 0: try again with a
 * smaller one; else an enum ctl_exit. */
static int too_much(struct export *e)
{
    if (step_down(e))
        return 0;
    ctl_error("the daemon lets a session hold less at a time than %s: raise limits.lease_bytes in "
              "its configuration",
              e->unit < e->doc.tokens ? "one block"
                                      : "this document, which cannot be read in parts");
    return CTL_FAILED;
}

/* Writes the blocks that end in (*at, to], and sets *at to `to`; an unchanged *at means: try again.
 * 0, or an enum ctl_exit. */
static int write_piece(struct export *e, uint32_t *at, uint32_t to)
{
    const struct ctl *ctl = e->n.ctl;
    struct kvc_seq seq = e->chain.seq;
    struct kvc_hold *hold = NULL;
    const struct kvc_acquire_options options = {.flags = KVC_F_ALL, .from_tokens = *at};
    const uint64_t done = e->done;
    seq.tokens = to;
    for (uint32_t g = 0; g < e->doc.spec.groups; g++)
        seq.group[g].n = chain_blocks(e->chain.spec, g, to);
    int rc = kvc_acquire(e->ranks.rank[0].ns, &seq, &options, &hold);
    if (rc < 0 && rc != KVC_E_LIMIT)
        return ranks_fail(ctl, &e->ranks, 0, rc);
    if (rc == 0 && hold->prefix.tokens != to) {
        rc = doc_export_missing(e, &hold->prefix, to);
    } else {
        rc = rc == 0 ? write_hold(e, hold) : rc;
        if (rc == 0) {
            *at = to;
            e->pause = (struct pause){0};
        } else if (rc == KVC_E_LIMIT) {
            e->done = done;
            rc = too_much(e);
        }
    }
    kvc_release(e->ranks.rank[0].kvc, &hold);
    return rc;
}

static uint64_t common(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;
    while (y) {
        const uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Sets how many tokens are read at a time. If attention is not full in all groups, a prefix needs
 * other blocks than the whole sequence, so all is read at once. */
static void set_step(struct export *e)
{
    const struct kvc_ns_spec *s = &e->doc.spec;
    uint64_t unit = 1, bytes = 0;
    e->unit = e->step = e->doc.tokens;
    for (uint32_t g = 0; g < s->groups; g++) {
        if (s->group[g].rule != KVC_RULE_FULL)
            return;
        unit = common(unit, s->group[g].block_tokens);
    }
    if (unit >= e->doc.tokens)
        return;
    for (uint32_t g = 0; g < s->groups; g++)
        bytes += unit / s->group[g].block_tokens * s->group[g].block_bytes * docfile_shards(s, g);
    const uint64_t n = PIECE_BYTES / bytes, all = e->doc.tokens / unit + 1;
    e->unit = (uint32_t)unit;
    e->step = (uint32_t)(n > all ? all : n > 0 ? n : 1) * e->unit;
}

static int write_pieces(struct export *e)
{
    int rc = 0;
    set_step(e);
    for (uint32_t at = 0; rc == 0 && at < e->doc.tokens;)
        rc = write_piece(e, &at, e->doc.tokens - at > e->step ? at + e->step : e->doc.tokens);
    return rc;
}

static int write_file(struct export *e)
{
    int rc = outfile_open(&e->out, e->path, OUTFILE_PLACES);
    if (rc < 0)
        return write_fail(e, rc);
    rc = write_header(e);
    if (rc < 0) {
        outfile_drop(&e->out);
        return write_fail(e, rc);
    }
    progress_begin(&e->bar, "exporting", e->total);
    rc = write_pieces(e);
    progress_end(&e->bar);
    if (rc == 0) {
        const int error = write_header(e);
        rc = error < 0 ? write_fail(e, error) : 0;
    }
    if (rc != 0) {
        outfile_drop(&e->out);
        return rc;
    }
    rc = outfile_keep(&e->out);
    return rc < 0 ? write_fail(e, rc) : 0;
}

/* ---- the verb ---- */

static void say_done(const struct export *e)
{
    char size[UNITS_TEXT_BYTES], tokens[UNITS_COUNT_BYTES];
    const uint32_t tensors = docfile_tensors(&e->doc, NULL);
    if (!strcmp(e->path, "-"))
        return; /* stdout has the document, so no text may follow it */
    if (e->n.ctl->json) {
        json_print(json_pack("{s:s, s:s, s:I, s:I, s:b}", "name", e->doc.name, "file", e->path,
                             "tokens", (json_int_t)e->doc.tokens, "bytes", (json_int_t)e->total,
                             "portable", e->doc.keys_of_ids));
        return;
    }
    printf("%s: %s tokens, %s in %u tensor%s\n", e->path, units_format_count(e->doc.tokens, tokens),
           units_format_bytes(e->total, size), tensors, tensors == 1 ? "" : "s");
    if (!e->doc.keys_of_ids)
        puts(e->doc.ids ? "the engine makes keys in its own way: it can be imported where the "
                          "namespace's seed is the same"
                        : "without token ids: it can be imported where the namespace's seed is "
                          "the same ('doc put --tokens' keeps them)");
}

static int doc_export_run(struct export *e)
{
    struct kvc_name_info info;
    int rc = ctl_connect(e->n.ctl);
    if (rc == 0)
        rc = chain_show_name(e->n.ctl, e->n.kind, e->n.name, e->n.sub, &info);
    if (rc == 0)
        rc = chain_of_name(e->n.ctl, &info, e->n.sub, &e->chain);
    if (rc == 0)
        rc = fill_doc(e);
    if (rc == 0)
        rc = ranks_open(e->n.ctl, e->chain.spec, 0, &e->ranks);
    if (rc == 0)
        rc = write_file(e);
    if (rc == 0)
        say_done(e);
    return rc;
}

int doc_export(struct ctl *ctl, int argc, char **argv)
{
    struct export e = {.n = {.ctl = ctl, .kind = KVC_NAME_DOCUMENT}};
    int rc = named_options2(&e.n, argc, argv, option_table, help, &e.path);
    if (rc == 0 && !e.path)
        rc =
            ctl_usage("where to? Give a FILE behind the name, as in 'doc export %s %s.safetensors'",
                      e.n.name, e.n.name);
    if (rc == 0 && !strcmp(e.path, "-") && ctl->json)
        rc = ctl_usage("'-' writes the document to stdout, and so does --json; leave one out");
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = doc_export_run(&e);
    ranks_close(&e.ranks);
    docfile_free(&e.doc);
    chain_free(&e.chain);
    free(e.tensor);
    return rc;
}
