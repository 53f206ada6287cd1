/* SPDX-License-Identifier: Apache-2.0 */
/* doc import: stores the blocks of a document from a file. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "docfile.h"
#include "hash.h"
#include "json.h"
#include "named.h"
#include "pause.h"
#include "progress.h"
#include "ranks.h"
#include "units.h"

/* Bytes that are stored at a time. A session may be writing half of host.limit at most, and larger
 * steps bring nothing. */
#define STAGING_BYTES (UINT64_C(8) << 20)
#define STAGING_ALIGN UINT64_C(64)
/* The document gets its name last. Until then a wish keeps its blocks for so long. */
#define WISH_MS UINT64_C(600000)

static const char help[] =
    "Usage: kvcachectl doc import FILE [--name NAME] [--ns ID] [OPTIONS]\n"
    "\n"
    "Stores the blocks that 'kvcachectl doc export' wrote, and gives them the document's name; a "
    "document that has the name is replaced. FILE must be a regular file; '-' is stdin. The "
    "namespace is that of the file, or with --ns an existing one: if it differs in anything that "
    "matters to KV, the import is refused and each difference is named. The checksum of each block "
    "is compared. Returns when the blocks are on stable storage, if the daemon has any.\n"
    "\n"
    "A file that has its token ids, and whose keys are made from them, can be imported by anybody, "
    "anywhere. Without token ids, or if the engine makes keys in its own way, the keys are valid "
    "only with the seed from which they were made; another seed is refused. The seed is the same "
    "for the same namespace, principal and tenant in a daemon with the same secret (secret_file).\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachectl doc import handbook.safetensors --pin\n";

struct import {
    struct named n;
    const char *path;
    FILE *file;
    struct st_header header;
    struct docfile doc;
    struct chain chain; /* in the target namespace */
    struct ranks ranks;
    uint8_t *block;
    uint64_t done;
    struct pause pause; /* between attempts to find room */
    struct progress bar;
};

/* ---- the file ---- */

static int doc_import_open_file(struct import *m)
{
    char why[ST_WHY_BYTES] = "";
    m->file = ctl_open(m->path);
    if (!m->file)
        return CTL_USAGE;
    int rc = st_read(m->file, why, &m->header);
    if (rc == 0)
        rc = docfile_load(&m->header, why, &m->doc);
    if (rc < 0) {
        ctl_error("%s: %s", m->path, why);
        return rc == -EBADMSG ? CTL_CORRUPT : CTL_USAGE;
    }
    if (!m->n.name)
        m->n.name = m->doc.name;
    return 0;
}

static int read_block(struct import *m, const struct st_tensor *t, uint32_t group, uint32_t shard,
                      uint32_t i)
{
    const uint32_t bytes = m->doc.spec.group[group].block_bytes;
    const uint64_t at = m->header.data_at + t->begin + (uint64_t)i * bytes;
    if (fseeko(m->file, (off_t)at, SEEK_SET) != 0 || fread(m->block, 1, bytes, m->file) != bytes) {
        ctl_error("%s: %s", m->path, ferror(m->file) ? strerror(errno) : "it is shorter now");
        return CTL_FAILED;
    }
    const struct hash128 sum = hash_sum(m->block, bytes);
    if (memcmp(sum.b, m->doc.group[group].sum[shard] + (size_t)i * DOC_SUM_BYTES, sizeof(sum.b)) !=
        0) {
        ctl_error("%s: block %u of group %u, shard %u is not what was exported: its checksum "
                  "differs. Copy or export the file again; nothing has been given its name",
                  m->path, m->doc.group[group].first + i, group, shard);
        return CTL_CORRUPT;
    }
    return 0;
}

/* ---- the namespace ---- */

static void say_difference(void *ctx, const char *field, const char *of_file, const char *of_ns)
{
    const struct import *m = ctx;
    ctl_error("  %s: '%s' in %s, '%s' in namespace %u", field, of_file, m->path, of_ns,
              m->n.ask.ns);
}

static int into_given(struct import *m)
{
    int rc = chain_open_ns(m->n.ctl, m->n.ask.ns, &m->chain);
    if (rc != 0)
        return rc;
    const unsigned n = docfile_differences(&m->doc.spec, m->chain.spec, say_difference, m);
    if (n == 0)
        return 0;
    ctl_error("refused: namespace %u is not the one that this KV was computed for (%u difference%s "
              "above); leave --ns away to have the right one opened",
              m->n.ask.ns, n, n == 1 ? "" : "s");
    return CTL_FAILED;
}

