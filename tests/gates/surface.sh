#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the programs offer is one story: each option that a command takes is in its --help and on the
# man page, and no other one; each key of the configuration is on its page with its default, and the
# shells complete them. Needs $KVC_BIN_DIR and $KVC_SOURCE_DIR.
#
#   surface.sh              check the programs
#   surface.sh --self-test  check that options missing or invented somewhere are found
#
# The programs themselves say by --list-options (daemon/base/wire/args.h) what they take: options of
# tables that several commands share are among that.
set -u
work=$(mktemp -d /tmp/kvc-surface-XXXXXX)
trap 'rm -rf "$work"' EXIT
failures=0
bin=${KVC_BIN_DIR-}
KVCACHE_SOCKET=$work/none
export KVCACHE_SOCKET

wrong() {
    echo "surface: $*"
    failures=$((failures + 1))
}

# plain FILE: a man page without escapes and fonts
plain() {
    sed -e 's/\\-/-/g' -e 's/\\f[A-Z]//g' -e 's/\\&//g' "$1"
}

# section FILE COMMAND [VERB]: the part of a man page between the .SS that names it and the next heading
section() {
    plain "$1" | awk -v name="$2${3:+ $3}" -v bar="${3:+|}" '
        /^\.SH/ { on = 0 }
        /^\.SS/ {
            sub(/^\.SS "?/, "")
            sub(/"$/, "")
            heading = " " $0 " "
            on = index(heading, " " name " ") == 1 || bar != "" && index(heading, "| " name " ") > 0
        }
        on'
}

# has FILE WORD: as a whole word
has() {
    grep -q -E -- "(^|[^a-z-])$2([^a-z-]|\$)" "$1"
}

# taken PROGRAM [COMMAND [VERB]]: what it takes, by its own word
taken() {
    program=$1
    shift
    "$bin/$program" "$@" --list-options | sed -n 's/^\(--[a-z][a-z-]*\).*/\1/p' | grep -vx -e --help | sort -u
}

# The options that a help text, or a man page, lists in lines of their own.
listed_by_help() {
    sed -n 's/^  \(--[a-z].*\)/\1/p' "$1" | sed 's/   *.*//' | grep -oE -e '--[a-z][a-z-]*' | grep -vx -e --help | sort -u
}
listed_by_page() {
    grep -A 1 '^\.TP' "$1" | grep -E '^\.(B|BI|BR) +--' | grep -oE -e '--[a-z][a-z-]*' | grep -vx -e --help | sort -u
}

# compare PROGRAM PAGE COMMAND [VERB]: what it takes is in its help and on its page. Adds to
# $work/accepted what it takes. $work/general has what holds for several commands.
compare() {
    program=$1
    page=$2
    shift 2
    name="$program${1:+ $*}"
    taken "$program" "$@" >"$work/taken"
    cat "$work/taken" >>"$work/accepted"
    "$bin/$program" "$@" --help >"$work/help" 2>&1 || wrong "$name --help fails"
    grep -q Example "$work/help" || wrong "$name --help has no example"
    if [ $# -gt 0 ]; then
        section "$page" "$@" >"$work/section"
        [ -s "$work/section" ] || wrong "$page has no section for $*"
    else
        plain "$page" >"$work/section"
    fi
    while read -r option; do
        grep -qx -e "$option" "$work/common" && continue
        has "$work/help" "$option" || wrong "$name --help does not have $option"
        has "$work/section" "$option" || has "$work/general" "$option" ||
            wrong "$page does not have $option of $name"
    done <"$work/taken"
    listed_by_help "$work/help" >>"$work/helped"
    listed_by_page "$work/section" >>"$work/paged"
}

# command PROGRAM PAGE COMMAND: with each of its verbs. What help and page list is taken by one of them.
command_of() {
    : >"$work/accepted"
    : >"$work/helped"
    : >"$work/paged"
    verbs=
    # Alone, a command with verbs names them. A benchmark has none, and would run.
    [ "$1" = kvcachebench ] ||
        verbs=$("$bin/$1" "$3" 2>&1 >/dev/null </dev/null | sed -n 's/.*: what? Say one of \(.*\)/\1/p' | tr -d ,)
    if [ -n "$verbs" ]; then
        for verb in $verbs; do
            compare "$1" "$2" "$3" "$verb"
        done
        "$bin/$1" "$3" --help >"$work/help" 2>&1 || wrong "$1 $3 --help fails"
        listed_by_help "$work/help" >>"$work/helped"
    else
        compare "$1" "$2" "$3"
    fi
    cat "$work/common" >>"$work/accepted"
    sort -u "$work/helped" | while read -r option; do
        grep -qx -e "$option" "$work/accepted" || echo "$1 $3 does not take $option, which its --help lists"
    done >"$work/invented"
    sort -u "$work/paged" | while read -r option; do
        grep -qx -e "$option" "$work/accepted" || echo "$1 $3 does not take $option, which $2 lists"
    done >>"$work/invented"
    while read -r line; do
        wrong "$line"
    done <"$work/invented"
}

# program PROGRAM PAGE: its commands, which its --help lists
program_of() {
    taken "$1" >"$work/common" 2>/dev/null
    plain "$2" | sed -n '/^\.SH DESCRIPTION/,/^\.SH COMMANDS/p' >"$work/general"
    "$bin/$1" --help >"$work/main"
    sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' "$work/main" >"$work/$1.commands"
    [ -s "$work/$1.commands" ] || wrong "$1 --help lists no command"
    while read -r command; do
        command_of "$1" "$2" "$command"
    done <"$work/$1.commands"
    while read -r option; do
        plain "$2" | sed -n '/^\.SH OPTIONS/,$p' >"$work/section"
        has "$work/main" "$option" || wrong "$1 --help does not have $option"
        has "$work/section" "$option" || wrong "$2 does not have $option"
    done <"$work/common"
}

# ---- self-test ----

# fake TAKES HELP PAGE: a program `it` with the command `go`, and its page
fake() {
    bin=$work/bin
    mkdir -p "$bin"
    cat >"$bin/it" <<EOF
#!/bin/sh
case \$* in
--list-options) echo --help ;;
--help) printf 'Commands:\n  go   it goes\n\n' ;;
*--list-options) printf '%s\n' $1 --help ;;
*--help) printf '  %s\n' $2 Example ;;
esac
EOF
    chmod +x "$bin/it"
    {
        printf '.SH COMMANDS\n.SS "go [OPTIONS]"\n'
        # shellcheck disable=SC2086 # words
        printf '.TP\n.BI \\-\\-%s " X"\n' $3
        printf '.SH OPTIONS\n'
    } >"$work/it.1"
}

