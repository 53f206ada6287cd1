#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvcachebench pages, in little: all its paths and figures, fragments that divide a block oddly, what
# it refuses. It compares every byte itself, and ends with 1 for a wrong one.
set -eu
bench="$KVC_BIN_DIR/kvcachebench"

fail() {
    echo "pages: $*" >&2
    exit 1
}

# refused TEXT ARGUMENT...: exit code 2, and the message has the text
refused() {
    text=$1
    shift
    rc=0
    said=$("$bench" pages "$@" 2>&1) || rc=$?
    [ $rc = 2 ] || fail "$*: exit code $rc, not 2: $said"
    case $said in *"$text"*) ;; *) fail "$* is refused with: $said" ;; esac
}

"$bench" pages --bytes 24MiB --block-bytes 192KiB --fragments 4KiB,12KiB,192KiB --batch 16 --depth 3 \
    --seconds 0.02 --pairs 1 --json >little.out || fail "exit code $?"
for path in host-pages slot-pages pages-host; do
    for bytes in 4096 12288 196608; do
        for metric in pages_bytes_per_s pages_request_p50_s pages_request_p99_s pages_cpu_s_per_gb; do
            grep "\"path\":\"$path\",\"fragment_bytes\":$bytes,.*\"metric\":\"$metric\"" little.out >line ||
                fail "no $metric of $path in fragments of $bytes"
            sed -n 's/.*"value":\([^,]*\),.*/\1/p' line | awk '!($1 > 0) { exit 1 }' || fail "$(cat line)"
        done
    done
done
grep -q '"limit":{"what":"memcpy"' little.out || fail "no limit"

"$bench" pages --device host --bytes 24MiB --block-bytes 192KiB --fragments 4KiB,192KiB --batch 16 \
    --seconds 0.02 --pairs 1 --json >host.out || fail "host: exit code $?"
for path in host-pages pages-host; do
    grep -q "\"device\":\"host\",\"path\":\"$path\",\"fragment_bytes\":4096,.*pages_bytes_per_s" host.out ||
        fail "host: no $path"
done

refused "no whole number of fragments" --block-bytes 64KiB --fragments 48KiB
refused "must be more than --depth 4" --bytes 64MiB
refused "the smallest must come first" --fragments 16KiB,4KiB
refused "is not a multiple of 64" --fragments 100
refused "cuda:<number>" --device gpu
