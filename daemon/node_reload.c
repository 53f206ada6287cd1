/* SPDX-License-Identifier: Apache-2.0 */
#include "node_reload.h"

#include <string.h>

#include "log.h"

/* A line of the log holds so many bytes of a value. */
#define SHOWN_BYTES 200

static int quota_set(struct core *core, const struct config_quota *q)
{
    const struct core_quota quota = {
        .scope = q->sub[0] ? KVC_SCOPE_SUB : KVC_SCOPE_TENANT,
        .tenant = q->tenant,
        .sub = q->sub,
        .bytes = {.limit = {q->host, q->nvme}, .share = {q->host_share, q->nvme_share}}};
    const int err = core_quota_set(core, &quota);
    if (err)
        LOG_ERROR("quota of tenant %s%s%s: %s", q->tenant, q->sub[0] ? ", sub " : "", q->sub,
                  err_name(err));
    return err;
}

/* Returns how many quotas core refuses; *ret_first: the first error, or 0. */
static unsigned quotas_set(const struct config *cfg, struct core *core, int *ret_first)
{
    unsigned refused = 0;
    *ret_first = 0;
    for (unsigned i = 0; i < cfg->nquotas; i++) {
        const int err = quota_set(core, &cfg->quotas[i]);
        refused += err != 0;
        if (*ret_first == 0)
            *ret_first = err;
    }
    return refused;
}

int node_quotas_set(const struct config *cfg, struct core *core)
{
    int first;
    (void)quotas_set(cfg, core, &first);
    return first;
}

static bool quota_is_of(const struct config *cfg, const struct config_quota *q)
{
    for (unsigned i = 0; i < cfg->nquotas; i++)
        if (strcmp(cfg->quotas[i].tenant, q->tenant) == 0 &&
            strcmp(cfg->quotas[i].sub, q->sub) == 0)
            return true;
    return false;
}

/* Quotas that are gone from the file end first: others may be given their shares. Then all quotas
 * of the file are set, since core may have refused one before. Returns how many core refuses. */
static unsigned quotas_change(const struct config *now, const struct config *next,
                              struct core *core)
{
    unsigned refused = 0;
    for (unsigned i = 0; i < now->nquotas; i++) {
        struct config_quota none = now->quotas[i];
        if (quota_is_of(next, &none))
            continue;
        none.host = none.nvme = UINT64_MAX;
        none.host_share = none.nvme_share = 0;
        refused += quota_set(core, &none) != 0;
    }
    int first;
    return refused + quotas_set(next, core, &first);
}

struct reload {
    unsigned taken, restart;
};

static void on_change(void *ctx, const struct config_change *change)
{
    struct reload *r = ctx;
    char text[2 * SHOWN_BYTES + 16] = "changed";
    if (change->was[0] != '\0' || change->is[0] != '\0')
        (void)!snprintf(text, sizeof(text), "was '%.*s', is '%.*s'", SHOWN_BYTES, change->was,
                        SHOWN_BYTES, change->is);
    if (!change->is_live) {
        LOG_WARN("reload: %s: %s; needs a restart", change->key, text);
        r->restart++;
        return;
    }
    LOG_INFO("reload: %s: %s", change->key, text);
    r->taken++;
}

void node_reload(struct config *cfg, struct core *core)
{
    static struct config next; /* large; there is one control thread */
    static struct config_errors errors;
    if (config_load_again(cfg, &next, &errors) < 0) {
        config_errors_log(&errors, "reload: ");
        LOG_ERROR("reload: %u error%s in the configuration, so nothing was changed", errors.count,
                  errors.count == 1 ? "" : "s");
        return;
    }
    struct reload r = {0};
    config_diff(cfg, &next, on_change, &r);
    const unsigned refused = quotas_change(cfg, &next, core);
    config_take_live(cfg, &next);
    log_init((enum log_level)cfg->log.level, 2, cfg->log.json);
    LOG_INFO("reload: %u change%s taken, %u need%s a restart", r.taken, r.taken == 1 ? "" : "s",
             r.restart, r.restart == 1 ? "s" : "");
    if (refused > 0)
        LOG_WARN("reload: %u quota%s refused (see above); another SIGHUP tries again", refused,
                 refused == 1 ? " is" : "s are");
}
