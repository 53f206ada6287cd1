#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What bench/demo.sh shows, with the tiny preset: what was computed is loaded by the next worker, in each
# of the three parts; no colour where there is no terminal; nothing stays behind.
set -eu
cd "$KVC_SOURCE_DIR"
dir=$(mktemp -d /tmp/kvc-demo.XXXXXX)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "demo: $*" >&2
    cat "$dir/out" "$dir/err" >&2 || true
    exit 1
}

# loads WHO LEAST: how many tokens it says it has from the daemon
loads() {
    n=$(sed -n "s/^  $1: [0-9]* tokens: \([0-9]*\) from the daemon.*/\1/p" "$dir/out")
    [ "${n:-0}" -ge "$2" ] || fail "$1 has ${n:-no} tokens from the daemon, not $2"
}

for argument in --replya "$dir/missing.jsonl" "a b"; do
    code=0
    # shellcheck disable=SC2086 # "a b" is two
    sh bench/demo.sh $argument >"$dir/out" 2>"$dir/err" || code=$?
    [ "$code" -eq 2 ] || fail "$argument: exit code $code, not 2"
done

mkdir "$dir/tmp"
TMPDIR="$dir/tmp" KVC_DEMO_BYTES=600 sh bench/demo_worker.sh --preset tiny >"$dir/out" 2>"$dir/err" ||
    fail "exit code $?"
[ ! -s "$dir/err" ] || fail "says something on stderr"
loads "worker 1" 0
loads "worker 2" 500
loads "worker 4" 50
loads "worker 6" 1000
grep -q "times sooner" "$dir/out" || fail "no comparison"
grep -qE '^  licence +default' "$dir/out" || fail "no document is listed"
[ "$(tr -dc '\033' <"$dir/out" | wc -c)" -eq 0 ] || fail "colour where there is no terminal"
[ -z "$(ls -A "$dir/tmp")" ] || fail "left behind: $(ls -A "$dir/tmp")"
