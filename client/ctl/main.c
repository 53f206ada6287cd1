/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachectl: takes the options of all commands, finds the command and runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"
#include "similar.h"
#include "stdfds.h"

static const struct ctl_cmd commands[] = {
    {"ping", cmd_ping},         {"stats", cmd_stats},
    {"top", cmd_top},           {"ns", cmd_ns},
    {"explain", cmd_explain},   {"blocks", cmd_blocks},
    {"verify", cmd_verify},     {"drain", cmd_drain},
    {"trace", cmd_trace},       {"doc", cmd_doc},
    {"conv", cmd_conv},         {"pin", cmd_pin},
    {"quota", cmd_quota},       {"policy", cmd_policy},
    {"usage", cmd_usage},       {"evict", cmd_evict},
    {"gpu", cmd_gpu},           {"size", cmd_size},
    {"sessions", cmd_sessions},
};

static const char help[] =
    "Usage: kvcachectl [OPTIONS] COMMAND [ARGS]\n"
    "\n"
    "Looks into a running kvcache-daemon, and says what it keeps.\n"
    "\n"
    "Commands:\n"
    "  ping     whether the daemon answers, and since when it runs\n"
    "  stats    the daemon's statistics: blocks, bytes, hits, sessions\n"
    "  top      what happens now: requests, hits, bytes moved, tiers, who holds the room\n"
    "  ns       namespaces: models, tenants, the bytes of each\n"
    "  explain  where a block is, or why it is not cached\n"
    "  blocks   cached blocks: before a block, behind it, or the first of each sequence\n"
    "  verify   read every block again, compare checksums, drop corrupt blocks\n"
    "  drain    write all blocks that only memory has to storage, before a stop\n"
    "  trace    record workers' requests, and write them to a file for a replay\n"
    "  doc      documents: KV under a name, kept, loaded ahead, taken to another daemon\n"
    "  conv     conversations: what was said so far, under a name\n"
    "  pin      pins: blocks that are not evicted, for a time or until the pin is removed\n"
    "  quota    quotas: how much tenants and namespaces may hold, and are guaranteed\n"
    "  policy   how the daemon decides what stays; some settings can be changed while it runs\n"
    "  usage    who holds the room, by tier\n"
    "  sessions connected workers: what they hold, since when; ends a session\n"
    "  gpu      the daemon's devices: in service or not, what they hold, how fast they copy\n"
    "  evict    evict blocks by namespace, key, tenant, model, age, priority or amount\n"
    "  size     how large a model's KV cache is, and what fits where; needs no daemon\n"
    "\n"
    "Options of every command, before or after its name:\n" ARGS_HERE "\n"
    "Exit codes:\n"
    "  0 good    1 nothing matched, not cached, no such name, or drain left something\n"
    "  2 usage   3 no daemon\n"
    "  4 denied  5 any other error  6 corrupt blocks found\n"
    "\n"
    "Examples:\n"
    "  kvcachectl ping\n"
    "  kvcachectl top\n"
    "  kvcachectl evict --older-than 10min --dry-run\n"
    "\n"
    "Colour is used on a terminal only, and not when NO_COLOR is set.\n";

static const struct ctl_cmd *main_find(const char *name)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static bool wants_colour(void)
{
    const char *no = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no && no[0]) && !(term && strcmp(term, "dumb") == 0);
}

static int unknown_command(const char *name)
{
    struct similar similar = similar_to(name);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        similar_offer(&similar, commands[i].name);
    if (similar.best)
        return ctl_usage("no command '%s'; did you mean '%s'?", name, similar.best);
    return ctl_usage("no command '%s'", name);
}

static int ctl_run(struct ctl *ctl, int argc, char **argv)
{
    if (argc == 0) {
        ctl_help(stderr, help);
        return CTL_USAGE;
    }
    const char *name = argv[0];
    if (strcmp(name, "help") == 0) {
        ctl_help(stdout, help);
        return CTL_OK;
    }
    const struct ctl_cmd *cmd = main_find(name);
    if (!cmd)
        return unknown_command(name);
    ctl_set_command(cmd->name);
    return cmd->run(ctl, argc, argv);
}

int main(int argc, char **argv)
{
    const int held = stdfds_hold();
    if (held < 0) {
        ctl_error("%s", strerror(-held));
        return CTL_FAILED;
    }
    struct ctl ctl = {.timeout_ms = KVC_DEADLINE_DEFAULT_MS, .colour = wants_colour()};
    int rc = ctl_options_before(&ctl, argc, argv, NULL, help);
    if (rc == 0)
        rc = ctl_run(&ctl, argc - optind, argv + optind);
    else if (rc < 0)
        rc = CTL_OK;
    kvc_close(&ctl.kvc);
    int failed = stdfds_flush();
    if (failed < 0) {
        ctl_error("stdout: %s", strerror(-failed));
        rc = rc == CTL_OK || rc == CTL_NOTHING ? CTL_FAILED : rc;
    }
    return rc;
}
