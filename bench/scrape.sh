#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a scrape of /metrics costs, and what it costs others: how long scrapes take beside a daemon that
# copies as fast as it can, and the processor time of the thread that answers them and of the control
# thread, which is the cost where others have the processors too; and lookups with a scraper and without
# one, taking turns.
#
#   bench/scrape.sh [BIN [SCRAPES_A_SECOND [TURNS]]]
#
# BIN: the directory of the built programs (build/release/bin). One JSON object per line on stdout.
set -eu
KVC_BIN_DIR=${1:-build/release/bin}
rate=${2:-10}
turns=${3:-5}
load='' scraper=''
test=scrape
. "$(dirname "$0")/../tests/e2e/daemon.sh"
trap 'kill $load $scraper 2>/dev/null || true; daemon_clean' EXIT

daemon_begin --set host.limit=2GiB --set staging.session_max=1GiB --set staging.total=2GiB \
    --set metrics.listen="$dir/m.sock" || fail "the daemon did not start"

cat >"$dir/scrape.py" <<'EOF'
import glob, http.client, json, socket, sys, time
path, rate, seconds, pid = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
def ran():  # nanoseconds that each thread had a processor
    threads = {}
    for task in glob.glob(f"/proc/{pid}/task/*"):
        with open(f"{task}/comm") as name, open(f"{task}/schedstat") as stat:
            threads[name.read().strip()] = int(stat.read().split()[0])
    return threads
took, size, end, before = [], 0, time.monotonic() + seconds, ran()
while time.monotonic() < end:
    begun = time.monotonic()
    conn = http.client.HTTPConnection("kvcache")
    conn.sock = socket.socket(socket.AF_UNIX)
    conn.sock.connect(path)
    conn.request("GET", "/metrics")
    reply = conn.getresponse()
    size = len(reply.read())
    conn.close()
    if reply.status != 200:
        sys.exit(f"status {reply.status}")
    took.append(time.monotonic() - begun)
    time.sleep(max(0, 1 / rate - took[-1]))
took.sort()
for name, at in ("p50", 0.5), ("p99", 0.99), ("max", 1):
    print(json.dumps({"metric": f"scrape_{name}_us", "value": round(1e6 * took[min(len(took) - 1, int(at * len(took)))], 1)}))
after = ran()
for name in ("MHD-single", "kvcache-daemon"):
    used = (after[name] - before[name]) / len(took) / 1e3
    print(json.dumps({"metric": "cpu_us_per_scrape", "thread": name, "value": round(used, 1)}))
print(json.dumps({"metric": "scrapes", "value": len(took), "page_bytes": size}))
EOF

# Alone, then at full load: a worker that stores as fast as it can.
echo '{"beside": "nothing"}'
python3 "$dir/scrape.py" "$dir/m.sock" "$rate" 4 "$pid"
echo '{"beside": "stores"}'
"$KVC_BIN_DIR/kvcachebench" store --socket "$KVCACHE_SOCKET" --block-bytes 64KiB --seconds 1 --pairs 12 >"$dir/load" 2>&1 &
load=$!
# It fills its sources before it stores.
until [ "$("$KVC_BIN_DIR/kvcachectl" stats --json core.bytes_stored | tr -dc 0-9)" -gt 0 ]; do
    kill -0 $load 2>/dev/null || { echo "the load stores nothing: $(cat "$dir/load")" >&2; exit 1; }
    sleep 0.1
done
python3 "$dir/scrape.py" "$dir/m.sock" "$rate" 8 "$pid"
kill -0 $load 2>/dev/null || { echo "the load ended early: $(cat "$dir/load")" >&2; exit 1; }
kill $load
wait $load || true
load=

lookups() {
    "$KVC_BIN_DIR/kvcachebench" lookup --socket "$KVCACHE_SOCKET" --keys 256 --pairs 1 --seconds 1 --json |
        sed "s/^{/{\"scrapes_a_second\":$1,/"
}
for _ in $(seq "$turns"); do
    lookups 0
    python3 "$dir/scrape.py" "$dir/m.sock" "$rate" 600 "$pid" >"$dir/scrapes" 2>&1 &
    scraper=$!
    lookups "$rate"
    kill -0 $scraper 2>/dev/null || { echo "the scraper ended: $(cat "$dir/scrapes")" >&2; exit 1; }
    kill $scraper
    wait $scraper || true
    scraper=
done
