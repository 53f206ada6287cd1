#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The PTX that drivers older than the compiler are given.
#
#   ptx.sh PTXAS FILE...   each is of version 7.0, which every driver since CUDA 11.0 knows, and
#                          assembles for each device since sm_80 that this ptxas knows
#   ptx.sh --self PTXAS FILE...   the same of files that were spoilt: each has to be refused
set -eu

self=
if [ "$1" = --self ]; then
    self=yes
    shift
fi
ptxas=$1
shift
devices=$("$ptxas" --help | grep -o 'sm_[0-9][0-9]*' | sort -u -t_ -k2n | awk -F_ '$2 >= 80')
for wanted in sm_80 sm_90; do
    echo "$devices" | grep -qx "$wanted" || { echo "$ptxas does not know $wanted"; exit 1; }
done

# file -> 0 when it is as it should be
check() {
    grep -qx '\.version 7\.0' "$1" || { echo "$1: not PTX 7.0"; return 1; }
    for device in $devices; do
        # What is refused is refused at any level; that it can be optimised shows for two of them.
        case $device in sm_80 | sm_90) level=3 ;; *) level=0 ;; esac
        "$ptxas" -O$level -arch="$device" -o assembled.cubin "$1" || { echo "$1: not for $device"; return 1; }
    done
}

for file in "$@"; do
    if [ -z "$self" ]; then
        check "$file"
        continue
    fi
    sed 's/^\.version 7\.0$/.version 9.0/' "$file" >spoilt.ptx
    ! check spoilt.ptx || { echo "$file: version 9.0 is taken"; exit 1; }
    # Came with PTX 7.4, and sm_80 has it: the version is more than a word.
    newer='{ .reg .b64 %spoilt; createpolicy.fractional.L2::evict_last.b64 %spoilt, 1.0; }'
    sed "s/^\([[:space:]]*\)ret;/\1$newer\n\1ret;/" "$file" >spoilt.ptx
    ! check spoilt.ptx >log 2>&1 || { echo "$file: an instruction of PTX 7.4 is taken"; exit 1; }
done
