#!/usr/bin/env bash
# tools/peer.sh and tools/bench_keep.sh with programs that print what they are told to: turns,
# medians, ratios, and every failure.
#
#     tests/tools/peer.sh ROOT
set -euo pipefail

root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

fail() {
    echo "peer: $*"
    failed=1
}

# has FILE TEXT
has() { grep -qF -- "$2" "$1" || fail "\"$2\" is not in: $(cat "$1")"; }

# Both log their arguments, and give other speeds each turn: temper 100, 300, 200 and so on.
cat >"$work/temper" <<'FAKE'
#!/usr/bin/env bash
here=$(dirname "$0")
echo "temper $*" >>"$here/log"
turn=$(grep -c '^temper bench .*csv' "$here/log" || true)
[[ ! -e $here/temper-fails ]] || { echo "temper bench: no" >&2; exit 1; }
case " $* " in
    *' --write '*)
        while [[ $1 != --write ]]; do shift; done
        echo GGUF >"$2"
        ;;
    *' -o json '*) echo '[{"test":"pp8","share":0.5},{"test":"tg4"}]' ;;
    *)
        speeds=(0 100 300 200)
        echo 'test,depth,tokens_per_second,stddev'
        echo "pp8,0,${speeds[turn]},1"
        echo "tg4,16,${speeds[turn]}.5,1"
        echo 'load,0,,,5.0'
        ;;
esac
FAKE
cat >"$work/llama" <<'FAKE'
#!/usr/bin/env bash
here=$(dirname "$0")
echo "llama $*" >>"$here/log"
echo 'load_backend: loaded' >&2
[[ ! -e $here/llama-fails ]] || { echo "no such model" >&2; exit 3; }
[[ ! -e $here/llama-silent ]] || exit 0
echo '{"build_commit": "x", "n_prompt": 8, "n_gen": 0, "n_depth": 0, "avg_ns": 1, "avg_ts": 50.000000, "samples_ts": [ 7 ]}'
[[ -e $here/llama-short ]] ||
    echo '{"build_commit": "x", "n_prompt": 0, "n_gen": 4, "n_depth": 16, "avg_ts": 1.0e2, "stddev_ts": 3}'
FAKE
chmod +x "$work/temper" "$work/llama"
echo GGUF >"$work/model.gguf"

peer() {
    rm -f "$work/log"
    "$root/tools/peer.sh" --temper "$work/temper" --llama-bench "$work/llama" "$@" \
        >"$work/out" 2>"$work/err"
}

# Three turns of each, one after the other; the median of 100, 300, 200 is 200.
peer "$work/model.gguf" -p 8 -n 4 -d 0,16 -r 2 --turns 3 --llama-args "-ngl 7" \
    --temper-args "--rows 16" || fail "peer: $(cat "$work/err")"
has "$work/out" '| pp8 | 0 | 200.0 | 50.0 | 4.00 |'
has "$work/out" '| tg4 | 16 | 200.5 | 100.0 | 2.00 |'
[[ $(grep -c '^|' "$work/out") -eq 4 ]] || fail "rows: $(cat "$work/out")"
[[ $(sed 's/ .*//' "$work/log" | tr '\n' ' ') == 'temper llama temper llama temper llama ' ]] ||
    fail "turns: $(cat "$work/log")"
has "$work/log" "temper bench $work/model.gguf -p 8 -n 4 -d 0,16 -r 2 -o csv --rows 16"
has "$work/log" "llama -m $work/model.gguf -p 8 -n 4 -d 0,16 -r 2 -o jsonl -ngl 7"

# A shape is written once, and both get the file.
peer --shape llama-1b --type Q8_0 --turns 1 || fail "peer: $(cat "$work/err")"
has "$work/log" 'temper bench --shape llama-1b --type Q8_0 --write '
[[ $(grep -c 'llama-1b.gguf -p 512 -n 128 -d 0' "$work/log") -eq 2 ]] || fail "$(cat "$work/log")"

# refuses TEXT ARGUMENT...
refuses() {
    local text=$1
    shift
    if peer "$@"; then fail "peer $* succeeded"; fi
    [[ ! -s $work/out ]] || [[ $text == 'only one'* ]] || fail "peer $* printed $(cat "$work/out")"
    has "$work/err" "$text"
}

refuses 'no model' -p 8
refuses 'use one of them' "$work/model.gguf" --shape llama-1b
refuses 'unknown option --fast' "$work/model.gguf" --fast
refuses '--turns needs a value' "$work/model.gguf" --turns
refuses '--turns is 0' "$work/model.gguf" --turns 0
refuses 'nowhere' "$work/model.gguf" --llama-bench "$work/nowhere"
refuses 'cannot be read' "$work/none.gguf"
touch "$work/llama-fails"
refuses 'no such model' "$work/model.gguf"
has "$work/err" 'llama failed'
rm "$work/llama-fails"
touch "$work/llama-silent"
refuses 'llama printed no speeds' "$work/model.gguf"
rm "$work/llama-silent"
touch "$work/llama-short"
refuses 'only one of the two ran: tg4@16' "$work/model.gguf" --turns 1
rm "$work/llama-short"
touch "$work/temper-fails"
refuses 'temper failed' "$work/model.gguf"
rm "$work/temper-fails"

# Results are kept whole, with the arguments as they were, or not at all.
keep() {
    TEMPER=$work/temper BENCH_FOLDER=$work/kept "$root/tools/bench_keep.sh" "$@" >"$work/out" \
        2>"$work/err"
}
keep some-card 'a "model".gguf' -p 8 || fail "keep: $(cat "$work/err")"
has "$work/kept/some-card.json" '"arguments": ["a \"model\".gguf", "-p", "8"],'
has "$work/kept/some-card.json" '"commit": "'
has "$work/kept/some-card.json" '  {"test":"pp8","share":0.5},'
has "$work/kept/some-card.json" '  {"test":"tg4"}'
touch "$work/temper-fails"
if keep other -p 8; then fail "keep succeeded without results"; fi
has "$work/err" 'temper bench failed'
[[ $(ls -A "$work/kept") == some-card.json ]] || fail "left over: $(ls -A "$work/kept")"
if keep ../up; then fail "keep took a path for a name"; fi

exit $failed
