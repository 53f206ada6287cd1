# SPDX-License-Identifier: Apache-2.0
# For architecture.sh: reads a document, and the sources that it names below the directory `root`.
# Prints what it finds wrong, and at the end "functions N" with how many it has looked at.
#
# In the document a name is `word()`; the first path behind it on its line is its file. Names are
# joined by "->" (the one calls the other) or "=>" (it gets there through a table, a queue, a socket
# or another thread). A line that begins with an arrow goes on from the last name of the line
# before.

function say(what) {
    print FILENAME ":" FNR ": " what
}

# The functions of a file, with their bodies. Their style: a brace alone opens one and closes it.
function load(file,    path, line, head, name, text, in_body, ok) {
    if (file in loaded)
        return loaded[file]
    path = root "/" file
    loaded[file] = 0
    while ((ok = (getline line <path)) > 0) {
        loaded[file] = 1
        if (in_body) {
            text = text line "\n"
            if (line == "}") {
                body[file, name] = body[file, name] text
                in_body = 0
            }
        } else if (line == "{" && head ~ /\(/) {
            name = head
            sub(/[ \t]*\(.*/, "", name)
            sub(/.*[^A-Za-z0-9_]/, "", name)
            defined[file, name] = 1
            text = ""
            in_body = 1
            head = ""
        } else if (line ~ /^[A-Za-z_]/) {
            head = line ~ /;[ \t]*$/ ? "" : line
        } else if (line ~ /;[ \t]*$/ || line == "") {
            head = ""
        } else {
            head = head " " line
        }
    }
    close(path)
    return loaded[file]
}

# The names of a line that no path has followed yet get this one.
function bind(file,    i) {
    for (i = first_unbound; i <= names; i++)
        of[i] = file
    first_unbound = names + 1
}

function check_call(from, from_file, to) {
    if (!((from_file, from) in defined))
        return # which has been said
    if (body[from_file, from] !~ "(^|[^A-Za-z0-9_.>])" to "\\(")
        say(from "() of " from_file " does not call " to "(): \"=>\" says that it gets there otherwise")
}

{
    rest = $0
    names = 0
    first_unbound = 1
    while (match(rest, /[a-z_][a-z0-9_]*\(\)|->|=>|[a-z][a-z0-9_.]*(\/[A-Za-z0-9_.*-]+)+\/?/)) {
        word = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if (word == "->" || word == "=>") {
            arrow[names + 1] = word
        } else if (word ~ /\(\)$/) {
            names++
            name[names] = substr(word, 1, length(word) - 2)
            if (!(names in arrow))
                arrow[names] = ""
        } else {
            sub(/\.$/, "", word)
            bind(word)
        }
    }
    for (i = 1; i <= names; i++) {
        file = of[i]
        count++
        if (file == "")
            say(name[i] "() has no file beside it")
        else if (!load(file))
            say("names " file ", which is not in the tree")
        else if (!((file, name[i]) in defined))
            say(name[i] "() is not defined in " file)
        if (file != "" && arrow[i] == "->" && last != "")
            check_call(last, last_file, name[i])
        last = name[i]
        last_file = file
    }
    if (names == 0 || arrow[names + 1] != "")
        last = names == 0 ? "" : last
    for (i = 0; i <= names + 1; i++) {
        delete arrow[i]
        delete of[i]
    }
}

END {
    print "functions " (count + 0)
}
