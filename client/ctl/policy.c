/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl policy: shows what the policy of eviction does and has learned, and changes its
 * settings.
 */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ctl.h"
#include "json.h"
#include "table.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl policy show [--json]\n"
    "       kvcachectl policy set [--keep-percent N] [--load-or-recompute on|off]\n"
    "                             [--admission on|off] [--pin-limit SIZE|none] [--json]\n"
    "\n"
    "How the daemon decides which blocks stay. 'show' has the settings in effect now: the eviction "
    "policy and where it was chosen; the settings that 'set' can change, with their values at "
    "start where they differ. With admin rights it has more: the write budget and the rest of it, "
    "the speed of loads from storage as learned, hints and wishes that workers gave, and how many "
    "blocks are kept at which priority.\n"
    "\n"
    "A change of the policy needs a restart (policy.eviction in the configuration). The other "
    "settings can be set while the daemon runs, with admin rights, and last until it ends. "
    "Settings that are not given stay as they are.\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachectl policy show\n"
    "  kvcachectl policy set --load-or-recompute off\n";

enum turned { NOT_GIVEN, OFF, ON };

struct policy {
    struct ctl *ctl;
    uint64_t keep; /* UINT64_MAX: not given */
    enum turned weigh, admission;
    struct ctl_size pin;
};

/* ---- JSON ---- */

static void policy_put(json_t *o, const char *name, uint64_t value)
{
    json_object_set_new(o, name, json_integer((json_int_t)value));
}

static json_t *set_json(uint32_t keep_percent, bool weigh, bool admission, uint64_t pin_bytes_max)
{
    return json_pack("{s:I, s:b, s:b, s:I}", "keep_percent", (json_int_t)keep_percent,
                     "load_or_recompute", weigh, "admission", admission, "pin_bytes_max",
                     (json_int_t)pin_bytes_max);
}

static void learned_json(json_t *o, const struct kvc_policy_info *p)
{
    json_t *levels = json_array();
    for (uint32_t i = 0; i < p->levels; i++)
        json_array_append_new(levels,
                              json_pack("{s:I, s:I}", "priority", (json_int_t)p->level[i].priority,
                                        "blocks", (json_int_t)p->level[i].blocks));
    policy_put(o, "writes_per_day", p->writes_per_day);
    policy_put(o, "spent_bytes", p->spent_bytes);
    policy_put(o, "left_bytes", p->left_bytes);
    policy_put(o, "load_bytes_per_s", p->load_bytes_per_s);
    policy_put(o, "load_latency_us", p->load_latency_us);
    policy_put(o, "hints_ended", p->hints_ended);
    policy_put(o, "hints_continue", p->hints_continue);
    policy_put(o, "hints_soon", p->hints_soon);
    policy_put(o, "hints_scan", p->hints_scan);
    policy_put(o, "wishes", p->wishes);
    policy_put(o, "wishes_ended", p->wishes_ended);
    json_object_set_new(o, "priorities", levels);
}

static void policy_print_json(const struct kvc_policy_info *p)
{
    json_t *o = set_json(p->keep_percent, p->load_or_recompute, p->admission, p->pin_bytes_max);
    json_object_set_new(o, "name", json_string(p->name));
    json_object_set_new(o, "text", json_string(p->text));
    json_object_set_new(o, "chosen_by", json_string(p->chosen));
    json_object_set_new(o, "at_start",
                        set_json(p->keep_percent_start, p->load_or_recompute_start,
                                 p->admission_start, p->pin_bytes_max_start));
    json_object_set_new(o, "admission_in_effect",
                        json_boolean(p->admission && p->admits && !p->storage));
    json_object_set_new(o, "storage", json_boolean(p->storage));
    json_object_set_new(o, "hints", json_boolean(p->hints));
    json_object_set_new(o, "admits", json_boolean(p->admits));
    json_object_set_new(o, "pins", json_boolean(p->pins));
    policy_put(o, "priority_default", KVC_PRIORITY_DEFAULT);
    if (p->all)
        learned_json(o, p);
    json_print(o);
}

/* ---- table ---- */

