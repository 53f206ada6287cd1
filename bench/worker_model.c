/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_model.h"

#include <stdio.h>
#include <string.h>

int worker_model_open(const struct worker_model *m, struct model *ret_model)
{
    char why[MODEL_WHY_BYTES];
    struct model model = {.chunk = 0};
    int rc =
        m->dir ? model_load(m->dir, why, &model) : model_preset(m->preset, m->seed, why, &model);
    if (rc == 0)
        rc = model_begin(&model, (uint32_t)m->chunk, (uint32_t)m->threads, why);
    if (rc == 0) {
        *ret_model = model;
        return 0;
    }
    model_end(&model);
    say_error("%s", why);
    return BENCH_USAGE;
}

const char *worker_model_weights(const struct worker_model *m)
{
    return m->dir ? m->dir : "random weights";
}

void worker_model_prompt(const struct model *model, uint64_t seed, uint32_t *token, uint32_t n)
{
    uint64_t state = seed;
    for (uint32_t i = 0; i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        token[i] = (uint32_t)((state >> 33) % model->is.vocab);
    }
}

void worker_types_name(struct worker_types *types)
{
    const char *k = kvc_type_name((enum kvc_type)types->type[0]);
    const char *v = kvc_type_name((enum kvc_type)types->type[1]);
    const bool same = types->type[0] == types->type[1];
    (void)snprintf(types->name, sizeof(types->name), same ? "%s" : "%s:%s", k, v);
}

int worker_types_list(const char *text, struct worker_types *list, size_t max, size_t *ret_n)
{
    char copy[256];
    size_t n = 0;
    if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy))
        return say_usage("--types: the list is too long");
    char *rest = copy;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        if (n == max)
            return say_usage("--types: at most %zu", max);
        if (kv_types_parse(item, &list[n].type[0], &list[n].type[1]) != 0)
            return say_usage("--types: no type '%s'; there are fp32, fp16, bf16, fp8, q8_0, q4_0, "
                             "int8, or two of them for K and V, as in q8_0:q4_0",
                             item);
        worker_types_name(&list[n++]);
    }
    *ret_n = n;
    return 0;
}
