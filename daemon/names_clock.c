/* SPDX-License-Identifier: Apache-2.0 */
#include "names_clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sys.h"
#include "units.h"

#define BOOT_FILE  "/proc/sys/kernel/random/boot_id"
#define BOOT_BYTES 37 /* 36 characters and a NUL */
#define TEXT_BYTES 128

/* Milliseconds since the machine was started, with the time that it slept. */
static uint64_t since_boot_ms(void)
{
    struct timespec t;
    MUST(clock_gettime(CLOCK_BOOTTIME, &t) == 0);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* False: the file cannot be read, or is empty. */
static bool read_text(const char *path, char text[TEXT_BYTES])
{
    const int fd = sys_open(path, O_RDONLY | O_NOFOLLOW, 0);
    if (fd < 0)
        return false;
    const ssize_t n = read(fd, text, TEXT_BYTES - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool read_boot(char boot[BOOT_BYTES])
{
    char text[TEXT_BYTES];
    if (!read_text(BOOT_FILE, text) || strcspn(text, "\n") != BOOT_BYTES - 1)
        return false;
    memcpy(boot, text, BOOT_BYTES - 1);
    boot[BOOT_BYTES - 1] = '\0';
    return true;
}

static bool names_clock_path_of(const char *dir, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/" NAMES_CLOCK_FILE, dir) < PATH_MAX;
}

/* Parses "BOOT NOW SINCE\n". False: malformed, or of another boot. */
static bool names_clock_take(char *text, const char *boot, uint64_t *ret_was_ms,
                             uint64_t *ret_since_ms)
{
    char *end = strchr(text, '\n');
    if (end == NULL || end[1] != '\0')
        return false;
    *end = '\0';
    const char *noted = strsep(&text, " "), *was = strsep(&text, " "), *since = text;
    return was != NULL && since != NULL && strcmp(noted, boot) == 0 &&
           units_parse_count(was, ret_was_ms, NULL) == 0 &&
           units_parse_count(since, ret_since_ms, NULL) == 0;
}

uint64_t names_clock_read(const char *dir)
{
    char path[PATH_MAX], text[TEXT_BYTES], boot[BOOT_BYTES];
    uint64_t was_ms, since_ms;
    if (!names_clock_path_of(dir, path) || !read_text(path, text) || !read_boot(boot) ||
        !names_clock_take(text, boot, &was_ms, &since_ms))
        return 0;
    const uint64_t now_ms = since_boot_ms();
    return since_ms <= now_ms && was_ms <= UINT64_MAX - now_ms ? was_ms + (now_ms - since_ms) : 0;
}

int names_clock_write(const char *dir, uint64_t now_ms)
{
    char path[PATH_MAX], text[TEXT_BYTES], boot[BOOT_BYTES];
    if (!names_clock_path_of(dir, path))
        return -ENAMETOOLONG;
    if (!read_boot(boot))
        return -ENODATA;
    const int len =
        snprintf(text, sizeof text, "%s %" PRIu64 " %" PRIu64 "\n", boot, now_ms, since_boot_ms());
    const int fd = sys_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    const ssize_t n = write(fd, text, (size_t)len);
    int err = n == len ? 0 : n < 0 ? -errno : -EIO;
    if (close(fd) != 0 && err == 0)
        err = -errno;
    return err;
}
