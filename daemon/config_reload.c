/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration read a second time, while the daemon runs: what differs, and what of it is
 * taken. */
#include "config_impl.h"

#include <string.h>

#include "log.h"

void config_errors_log(const struct config_errors *errors, const char *prefix)
{
    char text[CONFIG_ERROR_TEXT_MAX + CONFIG_PATH_BYTES + 96];

    for (unsigned i = 0; i < MIN(errors->count, CONFIG_ERRORS_MAX); i++)
        LOG_ERROR("%s%s", prefix, config_error_format(&errors->list[i], text, sizeof(text)));
}

static bool is_auto(const struct config *cfg, unsigned key)
{
    return cfg->origin[key].auto_text[0] != '\0';
}

/* Copies the value of one key, and where it came from. */
static void key_copy(struct config *to, const struct config *from, unsigned key)
{
    const struct option_desc *d = &config_table[key];

    memcpy((char *)to + d->offset, (const char *)from + d->offset, d->size);
    to->origin[key] = from->origin[key];
}

/* Whether the file that was read again leaves the key's value to the daemon ("auto" or empty). */
static bool is_left_to_us(const struct config *next, unsigned key)
{
    char text[CONFIG_LIST_BYTES + 1];
    const int r = option_format(&config_table[key], next, text, sizeof(text));

    return r == 0 ||
           (r > 0 && (config_table[key].flags & OPTF_AUTO) != 0 && strcmp(text, "auto") == 0);
}

int config_load_again(const struct config *now, struct config *ret,
                      struct config_errors *ret_errors)
{
    const int r = config__load_given(&now->given, false, ret, ret_errors);

    if (r < 0)
        return r;
    for (unsigned key = 0; key < config_table_len; key++)
        if (is_auto(now, key) && is_left_to_us(ret, key))
            key_copy(ret, now, key);
    /* Check the configuration after the reload: the new shares with the limits that stay. */
    struct config would = *now;
    struct config_errors errors = {0};
    config_take_live(&would, ret);
    config__check_values(&would, &errors);
    if (errors.count == 0)
        return 0;
    *ret_errors = errors;
    return -EINVAL;
}

static void key_diff(const struct config *now, const struct config *next, unsigned key,
                     config_change_fn fn, void *ctx)
{
    const struct option_desc *d = &config_table[key];
    char was[CONFIG_LIST_BYTES + 1], is[CONFIG_LIST_BYTES + 1];

    if (option_format(d, now, was, sizeof(was)) < 0 || option_format(d, next, is, sizeof(is)) < 0)
        return; /* config_load() takes no value that the table cannot write */
    if (strcmp(was, is) == 0)
        return;
    fn(ctx, &(struct config_change){d->key, was, is, (d->flags & OPTF_LIVE) != 0});
}

static bool principal_equals(const struct config_principal *a, const struct config_principal *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->tenant, b->tenant) == 0 &&
           a->nuids == b->nuids && memcmp(a->uids, b->uids, a->nuids * sizeof(a->uids[0])) == 0 &&
           a->gateway == b->gateway && a->admin == b->admin;
}

static bool principals_equal(const struct config *a, const struct config *b)
{
    bool equal = a->nprincipals == b->nprincipals;

    for (unsigned i = 0; equal && i < a->nprincipals; i++)
        equal = principal_equals(&a->principals[i], &b->principals[i]);
    return equal;
}

static bool quota_equals(const struct config_quota *a, const struct config_quota *b)
{
    return strcmp(a->tenant, b->tenant) == 0 && strcmp(a->sub, b->sub) == 0 && a->host == b->host &&
           a->nvme == b->nvme && a->host_share == b->host_share && a->nvme_share == b->nvme_share;
}

static bool quotas_equal(const struct config *a, const struct config *b)
{
    bool equal = a->nquotas == b->nquotas;

    for (unsigned i = 0; equal && i < a->nquotas; i++)
        equal = quota_equals(&a->quotas[i], &b->quotas[i]);
    return equal;
}

void config_diff(const struct config *now, const struct config *next, config_change_fn fn,
                 void *ctx)
{
    for (unsigned key = 0; key < config_table_len; key++)
        key_diff(now, next, key, fn, ctx);
    if (!principals_equal(now, next))
        fn(ctx, &(struct config_change){"principals", "", "", false});
    if (!quotas_equal(now, next))
        fn(ctx, &(struct config_change){"quotas", "", "", true});
}

void config_take_live(struct config *now, const struct config *next)
{
    for (unsigned key = 0; key < config_table_len; key++)
        if ((config_table[key].flags & OPTF_LIVE) != 0)
            key_copy(now, next, key);
    memcpy(now->quotas, next->quotas, sizeof(now->quotas));
    now->nquotas = next->nquotas;
}
