# SPDX-License-Identifier: Apache-2.0
# Sentences of Markdown with more than MOST words, for lint.sh. Not read: fenced and indented blocks,
# tables. A heading, an item of a list and a paragraph begin a sentence. Code in backticks is one word.

function judge(    i, n, part, count, of, j, word, text, first) {
    gsub(/`[^`]*`/, "code", all)
    gsub(/\]\([^)]*\)/, "]", all)
    n = split(all, part, /[.!?][*_)"]*[ ]+/)
    for (i = 1; i <= n; i++) {
        count = 0
        text = ""
        of = split(part[i], word, /[ ]+/)
        for (j = 1; j <= of; j++)
            if (word[j] ~ /[[:alnum:]]/ && ++count <= 6)
                text = text " " word[j]
        if (count > MOST)
            print file ":" line ": " count " words, at most " MOST ", in the sentence" text " ..."
    }
    all = ""
}

function begin(text) {
    judge()
    line = FNR
    all = text
}

FNR == 1 { judge(); file = FILENAME; fenced = 0; open = 0 }
/^ *(```|~~~)/ { judge(); fenced = !fenced; open = 0; next }
fenced { next }
/^[ ]*$/ { judge(); open = 0; next }
/^ *\|/ { judge(); open = 0; next }
!open && /^    / { next }
/^#/ { begin($0); judge(); open = 0; next }
/^ *([-*+]|[0-9]+[.)]) / { sub(/^ *([-*+]|[0-9]+[.)]) /, ""); begin($0); open = 1; next }
!open { begin($0); open = 1; next }
{ all = all " " $0 }
END { judge() }
