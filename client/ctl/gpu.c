/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachectl gpu: a table of the daemon's devices, and of the rates at which they copy. */
#include "gpus.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "table.h"
#include "units.h"

static const char help[] =
    "Usage: kvcachectl gpu [--json]\n"
    "\n"
    "The daemon's devices (`hbm.devices` in its configuration): whether each is in service, how "
    "much "
    "of its memory blocks take, what was copied, and how fast copies are.\n"
    "\n"
    "  SLOTS     bytes of slots in use, of the most that slots may take\n"
    "  BLOCKS    copies of blocks in slots; each is in host memory or on storage too\n"
    "  HITS      blocks that were in slots when a worker asked for them on the device\n"
    "  FILLS     blocks that were copied to slots because a worker asked for them\n"
    "  DROPS     copies of blocks that were evicted from slots to make room\n"
    "  COPIES    copies from and to the device, also of workers' pages; COPIED: their bytes\n"
    "  WORKERS   bytes of workers' device memory that the daemon imported\n"
    "  HELD      bytes that count in SLOTS' limit until workers have unmapped them\n"
    "\n"
    "The second table has speeds that were measured at start, for each size of the fragments that "
    "are copied: those of the copy ENGINE and of a KERNEL, to the device and from it. TO and FROM "
    "name the one that the daemon uses: the kernel where it is a quarter faster. WINDOW: to the "
    "device in one piece that is then scattered, as by a worker that reads slots and fills its "
    "pages itself. BEST: the quickest way for workers. 'plain' is one large copy, which nothing "
    "exceeds. '-': not measured (then the daemon uses the engine), or there is none.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl gpu\n"
    "  kvcachectl gpu --json\n";

int devices_take(struct ctl *ctl, struct devices *ret_devices)
{
    *ret_devices = (struct devices){.rows = {.n = 0}};
    const int rc = rows_take(ctl, KVC_TABLE_DEVICES, &ret_devices->rows);
    return rc < 0 ? rc : rows_take(ctl, KVC_TABLE_RATES, &ret_devices->rates);
}

void devices_free(struct devices *devices)
{
    rows_free(&devices->rows);
    rows_free(&devices->rates);
}

const struct kvc_device *devices_at(const struct devices *devices, size_t i)
{
    return rows_at(&devices->rows, i);
}

static const char *label(const struct kvc_device *d)
{
    return d->device[0] ? d->device : "-"; /* the device has never been up */
}

static bool gpu_is_of(const struct kvc_rate *r, const struct kvc_device *d)
{
    return strcmp(r->device, d->device) == 0;
}

static unsigned best(const struct devices *devices, const struct kvc_device *d,
                     const struct kvc_rate *r)
{
    return kvc_load_path(d, devices->rates.row, devices->rates.n, r->fragment_bytes);
}

/* ---- tables ---- */

static const char *slots_said(const void *row, char text[ROWS_SAID_BYTES])
{
    const struct kvc_device *d = row;
    char used[UNITS_TEXT_BYTES], limit[UNITS_TEXT_BYTES];
    if (d->limit_bytes == 0)
        return "-";
    snprintf(text, ROWS_SAID_BYTES, "%s of %s", units_format_bytes(d->used_bytes, used),
             units_format_bytes(d->limit_bytes, limit));
    return text;
}

static const struct rows_view view[] = {ROWS_DASH("DEVICE", "device"),
                                        ROWS_DASH("NAME", "name"),
                                        ROWS_EITHER("STATE", "up", "up", "out"),
                                        ROWS_SAY(">SLOTS", slots_said),
                                        ROWS_PLAIN(">BLOCKS", "blocks"),
                                        ROWS_PLAIN(">HITS", "hits"),
                                        ROWS_PLAIN(">FILLS", "fills"),
                                        ROWS_PLAIN(">DROPS", "drops"),
                                        ROWS_PLAIN(">COPIES", "copies"),
                                        ROWS_DASH(">COPIED", "copy_bytes"),
                                        ROWS_DASH(">WORKERS", "imported_bytes"),
                                        ROWS_DASH(">HELD", "held_bytes"),
                                        ROWS_PLAIN(">FAILS", "failures"),
                                        ROWS_PLAIN(">OUTS", "outs"),
                                        ROWS_END};

static const struct rows_view rate_view[] = {ROWS_DASH("DEVICE", "device"),
                                             ROWS_PLAIN(">FRAGMENT", "fragment_bytes"),
                                             ROWS_DASH("TO", "to_path"),
                                             ROWS_DASH(">ENGINE", "to_engine"),
                                             ROWS_DASH(">KERNEL", "to_kernel"),
                                             ROWS_DASH(">WINDOW", "to_window"),
                                             {.head = "BEST"},
                                             ROWS_DASH("FROM", "from_path"),
                                             ROWS_DASH(">ENGINE", "from_engine"),
                                             ROWS_DASH(">KERNEL", "from_kernel"),
                                             ROWS_END};

static void rate_cell(struct table *t, uint64_t rate)
{
    char text[UNITS_TEXT_BYTES];
    table_cell(t, "%s", rate ? units_format_rate(rate, text) : "-");
}

