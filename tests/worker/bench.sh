#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvcachebench with kvcache-worker's model and strategies, in little: what it refuses, its figures.
set -eu
bench="$KVC_BIN_DIR/kvcachebench"
dir=$(mktemp -d /tmp/kvc-worker-bench.XXXXXX)
trap 'rm -rf "$dir"' EXIT
out="$dir/out"

fail() {
    echo "bench: $*" >&2
    cat "$out" "$dir/err" >&2 || true
    exit 1
}

# refused CODE TEXT ARGUMENT...: it ends so and says that
refused() {
    code=$1
    text=$2
    shift 2
    got=0
    "$bench" "$@" >"$out" 2>"$dir/err" </dev/null || got=$?
    [ "$got" -eq "$code" ] || fail "$*: exit code $got, not $code"
    grep -qF -e "$text" "$dir/err" || fail "$*: does not say '$text'"
}

# runs ARGUMENT...: it ends well
runs() {
    "$bench" "$@" >"$out" 2>"$dir/err" </dev/null || fail "$*: exit code $?"
}

# has TEXT: a line of what it printed
has() {
    grep -qE -e "$1" "$out" || fail "no '$1'"
}

# value FILTER METRIC: of a line of --json
value() {
    grep -F -e "$1" "$out" | grep -F "\"metric\":\"$2\"" | sed -n 's/.*"value":\([^,}]*\).*/\1/p' | head -n 1
}

# is EXPRESSION: of awk
is() {
    awk "BEGIN { exit !($1) }" || fail "it is not so that $1"
}

# allocation: two sequences, of 100 and of 300 tokens, in a shape of 2 KiB a token.
refused 2 "one trace" allocation a b
refused 2 "no preset 'huge'" allocation --preset huge
refused 2 "--block 0" allocation --block 0
refused 2 "nowhere" allocation "$dir/nowhere"
cat >"$dir/trace.jsonl" <<'EOF'
{"timestamp":0,"input_length":90,"output_length":10,"hash_ids":[1]}
{"timestamp":1,"input_length":290,"output_length":10,"hash_ids":[2]}
EOF
runs allocation "$dir/trace.jsonl" --preset tiny --block 16 --tokens 1000 --json
is "$(value '"strategy":"static","requests":2' allocated_by_needed) == 1.5"
is "$(value '"strategy":"static","requests":2' copied_by_needed) == 0"
# 128 and 512 of 400; 64 tokens are copied never, for the first chunk is of 90 tokens; 256 once.
is "$(value '"strategy":"doubling","requests":2' allocated_by_needed) == 1.6"
is "$(value '"strategy":"doubling","requests":2' copied_by_needed) == 0.64"
is "$(value '"strategy":"paged","requests":2' allocated_by_needed) == 1.04"
is "$(value '"strategy":"paged","requests":2' copied_by_needed) == 0"
is "$(value '"strategy":"paged","requests":2' allocation_s_per_token) > 0"
is "$(value '"strategy":"static","tokens":1000' allocated_bytes) == 1000 * 2048"
is "$(value '"strategy":"doubling","tokens":1000' allocated_bytes) == 1024 * 2048"
is "$(value '"strategy":"paged","tokens":1000' allocated_bytes) == 1008 * 2048"
runs allocation "$dir/trace.jsonl" --context 200 --tokens 64
has '2 requests of .*: 150 tokens on average, 200 the longest \(1 were cut\)'
has '^  paged .* wanted 1.05: good$'
runs allocation --requests 3 --json
is "$(value '"strategy":"paged","requests":3' allocated_by_needed) >= 1"

# ttft: logits of fp32 are compared by the program itself.
refused 2 "--tokens 1:" ttft --tokens 1
refused 2 "from small to large" ttft --tokens 64,32
refused 2 "no type 'q5_0'" ttft --types q5_0
refused 2 "takes 8191" ttft --preset tiny --tokens 8192 --dir "$dir"
refused 2 "no preset 'huge'" ttft --preset huge
runs ttft --preset tiny --tokens 40,100 --types q8_0:q4_0 --rounds 1 --dir "$dir" --svg "$dir/t.svg" --json
for tokens in 40 100; do
    for case in recompute host storage; do
        is "$(value "\"tokens\":$tokens,\"source\":\"$case\",\"types\":\"fp32\"" ttft) > 0"
    done
    for case in host storage; do
        is "$(value "\"tokens\":$tokens,\"source\":\"$case\",\"types\":\"q8_0:q4_0\"" ttft) > 0"
        has "\"tokens\":$tokens,\"source\":\"$case\",.*\"ttft_over_recompute\",.*\"limit\":"
    done
    has "\"tokens\":$tokens,\"source\":\"recompute\",.*\"limit\":\{\"what\":\"BLAS \+ step\",\"value\":0\.[0-9]*[1-9]"
    has "\"tokens\":$tokens,\"source\":\"host\",.*\"limit\":\{\"what\":\"copy \+ step\""