/* Adds a line with a name; NULL: a line that continues the one above. */
__attribute__((format(printf, 3, 4))) static void line(struct table *t, const char *name,
                                                       const char *format, ...)
{
    char text[768];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    table_cell(t, "%s", name ? name : "");
    table_cell(t, "%s", text);
}

/* "4.00 GiB of each tenant", "none" */
static const char *limit_text(uint64_t bytes, char text[64])
{
    char size[UNITS_TEXT_BYTES];
    if (bytes)
        (void)snprintf(text, 64, "%s of each tenant", units_format_bytes(bytes, size));
    return bytes ? text : "none";
}

/* vain: the text that follows if the switch is on. */
static void switch_line(struct table *t, const char *name, bool now, bool start, const char *vain)
{
    line(t, name, "%s%s%s", now ? "on" : "off",
         now == start ? ""
         : now        ? " (set; it was off at start)"
                      : " (set; it was on at start)",
         now ? vain : "");
}

static void set_lines(struct table *t, const struct kvc_policy_info *p)
{
    char now[64], start[64], vain[128] = "";
    if (p->keep_percent != p->keep_percent_start)
        line(t, "keep-percent", "%u %% (set; it was %u %% at start)", p->keep_percent,
             p->keep_percent_start);
    else
        line(t, "keep-percent", "%u %%", p->keep_percent);
    switch_line(t, "load-or-recompute", p->load_or_recompute, p->load_or_recompute_start, "");
    if (p->storage)
        (void)snprintf(vain, sizeof(vain), ", without effect: storage takes what leaves memory");
    else if (!p->admits)
        (void)snprintf(vain, sizeof(vain), ", without effect: policy %s admits all", p->name);
    switch_line(t, "admission", p->admission, p->admission_start, vain);
    if (!p->pins)
        line(t, "pin-limit", "nothing may be pinned (policy.pin_limit: 0)");
    else if (p->pin_bytes_max != p->pin_bytes_max_start)
        line(t, "pin-limit", "%s (set; it was %s at start)", limit_text(p->pin_bytes_max, now),
             limit_text(p->pin_bytes_max_start, start));
    else
        line(t, "pin-limit", "%s", limit_text(p->pin_bytes_max, now));
}

static void storage_lines(struct table *t, const struct kvc_policy_info *p)
{
    char day[UNITS_TEXT_BYTES], spent[UNITS_TEXT_BYTES], left[UNITS_TEXT_BYTES];
    if (!p->storage) {
        line(t, "storage", "there is none (nvme.paths): nothing is written or loaded");
        return;
    }
    units_format_bytes(p->spent_bytes, spent);
    if (p->writes_per_day)
        line(t, "write budget", "%s a day: %s spent since its day began, %s may be written now",
             units_format_bytes(p->writes_per_day, day), spent,
             units_format_bytes(p->left_bytes, left));
    else
        line(t, "write budget", "none (nvme.writes_per_day): %s written since the day began",
             spent);
    if (p->load_bytes_per_s)
        line(t, "loading takes", "%s until the first bytes come, then %s, as learned from loads",
             units_format_duration_ns(p->load_latency_us * 1000, day),
             units_format_rate(p->load_bytes_per_s, left));
    else
        line(t, "loading takes", "not known yet: nothing large has been loaded");
}

static void worker_lines(struct table *t, const struct kvc_policy_info *p)
{
    char a[UNITS_COUNT_BYTES], b[UNITS_COUNT_BYTES], c[UNITS_COUNT_BYTES], d[UNITS_COUNT_BYTES];
    line(t, "hints", "%s ended, %s continue, %s soon, %s scan",
         units_format_count(p->hints_ended, a), units_format_count(p->hints_continue, b),
         units_format_count(p->hints_soon, c), units_format_count(p->hints_scan, d));
    if (!p->hints)
        line(t, NULL, "%s pays no heed to them", p->name);
    line(t, "wishes", "for %s blocks, %s of them have ended", units_format_count(p->wishes, a),
         units_format_count(p->wishes_ended, b));
    line(t, "priorities", "0 to %u, %u where nothing is wished; the lowest go first",
         KVC_PRIORITY_MAX, KVC_PRIORITY_DEFAULT);
    for (uint32_t i = 0; i < p->levels; i++)
        line(t, NULL, "%3u: %s block%s", p->level[i].priority,
             units_format_count(p->level[i].blocks, a), p->level[i].blocks == 1 ? "" : "s");
}

