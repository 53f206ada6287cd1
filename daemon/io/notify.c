/* SPDX-License-Identifier: Apache-2.0 */
/* Talks to the service manager with libsystemd; the only file that includes its headers. */
#include "notify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "fault.h"

bool notify_is_managed(void)
{
    const char *socket = getenv("NOTIFY_SOCKET");
    return socket && socket[0];
}

static int notify_send(const char *text)
{
    if (FAULT(send))
        return -EAGAIN;
    return notify_is_managed() ? sd_notify(0, text) : 0;
}

int notify_ready(void)
{
    return notify_send("READY=1");
}

int notify_stopping(void)
{
    return notify_send("STOPPING=1");
}

int notify_status(const char *text)
{
    char line[512];
    snprintf(line, sizeof line, "STATUS=%.*s", (int)strcspn(text, "\n"), text);
    return notify_send(line);
}

int notify_extend(uint64_t ns)
{
    char line[64];
    snprintf(line, sizeof line, "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)(ns / 1000));
    return notify_send(line);
}

uint64_t notify_watchdog_interval_ns(void)
{
    uint64_t usec = 0;
    return sd_watchdog_enabled(0, &usec) > 0 ? usec * 1000 : 0;
}

int notify_watchdog(void)
{
    return notify_send("WATCHDOG=1");
}

static bool is_name(const char *name)
{
    const size_t len = strlen(name);
    if (len < 1 || len > NOTIFY_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == ':')
            return false;
    return true;
}

int notify_store_fd(const char *name, int fd)
{
    char text[NOTIFY_NAME_MAX + 32];
    if (!is_name(name) || fd < 0)
        return -EINVAL;
    if (FAULT(send))
        return -EAGAIN;
    snprintf(text, sizeof text, "FDSTORE=1\nFDNAME=%s", name);
    return sd_pid_notify_with_fds(0, 0, text, &fd, 1);
}

int notify_remove_fd(const char *name)
{
    char text[NOTIFY_NAME_MAX + 32];
    if (!is_name(name))
        return -EINVAL;
    snprintf(text, sizeof text, "FDSTOREREMOVE=1\nFDNAME=%s", name);
    return notify_send(text);
}

int notify_take_fds(notify_take_fn *take, void *ctx)
{
    char **names = NULL;
    if (FAULT(alloc))
        return -ENOMEM;
    const int n = sd_listen_fds_with_names(1, &names); /* sets CLOEXEC */
    for (int i = 0; i < n; i++)
        take(ctx, names[i], SD_LISTEN_FDS_START + i);
    for (int i = 0; names && names[i]; i++)
        free(names[i]);
    free(names);
    return n;
}
