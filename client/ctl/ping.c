/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachectl ping: is the daemon there, since when, and how long an answer takes. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "ctl.h"
#include "json.h"
#include "units.h"

static const char help[] = "Usage: kvcachectl ping [--json]\n"
                           "\n"
                           "Sends one request to the daemon, and shows how long the answer took "
                           "and how long the daemon has been running.\n"
                           "\n"
                           "Example, waiting for a daemon to come up:\n"
                           "  until kvcachectl --timeout 1s ping; do sleep 1; done\n";

static uint64_t ping_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int cmd_ping(struct ctl *ctl, int argc, char **argv)
{
    int rc = ctl_options_only(ctl, argc, argv, NULL, help, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;

    uint64_t uptime_ms, begun = ping_now_ns();
    rc = kvc_ping(ctl->kvc, &uptime_ms);
    uint64_t took_ns = ping_now_ns() - begun;
    if (rc < 0)
        return ctl_fail(ctl, rc);
    if (ctl->json) {
        json_print(json_pack("{s:I, s:I}", "uptime_ms", (json_int_t)uptime_ms, "round_trip_ns",
                             (json_int_t)took_ns));
        return CTL_OK;
    }
    char took[UNITS_TEXT_BYTES], up[UNITS_TEXT_BYTES];
    printf("%s answers in %s, up for %s\n", ctl_socket(ctl),
           units_format_duration_ns(took_ns, took), units_format_duration_ms(uptime_ms, up));
    return CTL_OK;
}
