#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Gate: rules about the text of the tree that neither compiler nor formatter checks.
#
#   lint.sh [ROOT]       check the tree (default: the one this script is in)
#   lint.sh --self-test  check that every fixture is rejected by the rule that it is named after
#
# A finding is one line: "rule: file:line: what". tests/gates/README.md lists the rules.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# Texts beside code and documents. Not read: LICENSE, and what a program makes (.abi, .svg, .gz, .safetensors).
TEXTS='\.(ya?ml|service|socket|conf|in|inc|[1-9]|txt|json|toml|cfg|pyi|cc|cpp|hpp|mk|supp|mut)$'
TEXTS="$TEXTS|^packaging/|^etc/|(^|/)\.(gitignore|clang-[a-z]+)\$|^NOTICE\$"

# rule, text with the findings on stdin
report() {
    sed "s/^/$1: /" >>"$work/found"
}

# file list, grep arguments -> "file:line:text"
search() {
    list=$1
    shift
    xargs -r grep -nH "$@" -- <"$list" || :
}

list_files() {
    find . \( -name .git -o -name .cache -o -path ./build -o -path './build-*' \
        -o -path ./tests/gates/fixtures \) -prune -o -type f -print |
        sed 's|^\./||' | sort >"$work/all"
    grep -E '\.[ch]$' "$work/all" >"$work/c" || :
    grep -E '\.(c|h|cu)$' "$work/all" >"$work/source" || :
    grep -E '\.h$' "$work/all" >"$work/headers" || :
    grep -E '\.md$' "$work/all" >"$work/docs" || :
    grep -E '(\.(c|h|cu|sh|py|awk|cmake)|(^|/)CMakeLists\.txt|^\.ci/run)$' "$work/all" \
        >"$work/code" || :
    grep -E '^(daemon|client|gpu|policy|kernels|include|bench|tools)/' "$work/source" >"$work/product" || :
    { grep -E "$TEXTS" "$work/all" || :; } | sort -u - "$work/code" "$work/docs" >"$work/text"
    grep -vE '^tests/gates/' "$work/text" >"$work/worded" || :
}

# A foreign header is included by its adapter only. Tests may include any.
# header (a regular expression)   files that may include it (a regular expression)
adapters() {
    cat <<'EOF'
zmq\.h                 daemon/io/front\.c|client/[a-z_]+\.c|bench/[a-z_]+\.c
liburing(\.h|/.*)      daemon/io/loop_uring\.c
hwloc(\.h|/.*)         daemon/io/topo\.c
lmdb\.h                daemon/io/meta_db\.c
systemd/.*             daemon/io/notify\.c
microhttpd\.h          daemon/io/http\.c
msgpack(\.h|/.*)       client/codec/[a-z_]+\.c
xxhash\.h              daemon/base/wire/hash\.c|bench/[a-z_]+\.c
openssl/.*             daemon/base/wire/hash\.c|bench/[a-z_]+\.c
yaml\.h                daemon/config[a-z_]*\.c
jansson\.h             client/(ctl|model|worker)/[a-z_]+\.c|bench/(engines/)?[a-z_]+\.c
cblas\.h               (client/worker/product|bench/attention_limits)\.c
hiredis/hiredis\.h     tools/peers/hiredis\.c
rocksdb/c\.h           tools/peers/(disk_)?rocks(_fail)?\.c
check\.h               no file outside tests
cuda.*                 kernels/[a-z_]+\.cu|gpu/cuda_driver\.h
EOF
}

rule_foreign_header() {
    search "$work/product" -E '^[[:space:]]*#[[:space:]]*include[[:space:]]*<' >"$work/includes"
    adapters | while read -r header allowed; do
        grep -E ":#[[:space:]]*include[[:space:]]*<$header>" "$work/includes" |
            grep -vE "^($allowed):" || :
    done | report foreign-header
    # The client speaks to ZeroMQ in one file.
    grep -E '^client/.*<zmq\.h>' "$work/includes" >"$work/client_zmq" || :
    if [ "$(wc -l <"$work/client_zmq")" -gt 1 ]; then
        report foreign-header <"$work/client_zmq"
    fi
}

