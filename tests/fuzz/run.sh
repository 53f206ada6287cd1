#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz preset, runs the targets one after the other, prints a table. See --help.
set -eu

all="wire svc attach reply config trace ctl text model document tokenizer zmtp"

usage() {
    cat <<EOF
usage: sh tests/fuzz/run.sh [TARGET...] [--seconds N] [--jobs N] [--keep | --coverage]

  TARGET       $all (default: all)
  --seconds N  for each target (default 600)
  --jobs N     targets at the same time (default 1)
  --keep       then minimise what was found into tests/fuzz/corpus/
  --coverage   no fuzzing: replay seeds and corpora in an instrumented build, print the lines of
               each parser that they reach

Works in build/fuzz: corpus/ (seeds, tests/fuzz/corpus and what is found), log/, crashes/. A
finding is a file in crashes/ named after its target; replay it with the program named in the table.
The exit status is 1 when there are findings.
EOF
}

seconds=600
jobs=1
keep=
coverage=
targets=
while [ $# -gt 0 ]; do
    case $1 in
    --seconds | --jobs)
        if [ $# -lt 2 ] || ! [ "$2" -gt 0 ] 2>/dev/null; then
            echo "run.sh: $1 needs a number above 0" >&2
            exit 2
        fi
        if [ "$1" = --seconds ]; then seconds=$2; else jobs=$2; fi
        shift
        ;;
    --keep) keep=1 ;;
    --coverage) coverage=1 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        case " $all " in
        *" $1 "*) targets="$targets $1" ;;
        *)
            echo "run.sh: no target or option '$1'" >&2
            usage >&2
            exit 2
            ;;
        esac
        ;;
    esac
    shift
done
targets=${targets:-$all}

cd "$(dirname -- "$0")/../.."
if [ -z "${CMAKE_C_COMPILER_LAUNCHER-}" ] && command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache
fi
dir=build/fuzz
[ -z "$coverage" ] || dir=build/fuzz-coverage
dir=$PWD/$dir # a target may leave for a directory of its own
mkdir -p "$dir/log" "$dir/crashes"

build() {
    if [ -n "$coverage" ]; then
        cmake -G Ninja -S . -B "$dir" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=Debug \
            -DKVC_CUDA=OFF -DCMAKE_C_FLAGS='-fprofile-instr-generate -fcoverage-mapping'
    else
        cmake --preset fuzz
    fi && cmake --build "$dir" -j "${KVC_JOBS:-$(nproc)}" --target fuzz_targets
}

build >"$dir/log/build.log" 2>&1 || {
    cat "$dir/log/build.log" >&2
    echo "run.sh: $dir does not build (clang and libclang-rt: sh tests/deps.sh --fuzz)" >&2
    exit 1
}
python3 tests/fuzz/corpus.py seeds "$dir/seeds" >"$dir/log/seeds.log"

# ---- coverage ----

# The parsers, and what is right behind them: a regular expression of paths, a name.
groups() {
    cat <<'EOF'
client/codec/.* client/codec
daemon/(config[a-z_]*|cli|base/option)\.[ch] configuration
daemon/base/wire/(units\.c|cursor\.h) units, cursor
bench/trace\.c bench/trace.c
daemon/io/zmtp\.c daemon/io/zmtp.c
client/ctl/.* kvcachectl
client/(connect|channel|map|hold|ops|read|write|ns|admin|parted)\.c libkvcache
daemon/svc/.* daemon/svc
EOF
}

# In: a report of llvm-cov. Out: each file of the group, then their sum.
show_group() {
    awk -v name="$1" -v paths="^$2\$" '
        $1 ~ paths && $8 > 0 { printf "  %-32s %6d lines %8s\n", $1, $8, $10; n += $8; missed += $9 }
        END { if (n > 0) printf "%-34s %6d lines %7.2f%%\n", name, n, 100 * (n - missed) / n }'
}

