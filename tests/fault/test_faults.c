/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Nth allocation, send, copy, mapping, descriptor and thread start fails, for N = 1, 2, ...
 * until the Nth is not reached any more (KVC_FAULT_EVERY: some of them): in a daemon of its own
 * process (KVC_FAULT), and in the library in this one.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "fault.h"
#include "scene.h"

#define NTH_MAX   5000u /* a sweep that never ends is a bug of the test or of a point */
#define FIRST_ALL 10u

static const char *const points[] = {"alloc", "send", "copy", "map", "fd", "thread"};
/* With a storage tier: what it asks for, and what it does to its disk and journal. */
static const char *const storage_points[] = {"alloc", "copy",  "map",  "fd",   "thread",
                                             "read",  "write", "sync", "meta", "walk"};

/* With a device: what it asks for, and what is asked for in its sessions. */
static const char *const device_points[] = {"alloc", "send", "map", "fd", "thread"};

static struct rig rig;

static void setup(void)
{
    rig_dir(&rig);
}

static void teardown(void)
{
    fault_reset();
    rig_clean(&rig);
}

/* ---- the daemon's log ---- */

static char logged[1u << 20];

static void read_log(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log", rig.dir);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(logged, 1, sizeof logged - 1, f);
    logged[n] = '\0';
    fclose(f);
}

static void forget_log(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log", rig.dir);
    unlink(path);
}

static bool struck(void)
{
    return strstr(logged, "fails (KVC_FAULT)") != NULL;
}

/* ---- one daemon, one fault ---- */

/* What it says when it does not start: which part, and why. */
static void check_refusal(const char *fault, int status)
{
    bool told = strstr(logged, "cannot start: ") != NULL ||
                strstr(logged, "kvcache-daemon: ") != NULL || strstr(logged, "expected ") != NULL;
    ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == 1 || WEXITSTATUS(status) == 2),
                  "%s: ended with status %x while it started:\n%s", fault, (unsigned)status,
                  logged);
    ck_assert_msg(told, "%s: refused to start without a word:\n%s", fault, logged);
    ck_assert_msg(struck(), "%s: refused to start, but not for the fault:\n%s", fault, logged);
}

static void check_quiet(const char *fault)
{
    read_log();
    ck_assert_msg(!strstr(logged, "Sanitizer") && !strstr(logged, "runtime error"), "%s:\n%s",
                  fault, logged);
}

/* True when the fault was reached. */
static bool run(const char *fault, const char *const *sets, unsigned *refusals, unsigned *failures)
{
    forget_log();
    int status = rig_try(&rig, sets, fault);
    if (status) {
        read_log();
        check_refusal(fault, status);
        ++*refusals;
        return true;
    }
    *failures += scene_play(&rig) > 0;
    if (!scene_try_check(&rig))
        scene_check(&rig);
    read_log();
    if (struck()) /* once: nothing can fail in the end any more */
        rig_stop(&rig);
    else
        scene_end(&rig, rig_stop);
    check_quiet(fault);
    return struck();
}

/* The same with storage: what the run before left is found first, and what is promised in this one
 * is looked for in the next, which has no fault. */
static bool run_storage(const char *fault, const char *const *sets, unsigned *refusals,
                        unsigned *failures)
{
    static bool promised; /* by the run before */
    forget_log();
    int status = rig_try(&rig, sets, fault);
    bool reached = status != 0, given = false;
    if (status) {
        read_log();
        check_refusal(fault, status);
        ++*refusals;
    } else {
        *failures += scene_play(&rig) > 0;
        if (!scene_try_check(&rig)) /* all is evicted by it, the promise of before as well */
            scene_check(&rig);
        given = scene_promise(&rig);
        rig_stop(&rig);
        check_quiet(fault);
        reached = struck();
    }
    promised = status ? promised : given;
    forget_log();
    ck_assert_msg(rig_try(&rig, sets, NULL) == 0, "%s: the next start fails", fault);
    scene_check_promise(&rig, promised);
    if (!promised)
        promised = scene_promise(&rig);
    rig_stop(&rig);
    check_quiet(fault);
    return reached;
}

typedef bool run_fn(const char *fault, const char *const *sets, unsigned *refusals,
                    unsigned *failures);

/* KVC_FAULT_EVERY=n: after the first ten one of n, another each time that the test runs. */
static unsigned next_of(unsigned nth)
{
    const char *given = getenv("KVC_FAULT_EVERY");
    const unsigned every = given ? (unsigned)strtoul(given, NULL, 10) : 1;
    unsigned dice = 0;
    ck_assert_msg(every >= 1 && every <= NTH_MAX, "KVC_FAULT_EVERY=%s: expected 1 to %u", given,
                  NTH_MAX);
    if (nth < FIRST_ALL || every == 1)
        return nth + 1;
    ck_assert_int_eq(getrandom(&dice, sizeof dice, 0), sizeof dice);
    return nth + 1 + dice % (2 * every - 1); /* every, on average */
}

