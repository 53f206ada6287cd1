/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput(). Under the preset
 * "fuzz" libFuzzer calls it, in every other build replay.c.
 */
#ifndef KVC_FUZZ_H
#define KVC_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Names that libFuzzer prescribes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* Results of the inputs so far; replay.c prints them. */
struct fuzz_tally {
    unsigned long taken;   /* accepted by the function under test */
    unsigned long refused; /* refused, with an error that says why */
};
extern struct fuzz_tally fuzz_tally;

/* Ends the process with abort() if a contract was broken, for libFuzzer and ctest alike. */
#define FUZZ_CHECK(cond, ...) ((cond) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #cond, __VA_ARGS__))
_Noreturn __attribute__((format(printf, 4, 5))) void
fuzz_fail(const char *file, int line, const char *cond, const char *fmt, ...);

/* A copy of exactly n bytes (malloc), so that a sanitizer sees a read past the end. Never NULL. */
void *fuzz_copy(const void *p, size_t n);
/* The same as C text: one byte more, for the terminator. */
char *fuzz_text(const void *p, size_t n);
/* The open descriptors below 64, one bit each. Equal before and after a run: it left none open. */
uint64_t fuzz_open_fds(void);

#endif
