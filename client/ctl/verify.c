/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl verify: has the daemon read blocks again and compare their sums, slice by slice,
 * with progress.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "gpus.h"
#include "json.h"
#include "key.h"
#include "stdfds.h"
#include "units.h"

enum { BAR_CELLS = 24 };

/* Slices are much shorter than a second, so that the rate is even, and writers wait little. */
#define SLICES_PER_SECOND 50u
#define SLICE_MIN         (UINT64_C(1) << 20)
#define SLICE_MAX         (UINT64_C(16) << 20)
#define BUSY_PAUSE_NS     20000000u
#define SECOND_NS         1000000000u

static const char help[] =
    "Usage: kvcachectl verify [--ns ID] [--rate SIZE] [--tier host|nvme|hbm|all] [--json]\n"
    "\n"
    "Reads every stored block again and compares its checksum with the one from when it was "
    "stored. A block that differs is dropped at once, with all that follow it: later lookups miss "
    "and say CORRUPT, its readers are told to discard it, and the daemon logs it. Blocks that are "
    "stored while this runs may be left out; a block that is not complete yet is counted as "
    "skipped. A corrupt copy in a device's slot is dropped alone; its block is served from another "
    "tier. A device that is out of service is named; its slots are empty.\n"
    "\n" ARGS_HERE "\n"
    "Exit code 6 when blocks were corrupt; 5 when some could not be read, or 'hbm' was asked for "
    "and a device is out.\n"
    "\n"
    "Example, nightly and gently:\n"
    "  kvcachectl verify --rate 200MiB --json >> /var/log/kvcache-verify.jsonl\n";

struct verify {
    struct ctl *ctl;
    struct kvc_verify slice;
    uint64_t rate; /* bytes per second; 0 = no limit */
    uint64_t bytes_total;
    uint64_t blocks, bytes, skipped, failed, corrupt, below;
    uint64_t begun_ns, shown_ns;
    bool terminal, drawn;
    struct devices devices; /* looked at after the pass */
};

static uint64_t verify_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t then_ns)
{
    struct timespec t = {.tv_sec = (time_t)(then_ns / SECOND_NS),
                         .tv_nsec = (long)(then_ns % SECOND_NS)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* ---- telling ---- */

static double seconds_of(const struct verify *v)
{
    double seconds = (double)(verify_now_ns() - v->begun_ns) * 1e-9;
    return seconds > 1e-6 ? seconds : 1e-6;
}

/* How long the rest takes at the rate so far. An estimate, because blocks are stored meanwhile. */
static double eta_seconds(const struct verify *v)
{
    uint64_t left = v->bytes_total > v->bytes ? v->bytes_total - v->bytes : 0;
    return v->bytes ? (double)left * seconds_of(v) / (double)v->bytes : 0;
}

static json_t *counts_json(const struct verify *v, const char *event)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "event", event, "blocks",
                     (json_int_t)v->blocks, "bytes", (json_int_t)v->bytes, "bytes_total",
                     (json_int_t)v->bytes_total, "corrupt", (json_int_t)v->corrupt, "corrupt_below",
                     (json_int_t)v->below, "skipped", (json_int_t)v->skipped, "failed",
                     (json_int_t)v->failed, "seconds", seconds_of(v));
}

static void verify_clear(struct verify *v)
{
    if (v->drawn)
        fputs("\r\033[K", stderr);
    v->drawn = false;
}

static void verify_draw(struct verify *v)
{
    char bar[BAR_CELLS + 1], done[UNITS_TEXT_BYTES], all[UNITS_TEXT_BYTES];
    char rate[UNITS_TEXT_BYTES], blocks[UNITS_COUNT_BYTES];
    double share = v->bytes_total ? (double)v->bytes / (double)v->bytes_total : 1;
    share = share < 1 ? share : 1;
    for (int i = 0; i < BAR_CELLS; i++)
        bar[i] = i < (int)(share * BAR_CELLS + 0.5) ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    fprintf(stderr, "\r\033[K[%s] %3.0f%%  %s of %s, %s blocks, %s, %.0f s to go%s", bar,
            share * 100, units_format_bytes(v->bytes, done),
            units_format_bytes(v->bytes_total, all), units_format_count(v->blocks, blocks),
            units_format_rate((uint64_t)((double)v->bytes / seconds_of(v)), rate), eta_seconds(v),
            v->corrupt ? ", CORRUPT BLOCKS" : "");
    fflush(stderr);
    v->drawn = true;
}