static void sweep(const char *point, const char *const *sets, run_fn *one)
{
    unsigned refusals = 0, failures = 0, nth = 0, tried = 0;
    bool reached = true;
    for (; reached; tried++) {
        char fault[32];
        nth = next_of(nth);
        ck_assert_uint_lt(nth, NTH_MAX);
        snprintf(fault, sizeof fault, "%s:%u", point, nth);
        if (getenv("KVC_FAULT_SHOW"))
            fprintf(stderr, "%s\n", fault);
        reached = one(fault, sets, &refusals, &failures);
    }
    tried--;
    ck_assert_uint_gt(tried, 0); /* the point stands somewhere */
    printf("%s: %u calls of less than %u failed one by one: %u refusals to start, %u runs with "
           "calls that failed, %u without a trace\n",
           point, tried, nth, refusals, failures, tried - refusals - failures);
    fflush(stdout);
}

/* Of the points those that $KVC_FAULT_POINT, if there is one, names behind the prefix. */
static bool is_chosen(const char *prefix, const char *point)
{
    const char *only = getenv("KVC_FAULT_POINT");
    const size_t n = strlen(prefix);
    return !only || (strncmp(only, prefix, n) == 0 && strcmp(only + n, point) == 0);
}

static int first_chosen(const char *prefix, const char *const *of, int n)
{
    int i = 0;
    while (i < n && !is_chosen(prefix, of[i]))
        i++;
    return i;
}

static int chosen_end(const char *prefix, const char *const *of, int n)
{
    while (n > 0 && !is_chosen(prefix, of[n - 1]))
        n--;
    return n;
}

#define CASE_CHOSEN(name, prefix, of)                                         \
    CASE_RANGE(name, first_chosen(prefix, of, (int)(sizeof of / sizeof *of)), \
               chosen_end(prefix, of, (int)(sizeof of / sizeof *of)))

CASES(.setup = setup, .teardown = teardown, .timeout_s = 1780);

CASE_CHOSEN(the_daemon_survives_or_refuses_to_start, "", points)
{
    sweep(points[_i], scene_sets, run);
}

CASE_CHOSEN(the_daemon_with_storage_survives_or_refuses_to_start, "storage-", storage_points)
{
    char store[128];
    snprintf(store, sizeof store, "%s/store", rig.dir);
    ck_assert_int_eq(mkdir(store, 0700), 0);
    /* The first start makes the store: those that follow have something to find. */
    ck_assert_int_eq(rig_try(&rig, scene_sets_storage(store), NULL), 0);
    rig_stop(&rig);
    sweep(storage_points[_i], scene_sets_storage(store), run_storage);
}

CASE_CHOSEN(the_daemon_with_a_device_survives_or_refuses_to_start, "device-", device_points)
{
    sweep(device_points[_i], scene_sets_device(), run);
}

/* ---- the library ---- */

static unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void sweep_library(int which, const char *const *sets)
{
    static const char *const library[] = {"alloc", "send", "map", "fd"};
    const char *point = library[which];
    unsigned failures = 0, nth = 0, tried = 0;
    bool reached = true;
    ck_assert_int_eq(rig_try(&rig, sets, NULL), 0);
    unsigned before = descriptors();
    for (; reached; tried++) {
        nth = next_of(nth);
        ck_assert_uint_lt(nth, NTH_MAX);
        if (getenv("KVC_FAULT_SHOW"))
            fprintf(stderr, "library %s:%u\n", point, nth);
        ck_assert_int_eq(fault_arm(point, nth), 0);
        failures += scene_play(&rig) > 0;
        reached = fault_count(point) >= nth;
        fault_reset();
        scene_check(&rig);
        ck_assert_uint_eq(descriptors(), before);
    }
    tried--;
    ck_assert_uint_gt(tried, 0);
    rig_stop(&rig);
    printf("library, %s: %u calls of less than %u failed one by one, %u of them with calls that "
           "failed\n",
           point, tried, nth, failures);
    fflush(stdout);
}

CASE_EACH(the_library_survives, is_chosen("", "library") ? 4 : 0)
{
    sweep_library(_i, scene_sets);
}

CASE_EACH(the_library_with_a_device_survives, is_chosen("", "device-library") ? 4 : 0)
{
    sweep_library(_i, scene_sets_device());
}
