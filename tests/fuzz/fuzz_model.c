/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The config.json of a model, as 'kvcachectl size' reads it. What is refused has a reason that
 * names the file; what is taken adds up, and its sizes grow with the context.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "kv_file.h"
#include "kv_model.h"

static int file_fd = -1;
static char path[64];

static void fill(const void *bytes, size_t n)
{
    if (file_fd < 0) {
        file_fd = memfd_create("config.json", MFD_CLOEXEC);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd);
    }
    FUZZ_CHECK(file_fd >= 0 && ftruncate(file_fd, 0) == 0, "no file");
    FUZZ_CHECK(pwrite(file_fd, bytes, n, 0) == (ssize_t)n, "cannot write");
}

static void check_sizes(const struct kv_model *m, enum kv_form form, const struct kv_type *type)
{
    static const uint64_t contexts[] = {1, 15, 16, 17, 4096, 131072, 1u << 24};
    /* What a window keeps may lie in one block, or across two. */
    const struct kv_part whole = kv_part_whole(m);
    uint64_t before = 0, slack = 16 * kv_token_bytes(m, form, type, whole);
    double token = (double)kv_token_bytes(m, form, type, whole);
    for (unsigned i = 0; i < sizeof(contexts) / sizeof(contexts[0]); i++) {
        if (token * (double)(contexts[i] + 16) > 9e18)
            return; /* the command refuses it */
        uint64_t bytes = kv_context_bytes(m, form, type, contexts[i], 16, whole);
        uint64_t least = 0;
        for (uint32_t j = 0; j < m->layers; j++)
            if (m->layer[j].kind == KV_FULL)
                least = kv_token_bytes(m, form, type,
                                       (struct kv_part){.tp = 1, .first = j, .layers = 1});
        FUZZ_CHECK(least == 0 || bytes / least >= contexts[i],
                   "%s, %s: %llu tokens take %llu bytes", kv_form_name(form), type->name,
                   (unsigned long long)contexts[i], (unsigned long long)bytes);
        FUZZ_CHECK(bytes + slack >= before && bytes + slack >= bytes,
                   "%s, %s: %llu tokens take %llu bytes, fewer take %llu", kv_form_name(form),
                   type->name, (unsigned long long)contexts[i], (unsigned long long)bytes,
                   (unsigned long long)before);
        before = bytes;
    }
}

static void check_forms(const struct kv_model *m)
{
    for (unsigned form = 0; form < KV_FORM_COUNT; form++) {
        for (unsigned i = 0; kv_type_at(i) != NULL; i++) {
            char formula[256] = "";
            kv_form_formula(m, (enum kv_form)form, kv_type_at(i), formula, sizeof(formula));
            FUZZ_CHECK(formula[0] != '\0', "an empty formula");
            if (kv_form_missing(m, (enum kv_form)form) == NULL)
                check_sizes(m, (enum kv_form)form, kv_type_at(i));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[KV_WHY_BYTES] = "";
    struct kv_model m;
    fill(data, size);
    uint64_t fds = fuzz_open_fds();
    int rc = kv_file_load(path, why, &m);
    FUZZ_CHECK(fuzz_open_fds() == fds, "a descriptor is left open");
    if (rc < 0) {
        FUZZ_CHECK(strncmp(why, path, strlen(path)) == 0 && strlen(why) > strlen(path) + 2,
                   "'%s' does not say what is wrong", why);
        fuzz_tally.refused++;
        return 0;
    }
    FUZZ_CHECK(m.layers > 0 && m.layers <= KV_LAYERS_MAX, "%u layers", m.layers);
    for (uint32_t i = 0; i < m.layers; i++)
        FUZZ_CHECK(m.layer[i].kind < KV_KINDS &&
                       (m.layer[i].kind != KV_SLIDING || m.layer[i].window > 0),
                   "layer %u slides without a window", i);
    check_forms(&m);
    fuzz_tally.taken++;
    return 0;
}
