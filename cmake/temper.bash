# Completion of temper in bash. The commands and options are those that --help prints.

_temper_options() {
    "$@" --help 2>/dev/null | sed -nE 's/^  (-[^ ]+).*/\1/p'
}

_temper() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]:-}
    local words=''
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        words="--help --version $("$program" --help 2>/dev/null | sed -nE 's/^  ([a-z]+) .*/\1/p')"
    elif [[ $word == -* ]]; then
        words="--help $(_temper_options "$program" "$command")"
        if ((COMP_CWORD > 2)) && [[ ${COMP_WORDS[2]} =~ ^[a-z]+$ ]]; then
            words+=" $(_temper_options "$program" "$command" "${COMP_WORDS[2]}")"
        fi
    else
        return 0
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word" | sort -u)
}

# Anything that is no command or option is completed as a file.
complete -o default -F _temper temper
