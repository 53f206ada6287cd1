#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command line of kvcachebench simulate, and its tables.
set -eu
bench=$KVC_BIN_DIR/kvcachebench

fail() {
    echo "simulate: $*" >&2
    cat out >&2
    exit 1
}

# go CODE ARGUMENT...
go() {
    expected=$1
    shift
    code=0
    "$bench" simulate "$@" >out 2>&1 || code=$?
    [ "$code" = "$expected" ] || fail "$*: exit code $code, expected $expected"
}

says() {
    grep -q -- "$1" out || fail "it does not say '$1'"
}

says_not() {
    ! grep -q -- "$1" out || fail "it says '$1'"
}

"$bench" gen --requests 300 --seed 7 --output trace.jsonl

# Timestamps that go back, or are not there: how time is taken is said; else nothing is.
cat >back.jsonl <<'EOF'
{"timestamp":10,"input_length":512,"output_length":1,"hash_ids":[1]}
{"timestamp":5,"input_length":512,"output_length":1,"hash_ids":[1]}
{"timestamp":12,"input_length":512,"output_length":1,"hash_ids":[1]}
EOF
go 0 back.jsonl --capacity 100%
says 'back.jsonl: 1 requests have a timestamp before'
sed 's/"timestamp":[0-9]*,//' back.jsonl >none.jsonl
go 0 none.jsonl --capacity 100%
says 'no request has a timestamp above 0; they are taken to come a second apart'
go 0 trace.jsonl --capacity 100%
says_not 'timestamp'

# What is no trace is named as what it is.
printf 'time,tokens\n1,2\n' >x.csv
go 2 x.csv
says 'not CSV'
gzip -c back.jsonl >x.gz
go 2 x.gz
says 'compressed by gzip'
printf '\357\273\277{}\n' >bom.jsonl
go 2 bom.jsonl
says 'byte order mark'

# A request may ask for no block at all, the first one too.
cat >empty.jsonl <<'EOF'
{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[]}
{"timestamp":1,"input_length":1024,"output_length":1,"hash_ids":[1,2]}
{"timestamp":2,"input_length":0,"output_length":1,"hash_ids":[]}
{"timestamp":3,"input_length":1024,"output_length":1,"hash_ids":[1,2]}
EOF
everyone=default,density,lru,s3fifo,arc,lru2,published,belady
go 0 empty.jsonl --capacity 100% --policy "$everyone" --json
for kind in ended:0.5 continue:1 soon:1 scan:1; do
    go 0 empty.jsonl --capacity 100% --policy default,lru --hints "$kind"
    go 0 empty.jsonl --capacity 'host=1 block,nvme=2 blocks' --write-budget 1 --hints "$kind"
done

# The kinds of gen, in its help and alone.
"$bench" gen --kind list >kinds
"$bench" gen --help | sed '1,/^Kinds:$/d; s/^  //' >out
cmp -s kinds out || fail "gen --help lists other kinds than --kind list: $(cat kinds)"
grep -q '^questions ' kinds || fail 'no kind questions'
while read -r kind _; do
    "$bench" gen --kind "$kind" --requests 1 >out 2>&1 || fail "gen --kind $kind"
done <kinds

# What does not arrive is said, whatever was to be printed.
into() { # WHERE ARGUMENT...
    where=$1 why=$2 code=0
    shift 2
    if [ "$where" = closed ]; then
        "$bench" "$@" >&- 2>out || code=$?
    else
        "$bench" "$@" >"$where" 2>out || code=$?
    fi
    [ "$code" = 5 ] || fail "$* into $where: exit code $code, expected 5"
    says "stdout: $why"
    [ "$(grep -c stdout out)" = 1 ] || fail "$* into $where: it says so more than once"
}
for words in 'simulate trace.jsonl' 'simulate trace.jsonl --json' 'simulate --decisions 100' \
    'simulate --help' 'gen --requests 1' 'gen --requests 1 --kind loop' 'gen --requests 1000' \
    'gen --kind list' 'replay --help' '--help' '--version'; do
    # shellcheck disable=SC2086 # a command and its arguments
    into /dev/full 'No space left on device' $words
    # shellcheck disable=SC2086
    into closed 'Bad file descriptor' $words
done

# Hints go to policies that heed them; where none does they are an error.
go 2 trace.jsonl --policy published-lru,belady,arc --hints ended:1
says "--hints 'ended:1': none of the policies heeds hints"
go 0 trace.jsonl --capacity 10% --policy default,lru,published-lru,belady --hints ended:1 --json
says '"policy":"default".*"hints":"ended:1"'
says '"policy":"lru".*"hints":"ended:1"'
says_not '"policy":"published-lru".*"hints"'
says_not '"policy":"belady".*"hints"'
go 0 trace.jsonl --capacity 10% --policy default,published-lru --hints ended:1
says '^default .* ended:1$'
says '^published-lru .* -$'
go 0 trace.jsonl --capacity 10% --policy default
says_not 'hints:'

