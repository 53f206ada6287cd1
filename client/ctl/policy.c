/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"
#include "json.h"
#include "table.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl policy show [--json]\n"
    "       kvcachectl policy set [--keep-percent N] [--load-or-recompute on|off]\n"
    "                             [--pin-limit SIZE|none] [--json]\n"
    "\n"
    "How the daemon decides what stays. Which policy it is takes a restart (policy.eviction in "
    "the\n"
    "configuration); the rest can be set while it runs, with admin rights, and lasts until the "
    "daemon\n"
    "ends. What is not given stays as it is.\n"
    "\n"
    "  --keep-percent N            of what is on storage, the part that is not worth writing\n"
    "                              again when its room is wanted, 0 to 100\n"
    "  --load-or-recompute on|off  whether a hit is cut where loading it would take longer than\n"
    "                              computing it again\n"
    "  --pin-limit SIZE|none       bytes that each tenant may pin; what is pinned stays\n"
    "\n"
    "Example:\n"
    "  kvcachectl policy set --load-or-recompute off\n";

struct policy {
    struct ctl *ctl;
    bool has_keep, has_weigh, has_pin;
    uint64_t keep, pin;
    bool weigh;
};

static void print(const struct ctl *ctl, const struct kvc_policy_info *p)
{
    char size[UNITS_TEXT_BYTES];
    if (ctl->json) {
        json_print(json_pack("{s:s, s:s, s:I, s:b, s:I}", "name", p->name, "text", p->text,
                             "keep_percent", (json_int_t)p->keep_percent, "load_or_recompute",
                             p->load_or_recompute, "pin_bytes_max", (json_int_t)p->pin_bytes_max));
        return;
    }
    struct table *t = table_create(NULL);
    table_cell(t, "policy");
    table_cell(t, "%s", p->name);
    if (p->text[0]) {
        table_cell(t, "%s", "");
        table_cell(t, "%s", p->text);
    }
    table_cell(t, "keep-percent");
    table_cell(t, "%u %%", p->keep_percent);
    table_cell(t, "load-or-recompute");
    table_cell(t, "%s", p->load_or_recompute ? "on" : "off");
    table_cell(t, "pin-limit");
    table_cell(t, "%s", p->pin_bytes_max ? units_format_bytes(p->pin_bytes_max, size) : "none");
    table_print(t, stdout, ctl->colour);
    table_destroy(&t);
}

static int take_option(void *ctx, int c, const char *value)
{
    struct policy *p = ctx;
    switch (c) {
    case 'k':
        p->has_keep = true;
        return ctl_take_count("keep-percent", value, 0, 100, &p->keep);
    case 'l':
        p->has_weigh = true;
        p->weigh = strcmp(value, "on") == 0;
        return p->weigh || strcmp(value, "off") == 0
                   ? 0
                   : ctl_usage("--load-or-recompute %s: say on or off", value);
    case 'p':
        p->has_pin = true;
        if (strcmp(value, "none") == 0)
            return 0;
        if (ctl_take_bytes("pin-limit", value, &p->pin) != 0)
            return CTL_USAGE;
        return p->pin ? 0
                      : ctl_usage("--pin-limit %s: must be more than nothing, or 'none'", value);
    default:
        return ctl_usage("an option is not understood");
    }
}

static int ask(struct ctl *ctl, const struct kvc_policy_info *set)
{
    struct kvc_policy_info now;
    const int rc = kvc_policy(ctl->kvc, set, &now);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    print(ctl, &now);
    return CTL_OK;
}

static int show(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
    int rc = ctl_options_only(ctl, argc, argv, options, help, NULL, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    return rc != 0 ? rc : ask(ctl, NULL);
}

static int set(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {{"keep-percent", required_argument, NULL, 'k'},
                                            {"load-or-recompute", required_argument, NULL, 'l'},
                                            {"pin-limit", required_argument, NULL, 'p'},
                                            CTL_COMMON_OPTIONS,
                                            {0}};
    struct policy p = {.ctl = ctl};
    struct kvc_policy_info now;
    int rc = ctl_options_only(ctl, argc, argv, options, help, take_option, &p);
    if (rc == 0 && !p.has_keep && !p.has_weigh && !p.has_pin)
        rc = ctl_usage("what? Give --keep-percent, --load-or-recompute or --pin-limit");
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    rc = kvc_policy(ctl->kvc, NULL, &now);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    if (p.has_keep)
        now.keep_percent = (uint32_t)p.keep;
    if (p.has_weigh)
        now.load_or_recompute = p.weigh;
    if (p.has_pin)
        now.pin_bytes_max = p.pin;
    return ask(ctl, &now);
}

int cmd_policy(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_cmd verbs[] = {{"show", show}, {"set", set}, {NULL, NULL}};
    return ctl_verbs(ctl, argc, argv, help, verbs);
}
