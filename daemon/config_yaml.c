/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adapter of libyaml. It walks the parser's events instead of a document tree: each event knows
 * its line, and nothing nests deeper than the walk expects.
 */
#include "config_impl.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "fault.h"
#include "file_kind.h"
#include "sys.h"
#include "units.h"

#define KEY_BYTES 128
#define DEPTH_MAX 32u

/* One pass over one file. */
struct yaml_in {
    struct config__load *l;
    const unsigned char *text;
    size_t len;
    yaml_parser_t parser;
    yaml_event_t ev; /* the current event */
    unsigned depth;  /* number of lists and sections around it */
    bool broken;     /* not YAML from here on; already reported */
};

/* The rows of a principal, in the option table's terms; uids is read as a list and stands here for
 * its name. */
#define PFIELD(member) OPTION_FIELD(struct config_principal, member)
static const struct option_desc principal_table[] = {
    {"name", OPT_STRING, PFIELD(name), .def = "", .help = "in logs and statistics"},
    {"uids", OPT_STRING, PFIELD(uids), .def = "", .help = "numeric user ids"},
    {"tenant", OPT_STRING, PFIELD(tenant), .def = "default", .help = "whose data it is"},
    {"gateway", OPT_BOOL, PFIELD(gateway), .def = "false", .help = "may name sub-tenants"},
    {"admin", OPT_BOOL, PFIELD(admin), .def = "false", .help = "may inspect and evict"},
};

enum principal_row { ROW_NAME, ROW_UIDS, ROW_TENANT, ROW_GATEWAY, ROW_ADMIN, ROWS };
_Static_assert(ARRAY_LEN(principal_table) == ROWS, "one name per row");

static unsigned config_yaml_line_of(const struct yaml_in *in)
{
    return (unsigned)in->ev.start_mark.line + 1;
}

#define ERROR(in, line, key, ...) \
    config__error((in)->l->errors, (in)->l->file, (line), (key), __VA_ARGS__)

/* Reports libyaml's syntax error and its line. */
static void report_broken(struct yaml_in *in)
{
    const yaml_parser_t *p = &in->parser;
    const char *problem = p->problem != NULL ? p->problem : "unknown problem";
    unsigned line = (unsigned)p->problem_mark.line + 1;
    const char *hint = "";

    if (p->error == YAML_READER_ERROR) {
        /* The reader is ahead of problem_mark; its own position is a byte offset. */
        line = 1;
        for (size_t i = 0; i < MIN(p->problem_offset, in->len); i++)
            line += in->text[i] == '\n';
        hint = file_kind_text_hint(in->text, in->len);
        if (hint[0] == '\0')
            hint = "; the file must be UTF-8 text";
    } else if (strstr(problem, "cannot start any token") != NULL) {
        hint = "; indent with spaces, not tabs, and put quotes around text that begins with a "
               "special character";
    }
    ERROR(in, line, "", "expected YAML, got an error: %s%s%s%s%s", problem,
          p->context != NULL ? " (" : "", p->context != NULL ? p->context : "",
          p->context != NULL ? ")" : "", hint);
}

/* Ends the walk: the rest of the file cannot be parsed. */
static void end_walk(struct yaml_in *in)
{
    yaml_event_delete(&in->ev);
    memset(&in->ev, 0, sizeof(in->ev));
    in->broken = true;
}

/*
 * Counts nesting and ends the walk beyond what any configuration has: libyaml's time grows with the
 * square of the depth, so that a megabyte of brackets would keep it busy for minutes.
 */
static void count_depth(struct yaml_in *in)
{
    const yaml_event_type_t type = in->ev.type;

    if (type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT)
        in->depth--;
    if (type != YAML_MAPPING_START_EVENT && type != YAML_SEQUENCE_START_EVENT)
        return;
    if (++in->depth > DEPTH_MAX) {
        ERROR(in, config_yaml_line_of(in), "",
              "expected at most %u lists or sections inside each other", DEPTH_MAX);
        end_walk(in);
    }
}

/* Moves to the next event. After a syntax error, and at the end, every further one is
 * YAML_NO_EVENT. */
static yaml_event_type_t next(struct yaml_in *in)
{
    if (in->broken)
        return YAML_NO_EVENT;
    yaml_event_delete(&in->ev);
    memset(&in->ev, 0, sizeof(in->ev));
    if (yaml_parser_parse(&in->parser, &in->ev)) {
        count_depth(in);
    } else {
        report_broken(in);
        end_walk(in);
    }
    return in->ev.type;
}

