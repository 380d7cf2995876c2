#!/usr/bin/env bash
# Everything that SPEED.md tells of a card, in one run: first whether the kernels are right there, then
# how fast they and the models are.
set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
# shellcheck source=tools/common.sh
source "$root/tools/common.sh"

usage() {
    cat <<'TEXT'
usage: tools/measure_card.sh [OPTIONS] FOLDER

Runs `temper kernels test`, `kernels bench` and `bench` on the GPU and writes FOLDER/NAME.txt for each
part, a line a part to the terminal. Models are random weights of known shapes: no file is needed.
  --temper PATH   default build/release/temper
  --only PATTERN  parts whose name matches the shell pattern: 'right*', 'lossy-*'
  --list          the parts and their commands, and nothing is run
Parts: right* kernels against double precision; kernel-* single kernels; the others whole models.
Some eight minutes on one H200. Exit code 0 when every part ended well.
TEXT
}

temper=$root/build/release/temper only='*' list=0 folder=''
while (($# > 0)); do
    case $1 in
        --help | -h)
            usage
            exit 0
            ;;
        --list) list=1 ;;
        --temper | --only)
            (($# > 1)) || die "$1 needs a value"
            if [[ $1 == --temper ]]; then temper=$2; else only=$2; fi
            shift
            ;;
        -*) die "unknown option $1" "tools/measure_card.sh --help lists them" ;;
        *)
            [[ -z $folder ]] || die "two folders: $folder and $1"
            folder=$1
            ;;
    esac
    shift
done
if ((!list)); then
    [[ -n $folder ]] || die "no folder was named" "tools/measure_card.sh --help"
    [[ -x $temper ]] || die "temper was not found at $temper" "build it first"
    mkdir -p -- "$folder"
fi

failed=0

# part NAME SECONDS TEMPER-ARGUMENT...
part() {
    local name=$1 limit=$2 rc=0 begin=$SECONDS
    shift 2
    # shellcheck disable=SC2053 # a pattern on the right is meant
    [[ $name == $only ]] || return 0
    if ((list)); then
        printf '%-16s temper %s\n' "$name" "$*"
        return 0
    fi
    timeout -k 5 "$limit" "$temper" "$@" >"$folder/$name.txt" 2>&1 </dev/null || rc=$?
    printf '%-16s %3d s  %s\n' "$name" $((SECONDS - begin)) \
        "$( ((rc == 0)) && tail -n 1 "$folder/$name.txt" || printf 'FAILED with code %d' "$rc")"
    ((rc == 0)) || failed=$((failed + 1))
}

part right 150 kernels test --guard
part right-robust 150 kernels test --robust
part right-heavy 150 kernels test --guard --heavy 'attention/*'

for rows in 1,4096,4095 1,512,127 512,512,0 2048,2048,0; do
    part "kernel-attention-${rows//,/-}" 60 kernels bench --heavy "attention/*32,8,64,$rows"
done

part kernel-products 90 kernels bench --heavy 'matmul/gate_proj' 'matmul/*x2048x8192*'

part choices 60 kernels list --shape 512,2048,2048,Q4_0
part llama-1b 90 bench --shape llama-1b -p 512,2048 -n 128 --profile --fresh
part depth 90 bench --shape llama-1b -p 0 -n 64 -d 0,4096,8192
part depth-f16 90 bench --shape llama-1b -p 512,2048 -n 64 -d 0,4096,8192 --kv f16
part depth-q8 90 bench --shape llama-1b -p 0 -n 64 -d 0,4096 --kv q8
part rows-512 60 bench --shape llama-1b -p 2048 -n 0 --rows 512
part smollm2 60 bench --shape smollm2-135m -p 512,2048 -n 128 --profile
part smollm2-exact 60 bench --shape smollm2-135m -p 0 -n 128 --exact
part batch 90 bench --shape llama-1b --batch 16
part exact 60 bench --shape llama-1b -p 512 -n 64 --exact
for type in Q4_K Q6_K Q8_0 F16; do
    part "type-${type,,}" 60 bench --shape llama-1b --type "$type" -p 512 -n 64
done
for lossy in int8 f16-block f16-sums; do
    part "lossy-$lossy" 60 bench --shape llama-1b -p 512 -n 64 --lossy "$lossy"
done
part load 90 bench --shape llama-1b -p 0 -n 0 --load

((failed == 0)) || die "$failed parts failed" "what they printed is in $folder"