# Quoted includes are bare names: the include path, not the text, says what a layer may see.
rule_include_path() {
    search "$work/source" -E '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]*/' |
        report include-path
}

# The policy is pure: no clock, input or output, lock or log can be reached from it.
rule_policy_pure() {
    grep -E '^policy/' "$work/source" >"$work/policy" || :
    search "$work/policy" -E '^[[:space:]]*#[[:space:]]*include' |
        grep -vE '<(stdint|stddef|stdbool|string|errno|limits|stdlib|stdalign|assert|math)\.h>' |
        grep -vE '"(policy[a-z_]*|list)\.h"' |
        while IFS= read -r line; do
            name=$(printf '%s\n' "$line" | sed -n 's/.*"\([^"]*\)".*/\1/p')
            if [ -z "$name" ] || [ ! -f "policy/$name" ]; then
                printf '%s\n' "$line"
            fi
        done | report policy-pure
}

# Base, tiers, policy and core return errors; they do not log.
rule_silent_layer() {
    grep -E '^(daemon/(base|tier|core)|policy)/' "$work/source" |
        grep -vE '^daemon/base/log\.[ch]$' >"$work/silent" || :
    search "$work/silent" -E '^[[:space:]]*#[[:space:]]*include[[:space:]]*"log\.h"' |
        report silent-layer
}

rule_banned_call() {
    before='(^|[^_[:alnum:]])'
    search "$work/product" -E \
        "$before(strcpy|strcat|strncat|sprintf|vsprintf|gets|atoi|atol|atof|strtok)[[:space:]]*\(" |
        report banned-call
    grep -E '^(daemon|client|gpu)/' "$work/product" >"$work/served" || :
    search "$work/served" -E "$before(system|popen)[[:space:]]*\(" | report banned-call
    # MUST() stays on in every build.
    search "$work/product" -E "$before(assert|alloca)[[:space:]]*\(" | report banned-call
}

# Options are rows of the table of args.h, of test programs too: so --help is there, numbers have
# limits, and what is wrong is said.
rule_hand_parsed() {
    search "$work/c" -E \
        '(^|[^_[:alnum:]])(getopt(_long)?(_only)?[[:space:]]*\(|strn?cmp[[:space:]]*\([[:space:]]*argv\[[^]]*\],[[:space:]]*"--[a-z])' |
        grep -vE '^daemon/base/wire/args\.[ch]:' | report hand-parsed
}

# A struct is called a struct; a typedef may name a function.
rule_typedef() {
    search "$work/product" -E '^[[:space:]]*typedef[[:space:]]+(struct|union|enum)([[:space:]]|\{)' |
        grep -v '##' | report typedef
}

