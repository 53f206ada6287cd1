#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What demo.sh shows: kvcache-worker processes that share what they computed, with a daemon of their own
# in a private directory. Run by demo.sh; needs $KVC_BIN_DIR.
#
#   demo_worker.sh --model DIR | --preset NAME     of the worker; a preset's text is noise
set -eu
cd "$(dirname -- "$0")/.."
bin=${KVC_BIN_DIR:?}
work=$(mktemp -d)
daemon=
chat=
cleanup() {
    for pid in $chat $daemon; do
        kill -9 "$pid" 2>/dev/null || :
        wait "$pid" 2>/dev/null || :
    done
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM
export KVCACHE_SOCKET="$work/run/attach.sock"

bold='' dim='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then
    bold=$(printf '\033[1m') dim=$(printf '\033[2m') plain=$(printf '\033[0m')
fi

fail() {
    echo "demo.sh: $*" >&2
    cat "$work/err" "$work/log" >&2 2>/dev/null || :
    exit 1
}

title() {
    printf '\n%s%s%s\n' "$bold" "$*" "$plain"
}

note() {
    printf '%s  %s%s\n' "$dim" "$*" "$plain"
}

start_daemon() {
    mkdir -p "$work/store"
    rm -f "$work/log"
    "$bin/kvcache-daemon" --set runtime_dir="$work/run" --set host.limit=1GiB \
        --set nvme.paths="$work/store" --set nvme.limit=1GiB >"$work/log" 2>&1 &
    daemon=$!
    for _ in $(seq 300); do
        ! grep -qs "ready: " "$work/log" || return 0
        kill -0 "$daemon" 2>/dev/null || fail "the daemon does not start"
        sleep 0.1
    done
    fail "the daemon is not ready"
}

typed() {
    printf '  %s> %s%s\n' "$bold" "$1" "$plain"
}

# Where a worker says that its tokens came from.
tokens_of() {
    sed -n 's/ in [0-9.]* ms//g; s/.*: \([0-9]* tokens: .*\)/\1/p' "$work/err"
}

# asks WHO PROMPT ARGUMENT...: a process of its own; what it answers, where its tokens came from, and in
# $ttft the milliseconds until its first token.
asks() {
    who=$1
    typed "$2"
    prompt=$2
    shift 2
    "$bin/kvcache-worker" "$@" --prompt "$prompt" >"$work/out" 2>"$work/err" ||
        fail "$who ended with $?"
    sed "s/^/  | /" "$work/out"
    ttft=$(sed -n 's/.*first token after \([0-9.]*\) ms.*/\1/p' "$work/err")
    note "$who: $(tokens_of); first token after $ttft ms"
}

ratio_of() {
    awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", (b > 0 ? a / b : 0) }'
}

# bytes FILE N: its beginning, to the last whole line
beginning() {
    head -c "$2" "$1" | sed '$d'
}

size=${KVC_DEMO_BYTES:-}
if [ "$1" = --model ]; then
    what="the model in $2"
    size=${size:-5000}
    set -- "$@" --chunk 64 --new 40
else
    what="random weights ($2): its text is noise, its times are true"
    size=${size:-1200} # a byte is a token
    set -- "$@" --chunk 64 --new 12
fi
printf 'Each worker is a process of its own, with %s.\n' "$what"
printf 'The daemon has 1 GiB of host memory and 1 GiB of storage, in %s.\n' "$work"
start_daemon

title "1. Two workers, one system prompt: the second one loads what the first one computed"
system="You are a helpful assistant. You know this project; the beginning of its README:
$(beginning README.md "$size")"
asks "worker 1" "What is the capital of France?" "$@" --system "$system"
computed=$ttft
asks "worker 2" "Name three large rivers." "$@" --system "$system"
shared=$(ratio_of "$computed" "$ttft")
note "the first token of worker 2 came $shared times sooner"

title "2. A conversation goes on after kill -9 of worker and daemon"
mkfifo "$work/typed"
"$bin/kvcache-worker" "$@" --chat --conversation anna <"$work/typed" >"$work/chat" \
    2>"$work/said" &
chat=$!
exec 8>"$work/typed"
question="Tell me the name of a famous river in Egypt."
typed "$question"
printf '%s\n' "$question" >&8
for _ in $(seq 1200); do # it says so when the turn is stored
    ! grep -qs "first token after" "$work/said" || break
    kill -0 "$chat" 2>/dev/null || fail "the chat has ended: $(cat "$work/said")"
    sleep 0.1
done
sed 's/^/  | /' "$work/chat"
"$bin/kvcachectl" conv show anna >"$work/out" 2>"$work/err" || fail "no conversation is stored"
note "worker 3: the conversation is stored"
kill -9 "$chat" "$daemon"
wait "$chat" "$daemon" 2>/dev/null || :
exec 8>&-
chat=
note "kill -9: the worker and the daemon are gone"
start_daemon
note "another daemon has started on the same directory"
asks "worker 4" "In which sea does it end?" "$@" --conversation anna

title "3. A document is read once, by one worker, and asked by others"
beginning LICENSE $((size * 2)) >"$work/licence.txt"
"$bin/kvcache-worker" "$@" --document licence --file "$work/licence.txt" >"$work/out" 2>"$work/err" ||
    fail "the document: $?"
note "worker 5: $(tokens_of)"
asks "worker 6" "Summarize the licence in one sentence." "$@" --document licence

title "What the daemon holds"
"$bin/kvcachectl" conv list | sed 's/^/  /'
"$bin/kvcachectl" doc list | sed 's/^/  /'
printf '\n'
kill -TERM "$daemon"
wait "$daemon" || fail "the daemon ended with $?"
daemon=
