/* SPDX-License-Identifier: Apache-2.0 */
/* The senders of hostile_bytes.c. Everything here fails the Check test that calls it when it cannot
 * do its work. */
#ifndef KVC_FUZZ_HOSTILE_BYTES_H
#define KVC_FUZZ_HOSTILE_BYTES_H

#include <stdbool.h>
#include <stdint.h>

#include "corpus.h"
#include "rig.h"

/* What became of the senders of n messages. */
struct tally {
    uint64_t ok;      /* answered with OK, or a good exit code */
    uint64_t error;   /* answered with another status, or an exit code and a text */
    uint64_t dropped; /* told DROPPED, or disconnected */
    uint64_t silent;  /* none of it within two minutes */
};

/* hostile_wire.c: requests and attach messages, from several sessions at a time. */
struct tally hostile_wire(const struct rig *r, uint64_t n, uint64_t seed);
struct tally hostile_attach(const struct rig *r, uint64_t n, uint64_t seed);

/* hostile_stream.c: bytes on the control socket, below ZeroMQ. OK: unfinished, and not wrong. */
struct tally hostile_stream(const struct rig *r, uint64_t n, uint64_t seed);

/* hostile_programs.c: files in the target's own process, command lines with kvcachectl. */
struct tally hostile_in_process(const char *target, uint64_t n, uint64_t seed);
struct tally hostile_command_lines(const struct rig *r, uint64_t n, uint64_t seed);

/* The corpus of a target and its seeds; hostile_programs.c. */
void hostile_corpus(struct corpus *c, const char *target);

/* Where programs and corpora are, and what sanitizers do, unless the environment says so. First
 * thing in main(). */
void hostile_environment(char **argv);

#endif
