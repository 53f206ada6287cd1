/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <getopt.h>
#include <string.h>

#include "config.h"
#include "near.h"

#define PROGRAM "kvcache-daemon"

enum {
    OPT_CONFIG = 256,
    OPT_SET,
    OPT_CHECK,
    OPT_PRINT,
    OPT_HELP,
    OPT_VERSION,
    OPT_STORE,
    OPT_JOURNAL,
    OPT_QUICK,
    OPT_JSON
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"set", required_argument, NULL, OPT_SET},
    {"check-config", no_argument, NULL, OPT_CHECK},
    {"print-config", no_argument, NULL, OPT_PRINT},
    {"check-store", required_argument, NULL, OPT_STORE},
    {"journal", required_argument, NULL, OPT_JOURNAL},
    {"quick", no_argument, NULL, OPT_QUICK},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static const char *action_name(enum cli_action action)
{
    static const char *const names[] = {[CLI_RUN] = "",
                                        [CLI_CHECK_CONFIG] = "--check-config",
                                        [CLI_PRINT_CONFIG] = "--print-config",
                                        [CLI_CHECK_STORE] = "--check-store",
                                        [CLI_HELP] = "--help",
                                        [CLI_VERSION] = "--version"};
    return names[action];
}

static int set_action(struct cli *cli, enum cli_action action, char *why, size_t why_cap)
{
    if (cli->action != CLI_RUN && cli->action != action) {
        (void)!snprintf(why, why_cap, "expected one of %s and %s, got both",
                        action_name(cli->action), action_name(action));
        return -EINVAL;
    }
    cli->action = action;
    return 0;
}

static int cli_take(struct cli *cli, int opt, char *why, size_t why_cap)
{
    switch (opt) {
    case 'h':
    case OPT_HELP:
        return set_action(cli, CLI_HELP, why, why_cap);
    case OPT_VERSION:
        return set_action(cli, CLI_VERSION, why, why_cap);
    case OPT_CHECK:
        return set_action(cli, CLI_CHECK_CONFIG, why, why_cap);
    case OPT_PRINT:
        return set_action(cli, CLI_PRINT_CONFIG, why, why_cap);
    case OPT_STORE:
        cli->store = optarg;
        return set_action(cli, CLI_CHECK_STORE, why, why_cap);
    case OPT_JOURNAL:
        cli->journal = optarg;
        return 0;
    case OPT_QUICK:
        cli->quick = true;
        return 0;
    case OPT_JSON:
        cli->json = true;
        return 0;
    case OPT_CONFIG:
        if (cli->config != NULL) {
            (void)!snprintf(why, why_cap, "expected one --config, got '%s' and '%s'", cli->config,
                            optarg);
            return -EINVAL;
        }
        cli->config = optarg;
        return 0;
    case OPT_SET:
        if (cli->nsets == CLI_SETS_MAX) {
            (void)!snprintf(why, why_cap, "expected at most %u times --set; use a file",
                            CLI_SETS_MAX);
            return -EINVAL;
        }
        cli->sets[cli->nsets++] = optarg;
        return 0;
    default:
        MUST(false);
    }
}

static void cli_refuse(int opt, const char *got, char *why, size_t why_cap)
{
    char name[NEAR_BYTES_MAX + 1] = "";
    if (strncmp(got, "--", 2) == 0)
        (void)!snprintf(name, sizeof name, "%.*s", (int)strcspn(got + 2, "="), got + 2);
    struct near near = near_to(name);
    for (const struct option *o = long_options; o->name != NULL; o++)
        near_offer(&near, o->name);
    if (opt == ':')
        (void)!snprintf(why, why_cap, "expected a value after '%s'; see " PROGRAM " --help", got);
    else if (near.best != NULL && strcmp(near.best, name) == 0)
        (void)!snprintf(why, why_cap, "--%s takes no value", name);
    else if (near.best != NULL)
        (void)!snprintf(why, why_cap, "no option '%s'; did you mean --%s?", got, near.best);
    else
        (void)!snprintf(why, why_cap, "no option '%s'; see " PROGRAM " --help", got);
}

