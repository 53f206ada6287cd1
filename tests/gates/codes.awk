# SPDX-License-Identifier: Apache-2.0
# Findings about numbers and names that must be unique, one line each: "rule file:line: what".
#
#   unique-magic  two constants *_MAGIC have one value, or one of them is defined twice
#   unique-code   two enumerators of one named enum are given one value; a table #define NAME(X) has two
#                 rows with one number or one name
# An alias written as a name (LAST = SECOND) is not meant.

function strip(text) {
    gsub(/\/\*[^*]*\*\//, "", text)
    sub(/\/\*.*/, "", text)
    sub(/\/\/.*/, "", text)
    gsub(/^[ \t]+|[ \t]+$/, "", text)
    return text
}

# 0X1fULL, UINT64_C(0x1f) -> 31; "" when it is no number. More than eight hexadecimal digits stay.
function number(text,    value, i) {
    gsub(/[ \t};]/, "", text)
    sub(/^U?INT[0-9]+_C\(/, "", text)
    sub(/\)$/, "", text)
    text = tolower(text)
    if (text !~ /^-?(0x[0-9a-f]+|[0-9]+)[ul]*$/)
        return ""
    sub(/[ul]+$/, "", text)
    if (text !~ /^0x/ || length(text) > 10)
        return text
    for (i = 3; i <= length(text); i++)
        value = 16 * value + index("123456789abcdef", substr(text, i, 1))
    return value + 0 ""
}

function finding(rule, what) {
    print rule " " FILENAME ":" FNR ": " what
}

function magic(name, value,    plain) {
    plain = number(value)
    value = plain != "" ? plain : value
    if (name in magic_name)
        finding("unique-magic", name " is defined at " magic_name[name] " too")
    else if (value in magic_value)
        finding("unique-magic", name " has the value " value " of " magic_value[value])
    magic_name[name] = FILENAME ":" FNR
    magic_value[value] = name
}

# One "NAME = value" of the enum that is being read.
function enumerator(text,    part, value) {
    if (split(text, part, "=") != 2)
        return
    value = number(part[2])
    gsub(/[ \t{]/, "", part[1])
    if (value == "")
        return
    if (value in enum_value)
        finding("unique-code", part[1] " has the value " value " of " enum_value[value])
    enum_value[value] = part[1]
}

function enum_text(text,    n, part, i) {
    n = split(text, part, ",")
    for (i = 1; i <= n; i++)
        enumerator(part[i])
}

# Rows X(a, b, ...) of the table that is being read: a name, or a number or a metric's kind and a
# name.
function row(text,    n, part, i, value) {
    n = split(text, part, ",")
    for (i = 1; i <= n && i <= 2; i++) {
        value = part[i]
        gsub(/[ \t]/, "", value)
        sub(/\).*/, "", value)
        if (value == "" || value ~ /"/)
            return
        if (value ~ /^(COUNTER|GAUGE|HISTO)$/)
            continue
        if ((i, value) in table_value)
            finding("unique-code", table " has two rows with " value)
        table_value[i, value] = 1
        if (number(value) == "")
            return
    }
}

function table_rows(text,    start) {
    text = " " text
    while (match(text, "[^A-Za-z0-9_]" row_name "\\(")) {
        start = RSTART + RLENGTH
        text = substr(text, start)
        row(text)
        text = " " text
    }
}

FNR == 1 {
    in_enum = 0
    table = ""
}

/^#[ \t]*define[ \t]+[A-Z0-9_]*_MAGIC[ \t]/ {
    text = strip($0)
    sub(/^#[ \t]*define[ \t]+/, "", text)
    name = text
    sub(/[ \t].*/, "", name)
    sub(/^[A-Z0-9_]+[ \t]+/, "", text)
    magic(name, text)
}

/^#[ \t]*define[ \t]+[A-Za-z0-9_]+\([A-Za-z_]+\).*\\$/ {
    table = $0
    sub(/^#[ \t]*define[ \t]+/, "", table)
    row_name = table
    sub(/\(.*/, "", table)
    sub(/^[^(]*\(/, "", row_name)
    sub(/\).*/, "", row_name)
    split("", table_value)
    next
}

table != "" {
    table_rows($0)
    if ($0 !~ /\\$/)
        table = ""
    next
}

/^#/ { next }

!in_enum && /(^|[^A-Za-z0-9_])enum[ \t]+[A-Za-z0-9_]+[ \t]*\{/ {
    in_enum = 1
    split("", enum_value)
    text = strip($0)
    sub(/.*enum[^{]*\{/, "", text)
    enum_text(text)
    if (text ~ /\}/)
        in_enum = 0
    next
}

in_enum {
    text = strip($0)
    enum_text(text)
    if (text ~ /\}/)
        in_enum = 0
}
