/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flips: random bits of what is on disk and in host memory that outlives the daemon are flipped,
 * some before each start. What comes of it must be a miss, a rebuild or a refused start with a
 * clear message: never other bytes, never a daemon that dies.
 *
 *   flips [--flips N] [--per-start K] [--seed S] [--class NAME] [--json]
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "files.h"
#include "judge.h"
#include "place.h"

#define CHAINS 36u /* of WORLD_CHAINS: what fits */

static struct options {
    unsigned flips, per_start;
    uint64_t seed;
    int only; /* class, -1: all in turn */
    bool json, spoil;
} options = {.flips = 1000, .per_start = 10, .only = -1};

static struct place place;
static struct world world;
static struct files files;
static const char *dirs[PLACE_PATHS_MAX + 1];
static unsigned ndirs;
static uint64_t seed;
static char where[64][320];
static unsigned nwhere;

static struct {
    uint64_t flips, starts, refused, all_there, some_missed, missed, hit, wrong, died;
    uint64_t of_class[FILES_CLASSES];
} total;

/* ---- what is damaged ---- */

static void prepare(void)
{
    place_make(&place, 1, true);
    place_set(&place, "host.limit=8MiB");
    place_set(&place, "host.chunk=2MiB");
    place_set(&place, "host.huge_pages=off");
    place_set(&place, "nvme.limit=40MiB");
    place_set(&place, "nvme.segment=1MiB");
    place_set(&place, "nvme.sync=50ms");
    world = (struct world){.rig = &place.rig, .durable_works = true};
    dirs[ndirs++] = place.store[0];
    dirs[ndirs++] = place.persist;
}

static int on_path(void *ctx, const void *row)
{
    const struct kvc_path *p = row;
    *(uint8_t *)ctx = p->state;
    return 0;
}

/* A new store takes promises when it has been written once. */
static void await_formatted(struct kvc *k)
{
    uint8_t state = KVC_PATH_FORMATTING;
    for (unsigned i = 0; i < 6000 && state == KVC_PATH_FORMATTING; i++) {
        ck_assert_int_eq(kvc_list(k, KVC_TABLE_PATHS, NULL, on_path, &state), 0);
        rig_sleep_ms(5);
    }
    ck_assert_uint_eq(state, KVC_PATH_UP);
}

static void fill(void)
{
    struct world_session s;
    int status = place_try(&place, NULL);
    if (status)
        rig_show_log(&place.rig);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(world_open(&world, WORLD_STAGING, &s), 0);
    await_formatted(s.k);
    for (uint32_t c = 0; c < CHAINS; c++)
        ck_assert_int_eq(world_store(&s, &world.chain[c], 0, WORLD_LEN, c % 2 == 0), WORLD_LEN);
    world_close(&s);
    rig_stop(&place.rig);
}

/* The first word of each page of each block. */
static void sort_files(void)
{
    static uint8_t bytes[65536];
    static uint64_t words[CHAINS * WORLD_LEN * 16];
    uint32_t n = 0;
    for (uint32_t c = 0; c < CHAINS; c++)
        for (uint32_t b = 0; b < WORLD_LEN; b++) {
            world_fill(&world.chain[c], b, 1, 0, bytes);
            for (uint32_t at = 0; at < world_block_bytes[world.chain[c].size]; at += FILES_PAGE)
                memcpy(&words[n++], bytes + at, 8);
        }
    for (unsigned i = 0; i < ndirs; i++)
        files_keep(&files, dirs[i], i == ndirs - 1);
    files_sort(&files, words, n);
    for (unsigned i = 0; i < FILES_CLASSES; i++)
        fprintf(stderr, "%s: %u pages\n", files_class_name[i], files.pages[i]);
}

