# SPDX-License-Identifier: Apache-2.0
# Completion of kvcachectl, kvcache-daemon and kvcachebench for fish.

# Options, and without a command the commands, from --help.
function __kvcache_words
    set -l line (commandline -opc)
    set -l program $line[1]
    set -l command
    for word in $line[2..-1]
        if test (string sub -l 1 -- $word) != -
            set command $word
            break
        end
    end
    test (basename $program) = kvcache-daemon; and set command
    begin
        $program $command --help
        test -n "$command"; and $program --help | sed '/^Commands:/,/^$/d'
    end 2>/dev/null | sed -n \
        -e '/^Commands:/,/^$/s/^  \([a-z][a-z]*\)  .*/\1/p' \
        -e 's/^ *\(--[a-z-]*\).*/\1/p' \
        -e 's/^  *-h, \(--help\).*/\1/p'
    test "$command" = trace; and printf '%s\n' on off status dump
    echo --help
end

for program in kvcachectl kvcache-daemon kvcachebench
    complete -c $program -a '(__kvcache_words)'
end
complete -c kvcachectl -l config -r -F
complete -c kvcachectl -l kv-type -x -a 'fp32 bf16 fp16 fp8 int8 int4'
complete -c kvcachectl -l tier -x -a 'host nvme'
complete -c kvcache-daemon -l config -r -F
