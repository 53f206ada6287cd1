#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each check of crash notices what it is there for: with --spoil it sees what is not so, and must
# say so under the right name, and fail.
set -eu

one() { # kind, the figure that must not be 0, rounds, ms of each, further arguments
    kind=$1 figure=$2 rounds=$3 ms=$4
    shift 4
    if "$KVC_BIN_DIR/crash" --spoil "$kind" --rounds "$rounds" --run-ms "$ms" --seed 5 "$@" >out 2>err; then
        echo "crash did not notice --spoil $kind" >&2
        cat out err >&2
        exit 1
    fi
    if ! awk -v figure="$figure" '$1 == figure && $2 > 0 { seen = 1 } END { exit !seen }' out; then
        echo "--spoil $kind: $figure is 0 or missing" >&2
        cat out err >&2
        exit 1
    fi
    echo "noticed: $kind ($figure)"
}

one bytes wrong_bytes 3 300 --host-only
one bytes wrong_bytes 3 300 --host-only --hbm
one durable durable_lost 3 300 --host-only
one old returned 3 300 --host-only
one removed removed_back 3 300 --host-only
one count accounting_errors 3 300 --host-only
one store accounting_errors 6 1000 # enough for blocks to reach storage on a loaded machine
