# SPDX-License-Identifier: Apache-2.0
# Static functions of C sources, for lint.sh: "name file line" of each declaration. A declaration
# stands outside all braces and ends at "{", ";" or "=". Its type may stand on a line of its own;
# comments, attributes, and macros that are called like functions, may stand anywhere in it.

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

# The line without comments; of strings and characters only the quotes.
function code(text,    out, token) {
    for (out = ""; text != "";) {
        if (comment) {
            if (!(token = index(text, "*/")))
                return out
            text = substr(text, token + 2)
            comment = 0
        }
        if (!match(text, /"(\\.|[^"\\])*"|'(\\.|[^'\\])+'|\/\*|\/\//))
            return out text
        token = substr(text, RSTART, 2)
        out = out substr(text, 1, RSTART - 1) (token ~ /^\// ? " " : "\"\"")
        text = substr(text, RSTART + RLENGTH)
        if (token == "//")
            return out
        comment = token == "/*"
    }
    return out
}

function declared(text,    name) {
    gsub(/\[\[[^]]*\]\]/, " ", text)
    sub(/^[ \t]+/, "", text)
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

# `text` of a line: declarations outside braces, and how deep it ends.
function scan(text,    at, character) {
    for (; match(text, depth ? "[{}]" : "[{};=]"); text = substr(text, at + 1)) {
        at = RSTART
        character = substr(text, at, 1)
        if (depth) {
            depth += character == "{" ? 1 : -1
            continue
        }
        if (head == "")
            line = FNR
        head = head " " substr(text, 1, at - 1)
        # What extern "C" has in braces is outside of all others.
        depth = character == "{" && head !~ /^[ ]*extern[ ]+""[ ]*$/
        if (character != "}")
            declared(head)
        head = ""
    }
    if (!depth && text ~ /[^ \t]/) {
        if (head == "")
            line = FNR
        head = head " " text
    }
}

FNR == 1 { head = ""; skipping = comment = depth = 0 }
skipping || (!comment && /^[ \t]*#/) { # the preprocessor, with the lines that it goes on
    skipping = /\\$/
    code($0)
    next
}
{
    text = code($0)
    # An #if may open a brace twice. In the first column a function ends, or the next one begins.
    if (text ~ /^}/ && depth)
        depth = 1
    else if (text ~ /^static / && depth)
        depth = 0
    scan(text)
}
