#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvcachebench refuses an option that would have no effect, before a daemon starts.
set -eu

# refused TEXT COMMAND OPTION...: with status 2, and this on stderr
refused() {
    expected=$1
    shift
    status=0
    said=$("$KVC_BIN_DIR/kvcachebench" "$@" --daemon /nonexistent 2>&1 >/dev/null) || status=$?
    case "$status $said" in
    "2 kvcachebench $1: $expected"*) ;;
    *)
        echo "kvcachebench $*: status $status, said '$said' in place of '$expected'"
        exit 1
        ;;
    esac
}

for option in "store --keys" "store --against" "load --keys" "lookup --against" "lookup --batch" \
    "lookup --block-bytes" "reuse --compare" "reuse --depth" "reuse --keys" "reuse --seconds" \
    "idle --socket" "idle --pairs" "idle --depth" "idle --block-bytes"; do
    # shellcheck disable=SC2086 # two words
    refused "'${option#* }' is not understood" $option 7
done
refused "'--compare' is not understood" idle --compare
refused "--socket uses a daemon that runs, --daemon starts one" lookup --socket /nonexistent
refused "--compare and --against: which of them?" load --compare --against 2MiB
refused "--depth 65: must be from 1 to 64" store --depth 65
refused "--keys 4097: must be from 1 to 4096" lookup --keys 4097
refused "--against 63: must be from 64 to 1GiB" load --against 63
