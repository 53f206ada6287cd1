#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# measure_vllm.py in the environment of the engines' tests. Arguments are measure_vllm.py's.
set -eu
source=$(cd "$(dirname -- "$0")/../.." && pwd)
exec sh "$source/tests/e2e/engines.sh" --bench measure_vllm.py "$@"