int cli_parse(int argc, char **argv, struct cli *ret, char *why, size_t why_cap)
{
    struct cli cli = {.action = CLI_RUN};
    int opt, at, r;

    opterr = 0;
    optind = 0; /* glibc: start anew */
    for (;;) {
        at = MAX(optind, 1);
        opt = getopt_long(argc, argv, "+:h", long_options, NULL);
        if (opt == -1)
            break;
        if (opt == '?' || opt == ':') {
            cli_refuse(opt, argv[at], why, why_cap);
            return -EINVAL;
        }
        r = cli_take(&cli, opt, why, why_cap);
        if (r < 0)
            return r;
    }
    if (optind < argc) {
        (void)!snprintf(why, why_cap,
                        "expected options alone, got '%s'; a file goes after --config",
                        argv[optind]);
        return -EINVAL;
    }
    if (cli.action != CLI_CHECK_STORE && (cli.journal != NULL || cli.quick || cli.json)) {
        (void)!snprintf(why, why_cap, "%s goes with --check-store",
                        cli.journal != NULL ? "--journal"
                        : cli.quick         ? "--quick"
                                            : "--json");
        return -EINVAL;
    }
    *ret = cli;
    return 0;
}

void cli_print_version(FILE *out)
{
    (void)!fprintf(out, PROGRAM " " KVC_VERSION " (protocol %u to %u)\n", KVC_PROTO_MIN,
                   KVC_PROTO_MAX);
}

static const char usage[] =
    "Usage: " PROGRAM " [--config FILE] [--set KEY=VALUE]...\n"
    "       " PROGRAM " --check-config | --print-config [--config FILE] [--set KEY=VALUE]...\n"
    "       " PROGRAM " --check-store PATH[,PATH]... [--journal DIR] [--quick] [--json]\n"
    "\n"
    "Keeps the KV cache of the LLM inference workers on this node: they store blocks, look up the\n"
    "longest cached prefix of a prompt, and read it in place instead of computing it again.\n"
    "It runs in the foreground and logs to stderr. Workers attach at RUNTIME_DIR/attach.sock.\n"
    "\n"
    "Options\n"
    "  --config FILE      YAML; without it the defaults below hold. etc/daemon.yaml explains each "
    "key\n"
    "  --set KEY=VALUE    after the file, in order; may be repeated\n"
    "  --check-config     say whether it would start here with this configuration, as the user who "
    "asks,\n"
    "                     then exit; changes nothing\n"
    "  --print-config     print the configuration in effect, and where each value came from\n"
    "  --check-store PATH[,PATH]  read a store (nvme.paths) that no daemon has open, change "
    "nothing,\n"
    "                     and say what in it is damaged\n"
    "  --journal DIR      of --check-store: where its journal is (nvme.journal)\n"
    "  --quick            of --check-store: tables alone, not the payload\n"
    "  --json             of --check-store: one JSON object\n"
    "  --version          print the version and the protocol versions it speaks\n"
    "  -h, --help         this text\n"
    "\n"
    "Signals\n"
    "  SIGTERM, SIGINT    take no new work, finish what runs (drain.timeout at most), exit\n"
    "  SIGHUP             read the configuration again: log.level, log.json, drain.timeout,\n"
    "                     hbm.exit_when_lost and quotas are taken; what needs a restart is logged\n"
    "  SIGQUIT            write the flight recorder to RUNTIME_DIR/flight.txt and go on\n"
    "  SIGUSR1, SIGUSR2   ignored\n"
    "\n"
    "Exit status: 0 done; 1 could not start, or stopped by an error, or --check-store found "
    "damage;\n"
    "2 wrong command line or configuration, nothing was started.\n"
    "\n"
    "Examples\n"
    "  " PROGRAM " --config /etc/kvcache/daemon.yaml\n"
    "  " PROGRAM " --set runtime_dir=$XDG_RUNTIME_DIR/kvcache --set host.limit=4GiB\n"
    "  " PROGRAM " --check-config --config /etc/kvcache/daemon.yaml\n"
    "  " PROGRAM " --print-config --set memory.budget=32GiB > daemon.yaml\n"
    "  " PROGRAM " --check-store /mnt/nvme0,/mnt/nvme1\n"
    "\n"
    "Sizes are like 64GiB, 512MiB or 10GB, durations like 250ms or 10s. Who may attach is the "
    "list\n"
    "'principals', which only the file can hold; without it, processes of the daemon's own uid.\n"
    "\n"
    "Keys (default)\n";

void cli_print_help(FILE *out)
{
    (void)!fputs(usage, out);
    OPTION_FOR_EACH (d, config_table, config_table_len)
        (void)!fprintf(out, "  %s (%s)\n      %s\n", d->key, d->def[0] != '\0' ? d->def : "empty",
                       d->help);
}
