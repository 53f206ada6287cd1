#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Test programs take options as others do: --help is served, and what is wrong is refused with a
# text and status 2, before anything runs.
set -eu

# says STATUS TEXT PROGRAM OPTION...: one that this build does not have is left out
says() {
    status=$1 text=$2 program=$3
    shift 3
    [ -x "$KVC_BIN_DIR/$program" ] || return 0
    got=0
    said=$(timeout 60 "$KVC_BIN_DIR/$program" "$@" 2>&1) || got=$?
    case "$got $said" in
    "$status "*"$text"*) ;;
    *)
        echo "$program $*: status $got in place of $status, and no '$text' in: $said"
        exit 1
        ;;
    esac
}

for program in sim nvmesim soak hostile_bytes fuzz_trace fuzz_wire; do
    says 0 "Usage: " $program --help
    says 2 "'--frob' is not understood" $program --frob
    says 2 "--seed -1: " $program --seed -1
    says 2 "--seed 99999999999999999999: " $program --seed 99999999999999999999
done

printf '# none\n' >none.txt
for program in sim nvmesim; do
    says 2 "--seeds 1..0: must be FROM..TO" $program --seeds 1..0
    says 2 "--seeds 1..9x: must be FROM..TO" $program --seeds 1..9x
    says 2 "--seed 18446744073709551615: must be from 0 to 9223372036854775807" $program \
        --seed 18446744073709551615
    says 2 "must be FROM..TO" $program --seeds 1..9223372036854775808
    says 2 "--seed, --seeds and --list: one of them" $program --seed 1 --seeds 1..2
    says 2 "none.txt names no seed" $program --list none.txt
    says 2 "absent.txt: No such file" $program --list absent.txt
    says 0 "1 seeds, 0 failed" $program --seed 9223372036854775807
done

says 2 "--minutes 0: must be a number from 0.001" soak --minutes 0
says 2 "--messages 0: must be from 1" hostile_bytes --messages 0
says 2 "--mutate and --mutate-only: one of them" fuzz_trace --mutate 1 --mutate-only 1 none.txt
says 2 "--mutate x: " fuzz_trace --mutate x none.txt
says 2 "which inputs?" fuzz_trace --mutate 1
