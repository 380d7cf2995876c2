#!/bin/sh
# What a machine can see of the style: lines of code of at most 100 columns, no tabs, no blanks at a line's
# end, files of at most 1000 lines, no notes of unfinished work, no code that is switched off.
#
#     tools/check_style.sh [ROOT]
#
# prints each violation as FILE:LINE: REASON; the exit code is 1 if there is one.
set -eu

root=${1:-$(dirname "$0")/..}
cd "$root"

# Goldens are data, and the templates of lab/ are lists of candidates. Scripts without an ending are
# known by their first line.
{
    find src apps include tests tools -path tests/golden -prune -o \
        -name node_modules -prune -o -type f \( \
        -name '*.[ch]' -o -name '*.wgsl' -o -name '*.sh' -o -name '*.awk' -o -name '*.py' -o \
        -name '*.ts' -o -name '*.js' -o -name '*.mjs' \) -print 2>/dev/null || true
    for script in run test tools/*; do
        case $script in *.*) continue ;; esac
        if [ -f "$script" ] && head -c 2 "$script" | grep -q '^#!'; then echo "$script"; fi
    done
} | LC_ALL=C sort | LC_ALL=C awk '
function complain(line, reason) {
    printf "%s:%d: %s\n", name, line, reason
    bad = 1
}

function finish() {
    if (lines > 1000)
        complain(lines, lines " lines, the limit is 1000")
}

BEGIN {
    # Put together here, so that this file does not accuse itself.
    unfinished = "(^|[^A-Za-z_])(TO" "DO|FIX" "ME|HA" "CK)([^A-Za-z_]|$)"
    off = "^[ \t]*#[ \t]*if[ \t]+" "0[ \t]*(/|$)"
    while ((getline file < "-") > 0)
        ARGV[ARGC++] = file
    if (ARGC == 1) {
        print "no sources found"
        bad = 1
        exit 1
    }
}

FNR == 1 {
    finish()
    name = FILENAME
}

{
    lines = FNR
    text = $0
    columns = length(text) - gsub(/[\200-\277]/, "", text)   # characters, not bytes
    if (columns > 100 && name ~ /\.(c|h|wgsl|ts|js)$/)
        complain(FNR, columns " columns, the limit is 100")
}

/\t/ { complain(FNR, "a tab; indent with spaces, write \\t in texts") }
/[ \r]$/ { complain(FNR, "a blank at the end of the line") }
$0 ~ unfinished { complain(FNR, "unfinished work: do it, or open an issue") }
$0 ~ off { complain(FNR, "code that is switched off: delete it") }

END {
    finish()
    exit bad
}
'