# finds EXPECTED TAKES HELP PAGE: exactly this, or nothing
finds() {
    expected=$1
    shift
    fake "$@"
    got=$(program_of it "$work/it.1" | sed "s|$work/||")
    [ "$got" = "${expected:+surface: $expected}" ] && return
    echo "surface --self-test: '$got' instead of '$expected'"
    failures=$((failures + 1))
}

if [ "${1-}" = --self-test ]; then
    finds '' '--ns --deep' '--ns --deep' 'ns deep'
    finds 'it go --help does not have --deep' '--ns --deep' '--ns' 'ns deep'
    finds 'it.1 does not have --deep of it go' '--ns --deep' '--ns --deep' 'ns'
    finds 'it go does not take --wide, which its --help lists' '--ns' '--ns --wide' 'ns'
    finds 'it go does not take --wide, which it.1 lists' '--ns' '--ns' 'ns wide'
    [ "$failures" -eq 0 ] && echo "surface --self-test: clean"
    exit $((failures > 0))
fi
cd "$KVC_SOURCE_DIR" || exit 1

# ---- programs ----

program_of kvcachectl client/ctl/kvcachectl.1
: >"$work/common"
program_of kvcachebench bench/kvcachebench.1
grep -o '{"[a-z]*", cmd_' client/ctl/main.c | tr -d '{"' | cut -d, -f1 | sort >"$work/commands"
sort "$work/kvcachectl.commands" | cmp -s - "$work/commands" ||
    wrong "kvcachectl --help does not list the commands of client/ctl/main.c"

# whole PROGRAM PAGE: of a program without commands; what help says of an option is in the page too
whole() {
    : >"$work/common"
    : >"$work/general"
    : >"$work/accepted"
    : >"$work/helped"
    : >"$work/paged"
    compare "$1" "$2"
    for word in $(sed -n 's/^      \([a-z]*\)  .*/\1/p' "$work/help"); do
        has "$work/section" "$word" || wrong "$2 does not have $word"
    done
}
# It is built where there is OpenBLAS.
[ ! -x "$bin/kvcache-worker" ] || whole kvcache-worker client/worker/kvcache-worker.1

plain daemon/kvcache-daemon.8 >"$work/page"
for option in $(taken kvcache-daemon); do
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
export PATH

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
