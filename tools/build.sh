# shellcheck shell=bash disable=SC2154 # run and test set root
# Configures and builds a CMake preset quietly. Sourced by run and test.

# Tests are configured only where cmocka is: a machine that just runs models needs none.
tests_option() {
    if pkg-config --exists cmocka; then
        printf 'ON\n'
    else
        printf 'OFF\n'
    fi
}

# What the build folder was configured with. Kept in it after success, so that a later call can
# tell without starting CMake whether it must configure again.
configured_with() {
    printf '%s|%s|%s|%s|%s|%s\n' "$root" "$(cache_folder)/parts" "${TEMPER_DAWN:-}" \
        "$(tests_option)" "${CC:-}" "${CFLAGS:-}"
}

show_failure() {
    tail_of "$2" 40
    die "$1 failed" "the whole log: $2"
}

# configure_preset PRESET
configure_preset() {
    local folder=$root/build/$1 log=$root/build/$1-configure.log want found=''
    local -a options=("-DTEMPER_PARTS=$(cache_folder)/parts" "-DTEMPER_TESTS=$(tests_option)")
    if [[ -n ${TEMPER_DAWN:-} ]]; then
        options+=("-DTEMPER_DAWN=$(readlink -f "$TEMPER_DAWN")")
    fi
    want=$(configured_with)
    if [[ -r $folder/.configured ]]; then
        read -r found <"$folder/.configured" || true
    fi
    # CMake itself notices changed CMakeLists.txt files when building, but not changed presets.
    if [[ $found == "$want" && -e $folder/build.ninja && -e $folder/CMakeCache.txt &&
        ! $root/CMakePresets.json -nt $folder/.configured ]]; then
        return 0
    fi
    # A cache of other settings, or of a tree since moved, would contradict the new ones.
    rm -rf -- "$folder/CMakeCache.txt" "$folder/CMakeFiles" "$folder/.configured"
    mkdir -p "$folder"
    (cd "$root" && cmake --preset "$1" "${options[@]}") >"$log" 2>&1 </dev/null ||
        show_failure "configuring the preset $1" "$log"
    printf '%s\n' "$want" >"$folder/.configured"
}

# True when ninja says that there is nothing to do, which is much quicker than asking CMake to build.
up_to_date() {
    local ninja
    ninja=$(command -v ninja || command -v ninja-build) || return 1
    [[ $("$ninja" -C "$root/build/$1" -n "$2" 2>/dev/null) == *'no work to do'* ]]
}

# build_preset PRESET [TARGET]: says so only when there is something to build. A lock keeps two
# calls from building in one folder at a time.
build_preset() {
    local preset=$1 target=${2:-all} log=$root/build/$1-build.log
    mkdir -p "$root/build" || die "cannot write to $root/build"
    (
        if command -v flock >/dev/null; then
            flock 9
        fi
        configure_preset "$preset"
        if ! up_to_date "$preset" "$target"; then
            say "building ($preset)"
            cmake --build "$root/build/$preset" --target "$target" >"$log" 2>&1 </dev/null 9>&- ||
                show_failure "building the preset $preset" "$log"
        fi
    ) 9>"$root/build/.$preset.lock"
}