/* Skips the current value, with all that it holds. The current event is then the next one. */
static void skip_value(struct yaml_in *in)
{
    unsigned depth = 0;

    do {
        if (in->ev.type == YAML_MAPPING_START_EVENT || in->ev.type == YAML_SEQUENCE_START_EVENT)
            depth++;
        else if (in->ev.type == YAML_MAPPING_END_EVENT || in->ev.type == YAML_SEQUENCE_END_EVENT)
            depth--;
    } while (depth > 0 && next(in) != YAML_NO_EVENT);
}

static const char *tag_of(const struct yaml_in *in)
{
    switch (in->ev.type) {
    case YAML_SCALAR_EVENT:
        return (const char *)in->ev.data.scalar.tag;
    case YAML_MAPPING_START_EVENT:
        return (const char *)in->ev.data.mapping_start.tag;
    case YAML_SEQUENCE_START_EVENT:
        return (const char *)in->ev.data.sequence_start.tag;
    default:
        return NULL;
    }
}

/* Whether the key has no value, as a section whose lines are all commented out. */
static bool config_yaml_is_nothing(const struct yaml_in *in)
{
    return in->ev.type == YAML_SCALAR_EVENT && in->ev.data.scalar.length == 0 &&
           in->ev.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static const char *config_yaml_kind_of(const struct yaml_in *in)
{
    switch (in->ev.type) {
    case YAML_SEQUENCE_START_EVENT:
        return "a list";
    case YAML_MAPPING_START_EVENT:
        return "a section";
    case YAML_ALIAS_EVENT:
        return "an alias";
    default:
        return config_yaml_is_nothing(in) ? "nothing" : "a single value";
    }
}

/* The current event as text, or NULL when it is no scalar, or one that C text cannot hold. */
static const char *scalar(const struct yaml_in *in)
{
    if (in->ev.type != YAML_SCALAR_EVENT || config_yaml_is_nothing(in) || tag_of(in) != NULL)
        return NULL;
    return strlen((const char *)in->ev.data.scalar.value) == in->ev.data.scalar.length
               ? (const char *)in->ev.data.scalar.value
               : NULL;
}

/* Reports that the current value is not `expected`, and skips it. */
static void config_yaml_refuse(struct yaml_in *in, const char *key, const char *expected)
{
    char shown[CONFIG__SHOWN_BYTES];
    const char *tag = tag_of(in);

    if (tag != NULL)
        ERROR(in, config_yaml_line_of(in), key,
              "expected %s, got the tag %s, which has no meaning here", expected,
              config__shown(tag, shown));
    else if (in->ev.type == YAML_SCALAR_EVENT && scalar(in) == NULL && !config_yaml_is_nothing(in))
        ERROR(in, config_yaml_line_of(in), key, "expected %s, got text with a NUL byte", expected);
    else
        ERROR(in, config_yaml_line_of(in), key, "expected %s, got %s", expected,
              config_yaml_kind_of(in));
    skip_value(in);
}

/* Reads the key at the current event and moves to its value. False: the key cannot be used; both
 * are skipped. */
static bool read_key(struct yaml_in *in, char ret[KEY_BYTES], unsigned *ret_line)
{
    const char *text = scalar(in);

    if (text != NULL && strlen(text) < KEY_BYTES) {
        (void)!snprintf(ret, KEY_BYTES, "%s", text);
        *ret_line = config_yaml_line_of(in);
        return next(in) != YAML_NO_EVENT;
    }
    if (text != NULL) {
        char shown[CONFIG__SHOWN_BYTES];
        ERROR(in, config_yaml_line_of(in), "", "no option %s", config__shown(text, shown));
    } else {
        config_yaml_refuse(in, "", "a key");
    }
    if (next(in) != YAML_NO_EVENT)
        skip_value(in);
    return false;
}

/* ---- principals ---- */

/* Whether the name may stand in logs, statistics and metric labels. */
static bool is_name(const char *s)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return s[0] != '\0' && s[strspn(s, letters)] == '\0';
}