# What is said: of what kind, how often it is right, how soon soon is.
for kind in ended:0.9 continue:1 soon:0.9 soon:0,0.5 scan:0.9; do
    go 0 trace.jsonl --capacity 10% --policy default --hints "$kind" --json
    says "\"hints\":\"$kind\""
done
go 0 trace.jsonl --capacity 10% --policy default --hints soon:1,0.001 --json
cp out never
go 0 trace.jsonl --capacity 10% --policy default --hints soon:1,1000000 --json
! cmp -s out never || fail 'soon is soon, however long it is'
for bad in ended never:1 ':1' ,; do
    go 2 trace.jsonl --hints "$bad"
    says "^kvcachebench simulate: --hints '$bad': must be ended:Q, continue:Q, soon:Q or scan:Q"
done
for bad in soon:1.1 soon:-1,5 scan:x soon:,5 soon: ended: scan:00000000000000000000000000000000000; do
    go 2 trace.jsonl --hints "$bad"
    says "^kvcachebench simulate: --hints '$bad': how often they are right must be a number between 0 and 1, as in ${bad%%:*}:0.9$"
done
go 2 trace.jsonl --hints scan:0.9,30
says "--hints 'scan:0.9,30': only soon has a time, as in soon:0.9,30$"
for bad in soon:1, soon:1,0 soon:1,x soon:1,1e9 soon:1,5,6; do
    go 2 trace.jsonl --hints "$bad"
    says "^kvcachebench simulate: --hints '$bad': how soon must be a number of seconds between 0.001 and 4000000, as in soon:0.9,30$"
done

# A number alone is no capacity; in replay neither.
go 2 trace.jsonl --capacity 5
says "--capacity: '5' does not say of what: .*(5%).*(5GiB).*(5 blocks)"
code=0
"$bench" replay trace.jsonl --capacity host=5,nvme=10% >out 2>&1 || code=$?
[ "$code" = 2 ] || fail "replay --capacity host=5,nvme=10%: exit code $code"
says "--capacity: '5' does not say of what"

# --decisions takes nothing that it would not heed, and no policy that decides nothing in time.
for words in '--svg x.svg' '--hints ended:1' '--capacity 10%' '--capacity host=1%,nvme=10%' \
    '--write-budget 1' '--keep-percent 5' '--cost 1' '--requests 5' '--admit-all'; do
    # shellcheck disable=SC2086 # an option and its value
    go 2 --decisions 100 $words
    says "^kvcachebench simulate: ${words%% *} goes with a trace, and --decisions has none"
done
for policy in published-arc belady; do
    go 2 --decisions 100 --policy lru,$policy
    says "--policy $policy: --decisions is about the daemon's own policies"
done
go 2 --decisions 100 --policy published
go 0 --decisions 100 --policy lru,arc --block-bytes 4KiB --seed 3 --json
says '"policy":"arc"'

# --admit-all is for policies that judge, in memory alone.
go 2 trace.jsonl --policy published,lru --admit-all
says '--admit-all: none of the policies judges'
go 2 trace.jsonl --capacity host=1%,nvme=10% --admit-all
says '--admit-all: with nvme= every block comes in anyway'
go 0 trace.jsonl --capacity 5% --json
says '"metric":"not_worth_blocks","value":[1-9]'
go 0 trace.jsonl --capacity 5% --policy default,published-lru --admit-all --json
says_not '"metric":"not_worth_blocks","value":[1-9]'

# The columns of a table end where those of its head do.
in_line() {
    awk '/^$/ { table++; next }
         table == 1 { if (wide && length($0) != wide) bad = 1; wide = length($0); lines++ }
         END { exit bad || lines < 2 }' out || fail 'the table is out of line'
}
go 0 trace.jsonl --capacity 10% --policy default,published
says '^published-lfu-aging '
in_line
go 0 trace.jsonl --capacity 'host=10%,nvme=123456789 blocks' --policy default,lru
in_line

# So they do when hits cost more than they save, however much.
for cost in 1,0,0.001 1,0,0.0000000001 1,0,0.02 1e15,1e15; do
    go 0 trace.jsonl --capacity 10% --policy default,published --cost $cost
    in_line
done
go 0 trace.jsonl --capacity 10%,20% --cost 1,0,0.001
says '^default .* <-9.99  '
says '^time below 0: '
go 0 trace.jsonl --capacity 10% --cost 1,0,0.001 --json
says '"metric":"time_hit_ratio","value":-[0-9]'
go 0 trace.jsonl --capacity 10%
says_not 'below 0'

# A trace may be named as one likes: the drawing is XML all the same.
name=$(printf 'a\033<b>\001&\303\251\377.jsonl')
cp trace.jsonl "$name"
go 0 "$name" --capacity 10% --policy lru --svg drawing.svg
if python3 -c '' 2>/dev/null; then
    python3 -c 'import xml.etree.ElementTree as e; e.parse("drawing.svg")' || fail 'the drawing is no XML'
fi
title=$(printf 'a\357\277\275&#60;b&#62;\357\277\275&#38;\303\251\357\277\275.jsonl')
grep -q "$title" drawing.svg || fail "the drawing has no title '$title'"
