/* SPDX-License-Identifier: Apache-2.0 */
#include "paths.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "outage.h"
#include "table.h"
#include "units.h"

static int take_writes(void *ctx, const void *row)
{
    memcpy(ctx, row, sizeof(struct kvc_writes));
    return 0;
}

int paths_take(struct ctl *ctl, struct paths *ret_paths)
{
    int rc = rows_take(ctl, KVC_TABLE_PATHS, &ret_paths->rows);
    ret_paths->writes = (struct kvc_writes){0};
    if (rc == 0)
        rc = kvc_list(ctl->kvc, KVC_TABLE_WRITES, NULL, take_writes, &ret_paths->writes);
    return rc;
}

void paths_free(struct paths *p)
{
    rows_free(&p->rows);
}

/* ---- table ---- */

static const char *state_said(const void *row, char text[ROWS_SAID_BYTES])
{
    const struct kvc_path *x = row;
    const unsigned percent = x->bytes ? (unsigned)(x->formatted_bytes * 100 / x->bytes) : 0;
    const char *word = rows_word(KVC_UNIT_PATH, x->state);
    if (x->state != KVC_PATH_FORMATTING)
        return word ? word : "?";
    snprintf(text, ROWS_SAID_BYTES, "%s, %u %%", word, percent);
    return text;
}

static const char *latency(uint64_t ios, uint64_t p50, uint64_t p99, uint64_t max,
                           char text[ROWS_SAID_BYTES])
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES];
    if (ios == 0)
        return "-";
    snprintf(text, ROWS_SAID_BYTES, "%s %s %s", units_format_duration_ns(p50 * 1000, a),
             units_format_duration_ns(p99 * 1000, b), units_format_duration_ns(max * 1000, c));
    return text;
}

static const char *reads_said(const void *row, char text[ROWS_SAID_BYTES])
{
    const struct kvc_path *x = row;
    return latency(x->reads, x->read_p50_us, x->read_p99_us, x->read_max_us, text);
}

static const char *writes_said(const void *row, char text[ROWS_SAID_BYTES])
{
    const struct kvc_path *x = row;
    return latency(x->writes, x->write_p50_us, x->write_p99_us, x->write_max_us, text);
}

static const struct rows_view view[] = {ROWS_PLAIN("PATH", "path"),
                                        ROWS_SAY("STATE", state_said),
                                        ROWS_PLAIN(">SIZE", "bytes"),
                                        ROWS_PLAIN(">USED", "used_bytes"),
                                        ROWS_PLAIN(">READS", "reads"),
                                        ROWS_PLAIN(">READ", "read_bytes"),
                                        ROWS_SAY(">P50 P99 MAX", reads_said),
                                        ROWS_PLAIN(">WRITES", "writes"),
                                        ROWS_PLAIN(">WRITTEN", "write_bytes"),
                                        ROWS_SAY(">P50 P99 MAX", writes_said),
                                        ROWS_PLAIN(">SYNCS", "syncs"),
                                        ROWS_PLAIN(">QUEUE", "queued"),
                                        ROWS_PLAIN(">ERRORS", "errors"),
                                        ROWS_PLAIN(">OUTS", "outs"),
                                        ROWS_END};

void paths_out_text(const struct kvc_path *x, char *text, size_t cap)
{
    const struct outage *why = outage_of(x->error);
    snprintf(text, cap, "%s is out: %s%s%s. Its blocks are misses meanwhile; %s", x->path,
             x->error[0] ? x->error : "no reason is known", why->what ? ": " : "",
             why->what ? why->what : "", why->next);
}

static void print_out(const struct kvc_path *x)
{
    char text[PATHS_OUT_BYTES];
    paths_out_text(x, text, sizeof text);
    printf("%s\n", text);
}

static double paths_ratio(uint64_t a, uint64_t b)
{
    return b ? (double)a / (double)b : 0;
}

/* All bytes written: payload, tables, journal, and blocks that reclaim wrote again. */
static uint64_t written_in_all(const struct kvc_writes *w)
{
    return w->written_bytes + w->journal_bytes;
}

static void print_writes(const struct kvc_writes *w)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES];
    if (w->per_day_bytes)
        printf("write budget: %s a day; %s spent, %s may be written now\n",
               units_format_bytes(w->per_day_bytes, a), units_format_bytes(w->spent_bytes, b),
               units_format_bytes(w->left_bytes, c));
    else
        printf("write budget: no limit (nvme.writes_per_day, nvme.endurance)\n");
    if (w->accepted_bytes)
        printf("write amplification: %.3f (%s written for %s of payload), %.3f of it for payload "
               "written again when room was reclaimed (%s)\n",
               paths_ratio(written_in_all(w), w->accepted_bytes),
               units_format_bytes(written_in_all(w), a), units_format_bytes(w->accepted_bytes, b),
               paths_ratio(w->kept_bytes, w->accepted_bytes), units_format_bytes(w->kept_bytes, c));
}

void paths_print(const struct paths *p, bool colour)
{
    if (p->rows.n == 0)
        return;
    rows_table(&p->rows, view, colour);
    for (size_t i = 0; i < p->rows.n; i++) {
        const struct kvc_path *x = rows_at(&p->rows, i);
        if (x->state == KVC_PATH_OUT)
            print_out(x);
    }
    print_writes(&p->writes);
}

json_t *paths_json(const struct paths *p)
{
    json_t *writes = json_object();
    rows_json(writes, kvc_table(KVC_TABLE_WRITES), &p->writes, NULL);
    json_object_set_new(
        writes, "amplification",
        json_real(paths_ratio(written_in_all(&p->writes), p->writes.accepted_bytes)));
    json_object_set_new(writes, "amplification_of_kept",
                        json_real(paths_ratio(p->writes.kept_bytes, p->writes.accepted_bytes)));
    return json_pack("{s:o, s:o}", p->rows.table->name, rows_array(&p->rows), "writes", writes);
}
