/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics with units. What a value counts follows from its name. Pure. */
#ifndef CTL_STAT_TEXT_H
#define CTL_STAT_TEXT_H

#include <stdint.h>

#define STAT_TEXT_BYTES 40

/* Writes a value by the name of its statistic: as bytes if "bytes" is a word of the name, as a
 * duration if the name ends in _ns, _us or _ms (or in one of these and .mean, .p50, .p99, .p9999,
 * .max), else as a count. */
void stat_value_text(const char *name, uint64_t value, char text[STAT_TEXT_BYTES]);
void stat_rate_text(const char *name, double per_second, char text[STAT_TEXT_BYTES]);

#endif
