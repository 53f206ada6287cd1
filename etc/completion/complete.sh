#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a shell offers behind words of kvcachectl, kvcache-daemon or kvcachebench.
#
#   complete.sh PROGRAM WORD...
#
# The last WORD is the one to be completed, perhaps empty. Prints what fits there, one a line, whether it
# begins as the word does or not; @files stands for names of files. Commands, verbs, options and what
# they take are those of --help; names are those that the daemon has, asked for at most a second.
set -u
program=$1
shift
command='' verb='' verbs='' operands=0 option='' help=''

# Without the commands, once one is there.
read_help() {
    # shellcheck disable=SC2086 # no command, or no verb, is no argument
    help=$(
        "$program" $command $verb --help 2>/dev/null
        [ -z "$command" ] || "$program" --help 2>/dev/null | sed '/^Commands:/,/^$/d'
    )
}

said() { # sed script
    printf '%s\n' "$help" | sed -n "$@"
}

# What --help says that an option takes: SIZE, on|off; nothing for one that takes no value.
value_of() {
    said "s/.*$1 \([A-Z][A-Za-z|]*\).*/\1/p; s/.*$1 \([a-z]*|[a-z|]*\).*/\1/p" | head -n 1
}

take_word() {
    if [ "${program##*/}" = kvcache-daemon ]; then
        return
    elif [ -z "$command" ]; then
        command=$1
        read_help
        verbs=$(said -e '/^$/q' -e "s/^.* kvcachectl $command \([a-z][a-z |]*\).*/\1/p" | tr -s '| ' '\n')
    elif [ -n "$verbs" ] && [ -z "$verb" ]; then
        verb=$1
        read_help
    else
        operands=$((operands + 1))
    fi
}

# ask FIELD WORD...: that field of what the daemon lists. A text that JSON escapes is left out.
ask() {
    field=$1
    shift
    "$program" --timeout 1s "$@" --json 2>/dev/null |
        grep -o "\"$field\":\(\"[^\"\\\\]*[^\"\\\\]\"\|[1-9][0-9]*\)" | cut -d: -f2- |
        sed 's/^"\(.*\)"$/\1/'
}

# What the option takes.
offer_value() {
    kind=$(value_of "$option")
    case $option in
    --ns) ask ns ns ;;
    --model) ask model ns ;;
    --tenant)
        ask tenant ns
        ask tenant quota show
        ;;
    --sub) ask sub_tenant ns ;;
    --doc) ask name doc list ;;
    --conv) ask name conv list ;;
    --kv-type) printf '%s\n' fp32 bf16 fp16 fp8 int8 int4 ;;
    --set) said 's/^  \([a-z_.]*\) (.*)$/\1=/p' ;;
    *)
        case $kind in
        FILE | PATH | DIR | TRACE) echo @files ;;
        *'|'*) echo "$kind" | tr '|' '\n' | grep '^[a-z]' ;;
        esac
        ;;
    esac
}

offer_operand() {
    case "${program##*/} $command $verb $operands" in
    "kvcachectl doc import 0" | "kvcachectl doc export 1" | "kvcachectl trace dump 0" | "kvcachebench "?*)
        echo @files
        ;;
    "kvcachectl doc "?*" 0" | "kvcachectl conv "?*" 0") ask name "$command" list ;;
    "kvcachectl pin rm "*) ask pin pin list ;;
    "kvcachectl sessions end "*) ask session sessions list ;;
    "kvcachectl stats "*) "$program" stats --help '' | sed -n 's/^\([a-z][a-z0-9_.]*\): .*/\1/p' ;;
    esac
}

offer_word() {
    [ -n "$command" ] || said '/^Commands:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p'
    if [ -n "$verbs" ] && [ -z "$verb" ]; then
        printf '%s\n' "$verbs"
    else
        offer_operand
    fi
}

offer_options() {
    said 's/^ *\(--[a-z-]*\).*/\1/p'
    echo --help
}

read_help
while [ $# -gt 1 ]; do
    if [ -n "$option" ]; then
        if [ "$option" = --socket ]; then
            KVCACHE_SOCKET=$1
            export KVCACHE_SOCKET
        fi
        option=''
    else
        case $1 in
        -*) [ -z "$(value_of "$1")" ] || option=$1 ;;
        *) take_word "$1" ;;
        esac
    fi
    shift
done
# Options are told where a dash asks for them, and where nothing else fits.
if [ -n "$option" ]; then
    offer_value
else
    case $1 in
    -*) offered='' ;;
    *) offered=$(offer_word) ;;
    esac
    if [ -n "$offered" ]; then
        printf '%s\n' "$offered"
    else
        offer_options
    fi
fi | sort -u
