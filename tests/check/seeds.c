/* SPDX-License-Identifier: Apache-2.0 */
#include "seeds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool seeds_number(const char *text, char **ret_end, uint64_t *ret)
{
    errno = 0;
    if (*text < '0' || *text > '9')
        return false;
    *ret = strtoull(text, ret_end, 10);
    return errno == 0 && *ret <= SEED_MAX;
}

static int seeds_begin(struct seeds *s)
{
    if (s->given)
        return args_usage("--seed, --seeds and --list: one of them");
    s->given = true;
    return 0;
}

int seeds_take_one(void *seeds, const char *text)
{
    struct seeds *s = seeds;
    int rc = seeds_begin(s);
    if (rc == 0)
        rc = args_count(args_usage, "seed", text, 0, SEED_MAX, &s->from);
    s->to = s->from;
    return rc;
}

int seeds_take_range(void *seeds, const char *text)
{
    struct seeds *s = seeds;
    char *end;
    const int rc = seeds_begin(s);
    if (rc != 0)
        return rc;
    if (!seeds_number(text, &end, &s->from) || strncmp(end, "..", 2) != 0 ||
        !seeds_number(end + 2, &end, &s->to) || *end || s->to < s->from)
        return args_usage("--seeds %s: must be FROM..TO, as in 1..100", text);
    return 0;
}

int seeds_take_file(void *seeds, const char *path)
{
    struct seeds *s = seeds;
    s->list = path;
    return seeds_begin(s);
}

static uint64_t seeds_read(const char *path, uint64_t *ret_list, uint64_t max)
{
    char line[512];
    uint64_t n = 0;
    FILE *f = fopen(path, "re");
    if (!f) {
        perror(path);
        exit(2);
    }
    while (n < max && fgets(line, sizeof line, f)) {
        char *end;
        n += seeds_number(line, &end, &ret_list[n]);
    }
    fclose(f);
    if (n == 0) {
        fprintf(stderr, "%s: %s names no seed\n", program_invocation_short_name, path);
        exit(2);
    }
    return n;
}

uint64_t seeds_count(const struct seeds *s, uint64_t *list, uint64_t max)
{
    return s->list ? seeds_read(s->list, list, max) : s->to - s->from + 1;
}
