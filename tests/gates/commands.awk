# SPDX-License-Identifier: Apache-2.0
# Findings about commands and options that documents name and the tree does not have, one line each:
# "file:line: what".
#
#   awk -f commands.awk KNOWN FILE...
#
# KNOWN has what there is, one a line:
#   program NAME            a program of this tree
#   command PROGRAM NAME    its command NAME
#   flag PROGRAM NAME       its option --NAME, without a value of its own word
#   value PROGRAM NAME      its option --NAME VALUE
#   mention NAME            --NAME stands in some source or script
#   script PATH NAME        and in this one
#   target NAME             a program that the build makes (test_* and fuzz_* are not asked about)
#   preset NAME             a preset of CMake
#
# Read are: in *.md what stands in backticks or in a fenced block; in manual pages every option,
# what is bold, and the lines of examples; in C sources the lines of help texts that begin with a
# program's name.

function finding(what) {
    print FILENAME ":" FNR ": " what
}

function base(path) {
    sub(/.*\//, "", path)
    return path
}

# "[--ns" -> "--ns", "--json]." -> "--json", "'x'" -> "x"
function bare(word) {
    gsub(/^[("'\[]+|[]"').,:;]+$/, "", word)
    return word
}

# "--name=value" -> name; "" when it is no long option
function option_name(word) {
    if (word !~ /^--[a-z]/)
        return ""
    sub(/^--/, "", word)
    sub(/[^a-z0-9-].*/, "", word)
    return word
}

# Words from `i` on are the arguments of `program`.
function program_line(program, word, i, n,    name, seen) {
    for (; i <= n; i++) {
        if (word[i] ~ /^([|;&<>#]|[0-9]>)/)
            return
        name = option_name(bare(word[i]))
        if (name != "") {
            if ((program, name) in value) {
                if (word[i] !~ /=/)
                    i++
            } else if (!((program, name) in flag)) {
                finding(program " has no option --" name)
            }
        } else if (!seen && word[i] !~ /^-/) {
            seen = 1
            name = bare(word[i])
            if ((program in has_commands) && name ~ /^[a-z][a-z-]*$/ &&
                !((program, name) in command))
                finding(program " has no command '" name "'")
        }
        if (word[i] ~ /[;]$/)
            return
    }
}

function script_line(path, word, i, n,    name) {
    for (; i <= n && word[i] !~ /^[|;&<>#]/; i++) {
        name = option_name(bare(word[i]))
        if (name != "" && !((path, name) in script_option))
            finding(path " has no option --" name)
    }
}

function command_line(text,    n, word, i, at, name, ours) {
    n = split(text, word, /[ \t]+/)
    for (i = 1; i <= n; i++) {
        at = bare(word[i])
        name = base(at)
        if (at ~ /^(\.\/)?build\/[a-z]+\/bin\/[a-z_-]+$/ && !(name in target) &&
            name !~ /^(test|fuzz)_/)
            finding("names " at ", which the build does not make")
        if (name in program) {
            program_line(name, word, i + 1, n)
            ours = 1
        } else if (at in script)
            script_line(at, word, i + 1, n)
        else if (at == "--preset" && !ours && word[i + 1] ~ /^[a-z]+$/ && !(word[i + 1] in preset))
            finding("there is no preset " word[i + 1])
    }
    name = option_name(bare(word[1]))
    if (name != "" && !(name in mention))
        finding("names the option --" name ", which nothing in the tree has")
}

FNR == 1 {
    files++
    kind = FILENAME ~ /\.md$/ ? "md" : FILENAME ~ /\.[ch]$/ ? "c" : FILENAME ~ /\.[1-9]$/ ? "man" : ""
    fenced = example = 0
    page = base(FILENAME)
    sub(/\.[1-9]$/, "", page)
}

files == 1 {
    if ($1 == "program") program[$2] = 1
    else if ($1 == "command") { command[$2, $3] = 1; has_commands[$2] = 1 }
    else if ($1 == "flag") { flag[$2, $3] = 1; mention[$3] = 1 }
    else if ($1 == "value") { value[$2, $3] = 1; mention[$3] = 1 }
    else if ($1 == "mention") mention[$2] = 1
    else if ($1 == "script") { script[$2] = 1; script_option[$2, $3] = 1 }
    else if ($1 == "target") target[$2] = 1
    else if ($1 == "preset") preset[$2] = 1
    next
}

kind == "md" && /^[ \t]*(```|~~~)/ {
    fenced = !fenced
    next
}

kind == "md" && fenced {
    command_line($0)
    next
}

kind == "md" {
    n = split($0, span, "`")
    for (i = 2; i <= n; i += 2)
        command_line(span[i])
    next
}

kind == "man" {
    text = $0
    gsub(/\\-/, "-", text)
    bold = text
    gsub(/\\f[A-Z]/, "", text)
    if (text ~ /^\.(EX|nf)/) example = 1
    if (text ~ /^\.(EE|fi)/) example = 0
    if (example) {
        command_line(text)
        next
    }
    if (text ~ /^\.B[IR]? /)
        command_line(substr(text, index(text, " ") + 1))
    else
        for (n = split(bold, part, /\\fB/); n > 1; n--)
            command_line(substr(part[n], 1, match(part[n] "\\f", /\\f/) - 1))
    n = split(text, part, /[^a-z0-9=-]+/)
    for (i = 1; i <= n; i++) {
        name = option_name(part[i])
        if (name != "" && (page in program) && !((page, name) in flag) && !((page, name) in value))
            finding(page " has no option --" name)
    }
    next
}

kind == "c" && /^[ \t]*"[ \t]+[a-z-]+/ {
    text = $0
    sub(/^[ \t]*"[ \t]+/, "", text)
    sub(/(\\n)?"[^"]*$/, "", text)
    name = text
    sub(/[ \t].*/, "", name)
    if (name in program)
        command_line(text)
}
