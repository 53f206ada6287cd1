#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ctest.sh BUILD_DIR OPTION...: ctest with these options, six tests at a time: tests wait as much as they
# compute. What fails runs once more, alone. What passes then failed for want of a processor: the line
# "UNSTABLE: NAME" says so, and it is a fault of the test to be mended. What fails again fails.
set -eu

build=$1
shift
if ctest --test-dir "$build" --output-on-failure --no-tests=error -j 6 "$@"; then
    exit 0
fi
logs=$build/Testing/Temporary
[ -s "$logs/LastTestsFailed.log" ] || exit 1
names=$(sed 's/^[0-9]*://' "$logs/LastTestsFailed.log" | tr '\n' ' ')
cp "$logs/LastTest.log" "$logs/first.log"
echo "== once more, alone: $names"
status=0
ctest --test-dir "$build" --output-on-failure --no-tests=error -j 1 --rerun-failed || status=1
cat "$logs/LastTest.log" >>"$logs/first.log"
mv "$logs/first.log" "$logs/LastTest.log" # of all tests, for who reads it
[ "$status" = 0 ] || exit 1
for name in $names; do
    echo "UNSTABLE: $name failed beside other tests and passed alone"
done
