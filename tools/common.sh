# shellcheck shell=bash
# What the set-up, run and test scripts share: messages, the cache folder, temporary files.
# Sourced, never run. Messages go to stderr, because stdout belongs to the program's answer.

say() {
    printf 'temper: %s\n' "$*" >&2
}

# die MESSAGE [WHAT-TO-DO...]: one line says what failed, the following ones what to do about it.
die() {
    printf 'temper: error: %s\n' "$1" >&2
    shift
    if (($# > 0)); then
        printf 'temper:   %s\n' "$@" >&2
    fi
    exit 1
}

# Prints the folder that holds downloaded parts and models; the program looks in the same place.
cache_folder() {
    if [[ -n ${TEMPER_CACHE:-} ]]; then
        # Builds run in another folder, so a relative name must be fixed now.
        case $TEMPER_CACHE in
            /*) printf '%s\n' "${TEMPER_CACHE%/}" ;;
            *) printf '%s\n' "$PWD/${TEMPER_CACHE%/}" ;;
        esac
    elif [[ ${XDG_CACHE_HOME:-} == /* ]]; then
        printf '%s\n' "$XDG_CACHE_HOME/temper"
    elif [[ -n ${HOME:-} ]]; then
        printf '%s\n' "$HOME/.cache/temper"
    else
        die "neither TEMPER_CACHE nor HOME is set" "set TEMPER_CACHE to a folder for downloaded files"
    fi
}

# tail_of FILE [LINES]: the end of a log, indented, for the message that follows.
tail_of() {
    tail -n "${2:-20}" -- "$1" | sed 's/^/    /' >&2
}
