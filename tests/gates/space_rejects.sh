#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2086 # $space and $run are commands with arguments
# Gate: tests/space.sh rejects a disk without room, and accepts one with room to the MiB; run.sh and .ci/run
# ask it before anything else.
#
#   space_rejects.sh ROOT BUILD   BUILD: of a preset in ROOT/build its size is compared with what space.sh says
set -eu

root=$1
build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
mkdir -p "$work/bin" "$work/tree/tests" "$work/tree/.ci" "$work/tree/build" "$work/tmp"
cp "$root/tests/space.sh" "$root/tests/run.sh" "$work/tree/tests/"
cp "$root/.ci/run" "$work/tree/.ci/"
# The runs end after the first thing that follows the question.
printf 'touch "%s/began"\nexit 1\n' "$work" >"$work/tree/tests/deps.sh"

# A df that says: of the tree FREE MiB on /tree, of $work/tmp TMP_FREE MiB on /scratch if that is set.
cat >"$work/bin/df" <<'EOF'
#!/bin/sh
for dir; do :; done
echo "Filesystem 1048576-blocks Used Available Capacity Mounted on"
case ${TMP_FREE:+x}$dir in
x*/tmp) echo "/dev/b 9000 1 $TMP_FREE 50% /scratch" ;;
*) echo "/dev/a 9000 1 $FREE 50% /tree" ;;
esac
EOF
chmod +x "$work/bin/df"

fail() {
    echo "space_rejects: $*" >&2
    exit 1
}

# asked FREE [NAME=VALUE...] PART...: its status, its words in $work/said
asked() {
    free=$1
    shift
    status=0
    env PATH="$work/bin:$PATH" FREE="$free" KVC_ENGINES="$work/engines" TMPDIR=/tmp TMP_FREE="${tmp_free-}" \
        "$@" >"$work/said" 2>&1 || status=$?
}
space="sh $work/tree/tests/space.sh"

# accepts FREE PART..., rejects TEXT FREE PART...
accepts() {
    free=$1
    shift
    asked "$free" $space "$@"
    [ "$status" = 0 ] || fail "rejects $* with $free MiB: $(cat "$work/said")"
}
rejects() {
    text=$1
    free=$2
    shift 2
    asked "$free" $space "$@"
    [ "$status" = 1 ] || fail "ends with $status for $* with $free MiB"
    grep -qF "$text" "$work/said" || fail "does not say '$text': $(cat "$work/said")"
}

# The real disk of this test.
for dir in /tmp "$root"; do
    status=0
    sh "$root/tests/space.sh" "$dir=99999999999" 2>"$work/said" || status=$?
    [ "$status" = 1 ] || fail "a disk has room for 99999999999 MiB in $dir"
    grep -qF "this run needs 99999999999 MiB: $dir 99999999999" "$work/said" ||
        fail "not the need of $dir: $(cat "$work/said")"
done

engines=$($space --list | sed -n 's/^engines .* //p')
accepts "$engines" engines
rejects "/tree has $((engines - 1)) MiB free, and this run needs $engines MiB: $work/engines $engines" \
    $((engines - 1)) engines
# What is on one file system counts together, what is on another one alone.
rejects "needs $((engines + 1)) MiB: $work/engines $engines, /elsewhere 1" "$engines" engines /elsewhere=1
tmp_free=1 accepts "$engines" engines "$work/tmp=1"
tmp_free=1 rejects "/scratch has 1 MiB free, and this run needs 2 MiB: $work/tmp 2" "$engines" engines "$work/tmp=2"
# What is there counts no more: 5 MiB and its directory, which du rounds up.
mkdir "$work/engines"
dd if=/dev/zero of="$work/engines/file" bs=1048576 count=5 2>/dev/null
accepts $((engines - 6)) engines
rejects "needs" $((engines - 7)) engines
# Tests write in /tmp, and in $TMPDIR where it is elsewhere.
accepts 4300 tests
rejects "needs 4300 MiB: /tmp 3000, build 1300" 4299 tests
rejects "needs 600 MiB: /tmp 500, build 100" 599 quick
tmp_free=499 asked 600 TMPDIR="$work/tmp" $space quick
[ "$status" = 1 ] || fail "TMPDIR is not looked at"
asked 1 $space releaes
[ "$status" = 2 ] || fail "a part that does not exist ends with $status"

# Both scripts ask first, and go on where there is room.
for run in "sh $work/tree/tests/run.sh" "sh $work/tree/tests/run.sh --quick" "bash $work/tree/.ci/run"; do
    asked 1 $run
    [ "$status" = 1 ] || fail "$run ends with $status on a full disk"
    grep -q '^space.sh: .*build/release' "$work/said" || fail "$run does not say what is missing"
    [ ! -e "$work/began" ] || fail "$run begins on a full disk"
    asked 99999999 timeout 60 $run
    [ -e "$work/began" ] || fail "$run does not begin where there is room"
    rm "$work/began"
done

# The list says no less than what is there.
name=$(basename -- "$build")
most=$($space --list | sed -n "s|^$name build/$name ||p")
has=$(du -sm -- "$build" | cut -f 1)
[ -z "$most" ] || [ "$has" -le "$most" ] || fail "$build has $has MiB, tests/space.sh says $most"
