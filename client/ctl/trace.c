/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl trace: switches the daemon's trace of requests on and off, and writes it as a file
 * for kvcachebench replay.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "json.h"
#include "outfile.h"
#include "renumber.h"
#include "stdfds.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl trace on [--bytes SIZE] [--ns ID]\n"
    "       kvcachectl trace status | off\n"
    "       kvcachectl trace dump [FILE] [--ns ID]\n"
    "\n"
    "Records workers' requests in the daemon's memory, so that they can be replayed elsewhere. One "
    "record is one acquire: its time, the number of its tokens, its blocks (as small numbers that "
    "stand for their keys; neither keys nor tokens leave the daemon), and the number of tokens "
    "that the same worker then stored behind them, as far as the daemon sees that. When the memory "
    "is full the oldest records are dropped. A trace that is off costs nothing.\n"
    "\n"
    "  on            begin a trace; the daemon takes SIZE of memory beside its budget\n"
    "  status        whether a trace is on, and how much it has recorded\n"
    "  dump [FILE]   write the records to FILE, or to stdout, one JSON object a line in\n"
    "                Mooncake's form; recording goes on. FILE is replaced when all of it is\n"
    "                written, and left alone when anything fails\n"
    "  off           end the trace and forget its records\n"
    "\n" ARGS_HERE "\n"
    "Exit code 1 when no trace is on, or it has no records.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl trace on --bytes 256MiB\n"
    "  kvcachectl trace dump monday.jsonl && kvcachectl trace off\n"
    "  kvcachebench replay monday.jsonl --block-tokens 16 --capacity 1%,5%,10%\n";

struct trace {
    struct ctl *ctl;
    uint32_t ns;
    uint64_t bytes; /* 0 = not given */
    /* Options of `dump`. */
    const char *path; /* NULL = stdout */
    FILE *to;         /* NULL before the first record */
    struct outfile out;
    int error; /* negative errno of writing */
    struct renumber *ids;
    uint64_t records, blocks;
    uint32_t block_tokens, first_ns, other_ns, other_tokens;
};

/* ---- on, off, status ---- */

static void print_state(const struct trace *t, enum kvc_trace_action action,
                        const struct kvc_trace_state *s)
{
    char used[UNITS_TEXT_BYTES], all[UNITS_TEXT_BYTES], age[UNITS_TEXT_BYTES];
    char n[UNITS_COUNT_BYTES];
    if (t->ctl->json) {
        json_print(json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I}", "on",
                             s->on && action != KVC_TRACE_OFF, "ns", (json_int_t)s->ns, "bytes",
                             (json_int_t)s->bytes, "used_bytes", (json_int_t)s->used_bytes,
                             "records", (json_int_t)s->records, "dropped", (json_int_t)s->dropped,
                             "age_ms", (json_int_t)s->age_ms));
        return;
    }
    if (!s->on) {
        puts("off; 'kvcachectl trace on' begins one");
        return;
    }
    if (action == KVC_TRACE_ON) {
        printf("on: up to %s of records\n", units_format_bytes(s->bytes, all));
        return;
    }
    printf("%s: %s requests in %s of %s, over %s",
           action == KVC_TRACE_OFF ? "off now; it had" : "on", units_format_count(s->records, n),
           units_format_bytes(s->used_bytes, used), units_format_bytes(s->bytes, all),
           units_format_duration_ms(s->age_ms, age));
    if (s->dropped)
        printf("; %s older ones had to go", units_format_count(s->dropped, n));
    putchar('\n');
}

static int change(struct trace *t, enum kvc_trace_action action)
{
    struct kvc_trace_state state;
    int rc = kvc_trace(t->ctl->kvc, action, t->ns, t->bytes, &state);
    if (rc == KVC_E_EXISTS) {
        ctl_error("a trace is on already; 'kvcachectl trace dump FILE' keeps it, 'kvcachectl trace "
                  "off' ends it");
        return CTL_FAILED;
    }
    if (rc < 0)
        return ctl_fail(t->ctl, rc);
    print_state(t, action, &state);
    return state.on ? CTL_OK : CTL_NOTHING;
}

/* ---- dump ---- */

