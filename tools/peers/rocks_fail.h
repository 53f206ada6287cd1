/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ROCKS_FAIL_H
#define ROCKS_FAIL_H

#include "bench.h"

/* Prints RocksDB's error and frees it; NULL: the key did not exist. Returns BENCH_FAILED. */
int rocks_fail(const char *what, char *error);

#endif