static void read_uid(struct yaml_in *in, struct config_principal *p)
{
    const char *text = scalar(in), *key = "principals.uids";
    char shown[CONFIG__SHOWN_BYTES];
    uint64_t uid;

    if (text == NULL) {
        config_yaml_refuse(in, key, "a numeric uid");
        return;
    }
    if (units_parse_count(text, &uid, NULL) < 0 || uid >= UINT32_MAX) {
        ERROR(in, config_yaml_line_of(in), key,
              "expected a numeric uid from 0 to 4294967294, got %s; 'id -u NAME' tells it",
              config__shown(text, shown));
        return;
    }
    for (unsigned i = 0; i < p->nuids; i++) {
        if (p->uids[i] == uid) {
            ERROR(in, config_yaml_line_of(in), key, "uid %u is listed twice", (unsigned)uid);
            return;
        }
    }
    const struct config_principal *other = config_principal_of(in->l->cfg, (uid_t)uid);
    if (other != NULL && other != p)
        ERROR(in, config_yaml_line_of(in), key,
              "uid %u is in principal '%s' (line %u) already; a uid belongs to one principal",
              (unsigned)uid, other->name, other->line);
    else if (p->nuids == CONFIG_UIDS_MAX)
        ERROR(in, config_yaml_line_of(in), key, "expected at most %u uids in one principal",
              CONFIG_UIDS_MAX);
    else
        p->uids[p->nuids++] = (uid_t)uid;
}

static void read_uids(struct yaml_in *in, struct config_principal *p)
{
    const unsigned line = config_yaml_line_of(in);
    unsigned seen = 0;

    if (in->ev.type != YAML_SEQUENCE_START_EVENT || tag_of(in) != NULL) {
        config_yaml_refuse(in, "principals.uids", "a list of numeric uids such as [1000, 1001]");
        return;
    }
    for (; next(in) != YAML_SEQUENCE_END_EVENT && !in->broken; seen++)
        read_uid(in, p);
    if (seen == 0 && !in->broken)
        ERROR(in, line, "principals.uids", "expected at least one uid, got an empty list");
}

static void read_principal_value(struct yaml_in *in, struct config_principal *p,
                                 enum principal_row row)
{
    char key[KEY_BYTES], why[CONFIG_ERROR_TEXT_MAX], shown[CONFIG__SHOWN_BYTES];
    const char *text = scalar(in), *name = principal_table[row].key;

    (void)!snprintf(key, sizeof(key), "principals.%s", name);
    if (text == NULL) {
        config_yaml_refuse(in, key,
                           row == ROW_GATEWAY || row == ROW_ADMIN ? "true or false" : "a name");
        return;
    }
    if (option_set(principal_table, ROWS, p, name, text, why, sizeof(why)) < 0) {
        ERROR(in, config_yaml_line_of(in), key, "%s", why);
    } else if ((row == ROW_NAME || row == ROW_TENANT) && !is_name(text)) {
        ERROR(in, config_yaml_line_of(in), key,
              "expected a name of letters, digits, '.', '_' and '-', got %s; for example 'vllm-1'",
              config__shown(text, shown));
    }
}

static void read_principal_row(struct yaml_in *in, struct config_principal *p, unsigned lines[ROWS])
{
    char key[KEY_BYTES], why[CONFIG_ERROR_TEXT_MAX];
    const struct option_desc *row;
    unsigned line;

    if (!read_key(in, key, &line))
        return;
    row = option_find(principal_table, ROWS, key);
    if (row == NULL) {
        if (option_set(principal_table, ROWS, NULL, key, "", why, sizeof(why)) == -ENOENT)
            ERROR(in, line, "principals", "%s", why);
        skip_value(in);
        return;
    }
    unsigned *seen = &lines[row - principal_table];
    if (*seen > 0) {
        ERROR(in, line, "principals", "'%s' is given twice, first in line %u", key, *seen);
        skip_value(in);
        return;
    }
    *seen = line;
    if (row == &principal_table[ROW_UIDS])
        read_uids(in, p);
    else
        read_principal_value(in, p, (enum principal_row)(row - principal_table));
}

static void check_principal(struct yaml_in *in, const struct config_principal *p,
                            const unsigned lines[ROWS])
{
    const struct config *cfg = in->l->cfg;

    if (lines[ROW_NAME] == 0)
        ERROR(in, p->line, "principals",
              "expected a name in every principal; for example 'name: vllm'");
    if (lines[ROW_UIDS] == 0)
        ERROR(in, p->line, "principals",
              "expected the uids of every principal; for example 'uids: [1000]'");
    for (unsigned i = 0; i < cfg->nprincipals; i++)
        if (&cfg->principals[i] != p && p->name[0] != '\0' &&
            strcmp(cfg->principals[i].name, p->name) == 0)
            ERROR(in, p->line, "principals.name",
                  "'%s' is the name of two principals, first in line %u", p->name,
                  cfg->principals[i].line);
}

