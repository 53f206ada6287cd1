#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Who changed or removed what: one line of log each, with its filter and what it took, and one count
# (svc.audited). What only reads leaves no line at info, and neither do connects of tools.
set -eu
test=audit
. "$KVC_SOURCE_DIR/tests/e2e/daemon.sh"

ctl() {
    "$KVC_BIN_DIR/kvcachectl" "$@" >"$dir/out" 2>&1 || fail "$*: $(cat "$dir/out")"
}

# logged WHAT: the last line of the audit says so, of this uid
logged() {
    grep "audit: uid $(id -u), pid [1-9][0-9]*, principal [^ ]*, session [0-9]* (kvcachectl): " "$dir/log" |
        tail -n 1 | grep -q -- "$1" || fail "no line: $1"
    count=$((count + 1))
}

counted() {
    ctl stats --json svc.audited
    grep -q "\"svc.audited\": *$count\b" "$dir/out" || fail "$count lines, counted: $(cat "$dir/out")"
    [ "$(grep -c 'audit: ' "$dir/log")" = "$count" ] || fail "not $count lines"
}

daemon_begin --set host.limit=8MiB || fail "it does not start"
count=0
begun=$(wc -l <"$dir/log")
for read in ping stats ns usage 'sessions list' 'doc list' 'pin list' 'quota show' 'policy show' 'evict --older-than 1h --dry-run'; do
    # shellcheck disable=SC2086 # words
    "$KVC_BIN_DIR/kvcachectl" $read >"$dir/out" 2>&1 || [ $? = 1 ] || fail "$read: $(cat "$dir/out")"
done
[ "$(wc -l <"$dir/log")" = "$begun" ] || fail "what only reads is in the log"
counted

"$KVC_BIN_DIR/example_document" store manual >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
grep -q 'session [0-9]*: document, uid ' "$dir/log" || fail "a worker is not in the log"
ctl pin add --doc manual
logged 'pin [0-9]*: [1-9][0-9]* blocks, '
pin=$(sed -n 's/.*pin \([0-9]*\): .*/\1/p' "$dir/log" | tail -n 1)
ctl pin rm "$pin"
logged "unpin $pin\$"
ctl quota set --tenant somebody --host 4MiB
logged 'quota of tenant somebody: host limit 4.00 MiB, share 0 B; nvme limit none, share 0 B'
ctl policy set --keep-percent 7
logged 'policy: keep 7 %'
ctl trace on
logged 'trace: on'
ctl trace off
logged 'trace: off'
ctl verify
logged 'verify: from the beginning'
ctl doc forget manual
logged 'forget manual: took 0 blocks, 0 B; kept 0'
"$KVC_BIN_DIR/kvcachectl" evict --older-than 1h --tenant nobody >"$dir/out" 2>&1 || [ $? = 1 ] || fail "evict nothing"
logged 'evict, tenant nobody, older than 1 h 0 min: took 0 blocks, 0 B; kept 0'
ctl evict --bytes 1GiB
logged 'evict, until 1.00 GiB are gone: took [1-9][0-9]* blocks, [1-9]'
counted
kill -HUP "$pid"
for _ in $(seq 100); do
    grep -q 'reload: .* taken' "$dir/log" && break
    sleep 0.1
done
grep -q "audit: uid $(id -u), pid $$, by a signal: reload" "$dir/log" || fail "who sent SIGHUP"
count=$((count + 1))
counted
daemon_end
