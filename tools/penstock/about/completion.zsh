#compdef penstock
# Completion of penstock for zsh: put this file into a directory of $fpath as _penstock, or `source` it after compinit.
# The words come from `penstock complete`.
_penstock() {
    local word help
    local -a open closed
    local line=
    for line in "${(@f)$("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        word=${line%%$'\t'*}
        help=${line#*$'\t'}
        case $word in
        '') ;;
        :files | :directories)
            [[ $PREFIX == --*=* ]] && compset -P '*='
            if [[ $word == :files ]]; then _files; else _files -/; fi
            ;;
        *[.=\[]) open+=("${word//:/\\:}:$help") ;;
        *) closed+=("${word//:/\\:}:$help") ;;
        esac
    done
    (( $#closed )) && _describe -t words penstock closed
    (( $#open )) && _describe -t settings setting open -S ''
    return 0
}
if [[ $funcstack[1] == _penstock ]]; then
    _penstock "$@"
else
    compdef _penstock penstock
fi
