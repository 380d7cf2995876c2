#!/bin/sh
# Makes the man page: doc/man/temper.1.in, the version, and what the program says of its commands.
#
#     doc/man/make.sh PROGRAM temper.1.in OUT
set -eu

program=$1
template=$2
out=$3
folder=$(dirname "$0")
text=$(mktemp)
trap 'rm -f "$text"' EXIT

# help ARGUMENT...: roff of what the program says of a command, in $text.
help() {
    "$program" "$@" --help </dev/null | awk -v name="temper $*" -f "$folder/help.awk" >"$text"
}

# Commands of a command: the words that may follow it in its synopsis, each on a line.
commands_of() {
    "$program" "$1" --help </dev/null |
        sed -nE "s/^(usage: |       )temper $1 ([a-z|]+)( .*|)\$/\\2/p" | tr '|' '\n'
}

commands() {
    for command in $("$program" --help </dev/null | sed -nE 's/^  ([a-z]+) .*/\1/p'); do
        help "$command"
        printf '.SS temper %s\n' "$command"
        cat "$text"
        whole=$(cat "$text")
        for sub in $(commands_of "$command"); do
            # Where it has no help of its own, all has been said.
            help "$command" "$sub"
            if [ "$(cat "$text")" != "$whole" ] && [ -s "$text" ]; then
                printf '.SS temper %s %s\n' "$command" "$sub"
                cat "$text"
            fi
        done
    done
}

version=$("$program" --version </dev/null)
while IFS= read -r line; do
    case $line in
        @COMMANDS@) commands ;;
        *@VERSION@*) printf '%s%s%s\n' "${line%%@VERSION@*}" "$version" "${line#*@VERSION@}" ;;
        *) printf '%s\n' "$line" ;;
    esac
done <"$template" >"$out.new"
mv "$out.new" "$out"
