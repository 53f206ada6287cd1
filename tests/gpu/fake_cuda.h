/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a test asks of the fake driver (README.md). The functions are those of the library that the
 * program under test has loaded: dlsym() finds the table there, by FAKE_CUDA_SYMBOL.
 */
#ifndef TESTS_GPU_FAKE_CUDA_H
#define TESTS_GPU_FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

struct fake_cuda {
    /* Objects that are there: contexts, streams, memory, ...; what they are, in words. */
    unsigned (*live)(char *ret_text, size_t bytes);
    /* Calls of a function since cuInit() first ran, and of what is counted like one: "piece" (a
     * copy of one run of bytes, single or of a batch), "frag" (one entry of a kernel's list), "ptx"
     * (a module that came as PTX). */
    uint64_t (*calls)(const char *name);
    /* Failures from now on, as FAKE_CUDA_FAIL says them; "" takes all back. Aborts on bad text. */
    void (*arm)(const char *text);
    /* Nothing is executed while on != 0. */
    void (*hold)(int on);
    /* Calls of this function do not come back; NULL: those and all others do. */
    void (*hang)(const char *name);
    /* Streams that a program has made are under graph capture while on != 0: nothing may be given
     * to them, nor to the default stream, which would break the capture. */
    void (*capture)(int on);
    /* While on != 0: after an error that a context does not forget the process gets no other
     * context, as of driver 580. */
    void (*keep_errors)(int on);
};

/* Exported by the library. */
#define FAKE_CUDA_SYMBOL "fake_cuda_control"

#endif
