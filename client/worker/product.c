/* SPDX-License-Identifier: Apache-2.0 */
#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "product.h"

/* Whether OpenBLAS has chosen kernels for CPUs without AVX, which is its fallback. */
static int core_is_old(void)
{
    static const char *const old[] = {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem"};
    for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++)
        if (strcmp(openblas_get_corename(), old[i]) == 0)
            return 1;
    return 0;
}

/* OpenBLAS reads the variable before main() runs, so the program executes itself again. If that
 * fails, products are slow. */
void product_choose_core(char **argv)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    const char *core = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")
                           ? "SkylakeX"
                       : __builtin_cpu_supports("avx2") ? "Haswell"
                                                        : NULL;
    if (core && !getenv("OPENBLAS_CORETYPE") && core_is_old() &&
        setenv("OPENBLAS_CORETYPE", core, 1) == 0)
        (void)execv("/proc/self/exe", argv);
#else
    (void)argv, (void)core_is_old;
#endif
}

void product_begin(uint32_t threads)
{
    openblas_set_num_threads((int)threads);
}

const char *product_core(void)
{
    return openblas_get_corename();
}

void product_rows(const float *x, const float *w, float *y, uint32_t rows, uint32_t n, uint32_t k)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)n, (int)k, 1.0f, x, (int)k,
                w, (int)k, 0.0f, y, (int)n);
}

/* Clears y first: BLAS multiplies its contents by 0, and they may be no number. */
void product_row(const float *x, const float *w, float *y, uint32_t n, uint32_t k)
{
    memset(y, 0, n * sizeof(*y));
    cblas_sgemv(CblasRowMajor, CblasNoTrans, (int)n, (int)k, 1.0f, w, (int)k, x, 1, 0.0f, y, 1);
}
