/* SPDX-License-Identifier: Apache-2.0 */
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
    "The daemon's devices (`devices` in its configuration): whether each is in service, how much\n"
    "of its memory blocks take, what was copied, and how fast copies are.\n"
    "\n"
    "  SLOTS     memory for blocks that is in use, of its limit\n"
    "  BLOCKS    copies of blocks in slots; each is in host memory or on storage too\n"
    "  HITS      blocks that were there when a worker asked for them there\n"
    "  FILLS     blocks that were copied there for one\n"
    "  DROPS     copies that went to make room\n"
    "  COPIES    from and to the device, those of workers' pages included; COPIED: their bytes\n"
    "  WORKERS   workers' memory that is imported\n"
    "  HELD      of the limit: what workers have yet to unmap before blocks can have it again\n"
    "\n"
    "The second table has what was measured at start: for fragments of each size and direction, "
    "how\n"
    "fast the copy engine and a kernel are, and which of the two the daemon takes (TO and FROM "
    "the\n"
    "device: the kernel where it is a quarter faster). WINDOW: to the device in one piece, and\n"
    "scattered there, which a worker does that reads slots and fills its pages itself; BEST: what\n"
    "workers do best. 'plain' is one large copy, which nothing exceeds; '-': not measured (the\n"
    "engine is taken then), or there is none.\n"
    "\n"
    "Examples:\n"
    "  kvcachectl gpu\n"
    "  kvcachectl gpu --json\n";

static int add(void *ctx, const struct kvc_device *device)
{
    struct devices *d = ctx;
    if (d->n < KVC_DEVICES_MAX)
        d->device[d->n++] = *device;
    return 0;
}

int devices_take(struct ctl *ctl, struct devices *ret_devices)
{
    ret_devices->n = 0;
    const int rc = kvc_devices(ctl->kvc, add, ret_devices);
    return rc == KVC_E_UNKNOWN_OP ? 0 : rc; /* a daemon of before devices has none */
}

/* The daemon numbers its devices as it lists them. */
static int take_held(void *ctx, const struct kvc_stat *stat)
{
    struct devices *d = ctx;
    static const char prefix[] = "device";
    char *end;
    if (strncmp(stat->name, prefix, sizeof(prefix) - 1) != 0)
        return 0;
    const unsigned long no = strtoul(stat->name + sizeof(prefix) - 1, &end, 10);
    if (strcmp(end, ".held_bytes") == 0 && no < d->n)
        d->held_bytes[no] = stat->value;
    return 0;
}

static const char *label(const struct kvc_device *d)
{
    return d->device[0] ? d->device : "-"; /* it was never up */
}

/* ---- tables ---- */

static void bytes_cell(struct table *t, uint64_t bytes)
{
    char text[UNITS_TEXT_BYTES];
    table_cell(t, "%s", bytes ? units_format_bytes(bytes, text) : "-");
}

static void count_cell(struct table *t, uint64_t n)
{
    char text[UNITS_COUNT_BYTES];
    table_cell(t, "%s", units_format_count(n, text));
}

static void rate_cell(struct table *t, uint64_t rate)
{
    char text[UNITS_TEXT_BYTES];
    table_cell(t, "%s", rate ? units_format_rate(rate, text) : "-");
}

static void slots_cell(struct table *t, const struct kvc_device *d)
{
    char used[UNITS_TEXT_BYTES], limit[UNITS_TEXT_BYTES];
    if (d->limit_bytes == 0)
        table_cell(t, "-");
    else
        table_cell(t, "%s of %s", units_format_bytes(d->used_bytes, used),
                   units_format_bytes(d->limit_bytes, limit));
}

static void device_row(struct table *t, const struct kvc_device *d, uint64_t held)
{
    const uint64_t counts[] = {d->blocks, d->hits, d->fills, d->drops, d->copies};
    table_cell(t, "%s", label(d));
    table_cell(t, "%s", d->name[0] ? d->name : "-");
    table_cell(t, "%s", d->up ? "up" : "out");
    slots_cell(t, d);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        count_cell(t, counts[i]);
    bytes_cell(t, d->copy_bytes);
    bytes_cell(t, d->imported_bytes);
    bytes_cell(t, held);
    count_cell(t, d->failures);
    count_cell(t, d->outs);
}

static const char *path_name(unsigned path, const char *unknown)
{
    static const char *const names[] = {NULL, "engine", "kernel", "window"};
    return path != 0 && path < sizeof(names) / sizeof(names[0]) ? names[path] : unknown;
}

