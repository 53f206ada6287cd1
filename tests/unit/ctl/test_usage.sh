#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What kvcachectl answers where no daemon is needed: exit code, and a message that names what is
# wrong. Argument: the program.
set -u

ctl=$1
failures=0
KVCACHE_SOCKET=$PWD/no-such-socket
export KVCACHE_SOCKET

# exit code, text that the output must contain, arguments...
expect() {
    code=$1
    text=$2
    shift 2
    output=$(timeout 60 "$ctl" "$@" 2>&1)
    got=$?
    if [ "$got" -ne "$code" ]; then
        echo "kvcachectl $*: exit code $got, expected $code"
        failures=$((failures + 1))
    fi
    case $output in
    *"$text"*) ;;
    *)
        echo "kvcachectl $*: no '$text' in: $output"
        failures=$((failures + 1))
        ;;
    esac
}

key=c0ffee0000000000000000000000000000000000000000000000000000000000

printf 'GGUF\003\000\000\000\001\000\000\000\000\000\000\000' >x.gguf
printf '{}' | gzip -c >x.gz
printf '\357\273\277{}' >bom.json
expect 2 "it is a GGUF file" size --config x.gguf --context 8192
expect 2 "compressed by gzip" size --config x.gz --context 8192
expect 2 "byte order mark" size --config bom.json --context 8192
printf 'time,tokens\n1,2\n' >x.csv
printf '1,2,3,4\n' >ids.csv
cp x.gguf gguf.json
cp x.gz gz.json
cp x.csv csv.json
expect 2 "commas, CSV" size --config x.csv --context 8192
for what in "doc import" "doc put book --ns 3 --tokens" "conv save talk --ns 3 --tokens" \
    "pin add --ns 3 --tokens"; do
    # What is read as JSON where its name says so, and else as something binary.
    for name in x.gguf gguf.json; do
        # shellcheck disable=SC2086 # a command and its arguments
        expect 2 "it is a GGUF file" $what $name
    done
    for name in x.gz gz.json; do
        # shellcheck disable=SC2086
        expect 2 "compressed by gzip" $what $name
    done
    # shellcheck disable=SC2086
    expect 2 "byte order mark" $what bom.json
    # shellcheck disable=SC2086
    expect 2 "commas, CSV" $what csv.json
done
expect 2 "ends in .json); it is text" doc put book --ns 3 --tokens ids.csv
: >empty.ids
expect 2 "ends in .json); it is empty" doc put book --ns 3 --tokens empty.ids
expect 3 "no daemon" evict --dry-run --bytes 10TB
expect 2 "TiB (1024^4 bytes) or TB (1000^4 bytes)" evict --bytes 10tb

