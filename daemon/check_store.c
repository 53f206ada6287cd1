/* SPDX-License-Identifier: Apache-2.0 */
#include "check_store.h"

#include <stdarg.h>
#include <string.h>

#include "clock.h"
#include "disk_file.h"
#include "meta.h"
#include "nvme.h"
#include "nvme_paths.h"
#include "units.h"

#define PUMP_NS     100000000ll
#define SHOWN_LINES 1000u
/* The longest wait for the I/O of a killed daemon, which holds the files until it has ended. */
#define LOCK_WAIT_MS 5000u

struct check {
    const struct cli *cli;
    struct nvme_paths paths;
    struct loop *loop;
    struct disk_file *disk;
    struct meta *meta;
    uint32_t lines;
    uint64_t begun_ns;
};

__attribute__((format(printf, 1, 2))) static int store_refuse(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)!fputs("kvcache-daemon: --check-store: ", stderr);
    (void)!vfprintf(stderr, fmt, ap);
    (void)!fputc('\n', stderr);
    va_end(ap);
    return CLI_EXIT_USAGE;
}

/* ---- opening ---- */

static int check_store_open_disk(struct check *c)
{
    struct disk_file_path path[DISK_PATHS_MAX];
    char why[DISK_FILE_WHY_BYTES];
    for (uint32_t i = 0; i < c->paths.n; i++)
        path[i] = (struct disk_file_path){.name = c->paths.path[i].given};
    const struct disk_file_config disk = {.paths = path,
                                          .count = c->paths.n,
                                          .lock_wait_ms = LOCK_WAIT_MS,
                                          .readonly = true,
                                          .direct = true};
    const struct loop_config loop = {
        .want = LOOP_AUTO, .watches_max = 8, .ops_max = disk_file_ops(&disk)};
    int err = loop_create(&loop, &c->loop);
    if (err)
        return store_refuse("event loop: %s", err_name(err));
    err = disk_file_open(&disk, c->loop, &c->disk, why);
    if (err == -EBUSY)
        return store_refuse("%s. A running daemon's store cannot be checked: stop it first, or use "
                            "'kvcachectl verify --tier nvme'",
                            why);
    return err ? store_refuse("%s", why) : 0;
}

/* 0 with c->meta NULL: the journal is damaged, and *ret_why says how. */
static int open_journal(struct check *c, char ret_why[META_WHY_BYTES])
{
    const struct meta_config cfg = {
        .dir = c->paths.journal, .lock_wait_ms = LOCK_WAIT_MS, .readonly = true};
    struct meta_report report = {0};
    const int err = meta_open(&cfg, c->loop, &c->meta, &report);
    if (err == -EUCLEAN) {
        (void)!snprintf(ret_why, META_WHY_BYTES, "%s", report.why);
        return 0;
    }
    return err ? store_refuse("journal: %s; --journal names another directory", report.why) : 0;
}

/* ---- checking ---- */

static int on_pump(void *ctx)
{
    struct check *c = ctx;
    const int rc = loop_turn(c->loop, PUMP_NS);
    return rc < 0 ? rc : 0;
}

static void json_text(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            printf("\\u%04x", *text);
        else
            putchar(*text);
    }
    putchar('"');
}

static void on_line(void *ctx, const char *line)
{
    struct check *c = ctx;
    if (c->lines++ >= SHOWN_LINES)
        return;
    if (!c->cli->json) {
        puts(line);
        return;
    }
    if (c->lines > 1)
        putchar(',');
    json_text(line);
}

static void check_store_begin(const struct check *c)
{
    if (!c->cli->json)
        return;
    printf("{\"paths\":[");
    for (uint32_t i = 0; i < c->paths.n; i++) {
        printf("%s{\"path\":", i == 0 ? "" : ",");
        json_text(disk_file_name(c->disk, i));
        const struct disk *disk = disk_file_disk(c->disk);
        printf(",\"bytes\":%llu}", (unsigned long long)disk->ops->bytes(disk, i));
    }
    printf("],\"journal\":");
    json_text(c->paths.journal);
    printf(",\"payload_read\":%s,\"damage\":[", c->cli->quick ? "false" : "true");
}

static void check_store_end(const struct check *c, int found, const struct nvme_report *report)
{
    char size[UNITS_TEXT_BYTES], blocks[UNITS_COUNT_BYTES];
    char bytes[UNITS_TEXT_BYTES], took[UNITS_TEXT_BYTES];
    const uint64_t took_ns = clock_now_ns() - c->begun_ns;
    const struct disk *disk = disk_file_disk(c->disk);
    if (c->cli->json) {
        printf("],\"found\":%d,\"extents\":%u,\"blocks\":%u,\"bytes\":%llu,\"seconds\":%.3f}\n",
               found, report->extents, report->blocks, (unsigned long long)report->bytes,
               (double)took_ns * 1e-9);
        return;
    }
    for (uint32_t i = 0; i < c->paths.n; i++)
        printf("%-40s %12s\n", disk_file_name(c->disk, i),
               units_format_bytes(disk->ops->bytes(disk, i), bytes));
    printf("%s blocks, %s, in %u extents\n", units_format_count(report->blocks, blocks),
           units_format_bytes(report->bytes, size), report->extents);
    units_format_duration_ns(took_ns, took);
    if (found == 0)
        printf("clean: %s as it should be, in %s\n",
               c->cli->quick ? "tables and journal are" : "tables, journal and payload are", took);
    else
        printf("%d damaged, in %s; a daemon that starts here drops what is damaged and keeps the "
               "rest\n",
               found, took);
}

static int check_store_run(struct check *c)
{
    char damaged[META_WHY_BYTES] = "";
    char line[META_WHY_BYTES + 16];
    int rc = check_store_open_disk(c);
    if (!rc)
        rc = open_journal(c, damaged);
    if (rc)
        return rc;
    check_store_begin(c);
    c->begun_ns = clock_now_ns();
    if (damaged[0] != '\0') {
        (void)!snprintf(line, sizeof(line), "journal: %s", damaged);
        on_line(c, line);
    }
    struct nvme_report report = {0};
    int found = nvme_check(disk_file_disk(c->disk), c->meta != NULL ? meta_journal(c->meta) : NULL,
                           !c->cli->quick, on_pump, c, on_line, &report);
    if (found < 0)
        return store_refuse("%s", err_name(found));
    check_store_end(c, found, &report);
    return found > 0 ? CLI_EXIT_FAILED : CLI_EXIT_OK;
}

int check_store(const struct cli *cli)
{
    static struct check c;
    char why[CONFIG_ERROR_TEXT_MAX];
    c = (struct check){.cli = cli};
    if (nvme_paths_read(cli->store, cli->journal != NULL ? cli->journal : "", &c.paths, why,
                        sizeof(why)) < 0)
        return store_refuse("%s", why);
    const int rc = check_store_run(&c);
    meta_close(&c.meta);
    disk_file_close(&c.disk);
    loop_destroy(&c.loop);
    return rc;
}
