#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# clang-format over the C files of the tree. `format.sh` reports, `format.sh --fix` rewrites.
set -eu

case "${1-}" in
--fix) mode=-i ;;
'') mode='--dry-run -Werror' ;;
*)
    echo "usage: format.sh [--fix]" >&2
    exit 2
    ;;
esac

cd "$(dirname -- "$0")/.."
# shellcheck disable=SC2086 # $mode is a list of flags
find include daemon client gpu policy kernels bench tools tests -path tests/gates/fixtures -prune -o \
    -name '*.[ch]' -print | sort | xargs -r clang-format $mode