static void rate_rows(struct table *t, const struct kvc_device *d)
{
    char size[UNITS_TEXT_BYTES];
    for (uint32_t i = 0; i < d->rates; i++) {
        const struct kvc_rate *r = &d->rate[i];
        table_cell(t, "%s", label(d));
        table_cell(t, "%s", units_format_bytes(r->frag_bytes, size));
        table_cell(t, "%s", path_name(r->to_path, "-"));
        rate_cell(t, r->to_engine);
        rate_cell(t, r->to_kernel);
        rate_cell(t, r->to_window);
        table_cell(t, "%s", path_name(kvc_load_path(d, r->frag_bytes), "-"));
        table_cell(t, "%s", path_name(r->from_path, "-"));
        rate_cell(t, r->from_engine);
        rate_cell(t, r->from_kernel);
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
    static const char *const heads[] = {"DEVICE",  ">FRAGMENT", "TO",   ">ENGINE",
                                        ">KERNEL", ">WINDOW",   "BEST", "FROM",
                                        ">ENGINE", ">KERNEL",   NULL};
    struct table *t = table_create(heads);
    for (uint32_t i = 0; i < devices->n; i++)
        rate_rows(t, &devices->device[i]);
    if (table_rows(t) > 0) {
        fputs(before, stdout);
        table_print(t, stdout, colour);
    }
    table_destroy(&t);
}

static void print_tables(const struct ctl *ctl, const struct devices *devices)
{
    static const char *const heads[] = {"DEVICE",   "NAME",   "STATE",  ">SLOTS",  ">BLOCKS",
                                        ">HITS",    ">FILLS", ">DROPS", ">COPIES", ">COPIED",
                                        ">WORKERS", ">HELD",  ">FAILS", ">OUTS",   NULL};
    struct table *t = table_create(heads);
    for (uint32_t i = 0; i < devices->n; i++)
        device_row(t, &devices->device[i], devices->held_bytes[i]);
    table_print(t, stdout, ctl->colour);
    table_destroy(&t);
    devices_print_rates(devices, "\n", ctl->colour);
    for (uint32_t i = 0; i < devices->n; i++) {
        const struct kvc_device *d = &devices->device[i];
        if (!d->up)
            printf("%s is out: %s. Blocks are read in host memory, and workers' pages are not "
                   "served, until it is back; it is tried again by itself\n",
                   label(d), d->why[0] ? d->why : "no reason is known");
    }
}

void devices_print_use(const struct devices *devices)
{
    for (uint32_t i = 0; i < devices->n; i++) {
        const struct kvc_device *d = &devices->device[i];
        char used[UNITS_TEXT_BYTES], limit[UNITS_TEXT_BYTES], n[UNITS_COUNT_BYTES];
        if (d->limit_bytes != 0)
            printf("on %s: %s of %s, copies of %s of these blocks\n", label(d),
                   units_format_bytes(d->used_bytes, used),
                   units_format_bytes(d->limit_bytes, limit), units_format_count(d->blocks, n));
    }
}

/* ---- JSON ---- */

static void put(json_t *object, const char *name, uint64_t value)
{
    json_object_set_new(object, name, json_integer((json_int_t)value));
}

static json_t *path_json(unsigned path)
{
    const char *name = path_name(path, NULL);
    return name ? json_string(name) : json_null();
}

static json_t *use_json(const struct kvc_device *d)
{
    json_t *o = json_pack("{s:s}", "device", d->device);
    put(o, "used_bytes", d->used_bytes);
    put(o, "limit_bytes", d->limit_bytes);
    put(o, "blocks", d->blocks);
    return o;
}

struct json_t *devices_use_json(const struct devices *devices)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < devices->n; i++)
        json_array_append_new(list, use_json(&devices->device[i]));
    return list;
}

static json_t *device_json(const struct kvc_device *d, uint64_t held)
{
    json_t *o = use_json(d), *rates = json_array();
    json_object_set_new(o, "name", json_string(d->name));
    json_object_set_new(o, "up", json_boolean(d->up));
    json_object_set_new(o, "why", json_string(d->why));
    json_object_set_new(o, "emulated", json_boolean(d->emulated));
    put(o, "memory_bytes", d->memory_bytes);
    put(o, "imported_bytes", d->imported_bytes);
    put(o, "held_bytes", held);
    put(o, "hits", d->hits);
    put(o, "fills", d->fills);
    put(o, "drops", d->drops);
    put(o, "copies", d->copies);
    put(o, "copy_bytes", d->copy_bytes);
    put(o, "failures", d->failures);
    put(o, "outs", d->outs);
    put(o, "plain_to", d->plain_to);
    put(o, "plain_from", d->plain_from);
    for (uint32_t i = 0; i < d->rates; i++) {
        json_t *rate = json_object();
        put(rate, "fragment_bytes", d->rate[i].frag_bytes);
        put(rate, "to_engine", d->rate[i].to_engine);
        put(rate, "to_kernel", d->rate[i].to_kernel);
        put(rate, "to_window", d->rate[i].to_window);
        put(rate, "from_engine", d->rate[i].from_engine);
        put(rate, "from_kernel", d->rate[i].from_kernel);
        json_object_set_new(rate, "to_path", path_json(d->rate[i].to_path));
        json_object_set_new(rate, "to_best", path_json(kvc_load_path(d, d->rate[i].frag_bytes)));
        json_object_set_new(rate, "from_path", path_json(d->rate[i].from_path));
        json_array_append_new(rates, rate);
    }
    json_object_set_new(o, "rates", rates);
    return o;
}

struct json_t *devices_json(const struct devices *devices)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < devices->n; i++)
        json_array_append_new(list, device_json(&devices->device[i], devices->held_bytes[i]));
    return list;
}

int cmd_gpu(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {CTL_COMMON_OPTIONS, {0}};
    struct devices devices = {.n = 0};
    int rc = ctl_options_only(ctl, argc, argv, options, help, NULL, NULL);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    rc = devices_take(ctl, &devices);
    if (rc == 0)
        rc = kvc_stats(ctl->kvc, take_held, &devices);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    if (ctl->json)
        json_print(json_pack("{s:o}", "devices", devices_json(&devices)));
    else if (devices.n == 0)
        puts("the daemon has no devices; give it some with hbm.devices in its configuration");
    else
        print_tables(ctl, &devices);
    return CTL_OK;
}
