/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines of kvcachectl: the error texts of a wrong one, options that commands share, and
 * their values.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "infile.h"
#include "plain.h"
#include "similar.h"
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

static int print_version(void *ctx, const char *none)
{
    (void)ctx;
    (void)none;
    printf("kvcachectl " KVC_VERSION " (protocol %u to %u)\n", KVC_PROTO_MIN, KVC_PROTO_MAX);
    return -1;
}

static const struct arg common[] = {
    {"--socket PATH",
     "the daemon's attach socket (default $KVCACHE_SOCKET, or else /run/kvcache/attach.sock)",
     ARG_TEXT(struct ctl, socket)},
    {"--timeout TIME", "how long to wait for an answer, as in 500ms or 5s (default 5s)",
     ARG_MS(struct ctl, timeout_ms, 1, KVC_DEADLINE_MAX_MS)},
    {"--json", "JSON on stdout, for programs", ARG_FLAG(struct ctl, json)},
    {"--help", "of the command, with examples", ARG_SHOWN},
    {"--version", "", ARG_DO(print_version)},
    {0},
};

int ctl_options(struct ctl *ctl, int argc, char **argv, const struct arg *options, const char *help,
                void *base)
{
    const struct command_line line = {.options = options,
                                      .base = base,
                                      .shared = common,
                                      .shared_base = ctl,
                                      .help = help,
                                      .usage = ctl_usage};
    return args_take(&line, argc, argv);
}

int ctl_options_only(struct ctl *ctl, int argc, char **argv, const struct arg *options,
                     const char *help, void *base)
{
    const int rc = ctl_options(ctl, argc, argv, options, help, base);
    return rc == 0 && optind < argc ? ctl_usage("'%s' is not understood", argv[optind]) : rc;
}

void ctl_help(FILE *to, const char *help)
{
    args_help(to, help, common);
}

int ctl_options_before(struct ctl *ctl, int argc, char **argv, const struct arg *listed,
                       const char *help)
{
    const struct command_line line = {.options = listed,
                                      .shared = common,
                                      .shared_base = ctl,
                                      .help = help,
                                      .usage = ctl_usage,
                                      .stop_early = true};
    return args_take(&line, argc, argv);
}

int ctl_verbs(struct ctl *ctl, int argc, char **argv, const struct arg *listed, const char *help,
              const struct ctl_cmd *verbs)
{
    static char full[64];
    int rc = ctl_options_before(ctl, argc, argv, listed, help);
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
    struct similar similar = similar_to(name);
    for (const struct ctl_cmd *v = verbs; v->name; v++) {
        similar_offer(&similar, v->name);
        if (strcmp(v->name, name) != 0)
            continue;
        snprintf(full, sizeof(full), "%s %s", command, name);
        ctl_set_command(full);
        return v->run(ctl, argc - optind, argv + optind);
    }
    if (similar.best)
        return ctl_usage("'%s' is not understood; did you mean '%s'?", name, similar.best);
    return ctl_usage("'%s' is not understood", name);
}

FILE *ctl_open(const char *path)
{
    FILE *file = NULL;
    const char *why;
    if (infile_open(path, &file, &why) < 0)
        (void)ctl_usage("%s: %s", path, why);
    return file;
}

int ctl_take_ns(void *at, const char *text)
{
    const char *why = "";
    uint64_t value;
    if (units_parse_count(text, &value, &why) < 0)
        return ctl_usage("--ns %s: %s; 'kvcachectl ns' lists them", text, why);
    if (value == 0 || value > UINT32_MAX)
        return ctl_usage("--ns %s: no such namespace can be; 'kvcachectl ns' lists them", text);
    *(uint32_t *)at = asked_ns = (uint32_t)value;
    return 0;
}

int ctl_parse_size(const char *text, void *at, const char **ret_why)
{
    struct ctl_size *size = at;
    size->given = true;
    size->bytes = UINT64_MAX;
    return strcmp(text, "none") == 0 ? 0 : units_parse_bytes(text, &size->bytes, ret_why);
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

/* The exit code that fits an error of the library. Pure. */
static int ctl_exit_code(int error)
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

/* Prints "BAD_ARGUMENT: text"; the text alone if it has the name already. */
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