expect 0 "Exit codes" --help
expect 0 "protocol" --version
expect 2 "Usage:"
expect 2 "no command 'frob'" frob
expect 2 "did you mean 'stats'?" stast
expect 2 "did you mean --older-than?" evict --older-then 5m
expect 2 "--json takes no value" ping --json=1
expect 2 "'--frob' is not understood" --frob ping
expect 2 "needs a unit" --timeout 5 ping
expect 2 "'-xh' is not understood" -xh ping
expect 2 "'-xh' is not understood" ping -xh
expect 2 "'-xh' is not understood" ping --json -xh
expect 2 "'-xa' is not understood" evict -xa -ax
expect 2 "'-x' is not understood" evict -x -xa
expect 2 "'--json=3' is not understood" ping --json=3
expect 2 "must be from 1ms" --timeout 11min ping
expect 2 "'now' is not understood" ping now
expect 2 "'x' is not understood" top x
expect 2 "--every 0.05: must be a number" top --every 0.05
expect 2 "--every nan: must be a number" top --every nan
expect 2 "--count 0" top --count 0
expect 3 "no daemon at" top
expect 2 "which block" explain
expect 2 "has fewer" explain abc
expect 2 "has more" explain "${key}0"
expect 2 "other characters" explain "${key%0}g"
expect 2 "no such namespace" explain --ns 0 "$key"
expect 2 "--all for everything" evict
expect 2 "--all for everything" evict --dry-run
expect 2 "--all means everything" evict --all --ns 3
expect 2 "--bytes 12abc" evict --bytes 12abc
expect 2 "--older-than 5" evict --older-than 5
expect 2 "--prefix zz: " evict --prefix zz
expect 2 "--key zz: " evict --key zz
expect 2 "needs a value" evict --ns
expect 2 "--watch 0" stats --watch=0
expect 2 "Say on, off, status or dump" trace
expect 2 "say on, off, status or dump" trace frob
expect 2 "must be from 1MiB" trace on --bytes 2GiB
expect 2 "--bytes goes with" trace off --bytes 2MiB
expect 2 "which? Give --key" blocks
expect 2 "--down from which" blocks --ns 1 --down
expect 2 "give that too" blocks --key "$key" --depth 3
expect 2 "there are 'host', 'nvme', 'hbm', and 'all'" verify --tier disk
expect 2 "drain takes no argument" drain now
expect 2 "'now' is not understood" gpu now
expect 3 "is kvcache-daemon running?" gpu
expect 0 "kvcachectl gpu --json" gpu --help
expect 2 "at least 1KiB a second" verify --rate 5
expect 2 "Say one of put, list" doc
expect 0 "--tokens FILE" doc put --help
expect 0 "safetensors" doc export --help
expect 2 "did you mean 'export'?" doc exprt x y
expect 2 "'frob' is not understood" conv frob
expect 2 "which one? Give its name" doc show
expect 2 "one name at a time" doc show a b
expect 2 "in which namespace?" doc put book
expect 2 "which blocks?" doc put book --ns 3
expect 2 "has fewer" doc put book --ns 3 --tip abc
expect 2 "must be from 1 to 100" doc put book --ns 3 --tip "$key" --priority 0
expect 2 "must be from 1 to 100" conv save talk --ns 3 --tip "$key" --priority 101
expect 2 "needs a unit" conv save talk --ns 3 --tip "$key" --ttl 5
expect 2 "at most 18446744073s, or 213503d" conv save talk --ns 3 --tip "$key" --ttl 18446744073709551615ms
expect 2 "how? Give --ttl" conv extend talk
expect 2 "preload NAME --no-wait" conv extend talk
expect 0 "conv extend NAME (--ttl TIME|none | --tip KEY" conv extend --help
expect 2 "goes with --tip KEY" conv extend talk --ttl 1h --tokens ids.json
expect 2 "where to?" doc export book
expect 2 "which file?" doc import
expect 2 "No such file" doc import nothing.safetensors
# What is no regular file is refused; of a FIFO, at once.
rm -f fifo.json
mkfifo fifo.json
for what in "doc import" "doc put book --ns 3 --tokens" "pin add --ns 3 --tokens" \
    "size --context 1 --config"; do
    # shellcheck disable=SC2086 # a command and its arguments
    expect 2 "fifo.json: must be a regular file, and is a FIFO" $what fifo.json
    # shellcheck disable=SC2086
    expect 2 "/dev/null: must be a regular file, and is a device" $what /dev/null
done
rm fifo.json
expect 2 "did you mean --evict?" doc forget book --evct
echo '[1, 2, "x"]' >bad.json
expect 2 "element 2 is no token id" doc put book --ns 3 --tokens bad.json
expect 3 "is kvcache-daemon running?" doc list
expect 2 "what? Give --doc" pin add
expect 2 "which of them?" pin add --doc a --conv b
expect 2 "which pin?" pin rm
expect 2 "is no pin" pin rm x
expect 2 "whose? Give --tenant" quota set --host 1GiB
expect 2 "how much?" quota set --ns 3
expect 2 "of which --tenant" quota set --sub s --host 1GiB
expect 2 "12abc" quota set --ns 3 --host 12abc
expect 2 "what? Give --keep-percent" policy set
expect 2 "--load-or-recompute maybe: say on or off" policy set --load-or-recompute maybe
expect 2 "--admission yes: say on or off" policy set --admission yes
expect 2 "must be from 0 to 100" policy set --keep-percent 101
expect 2 "which session" sessions end
expect 2 "is no session" sessions end x
expect 2 "there are ns, tenant, principal and model" usage --by size
expect 2 "which of them?" evict --doc a --ns 3
expect 2 "--doc a and --doc b: which of them?" evict --doc a --doc b
expect 2 "--ns 1 and --ns 65536: which of them?" evict --ns 1 --ns 65536 --dry-run
expect 2 "--prefix $key and --key $key: which of them?" evict --prefix "$key" --key "$key"
for filter in "--tenant a" "--model a" "--older-than 1h" "--priority-below 3" "--bytes 1GiB" \
    "--prefix $key" "--key $key" "--conv a" "--sub a"; do
    # shellcheck disable=SC2086 # an option and its value
    expect 2 "$filter and $filter: which of them?" evict $filter $filter
