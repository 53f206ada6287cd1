#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the programs offer is one story: each command and option of their tables is in --help and on
# the man page, each key of the configuration on its page with its default, and the shells complete
# them. Needs $KVC_BIN_DIR and $KVC_SOURCE_DIR.
set -u
bin="$KVC_BIN_DIR"
cd "$KVC_SOURCE_DIR" || exit 1
work=$(mktemp -d /tmp/kvc-surface-XXXXXX)
trap 'rm -rf "$work"' EXIT
failures=0

wrong() {
    echo "surface: $*"
    failures=$((failures + 1))
}

# plain FILE: a man page without escapes and fonts
plain() {
    sed -e 's/\\-/-/g' -e 's/\\f[A-Z]//g' -e 's/\\&//g' "$1"
}

# table FILE: the long options of a program's option table
table() {
    grep -o '{"--[a-z][a-z-]*' "$1" | tr -d '{"'
}

# section FILE COMMAND: the part of a man page between .SS COMMAND and the next heading
section() {
    plain "$1" | awk -v name="$2" '
        /^\.S[SH]/ { on = $2 == name || $2 == "\"" name; if ($0 ~ "^\\.SH OPTIONS") on = 0 }
        on'
}

# has FILE WORD: as a whole word
has() {
    grep -q -E -- "(^|[^a-z-])$2([^a-z-]|\$)" "$1"
}

# check PROGRAM COMMAND SOURCE PAGE: the table against help and page
check() {
    "$bin/$1" "$2" --help >"$work/help" 2>&1 || wrong "$1 $2 --help fails"
    grep -q "Example" "$work/help" || wrong "$1 $2 --help has no example"
    section "$4" "$2" >"$work/section"
    [ -s "$work/section" ] || wrong "$4 has no section for $2"
    for option in $(table "$3"); do
        case $option in --help | --json) continue ;; esac # of every command: under OPTIONS
        has "$work/help" "$option" || wrong "$1 $2 --help does not have $option"
        has "$work/section" "$option" || wrong "$4 does not have $option of $2"
    done
}

for command in ping stats ns explain blocks verify drain trace evict size; do
    check kvcachectl "$command" "client/ctl/$command.c" client/ctl/kvcachectl.1
done
grep -o '{"[a-z]*", cmd_' client/ctl/main.c | tr -d '{"' | cut -d, -f1 >"$work/commands"
[ "$(wc -l <"$work/commands")" -ge 9 ] || wrong "client/ctl/main.c: no table of commands was found"
"$bin/kvcachectl" --help >"$work/help"
while read -r command; do
    has "$work/help" "$command" || wrong "kvcachectl --help does not have $command"
    [ -n "$(section client/ctl/kvcachectl.1 "$command")" ] || wrong "kvcachectl.1: no $command"
done <"$work/commands"

# Options that a source takes from a shared table are checked through its help only.
for command in replay gen store load nvme gpu attention ttft quality allocation lookup reuse surge churn idle; do
    "$bin/kvcachebench" "$command" --help >"$work/help" 2>&1 || wrong "kvcachebench $command --help"
    section bench/kvcachebench.1 "$command" >"$work/section"
    sed -n 's/^ *\(--[a-z][a-z-]*\).*/\1/p' "$work/help" | sort -u >"$work/options"
    [ -s "$work/options" ] || wrong "kvcachebench $command --help names no option"
    while read -r option; do
        [ "$option" = --help ] || has "$work/section" "$option" ||
            wrong "kvcachebench.1 does not have $option of $command"
    done <"$work/options"
done

# whole PROGRAM SOURCE PAGE: of a program without commands; what help says of an option is in the page too
whole() {
    "$bin/$1" --help >"$work/help" || wrong "$1 --help fails"
    grep -q "Example" "$work/help" || wrong "$1 --help has no example"
    plain "$3" >"$work/page"
    [ -n "$(table "$2")" ] || wrong "$2: no table of options was found"
    for option in $(table "$2"); do
        has "$work/help" "$option" || wrong "$1 --help does not have $option"
        has "$work/page" "$option" || wrong "$3 does not have $option"
    done
    for word in $(sed -n 's/^      \([a-z]*\)  .*/\1/p' "$work/help"); do
        has "$work/page" "$word" || wrong "$3 does not have $word"
    done
}
# It is built where there is OpenBLAS.
[ ! -x "$bin/kvcache-worker" ] ||
    whole kvcache-worker client/worker/options.c client/worker/kvcache-worker.1

