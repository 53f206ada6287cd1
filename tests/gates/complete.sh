#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a shell offers behind words, one a line; 77 where there is no such shell.
#
#   complete.sh SHELL FILES WORD...
#
# FILES: the directory of the completions, etc/completion or a share/ that was installed. The last WORD is
# the one to be completed, perhaps empty.
set -eu
shell=$1
files=$2
shift 2
command -v "$shell" >/dev/null || exit 77

# The first of these that is there.
found() {
    for file in "$@"; do
        if [ -f "$file" ]; then
            echo "$file"
            return
        fi
    done
    echo "complete.sh: no completion for $shell in $files" >&2
    return 1
}

case $shell in
bash)
    file=$(found "$files/kvcache.bash" "$files/bash-completion/completions/$1")
    # shellcheck disable=SC2016 # the inner shell's
    bash -c 'source "$1"; shift; COMP_WORDBREAKS=:
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kvcache
        [[ ${#COMPREPLY[@]} -eq 0 ]] || printf "%s\n" "${COMPREPLY[@]}"' bash "$file" "$@"
    ;;
zsh)
    file=$(found "$files/_kvcache" "$files/zsh/site-functions/_kvcache")
    # shellcheck disable=SC2016
    zsh -c 'source $1; shift
        compadd() { while [[ $1 != -- ]]; do shift; done; shift; print -rl -- ${(M)@:#$words[-1]*} }
        _files() { print -rl -- ${words[-1]}*(N) }
        words=("$@"); CURRENT=$#words; _kvcache' zsh "$file" "$@"
    ;;
fish)
    file=$(found "$files/kvcache.fish" "$files/fish/vendor_completions.d/$1.fish")
    # shellcheck disable=SC2016
    fish -c 'source $argv[1]; complete -C "$argv[2..-1]"' "$file" "$@" | cut -f 1
    ;;
esac
