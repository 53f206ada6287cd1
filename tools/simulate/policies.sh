#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How eviction policies do on generated workloads, or on traces: for each kind, seed and capacity the
# hit ratio of the default policy beside the best of nine published ones, in the form in which they
# were published. Exit codes: 0; 1 with --strict when the default is below their best by more than .01
# anywhere; 2 usage; 5 when something cannot be run.
set -eu

usage() {
    cat <<'EOF'
usage: sh tools/simulate/policies.sh [--seeds N] [--first S] [--requests N] [--kinds LIST] [--all] [--strict]
       sh tools/simulate/policies.sh [--all] [--strict] TRACE...

  --seeds N      of each kind (default 3)
  --first S      the first of them (default 1)
  --requests N   of each trace (default 12000)
  --kinds LIST   such as talks,agents (default: all; kvcachebench gen --kind list)
  --all          each case on a line, not only those below the best by more than .01
  --strict       exit code 1 when there are such

Environment: KVC_BIN_DIR (default build/release/bin).
EOF
}

seeds=3 first=1 requests=12000 kinds= all=0 strict=0
while [ $# -gt 0 ]; do
    case $1 in
    [!-]*) break ;;
    --seeds | --first | --requests | --kinds)
        [ $# -gt 1 ] || {
            echo "policies.sh: $1 needs a value" >&2
            exit 2
        }
        case $1 in
        --seeds) seeds=$2 ;;
        --first) first=$2 ;;
        --requests) requests=$2 ;;
        --kinds) kinds=$(echo "$2" | tr , ' ') ;;
        esac
        shift
        ;;
    --all) all=1 ;;
    --strict) strict=1 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        echo "policies.sh: unknown argument '$1'" >&2
        usage >&2
        exit 2
        ;;
    esac
    shift
done

bin=${KVC_BIN_DIR:-$(dirname -- "$0")/../../build/release/bin}
bench=$bin/kvcachebench
[ -x "$bench" ] || {
    echo "policies.sh: no $bench: build it (sh tests/run.sh --build-only --release-only)" >&2
    exit 2
}
[ -n "$kinds" ] || kinds=$("$bench" gen --kind list | awk '{ print $1 }')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# measure KIND SEED TRACE: lines of kind, seed, policy, capacity, ratio
measure() {
    [ ! -t 2 ] || printf '\r%s, seed %s          ' "$1" "$2" >&2
    "$bench" simulate "$3" --policy default,published --capacity 1%,2%,5%,10%,20%,50% --json \
        >"$work/out" 2>"$work/err" || {
        cat "$work/err" >&2
        exit 5
    }
    sed -n 's/.*"policy":"\([a-z0-9-]*\)","capacity":"\([0-9]*\)%".*"metric":"hit_ratio","value":\([0-9.e-]*\).*/\1 \2 \3/p' \
        "$work/out" | sed "s/^published-//; s/^/$1 $2 /" >>"$work/all"
}

if [ $# -gt 0 ]; then
    for trace in "$@"; do
        measure "$(basename "$trace" | tr ' /' '__')" - "$trace"
    done
else
    for kind in $kinds; do
        seed=$first
        while [ "$seed" -lt $((first + seeds)) ]; do
            "$bench" gen --kind "$kind" --seed "$seed" --requests "$requests" \
                --output "$work/trace" || exit 5
            measure "$kind" "$seed" "$work/trace"
            seed=$((seed + 1))
        done
    done
fi
[ ! -t 2 ] || printf '\r                              \r' >&2

awk -v all="$all" -v strict="$strict" '
    {
        id = $1 " " $2 " " $4
        if (!(id in seen)) { seen[id] = 1; order[++cases] = id; kind[id] = $1 }
        if (!($1 in known)) { known[$1] = 1; kinds[++nkinds] = $1 }
        if (!($3 in column)) { column[$3] = ++columns; policy[columns] = $3 }
        ratio[id, $3] = $5
        if (length($1) > wide) wide = length($1)
    }
    function row(name, sums, n,    p) {
        printf "%-*s %5d", wide, name, n
        for (p = 1; p <= columns; p++) printf "  %*.4f", w[p], sums[p] / n
        printf "\n"
    }
    END {
        if (wide < 7) wide = 7
        for (c = 1; c <= cases; c++) {
            id = order[c]; best = -1; who = "-"
            split(id, part, " ")
            cell = part[1] " at " part[3] "%"
            if (!seeds[cell]++) cell_at[++cells] = cell
            for (p = 1; p <= columns; p++) {
                of_cell[cell, p] += ratio[id, policy[p]]
                sum[kind[id], p] += ratio[id, policy[p]]; total[p] += ratio[id, policy[p]]
                if (p > 1 && ratio[id, policy[p]] > best) { best = ratio[id, policy[p]]; who = policy[p] }
            }
            n[kind[id]]++
            margin = ratio[id, "default"] - best
            worst = (c == 1 || margin < worst) ? margin : worst
            below += margin < -.01
            if (all || margin < -.01) {
                if (!told++) printf "%-*s %4s  %8s  %7s  %7s  %-9s  %7s\n", wide, "KIND", "SEED", "CAPACITY", "DEFAULT", "BEST", "OF", "MARGIN"
                printf "%-*s %4s  %7s%%  %7.4f  %7.4f  %-9s  %+7.4f\n", wide, part[1], part[2], part[3], ratio[id, "default"], best, who, margin
            }
        }
        if (told) printf "\n"
        printf "%-*s %5s", wide, "MEAN OF", "CASES"
        for (p = 1; p <= columns; p++) {
            w[p] = length(policy[p]) < 6 ? 6 : length(policy[p])
            printf "  %*s", w[p], policy[p]
        }
        printf "\n"
        for (k = 1; k <= nkinds; k++) {
            for (p = 1; p <= columns; p++) s[p] = sum[kinds[k], p]
            row(kinds[k], s, n[kinds[k]])
        }
        row("all", total, cases)
        printf "\n%d of %d cases more than .01 below the best published policy of the case; the worst margin is %+.4f\n", below, cases, worst
        for (c = 1; c <= cells; c++) {
            cell = cell_at[c]
            for (p = 2; p <= columns; p++) {
                margin = (of_cell[cell, 1] - of_cell[cell, p]) / seeds[cell]
                if (c == 1 && p == 2 || margin < least) { least = margin; where = cell; who = policy[p] }
            }
        }
        printf "means of all seeds of a kind at a size: the worst margin is %+.4f (%s, %s)\n", least, where, who
        exit strict && below > 0
    }' "$work/all"
