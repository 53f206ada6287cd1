/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "infile.h"
#include "near.h"
#include "plain.h"
#include "stdfds.h"
#include "units.h"

static const char *command = "";
static uint32_t asked_ns; /* the last --ns; 0 = none */

void ctl_set_command(const char *name)
{
    command = name;
}

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list args)
{
    (void)stdfds_flush();
    fprintf(stderr, "kvcachectl%s%s: ", command[0] ? " " : "", command);
    plain_line(stderr, format, args);
}

void ctl_line(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    plain_line(stdout, format, args);
    va_end(args);
}

void ctl_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int ctl_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    fprintf(stderr, "Try 'kvcachectl%s%s --help'.\n", command[0] ? " " : "", command);
    return CTL_USAGE;
}

static int unknown_option(const char *text, const struct option *options)
{
    char name[64];
    if (strncmp(text, "--", 2) != 0)
        return ctl_usage("'%s' is not understood", text);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text + 2, "="), text + 2);
    struct near near = near_to(name);
    for (const struct option *o = options; o->name; o++)
        near_offer(&near, o->name);
    if (near.best && strcmp(near.best, name) == 0)
        return ctl_usage("'%s' is not understood: --%s takes no value", text, name);
    if (near.best)
        return ctl_usage("'%s' is not understood; did you mean --%s?", text, near.best);
    return ctl_usage("'%s' is not understood", text);
}

static int take_timeout(struct ctl *ctl, const char *text)
{
    const char *why = "";
    uint64_t ns;
    if (units_parse_duration(text, &ns, &why) < 0)
        return ctl_usage("--timeout %s: %s", text, why);
    uint64_t ms = ns / 1000000;
    if (ms == 0 || ms > KVC_DEADLINE_MAX_MS)
        return ctl_usage("--timeout %s: must be from 1ms to %u min", text,
                         KVC_DEADLINE_MAX_MS / 60000);
    ctl->timeout_ms = (uint32_t)ms;
    return 0;
}

/* The word with the option that getopt has just refused. It stays at a word of several letters, as
 * in -xyz, until it has gone through them. */
static const char *refused_word(char **argv)
{
    const char *last = argv[optind - 1], *next = argv[optind];
    char letter = (char)optopt; /* 0 or a number above all letters: it was a long option */
    bool is_letter = optopt != 0 && optopt < 256;
    bool in_last =
        last[0] == '-' && (strchr(last, '=') != NULL || last[strlen(last) - 1] == letter);
    bool in_next = next != NULL && next[0] == '-' && next[1] != '-' && is_letter &&
                   strchr(next + 1, letter) != NULL;
    return in_next && !in_last ? next : last;
}

int ctl_options(struct ctl *ctl, int argc, char **argv, const char *short_options,
                const struct option *options, const char *help,
                int (*take)(void *ctx, int c, const char *value), void *ctx)
{
    int c, rc = 0;
    optind = 0; /* glibc: start anew */
    opterr = 0;
    while (rc == 0 && (c = getopt_long(argc, argv, short_options, options, NULL)) != -1) {
        switch (c) {
        case 256:
            ctl->socket = optarg;
            break;
        case 257:
            rc = take_timeout(ctl, optarg);
            break;
        case 258:
            ctl->json = true;
            break;
        case 259:
            printf("kvcachectl " KVC_VERSION " (protocol %u to %u)\n", KVC_PROTO_MIN,
                   KVC_PROTO_MAX);
            return -1;
        case 'h':
            fputs(help, stdout);
            return -1;
        case ':':
            return ctl_usage("%s needs a value", argv[optind - 1]);
        case '?':
            return unknown_option(refused_word(argv), options);
        default:
            rc =
                take ? take(ctx, c, optarg) : ctl_usage("'%s' is not understood", argv[optind - 1]);
        }
    }
    return rc;
}

int ctl_options_only(struct ctl *ctl, int argc, char **argv, const struct option *options,
                     const char *help, int (*take)(void *ctx, int c, const char *value), void *ctx)
{
    const int rc = ctl_options(ctl, argc, argv, ":h", options, help, take, ctx);
    return rc == 0 && optind < argc ? ctl_usage("'%s' is not understood", argv[optind]) : rc;
}

int ctl_verbs(struct ctl *ctl, int argc, char **argv, const char *help, const struct ctl_cmd *verbs)
{
    static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
    static char full[64];
    int rc = ctl_options(ctl, argc, argv, "+:h", options, help, NULL, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    if (optind == argc) {
        char all[160] = "";
        size_t n = 0;
        for (const struct ctl_cmd *v = verbs; v->name && n < sizeof(all); v++)
            n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n ? ", " : "", v->name);
        return ctl_usage("what? Say one of %s", all);
    }
    const char *name = argv[optind];
    struct near near = near_to(name);
    for (const struct ctl_cmd *v = verbs; v->name; v++) {
        near_offer(&near, v->name);
        if (strcmp(v->name, name) != 0)
            continue;
        snprintf(full, sizeof(full), "%s %s", command, name);
        ctl_set_command(full);
        return v->run(ctl, argc - optind, argv + optind);
    }
    if (near.best)
        return ctl_usage("'%s' is not understood; did you mean '%s'?", name, near.best);
    return ctl_usage("'%s' is not understood", name);
}

