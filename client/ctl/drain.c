/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl drain: has the daemon write to storage what memory alone holds, one request after
 * the other, and shows how much is left.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "json.h"
#include "units.h"

#define SECOND_NS   UINT64_C(1000000000)
#define PAUSE_NS    (SECOND_NS / 20)
#define SLICE_BYTES (UINT64_C(64) << 20)
/* If the rest has not become smaller for so long, the command gives up. It is long enough for a
 * drive that stalls until the daemon takes it out of service. */
#define STUCK_NS (10 * SECOND_NS)

static const char help[] =
    "Usage: kvcachectl drain [--json]\n"
    "\n"
    "Has the daemon write to storage all blocks that only its memory holds, so that a restart of "
    "the machine finds them. It goes on serving; what workers store meanwhile is written too. Ends "
    "when nothing is left, or when it gets no further: the write budget is spent, no path is in "
    "service, or a quota on storage is used up. Needs admin rights, and a daemon with nvme.paths.\n"
    "\n"
    "  --json  one object per line: {\"event\": \"progress\", ...} each second,\n"
    "          {\"event\": \"done\", \"stopped\": null, \"budget\", \"out\", \"quota\" or "
    "\"stuck\", ...}\n"
    "\n"
    "Exit code 1 when something is left.\n"
    "\n"
    "Example, before the machine is restarted:\n"
    "  kvcachectl drain && systemctl stop kvcache\n";

struct drain {
    struct ctl *ctl;
    uint64_t first, left, least;
    uint8_t stop; /* enum kvc_drain_stop */
    uint64_t begun_ns, moved_ns, shown_ns;
    bool terminal, drawn;
};

static uint64_t drain_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static uint64_t written(const struct drain *d)
{
    return d->first > d->left ? d->first - d->left : 0;
}

static const char *stop_name(const struct drain *d)
{
    if (d->left == 0)
        return NULL;
    switch (d->stop) {
    case KVC_DRAIN_BUDGET:
        return "budget";
    case KVC_DRAIN_OUT:
        return "out";
    case KVC_DRAIN_QUOTA:
        return "quota";
    default:
        return "stuck";
    }
}

static void drain_print_json(const struct drain *d, const char *event)
{
    json_t *line = json_pack("{s:s, s:I, s:I, s:f}", "event", event, "written_bytes",
                             (json_int_t)written(d), "left_bytes", (json_int_t)d->left, "seconds",
                             (double)(drain_now_ns() - d->begun_ns) * 1e-9);
    if (strcmp(event, "done") == 0) {
        const char *why = stop_name(d);
        json_object_set_new(line, "stopped", why ? json_string(why) : json_null());
    }
    json_print(line);
}

static void drain_clear(struct drain *d)
{
    if (d->drawn)
        fputs("\r\033[K", stderr);
    d->drawn = false;
}

static void progress(struct drain *d)
{
    char done[UNITS_TEXT_BYTES], left[UNITS_TEXT_BYTES];
    uint64_t now = drain_now_ns();
    if (now - d->shown_ns < (d->ctl->json ? SECOND_NS : SECOND_NS / 10))
        return;
    d->shown_ns = now;
    if (d->ctl->json) {
        drain_print_json(d, "progress");
    } else if (d->terminal) {
        fprintf(stderr, "\r\033[K%s written, %s to go", units_format_bytes(written(d), done),
                units_format_bytes(d->left, left));
        fflush(stderr);
        d->drawn = true;
    }
}

static void tell_end(const struct drain *d)
{
    char done[UNITS_TEXT_BYTES], left[UNITS_TEXT_BYTES], took[UNITS_TEXT_BYTES];
    if (d->ctl->json) {
        drain_print_json(d, "done");
        return;
    }
    printf("%s written in %s; ", units_format_bytes(written(d), done),
           units_format_duration_ns(drain_now_ns() - d->begun_ns, took));
    if (d->left == 0) {
        puts("storage has all of it");
        return;
    }
    printf("%s left: ", units_format_bytes(d->left, left));
    if (d->stop == KVC_DRAIN_BUDGET)
        puts("the write budget is spent. Raise nvme.writes_per_day or nvme.endurance, or drain "
             "again later; 'kvcachectl stats paths' shows it");
    else if (d->stop == KVC_DRAIN_OUT)
        puts("no path is in service; 'kvcachectl stats paths' says why");
    else if (d->stop == KVC_DRAIN_QUOTA)
        puts(
            "a quota on storage is used up. Raise it with 'kvcachectl quota set', or evict some of "
            "what its owner has there; 'kvcachectl quota show' shows whose it is");
    else
        puts("it does not get less: blocks are in use, or there is no room on storage; "
             "'kvcachectl stats paths' shows how full it is");
}

static int step(struct drain *d)
{
    struct kvc_drained r;
    int rc = kvc_drain(d->ctl->kvc, SLICE_BYTES, &r);
    if (rc < 0) {
        drain_clear(d);
        return ctl_fail(d->ctl, rc);
    }
    if (d->begun_ns == 0) {
        d->begun_ns = d->moved_ns = d->shown_ns = drain_now_ns();
        d->first = d->least = r.left;
    }
    d->left = r.left;
    d->stop = r.stop;
    if (r.left < d->least) {
        d->least = r.left;
        d->moved_ns = drain_now_ns();
    }
    return CTL_OK;
}

static int drain_run(struct drain *d)
{
    int rc;
    while ((rc = step(d)) == CTL_OK && d->left > 0 && drain_now_ns() - d->moved_ns < STUCK_NS) {
        progress(d);
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    if (rc != CTL_OK)
        return rc;
    drain_clear(d);
    tell_end(d);
    return d->left == 0 ? CTL_OK : CTL_NOTHING;
}

int cmd_drain(struct ctl *ctl, int argc, char **argv)
{
    struct drain d = {.ctl = ctl, .terminal = isatty(STDERR_FILENO)};
    int rc = ctl_options(ctl, argc, argv, NULL, help, NULL);
    if (rc == 0 && optind < argc)
        rc = ctl_usage("'%s' is not understood; drain takes no argument", argv[optind]);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    return rc == 0 ? drain_run(&d) : rc;
}
