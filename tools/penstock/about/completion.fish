# Completion of penstock for fish: `source` this file, or install it. The words come from `penstock complete`.
function __penstock_words
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] complete -- $words[2..-1] 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (commandline -ct)
            case ':directories'
                __fish_complete_directories (commandline -ct)
            case '*'
                printf '%s\n' $line
        end
    end
end
complete -c penstock -f -a '(__penstock_words)'
