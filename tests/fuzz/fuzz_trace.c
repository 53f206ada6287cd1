/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace file. What loads keeps the promises of trace.h, and written again as JSONL it loads to
 * the same; what does not load has a reason that names the file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kvcache/proto.h>

#include "fuzz.h"
#include "trace.h"

static int file_fd = -1;
static char path[64];

static void fill(const void *bytes, size_t n)
{
    if (file_fd < 0) {
        file_fd = memfd_create("trace", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd);
    }
    FUZZ_CHECK(file_fd >= 0 && ftruncate(file_fd, 0) == 0, "no file");
    FUZZ_CHECK(pwrite(file_fd, bytes, n, 0) == (ssize_t)n, "cannot write");
}

static void check_promises(const struct trace *t)
{
    size_t first = 0;
    uint32_t most = 0;
    for (size_t i = 0; i < t->n_requests; i++) {
        const struct trace_request *r = &t->requests[i];
        FUZZ_CHECK(r->first == first && r->blocks <= KVC_KEYS_MAX, "request %zu", i);
        first += r->blocks;
        most = r->blocks > most ? r->blocks : most;
    }
    FUZZ_CHECK(first == t->n_ids && t->n_ids > 0, "%zu ids, not %zu", first, t->n_ids);
    FUZZ_CHECK(most == t->blocks_max, "blocks_max is %u, not %u", t->blocks_max, most);
    uint64_t unique = 0;
    FUZZ_CHECK(trace_unique_blocks(t, &unique) == 0 && unique >= 1 && unique <= t->n_ids,
               "%llu of %zu are unique", (unsigned long long)unique, t->n_ids);
}

static char *write_again(const struct trace *t, size_t *ret_len)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, ret_len);
    FUZZ_CHECK(to != NULL, "no memory");
    for (size_t i = 0; i < t->n_requests; i++) {
        const struct trace_request *r = &t->requests[i];
        fprintf(to, "{\"timestamp\": %llu, \"input_length\": %u, \"output_length\": %u, ",
                (unsigned long long)r->timestamp_ms, r->input_tokens, r->output_tokens);
        fputs("\"hash_ids\": [", to);
        for (uint32_t k = 0; k < r->blocks; k++)
            fprintf(to, "%s%llu", k != 0 ? ", " : "", (unsigned long long)t->ids[r->first + k]);
        fputs("]}\n", to);
    }
    fclose(to);
    return text;
}

static void check_same(const struct trace *a, const struct trace *b)
{
    FUZZ_CHECK(a->n_requests == b->n_requests && a->n_ids == b->n_ids &&
                   a->blocks_max == b->blocks_max &&
                   memcmp(a->ids, b->ids, a->n_ids * sizeof(*a->ids)) == 0,
               "another trace");
    for (size_t i = 0; i < a->n_requests; i++) {
        const struct trace_request *x = &a->requests[i], *y = &b->requests[i];
        FUZZ_CHECK(x->timestamp_ms == y->timestamp_ms && x->input_tokens == y->input_tokens &&
                       x->output_tokens == y->output_tokens && x->blocks == y->blocks &&
                       x->first == y->first,
                   "request %zu is another", i);
    }
}

static void check_again(const struct trace *t)
{
    char why[TRACE_WHY_BYTES] = "";
    size_t len;
    char *text = write_again(t, &len);
    struct trace *again = NULL;
    fill(text, len);
    FUZZ_CHECK(trace_load(path, 0, why, &again) == 0, "%s", why);
    check_same(t, again);
    trace_destroy(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[TRACE_WHY_BYTES] = "";
    struct trace *t = NULL, *cut = NULL;
    fill(data, size);
    uint64_t fds = fuzz_open_fds();
    int rc = trace_load(path, 0, why, &t);
    FUZZ_CHECK(fuzz_open_fds() == fds, "a descriptor is left open");
    if (rc < 0) {
        FUZZ_CHECK(strncmp(why, path, strlen(path)) == 0 && strlen(why) > strlen(path) + 2,
                   "'%s' does not say what is wrong", why);
        FUZZ_CHECK(t == NULL, "a trace in spite of: %s", why);
        fuzz_tally.refused++;
        return 0;
    }
    check_promises(t);
    if (trace_load(path, 1, why, &cut) == 0) {
        FUZZ_CHECK(cut->n_requests == 1, "%zu requests", cut->n_requests);
        trace_destroy(&cut);
    }
    check_again(t);
    trace_destroy(&t);
    fuzz_tally.taken++;
    return 0;
}
