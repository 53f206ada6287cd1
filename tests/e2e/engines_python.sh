#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The package beside transformers, llama.cpp and SGLang's classes: the tests of client/python/tests
# that skip without them. Uses the environment of engines.sh, and keeps what it adds beside it.
#
#   engines_python.sh [--long]    --long: also SmolLM2-135M with its real weights, and every
#                                 architecture of transformers as check sees it (minutes)
set -eu

source=${KVC_SOURCE_DIR:-$(cd "$(dirname -- "$0")/../.." && pwd)}
export KVC_BIN_DIR="${KVC_BIN_DIR:-$source/build/release/bin}"
package=$(dirname -- "$KVC_BIN_DIR")/python
engines=${KVC_ENGINES:-$source/build/engines}
env=$engines/venv
more=$engines/more
sglang=$engines/sglang

if [ "${KVC_TRACE_LIGHT:-}" = 1 ]; then
    echo "SKIP: engines: Python cannot load a library that was built with a sanitizer"
    exit 77
fi
if [ ! -e "$package/kvcache_client/_kvc.abi3.so" ]; then
    echo "SKIP: engines: the Python package is not built: no headers of Python"
    exit 77
fi
# Two that come at the same time: one makes what is missing.
mkdir -p "$engines"
exec 9>"$engines/lock"
flock 9
cannot() {
    echo "SKIP: engines: $1 cannot be installed here (see above)"
    exit 77
}
sh "$source/tests/engines/venv.sh" "$env" || cannot transformers

sh "$source/tests/engines/more.sh" "$engines" || cannot "what is tested beside transformers"
# SGLang has no wheel that a CPU can run; its modules for caches are Python.
if [ ! -e "$sglang/made" ]; then
    rm -rf "$sglang"
    mkdir -p "$sglang"
    "$env/bin/python" -m pip download -q --disable-pip-version-check --no-deps \
        --python-version 3.12 --only-binary=:all: -d "$sglang" sglang==0.5.23 || cannot SGLang
    "$env/bin/python" -m zipfile -e "$sglang"/sglang-*.whl "$sglang"
    rm "$sglang"/sglang-*.whl
    touch "$sglang/made"
fi
flock -u 9
exec 9>&-

long=
[ "${1:-}" != --long ] || long='test_smollm2.py test_check_engine.py'
export PYTHONPATH="$package:$more" KVC_SGLANG="$sglang"
unset PYTHONDONTWRITEBYTECODE # as engines.sh has it
export PYTHONPYCACHEPREFIX="$engines/pycache"
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 OMP_NUM_THREADS=2
cd "$source/client/python/tests"
# shellcheck disable=SC2086 # $long is a list of names or none
exec "$env/bin/python" -m pytest -q -p no:cacheprovider -o addopts=-rs \
    test_transformers.py test_check.py test_guides.py test_llamacpp.py test_sglang.py $long
