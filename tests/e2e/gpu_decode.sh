#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvcachebench gpu --decode on the fake CUDA driver: each way to load is measured for each size, one
# of the daemon's two is the one that was chosen, and a device that fails ends both processes.
set -eu

fail() {
    echo "gpu_decode: $*" >&2
    cat out err >&2
    exit 1
}

# go: what decode loads said is in out, and err
go() {
    timeout 120 "$KVC_BIN_DIR/kvcachebench" gpu --device cuda:0 --decode --bytes 128MiB --kv-bytes 1MiB \
        --seconds 0.05 --pairs 2 --json >out 2>err
}

# lines N PATTERN: so many lines of the output have it
lines() {
    [ "$(grep -c -- "$2" out)" = "$1" ] || fail "$2 is in $(grep -c -- "$2" out) lines, not in $1"
}

go || fail "it failed"
lines 30 '"bench":"gpu"'
lines 15 '"metric":"decode_step".*"limit":{"what":"alone"'
for way in engine kernel 'worker engine' 'worker kernel' window; do
    lines 3 "\"path\":\"$way\".*\"metric\":\"decode_step\""
done
for bytes in 4096 16384 65536; do
    lines 1 "\"path\":\"[a-z]*\",\"block_bytes\":$bytes,\"chosen\":1,\"mps\":0},\"metric\":\"decode_step\""
done
# A device that has no code for copies by kernel; one that has none for decode steps; one that fails.
export FAKE_CUDA_FAIL=cuModuleGetFunction:1=209
go || fail "it failed without a kernel for copies"
lines 0 kernel
lines 9 '"metric":"decode_step"'
export FAKE_CUDA_FAIL=cuModuleGetFunction:2=209
go && fail "decode steps without their kernel"
grep -q 'kvcachebench gpu: decode steps: cuModuleGetFunction: ' err || fail "it does not say what it lacks"
export FAKE_CUDA_FAIL=exec:200=700!
go && fail "a device that is out is no failure"
grep -q 'kvcachebench gpu: ' err || fail "it does not say what has failed"
echo "all is said"