# foo__.h is for the files of its own directory; tests are free.
rule_private_header() {
    search "$work/product" -E '^#[[:space:]]*include[[:space:]]*"[^"]*__\.h"' |
        while IFS= read -r line; do
            name=${line#*\"}
            from=${line%%:*}
            if [ ! -f "${from%/*}/${name%\"*}" ]; then
                printf '%s\n' "$line"
            fi
        done | report private-header
}

# What returns int and has an output can fail: its result must be used. Programs' own headers are
# free, their functions return exit codes.
rule_must_use() {
    grep -E '^(daemon|client/codec|gpu|policy|include|kernels)/' "$work/headers" >"$work/declaring" || :
    xargs -r awk '
        FNR == 1 { text = "" }
        /^(\/\*| \*|#|})/ { text = ""; next }
        text == "" { line = FNR }
        { text = text " " $0 }
        /[;{}]/ {
            if (text ~ /^ ([A-Z_]+ )*int [a-z0-9_]+\(.*[ *]ret_[a-z0-9_]+[,)[].*;/ &&
                text !~ /WARN_UNUSED|MUST_USE|warn_unused_result/) {
                sub(/\(.*/, "", text)
                sub(/.* /, "", text)
                print FILENAME ":" line ": " text "() can fail, but its result may be ignored"
            }
            text = ""
        }' <"$work/declaring" | report must-use
}

# Magic numbers, codes of the protocol, rows of tables: codes.awk.
rule_unique() {
    xargs -r awk -f "$here/codes.awk" <"$work/product" >"$work/codes"
    sed -n 's/^unique-magic //p' "$work/codes" | report unique-magic
    sed -n 's/^unique-code //p' "$work/codes" | report unique-code
}

rule_forbidden_word() {
    search "$work/worded" -wE 'TODO|FIXME|XXX|HACK' | report forbidden-word
    search "$work/worded" -iwE 'not (yet )?implemented|placeholder|stub' | report forbidden-word
    search "$work/worded" -E '(^|[^[:alnum:]_.])/(work|home|Users)/' | report forbidden-word
}

rule_file_length() {
    xargs -r awk 'FNR == 1001 { print FILENAME ":1001: more than 1,000 lines" }' <"$work/code" |
        report file-length
}

rule_header_guard() {
    xargs -r awk '
        FNR == 1 { guarded[FILENAME] = 0; name = "" }
        /^#pragma once/ || (name != "" && $0 == "#define " name) { guarded[FILENAME] = 1 }
        name == "" && /^#ifndef [A-Z0-9_]*$/ { name = $2 }
        END {
            for (file in guarded)
                if (!guarded[file])
                    print file ":1: neither #pragma once nor an include guard"
        }' <"$work/headers" | report header-guard
}

rule_licence() {
    xargs -r awk '
        FNR == 1 { seen[FILENAME] = 0 }
        FNR <= 3 && /SPDX-License-Identifier: Apache-2\.0/ { seen[FILENAME] = 1 }
        END {
            for (file in seen)
                if (!seen[file])
                    print file ":1: no SPDX-License-Identifier: Apache-2.0 in its first three lines"
        }' <"$work/code" | report licence
}

rule_blank() {
    search "$work/text" -E "$(printf '\t')|[[:space:]]+\$" | report blank
    # The last bytes of all at once; only when one is no newline file by file, to say which.
    if [ -n "$(xargs -r tail -q -c 1 <"$work/text")" ]; then
        while IFS= read -r file; do
            if [ -s "$file" ] && [ "$(tail -c 1 "$file" | wc -l)" -eq 0 ]; then
                echo "$file: no newline at its end"
            fi
        done <"$work/text" | report blank
    fi
}

# document, path or pattern -> is there such a file, seen from the root or from the document?
path_exists() {
    # shellcheck disable=SC2086 # the path may be a pattern
    case $1 in
    */*) set -- $2 "${1%/*}"/$2 ;;
    *) set -- $2 ;;
    esac
    for candidate; do
        if [ -e "$candidate" ]; then
            return 0
        fi
    done
    return 1
}

# What documents name in backticks or link to exists: paths under the top directories, and bare
# names of sources and scripts anywhere in the tree.
rule_document_path() {
    foreign='zmq|liburing|hwloc|lmdb|msgpack|xxhash|yaml|jansson|check|string|stdint|cuda_runtime'
    tick='`'
    search "$work/docs" -oE "${tick}[^$tick]+$tick" | tr -d "$tick" |
        awk -F: '{ file = $1; line = $2; sub(/^[^:]*:[^:]*:/, "")
                   n = split($0, word, /[ ,;:()=]+/)
                   for (i = 1; i <= n; i++) print file, line, word[i] }' >"$work/words"
    grep -E ' (daemon|client|gpu|kernels|include|policy|etc|systemd|tests|bench|tools|cmake|docs|\.ci)/[][A-Za-z0-9_.*/-]*$' \
        "$work/words" >"$work/paths" || :
    search "$work/docs" -oE '\]\([^)#: ]+' |
        awk -F: '{ file = $1; line = $2; sub(/^[^:]*:[^:]*:\]\(/, "")
                   if ($0 !~ /^(https?|mailto)$/) print file, line, $0 }' \
            >>"$work/paths"
    while read -r file line path; do
        if ! path_exists "$file" "$path"; then
            echo "$file:$line: names $path, which is not in the tree"
        fi
    done <"$work/paths" | report document-path
    sed 's|.*/||' "$work/all" | sort -u >"$work/names"
    grep -E ' [a-z][a-z0-9_]*\.(c|h|cu|sh)$' "$work/words" |
        grep -vE " ($foreign)\.h\$" | awk -v names="$work/names" '
            BEGIN { while ((getline name <names) > 0) known[name] }
            !($3 in known) {
                print $1 ":" $2 ": names " $3 ", and no file of the tree is called so"
            }' | report document-path
}

# program   a directory of its sources
programs() {
    cat <<'EOF'
kvcachectl      client/ctl
kvcachebench    bench
kvcachebench    tools/simulate
kvcache-worker  client/worker
kvcache-daemon  daemon
EOF
}

# What there is, as commands.awk wants it. A program's commands stand in a table of rows
# {"name", ..., cmd_name}, its options in tables of args.h.
known_commands() {
    echo "known" # awk tells an empty file from the next one by no line
    row='\{[[:space:]\]*"--[a-z][a-z0-9-]*( [^"]*)?'
    programs | while read -r program dir; do
        if [ ! -d "$dir" ]; then
            continue
        fi
        echo "program $program"
        echo "target $program"
        echo "command $program help"
        echo "flag $program help"
        { grep -E "^$dir/[^/]*\.[ch]\$" "$work/c" || :; } | xargs -r cat | tr '\n' ' ' \
            >"$work/joined"
        { grep -oE '\{"[a-z][a-z-]*",[^{}]*cmd_[a-z_]+' "$work/joined" || :; } |
            sed "s/^{\"\([^\"]*\)\".*/command $program \1/"
        { grep -oE "$row" "$work/joined" || :; } |
            sed -e "s/^[^\"]*\"--\([^ ]*\) .*/value $program \1/" \
                -e "s/^[^\"]*\"--\([^ ]*\)\$/flag $program \1/"
    done
    { xargs -r grep -oHE -e '--[a-z][a-z0-9-]+' -- <"$work/code" || :; } | awk -F: '
        { sub(/^--/, "", $2); print "mention " $2 }
        $1 ~ /\.(sh|py)$|^\.ci\/run$/ { print "script " $1 " " $2 }' | sort -u
    { xargs -r grep -hoE -e "$row" -- <"$work/c" || :; } | sed 's/^[^"]*"--\([^ ]*\).*/mention \1/'
    { grep -E '(^|/)CMakeLists\.txt$' "$work/all" || :; } | xargs -r cat |
        grep -oE '(add_executable\(|NAME |_(test|program|fuzz[a-z]*)\()[a-z][a-z0-9_-]*' |
        sed 's/.*[( ]/target /'
    sed -n 's|^tests/.*/\([a-z0-9_]*\)\.c$|target \1|p' "$work/c"
    if [ -f CMakePresets.json ]; then
        sed -n 's/.*"name": "\([a-z]*\)".*/preset \1/p' CMakePresets.json
    fi
}

# Commands and options that documents, manual pages and help texts name exist.
rule_document_command() {
    known_commands >"$work/known"
    grep -E '\.[1-9]$' "$work/all" >"$work/explaining" || :
    grep -E '^(bench|tools/simulate|client/ctl|client/worker|daemon)/[^/]*\.c$' "$work/c" >>"$work/explaining" || :
    cat "$work/docs" >>"$work/explaining"
    xargs -r awk -f "$here/commands.awk" "$work/known" <"$work/explaining" | report document-command
}

# Every directory with sources, C, Python or shell, says what it is for, in 30 words at least; so does
# each directory of tests/ and tests/unit/, and each top-level directory or the one that it holds.
rule_readme() {
    {
        sed -nE 's#^(.*)/[^/]*\.(c|h|cu|cc|py|sh)$#\1#p' "$work/all"
        sed -n 's|^\(tests/[^/]*\)/.*|\1|p' "$work/all"
        sed -n 's|^\(tests/unit/[^/]*\)/.*|\1|p' "$work/all"
        # .ci and its like hold a script or two, which say it themselves.
        sed -n 's|^\([^./][^/]*\)/.*|\1|p' "$work/all" | sort -u | while IFS= read -r dir; do
            grep "^$dir/" "$work/all" | awk -F/ '
                NF == 2 && $2 != "CMakeLists.txt" { own = 1 }
                NF > 2 && !($2 in seen) { seen[$2]; n++; only = $2 }
                END { print !own && n == 1 ? $1 "/" only : $1 }'
        done
    } | sort -u | while IFS= read -r dir; do
        if [ ! -f "$dir/README.md" ]; then
            echo "$dir: no README.md"
        elif [ "$(tr -cs '[:alnum:]' '\n' <"$dir/README.md" | grep -c .)" -lt 30 ]; then
            echo "$dir/README.md: fewer than 30 words"
        fi
    done | report readme
}

# A README is short: at most 800 words, lines of at most 100 characters. tests/gates/readmes.txt has
# those that are still longer, with the words and columns that they may have.
rule_short_readme() {
    grep -E '(^|/)README\.md$' "$work/all" >"$work/readmes" || :
    # In the C locale an awk counts bytes; without the second and later bytes of UTF-8 these are characters.
    LC_ALL=C xargs -r awk '
        FNR == 1 { words[FILENAME] = columns[FILENAME] = 0 }
        {
            words[FILENAME] += NF
            gsub(/[\200-\277]/, "")
            if (length($0) > columns[FILENAME]) {
                columns[FILENAME] = length($0)
                widest[FILENAME] = FNR
            }
        }
        END {
            for (file in words)
                print file, words[file], columns[file], widest[file] + 0
        }' <"$work/readmes" | sort >"$work/sizes"
    if [ -f tests/gates/readmes.txt ]; then
        sed -e 's/#.*//' -e '/^[[:space:]]*$/d' tests/gates/readmes.txt
    fi >"$work/longer"
    awk '
        BEGIN { table = "tests/gates/readmes.txt" }
        FILENAME == ARGV[1] && (NF != 3 || $2 $3 !~ /^[0-9]+$/) {
            print table ": not \"README words columns\": " $0
            next
        }
        FILENAME == ARGV[1] { words[$1] = $2 + 0; columns[$1] = $3 + 0; next }
        {
            excepted = $1 in words
            most_words = excepted && words[$1] > 800 ? words[$1] : 800
            most_columns = excepted && columns[$1] > 100 ? columns[$1] : 100
            if ($2 > most_words)
                print $1 ":1: " $2 " words, at most " most_words
            if ($3 > most_columns)
                print $1 ":" $4 ": " $3 " columns, at most " most_columns
            if (excepted && $2 <= 800 && $3 <= 100)
                print table ": " $1 " needs no exception any more"
            else if (excepted && ($2 < words[$1] || $3 < columns[$1]))
                print table ": " $1 " can have " $2 " words, " $3 " columns" >"/dev/stderr"
            seen[$1]
        }
        END {
            for (file in words)
                if (!(file in seen))
                    print table ": there is no " file
        }' "$work/longer" "$work/sizes" | report short-readme
}

# Documents have short sentences: sentences.awk. tests/gates/sentences.txt has those with longer ones,
# and how many each may have.
rule_long_sentence() {
    if [ -f tests/gates/sentences.txt ]; then
        sed -e 's/[[:space:]]*#.*//' -e '/^[[:space:]]*$/d' tests/gates/sentences.txt
    fi >"$work/allowed"
    xargs -r awk -v MOST=35 -f "$here/sentences.awk" <"$work/docs" >"$work/long"
    awk -F '[: ]+' '
        BEGIN { table = "tests/gates/sentences.txt" }
        FILENAME == ARGV[1] && (NF != 2 || $2 !~ /^[0-9]+$/ || $2 == 0) {
            print table ": not \"document sentences\": " $0
            next
        }
        FILENAME == ARGV[1] { most[$1] = $2; next }
        FILENAME == ARGV[2] { there[$1]; next }
        { n[$1]++; found[$1] = found[$1] $0 "\n" }
        END {
            for (file in most)
                if (!(file in there))
                    print table ": there is no " file
                else if (!n[file])
                    print table ": " file " needs no exception any more"
                else if (n[file] < most[file])
                    print table ": " file " can have " n[file] " long sentences" >"/dev/stderr"
            for (file in n)
                if (!(file in most))
                    printf "%s", found[file]
                else if (n[file] > most[file])
                    print found[file] file ": " n[file] " long sentences, at most " most[file]
        }' "$work/allowed" "$work/docs" "$work/long" | report long-sentence
}

# Words that the tree no longer uses stay out: tests/gates/words.txt. CHANGELOG.md tells what was.
# A retired word is found in identifiers too: underscores and camel borders are its ends. NEAR_COPY and
# near_copy are the same word. The fourth column has identifiers that may contain it.
rule_retired_word() {
    if [ ! -f tests/gates/words.txt ]; then
        return
    fi
    sed -e 's/#.*//' -e '/^[[:space:]]*$/d' -e 's/[[:space:]]*|[[:space:]]*/|/g' \
        -e 's/[[:space:]]*$//' tests/gates/words.txt >"$work/retired"
    awk -F '|' 'NF < 3 || NF > 4 || $1 !~ /^[A-Za-z0-9_.]+$/ || $2 == "" || $3 == "" {
        print "tests/gates/words.txt: not \"word | where | say instead [| may contain it]\": " $0
    }' "$work/retired" | report retired-word
    sed 's/|.*//' "$work/retired" >"$work/patterns"
    sed 's/_//g' "$work/patterns" | cat "$work/patterns" - >"$work/pieces" # camelCase has no underscores
    grep -vx CHANGELOG.md "$work/worded" >"$work/current" || :
    xargs -r grep -nHiFf "$work/pieces" -- <"$work/current" | awk '
        # The identifier around `at` in `text`.
        function around(text, at, len, from, to) {
            for (from = at; from > 1 && substr(text, from - 1, 1) ~ /[A-Za-z0-9_]/; from--)
                continue
            for (to = at + len; substr(text, to, 1) ~ /[A-Za-z0-9_]/; to++)
                continue
            return substr(text, from, to - from)
        }
        # One word of capitals names a constant; in small letters it is any word of English.
        function exact(word) {
            return word ~ /^[A-Z0-9]+$/
        }
        # Whether the word stands in `text`, and in no identifier that may contain it.
        function stands(text, word, at, from, name, in_text, as) {
            in_text = exact(word) ? text : tolower(text)
            as = exact(word) ? word : tolower(word)
            for (from = 1; (at = index(substr(in_text, from), as)) > 0; from = at + 1) {
                at += from - 1
                if (substr(text, at - 1, at > 1) ~ /[A-Za-z0-9]/ || substr(text, at + length(word), 1) ~ /[A-Za-z0-9]/)
                    continue
                name = around(text, at, length(word))
                if (index(" " allowed[word] " ", " " name " ") == 0)
                    return 1
            }
            return 0
        }
        # aCamelName -> a_camel_name
        function split_camel(text, out) {
            for (out = ""; match(text, /[a-z0-9][A-Z]/) > 0; text = substr(text, RSTART + 1))
                out = out substr(text, 1, RSTART) "_"
            return tolower(out text)
        }
        FILENAME != "-" {
            split($0, row, "|")
            words[++n] = row[1]
            where[row[1]] = row[2]
            instead[row[1]] = row[3]
            allowed[row[1]] = row[4]
            next
        }
        {
            file = $0
            sub(/:.*/, "", file)
            line = substr($0, length(file) + 2)
            sub(/:.*/, "", line)
            text = substr($0, length(file) + length(line) + 3)
            camel = text ~ /[a-z0-9][A-Z]/ ? split_camel(text) : ""
            for (w = 1; w <= n; w++) {
                word = words[w]
                if (!stands(text, word) && !(camel != "" && word == tolower(word) && stands(camel, word)))
                    continue
                k = split(where[word], prefix, /[ ,]+/)
                for (i = 1; i <= k; i++)
                    if (prefix[i] == "." || index(file, prefix[i]) == 1) {
                        print file ":" line ": " word " is retired; say instead: " instead[word]
                        break
                    }
            }
        }' "$work/retired" - | report retired-word
}

# A static function whose name three files share says nothing in a backtrace or a profile. Exempt are
# operations that each instruction set has (vec_*), and examples, each of which is read alone.
# statics.awk finds them.
rule_common_static() {
    grep -v '^client/examples/' "$work/product" >"$work/units" || :
    xargs -r awk -f "$here/statics.awk" <"$work/units" | grep -v '^vec_' | sort -u -k 1,2 >"$work/statics" || :
    awk 'FNR == NR { files[$1]++; next }
         files[$1] > 2 { print $2 ":" $3 ": " $1 "() is a static function of " files[$1] " files" }' \
        "$work/statics" "$work/statics" | report common-static
}

# directory -> findings on stdout; 1 when there are any
lint() {
    (
        cd "$1"
        : >"$work/found"
        list_files
        rule_foreign_header
        rule_include_path
        rule_policy_pure
        rule_silent_layer
        rule_banned_call
        rule_hand_parsed
        rule_typedef
        rule_private_header
        rule_must_use
        rule_common_static
        rule_unique
        rule_forbidden_word
        rule_file_length
        rule_header_guard
        rule_licence
        rule_blank
        rule_document_path
        rule_document_command
        rule_readme
        rule_short_readme
        rule_long_sentence
        rule_retired_word
        cat "$work/found"
        [ ! -s "$work/found" ]
    )
}

# A fixture is a small tree named <rule> or <rule>-<case>: it must have findings, of that rule only.
# The fixture "clean" must have none.
self_test() {
    seen=0
    for fixture in "$here"/fixtures/*/; do
        name=$(basename "$fixture")
        found=$(lint "$fixture") || :
        others=$(printf '%s\n' "$found" | while IFS=: read -r rule _; do
            case "$name" in
            "$rule" | "$rule"-*) ;;
            *) echo "$rule" ;;
            esac
        done)
        if [ "$name" = clean ]; then
            if [ -n "$found" ]; then
                printf 'lint --self-test: the clean fixture is rejected:\n%s\n' "$found" >&2
                return 1
            fi
        elif [ -z "$found" ] || [ -n "$others" ]; then
            printf 'lint --self-test: fixture %s must break its own rule only; found:\n%s\n' \
                "$name" "${found:-nothing}" >&2
            return 1
        fi
        seen=$((seen + 1))
    done
    # A rule without a fixture could pass for ever.
    sed -n 's/.*report \([a-z][a-z-]*\).*/\1/p' "$here/lint.sh" | sort -u >"$work/rules"
    while read -r rule; do
        set -- "$here/fixtures/$rule"*
        if [ ! -d "$1" ]; then
            echo "lint --self-test: rule $rule has no fixture" >&2
            return 1
        fi
    done <"$work/rules"
    echo "lint --self-test: $seen fixtures"
}

case "${1-}" in
--self-test)
    self_test
    ;;
-*)
    echo "usage: lint.sh [ROOT] | lint.sh --self-test" >&2
    exit 2
    ;;
*)
    if lint "${1:-$here/../..}" >"$work/output"; then
        if [ ! -s "$work/source" ]; then
            echo "lint: ${1-} has no C sources, so nothing was checked" >&2
            exit 2
        fi
        echo "lint: clean"
    else
        cat "$work/output" >&2
        echo "lint: $(wc -l <"$work/output") findings" >&2
        exit 1
    fi
    ;;
esac
