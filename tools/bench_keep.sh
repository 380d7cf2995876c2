#!/usr/bin/env bash
# Runs `temper bench` and keeps its results in bench/, with the commit and the date: bench/README.md.
set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
# shellcheck source=tools/common.sh
source "$root/tools/common.sh"

usage() {
    cat <<'TEXT'
usage: tools/bench_keep.sh NAME [BENCH-ARGUMENT...]

Writes bench/NAME.json: the commit, the date, the arguments, and what
`temper bench BENCH-ARGUMENT... -o json` printed. NAME is letters, digits, dots and dashes, as in
h200-llama-1b. TEMPER names another program than build/release/temper, BENCH_FOLDER another folder.
TEXT
}

case ${1:-} in
    --help | -h)
        usage
        exit 0
        ;;
    '')
        usage >&2
        exit 2
        ;;
esac
name=$1
shift
[[ $name =~ ^[A-Za-z0-9][A-Za-z0-9.-]*$ ]] ||
    die "\"$name\" is no name for a result" "letters, digits, dots and dashes, as in h200-llama-1b"
temper=${TEMPER:-$root/build/release/temper}
folder=${BENCH_FOLDER:-$root/bench}
[[ -x $temper ]] || die "temper was not found at $temper" "build it first"

commit=$(git -C "$root" rev-parse HEAD 2>/dev/null) || commit=unknown
# Files that are not part of the program change no figure.
changed=false
if [[ $commit != unknown && -n $(git -C "$root" status --porcelain -- src apps include 2>/dev/null) ]]; then
    changed=true
fi

# A JSON string of an argument.
quote() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"}
    [[ $text != *[$'\001'-$'\037']* ]] || die "an argument holds control characters"
    printf '"%s"' "$text"
}

arguments=''
for argument in "$@"; do
    arguments+="${arguments:+, }$(quote "$argument")"
done
results=$("$temper" bench "$@" -o json) || die "temper bench failed"
[[ $results == '['*']' ]] || die "temper bench printed no list of results"
mkdir -p "$folder"
partial=$folder/.$name.json.$$
trap 'rm -f "$partial"' EXIT
{
    printf '{"commit": "%s", "changed": %s, "date": "%s",\n' "$commit" "$changed" \
        "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    printf ' "arguments": [%s],\n "results": [\n  ' "$arguments"
    # A result on a line of its own, so that a later one shows what changed.
    results=${results#'['}
    results=${results%']'}
    printf '%s\n' "${results//\},\{/$'},\n  {'}"
    printf ' ]}\n'
} >"$partial"
mv "$partial" "$folder/$name.json"
say "$folder/$name.json"