static uint64_t id_at(const uint8_t *p)
{
    uint64_t v = 0;
    for (unsigned i = 8; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

/* Opens the file at the first record, so that an existing file is not replaced by an empty one. */
static bool begin_file(struct trace *t)
{
    t->error = t->path ? outfile_open(&t->out, t->path, OUTFILE_STREAM) : 0;
    if (t->error == 0)
        t->to = t->path ? t->out.file : stdout;
    return t->error == 0;
}

/* Equal ids of two namespaces are not the same block; the daemon's ids differ by namespace. */
static int write_record(void *ctx, const struct kvc_trace_record *r)
{
    struct trace *t = ctx;
    if (!t->to && !begin_file(t))
        return 2;
    if (t->records == 0) {
        t->block_tokens = r->block_tokens;
        t->first_ns = r->ns;
    } else if (r->block_tokens != t->block_tokens) {
        t->other_ns = r->ns;
        t->other_tokens = r->block_tokens;
        return 1;
    }
    fprintf(t->to,
            "{\"timestamp\": %llu, \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
            (unsigned long long)r->timestamp_ms, r->input_tokens, r->output_tokens);
    for (uint32_t i = 0; i < r->n; i++)
        fprintf(t->to, "%s%llu", i ? ", " : "",
                (unsigned long long)renumber_id(t->ids, id_at(r->ids + 8 * (size_t)i)));
    fputs("]}\n", t->to);
    t->records++;
    t->blocks += r->n;
    if (ferror(t->to))
        t->error = errno ? -errno : -EIO;
    return t->error < 0 ? 2 : 0;
}

/* Prints the outcome, before the new file replaces the old one. */
static int told(struct trace *t, int rc, uint64_t lost)
{
    if (rc == KVC_E_GONE) {
        ctl_error("no trace is on; 'kvcachectl trace on' begins one");
        return CTL_NOTHING;
    }
    if (rc < 0)
        return ctl_fail(t->ctl, rc);
    if (rc == 1) {
        ctl_error("namespace %u has blocks of %u tokens and namespace %u of %u: a trace has one "
                  "size, so dump them one by one, with --ns %u and --ns %u",
                  t->first_ns, t->block_tokens, t->other_ns, t->other_tokens, t->first_ns,
                  t->other_ns);
        return CTL_FAILED;
    }
    if (lost)
        ctl_error("%llu records were dropped while this was being written; use a larger --bytes",
                  (unsigned long long)lost);
    if (t->records == 0) {
        if (t->ns)
            ctl_error("nothing of namespace %u has been recorded yet; 'kvcachectl ns' lists those "
                      "that there are",
                      t->ns);
        else
            ctl_error("nothing has been recorded yet");
        return CTL_NOTHING;
    }
    return CTL_OK;
}

static void say_done(const struct trace *t)
{
    fprintf(stderr,
            "%llu requests with %llu blocks, %llu of them distinct; replay them with: kvcachebench "
            "replay %s --block-tokens %u\n",
            (unsigned long long)t->records, (unsigned long long)t->blocks,
            (unsigned long long)renumber_count(t->ids), t->path ? t->path : "FILE",
            t->block_tokens);
}

static int dump(struct trace *t)
{
    uint64_t lost = 0;
    t->ids = renumber_create();
    errno = 0;
    int rc = kvc_trace_dump(t->ctl->kvc, t->ns, write_record, t, &lost);
    int code = rc == 2 ? CTL_FAILED : told(t, rc, lost);
    if (code == CTL_OK && t->path)
        t->error = outfile_keep(&t->out);
    else if (code == CTL_OK)
        t->error = stdfds_flush();
    else
        outfile_drop(&t->out);
    if (t->error < 0) {
        if (t->path) /* of stdout main() prints the error */
            ctl_error("%s: %s", t->path, strerror(-t->error));
        code = CTL_FAILED;
    }
    if (code == CTL_OK)
        say_done(t);
    renumber_destroy(&t->ids);
    return code;
}

/* ---- the command ---- */

static const struct arg option_table[] = {
    {"--bytes SIZE",
     "memory for records, 1MiB to 1GiB (default 64MiB); a record takes 32 bytes and 8 for each "
     "block",
     ARG_BYTES(struct trace, bytes, KVC_TRACE_BYTES_MIN, KVC_TRACE_BYTES_MAX)},
    {"--ns ID", "this namespace only; 'kvcachectl ns' lists them",
     ARG_DO_AT(struct trace, ns, ctl_take_ns)},
    {"--json", "of on, off and status: one object", ARG_SHOWN},
    {0},
};

static int trace_run(struct trace *t, int argc, char **argv)
{
    static const char *const names[] = {"status", "on", "off"}; /* enum kvc_trace_action */
    const char *verb = optind < argc ? argv[optind++] : "";
    bool is_dump = strcmp(verb, "dump") == 0;
    unsigned action = 0;
    while (action < 3 && strcmp(verb, names[action]) != 0)
        action++;
    if (verb[0] == '\0')
        return ctl_usage("what? Say on, off, status or dump");
    if (!is_dump && action == 3)
        return ctl_usage("'%s' is not understood; say on, off, status or dump", verb);
    if (is_dump && optind < argc)
        t->path = argv[optind++];
    if (t->path && !strcmp(t->path, "-"))
        t->path = NULL;
    if (optind < argc)
        return ctl_usage("'%s' is not understood", argv[optind]);
    if (t->bytes && action != KVC_TRACE_ON)
        return ctl_usage("--bytes goes with 'trace on'");
    if (t->ns && !is_dump && action != KVC_TRACE_ON)
        return ctl_usage("--ns goes with 'trace on' and 'trace dump'");
    int rc = ctl_connect(t->ctl);
    if (rc != 0)
        return rc;
    return is_dump ? dump(t) : change(t, (enum kvc_trace_action)action);
}

int cmd_trace(struct ctl *ctl, int argc, char **argv)
{
    struct trace t = {.ctl = ctl};
    int rc = ctl_options(ctl, argc, argv, option_table, help, &t);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    return trace_run(&t, argc, argv);
}