done
expect 2 "--socket a and --socket b: which of them?" ping --socket a --socket b
expect 3 "no daemon" evict --all --dry-run --dry-run
expect 2 "'--al': write --all in full" evict --al --dry
expect 2 "'--forc': write --force in full" evict --ns 3 --forc
expect 2 "'--ev': write --evict in full" doc forget book --ev
expect 3 "no daemon" doc forget book --evict
expect 2 "'--t' is ambiguous: --tenant, --timeout" evict --t a
expect 2 "--socket: its value is empty" --socket "" ping
expect 2 "--socket: its value is empty" ping --socket=
expect 0 "host|nvme|hbm|all" verify --help
expect 2 "which of them?" pin add --conv a --conv b
expect 2 "of which --doc" evict --sub s
expect 2 "must be from 1 to 101" evict --priority-below 0
expect 2 "which model?" size
expect 2 "how many tokens?" size --config x
expect 2 "No such file" size --config x --context 1
cat >huge.json <<'EOF'
{"num_hidden_layers": 1024, "hidden_size": 16777216, "num_attention_heads": 16777216,
 "head_dim": 16777216}
EOF
expect 2 "more than 8 EiB" size --config huge.json --context 4096
expect 0 "absorbed K" size --config huge.json --context 1 --block-tokens 1 --kv-type int4
sed 's/"gpt2"/"gpt\\u001b[31m\\u202e2"/' "$KVC_SOURCE_DIR/tests/unit/ctl/configs/gpt2.json" >steers.json
expect 0 'gpt?[31m?2: 12 layers' size --config steers.json --context 8K
expect 0 "301989888" size --config "$KVC_SOURCE_DIR/tests/unit/ctl/configs/gpt2.json" --context 8K --json
expect 2 "is a directory" size --config . --context 1
echo '{"num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
 "max_position_embeddings": 4096, "quantization_config": {"kv_cache_scheme": {"num_bits": 4}}}' >small.json
expect 2 "kv_cache_scheme keeps KV in a type that has no name here" size --config small.json --context 1
expect 0 "more than the 4096 that the model was made for" size --config small.json --context 8K --kv-type fp8
expect 2 "must divide the 2 heads" size --config small.json --context 1K --kv-type fp8 --tp 3
expect 2 "at most the 6 layers" size --config small.json --context 1K --kv-type fp8 --pp 7
# a head of 8, 2 stages of 3 layers: 2 * 8 * 3 * 1024 in each of 4 * 2 ranks
expect 0 '"rank_context_bytes":49152' size --config small.json --context 1K --kv-type fp8 --tp 4 --pp 2 --json
expect 0 "KV in fp8, as --kv-type says" size --config small.json --context 1K --kv-type fp8
expect 2 "must be from 1 to" size --context 99999M
expect 2 "a count is" size --context 8Q
expect 2 "there are fp32" size --kv-type fp7
expect 2 "must be from 1 to" size --context 0
for command in ping stats ns explain blocks verify drain trace gpu evict size; do
    expect 0 "Example" "$command" --help
done
for command in ping stats ns drain "explain $key" "evict --all"; do
    # shellcheck disable=SC2086 # a command and its arguments
    expect 3 "is kvcache-daemon running?" $command
    # shellcheck disable=SC2086
    expect 3 "'kvcache-daemon --config /etc/kvcache/daemon.yaml'" $command
done
expect 3 "$PWD/other" --socket "$PWD/other" ping
expect 3 "$PWD/other" ping --socket "$PWD/other"

# No line of prose is wider than a terminal of 100 columns; an example may be, for a key in it.
for command in doc "doc put" "doc list" "doc show" "doc pin" "doc preload" "doc forget" "doc export" \
    "doc import"; do
    # shellcheck disable=SC2086 # a command and its verb
    wide=$("$ctl" $command --help | awk 'length($0) > 100')
    if [ -n "$wide" ]; then
        echo "kvcachectl $command --help: more than 100 columns: $wide"
        failures=$((failures + 1))
    fi
done

# With stdout closed, and nothing that is opened in its place.
gpt2=$KVC_SOURCE_DIR/tests/unit/ctl/configs/gpt2.json
for words in --help --version "size --config $gpt2 --context 8K" \
    "size --config $gpt2 --context 8K --json"; do
    # shellcheck disable=SC2086 # a command and its arguments
    said=$("$ctl" $words 2>&1 >&-)
    case $?:$said in
    "5:kvcachectl"*"stdout: Bad file descriptor") ;;
    *)
        echo "kvcachectl $words without stdout: '$said'"
        failures=$((failures + 1))
        ;;
    esac
done

exit $((failures > 0))
