# Turns what `temper COMMAND --help` prints into roff: synopsis, paragraphs, options.

# Everything that roff would read as its own; hyphens stay hyphens.
function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/)
        text = "\\&" text
    return text
}

function end_synopsis() {
    if (synopsis != "")
        printf "%s\\fB%s\\fR%s\n", (synopses++ ? ".br\n" : ""), escape(name),
            escape(substr(synopsis, length(name) + 1))
    synopsis = ""
}

# The first word of an item is what is typed, what follows stands for a value.
function item(tag, text,    at) {
    at = index(tag, " ")
    print ".TP"
    if (at == 0)
        printf "\\fB%s\\fR\n", escape(tag)
    else
        printf "\\fB%s\\fR \\fI%s\\fR\n", escape(substr(tag, 1, at - 1)), escape(substr(tag, at + 1))
    if (text != "")
        print escape(text)
}

/^usage: / {
    in_usage = 1
    sub(/^usage: /, "       ")
}

in_usage && /^ +[^ ]/ {
    line = $0
    sub(/^ +/, "", line)
    if (index(line, "temper ") == 1) {
        end_synopsis()
        synopsis = line
        # An abbreviated list of several commands has only "temper COMMAND" in common.
        if (index(line, name) != 1)
            name = "temper"
    } else {
        synopsis = synopsis " " line
    }
    next
}

/^$/ {
    end_synopsis()
    in_usage = 0
    pending = 1
    next
}

/^  [^ ]/ {
    line = substr($0, 3)
    tag = line
    text = ""
    if (match(line, /   *[^ ]/)) {
        tag = substr(line, 1, RSTART - 1)
        text = substr(line, RSTART + RLENGTH - 1)
    } else if (substr(line, 25, 1) == " ") {
        # So long that one blank is left between it and the column of the explanations.
        tag = substr(line, 1, 24)
        text = substr(line, 26)
    }
    item(tag, text)
    pending = 0
    items = 1
    next
}

/^ / {
    sub(/^ +/, "")
    print escape($0)
    next
}

{
    if (pending)
        print ".PP"
    pending = 0
    print escape($0)
}

END { end_synopsis() }
