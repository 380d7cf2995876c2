#!/bin/sh
# Who may include whom: every #include under src, apps and include is checked against the table
# below.
#
#     tools/check_law.sh [ROOT]
#
# prints each violation as FILE:LINE: REASON; the exit code is 1 if there is one. Includes of one's
# own room and of the public header temper/temper.h are always allowed. Only the gpu room sees
# webgpu.h and what a WebGPU library adds to it; tests and tools may see everything.
set -eu

root=${1:-$(dirname "$0")/..}
cd "$root"

# ROOM: what it may include
law='
src/base:
src/file: base
src/text: file base
src/gpu: base
src/kernels: gpu
src/op: gpu kernels base
src/model: op file gpu base
src/infer: model op text file gpu base
src/train: infer model op text file gpu base
src/serve: base
src/ref: base
src/check: op gpu ref kernels base
apps/cli: serve check base
apps/web:
include/temper:
'

find src apps include -type f \( -name '*.c' -o -name '*.h' \) 2>/dev/null | LC_ALL=C sort |
    LAW=$law awk '
function complain(reason) {
    printf "%s:%d: %s\n", FILENAME, FNR, reason
    bad = 1
}

function check(target,    parts, room) {
    if (target ~ /(^|\/)(webgpu(_cpp)?|wgpu)\.h$/ || target ~ /^webgpu\//) {
        if (home != "src/gpu")
            complain("only src/gpu may include " target)
        return
    }
    if (quote == "<" && target !~ /^temper\//)
        return                              # the system, or a part
    if (target ~ /(^|\/)\.\.?\//) {
        complain(target ": write the path from src, without dots")
        return
    }
    if (target !~ /\//) {
        # A program keeps its own headers beside its sources; a room names itself.
        if (home !~ /^apps\//)
            complain(target ": write the room, as in \"base/" target "\"")
        return
    }
    split(target, parts, "/")
    room = parts[1]
    if (room == "temper") {
        if (target == "temper/temper_train.h" && home !~ /^(src\/train|src\/serve|apps\/.*)$/)
            complain(home " may not include " target)
        else if (home ~ /^src\/(kernels|ref)$/)
            complain(home " may not include " target)
        return
    }
    if (home == "src/" room)
        return
    if (index(" " allowed[home] " ", " " room " ") == 0)
        complain(home " may not include " target " (it may include: " \
                 (allowed[home] == "" ? "nothing" : allowed[home]) ")")
}

BEGIN {
    count = split(ENVIRON["LAW"], lines, "\n")
    for (i = 1; i <= count; i++)
        if ((at = index(lines[i], ":")) > 0) {
            allowed[substr(lines[i], 1, at - 1)] = substr(lines[i], at + 2)
            known[substr(lines[i], 1, at - 1)] = 1
        }
    while ((getline file < "-") > 0)
        ARGV[ARGC++] = file
    if (ARGC == 1) {
        print "no sources found"
        bad = 1
        exit 1
    }
}

FNR == 1 {
    split(FILENAME, path, "/")
    home = path[1] "/" path[2]
    if (!(home in known))
        complain("the room " home " is not in the law")
}

/^[ \t]*#[ \t]*include[ \t]*["<]/ {
    line = $0
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", line)
    quote = substr(line, 1, 1)
    line = substr(line, 2)
    sub(/[">].*/, "", line)
    if (home in known)
        check(line)
}

END { exit bad }
'
