/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "listing.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl sessions list [--json]\n"
    "       kvcachectl sessions end SESSION...\n"
    "\n"
    "Workers that are connected, and what they keep from being evicted: blocks under lease, and\n"
    "blocks that they have announced and not committed. A process that is stopped or hangs keeps\n"
    "its leases as long as it lives. Without admin rights: sessions of your own principal.\n"
    "\n"
    "  list  the one with the oldest lease first. OLDEST: ages of its oldest lease and\n"
    "        reservation; STATE dropped: the daemon has ended it, and its process still reads\n"
    "  end   leases and reservations end at once, though the process may live: what it reads\n"
    "        then it has to discard, and it may get SIGBUS. It may connect again\n"
    "\n"
    "Exit code 1 when there is no such session.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl sessions list\n"
    "  kvcachectl sessions end 12    (a SESSION that it showed)\n";

/* ---- list ---- */

struct sessions {
    struct kvc_session_info *row;
    size_t n, cap;
};

static int add(void *ctx, const struct kvc_session_info *x)
{
    struct sessions *s = ctx;
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        struct kvc_session_info *more = realloc(s->row, s->cap * sizeof(*more));
        if (!more) {
            fputs("kvcachectl: out of memory\n", stderr);
            abort();
        }
        s->row = more;
    }
    s->row[s->n++] = *x;
    return 0;
}

static int older(const void *a, const void *b)
{
    const struct kvc_session_info *x = a, *y = b;
    if (x->lease_age_ms != y->lease_age_ms)
        return x->lease_age_ms < y->lease_age_ms ? 1 : -1;
    return x->session < y->session ? -1 : 1;
}

static json_t *session_json(const struct kvc_session_info *x)
{
    json_t *item =
        json_pack("{s:I, s:s, s:s, s:s, s:I, s:I, s:b}", "session", (json_int_t)x->session, "name",
                  x->name, "principal", x->principal, "tenant", x->tenant, "uid",
                  (json_int_t)x->uid, "pid", (json_int_t)x->pid, "dropped", x->dropped);
    json_object_update_new(
        item, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "leases", (json_int_t)x->leases,
                        "leased_bytes", (json_int_t)x->leased_bytes, "lease_age_ms",
                        (json_int_t)x->lease_age_ms, "reservations", (json_int_t)x->reservations,
                        "reserved_bytes", (json_int_t)x->reserved_bytes, "reservation_age_ms",
                        (json_int_t)x->reservation_age_ms));
    return item;
}

static void held_cells(struct table *t, uint32_t n, uint64_t bytes, uint64_t age_ms)
{
    char text[UNITS_TEXT_BYTES], age[UNITS_TEXT_BYTES];
    table_cell(t, "%u", n);
    table_cell(t, "%s", bytes ? units_format_bytes(bytes, text) : "-");
    table_cell(t, "%s", n ? units_format_duration_ms(age_ms, age) : "-");
}

static void add_row(struct listing *l, const struct kvc_session_info *x)
{
    if (l->array) {
        json_array_append_new(l->array, session_json(x));
        return;
    }
    table_cell(l->table, "%u", x->session);
    table_cell(l->table, "%s", x->name);
    table_cell(l->table, "%u", x->pid);
    table_cell(l->table, "%s", x->principal);
    table_cell(l->table, "%s", x->tenant[0] ? x->tenant : "-");
    table_cell(l->table, "%s", x->dropped ? "dropped" : "up");
    held_cells(l->table, x->leases, x->leased_bytes, x->lease_age_ms);
    held_cells(l->table, x->reservations, x->reserved_bytes, x->reservation_age_ms);
}

static int list(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
    static const char *const heads[] = {">SESSION", "NAME",    ">PID",   "PRINCIPAL", "TENANT",
                                        "STATE",    ">LEASES", ">BYTES", ">OLDEST",   ">RESERVED",
                                        ">BYTES",   ">OLDEST", NULL};
    struct sessions s = {.n = 0};
    int rc = ctl_options_only(ctl, argc, argv, options, help, NULL, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    struct listing l = listing_begin(ctl, heads);
    rc = kvc_sessions(ctl->kvc, add, &s);
    if (s.n > 0)
        qsort(s.row, s.n, sizeof(*s.row), older);
    for (size_t i = 0; rc >= 0 && i < s.n; i++)
        add_row(&l, &s.row[i]);
    free(s.row);
    return listing_end(ctl, &l, rc, "sessions", "there are no sessions", CTL_OK);
}

/* ---- end ---- */

static int end(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
    uint64_t id = 0;
    int rc = ctl_options(ctl, argc, argv, ":h", options, help, NULL, NULL);
    const int first = optind;
    const char *why = "";
    if (rc == 0 && first == argc)
        rc = ctl_usage("which session? 'kvcachectl sessions list' shows them");
    for (int i = first; rc == 0 && i < argc; i++)
        if (units_parse_count(argv[i], &id, &why) < 0 || id > UINT32_MAX)
            rc = ctl_usage("'%s' is no session; 'kvcachectl sessions list' shows them", argv[i]);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    for (int i = first; i < argc; i++) {
        const int error = units_parse_count(argv[i], &id, &why) < 0
                              ? -EINVAL
                              : kvc_session_end(ctl->kvc, (uint32_t)id);
        if (error == KVC_E_GONE)
            ctl_error("there is no session %s that you may end; it may have ended", argv[i]);
        const int code = error == 0 ? 0 : error == KVC_E_GONE ? CTL_NOTHING : ctl_fail(ctl, error);
        rc = code > rc ? code : rc;
    }
    return rc;
}

int cmd_sessions(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_cmd verbs[] = {{"list", list}, {"end", end}, {NULL, NULL}};
    return ctl_verbs(ctl, argc, argv, help, verbs);
}
