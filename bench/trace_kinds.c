/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workloads other than conversations, for comparing eviction policies besides on real traces. Each
 * is a rule that makes requests from chains of blocks. Sizes are drawn from the seed, so another
 * seed gives another workload of the kind: a cache that fits one does not fit the next.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "trace.h"

enum {
    REQUEST_MAX = 4096, /* most blocks of a request */
    AGENTS = 24,
    SESSIONS = 64,
    AGENT_KINDS = 4,
    AGENT_MAX = 400, /* most blocks of an agent */
    OPEN_MAX = 600,
    MIXED = 4,
    MIXED_OF = 8, /* the first rules */
    GAP_MEAN_MS = 400
};

struct chain {
    uint64_t first;
    uint32_t blocks;
};

struct agent {
    uint64_t id[AGENT_MAX];
    uint32_t blocks, steps;
    double due; /* of sessions: time of its next request */
};

/* A document or a short talk, and how many more times it will be asked about. */
struct open {
    struct chain chain;
    uint32_t left;
};

/* What the sessions of one workload have in common. */
struct habit {
    uint32_t begin, shared, steps, grow; /* blocks, blocks of that, means */
    double pauses;                       /* how much pauses differ */
};

struct maker;
struct rule {
    const char *name, *text;
    int (*begin)(struct maker *m);
    void (*next)(struct maker *m); /* fills m->out */
};

struct maker {
    const struct rule *rule;
    uint64_t random, *next_id;
    struct chain *chain;
    double *upto; /* running sums of the chains' weights */
    uint32_t chains, at, phase_left, working_set, drift;
    struct chain scan;
    struct agent *agent;
    struct open *open;
    struct habit habit;
    struct chain system[AGENT_KINDS];
    struct maker *part[MIXED];
    uint64_t out[REQUEST_MAX];
    uint32_t n;
};

/* ---- chance ---- */

static uint64_t trace_kinds_draw(struct maker *m)
{
    return random_next(&m->random);
}

static uint32_t between(struct maker *m, uint32_t low, uint32_t high)
{
    return low + (uint32_t)(trace_kinds_draw(m) % (high - low + 1));
}

static double unit(struct maker *m)
{
    return random_unit(&m->random);
}

static uint32_t exponential(struct maker *m, uint32_t mean)
{
    return 1 + (uint32_t)fmin(-log(1.0 - unit(m)) * mean, 20.0 * mean);
}

/* ---- what a request is made of ---- */

static void trace_kinds_add(struct maker *m, uint64_t id)
{
    if (m->n < REQUEST_MAX)
        m->out[m->n++] = id;
}

static void add_chain(struct maker *m, const struct chain *c)
{
    for (uint32_t i = 0; i < c->blocks; i++)
        trace_kinds_add(m, c->first + i);
}

static void add_fresh(struct maker *m, uint32_t blocks)
{
    while (blocks-- > 0)
        trace_kinds_add(m, (*m->next_id)++);
}

static struct chain new_chain(struct maker *m, uint32_t blocks)
{
    const struct chain c = {*m->next_id, blocks};
    *m->next_id += blocks;
    return c;
}

static int make_chains(struct maker *m, uint32_t n, uint32_t low, uint32_t high)
{
    m->chain = calloc(n, sizeof(*m->chain));
    m->chains = n;
    for (uint32_t i = 0; m->chain && i < n; i++)
        m->chain[i] = new_chain(m, between(m, low, high));
    return m->chain ? 0 : -ENOMEM;
}

/* Chain k has a weight of 1 / (k + 1) ^ power. */
static int make_popular(struct maker *m, double power)
{
    double sum = 0;
    m->upto = calloc(m->chains, sizeof(*m->upto));
    for (uint32_t i = 0; m->upto && i < m->chains; i++)
        m->upto[i] = sum += pow(i + 1, -power);
    return m->upto ? 0 : -ENOMEM;
}

