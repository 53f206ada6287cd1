#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvcachebench gpu: what its options refuse, and what it says where there is nothing to measure.
set -eu
bench="$KVC_BIN_DIR/kvcachebench"

fail() {
    echo "gpu_options: $*" >&2
    exit 1
}

# says CODE TEXT OPTION...: ends with that, and has this on stderr
says() {
    want=$1 text=$2 code=0
    shift 2
    "$bench" gpu "$@" >out 2>err || code=$?
    [ "$code" = "$want" ] || fail "gpu $*: ended with $code, not $want: $(cat err)"
    grep -q -- "$text" err || fail "gpu $*: does not say '$text': $(cat err)"
    [ ! -s out ] || fail "gpu $*: prints something"
}

says 0 "skipped: no kernels on an emulated device (emu:3)" --decode --device emu:3
says 0 "skipped: no kernels on an emulated device" --decode --json
says 2 "emu:<number>\|cuda:<ordinal>\|GPU-" --decode --device nonsense
says 2 "what a step of --decode reads" --kv-bytes 1GiB
says 2 "not a multiple of 64 KiB" --decode --kv-bytes 100001
says 2 "kv-bytes" --decode --kv-bytes 1KiB
says 2 "bytes" --bytes 64MiB
says 2 "more than 32 MiB" --block-bytes 64MiB
says 2 "not a multiple of 8" --block-bytes 4100
says 2 "the smallest must come first" --block-bytes 64KiB,4KiB
says 2 "is not understood" --decode more
