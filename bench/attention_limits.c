/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits that attention is compared with: how fast memory is read, and how fast a BLAS
 * multiplies.
 */
#include <pthread.h>
#include <stdlib.h>
#ifdef KVC_HAVE_BLAS
#include <cblas.h>
#endif

#include "attention.h"

#define SLICE_BYTES (UINT64_C(1) << 20)
#define READERS_MAX 256u
#define BLAS_N      1024

/* ---- reading ---- */

struct share {
    pthread_t thread;
    const uint8_t *from;
    uint64_t bytes, until_ns, read, sum;
};

static void *share_main(void *arg)
{
    struct share *s = arg;
    uint64_t at = 0;
    while (now_ns() < s->until_ns) {
        const uint64_t left = s->bytes - at, n = left < SLICE_BYTES ? left : SLICE_BYTES;
        s->sum += perf_read(s->from + at, n);
        s->read += n;
        at = at + n < s->bytes ? at + n : 0;
    }
    return NULL;
}

int attention_read(const uint8_t *from, uint64_t bytes, uint32_t threads, double seconds,
                   double *ret_rate)
{
    static struct share shares[READERS_MAX];
    const uint64_t begun = now_ns(), each = bytes / threads / 64 * 64;
    uint32_t n = 0;
    uint64_t read = 0;
    for (; n < threads && n < READERS_MAX; n++) {
        shares[n] = (struct share){
            .from = from + n * each, .bytes = each, .until_ns = begun + (uint64_t)(seconds * 1e9)};
        if (pthread_create(&shares[n].thread, NULL, share_main, &shares[n]) != 0)
            break;
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)pthread_join(shares[i].thread, NULL);
        perf_keep(shares[i].sum);
        read += shares[i].read;
    }
    *ret_rate = (double)read / ((double)(now_ns() - begun) * 1e-9);
    if (n < threads) {
        say_error("no thread could be started");
        return BENCH_FAILED;
    }
    return 0;
}

/* ---- OpenBLAS ---- */

#ifdef KVC_HAVE_BLAS
bool attention_has_blas(void)
{
    return true;
}

int attention_blas(uint32_t threads, double seconds, double *ret_rate)
{
    const size_t floats = (size_t)BLAS_N * BLAS_N;
    float *x = calloc(3 * floats, sizeof(*x));
    uint64_t calls = 0;
    if (!x) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    openblas_set_num_threads((int)threads);
    const uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    do {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, BLAS_N, BLAS_N, BLAS_N, 1, x, BLAS_N,
                    x + floats, BLAS_N, 0, x + 2 * floats, BLAS_N);
        calls++;
    } while (now_ns() < until);
    *ret_rate =
        2.0 * BLAS_N * BLAS_N * BLAS_N * (double)calls / ((double)(now_ns() - begun) * 1e-9);
    free(x);
    return 0;
}
#else
bool attention_has_blas(void)
{
    return false;
}

int attention_blas(uint32_t threads, double seconds, double *ret_rate)
{
    (void)threads, (void)seconds;
    *ret_rate = 0;
    return 0;
}
#endif
