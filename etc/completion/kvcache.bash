# SPDX-License-Identifier: Apache-2.0
# Completion of kvcachectl, kvcache-daemon and kvcachebench for bash.

# _kvcache_words PROGRAM [COMMAND]: options, and without COMMAND the commands, from --help
_kvcache_words() {
    {
        "$@" --help
        [[ $# -eq 1 ]] || "$1" --help | sed '/^Commands:/,/^$/d'
    } 2>/dev/null | sed -n \
        -e '/^Commands:/,/^$/s/^  \([a-z][a-z]*\)  .*/\1/p' \
        -e 's/^ *\(--[a-z-]*\).*/\1/p' \
        -e 's/^  *-h, \(--help\).*/\1/p'
    echo --help
}

_kvcache() {
    local program=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local command="" i words
    COMPREPLY=()
    case $before in
    --socket | --config | --daemon)
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
        ;;
    --set)
        words=$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z_.]*\) (.*)$/\1=/p')
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
        ;;
    --kv-type) words="fp32 bf16 fp16 fp8 int8 int4" ;;
    --tier) words="host nvme" ;;
    --ns | --key | --group | --depth | --limit | --rate | --bytes | --older-than | --timeout | \
        --context | --parallel | --block-tokens | --hbm | --host | --nvme | \
        --prefill-tokens-per-second)
        return # a value that only the user knows
        ;;
    *) words="" ;;
    esac
    if [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
        return
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --socket | --timeout) i=$((i + 1)) ;;
        -*) ;;
        *)
            command=${COMP_WORDS[i]}
            break
            ;;
        esac
    done
    [[ ${program##*/} = kvcache-daemon ]] && command=""
    # shellcheck disable=SC2086 # no command is no argument
    words=$(_kvcache_words "$program" $command)
    if [[ $command = trace && $before = dump && $word != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        return
    fi
    [[ $command = trace && " ${COMP_WORDS[*]} " =~ \ (dump|off|status)\  ]] &&
        words=$(grep -vx -- --bytes <<<"$words")
    [[ $command = trace && $before = trace ]] && words+=" on off status dump"
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word" | sort -u)
    [[ ${#COMPREPLY[@]} -gt 0 ]] || mapfile -t COMPREPLY < <(compgen -f -- "$word")
}

complete -F _kvcache kvcachectl kvcache-daemon kvcachebench