static void flip(void)
{
    nwhere = 0;
    for (unsigned i = 0; i < options.per_start && total.flips < options.flips; i++) {
        enum files_class which = options.only >= 0
                                     ? (enum files_class)options.only
                                     : (enum files_class)(total.starts % FILES_CLASSES);
        ck_assert_msg(files_flip(&files, which, &seed, where[nwhere]), "there is no page of %s",
                      files_class_name[which]);
        nwhere++;
        total.flips++;
        total.of_class[which]++;
    }
}

static void tell(const char *what)
{
    fprintf(stderr, "start %" PRIu64 ": %s after\n", total.starts, what);
    for (unsigned i = 0; i < nwhere; i++)
        fprintf(stderr, "  %s\n", where[i]);
}

/* ---- what comes of it ---- */

/* The line of the log from the text on, or NULL; good until the next call. */
static const char *log_says(const char *text)
{
    static char log[1u << 18];
    char path[96];
    snprintf(path, sizeof path, "%s/log", place.rig.dir);
    FILE *f = fopen(path, "re");
    if (!f)
        return NULL;
    log[fread(log, 1, sizeof log - 1, f)] = '\0';
    fclose(f);
    char *at = strstr(log, text);
    if (at)
        at[strcspn(at, "\n")] = '\0';
    return at;
}

static void refused(int status)
{
    total.refused++;
    const bool by_itself = WIFEXITED(status) && WEXITSTATUS(status) <= 2;
    const bool told = log_says("cannot start") || log_says("expected ");
    if (by_itself && told) {
        const char *why = log_says(" E "); /* the first error says what it was */
        why = why ? why + strlen(" E ") : log_says("expected ");
        fprintf(stderr, "start %" PRIu64 " refused: %s\n", total.starts, why ? why : "?");
        return;
    }
    total.died++;
    tell(by_itself ? "refused to start without a word" : "the daemon died while it started");
    rig_show_log(&place.rig);
}

/* The dead are told from the busy. */
static void call_failed(int err)
{
    int status;
    if (waitpid(place.rig.pid, &status, WNOHANG) == place.rig.pid) {
        total.died++;
        place.rig.pid = 0;
        tell("the daemon died");
    } else {
        total.died++;
        tell("the daemon does not answer");
        fprintf(stderr, "  %s\n", kvc_error_name(err));
    }
    rig_show_log(&place.rig);
}

static uint32_t count(const struct world_read *read)
{
    uint32_t wrong = 0;
    for (uint32_t b = 0; b < read->hit; b++)
        wrong += read->version[b] != 1;
    return wrong;
}

static int read_all(struct world_session *s, uint64_t *missed, uint64_t *wrong)
{
    for (uint32_t c = 0; c < CHAINS; c++) {
        struct world_read read = {0};
        int err = world_read(s, &world.chain[c], WORLD_IN_MEMORY, 60000, &read);
        if (err && err != KVC_STALE) /* found to be wrong while it was held: told so */
            return err;
        *missed += WORLD_LEN - read.hit;
        total.hit += read.hit;
        *wrong += count(&read);
    }
    return 0;
}

static void look(void)
{
    struct world_session s;
    struct judged j = {0};
    uint64_t missed = 0, wrong = 0;
    int err = world_open(&world, WORLD_STAGING, &s);
    if (err == -ESTALE) { /* a new secret: nothing of before can be found */
        total.some_missed++;
        total.missed += CHAINS * WORLD_LEN;
        return;
    }
    if (err == 0)
        err = read_all(&s, &missed, &wrong);
    if (err == 0)
        err = judge_accounts(&s, false, &j);
    if (err == 0 && !kvc_is_up(s.k))
        err = KVC_E_DOWN;
    if (err) {
        call_failed(err);
        return;
    }
    world_close(&s);
    total.missed += missed;
    total.wrong += wrong;
    total.some_missed += missed > 0;
    total.all_there += missed == 0;
    if (wrong > 0)
        tell("wrong bytes");
    if (j.accounting_errors > 0) {
        total.wrong++;
        tell(j.first);
    }
}

