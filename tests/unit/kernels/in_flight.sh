#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In the PTX of the kernel that copies fragments each lane has eight loads in flight before it
# stores: one that waits for its load alone waits for the link, 2 us, as long as eight do.
#
#   in_flight.sh FILE        fails with the number of loads that go together
#   in_flight.sh --self FILE the same of a file in which one load goes alone: it has to be refused
set -eu

check() {
    awk '/(ld|st)\.[a-z.]*cs\./ {
        is_load = $0 ~ /ld\.[a-z.]*cs\./
        if (is_load && !loads)
            groups++
        if (is_load)
            loads++
        else if (loads) {
            if (loads != 8) { print FILENAME ":" NR ": " loads " loads go together"; bad = 1 }
            loads = 0
        }
    }
    END {
        if (groups < 6) { print groups " groups of loads, not two of each of three widths"; bad = 1 }
        exit bad
    }' "$1"
}

if [ "$1" = --self ]; then
    awk '{ print } /ld\.[a-z.]*cs\./ && !done { print "st.global.cs.u8 [%rd1], %rs1;"; done = 1 }' "$2" >spoilt.ptx
    ! check spoilt.ptx
else
    check "$1"
fi