int ctl_take_bytes(const char *name, const char *text, uint64_t *ret_bytes)
{
    const char *why = "";
    if (units_parse_bytes(text, ret_bytes, &why) < 0)
        return ctl_usage("--%s %s: %s", name, text, why);
    return 0;
}

int ctl_take_ms(const char *name, const char *text, uint64_t *ret_ms)
{
    const char *why = "";
    uint64_t ns;
    if (units_parse_duration(text, &ns, &why) < 0)
        return ctl_usage("--%s %s: %s", name, text, why);
    if (ns < 1000000)
        return ctl_usage("--%s %s: must be at least 1ms", name, text);
    *ret_ms = ns / 1000000;
    return 0;
}

FILE *ctl_open(const char *path)
{
    FILE *file = NULL;
    const char *why;
    if (infile_open(path, &file, &why) < 0)
        (void)ctl_usage("%s: %s", path, why);
    return file;
}

int ctl_take_count(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
    const char *why = "";
    uint64_t value;
    if (units_parse_count(text, &value, &why) < 0)
        return ctl_usage("--%s %s: %s", name, text, why);
    if (value < min || value > max)
        return ctl_usage("--%s %s: must be from %llu to %llu", name, text, (unsigned long long)min,
                         (unsigned long long)max);
    *ret = value;
    return 0;
}

int ctl_take_ns(const char *text, uint32_t *ret_ns)
{
    const char *why = "";
    uint64_t value;
    if (units_parse_count(text, &value, &why) < 0)
        return ctl_usage("--ns %s: %s; 'kvcachectl ns' lists them", text, why);
    if (value == 0 || value > UINT32_MAX)
        return ctl_usage("--ns %s: no such namespace can be; 'kvcachectl ns' lists them", text);
    *ret_ns = asked_ns = (uint32_t)value;
    return 0;
}

const char *ctl_socket(const struct ctl *ctl)
{
    if (ctl->socket)
        return ctl->socket;
    const char *set = getenv("KVCACHE_SOCKET");
    return set && set[0] ? set : "/run/kvcache/attach.sock";
}

const char *ctl_tier_names(unsigned tiers)
{
    static const char *const names[] = {"-",   "host",     "nvme",     "host+nvme",
                                        "hbm", "hbm+host", "hbm+nvme", "hbm+host+nvme"};
    return tiers < sizeof(names) / sizeof(names[0]) ? names[tiers] : "?";
}

int ctl_exit_code(int error)
{
    switch (error) {
    case KVC_E_DOWN:
    case KVC_E_TIMEOUT:
    case KVC_E_SHUTDOWN:
    case -ENOENT:
    case -ECONNREFUSED:
    case -ETIMEDOUT:
        return CTL_DOWN;
    case KVC_E_DENIED:
    case -EACCES:
    case -EPERM:
        return CTL_DENIED;
    case KVC_E_NO_NAMESPACE:
        return CTL_NOTHING;
    default:
        return CTL_FAILED;
    }
}

/* "BAD_ARGUMENT: text", unless the text says so itself. */
static void say_named(int error, const char *text)
{
    const char *name = kvc_error_name(error);
    size_t n = strlen(name);
    bool has_name = strncmp(text, name, n) == 0 && text[n] == ':';
    if (error == KVC_E_NO_NAMESPACE && asked_ns)
        ctl_error("there is no namespace %u that you may see; 'kvcachectl ns' lists them",
                  asked_ns);
    else
        ctl_error("%s%s%s", has_name ? "" : name, has_name ? "" : ": ", text);
}

int ctl_fail(const struct ctl *ctl, int error)
{
    const char *text = kvc_last_error(ctl->kvc);
    int code = ctl_exit_code(error);
    if (text[0] == '\0')
        text = kvc_error_text(error);
    if (error == KVC_E_TIMEOUT)
        ctl_error(
            "the daemon at %s did not answer within %u ms; allow more with --timeout, or look "
            "at its log",
            ctl_socket(ctl), ctl->timeout_ms);
    else if (code == CTL_DOWN && strncmp(text, "no daemon", 9) == 0)
        ctl_error("%s: is kvcache-daemon running? Start it ('kvcache-daemon --config "
                  "/etc/kvcache/daemon.yaml'), or name its socket with --socket",
                  text);
    else if (code == CTL_DOWN)
        ctl_error("%s; the daemon's log (its standard error) says more", text);
    else if (code == CTL_DENIED)
        ctl_error("denied by the daemon at %s: %s", ctl_socket(ctl), text);
    else
        say_named(error, text);
    return code;
}

int ctl_connect(struct ctl *ctl)
{
    struct kvc_options options = {.socket = ctl->socket,
                                  .name = "kvcachectl",
                                  .timeout_ms = ctl->timeout_ms,
                                  .must_connect = true};
    int rc = kvc_open(&options, &ctl->kvc);
    return rc < 0 ? ctl_fail(ctl, rc) : 0;
}
