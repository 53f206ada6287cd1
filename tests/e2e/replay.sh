#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Replays traces with every byte of every hit checked: generated conversations always; the
# conversation trace of Mooncake (FAST'25) when $KVC_TRACE names it or it lies in shared/traces
# beside the source tree. On that one the hit ratios must be those of a simulated leaf-first LRU.
set -eu
bench="$KVC_BIN_DIR/kvcachebench"
trace="${KVC_TRACE:-$KVC_SOURCE_DIR/../shared/traces/conversation_trace.jsonl}"

# metric NAME FILE: the values of a metric, one per line
metric() {
    sed -n "s/.*\"metric\":\"$1\",\"value\":\([^,}]*\).*/\1/p" "$2"
}

fail() {
    echo "replay: $*" >&2
    exit 1
}

no_wrong_bytes() {
    [ -n "$(metric wrong_bytes "$1")" ] || fail "$1 has no wrong_bytes"
    for wrong in $(metric wrong_bytes "$1"); do
        [ "$wrong" = 0 ] || fail "$wrong wrong bytes in $1"
    done
}

"$bench" gen --requests 300 --seed 7 >generated.jsonl
for json in '' --json; do # a report that does not arrive
    code=0
    # shellcheck disable=SC2086 # an option, or none
    "$bench" replay generated.jsonl --requests 20 --capacity 16MiB $json >/dev/full 2>full.out || code=$?
    [ "$code" = 5 ] || fail "replay $json into a full device: exit code $code"
    grep -q 'stdout: No space left on device' full.out || fail "replay $json: $(cat full.out)"
done
for path in generated.jsonl -; do # a trace on stdin is read as from a file
    "$bench" simulate "$path" --policy lru --capacity 10% <generated.jsonl |
        sed -n '1s/^[^:]*: //p' >"simulated.$path"
done
[ -s simulated.- ] || fail "simulate - says nothing"
cmp simulated.generated.jsonl simulated.- ||
    fail "simulate - differs from simulate FILE: $(cat simulated.-)"
"$bench" replay generated.jsonl --workers 2 --capacity 16MiB --block-bytes 16KiB --json >generated.out
no_wrong_bytes generated.out
hits=$(metric hit_ratio generated.out)
awk -v h="$hits" 'BEGIN { exit !(h > 0.01) }' || fail "a hit ratio of $hits on generated conversations"
# One worker and an order that heeds no time: the daemon hits what the simulation does, to the last digit.
"$bench" simulate generated.jsonl --policy lru --capacity 10% --json >simulated.out
"$bench" replay generated.jsonl --workers 1 --policy lru --capacity 10% --block-bytes 64KiB --json >lru.out
no_wrong_bytes lru.out
[ "$(metric hit_ratio lru.out)" = "$(metric hit_ratio simulated.out)" ] ||
    fail "a hit ratio of $(metric hit_ratio lru.out), simulated $(metric hit_ratio simulated.out)"

if [ ! -r "$trace" ] || [ "${KVC_TRACE_LIGHT:-}" = 1 ]; then
    echo "SKIP: the real trace: $([ -r "$trace" ] && echo "left out with sanitizers" || echo "not at $trace")"
    exit 0
fi
"$bench" replay "$trace" --workers 1 --policy lru --capacity 1%,5%,10%,20% --block-bytes 4KiB --json >one.out
no_wrong_bytes one.out
metric hit_ratio one.out | paste -sd' ' | awk '{
    split("0.0525 0.1958 0.2789 0.3453", want)
    for (i = 1; i <= 4; i++) {
        d = $i - want[i]
        if (NF != 4 || d > 0.005 || d < -0.005) { print "hit ratio " $i ", expected " want[i]; exit 1 }
    }
}' || fail "hit ratios differ from the simulation"
"$bench" replay "$trace" --workers 2 --policy lru --capacity 5% --block-bytes 4KiB --json >two.out
no_wrong_bytes two.out
