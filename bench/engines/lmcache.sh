#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# measure_lmcache.py in the environment of the engines' tests; LMCache is installed beside it, from
# PyPI. Arguments are measure_lmcache.py's.
set -eu
source=$(cd "$(dirname -- "$0")/../.." && pwd)
exec sh "$source/tests/e2e/engines.sh" --bench measure_lmcache.py "$@"
