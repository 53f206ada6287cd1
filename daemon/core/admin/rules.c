/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows and sets how blocks are kept (POLICY): the rules that an operator may change while the
 * daemon runs, and what the core has learned of storage.
 */
#include "admin.h"

struct rules {
    struct core_rules start; /* the rules as the daemon began with them */
};

const struct core_module rules_module = {CORE_STATE(rules)};

static struct core_rules rules_now(const struct core *c)
{
    return (struct core_rules){.keep_percent = core_keep_percent_now(c),
                               .load_or_recompute = core_load_or_recompute_now(c),
                               .admission = core_admission_now(c),
                               .pin_bytes_max = core_pin_budget_now(c)};
}

void core_admission(struct core *c, bool on)
{
    c->admission = on;
}

bool core_admission_now(const struct core *c)
{
    return c->admission;
}

void rules_begin(struct core *c)
{
    c->mod.rules->start = rules_now(c);
}

void core_policy_view(const struct core *c, struct core_policy_view *ret_view)
{
    struct worth_speed speed = {0};
    reads_disk_speed(c, &speed);
    *ret_view = (struct core_policy_view){.now = rules_now(c),
                                          .start = c->mod.rules->start,
                                          .hints = c->cfg.policy->advise != NULL,
                                          .admits = c->cfg.policy->admits != NULL,
                                          .pins = c->cfg.pins_max > 0,
                                          .disk_bytes_per_s = speed.disk_bytes_per_s,
                                          .disk_latency_ns = speed.disk_latency_ns};
    memcpy(ret_view->hinted, c->hinted, sizeof c->hinted);
    retain_levels(c->retain, ret_view->level_blocks);
}
