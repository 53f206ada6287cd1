#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Line coverage: builds build/coverage, runs the tests, prints a table per directory and fails when
# one is below its limit (tests/coverage/report.py has the limits).
#
#   coverage.sh                everything
#   coverage.sh --no-deps      installs nothing
#   coverage.sh --report-only  the table of the run before
#   coverage.sh --html         also build/coverage/html/index.html, each line with its count
#
# Environment: KVC_JOBS (parallel compilations and gcov runs, default: one per CPU).
set -eu

cd "$(dirname -- "$0")/.."
jobs=${KVC_JOBS:-$(nproc)}
build=build/coverage
install=1
run=1
html=
for argument; do
    case $argument in
    --no-deps) install= ;;
    --report-only) run= ;;
    --html) html=1 ;;
    *)
        echo "coverage.sh: unknown argument '$argument'; usage:" \
            "coverage.sh [--no-deps] [--report-only] [--html]" >&2
        exit 2
        ;;
    esac
done

if [ -n "$install" ]; then
    sh tests/deps.sh --coverage
fi
if ! command -v gcovr >/dev/null; then
    echo "coverage.sh: gcovr is missing; on Debian: apt-get install gcovr" >&2
    exit 2
fi
if [ -z "${CMAKE_C_COMPILER_LAUNCHER-}" ] && command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache
fi

failed=
if [ -n "$run" ]; then
    mkdir -p "$build"
    cmake --preset coverage >"$build/configure.log" 2>&1 || {
        cat "$build/configure.log" >&2
        exit 1
    }
    cmake --build "$build" -j "$jobs"
    find "$build" -name '*.gcda' -delete
    # The gates run nothing of the product. A failed test still counts, and fails this at the end.
    ctest --test-dir "$build" --output-on-failure --no-tests=error -j 2 -LE '^(gate|gpu|long)$' ||
        failed=1
fi

formats="--json-summary $build/summary.json --json $build/coverage.json"
if [ -n "$html" ]; then
    mkdir -p "$build/html"
    formats="$formats --html-details $build/html/index.html"
fi
# shellcheck disable=SC2086 # a list of flags
gcovr --root . -j "$jobs" --filter '(daemon|client|gpu|policy|include|bench|tools|kernels)/' \
    --exclude-throw-branches $formats "$build" >"$build/gcovr.log" 2>&1 || {
    cat "$build/gcovr.log" >&2
    exit 1
}
python3 tests/coverage/report.py "$build/summary.json" || exit 1
if [ -n "$failed" ]; then
    echo "coverage.sh: tests failed (above)" >&2
    exit 1
fi
