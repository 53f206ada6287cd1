#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# digests.sh: two runs are one, each difference is seen, and a seed that fails is no record.
set -eu
digests="$KVC_SOURCE_DIR/tests/sim/digests.sh"

fail() {
    echo "test_digests: $*" >&2
    cat out >&2
    exit 1
}

# go CODE ARGUMENT...
go() {
    expected=$1 code=0
    shift
    sh "$digests" "$@" >out 2>&1 || code=$?
    [ "$code" = "$expected" ] || fail "$*: exit code $code, expected $expected"
}

says() {
    grep -q -- "$1" out || fail "it does not say '$1'"
}

go 0 -g 5 record made.txt 1..12 sim --disk --turns 100
[ "$(cut -d' ' -f1 made.txt | tail -3 | paste -sd' ')" = '1..5 6..10 11..12' ] || fail 'other pieces'
cp made.txt again.txt
go 0 -j 2 record again.txt
cmp made.txt again.txt || fail 'a second record differs'
go 0 compare made.txt
says 'all 3 lines'
go 0 compare made.txt 6..12
says 'all 2 lines'

# One turn more, another policy, no storage, one digit: each is seen.
go 1 compare made.txt 1..5 --turns 101
go 1 compare made.txt 1..12 --policy lru
sed 's/ --disk//' made.txt >other.txt
go 1 compare other.txt 6..10
for field in 2 3; do
    awk -v field=$field '/^6[.]/ { $field = ($field ~ /^0/ ? "1" : "0") substr($field, 2) } { print }' \
        made.txt >digit.txt
    go 1 compare digit.txt
    says '^-6[.][.]10 '
    says '^+6[.][.]10 '
    says '1 of 3 lines'
done

# Seeds that do not pass.
go 1 record failed.txt 1..2 sim --hbm --turns 1 --reach
[ ! -e failed.txt ] || fail 'what failed was recorded'
sed 's/^sim .*/sim --hbm --turns 1 --reach/' made.txt >failing.txt
go 1 compare failing.txt 1..5
says '^+1[.][.]5 failed'

for words in '' 'record' 'compare none.txt' 'compare made.txt 20..30' 'compare made.txt 1..7' 'record new.txt' \
    'record new.txt 1..2' 'frob made.txt' '-j'; do
    # shellcheck disable=SC2086 # words
    go 2 $words
done
