/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model over the fake device, which does its work in random pieces, and watches over memory
 * that is freed too early. KVC_SEED=n repeats a run, KVC_MODEL_STEPS=n makes it longer.
 */
#include "cases.h"
#include "fake_gpu.h"
#include "hbm_model.h"

#define LIMIT (16 * RIG_MIB)

static void step(struct rig *r)
{
    struct gpu *g = hbm_gpu(r->hbm);
    if (rig_below(r, 3) == 0)
        (void)fake_gpu_memory(g);
    (void)fake_gpu_copy(g, rig_below(r, 600));
}

static void lose(struct rig *r)
{
    fake_gpu_lose(hbm_gpu(r->hbm));
}

static void bring_back(struct rig *r)
{
    fake_gpu_up(hbm_gpu(r->hbm));
}

static void starve(struct rig *r)
{
    fake_gpu_fail(hbm_gpu(r->hbm), rig_below(r, 2) == 0 ? GPU_ALLOC : GPU_IMPORT,
                  1 + rig_below(r, 3), -ENOMEM);
}

static void check(struct rig *r)
{
    ck_assert_uint_le(fake_gpu_peak_bytes(hbm_gpu(r->hbm)), LIMIT);
}

CASES(.timeout_s = 240);

CASE_EACH(random_operations_agree_with_the_model, 4)
{
    static const struct hbm_drive drive = {step, lose, bring_back, starve, check};
    const struct rig_config config = {
        .limit_bytes = LIMIT, .chunk_bytes = 2 * RIG_MIB, .step = fake_gpu_run};
    hbm_model_case(&config, &drive, _i, 10000);
}
