#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What Prometheus reads of a daemon: both formats, every statistic in them, and the alerting rules of
# etc/ (metrics.py; promtool too, where there is one). Without prometheus_client only that it answers.
set -eu
test=metrics
. "$KVC_SOURCE_DIR/tests/e2e/daemon.sh"

# get PATH [ACCEPT]: the body
get() {
    python3 - "$dir/m.sock" "$@" <<'EOF'
import http.client, socket, sys
conn = http.client.HTTPConnection("kvcache")
conn.sock = socket.socket(socket.AF_UNIX)
conn.sock.connect(sys.argv[1])
conn.request("GET", sys.argv[2], headers={"Accept": sys.argv[3]} if len(sys.argv) > 3 else {})
reply = conn.getresponse()
body = reply.read()
if reply.status != 200:
    sys.exit(f"{sys.argv[2]}: {reply.status} {body}")
sys.stdout.buffer.write(body)
EOF
}

daemon_begin --set host.limit=8MiB --set nvme.limit=16MiB --set nvme.paths="$dir" \
    --set hbm.devices=emu:0=8MiB,emu:1=8MiB --set metrics.listen="$dir/m.sock" || fail "it does not start"
# Traffic that does not fit into memory, read in part out of storage.
"$KVC_BIN_DIR/kvcachebench" gen --requests 200 --seed 7 >"$dir/trace.jsonl"
"$KVC_BIN_DIR/kvcachebench" replay "$dir/trace.jsonl" --socket "$KVCACHE_SOCKET" --block-bytes 16KiB >"$dir/out" 2>&1 ||
    fail "replay: $(cat "$dir/out")"
"$KVC_BIN_DIR/kvcachebench" lookup --socket "$KVCACHE_SOCKET" --keys 1 --pairs 1 --seconds 0.1 >"$dir/out" 2>&1 ||
    fail "lookup: $(cat "$dir/out")"
"$KVC_BIN_DIR/kvcachectl" --socket "$KVCACHE_SOCKET" stats --json >"$dir/stats" || fail "no statistics"
"$KVC_BIN_DIR/kvcachectl" stats --help '' >"$dir/help" || fail "no help"
"$KVC_BIN_DIR/kvcachectl" stats --help kvcache_svc_lookup_seconds_bucket | grep -q '^svc.lookup_ns: ' || fail "its metric"
code=0
"$KVC_BIN_DIR/kvcachectl" stats --help core.nothing 2>"$dir/why" || code=$?
[ "$code" = 1 ] && grep -q "no statistic begins with 'core.nothing'" "$dir/why" || fail "help on nothing: $code"
get /metrics >"$dir/text"
get /metrics 'application/openmetrics-text; version=1.0.0' >"$dir/openmetrics"
[ "$(get /healthz)" = alive ] || fail "/healthz"
[ "$(get /readyz)" = ready ] || fail "/readyz"
grep -q '^kvcache_daemon_turns_total [1-9]' "$dir/text" || fail "no turns"

# check RULES DASHBOARD: with the first python that has what it takes
check() {
    for python in python3 /usr/bin/python3; do
        code=0
        "$python" "$KVC_SOURCE_DIR/tests/e2e/metrics.py" "$dir/text" "$dir/openmetrics" "$dir/stats" \
            "$1" "$dir/help" "$2" || code=$?
        [ "$code" = 77 ] || break
    done
}

# refused WHY RULES DASHBOARD: the check sees what is wrong with one
refused() {
    check "$2" "$3" 2>"$dir/why"
    [ "$code" = 1 ] && grep -q "$1" "$dir/why" || fail "not refused for '$1': $code $(cat "$dir/why")"
}

rules="$KVC_SOURCE_DIR/etc/alerts.yml"
dashboard="$KVC_SOURCE_DIR/etc/dashboard.json"
check "$rules" "$dashboard"
if [ "$code" = 0 ]; then
    sed 's/kvcache_svc_lookup_seconds_bucket/kvcache_svc_lookups_seconds_bucket/' "$dashboard" >"$dir/renamed"
    refused 'dashboard: Lookup: the daemon has no' "$rules" "$dir/renamed"
    sed 's/kvcache_daemon_uptime_seconds/kvcache_core_copy_failures_total/' "$dashboard" >"$dir/dead"
    refused 'dashboard: Uptime has no data' "$rules" "$dir/dead"
    sed 's/kvcache_nvme_paths_out/kvcache_nvme_paths_gone/' "$rules" >"$dir/rules"
    refused 'the rules name .*kvcache_nvme_paths_gone' "$dir/rules" "$dashboard"
    code=0
fi
[ "$code" != 77 ] || echo "SKIP: the formats: no prometheus_client (Debian: python3-prometheus-client)"
[ "$code" = 0 ] || [ "$code" = 77 ] || fail "$python: see above"
if command -v promtool >/dev/null; then
    promtool check metrics <"$dir/text" || fail "promtool check metrics"
    promtool check rules "$KVC_SOURCE_DIR/etc/alerts.yml" || fail "promtool check rules"
else
    echo "SKIP: promtool (Debian: prometheus)"
fi
# The store is new: that it is written once is said, and its end.
for _ in $(seq 200); do
    grep -q 'nvme: .*: formatted, ' "$dir/log" && break
    sleep 0.1
done
grep -q 'nvme: .*: formatting in the background, .* of ' "$dir/log" || fail "formatting is not announced"
grep -q 'nvme: .*: formatted, ' "$dir/log" || fail "the end of formatting is not told"
daemon_end
[ ! -e "$dir/m.sock" ] || fail "its socket stays"