static void read_principal(struct yaml_in *in)
{
    struct config *cfg = in->l->cfg;
    unsigned lines[ROWS] = {0};
    struct config_principal *p;

    if (in->ev.type != YAML_MAPPING_START_EVENT || tag_of(in) != NULL) {
        config_yaml_refuse(in, "principals", "a principal such as {name: vllm, uids: [1000]}");
        return;
    }
    if (cfg->nprincipals == CONFIG_PRINCIPALS_MAX) {
        ERROR(in, config_yaml_line_of(in), "principals", "expected at most %u principals",
              CONFIG_PRINCIPALS_MAX);
        skip_value(in);
        return;
    }
    p = &cfg->principals[cfg->nprincipals++];
    *p = (struct config_principal){.tenant = "default", .line = config_yaml_line_of(in)};
    while (next(in) != YAML_MAPPING_END_EVENT && !in->broken)
        read_principal_row(in, p, lines);
    if (!in->broken)
        check_principal(in, p, lines);
}

static void read_principals(struct yaml_in *in)
{
    const unsigned line = config_yaml_line_of(in);
    unsigned seen = 0;

    if (config_yaml_is_nothing(in))
        return;
    if (in->ev.type != YAML_SEQUENCE_START_EVENT || tag_of(in) != NULL) {
        config_yaml_refuse(in, "principals", "a list with one '- name: ...' per principal");
        return;
    }
    for (; next(in) != YAML_SEQUENCE_END_EVENT && !in->broken; seen++)
        read_principal(in);
    if (seen == 0 && !in->broken)
        ERROR(in, line, "principals",
              "expected at least one principal, got an empty list, with which nobody could attach; "
              "leave the key out to serve the daemon's own uid");
}

/* ---- quotas ---- */

#define QFIELD(member) OPTION_FIELD(struct config_quota, member)
static const struct option_desc quota_table[] = {
    {"tenant", OPT_STRING, QFIELD(tenant), .def = "", .help = "whose"},
    {"sub", OPT_STRING, QFIELD(sub), .def = "", .help = "one of its sub-tenants"},
    {"host", OPT_BYTES, QFIELD(host), .def = "0", .help = "limit in memory",
     .max = CONFIG_BYTES_MAX},
    {"nvme", OPT_BYTES, QFIELD(nvme), .def = "0", .help = "limit on storage",
     .max = CONFIG_BYTES_MAX},
    {"host_share", OPT_BYTES, QFIELD(host_share), .def = "0", .help = "guaranteed in memory",
     .max = CONFIG_BYTES_MAX},
    {"nvme_share", OPT_BYTES, QFIELD(nvme_share), .def = "0", .help = "guaranteed on storage",
     .max = CONFIG_BYTES_MAX},
};
#define QUOTA_ROWS ARRAY_LEN(quota_table)

static void read_quota_row(struct yaml_in *in, struct config_quota *q, bool seen[QUOTA_ROWS])
{
    char name[KEY_BYTES], key[2 * KEY_BYTES], why[CONFIG_ERROR_TEXT_MAX];
    unsigned line;

    if (!read_key(in, name, &line))
        return;
    (void)!snprintf(key, sizeof(key), "quotas.%s", name);
    const struct option_desc *row = option_find(quota_table, QUOTA_ROWS, name);
    const char *text = scalar(in);
    if (row != NULL && text == NULL) {
        config_yaml_refuse(in, key, "a single value");
        return;
    }
    if (row != NULL && seen[row - quota_table])
        ERROR(in, line, key, "given twice");
    else if (option_set(quota_table, QUOTA_ROWS, row != NULL ? q : NULL, name,
                        text != NULL ? text : "", why, sizeof(why)) < 0)
        ERROR(in, line, row != NULL ? key : "quotas", "%s", why);
    if (row != NULL)
        seen[row - quota_table] = true;
    else
        skip_value(in);
}

