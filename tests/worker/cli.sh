#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The program kvcache-worker as people use it: what it refuses and how, prompts, a document, and a
# chat that survives the death of worker and daemon between two turns.
set -eu
worker="$KVC_BIN_DIR/kvcache-worker"
dir=$(mktemp -d /tmp/kvc-worker.XXXXXX)
pid=
trap '[ -z "$pid" ] || kill -9 "$pid"; rm -rf "$dir"' EXIT
export KVCACHE_SOCKET="$dir/run/attach.sock"

fail() {
    echo "cli: $*" >&2
    cat "$dir/log" "$dir/out" "$dir/err" >&2 || true
    exit 1
}

begin() {
    rm -f "$dir/log"
    "$KVC_BIN_DIR/kvcache-daemon" --set runtime_dir="$dir/run" --set host.limit=32MiB \
        --set nvme.limit=32MiB --set nvme.paths="$dir/store" >"$dir/log" 2>&1 &
    pid=$!
    for _ in $(seq 600); do
        grep -qs "ready: " "$dir/log" && return 0
        kill -0 "$pid" 2>/dev/null || fail "the daemon does not start"
        sleep 0.1
    done
    fail "the daemon is not ready"
}

# refused CODE TEXT ARGUMENT...: it ends so and says that
refused() {
    code=$1
    text=$2
    shift 2
    got=0
    "$worker" "$@" >"$dir/out" 2>"$dir/err" || got=$?
    [ "$got" -eq "$code" ] || fail "$*: exit code $got, not $code"
    grep -qF -e "$text" "$dir/err" || fail "$*: does not say '$text'"
}

# runs ARGUMENT...: it ends well; its output is in out, what it says in err
runs() {
    "$worker" "$@" >"$dir/out" 2>"$dir/err" || fail "$*: exit code $?"
}

# has FILE TEXT
has() {
    grep -qE -e "$2" "$dir/$1" || fail "no '$2' in $1"
}

# What somebody else made is not overwritten with a model.
echo mine >"$dir/mine"
sh "$KVC_SOURCE_DIR/client/worker/smollm2.sh" "$dir/" 2>"$dir/err" && fail "it overwrites a directory"
has err "was not made by this script"
[ -e "$dir/mine" ] || fail "smollm2.sh removes what it did not make"

refused 2 "one of --preset"
refused 2 "did you mean --preset" --prset tiny
refused 2 "did you mean 'paged'" --preset tiny --strategy page --prompt x
refused 2 "no type 'q5_0'" --preset tiny --types q5_0 --prompt x
refused 2 "--block 0" --preset tiny --block 0 --prompt x
refused 2 "nothing to compute" --preset tiny
refused 2 "is not understood" --preset tiny hello
refused 2 "--file makes a document" --preset tiny --document d --file x --prompt y
refused 2 "a document is what the system says" --preset tiny --document d --system x --prompt y
refused 1 "no preset 'huge'" --preset huge --prompt x
refused 1 "config.json" --model "$dir" --prompt x
refused 1 "below 256" --preset tiny --no-daemon --tokens 1,2,300
refused 1 "longest" --preset tiny --no-daemon --context 4 --prompt hello
refused 1 "nothing is said" --preset tiny --no-daemon --prompt ""
refused 3 "start one, or name its socket" --preset tiny --conversation a --prompt x
refused 2 "need one" --preset tiny --conversation a --prompt x --no-daemon
runs --help
for option in $(grep -o '{"--[a-z-]*' "$KVC_SOURCE_DIR/client/worker/options.c" | tr -d '{"'); do
    has out "$option"
done

# Without a daemon, by all types, several sequences.
runs --preset tiny --prompt hello --tokens 1,2,3 --types q8_0:q4_0 --new 4 --json
has out '"sequences":\[\{.*\},\{.*"tokens":\[[0-9]+,[0-9]+,[0-9]+,[0-9]+\]'
has err "works alone"

