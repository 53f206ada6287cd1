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

# A df that says: of the tree FREE MiB on /tree, of $work/tmp TMP_FREE MiB on /scratch if that is set. The
# device, where it is asked for, has a blank in its name. DF_STATUS: it fails.
cat >"$work/bin/df" <<'EOF'
#!/bin/sh
[ -z "${DF_STATUS-}" ] || exit "$DF_STATUS"
columns=source,size,used,avail,pcent,target
for dir; do
    case $dir in
    --output=*) columns=${dir#--output=} ;;
    esac
done
case ${TMP_FREE:+x}$dir in
x*/tmp) free=$TMP_FREE mount=/scratch ;;
*) free=$FREE mount=/tree ;;
esac
case $columns in
avail,target) printf 'Avail Mounted on\n%5s %s\n' "$free" "$mount" ;;
*) printf 'Filesystem 1M-blocks Used Available Capacity Mounted on\n/dev/a b 9000 1 %s 50%% %s\n' "$free" "$mount" ;;
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

# refuses TEXT [NAME=VALUE...] WORD...: room is there, but the question is wrong
refuses() {
    text=$1
    shift
    asked 99999999 "$@"
    [ "$status" = 2 ] || fail "ends with $status, not 2, for $*"
    grep -qF "$text" "$work/said" || fail "does not say '$text': $(cat "$work/said")"
}
refuses "no part 'releaes'" $space releaes
refuses "no part 'r.lease'" $space r.lease
refuses "no part ''" $space ''
refuses "no part is named" $space
refuses "'abc' is no number" $space /tmp=abc
refuses "'-1' is no number" $space /tmp=-1
refuses "'' is no number" $space /tmp=
refuses "it names no directory" $space =5
refuses "df fails for" DF_STATUS=1 $space engines
tmp_free=- refuses "df gives no free space for" $space engines "$work/tmp=1"
refuses "TMPDIR is '$work/none', which is no directory; make it, or unset TMPDIR" TMPDIR="$work/none" $space quick
refuses "a line ends in KVC_ENGINES" KVC_ENGINES="$work/a
b" $space engines
accepts 99999999 release
KVC_ENGINES="$work/a b" $space --list | grep -qxF "engines $work/a b $engines" || fail "a blank in KVC_ENGINES"

# Without a directory for what it keeps .ci/run ends, and says why.
printf '#!/bin/sh\necho "no directory is made" >&2\nexit 1\n' >"$work/bin/mktemp"
chmod +x "$work/bin/mktemp"
asked 99999999 timeout 60 bash "$work/tree/.ci/run"
rm "$work/bin/mktemp" "$work/began"
grep -qF "no directory is made" "$work/said" || fail ".ci/run makes no directory: $(cat "$work/said")"
! grep -qF "=== run.sh" "$work/said" || fail ".ci/run goes on without a directory"
[ "$status" = 1 ] || fail ".ci/run ends with $status without a directory"

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
