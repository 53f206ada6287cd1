#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Figures of kvcachectl agree: what `verify` reads, and what it says there is to read, is what `stats`
# counts, in each tier and over all of them.
set -eu
test=counts
. "$KVC_SOURCE_DIR/tests/e2e/daemon.sh"
ctl="$KVC_BIN_DIR/kvcachectl"

daemon_begin --set host.limit=8MiB --set nvme.limit=16MiB --set nvme.paths="$dir" || fail "it does not start"
"$KVC_BIN_DIR/example_document" store manual >"$dir/out" 2>&1 || fail "$(cat "$dir/out")"
"$ctl" drain >"$dir/out" 2>&1 || fail "drain"
"$ctl" stats --json core. >"$dir/stats"
for tier in host nvme all; do
    "$ctl" verify --rate 0 --tier $tier --json >"$dir/verify.$tier" || fail "verify --tier $tier"
done
python3 - "$dir" >"$dir/out" <<'EOF' || fail "figures differ"
import json, sys
read = lambda name: json.loads(open(f"{sys.argv[1]}/{name}").read().splitlines()[-1])
stats, sums = read("stats"), [0, 0]
for tier, where in ("host", "in_memory"), ("nvme", "on_disk"), ("all", None):
    done = read(f"verify.{tier}")
    want = [stats[f"core.{what}_{where}"] for what in ("blocks", "bytes")] if where else sums
    print(tier, done, want)
    assert want[0] > 0 and [done["blocks"], done["bytes"]] == want and done["bytes_total"] == want[1]
    sums = [a + b for a, b in zip(sums, want)]
EOF
"$ctl" gpu >"$dir/out" || fail "an empty list of devices ends with $?"
daemon_end
