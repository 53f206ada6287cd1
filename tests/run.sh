#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds release and ASan+UBSan, runs the tests of both, sums up.
# See --help. The exit status is 0 only when everything was built and no test failed.
set -eu

usage() {
    cat <<'EOF'
usage: sh tests/run.sh [--quick | --release-only | --asan-only] [--build-only] [--no-deps] [--long]

  --quick         the format, only build/release, and of its tests unit, golden, model and one
                  replay: the daily loop
  --build-only    build, run no tests
  --release-only  only build/release
  --asan-only     only build/asan
  --no-deps       install nothing, even if packages are missing
  --long          also the tests labelled long, and in series of faults (label sweep) each call
                  fails once, not one of eight

Where both are built, series of many starts (label sweep) run with ASan only, which sees more; the
gates and the simulations of hit ratios (label ratios; not with --quick) in the release build only.
Of what runs with both of the loop's twins ASan takes io_uring's (label twin), the release build
epoll's. ASan's build begins beside the release build's tests, at the lowest priority.
Tests that need a GPU (label gpu) run with: ctest --test-dir build/release -L gpu
Environment: KVC_JOBS (parallel compilations, default: one per CPU), KVC_FAULT_EVERY (one of so
many calls fails in series of faults, others each time; default 8, with --long 1).
EOF
}

presets="release asan"
build_only=
format=
install=1
take='.'
leave_out='^(long|gpu)$'
for argument; do
    case $argument in
    --build-only) build_only=1 ;;
    --release-only) presets=release ;;
    --quick)
        presets=release
        format=1
        take='^(unit|golden|model|quick)$'
        leave_out='^(long|gpu|sweep|ratios)$'
        ;;
    --asan-only) presets=asan ;;
    --no-deps) install= ;;
    --long) leave_out='^gpu$' ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        echo "run.sh: unknown argument '$argument'" >&2
        usage >&2
        exit 2
        ;;
    esac
done

cd "$(dirname -- "$0")/.."
parts=$presets
if [ -n "$format" ]; then
    parts="$parts quick"
elif [ -z "$build_only" ]; then
    parts="$parts tests"
    [ "$presets" = asan ] || parts="$parts python engines"
fi
# shellcheck disable=SC2086 # names without blanks
sh tests/space.sh $parts
jobs=${KVC_JOBS:-$(nproc)}
# Of the calls that fail one by one some, others each time; with --long all.
[ "$leave_out" = '^gpu$' ] || export KVC_FAULT_EVERY="${KVC_FAULT_EVERY:-8}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
failed=
: >"$work/summary"

if [ -n "$install" ]; then
    sh tests/deps.sh
fi
if [ -z "${CMAKE_C_COMPILER_LAUNCHER-}" ] && command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache
fi

mkdir -p build

# One at a time in a directory: another of these scripts may build ahead there.
build() {
    echo "== build/$1"
    (
        flock 9
        cmake --preset "$1" >"$work/configure" 2>&1 || {
            cat "$work/configure" >&2
            exit 1
        }
        grep -E 'CUDA kernels|Warning' "$work/configure" || :
        cmake --build "build/$1" -j "$jobs"
    ) 9>"build/$1.lock"
}

# Tests wait as much as they compute: what they leave of the processors builds what comes after them.
# Nothing depends on it, since build() comes again and says what failed.
build_ahead() {
    nice -n 19 sh tests/run.sh "--$1-only" --build-only --no-deps >"$work/ahead" 2>&1 &
}

# preset -> lines "  name: reason" for the tests that said they did less than they could
skips() {
    awk '
        /^[0-9]+\/[0-9]+ Testing: / { name = $3 }
        /^SKIP: / { sub(/^SKIP: /, ""); print "  skipped: " name ": " $0; said[name] = 1 }
    ' "build/$1/Testing/Temporary/LastTest.log"
}

run_tests() {
    echo "== tests of build/$1"
    excluded=$leave_out
    if [ "$presets" = "release asan" ]; then
        case $1 in
        release) excluded="$leave_out|^(sweep|twin)\$" ;;
        asan) excluded="$leave_out|^(gate|epoll|ratios)\$" ;;
        esac
    fi
    { sh tests/ctest.sh "build/$1" -L "$take" -LE "$excluded" &&
        echo yes >"$work/passed" || echo no >"$work/passed"; } 2>&1 | tee "$work/log"
    {
        echo "$1 (without $excluded): $(grep -E 'tests passed|tests failed|No tests' "$work/log" | head -n 1)"
        sed -n 's/^[[:space:]]*[0-9]* - \([^ ]*\) (\([A-Z].*\))$/  \2: \1/p' "$work/log" |
            grep -v '^  Skipped:' || :
        sed -n 's/^UNSTABLE: /  unstable: /p' "$work/log"
        skips "$1"
    } >>"$work/summary"
    [ "$(cat "$work/passed")" = yes ]
}

if [ -n "$format" ] && ! sh tests/format.sh; then
    failed=" format"
    echo "format: wrong, see above; sh tests/format.sh --fix mends it" >>"$work/summary"
fi
for preset in $presets; do
    if ! build "$preset"; then
        failed="$failed build/$preset"
        echo "$preset: does not build" >>"$work/summary"
    elif [ -z "$build_only" ]; then
        [ "$presets,$preset" != "release asan,release" ] || build_ahead asan
        run_tests "$preset" || failed="$failed tests/$preset"
    else
        echo "$preset: built, programs in build/$preset/bin" >>"$work/summary"
    fi
done

echo "== summary"
cat "$work/summary"
if [ -n "$failed" ]; then
    echo "FAILED:$failed"
    exit 1
fi
echo "OK"
