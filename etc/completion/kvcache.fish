# SPDX-License-Identifier: Apache-2.0
# Completion of kvcachectl, kvcache-daemon and kvcachebench for fish.

set -g __kvcache_dir (path resolve (status dirname))

function __kvcache_words
    set -l script $__kvcache_dir/../../kvcache/complete.sh
    test -f $script; or set script $__kvcache_dir/complete.sh
    set -l word (commandline -ct)
    for line in (sh $script (commandline -opc) "$word" 2>/dev/null)
        if test $line = @files
            __fish_complete_path "$word"
        else
            printf '%s\n' $line
        end
    end
end

for program in kvcachectl kvcache-daemon kvcachebench
    complete -c $program -f -a '(__kvcache_words)'
end
