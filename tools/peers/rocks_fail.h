/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROCKS_FAIL_H
#define ROCKS_FAIL_H

#include "bench.h"

/* Says what RocksDB answered and frees that; NULL: there was no such key. Returns BENCH_FAILED. */
int rocks_fail(const char *what, char *error);

#endif
