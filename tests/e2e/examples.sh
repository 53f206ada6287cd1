#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The programs of client/examples, through a daemon: what each prints; that none is longer than it
# may be, and that the README shows lines of the first.
set -eu
examples="$KVC_SOURCE_DIR/client/examples"
ctl="$KVC_BIN_DIR/kvcachectl"
test=examples
. "$KVC_SOURCE_DIR/tests/e2e/daemon.sh"

begin() {
    daemon_begin --set host.limit=16MiB --set nvme.limit=16MiB --set nvme.paths="$dir/store" ||
        fail "the daemon does not start"
}

end() {
    kill -TERM "$pid"
    wait "$pid" || fail "the daemon ended with $?"
    pid=
}

# run TEXT EXAMPLE ARGUMENT...: it ends with 0 and prints that line
run() {
    text=$1
    program=$2
    shift 2
    "$KVC_BIN_DIR/example_$program" "$@" >"$dir/out" 2>&1 || fail "$program $*: exit code $?"
    grep -qxF "$text" "$dir/out" || fail "$program $* does not print '$text'"
}

mkdir "$dir/store"
begin
run "second: 100 tokens loaded, 0 computed, all right" share
grep -qxF "first: 0 tokens loaded, 100 computed, all right" "$dir/out" || fail "share: no first"

run "chat-7: 0 tokens loaded, 40 computed, the name stands for 40" conversation chat-7 1
run "chat-7: 32 tokens loaded, 48 computed, the name stands for 80" conversation chat-7 2
end
begin
run "chat-7: 80 tokens loaded, 40 computed, the name stands for 120" conversation chat-7 3

run "manual: 1000 tokens stored and pinned" document store manual
run "manual: 1000 of 1000 tokens loaded" document read manual
"$ctl" doc export manual "$dir/manual.safetensors" >"$dir/out" 2>&1 || fail "export"
"$ctl" doc forget manual --evict >"$dir/out" 2>&1 || fail "forget"
run "manual: 0 of 1000 tokens loaded" document read manual
"$ctl" doc import "$dir/manual.safetensors" --pin >"$dir/out" 2>&1 || fail "import"
run "manual: 1000 of 1000 tokens loaded" document read manual
end

for file in "$examples"/*.c; do
    [ "$(wc -l <"$file")" -lt 100 ] || fail "$file has 100 lines or more"
done
awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$KVC_SOURCE_DIR/README.md" >"$dir/shown"
[ -s "$dir/shown" ] || fail "README.md shows no C"
while IFS= read -r line; do
    grep -qxF -e "$line" "$examples/share.c" || fail "README.md shows a line that share.c does not have: $line"
done <"$dir/shown"
