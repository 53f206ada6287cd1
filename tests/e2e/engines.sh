#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The connectors against real engines (tests/engines/README.md): makes the environment when it is not
# there, and runs. Arguments are pytest's: --long also runs what takes minutes. --bench PROGRAM: measures
# instead, with that program of bench/engines.
set -eu

source=${KVC_SOURCE_DIR:-$(cd "$(dirname -- "$0")/../.." && pwd)}
export KVC_BIN_DIR="${KVC_BIN_DIR:-$source/build/release/bin}"
package=$(dirname -- "$KVC_BIN_DIR")/python
# Environment and models; a tree that is tested in a copy may use those of another one.
engines=${KVC_ENGINES:-$source/build/engines}
export KVC_MODELS="$engines/models"

if [ "${KVC_TRACE_LIGHT:-}" = 1 ]; then
    echo "SKIP: engines: Python cannot load a library that was built with a sanitizer"
    exit 77
fi
if [ ! -e "$package/kvcache_client/_kvc.abi3.so" ]; then
    echo "SKIP: engines: the Python package is not built: no headers of Python"
    exit 77
fi

mkdir -p "$engines"
venv=$engines/venv
flock "$engines/lock" sh "$source/tests/engines/venv.sh" "$venv" || {
    echo "SKIP: engines: vLLM cannot be installed here (see above)"
    exit 77
}

# What vLLM wants on a CPU. One engine at a time; its threads share the processors with the daemon.
# KMP_BLOCKTIME, milliseconds that an idle thread spins: what vLLM sets in processes of its own.
export LD_PRELOAD="$venv/lib/libiomp5.so" PYTHONPATH="$package"
# Compiled modules lie beside the environment: half of what an import costs, and not in the tree.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$engines/pycache"
export KMP_BLOCKTIME=5 VLLM_CPU_KVCACHE_SPACE="${VLLM_CPU_KVCACHE_SPACE:-1}" VLLM_ENABLE_V1_MULTIPROCESSING=0
# Engines here are eager; one helper of theirs is still compiled, by each engine anew and for seconds.
[ "${1:-}" = --bench ] || export TORCHDYNAMO_DISABLE=1
export VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
cd "$source/tests/engines"
if [ "${1:-}" = --bench ]; then
    program=$2
    shift 2
    PYTHONPATH=$PYTHONPATH:. exec "$venv/bin/python" "$source/bench/engines/$program" "$@"
fi
exec "$venv/bin/python" -m pytest -p no:cacheprovider -rs "$@"