static void progress(struct verify *v)
{
    uint64_t now = verify_now_ns();
    uint64_t pause_ns = v->ctl->json ? SECOND_NS : SECOND_NS / 10;
    if (now - v->shown_ns < pause_ns)
        return;
    v->shown_ns = now;
    if (v->ctl->json) {
        json_t *line = counts_json(v, "progress");
        json_object_set_new(line, "eta_seconds", json_real(eta_seconds(v)));
        json_print(line);
    } else if (v->terminal) {
        verify_draw(v);
    }
}

static void tell_corrupt(struct verify *v, const struct kvc_corrupt *x)
{
    const bool chunked = x->tier != KVC_TIER_NVME; /* for storage the daemon names no place */
    char key[KEY_TEXT_BYTES], at[64] = "";
    key_format(x->key, key);
    if (chunked)
        snprintf(at, sizeof at, " chunk %u at %llu", x->chunk, (unsigned long long)x->off);
    verify_clear(v);
    if (v->ctl->json)
        json_print(json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:o, s:o, s:I}", "event", "corrupt",
                             "key", key, "ns", (json_int_t)x->ns, "group", (json_int_t)x->group,
                             "shard", (json_int_t)x->shard, "tier", ctl_tier_names(x->tier),
                             "chunk", chunked ? json_integer((json_int_t)x->chunk) : json_null(),
                             "offset", chunked ? json_integer((json_int_t)x->off) : json_null(),
                             "below", (json_int_t)x->below));
    else
        printf("corrupt: %s (namespace %u, group %u, shard %u, %s%s); dropped, with %u that follow "
               "it\n",
               key, x->ns, x->group, x->shard, ctl_tier_names(x->tier), at, x->below);
    (void)stdfds_flush();
}

static void tell_end(const struct verify *v)
{
    char blocks[UNITS_COUNT_BYTES], size[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];
    char took[UNITS_TEXT_BYTES];
    if (v->ctl->json) {
        json_print(counts_json(v, "done"));
        return;
    }
    printf("read %s block%s, %s in %s (%s): ", units_format_count(v->blocks, blocks),
           v->blocks == 1 ? "" : "s", units_format_bytes(v->bytes, size),
           units_format_duration_ns((uint64_t)(seconds_of(v) * 1e9), took),
           units_format_rate((uint64_t)((double)v->bytes / seconds_of(v)), rate));
    if (v->corrupt)
        printf("%llu corrupt, dropped with %llu that follow", (unsigned long long)v->corrupt,
               (unsigned long long)v->below);
    else
        printf("all %s as stored", v->blocks == 1 ? "is" : "are");
    if (v->skipped)
        printf("; %llu that %s being written left out", (unsigned long long)v->skipped,
               v->skipped == 1 ? "is" : "are");
    if (v->failed)
        printf("; %llu could not be read", (unsigned long long)v->failed);
    putchar('\n');
}

/* ---- the pass ---- */

static bool reads(const struct verify *v, enum kvc_tier_id tier)
{
    return v->slice.tier == KVC_TIER_NONE || v->slice.tier == tier;
}

/* Adds up the bytes to read. A block that is in two tiers is read in both. */
static int add_ns(void *ctx, const void *row)
{
    struct verify *v = ctx;
    const struct kvc_ns_info *ns = row;
    if (v->slice.ns && ns->ns != v->slice.ns)
        return 0;
    v->bytes_total += reads(v, KVC_TIER_HOST) ? ns->host_bytes : 0;
    v->bytes_total += reads(v, KVC_TIER_NVME) ? ns->nvme_bytes : 0;
    v->bytes_total += reads(v, KVC_TIER_HBM) ? ns->device_bytes : 0;
    return 0;
}

static void verify_tell_out(const struct verify *v, const struct kvc_device *d)
{
    const char *name = d->device[0] ? d->device : d->name;
    if (v->ctl->json)
        json_print(
            json_pack("{s:s, s:s, s:s}", "event", "device out", "device", name, "why", d->why));
    else
        printf("device %s is out, and its slots are empty: %s\n", name, d->why);
}

/* Looks at the devices that have room for blocks. Returns how many are out of service, or the
 * library's error. */
static int look_at_devices(struct verify *v)
{
    int out = 0, rc = reads(v, KVC_TIER_HBM) ? devices_take(v->ctl, &v->devices) : 0;
    for (uint32_t i = 0; rc == 0 && i < v->devices.rows.n; i++) {
        const struct kvc_device *d = devices_at(&v->devices, i);
        if (d->up || d->limit_bytes == 0)
            continue;
        verify_tell_out(v, d);
        out++;
    }
    devices_free(&v->devices);
    return rc < 0 ? rc : out;
}

