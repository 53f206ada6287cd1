/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <getopt.h>

#include "args.h"
#include "config.h"

static const char help[] =
    "Usage: kvcache-daemon [--config FILE] [--set KEY=VALUE]...\n"
    "       kvcache-daemon --check-config | --print-config [--config FILE] [--set KEY=VALUE]...\n"
    "       kvcache-daemon --check-store PATH[,PATH]... [--journal DIR] [--quick] [--json]\n"
    "\n"
    "Keeps the KV cache of the LLM inference workers on this node: they store blocks, look up the "
    "longest cached prefix of a prompt, and read it in place instead of computing it again. It "
    "runs in the foreground and logs to stderr. Workers attach at RUNTIME_DIR/attach.sock.\n"
    "\n"
    "Options\n" ARGS_HERE "\n"
    "Signals\n"
    "  SIGTERM, SIGINT    take no new work, finish what runs (drain.timeout at most), exit\n"
    "  SIGHUP             read the configuration again: log.level, log.json, drain.timeout,\n"
    "                     hbm.exit_when_lost and quotas are taken; what needs a restart is logged\n"
    "  SIGQUIT            write the flight recorder to RUNTIME_DIR/flight.txt and go on\n"
    "  SIGUSR1, SIGUSR2   ignored\n"
    "\n"
    "Exit status: 0 done; 1 could not start, or stopped by an error, or --check-store found "
    "damage; 2 wrong command line or configuration, nothing was started.\n"
    "\n"
    "Examples\n"
    "  kvcache-daemon --config /etc/kvcache/daemon.yaml\n"
    "  kvcache-daemon --set runtime_dir=$XDG_RUNTIME_DIR/kvcache --set host.limit=4GiB\n"
    "  kvcache-daemon --check-config --config /etc/kvcache/daemon.yaml\n"
    "  kvcache-daemon --print-config --set memory.budget=32GiB > daemon.yaml\n"
    "  kvcache-daemon --check-store /mnt/nvme0,/mnt/nvme1\n"
    "\n"
    "Sizes are like 64GiB, 512MiB or 10GB, durations like 250ms or 10s. Who may attach is the list "
    "'principals', which only the file can hold; without it, processes of the daemon's own uid.\n"
    "\n"
    "Keys (default)\n";

static int take_set(void *ctx, const char *text)
{
    struct cli *cli = ctx;
    if (cli->nsets == CLI_SETS_MAX)
        return args_usage("expected at most %u times --set; use a file", CLI_SETS_MAX);
    cli->sets[cli->nsets++] = text;
    return 0;
}

static int take_action(struct cli *cli, enum cli_action action)
{
    static const char *const names[] = {"", "--check-config", "--print-config", "--check-store"};
    if (cli->action != CLI_RUN && cli->action != action)
        return args_usage("expected one of %s and %s, got both", names[cli->action], names[action]);
    cli->action = action;
    return 0;
}

static int take_check(void *ctx, const char *none)
{
    (void)none;
    return take_action(ctx, CLI_CHECK_CONFIG);
}

static int take_print(void *ctx, const char *none)
{
    (void)none;
    return take_action(ctx, CLI_PRINT_CONFIG);
}

static int take_store(void *ctx, const char *paths)
{
    ((struct cli *)ctx)->store = paths;
    return take_action(ctx, CLI_CHECK_STORE);
}

#define SERVED (-2) /* --version was served; -1: --help was */
static int show_version(void *ctx, const char *none)
{
    (void)ctx;
    (void)none;
    printf("kvcache-daemon " KVC_VERSION " (protocol %u to %u)\n", KVC_PROTO_MIN, KVC_PROTO_MAX);
    return SERVED;
}

static const struct arg option_table[] = {
    {"--config FILE", "YAML; without it the defaults below hold. etc/daemon.yaml explains each key",
     ARG_TEXT(struct cli, config)},
    {"--set KEY=VALUE", "after the file, in order; may be repeated", ARG_DO(take_set), ARG_REPEATS},
    {"--check-config",
     "say whether it would start here with this configuration, as the user who asks, then exit; "
     "changes nothing. Stores are not read: that one is of other principals, or of another secret, "
     "the start finds, and damage --check-store",
     ARG_DO(take_check)},
    {"--print-config", "print the configuration in effect, and where each value came from",
     ARG_DO(take_print)},
    {"--check-store PATH[,PATH]",
     "read a store (nvme.paths) that no daemon has open, change nothing, and say what in it is "
     "damaged",
     ARG_DO(take_store)},
    {"--journal DIR", "of --check-store: where its journal is (nvme.journal)",
     ARG_TEXT(struct cli, journal)},
    {"--quick", "of --check-store: tables alone, not the payload", ARG_FLAG(struct cli, quick)},
    {"--json", "of --check-store: one JSON object", ARG_FLAG(struct cli, json)},
    {"--version", "print the version and the protocol versions it speaks", ARG_DO(show_version)},
    {"--help", "this text", ARG_SHOWN},
    {0},
};

int cli_parse(int argc, char **argv, struct cli *ret)
{
    struct cli cli = {.action = CLI_RUN};
    const struct command_line line = {.options = option_table,
                                      .base = &cli,
                                      .help = help,
                                      .usage = args_usage,
                                      .stop_early = true};
    const int rc = args_take(&line, argc, argv);
    OPTION_FOR_EACH (d, config_table, rc == -1 ? config_table_len : 0)
        printf("  %s (%s)\n      %s\n", d->key, d->def[0] != '\0' ? d->def : "empty", d->help);
    if (rc != 0)
        return rc;
    if (optind < argc)
        return args_usage("expected options alone, got '%s'; a file goes after --config",
                          argv[optind]);
    if (cli.action != CLI_CHECK_STORE && (cli.journal != NULL || cli.quick || cli.json))
        return args_usage("%s goes with --check-store", cli.journal != NULL ? "--journal"
                                                        : cli.quick         ? "--quick"
                                                                            : "--json");
    *ret = cli;
    return 0;
}
