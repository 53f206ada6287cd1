/* SPDX-License-Identifier: Apache-2.0 */
/* The senders of hostile_bytes.c. A function that cannot do its work fails the Check test that
 * calls it. */
#ifndef KVC_FUZZ_HOSTILE_BYTES_H
#define KVC_FUZZ_HOSTILE_BYTES_H

#include <stdbool.h>
#include <stdint.h>

#include "corpus.h"
#include "rig.h"

/* Results of n messages. */
struct tally {
    uint64_t ok;      /* answered with OK, or a good exit code */
    uint64_t error;   /* answered with another status, or an exit code and a text on stderr */
    uint64_t dropped; /* answered with DROPPED, or by a disconnect */
    uint64_t silent;  /* no reaction within two minutes */
};

/* hostile_wire.c: requests and attach messages, from several sessions at a time. */
struct tally hostile_wire(const struct rig *r, uint64_t n, uint64_t seed);
struct tally hostile_attach(const struct rig *r, uint64_t n, uint64_t seed);

/* hostile_stream.c: bytes on the control socket, below ZeroMQ. A stream that is unfinished and not
 * wrong counts as OK. */
struct tally hostile_stream(const struct rig *r, uint64_t n, uint64_t seed);

/* hostile_programs.c: files, by the target in a process of its own; command lines, by kvcachectl.
 */
struct tally hostile_in_process(const char *target, uint64_t n, uint64_t seed);
struct tally hostile_command_lines(const struct rig *r, uint64_t n, uint64_t seed);

/* Loads the corpus and the seeds of a target; hostile_programs.c. */
void hostile_corpus(struct corpus *c, const char *target);

/* Sets the directories of programs and corpora, and options of sanitizers, unless the environment
 * has them. Call it first in main(). */
void hostile_environment(char **argv);

#endif