static void read_quota(struct yaml_in *in)
{
    struct config *cfg = in->l->cfg;
    bool seen[QUOTA_ROWS] = {false};

    if (in->ev.type != YAML_MAPPING_START_EVENT || tag_of(in) != NULL) {
        config_yaml_refuse(in, "quotas", "a quota such as {tenant: chat, host: 4GiB}");
        return;
    }
    if (cfg->nquotas == CONFIG_QUOTAS_MAX) {
        ERROR(in, config_yaml_line_of(in), "quotas", "expected at most %u quotas",
              CONFIG_QUOTAS_MAX);
        skip_value(in);
        return;
    }
    struct config_quota *q = &cfg->quotas[cfg->nquotas++];
    *q = (struct config_quota){
        .host = UINT64_MAX, .nvme = UINT64_MAX, .line = config_yaml_line_of(in)};
    while (next(in) != YAML_MAPPING_END_EVENT && !in->broken)
        read_quota_row(in, q, seen);
    if (!in->broken && q->tenant[0] == '\0')
        ERROR(in, q->line, "quotas", "expected a tenant in every quota");
}

static void read_quotas(struct yaml_in *in)
{
    if (config_yaml_is_nothing(in))
        return;
    if (in->ev.type != YAML_SEQUENCE_START_EVENT || tag_of(in) != NULL) {
        config_yaml_refuse(in, "quotas", "a list with one '- tenant: ...' per quota");
        return;
    }
    while (next(in) != YAML_SEQUENCE_END_EVENT && !in->broken)
        read_quota(in);
}

/* ---- options ---- */

/* The section of a key of the table. False: the key is in none. */
static bool section_of(const struct option_desc *d, char ret[KEY_BYTES])
{
    const char *dot = strchr(d->key, '.');

    if (dot == NULL)
        return false;
    (void)!snprintf(ret, KEY_BYTES, "%.*s", (int)(dot - d->key), d->key);
    return true;
}

static bool is_section(const char *name)
{
    char section[KEY_BYTES];

    OPTION_FOR_EACH (d, config_table, config_table_len)
        if (section_of(d, section) && strcmp(section, name) == 0)
            return true;
    return false;
}

/* Reports an unknown key at the top of a file, with the keys and sections that may be there. */
static void unknown_at_top(struct yaml_in *in, const char *key, unsigned line)
{
    char names[CONFIG_KEYS_MAX][KEY_BYTES];
    struct option_desc top[CONFIG_KEYS_MAX + 2] = {{.key = "principals"}, {.key = "quotas"}};
    char why[CONFIG_ERROR_TEXT_MAX];
    unsigned n = 2;

    OPTION_FOR_EACH (d, config_table, config_table_len) {
        if (!section_of(d, names[n - 2]))
            (void)!snprintf(names[n - 2], KEY_BYTES, "%s", d->key);
        top[n].key = names[n - 2];
        if (option_find(top, n, top[n].key) == NULL)
            n++;
    }
    if (option_set(top, n, NULL, key, "", why, sizeof(why)) == -ENOENT)
        ERROR(in, line, "", "%s", why);
}

/* Lines of the sections that were read already, to refuse a second one. */
struct seen {
    unsigned principals, quotas;
    struct {
        char name[KEY_BYTES];
        unsigned line;
    } sections[CONFIG_KEYS_MAX];
    unsigned nsections;
};

/* The line where this section was read before. 0: never; its line is noted now. */
static unsigned section_seen(struct seen *seen, const char *name, unsigned line)
{
    for (unsigned i = 0; i < seen->nsections; i++)
        if (strcmp(seen->sections[i].name, name) == 0)
            return seen->sections[i].line;
    MUST(seen->nsections < CONFIG_KEYS_MAX);
    (void)!snprintf(seen->sections[seen->nsections].name, KEY_BYTES, "%s", name);
    seen->sections[seen->nsections++].line = line;
    return 0;
}

/* Reads the value of a key of the table. */
static void read_option(struct yaml_in *in, const char *key, unsigned line)
{
    const unsigned i = config_key(key);
    const struct config_origin *origin = &in->l->cfg->origin[i];
    char expected[CONFIG_ERROR_TEXT_MAX];
    const char *text = scalar(in);

    if (origin->from != CONFIG_FROM_DEFAULT) {
        ERROR(in, line, key, "given twice, first in line %u", origin->line);
        skip_value(in);
    } else if (text == NULL) {
        if (in->ev.type == YAML_SEQUENCE_START_EVENT && (config_table[i].flags & OPTF_LIST))
            (void)!snprintf(expected, sizeof(expected),
                            "one text with commas in it, such as '%s: a, b'",
                            strrchr(key, '.') + 1);
        else if (option_expects(&config_table[i], expected, sizeof(expected)) < 0)
            (void)!snprintf(expected, sizeof(expected), "a value");
        config_yaml_refuse(in, key, expected);
    } else {
        config__set(in->l, NULL, line, key, text);
    }
}

