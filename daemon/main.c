/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcache-daemon: takes the options, reads the configuration, prints the memory budget, and runs
 * the node until it is told to stop.
 */
#include <stdlib.h>
#include <string.h>

#include "check_store.h"
#include "cli.h"
#include "fault.h"
#include "flight.h"
#include "log.h"
#include "node.h"
#include "node_check.h"
#include "node_config.h"

static int print_config(const struct config *cfg)
{
    if (config_print(cfg, stdout) == 0)
        return CLI_EXIT_OK;
    fprintf(stderr, "kvcache-daemon: the configuration could not be written to standard output\n");
    return CLI_EXIT_FAILED;
}

/* With log.json, tables and errors are lines of the log, from which a collector reads JSON alone.
 */
static void tell_budget(const struct config *cfg, const struct budget *budget)
{
    char table[BUDGET_TABLE_BYTES];
    budget_format(budget, table, sizeof(table));
    if (!cfg->log.json) {
        fputs(table, stderr);
        return;
    }
    for (char *rest = table, *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';)
        LOG_INFO("memory: %s", line + strspn(line, " "));
}

static void tell_errors(const struct config *cfg, const struct config_errors *errors)
{
    if (cfg->log.json)
        config_errors_log(errors, "");
    else
        config_errors_print(errors, stderr);
}

/* Decides what is "auto" and shows what memory it comes to. */
static int resolve(struct config *cfg, bool quiet)
{
    struct budget_limit limit;
    struct budget budget;
    struct config_errors errors;
    int err = budget_memory_limit("", &limit);
    if (err) {
        fprintf(stderr, "kvcache-daemon: /proc/meminfo and the files of the cgroup: %s\n",
                err_name(err));
        return CLI_EXIT_FAILED;
    }
    err = config_resolve_auto(cfg, &limit, node_budget_inputs, NULL, &budget, &errors);
    if (budget.nlines && (!quiet || err))
        tell_budget(cfg, &budget);
    if (!err)
        return CLI_EXIT_OK;
    tell_errors(cfg, &errors);
    return CLI_EXIT_USAGE;
}

static int main_serve(struct config *cfg)
{
    struct node *n;
    int err = node_start(cfg, &n);
    if (err)
        return err == -ECANCELED ? CLI_EXIT_OK : CLI_EXIT_FAILED;
    err = node_run(n);
    node_stop(&n);
    return err ? CLI_EXIT_FAILED : CLI_EXIT_OK;
}

static int with_config(const struct cli *cli)
{
    static struct config cfg;
    static struct config_errors errors;
    if (config_load(cli->config, cli->sets, cli->nsets, &cfg, &errors)) {
        config_errors_print(&errors, stderr);
        return CLI_EXIT_USAGE;
    }
    log_init((enum log_level)cfg.log.level, 2, cfg.log.json);
    int rc = resolve(&cfg, cli->action != CLI_RUN);
    if (rc)
        return rc;
    if (cli->action != CLI_PRINT_CONFIG && !node_check(&cfg))
        return cli->action == CLI_RUN ? CLI_EXIT_FAILED : CLI_EXIT_USAGE;
    switch (cli->action) {
    case CLI_CHECK_CONFIG:
        printf("%s: ok\n", cli->config ? cli->config : "built-in configuration");
        return CLI_EXIT_OK;
    case CLI_PRINT_CONFIG:
        return print_config(&cfg);
    default:
        return main_serve(&cfg);
    }
}

int main(int argc, char **argv)
{
    struct cli cli;
    const int rc = cli_parse(argc, argv, &cli);
    if (rc != 0)
        return rc < 0 ? CLI_EXIT_OK : rc;
    if (fault_from_env()) {
        fprintf(stderr, "kvcache-daemon: KVC_FAULT: expected \"point:N\", for example \"map:3\" or "
                        "\"read:5-9=ENOSPC\"\n");
        return CLI_EXIT_USAGE;
    }
    return cli.action == CLI_CHECK_STORE ? check_store(&cli) : with_config(&cli);
}