static void add_slice(struct verify *v, const struct kvc_verified *done)
{
    v->blocks += done->blocks;
    v->bytes += done->bytes;
    v->skipped += done->skipped;
    v->failed += done->failed;
    v->corrupt += done->corrupt;
    for (uint32_t i = 0; i < done->corrupt; i++) {
        v->below += done->found[i].below;
        tell_corrupt(v, &done->found[i]);
    }
    v->slice.cursor = done->cursor;
}

static int verify_pass(struct verify *v)
{
    v->begun_ns = v->shown_ns = verify_now_ns();
    do {
        struct kvc_verified done;
        int rc = kvc_verify_slice(v->ctl->kvc, &v->slice, &done);
        if (rc == KVC_E_BUSY) {
            sleep_until(verify_now_ns() + BUSY_PAUSE_NS);
            continue;
        }
        if (rc < 0) {
            verify_clear(v);
            return ctl_fail(v->ctl, rc);
        }
        add_slice(v, &done);
        progress(v);
        if (v->rate && v->slice.cursor)
            sleep_until(v->begun_ns + (uint64_t)((double)v->bytes / (double)v->rate * 1e9));
    } while (v->slice.cursor);
    verify_clear(v);
    const int out = look_at_devices(v);
    tell_end(v);
    if (out < 0)
        return ctl_fail(v->ctl, out);
    if (v->corrupt)
        return CTL_CORRUPT;
    return v->failed || (out > 0 && v->slice.tier == KVC_TIER_HBM) ? CTL_FAILED : CTL_OK;
}

static int parse_rate(const char *text, void *at, const char **ret_why)
{
    uint64_t rate = 0;
    if (strcmp(text, "0") != 0 && units_parse_bytes(text, &rate, ret_why) < 0)
        return -EINVAL;
    if (rate < 1024 && strcmp(text, "0") != 0) {
        *ret_why = "must be at least 1KiB a second, or 0 for no limit";
        return -EINVAL;
    }
    *(uint64_t *)at = rate;
    return 0;
}

static int parse_tier(const char *text, void *at, const char **ret_why)
{
    static const struct {
        const char *name;
        enum kvc_tier_id tier;
    } tiers[] = {{"all", KVC_TIER_NONE},
                 {"host", KVC_TIER_HOST},
                 {"nvme", KVC_TIER_NVME},
                 {"hbm", KVC_TIER_HBM}};
    for (size_t i = 0; i < sizeof tiers / sizeof tiers[0]; i++)
        if (strcmp(text, tiers[i].name) == 0) {
            *(enum kvc_tier_id *)at = tiers[i].tier;
            return 0;
        }
    *ret_why = "no such tier; there are 'host', 'nvme', 'hbm', and 'all'";
    return -EINVAL;
}

static const struct arg option_table[] = {
    {"--ns ID", "blocks of this namespace only; 'kvcachectl ns' lists them",
     ARG_DO_AT(struct verify, slice.ns, ctl_take_ns)},
    {"--rate SIZE",
     "read so much in a second, for instance 256MiB (default 1GiB; 0 = as fast as it goes, which "
     "slows stores down)",
     ARG_PARSE(struct verify, rate, parse_rate)},
    {"--tier NAME",
     "copies in this tier only: 'host' (memory), 'nvme', 'hbm' (slots of devices), or 'all' "
     "(default)",
     ARG_PARSE(struct verify, slice.tier, parse_tier)},
    {"--json",
     "one object per line: {\"event\": \"progress\", ...} each second, {\"event\": \"corrupt\", "
     "...} for each bad block, {\"event\": \"done\", ...}",
     ARG_SHOWN},
    {0},
};

int cmd_verify(struct ctl *ctl, int argc, char **argv)
{
    struct verify v = {.ctl = ctl, .rate = UINT64_C(1) << 30, .terminal = isatty(STDERR_FILENO)};
    int rc = ctl_options(ctl, argc, argv, option_table, help, &v);
    if (rc == 0 && optind < argc)
        rc = ctl_usage("'%s' is not understood; a namespace is named with --ns", argv[optind]);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    uint64_t slice = v.rate ? v.rate / SLICES_PER_SECOND : SLICE_MAX;
    v.slice.bytes_max = slice < SLICE_MIN ? SLICE_MIN : slice > SLICE_MAX ? SLICE_MAX : slice;
    rc = ctl_connect(ctl);
    if (rc != 0)
        return rc;
    /* Estimates how much will be read. */
    rc = kvc_list(ctl->kvc, KVC_TABLE_NAMESPACES, NULL, add_ns, &v);
    return rc < 0 ? ctl_fail(ctl, rc) : verify_pass(&v);
}
