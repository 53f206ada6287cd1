/* SPDX-License-Identifier: Apache-2.0 */
/* Pins; towards the end of core__.h, which includes it. */
#ifndef KVC_CORE_PIN_H
#define KVC_CORE_PIN_H

#include "core__.h"

/* Somebody's wish that blocks stay. */
struct pin {
    uint64_t id;     /* serial above, pool index + 1 below; 0: it is being made */
    uint64_t end_ms; /* 0: none */
    uint64_t bytes;
    uint32_t ns, principal, tokens; /* ns: id */
    const char *owner, *tenant;
    bool in_memory, of_name;
    uint64_t settled; /* the epoch of the pass (pin.c) that found it lacking nothing */
    struct run_list blocks;
    uint32_t held;  /* of `blocks`, those that it has pinned: all, but while it comes */
    uint32_t freed; /* of `held`, the first ones, which it has let go of: none before its end */
    struct key256 tip;
    bool going;            /* it has ended, nobody sees it */
    struct list_node node; /* then: core->pins->going */
    struct run_iter at;    /* where its pass, or its end, goes on */
    uint32_t pass, looked; /* number of its last pass, and entries looked at in that */
    bool lacks;            /* some of them lack something */
};

/* A step of what pins lack, and of those that end. True: there is more to do at once. */
bool pin_step(struct core *c);
/* Some pinned block lacks a copy again. */
void pin_look(struct core *c);
/* Of what the last run had pinned, and nobody has yet: it is to be given back. */
bool pin_was_found(const struct core *c, const struct block *b);
/* Something has been found that the last run had pinned. */
void pin_found(struct core *c);
/* What is pinned goes too, from now on or no more. */
void pins_force(struct core *c, bool forced);
/* Also those that are being made, or let go of in slices; these. */
uint32_t pins_used(const struct core *c);
bool pins_are_going(const struct core *c);
void pins_check(struct core *c);
uint32_t pins_of_runs(const struct core_config *cfg);

#endif