static void rate_row(struct table *t, const struct devices *devices, const struct kvc_device *d,
                     const struct kvc_rate *r)
{
    for (const struct rows_view *v = rate_view; v->head; v++) {
        const char *way = v->column ? NULL : rows_word(KVC_UNIT_COPY, best(devices, d, r));
        if (v->column)
            rows_cell(t, devices->rates.table, r, v);
        else
            table_cell(t, "%s", way ? way : "-");
    }
}

static void rate_rows(struct table *t, const struct devices *devices, const struct kvc_device *d)
{
    for (size_t i = 0; i < devices->rates.n; i++) {
        const struct kvc_rate *r = rows_at(&devices->rates, i);
        if (gpu_is_of(r, d))
            rate_row(t, devices, d, r);
    }
    if (d->plain_to == 0 && d->plain_from == 0)
        return;
    table_cell(t, "%s", label(d));
    table_cell(t, "plain");
    table_cell(t, "engine");
    rate_cell(t, d->plain_to);
    table_cell(t, "-");
    table_cell(t, "-");
    table_cell(t, "-");
    table_cell(t, "engine");
    rate_cell(t, d->plain_from);
    table_cell(t, "-");
}

void devices_print_rates(const struct devices *devices, const char *before, bool colour)
{
    const char *heads[TABLE_COLUMNS_MAX + 1] = {NULL};
    for (size_t i = 0; rate_view[i].head; i++)
        heads[i] = rate_view[i].head;
    struct table *t = table_create(heads);
    for (size_t i = 0; i < devices->rows.n; i++)
        rate_rows(t, devices, devices_at(devices, i));
    if (table_rows(t) > 0) {
        fputs(before, stdout);
        table_print(t, stdout, colour);
    }
    table_destroy(&t);
}

static void print_tables(const struct ctl *ctl, const struct devices *devices)
{
    rows_table(&devices->rows, view, ctl->colour);
    devices_print_rates(devices, "\n", ctl->colour);
    for (size_t i = 0; i < devices->rows.n; i++) {
        const struct kvc_device *d = devices_at(devices, i);
        if (!d->up)
            printf("%s is out: %s. Blocks are read in host memory, and workers' pages are not "
                   "served, until it is back; it is tried again by itself\n",
                   label(d), d->why[0] ? d->why : "no reason is known");
    }
}

void devices_print_use(const struct devices *devices)
{
    for (size_t i = 0; i < devices->rows.n; i++) {
        const struct kvc_device *d = devices_at(devices, i);
        char used[UNITS_TEXT_BYTES], limit[UNITS_TEXT_BYTES], n[UNITS_COUNT_BYTES];
        if (d->limit_bytes != 0)
            printf("on %s: %s of %s, copies of %s of these blocks\n", label(d),
                   units_format_bytes(d->used_bytes, used),
                   units_format_bytes(d->limit_bytes, limit), units_format_count(d->blocks, n));
    }
}

/* ---- JSON ---- */

struct json_t *devices_use_json(const struct devices *devices)
{
    static const char *const use[] = {"device", "used_bytes", "limit_bytes", "blocks", NULL};
    json_t *list = json_array();
    for (size_t i = 0; i < devices->rows.n; i++) {
        json_t *o = json_object();
        rows_json(o, devices->rows.table, devices_at(devices, i), use);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *rates_json(const struct devices *devices, const struct kvc_device *d)
{
    static const char *const measured[] = {"fragment_bytes", "to_engine",   "to_kernel",
                                           "to_window",      "from_engine", "from_kernel",
                                           "to_path",        NULL};
    static const char *const from[] = {"from_path", NULL};
    json_t *list = json_array();
    for (size_t i = 0; i < devices->rates.n; i++) {
        const struct kvc_rate *r = rows_at(&devices->rates, i);
        if (!gpu_is_of(r, d))
            continue;
        const char *way = rows_word(KVC_UNIT_COPY, best(devices, d, r));
        json_t *o = json_object();
        rows_json(o, devices->rates.table, r, measured);
        json_object_set_new(o, "to_best", way ? json_string(way) : json_null());
        rows_json(o, devices->rates.table, r, from);
        json_array_append_new(list, o);
    }
    return list;
}

struct json_t *devices_json(const struct devices *devices)
{
    json_t *list = rows_array(&devices->rows);
    for (size_t i = 0; i < devices->rows.n; i++)
        json_object_set_new(json_array_get(list, i), "rates",
                            rates_json(devices, devices_at(devices, i)));
    return list;
}

int cmd_gpu(struct ctl *ctl, int argc, char **argv)
{
    struct devices devices;
    int rc = ctl_options_only(ctl, argc, argv, NULL, help, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    rc = devices_take(ctl, &devices);
    if (rc < 0)
        rc = ctl_fail(ctl, rc);
    else if (ctl->json)
        json_print(json_pack("{s:o}", "devices", devices_json(&devices)));
    else if (devices.rows.n == 0)
        puts("the daemon has no devices; give it some with hbm.devices in its configuration");
    else
        print_tables(ctl, &devices);
    devices_free(&devices);
    return rc;
}
