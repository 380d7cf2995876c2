# Reads a JUnit file of ctest and prints what ran, one line each:
#   pass COUNT NAME | fail NAME | skip NAME
# A ctest test is a whole program; where it prints cmocka's lines, its single tests are counted,
# as NAME/TEST. A program that fails without saying which test failed (a crash, a time-out) is one
# failure. cmocka writes to stdout and stderr, so the order of its lines is not relied upon. A line
# "[ LEFT OUT ] CASE: REASON" is a case that a device lacks something for: a skip, once a program.

function unescape(text) {
    gsub(/&lt;/, "<", text)
    gsub(/&gt;/, ">", text)
    gsub(/&quot;/, "\"", text)
    gsub(/&apos;/, "'", text)
    gsub(/&amp;/, "\\&", text)
    return text
}

function attribute(line, key) {
    if (!match(line, "[ \t]" key "=\"[^\"]*\"")) return ""
    return unescape(substr(line, RSTART + length(key) + 3, RLENGTH - length(key) - 4))
}

function last_word(line) {
    sub(/^.*\] /, "", line)
    return unescape(line)
}

/<testcase / {
    inside = 1
    name = attribute($0, "name")
    status = attribute($0, "status")
    reason = running = ""
    passes = counted = 0
    split("", failed)
    split("", skipped)
    split("", left)
    failures = skips = cases = 0
}

/<skipped / { reason = attribute($0, "message") }

inside {
    line = $0
    sub(/^.*<system-out>/, "", line)
    if (line ~ /\[ RUN      \] /) running = last_word(line)
    else if (line ~ /\[       OK \] /) { passes++; running = "" }
    else if (line ~ /\[  FAILED  \] [0-9]+ test\(s\)/) counted += $4
    else if (line ~ /\[  FAILED  \] /) {
        one = last_word(line)
        running = ""
        if (!(one in failed)) { failed[one]; failures++ }
    }
    else if (line ~ /^\[ LEFT OUT \] /) {
        one = last_word(line)
        if (!(one in left)) { left[one]; cases++ }
    }
    else if (line ~ /\[  SKIPPED \] [0-9]+ test\(s\)/) next
    else if (line ~ /\[  SKIPPED \] /) {
        one = last_word(line)
        running = ""
        if (!(one in skipped)) { skipped[one]; skips++ }
    }
}

/<\/testcase>/ {
    inside = 0
    for (one in failed) print "fail " name "/" one
    for (; failures < counted; failures++) print "fail " name
    if (status == "fail" && failures == 0) {
        print "fail " name (running != "" ? "/" running : "")
        failures = 1
    }
    if (status == "notrun" && reason !~ /^SKIP_/) print "fail " name " (" reason ")"
    if (status == "disabled" || (status == "notrun" && reason ~ /^SKIP_/)) print "skip " name
    for (one in skipped) print "skip " name "/" one
    for (one in left) print "skip " name "/" one
    if (status == "run" && passes + failures + skips + cases == 0) passes = 1
    if (passes > 0) print "pass " passes " " name
}
