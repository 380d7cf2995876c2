#!/usr/bin/env bash
# What ./test makes of ctest's results: passes, failures, crashes, and skips that are expected or not.
#
#     tests/tools/tally.sh ROOT
set -euo pipefail

tools=$1/tools
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/tests"
ln -s "$tools" "$root/tools"
# shellcheck source=tools/tally.sh
source "$tools/tally.sh"

cat >"$root/tests/expected_skips.txt" <<'TEXT'
# a comment
whole_program           it may
*/one_test              so may it
gpu_op/matmul/wide:*    a case of an op
slow:gpu_op/slow/*      only in one variant
TEXT

# A case: NAME STATUS, and its output on stdin.
case_of() {
    printf '<testcase name="%s" classname="%s" time="1" status="%s">\n' "$1" "$1" "$2"
    printf '\t<system-out>'
    sed 's/&/\&amp;/g; s/</\&lt;/g'
    printf '</system-out>\n</testcase>\n'
}

{
    case_of gpu_op run <<'TEXT'
[ RUN      ] all
[ LEFT OUT ] matmul/wide: array<f16> & more: no f16
[ LEFT OUT ] matmul/wide: array<f16> & more: no f16
[ LEFT OUT ] matmul/wide: other: no f16
[ LEFT OUT ] slow/one: no time
[       OK ] all
TEXT
    case_of plain run <<<'no tests of its own'
    case_of failing fail <<'TEXT'
[ RUN      ] good
[       OK ] good
[ RUN      ] bad
[  FAILED  ] bad
TEXT
    case_of crashing fail <<'TEXT'
[ RUN      ] good
[       OK ] good
[ RUN      ] deadly
TEXT
    case_of any run <<'TEXT'
[ RUN      ] one_test
[  SKIPPED ] one_test
[ RUN      ] another
[  SKIPPED ] another
TEXT
    printf '<testcase name="whole_program" status="notrun">\n<skipped message="SKIP_RETURN_CODE=77"/>\n</testcase>\n'
} >"$root/results.xml"

count "$root/results.xml" quick
count "$root/results.xml" slow
report >"$root/report"
cat >"$root/wanted" <<'TEXT'

skipped     2  quick: gpu_op/matmul/wide:*  a case of an op
skipped     1  quick: */one_test  so may it
skipped     1  quick: whole_program  it may
skipped     2  slow: gpu_op/matmul/wide:*  a case of an op
skipped     1  slow: slow:gpu_op/slow/*  only in one variant
skipped     1  slow: */one_test  so may it
skipped     1  slow: whole_program  it may
FAILED   quick: gpu_op/slow/one: no time (skipped, and not expected to be)
FAILED   quick: failing/bad
FAILED   quick: crashing/deadly
FAILED   quick: any/another (skipped, and not expected to be)
FAILED   slow: failing/bad
FAILED   slow: crashing/deadly
FAILED   slow: any/another (skipped, and not expected to be)
8 passed, 7 failed, 9 skipped
TEXT
# Several skips of one program come in no order.
diff <(sort "$root/wanted") <(sort "$root/report")
[[ $(tail -n 1 "$root/report") == "$(tail -n 1 "$root/wanted")" ]]