plain daemon/kvcache-daemon.8 >"$work/page"
for option in $(table daemon/cli.c); do
    has "$work/page" "$option" || wrong "kvcache-daemon.8 does not have $option"
done
plain daemon/kvcache-daemon.yaml.5 >"$work/page"
"$bin/kvcache-daemon" --help | sed -n 's/^  \([a-z_.]*\) (\(.*\))$/\1 \2/p' >"$work/keys"
[ "$(wc -l <"$work/keys")" -gt 20 ] || wrong "kvcache-daemon --help does not list the keys"
while read -r key default; do
    grep -q -F ".BR $key \" (default: $default)\"" "$work/page" ||
        wrong "kvcache-daemon.yaml.5: no '$key (default: $default)'"
done <"$work/keys"

# ---- completion ----

PATH="$bin:$PATH"
KVCACHE_SOCKET=$work/none
export PATH KVCACHE_SOCKET

# offers "WORDS" LAST WORD...: whether each shell offers these behind the words, where LAST is begun
offers() {
    line=$1
    last=$2
    shift 2
    for shell in $shells; do
        # shellcheck disable=SC2086 # words
        sh tests/gates/complete.sh "$shell" etc/completion $line "$last" >"$work/offered" 2>&1
        for word in "$@"; do
            grep -q -x -e "$word" "$work/offered" || wrong "$shell does not offer $word behind '$line $last'"
        done
    done
}
# lacks "WORDS" LAST PATTERN: that no shell offers what matches
lacks() {
    for shell in $shells; do
        # shellcheck disable=SC2086
        ! sh tests/gates/complete.sh "$shell" etc/completion $1 "$2" 2>&1 | grep -q -e "$3" ||
            wrong "$shell offers $3 behind '$1 $2'"
    done
}
shells=
for shell in bash zsh fish; do
    if command -v "$shell" >/dev/null; then
        shells="$shells $shell"
    else
        echo "SKIP: there is no $shell here to try its completion"
    fi
done

# shellcheck disable=SC2046 # words
offers kvcachectl '' $(cat "$work/commands")
offers kvcachectl -- --socket --json
offers "kvcachectl evict" -- --older-than --dry-run --socket
offers "kvcachectl trace" '' on off dump status
lacks "kvcachectl trace dump" '' '^off$'
# Each verb that the sources have, of each command that has some.
for command in doc conv pin quota policy sessions; do
    # shellcheck disable=SC2046
    offers "kvcachectl $command" '' $(sed -n '/struct ctl_cmd verbs/,/;/p' "client/ctl/$command.c" |
        grep -o '{"[a-z]*"' | tr -d '{"')
done
offers "kvcachectl --timeout 1s doc" '' export import
offers "kvcachectl doc put" -- --tokens --pin
lacks "kvcachectl doc list" -- --tokens
offers "kvcachectl size --kv-type" '' fp8
offers "kvcachectl usage --by" '' ns tenant
offers "kvcachectl verify --tier" '' host hbm
offers "kvcachectl policy set --admission" '' on off
lacks "kvcachectl evict --ns" '' '^--'
lacks "kvcachectl evict --bytes" '' .
offers "kvcachectl stats" core.blocks_v core.blocks_verified
offers "kvcachectl trace dump" README README.md
offers "kvcachectl doc import" README README.md
offers "kvcachectl size --config" README README.md
offers "kvcachebench replay" -- --capacity
offers "kvcachebench replay" README README.md
offers kvcache-daemon -- --check-config
offers "kvcache-daemon --set" host.l host.limit=

[ "$failures" -eq 0 ] && echo "surface: clean"
exit $((failures > 0))
