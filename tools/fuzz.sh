# shellcheck shell=bash disable=SC2154 # test sets root, passed and failures
# Runs the libFuzzer targets of tests/fuzz. Sourced by test, after tools/common.sh and
# tools/build.sh.

FUZZ_TARGETS=(gguf split safetensors hf chat text program)      # those of tests/CMakeLists.txt
FUZZ_INPUT_S=25         # one input may take so long: a template's limit is 2 s, a busy machine slow
FUZZ_MEMORY_MB=2560     # and the process so much
FUZZ_LONGEST=16384      # bytes of an input

# fuzz_target TARGET SECONDS: starts from the seeds, from what earlier runs kept in build/fuzz and
# from the finds in the tree. A find is saved among these, where the ordinary tests replay it.
fuzz_target() {
    local target=$1 budget=$2 rc=0 done_line inputs edges corpus find
    local work=$root/build/fuzz/work/$1 finds=$root/tests/fuzz/finds/$1
    local log=$work/log
    local -a from=("$work/corpus" "$work/seeds")
    rm -rf -- "$work/seeds" "$work/found"
    mkdir -p "$work/corpus" "$work/seeds" "$work/found"
    "$root/build/fuzz/tests/write_seeds" "$target" "$work/seeds"
    if [[ -d $finds ]]; then
        from+=("$finds")
    fi
    env ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1}" \
        UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}" \
        nice "$root/build/fuzz/tests/fuzz_$target" -max_total_time="$budget" \
        -max_len="$FUZZ_LONGEST" -timeout="$FUZZ_INPUT_S" -rss_limit_mb="$FUZZ_MEMORY_MB" \
        -report_slow_units="$FUZZ_INPUT_S" -print_final_stats=1 \
        -artifact_prefix="$work/found/" "${from[@]}" >"$log" 2>&1 </dev/null || rc=$?
    done_line=$(grep -E '^#[0-9]+[[:space:]]+DONE' "$log" | tail -n 1 || true)
    inputs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
    edges=$(grep -oE 'cov: [0-9]+' "$log" | tail -n 1 || true)
    corpus=$(find "$work/corpus" -type f | wc -l)
    printf 'fuzz %-12s %10s inputs in %s s, %s edges reached, %s inputs kept: ' \
        "$target" "${inputs:-0}" "$budget" "${edges#cov: }" "$corpus"
    if ((rc == 0)) && [[ -n $done_line ]]; then
        printf 'nothing found\n'
        passed=$((passed + 1))
        return 0
    fi
    printf 'FAILED\n'
    tail_of "$log" 30
    for find in "$work/found"/*; do
        [[ -e $find ]] || continue
        mkdir -p "$finds"
        cp -- "$find" "$finds/"
        failures+=("fuzz $target: tests/fuzz/finds/$target/${find##*/}")
    done
    if [[ -z $(ls -A "$work/found") ]]; then
        failures+=("fuzz $target: ended with code $rc, see $log")
    fi
}

# fuzz_all SECONDS: each target for its share, ten seconds at least.
fuzz_all() {
    local share=$(($1 / ${#FUZZ_TARGETS[@]})) target
    if ((share < 10)); then
        share=10
    fi
    if ! build_preset fuzz fuzz; then
        failures+=("build: fuzz")
        return 0
    fi
    for target in "${FUZZ_TARGETS[@]}"; do
        fuzz_target "$target" "$share"
    done
}
