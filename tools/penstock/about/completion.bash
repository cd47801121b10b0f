# Completion of penstock for bash: `source` this file, or install it. The words come from `penstock complete`.
_penstock() {
    local line=${COMP_LINE:0:COMP_POINT} word help current path
    local -a args found
    read -ra args <<<"$line"
    [[ $line == *[[:space:]] ]] && args+=('')
    current=${args[-1]}
    path=$current
    [[ $current == --*=* ]] && path=${current#*=}
    COMPREPLY=()
    while IFS=$'\t' read -r word help; do
        case $word in
        :files | :directories)
            if [[ $word == :files ]]; then mapfile -t found < <(compgen -f -- "$path"); else mapfile -t found < <(compgen -d -- "$path"); fi
            compopt -o filenames 2>/dev/null
            COMPREPLY+=("${found[@]}")
            ;;
        *) COMPREPLY+=("$word") ;;
        esac
    done < <("${args[0]}" complete -- "${args[@]:1}" 2>/dev/null)
    # bash ends words at = and :, and replaces only what is behind the last of them
    word=${current%"${current##*[=:]}"}
    [[ $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"$word"}")
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[.=[] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _penstock penstock
