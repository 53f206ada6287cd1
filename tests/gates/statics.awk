# SPDX-License-Identifier: Apache-2.0
# Static functions of C sources, for lint.sh: "name file line" of each declaration. A declaration
# begins in the first column and ends at "{", ";" or "=". Its type may stand on a line of its own;
# attributes, and macros that are called like functions, may stand anywhere in it.

# `text` without what `pattern` finds, which ends with a bracket, and all up to the one that closes it.
function without(text, pattern,    at, depth, character) {
    while (match(text, pattern)) {
        at = RSTART + RLENGTH
        for (depth = 1; depth > 0 && at <= length(text); at++) {
            character = substr(text, at, 1)
            depth += (character == "(") - (character == ")")
        }
        text = substr(text, 1, RSTART - 1) " " substr(text, at)
    }
    return text
}

function declared(text,    name) {
    text = without(text, "(__[a-z]+(_[a-z]+)*_*|_Atomic|_Alignas)[ ]*[(]")
    text = without(text, "[A-Z][A-Z0-9_]+[ ]*[(]")
    if (text !~ /^([^(]*[ ])?static[ ]/)
        return
    if (match(text, /^[^(]*[(][ ]*[*]/)) { # a variable, or a function that returns a function
        if (!match(text, /[(][ ]*[*]+[ ]*(const[ ]+)?[a-z_][a-z0-9_]*[ ]*[(]/))
            return
        name = substr(text, RSTART + 1, RLENGTH - 2)
    } else if (match(text, /[A-Za-z_][A-Za-z0-9_]*[ ]*[(]/)) {
        name = substr(text, RSTART, RLENGTH - 1)
    } else {
        return
    }
    gsub(/[*]|const[ ]/, "", name)
    gsub(/[ ]/, "", name)
    print name, FILENAME, line
}

FNR == 1 { head = ""; skipping = 0 }
skipping || /^#/ { skipping = /\\$/; next } # the preprocessor, with the lines that it goes on
head == "" && !/^[A-Za-z_]/ { next }
{
    if (head == "")
        line = FNR
    gsub(/\/\*[^*]*\*\//, " ")
    head = head " " $0
    if (match(head, /[{;=]/)) {
        declared(substr(head, 2, RSTART - 2))
        head = ""
    }
}