done
grep -q 'storage, q8_0:q4_0' "$dir/t.svg" || fail "the drawing has no legend"
[ "$(ls "$dir" | grep -c kvcachebench-store)" = 0 ] || fail "a store was left behind"
# What is quicker depends on the machine; each length says what was done.
runs ttft --preset tiny --choose --tokens 16,64 --read-delay-ms 5 --rounds 1 --dir "$dir" --json
for tokens in 16 64; do
    is "$(value "\"tokens\":$tokens,\"read_delay_ms\":5" choice_loads) >= 0"
    is "$(value "\"tokens\":$tokens,\"read_delay_ms\":5" choice_right) <= 1"
    is "$(value "\"tokens\":$tokens,\"read_delay_ms\":5" choice_lost) >= 0"
done
runs ttft --preset tiny --choose --tokens 16,64 --rounds 1 --dir "$dir"
has 'lost by the others: [0-9.]* ms, [0-9.]* %'

# quality: fp32 is fp32, and fewer bits are further from it.
printf '\n' >"$dir/none"
refused 2 "no text has two tokens" quality --preset tiny --ids "$dir/none"
refused 2 "no text has two tokens" quality --preset tiny --ids
refused 2 "no token id" quality --preset tiny --ids "$KVC_SOURCE_DIR/README.md"
printf '1 2 \033[31mred' >"$dir/ids" # does not steer the terminal
refused 2 "'?[31mred' is no token id" quality --preset tiny --ids "$dir/ids"
printf '1 2 300\n' >"$dir/ids"
refused 2 "the model has tokens 0 to 255" quality --preset tiny --ids "$dir/ids"
printf '1,2,3,4,5\n\n7 8 9\n' >"$dir/ids"
runs quality --preset tiny --ids "$dir/ids" --types fp32,q8_0 --json
is "$(value '"k":"fp32","v":"fp32","texts":2,"tokens":6' kl_mean) == 0"
is "$(value '"k":"fp32","v":"fp32"' bytes_per_token) == 2048"
is "$(value '"k":"q8_0","v":"q8_0"' bytes_per_token) == 544"
runs quality --preset tiny "$KVC_SOURCE_DIR/README.md" --tokens 100 --types fp32,fp16,q8_0,q4_0,fp32:q4_0 --svg "$dir/q.svg" --json
is "$(value '"k":"fp32","v":"fp32"' top1_agreement) == 1"
is "$(value '"k":"fp32","v":"fp32"' perplexity) > 1"
is "$(value '"k":"fp16","v":"fp16"' kl_mean) > 0"
is "$(value '"k":"q8_0","v":"q8_0"' kl_mean) > $(value '"k":"fp16","v":"fp16"' kl_mean)"
is "$(value '"k":"q4_0","v":"q4_0"' kl_mean) > $(value '"k":"q8_0","v":"q8_0"' kl_mean)"
is "$(value '"k":"q4_0","v":"q4_0"' kl_mean) > $(value '"k":"fp32","v":"q4_0"' kl_mean)"
grep -q '>V</text>' "$dir/q.svg" || fail "the drawing does not say what is V alone"
runs quality --preset tiny --tokens 20 --types int8
has 'nothing about language'

# surge with processes: three workers compute the prefix once, and 16 tokens of their own each.
refused 2 "at most 16" surge --preset tiny --workers 17
refused 5 "a worker ended before it had its prompt" surge --preset huge --workers 1 --pairs 1
runs surge --preset tiny --workers 3 --tokens 256 --pairs 1 --json
computed=$(value '"workers":3,"tokens":256,"preset":"tiny"' prefill_over_one)
is "$computed >= 1 && $computed <= 1.2"
