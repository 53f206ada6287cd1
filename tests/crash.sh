#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kill -9 at random moments under mixed load: builds build/release if need be, then runs
# build/release/bin/crash with the arguments given (tests/crash/README.md).
#
#   sh tests/crash.sh --rounds 200 --seed 7 --json
#   sh tests/crash.sh --rounds 50 --throttle
#   sh tests/crash.sh --rounds 60 --hbm
#   KVC_BIN_DIR=build/asan/bin sh tests/crash.sh --rounds 20
set -eu

cd "$(dirname -- "$0")/.."
if [ -z "${KVC_BIN_DIR-}" ]; then
    sh tests/run.sh --build-only --release-only --no-deps >&2
    KVC_BIN_DIR=build/release/bin
    export KVC_BIN_DIR
fi
exec "$KVC_BIN_DIR/crash" "$@"
