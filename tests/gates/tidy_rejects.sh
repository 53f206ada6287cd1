#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gate: .clang-tidy, as tests/tidy.sh uses it, rejects a function of more than 70 lines and accepts
# one of 70.
#
#   tidy_rejects.sh ROOT
set -eu

root=$1
if ! command -v clang-tidy >/dev/null; then
    echo "SKIP: clang-tidy is not installed (sh tests/deps.sh --ci)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
# tidy.sh runs from its own tree, and clang-tidy takes the .clang-tidy above the file.
mkdir -p "$work/tests" "$work/build" "$work/daemon"
cp "$root/.clang-tidy" "$work/"
cp "$root/tests/tidy.sh" "$work/tests/"

# file, lines between the braces -> a C file with one function, and its line of the database
function_of() {
    {
        echo "void fixture(volatile int *at);"
        echo "void fixture(volatile int *at)"
        echo "{"
        awk -v n="$2" 'BEGIN { for (i = 0; i < n; i++) print "    *at = " i ";" }'
        echo "}"
    } >"$work/daemon/$1"
    printf '[{"directory": "%s", "file": "daemon/%s", "command": "clang -c daemon/%s"}]\n' \
        "$work" "$1" "$1" >"$work/build/compile_commands.json"
}

# clang-tidy counts from the opening brace to the closing one.
function_of short.c 69
if ! sh "$work/tests/tidy.sh" build daemon/short.c >"$work/said" 2>&1; then
    echo "gate_tidy: a function of 70 lines is rejected:" >&2
    cat "$work/said" >&2
    exit 1
fi
function_of long.c 70
if sh "$work/tests/tidy.sh" build daemon/long.c >"$work/said" 2>&1; then
    echo "gate_tidy: a function of more than 70 lines is accepted" >&2
    exit 1
fi
if ! grep -q readability-function-size "$work/said"; then
    echo "gate_tidy: a long function is rejected, but not for its length:" >&2
    cat "$work/said" >&2
    exit 1
fi
echo "accepts 70 lines; rejects more: $(grep -m 1 'readability-function-size' "$work/said" | sed 's/.*long.c/long.c/')"
