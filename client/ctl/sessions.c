/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachectl sessions: lists workers with what they keep from being evicted, and ends one. */
#include <errno.h>
#include <stdlib.h>

#include "rows.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl sessions list [--json]\n"
    "       kvcachectl sessions end SESSION...\n"
    "\n"
    "Connected workers, and the blocks that they keep from being evicted: blocks under lease, and "
    "blocks that they have announced and not committed. A process that is stopped or hangs keeps "
    "its leases as long as it lives. Without admin rights: sessions of your own principal.\n"
    "\n"
    "  list  the session with the oldest lease first. OLDEST: ages of its oldest lease and\n"
    "        reservation; STATE dropped: the daemon has ended it, and its process still reads\n"
    "  end   ends the session's leases and reservations at once. Its process may live: it must\n"
    "        discard what it reads then, may get SIGBUS, and may connect again\n"
    "\n"
    "Exit code 1 when there is no such session.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl sessions list\n"
    "  kvcachectl sessions end 12    (a SESSION that it showed)\n";

/* ---- list ---- */

static int older(const void *a, const void *b)
{
    const struct kvc_session_info *x = a, *y = b;
    if (x->lease_age_ms != y->lease_age_ms)
        return x->lease_age_ms < y->lease_age_ms ? 1 : -1;
    return x->session < y->session ? -1 : 1;
}

static int sessions_list(struct ctl *ctl, int argc, char **argv)
{
    static const struct rows_view view[] = {ROWS_PLAIN(">SESSION", "session"),
                                            ROWS_PLAIN("NAME", "name"),
                                            ROWS_PLAIN(">PID", "pid"),
                                            ROWS_PLAIN("PRINCIPAL", "principal"),
                                            ROWS_DASH("TENANT", "tenant"),
                                            ROWS_EITHER("STATE", "dropped", "dropped", "up"),
                                            ROWS_PLAIN(">LEASES", "leases"),
                                            ROWS_DASH(">BYTES", "leased_bytes"),
                                            ROWS_DASH(">OLDEST", "lease_age_ms"),
                                            ROWS_PLAIN(">RESERVED", "reservations"),
                                            ROWS_DASH(">BYTES", "reserved_bytes"),
                                            ROWS_DASH(">OLDEST", "reservation_age_ms"),
                                            ROWS_END};
    struct rows rows;
    int rc = ctl_options_only(ctl, argc, argv, NULL, help, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    rc = rows_take(ctl, KVC_TABLE_SESSIONS, &rows);
    if (rows.n > 0)
        qsort(rows.row, rows.n, sizeof(struct kvc_session_info), older);
    return rows_show(ctl, rc, &rows, view, "there are no sessions");
}

/* ---- end ---- */

static int sessions_end(struct ctl *ctl, int argc, char **argv)
{
    uint64_t id = 0;
    int rc = ctl_options(ctl, argc, argv, NULL, help, NULL);
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
    static const struct ctl_cmd verbs[] = {
        {"list", sessions_list}, {"end", sessions_end}, {NULL, NULL}};
    return ctl_verbs(ctl, argc, argv, NULL, help, verbs);
}
