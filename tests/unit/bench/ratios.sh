#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hit ratios of kvcachebench simulate on made-up traces, to the last digit, are those in ratios.txt.
# `sh ratios.sh record`, with KVC_BIN_DIR, writes that file anew, as when a change is meant.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bench=${KVC_BIN_DIR:?the folder of kvcachebench}/kvcachebench
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
one=default,lru,s3fifo,arc,lru2,published,belady two=default,lru,s3fifo,arc,lru2

# line KIND CAPACITY POLICIES: POLICY=HITS of each, with storage POLICY=HITS/WRITES
line() {
    printf '%s %s' "$1" "$2"
    "$bench" simulate "$dir/trace" --capacity "$2" --policy "$3" --json >"$dir/json"
    awk -F'"metric":' '
        { policy = $1; sub(/.*"policy":"/, "", policy); sub(/".*/, "", policy)
          name = value = $2; gsub(/^"|",.*/, "", name); sub(/.*"value":/, "", value)
          sub(/[,}].*/, "", value) }
        name == "hit_ratio" { printf " %s=%s", policy, value }
        name == "nvme_writes_per_access" { printf "/%s", value }
        END { print "" }' "$dir/json"
}

is() {
    echo '# Made by tests/unit/bench/ratios.sh: traces with their sums, hits and writes per access.'
    "$bench" gen --kind list | while read -r kind _; do
        "$bench" gen --kind "$kind" --requests 1000 --seed 7 --output "$dir/trace"
        echo "$kind trace $(sha256sum "$dir/trace" | cut -c1-16)"
        line "$kind" 2% $one
        line "$kind" 10% $one
        line "$kind" host=2%,nvme=20% $two
    done
}

if [ "${1-}" = record ]; then
    is >"$dir/is"
    [ "$(grep -c '=0[.]' "$dir/is")" -gt 20 ] || exit 1
    cp "$dir/is" "$here/ratios.txt"
    exit 0
fi
is >"$dir/is"
diff -U0 "$here/ratios.txt" "$dir/is" | sed '/^[-+@][-+@]/d' >"$dir/diff"
if [ -s "$dir/diff" ]; then
    cat "$dir/diff"
    ! grep -q '^+.* trace ' "$dir/diff" || echo 'ratios: traces differ: gen, or the mathematics library'
    echo 'ratios: hits are not those in ratios.txt'
    exit 1
fi
