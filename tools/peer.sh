#!/usr/bin/env bash
# Measures temper and llama.cpp side by side on one model: the same file, the same lengths, in turns.
set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
# shellcheck source=tools/common.sh
source "$root/tools/common.sh"

usage() {
    cat <<'TEXT'
usage: tools/peer.sh [OPTIONS] (MODEL.gguf | --shape NAME)

Runs `temper bench` and llama.cpp's llama-bench in turns and prints the ratios of their speeds.
  --shape NAME        random weights of a known shape, written to a file for both
  --type TYPE         their type: Q4_0 (default), Q8_0, F16, F32
  -p N,N -n N,N -d N,N  prompts, answers and depths (default 512, 128 and 0)
  -r N                runs that count, of each turn (default 3)
  --turns N           turns of each program (default 3); a speed is the median of its turns
  --temper PATH       default build/release/temper
  --llama-bench PATH  default $LLAMA_BENCH, else llama-bench in PATH (tools/peer_build.sh makes one)
  --temper-args TEXT  more options for temper bench
  --llama-args TEXT   more options for llama-bench (default "-ngl 99")
Exit code 0 when both ran every time.
TEXT
}

shape='' type=Q4_0 prompts=512 tokens=128 depths=0 repeats=3 turns=3 model=''
temper=$root/build/release/temper
llama=${LLAMA_BENCH:-}
temper_args=() llama_args=(-ngl 99)

while (($# > 0)); do
    case $1 in
        --help | -h)
            usage
            exit 0
            ;;
        --shape | --type | -p | -n | -d | -r | --turns | --temper | --llama-bench | --temper-args | \
            --llama-args)
            (($# > 1)) || die "$1 needs a value"
            case $1 in
                --shape) shape=$2 ;;
                --type) type=$2 ;;
                -p) prompts=$2 ;;
                -n) tokens=$2 ;;
                -d) depths=$2 ;;
                -r) repeats=$2 ;;
                --turns) turns=$2 ;;
                --temper) temper=$2 ;;
                --llama-bench) llama=$2 ;;
                --temper-args) read -r -a temper_args <<<"$2" ;;
                --llama-args) read -r -a llama_args <<<"$2" ;;
            esac
            shift
            ;;
        -*) die "unknown option $1" "tools/peer.sh --help lists them" ;;
        *)
            [[ -z $model ]] || die "two models: $model and $1"
            model=$1
            ;;
    esac
    shift
done

[[ -n $model || -n $shape ]] || die "no model" "name a GGUF file, or a shape with --shape"
[[ -z $model || -z $shape ]] || die "a model and --shape: use one of them"
[[ $turns =~ ^[1-9][0-9]*$ ]] || die "--turns is $turns; it must be a whole number above 0"
[[ -n $llama ]] || llama=$(command -v llama-bench || true)
[[ -n $llama && -x $llama ]] ||
    die "llama-bench was not found${llama:+ at $llama}" \
        "give its path with --llama-bench; tools/peer_build.sh makes one"
[[ -x $temper ]] || die "temper was not found at $temper" "build it, or give its path with --temper"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [[ -n $shape ]]; then
    model=$work/$shape.gguf
    "$temper" bench --shape "$shape" --type "$type" --write "$model" ||
        die "the shape $shape could not be written"
fi
[[ -r $model ]] || die "$model cannot be read"

# Each prints lines "TEST DEPTH TOKENS_PER_SECOND", such as "pp512 0 38300.5".
run_temper() {
    "$temper" bench "$model" -p "$prompts" -n "$tokens" -d "$depths" -r "$repeats" -o csv \
        ${temper_args[@]+"${temper_args[@]}"} >"$work/temper.csv" || return 1
    awk -F, 'NR > 1 && $1 ~ /^(pp|tg)[0-9]+$/ { print $1, $2, $3 }' "$work/temper.csv"
}

run_llama() {
    "$llama" -m "$model" -p "$prompts" -n "$tokens" -d "$depths" -r "$repeats" -o jsonl \
        ${llama_args[@]+"${llama_args[@]}"} >"$work/llama.jsonl" 2>"$work/llama.log" || {
        tail_of "$work/llama.log"
        return 1
    }
    awk '
        function number(name,    at) {
            at = match($0, "\"" name "\": *[0-9.eE+-]+")
            if (at == 0) return 0
            text = substr($0, RSTART, RLENGTH)
            sub(/.*: */, "", text)
            return text + 0
        }
        /^\{/ {
            prompt = number("n_prompt"); answer = number("n_gen")
            if ((prompt > 0) == (answer > 0)) next
            print (prompt > 0 ? "pp" prompt : "tg" answer), number("n_depth"), number("avg_ts")
        }' "$work/llama.jsonl"
}

for ((turn = 1; turn <= turns; turn++)); do
    for program in temper llama; do
        say "turn $turn of $turns: $program"
        "run_$program" >"$work/lines" || die "$program failed"
        [[ -s $work/lines ]] || die "$program printed no speeds"
        sed "s/^/$program /" "$work/lines" >>"$work/all"
    done
done

# PROGRAM TEST DEPTH SPEED, many of each -> the table. The order is that of the first turn.
awk '
    function median(list, count,    i, k, keep) {
        for (i = 2; i <= count; i++) {
            keep = list[i]
            for (k = i - 1; k >= 1 && list[k] > keep; k--) list[k + 1] = list[k]
            list[k + 1] = keep
        }
        return count % 2 ? list[(count + 1) / 2] : (list[count / 2] + list[count / 2 + 1]) / 2
    }
    function speed(program, key,    i, list) {
        count = seen[program, key]
        for (i = 1; i <= count; i++) list[i] = value[program, key, i]
        return count ? median(list, count) : 0
    }
    {
        key = $2 " " $3
        if (!(key in known)) { known[key] = 1; keys[++key_count] = key }
        value[$1, key, ++seen[$1, key]] = $4
    }
    END {
        print "| test | depth | temper tok/s | llama.cpp tok/s | ratio |"
        print "|---|---|---|---|---|"
        for (k = 1; k <= key_count; k++) {
            split(keys[k], part, " ")
            ours = speed("temper", keys[k]); theirs = speed("llama", keys[k])
            if (ours == 0 || theirs == 0) { missing = missing " " part[1] "@" part[2]; continue }
            printf "| %s | %s | %.1f | %.1f | %.2f |\n", part[1], part[2], ours, theirs, ours / theirs
        }
        if (missing != "") { print "only one of the two ran:" missing > "/dev/stderr"; exit 1 }
    }' "$work/all"
