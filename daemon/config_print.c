/* SPDX-License-Identifier: Apache-2.0 */
/* --print-config: the effective configuration as YAML. */
#include "config_impl.h"

#include <inttypes.h>
#include <string.h>

#define COMMENT_COLUMN 36

/* Returns 0, or -ENOMEM of libyaml. Text that YAML cannot hold was refused when it was set. */
static int config_print_value_text(const struct option_desc *d, const struct config *cfg, char *buf,
                                   size_t cap)
{
    char plain[CONFIG_LIST_BYTES + 1];
    const int r = option_format(d, cfg, plain, sizeof(plain));

    if (r < 0)
        return r;
    if (d->type == OPT_STRING || d->type == OPT_PATH)
        return config__yaml_quote(plain, buf, cap);
    (void)!snprintf(buf, cap, "%s", plain);
    return 0;
}

/* Writes "FILE:12". Other than printable ASCII characters of the name become '?', so that it stays
 * on one line. */
static void place_text(const struct config *cfg, unsigned line, char *buf, size_t cap)
{
    (void)!snprintf(buf, cap, "%s:%u", cfg->file, line);
    for (char *c = buf; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e)
            *c = '?';
}

static void origin_text(const struct config *cfg, unsigned key, char *buf, size_t cap)
{
    char place[CONFIG_PATH_BYTES + 16] = "default";
    const struct config_origin *origin = &cfg->origin[key];
    const bool is_auto = origin->auto_text[0] != '\0';

    if (origin->from == CONFIG_FROM_SET)
        (void)!snprintf(place, sizeof(place), "--set");
    else if (origin->from == CONFIG_FROM_FILE)
        place_text(cfg, origin->line, place, sizeof(place));
    (void)!snprintf(buf, cap, "%s%s%s", place, is_auto ? ": auto, " : "", origin->auto_text);
}

void config_origin_text(const struct config *cfg, const char *key, char *buf, size_t cap)
{
    origin_text(cfg, config_key(key), buf, cap);
}

static int print_key(const struct config *cfg, unsigned key, const char *name, int indent,
                     FILE *out)
{
    char value[CONFIG__QUOTED_BYTES], origin[CONFIG_PATH_BYTES + CONFIG_AUTO_TEXT_BYTES + 32];
    int n;

    const int r = config_print_value_text(&config_table[key], cfg, value, sizeof(value));
    if (r < 0)
        return r;
    origin_text(cfg, key, origin, sizeof(origin));
    n = fprintf(out, "%*s%s: %s", indent, "", name, value);
    (void)!fprintf(out, "%*s # %s\n", n < COMMENT_COLUMN ? COMMENT_COLUMN - n : 0, "", origin);
    return 0;
}

static void print_principals(const struct config *cfg, FILE *out)
{
    (void)!fprintf(out, "principals:\n");
    for (unsigned i = 0; i < cfg->nprincipals; i++) {
        const struct config_principal *p = &cfg->principals[i];
        (void)!fprintf(out, "  - name: \"%s\"", p->name);
        char place[CONFIG_PATH_BYTES + 16] = "default: the uid of the daemon";
        if (p->line > 0)
            place_text(cfg, p->line, place, sizeof(place));
        (void)!fprintf(out, " # %s\n", place);
        (void)!fprintf(out, "    uids: [");
        for (unsigned u = 0; u < p->nuids; u++)
            (void)!fprintf(out, "%s%u", u == 0 ? "" : ", ", (unsigned)p->uids[u]);
        (void)!fprintf(out, "]\n    tenant: \"%s\"\n    gateway: %s\n    admin: %s\n", p->tenant,
                       p->gateway ? "true" : "false", p->admin ? "true" : "false");
    }
}

static void print_bytes(const char *name, uint64_t bytes, uint64_t none, FILE *out)
{
    if (bytes != none)
        (void)!fprintf(out, "    %s: %" PRIu64 "\n", name, bytes);
}

static void print_quotas(const struct config *cfg, FILE *out)
{
    if (cfg->nquotas > 0)
        (void)!fprintf(out, "quotas:\n");
    for (unsigned i = 0; i < cfg->nquotas; i++) {
        const struct config_quota *q = &cfg->quotas[i];
        char place[CONFIG_PATH_BYTES + 16];
        place_text(cfg, q->line, place, sizeof(place));
        (void)!fprintf(out, "  - tenant: \"%s\" # %s\n", q->tenant, place);
        if (q->sub[0])
            (void)!fprintf(out, "    sub: \"%s\"\n", q->sub);
        print_bytes("host", q->host, UINT64_MAX, out);
        print_bytes("nvme", q->nvme, UINT64_MAX, out);
        print_bytes("host_share", q->host_share, 0, out);
        print_bytes("nvme_share", q->nvme_share, 0, out);
    }
}

/* Prints the key of one row, after the line of its section if it is the first of it. */
static int print_row(const struct config *cfg, unsigned row, FILE *out)
{
    const char *key = config_table[row].key, *dot = strchr(key, '.');

    if (dot == NULL)
        return print_key(cfg, row, key, 0, out);
    const size_t len = (size_t)(dot + 1 - key);
    if (row == 0 || strncmp(config_table[row - 1].key, key, len) != 0)
        (void)!fprintf(out, "%.*s:\n", (int)len - 1, key);
    return print_key(cfg, row, dot + 1, 2, out);
}

int config_print(const struct config *cfg, FILE *out)
{
    for (unsigned row = 0; row < config_table_len; row++) {
        const int r = print_row(cfg, row, out);
        if (r < 0)
            return r;
    }
    print_principals(cfg, out);
    print_quotas(cfg, out);
    return fflush(out) != 0 || ferror(out) ? -EIO : 0;
}
