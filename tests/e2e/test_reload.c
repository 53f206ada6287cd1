/* SPDX-License-Identifier: Apache-2.0 */
/* Signals other than those that end the daemon: the configuration read again, and what must not
 * kill. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"

static struct rig rig;
static char file[96];

static void write_file(const char *text)
{
    FILE *f = fopen(file, "we");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(
        fprintf(f,
                "%s\nprincipals:\n  - {name: me, uids: [%u], tenant: acme, admin: true}\n"
                "  - {name: other, uids: [%u], tenant: beta}\n",
                text, (unsigned)getuid(), (unsigned)getuid() + 1),
        0);
    ck_assert_int_eq(fclose(f), 0);
}

static void setup(void)
{
    static char at[97];
    rig_dir(&rig);
    snprintf(file, sizeof(file), "%s/daemon.yaml", rig.dir);
    snprintf(at, sizeof(at), "@%s", file);
    write_file("log: {level: info}\nquotas:\n  - {tenant: acme, host: 2MiB}");
    const char *const sets[] = {at, "host.limit=8MiB", NULL};
    rig_restart(&rig, sets);
}

static void teardown(void)
{
    if (rig.pid)
        rig_stop(&rig);
    rig_clean(&rig);
}

/* The daemon's log so far; borrowed until the next call. */
static const char *log_text(void)
{
    static char text[65536];
    char path[96];
    snprintf(path, sizeof(path), "%s/log", rig.dir);
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* Sends SIGHUP and waits until the log has `last`. */
static void reload_until(const char *last)
{
    ck_assert_int_eq(kill(rig.pid, SIGHUP), 0);
    for (unsigned i = 0; i < 1000 && strstr(log_text(), last) == NULL; i++)
        rig_sleep_ms(10);
    if (strstr(log_text(), last) == NULL)
        ck_abort_msg("the log has no '%s':\n%s", last, log_text());
}

static uint32_t quotas(void)
{
    struct kvc *k = rig_open(&rig, 0);
    const uint64_t n = rig_stat(k, "core.quotas");
    kvc_close(&k);
    return (uint32_t)n;
}

CASES(.setup = setup, .teardown = teardown);

CASE(what_can_change_changes)
{
    ck_assert_uint_eq(quotas(), 1);
    write_file("log: {level: debug}\ndrain: {timeout: 3s}\n"
               "quotas:\n  - {tenant: beta, host: 1MiB}\n  - {tenant: acme, sub: x, host: 1MiB}");
    reload_until("reload: 3 changes taken, 0 need a restart");
    ck_assert_ptr_nonnull(strstr(log_text(), "reload: log.level: was 'info', is 'debug'"));
    ck_assert_ptr_nonnull(strstr(log_text(), "reload: drain.timeout: was '10s', is '3s'"));
    ck_assert_uint_eq(quotas(), 2); /* acme's own is gone, two came */
    /* The same file once more differs in nothing. */
    reload_until("reload: 0 changes taken, 0 need a restart");
}

CASE(what_needs_a_restart_is_named)
{
    write_file(
        "log: {json: true}\ncopy: {inflight: 128MiB}\nquotas:\n  - {tenant: acme, host: 2MiB}");
    reload_until("1 change taken, 1 needs a restart");
    ck_assert_ptr_nonnull(
        strstr(log_text(), "copy.inflight: was '256MiB', is '128MiB'; needs a restart"));
    ck_assert_ptr_nonnull(
        strstr(log_text(), "\"level\":\"info\",\"module\":\"daemon/node_reload.c\""));
}

CASE(a_share_beyond_the_limit_that_runs_is_refused)
{
    char at[97];
    rig_stop(&rig);
    snprintf(at, sizeof(at), "@%s", file);
    const char *const sets[] = {at, "host.limit=auto", NULL};
    rig_restart(&rig, sets);
    /* The file alone does not say what host.limit comes to. */
    write_file("log: {level: debug}\nquotas:\n  - {tenant: acme, host_share: 1TiB}");
    reload_until("reload: 1 error in the configuration, so nothing was changed");
    ck_assert_ptr_nonnull(strstr(log_text(), "host_share"));
}

CASE(what_the_daemon_chose_itself_is_no_change)
{
    char storage[128];
    rig_stop(&rig);
    snprintf(storage, sizeof(storage), "nvme.paths=%s", rig.dir);
    const char *const sets[] = {storage, "nvme.limit=64MiB", "host.limit=8MiB", NULL};
    rig_restart(&rig, sets);
    reload_until("reload: 0 changes taken, 0 need a restart");
}

CASE(a_file_with_an_error_changes_nothing)
{
    write_file("log: {level: loud}\nquotas:\n  - {tenant: beta, host: 1MiB}\n  - {tenant: gamma, "
               "host: 1MiB}");
    reload_until("reload: 1 error in the configuration, so nothing was changed");
    ck_assert_ptr_nonnull(strstr(log_text(), "daemon.yaml:1: log.level: expected"));
    ck_assert_uint_eq(quotas(), 1);
    ck_assert_int_eq(unlink(file), 0);
    reload_until("No such file");
    ck_assert_uint_eq(quotas(), 1);
}

/* Paths cannot change by a reload, and that of a drive that is out is no error of the file. */
CASE(a_path_that_is_gone_stops_no_reload)
{
    char at[97], disk[80], gone[80], storage[128];
    rig_stop(&rig);
    snprintf(at, sizeof(at), "@%s", file);
    snprintf(disk, sizeof(disk), "%s/disk", rig.dir);
    snprintf(gone, sizeof(gone), "%s/gone", rig.dir);
    snprintf(storage, sizeof(storage), "nvme.paths=%s", disk);
    ck_assert_int_eq(mkdir(disk, 0700), 0);
    const char *const sets[] = {at, storage, "nvme.limit=64MiB", "host.limit=8MiB", NULL};
    rig_restart(&rig, sets);
    ck_assert_int_eq(rename(disk, gone), 0);
    write_file("log: {level: debug}\nquotas:\n  - {tenant: acme, host: 2MiB}");
    reload_until("reload: 1 change taken, 0 need a restart");
    ck_assert_ptr_nonnull(strstr(log_text(), "reload: log.level: was 'info', is 'debug'"));
}

/* It would be waited for, for as long as nobody writes to it. */
CASE(a_fifo_instead_of_the_file_is_refused)
{
    uint64_t uptime;
    struct kvc *k = rig_open(&rig, 0);
    ck_assert_int_eq(unlink(file), 0);
    ck_assert_int_eq(mkfifo(file, 0600), 0);
    reload_until("reload: 1 error in the configuration, so nothing was changed");
    ck_assert_ptr_nonnull(strstr(log_text(), "daemon.yaml: expected a regular file, got"));
    ck_assert_int_eq(kvc_ping(k, &uptime), 0);
    kvc_close(&k);
}

CASE(signals_of_a_terminal_or_a_stranger_do_not_kill)
{
    struct kvc *k = rig_open(&rig, 0);
    uint64_t uptime;
    static const int signals[] = {SIGUSR1, SIGUSR2, SIGHUP, SIGPIPE};
    for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        ck_assert_int_eq(kill(rig.pid, signals[i]), 0);
    reload_until("reload: 0 changes taken");
    ck_assert_int_eq(kvc_ping(k, &uptime), 0);
    kvc_close(&k);
}

CASE(with_log_json_every_line_is_json)
{
    static const char *const sets[] = {"log.json=true", "host.limit=8MiB", NULL};
    static const char *const wrong[] = {"log.json=true", "memory.budget=32TiB", NULL};
    unsigned lines = 0;
    rig_stop(&rig);
    char path[96];
    snprintf(path, sizeof(path), "%s/log", rig.dir);
    ck_assert_int_eq(truncate(path, 0), 0);
    rig_restart(&rig, sets);
    rig_stop(&rig);
    ck_assert_int_ne(rig_try(&rig, wrong, NULL), 0);
    rig.pid = 0;
    char *rest = strdup(log_text());
    for (char *all = rest, *line; (line = strsep(&all, "\n")) != NULL && *line != '\0'; lines++)
        if (strncmp(line, "{\"time\":\"", 9) != 0 || line[strlen(line) - 1] != '}')
            ck_abort_msg("not JSON: %s", line);
    free(rest);
    ck_assert_ptr_nonnull(strstr(log_text(), "\"message\":\"memory: budget"));
    ck_assert_ptr_nonnull(strstr(log_text(), "\"level\":\"error\""));
    ck_assert_uint_gt(lines, 10);
}
