#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Replays traces with workers whose pages are memory of an emulated device, over device, host memory
# and disk, with every byte of every hit checked: generated conversations always; the conversation
# trace of Mooncake (FAST'25) when $KVC_TRACE names it or it lies in shared/traces beside the source
# tree.
set -eu
bench="$KVC_BIN_DIR/kvcachebench"
trace="${KVC_TRACE:-$KVC_SOURCE_DIR/../shared/traces/conversation_trace.jsonl}"

# metric NAME FILE: the value of a metric
metric() {
    sed -n "s/.*\"metric\":\"$1\",\"value\":\([^,}]*\).*/\1/p" "$2"
}

fail() {
    echo "replay on a device: $*" >&2
    exit 1
}

# equal FILE NAME VALUE
equal() {
    [ "$(metric "$2" "$1")" = "$3" ] || fail "$1: $2 is $(metric "$2" "$1"), not $3"
}

# some FILE NAME...: each is above 0
some() {
    file=$1
    shift
    for name in "$@"; do
        awk -v n="$(metric "$name" "$file")" 'BEGIN { exit !(n > 0) }' ||
            fail "$file: $name is $(metric "$name" "$file")"
    done
}

# Wherever blocks were read, they were right, and all that was found came; the device never failed.
good() {
    equal "$1" wrong_bytes 0
    equal "$1" not_loaded_blocks 0
    equal "$1" device_failures 0
    some "$1" page_blocks hbm_blocks hbm_hits hbm_fills device_copy_bytes
}

"$bench" gen --requests 300 --seed 7 >generated.jsonl
for bytes in 16KiB 65KiB; do
    "$bench" replay generated.jsonl --workers 2 --capacity hbm=16MiB,host=24MiB,nvme=64MiB \
        --block-bytes $bytes --json >"$bytes.out"
    good "$bytes.out"
done
# More room on the device than in host memory: what left that is read in slots, and not from disk.
"$bench" replay generated.jsonl --workers 2 --capacity hbm=32MiB,host=8MiB,nvme=64MiB --block-bytes 65KiB --json >only.out
good only.out
some only.out hbm_only_hits
# A block that no page divides: its last region's pages are larger.
"$bench" replay generated.jsonl --workers 1 --capacity hbm=16MiB,host=24MiB --block-bytes 33333 --json >odd.out
good odd.out

said=$("$bench" replay generated.jsonl --capacity hbm=100KiB,host=24MiB 2>&1) && fail "100KiB was taken"
case $said in *hbm=16MiB*) ;; *) fail "100KiB is refused with: $said" ;; esac

if [ ! -r "$trace" ] || [ "${KVC_TRACE_LIGHT:-}" = 1 ]; then
    echo "SKIP: the real trace: $([ -r "$trace" ] && echo "left out with sanitizers" || echo "not at $trace")"
    exit 0
fi
"$bench" replay "$trace" --capacity hbm=1%,host=5%,nvme=20% --block-bytes 16KiB --json >real.out
good real.out
some real.out nvme_hits hbm_drops hbm_only_hits
awk -v h="$(metric hit_ratio real.out)" 'BEGIN { exit !(h > 0.3) }' ||
    fail "a hit ratio of $(metric hit_ratio real.out) on the real trace"
