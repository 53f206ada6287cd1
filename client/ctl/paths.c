/* SPDX-License-Identifier: Apache-2.0 */
#include "paths.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "outage.h"
#include "table.h"
#include "units.h"

static int add(void *ctx, const struct kvc_path *path)
{
    struct paths *p = ctx;
    if (p->n < KVC_PATHS_MAX)
        p->path[p->n++] = *path;
    return 0;
}

int paths_take(struct ctl *ctl, struct paths *ret_paths)
{
    struct paths p = {0};
    int rc = kvc_paths(ctl->kvc, add, &p, &p.writes);
    if (rc == 0)
        *ret_paths = p;
    return rc;
}

static const char *state_name(unsigned state)
{
    switch (state) {
    case KVC_PATH_FORMATTING:
        return "formatting";
    case KVC_PATH_UP:
        return "up";
    case KVC_PATH_OUT:
        return "out";
    default:
        return "?";
    }
}

/* ---- table ---- */

static void state_text(const struct kvc_path *x, char *text, size_t cap)
{
    unsigned percent = x->bytes ? (unsigned)(x->formatted_bytes * 100 / x->bytes) : 0;
    if (x->state == KVC_PATH_FORMATTING)
        snprintf(text, cap, "formatting, %u %%", percent);
    else
        snprintf(text, cap, "%s", state_name(x->state));
}

static void bytes_cell(struct table *t, uint64_t bytes)
{
    char text[UNITS_TEXT_BYTES];
    table_cell(t, "%s", units_format_bytes(bytes, text));
}

static void count_cell(struct table *t, uint64_t n)
{
    char text[UNITS_COUNT_BYTES];
    table_cell(t, "%s", units_format_count(n, text));
}

static void latency_cell(struct table *t, uint64_t ios, uint64_t p50, uint64_t p99, uint64_t max)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES];
    if (ios == 0)
        table_cell(t, "-");
    else
        table_cell(t, "%s %s %s", units_format_duration_ns(p50 * 1000, a),
                   units_format_duration_ns(p99 * 1000, b),
                   units_format_duration_ns(max * 1000, c));
}

static void add_row(struct table *t, const struct kvc_path *x)
{
    char state[64];
    state_text(x, state, sizeof(state));
    table_cell(t, "%s", x->name);
    table_cell(t, "%s", state);
    bytes_cell(t, x->bytes);
    bytes_cell(t, x->used_bytes);
    count_cell(t, x->reads);
    bytes_cell(t, x->read_bytes);
    latency_cell(t, x->reads, x->read_p50_us, x->read_p99_us, x->read_max_us);
    count_cell(t, x->writes);
    bytes_cell(t, x->write_bytes);
    latency_cell(t, x->writes, x->write_p50_us, x->write_p99_us, x->write_max_us);
    count_cell(t, x->syncs);
    count_cell(t, x->queued);
    count_cell(t, x->errors);
    count_cell(t, x->outs);
}

void paths_out_text(const struct kvc_path *x, char *text, size_t cap)
{
    const struct outage *why = outage_of(x->error);
    snprintf(text, cap, "%s is out: %s%s%s. Its blocks are misses meanwhile; %s", x->name,
             x->error[0] ? x->error : "no reason is known", why->what ? ": " : "",
             why->what ? why->what : "", why->next);
}

static void print_out(const struct kvc_path *x)
{
    char text[PATHS_OUT_BYTES];
    paths_out_text(x, text, sizeof text);
    printf("%s\n", text);
}

static double ratio(uint64_t a, uint64_t b)
{
    return b ? (double)a / (double)b : 0;
}

/* Whatever it was written for: payload, tables, journal, and what reclaim wrote again. */
static uint64_t written_in_all(const struct kvc_writes *w)
{
    return w->written + w->journal;
}

static void print_writes(const struct kvc_writes *w)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES];
    if (w->per_day)
        printf("write budget: %s a day; %s spent, %s may be written now\n",
               units_format_bytes(w->per_day, a), units_format_bytes(w->spent, b),
               units_format_bytes(w->left, c));
    else
        printf("write budget: no limit (nvme.writes_per_day, nvme.endurance)\n");
    if (w->accepted)
        printf("write amplification: %.3f (%s written for %s of payload), %.3f of it for payload "
               "written again when room was reclaimed (%s)\n",
               ratio(written_in_all(w), w->accepted), units_format_bytes(written_in_all(w), a),
               units_format_bytes(w->accepted, b), ratio(w->kept, w->accepted),
               units_format_bytes(w->kept, c));
}

void paths_print(const struct paths *p, bool colour)
{
    static const char *const heads[] = {
        "PATH",   "STATE",        ">SIZE",   ">USED",    ">READS",
        ">READ",  ">P50 P99 MAX", ">WRITES", ">WRITTEN", ">P50 P99 MAX",
        ">SYNCS", ">QUEUE",       ">ERRORS", ">OUTS",    NULL};
    if (p->n == 0)
        return;
    struct table *table = table_create(heads);
    for (uint32_t i = 0; i < p->n; i++)
        add_row(table, &p->path[i]);
    table_print(table, stdout, colour);
    table_destroy(&table);
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->path[i].state == KVC_PATH_OUT)
            print_out(&p->path[i]);
    }
    print_writes(&p->writes);
}

/* ---- JSON ---- */

static void put(json_t *object, const char *name, uint64_t value)
{
    json_object_set_new(object, name, json_integer((json_int_t)value));
}

static json_t *path_json(const struct kvc_path *x)
{
    json_t *o = json_pack("{s:s, s:s, s:s}", "path", x->name, "state", state_name(x->state),
                          "error", x->error);
    put(o, "bytes", x->bytes);
    put(o, "used_bytes", x->used_bytes);
    put(o, "formatted_bytes", x->formatted_bytes);
    put(o, "reads", x->reads);
    put(o, "read_bytes", x->read_bytes);
    put(o, "read_p50_us", x->read_p50_us);
    put(o, "read_p99_us", x->read_p99_us);
    put(o, "read_max_us", x->read_max_us);
    put(o, "writes", x->writes);
    put(o, "write_bytes", x->write_bytes);
    put(o, "write_p50_us", x->write_p50_us);
    put(o, "write_p99_us", x->write_p99_us);
    put(o, "write_max_us", x->write_max_us);
    put(o, "syncs", x->syncs);
    put(o, "queued", x->queued);
    put(o, "queued_bytes", x->queued_bytes);
    put(o, "errors", x->errors);
    put(o, "outs", x->outs);
    return o;
}

json_t *paths_json(const struct paths *p)
{
    json_t *list = json_array(), *writes = json_object();
    for (uint32_t i = 0; i < p->n; i++)
        json_array_append_new(list, path_json(&p->path[i]));
    put(writes, "per_day_bytes", p->writes.per_day);
    put(writes, "spent_bytes", p->writes.spent);
    put(writes, "left_bytes", p->writes.left);
    put(writes, "accepted_bytes", p->writes.accepted);
    put(writes, "written_bytes", p->writes.written);
    put(writes, "kept_bytes", p->writes.kept);
    put(writes, "journal_bytes", p->writes.journal);
    json_object_set_new(writes, "amplification",
                        json_real(ratio(written_in_all(&p->writes), p->writes.accepted)));
    json_object_set_new(writes, "amplification_of_kept",
                        json_real(ratio(p->writes.kept, p->writes.accepted)));
    return json_pack("{s:o, s:o}", "paths", list, "writes", writes);
}
