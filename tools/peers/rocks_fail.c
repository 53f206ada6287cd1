/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the error text of RocksDB, and frees it. */
#include <rocksdb/c.h>

#include "rocks_fail.h"

int rocks_fail(const char *what, char *error)
{
    say_error("RocksDB: %s: %s", what, error ? error : "no such key");
    rocksdb_free(error);
    return BENCH_FAILED;
}