coverage() {
    objects=
    rm -f "$dir"/*.profraw
    for what in $targets; do
        LLVM_PROFILE_FILE="$dir/$what.profraw" "$dir/bin/fuzz_$what" \
            "$dir/seeds/$what.txt" "tests/fuzz/corpus/$what.txt"
        objects="$objects ${objects:+-object }$dir/bin/fuzz_$what"
    done
    llvm-profdata merge -o "$dir/all.profdata" "$dir"/*.profraw
    # shellcheck disable=SC2086 # a list of programs
    llvm-cov report -instr-profile="$dir/all.profdata" $objects >"$dir/log/coverage"
    groups | while read -r paths name; do
        show_group "$name" "$paths" <"$dir/log/coverage"
    done
}

if [ -n "$coverage" ]; then
    coverage
    exit
fi

# ---- fuzzing ----

stat_of() {
    sed -n "s/^stat::$2: *//p" "$dir/log/$1.log" | tail -n 1
}

# Edges that the last status line of libFuzzer names.
edges_of() {
    sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$1" | tail -n 1
}

# The time limit of one input is for what hangs, not for what a busy machine holds up.
options_of() {
    printf '%s\n' "-max_len=4096" "-timeout=1200" "-rss_limit_mb=4096" "-print_final_stats=1" \
        "-artifact_prefix=$dir/crashes/$1-"
    if [ -f "$dir/seeds/$1.dict" ]; then
        echo "-dict=$dir/seeds/$1.dict"
    fi
}

run_one() {
    inputs=$dir/corpus/$1
    python3 tests/fuzz/corpus.py unpack "$dir/seeds/$1.txt" "tests/fuzz/corpus/$1.txt" "$inputs"
    find "$inputs" -type f | wc -l >"$dir/log/$1.before"
    # shellcheck disable=SC2046 # a list of options
    "$dir/bin/fuzz_$1" $(options_of "$1") -max_total_time="$seconds" "$inputs" \
        >"$dir/log/$1.log" 2>&1 || echo "$1: libFuzzer ended with status $?" >&2
}

minimise() {
    seeds=$dir/minimal/$1.seeds
    rm -rf "$dir/minimal/$1" "$seeds"
    python3 tests/fuzz/corpus.py unpack "$dir/seeds/$1.txt" "$dir/minimal/$1"
    # What the seeds do not reach already, the shortest input for each thing reached.
    # shellcheck disable=SC2046 # a list of options
    "$dir/bin/fuzz_$1" $(options_of "$1" | grep -v dict) -merge=1 "$dir/minimal/$1" \
        "$dir/corpus/$1" >"$dir/log/$1.merge.log" 2>&1 || {
        tail -n 5 "$dir/log/$1.merge.log" >&2
        return 1
    }
    python3 tests/fuzz/corpus.py pack "$dir/minimal/$1" "tests/fuzz/corpus/$1.txt" \
        "$dir/seeds/$1.txt"
}

row() {
    printf '%-8s %12s %8s %8s %16s %9s\n' "$@"
}

find "$dir/crashes" -type f >"$dir/log/crashes.before"
running=0
for what in $targets; do
    echo "$what: $seconds s, log in $dir/log/$what.log"
    run_one "$what" &
    running=$((running + 1))
    if [ "$running" -ge "$jobs" ]; then
        wait
        running=0
    fi
done
wait

findings=0
row target execs execs/s edges "corpus" findings
for what in $targets; do
    found=$(find "$dir/crashes" -type f -name "$what-*" | grep -cvxFf "$dir/log/crashes.before" || :)
    findings=$((findings + found))
    row "$what" "$(stat_of "$what" number_of_executed_units)" \
        "$(stat_of "$what" average_exec_per_sec)" "$(edges_of "$dir/log/$what.log")" \
        "$(cat "$dir/log/$what.before") -> $(find "$dir/corpus/$what" -type f | wc -l)" "$found"
done
if [ "$findings" -gt 0 ]; then
    echo "replay a finding: $dir/bin/fuzz_TARGET $dir/crashes/TARGET-...; once it is mended, its"
    echo "bytes belong into the corpus: tests/fuzz/README.md says how"
fi
if [ -n "$keep" ]; then
    for what in $targets; do
        minimise "$what"
    done
fi
[ "$findings" -eq 0 ]
