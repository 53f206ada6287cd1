# SPDX-License-Identifier: Apache-2.0
# Completion of kvcachectl, kvcache-daemon and kvcachebench for bash.

_kvcache() {
    local script=${BASH_SOURCE[0]%/*}/../../kvcache/complete.sh word="" begun="" line
    local -a words=()
    [[ -f $script ]] || script=${BASH_SOURCE[0]%/*}/complete.sh
    # The shell takes words apart at colons, which names may have.
    for line in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ ${#words[@]} -gt 1 && ($line = : || $word = *:) ]]; then
            word+=$line
            words[-1]=$word
        else
            word=$line
            words+=("$line")
        fi
    done
    [[ $word != *:* || $COMP_WORDBREAKS != *:* ]] || begun=${word%"${word##*:}"}
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line = @files ]]; then
            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$word")
            compopt -o filenames 2>/dev/null
        elif [[ $line = "$word"* ]]; then
            # Names are texts of others: nothing in them may be expanded.
            COMPREPLY+=("$(printf %q "${line#"$begun"}")")
        fi
    done < <(sh "$script" "${words[@]}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}

complete -F _kvcache kvcachectl kvcache-daemon kvcachebench
