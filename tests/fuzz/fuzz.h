/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the targets of this directory share. A target is one file with LLVMFuzzerTestOneInput() in
 * it; under the preset "fuzz" libFuzzer drives it, in every other build replay.c does.
 */
#ifndef KVC_FUZZ_H
#define KVC_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's names. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* What became of the inputs so far; replay prints it. */
struct fuzz_tally {
    unsigned long taken;   /* accepted by what was tried */
    unsigned long refused; /* refused, with an error that says why */
};
extern struct fuzz_tally fuzz_tally;

/* A promise that was broken: ends the process with abort(), for libFuzzer and ctest alike. */
#define FUZZ_CHECK(cond, ...) ((cond) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #cond, __VA_ARGS__))
_Noreturn __attribute__((format(printf, 4, 5))) void
fuzz_fail(const char *file, int line, const char *cond, const char *fmt, ...);

/* A copy of exactly n bytes (malloc), so that a sanitizer sees a read past the end. Never NULL. */
void *fuzz_copy(const void *p, size_t n);
/* The same as C text: one byte more, for the terminator. */
char *fuzz_text(const void *p, size_t n);
/* Which descriptors below 64 are open, one bit each: the same before and after, when none was left
 * open. */
uint64_t fuzz_open_fds(void);

#endif