static uint32_t popular(struct maker *m)
{
    const double x = unit(m) * m->upto[m->chains - 1];
    uint32_t low = 0, high = m->chains - 1;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (m->upto[mid] <= x)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* ---- the rules ---- */

static int documents_begin(struct maker *m)
{
    const int err = make_chains(m, between(m, 200, 2000), 4, 80);
    return err ? err : make_popular(m, .6 + .6 * unit(m));
}

static void documents_next(struct maker *m)
{
    add_chain(m, &m->chain[popular(m)]);
    add_fresh(m, between(m, 1, 3));
}

/* The popular chains change over time. */
static void drift_next(struct maker *m)
{
    if (trace_kinds_draw(m) % 8 == 0)
        m->drift++;
    add_chain(m, &m->chain[(popular(m) + m->drift) % m->chains]);
    add_fresh(m, 1);
}

/* Now and then a reader reads documents from beginning to end, once. */
static void scans_next(struct maker *m)
{
    if (m->phase_left == 0 && trace_kinds_draw(m) % 200 == 0)
        m->phase_left = between(m, 20, 100);
    if (m->phase_left > 0 && trace_kinds_draw(m) % 2) {
        m->phase_left--;
        add_fresh(m, between(m, 20, 100));
        return;
    }
    documents_next(m);
}

static int uniform_begin(struct maker *m)
{
    return make_chains(m, between(m, 100, 1000), 4, 40);
}

static void uniform_next(struct maker *m)
{
    add_chain(m, &m->chain[trace_kinds_draw(m) % m->chains]);
    add_fresh(m, 1);
}

static void loop_next(struct maker *m)
{
    add_chain(m, &m->chain[m->at++ % m->chains]);
}

/* One working set for a while, then another one, changed at once. */
static int phases_begin(struct maker *m)
{
    const int err = make_chains(m, 4000, 4, 30);
    m->working_set = between(m, 10, 300);
    return err;
}

static void phases_next(struct maker *m)
{
    if (m->phase_left == 0) {
        m->at = (uint32_t)(trace_kinds_draw(m) % (m->chains - m->working_set));
        m->phase_left = m->working_set * between(m, 3, 12);
    }
    m->phase_left--;
    add_chain(m, &m->chain[m->at + trace_kinds_draw(m) % m->working_set]);
}

/* One prompt for thousands of inputs, each of which occurs once. */
static int batch_begin(struct maker *m)
{
    return make_chains(m, between(m, 1, 6), 2, 20);
}

static void batch_next(struct maker *m)
{
    if (trace_kinds_draw(m) % 1000 == 0)
        m->chain[trace_kinds_draw(m) % m->chains] = new_chain(m, between(m, 2, 20));
    add_chain(m, &m->chain[trace_kinds_draw(m) % m->chains]);
    add_fresh(m, between(m, 2, 30));
}

/* Steps of an agent follow each other closely: its text so far, with a tool's answer behind it. Now
 * and then it goes back some steps. */
static void agent_new(struct maker *m, struct agent *a)
{
    const struct chain *s = &m->system[trace_kinds_draw(m) % AGENT_KINDS];
    a->steps = exponential(m, 25);
    a->blocks = 0;
    for (uint32_t i = 0; i < s->blocks; i++)
        a->id[a->blocks++] = s->first + i;
}

static int agents_begin(struct maker *m)
{
    m->agent = calloc(AGENTS, sizeof(*m->agent));
    if (!m->agent)
        return -ENOMEM;
    m->at = between(m, 2, AGENTS); /* agents that work at the same time */
    for (uint32_t i = 0; i < AGENT_KINDS; i++)
        m->system[i] = new_chain(m, between(m, 5, 30));
    for (uint32_t i = 0; i < m->at; i++)
        agent_new(m, &m->agent[i]);
    return 0;
}

static void agents_next(struct maker *m)
{
    struct agent *a = &m->agent[trace_kinds_draw(m) % m->at];
    const uint32_t more = between(m, 1, 5);
    if (a->steps == 0 || a->blocks + more > AGENT_MAX)
        agent_new(m, a);
    a->steps -= a->steps > 0;
    if (trace_kinds_draw(m) % 10 == 0)
        a->blocks = a->blocks > 13 ? a->blocks - between(m, 1, 12) : a->blocks;
    for (uint32_t i = 0; i < more; i++)
        a->id[a->blocks++] = (*m->next_id)++;
    for (uint32_t i = 0; i < a->blocks; i++)
        trace_kinds_add(m, a->id[i]);
}

/* Sessions begin with much to read, of which a small part is common to all. Each asks again after
 * its own pause, so the next one is not drawn. */
static void session_new(struct maker *m, struct agent *a)
{
    const struct chain *s = &m->system[trace_kinds_draw(m) % AGENT_KINDS];
    a->blocks = 0;
    for (uint32_t i = 0; i < s->blocks; i++)
        a->id[a->blocks++] = s->first + i;
    for (uint32_t i = exponential(m, m->habit.begin); i-- > 0 && a->blocks < AGENT_MAX;)
        a->id[a->blocks++] = (*m->next_id)++;
    a->steps = exponential(m, m->habit.steps);
}

/* Lognormal, of mean 1: some pauses are long. By the sum of twelve (Irwin and Hall). */
static double pause(struct maker *m)
{
    double sum = -6;
    for (unsigned i = 0; i < 12; i++)
        sum += unit(m);
    return exp(m->habit.pauses * sum - m->habit.pauses * m->habit.pauses / 2);
}

static int sessions_begin(struct maker *m)
{
    m->agent = calloc(SESSIONS, sizeof(*m->agent));
    if (!m->agent)
        return -ENOMEM;
    m->at = between(m, 6, SESSIONS);
    m->habit = (struct habit){.begin = between(m, 6, 60),
                              .shared = between(m, 2, 16),
                              .steps = between(m, 15, 45),
                              .grow = between(m, 1, 4),
                              .pauses = .5 + unit(m)};
    for (uint32_t i = 0; i < AGENT_KINDS; i++)
        m->system[i] = new_chain(m, m->habit.shared);
    for (uint32_t i = 0; i < m->at; i++) {
        session_new(m, &m->agent[i]);
        m->agent[i].due = unit(m);
    }
    return 0;
}

static void sessions_next(struct maker *m)
{
    struct agent *a = &m->agent[0];
    for (uint32_t i = 1; i < m->at; i++)
        a = m->agent[i].due < a->due ? &m->agent[i] : a;
    a->due += pause(m);
    for (uint32_t i = 0; i < a->blocks; i++)
        trace_kinds_add(m, a->id[i]);
    const uint32_t more = exponential(m, m->habit.grow);
    if (--a->steps == 0 || a->blocks + more > AGENT_MAX) {
        session_new(m, a);
        return;
    }
    a->blocks--; /* its last block was partly filled, and has another id now */
    for (uint32_t i = 0; i <= more && a->blocks < AGENT_MAX; i++)
        a->id[a->blocks++] = (*m->next_id)++;
}

/* Long documents and short talks, each of which is asked about a few times and then never again. */
static void open_new(struct maker *m, struct open *o)
{
    const bool long_one = trace_kinds_draw(m) % 10 < 6;
    o->chain = new_chain(m, long_one ? 3 + exponential(m, 35) : 1 + exponential(m, 3));
    o->left = exponential(m, m->habit.steps) + 1;
}

static int questions_begin(struct maker *m)
{
    m->open = calloc(OPEN_MAX, sizeof(*m->open));
    if (!m->open)
        return -ENOMEM;
    m->at = between(m, 40, OPEN_MAX);
    m->habit = (struct habit){.steps = between(m, 2, 7)};
    for (uint32_t i = 0; i < m->at; i++)
        open_new(m, &m->open[i]);
    return 0;
}

static void questions_next(struct maker *m)
{
    struct open *o = &m->open[trace_kinds_draw(m) % m->at];
    add_chain(m, &o->chain);
    add_fresh(m, 1);
    if (--o->left == 0)
        open_new(m, o);
}

static int mixed_begin(struct maker *m);

static void mixed_next(struct maker *m)
{
    struct maker *part = m->part[trace_kinds_draw(m) % MIXED];
    part->n = 0;
    part->rule->next(part);
    memcpy(m->out, part->out, part->n * sizeof(m->out[0]));
    m->n = part->n;
}

static const struct rule rules[] = {
    {"documents", "some documents are asked about much more often than others", documents_begin,
     documents_next},
    {"drift", "the same, and which ones changes slowly", documents_begin, drift_next},
    {"scans", "the same, and now and then many are read once", documents_begin, scans_next},
    {"agents", "short steps that grow what was said, from a shared prompt", agents_begin,
     agents_next},
    {"phases", "a working set for a while, then another one", phases_begin, phases_next},
    {"uniform", "each as likely as the others", uniform_begin, uniform_next},
    {"loop", "all in turn, again and again", uniform_begin, loop_next},
    {"batch", "a few prompts, each with thousands of inputs that come once", batch_begin,
     batch_next},
    {"mixed", "four of these at once", mixed_begin, mixed_next},
    {"sessions", "agents that begin with much to read, and pause", sessions_begin, sessions_next},
    {"questions", "documents that are each asked about a few times", questions_begin,
     questions_next},
};
enum { RULES = sizeof(rules) / sizeof(rules[0]) };

/* ---- makers ---- */

static void maker_free(struct maker *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < MIXED; i++)
        maker_free(m->part[i]);
    free(m->chain);
    free(m->upto);
    free(m->agent);
    free(m->open);
    free(m);
}

