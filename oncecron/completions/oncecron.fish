# Completion of oncecron for fish, as `oncecron completion fish` prints it.

function __oncecron_complete
    set -l line (commandline -cp | string collect)
    set -l word (commandline -ct)
    set -l program (commandline -opc)[1]
    for answer in (COMP_LINE=$line _ONCECRON_COMPLETE=1 $program 2>/dev/null)
        set -l fields (string split \t -- $answer)
        switch $fields[1]
            case plain
                printf '%s\t%s\n' $fields[2] "$fields[3]"
            case file
                set -l path (string sub -s (math (string length -- $fields[2]) + 1) -- "$word")
                printf '%s\n' $fields[2](__fish_complete_path "$path")
            case command # the job, behind so many letters of the line
                complete -C (string sub -s (math $fields[2] + 1) -- $line)
        end
    end
end

complete -c oncecron -f -a '(__oncecron_complete)'