static void refuse_section(struct yaml_in *in, const char *section)
{
    char expected[CONFIG_ERROR_TEXT_MAX], name[KEY_BYTES];
    const struct option_desc *example = NULL;
    OPTION_FOR_EACH (d, config_table, config_table_len)
        if (example == NULL && section_of(d, name) && strcmp(name, section) == 0)
            example = d;
    MUST(example != NULL);
    (void)!snprintf(expected, sizeof(expected),
                    "a section with keys indented below it, such as '%s: %s'",
                    example->key + strlen(section) + 1, example->def);
    config_yaml_refuse(in, section, expected);
}

static void read_section(struct yaml_in *in, const char *section, unsigned line, struct seen *seen)
{
    char name[KEY_BYTES], key[2 * KEY_BYTES + 1];
    const unsigned before = section_seen(seen, section, line);

    if (before > 0) {
        ERROR(in, line, section, "given twice, first in line %u", before);
        skip_value(in);
        return;
    }
    if (config_yaml_is_nothing(in))
        return;
    if (in->ev.type != YAML_MAPPING_START_EVENT || tag_of(in) != NULL) {
        refuse_section(in, section);
        return;
    }
    while (next(in) != YAML_MAPPING_END_EVENT && !in->broken) {
        if (!read_key(in, name, &line))
            continue;
        (void)!snprintf(key, sizeof(key), "%s.%s", section, name);
        if (option_find(config_table, config_table_len, key) != NULL) {
            read_option(in, key, line);
        } else {
            config__set(in->l, NULL, line, key, ""); /* reports the unknown key and a similar one */
            skip_value(in);
        }
    }
}

static void read_top(struct yaml_in *in)
{
    struct seen seen = {0};
    char key[KEY_BYTES];
    unsigned line;

    while (next(in) != YAML_MAPPING_END_EVENT && !in->broken) {
        if (!read_key(in, key, &line))
            continue;
        if (strcmp(key, "principals") == 0) {
            if (seen.principals > 0) {
                ERROR(in, line, key, "given twice, first in line %u", seen.principals);
                skip_value(in);
                continue;
            }
            seen.principals = line;
            read_principals(in);
        } else if (strcmp(key, "quotas") == 0) {
            if (seen.quotas > 0) {
                ERROR(in, line, key, "given twice, first in line %u", seen.quotas);
                skip_value(in);
                continue;
            }
            seen.quotas = line;
            read_quotas(in);
        } else if (is_section(key)) {
            read_section(in, key, line, &seen);
        } else if (option_find(config_table, config_table_len, key) != NULL) {
            read_option(in, key, line);
        } else {
            unknown_at_top(in, key, line);
            skip_value(in);
        }
    }
}

/* Refuses a file that is not keys and values: YAML reads another kind of file as a single value. */
static void refuse_root(struct yaml_in *in)
{
    static const char expected[] = "keys and values such as 'runtime_dir: /run/kvcache'";
    const char *hint = file_kind_text_hint(in->text, in->len);
    if (in->ev.type == YAML_SCALAR_EVENT && hint[0] != '\0')
        ERROR(in, config_yaml_line_of(in), "", "expected %s, got %s%s", expected,
              config_yaml_kind_of(in), hint);
    else
        config_yaml_refuse(in, "", expected);
}

static void read_document(struct yaml_in *in)
{
    if (next(in) == YAML_STREAM_START_EVENT && next(in) == YAML_DOCUMENT_START_EVENT) {
        next(in);
        if (in->ev.type == YAML_MAPPING_START_EVENT && tag_of(in) == NULL)
            read_top(in);
        else if (!config_yaml_is_nothing(in) && !in->broken)
            refuse_root(in);
        if (next(in) == YAML_DOCUMENT_END_EVENT && next(in) == YAML_DOCUMENT_START_EVENT)
            ERROR(in, config_yaml_line_of(in), "",
                  "expected one YAML document, got a second; remove the line '---' or '...' before "
                  "it");
    }
}

