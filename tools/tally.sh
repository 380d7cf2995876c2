# shellcheck shell=bash disable=SC2154 # test sets root
# Counts what ran, what failed and what was skipped, and tells it. Sourced by test, which adds
# failures of its own.

passed=0
failures=()
skipped=0
skips=()                # what was skipped, by the line of the list that expects it, in order
declare -A skip_counts=()

# find_skip NAME TITLE: sets `expected` to the first line of the list whose pattern matches, or to
# nothing. A line is a pattern, spaces, and the reason. A pattern is one of the program, of the
# single test, of program/test, or of any of them behind TITLE: and a colon.
find_skip() {
    local list=$root/tests/expected_skips.txt pattern reason name
    expected=''
    [[ -r $list ]] || return 0
    while read -r pattern reason; do
        if [[ -z $pattern || $pattern == '#'* ]]; then
            continue
        fi
        for name in "$1" "${1##*/}" "${1%%/*}" "$2:$1"; do
            # shellcheck disable=SC2053 # a pattern on the right is meant
            if [[ $name == $pattern ]]; then
                expected="$pattern  $reason"
                return 0
            fi
        done
    done <"$list"
}

# count RESULTS PREFIX: adds what tools/count_tests.awk reads from ctest's result file.
count() {
    local kind rest expected
    while read -r kind rest; do
        case $kind in
            pass) passed=$((passed + ${rest%% *})) ;;
            fail) failures+=("$2: $rest") ;;
            skip)
                find_skip "$rest" "$2"
                if [[ -z $expected ]]; then
                    failures+=("$2: $rest (skipped, and not expected to be)")
                    continue
                fi
                skipped=$((skipped + 1))
                if [[ -z ${skip_counts["$2: $expected"]:-} ]]; then
                    skips+=("$2: $expected")
                fi
                skip_counts["$2: $expected"]=$((${skip_counts["$2: $expected"]:-0} + 1))
                ;;
        esac
    done < <(awk -f "$root/tools/count_tests.awk" "$1")
}

# report: the skips, the failures, and the sum as the last line.
report() {
    local name
    printf '\n'
    for name in ${skips[@]+"${skips[@]}"}; do
        printf 'skipped  %4d  %s\n' "${skip_counts[$name]}" "$name"
    done
    for name in ${failures[@]+"${failures[@]}"}; do
        printf 'FAILED   %s\n' "$name"
    done
    local sum=''
    if ((skipped > 0)); then
        sum=", $skipped skipped"
    fi
    printf '%d passed, %d failed%s\n' "$passed" "${#failures[@]}" "$sum"
}