static int into_own(struct import *m)
{
    struct kvc_ns_spec spec = m->doc.spec;
    spec.sub_tenant = m->n.sub;
    int rc = kvc_ns_open(m->n.ctl->kvc, &spec, &m->chain.ns);
    if (rc == 0)
        rc = kvc_ns_spec_of(m->n.ctl->kvc, kvc_ns_id(m->chain.ns), &m->chain.spec, NULL);
    return rc < 0 ? ctl_fail(m->n.ctl, rc) : 0;
}

/* Refuses a document whose keys were made with another seed and cannot be made anew: no session
 * here would look them up. */
static int refuse_seed(const struct import *m)
{
    static const char other[] = "made with another seed than this namespace's (of another daemon, "
                                "principal or tenant)";
    if (m->doc.ids)
        ctl_error("refused: the keys in %s were %s, and by the engine in a way of its own: they "
                  "are not those of its token ids, so nobody here would find the blocks. Import "
                  "it as the principal and tenant that it is of, into a daemon with the same "
                  "secret (secret_file), or let the engine compute and store it here",
                  m->path, other);
    else
        ctl_error("refused: the keys in %s were %s, and there are no token ids to make others of, "
                  "so nobody here would find the blocks. Give it token ids where it comes from: "
                  "'kvcachectl doc put %s --tokens FILE ...', then export it again",
                  m->path, other, m->n.name);
    return CTL_FAILED;
}

/* Finds the keys under which the users of the target namespace will look the document up. */
static int find_keys(struct import *m)
{
    uint8_t print[DOC_PRINT_BYTES];
    const int error = docfile_seed_print(kvc_ns_seed(m->chain.ns), print);
    if (error < 0)
        return ctl_fail(m->n.ctl, error);
    if (m->doc.keys_of_ids) {
        m->chain.ids = m->doc.ids;
        const int rc = chain_hash(&m->chain, m->doc.tokens);
        m->chain.ids = NULL;
        return rc;
    }
    if (memcmp(print, m->doc.seed_print, sizeof(print)) != 0)
        return refuse_seed(m);
    m->chain.seq.tokens = m->doc.tokens;
    for (uint32_t g = 0; g < m->doc.spec.groups; g++) {
        const size_t bytes = (size_t)m->doc.group[g].keys * KVC_KEY_BYTES;
        uint8_t *keys = malloc(bytes);
        if (!keys) {
            ctl_error("out of memory");
            return CTL_FAILED;
        }
        memcpy(keys, m->doc.group[g].key, bytes);
        m->chain.seq.group[g].keys = keys;
        m->chain.seq.group[g].n = m->doc.group[g].keys;
    }
    return 0;
}

/* ---- storing ---- */

static int say_refused(int error)
{
    ctl_error("a block could not be stored: %s. Nothing has been given its name; make room "
              "('kvcachectl usage', 'kvcachectl quota show'), then import it again: what is "
              "there already is not copied twice",
              kvc_error_text(error));
    return CTL_FAILED;
}

/* Whether the error may pass: memory may have room when earlier blocks have been written to
 * storage. */
static bool may_pass(int error)
{
    return error == KVC_E_FULL || error == KVC_E_BUSY || error == KVC_E_LIMIT;
}

/* How many blocks, from the first on, are stored; *ret_error: why the next one is not. */
static uint32_t count_stored(const uint8_t *statuses, uint32_t n, int *ret_error)
{
    for (uint32_t i = 0; i < n; i++) {
        if (statuses[i] == KVC_ST_OK || statuses[i] == KVC_ST_EXISTS ||
            statuses[i] == KVC_ST_PENDING)
            continue;
        *ret_error = -1000 - (int)statuses[i];
        return i;
    }
    return n;
}

/* Stores blocks first .. first + *n - 1 of a group's tensor, for one shard. *n: how many of them,
 * from the first on, are stored; the others found no room now. 0, or an enum ctl_exit. */