static void one_start(void)
{
    files_put_back(&files, dirs, ndirs);
    place_forget_log(&place);
    flip();
    total.starts++;
    int status = place_try(&place, NULL);
    if (status) {
        refused(status);
        return;
    }
    look();
    if (place.rig.pid)
        rig_stop(&place.rig);
}

/* ---- the run ---- */

static void metric(const char *name, uint64_t value)
{
    if (options.json)
        printf("{\"bench\":\"flips\",\"case\":{\"seed\":%" PRIu64
               "},\"metric\":\"%s\",\"value\":%" PRIu64 ",\"unit\":\"1\"}\n",
               options.seed, name, value);
    else
        printf("%-18s %" PRIu64 "\n", name, value);
}

static int verdict(void)
{
    metric("flips", total.flips);
    for (unsigned i = 0; i < FILES_CLASSES; i++) {
        char name[32];
        snprintf(name, sizeof name, "flips_%s", files_class_name[i]);
        metric(name, total.of_class[i]);
    }
    metric("starts", total.starts);
    metric("starts_refused", total.refused);
    metric("starts_whole", total.all_there);
    metric("starts_less", total.some_missed);
    metric("blocks_hit", total.hit);
    metric("blocks_missed", total.missed);
    metric("wrong_bytes", total.wrong);
    metric("daemon_died", total.died);
    if (total.hit == 0 || total.missed + total.refused == 0) {
        fprintf(stderr, "nothing was hit, or no flip did any harm: nothing was tested\n");
        return 1;
    }
    return total.wrong + total.died > 0;
}

static int run(const char *role, uint64_t arg)
{
    (void)role, (void)arg;
    prepare();
    fill();
    sort_files();
    if (options.spoil)
        world.spoil = SPOIL_BYTES;
    while (total.flips < options.flips) {
        one_start();
        if (total.starts % 20 == 0)
            fprintf(stderr,
                    "%" PRIu64 " flips, %" PRIu64 " starts, %" PRIu64 " refused, %" PRIu64
                    " hit, %" PRIu64 " missed, %" PRIu64 " wrong, %" PRIu64 " died\n",
                    total.flips, total.starts, total.refused, total.hit, total.missed, total.wrong,
                    total.died);
    }
    files_free(&files);
    int rc = verdict();
    place_remove(&place);
    return rc;
}

static int take_class(void *ctx, const char *name)
{
    struct options *o = ctx;
    for (int i = 0; i < FILES_CLASSES; i++)
        if (strcmp(name, files_class_name[i]) == 0) {
            o->only = i;
            return 0;
        }
    return args_usage("--class %s: there are payload, meta, journal, slots, headers and any", name);
}

static const struct arg option_table[] = {
    {"--flips N", "in all (default 1000)", ARG_COUNT(struct options, flips, 1, UINT32_MAX)},
    {"--per-start N", "before each start (default 10)",
     ARG_COUNT(struct options, per_start, 1, sizeof where / sizeof where[0])},
    {"--seed S", "repeats a run", ARG_COUNT(struct options, seed, 1, UINT64_MAX)},
    {"--class NAME", "payload, meta, journal, slots, headers or any (default: all in turn)",
     ARG_DO(take_class)},
    {"--json", "figures as one object per line on stdout", ARG_FLAG(struct options, json)},
    {"--spoil", "makes a check see what is not so: the run must fail",
     ARG_FLAG(struct options, spoil)},
    {0},
};

int main(int argc, char **argv)
{
    const int rc = args_take_only(option_table, &options, "Usage: flips [OPTIONS]\n\n" ARGS_HERE,
                                  args_usage, argc, argv);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    if (options.seed == 0)
        options.seed = (uint64_t)time(NULL);
    fprintf(stderr, "seed %" PRIu64 " (--seed repeats it)\n", options.seed);
    seed = options.seed * 2654435761u + 1;
    return rig_child_main(run, "flips", 0);
}
