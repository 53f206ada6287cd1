#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gate: every header compiles alone, and twice.
#
#   headers.sh ROOT INCLUDES CC              check every header of the tree
#   headers.sh --self-test ROOT INCLUDES CC  check that broken headers are rejected
#
# INCLUDES is written by CMake (see layers.sh). A layer's headers are compiled with the path of that
# layer. What stands above the layers (programs, tests) may see everything: these headers are
# compiled with the paths of all layers and every directory of theirs that has a header.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
self_test=
if [ "${1-}" = --self-test ]; then
    self_test=1
    shift
fi
if [ $# -ne 3 ]; then
    echo "usage: headers.sh [--self-test] ROOT INCLUDES CC" >&2
    exit 2
fi
# The compiler and INCLUDES say whole paths.
root=$(CDPATH='' cd -- "$1" && pwd)
includes=$2
cc=$3
if ! grep -q "[|;]$root/" "$includes"; then
    echo "gate_headers: $includes is of another tree: it has no directory of $root" >&2
    exit 2
fi
# In C++.
not_alone='tests/fibres/cuda_(fibres|pipeline)\.h'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# One header in a file of two lines; its messages are shown when it does not compile.
cat >"$work/one.sh" <<'EOS'
cc=$1 path=$2 header=$3
if ! printf '#include "%s"\n#include "%s"\n' "$header" "$header" |
    $cc -std=gnu17 -D_GNU_SOURCE= -Wall -Wextra -Werror -Wstrict-prototypes -fsyntax-only \
        $path -x c - 2>&1; then
    echo "gate_headers: $header does not compile alone"
    exit 1
fi
EOS

# directories separated by ; or newlines -> -I flags
flags() {
    tr ';' '\n' | { grep . || :; } | sort -u | sed 's/^/-I/' | tr '\n' ' '
}

# directory -> the -I flags of whoever owns its headers
path_of() {
    target=$(sed -e 's/#.*//' "$here/layers.txt" | awk -v dir="$1" '$2 == dir { print $1; exit }')
    if [ -n "$target" ]; then
        printf '%s ' "-I$root/$1"
        sed -n "s#^$target|##p" "$includes" | flags
    else
        printf '%s ' "-I$root/$1"
        cat "$work/above" "$work/everything"
    fi
}

# root -> messages; 1 when a header is broken or none was found
check() {
    (cd "$1" && find . \( -name .git -o -path ./build -o -path './build-*' \
        -o -path ./tests/gates/fixtures \) -prune -o -name '*.h' -print) |
        sed 's|^\./||' | grep -vxE "$not_alone" | sort >"$work/headers"
    cut -d'|' -f2 "$includes" | flags >"$work/everything"
    { sed -n 's|/[^/]*$||p' "$work/headers" | grep -E '^(bench|tools|client/(ctl|worker)|kernels|tests)' || :; } |
        sed "s#^#$root/#" | flags >"$work/above"
    dir=
    while read -r header; do
        if [ "${header%/*}" != "$dir" ]; then
            dir=${header%/*}
            # <kvcache/proto.h> belongs to include/.
            path=$(path_of "$(printf '%s' "$dir" | sed 's|^include/.*|include|')")
        fi
        printf '%s\0%s\0%s\0' "$cc" "$path" "$1/$header"
    done <"$work/headers" | xargs -0 -n 3 -P "$(nproc)" sh "$work/one.sh" >"$work/said" ||
        return 1
    [ -s "$work/headers" ]
}

if [ -z "$self_test" ]; then
    if ! check "$root"; then
        cat "$work/said" >&2
        echo "gate_headers: $(grep -c 'compile alone' "$work/said") of" \
            "$(wc -l <"$work/headers") headers are broken" >&2
        exit 1
    fi
    echo "gate_headers: $(wc -l <"$work/headers") headers compile alone"
    exit 0
fi

# name, text of the header, what the compiler must say
expect_rejected() {
    mkdir -p "$work/tree/daemon/base"
    printf '%s\n' "$2" >"$work/tree/daemon/base/broken.h"
    if check "$work/tree"; then
        echo "gate_headers --self-test: accepted $1" >&2
        exit 1
    fi
    if ! grep -q -- "$3" "$work/said"; then
        echo "gate_headers --self-test: rejected $1, but did not say '$3':" >&2
        cat "$work/said" >&2
        exit 1
    fi
    echo "rejects $1"
}

expect_rejected "a header that uses a type of another" 'uint32_t broken_count(void);' uint32_t
expect_rejected "a header without a guard" 'struct broken { int x; };' redefinition
expect_rejected "a header that includes one of a layer above" '#include "core.h"' core.h
expect_rejected "a header with a function that is not inline" 'static int broken_f(void) { return 0; }' broken_f
mkdir -p "$work/empty"
if check "$work/empty"; then
    echo "gate_headers --self-test: accepted a tree without headers" >&2
    exit 1
fi
echo "rejects a tree without headers"