static int doc_import_store(struct import *m, uint32_t g, uint32_t shard, uint32_t first,
                            uint32_t *n)
{
    static uint64_t offsets[KVC_STORE_MAX];
    static uint8_t statuses[KVC_STORE_MAX];
    const struct kvc_group_spec *spec = &m->doc.spec.group[g];
    const uint32_t at = m->doc.group[g].first + first; /* index in the sequence */
    const uint64_t slot = (spec->block_bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
    const struct kvc_seq *seq = &m->chain.seq;
    char name[ST_NAME_BYTES];
    snprintf(name, sizeof(name), "group%u.shard%u", g, shard);
    const struct st_tensor *t = st_find(&m->header, name);
    for (uint32_t i = 0; i < *n; i++) {
        const int rc = read_block(m, t, g, shard, first + i);
        if (rc != 0)
            return rc;
        offsets[i] = i * slot;
        memcpy(m->ranks.rank[shard].staging + offsets[i], m->block, spec->block_bytes);
    }
    const struct kvc_retain wish = {.priority = KVC_PRIORITY_MAX, .duration_ms = WISH_MS};
    const bool last = at + *n == m->doc.group[g].keys;
    const struct kvc_blocks blocks = {
        .group = g,
        .parent = at > 0 ? seq->group[g].keys + (size_t)(at - 1) * KVC_KEY_BYTES : NULL,
        .keys = seq->group[g].keys + (size_t)at * KVC_KEY_BYTES,
        .n = *n,
        .first_token = at * spec->block_tokens,
        .last_tokens = last ? m->doc.tokens - (at + *n - 1) * spec->block_tokens : 0,
        .flags = KVC_F_ADMIT,
        .retain = &wish,
        .nretain = 1};
    const int rc = kvc_store(m->ranks.rank[shard].ns, &blocks, offsets, NULL, 0, statuses);
    if (rc < 0 && !may_pass(rc))
        return ranks_fail(m->n.ctl, &m->ranks, shard, rc);
    int error = rc;
    *n = rc < 0 ? 0 : count_stored(statuses, *n, &error);
    return error == 0 || may_pass(error) ? 0 : say_refused(error);
}

/* doc_import_store() for all shards. */
static int store_shards(struct import *m, uint32_t g, uint32_t first, uint32_t *n)
{
    const uint32_t shards = docfile_shards(&m->doc.spec, g);
    int rc = 0;
    for (uint32_t s = 0; rc == 0 && *n > 0 && s < shards; s++)
        rc = doc_import_store(m, g, s, first, n);
    m->done += (uint64_t)*n * m->doc.spec.group[g].block_bytes * shards;
    progress_show(&m->bar, m->done);
    return rc;
}

/* How many blocks of a group fit one staging area. */
static uint32_t at_a_time(const struct import *m, uint32_t g)
{
    const uint64_t bytes = m->doc.spec.group[g].block_bytes;
    uint64_t n = KVC_STORE_MAX;
    for (uint32_t r = 0; r < docfile_shards(&m->doc.spec, g); r++) {
        const uint64_t fit = m->ranks.rank[r].staging_bytes /
                             ((bytes + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN);
        n = fit < n ? fit : n;
    }
    return (uint32_t)n;
}

/* Stores the blocks of a group in steps, which become smaller while memory has little room. */
static int store_steps(struct import *m, uint32_t g, uint32_t most)
{
    const uint32_t all = m->doc.group[g].n;
    int rc = 0;
    for (uint32_t at = 0, step = most, n; rc == 0 && at < all; at += n) {
        const uint32_t asked = all - at < step ? all - at : step;
        n = asked;
        rc = store_shards(m, g, at, &n);
        if (n > 0)
            m->pause = (struct pause){0};
        if (n == asked)
            step = step > most / 2 ? most : 2 * step;
        else if (step > 1)
            step /= 2;
        if (rc == 0 && n == 0 && !pause_again(&m->pause, m->n.ctl->timeout_ms))
            rc = say_refused(KVC_E_FULL);
    }
    return rc;
}

static int store_group(struct import *m, uint32_t g)
{
    const uint32_t most = at_a_time(m, g);
    if (most == 0) {
        char size[UNITS_TEXT_BYTES];
        ctl_error("the daemon grants less staging than one block takes (%s); see staging.total and "
                  "staging.session_max in its configuration",
                  units_format_bytes(m->doc.spec.group[g].block_bytes, size));
        return CTL_FAILED;
    }
    return store_steps(m, g, most);
}

static int doc_import_store_all(struct import *m)
{
    uint64_t total = 0, largest = 1;
    for (uint32_t i = 0; i < m->header.tensors; i++)
        total += m->header.tensor[i].bytes;
    for (uint32_t g = 0; g < m->doc.spec.groups; g++)
        largest =
            m->doc.spec.group[g].block_bytes > largest ? m->doc.spec.group[g].block_bytes : largest;
    m->block = malloc(largest);
    if (!m->block) {
        ctl_error("out of memory");
        return CTL_FAILED;
    }
    largest = (largest + STAGING_ALIGN - 1) / STAGING_ALIGN * STAGING_ALIGN;
    int rc = ranks_open(m->n.ctl, m->chain.spec, largest > STAGING_BYTES ? largest : STAGING_BYTES,
                        &m->ranks);
    progress_begin(&m->bar, "importing", total);
    for (uint32_t g = 0; rc == 0 && g < m->doc.spec.groups; g++)
        rc = store_group(m, g);
    progress_end(&m->bar);
    return rc;
}

/* ---- the name ---- */

/* Makes the name durable, and tries again after errors that may pass: memory may be full of blocks
 * that are being written. */
static int put_durable(struct import *m, const struct kvc_name_options *options,
                       struct kvc_named *done)
{
    int rc;
    m->pause = (struct pause){0};
    do
        rc = kvc_name_put(m->chain.ns, m->n.kind, m->n.name, &m->chain.seq, options, done);
    while ((rc == KVC_E_FULL || rc == KVC_E_BUSY) && pause_again(&m->pause, m->n.ctl->timeout_ms));
    return rc;
}

static int put_name(struct import *m)
{
    struct kvc_name_options options = {
        .flags = (m->n.pin ? KVC_F_PINNED : 0u) | KVC_F_DURABLE,
        .priority = m->n.priority != UINT64_MAX ? (uint32_t)m->n.priority : 0,
        .ttl_ms = m->n.ttl_ms != UINT64_MAX ? m->n.ttl_ms : 0,
        .tokens = m->doc.ids};
    struct kvc_named done;
    char size[UNITS_TEXT_BYTES], tokens[UNITS_COUNT_BYTES], all[UNITS_COUNT_BYTES];
    bool durable = true;
    int rc = put_durable(m, &options, &done);
    if (rc == KVC_E_BAD_ARGUMENT) { /* without a storage tier nothing can be durable */
        durable = false;
        options.flags &= ~(unsigned)KVC_F_DURABLE;
        rc = kvc_name_put(m->chain.ns, m->n.kind, m->n.name, &m->chain.seq, &options, &done);
    }
    if (rc < 0)
        return named_fail(&m->n, rc);
    if (m->n.ctl->json)
        json_print(json_pack("{s:s, s:I, s:I, s:I, s:b}", "name", m->n.name, "ns",
                             (json_int_t)kvc_ns_id(m->chain.ns), "tokens", (json_int_t)done.tokens,
                             "bytes", (json_int_t)done.bytes, "durable", durable));
    else
        ctl_line("document '%s': %s tokens, %s in namespace %u%s", m->n.name,
                 units_format_count(done.tokens, tokens), units_format_bytes(done.bytes, size),
                 kvc_ns_id(m->chain.ns), durable ? ", on stable storage" : "");
    if (!durable)
        named_tell_error(named_error(m->n.ctl));
    if (done.tokens == m->doc.tokens)
        return CTL_OK;
    ctl_error(
        "only %s of its %s tokens stayed: there is no room for all of it ('kvcachectl usage', "
        "'kvcachectl quota show'). Make some, and import it again",
        units_format_count(done.tokens, tokens), units_format_count(m->doc.tokens, all));
    return CTL_FAILED;
}

/* ---- the verb ---- */

static int doc_import_run(struct import *m)
{
    int rc = doc_import_open_file(m);
    if (rc == 0)
        rc = ctl_connect(m->n.ctl);
    if (rc == 0)
        rc = m->n.ask.ns ? into_given(m) : into_own(m);
    if (rc == 0)
        rc = find_keys(m);
    if (rc == 0)
        rc = doc_import_store_all(m);
    return rc == 0 ? put_name(m) : rc;
}

static const struct arg option_table[] = {
    {"--name NAME", "another name than the file's",
     ARG_NAME(struct named, name, KVC_STRING_MAX - 1)},
    CTL_NS(struct named, ask.ns, "into this namespace; 'kvcachectl ns' lists them"),
    NAMED_SUB,
    NAMED_TTL("TIME", "the name ends when it was not used for so long (default: never)"),
    NAMED_PRIORITY,
    NAMED_PIN,
    {0},
};

int doc_import(struct ctl *ctl, int argc, char **argv)
{
    struct import m = {
        .n = {.ctl = ctl, .kind = KVC_NAME_DOCUMENT, .priority = UINT64_MAX, .ttl_ms = UINT64_MAX}};
    int rc = ctl_options(ctl, argc, argv, option_table, help, &m.n);
    if (rc == 0 && optind < argc)
        m.path = argv[optind++];
    if (rc == 0 && !m.path)
        rc = ctl_usage("which file? Give the FILE that 'doc export' wrote");
    if (rc == 0 && optind < argc)
        rc = ctl_usage("'%s' is not understood: one file at a time", argv[optind]);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = doc_import_run(&m);
    ranks_close(&m.ranks);
    chain_free(&m.chain);
    docfile_free(&m.doc);
    st_free(&m.header);
    free(m.block);
    if (m.file)
        fclose(m.file);
    return rc;
}
