#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Blocks that are in no memory, through kvcachebench: every byte is compared, what is read comes from
# storage, the store never takes more than its limit, and two tiers hit more than the first alone.
set -eu
bench="$KVC_BIN_DIR/kvcachebench"

# metric NAME FILE: the values of a metric, one per line
metric() {
    sed -n "s/.*\"metric\":\"$1\",\"value\":\([^,}]*\).*/\1/p" "$2"
}

fail() {
    echo "nvme: $*" >&2
    exit 1
}

# above LOW VALUE WHAT
above() {
    awk -v low="$1" -v value="$2" 'BEGIN { exit !(value > low) }' || fail "$3 is $2, not above $1"
}

"$bench" nvme --bytes 192MiB --depth 2 --rounds 1 --seconds 0.2 --block-bytes 64KiB,2MiB --json >nvme.out
[ "$(metric read_bytes_per_s nvme.out | wc -l)" = 5 ] || fail "5 rates of reading were expected"
[ "$(metric write_bytes_per_s nvme.out | wc -l)" = 2 ] || fail "2 rates of writing were expected"
for rate in $(metric read_bytes_per_s nvme.out) $(metric write_bytes_per_s nvme.out); do
    above 0 "$rate" "a rate"
done
for share in $(grep -v '"log"' nvme.out >reads.out && metric storage_share reads.out); do
    above 0.9 "$share" "the share of what was read that came from storage"
done

"$bench" gen --requests 600 --seed 7 >generated.jsonl
"$bench" replay generated.jsonl --workers 2 --capacity 4MiB --block-bytes 64KiB --json >one.out
"$bench" replay generated.jsonl --workers 2 --capacity host=4MiB,nvme=64MiB --block-bytes 64KiB \
    --json >two.out
[ "$(metric wrong_bytes two.out)" = 0 ] || fail "wrong bytes: $(metric wrong_bytes two.out)"
above "$(metric hit_ratio one.out)" "$(metric hit_ratio two.out)" "the hit ratio of two tiers"
above 0 "$(metric nvme_hits two.out)" "hits read from storage"
above 0 "$(metric disk_samples two.out)" "samples of the store's size"