static struct maker *maker_new(const struct rule *rule, uint64_t seed, uint64_t *next_id)
{
    struct maker *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->rule = rule;
    m->random = seed;
    m->next_id = next_id;
    if (rule->begin(m) == 0)
        return m;
    maker_free(m);
    return NULL;
}

static int mixed_begin(struct maker *m)
{
    for (uint32_t i = 0; i < MIXED; i++) {
        m->part[i] =
            maker_new(&rules[trace_kinds_draw(m) % MIXED_OF], trace_kinds_draw(m), m->next_id);
        if (!m->part[i])
            return -ENOMEM;
    }
    return 0;
}

const char *trace_kind(unsigned i, const char **ret_text)
{
    if (i >= RULES)
        return NULL;
    *ret_text = rules[i].text;
    return rules[i].name;
}

static void write_request(struct maker *m, uint64_t at_ms, uint32_t block_tokens, FILE *to)
{
    fprintf(to,
            "{\"timestamp\": %" PRIu64 ", \"input_length\": %" PRIu64
            ", \"output_length\": %u, \"hash_ids\": [",
            at_ms, (uint64_t)m->n * block_tokens, exponential(m, 200));
    for (uint32_t i = 0; i < m->n; i++)
        fprintf(to, "%s%" PRIu64, i ? ", " : "", m->out[i]);
    fputs("]}\n", to);
}

int trace_generate_kind(const struct trace_gen_options *options, const char *kind, FILE *to)
{
    const struct rule *rule = NULL;
    uint64_t next_id = 0, at_ms = 0;
    for (unsigned i = 0; i < RULES; i++)
        if (strcmp(rules[i].name, kind) == 0)
            rule = &rules[i];
    if (!rule)
        return -EINVAL;
    struct maker *m = maker_new(rule, options->seed, &next_id);
    if (!m)
        return -ENOMEM;
    for (uint64_t i = 0; i < options->requests; i++) {
        m->n = 0;
        rule->next(m);
        write_request(m, at_ms, options->block_tokens, to);
        at_ms += exponential(m, GAP_MEAN_MS);
    }
    maker_free(m);
    if (fflush(to) != 0)
        return -errno;
    return ferror(to) ? -EIO : 0;
}
