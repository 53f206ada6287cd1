/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a test controls the fake driver (README.md). The functions belong to the library that the
 * program under test has loaded; dlsym() finds the table in it by FAKE_CUDA_SYMBOL.
 */
#ifndef TESTS_GPU_FAKE_CUDA_H
#define TESTS_GPU_FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

struct fake_cuda {
    /* Number of existing objects: contexts, streams, memory and others. ret_text: what they are. */
    unsigned (*live)(char *ret_text, size_t bytes);
    /* Calls of a function since the first cuInit(). Counted alike: "piece" (a copy of one run of
     * bytes, alone or in a batch), "frag" (an entry of a kernel's list), "ptx" (a module that was
     * loaded as PTX). */
    uint64_t (*calls)(const char *name);
    /* Sets failures from now on, written as in FAKE_CUDA_FAIL; "" removes all. Aborts if the text
     * is invalid. */
    void (*arm)(const char *text);
    /* On != 0: nothing is executed. */
    void (*hold)(int on);
    /* Calls of this function do not return; NULL: they and all others return again. */
    void (*hang)(const char *name);
    /* On != 0: streams that a program has made are under graph capture. Neither they nor the
     * default stream may be given work, because that would break the capture. */
    void (*capture)(int on);
    /* On != 0: after an error that a context does not forget, the process gets no other context, as
     * with driver 580. */
    void (*keep_errors)(int on);
};

/* Exported by the library. */
#define FAKE_CUDA_SYMBOL "fake_cuda_control"

#endif
