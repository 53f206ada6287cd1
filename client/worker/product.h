/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products: the adapter of OpenBLAS. product.c alone includes its header.
 *
 * w is [n][k] as Hugging Face keeps weights (outputs first), x is [rows][k], y is [rows][n].
 *
 * Bits      y is a function of x and w, of `rows` and of which row it is, of the number of threads
 *           and of BLAS's kernels. It is not the same bits for another number of rows, nor from
 *           product_row(). Who compares bits gives each token the same row of the same number.
 * Threads   one caller at a time.
 */
#ifndef WORKER_PRODUCT_H
#define WORKER_PRODUCT_H

#include <stdint.h>

/* main() calls it first, with its argv. If the CPU is newer than OpenBLAS, OpenBLAS may use kernels
 * for a much older one; then the program executes itself again with OPENBLAS_CORETYPE set. Does
 * nothing if the user has set that variable. */
void product_choose_core(char **argv);
/* Call it once, before the first product; `threads` is 1 or more. */
void product_begin(uint32_t threads);
/* The name of the kernels that BLAS has chosen, as in "SkylakeX". Static. */
const char *product_core(void);
void product_rows(const float *x, const float *w, float *y, uint32_t rows, uint32_t n, uint32_t k);
void product_row(const float *x, const float *w, float *y, uint32_t n, uint32_t k);

#endif
