#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-tidy (.clang-tidy) over the product's C files: daemon/, client/, gpu/, policy/, kernels/.
#
#   tidy.sh [--deep] [BUILD_DIR [FILE...]]   default: build/clang, every file of its compile database
#
# --deep: the analyzer follows paths as far as it would by itself, which takes many times as long;
# without it 8,000 states of a function, for its paths are nearly all of the work.
# The database should come from the clang preset: clang does not know all of gcc's flags.
set -eu

cd "$(dirname -- "$0")/.."
build=build/clang
depth="--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=8000"
if [ "${1-}" = --deep ]; then
    depth=
    shift
fi
if [ $# -gt 0 ]; then
    build=$1
    shift
fi
if [ ! -f "$build/compile_commands.json" ]; then
    echo "tidy.sh: $build has no compile_commands.json; first: cmake --preset clang" >&2
    exit 2
fi
if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046 # file names of this tree have no blanks
    set -- $(find daemon client gpu policy kernels -name '*.c' | sort)
fi
if [ $# -eq 0 ]; then
    echo "tidy.sh: no C files" >&2
    exit 2
fi
# One file a process: clang-tidy 14 carries state from file to file and then reports every va_list.
# shellcheck disable=SC2086 # a list of options
printf '%s\n' "$@" | xargs -n 1 -P "$(nproc)" clang-tidy --quiet --warnings-as-errors='*' $depth -p "$build"
echo "clang-tidy: $# files clean"
