/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how fast storage is, by the reads of loads that end. lookup/worth.c weighs loading
 * against computing by it.
 */
#include "space.h"

struct reads {
    struct worth_meter meter;
};

const struct core_module reads_module = {CORE_STATE(reads)};

bool reads_are_known(const struct core *c)
{
    return worth_meter_knows(&c->mod.reads->meter);
}

void reads_disk_speed(const struct core *c, struct worth_speed *ret_speed)
{
    worth_meter_now(&c->mod.reads->meter, c->moving.reading_bytes, c->now_ns, ret_speed);
}

void reads_begun(struct core *c, uint64_t bytes)
{
    worth_meter_begin(&c->mod.reads->meter, bytes, c->moving.reading_bytes, c->now_ns);
}

void reads_ended(struct core *c, uint64_t bytes, bool ok)
{
    worth_meter_end(&c->mod.reads->meter, bytes, ok, c->moving.reading_bytes, c->now_ns);
}