/* ---- the file ---- */

/* Returns 0, -EBADFD if fd is no regular file, or the error of fstat(). */
static int file_check(int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) ? 0 : -EBADFD;
}

/* The whole file, owned by the caller. -EFBIG beyond the limit, -EBADFD when it is no regular file,
 * or the errno of open or read. */
static int read_file(const char *path, unsigned char **ret_text, size_t *ret_len)
{
    const size_t cap = CONFIG_FILE_BYTES_MAX + 1;
    /* O_NONBLOCK: open() of a FIFO without a writer would block the daemon at a reload. */
    const int fd = sys_open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK, 0);
    unsigned char *text = NULL;
    size_t len = 0;
    ssize_t n = 0;
    int r;

    if (fd < 0)
        return -errno;
    r = file_check(fd);
    if (r < 0)
        goto out;
    text = sys_malloc(cap);
    if (text == NULL) {
        r = -ENOMEM;
        goto out;
    }
    while (len < cap && ((n = read(fd, text + len, cap - len)) > 0 || (n < 0 && errno == EINTR)))
        len += n > 0 ? (size_t)n : 0;
    if (len == cap)
        r = -EFBIG;
    else if (n < 0)
        r = -errno;
    if (r == 0) {
        *ret_text = text;
        *ret_len = len;
        text = NULL;
    }
out:
    free(text);
    close(fd);
    return r;
}

void config__yaml(struct config__load *l)
{
    struct yaml_in in = {.l = l};
    unsigned char *text = NULL;
    size_t len = 0;
    const int r = read_file(l->file, &text, &len);

    if (r == -EFBIG) {
        ERROR(&in, 0, "", "expected a configuration of at most 1MiB, got a larger file");
        return;
    }
    if (r == -EBADFD) {
        ERROR(&in, 0, "", "expected a regular file, got a directory, a FIFO or a device");
        return;
    }
    if (r < 0) {
        ERROR(&in, 0, "", "expected a file that can be read, got: %s", strerror(-r));
        return;
    }
    if (FAULT(alloc) || !yaml_parser_initialize(&in.parser)) {
        ERROR(&in, 0, "", "no memory to read it");
        free(text);
        return;
    }
    in.text = text;
    in.len = len;
    yaml_parser_set_encoding(&in.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&in.parser, text, len);
    read_document(&in);
    yaml_event_delete(&in.ev);
    yaml_parser_delete(&in.parser);
    free(text);
}

/* ---- quoting ---- */

static bool emit(yaml_emitter_t *emitter, yaml_event_t *ev, int made)
{
    return made && yaml_emitter_emit(emitter, ev);
}

/* The events of a document that is one scalar in double quotes. */
static bool emit_scalar(yaml_emitter_t *e, const char *text)
{
    yaml_event_t ev;

    return emit(e, &ev, yaml_stream_start_event_initialize(&ev, YAML_UTF8_ENCODING)) &&
           emit(e, &ev, yaml_document_start_event_initialize(&ev, NULL, NULL, NULL, 1)) &&
           emit(e, &ev,
                yaml_scalar_event_initialize(&ev, NULL, NULL, (const yaml_char_t *)text, -1, 1, 1,
                                             YAML_DOUBLE_QUOTED_SCALAR_STYLE)) &&
           emit(e, &ev, yaml_document_end_event_initialize(&ev, 1)) &&
           emit(e, &ev, yaml_stream_end_event_initialize(&ev));
}

int config__yaml_quote(const char *text, char *buf, size_t cap)
{
    yaml_emitter_t emitter;
    size_t len = 0;
    int r = 0;

    MUST(cap > 0);
    if (FAULT(alloc) || !yaml_emitter_initialize(&emitter))
        return -ENOMEM;
    yaml_emitter_set_output_string(&emitter, (unsigned char *)buf, cap - 1, &len);
    yaml_emitter_set_width(&emitter, -1);
    if (!emit_scalar(&emitter, text))
        r = emitter.error == YAML_WRITER_ERROR ? -ENOSPC : -EINVAL;
    yaml_emitter_delete(&emitter);
    if (r < 0)
        return r;
    buf[len] = '\0';
    buf[strcspn(buf, "\n")] = '\0';
    return 0;
}