static void print(const struct ctl *ctl, const struct kvc_policy_info *p)
{
    if (ctl->json) {
        policy_print_json(p);
        return;
    }
    struct table *t = table_create(NULL);
    line(t, "policy", "%s", p->name);
    if (p->text[0])
        line(t, NULL, "%s", p->text);
    line(t, "chosen by", "%s (policy.eviction)", p->chosen[0] ? p->chosen : "-");
    set_lines(t, p);
    if (p->all) {
        storage_lines(t, p);
        worker_lines(t, p);
    } else {
        line(t, "learned", "is shown with admin rights (principals: admin: true)");
    }
    table_print(t, stdout, ctl->colour);
    table_destroy(&t);
}

/* ---- the command line ---- */

static int parse_switch(const char *text, void *at, const char **ret_why)
{
    const bool on = strcmp(text, "on") == 0;
    *(enum turned *)at = on ? ON : OFF;
    *ret_why = "say on or off";
    return on || strcmp(text, "off") == 0 ? 0 : -EINVAL;
}

static const struct arg option_table[] = {
    {"--keep-percent N",
     "percent of the blocks on storage that are not worth writing again when their segment is "
     "emptied, 0 to 100",
     ARG_COUNT(struct policy, keep, 0, 100)},
    {"--load-or-recompute on|off",
     "whether a hit is cut where loading it would take longer than computing it again",
     ARG_PARSE(struct policy, weigh, parse_switch)},
    {"--admission on|off",
     "whether a new block is refused that is worth less than the block that would be evicted for "
     "it; without effect if there is storage, or if the policy admits all",
     ARG_PARSE(struct policy, admission, parse_switch)},
    {"--pin-limit SIZE|none",
     "bytes that each tenant may pin; blocks that are pinned already stay pinned",
     ARG_PARSE(struct policy, pin, ctl_parse_size)},
    {0},
};

static int policy_ask(struct ctl *ctl, const struct kvc_policy_info *set)
{
    struct kvc_policy_info now;
    const int rc = kvc_policy(ctl->kvc, set, &now);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    print(ctl, &now);
    return CTL_OK;
}

static int policy_show(struct ctl *ctl, int argc, char **argv)
{
    int rc = ctl_options_only(ctl, argc, argv, option_table, help, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    return rc != 0 ? rc : policy_ask(ctl, NULL);
}

static int set(struct ctl *ctl, int argc, char **argv)
{
    struct policy p = {.ctl = ctl, .keep = UINT64_MAX};
    struct kvc_policy_info now;
    int rc = ctl_options_only(ctl, argc, argv, option_table, help, &p);
    if (rc == 0 && p.keep == UINT64_MAX && !p.weigh && !p.admission && !p.pin.given)
        rc =
            ctl_usage("what? Give --keep-percent, --load-or-recompute, --admission or --pin-limit");
    if (rc == 0 && p.pin.given && p.pin.bytes == 0)
        rc = ctl_usage("--pin-limit 0: must be more than nothing, or 'none'");
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    rc = kvc_policy(ctl->kvc, NULL, &now);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    if (p.keep != UINT64_MAX)
        now.keep_percent = (uint32_t)p.keep;
    if (p.weigh)
        now.load_or_recompute = p.weigh == ON;
    if (p.admission)
        now.admission = p.admission == ON;
    if (p.pin.given)
        now.pin_bytes_max = p.pin.bytes == UINT64_MAX ? 0 : p.pin.bytes;
    return policy_ask(ctl, &now);
}

int cmd_policy(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_cmd verbs[] = {{"show", policy_show}, {"set", set}, {NULL, NULL}};
    return ctl_verbs(ctl, argc, argv, option_table, help, verbs);
}
