#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package: sdist and wheel are made, and the wheel's tests run on this build's daemon, with
# mypy, ruff and twine. With ASan: the tests on the extension of the build tree.
#
# $KVC_PYTHON: which Python; $KVC_SANITIZE: what this build is instrumented with.
set -eu

package=$KVC_SOURCE_DIR/client/python
env=$KVC_SOURCE_DIR/build/python-env
python=$env/bin/python

# Two builds' tests may come here at the same time.
mkdir -p "$KVC_SOURCE_DIR/build"
if ! PYTHON=${KVC_PYTHON:-python3} flock "$KVC_SOURCE_DIR/build/python-env.lock" \
    sh "$package/tests/venv.sh" "$env" >venv.log 2>&1; then
    echo "SKIP: no environment with pytest, mypy, ruff and auditwheel: $(tail -n 1 venv.log)"
    exit 77
fi
export PYTHONDONTWRITEBYTECODE=1 RUFF_NO_CACHE=true MYPY_CACHE_DIR="$PWD/mypy"

case ${KVC_SANITIZE:-} in
'')
    # A series of refusals, which this build sees less of.
    leave_out=--ignore=test_refused.py
    PYTHON=$python sh "$package/wheel.sh" "$KVC_BIN_DIR" "$PWD/dist"
    rm -rf site
    "$python" -m pip install -q --disable-pip-version-check --no-index --no-deps --target site \
        dist/*.whl
    site=$PWD/site
    "$python" -m twine check --strict dist/*
    (cd "$package" && "$env/bin/ruff" check . && "$env/bin/ruff" format --check . &&
        "$python" -m mypy)
    ;;
*address*)
    # malloc instead of Python's own pools, so that every object is seen. Python itself leaks at exit.
    site=$KVC_BIN_DIR/../python
    export LD_PRELOAD PYTHONMALLOC=malloc
    LD_PRELOAD=$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libubsan.so)
    export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0"
    ;;
*)
    echo "SKIP: the extension in Python: not with -fsanitize=$KVC_SANITIZE"
    exit 77
    ;;
esac
cd "$package/tests"
PYTHONPATH=$site exec "$python" -m pytest -q -p no:cacheprovider -o addopts=-ra ${leave_out:-} .