# A model with a tokenizer and a chat's template: it says one character, of two tokens, and ends.
python3 -B "$KVC_SOURCE_DIR/tests/worker/make_answer.py" "$dir/answer"
runs --model "$dir/answer" --prompt "Hi" --prompt "How are you?" --no-daemon --quiet
printf 'ß\nß\n' | cmp - "$dir/out" || fail "no eszett"
runs --model "$dir/answer" --prompt "Hi" --no-daemon --json
has out '"tokens":\[[0-9]+,[0-9]+,2\],"text":"ß"'
runs --model "$dir/answer" --prompt "Hi" --raw --new 9 --no-daemon --json
has out '"prompt_tokens":2,.*"tokens":\[([0-9]+,){8}[0-9]+\]'
runs --model "$dir/answer" --system "Be brief." --prompt "Hi" --new 9 --no-daemon --json
has out '"prompt_tokens":34,'
printf 'Hi\n\nHow are you?\n' | "$worker" --model "$dir/answer" --chat --no-daemon \
    >"$dir/out" 2>"$dir/err" || fail "chat with a template"
printf 'ß\nß\n' | cmp - "$dir/out" || fail "no eszett in the chat"
head -c 17000000 /dev/zero >"$dir/zeros"
refused 1 "longer than 16 MiB" --model "$dir/answer" --no-daemon --stdin <"$dir/zeros"
rm "$dir/zeros" "$dir/answer/tokenizer.json"
runs --model "$dir/answer" --prompt "Hi" --no-daemon --new 1
has err "has no tokenizer.json"
printf '{' >"$dir/answer/tokenizer.json"
refused 1 "tokenizer.json: no JSON" --model "$dir/answer" --prompt x --no-daemon
# Names in a file do not steer the terminal.
printf '{"model":{"type":"\\u001b[31mred\\u202e"}}' >"$dir/answer/tokenizer.json"
refused 1 "its model is ?[31mred?, not BPE" --model "$dir/answer" --prompt x --no-daemon
mv "$dir/answer" "$dir/$(printf 'an\033swer')"
refused 1 "an?swer/tokenizer.json" --model "$dir/$(printf 'an\033swer')" --prompt x --no-daemon

mkdir "$dir/store"
begin
text="Once upon a time there was a cache that forgot nothing, and a daemon that kept it for all."
runs --preset tiny --prompt "$text" --new 8 --quiet
cp "$dir/out" "$dir/first"
for strategy in paged static doubling none; do
    runs --preset tiny --prompt "$text" --new 1 --quiet --strategy "$strategy"
    [ "$(head -c 1 "$dir/out")" = "$(head -c 1 "$dir/first")" ] || fail "$strategy: another token"
done
runs --preset tiny --prompt "$text" --new 1 --json
has out '"from_daemon_tokens":8[0-9],'

printf '%s' "$text" >"$dir/manual.txt"
runs --preset tiny --document manual --file "$dir/manual.txt"
refused 1 "there is a document 'manual'" --preset tiny --document manual --file "$dir/manual.txt"
refused 1 "no document 'other'" --preset tiny --document other --prompt x
runs --preset tiny --document manual --prompt " How?" --new 1 --json
has out '"prompt_tokens":95,"from_daemon_tokens":90,'

# Two turns by two workers and two daemons are what one worker says of both.
printf 'hello there\n' | "$worker" --preset tiny --chat --conversation anna --new 6 \
    >"$dir/out" 2>"$dir/err" || fail "chat"
cp "$dir/out" "$dir/turn1"
kill -9 "$pid"
wait "$pid" 2>/dev/null || true
begin
printf 'how are you\n' | "$worker" --preset tiny --chat --conversation anna --new 6 \
    >"$dir/out" 2>"$dir/err" || fail "chat after both died"
has err "'anna': 18 tokens so far"
has err "30 tokens|36 tokens: 18 from the daemon"
cat "$dir/turn1" "$dir/out" >"$dir/both"
printf 'hello there\nhow are you\n' | "$worker" --preset tiny --chat --new 6 --no-daemon \
    >"$dir/out" 2>"$dir/err" || fail "one chat"
cmp "$dir/both" "$dir/out" || fail "the resumed chat says something else"

kill -TERM "$pid"
wait "$pid" || fail "the daemon ended with $?"
pid=
