/* SPDX-License-Identifier: Apache-2.0 */
/* The computations between the matrix products, one number at a time. A row's result depends bit
 * for bit on that row alone (and on the machine's instruction set). */
#ifndef WORKER_POINTWISE_H
#define WORKER_POINTWISE_H

#include <stdint.h>

/* y = x / rms(x) * weight. */
void norm_row(const float *x, const float *weight, float eps, uint32_t n, float *y);
/* gate = silu(gate) * up */
void swiglu(float *gate, const float *up, uint64_t n);
void add_to(float *x, const float *y, uint64_t n);
/* cos and sin of a position: [head_size / 2] each. */
void rope_angles(double theta, uint32_t head_size, uint32_t position, float *cosine, float *sine);
/* Rotates the pairs (i, i + head_size / 2) of each head by the angles of its position, in place. */
void rope_row(float *x, uint32_t heads, uint32_t head_size, const float *cosine, const float *sine);

#endif
