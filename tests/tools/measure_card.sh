#!/usr/bin/env bash
# tools/measure_card.sh with a program that does nothing: every part runs once, keeps what it printed,
# and a failure is told and counted.
#
#     tests/tools/measure_card.sh ROOT
set -euo pipefail

root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "measure_card: $*"
    failed=1
}

cat >"$work/temper" <<'FAKE'
#!/usr/bin/env bash
echo "temper $*" >>"$(dirname "$0")/log"
[[ " $* " != *" ${REFUSED:-none} "* ]] || { echo "temper: no"; exit 3; }
echo "first line"
echo "did $1 ${2:-}"
FAKE
chmod +x "$work/temper"
tool=$root/tools/measure_card.sh

parts=$("$tool" --list | wc -l)
((parts >= 20)) || fail "$parts parts are listed"
[[ ! -e $work/log ]] || fail "--list ran something"

"$tool" --temper "$work/temper" "$work/all" >"$work/out" || fail "ended with $?"
[[ $(wc -l <"$work/log") == "$parts" ]] || fail "of $parts parts $(wc -l <"$work/log") ran"
[[ $(find "$work/all" -name '*.txt' | wc -l) == "$parts" ]] || fail "not every part is kept"
[[ $(cat "$work/all/right.txt") == $'first line\ndid kernels test' ]] || fail "right.txt is wrong"
[[ $(grep -c 'did ' "$work/out") == "$parts" ]] || fail "not every part is told"
cut -d ' ' -f 2- "$work/log" >"$work/ran"
"$tool" --list | sed 's/^[^ ]* *temper //' | diff - "$work/ran" || fail "others ran than were listed"

rm "$work/log"
"$tool" --temper "$work/temper" --only 'lossy-*' "$work/some" >/dev/null || fail "ended with $?"
[[ $(wc -l <"$work/log") == 3 ]] || fail "--only ran $(wc -l <"$work/log") parts"

rc=0
REFUSED=int8 "$tool" --temper "$work/temper" --only 'lossy-*' "$work/bad" \
    >"$work/out" 2>"$work/err" || rc=$?
((rc == 1)) || fail "a failure ended with $rc"
grep -q 'lossy-int8 .*FAILED with code 3' "$work/out" || fail "not told: $(cat "$work/out")"
grep -q '1 parts failed' "$work/err" || fail "not counted: $(cat "$work/err")"
[[ -s $work/bad/lossy-f16-sums.txt ]] || fail "what came after a failure did not run"

for wrong in '' '--fast' "$work/a $work/b"; do
    rc=0
    # shellcheck disable=SC2086 # words are meant
    "$tool" --temper "$work/temper" $wrong >/dev/null 2>"$work/err" || rc=$?
    if ((rc != 1)) || [[ ! -s $work/err ]]; then fail "\"$wrong\" ended with $rc"; fi
done
"$tool" --help | grep -q '^usage: ' || fail "--help has no usage"

exit "$failed"
